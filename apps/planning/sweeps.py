"""What a sweep over numbers of nodes says: which hold, which is the smallest, what one node fewer would break."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

__all__ = ["BREAKS", "FRAGILE", "HOLDS", "Objective", "Size", "Sweep"]

BREAKS, FRAGILE, HOLDS = "breached", "at_risk", "holds"


@dataclass(frozen=True)
class Objective:
    """What a query is to keep, as the bench was asked; `limit_s` is less the headroom to keep."""

    statistic: str
    bound_s: float
    limit_s: float


@dataclass(frozen=True)
class Size:
    """One number of nodes.

    Attributes
    ----------
    worst_s, lost_s : float or None
        Largest worst case with all nodes up, and with the node lost that hurts most; None if not everything can be
        placed then, or if it was not asked for.
    share, lost_share : float or None
        Largest latency as a share of what its objective leaves.
    queries : mapping
        Seconds by query, all nodes up.
    late, lost_late : sequence of str
        Queries beyond their objective.
    stuck : str
        An operator that fits nowhere, and with which node lost.
    """

    nodes: int
    cost: float | None
    worst_s: float | None
    share: float | None
    queries: Mapping[str, float]
    late: Sequence[str]
    lost_s: float | None
    lost_share: float | None
    lost_node: str
    lost_late: Sequence[str]
    stuck: str
    state: str
    is_now: bool

    @property
    def holds(self) -> bool:
        return self.state == HOLDS


class Sweep:
    """The sizes of `Bench.sweep` (each `to_dict`), read.

    Parameters
    ----------
    now : int
        Number of nodes now.
    sizes : sequence of mapping
    objectives : mapping
        By query, as asked.
    lose_one : bool
        Whether objectives are to hold with one node lost, too.
    """

    def __init__(
        self, now: int, sizes: Sequence[Mapping[str, Any]], objectives: Mapping[str, Objective], lose_one: bool
    ) -> None:
        self.now, self.objectives, self.lose_one = now, dict(objectives), lose_one
        self.sizes = [self._size(one) for one in sizes]

    def _size(self, one: Mapping[str, Any]) -> Size:
        lost = one["lost"] or {}
        stuck = f"{one['stuck']} fits no node" if one["stuck"] else ""
        state = BREAKS if one["stuck"] or one["late"] else HOLDS
        if state == HOLDS and lost and self.lose_one:
            if lost["stuck"]:
                stuck = f"{lost['stuck']['operator']} fits nowhere once {lost['stuck']['node']} is lost"
            state = FRAGILE if lost["stuck"] or lost["late"] else HOLDS
        return Size(
            nodes=int(one["nodes"]),
            cost=one["cost_per_hour"],
            worst_s=one["worst_s"],
            share=one["over_bound"] if self.objectives else None,
            queries=one["queries"],
            late=one["late"],
            lost_s=lost.get("worst_s"),
            lost_share=lost.get("over_bound") if self.objectives else None,
            lost_node=lost.get("node") or "",
            lost_late=lost.get("late", ()),
            stuck=stuck,
            state=state,
            is_now=one["nodes"] == self.now,
        )

    def at(self, nodes: int | None) -> Size | None:
        """The size of that many nodes, if it was looked at."""
        return next((size for size in self.sizes if size.nodes == nodes), None)

    @cached_property
    def smallest(self) -> Size | None:
        """The fewest nodes that keep every objective."""
        return next((size for size in self.sizes if size.holds), None)

    def before(self, size: Size) -> Size | None:
        """The next smaller number that was looked at."""
        smaller = [one for one in self.sizes if one.nodes < size.nodes]
        return smaller[-1] if smaller else None

    @cached_property
    def bound_s(self) -> float | None:
        """The one worst case that all queries are to keep; None where objectives differ, or are no worst cases."""
        bounds = {(one.statistic, one.bound_s) for one in self.objectives.values()}
        statistic, bound_s = next(iter(bounds), ("", None))
        return bound_s if len(bounds) == 1 and statistic == "worst" else None
