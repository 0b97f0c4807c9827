"""``subset`` of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.deadlines.subset import Task, largest_subset, weightiest_subset
from engine.errors import DocumentError, Fault
from engine.fields import BAD, Field, FieldTable, ListOf, Number

__all__ = ["command"]

_MAX_VALUE = 1e15  # beyond, sums are no longer exact, and further on they are infinite
_INSTANT = Number(least=-_MAX_VALUE, most=_MAX_VALUE)

_PROBLEM = FieldTable(
    "a scheduling problem",
    Field(
        "tasks",
        ListOf(
            FieldTable(
                "a task",
                Field("deadline", _INSTANT, required=True, help="when it is due"),
                Field("cost", Number(least=0, most=_MAX_VALUE), required=True, help="processing time"),
                Field("weight", Number(above=0, most=_MAX_VALUE), help="what it is worth in time; 1"),
            )
        ),
        required=True,
        help="tuples, or windows: due a constraint after their end, at the cost of what is left to finalise them",
    ),
    Field("now", _INSTANT, help="when the first task may begin; 0"),
)


def command(document: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """`size`, `total_cost` and `kept` indices of a largest schedulable subset, of least total cost.

    Where a task has a weight, of a subset of large `weight`; the best one weighs at most `short` more.
    """
    faults: list[Fault] = []
    read = _PROBLEM.read(document, "", "", faults)
    if read is BAD or faults:
        raise DocumentError(faults, "scheduling problem")
    tasks = [Task(**task) for task in read["tasks"]]
    weighted = any("weight" in task for task in read["tasks"])
    subset = (weightiest_subset if weighted else largest_subset)(tasks, read.get("now", 0.0))
    answer = {"size": subset.size, "total_cost": subset.cost, "kept": list(subset.kept)}
    return answer | ({"weight": subset.weight, "short": subset.short} if weighted else {})
