"""Samples of operators that put out once per window: subintervals gathered to whole multiples of the window's slide.

A window of 10 s puts out nothing in two subintervals of 4 s and everything in the third. Taken one by one, their ratios
would seem to be known to +- 40 %, whatever the length of the sample; over whole slides they are alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from engine.measurement.ratios import Sample

__all__ = ["MOST_SLIDES", "block_s", "blocks_of"]

MOST_SLIDES = 10  # in a block; subintervals that fit no better are counted where they begin
_US = 1_000_000


def block_s(slide_s: float, width_s: float) -> float:
    """The shortest stretch that is a whole number of slides and of subintervals.

    Where that is longer than ten of the longer of the two, it is so many whole slides as these ten take.

    Examples
    --------
    >>> block_s(10.0, 4.0), block_s(10.0, 10.0), block_s(5.0, 60.0), block_s(10.0, 0.7)
    (20.0, 10.0, 60.0, 70.0)
    """
    slide, width = round(slide_s * _US), round(width_s * _US)
    exact = math.lcm(slide, width)
    most = MOST_SLIDES * max(slide, width)
    return (exact if exact <= most else math.ceil(most / slide) * slide) / _US


def blocks_of(
    samples: Sequence[Sample], *, width_s: float, block: float, without: Sequence[tuple[float, float]] = ()
) -> list[Sample]:
    """Sums of the whole blocks that some subintervals cover, in order of time.

    Parameters
    ----------
    samples : sequence of Sample
        One for each subinterval, in order of time.
    width_s, block : float
        Widths of a subinterval and of a block (`block_s`); blocks are counted from 1970, as windows are.
    without : sequence of (float, float)
        Stretches of time whose blocks are left out: what was put out then is of other events.

    Notes
    -----
    Before the first whole block all that is known is one sample, of which no error can be told.
    """
    if not samples:
        return []
    first_s, last_s = samples[0].at_s, samples[-1].at_s + width_s
    found: dict[int, list[Sample]] = {}
    for one in samples:
        found.setdefault(math.floor(one.at_s / block), []).append(one)
    whole = [
        _sum(k * block, parts)
        for k, parts in sorted(found.items())
        if first_s <= k * block and (k + 1) * block <= last_s and not _overlaps(k * block, (k + 1) * block, without)
    ]
    return whole or [_sum(first_s, samples)]


def _overlaps(begin: float, end: float, stretches: Sequence[tuple[float, float]]) -> bool:
    return any(since < end and until > begin for since, until in stretches)


def _sum(at_s: float, parts: Sequence[Sample]) -> Sample:
    names = ("events", "outputs", "cycles", "under_cycles")
    return Sample(at_s, *(math.fsum(getattr(one, name) for one in parts) for name in names))
