"""Places of subtasks: which servers more, or fewer, of them would run on.

Subtasks that are there stay. A new one goes to the server with least load among those of free slots: threads are
scheduled on whatever core is free. No host runs more of them side by side than it has cores, whatever its slots, unless
its threads are known to wait: beyond that they share a core, and gain nothing. None goes to a host that may not take
its operator.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine.capacity.utilisation import UtilisationModel
from engine.document.elements import Replica
from engine.document.open_hosts import OpenHosts
from engine.parallelism.job import ScalableJob

__all__ = ["SubtaskPlaces"]

_Place = tuple[str, int]  # node, core


@dataclass(eq=False)
class SubtaskPlaces:
    """Servers and slots of a job's subtasks, and the loads there, by the mean costs."""

    hosts: OpenHosts
    job: ScalableJob
    model: UtilisationModel
    _loads: dict[_Place, float] = field(default_factory=dict)
    _capacity: dict[_Place, float] = field(default_factory=dict)
    _used: set[_Place] = field(default_factory=set)
    full_hosts: set[str] = field(default_factory=set)  #: where no core was left for another subtask
    homeless: dict[str, int] = field(default_factory=dict)  #: by operator the subtasks that no host may take

    def __post_init__(self) -> None:
        deployment = self.hosts.deployment
        nodes = deployment.nodes
        for s, server in enumerate(deployment.servers):
            if server.node is not None:
                place = nodes[server.node].id, server.core
                self._loads[place] = float(self.model.load[s, 0])
                self._capacity[place] = float(self.model.capacity[s])
        self._used = {(r.node, r.core) for operator in deployment.operators for r in operator.replicas}

    def replicas(self, parallelism: Mapping[str, int], busiest: Mapping[str, float]) -> dict[str, tuple[Replica, ...]]:
        """Replicas of the operators that are to have so many subtasks.

        Parameters
        ----------
        parallelism : mapping of str to int
            By operator.
        busiest : mapping of str to float
            Share of the events that the busiest subtask takes, of operators whose subtasks are uneven.
        """
        changed = {name: self._subtasks_now(name) for name in parallelism}
        loads, used = dict(self._loads), set(self._used)
        work = {name: self._work_of(name) for name in parallelism}
        for name, places in changed.items():
            for place, count in Counter(places).items():
                loads[place] -= work[name] * count / max(1, len(places))
        kept = {name: self._kept(name, places)[: parallelism[name]] for name, places in changed.items()}
        for name, places in kept.items():
            for place in places:
                loads[place] += work[name] / parallelism[name]
        for name in sorted(parallelism, key=lambda name: -work[name] / parallelism[name]):
            places = kept[name]
            while len(places) < parallelism[name]:
                found = self._next(name, places, loads, used)
                if found is None:
                    self.homeless[name] = parallelism[name] - len(places)
                    break
                places.append(found)
                used.add(found)
                loads[found] += work[name] / parallelism[name]
        return {name: _replicas(places, busiest.get(name), loads) for name, places in kept.items() if places}

    def _subtasks_now(self, name: str) -> list[_Place]:
        """Place of each subtask, by the shares of the replicas that stand for them."""
        operator = self.hosts.deployment.operators[self.hosts.deployment.operator_index[name]]
        count = self.job.operators[name].parallelism
        places = [(replica.node, replica.core) for replica in operator.replicas]
        if len(places) > count:  # uneven subtasks on more servers than the engine tells of: as the document has it
            return places
        largest = sorted(operator.replicas, key=lambda replica: -replica.fraction)
        extra = [(replica.node, replica.core) for replica in largest]
        return [*places, *(extra[i % len(extra)] for i in range(count - len(places)))] if places else []

    def _work_of(self, name: str) -> float:
        return float(self.model.whole.by_operator[self.hosts.deployment.operator_index[name]][0])

    def _kept(self, name: str, places: Sequence[_Place]) -> list[_Place]:
        """Subtasks in the order in which they stay: those on hosts that take more of the operator first."""
        return sorted(places, key=lambda place: not self.hosts.takes(name, place[0]))

    def _room(self, name: str, places: Sequence[_Place]) -> dict[str, int]:
        """Subtasks that each host has slots for: those that its sharing group has there, and free ones."""
        group = self.job.operators[name].slot_group
        room = {node: place.free for node, place in self.job.places.items()}
        held: Counter[str] = Counter()
        for other, row in self.job.operators.items():
            if row.slot_group == group:
                held |= Counter(node for node, _ in self._subtasks_now(other))
        mine = Counter(node for node, _ in places)
        return {node: room.get(node, 0) + held[node] - mine[node] for node in room.keys() | held.keys()}

    def _next(
        self, name: str, places: Sequence[_Place], loads: Mapping[_Place, float], used: set[_Place]
    ) -> _Place | None:
        """Server of the next subtask: where slots are left, and with the least load for its capacity; None: nowhere."""
        room = self._room(name, places)
        open_nodes = {node for node, left in room.items() if left > 0 and self.hosts.takes(name, node)}
        candidates = [place for place in self._loads if place[0] in open_nodes]
        if not candidates:
            return None
        full = self._full_hosts(used) & {self._host(node) for node in open_nodes}
        self.full_hosts |= full
        usable = [place for place in candidates if place in used or self._host(place[0]) not in full]
        return min(usable or candidates, key=lambda place: (loads[place] / self._capacity[place], place))

    def _host(self, node: str) -> str:
        place = self.job.places.get(node)
        return node if place is None else place.host

    def _full_hosts(self, used: set[_Place]) -> set[str]:
        """Hosts of which as many servers are in use as they have cores, so that another one is no more room."""
        busy = Counter(self._host(node) for node, _ in used)
        waiting = {place.host for place in self.job.places.values() if place.waits}
        cores = {place.host: place.host_cores for place in self.job.places.values() if place.host not in waiting}
        return {host for host, count in cores.items() if busy[host] >= max(1, math.floor(count))}


def _replicas(places: Sequence[_Place], busiest: float | None, loads: Mapping[_Place, float]) -> tuple[Replica, ...]:
    """Shares by server; the busiest subtask counts where most other load is."""
    count = len(places)
    shares = [1.0 / count] * count
    if busiest is not None and count > 1:
        first = max(range(count), key=lambda i: loads[places[i]])
        shares = [(1.0 - busiest) / (count - 1)] * count
        shares[first] = busiest
    parts: dict[_Place, float] = {}
    for place, share in zip(places, shares, strict=True):
        parts[place] = parts.get(place, 0.0) + share
    total = math.fsum(parts.values())
    return tuple(Replica(node, core, part / total) for (node, core), part in parts.items() if part > 0.0)
