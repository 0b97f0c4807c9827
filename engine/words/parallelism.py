"""Sentences of parallelism: what a number of subtasks comes to, and why an operator keeps its own."""

from __future__ import annotations

from collections.abc import Sequence

from engine.words import counted, listed
from engine.words.capacity import rate_words
from engine.words.templates import Template

__all__ = ["SENTENCES"]


def _choice_words(
    parallelism: int,
    is_now: bool,
    state: str,
    slots: int,
    slots_short: int,
    rate_per_s: float | None,
    low_per_s: float | None,
    high_per_s: float | None,
    at_most_per_s: float | None,
    gain: float | None,
    skew: str,
    breaks: Sequence[str],
) -> str:
    if state == "no_slots":
        return f"Parallelism {parallelism} needs {counted(slots, 'slot')}, {slots_short} more than there are."
    if state == "no_host":
        return f"Parallelism {parallelism} needs hosts that pins, company or draining keep from it."
    if rate_per_s is None:
        if state not in ("known", "unknown"):
            return f"Parallelism {parallelism}: no rate of its own to grow."
        most = "" if at_most_per_s is None else f", at most {rate_words(at_most_per_s)}"
        return f"What parallelism {parallelism} sustains is not known{most}."
    between = ""
    if low_per_s is not None and high_per_s is not None:
        between = f" ({rate_words(low_per_s)} to {rate_words(high_per_s)})"
    text = f"Parallelism {parallelism} sustains {rate_words(rate_per_s)}{between}"
    if gain is not None and not is_now:
        text += ", no more than now" if 0.995 < gain < 1.005 else f", {gain:.3g} times that of now"
    if skew == "assumed_even":
        text += " if keys are even, which nobody measured"
    return f"{text}; it breaks the objective of {listed(breaks)}." if breaks else f"{text}."


def _plan_words(
    now: int,
    recommended: int | None,
    is_if_even: bool,
    is_known: bool,
    rate_per_s: float | None,
    has_objective: bool,
    stuck: Sequence[str],
) -> str:
    kept = f" {listed(stuck)} cannot be scaled." if stuck else ""
    if not is_known:
        return f"What another parallelism gains is not known, since what it sustains now is not.{kept}"
    goal = "sustains what comes and keeps the objective" if has_objective else "sustains what comes"
    if recommended is None:
        return f"No parallelism that was looked at is known to do: one that {goal}.{kept}"
    if is_if_even:
        return f"Parallelism {recommended} {goal} if keys are even, which nobody measured; it has {now} now.{kept}"
    if recommended == now:
        fewer = "; fewer subtasks are not known to" if now > 1 else ""
        return f"Parallelism {now}, as it is, {goal}{fewer}.{kept}"
    rate = "" if rate_per_s is None else f", up to {rate_words(rate_per_s)}"
    return f"Parallelism {recommended} {goal}{rate}; it has {now} now.{kept}"


SENTENCES: dict[str, Template] = {
    "choice": _choice_words,
    "plan": _plan_words,
    # why an operator keeps its parallelism
    "one_by_plan": "by its plan it has one subtask (its maximum parallelism is 1).",
    "global_input": "all its events have to meet in one subtask: its state is not by key.",
    "broadcast_input": "each subtask gets all events, so that more of them take nothing off any.",
    "key_unknown": "nobody knows whether its state is by key.",
    "follows": "it has the subtasks of {operator}, which cannot be scaled.",
    "one_partition": "it reads one partition.",
    # notes
    "capped": "{names:listed} {names:either has|have} fewer subtasks: by key groups, or by the partitions read.",
    "host_full": "No core is left on {hosts:listed}: more subtasks there share those that are in use.",
    "no_host": "For {count:counted subtask} of {names:listed} there is a slot on no host that takes more of "
    "{names:either it|them}: of the others some are draining, forbidden or held by what it stays apart from, or it is "
    "pinned.",
    "partitions_unknown": "How many partitions {names:listed} {names:either reads|read} is not known; subtasks beyond "
    "them read nothing.",
    "groups_by_default": "The maximum parallelism is not told: key groups are as many as Flink has by default.",
    "by_document": "No engine told how events are exchanged and which slots there are: replicas count as subtasks and "
    "cores as slots.",
    "backlog_unknown": "Something waits before the query, and nobody knows how many events: when it is back is not "
    "known.",
}
