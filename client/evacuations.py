"""Plans of evacuations as text for people, and as an exit status; and the time that a plan is for."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from client.report import OPEN, PASSED, REFUSED
from engine.listing import column_lines
from engine.words import counted, duration_words, listed, seconds_words, state_words

__all__ = ["EVACUATE_EXIT_TEXT", "evacuation_status", "evacuation_text", "moment"]

EVACUATE_EXIT_TEXT = """exit status:
  0  the nodes can be emptied, and nobody is late by it (with --confirm: it is scheduled)
  1  no plan: the console was not reached, or refused the question or the confirmation
  2  wrong usage
  3  it cannot be done so, or objectives would be missed, unless --accept-late
  4  queries would be late while operators move, or may be over their objectives, unless --accept-late"""
_NAMED = 6


def evacuation_status(run: Mapping[str, Any], *, accept_late: bool) -> int:
    """0 where it can be done and nobody is late, 3 where it cannot or objectives break, 4 where queries may be late."""
    facts = run.get("facts") or {}
    if not facts.get("possible") or run.get("obstacle"):
        return REFUSED
    if accept_late:
        return PASSED
    if facts.get("breaks"):
        return REFUSED
    return OPEN if facts.get("risks") or facts.get("late") else PASSED


def evacuation_text(run: Mapping[str, Any], address: str) -> str:
    """The finding, the moves and what they do by step, and where to look at it."""
    facts, steps = run.get("facts") or {}, (run.get("plan") or {}).get("steps") or ()
    lines = [_finding(run, facts, steps)]
    lines += [str(run["obstacle"])] if run.get("obstacle") and facts.get("possible") else []
    lines += [str(run["load"])] if run.get("load") else []
    for row, step in zip(run.get("steps") or (), steps, strict=False):
        lines += ["", f"{row['number']}. {listed(row['nodes'], _NAMED)}  ({row['state']})", *_step_lines(step)]
    return "\n".join([*lines, "", address])


def _finding(run: Mapping[str, Any], facts: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> str:
    if not facts.get("possible"):
        stuck = [node for step in steps if step.get("refusal") for node in step["nodes"]]
        return f"{listed(stuck or run['nodes'], _NAMED)} cannot be emptied."
    moves = facts.get("moves") or 0
    if not moves:
        return f"Nothing runs on {listed(run['nodes'], _NAMED)}: nothing has to move."
    least = "at least " if any(step.get("unknown") for step in steps) else "about "
    takes = f"Moving takes {least}{duration_words(facts['needed_s'])}, an estimate."
    late = list(dict.fromkeys([query for kind in ("breaks", "risks", "late") for query in facts.get(kind) or ()]))
    who = f"{listed(late, _NAMED)} would or may be late" if late else "nobody is late by it"
    return f"{counted(moves, 'operator')} to move; {who}. {takes}"


def _step_lines(step: Mapping[str, Any]) -> Iterator[str]:
    if refusal := step.get("refusal"):
        yield from (f"  x {fault['message']}" for fault in refusal.get("faults") or [refusal])
        return
    unknown = step.get("unknown") or ()
    moves = [["operator", "from", "to", "takes"], *(_move(move, unknown) for move in step.get("moves") or ())]
    yield from column_lines(moves) if len(moves) > 1 else ["  nothing runs there"]
    for delay in step.get("delays") or ():
        if delay.get("late_s") or (delay.get("bound_s") is not None and delay.get("late_s") is None):
            late = "not known how long" if delay.get("late_s") is None else f"for {duration_words(delay['late_s'])}"
            yield f"  {delay['query']} is late while operators move: {late}"
    for query in step.get("queries") or ():
        if query.get("after_state") in ("breached", "at_risk"):
            after = "never catches up" if query.get("after_s") is None else seconds_words(query["after_s"])[0]
            state = state_words(query["after_state"], is_measured=False)
            yield f"  {query['query']} {state} with the nodes away: {after}"
    for loss in step.get("losses") or ():
        parts = [str(loss["refusal"])] if loss.get("refusal") else []
        parts += [f"breaks {listed(loss['breaks'], _NAMED)}"] if loss.get("breaks") else []
        parts += [f"puts {listed(loss['risks'], _NAMED)} at risk"] if loss.get("risks") else []
        yield f"  losing {loss['node']} as well: {'; '.join(parts)}"


def _move(move: Mapping[str, Any], unknown: Sequence[str]) -> list[str]:
    takes = "not known" if move["operator"] in unknown else duration_words(move["duration_s"])
    return [str(move["operator"]), _places(move["from"]), _places(move["to"]), takes]


def _places(replicas: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{replica['node']}#{replica['core']}" for replica in replicas)


def moment(text: str) -> str:
    """A time as REST takes it; one without a zone is of this machine's.

    Raises
    ------
    argparse.ArgumentTypeError
        It is no time.
    """
    try:
        return datetime.fromisoformat(text).astimezone().isoformat()
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r}: allowed is a time such as 2026-03-01T22:00, with or without a zone"
        ) from None
