"""``subset`` of the command line."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from engine.deadlines.subset import Task, largest_subset, weightiest_subset
from engine.kinds import Number
from engine.records import Omitted, Record, Words

__all__ = ["command"]

_MAX_VALUE = 1e15  # beyond, sums are no longer exact, and further on they are infinite
_Instant = Annotated[float, Number(least=-_MAX_VALUE, most=_MAX_VALUE)]


@dataclass(frozen=True)
class _Task(Record):
    TITLE: ClassVar[str] = "a task"

    deadline: Annotated[_Instant, Words("when it is due")]
    cost: Annotated[float, Number(least=0, most=_MAX_VALUE), Words("processing time")]
    weight: Annotated[float | None, Number(above=0, most=_MAX_VALUE), Words("what it is worth in time; 1")] = None


@dataclass(frozen=True)
class _Problem(Record):
    TITLE: ClassVar[str] = "a scheduling problem"

    tasks: Annotated[
        tuple[_Task, ...],
        Words("tuples, or windows: due a constraint after their end, at the cost of what is left to finalise them"),
    ]
    now: Annotated[_Instant, Words("when the first task may begin")] = 0.0


@dataclass(frozen=True)
class _Answer(Record):
    size: int
    total_cost: float | int
    kept: tuple[int, ...]
    weight: Omitted[float] = None
    short: Omitted[float] = None


def command(document: Any) -> _Answer:
    """`size`, `total_cost` and `kept` indices of a largest schedulable subset, of least total cost.

    Where a task has a weight, of a subset of large `weight`; the best one weighs at most `short` more.
    """
    problem = _Problem.parse(document)
    weighted = any(task.weight is not None for task in problem.tasks)
    tasks = [Task(task.deadline, task.cost, task.weight or 1.0) for task in problem.tasks]
    subset = (weightiest_subset if weighted else largest_subset)(tasks, problem.now)
    answer = _Answer(subset.size, subset.cost, tuple(subset.kept))
    return replace(answer, weight=subset.weight, short=subset.short) if weighted else answer
