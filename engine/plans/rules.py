"""Ground of the rewriting rules: a plan as a graph, operators that may change places, and statistics of new ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Literal

from engine.document.elements import Batch, Evidence, Input, Operator
from engine.document.topology import order_of
from engine.records import Fact

__all__ = [
    "Dataflow",
    "Operators",
    "barrier",
    "filter_blocked",
    "free",
    "fuse_inputs",
    "join_blocked",
    "local_name",
    "pushable_side",
    "scale_outputs",
    "shape_of",
    "weakest_evidence",
]


Operators = tuple[Operator, ...]

_RANKS = {"unknown": -1, "assumed": 0, "predicted": 1, "measured": 2}


def local_name(operator: Operator) -> str:
    """The operator's name within its query: ids of a console's documents are ``query/operator``."""
    return operator.id.removeprefix(f"{operator.query}/") if operator.query else operator.id


def shape_of(operators: Iterable[Operator]) -> frozenset[tuple[str, tuple[str, ...]]]:
    """Shape of a plan: equal for two plans whose operators read the same streams."""
    return frozenset((op.id, tuple(entry.source for entry in op.inputs)) for op in operators)


class Dataflow:
    """The operators of one plan."""

    def __init__(self, operators: Sequence[Operator]) -> None:
        self.operators: Operators = tuple(operators[i] for i in order_of(operators)[0])
        self.by_id = {operator.id: operator for operator in self.operators}

    @cached_property
    def readers(self) -> dict[str, list[str]]:
        """Ids of the operators that read each stream, once for every input."""
        readers: dict[str, list[str]] = {}
        for operator in self.operators:
            for entry in operator.inputs:
                readers.setdefault(entry.source, []).append(operator.id)
        return readers

    def upstream(self, operator: Operator, position: int = 0) -> Operator | None:
        """The operator behind an input; None for a source."""
        return self.by_id.get(operator.inputs[position].source)

    def only_reader(self, operator: Operator) -> Operator | None:
        """The one input that reads the operator's stream, if there is exactly one."""
        names = self.readers.get(operator.id, [])
        return self.by_id[names[0]] if len(names) == 1 else None

    def rates(self, sources: Mapping[str, float]) -> dict[str, float]:
        """Events per second of every stream at the sources' mean rates; linear, a model counts by its middle term."""
        rates = dict(sources)
        for operator in self.operators:
            rates[operator.id] = sum(
                (entry.model.output[1] if entry.model else entry.selectivity) * rates.get(entry.source, 0.0)
                for entry in operator.inputs
            )
        return rates

    def cost(self, sources: Mapping[str, float]) -> float:
        """Cycles per second of the whole plan at the sources' mean rates."""
        rates = self.rates(sources)
        return sum(
            (entry.model.cycles[1] if entry.model else entry.cycles_per_event) * rates.get(entry.source, 0.0)
            for operator in self.operators
            for entry in operator.inputs
        )

    def fields(self, stream: str) -> frozenset[str] | None:
        """Names an event of the stream may hold, at most; None where an operator above does not state what it writes.

        A filter writes nothing. What a document's source holds is only known of an operator of kind ``source``.
        """
        operator = self.by_id.get(stream)
        if operator is None:
            return None
        own = () if operator.kind == "filter" and operator.writes is None else operator.writes
        if own is None:
            return None
        if operator.kind == "source":
            return frozenset(own)
        fields = set(own)
        for entry in operator.inputs:
            above = self.fields(entry.source)
            if above is None:
                return None
            fields |= above
        return frozenset(fields)

    def stream_name(self, stream: str) -> str:
        """Name of a stream within the query."""
        return local_name(self.by_id[stream]) if stream in self.by_id else stream

    def changed(self, *operators: Operator, without: Iterable[str] = ()) -> Dataflow:
        """The plan with operators in the place of those of the same id, some new, some gone."""
        gone, new = set(without), {operator.id: operator for operator in operators}
        kept = [new.pop(op.id, op) for op in self.operators if op.id not in gone]
        return Dataflow([*kept, *new.values()])

    def reading(self, old: str, new: str) -> list[Operator]:
        """The readers of stream `old`, reading `new` instead."""
        return [
            replace(op, inputs=tuple(replace(e, source=new) if e.source == old else e for e in op.inputs))
            for op in self.operators
            if any(entry.source == old for entry in op.inputs)
        ]


def free(operator: Operator) -> bool:
    """Whether the operator takes one event at a time and forgets it: it may be part of a chain that is put in order."""
    return not barrier(operator)


def barrier(operator: Operator) -> Fact | None:
    """Reason why nothing moves past an operator; none for a stateless filter or map of one input."""
    names = (local_name(operator),)
    if operator.window is not None and operator.window.policy == "count":
        return Fact("plans.count_window", *names)
    if operator.kind not in ("filter", "map"):
        return Fact("plans.kind", *names, kind=operator.kind) if operator.kind else Fact("plans.kind_unstated", *names)
    if operator.stateless is None:
        return Fact("plans.state_unstated", *names)
    if not operator.stateless or operator.window is not None:
        return Fact("plans.state", *names)
    if len(operator.inputs) != 1:
        return Fact("plans.streams", *names, count=len(operator.inputs))
    return None if operator.inputs[0].model is None else Fact("plans.model", *names)


def filter_blocked(moved: Operator, over: Operator) -> Fact | None:
    """Reason why a stateless filter may not go before the stateless filter or map it follows; none if it may.

    Two filters commute, as neither changes an event. A filter and a map commute if the filter reads nothing that the
    map writes: it then says the same of every output of the map as of the input they came from.
    """
    if over.kind == "filter":
        return None
    if over.writes is None:
        return Fact("plans.writes_unstated", local_name(over))
    if moved.reads is None:
        return Fact("plans.reads_unstated", local_name(moved))
    common = tuple(sorted(set(moved.reads) & set(over.writes)))
    return Fact("plans.reads_written", local_name(over), fields=common) if common else None


def join_blocked(join: Operator) -> Fact | None:
    """Reason why nothing may be moved below a join, whichever side it is about; none if it depends on the fields."""
    names = (local_name(join),)
    if len(join.inputs) != 2:
        return Fact("plans.joined_streams", *names, count=len(join.inputs))
    if any(entry.model is not None for entry in join.inputs):
        return Fact("plans.model", *names)
    if join.window is None:
        return Fact("plans.window_unstated", *names)
    if join.window.policy == "count":
        return Fact("plans.count_window", *names)
    return Fact("plans.writes_unstated", *names) if join.writes is None else None


def pushable_side(flow: Dataflow, moved: Operator, join: Operator) -> int | Fact:
    """Input of a join whose fields alone a filter behind it reads, or why there is none.

    A field that the other side cannot hold comes from this one. A key of the join is the same on both sides.
    """
    if (why := join_blocked(join)) is not None:
        return why
    if moved.reads is None:
        return Fact("plans.reads_unstated", local_name(moved))
    if not moved.reads:
        return Fact("plans.reads_nothing", local_name(moved))
    reads, keys = set(moved.reads), set(join.reads or ())
    if derived := sorted(reads & set(join.writes or ())):
        return Fact("plans.reads_written", local_name(join), fields=derived)
    shared: list[str] = []
    unknown = []
    for side in (0, 1):
        other = flow.fields(join.inputs[1 - side].source)
        if other is None:
            unknown.append(join.inputs[1 - side].source)
        elif not (both := sorted((reads & other) - keys)):
            return side
        else:
            shared = both
    if unknown:
        return Fact("plans.fields_unstated", flow.stream_name(unknown[0]))
    return Fact("plans.either_side", fields=shared)


def scale_outputs(entry: Input, by: Input) -> Input:
    """The input with its outputs times the selectivity of another."""
    shares = _per_batch(by, entry.batches, "outputs")
    return replace(
        entry,
        selectivity=entry.selectivity * by.selectivity,
        batches=tuple(
            replace(batch, outputs=batch.outputs * share) for batch, share in zip(entry.batches, shares, strict=True)
        ),
    )


def fuse_inputs(first: Input, second: Input, saved_cycles: float) -> Input:
    """One input for two operators in a row: `saved_cycles` less for each event that no longer passes a queue."""
    saved = min(saved_cycles, second.cycles_per_event)
    outputs = _per_batch(second, first.batches, "outputs")
    cycles = _per_batch(second, first.batches, "cycles")
    batches = tuple(
        Batch(batch.events, batch.outputs * share, batch.cycles + batch.outputs * max(0.0, cost - saved))
        for batch, share, cost in zip(first.batches, outputs, cycles, strict=True)
    )
    return replace(
        first,
        selectivity=first.selectivity * second.selectivity,
        cycles_per_event=first.cycles_per_event + first.selectivity * (second.cycles_per_event - saved),
        batches=batches,
        never_ran=False,
    )


def _per_batch(entry: Input, batches: Sequence[Batch], name: Literal["outputs", "cycles"]) -> list[float]:
    """Outputs or cycles per event of `entry` in each of its batches, as many as `batches` has."""
    value = entry.selectivity if name == "outputs" else entry.cycles_per_event
    if len(entry.batches) != len(batches):
        return [value] * len(batches)
    events = sum(batch.events for batch in entry.batches)
    mean = sum(getattr(batch, name) for batch in entry.batches) / events if events else value
    # as in the intervals: the sample says how batches differ, the given number where they lie
    scale = value / mean if mean else 1.0
    return [scale * getattr(b, name) / b.events if b.events else value for b in entry.batches]


def weakest_evidence(*operators: Operator) -> Evidence | None:
    """The evidence of several operators taken together: that of the least known."""
    known = [operator.evidence for operator in operators]
    if any(evidence is None for evidence in known):
        return None
    return min((e for e in known if e is not None), key=lambda e: (_RANKS[e.kind], e.events))
