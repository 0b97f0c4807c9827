"""Prices and moments as a report writes them, moments in its own time zone."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from apps.ui.numbers import MISSING, as_float

__all__ = ["local_day", "local_time", "money"]


_SIGNS = {"EUR": "€", "USD": "$", "GBP": "£"}


def money(value: Any, currency: str) -> str:
    """An amount with its currency in front; whole from a thousand on."""
    number = as_float(value)
    if number is None:
        return MISSING
    sign = _SIGNS.get(currency, currency)
    digits = 0 if abs(number) >= 1000 else 2
    minus = "−" if number < 0 else ""
    return f"{minus}{sign}\u00a0{abs(number):,.{digits}f}"


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
