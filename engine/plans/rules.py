"""Ground of the rewriting rules: a plan as a graph, operators that may change places, and statistics of new ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from pydantic import computed_field

from engine.document.elements import Batch, Evidence, Input, Operator
from engine.document.topology import order_of
from engine.records import Record

__all__ = [
    "Dataflow",
    "Operators",
    "RewriteRefusal",
    "RewriteStep",
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

_RANKS = {"assumed": 0, "predicted": 1, "measured": 2}


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


@dataclass(frozen=True)
class RewriteStep(Record):
    """One application of a rule; `assumed` is what the new statistics rest on until the plan is sampled."""

    rule: str
    words: str
    assumed: str = ""


@dataclass(frozen=True)
class RewriteRefusal(Record):
    """A rule that was not applied. `over` is what stands in the way; both are empty for a rule that was not tried."""

    rule: str
    operator: str
    over: str
    why: str

    @computed_field  # type: ignore[prop-decorator]
    @property
    def words(self) -> str:
        """filter `rules` is not moved below `parse`: what parse writes is not stated."""
        if not self.operator and self.rule == "fuse":
            return f"nothing is fused: {self.why}"
        if not self.operator:
            return f"nothing is rewritten: {self.why}"
        if self.rule == "fuse":
            return f"`{self.operator}` is not fused with `{self.over}`: {self.why}"
        if self.rule == "join order":
            return f"`{self.operator}` does not change places with `{self.over}`: {self.why}"
        return f"`{self.operator}` is not moved below `{self.over}`: {self.why}"


def free(operator: Operator) -> bool:
    """Whether the operator takes one event at a time and forgets it: it may be part of a chain that is put in order."""
    return not barrier(operator)


def barrier(operator: Operator) -> str:
    """Reason why nothing moves past an operator; empty for a stateless filter or map of one input."""
    name = local_name(operator)
    if operator.window is not None and operator.window.policy == "count":
        return f"{name} counts events in a window, and other events would fall into it"
    if operator.kind not in ("filter", "map"):
        return (
            f"{name} is {_with_article(operator.kind)}"
            if operator.kind
            else f"what kind of operator {name} is is not stated"
        )
    if operator.stateless is None:
        return f"whether {name} keeps state is not stated"
    if not operator.stateless or operator.window is not None:
        return f"{name} keeps state"
    if len(operator.inputs) != 1:
        return f"{name} reads {len(operator.inputs)} streams"
    if operator.inputs[0].model is not None:
        return f"the statistics of {name} are a model of its rate"
    return ""


def _with_article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def filter_blocked(moved: Operator, over: Operator) -> str:
    """Reason why a stateless filter may not go before the stateless filter or map it follows; empty if it may.

    Two filters commute, as neither changes an event. A filter and a map commute if the filter reads nothing that the
    map writes: it then says the same of every output of the map as of the input they came from.
    """
    if over.kind == "filter":
        return ""
    if over.writes is None:
        return f"what {local_name(over)} writes is not stated"
    if moved.reads is None:
        return f"what {local_name(moved)} reads is not stated"
    common = sorted(set(moved.reads) & set(over.writes))
    if common:
        return f"it reads {_names(common)}, which {local_name(over)} writes"
    return ""


def _names(fields: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in fields)


def join_blocked(join: Operator) -> str:
    """Reason why nothing may be moved below a join, whichever side it is about; empty if it depends on the fields."""
    name = local_name(join)
    if len(join.inputs) != 2:
        return f"{name} joins {len(join.inputs)} streams; the rule is for two"
    if any(entry.model is not None for entry in join.inputs):
        return f"the statistics of {name} are a model of its rate"
    if join.window is None:
        return f"the window of {name} is not stated"
    if join.window.policy == "count":
        return f"{name} counts events in a window, and other events would fall into it"
    if join.writes is None:
        return f"what {name} writes is not stated"
    return ""


def pushable_side(flow: Dataflow, moved: Operator, join: Operator) -> tuple[int | None, str]:
    """Input of a join whose fields alone a filter behind it reads: (position, "") or (None, why).

    A field that the other side cannot hold comes from this one. A key of the join is the same on both sides.
    """
    why = join_blocked(join)
    if why:
        return None, why
    if moved.reads is None:
        return None, f"what {local_name(moved)} reads is not stated"
    if not moved.reads:
        return None, f"{local_name(moved)} reads no field, so it belongs to neither side"
    reads, keys = set(moved.reads), set(join.reads or ())
    if derived := sorted(reads & set(join.writes or ())):
        return None, f"it reads {_names(derived)}, which {local_name(join)} writes"
    shared: list[str] = []
    unknown = []
    for side in (0, 1):
        other = flow.fields(join.inputs[1 - side].source)
        if other is None:
            unknown.append(join.inputs[1 - side].source)
        elif not (both := sorted((reads & other) - keys)):
            return side, ""
        else:
            shared = both
    if unknown:
        return None, f"which fields the events of {_stream(flow, unknown[0])} hold is not stated"
    return None, f"{_names(shared)} may come from either side"


def _stream(flow: Dataflow, name: str) -> str:
    return local_name(flow.by_id[name]) if name in flow.by_id else name


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
