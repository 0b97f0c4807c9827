"""How a query and its watermarks are told: states in a word, times by the clock."""

from __future__ import annotations

from datetime import UTC, datetime

from django.utils import timezone

from apps.scheduling.lines import QueryLine
from apps.ui.marks import Mark

__all__ = ["clock_of", "line_mark"]


def clock_of(moment_us: float) -> str:
    """14:32:08, in the active zone, of microseconds since 1970."""
    return f"{timezone.localtime(datetime.fromtimestamp(moment_us / 1e6, UTC)):%H:%M:%S}"


def line_mark(line: QueryLine) -> Mark:
    """Shape, tone and words of how a query is."""
    if line.last is None:
        return Mark("unknown", "", "Not heard of yet")
    if line.late:
        return Mark("watch", "watch", line.late[:1].upper() + line.late[1:])
    if line.last.overflow:
        return Mark("watch", "watch", "Overflows")
    if line.slack_s is not None and line.slack_s < 0:
        return Mark("watch", "watch", "Behind its window")
    if line.period_s is None:
        return Mark("ok", "ok", "No windows")
    return Mark("ok", "ok", "In time") if line.sweeps else Mark("queue", "", "No window swept yet")
