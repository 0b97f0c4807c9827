"""Numbers as texts: two or three significant digits, the unit apart, a true minus, "–" for missing values."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from django.utils.html import format_html
from django.utils.safestring import SafeString

from engine.words import load_words, money_words, number_words, percent_words, size_words, time_unit

__all__ = [
    "MISSING",
    "Quantity",
    "as_float",
    "byte_rate",
    "bytes_size",
    "count",
    "cps",
    "factor",
    "money",
    "percent",
    "rate",
    "ratio",
    "scaled",
    "seconds",
    "seconds_range",
    "significant",
]

MISSING = "–"
_NBSP = "\u00a0"
_LARGE = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


class Quantity(NamedTuple):
    """A number as text and its unit, kept apart because the unit is written smaller."""

    text: str
    unit: str = ""

    def __str__(self) -> str:
        """Plain text: an unbroken space before the unit, none before %."""
        if not self.unit or self.text == MISSING:
            return self.text
        return f"{self.text}{'' if self.unit == '%' else _NBSP}{self.unit}"

    @property
    def html(self) -> SafeString:
        if not self.unit or self.text == MISSING:
            return format_html("{}", self.text)
        return format_html('{}<span class="u">{}</span>', self.text, self.unit)


def as_float(value: Any) -> float | None:
    """The value as a finite float; None for what is missing or no number."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def significant(value: Any, *, apart_from: Any = None) -> str:
    """A number with two or three significant digits.

    With `apart_from`, more digits are taken until it no longer looks equal to that number: an estimate of 3.04 against
    an objective of 3 is "3.04", never "3".

    Examples
    --------
    >>> significant(8.2431), significant(0.938), significant(13.62), significant(1214.0)
    ('8.2', '0.94', '13.6', '1,214')
    >>> significant(-0.4), significant(None), significant(3.04, apart_from=3.0)
    ('−0.4', '–', '3.04')
    """
    number = as_float(value)
    if number is None:
        return MISSING
    other = as_float(apart_from)
    return number_words(number)[0] if other is None else number_words(number, other)[0]


def scaled(value: Any, unit: str = "") -> Quantity:
    """A large number with k, M, G or T before its unit, such as 42.1 k/s."""
    number = as_float(value)
    if number is None:
        return Quantity(MISSING)
    for size, prefix in _LARGE:
        if abs(number) >= size * 0.9995:
            return Quantity(significant(number / size), f"{prefix}{unit}")
    return Quantity(significant(number), unit)


def seconds(value: Any, *, apart_from: Any = None) -> Quantity:
    """A duration, with enough digits to tell it from `apart_from`."""
    number = as_float(value)
    if number is None:
        return Quantity(MISSING)
    unit_s, unit = time_unit(number)
    bound = as_float(apart_from)
    return Quantity(significant(number / unit_s, apart_from=None if bound is None else bound / unit_s), unit)


def seconds_range(low: Any, high: Any, *, apart_from: Any = None) -> Quantity:
    """7.1 to 10.4 s; each end with its own unit where they differ, as in 80 ms to 1.2 s."""
    first, last = seconds(low), seconds(high, apart_from=apart_from)
    if MISSING in {first.text, last.text}:
        return Quantity(MISSING)
    begin = first.text if first.unit == last.unit or first.text == "0" else str(first)
    return Quantity(f"{begin} to {last.text}", last.unit)


def percent(share: Any) -> Quantity:
    """A share of 1 in percent, as sentences have it.

    Examples
    --------
    >>> [str(percent(share)) for share in (0.0412, 0.938, None)]
    ['4.1%', '94%', '–']
    """
    number = as_float(share)
    if number is None:
        return Quantity(MISSING)
    return Quantity(percent_words(number).removesuffix("%"), "%")


def ratio(value: Any) -> str:
    """A load as a share of capacity: two digits after the point, 0.93."""
    number = as_float(value)
    if number is None:
        return MISSING
    return load_words(number)[0] if abs(number) >= 0.005 else "0"


def factor(value: Any) -> Quantity:
    """A factor, such as 1.3 ×."""
    text = significant(value)
    return Quantity(text, "" if text == MISSING else "×")


def money(value: Any, currency: str = "EUR") -> str:
    """An amount with its currency before it: € 13.16. Cents are left out from ten thousand on."""
    number = as_float(value)
    if number is None:
        return MISSING
    return money_words(number, currency)


def rate(events_per_second: Any) -> Quantity:
    """Events per second."""
    return scaled(events_per_second, "/s")


def cps(cycles_per_second: Any) -> Quantity:
    """Capacity in cycles per second."""
    return scaled(cycles_per_second, "cycles/s")


def byte_rate(bytes_per_second: Any) -> Quantity:
    """Bytes per second in powers of ten, as networks count.

    Examples
    --------
    >>> [str(byte_rate(rate)).replace("\u00a0", " ") for rate in (1.25e8, 1000, 999.7)]
    ['125 MB/s', '1 kB/s', '1 kB/s']
    """
    return scaled(bytes_per_second, "B/s")


def bytes_size(size_bytes: Any) -> Quantity:
    """Bytes in powers of two, as memory is counted.

    Examples
    --------
    >>> [str(bytes_size(size)).replace("\u00a0", " ") for size in (900, 32 * 2**30, 1.5 * 2**20)]
    ['900 B', '32 GiB', '1.5 MiB']
    """
    number = as_float(size_bytes)
    if number is None:
        return Quantity(MISSING)
    text, _, unit = size_words(number).partition(_NBSP)
    return Quantity(text, unit)


def count(value: Any) -> str:
    """A whole number: exact below ten thousand, else short."""
    number = as_float(value)
    if number is None:
        return MISSING
    return f"{round(number):,}".replace("-", "−") if abs(number) < 10_000 else str(scaled(number))
