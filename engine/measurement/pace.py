"""When what was measured is worth a new estimate: at once if it is material, otherwise once a minute.

Every statistic moves a little all the time. Passing on each move by itself would make an estimate every few seconds
that says what the one before it said.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine.measurement.ratios import Ratio

__all__ = ["LEAST_S", "MATERIAL", "News", "Pace", "Standing", "moved_for_certain", "together"]

LEAST_S = 60.0  # between estimates for moves that are not material
MATERIAL = 0.2  # of a value, beyond its own 90 % interval
_SWING = 2.0  # queueing answers a move of load with a larger one of its own


@dataclass(frozen=True, slots=True)
class News:
    """What would be passed on. `first`: a measurement takes the place of an assumption; `moved`: the largest move, as a
    share of the value that is stored, or of the events that an operator works on elsewhere.
    """

    first: bool = False
    moved: float = 0.0


@dataclass(frozen=True, slots=True)
class Standing:
    """A query's newest estimate against its objective, in seconds. `flow_s` is the part that statistics move."""

    flow_s: float
    estimate_s: float
    high_s: float | None
    bound_s: float

    def may_turn(self, moved: float) -> bool:
        """Whether a move of the statistics may change the state of the objective: twice its share of Flow reaches from
        the estimate, or from the upper end of its interval, across the bound.
        """
        ends = [self.estimate_s] if self.high_s is None else [self.estimate_s, self.high_s]
        return min(abs(self.bound_s - one) for one in ends) <= _SWING * moved * self.flow_s


@dataclass(frozen=True, slots=True)
class Pace:
    """`age_s` of the newest estimate (None: there is none), and how queries stand in it."""

    age_s: float | None = None
    standings: Sequence[Standing] = ()

    def is_due(self, news: News) -> bool:
        """Whether something is to be passed on now."""
        if self.age_s is None or self.age_s >= LEAST_S or news.first or news.moved >= MATERIAL:
            return True
        return news.moved > 0.0 and any(one.may_turn(news.moved) for one in self.standings)


def moved_for_certain(found: Ratio, stored: float) -> float:
    """By what share of the stored value a ratio moved beyond its own 90 % interval; from 0 it moves by all of it.

    Examples
    --------
    >>> moved_for_certain(Ratio(1.5, 0.0), 1.0), moved_for_certain(Ratio(1.5, None), 1.0)
    (0.5, 0.5)
    """
    beyond = max(0.0, abs(found.value - stored) - (found.half_width or 0.0))
    return beyond / abs(stored) if stored else float(beyond > 0.0)


def together(parts: Iterable[News]) -> News:
    """Several as one."""
    listed = list(parts)
    return News(any(one.first for one in listed), max((one.moved for one in listed), default=0.0))
