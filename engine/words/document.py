"""Sentences about what a document states: policies of nodes, memory against state, and backlogs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.words import duration_words, listed, seconds_words
from engine.words.templates import Template

__all__ = ["MEMORY_HELD", "SENTENCES", "scheduling_words"]

MEMORY_HELD = "{subject} holds {value:size} of state, its memory is {bound:size}"
_POLICIES = {"fcfs": "first-in first-out", "round-robin": "round robin", "klink": "Klink"}


def scheduling_words(policies: Mapping[str, str], names: Mapping[str, str] | None = None) -> str:
    """Words for the policies that nodes run; of many nodes the first two are named.

    Examples
    --------
    >>> scheduling_words({"n1": "klink", "n2": "klink", "n3": "fcfs"})
    'n1 and n2 run klink, n3 runs fcfs'
    """
    by_policy: dict[str, list[str]] = {}
    for node, policy in policies.items():
        by_policy.setdefault(policy, []).append(node)
    return ", ".join(
        f"{listed(nodes)} {'runs' if len(nodes) == 1 else 'run'} {(names or {}).get(policy, policy)}"
        for policy, nodes in by_policy.items()
    )


def _policy_gap_words(nodes: Mapping[str, str], factor: float | None, high_s: float | None) -> str:
    """Clause on the policies, the factor and what follows: ``n1 runs first-in first-out, which ...``."""
    words = "how much higher it ends there is not known"
    if factor is not None:
        words = f"there it ended up to {factor:g} times as high in simulations"
    upper = "" if high_s is None else f", which makes {seconds_words(high_s)[0]}"
    return f"the estimate is of stimulus time and {scheduling_words(nodes, _POLICIES)}: {words}{upper}"


def _scheduling_bound_words(policies: Mapping[str, str], *, is_bounded: bool) -> str:
    bound = "no upper bound is proven"
    if is_bounded:
        bound = "the upper bound counts a wait for every visit of a server, and holds for mean costs"
    return f"{scheduling_words(policies)}, not stimulus time: {bound}."


def _unknown_memory_words(operators: Sequence[str], nodes: Sequence[str]) -> str:
    """The clause that names what is not stated, so that nobody knows whether state fits."""
    clauses = []
    if operators:
        state = "does not state the bytes of its state" if len(operators) == 1 else "do not state bytes of state"
        clauses.append(f"{listed(operators)} {state}")
    if nodes:
        memory = "does not state its memory" if len(nodes) == 1 else "do not state their memory"
        clauses.append(f"{listed(nodes)} {memory}")
    return "; ".join(clauses)


def _backlog_words(
    operator: str,
    source: str,
    events: float | None,
    behind_s: float | None,
    age_s: float | None,
    origin: str,
    standing: str,
    limit_s: float,
) -> str:
    """Sentence about the backlog of an input."""
    read = origin if age_s is None else f"{origin} {duration_words(age_s)} ago"
    behind = duration_words(behind_s or 0.0)
    if standing == "stale":
        limit = duration_words(limit_s)
        return f"The backlog of {source} at {operator} was {read}: older than {limit}, it is not used."
    if standing == "unknown_events":
        return (
            f"{operator} is {behind} behind on {source} ({read}), of which no event comes in the horizon: how many "
            "wait is unknown, and none is counted."
        )
    count = f"{events or 0.0:,.0f} events of {source} wait at {operator}"
    if standing == "unknown_age":
        return f"{count} ({read}), nobody knows since when: their latency is counted from the horizon's beginning."
    return f"{count}, the oldest for {behind} ({read})."


SENTENCES: dict[str, Template] = {
    # policies
    "policies": scheduling_words,
    "policy_gap": _policy_gap_words,
    "policy_gap_of": "Of {query} {gap}.",
    "scheduling_bound": _scheduling_bound_words,
    # memory and backlogs
    "memory_held": MEMORY_HELD,
    "memory_over": "{held}.",
    "unstated": _unknown_memory_words,
    "memory_unknown": "Whether state fits the memory of the nodes is not known: {unstated}.",
    "backlog": _backlog_words,
    # of answers about a time that does not begin now
    "backlogs_left_out": "It does not begin with the events that wait now: it speaks of a time after them.",
}
