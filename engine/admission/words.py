"""How admission puts numbers and statistics into sentences: few digits, unbroken space before the unit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from engine.admission.evaluation import Outcome

__all__ = ["against", "counted", "listed", "load", "percent", "seconds", "seconds_of", "statistic_words"]

_UNBROKEN = "\u00a0"
_MOST_DIGITS = 6


def seconds(*values: float) -> tuple[str, ...]:
    """Seconds with two or three significant digits, or as many as it takes to tell different values apart.

    Examples
    --------
    >>> [text.replace("\u00a0", " ") for text in seconds(8.213, 13.6, 10.0)]
    ['8.2 s', '13.6 s', '10 s']
    >>> [text.replace("\u00a0", " ") for text in seconds(10.004, 10.0)]
    ['10.004 s', '10 s']
    """
    return tuple(f"{text}{_UNBROKEN}s" for text in _told_apart(values, _plain))


def _told_apart(values: Sequence[float], written: Callable[[float, int], str]) -> tuple[str, ...]:
    """`values` as `written` with as many extra digits as it takes for different ones to look different."""
    for extra in range(_MOST_DIGITS):
        texts = tuple(written(value, extra) for value in values)
        if len(set(texts)) == len(set(values)):
            break
    return texts


def _plain(value: float, extra: int) -> str:
    digits = 1 if 1.0 <= abs(value) < 100.0 else 0
    if 0.0 < abs(value) < 1.0:
        digits = 1 - math.floor(math.log10(abs(value)))
    text = f"{value:.{digits + extra}f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text).replace("-", "−")


def seconds_of(outcome: Outcome) -> str:
    """An estimate; below the resolution only that it is."""
    if outcome.estimate_s < outcome.resolution_s:
        return f"under {seconds(outcome.resolution_s)[0]}"
    return seconds(outcome.estimate_s)[0]


def against(outcome: Outcome) -> str:
    """The estimate beside its objective: ``8.2 s, against 10 s``."""
    if outcome.bound_s is None:
        return seconds_of(outcome)
    if outcome.estimate_s < outcome.resolution_s:
        return f"{seconds_of(outcome)}, against {seconds(outcome.bound_s)[0]}"
    estimate, bound = seconds(outcome.estimate_s, outcome.bound_s)
    return f"{estimate}, against {bound}"


def statistic_words(statistic: str) -> str:
    """What an objective is about: worst case, mean, 99% quantile."""
    if statistic == "worst":
        return "worst case"
    return "mean" if statistic == "mean" else f"{100 * float(statistic[1:]):.6g}% quantile"


def load(*values: float) -> tuple[str, ...]:
    """Shares of capacity with two decimals, or as many as it takes to tell different values apart.

    Examples
    --------
    >>> load(0.8, 1.1), load(0.9991, 1.0012), load(0.0, 1250.0)
    (('0.80', '1.10'), ('0.999', '1.001'), ('0.00', '1,250.00'))
    """
    return _told_apart(values, lambda value, extra: f"{value:,.{2 + extra}f}")


def percent(share: float) -> str:
    """A share as a percentage without decimals."""
    return f"{100 * share:.0f}%"


def counted(number: int, one: str, many: str | None = None) -> str:
    """``1 query`` or ``3 queries``."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def listed(names: Sequence[str], most: int = 3) -> str:
    """Names in a row: ``a``, ``a and b``, ``a, b and 4 more``."""
    if len(names) > most:
        return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} more"
    return " and ".join((", ".join(names[:-1]), names[-1]) if len(names) > 1 else tuple(names))
