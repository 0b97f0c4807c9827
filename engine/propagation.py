"""Propagation delay along the paths of the query graph (paper, section VII-B)."""

from __future__ import annotations

import numpy as np

from engine.compiled import compiled
from engine.deployment import Deployment
from engine.elements import FloatArray, IntArray

__all__ = ["delays_through"]


def delays_through(deployment: Deployment) -> tuple[FloatArray, FloatArray]:
    """Smallest and largest total delay of source-to-sink paths through every server, in seconds, shape (n,) each.

    Paths are those of the query graph (replica by replica), not of the merged machine graph, which would invent paths.
    A server without a path has 0 and 0.
    """
    layout, graph = deployment.layout, deployment.graph
    replicas = _replica_order(graph.order, layout.rep_start)
    return _delays(
        replicas,
        layout.rep_operator,
        layout.rep_server,
        layout.hop_start,
        layout.hop_origin,
        layout.hop_server,
        layout.hop_delay_s,
        graph.sink.astype(np.int64),
        len(deployment.servers),
    )


def _replica_order(order: IntArray, rep_start: IntArray) -> IntArray:
    ranges = [np.arange(rep_start[j], rep_start[j + 1]) for j in order]
    return np.concatenate(ranges) if ranges else np.zeros(0, dtype=np.int64)


@compiled
def _delays(
    replicas: IntArray,
    rep_operator: IntArray,
    rep_server: IntArray,
    hop_start: IntArray,
    hop_origin: IntArray,
    hop_server: IntArray,
    hop_delay: FloatArray,
    sink: IntArray,
    servers: int,
) -> tuple[FloatArray, FloatArray]:
    count = len(replicas)
    up_least, up_most = np.full(count, np.inf), np.full(count, -np.inf)
    down_least, down_most = np.full(count, np.inf), np.full(count, -np.inf)
    for r in replicas:
        for h in range(hop_start[r], hop_start[r + 1]):
            a = hop_origin[h]
            up_least[r] = min(up_least[r], hop_delay[h] + (0.0 if a < 0 else up_least[a]))
            up_most[r] = max(up_most[r], hop_delay[h] + (0.0 if a < 0 else up_most[a]))
    least, most = np.full(servers, np.inf), np.full(servers, -np.inf)
    for r in replicas[::-1]:
        if sink[rep_operator[r]]:
            down_least[r] = down_most[r] = 0.0
        i = rep_server[r]
        least[i] = min(least[i], up_least[r] + down_least[r])
        most[i] = max(most[i], up_most[r] + down_most[r])
        for h in range(hop_start[r], hop_start[r + 1]):
            a, link = hop_origin[h], hop_server[h]
            if a < 0:
                continue
            down_least[a] = min(down_least[a], hop_delay[h] + down_least[r])
            down_most[a] = max(down_most[a], hop_delay[h] + down_most[r])
            if link >= 0:
                least[link] = min(least[link], up_least[a] + hop_delay[h] + down_least[r])
                most[link] = max(most[link], up_most[a] + hop_delay[h] + down_most[r])
    for i in range(servers):
        if least[i] == np.inf:
            least[i] = most[i] = 0.0
    return least, most
