"""Sentences about replayed decisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.admission.replay import ReplayChange

__all__ = ["replay_words"]

_OTHERWISE = {
    "admit": "would be admitted now",
    "admit_with_changes": "would be admitted with changes now",
    "queue": "would be queued now",
    "review": "would be for a person now",
    "reject": "would be rejected now",
}
_STILL = {
    "admit": "would still be admitted",
    "admit_with_changes": "would still be admitted with changes",
    "queue": "would still be queued",
    "review": "would still be for a person",
    "reject": "would still be rejected",
}
_SINCE = {
    "policy": "the policy is another one",
    "model": "the model is another one",
    "load": "load {share:+.0%}",
    "cost": "cost of an event {share:+.0%}",
    "cluster": "peak load of what runs {share:+.0%}",
}


def replay_words(then: str, now: str, changes: Sequence[ReplayChange]) -> str:
    """The verdict of now beside that of then, with what changed most.

    Examples
    --------
    >>> from engine.admission.replay import ReplayChange
    >>> replay_words("admit", "reject", [ReplayChange("load", 0.3), ReplayChange("cost", -0.1)])
    'would be rejected now: load +30%, cost of an event -10%'
    """
    verdict = _STILL[now] if then == now else _OTHERWISE[now]
    since = [_SINCE[change.kind].format(share=change.share or 0.0) for change in changes[:3]]
    return f"{verdict}: {', '.join(since)}" if since else verdict
