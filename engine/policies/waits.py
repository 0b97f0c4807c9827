"""Expected wait of an entry of the queue, from waits that are over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Annotated, ClassVar

from engine.records import Record, Words

__all__ = ["MIN_WAITS", "ExpectedWait", "expected_wait"]

MIN_WAITS = 20  # that are over, before anything is said of the next
MIN_LONGER = 10  # of them that lasted longer than the entry has waited
_LEVEL = 0.8  # of the interval
_KEPT = 200  # of the last waits


@dataclass(frozen=True)
class ExpectedWait(Record):
    """Time that an entry will wait yet, as waits before it went: the median, and an interval that holds 80 % of them.

    `held` of `judged` waits lay in the interval that was said of them when they began.
    """

    TITLE: ClassVar[str] = "an expected wait"

    median_s: Annotated[float, Words("Half of the waits before it lasted no longer.", unit="s")]
    low_s: float
    high_s: float
    waits: Annotated[int, Words("Waits behind it.")]
    held: Annotated[int, Words("Earlier waits that lay in their interval.")]
    judged: Annotated[int, Words("Earlier waits that an interval was said of.")]


def expected_wait(past_s: Sequence[float], waited_s: float = 0.0) -> ExpectedWait | None:
    """The wait that is left after `waited_s`; None where too few waits are over to say.

    `past_s` are waits that ended in a start, the oldest first. Of those that lasted longer than `waited_s` the order
    statistics floor(0.1 n) + 1 and ceil(0.9 n) bound the interval. The intervals that the same rule would have said of
    earlier waits, from those before each, are held against what came.

    Examples
    --------
    >>> expected_wait([60.0] * 10) is None
    True
    >>> wait = expected_wait([float(10 * (i % 10 + 1)) for i in range(40)])
    >>> wait.low_s, wait.median_s, wait.high_s, wait.waits
    (10.0, 50.0, 90.0, 40)
    """
    past = list(past_s[-_KEPT:])
    longer = sorted(wait for wait in past if wait > waited_s)
    if len(past) < MIN_WAITS or len(longer) < MIN_LONGER:
        return None
    low, median, high = (value - waited_s for value in _quantiles(longer))
    intervals = [(_quantiles(sorted(past[:i])), past[i]) for i in range(MIN_WAITS, len(past))]
    held = sum(low_s <= wait <= high_s for (low_s, _, high_s), wait in intervals)
    return ExpectedWait(median, low, high, len(longer), held, len(intervals))


def _quantiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower end, median and upper end of sorted waits."""
    n, tail = len(values), (1.0 - _LEVEL) / 2
    return values[floor(tail * n)], values[ceil(n / 2) - 1], values[ceil((1.0 - tail) * n) - 1]
