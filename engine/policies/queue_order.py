"""Order of a queue: what waits too long first, then priority classes, then teams by dominant share, then age."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine.policies.quotas import TeamDemand, dominant_share

__all__ = ["QueuedEntry", "may_start", "queue_order"]


@dataclass(frozen=True)
class QueuedEntry:
    """An entry of the queue. `asked_s` is when it came, by the clock of them all; `rank` is that of its class."""

    key: str
    rank: int
    team: str
    asked_s: float
    demand: TeamDemand = field(default_factory=TeamDemand)


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
    oldest.

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
    used = {entry.team: usage.get(entry.team, TeamDemand()) for entry in by_age}
    while waiting:
        first = min(
            waiting,
            key=lambda entry: (-entry.rank, dominant_share(used[entry.team], capacities)[0], entry.asked_s, entry.key),
        )
        waiting.remove(first)
        ordered.append(first)
        used[first.team] = used[first.team].plus(first.demand)
    return ordered


def is_overdue(entry: QueuedEntry, now_s: float, overdue_after_s: float) -> bool:
    """Whether nothing may overtake an entry any more."""
    return now_s - entry.asked_s >= overdue_after_s


def may_start(place: int, order: Sequence[QueuedEntry], now_s: float, overdue_after_s: float) -> bool:
    """Whether the entry at a place (from 0) may start before those ahead of it: none of them is overdue."""
    return not any(is_overdue(entry, now_s, overdue_after_s) for entry in order[:place])
