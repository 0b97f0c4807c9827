"""Control groups: both versions are found, and written in the words of each."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.testbed.cpu_groups import CpuMounts, find_mounts

_V1 = """tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0
cgroup /sys/fs/cgroup/cpuacct cgroup rw,relatime,cpuacct 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0"""


def test_separate_controllers_of_version_1_are_both_found() -> None:
    mounts = find_mounts(_V1)
    assert mounts is not None
    assert (mounts.version, [root.name for root in mounts.roots]) == (1, ["cpu", "cpuacct"])


def test_joint_controllers_of_version_1_are_one_folder() -> None:
    mounts = find_mounts("cgroup /c/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0")
    assert mounts is not None
    assert mounts.roots == (Path("/c/cpu,cpuacct"),)


def test_version_2_counts_only_with_a_cpu_controller(tmp_path: Path) -> None:
    line = f"cgroup2 {tmp_path} cgroup2 rw,relatime 0 0"
    (tmp_path / "cgroup.controllers").write_text("memory pids")
    assert find_mounts(line) is None
    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    assert find_mounts(line) == CpuMounts(2, (tmp_path,))


def test_quota_is_written_in_the_words_of_version_2(tmp_path: Path) -> None:
    (tmp_path / "cgroup.subtree_control").write_text("")
    group = CpuMounts(2, (tmp_path,)).group("g")
    group.create(0.25)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu"
    assert (tmp_path / "g/cpu.max").read_text() == "2500 10000"
    assert (tmp_path / "g/cpu.weight").read_text() == "10000"
    (tmp_path / "g/cpu.stat").write_text("usage_usec 1500000\nthrottled_usec 250000\n")
    assert (group.used_s(), group.throttled_s()) == (1.5, 0.25)


@pytest.mark.parametrize(("cores", "words"), [(2.0, "20000 10000"), (0.02, "1000 50000")])
def test_small_share_has_a_longer_period_rather_than_a_quota_the_kernel_refuses(
    tmp_path: Path, cores: float, words: str
) -> None:
    (tmp_path / "cgroup.subtree_control").write_text("cpu")
    CpuMounts(2, (tmp_path,)).group("g").create(cores)
    assert (tmp_path / "g/cpu.max").read_text() == words


def test_host_of_all_cores_leaves_other_programs_their_share(tmp_path: Path) -> None:
    (tmp_path / "cgroup.subtree_control").write_text("cpu")
    CpuMounts(2, (tmp_path,)).group("g").create(float(os.cpu_count() or 1))
    assert not (tmp_path / "g/cpu.weight").exists()
