"""Prices as they are written: € 13.16."""

from __future__ import annotations

from typing import Any

from apps.ui.numbers import MISSING, as_float

__all__ = ["money"]

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
