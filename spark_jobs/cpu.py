"""CPU time of the stream processor on this machine: the driver, its JVM and their Python workers."""

from __future__ import annotations

import psutil

__all__ = ["FamilyCpu", "family_rss_bytes"]


class FamilyCpu:
    """CPU time of this process and its descendants, which never goes back.

    Python workers end when they idle. What one used stays counted, up to the last call that saw it.
    """

    def __init__(self) -> None:
        self._seen_s: dict[psutil.Process, float] = {}
        self._total_s = 0.0

    def __call__(self) -> int:
        """Nanoseconds, by the kernel's ticks of 10 ms."""
        seen_s = {}
        for process in _family():
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            seen_s[process] = times.user + times.system
            self._total_s += seen_s[process] - self._seen_s.get(process, 0.0)
        self._seen_s = seen_s
        return round(self._total_s * 1e9)


def family_rss_bytes() -> dict[str, int]:
    """Resident bytes of the JVM and of Python."""
    found = {"jvm": 0, "python": 0}
    for process in _family():
        try:
            found["jvm" if process.name() == "java" else "python"] += process.memory_info().rss
        except psutil.Error:
            continue
    return found


def _family() -> list[psutil.Process]:
    own = psutil.Process()
    return [own, *own.children(recursive=True)]
