"""Places of the operators of a deployment, and who reads whom."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import cached_property

import numpy as np

from engine.document.deployment import Deployment

__all__ = ["ClusterPlaces", "ReplicaName", "names_reached", "replica_names"]

ReplicaName = tuple[str, int]  # operator, and the replica's place in its listing


class ClusterPlaces:
    """Places of the operators of a deployment, and who reads whom."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment

    @cached_property
    def _layout(self) -> list[tuple[ReplicaName, str, list[str]]]:
        """Every replica with its server and the links into it."""
        deployment, layout = self.deployment, self.deployment.layout
        names = [server.name for server in deployment.servers]
        return [
            (name, names[layout.rep_server[r]], [names[i] for i in _links_into(deployment, r)])
            for r, name in enumerate(replica_names(deployment))
        ]

    @cached_property
    def residents(self) -> dict[str, list[tuple[object, ...]]]:
        """Of every server the replicas on it, and of every link what passes it, in the order of their turn.

        Each with what its turn depends on beside the events of the operator: part, delays and bytes of its hops.
        """
        deployment, layout = self.deployment, self.deployment.layout
        servers = [server.name for server in deployment.servers]
        names = replica_names(deployment)
        found: dict[str, list[tuple[object, ...]]] = {}
        for j in deployment.order:
            for r in range(layout.rep_start[j], layout.rep_start[j + 1]):
                hops = []
                for h in range(layout.hop_start[r], layout.hop_start[r + 1]):
                    origin, link = int(layout.hop_origin[h]), int(layout.hop_server[h])
                    sent = names[origin] if origin >= 0 else None
                    hop = (
                        sent,
                        servers[link] if link >= 0 else "",
                        float(layout.hop_delay_s[h]),
                        float(layout.hop_bytes[h]),
                    )
                    hops.append(hop)
                    if sent is not None and link >= 0:
                        capacity = deployment.links[deployment.servers[link].link or 0].bandwidth_bytes_s
                        found.setdefault(servers[link], []).append((sent[0], sent[1], names[r], hop, capacity))
                place = *names[r], float(layout.rep_fraction[r]), tuple(hops)
                found.setdefault(servers[layout.rep_server[r]], []).append(place)
        return found

    @cached_property
    def used(self) -> set[str]:
        """Servers that anything is on."""
        return {server for _, server, _ in self._layout}

    @cached_property
    def _reading_servers(self) -> dict[str, set[str]]:
        """Servers on which each operator is read."""
        readers: dict[str, set[str]] = {}
        for (operator, _), server, _ in self._layout:
            for entry in self.deployment.operators[self.deployment.operator_index[operator]].inputs:
                readers.setdefault(entry.source, set()).add(server)
        return readers

    @cached_property
    def readers(self) -> dict[str, list[str]]:
        """Operators that read each stream."""
        readers: dict[str, list[str]] = {}
        for operator in self.deployment.operators:
            for entry in operator.inputs:
                readers.setdefault(entry.source, []).append(operator.id)
        return readers

    @cached_property
    def _tied(self) -> dict[str, set[str]]:
        """Links, and servers that read over them: the one's turn is the other's."""
        tied: dict[str, set[str]] = {}
        for _, server, links in self._layout:
            for link in links:
                tied.setdefault(link, set()).add(server)
                tied.setdefault(server, set()).add(link)
        return tied

    def with_links(self, servers: Iterable[str]) -> set[str]:
        """Servers with the links that are read over there, and all that read over these."""
        return names_reached(servers, self._tied.get)

    def readers_over_links(self, servers: Collection[str], senders: Collection[ReplicaName]) -> list[ReplicaName]:
        """Replicas that read over one of some links, or over one that a sender uses as well: it may bring them theirs
        at another time, though they finish at the same.
        """
        found: list[ReplicaName] = []
        for link, passing in self._passing.items():
            if link in servers or any(sender in senders for sender, _ in passing):
                found += [reader for _, reader in passing]
        return found

    @cached_property
    def _passing(self) -> dict[str, list[tuple[ReplicaName, ReplicaName]]]:
        """Of every link the replicas that send over it, with those that read."""
        layout, names = self.deployment.layout, replica_names(self.deployment)
        passing: dict[str, list[tuple[ReplicaName, ReplicaName]]] = {}
        for r, reader in enumerate(names):
            for h in range(layout.hop_start[r], layout.hop_start[r + 1]):
                if layout.hop_server[h] >= 0:
                    link = self.deployment.servers[layout.hop_server[h]].name
                    passing.setdefault(link, []).append((names[layout.hop_origin[h]], reader))
        return passing

    def servers_behind(self, replicas: Iterable[ReplicaName]) -> set[str]:
        """Servers that read what some replicas put out."""
        names = {operator for operator, _ in replicas}
        return {server for name in names for server in self._reading_servers.get(name, ())}

    @cached_property
    def above(self) -> dict[str, frozenset[str]]:
        """Each query's operators: at and above its sinks, and those that run in one batch with one of these."""
        deployment, (start, members) = self.deployment, self.deployment.closures
        names = [name for name, _ in replica_names(deployment)]
        batches: dict[object, set[str]] = {}
        batch_of: dict[str, object] = {}
        for operator in deployment.operators:
            if operator.trigger:
                batch_of[operator.id] = operator.query, operator.trigger
                batches.setdefault(batch_of[operator.id], set()).add(operator.id)
        found = {}
        for i, query in enumerate(deployment.queries):
            above = {names[r] for r in members[start[i] : start[i + 1]].tolist()}
            shared = {batch_of[name] for name in above & batch_of.keys()}
            found[query] = frozenset(above.union(*(batches[batch] for batch in shared)))
        return found

    @cached_property
    def behind(self) -> dict[str, frozenset[str]]:
        """For queries with a window the operators behind it, whose work on a result its events wait for."""
        operators = self.deployment.operators
        windows = {operator.id for operator in operators if operator.window is not None}
        if not windows:
            return {}
        behind = {name: names_reached([name], self.readers.get) for name in windows}
        return {
            query: frozenset().union(*(behind[name] for name in members & windows))
            for query, members in self.above.items()
            if members & windows
        }

    @cached_property
    def places(self) -> dict[str, set[str]]:
        """Servers and incoming links of every operator."""
        places: dict[str, set[str]] = {}
        for (operator, _), server, links in self._layout:
            places.setdefault(operator, set()).update((server, *links))
        return places

    def queries_with(self, servers: Collection[str], replicas: Iterable[ReplicaName]) -> frozenset[str]:
        """Queries with an operator, at or above their sinks, on one of the servers or of which a replica is named.

        Also those that have one behind a window of theirs.
        """
        named = {operator for operator, _ in replicas}
        hit = {name for name, places in self.places.items() if name in named or not places.isdisjoint(servers)}
        none = frozenset[str]()
        return frozenset(
            query
            for query, members in self.above.items()
            if not members.isdisjoint(hit) or not self.behind.get(query, none).isdisjoint(hit)
        )

    def servers_of_queries(self, queries: Iterable[str]) -> set[str]:
        """Servers of some queries, and the links into them."""
        return {server for query in queries for operator in self.above[query] for server in self.places[operator]}

    def part(self, servers: Collection[str], queries: Iterable[str] = ()) -> Deployment:
        """The operators on some servers with all that is above them, and what some queries look at behind windows."""
        deployment = self.deployment
        kept = {operator for (operator, _), server, _ in self._layout if server in servers}
        kept.update(*(self.behind.get(query, ()) for query in queries))
        return deployment.restricted({operator.id for operator in deployment.with_above(kept)[1]})


def names_reached(names: Iterable[str], following: Callable[[str], Iterable[str] | None]) -> set[str]:
    """Names and all that follows them."""
    found = set(names)
    todo = list(found)
    while todo:
        fresh = set(following(todo.pop()) or ()) - found
        found |= fresh
        todo += fresh
    return found


def replica_names(deployment: Deployment) -> list[ReplicaName]:
    """Names of all replicas, (r,), as the layout numbers them."""
    return [(operator.id, b) for operator in deployment.operators for b in range(len(operator.replicas))]


def _links_into(deployment: Deployment, replica: int) -> list[int]:
    layout = deployment.layout
    links = layout.hop_server[layout.hop_start[replica] : layout.hop_start[replica + 1]]
    return np.unique(links[links >= 0]).tolist()
