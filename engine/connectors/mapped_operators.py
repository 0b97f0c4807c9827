"""Operators of an engine that is neither Flink nor Spark, mapped to PromQL one by one: a picture and polls of counters.

Prometheus does not know what reads what, so a `MappedOperator` says it, beside the queries of its rate and cost.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from engine.connectors.answers import Answers, Asking
from engine.connectors.picture import (
    CounterPoll,
    EngineJob,
    EnginePicture,
    Exchange,
    Place,
    Subtask,
    Vertex,
    VertexCounters,
)
from engine.connectors.prometheus import PROMETHEUS_ANSWERS, RangeWindow, read_range
from engine.kinds import Enumeration, Number, String
from engine.records import Record, Words
from engine.words import listed

__all__ = ["MappedOperator", "mapped_paths", "read_mapped"]

_MORE_THREADS = 1.05  # times those that there are: rates and costs of Prometheus are averages of other stretches


_KINDS = ("source", "filter", "map", "join", "aggregate", "window", "sink", "other")


@dataclass(frozen=True, slots=True)
class MappedOperator(Record):
    """Operator of an engine that is neither Flink nor Spark, by the queries that tell of it."""

    TITLE: ClassVar[str] = "an operator"

    name: Annotated[str, String()]
    rate: Annotated[str, String(), Words("PromQL of events/s that it takes")]  #: of several series the sum
    reads: Annotated[
        tuple[Annotated[str, String()], ...], Words("names of the operators that it reads; none for a source")
    ] = ()
    cost: Annotated[str, String(), Words("PromQL of the seconds that an event takes one thread")] = ""
    outputs: Annotated[str, String(), Words("PromQL of events/s that it puts out")] = ""  #: empty: what it takes
    kind: Annotated[str, Enumeration(_KINDS)] = "other"
    parallelism: Annotated[int, Number(least=1, most=1024, whole=True)] = 1
    place: Annotated[str | None, String(), Words("what it runs in; the connection's own unless given")] = None


def mapped_paths(operators: Sequence[MappedOperator], window: RangeWindow) -> Asking:
    """Range queries that `read_mapped` reads."""
    return window.asking(sorted({query for op in operators for query in (op.rate, op.cost, op.outputs) if query}))


def read_mapped(
    job: str, operators: Sequence[MappedOperator], answers: Mapping[str, object], window: RangeWindow
) -> tuple[EnginePicture, tuple[CounterPoll, ...]]:
    """Picture of a job and polls of its counters, from the answers to `mapped_paths`.

    Rates and costs of each step are added up to counters, so that what follows is the same as for Flink. A step whose
    rate is missing breaks the polls in two.

    Raises
    ------
    DocumentError
        With every fault: errors of Prometheus, operators that read what is not there.
    """
    known = Answers(answers, PROMETHEUS_ANSWERS)
    names = [operator.name for operator in operators]
    for operator in operators:
        for name in operator.reads:
            if name not in names or name == operator.name:
                known.add_fault(
                    operator.name, "reads", f"reads {name!r}; allowed: other operators of {listed(names, 9)}"
                )
    columns = {
        operator.name: tuple(
            _column(known, window, query, operator.name, add=kind != "cost")
            for kind, query in (("rate", operator.rate), ("cost", operator.cost), ("outputs", operator.outputs))
        )
        for operator in operators
    }
    known.check()
    for operator in operators:
        _compare_threads(known, operator, columns[operator.name])
    places = {op.place: op for op in operators if op.place}
    picture = EnginePicture(
        "prometheus",
        "",
        window.end_s,
        tuple(Place(place, place, sum(op.parallelism for op in operators if op.place == place), 0) for place in places),
        (EngineJob(job, job, "running", window.start_s, tuple(_mapped_vertices(operators))),),
        tuple(known.findings),
    )
    return picture, tuple(_mapped_polls(job, operators, columns, window))


def _mapped_vertices(operators: Sequence[MappedOperator]) -> Iterable[Vertex]:
    placed: set[str] = set()
    waiting = list(operators)
    while waiting:
        ready = [op for op in waiting if set(op.reads) <= placed] or waiting  # a cycle is the document's to refuse
        for op in ready:
            yield Vertex(
                id=op.name,
                label=op.name,
                kind=op.kind if op.reads else "source",
                parallelism=op.parallelism,
                inputs=tuple(Exchange(name) for name in op.reads),
                subtasks=tuple(Subtask(i, op.place) for i in range(op.parallelism)),
            )
            placed.add(op.name)
        waiting = [op for op in waiting if op.name not in placed]


def _column(known: Answers, window: RangeWindow, query: str, subject: str, *, add: bool) -> dict[int, float]:
    """Values of a query by step: series added up, or the largest of them. Queries are joined by the nearest step."""
    answer = read_range(known, window.path(query), subject) if query else None
    if query and answer is not None and not any(series.samples for series in answer.series):
        known.find("missing", "metrics_missing", subject, "nothing_of_query", query=query)
    by_step: dict[int, list[float]] = {}
    for series in answer.series if answer else ():
        for step, value in {window.step_of(at_s): value for at_s, value in series.samples}.items():
            by_step.setdefault(step, []).append(max(0.0, value))
    return {step: math.fsum(values) if add else max(values) for step, values in by_step.items()}


def _compare_threads(known: Answers, operator: MappedOperator, columns: Sequence[Mapping[int, float]]) -> None:
    """Tell a rate and a cost that need more threads than there are."""
    rate, cost, _ = columns
    busy = [value * cost[step] for step, value in rate.items() if step in cost]
    if busy and (mean := math.fsum(busy) / len(busy)) > _MORE_THREADS * operator.parallelism:
        counts = {"mean": mean, "threads": operator.parallelism}
        known.find("warning", "threads_contradict", operator.name, operator=operator.name, **counts)


def _mapped_polls(
    job: str,
    operators: Sequence[MappedOperator],
    columns: Mapping[str, tuple[dict[int, float], ...]],
    window: RangeWindow,
) -> Iterable[CounterPoll]:
    """Sums at each step that is told in full; those on both sides of one that is not are of two attempts.

    What is never told, a whole operator or its cost alone, keeps nothing else from being counted.
    """
    told = [_told(op, columns[op.name]) for op in operators if columns[op.name][0]]
    sums = {op.name: _Sums() for op in told}
    attempt, is_broken = 0, True
    for i in range(1, window.steps + 1):
        at_s = window.start_s + i * window.step_s
        steps = {op.name: _step(op, columns[op.name], i, window.step_s) for op in told}
        if any(step is None for step in steps.values()):
            is_broken = True
            continue
        if is_broken:
            attempt, is_broken = attempt + 1, False
            yield _mapped_poll(job, told, sums, at_s - window.step_s, attempt)
        for name, step in steps.items():
            if step is not None:
                sums[name] = sums[name].added(step)
        yield _mapped_poll(job, told, sums, at_s, attempt)


def _told(operator: MappedOperator, columns: Sequence[Mapping[int, float]]) -> MappedOperator:
    _, cost, outputs = columns
    return replace(operator, cost=operator.cost if cost else "", outputs=operator.outputs if outputs else "")


@dataclass(frozen=True, slots=True)
class _Sums:
    """Counters of an operator, in events and seconds."""

    events: float = 0.0
    outputs: float = 0.0
    busy_s: float = 0.0
    idle_s: float = 0.0

    def added(self, other: _Sums) -> _Sums:
        return _Sums(
            self.events + other.events,
            self.outputs + other.outputs,
            self.busy_s + other.busy_s,
            self.idle_s + other.idle_s,
        )


def _step(operator: MappedOperator, columns: Sequence[Mapping[int, float]], step: int, step_s: float) -> _Sums | None:
    """Growth of an operator's counters within one step; None where a query of its says nothing of that."""
    rate, cost, outputs = (column.get(step) for column in columns)
    if rate is None or (operator.outputs and outputs is None) or (operator.cost and cost is None and rate > 0.0):
        return None
    busy_s = rate * step_s * (cost or 0.0)  # more than the threads have, where the two contradict: the cost counts
    written = outputs if operator.outputs and outputs is not None else rate
    return _Sums(rate * step_s, written * step_s, busy_s, max(0.0, operator.parallelism * step_s - busy_s))


def _mapped_poll(
    job: str, operators: Sequence[MappedOperator], sums: Mapping[str, _Sums], at_s: float, attempt: int
) -> CounterPoll:
    vertices = {}
    for op in operators:
        own, has_cost = sums[op.name], bool(op.cost)
        vertices[op.name] = VertexCounters(
            records_in=own.events,
            records_out=own.outputs,
            busy_s=own.busy_s if has_cost else None,
            idle_s=own.idle_s if has_cost else None,
            backpressured_s=0.0 if has_cost else None,
        )
    return CounterPoll(job, at_s, f"{job} {attempt}", vertices)
