"""Moments as a report writes them, in its own time zone."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

__all__ = ["local_day", "local_time"]


def local_time(text: str | None, zone: ZoneInfo) -> str:
    """21 Nov 2026, 14:32 of an ISO time."""
    if not text:
        return "–"
    local = datetime.fromisoformat(text).astimezone(zone)
    return f"{local.day} {local:%b %Y, %H:%M}"


def local_day(text: str, zone: ZoneInfo) -> str:
    """21 Nov."""
    local = datetime.fromisoformat(text).astimezone(zone)
    return f"{local.day} {local:%b}"
