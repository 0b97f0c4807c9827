"""Durations of the newest requests of this process, by route: for the page of Sluice itself.

Kept in memory, since a row for each request would cost more than many requests do: bounded, each web process by
itself, and gone with it. Appending to a deque of a fixed length is atomic, so that no lock is needed.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass

__all__ = ["RouteDurations", "duration_note", "slowest_routes"]

_REQUESTS = 5_000
_newest: deque[tuple[str, float]] = deque(maxlen=_REQUESTS)


@dataclass(frozen=True)
class RouteDurations:
    """Requests of a route among the newest: number, and the duration in s that 95 % of them stayed within."""

    route: str
    requests: int
    p95_s: float


def duration_note(route: str, took_s: float) -> None:
    """Remember a request."""
    _newest.append((route, took_s))


def slowest_routes(most: int) -> list[RouteDurations]:
    """Routes by how long they take, the slowest first."""
    groups: dict[str, list[float]] = defaultdict(list)
    for route, took_s in list(_newest):
        groups[route].append(took_s)
    found = [
        RouteDurations(route, len(times), sorted(times)[min(len(times) - 1, int(0.95 * len(times)))])
        for route, times in groups.items()
    ]
    return sorted(found, key=lambda row: -row.p95_s)[:most]
