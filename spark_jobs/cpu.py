"""CPU time of the stream processor on this machine: the driver, its JVM and their Python workers."""

from __future__ import annotations

import psutil

__all__ = ["family_cpu_ns", "family_rss_bytes"]


def family_cpu_ns() -> int:
    """CPU time of this process and its descendants so far, nanoseconds.

    It goes back when a descendant ends, as Python workers do when they idle: callers take differences from 0 on.
    """
    total_s = 0.0
    for process in _family():
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total_s += times.user + times.system
    return int(total_s * 1e9)


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
