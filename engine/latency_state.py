"""Standing of a latency: whether its figure is known, and the state of its objective that follows.

Everything that holds an estimate against an objective goes through `objective_state` or `bound_state`. Both ask for the
standing, so that a figure without events behind it, or one that a longer horizon would overtake, is never taken for one
that holds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from engine.document.elements import Objective

__all__ = ["KNOWN", "NEVER_CATCHES_UP", "UNKNOWN", "LatencyStanding", "bound_state", "objective_state"]


@dataclass(frozen=True, slots=True)
class LatencyStanding:
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
    words: str = ""
    server: str | None = None
    load: float | None = None
    growth: float | None = None
    breaks_after_s: float | None = None

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

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def of_dict(cls, plain: dict[str, Any]) -> LatencyStanding:
        """From JSON."""
        return cls(**plain)


#: A figure that is what it says.
KNOWN = LatencyStanding()
UNKNOWN = "unknown"
NEVER_CATCHES_UP = "never_catches_up"


def objective_state(
    objective: Objective | None, estimate_s: float, high_s: float | None, standing: LatencyStanding
) -> dict[str, Any]:
    """State of an estimate against its objective (see `bound_state`), with its headroom where there is one."""
    if objective is None:
        return {"state": "none", "headroom_s": None, "headroom_share": None}
    bound = objective.bound_s
    state = bound_state(bound, estimate_s, high_s, standing)
    if not standing.is_known and estimate_s <= bound:
        return {"state": state, "headroom_s": None, "headroom_share": None}  # nobody knows, or there is none
    return {"state": state, "headroom_s": bound - estimate_s, "headroom_share": (bound - estimate_s) / bound}


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
