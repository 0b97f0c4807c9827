"""CPU quotas by control groups, version 1 or 2: processes are held to a number of cores, and their use is counted."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PERIOD_S", "CpuGroup", "CpuMounts", "find_mounts"]

#: A quota counts within this: short, so that a small share is many short turns, not one long pause.
PERIOD_S = 0.01
_MIN_QUOTA_US = 1000  # the kernel takes no less
#: File and largest weight by version: a group has its part of the cores whatever other programs want.
_WEIGHTS = {1: ("cpu.shares", 262_144), 2: ("cpu.weight", 10_000)}
_PATIENCE_S = 10.0
_REAPING_S = 90.0  # some first processes take orphans that have ended out of their groups now and then only


@dataclass(frozen=True, slots=True)
class CpuMounts:
    """Folders in which groups are made: one of version 2, or those of the controllers ``cpu`` and ``cpuacct``."""

    version: int
    roots: tuple[Path, ...]

    def group(self, name: str) -> CpuGroup:
        return CpuGroup(name, self)

    def groups(self, prefix: str) -> Iterator[CpuGroup]:
        """Groups whose name begins so, whoever made them."""
        names = {path.name for root in self.roots for path in root.glob(f"{prefix}*") if path.is_dir()}
        return (CpuGroup(name, self) for name in sorted(names))


def find_mounts(text: str | None = None) -> CpuMounts | None:
    """Where this machine has its CPU controller, by its table of mounts; None where it has none.

    Examples
    --------
    >>> find_mounts("cgroup /c/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0").version
    1
    >>> find_mounts("tmpfs /tmp tmpfs rw 0 0") is None
    True
    """
    lines = (Path("/proc/mounts").read_text() if text is None else text).splitlines()
    rows = [line.split() for line in lines if len(line.split()) >= 4]
    by_controller = {
        option: Path(row[1]) for row in rows if row[2] == "cgroup" for option in row[3].split(",") if option != "rw"
    }
    if "cpu" in by_controller:
        roots = [by_controller["cpu"], by_controller.get("cpuacct", by_controller["cpu"])]
        return CpuMounts(1, tuple(dict.fromkeys(roots)))
    for row in rows:
        if row[2] == "cgroup2" and "cpu" in _words(Path(row[1]) / "cgroup.controllers"):
            return CpuMounts(2, (Path(row[1]),))
    return None


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


@dataclass(frozen=True, slots=True)
class CpuGroup:
    """A group of processes by name."""

    name: str
    mounts: CpuMounts

    @property
    def paths(self) -> list[Path]:
        return [root / self.name for root in self.mounts.roots]

    def create(self, cores: float) -> None:
        """Make the group and hold it to so many cores; a part of those there are comes before other programs."""
        if self.mounts.version == 2:
            root = self.mounts.roots[0]
            if "cpu" not in _words(root / "cgroup.subtree_control"):
                (root / "cgroup.subtree_control").write_text("+cpu")
        for path in self.paths:
            path.mkdir(exist_ok=True)
        if cores < (os.cpu_count() or 1):  # all of them would leave other programs none
            name, weight = _WEIGHTS[self.mounts.version]
            (self.paths[0] / name).write_text(str(weight))
        self.limit(cores)

    def limit(self, cores: float) -> None:
        """Hold the group to another number of cores from now on."""
        period_us = round(max(PERIOD_S * 1e6, _MIN_QUOTA_US / cores))
        quota_us = round(cores * period_us)
        path = self.paths[0]
        if self.mounts.version == 2:
            (path / "cpu.max").write_text(f"{quota_us} {period_us}")
            return
        (path / "cpu.cfs_quota_us").write_text("-1")  # a period may not be changed to less than a quota that stands
        (path / "cpu.cfs_period_us").write_text(str(period_us))
        (path / "cpu.cfs_quota_us").write_text(str(quota_us))

    def entrances(self) -> list[Path]:
        """Files in which a process writes its id to join."""
        return [path / "cgroup.procs" for path in self.paths]

    def used_s(self) -> float:
        """CPU time of all processes of the group so far, seconds."""
        path = self.paths[-1]
        if self.mounts.version == 2:
            rows = dict(line.split() for line in (path / "cpu.stat").read_text().splitlines())
            return int(rows["usage_usec"]) / 1e6
        return int((path / "cpuacct.usage").read_text()) / 1e9

    def throttled_s(self) -> float:
        """Time that processes of the group waited because the quota was used up, seconds."""
        rows = dict(line.split() for line in (self.paths[0] / "cpu.stat").read_text().splitlines())
        return int(rows["throttled_usec"]) / 1e6 if self.mounts.version == 2 else int(rows["throttled_time"]) / 1e9

    def processes(self) -> set[int]:
        """Ids of the processes in the group."""
        return {int(word) for entrance in self.entrances() for word in _words(entrance)}

    def end_processes(self) -> None:
        """End every process of the group; also those that one of them makes meanwhile. Raises `TimeoutError`."""
        until = time.monotonic() + _PATIENCE_S
        while left := self.processes():
            for process in left:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            if time.monotonic() > until:
                raise TimeoutError(f"processes of {self.name} did not end: {', '.join(map(str, sorted(left)))}")
            time.sleep(0.01)

    def remove(self) -> None:
        """End its processes and remove the group, also one that was made by halves."""
        self.end_processes()
        for path in self.paths:
            until = time.monotonic() + _REAPING_S
            while path.is_dir():
                try:
                    path.rmdir()
                except OSError:  # a process that has ended is still being taken out
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.01)
