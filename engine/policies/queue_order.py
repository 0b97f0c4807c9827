"""Order of a queue: what waits too long first, then priority classes, then teams by dominant share, then age."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine.policies.quotas import TeamDemand, dominant_share

__all__ = ["QueuedEntry", "may_start", "queue_order"]


@dataclass(frozen=True)
class QueuedEntry:
    """An entry of the queue. `asked_s` is when it came, by the clock of them all; `rank` is that of its class.

    A group is one entry: `demand` is that of its members of `team`, `beside` that of the others by their teams.
    """

    key: str
    rank: int
    team: str
    asked_s: float
    demand: TeamDemand = field(default_factory=TeamDemand)
    beside: Mapping[str, TeamDemand] = field(default_factory=dict)

    @property
    def demands(self) -> Mapping[str, TeamDemand]:
        """Demand by team."""
        return {**self.beside, self.team: self.demand}


def queue_order(
    entries: Sequence[QueuedEntry],
    usage: Mapping[str, TeamDemand],
    capacities: Mapping[str, float],
    now_s: float,
    overdue_after_s: float,
) -> list[QueuedEntry]:
    """Entries in the order in which they may start.

    Overdue ones first, the oldest at the front: each has but a fixed number before it, so its turn comes. Of the others
    the highest class; within it the team with the smallest dominant share, which grows by what its entries ask for as
    they are put into the order (Ghodsi et al., "Dominant Resource Fairness", NSDI 2011, algorithm 1); of a team the
    oldest. An entry of several teams counts by the largest share of them.

    Examples
    --------
    >>> rows = [QueuedEntry("a1", 0, "a", 0.0, TeamDemand({"cores": 1.0})),
    ...         QueuedEntry("a2", 0, "a", 1.0, TeamDemand({"cores": 1.0})), QueuedEntry("b1", 0, "b", 2.0)]
    >>> [row.key for row in queue_order(rows, {}, {"cores": 4.0}, 3.0, 60.0)]
    ['a1', 'b1', 'a2']
    """
    by_age = sorted(entries, key=lambda entry: (entry.asked_s, entry.key))
    ordered = [entry for entry in by_age if is_overdue(entry, now_s, overdue_after_s)]
    waiting = [entry for entry in by_age if not is_overdue(entry, now_s, overdue_after_s)]
    used = {team: usage.get(team, TeamDemand()) for entry in by_age for team in entry.demands}

    def place(entry: QueuedEntry) -> tuple[float, float, float, str]:
        share = max(dominant_share(used[team], capacities)[0] for team in entry.demands)
        return -entry.rank, share, entry.asked_s, entry.key

    while waiting:
        first = min(waiting, key=place)
        waiting.remove(first)
        ordered.append(first)
        for team, demand in first.demands.items():
            used[team] = used[team].plus(demand)
    return ordered


def is_overdue(entry: QueuedEntry, now_s: float, overdue_after_s: float) -> bool:
    """Whether nothing may overtake an entry any more."""
    return now_s - entry.asked_s >= overdue_after_s


def may_start(place: int, order: Sequence[QueuedEntry], now_s: float, overdue_after_s: float) -> bool:
    """Whether the entry at a place (from 0) may start before those ahead of it: none of them is overdue."""
    return not any(is_overdue(entry, now_s, overdue_after_s) for entry in order[:place])
