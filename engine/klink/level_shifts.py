"""Level shifts and stalls of watermark delays: what came before today's level, and what is no part of any level."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from math import sqrt
from statistics import median

__all__ = ["find_level_shift", "stalled_epochs"]

_RECENT = (20, 40)  # latest epochs that are held against those before them
_OLDER = (20, 80)  # so many of those before: at least, and at most
_SIGNIFICANT = 4.5  # deviations of the rank sum; 7 of a million by chance
_MIN_KEPT = 10
_OFF = 5.0  # deviations from the median of a level
_AS_FAR = 0.02  # of the share of pairs: one epoch of the old level among 25
_TO_DEVIATION = 1.4826  # of a normal: deviations in its median one
_FAR = 10.0  # deviations above the median, beyond which a delay belongs to a stall
_SPAN = 3  # epochs in a row that a stall spans at least; fewer may be a tail
_MAX_STALLED_SHARE = 0.4  # more is a level, or a stream of two


def find_level_shift(delays: Sequence[float]) -> int | None:
    """Number of the latest epochs that are at another level than those before them; None where none are.

    The latest 20 or 40 delays are held against up to 80 before them by the rank sum of Wilcoxon, which asks nothing of
    their distribution: a tail, or two values by turns, is no shift. The epochs since the shift are the most that lie as
    far from those before as any number of them does.

    Examples
    --------
    >>> steady = [300.0 + 7 * (number % 13) for number in range(60)]
    >>> find_level_shift(steady) is None
    True
    >>> find_level_shift([*steady, *(delay + 1000.0 for delay in steady[:16])])
    16
    """
    splits = [recent for recent in _RECENT if len(delays) - recent >= _OLDER[0]]
    if not any(_is_significant(delays, recent) for recent in splits):
        return None
    apart = {recent: abs(_superiority(delays, recent) - 0.5) for recent in range(_MIN_KEPT, splits[-1] + 1)}
    furthest = max(apart.values())
    shift = max(recent for recent, distance in apart.items() if distance >= furthest - _AS_FAR)
    return shift - _strangers(delays[-shift:])


def _strangers(delays: Sequence[float]) -> int:
    """First epochs that lie off the level of those after them: extremes of the level before it look like a new one."""
    middle = median(delays)
    limit = _OFF * _TO_DEVIATION * median(abs(delay - middle) for delay in delays)
    first = next((place for place, delay in enumerate(delays) if abs(delay - middle) <= limit), 0)
    return min(first, len(delays) - _MIN_KEPT)


def _older(delays: Sequence[float], recent: int) -> list[float]:
    """The delays before the `recent` latest that these are held against, ascending."""
    last = len(delays) - recent
    return sorted(delays[max(0, last - _OLDER[1]) : last])


def _is_significant(delays: Sequence[float], recent: int) -> bool:
    """z = (A - 1/2) sqrt(12 n m / (n + m + 1)) of n recent and m older delays; equal values make |z| smaller."""
    n, m = recent, min(len(delays) - recent, _OLDER[1])
    return abs(_superiority(delays, recent) - 0.5) * sqrt(12 * n * m / (n + m + 1)) >= _SIGNIFICANT


def _superiority(delays: Sequence[float], recent: int) -> float:
    """Share of pairs in which the recent delay is later than the older one, A = U / (n m); equal ones count half."""
    older = _older(delays, recent)
    u = sum(bisect_left(older, delay) + bisect_right(older, delay) for delay in delays[-recent:]) / 2
    return u / (recent * len(older))


def stalled_epochs(delays: Sequence[float]) -> frozenset[int]:
    """Positions of epochs in stalls: three or more in a row, each more than 10 deviations above the median.

    One pause of a stream delays all watermarks that fall into it: one event, however many windows it spans. The
    deviation is 1.4826 times the median one. Where more than two fifths of the epochs are so late, it is no stall.

    Examples
    --------
    >>> sorted(stalled_epochs([300.0, 310.0, 305.0, 290.0, 9000.0, 8000.0, 7000.0, 300.0, 310.0, 295.0]))
    [4, 5, 6]
    """
    if not delays:
        return frozenset()
    middle = median(delays)
    limit = middle + _FAR * _TO_DEVIATION * median(abs(delay - middle) for delay in delays)
    stalled: list[int] = []
    run: list[int] = []
    for position, delay in enumerate((*delays, middle)):
        if delay > limit:
            run.append(position)
        else:
            stalled += run if len(run) >= _SPAN else ()
            run = []
    return frozenset(stalled) if len(stalled) <= _MAX_STALLED_SHARE * len(delays) else frozenset()
