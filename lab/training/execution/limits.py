"""Limits of real executions: CPU quota by control groups, bandwidth by the kernel or by a token bucket.

A quota needs root and a control group with the CPU controller, of version 1 or 2; without them nothing is executed. The
kernel shapes links where `ip netns` and `tc` with `htb` and `u32` may be used: one network namespace per run, in which
every host has an address of 127.0.1.0/24 and a class of its own. Elsewhere senders pace themselves. Everything has the
run's process id in its name, and what a process that ended has left is removed by the next run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

__all__ = ["CpuGroups", "HostLinks", "QuotaUnavailable", "remove_remains"]

_NAME: Final = "sluice-execution-"
_PERIOD_US = 100_000
_SHARES = 16  # times the weight of an ordinary process: neighbours of the machine take little of a quota
_DEFAULT_WEIGHTS = {1: 1024, 2: 100}
_MTU = 1500  # the loopback's own 64 KB would leave a slow link in lumps
_BURST_BYTES = 8192


class QuotaUnavailable(Exception):
    """This machine lets nobody limit the CPU of a process, with the reason."""


class CpuGroups:
    """Control groups of a run: one per host, each with a quota of CPU.

    Raises
    ------
    QuotaUnavailable
        On entry.
    """

    def __init__(self, mounts: Path = Path("/proc/mounts")) -> None:
        self.version, self._root = _controller(mounts)
        self._folder = self._root / f"{_NAME}{os.getpid()}"

    def __enter__(self) -> CpuGroups:
        try:
            self._folder.mkdir(exist_ok=True)
            if self.version == 2:
                for folder in (self._root, self._folder):
                    (folder / "cgroup.subtree_control").write_text("+cpu")
            weight = "cpu.shares" if self.version == 1 else "cpu.weight"
            (self._folder / weight).write_text(str(_SHARES * _DEFAULT_WEIGHTS[self.version]))
        except OSError as error:
            _remove_groups(self._folder)
            raise QuotaUnavailable(f"{self._folder} cannot be made: {error.strerror}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _remove_groups(self._folder)

    def add(self, name: str, cpu_percent: float | None, pid: int) -> None:
        """Put a process, all of its threads, into a group with a quota in percent of a core; None: without one."""
        group = self._folder / name
        group.mkdir(exist_ok=True)
        quota_us = 0 if cpu_percent is None else round(_PERIOD_US * cpu_percent / 100.0)
        if self.version == 1:
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(quota_us or -1))
        else:
            (group / "cpu.max").write_text(f"{quota_us or 'max'} {_PERIOD_US}")
        (group / "cgroup.procs").write_text(str(pid))

    def throttled(self, name: str) -> int:
        """Periods in which the processes of a group were held back."""
        stat = (self._folder / name / "cpu.stat").read_text().split()
        return int(stat[stat.index("nr_throttled") + 1])


def _controller(mounts: Path) -> tuple[int, Path]:
    """Version and folder of the CPU controller."""
    try:
        lines = [line.split() for line in mounts.read_text().splitlines()]
    except OSError as error:
        raise QuotaUnavailable(f"{mounts} cannot be read: {error.strerror}") from error
    folders = [(1, Path(line[1])) for line in lines if line[2] == "cgroup" and "cpu" in line[3].split(",")]
    for line in lines:
        controllers = Path(line[1]) / "cgroup.controllers"
        if line[2] == "cgroup2" and controllers.is_file() and "cpu" in controllers.read_text().split():
            folders.append((2, Path(line[1])))
    for version, folder in folders:
        if os.access(folder, os.W_OK):
            return version, folder
    if folders:
        raise QuotaUnavailable(f"{folders[0][1]} may not be written by this user")
    raise QuotaUnavailable("no control group with the CPU controller is mounted")


def _remove_groups(folder: Path) -> None:
    """Remove a run's groups; the kernel lets go of them a moment after their last process."""
    for group in (*(path for path in folder.glob("*") if path.is_dir()), folder):
        for _ in range(50):
            try:
                group.rmdir()
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.02)
            else:
                break


class HostLinks:
    """Ways out of the hosts of a run.

    Attributes
    ----------
    prefix
        Words before the command of a host's process.
    is_kernel
        Whether the kernel shapes the links; senders must pace themselves otherwise.
    """

    def __init__(self, bandwidths_mbit_s: Sequence[float], *, by_kernel: bool = True) -> None:
        self._rates = tuple(bandwidths_mbit_s)
        self._name = f"{_NAME}{os.getpid()}"
        self._wants_kernel = by_kernel
        self.is_kernel = False
        self.prefix: tuple[str, ...] = ()

    def __enter__(self) -> HostLinks:
        if self._wants_kernel and all(map(shutil.which, ("ip", "tc"))):
            try:
                self._shape()
            except (OSError, subprocess.SubprocessError):
                self.__exit__(None, None, None)
            else:
                self.is_kernel, self.prefix = True, ("ip", "netns", "exec", self._name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _delete_namespace(self._name)

    @staticmethod
    def address(host: int) -> str:
        """Address of a host of the run."""
        return f"127.0.1.{host + 1}"

    def _shape(self) -> None:
        _run("ip", "netns", "add", self._name)
        inside = ("ip", "netns", "exec", self._name)
        _run(*inside, "ip", "link", "set", "lo", "mtu", str(_MTU), "up")
        _run(*inside, "tc", "qdisc", "add", "dev", "lo", "root", "handle", "1:", "htb")
        for host, rate in enumerate(self._rates):
            number = f"1:{host + 1}"
            limits = ["rate", f"{rate:g}mbit", "burst", str(_BURST_BYTES), "cburst", str(_BURST_BYTES)]
            limits += ["quantum", str(_MTU)]
            _run(*inside, "tc", "class", "add", "dev", "lo", "parent", "1:", "classid", number, "htb", *limits)
            match = ["u32", "match", "ip", "src", f"{self.address(host)}/32", "flowid", number]
            _run(*inside, "tc", "filter", "add", "dev", "lo", "parent", "1:", "protocol", "ip", *match)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=20.0)


def _delete_namespace(name: str) -> None:
    if Path("/run/netns", name).exists():
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            _run("ip", "netns", "del", name)


def remove_remains(mounts: Path = Path("/proc/mounts")) -> None:
    """Remove groups and namespaces of runs whose process was killed."""
    with contextlib.suppress(QuotaUnavailable):
        for folder in _forsaken(_controller(mounts)[1]):
            _remove_groups(folder)
    for path in _forsaken(Path("/run/netns")):
        _delete_namespace(path.name)


def _forsaken(folder: Path) -> Iterator[Path]:
    for path in folder.glob(f"{_NAME}*"):
        pid = path.name.removeprefix(_NAME)
        if pid.isdigit() and not Path("/proc", pid).exists():
            yield path
