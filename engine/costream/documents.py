"""Documents of queries, hosts, placements and traces: what the command line and corpora hold.

A trace is ``{"query": {"ops": [...], "succ": [...]}, "hosts": [...], "placement": [...], "label": {...}}``. Latencies
are ms in documents and seconds in the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.costream.candidates import MAX_OPERATORS
from engine.costream.graph import (
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
from engine.errors import DocumentError, Fault, join_path, value_words
from engine.fields import BAD, Anything, Enumeration, Field, FieldTable, ListOf, Number

__all__ = [
    "graph_of",
    "hosts_of",
    "placement_of",
    "read_graph",
    "read_hosts",
    "read_operator",
    "read_placement",
    "read_trace",
]

_MAX_HOSTS = 10_000
_MAX_VALUE = 1e15  # rates and sizes beyond it are a mistake
_MS = 1e-3

_POSITIVE = Number(above=0, most=_MAX_VALUE)
_VALUES = Number(above=0, most=10_000)
_COUNT = Number(least=0, most=10_000, whole=True)
_SELECTIVITY = Number(above=0, most=1)

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
_SHARE = Field("sel", _SELECTIVITY, required=True, help="selectivity, above 0 and at most 1")
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


def read_graph(document: Any, where: str = "") -> QueryGraph:
    """Read ``{"ops": [...], "succ": [...]}`` or ``{"ops": [...], "edges": [[from, to], ...]}``.

    `succ[i]` is the index of the operator that reads operator i, -1 for none; `edges` allows several readers.

    Raises
    ------
    DocumentError
        With every fault: unknown kinds of operators, missing selectivities, numbers out of range, cycles, operators
        that read nothing or lead nowhere.

    Examples
    --------
    >>> source = {"type": "source", "rate": 256, "n_int": 2, "n_str": 3, "n_dbl": 1, "win": 6, "wout": 6}
    >>> graph = read_graph({"ops": [source, {"type": "sink", "win": 6, "wout": 6}], "succ": [1, -1]})
    >>> graph.edges, graph.levels, graph.sinks
    (((0, 1),), (0, 1), (1,))
    """
    return _read(graph_of, document, where, "query")


def read_operator(document: Any, where: str = "") -> OperatorNode:
    """Read an item of a query's ``ops``.

    Raises
    ------
    DocumentError
        With every fault.
    """
    operator: OperatorNode = _read(_operator, document, where, "operator")
    return operator


def read_hosts(document: Any, where: str = "") -> tuple[HostNode, ...]:
    """Read ``[{"cpu": %, "ram": MB, "bandwidth": Mbit/s, "latency": ms, "bin": 0..2}, ...]``.

    Raises
    ------
    DocumentError
        With every fault.
    """
    return _read(hosts_of, document, where, "list of hosts")


def read_placement(document: Any, operators: int, hosts: int, where: str = "") -> tuple[int, ...]:
    """Read the index of each operator's host.

    Raises
    ------
    DocumentError
        If it is not as long as there are operators, or an index is out of range.
    """

    def placement(value: Any, path: str, faults: list[Fault]) -> tuple[int, ...] | None:
        return placement_of(value, operators, hosts, path, faults)

    return _read(placement, document, where, "placement")


def read_trace(document: Any, where: str = "") -> CostTrace:
    """Read a line of a corpus: ``{"query", "hosts", "placement", "label"}``; ms become seconds.

    Raises
    ------
    DocumentError
        With every fault.
    """
    return _read(_trace, document, where, "trace")


Reader = Callable[[Any, str, list[Fault]], Any]


def _read(reader: Reader, document: Any, where: str, what: str) -> Any:
    """Result of `reader`, which is of use only where it adds no fault."""
    faults: list[Fault] = []
    read = reader(document, where, faults)
    if faults:
        raise DocumentError(faults, what)
    return read


_QUERY = FieldTable(
    "a query",
    Field("ops", ListOf(Anything(), least=2), required=True, help="operators"),
    Field("succ", ListOf(Number(least=-1, whole=True)), help="index of each operator's reader, -1 for none"),
    Field("edges", ListOf(ListOf(Number(least=0, whole=True), least=2, most=2)), help="streams [from, to]"),
)


def graph_of(document: Any, where: str, faults: list[Fault]) -> QueryGraph | None:
    """`read_graph` of a document within another: adds its faults; None if there are any."""
    before = len(faults)
    fields = _QUERY.read(document, "", where, faults)
    if fields is BAD or fields["ops"] is BAD:
        return None
    path = join_path(where, "ops")
    if len(fields["ops"]) > MAX_OPERATORS:
        words = f"ops has {len(fields['ops'])} items; allowed: 2 to {MAX_OPERATORS}, sources and sinks counted"
        faults.append(Fault(path, words))
        return None
    read = [_operator(op, join_path(path, i), faults) for i, op in enumerate(fields["ops"])]
    operators = [op for op in read if op is not None]
    edges = _edges(fields, where, faults)
    if edges is None or len(operators) < len(read):
        return None
    _check_streams(operators, edges, path, faults)
    return QueryGraph(tuple(operators), edges) if len(faults) == before else None


def _operator(document: Any, path: str, faults: list[Fault]) -> OperatorNode | None:
    if not isinstance(document, Mapping):
        faults.append(Fault(path, f"an operator is {value_words(document)}; allowed: an object"))
        return None
    kind = document.get("type")
    table = _OPERATORS.get(kind) if isinstance(kind, str) else None
    if table is None:
        Enumeration(OPERATOR_KINDS).read(kind, path, "type", faults)
        return None
    before = len(faults)
    fields = table.read(document, "", path, faults)
    if len(faults) == before:
        _check_operator(fields, path, faults)
    return _node(fields) if len(faults) == before else None


def _check_operator(fields: Mapping[str, Any], path: str, faults: list[Fault]) -> None:
    """Faults that no single field shows."""
    if fields["type"] == "source" and not fields["n_int"] + fields["n_str"] + fields["n_dbl"]:
        faults.append(Fault(join_path(path, "n_int"), "a source's tuples have no value; allowed: at least one"))
    if "wsize" not in fields:
        return
    size, slide = fields["wsize"], fields.get("wslide", fields["wsize"])
    for name, value in (("wsize", size), ("wslide", slide)):
        if fields["wpolicy"] == "count" and not float(value).is_integer():
            message = f"{name} is {value:g}; allowed: a whole number of tuples where windows count tuples"
            faults.append(Fault(join_path(path, name), message))
    if fields["wtype"] == "sliding" and "wslide" not in fields:
        faults.append(Fault(join_path(path, "wslide"), "wslide is missing; sliding windows need it"))
    elif slide > size:
        faults.append(Fault(join_path(path, "wslide"), f"wslide is {slide:g}; allowed: at most wsize ({size:g})"))
    elif fields["wtype"] == "tumbling" and slide != size:
        message = f"wslide is {slide:g}; allowed for tumbling windows: wsize ({size:g})"
        faults.append(Fault(join_path(path, "wslide"), message))


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


def _check_streams(
    operators: Sequence[OperatorNode], edges: Sequence[tuple[int, int]], where: str, faults: list[Fault]
) -> None:
    """Faults of operators that read or feed the wrong number of others."""
    reads, feeds = [0] * len(operators), [0] * len(operators)
    for a, b in edges:
        feeds[a] += 1
        reads[b] += 1
    for i, op in enumerate(operators):
        path = join_path(where, i)
        if op.kind == "source" and reads[i]:
            faults.append(Fault(path, f"this source reads {reads[i]} streams; allowed: none"))
        elif op.kind == "join" and reads[i] != 2:
            faults.append(Fault(path, f"this join reads {reads[i]} streams; allowed: 2"))
        elif op.kind not in ("source", "join") and not reads[i]:
            faults.append(
                Fault(path, f"this {_OPERATORS[op.kind].name.split()[1]} reads no stream; allowed: 1 or more")
            )
        if op.kind == "sink" and feeds[i]:
            faults.append(Fault(path, "this sink is read by an operator; allowed: nobody reads a sink"))
        elif op.kind != "sink" and not feeds[i]:
            faults.append(Fault(path, "this operator leads nowhere; allowed: a way to a sink"))


def hosts_of(document: Any, where: str, faults: list[Fault]) -> tuple[HostNode, ...] | None:
    """`read_hosts` of a document within another: adds its faults; None if there are any."""
    before = len(faults)
    fields = ListOf(_HOST, least=1, most=_MAX_HOSTS).read(document, "", where, faults)
    if len(faults) > before:
        return None
    return tuple(_host(host) for host in fields)


def _host(fields: Mapping[str, Any]) -> HostNode:
    values = (fields["cpu"], fields["ram"], fields["bandwidth"], fields["latency"] * _MS)
    return HostNode(*values, fields["bin"] if "bin" in fields else strength_of(*values))


def placement_of(document: Any, operators: int, hosts: int, where: str, faults: list[Fault]) -> tuple[int, ...] | None:
    """`read_placement` of a document within another: adds its faults; None if there are any."""
    before = len(faults)
    kind = ListOf(Number(least=0, most=hosts - 1, whole=True), least=operators, most=operators)
    placement = kind.read(document, "", where, faults)
    return None if len(faults) > before else tuple(placement)


_TRACE = FieldTable(
    "a trace",
    Field("query", Anything(), required=True),
    Field("hosts", Anything(), required=True),
    Field("placement", Anything(), required=True),
    Field("seed", Anything()),
    Field("label", Anything(), nullable=True),
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
    if len(faults) > before:
        return None
    graph = graph_of(fields["query"], join_path(where, "query"), faults)
    hosts = hosts_of(fields["hosts"], join_path(where, "hosts"), faults)
    label = None
    if "label" in fields:
        label = _LABEL.read(fields["label"], where, "label", faults)
    if graph is None or hosts is None or len(faults) > before:
        return None
    placement = placement_of(
        fields["placement"], len(graph.operators), len(hosts), join_path(where, "placement"), faults
    )
    return None if placement is None else CostTrace(graph, hosts, placement, _label(label))


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
