"""A decision as text for people at a terminal: verdict, reasons, who suffers where and when, placement, alternatives.

Reads the decision's JSON form, and leaves out what it does not have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engine.listing import column_lines
from engine.words import counted, percent_words, seconds_words, state_words, statistic_text

__all__ = ["VERDICT_WORDS", "decision_text"]

VERDICT_WORDS = {
    "admit": "ADMIT",
    "admit_with_changes": "ADMIT WITH CHANGES",
    "queue": "QUEUE",
    "review": "REVIEW",
    "reject": "REJECT",
}
_MARKS = {"bad": "x", "watch": "!", "info": "-", "ok": "+"}


def decision_text(decision: Mapping[str, Any]) -> str:
    """The decision in a screenful, parts apart by empty lines."""
    parts = [
        _head(decision),
        _part("Reasons", _reasons(decision)),
        _part("Measure first", [f"  {name}" for name in decision.get("measure") or ()]),
        _part("Queries", _queries(decision.get("effects") or ())),
        _part("Placement", _placement(decision)),
        _part("Alternatives", [*_alternatives(decision.get("choices") or ()), *_searched(decision)]),
    ]
    return "\n\n".join(part for part in parts if part)


def _head(decision: Mapping[str, Any]) -> str:
    verdict = str(decision.get("verdict") or "")
    words = VERDICT_WORDS.get(verdict, verdict.upper() or "NO VERDICT")
    start_s = decision.get("start_s")
    start = f", starting {_seconds(start_s)} later" if start_s else ""
    return "\n".join(
        filter(None, [f"{words}  {decision.get('query', '')}{start}".rstrip(), _plain(decision, "headline")])
    )


def _part(title: str, lines: Sequence[str]) -> str:
    return "\n".join([title, *lines]) if lines else ""


def _reasons(decision: Mapping[str, Any]) -> list[str]:
    return [
        f"  {_MARKS.get(reason.get('severity', ''), '-')} {_plain(reason, 'message')}{_where(reason)}"
        for reason in decision.get("reasons") or ()
    ]


def _where(reason: Mapping[str, Any]) -> str:
    """Node and moment of a finding, where it has them."""
    node = f"on {reason['where']}" if reason.get("where") else ""
    when = f"{_seconds(reason['when_s'])} after the start" if reason.get("when_s") is not None else ""
    both = ", ".join(filter(None, [node, when]))
    return f" ({both})" if both else ""


def _queries(effects: Sequence[Mapping[str, Any]]) -> list[str]:
    """The candidate, and the neighbours that it changes, those first that it changes most."""
    shown = [row for row in effects if row.get("is_candidate") or _is_changed(row)]
    if not shown:
        return []
    rows = [["query", "before", "after", "interval", "objective", "state", "slowest on"]]
    for row in sorted(shown, key=lambda row: (not row.get("is_candidate"), -abs(row.get("change_s") or 0.0))):
        name = f"{row.get('query', '')}{' (new)' if row.get('is_candidate') else ''}"
        times = [_estimate(row, "before_s"), _estimate(row, "after_s"), _interval(row), _objective(row)]
        state = state_words(row["after_state"], is_measured=False) if row.get("after_state") else "-"
        rows.append([name, *times, state, _text(row, "bottleneck")])
    others = counted(len(effects) - len(shown), "other query stays as it is", "other queries stay as they are")
    return column_lines(rows) + ([f"  {others}"] if len(effects) > len(shown) else [])


_BEFORE_AND_AFTER = (("", "_state"), ("catch_up_", ""))


def _is_changed(row: Mapping[str, Any]) -> bool:
    differs = any(row.get(f"{name}before{end}") != row.get(f"{name}after{end}") for name, end in _BEFORE_AND_AFTER)
    return bool(row.get("change_s")) or differs


def _estimate(row: Mapping[str, Any], name: str) -> str:
    return "-" if row.get(name) is None else _seconds(row[name])


def _interval(row: Mapping[str, Any]) -> str:
    low, high = row.get("low_s"), row.get("high_s")
    return "-" if low is None or high is None else f"{_seconds(low)} to {_seconds(high)}"


def _objective(row: Mapping[str, Any]) -> str:
    if row.get("bound_s") is None:
        return "-"
    return f"{statistic_text(row.get('statistic', ''))} {_seconds(row['bound_s'])}".strip()


def _placement(decision: Mapping[str, Any]) -> list[str]:
    """Where operators go, and why some are apart from those they exchange events with."""
    placement = decision.get("placement") or {}
    rows = [[operator, ", ".join(_replicas(replicas))] for operator, replicas in placement.items()]
    apart = [f"  {_plain(entry, 'sentence')}" for entry in decision.get("apart") or () if entry["why"] != "company"]
    return [*(column_lines(rows) if rows else []), *apart]


def _replicas(replicas: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for part in replicas:
        core = f"#{part['core']}" if part.get("core") else ""
        share = f" {percent_words(part['fraction'])}" if part.get("fraction", 1.0) < 1.0 else ""
        yield f"{part.get('node', '')}{core}{share}"


def _alternatives(choices: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for choice in choices:
        verdict = str(choice.get("verdict") or "")
        then = f" ({VERDICT_WORDS.get(verdict, verdict).lower()})" if verdict else ""
        lines.append(f"  {choice.get('id', '')}: {_plain(choice, 'title')}{then}")
        lines += [f"    {detail}"] if (detail := _plain(choice, "detail")) else []
    return lines


def _searched(decision: Mapping[str, Any]) -> list[str]:
    """Lines on what was tried in vain and what measuring would change."""
    return [f"  {_breakable(sentence)}" for sentence in (decision.get("searched") or {}).get("sentences", ())]


def _seconds(value: float) -> str:
    return seconds_words(value)[0].replace("\u00a0", " ")  # terminals wrap at ordinary spaces


def _text(row: Mapping[str, Any], name: str) -> str:
    return str(row.get(name) or "-")


def _plain(row: Mapping[str, Any], name: str) -> str:
    """A sentence of a row."""
    return _breakable(row.get(name) or "")


def _breakable(sentence: object) -> str:
    """A sentence with ordinary spaces, which terminals wrap at."""
    return str(sentence).replace("\u00a0", " ")
