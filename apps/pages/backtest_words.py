"""Words of backtests: policies, outcomes, periods."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from django.utils.safestring import SafeString

from apps.ui.marks import state_mark
from apps.ui.numbers import counted
from apps.ui.times import short

__all__ = ["day_words", "moment_of", "outcome_mark", "period_words", "policy_words"]

_OUTCOMES = {
    "admitted": ("applied", "Admitted"),
    "queued": ("queued", "Queued"),
    "review": ("awaiting", "Review"),
    "rejected": ("declined", "Rejected"),
    "not applied": ("preview", "Not applied"),
}
_ADMISSION = {"recorded": "as recorded", "everything": "everything admitted", "mace": "decided by the engine"}


def outcome_mark(outcome: str) -> SafeString:
    """What became of a request, with its shape."""
    state, label = _OUTCOMES[outcome]
    return state_mark(state, label)


def policy_words(policy: Mapping[str, Any]) -> str:
    """decided by the engine, 20% headroom, placed by search with at most 4 moves."""
    parts = [_ADMISSION[policy["admission"]]]
    if policy["admission"] == "mace":
        parts += ["at risk admitted"] if policy["at_risk"] == "admit" else []
        parts += ["assumed to review"] if policy["assumed"] == "review" else []
    if policy["headroom"]:
        parts.append(f"{100 * policy['headroom']:.3g}% headroom")
    if policy["placement"] != "keep":
        most = policy["max_moves"]
        bound = "" if most is None else f" with at most {counted(most, 'move')}"
        parts.append(f"placed anew by {policy['placement']}{bound}")
    return ", ".join(parts)


def moment_of(at_s: float) -> datetime:
    """A moment of an answer."""
    return datetime.fromtimestamp(at_s, UTC)


def period_words(since: datetime, until: datetime) -> str:
    """14 Nov, 15:00 to today, 15:00."""
    return f"{day_words(since)} to {day_words(until)}"


def day_words(moment: datetime) -> str:
    """14 Nov, 15:00, or today, 15:00."""
    text = short(moment)
    return text if "," in text else f"today, {text}"
