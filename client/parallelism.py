"""Parallelisms of a query as text for people, and as an exit status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from client.report import OPEN, PASSED, REFUSED
from engine.listing import column_lines
from engine.words import counted, seconds_words, state_words
from engine.words.capacity import rate_words

__all__ = ["PARALLELISM_EXIT_TEXT", "back_lines", "parallelism_status", "parallelism_text"]

PARALLELISM_EXIT_TEXT = """exit status:
  0  a parallelism is known that sustains what comes and keeps the objective
  1  not told: the console was not reached, refused it, or the query does not run
  2  wrong usage
  3  none of those that were looked at does
  4  not known: a cost was not measured, or it does only if keys are even"""

_MAX_WIDTH = 60


def parallelism_status(plan: Mapping[str, Any]) -> int:
    """0 where a parallelism is known to do, 4 where nobody knows, 3 where none does."""
    if plan.get("recommended") is not None:
        return OPEN if plan.get("is_if_even") else PASSED
    is_known = any(choice.get("state") == "known" for choice in plan.get("choices") or ())
    return REFUSED if is_known else OPEN


def parallelism_text(answer: Mapping[str, Any]) -> str:
    """A sentence, a table of parallelisms, one of operators, and notes."""
    plan = answer["plan"]
    begins = datetime.fromisoformat(str(answer["answered_at"]))
    stale = " It was planned before another version, or placement, began to run." if answer.get("is_stale") else ""
    lines = [f"{plan['words']}{stale}", ""]
    head = ["parallelism", "sustains", "interval", "gain", "latency", "objective", "restart", "back at", "slots", ""]
    rows = [head, *(_row(choice, begins) for choice in plan.get("choices") or ())]
    if plan.get("autoscaler"):
        rows.append(["autoscaler", *_row(plan["autoscaler"], begins)[1:-1], _counts(plan["autoscaler"])])
    lines += [*column_lines(rows, ""), ""]
    names = [
        ["operator", "subtasks", "at most", "busy threads", "autoscaler", "events come"],
        *(_operator(row) for row in plan.get("operators") or ()),
    ]
    lines += column_lines(names, "")
    notes = dict.fromkeys([*(plan.get("notes") or ()), *_choice_notes(plan)])
    lines += ["", *notes] if notes else []
    return "\n".join(lines)


def _operator(row: Mapping[str, Any]) -> list[str]:
    return [
        str(row["operator"]),
        str(row["parallelism"]),
        str(row["most"]),
        "-" if row.get("busy") is None else f"{row['busy']:.2f}",
        "-" if row.get("autoscaler") is None else str(row["autoscaler"]),
        str(row["feed"]) if row.get("grounds") is None else f"{row['feed']}: {row['grounds']}",
    ]


def _choice_notes(plan: Mapping[str, Any]) -> Iterator[str]:
    for choice in plan.get("choices") or ():
        yield from (f"Parallelism {choice['parallelism']}: {note}" for note in choice.get("notes") or ())


def _row(choice: Mapping[str, Any], begins: datetime) -> list[str]:
    low, high, gain = choice.get("low_per_s"), choice.get("high_per_s"), choice.get("gain")
    estimate_s = choice.get("estimate_s")
    remarks = [
        *(["now"] if choice.get("is_now") else []),
        *([f"{counted(choice['slots_short'], 'slot')} short"] if choice.get("slots_short") else []),
        *(["if keys are even"] if choice.get("skew") == "assumed_even" else []),
        *([f"breaks {', '.join(choice['breaks'])}"[:_MAX_WIDTH]] if choice.get("breaks") else []),
    ]
    return [
        str(choice["parallelism"]),
        _sustained(choice),
        "-" if low is None or high is None else f"{rate_words(low)} to {rate_words(high)}",
        "-" if gain is None else _gain(choice),
        "-" if estimate_s is None else seconds_words(estimate_s)[0].replace("\u00a0", " "),
        state_words(choice["latency_state"], is_measured=False) if choice.get("latency_state") else "-",
        _restart(choice.get("restart")),
        _back(choice.get("restart"), begins),
        str(choice.get("slots", "-")),
        "; ".join(remarks),
    ]


def _sustained(choice: Mapping[str, Any]) -> str:
    if choice.get("rate_per_s") is not None:
        return rate_words(choice["rate_per_s"])
    if choice.get("at_most_per_s") is not None:
        return f"unknown, at most {rate_words(choice['at_most_per_s'])}"
    return str(choice.get("state", "-")).replace("_", " ")


def _gain(choice: Mapping[str, Any]) -> str:
    low, high = choice.get("gain_low"), choice.get("gain_high")
    if low is None or high is None or high - low < 0.005:
        return f"{choice['gain']:.2f}"
    return f"{low:.2f} to {high:.2f}"


def _counts(choice: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.rpartition('/')[2]} {count}" for name, count in (choice.get("operators") or {}).items())


def _restart(restart: Mapping[str, Any] | None) -> str:
    if not restart or not restart.get("high_s"):
        return "-"
    return f"{restart['low_s']:.0f}-{restart['high_s']:.0f} s, {restart['basis']}"


def _back(restart: Mapping[str, Any] | None, begins: datetime) -> str:
    """The time at which nothing is late any more, with its interval."""
    if not restart:
        return "-"
    if restart.get("back_s") is None:
        return "not known or never"
    moment = _clock(begins, restart["back_s"])
    low, high = restart.get("back_low_s"), restart.get("back_high_s")
    ends = [_clock(begins, low) if low is not None else "-", _clock(begins, high) if high is not None else "never"]
    return f"{moment} ({ends[0]} to {ends[1]})"


def _clock(begins: datetime, seconds: float) -> str:
    moment = begins + timedelta(seconds=seconds)
    return f"{moment:%H:%M:%S}" if moment.date() == begins.date() else f"{moment:%Y-%m-%d %H:%M}"


def back_lines(answer: Mapping[str, Any]) -> Sequence[str]:
    """When a query is back, by parallelism: what a plan says of the backlog that it began with."""
    plan, begins = answer["plan"], datetime.fromisoformat(str(answer["answered_at"]))
    if not plan.get("backlog") or answer.get("is_stale"):
        return []
    lines = []
    for choice in plan.get("choices") or ():
        if choice.get("restart") and choice["restart"].get("back_s") is not None:
            how = "as it is" if choice.get("is_now") else f"with parallelism {choice['parallelism']}"
            even = ", if keys are even" if choice.get("skew") == "assumed_even" else ""
            lines.append(f"Back at {_back(choice['restart'], begins)} {how}{even}.")
        elif choice.get("is_now"):
            lines.append("As it is, it is never back, or nobody knows when.")
    return [*lines, f"By the plan of {begins:%Y-%m-%d %H:%M:%S} UTC: ./sluice parallelism makes another."]
