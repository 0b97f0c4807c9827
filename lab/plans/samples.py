"""Samples of a plan's statistics: a run of its operators' functions on some events."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.document.elements import Batch, Evidence, Operator
from engine.errors import DocumentError, Fault
from engine.plans.chains import parts_of
from engine.plans.rules import Dataflow, local_name
from engine.plans.samples import EVENTS

__all__ = ["BATCHES", "Function", "PlanRunner", "PlanSample", "sample", "with_sample"]

BATCHES = 8
Function = Callable[[Any, int], Iterable[Any]]


class PlanRunner:
    """Runs the functions of a plan's operators.

    Parameters
    ----------
    operators : sequence of Operator
        The plan. A fused operator runs the functions of its parts one in the other.
    functions : mapping
        By operator id, or by its name within the query.
    clock : callable
        Nanoseconds; the thread's CPU time unless given.

    Attributes
    ----------
    spent : dict
        (operator id, position of the input): [events, outputs, nanoseconds] so far.

    Raises
    ------
    DocumentError
        With every operator that has no function.
    """

    def __init__(
        self,
        operators: Sequence[Operator],
        functions: Mapping[str, Function],
        clock: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self.flow = Dataflow(operators)
        self._clock = clock
        self._function = {op.id: _wrap_function(op, functions) for op in self.flow.operators}
        if missing := [name for name, function in self._function.items() if function is None]:
            raise DocumentError(
                [Fault(name, f"operator {name!r} has no function to run") for name in missing], "sample"
            )
        self._readers: dict[str, list[tuple[str, int]]] = {}
        for operator in self.flow.operators:
            for position, entry in enumerate(operator.inputs):
                self._readers.setdefault(entry.source, []).append((operator.id, position))
        self.spent = {(op.id, k): [0, 0, 0] for op in self.flow.operators for k in range(len(op.inputs))}

    def push(self, source: str, event: Any) -> list[tuple[str, Any]]:
        """Process an event; returns what came out at sinks, as (operator id, event)."""
        waiting = deque((name, position, event) for name, position in self._readers.get(source, ()))
        results = []
        while waiting:
            name, position, item = waiting.popleft()
            outputs = self._call(name, position, item)
            readers = self._readers.get(name, ())
            if not readers:
                results += [(name, output) for output in outputs]
            waiting.extend((reader, k, output) for output in outputs for reader, k in readers)
        return results

    def _call(self, name: str, position: int, item: Any) -> list[Any]:
        function = self._function[name]
        assert function is not None
        begin = self._clock()
        outputs = list(function(item, position))
        spent = self.spent[name, position]
        spent[0] += 1
        spent[1] += len(outputs)
        spent[2] += self._clock() - begin
        return outputs


def _wrap_function(operator: Operator, functions: Mapping[str, Function]) -> Function | None:
    own = functions.get(operator.id) or functions.get(local_name(operator))
    parts = parts_of(operator)
    if own is not None or parts is None:
        return own
    prefix = operator.id.removesuffix(local_name(operator))
    steps = [functions.get(prefix + part) or functions.get(part) for part in parts]
    known = [step for step in steps if step is not None]
    return _in_a_row(known) if len(known) == len(steps) else None


def _in_a_row(steps: Sequence[Function]) -> Function:
    def run(event: Any, position: int) -> Iterable[Any]:
        events = [event]
        for step in steps:
            events = [output for item in events for output in step(item, 0)]
        return events

    return run


@dataclass(frozen=True)
class PlanSample:
    """A sample: batches of each input by (operator id, position), and the events taken of each source."""

    batches: Mapping[tuple[str, int], tuple[Batch, ...]]
    events: Mapping[str, int]

    @property
    def unseen(self) -> tuple[tuple[str, int], ...]:
        """Inputs that no event of the sample reached."""
        return tuple(key for key, batches in self.batches.items() if not sum(batch.events for batch in batches))


def sample(
    operators: Sequence[Operator],
    functions: Mapping[str, Function],
    events: Iterable[tuple[str, Any]],
    *,
    most: int = EVENTS,
    batches: int = BATCHES,
    cycles_per_s: float = 1e9,
    scheduling: bool = False,
    clock: Callable[[], int] = time.thread_time_ns,
) -> PlanSample:
    """Run a plan on the first events of its sources.

    Parameters
    ----------
    operators, functions
        As of `PlanRunner`.
    events : iterable of (source, event)
        In the order of their arrival, all sources together.
    most : int
        Events of each source.
    batches : int
        Parts of equal length the sample is cut into, for intervals.
    cycles_per_s : float
        What the machine does in a second; 1e9 makes a cycle a nanosecond.
    scheduling : bool
        Spread what handing events on takes over the operators' costs, by their events (paper, section VI-B).
    clock : callable
        Nanoseconds.

    Returns
    -------
    Sample
        Equally many batches for every input, cut at the same moments.
    """
    runner = PlanRunner(operators, functions, clock)
    taken: dict[str, int] = {}
    chosen = []
    for source, event in events:
        if taken.get(source, 0) < most:
            taken[source] = taken.get(source, 0) + 1
            chosen.append((source, event))
    found: dict[tuple[str, int], list[Batch]] = {key: [] for key in runner.spent}
    before = {key: [0, 0, 0] for key in runner.spent}
    count = min(batches, len(chosen))
    for g in range(count):
        begin = clock() if scheduling else 0
        for source, event in chosen[g * len(chosen) // count : (g + 1) * len(chosen) // count]:
            runner.push(source, event)
        all_ns = clock() - begin if scheduling else 0
        new = {
            key: [now - was for now, was in zip(spent, before[key], strict=True)] for key, spent in runner.spent.items()
        }
        calls = sum(counts[0] for counts in new.values())
        extra_ns = max(0.0, all_ns - sum(counts[2] for counts in new.values())) / calls if calls else 0.0
        for key, (taken_in, outputs, ns) in new.items():
            found[key].append(Batch(float(taken_in), float(outputs), (ns + taken_in * extra_ns) * cycles_per_s / 1e9))
        before = {key: list(spent) for key, spent in runner.spent.items()}
    return PlanSample({key: tuple(parts) for key, parts in found.items()}, taken)


def with_sample(operators: Sequence[Operator], plan_sample: PlanSample) -> tuple[Operator, ...]:
    """The plan with the statistics of a sample. An input that no event reached keeps what was known of it."""
    return tuple(_with_statistics(operator, plan_sample) for operator in operators)


def _with_statistics(operator: Operator, plan_sample: PlanSample) -> Operator:
    inputs, fewest = [], float("inf")
    for k, entry in enumerate(operator.inputs):
        parts = plan_sample.batches.get((operator.id, k), ())
        events = sum(part.events for part in parts)
        if not events:
            inputs.append(entry)
            continue
        fewest = min(fewest, events)
        outputs, cycles = sum(part.outputs for part in parts), sum(part.cycles for part in parts)
        sampled = replace(entry, selectivity=outputs / events, cycles_per_event=cycles / events, never_ran=False)
        inputs.append(replace(sampled, model=None, batches=parts))
    if fewest == float("inf"):
        return operator
    return replace(operator, inputs=tuple(inputs), evidence=Evidence("measured", fewest))
