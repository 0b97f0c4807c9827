"""Times as texts: in the active zone, 24 hours, "22 min ago" or "in 5 min" under an hour."""

from __future__ import annotations

from datetime import datetime

from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.ui.numbers import MISSING

__all__ = ["ago", "clock_time", "exact", "short", "time_tag"]


def exact(moment: datetime | None) -> str:
    """21 Nov 2026, 14:32:08 CET."""
    if moment is None:
        return MISSING
    local = timezone.localtime(moment)
    return f"{local.day} {local:%b %Y, %H:%M:%S %Z}"


def clock_time(moment: datetime | None) -> str:
    """14:32."""
    return MISSING if moment is None else f"{timezone.localtime(moment):%H:%M}"


def short(moment: datetime | None, now: datetime | None = None) -> str:
    """14:32 today, 17 Nov, 10:41 this year, 17 Nov 2025 before."""
    if moment is None:
        return MISSING
    local, today = timezone.localtime(moment), timezone.localtime(now)
    if local.date() == today.date():
        return f"{local:%H:%M}"
    day = f"{local.day} {local:%b}"
    return f"{day}, {local:%H:%M}" if local.year == today.year else f"{day} {local.year}"


def ago(moment: datetime | None, now: datetime | None = None) -> str:
    """22 min ago under an hour, in 5 min under an hour to come, else as `short`."""
    if moment is None:
        return MISSING
    elapsed_s = ((now or timezone.now()) - moment).total_seconds()
    if 0 <= elapsed_s < 45:
        return "just now"
    if 0 <= elapsed_s < 3600:
        return f"{max(1, round(elapsed_s / 60))}\u00a0min ago"
    if -3600 < elapsed_s < 0:
        return f"in {max(1, round(-elapsed_s / 60))}\u00a0min"
    return short(moment, now)


def time_tag(moment: datetime | None, *, relative: bool = True) -> SafeString:
    """`<time>` with the exact time as its title; a relative one is kept up to date in the browser."""
    if moment is None:
        return format_html("{}", MISSING)
    text = ago(moment) if relative else short(moment)
    mark = "data-rel" if relative else "data-abs"
    return format_html('<time datetime="{}" title="{}" {}>{}</time>', moment.isoformat(), exact(moment), mark, text)
