"""Silence of agents: it counts while others are heard, and a pause of them all is nobody's."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["excused_agents", "is_pause"]


def is_pause(heard_at: float, resumed_at: float, patience: float) -> bool:
    """Whether nobody was heard between these times for so long that the way to all of them was closed."""
    return resumed_at - heard_at > patience / 2


def excused_agents(
    seen: Mapping[str, float], since: Mapping[str, float], heard_at: float, patience: float
) -> list[str]:
    """Agents that are waited for anew when the first of them is heard after a pause of all.

    The first is heard before the others are, which have been quiet no longer than itself. Each is excused once until it
    is heard: one that stays away does not hold up others that are heard at long intervals.

    Parameters
    ----------
    seen
        When each was heard last. Times are of one clock, in the unit of `patience`.
    since
        Since when each is waited for, where that is known.
    heard_at
        When one of them was heard last before the pause.
    patience
        How long an agent may be quiet.

    Examples
    --------
    >>> excused_agents({"a": 10.0, "b": 9.0, "dead": 1.0}, {}, heard_at=10.0, patience=5.0)
    ['a', 'b']
    >>> excused_agents({"a": 30.0, "b": 9.0}, {"b": 30.0}, heard_at=30.0, patience=5.0)
    ['a']
    """
    return [name for name, at in seen.items() if since.get(name, at) <= at and heard_at - at <= patience]
