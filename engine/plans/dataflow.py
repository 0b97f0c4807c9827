"""A plan as a graph: who reads whom, at which rate, at what cost, and which fields a stream may hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from engine.elements import Operator
from engine.topology import order_of

__all__ = ["Dataflow", "Operators", "local_name", "shape_of"]

Operators = tuple[Operator, ...]


def local_name(operator: Operator) -> str:
    """The operator's name within its query: ids of a console's documents are ``query/operator``."""
    return operator.id.removeprefix(f"{operator.query}/") if operator.query else operator.id


def shape_of(operators: Iterable[Operator]) -> frozenset[tuple[str, tuple[str, ...]]]:
    """What is the same for two plans with the same operators that read the same things."""
    return frozenset((op.id, tuple(entry.source for entry in op.inputs)) for op in operators)


class Dataflow:
    """The operators of one plan."""

    def __init__(self, operators: Sequence[Operator]) -> None:
        self.operators: Operators = tuple(operators[i] for i in order_of(operators)[0])
        self.by_id = {operator.id: operator for operator in self.operators}

    @cached_property
    def readers(self) -> dict[str, list[str]]:
        """Ids of the operators that read each stream, once for every input."""
        found: dict[str, list[str]] = {}
        for operator in self.operators:
            for entry in operator.inputs:
                found.setdefault(entry.source, []).append(operator.id)
        return found

    def upstream(self, operator: Operator, position: int = 0) -> Operator | None:
        """The operator behind an input; None for a source."""
        return self.by_id.get(operator.inputs[position].source)

    def only_reader(self, operator: Operator) -> Operator | None:
        """The one input that reads the operator's stream, if there is exactly one."""
        names = self.readers.get(operator.id, [])
        return self.by_id[names[0]] if len(names) == 1 else None

    def rates(self, sources: Mapping[str, float]) -> dict[str, float]:
        """Events per second of every stream at the sources' mean rates; linear, a model counts by its middle term."""
        found = dict(sources)
        for operator in self.operators:
            found[operator.id] = sum(
                (entry.model.output[1] if entry.model else entry.selectivity) * found.get(entry.source, 0.0)
                for entry in operator.inputs
            )
        return found

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
        found = set(own)
        for entry in operator.inputs:
            above = self.fields(entry.source)
            if above is None:
                return None
            found |= above
        return frozenset(found)

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
