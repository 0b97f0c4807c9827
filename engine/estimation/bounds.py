"""Upper bounds of latency where a node is not scheduled by stimulus time.

Theorems 2 and 3 and the bound of section VII-A count an event's work once; under first-in first-out it waits at every
visit of a server. A visit finds at most V: the largest work unfinished at any time, the same under every
work-conserving policy, and one event more. Where other servers delay events by up to E, that is V + E, by which a
path's bound grows with each visit. By stimulus time all work up to an event is done within V + 2 E, whatever the
visits. Both hold for mean costs: where costs vary, no finite bound exists.

A policy that lets later events go first (round robin, Klink) has no such bound, nor have servers that send to each
other in a circle, nor loads that are not sums, of which no event's own work is known.

Theorems 2 and 3 themselves hold under stimulus time for one source or one server, without delays, where loads are sums
(docs/models/mace.md has the counterexamples), and for arrivals that are even within a subinterval.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from engine.arrays import FloatArray
from engine.document.elements import STIMULUS_TIME
from engine.estimation.answer import Bounds
from engine.estimation.mace import Mace, drain_times
from engine.records import Fact

__all__ = ["describe_bounds", "visit_bounds"]

_FIRST_COME = "fcfs"


def describe_bounds(mace: Mace, proven_s: float | None) -> Bounds:
    """Whether the upper ends of the theorems hold, and what is proven."""
    limits = mace.theorem_limits
    if mace.deployment.other_policies:
        limits = [Fact("estimation.limited_by_policy"), *limits]
    proven = Fact("estimation.unproven") if proven_s is None else Fact("estimation.proven", proven_s=proven_s)
    kind = "estimation.bounds_limited" if limits else "estimation.bounds_hold"
    return Bounds(not limits, proven_s, Fact(kind, limits=limits, proven=proven))


def visit_bounds(mace: Mace) -> FloatArray:
    """Largest seconds from an event's arrival at its source until it is through each replica, shape (replicas,).

    Infinite where nothing is proven. Propagation delays are counted, and the age of what waits where the horizon
    begins.
    """
    oldest_s = 0.0 if mace.lead is None else mace.lead.oldest_s
    return _VisitBounds(mace).through_s + oldest_s


class _VisitBounds:
    """Bounds of all replicas, found server by server in the order in which servers send to each other."""

    def __init__(self, mace: Mace) -> None:
        self._deployment, self._layout = mace.deployment, mace.deployment.layout
        self._unfinished_s = _unfinished_s(mace)
        self._late_s = np.zeros(len(self._unfinished_s))  # E of each server
        self.through_s = np.full(len(self._layout.rep_server), np.inf)
        if not mace.has_plain_sums:
            return
        layout, order = self._layout, self._deployment.graph.order
        held: dict[int, list[int]] = {}
        for j in order:
            for r in range(layout.rep_start[j], layout.rep_start[j + 1]):
                held.setdefault(int(layout.rep_server[r]), []).append(r)
        for server in self._server_order():
            if self._deployment.servers[server].link is not None:
                sent = layout.hop_origin[layout.hop_server == server]
                self._late_s[server] = self.through_s[sent].max(initial=0.0)
            else:
                self._bound_server(server, held.get(server, []))

    def _bound_server(self, server: int, replicas: list[int]) -> None:
        layout, rep_server = self._layout, self._layout.rep_server
        from_outside = [
            self._arrives_s(h)
            for r in replicas
            for h in range(layout.hop_start[r], layout.hop_start[r + 1])
            if layout.hop_origin[h] < 0 or rep_server[layout.hop_origin[h]] != server
        ]
        late_s = self._late_s[server] = max(from_outside, default=0.0)
        policy = self._policy(server)
        for r in replicas:
            hops = range(layout.hop_start[r], layout.hop_start[r + 1])
            if policy == STIMULUS_TIME:
                self.through_s[r] = self._unfinished_s[server] + 2.0 * late_s
            elif policy == _FIRST_COME:
                begins_s = max((self._arrives_s(h) for h in hops), default=0.0)
                self.through_s[r] = begins_s + self._unfinished_s[server] + late_s

    def _arrives_s(self, hop: int) -> float:
        """Bound on when events have come by a hop."""
        layout = self._layout
        origin, link = int(layout.hop_origin[hop]), int(layout.hop_server[hop])
        sent_s = self.through_s[origin] if origin >= 0 else 0.0
        if link >= 0:
            sent_s += self._unfinished_s[link] + self._late_s[link]
        return float(sent_s + layout.hop_delay_s[hop])

    def _policy(self, server: int) -> str:
        node = self._deployment.servers[server].node
        assert node is not None
        return self._deployment.other_policies.get(self._deployment.nodes[node].id, STIMULUS_TIME)

    def _server_order(self) -> list[int]:
        """Servers, each after all that send to it; those in a circle, and behind one, are left out."""
        layout = self._layout
        before: dict[int, set[int]] = {server: set() for server in range(len(self._unfinished_s))}
        readers = np.repeat(np.arange(len(layout.rep_server)), np.diff(layout.hop_start))
        for origin, link, reader in zip(layout.hop_origin, layout.hop_server, readers, strict=True):
            way = [int(layout.rep_server[origin]), int(link), int(layout.rep_server[reader])] if origin >= 0 else []
            way = [server for server in way if server >= 0]
            for a, b in pairwise(way):
                if a != b:
                    before[b].add(a)
        order: list[int] = []
        passed: set[int] = set()
        while ready := [server for server, above in before.items() if above <= passed]:
            order += ready
            passed.update(ready)
            for server in ready:
                del before[server]
        return order


def _unfinished_s(mace: Mace) -> FloatArray:
    """Largest unfinished work of each server in seconds, shape (n,), and one event of every input.

    All work of a subinterval may come at its beginning, and that of the one before at its end.
    """
    deployment, width_s = mace.deployment, mace.deployment.subinterval_s
    n = len(mace.worst_s)
    found = np.zeros((deployment.subintervals + 1, n))
    found[:-1] = mace.load.T
    found[1:-1] += mace.load.T[:-1]
    found[2:-1] += mace.ce.T[:-2]
    found[:2] += mace.start
    rows = deployment.capacities
    if len(rows) > 1:
        rows = np.vstack([rows[:1], rows])  # work is drained from its own subinterval on
    return np.asarray(drain_times(found, rows, width_s).max(axis=0, initial=0.0) + mace.lambda_s)
