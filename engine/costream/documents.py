"""Documents of queries, hosts, placements and traces: what the command line and corpora hold.

A trace is ``{"query": {"ops": [...], "succ": [...]}, "hosts": [...], "placement": [...], "label": {...}}``. Latencies
are ms in documents and seconds in the engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from engine.costream.candidates import MAX_OPERATORS
from engine.errors import DocumentError, Fault, join_path, value_words
from engine.kinds import Anything, Enumeration, Number
from engine.query_graph.graph import (
    AGGREGATE_FUNCTIONS,
    AGGREGATE_TYPES,
    FILTER_FUNCTIONS,
    GROUP_TYPES,
    LITERAL_TYPES,
    NOMINAL_PROCESSOR,
    OPERATOR_KINDS,
    WINDOW_POLICIES,
    WINDOW_TYPES,
    CostTrace,
    HostNode,
    OperatorNode,
    QueryGraph,
    TraceLabel,
    strength_of,
    topological_levels,
)
from engine.query_graph.processors import STREAM_PROCESSORS
from engine.records import BAD, ItemCount, Record, RecordOf, Words
from engine.words import counted

__all__ = [
    "OPERATORS",
    "CostProblem",
    "HostDocument",
    "QueryDocument",
    "host_document",
    "operator_document",
    "processor_document",
    "read_trace",
    "trace_document",
]

_MAX_HOSTS = 10_000
_MAX_VALUE = 1e15  # rates and sizes beyond it are a mistake
_MS = 1e-3


_Amount = Annotated[float, Number(above=0, most=_MAX_VALUE)]
_Count = Annotated[int, Number(least=0, most=10_000, whole=True)]
_Index = Annotated[int, Number(least=0, whole=True)]
_NotNegative = Annotated[float, Number(least=0)]
_Kind = Annotated[str, Enumeration(OPERATOR_KINDS)]
_ValuesIn = Annotated[float, Number(above=0, most=10_000), Words("values in a tuple that comes in")]
_ValuesOut = Annotated[float, Number(above=0, most=10_000), Words("values in a tuple that goes out")]
_Selectivity = Annotated[float, Number(least=0, most=1), Words("selectivity, from 0 (nothing passes) to 1")]
_Policy = Annotated[str, Enumeration(WINDOW_POLICIES), Words("window counts tuples or time")]
_WindowType = Annotated[str, Enumeration(WINDOW_TYPES), Words("sliding or tumbling")]
_Size = Annotated[_Amount, Words("size in tuples or seconds")]
_Slide = Annotated[
    float | None, Number(above=0, most=_MAX_VALUE), Words("slide in tuples or seconds (tumbling: the size)")
]


@dataclass(frozen=True, kw_only=True)
class StreamSourceDocument(Record):
    """A source of a query."""

    TITLE: ClassVar[str] = "a source"
    JUDGES_PARTS: ClassVar[bool] = True

    type: _Kind
    rate: Annotated[_Amount, Words("tuples per second")]
    n_int: Annotated[_Count, Words("whole numbers per tuple")]
    n_str: Annotated[_Count, Words("strings per tuple")]
    n_dbl: Annotated[_Count, Words("doubles per tuple")]
    win: _ValuesIn
    wout: _ValuesOut

    def find_faults(self) -> Iterator[Fault]:
        """Tuples without a value."""
        if not any((self.n_int, self.n_str, self.n_dbl)):
            yield Fault("n_int", "a source's tuples have no value; allowed: at least one")

    def node(self) -> OperatorNode:
        """The operator."""
        return OperatorNode(self.type, self.win, self.wout, self.rate, self.n_int, self.n_str, self.n_dbl)


@dataclass(frozen=True, kw_only=True)
class FilterDocument(Record):
    """A filter of a query."""

    TITLE: ClassVar[str] = "a filter"

    type: _Kind
    fn: Annotated[str, Enumeration(FILTER_FUNCTIONS), Words("comparison")]
    dtype: Annotated[str, Enumeration(LITERAL_TYPES), Words("type of the literal")]
    sel: _Selectivity
    win: _ValuesIn
    wout: _ValuesOut

    def node(self) -> OperatorNode:
        """The operator."""
        return OperatorNode(
            self.type, self.win, self.wout, function=self.fn, value_type=self.dtype, selectivity=self.sel
        )


class _Windowed:
    """Rules of a window, and its fields in an operator."""

    wpolicy: str
    wtype: str
    wsize: float
    wslide: float | None

    def find_faults(self) -> Iterator[Fault]:
        """Parts of tuples, and a slide that the window does not have."""
        size, slide = self.wsize, self.wslide
        for name, value in (("wsize", size), ("wslide", slide)):
            if self.wpolicy == "count" and isinstance(value, float) and not value.is_integer():
                message = f"{name} is {value:g}; allowed: a whole number of tuples where windows count tuples"
                yield Fault(name, message)
        if slide is None and self.wtype == "sliding":
            yield Fault("wslide", "wslide is missing; sliding windows need it")
        if not isinstance(size, float) or not isinstance(slide, float):
            return
        if slide > size:
            yield Fault("wslide", f"wslide is {slide:g}; allowed: at most wsize ({size:g})")
        elif self.wtype == "tumbling" and slide != size:
            yield Fault("wslide", f"wslide is {slide:g}; allowed for tumbling windows: wsize ({size:g})")

    def _windowed(self, node: OperatorNode) -> OperatorNode:
        size = self.wsize
        slide = size if self.wslide is None else self.wslide
        return replace(node, window_policy=self.wpolicy, window_type=self.wtype, window_size=size, window_slide=slide)


@dataclass(frozen=True, kw_only=True)
class JoinDocument(_Windowed, Record):
    """A join of a query."""

    TITLE: ClassVar[str] = "a join"
    JUDGES_PARTS: ClassVar[bool] = True

    type: _Kind
    keytype: Annotated[str, Enumeration(LITERAL_TYPES), Words("type of the key")]
    wpolicy: _Policy
    wtype: _WindowType
    wsize: _Size
    wslide: _Slide = None
    sel: _Selectivity
    win: _ValuesIn
    wout: _ValuesOut

    def node(self) -> OperatorNode:
        """The operator."""
        node = OperatorNode(self.type, self.win, self.wout, value_type=self.keytype, selectivity=self.sel)
        return self._windowed(node)


@dataclass(frozen=True, kw_only=True)
class AggregationDocument(_Windowed, Record):
    """An aggregation of a query."""

    TITLE: ClassVar[str] = "an aggregation"
    JUDGES_PARTS: ClassVar[bool] = True

    type: _Kind
    fn: Annotated[str, Enumeration(AGGREGATE_FUNCTIONS), Words("function")]
    atype: Annotated[str, Enumeration(AGGREGATE_TYPES), Words("type of what is aggregated")]
    gtype: Annotated[str, Enumeration(GROUP_TYPES), Words("type of what is grouped by, or none")]
    wpolicy: _Policy
    wtype: _WindowType
    wsize: _Size
    wslide: _Slide = None
    sel: _Selectivity
    win: _ValuesIn
    wout: _ValuesOut

    def node(self) -> OperatorNode:
        """The operator."""
        node = OperatorNode(self.type, self.win, self.wout, function=self.fn, selectivity=self.sel)
        return self._windowed(replace(node, value_type=self.atype, group_type=self.gtype))


@dataclass(frozen=True, kw_only=True)
class SinkDocument(Record):
    """A sink of a query."""

    TITLE: ClassVar[str] = "a sink"

    type: _Kind
    win: _ValuesIn
    wout: _ValuesOut

    def node(self) -> OperatorNode:
        """The operator."""
        return OperatorNode(self.type, self.win, self.wout)


OperatorDocument = StreamSourceDocument | FilterDocument | JoinDocument | AggregationDocument | SinkDocument
#: Records of operators by their type.
OPERATORS: dict[str, type[OperatorDocument]] = {
    "source": StreamSourceDocument,
    "filter": FilterDocument,
    "join": JoinDocument,
    "agg": AggregationDocument,
    "sink": SinkDocument,
}


@dataclass(frozen=True, kw_only=True)
class QueryDocument(Record):
    """Operators of a query and the streams between them, by their indices.

    `succ[i]` is the index of the operator that reads operator i, -1 for none; `edges` allows several readers.
    """

    TITLE: ClassVar[str] = "a query"
    JUDGES_PARTS: ClassVar[bool] = True

    ops: Annotated[
        tuple[Annotated[OperatorDocument, RecordOf(OPERATORS, "type", "an operator")], ...],
        ItemCount(2, MAX_OPERATORS),
        Words("operators"),
    ]
    succ: Annotated[
        tuple[Annotated[int, Number(least=-1, whole=True)], ...] | None,
        Words("index of each operator's reader, -1 for none"),
    ] = None
    edges: Annotated[tuple[Annotated[tuple[_Index, ...], ItemCount(2, 2)], ...] | None, Words("streams [from, to]")] = (
        None
    )
    processor: Annotated[str, Enumeration(tuple(STREAM_PROCESSORS)), Words("stream processor that runs it")] = (
        NOMINAL_PROCESSOR
    )

    def find_faults(self) -> Iterator[Fault]:
        """Streams from and to operators that do not exist, cycles, and operators with too many or too few of them."""
        if self.ops is BAD:
            return
        faults: list[Fault] = []
        edges = self._edges(faults)
        if edges is not None:
            faults += _stream_faults(self.ops, edges)
        yield from faults

    def graph(self) -> QueryGraph:
        """The query."""
        return QueryGraph(tuple(op.node() for op in self.ops), self._edges([]) or (), self.processor)

    def _edges(self, faults: list[Fault]) -> tuple[tuple[int, int], ...] | None:
        n = len(self.ops)
        if (self.succ is None) == (self.edges is None):
            given = "neither succ nor edges is given" if self.succ is None else "both succ and edges are given"
            faults.append(Fault("succ", f"{given}; allowed: one of them"))
            return None
        if self.succ is not None:
            if self.succ is BAD or BAD in self.succ:
                return None
            if len(self.succ) != n:
                faults.append(Fault("succ", f"succ has {len(self.succ)} items; allowed: {n}, one per operator"))
            faults += _index_faults(self.succ, n, "succ")
            edges = tuple((a, b) for a, b in enumerate(self.succ) if b >= 0)
        else:
            if self.edges is None or self.edges is BAD or any(edge is BAD or BAD in edge for edge in self.edges):
                return None
            for i, edge in enumerate(self.edges):
                faults += _index_faults(edge, n, f"edges[{i}]")
            edges = tuple((a, b) for a, b in self.edges)
            if len(set(edges)) < len(edges):
                faults.append(Fault("edges", "edges lists a stream twice; allowed: each once"))
        if not faults and topological_levels(n, edges) is None:
            faults.append(Fault("", "the streams form a cycle; allowed: a graph without cycles"))
        return None if faults else edges


def _index_faults(indices: Sequence[int], n: int, path: str) -> Iterator[Fault]:
    for i, index in enumerate(indices):
        if index >= n:
            message = f"item {i} is {index}; allowed: the index of an operator, below {n}"
            yield Fault(join_path(path, i), message)


def _stream_faults(operators: Sequence[OperatorDocument], edges: Sequence[tuple[int, int]]) -> Iterator[Fault]:
    """Faults of operators that read or feed the wrong number of others; one of no kind has none."""
    reads, feeds = [0] * len(operators), [0] * len(operators)
    for a, b in edges:
        feeds[a] += 1
        reads[b] += 1
    for i, operator in enumerate(operators):
        if operator is BAD:
            continue
        path, kind = join_path("ops", i), operator.type
        if kind == "source" and reads[i]:
            yield Fault(path, f"this source reads {counted(reads[i], 'stream')}; allowed: none")
        elif kind == "join" and reads[i] != 2:
            yield Fault(path, f"this join reads {counted(reads[i], 'stream')}; allowed: 2")
        elif kind not in ("source", "join") and not reads[i]:
            yield Fault(path, f"this {operator.TITLE.split()[1]} reads no stream; allowed: 1 or more")
        if kind == "sink" and feeds[i]:
            yield Fault(path, "this sink is read by an operator; allowed: nobody reads a sink")
        elif kind != "sink" and not feeds[i]:
            yield Fault(path, "this operator leads nowhere; allowed: a way to a sink")


@dataclass(frozen=True, kw_only=True)
class HostDocument(Record):
    """A host, and what it leaves for a query."""

    TITLE: ClassVar[str] = "a host"

    cpu: Annotated[_Amount, Words("percent of a core")]
    ram: Annotated[_Amount, Words("memory, MB")]
    bandwidth: Annotated[_Amount, Words("of the way out, Mbit/s")]
    latency: Annotated[_Amount, Words("of the way out, ms")]
    bin: Annotated[int | None, Enumeration((0, 1, 2)), Words("0 weak, 1 medium, 2 strong (by the other four)")] = None

    def node(self) -> HostNode:
        """The host, with a latency in seconds."""
        values = self.cpu, self.ram, self.bandwidth, self.latency * _MS
        return HostNode(*values, strength_of(*values) if self.bin is None else self.bin)


@dataclass(frozen=True, kw_only=True)
class CostProblem(Record):
    """Query and hosts of a document, and their numbers, by which placements are checked; None: they have faults."""

    TITLE: ClassVar[str] = "a problem"
    JUDGES_PARTS: ClassVar[bool] = True

    query: Annotated[QueryDocument, RecordOf(QueryDocument), Words("operators and streams of the query")]
    hosts: Annotated[tuple[HostDocument, ...], ItemCount(1, _MAX_HOSTS), Words("what each host leaves for the query")]

    @property
    def operator_count(self) -> int | None:
        return None if self.query is BAD or self.query.ops is BAD else len(self.query.ops)

    @property
    def host_count(self) -> int | None:
        return None if self.hosts is BAD else len(self.hosts)

    @property
    def host_nodes(self) -> tuple[HostNode, ...]:
        """The hosts of a problem without faults."""
        return tuple(host.node() for host in self.hosts)

    def placement_faults(self, placement: Any, path: str) -> Iterator[Fault]:
        """Faults of the index of each operator's host. A number that is not known bounds nothing."""
        operators, hosts = self.operator_count, self.host_count
        if not isinstance(placement, (list, tuple)):
            yield Fault(path, f"{path} is {value_words(placement)}; allowed: a list")
        elif operators and len(placement) != operators:
            message = f"{path} has {counted(len(placement), 'item')}; allowed: exactly {operators:,}"
            yield Fault(path, message)
        else:
            faults: list[Fault] = []
            item = Number(least=0, most=hosts - 1 if hosts else None, whole=True)
            for i, index in enumerate(placement):
                item.read(index, path, i, faults)
            yield from faults


@dataclass(frozen=True, kw_only=True)
class LabelDocument(Record):
    """Costs of an execution."""

    TITLE: ClassVar[str] = "a label"

    T: Annotated[_NotNegative, Words("tuples per second at the sink")]
    Lp: Annotated[_NotNegative, Words("ms")]
    Le: Annotated[_NotNegative, Words("ms")]
    R: Annotated[_NotNegative, Words("backlog, tuples per second")]
    RO: Annotated[int, Enumeration((0, 1)), Words("1: back-pressure")]
    S: Annotated[int, Enumeration((0, 1)), Words("1: success")]
    crashed: Annotated[object, Anything()] = None

    def label(self) -> TraceLabel:
        """The costs; without success there are none."""
        success = bool(self.S)
        return TraceLabel(
            throughput_eps=self.T if success else None,
            processing_latency_s=self.Lp * _MS if success else None,
            end_to_end_latency_s=self.Le * _MS if success else None,
            backlog_eps=self.R,
            backpressure=bool(self.RO),
            success=success,
        )


@dataclass(frozen=True, kw_only=True)
class TraceDocument(CostProblem):
    """A line of a corpus."""

    TITLE: ClassVar[str] = "a trace"

    placement: Annotated[Any, Words("index of each operator's host")]
    seed: Annotated[object, Anything()] = None
    label: LabelDocument | None = None

    def find_faults(self) -> Iterator[Fault]:
        """A placement of other operators or on other hosts."""
        if self.placement is not BAD:
            yield from self.placement_faults(self.placement, "placement")


def read_trace(document: Any, where: str = "") -> CostTrace:
    """Read a line of a corpus: ``{"query", "hosts", "placement", "label"}``; ms become seconds.

    Raises
    ------
    DocumentError
        With every fault.

    Examples
    --------
    >>> source = {"type": "source", "rate": 256, "n_int": 2, "n_str": 3, "n_dbl": 1, "win": 6, "wout": 6}
    >>> query = {"ops": [source, {"type": "sink", "win": 6, "wout": 6}], "succ": [1, -1]}
    >>> hosts = [{"cpu": 100, "ram": 1000, "bandwidth": 25, "latency": 160}]
    >>> graph = read_trace({"query": query, "hosts": hosts, "placement": [0, 0]}).graph
    >>> graph.edges, graph.levels, graph.sinks
    (((0, 1),), (0, 1), (1,))
    """
    faults: list[Fault] = []
    trace = TraceDocument.read(document, "", where, faults)
    if trace is None:
        raise DocumentError(faults, "trace")
    label = None if trace.label is None else trace.label.label()
    return CostTrace(trace.query.graph(), trace.host_nodes, tuple(map(int, trace.placement)), label)


def trace_document(graph: QueryGraph, hosts: Sequence[HostNode], placement: Sequence[int]) -> dict[str, object]:
    """Query, hosts and placement, operators in topological order.

    Examples
    --------
    >>> source = OperatorNode("source", 6, 6, rate_eps=9, n_int=6)
    >>> graph = QueryGraph((OperatorNode("sink", 6, 6), source), ((1, 0),))
    >>> document = trace_document(graph, [HostNode(100, 1000, 25, 0.16, 0)], (0, 0))
    >>> document["query"]["ops"][0]["rate"], document["query"]["edges"], document["placement"]
    (9, [[0, 1]], [0, 0])
    """
    place = {i: row for row, i in enumerate(graph.order)}
    edges = sorted([place[a], place[b]] for a, b in graph.edges)
    operators = [operator_document(graph.operators[i]) for i in graph.order]
    return {
        "query": {"ops": operators, "edges": edges} | processor_document(graph),
        "hosts": [host_document(host) for host in hosts],
        "placement": [placement[i] for i in graph.order],
    }


def processor_document(graph: QueryGraph) -> dict[str, object]:
    """The stream processor as a query's document has it: left out where it is nominal."""
    return {} if graph.processor == NOMINAL_PROCESSOR else {"processor": graph.processor}


def operator_document(operator: OperatorNode) -> dict[str, object]:
    """An operator as a query's document has it."""
    fields: dict[str, object] = {"type": operator.kind}
    if operator.kind == "source":
        fields |= {"rate": operator.rate_eps, "n_int": operator.n_int, "n_str": operator.n_str, "n_dbl": operator.n_dbl}
    elif operator.kind == "filter":
        fields |= {"fn": operator.function, "dtype": operator.value_type, "sel": operator.selectivity}
    elif operator.kind == "join":
        fields |= {"keytype": operator.value_type}
    elif operator.kind == "agg":
        fields |= {"fn": operator.function, "atype": operator.value_type, "gtype": operator.group_type}
    if operator.window_policy:
        fields |= {
            "wpolicy": operator.window_policy,
            "wtype": operator.window_type,
            "wsize": operator.window_size,
            "wslide": operator.window_slide,
            "sel": operator.selectivity,
        }
    return fields | {"win": operator.values_in, "wout": operator.values_out}


def host_document(host: HostNode) -> dict[str, object]:
    """A host as a document has it."""
    return {
        "cpu": host.cpu_percent,
        "ram": host.ram_mb,
        "bandwidth": host.bandwidth_mbit_s,
        "latency": round(1e3 * host.latency_s, 9),
        "bin": host.strength,
    }
