"""Hosts of a deployment as the model takes them: what running queries leave free in their busiest minutes.

Nothing here errs on the side of admission: rates are those of each source's busiest `RUN_S` seconds, and of a node only
what is left in its own busiest `RUN_S` seconds, as if both came together. A run of the corpus is as long.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from engine.arrays import FloatArray
from engine.document.cycles import cycles_per_unit
from engine.document.deployment import Deployment
from engine.document.elements import Node, Operator, Source
from engine.document.topology import order_of
from engine.document.translation import input_series
from engine.query_graph.graph import REFERENCE_CORE_CPS, HostNode, strength_of

__all__ = ["MAX_CPU_PERCENT", "MAX_RAM_MB", "RUN_S", "UNKNOWN_RAM_MB", "FreeHosts", "busiest_rates", "free_hosts"]

#: Length of a simulated run in seconds.
RUN_S = 240.0

_MAX_SUBINTERVALS = 20_000  # of a longer horizon several are taken together
_MIN_CELLS = 16  # that `RUN_S` seconds still have then
_EVENT_BYTES = 1000.0  # of an event in a window
_STATELESS = ("source", "filter", "map", "sink")
_MIN_CPU_PERCENT = 1.0  # with less a node takes nothing
_MIN_RAM_MB = 1.0
# Bounds of the corpus stand in for what a cluster does not say or has without limit: a missing link costs nothing.
# Where a node has more than any host of the corpus, the best of them stands in for it, which does not admit too much.
UNKNOWN_RAM_MB = 1000.0
MAX_RAM_MB = 32_000.0
MAX_CPU_PERCENT = 800.0
_MAX_BANDWIDTH_MBIT_S = 10_000.0
_MIN_LATENCY_S = 1e-3
_MBIT_PER_BYTE = 8e-6


@dataclass(frozen=True)
class FreeHosts:
    """Hosts with something left, by node.

    Attributes
    ----------
    names
        Nodes of the hosts.
    hosts
        What each has left.
    full
        Nodes that have no capacity or memory left.
    free_cps
        Cycles/s that each host has left, in the unit of its node, also beyond the most that a host of the corpus has.
    other_unit
        Nodes that count nanoseconds of CPU, of which nobody knows how many cycles a core does in one.
    gaps
        What nodes and operators do not say, or have more of than the corpus, by kind (`engine.words.costream`): names.
    """

    names: tuple[str, ...]
    hosts: tuple[HostNode, ...]
    full: tuple[str, ...] = ()
    free_cps: tuple[float, ...] = ()
    other_unit: tuple[str, ...] = ()
    gaps: Mapping[str, Sequence[str]] = field(default_factory=dict)


def busiest_rates(sources: Sequence[Source], operators: Sequence[Operator], subinterval_s: float) -> dict[str, float]:
    """Mean events/s of each stream over its busiest `RUN_S` seconds, as if those of all sources came together.

    Parameters
    ----------
    operators
        They may read one another and the sources; without a cycle.
    """
    rates = {source.id: _busiest(source.arrivals, subinterval_s) / subinterval_s for source in sources}
    has_models = any(entry.model for operator in operators for entry in operator.inputs)
    series = _stream_series(sources, operators) if has_models else {}
    for i in order_of(operators)[0]:
        rates[operators[i].id] = sum(
            _busiest(input_series(entry, series[entry.source])[0], subinterval_s) / subinterval_s
            if entry.model
            else entry.selectivity * rates[entry.source]
            for entry in operators[i].inputs
        )
    return rates


def free_hosts(deployment: Deployment, closed: Collection[str] = ()) -> FreeHosts:
    """Hosts that a deployment leaves to one more query; `closed` nodes take nothing new.

    CPU is what the cores have left beside the mean load of the busiest `RUN_S` seconds, in percent of a core of
    `REFERENCE_CORE_CPS`; memory what the state of running operators leaves, or their windows where they state none;
    bandwidth the least that is left of a link
    out of the node, and latency the longest of those links.

    Examples
    --------
    >>> small = Deployment.parse({
    ...     "subinterval_s": 1.0, "sources": [{"id": "s", "arrivals": [100.0] * 4}],
    ...     "nodes": [{"id": "n", "capacity_cps": 2.4e9, "memory_bytes": 4e9}],
    ...     "operators": [
    ...         {"id": "f", "node": "n", "inputs": [{"from": "s", "selectivity": 1, "cycles_per_event": 6e6}]}]})
    >>> free = free_hosts(small)
    >>> free.names, round(free.hosts[0].cpu_percent), round(free.hosts[0].ram_mb)
    (('n',), 75, 4000)
    """
    factor = _coarsening(deployment)
    deployment = deployment.coarsened(factor)
    blur = int(factor > 1)
    load, sent = _loads(deployment)
    state, unstated = _state_bytes(deployment)
    names, hosts, full, left, unknown, large = [], [], [], [], [], []
    other_unit = [node.id for node in deployment.nodes if cycles_per_unit(node) is None and node.id not in closed]
    for i, node in enumerate(deployment.nodes):
        factor_of_unit = cycles_per_unit(node)
        if node.id in closed or factor_of_unit is None:
            continue
        free_cps = _free_cps(deployment, i, load, blur)
        cpu = free_cps * factor_of_unit / REFERENCE_CORE_CPS * 100.0
        ram = UNKNOWN_RAM_MB if node.memory_bytes is None else (node.memory_bytes - state.get(node.id, 0.0)) / 1e6
        if cpu < _MIN_CPU_PERCENT or ram < _MIN_RAM_MB:
            full.append(node.id)
            continue
        if node.memory_bytes is None:
            unknown.append(node.id)
        if cpu > MAX_CPU_PERCENT or ram > MAX_RAM_MB:
            large.append(node.id)
            cpu, ram = min(cpu, MAX_CPU_PERCENT), min(ram, MAX_RAM_MB)
        bandwidth, latency = _uplink(deployment, node, sent, blur)
        names.append(node.id)
        left.append(free_cps)
        hosts.append(HostNode(cpu, ram, bandwidth, latency, strength_of(cpu, ram, bandwidth, latency), node.id))
    gaps = {"memory_unstated": unknown, "large": large, "state_unstated": unstated, "unit_unknown": other_unit}
    if not names:
        del gaps["unit_unknown"]
    gaps = {kind: nodes for kind, nodes in gaps.items() if nodes}
    return FreeHosts(tuple(names), tuple(hosts), tuple(full), tuple(left), tuple(other_unit), gaps)


def _coarsening(deployment: Deployment) -> int:
    """Subintervals to take together: few enough that `RUN_S` seconds still hold many, and none where models count."""
    if deployment.graph.models:
        return 1
    needed = -(-deployment.subintervals // _MAX_SUBINTERVALS)
    return max(1, min(needed, int(RUN_S / _MIN_CELLS / deployment.subinterval_s)))


def _busiest(series: FloatArray, subinterval_s: float, blur: int = 0) -> float:
    """Largest mean over `RUN_S` seconds, or all there is; with a `blur` of 1 a bound wherever within subintervals."""
    cells = _run_cells(series, subinterval_s)
    return float(_rolling_sums(series, min(cells + blur, len(series))).max()) / cells


def _idlest(series: FloatArray, subinterval_s: float, blur: int = 0) -> float:
    """Least mean over `RUN_S` seconds, or all there is; as `_busiest`."""
    cells = _run_cells(series, subinterval_s)
    return float(_rolling_sums(series, max(cells - blur, 1)).min()) / cells


def _run_cells(series: FloatArray, subinterval_s: float) -> int:
    return min(len(series), max(1, int(RUN_S / subinterval_s + 1e-9)))


def _rolling_sums(series: FloatArray, width: int) -> FloatArray:
    sums = np.concatenate([[0.0], np.cumsum(series)])
    rolling: FloatArray = sums[width:] - sums[:-width]
    return rolling


def _stream_series(sources: Sequence[Source], operators: Sequence[Operator]) -> dict[str, FloatArray]:
    """Events per subinterval of each stream, (d,)."""
    streams: dict[str, FloatArray] = {source.id: source.arrivals for source in sources}
    nothing = np.zeros(max((len(arrivals) for arrivals in streams.values()), default=1))
    for i in order_of(operators)[0]:
        made = (input_series(entry, streams[entry.source])[0] for entry in operators[i].inputs)
        streams[operators[i].id] = sum(made, start=nothing)
    return streams


def _loads(deployment: Deployment) -> tuple[dict[tuple[str, int], FloatArray], dict[tuple[str, str], FloatArray]]:
    """Cycles per subinterval of each core, and bytes/s of each pair of nodes; arrays of shape (d,)."""
    streams = _stream_series(deployment.sources, deployment.operators)
    cores: dict[tuple[str, int], FloatArray] = {}
    sent: dict[tuple[str, str], FloatArray] = {}
    by_id = {operator.id: operator for operator in deployment.operators}
    nothing = np.zeros(deployment.subintervals)
    for operator in deployment.operators:
        load = nothing
        for entry in operator.inputs:
            events = streams[entry.source]
            load = load + input_series(entry, events)[1]
            above = by_id.get(entry.source)
            for origin in above.replicas if above else ():
                for replica in operator.replicas:
                    pair = (origin.node, replica.node)
                    share = origin.fraction * replica.fraction * (above.bytes_per_event if above else 0.0)
                    sent[pair] = sent.get(pair, nothing) + events * share
        for replica in operator.replicas:
            core = (replica.node, replica.core)
            cores[core] = cores.get(core, nothing) + load * replica.fraction
    return cores, {pair: values / deployment.subinterval_s for pair, values in sent.items()}


def _free_cps(deployment: Deployment, i: int, load: dict[tuple[str, int], FloatArray], blur: int) -> float:
    """Cycles/s that the cores of a node have left together while it is busiest."""
    node, width_s = deployment.nodes[i], deployment.subinterval_s
    capacity = node.capacity_series_cps
    if capacity is None:
        capacity = np.full(deployment.subintervals, node.capacity_cps or 0.0)
    free = np.zeros(deployment.subintervals)
    for core in range(node.cores):
        used = load.get((node.id, core))
        free = free + (capacity if used is None else np.maximum(0.0, capacity - used / width_s))
    return _idlest(free, width_s, blur)


def _state_bytes(deployment: Deployment) -> tuple[dict[str, float], list[str]]:
    """Bytes of state of running operators by node, and operators whose state nobody knows.

    Where a document states none, a window holds about 1 kB for each event in it, as in the corpus.
    """
    rates = busiest_rates(deployment.sources, deployment.operators, deployment.subinterval_s)
    held: dict[str, float] = {}
    unstated = []
    for operator in deployment.operators:
        size = operator.state_bytes
        if size is None and operator.window is not None:
            size = _window_events(operator, rates) * _EVENT_BYTES
        elif size is None and not (operator.stateless or operator.kind in _STATELESS):
            unstated.append(operator.id)
        for replica in operator.replicas:
            held[replica.node] = held.get(replica.node, 0.0) + (size or 0.0) * replica.fraction
    return held, unstated


def _window_events(operator: Operator, rates: Mapping[str, float]) -> float:
    """Events that an operator's window holds, of all its inputs."""
    assert operator.window is not None
    if operator.window.policy == "count":
        return operator.window.size * len(operator.inputs)
    return operator.window.size * sum(rates[entry.source] for entry in operator.inputs)


def _uplink(
    deployment: Deployment, node: Node, sent: dict[tuple[str, str], FloatArray], blur: int
) -> tuple[float, float]:
    """Bandwidth in Mbit/s and latency in seconds of the way out of a node."""
    bandwidth, latency = _MAX_BANDWIDTH_MBIT_S, _MIN_LATENCY_S
    for link in deployment.links:
        if link.source != node.id:
            continue
        latency = max(latency, link.delay_s)
        if link.bandwidth_bytes_s is not None:
            used = sent.get((link.source, link.target))
            busy = 0.0 if used is None else _busiest(used, deployment.subinterval_s, blur)
            bandwidth = min(bandwidth, max(link.bandwidth_bytes_s - busy, 1.0) * _MBIT_PER_BYTE)
    return bandwidth, latency
