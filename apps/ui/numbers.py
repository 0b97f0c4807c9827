"""Numbers as texts: two or three significant digits, the unit apart, a true minus, "–" for missing values."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from django.utils.html import format_html
from django.utils.safestring import SafeString

from engine.words import MICROSECONDS_BELOW_S, MILLISECONDS_BELOW_S, money_words

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
_BINARY = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"))
_SMALL_PERCENT = 0.1
_NEARLY_WHOLE = 99.5


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
    digits = _digits(abs(number))
    text = _fixed(number, digits)
    while other is not None and number != other and text == _fixed(other, digits) and digits < 6:
        digits += 1
        text = _fixed(number, digits)
    return text


def _digits(size: float) -> int:
    """Digits after the point."""
    if size == 0 or size >= 100:
        return 0
    if size >= 1:
        return 1
    return min(9, 1 - math.floor(math.log10(size)))


def _fixed(number: float, digits: int) -> str:
    text = f"{number:,.{digits}f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    if text.lstrip("-") == "0":
        return "0"
    return text.replace("-", "−")


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
    size = abs(number)
    if size and size < MICROSECONDS_BELOW_S:
        return Quantity(significant(number * 1e6), "µs")
    if size and size < MILLISECONDS_BELOW_S:
        return Quantity(significant(number * 1e3), "ms")
    if size >= 172_800:
        return Quantity(significant(number / 86_400), "d")
    if size >= 7200 or (size >= 3600 and size % 3600 == 0):
        return Quantity(significant(number / 3600), "h")
    if size >= 600:
        return Quantity(significant(number / 60), "min")
    return Quantity(significant(number, apart_from=apart_from), "s")


def seconds_range(low: Any, high: Any, *, apart_from: Any = None) -> Quantity:
    """7.1 to 10.4 s; each end with its own unit where they differ, as in 80 ms to 1.2 s."""
    first, last = seconds(low), seconds(high, apart_from=apart_from)
    if MISSING in {first.text, last.text}:
        return Quantity(MISSING)
    begin = first.text if first.unit == last.unit or first.text == "0" else str(first)
    return Quantity(f"{begin} to {last.text}", last.unit)


def percent(share: Any) -> Quantity:
    """A share of 1 in percent, whole from 10 % on.

    What is above 0 and hardly there is "under 0.1%", what is nearly but not wholly 1 is "over 99%".

    Examples
    --------
    >>> [str(percent(share)) for share in (0.00027, 0.0412, 0.938, 0.9972, 123.4, 0.0)]
    ['under 0.1%', '4.1%', '94%', 'over 99%', '12,340%', '0%']
    """
    number = as_float(share)
    if number is None:
        return Quantity(MISSING)
    value = number * 100
    if 0 < value < _SMALL_PERCENT:
        return Quantity(f"under {_SMALL_PERCENT:g}", "%")
    if _NEARLY_WHOLE <= value < 100:
        return Quantity("over 99", "%")
    return Quantity(_fixed(value, 0) if abs(value) >= 10 else significant(value), "%")


def ratio(value: Any) -> str:
    """A load as a share of capacity: two digits after the point, 0.93."""
    number = as_float(value)
    if number is None:
        return MISSING
    return f"{number:.2f}" if abs(number) >= 0.005 else "0"


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
    for size, unit in _BINARY:
        if abs(number) >= size * 0.9995:
            return Quantity(significant(number / size), unit)
    return Quantity(significant(number), "B")


def count(value: Any) -> str:
    """A whole number: exact below ten thousand, else short."""
    number = as_float(value)
    if number is None:
        return MISSING
    return _fixed(number, 0) if abs(number) < 10_000 else str(scaled(number))
