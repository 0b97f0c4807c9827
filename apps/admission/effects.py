"""Effects of a decision as they are stored: those that its page shows, and how many queries it leaves as they were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.admission.answer import AdmissionDecision, QueryEffect

__all__ = ["MAX_STILL", "decision_stored"]

MAX_STILL = 100  # queries that hold as before, by name; of thousands nobody reads each
_STILL = frozenset({"none", "holds"})


def decision_stored(decision: AdmissionDecision) -> AdmissionDecision:
    """The decision without effects on queries that stay as they were and hold, but for a hundred of them.

    All others stay: the candidate, what changes by however little, shares a node with the candidate, or does not hold
    before or after. `unchanged` counts those that are left out, here and of each alternative.
    """
    effects, unchanged = _stored(decision.effects)
    alternatives = []
    for alternative in decision.alternatives:
        own, count = _stored(alternative.effects)
        alternatives.append(replace(alternative, effects=own, unchanged=count))
    return replace(decision, effects=effects, unchanged=unchanged, alternatives=tuple(alternatives))


def _stored(effects: Sequence[QueryEffect]) -> tuple[tuple[QueryEffect, ...], int | None]:
    """Effects to keep in their order, and the number of the others; None where there is none."""
    kept, still = [], 0
    for effect in effects:
        still += _is_still(effect)
        if not _is_still(effect) or still <= MAX_STILL:
            kept.append(effect)
    return tuple(kept), len(effects) - len(kept) or None


def _is_still(effect: QueryEffect) -> bool:
    """Whether a query is as it was, and holds."""
    return (
        not effect.is_candidate
        and not effect.change_s
        and not effect.shares
        and {effect.before_state, effect.after_state} <= _STILL
    )
