"""Documents of queries, hosts, placements and traces: what the command line and corpora hold.

A trace is ``{"query": {"ops": [...], "succ": [...]}, "hosts": [...], "placement": [...], "label": {...}}``. Latencies
are ms in documents and seconds in the engine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.costream.candidates import MAX_OPERATORS
from engine.errors import DocumentError, Fault, join_path, value_words
from engine.fields import BAD, Anything, Enumeration, Field, FieldTable, ListOf, Number
from engine.query_graph.graph import (
    AGGREGATE_FUNCTIONS,
    AGGREGATE_TYPES,
    FILTER_FUNCTIONS,
    GROUP_TYPES,
    LITERAL_TYPES,
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
from engine.words import counted

__all__ = [
    "CostProblem",
    "Nested",
    "graph_of",
    "host_document",
    "hosts_of",
    "operator_document",
    "operator_of",
    "placement_of",
    "problem_of",
    "read_trace",
    "trace_document",
]

_MAX_HOSTS = 10_000
_MAX_VALUE = 1e15  # rates and sizes beyond it are a mistake
_MS = 1e-3


class Nested(Anything):
    """Any JSON value, kept as it is: a reader of its own tells its faults."""

    def read(self, value: Any, parent: str, key: str | int, faults: list[Fault]) -> Any:
        return value


_POSITIVE = Number(above=0, most=_MAX_VALUE)
_VALUES = Number(above=0, most=10_000)
_COUNT = Number(least=0, most=10_000, whole=True)
_SELECTIVITY = Number(least=0, most=1)

_WIDTHS = (
    Field("win", _VALUES, required=True, help="values in a tuple that comes in"),
    Field("wout", _VALUES, required=True, help="values in a tuple that goes out"),
)
_WINDOW = (
    Field("wpolicy", Enumeration(WINDOW_POLICIES), required=True, help="window counts tuples or time"),
    Field("wtype", Enumeration(WINDOW_TYPES), required=True, help="sliding or tumbling"),
    Field("wsize", _POSITIVE, required=True, help="size in tuples or seconds"),
    Field("wslide", _POSITIVE, help="slide in tuples or seconds (tumbling: the size)"),
)
_SHARE = Field("sel", _SELECTIVITY, required=True, help="selectivity, from 0 (nothing passes) to 1")
_TYPE = Field("type", Enumeration(OPERATOR_KINDS), required=True)

_OPERATORS = {
    "source": FieldTable(
        "a source",
        _TYPE,
        Field("rate", _POSITIVE, required=True, help="tuples per second"),
        Field("n_int", _COUNT, required=True, help="whole numbers per tuple"),
        Field("n_str", _COUNT, required=True, help="strings per tuple"),
        Field("n_dbl", _COUNT, required=True, help="doubles per tuple"),
        *_WIDTHS,
    ),
    "filter": FieldTable(
        "a filter",
        _TYPE,
        Field("fn", Enumeration(FILTER_FUNCTIONS), required=True, help="comparison"),
        Field("dtype", Enumeration(LITERAL_TYPES), required=True, help="type of the literal"),
        _SHARE,
        *_WIDTHS,
    ),
    "join": FieldTable(
        "a join",
        _TYPE,
        Field("keytype", Enumeration(LITERAL_TYPES), required=True, help="type of the key"),
        *_WINDOW,
        _SHARE,
        *_WIDTHS,
    ),
    "agg": FieldTable(
        "an aggregation",
        _TYPE,
        Field("fn", Enumeration(AGGREGATE_FUNCTIONS), required=True, help="function"),
        Field("atype", Enumeration(AGGREGATE_TYPES), required=True, help="type of what is aggregated"),
        Field("gtype", Enumeration(GROUP_TYPES), required=True, help="type of what is grouped by, or none"),
        *_WINDOW,
        _SHARE,
        *_WIDTHS,
    ),
    "sink": FieldTable("a sink", _TYPE, *_WIDTHS),
}

_HOST = FieldTable(
    "a host",
    Field("cpu", _POSITIVE, required=True, help="percent of a core"),
    Field("ram", _POSITIVE, required=True, help="memory, MB"),
    Field("bandwidth", _POSITIVE, required=True, help="of the way out, Mbit/s"),
    Field("latency", _POSITIVE, required=True, help="of the way out, ms"),
    Field("bin", Enumeration((0, 1, 2)), help="0 weak, 1 medium, 2 strong (by the other four)"),
)


def read_trace(document: Any, where: str = "") -> CostTrace:
    """Read a line of a corpus: ``{"query", "hosts", "placement", "label"}``; ms become seconds.

    Raises
    ------
    DocumentError
        With every fault.
    """
    faults: list[Fault] = []
    trace = _trace(document, where, faults)
    if trace is None:
        raise DocumentError(faults, "trace")
    return trace


_QUERY = FieldTable(
    "a query",
    Field("ops", ListOf(Nested(), least=2, most=MAX_OPERATORS), required=True, help="operators"),
    Field("succ", ListOf(Number(least=-1, whole=True)), help="index of each operator's reader, -1 for none"),
    Field("edges", ListOf(ListOf(Number(least=0, whole=True), least=2, most=2)), help="streams [from, to]"),
)


def graph_of(document: Any, where: str, faults: list[Fault]) -> QueryGraph | None:
    """Read ``{"ops": [...], "succ": [...]}`` or ``{"ops": [...], "edges": [[from, to], ...]}``; None with faults added.

    `succ[i]` is the index of the operator that reads operator i, -1 for none; `edges` allows several readers.

    Examples
    --------
    >>> source = {"type": "source", "rate": 256, "n_int": 2, "n_str": 3, "n_dbl": 1, "win": 6, "wout": 6}
    >>> graph = graph_of({"ops": [source, {"type": "sink", "win": 6, "wout": 6}], "succ": [1, -1]}, "", [])
    >>> graph.edges, graph.levels, graph.sinks
    (((0, 1),), (0, 1), (1,))
    """
    before = len(faults)
    fields = _QUERY.read(document, "", where, faults)
    if fields is BAD or fields["ops"] is BAD:
        return None
    path = join_path(where, "ops")
    operators = [operator_of(op, join_path(path, i), faults) for i, op in enumerate(fields["ops"])]
    edges = _edges(fields, where, faults)
    if edges is not None:
        _check_streams([_kind(op) for op in fields["ops"]], edges, path, faults)
    if edges is None or len(faults) > before:
        return None
    return QueryGraph(tuple(op for op in operators if op is not None), edges)


def _kind(document: Any) -> str:
    """Kind of an operator; empty where it is none."""
    kind = document.get("type") if isinstance(document, Mapping) else None
    return kind if isinstance(kind, str) and kind in _OPERATORS else ""


def operator_of(document: Any, path: str, faults: list[Fault]) -> OperatorNode | None:
    """Read an item of a query's ``ops``; None with faults added."""
    if not isinstance(document, Mapping):
        faults.append(Fault(path, f"an operator is {value_words(document)}; allowed: an object"))
        return None
    kind = _kind(document)
    if not kind:
        Enumeration(OPERATOR_KINDS).read(document.get("type"), path, "type", faults)
        return None
    before = len(faults)
    fields = _OPERATORS[kind].read(document, "", path, faults)
    _check_operator({name: value for name, value in fields.items() if value is not BAD}, fields, path, faults)
    return _node(fields) if len(faults) == before else None


def _check_operator(fields: Mapping[str, Any], given: Collection[str], path: str, faults: list[Fault]) -> None:
    """Faults that no single field shows: of `fields` that are right by themselves, among those `given`."""
    values = [fields[name] for name in ("n_int", "n_str", "n_dbl") if name in fields]
    if len(values) == 3 and not sum(values):
        faults.append(Fault(join_path(path, "n_int"), "a source's tuples have no value; allowed: at least one"))
    for name in ("wsize", "wslide"):
        if fields.get("wpolicy") == "count" and not float(fields.get(name, 1)).is_integer():
            message = f"{name} is {fields[name]:g}; allowed: a whole number of tuples where windows count tuples"
            faults.append(Fault(join_path(path, name), message))
    where, kind = join_path(path, "wslide"), fields.get("wtype")
    if "wslide" not in given and kind == "sliding":
        faults.append(Fault(where, "wslide is missing; sliding windows need it"))
    if "wsize" not in fields or "wslide" not in fields:
        return
    size, slide = fields["wsize"], fields["wslide"]
    if slide > size:
        faults.append(Fault(where, f"wslide is {slide:g}; allowed: at most wsize ({size:g})"))
    elif kind == "tumbling" and slide != size:
        faults.append(Fault(where, f"wslide is {slide:g}; allowed for tumbling windows: wsize ({size:g})"))


def _node(fields: Mapping[str, Any]) -> OperatorNode:
    return OperatorNode(
        kind=fields["type"],
        values_in=fields["win"],
        values_out=fields["wout"],
        rate_eps=fields.get("rate", 0.0),
        n_int=fields.get("n_int", 0),
        n_str=fields.get("n_str", 0),
        n_dbl=fields.get("n_dbl", 0),
        function=fields.get("fn", ""),
        value_type=fields.get("dtype") or fields.get("keytype") or fields.get("atype", ""),
        group_type=fields.get("gtype", "none"),
        selectivity=fields.get("sel", 1.0),
        window_policy=fields.get("wpolicy", ""),
        window_type=fields.get("wtype", ""),
        window_size=fields.get("wsize", 0.0),
        window_slide=fields.get("wslide", fields.get("wsize", 0.0)),
    )


def _edges(fields: Mapping[str, Any], where: str, faults: list[Fault]) -> tuple[tuple[int, int], ...] | None:
    n = len(fields["ops"])
    if ("succ" in fields) == ("edges" in fields):
        given = "both succ and edges are given" if "succ" in fields else "neither succ nor edges is given"
        faults.append(Fault(join_path(where, "succ"), f"{given}; allowed: one of them"))
        return None
    before = len(faults)
    if "succ" in fields:
        succ = fields["succ"]
        if succ is BAD or BAD in succ:
            return None
        if len(succ) != n:
            faults.append(
                Fault(join_path(where, "succ"), f"succ has {len(succ)} items; allowed: {n}, one per operator")
            )
        _check_indices(succ, n, join_path(where, "succ"), faults)
        edges = tuple((a, b) for a, b in enumerate(succ) if b >= 0)
    else:
        if fields["edges"] is BAD or any(edge is BAD or BAD in edge for edge in fields["edges"]):
            return None
        for i, edge in enumerate(fields["edges"]):
            _check_indices(edge, n, join_path(join_path(where, "edges"), i), faults)
        edges = tuple((a, b) for a, b in fields["edges"])
        if len(set(edges)) < len(edges):
            faults.append(Fault(join_path(where, "edges"), "edges lists a stream twice; allowed: each once"))
    if len(faults) == before and topological_levels(n, edges) is None:
        faults.append(Fault(where, "the streams form a cycle; allowed: a graph without cycles"))
    return edges if len(faults) == before else None


def _check_indices(indices: Sequence[int], n: int, path: str, faults: list[Fault]) -> None:
    for i, index in enumerate(indices):
        if index >= n:
            message = f"item {i} is {index}; allowed: the index of an operator, below {n}"
            faults.append(Fault(join_path(path, i), message))


def _check_streams(kinds: Sequence[str], edges: Sequence[tuple[int, int]], where: str, faults: list[Fault]) -> None:
    """Faults of operators that read or feed the wrong number of others; one of no kind has none."""
    reads, feeds = [0] * len(kinds), [0] * len(kinds)
    for a, b in edges:
        feeds[a] += 1
        reads[b] += 1
    for i, kind in enumerate(kinds):
        if not kind:
            continue
        path = join_path(where, i)
        if kind == "source" and reads[i]:
            faults.append(Fault(path, f"this source reads {counted(reads[i], 'stream')}; allowed: none"))
        elif kind == "join" and reads[i] != 2:
            faults.append(Fault(path, f"this join reads {counted(reads[i], 'stream')}; allowed: 2"))
        elif kind not in ("source", "join") and not reads[i]:
            faults.append(Fault(path, f"this {_OPERATORS[kind].name.split()[1]} reads no stream; allowed: 1 or more"))
        if kind == "sink" and feeds[i]:
            faults.append(Fault(path, "this sink is read by an operator; allowed: nobody reads a sink"))
        elif kind != "sink" and not feeds[i]:
            faults.append(Fault(path, "this operator leads nowhere; allowed: a way to a sink"))


def hosts_of(document: Any, where: str, faults: list[Fault]) -> tuple[HostNode, ...] | None:
    """Read ``[{"cpu": %, "ram": MB, "bandwidth": Mbit/s, "latency": ms, "bin": 0..2}, ...]``; None adds faults."""
    before = len(faults)
    fields = ListOf(_HOST, least=1, most=_MAX_HOSTS).read(document, "", where, faults)
    return None if len(faults) > before else tuple(_host(host) for host in fields)


def _host(fields: Mapping[str, Any]) -> HostNode:
    values = (fields["cpu"], fields["ram"], fields["bandwidth"], fields["latency"] * _MS)
    return HostNode(*values, fields["bin"] if "bin" in fields else strength_of(*values))


def placement_of(
    document: Any, operators: int | None, hosts: int | None, where: str, faults: list[Fault]
) -> tuple[int, ...] | None:
    """Read the index of each operator's host; None with faults added.

    A number of operators or hosts that is not known bounds nothing.
    """
    before = len(faults)
    item = Number(least=0, most=hosts - 1 if hosts else None, whole=True)
    placement = ListOf(item, least=operators or 0, most=operators).read(document, "", where, faults)
    return None if len(faults) > before else tuple(placement)


_TRACE = FieldTable(
    "a trace",
    Field("query", Nested(), required=True),
    Field("hosts", Nested(), required=True),
    Field("placement", Nested(), required=True),
    Field("seed", Anything()),
    Field("label", Nested(), nullable=True),
)

_LABEL = FieldTable(
    "a label",
    Field("T", Number(least=0), required=True, help="tuples per second at the sink"),
    Field("Lp", Number(least=0), required=True, help="ms"),
    Field("Le", Number(least=0), required=True, help="ms"),
    Field("R", Number(least=0), required=True, help="backlog, tuples per second"),
    Field("RO", Enumeration((0, 1)), required=True, help="1: back-pressure"),
    Field("S", Enumeration((0, 1)), required=True, help="1: success"),
    Field("crashed", Anything()),
)


def _trace(document: Any, where: str, faults: list[Fault]) -> CostTrace | None:
    before = len(faults)
    fields = _TRACE.read(document, "", where, faults)
    if fields is BAD:
        return None
    question = problem_of(fields, where, faults)
    placement = None
    if fields["placement"] is not BAD:
        path = join_path(where, "placement")
        placement = placement_of(fields["placement"], question.operator_count, question.host_count, path, faults)
    label = _LABEL.read(fields["label"], where, "label", faults) if "label" in fields else None
    if question.graph is None or question.hosts is None or placement is None or len(faults) > before:
        return None
    return CostTrace(question.graph, question.hosts, placement, _label(label))


@dataclass(frozen=True)
class CostProblem:
    """Query and hosts of a document, each None where it has faults; and their numbers, by which the rest is checked.

    A number is None where the document lists no allowed one.
    """

    graph: QueryGraph | None
    hosts: tuple[HostNode, ...] | None
    operator_count: int | None
    host_count: int | None


def problem_of(fields: Mapping[str, Any], where: str, faults: list[Fault]) -> CostProblem:
    """``query`` and ``hosts`` of the fields of a document; their faults are added."""
    query, hosts = fields["query"], fields["hosts"]
    return CostProblem(
        graph=None if query is BAD else graph_of(query, join_path(where, "query"), faults),
        hosts=None if hosts is BAD else hosts_of(hosts, join_path(where, "hosts"), faults),
        operator_count=_length(query.get("ops"), 2, MAX_OPERATORS) if isinstance(query, Mapping) else None,
        host_count=_length(hosts, 1, _MAX_HOSTS),
    )


def _length(value: Any, least: int, most: int) -> int | None:
    return len(value) if isinstance(value, (list, tuple)) and least <= len(value) <= most else None


def _label(fields: Mapping[str, Any] | None) -> TraceLabel | None:
    if fields is None:
        return None
    success = bool(fields["S"])
    return TraceLabel(
        throughput_eps=fields["T"] if success else None,
        processing_latency_s=fields["Lp"] * _MS if success else None,
        end_to_end_latency_s=fields["Le"] * _MS if success else None,
        backlog_eps=fields["R"],
        backpressure=bool(fields["RO"]),
        success=success,
    )


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
    return {
        "query": {"ops": [operator_document(graph.operators[i]) for i in graph.order], "edges": edges},
        "hosts": [host_document(host) for host in hosts],
        "placement": [placement[i] for i in graph.order],
    }


def operator_document(operator: OperatorNode) -> dict[str, Any]:
    """An operator as `operator_of` takes it."""
    fields: dict[str, Any] = {"type": operator.kind}
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
    """A host as `hosts_of` takes it."""
    return {
        "cpu": host.cpu_percent,
        "ram": host.ram_mb,
        "bandwidth": host.bandwidth_mbit_s,
        "latency": round(1e3 * host.latency_s, 9),
        "bin": host.strength,
    }
