"""Hosts of a deployment as the model takes them: what running queries leave free in their busiest minutes.

Nothing here errs on the side of admission: rates are those of each source's busiest `RUN_S` seconds, and of a node only
what is left in its own busiest `RUN_S` seconds, as if both came together. A run of the corpus is as long.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from engine.arrays import FloatArray
from engine.costream.graph import REFERENCE_CORE_CPS, HostNode, strength_of
from engine.document.deployment import Deployment
from engine.document.elements import Input, Node, Source
from engine.words import listed

__all__ = ["RUN_S", "FreeHosts", "busiest_rates", "free_hosts"]

#: Length of a simulated run in seconds.
RUN_S = 240.0

_MAX_SUBINTERVALS = 20_000  # of a longer horizon several are taken together
_MIN_CPU_PERCENT = 1.0  # with less a node takes nothing
_MIN_RAM_MB = 1.0
# Bounds of the corpus stand in for what a cluster does not say or has without limit: a missing link costs nothing.
# Where a node has more than any host of the corpus, the best of them stands in for it, which does not admit too much.
_UNKNOWN_RAM_MB = 1000.0
_MAX_RAM_MB = 32_000.0
_MAX_CPU_PERCENT = 800.0
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
    assumptions
        Sentences on what a node does not say, or has more of than the corpus, and what stands in for it.
    """

    names: tuple[str, ...]
    hosts: tuple[HostNode, ...]
    full: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()


def busiest_rates(sources: Sequence[Source], subinterval_s: float) -> dict[str, float]:
    """Mean events/s of each source over its busiest `RUN_S` seconds."""
    return {source.id: float(_busiest(source.arrivals, subinterval_s)) / subinterval_s for source in sources}


def free_hosts(deployment: Deployment, closed: Collection[str] = ()) -> FreeHosts:
    """Hosts that a deployment leaves to one more query; `closed` nodes take nothing new.

    CPU is what the cores have left beside the mean load of the busiest `RUN_S` seconds, in percent of a core of
    `REFERENCE_CORE_CPS`; memory what the state of running operators leaves; bandwidth the least that is left of a link
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
    if deployment.subintervals > _MAX_SUBINTERVALS:
        deployment = deployment.coarsened(-(-deployment.subintervals // _MAX_SUBINTERVALS))
    load, sent = _loads(deployment)
    state = _state_bytes(deployment)
    names, hosts, full, unknown, large = [], [], [], [], []
    for i, node in enumerate(deployment.nodes):
        if node.id in closed:
            continue
        cpu = float(_free_cps(deployment, i, load)) / REFERENCE_CORE_CPS * 100.0
        ram = _UNKNOWN_RAM_MB if node.memory_bytes is None else (node.memory_bytes - state.get(node.id, 0.0)) / 1e6
        if cpu < _MIN_CPU_PERCENT or ram < _MIN_RAM_MB:
            full.append(node.id)
            continue
        if node.memory_bytes is None:
            unknown.append(node.id)
        if cpu > _MAX_CPU_PERCENT or ram > _MAX_RAM_MB:
            large.append(node.id)
            cpu, ram = min(cpu, _MAX_CPU_PERCENT), min(ram, _MAX_RAM_MB)
        bandwidth, latency = _uplink(deployment, node, sent)
        names.append(node.id)
        hosts.append(HostNode(cpu, ram, bandwidth, latency, strength_of(cpu, ram, bandwidth, latency), node.id))
    return FreeHosts(tuple(names), tuple(hosts), tuple(full), (*_assumed_memory(unknown), *_assumed_bounds(large)))


def _assumed_memory(nodes: Sequence[str]) -> list[str]:
    if not nodes:
        return []
    first = (
        f"Node {nodes[0]} does not state its memory"
        if len(nodes) == 1
        else f"{len(nodes)} nodes do not state their memory"
    )
    return [f"{first}; {_UNKNOWN_RAM_MB:,.0f}\u00a0MB, the least of the training corpus, stand in for it."]


def _assumed_bounds(nodes: Sequence[str]) -> list[str]:
    if not nodes:
        return []
    have = "has" if len(nodes) == 1 else "have"
    most = f"{_MAX_CPU_PERCENT:.0f}\u00a0% of a core and {_MAX_RAM_MB:,.0f}\u00a0MB"
    return [
        f"{listed(nodes)} {have} more left than any host of the training corpus; its most, {most}, stands in for it."
    ]


def _busiest(series: FloatArray, subinterval_s: float) -> FloatArray:
    """Largest mean over `RUN_S` seconds (or all there is), along the last axis."""
    d = series.shape[-1]
    width = min(d, max(1, round(RUN_S / subinterval_s)))
    sums = np.cumsum(np.concatenate([np.zeros((*series.shape[:-1], 1)), series], axis=-1), axis=-1)
    largest: FloatArray = ((sums[..., width:] - sums[..., :-width]) / width).max(axis=-1)
    return largest


def _loads(deployment: Deployment) -> tuple[dict[tuple[str, int], FloatArray], dict[tuple[str, str], FloatArray]]:
    """Cycles per subinterval of each core, and bytes per subinterval of each pair of nodes; arrays of shape (d,)."""
    width_s = deployment.subinterval_s
    streams: dict[str, FloatArray] = {source.id: source.arrivals for source in deployment.sources}
    cores: dict[tuple[str, int], FloatArray] = {}
    sent: dict[tuple[str, str], FloatArray] = {}
    by_id = {operator.id: operator for operator in deployment.operators}
    nothing = np.zeros(deployment.subintervals)
    for i in deployment.order:
        operator = deployment.operators[i]
        out, load = nothing, nothing
        for entry in operator.inputs:
            events = streams.get(entry.source, nothing)
            made, spent = _input_series(entry, events)
            out, load = out + made, load + spent
            above = by_id.get(entry.source)
            for origin in above.replicas if above else ():
                for replica in operator.replicas:
                    pair = (origin.node, replica.node)
                    share = origin.fraction * replica.fraction * (above.bytes_per_event if above else 0.0)
                    sent[pair] = sent.get(pair, nothing) + events * share
        streams[operator.id] = out
        for replica in operator.replicas:
            core = (replica.node, replica.core)
            cores[core] = cores.get(core, nothing) + load * replica.fraction
    return cores, {pair: values / width_s for pair, values in sent.items()}


def _input_series(entry: Input, events: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Events put out for one input, and cycles spent on it."""
    if entry.model is None:
        return events * entry.selectivity, events * entry.cycles_per_event
    made, spent = (
        np.where(events > 0, np.maximum(0.0, c0 + c1 * events + c2 * events * events), 0.0)
        for c0, c1, c2 in (entry.model.output, entry.model.cycles)
    )
    return made, spent


def _free_cps(deployment: Deployment, i: int, load: dict[tuple[str, int], FloatArray]) -> FloatArray:
    """Cycles/s that the cores of a node have left together while it is busiest."""
    node, width_s = deployment.nodes[i], deployment.subinterval_s
    capacity = node.capacity_series_cps
    if capacity is None:
        capacity = np.full(deployment.subintervals, node.capacity_cps or 0.0)
    free = np.zeros(deployment.subintervals)
    for core in range(node.cores):
        used = load.get((node.id, core))
        free = free + (capacity if used is None else np.maximum(0.0, capacity - used / width_s))
    return -_busiest(-free, width_s)


def _state_bytes(deployment: Deployment) -> dict[str, float]:
    """Bytes of state of running operators by node."""
    held: dict[str, float] = {}
    for operator in deployment.operators:
        for replica in operator.replicas:
            held[replica.node] = held.get(replica.node, 0.0) + (operator.state_bytes or 0.0) * replica.fraction
    return held


def _uplink(deployment: Deployment, node: Node, sent: dict[tuple[str, str], FloatArray]) -> tuple[float, float]:
    """Bandwidth in Mbit/s and latency in seconds of the way out of a node."""
    bandwidth, latency = _MAX_BANDWIDTH_MBIT_S, _MIN_LATENCY_S
    for link in deployment.links:
        if link.source != node.id:
            continue
        latency = max(latency, link.delay_s)
        if link.bandwidth_bytes_s is not None:
            used = sent.get((link.source, link.target))
            busy = 0.0 if used is None else float(_busiest(used, deployment.subinterval_s))
            bandwidth = min(bandwidth, max(link.bandwidth_bytes_s - busy, 1.0) * _MBIT_PER_BYTE)
    return bandwidth, latency
