"""Queries of a deployment document in the words of the model: operators as nodes of a graph, and their nominal costs.

A document says events put out per event read; the model's selectivities are shares of what could be put out
(definitions 6 to 8). Sources and sinks that a document leaves out become nodes beside the operator that reads the
source, or that nobody reads. What the model does not know is translated to the nearest thing that it knows, which then
`stands_for` the other: a reason to call the prediction outside its domain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from engine.arrays import FloatArray
from engine.document.cycles import NOMINAL, nominal_cost
from engine.document.elements import SESSION, EventFields, Evidence, Input, Node, Operator, Source, Window
from engine.document.topology import order_of
from engine.errors import Fault
from engine.query_graph.costs import nominal_cycles
from engine.query_graph.flow import nominal_flow
from engine.query_graph.graph import (
    AGGREGATE_FUNCTIONS,
    AGGREGATE_TYPES,
    FILTER_FUNCTIONS,
    NOMINAL_PROCESSOR,
    OperatorNode,
    QueryGraph,
)

__all__ = [
    "NEXT_TO_NOTHING",
    "TranslatedQuery",
    "input_series",
    "source_rates",
    "stream_rates",
    "table_costs",
    "translate_query",
    "with_nominal_costs",
]

_MIN_SELECTIVITY = 1e-9
_MIN_RATE_EPS = 1e-3
_AGGREGATE_VALUES = 3.0  # the group, its window and its value
_NEAREST_FUNCTION = {"==": "!=", "contains": "startswith"}
_GUESSED_FIELDS = EventFields(ints=2, strings=2, doubles=2)  # of a source that states none; costs alone rest on it


@dataclass(frozen=True)
class TranslatedQuery:
    """A query as the model takes it.

    Attributes
    ----------
    graph
        Its operators in their order, then the sources and sinks that the document leaves out.
    owners
        Position, among the query's operators, of the operator that each node of the graph runs beside; its own for a
        node that is an operator.
    faults
        What the document does not say and the model needs, each with its path and in words; the graph then holds
        guesses that are good for costs alone.
    """

    graph: QueryGraph
    owners: tuple[int, ...]
    faults: tuple[Fault, ...]


def source_rates(sources: Sequence[Source], subinterval_s: float) -> dict[str, float]:
    """Mean events/s of each source over its subintervals."""
    return {source.id: float(source.arrivals.mean()) / subinterval_s for source in sources}


def stream_rates(
    operators: Sequence[Operator], rates_eps: Mapping[str, float], subinterval_s: float
) -> dict[str, float]:
    """Events/s of every stream at steady rates: those given, and what each operator puts out."""
    rates = dict(rates_eps)
    for i in order_of(operators)[0]:
        rates[operators[i].id] = sum(
            float(input_series(entry, np.array(rates.get(entry.source, 0.0) * subinterval_s))[0]) / subinterval_s
            for entry in operators[i].inputs
        )
    return rates


def input_series(entry: Input, events: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Events put out for one input of an operator, and cycles spent on it, per subinterval; all of one shape."""
    if entry.model is None:
        return events * entry.selectivity, events * entry.cycles_per_event
    made, spent = (
        np.where(events > 0, np.maximum(0.0, c0 + c1 * events + c2 * events * events), 0.0)
        for c0, c1, c2 in (entry.model.output, entry.model.cycles)
    )
    return made, spent


def translate_query(
    operators: Sequence[Operator],
    rates_eps: Mapping[str, float],
    fields: Mapping[str, EventFields | None],
    processor: str = NOMINAL_PROCESSOR,
) -> TranslatedQuery:
    """The graph of a query.

    Parameters
    ----------
    operators : sequence of Operator
        All operators of the query, without a cycle.
    rates_eps : mapping
        Events/s of the streams that they read and put out (`stream_rates`).
    fields : mapping
        Fields of the events of those streams, where they are stated.
    processor : str
        Name of the stream processor that runs it (`engine.query_graph.processors`).

    Examples
    --------
    >>> from engine.document.elements import FilterFeatures
    >>> keep = Operator("f", (), (Input("s", 0.5),), kind="filter", filter=FilterFeatures("<", "int"))
    >>> query = translate_query([keep], stream_rates([keep], {"s": 10.0}, 1.0), {"s": EventFields(ints=4)})
    >>> [node.kind for node in query.graph.operators], query.owners, query.graph.edges, query.faults
    (['filter', 'source', 'sink'], (0, 0, 0), ((1, 0), (0, 2)), ())
    """
    return _Translation(operators, rates_eps, fields, processor).query()


class _Translation:
    """One translation: nodes of the operators first, in their order, then those that the document leaves out."""

    def __init__(
        self,
        operators: Sequence[Operator],
        rates_eps: Mapping[str, float],
        fields: Mapping[str, EventFields | None],
        processor: str,
    ) -> None:
        self.operators, self.fields, self.processor = operators, fields, processor
        self.index = {operator.id: i for i, operator in enumerate(operators)}
        self.rates = rates_eps
        self.faults: list[Fault] = []
        self.values: dict[str, float] = {}  # of an event of each operator
        self.read = {entry.source for operator in operators for entry in operator.inputs}

    def query(self) -> TranslatedQuery:
        nodes: list[OperatorNode | None] = [None] * len(self.operators)
        for i in order_of(self.operators)[0]:
            nodes[i] = replace(self._node(i), name=self.operators[i].id)
            self.values[self.operators[i].id] = nodes[i].values_out  # type: ignore[union-attr]
        whole = [node for node in nodes if node is not None]
        owners = list(range(len(whole)))
        edges: list[tuple[int, int]] = []
        for i, operator in enumerate(self.operators):
            for k, entry in enumerate(operator.inputs):
                above = self.index.get(entry.source)
                if above is not None:
                    edges.append((above, i))
                elif not _is_source(operator, self.index):
                    edges.append((len(whole), i))
                    whole.append(self._source(f"operators[{i}].inputs[{k}].from", entry.source, entry.source, 1.0))
                    owners.append(i)
        for i, operator in enumerate(self.operators):
            if operator.id not in self.read and whole[i].kind != "sink":
                edges.append((i, len(whole)))
                width = whole[i].values_out
                whole.append(OperatorNode("sink", width, width))
                owners.append(i)
        graph = QueryGraph(tuple(whole), tuple(edges), self.processor)
        return TranslatedQuery(graph, tuple(owners), tuple(self.faults))

    def _node(self, i: int) -> OperatorNode:
        operator, path = self.operators[i], f"operators[{i}]"
        if not operator.inputs:
            self._fault(f"{path}.inputs", operator, "reads nothing")
            return OperatorNode("source", 1.0, 1.0, rate_eps=_MIN_RATE_EPS, n_int=1)
        read = [entry.source for entry in operator.inputs]
        if len(set(read)) < len(read):
            again = next(stream for stream in read if read.count(stream) > 1)
            self._fault(f"{path}.inputs", operator, f"reads {again!r} twice; the model knows different streams alone")
        if _is_source(operator, self.index):
            return self._explicit_source(operator, path)
        if operator.kind == "sink" and operator.id not in self.read:
            width = self._values_in(operator)
            return OperatorNode("sink", width, width)
        if operator.kind == "join" and len(operator.inputs) == 2:
            return self._join(operator, path)
        if operator.kind == "aggregate":
            return self._aggregate(operator, path)
        return self._filter(operator, path)

    def _explicit_source(self, operator: Operator, path: str) -> OperatorNode:
        if len(operator.inputs) > 1:
            sources = len(operator.inputs)
            self._fault(f"{path}.inputs", operator, f"reads {sources} sources; the model knows operators that read one")
        entry = operator.inputs[0]
        node = self._source(f"{path}.inputs[0].from", entry.source, operator.id, 1.0)
        if operator.tuple_values_out:
            node = replace(node, values_in=operator.tuple_values_out, values_out=operator.tuple_values_out)
        return node

    def _source(self, path: str, source: str, stream: str, share: float) -> OperatorNode:
        fields = self.fields.get(source)
        if fields is None or not fields.count:
            stated = "the model needs how many are ints, strings and doubles"
            self.faults.append(Fault(path, f"The fields of source {source!r} are not stated; {stated}."))
            fields = _GUESSED_FIELDS
        rate = self.rates.get(stream, 0.0) * share
        if rate <= 0.0:
            self.faults.append(Fault(path, f"No event of source {source!r} arrives; the model needs a rate above 0."))
        width = float(fields.count)
        return OperatorNode(
            "source",
            width,
            width,
            rate_eps=max(rate, _MIN_RATE_EPS),
            n_int=fields.ints,
            n_str=fields.strings,
            n_dbl=fields.doubles,
            name=source,
        )

    def _filter(self, operator: Operator, path: str) -> OperatorNode:
        """A filter, or the nearest filter to an operator of a kind that the model does not know."""
        share = self._share(operator)
        width = self._values_in(operator)
        out = operator.tuple_values_out or width
        function, literal, other = "<", "int", ""
        if operator.kind != "filter":
            other = _kind_words(operator.kind)
        elif operator.filter is None:
            self._fault(f"{path}.filter", operator, "does not state its comparison and the type of its literal")
        else:
            literal, function = operator.filter.literal_type, operator.filter.function
            if function not in FILTER_FUNCTIONS:
                other = f"a comparison by {function!r}"
                function = _NEAREST_FUNCTION.get(function, "<")
        if len(operator.inputs) > 1:
            other = other or f"a union of {len(operator.inputs)} streams"
        if share > 1.0:
            other = other or f"an operator that puts out {share:.3g} events for each one it reads"
        return OperatorNode(
            "filter", width, out, function=function, value_type=literal, selectivity=_clipped(share), stands_for=other
        )

    def _join(self, operator: Operator, path: str) -> OperatorNode:
        key = "int"
        if operator.join is None:
            self._fault(f"{path}.join", operator, "does not state the type of its key")
        else:
            key = operator.join.key_type
        widths = self._input_widths(operator)
        width, out = operator.tuple_values_in or sum(widths) / len(widths), operator.tuple_values_out or sum(widths)
        node = self._windowed(OperatorNode("join", width, out, value_type=key), operator, path)
        pairs = _pairs_eps(node, [self.rates.get(entry.source, 0.0) for entry in operator.inputs])
        share = self.rates[operator.id] / pairs if pairs > 0.0 else 1.0
        other = node.stands_for
        if share > 1.0:
            other = other or "a join that puts out more events than its windows hold pairs"
        return replace(node, selectivity=_clipped(share), stands_for=other)

    def _aggregate(self, operator: Operator, path: str) -> OperatorNode:
        function, argument, group, other = "mean", "int", "none", ""
        if operator.aggregate is None:
            self._fault(f"{path}.aggregate", operator, "does not state its function and the types of what it reads")
        else:
            given = operator.aggregate
            function, argument, group = given.function, given.argument_type, given.group_by_type
            if function not in AGGREGATE_FUNCTIONS:
                other, function = f"an aggregation by {function!r}", "mean"
            if argument not in AGGREGATE_TYPES:
                other, argument = other or f"an aggregation of a {argument}", "int"
        width, out = self._values_in(operator), operator.tuple_values_out or _AGGREGATE_VALUES
        plain = OperatorNode("agg", width, out, function=function, value_type=argument, group_type=group)
        node = self._windowed(plain, operator, path)
        share = self._share(operator) * node.window_slide / node.window_size
        other = other or node.stands_for
        if share > 1.0:
            other = other or "an aggregation that puts out more events than its windows hold"
        return replace(node, selectivity=_clipped(share), stands_for=other)

    def _windowed(self, node: OperatorNode, operator: Operator, path: str) -> OperatorNode:
        """The node with the operator's window; a fault and a window of one event where it states none."""
        window = operator.window
        if window is None:
            self._fault(f"{path}.window", operator, "does not state its window")
            window = Window("count", "tumbling", 1.0)
        slide = window.size if window.type != "sliding" or window.slide is None else window.slide
        other = "a session" if window.type == SESSION else ""
        if window.policy == "count" and not (float(window.size).is_integer() and float(slide).is_integer()):
            stated = f"has a window of {window.size:g} events every {slide:g}"
            self._fault(f"{path}.window", operator, f"{stated}; the model knows whole numbers of events")
        return replace(
            node,
            window_policy=window.policy,
            window_type="tumbling" if other else window.type,
            window_size=window.size,
            window_slide=min(slide, window.size),
            stands_for="windows that leave events between them out" if slide > window.size else other,
        )

    def _share(self, operator: Operator) -> float:
        """Events put out per event read, over all inputs."""
        read = sum(self.rates.get(entry.source, 0.0) for entry in operator.inputs)
        if read > 0.0:
            return self.rates[operator.id] / read
        return max((entry.selectivity for entry in operator.inputs), default=1.0)

    def _values_in(self, operator: Operator) -> float:
        widths = self._input_widths(operator)
        return operator.tuple_values_in or sum(widths) / len(widths)

    def _input_widths(self, operator: Operator) -> list[float]:
        """Values of an event of each stream that an operator reads."""
        return [self._width(entry.source) for entry in operator.inputs] or [float(_GUESSED_FIELDS.count)]

    def _width(self, stream: str) -> float:
        if stream in self.values:
            return self.values[stream]
        return float((self.fields.get(stream) or _GUESSED_FIELDS).count or _GUESSED_FIELDS.count)

    def _fault(self, path: str, operator: Operator, words: str) -> None:
        self.faults.append(Fault(path, f"Operator {operator.id} {words}."))


def _is_source(operator: Operator, index: Mapping[str, int]) -> bool:
    """Whether an operator is the model's source: of that kind, and reading nothing but sources."""
    return operator.kind == "source" and all(entry.source not in index for entry in operator.inputs)


def _kind_words(kind: str | None) -> str:
    return "of no stated kind" if kind is None or kind == "other" else f"a {kind}"


def _clipped(share: float) -> float:
    return min(max(share, _MIN_SELECTIVITY), 1.0)


def _pairs_eps(join: OperatorNode, rates: Sequence[float]) -> float:
    """Events/s that a join would put out if all pairs in its windows matched."""
    sides = [OperatorNode("source", 1.0, 1.0, rate_eps=rate, n_int=1) for rate in rates]
    graph = QueryGraph((*sides, replace(join, selectivity=1.0)), ((0, 2), (1, 2)))
    return float(nominal_flow(graph).out_eps[2])


def with_nominal_costs(
    operators: Sequence[Operator],
    rates_eps: Mapping[str, float],
    subinterval_s: float,
    nodes: Sequence[Node] = (),
    corrected: Callable[[Operator, float], tuple[float, int]] | None = None,
    processor: str = NOMINAL_PROCESSOR,
) -> tuple[Operator, ...]:
    """The operators with a nominal cost at every input that never ran, and the evidence that says so.

    Mace needs a cost for every operator. Where nobody has measured or assumed one, that of the simulator's table stands
    in: a figure of the model, never of this machine. An operator also bears what a source or sink costs that the
    document leaves out beside it. Of one that runs and whose cost is unknown nothing stands in: what rests on it is a
    lower bound (`engine.document.unknown_costs`).

    Parameters
    ----------
    operators : sequence of Operator
        They may read one another and the streams of `rates_eps`; without a cycle.
    rates_eps : mapping
        Mean events/s of the streams that are not among them; one without a rate counts as silent.
    subinterval_s : float
        Seconds that polynomial models count events over.
    nodes : sequence of Node
        Of the deployment: costs are in the unit that they count in.
    corrected : callable, optional
        Makes of an operator and its nominal cost, in cycles, the cost by relatives that ran, and tells their number
        (`engine.document.relatives`).
    processor : str
        Stream processor whose costs they are: the table's, or what executions made of it.

    Examples
    --------
    >>> never_ran = Operator("f", (), (Input("s", 0.5, never_ran=True),), kind="filter")
    >>> filled, = with_nominal_costs([never_ran], {"s": 10.0}, 1.0)
    >>> filled.inputs[0].cycles_per_event > 100_000, filled.evidence.kind
    (True, 'predicted')
    """
    operators = [_without_cost(operator) if operator.is_cost_unknown else operator for operator in operators]
    new = {operator.query for operator in operators if operator.never_ran and not operator.is_cost_unknown}
    if not new:
        return tuple(operators)
    rates = stream_rates(operators, rates_eps, subinterval_s)
    own = [operator for operator in operators if operator.query in new]
    costs = {operator.id: cost for operator, cost in zip(own, table_costs(own, rates, processor), strict=True)}
    correct = corrected or (lambda _, cost: (cost, 0))
    return tuple(
        _filled(operator, *correct(operator, costs[operator.id]), nodes)
        if operator.never_ran and not operator.is_cost_unknown
        else operator
        for operator in operators
    )


#: Cycles, a hair above nothing: a query without any load has no server that it waits at.
NEXT_TO_NOTHING = 1e-6


def _without_cost(operator: Operator) -> Operator:
    """One whose cost nobody knows: next to nothing for now, so that what shares its servers is known to share them."""
    return replace(
        operator,
        inputs=tuple(replace(e, cycles_per_event=NEXT_TO_NOTHING) if e.never_ran else e for e in operator.inputs),
    )


def table_costs(
    operators: Sequence[Operator], rates_eps: Mapping[str, float], processor: str = NOMINAL_PROCESSOR
) -> list[float]:
    """Nominal cycles per event that each operator reads, on a stream processor."""
    query = translate_query(operators, rates_eps, {}, processor)
    events = nominal_flow(query.graph).in_eps
    cycles = [0.0] * len(operators)
    for i, spent in enumerate(nominal_cycles(query.graph)):
        owner = query.owners[i]
        # a source or sink that the operator bears handles more or fewer events than the operator reads
        share = 1.0 if i == owner or events[owner] <= 0.0 else float(events[i] / events[owner])
        cycles[owner] += spent * share
    return cycles


def _filled(operator: Operator, cycles: float, relatives: int, nodes: Sequence[Node]) -> Operator:
    cost, unit = nominal_cost(cycles, operator, nodes)
    inputs = tuple(
        replace(entry, cycles_per_event=cost, relatives=relatives) if entry.never_ran else entry
        for entry in operator.inputs
    )
    return replace(
        operator, inputs=inputs, evidence=Evidence("predicted", cycle_unit=None if unit == NOMINAL else unit)
    )
