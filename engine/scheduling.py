"""In which order nodes take events, and what that means for the bounds of an estimate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["STIMULUS_TIME", "bound_document", "policy_words", "run_words"]

#: The policy that the bounds of theorems 2 and 3 are proven for; every node's unless it says otherwise.
STIMULUS_TIME = "stimulus-time"

_NAMED = 3  # nodes that a sentence names


def run_words(policies: Mapping[str, str]) -> str:
    """Which nodes run what; of many nodes the first two are named.

    Examples
    --------
    >>> run_words({"n1": "klink", "n2": "klink", "n3": "fcfs"})
    'n1 and n2 run klink, n3 runs fcfs'
    """
    by_policy: dict[str, list[str]] = {}
    for node, policy in policies.items():
        by_policy.setdefault(policy, []).append(node)
    told = ((_listed(nodes), "runs" if len(nodes) == 1 else "run", policy) for policy, nodes in by_policy.items())
    return ", ".join(" ".join(words) for words in told)


def policy_words(policies: Mapping[str, str]) -> str:
    """What to know of an upper bound where these nodes run other policies, as one sentence."""
    bound = "the upper bound is the looser one, for any order within a subinterval"
    return f"{run_words(policies)}, not stimulus time: {bound}."


def bound_document(policies: Mapping[str, str]) -> dict[str, Any]:
    """As an estimate's result has it under `scheduling`."""
    return {"nodes": dict(policies), "words": policy_words(policies)}


def _listed(names: list[str]) -> str:
    shown = names if len(names) <= _NAMED else [*names[: _NAMED - 1], f"{len(names) - _NAMED + 1} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
