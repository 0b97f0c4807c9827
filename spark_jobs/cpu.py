"""CPU time of the stream processor on this machine: the driver, its JVM and their Python workers."""

from __future__ import annotations

import psutil

__all__ = ["family_cpu_ns", "family_rss_bytes"]


def family_cpu_ns(head: psutil.Process | None = None) -> int:
    """CPU time of a process (this one) and its descendants so far, nanoseconds, by the kernel's ticks of 10 ms.

    Of a descendant that ended, as Python workers do when they idle, its parent keeps the time. Only where that has
    ended too the sum goes back: callers take differences from 0 on.
    """
    total_s = 0.0
    for process in _family(head):
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total_s += times.user + times.system + times.children_user + times.children_system
    return round(total_s * 1e9)


def family_rss_bytes() -> dict[str, int]:
    """Resident bytes of the JVM and of Python."""
    found = {"jvm": 0, "python": 0}
    for process in _family():
        try:
            found["jvm" if process.name() == "java" else "python"] += process.memory_info().rss
        except psutil.Error:
            continue
    return found


def _family(head: psutil.Process | None = None) -> list[psutil.Process]:
    head = head or psutil.Process()
    return [head, *head.children(recursive=True)]
