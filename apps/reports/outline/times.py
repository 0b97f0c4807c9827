"""Moments of a report, in its own zone: whoever reads it, wherever."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

__all__ = ["day", "told"]


def told(text: str | None, zone: ZoneInfo) -> str:
    """21 Nov 2026, 14:32 of an ISO time."""
    if not text:
        return "–"
    local = datetime.fromisoformat(text).astimezone(zone)
    return f"{local.day} {local:%b %Y, %H:%M}"


def day(text: str, zone: ZoneInfo) -> str:
    """21 Nov."""
    local = datetime.fromisoformat(text).astimezone(zone)
    return f"{local.day} {local:%b}"
