"""Standing of a latency: whether its figure is known, and the state of its objective that follows.

Everything that holds an estimate against an objective goes through `objective_state` or `bound_state`. Both ask for the
standing, so that a figure without events behind it, or one that a longer horizon would overtake, is never taken for one
that holds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import inf
from typing import Annotated, NamedTuple

from pydantic import BeforeValidator, PlainSerializer, computed_field

from engine.document.elements import Objective
from engine.records import Fact, Record, Sentence

__all__ = [
    "ENDLESS_S",
    "KNOWN",
    "LATER",
    "NEVER",
    "NEVER_CATCHES_UP",
    "UNKNOWN",
    "WITHIN",
    "CatchUp",
    "KnownSeconds",
    "LatencyStanding",
    "ObjectiveStanding",
    "bound_state",
    "lasting_load",
    "objective_state",
]

#: Seconds that a search counts, and more, for what never catches up: the less it is overloaded the fewer.
ENDLESS_S = 1e9
#: Seconds of a latency that may be infinite, or a rank of what never catches up: null in JSON, infinite once read.
KnownSeconds = Annotated[
    float,
    BeforeValidator(lambda value: inf if value is None else value),
    PlainSerializer(lambda value: value if value < ENDLESS_S else None),
]


@dataclass(frozen=True, slots=True)
class LatencyStanding(Record):
    """Standing of a query's latency: what is known of it.

    Attributes
    ----------
    kind : str
        ``known``; ``unknown``: no event comes to its end, and the figure is what one event would meet; or
        ``never_catches_up``: a server of the query gets more than its capacity for good, and the figure is only how far
        behind it is within the horizon.
    words : str
        A sentence, empty where there is nothing to say.
    server : str or None
        The server that never catches up.
    load : float or None
        Its load over the closing stretch of the horizon, as a share of its capacity.
    growth : float or None
        Seconds by which the latency grows every second.
    breaks_after_s : float or None
        Seconds from the start of the horizon until the objective is broken, where that is not before.
    """

    kind: str = "known"
    words: Sentence = ""
    server: str | None = None
    load: float | None = None
    growth: float | None = None
    breaks_after_s: float | None = None

    @property
    def sentence(self) -> str:
        """The words as a text."""
        return str(self.words)

    @property
    def is_known(self) -> bool:
        """Whether the figure is one of the latency, for as long as it may run."""
        return self.kind == "known"

    @property
    def is_endless(self) -> bool:
        """Whether the query never catches up."""
        return self.kind == "never_catches_up"

    def times_over(self, share: float) -> float:
        """Times that a query is over its bound, of which a figure takes that share: above 1 if it never catches up.

        Examples
        --------
        >>> KNOWN.times_over(0.4), LatencyStanding("never_catches_up", growth=0.5).times_over(0.4)
        (0.4, 1.5)
        """
        return max(share, 1.0) + (self.growth or 1.0) if self.is_endless else share


#: A figure that is what it says.
KNOWN = LatencyStanding()
UNKNOWN = "unknown"
NEVER_CATCHES_UP = "never_catches_up"


class ObjectiveStanding(NamedTuple):
    """State of an estimate against its objective, with its headroom; None without one, and where nobody knows it."""

    state: str
    headroom_s: float | None = None
    headroom_share: float | None = None


def objective_state(
    objective: Objective | None, estimate_s: float, high_s: float | None, standing: LatencyStanding
) -> ObjectiveStanding:
    """State of an estimate against its objective (see `bound_state`), with its headroom where there is one."""
    if objective is None:
        return ObjectiveStanding("none")
    bound = objective.bound_s
    state = bound_state(bound, estimate_s, high_s, standing)
    if not standing.is_known and estimate_s <= bound:
        return ObjectiveStanding(state)
    return ObjectiveStanding(state, bound - estimate_s, (bound - estimate_s) / bound)


def bound_state(bound_s: float, estimate_s: float, high_s: float | None, standing: LatencyStanding) -> str:
    """State of an estimate against a bound: breached, at_risk (only the upper end is over), unknown or holds.

    A query that never catches up breaks every bound in time, so it is breached. One whose latency nobody knows is
    breached where what one event would meet is over the bound already, and unknown elsewhere.

    Examples
    --------
    >>> bound_state(60.0, 25.0, 26.0, KNOWN)
    'holds'
    >>> bound_state(60.0, 25.0, 26.0, LatencyStanding("never_catches_up"))
    'breached'
    >>> [bound_state(60.0, estimate_s, None, LatencyStanding("unknown")) for estimate_s in (25.0, 70.0)]
    ['unknown', 'breached']
    """
    if standing.is_endless or estimate_s > bound_s:
        return "breached"
    if standing.kind == UNKNOWN:
        return "unknown"
    return "at_risk" if high_s is not None and high_s > bound_s else "holds"


WITHIN, LATER, NEVER = "within", "later", "never"


@dataclass(frozen=True, slots=True)
class CatchUp(Record):
    """When a query has caught up, in seconds from the horizon's beginning.

    Attributes
    ----------
    state : str
        ``within`` the horizon; ``later``, where a server of it still has more to do at its end; ``never``, where one
        gets more than it can do on the mean as well; ``unknown``, where nobody knows a cost on its way.
    at_s : float or None
        Later: at the mean load of the horizon. None: never, or unknown.
    low_s, high_s : float or None
        Interval (90 %) of a time within the horizon; an end that lies beyond the horizon is None, and so are both
        where random costs and arrivals were not looked at.
    horizon_s : float
        Length of the horizon.
    """

    state: str
    at_s: float | None
    low_s: float | None
    high_s: float | None
    horizon_s: float

    @computed_field  # type: ignore[prop-decorator]
    @property
    def words(self) -> str:
        """Clause about it; minutes are too coarse for an interval of a few.

        Examples
        --------
        >>> CatchUp("within", 1200.0, 1100.0, None, 3600.0).words.replace("\u00a0", " ")
        'catches up after 20 min (18 min to more than 1 h)'
        >>> CatchUp("within", 200.0, 190.9, 209.2, 3600.0).words.replace("\u00a0", " ")
        'catches up after 200 s (191 s to 209 s)'
        >>> CatchUp("never", None, None, None, 600.0).words
        'never catches up at this load'
        """
        return str(Fact("latency.catch_up", **asdict(self)))

    @property
    def latest_s(self) -> float:
        """Upper end, infinite where it lies beyond the horizon: for comparisons."""
        return self.at_s if self.at_s is not None else inf

    def between(self, low_s: float | None, high_s: float | None) -> CatchUp:
        """The same with an interval, which the time itself is part of; it says nothing of times beyond the horizon."""
        if self.state != WITHIN or self.at_s is None or low_s is None:
            return self
        return replace(self, low_s=min(low_s, self.at_s), high_s=None if high_s is None else max(high_s, self.at_s))


def lasting_load(seconds: float) -> float | None:
    """Load, as a share of its capacity, of the server that a penalty is in some seconds for; None without one.

    Examples
    --------
    >>> lasting_load(25.0), lasting_load(25.0 + 1.5 * ENDLESS_S)
    (None, 1.5)
    """
    return round(seconds / ENDLESS_S, 6) if ENDLESS_S <= seconds < inf else None
