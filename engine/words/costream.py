"""Sentences of first placements: the choice, why there is none, and what stands in for what nobody stated."""

from __future__ import annotations

__all__ = ["SENTENCES"]

SENTENCES = {
    # the choice
    "chosen": "{survivors} of {candidates:counted candidate} {survivors:either passes|pass} the votes{domain}{load}.",
    "some_inside": "; {inside} of them within the training domain",
    "some_strained": "; {strained} of them would overload a node, by nominal costs",
    "as_it_runs": "The placement that runs",
    # why there is none
    "infeasible": "No candidate is feasible: {cause}",
    "incomplete": "The query cannot be predicted: {cause}",
    "gaps": " ({count:counted gap} in all)",
    "outvoted": "of {candidates:counted candidate} the majority predicts {votes:listed}{domain}.",
    "backpressure": "back-pressure for {count}",
    "failure": "failure for {count}",
    "all_outside": "; all of them lie outside the training domain",
    "unplaced": "{names:listed} have no place",
    "rules": "no placement keeps the rules and the pins{detail}",
    "pinned": "{names:listed} must run on {node}, which {refusal}",
    "full": "has nothing left",
    "closed": "is closed to new operators (draining)",
    "unknown": "is unknown",
    "all_closed": "every node is closed to new operators (draining)",
    "all_full": "no node has anything left",
    "closed_or_full": "{names:listed} {names:either is|are} closed to new operators (draining), and no other node has "
    "anything left",
    "no_room": "the state has no room where the operators may be. {memory}",
    # memory
    "state_left_out": "{operator} keeps {size:size} of state, for which {names:listed 5} {names:either has|have} no "
    "memory left.",
    "state_together": "All state together takes {size:size}, for which {names:listed 5} {names:either has|have} no "
    "memory left.",
    # what stands in for what is not stated
    "fitted": "Costs of operators are those of {processor}, fitted to {executions:counted execution} on {machine}; "
    "none of this cluster is in them.",
    "memory_unstated": "Node {names[0]} does not state its memory; {ram_mb:megabytes}, the least of the training "
    "corpus, stand in for it.",
    "memory_unstated+": "{names:counted node} do not state their memory; {ram_mb:megabytes}, the least of the "
    "training corpus, stand in for it.",
    "large": "{names:listed} {names:either has|have} more left than any host of the training corpus; its most, "
    "{cpu_percent:.0f}% of a core and {ram_mb:megabytes}, stands in for it.",
    "state_unstated": "{names:listed} {names:either does not state the bytes of its state|do not state the bytes of "
    "their state}; none are counted.",
    "unit_unknown": "{names:listed} {names:either counts|count} nanoseconds of CPU, which cannot be converted to "
    "cycles; none is a candidate.",
}
