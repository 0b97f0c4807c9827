"""What a placement run found, in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.placements.models import PlacementRun
from apps.ui.numbers import counted, percent, seconds

__all__ = ["finding_words", "tightest_words", "value_words"]

_NO_GAP = 0.0005


def finding_words(run: PlacementRun) -> str:
    """3 moves: worst case 8.1 s → 5.2 s, at most 2% from the best possible."""
    facts = run.facts
    if not facts:
        return run.message
    if not facts["moves"]:
        return "Nothing to move: no better placement was found"
    near = f", {_gap_words(facts['gap'])}" if facts["gap"] is not None else ""
    if tightest := _tightest(facts):
        was, now = (percent(one["share"]) for one in tightest)
        return f"{counted(facts['moves'], 'move')}: nearest its objective {was} → {now} of it{near}"
    was, now = value_words(facts, "value_before"), value_words(facts, "value_after")
    what = "worst case" if facts["objective"] == "worst" else "worst weighted latency over objective"
    return f"{counted(facts['moves'], 'move')}: {what} {was} → {now}{near}"


def tightest_words(facts: Mapping[str, Any]) -> SafeString | None:
    """Moving 3 operators takes the query nearest its objective from 112% of it (checkout) to 64% (audit)."""
    tightest = _tightest(facts)
    if tightest is None:
        return None
    was, now = tightest
    near = f"; {_gap_words(facts['gap'])}" if facts["gap"] is not None else ""
    return format_html(
        "Moving <b>{}</b> takes the query nearest its objective from <b>{}</b> of it ({}) to <b>{}</b> ({}){}.",
        counted(facts["moves"], "operator"),
        percent(was["share"]),
        was["query"],
        percent(now["share"]),
        now["query"],
        near,
    )


def _tightest(facts: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Before and after, where the search was for objectives and both are known."""
    was, now = facts.get("tightest_before"), facts.get("tightest_after")
    return (was, now) if facts["objective"] != "worst" and was and now else None


def _gap_words(gap: float) -> str:
    return "nothing better can exist" if gap < _NO_GAP else f"at most {percent(gap)} from the best possible"


def value_words(facts: Mapping[str, Any], name: str) -> str:
    """A value of the search's objective: seconds, or a share of the latency objective."""
    value = facts[name]
    if facts["objective"] != "worst":
        return str(percent(value))
    other = facts["value_before" if name != "value_before" else "value_after"]
    return str(seconds(value, apart_from=other))
