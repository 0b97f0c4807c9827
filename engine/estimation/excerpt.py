"""Excerpts of a cluster: as much of it as a change can concern, whatever its size.

What a change touches are the servers of the operators that differ. Whom it concerns are the queries with an operator
there, and what decides about these is on their other servers. An excerpt holds all that is on these servers, and what
is above it. Whether a change stays within, its computation tells: one that goes on is looked at in a larger excerpt.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import is_

from engine.document.deployment import Deployment
from engine.document.elements import Input, Operator, Replica
from engine.document.topology import servers_of
from engine.estimation.cluster_places import ClusterPlaces, names_reached
from engine.estimation.loads import has_few_sources
from engine.estimation.propagation import ChangedFlow, same_node, same_source

__all__ = ["ClusterDifference", "ClusterSurroundings", "Excerpt"]

_LARGE_SHARE = 0.4  # share of the operators beyond which an excerpt gains nothing
# What holds of a deployment as one: its parts go by it.
_AS_ONE = (
    *("subintervals", "subinterval_s", "combine", "scheduling", "statistics_of", "stream_processor"),
    *("oldest_backlog_s", "has_models", "has_series"),
)


@dataclass(frozen=True)
class ClusterDifference:
    """All that a deployment has other than the one before: servers, queries and operators by their names.

    `joined` are operators that were not there or were others, `gone` those of before that are not there or are others.
    """

    joined: tuple[Operator, ...]
    gone: frozenset[str]
    servers: frozenset[str]
    queries: frozenset[str]


@dataclass(frozen=True)
class Excerpt:
    """Operators of before in the excerpt; the servers on which all is that is on them in the whole, and the queries
    of which all is there. `inner` are the servers whose queries are complete.
    """

    operators: frozenset[str]
    servers: frozenset[str]
    queries: frozenset[str]
    inner: frozenset[str]


class ClusterSurroundings:
    """Whom each operator of a deployment shares servers and streams with."""

    def __init__(self, deployment: Deployment, places: ClusterPlaces, every: int) -> None:
        """Surroundings in a deployment; `places` are those of the probed one, and `every` is that of its base."""
        self._deployment, self._places, self._every = deployment, places, every

    @cached_property
    def _is_of_one_piece(self) -> bool:
        """Whether parts say nothing: batches go over all operators of nobody's, sources of probes change all loads."""
        fed = self._places.deployment.source_count - self._deployment.source_count
        return fed > 0 or any(operator.query is None and operator.trigger for operator in self._deployment.operators)

    def _has_other_policies(self, after: Deployment) -> bool:
        """Whether a node that was used is scheduled otherwise than before, as one whose servers are shared now."""
        was, now = self._deployment.other_policies, after.other_policies
        return any(was.get(name) != now.get(name) for name in {*was, *now} & self._used_nodes)

    @cached_property
    def _used_nodes(self) -> frozenset[str]:
        return frozenset(part.node for operator in self._deployment.operators for part in operator.replicas)

    @cached_property
    def _identities(self) -> dict[str, Operator]:
        return {operator.id: operator for operator in self._deployment.operators}

    @cached_property
    def _residents(self) -> dict[str, set[str]]:
        """Operators on every server, and on every link those that read over it."""
        found: dict[str, set[str]] = {}
        for name, servers in self._places.places.items():
            for server in servers:
                found.setdefault(server, set()).add(name)
        return found

    @property
    def readers(self) -> Mapping[str, list[str]]:
        """Operators that read each stream."""
        return self._places.readers

    @cached_property
    def _queries_of(self) -> dict[str, set[str]]:
        """Queries that look at each operator: it is at or above their sinks, or behind a window of theirs."""
        found: dict[str, set[str]] = {}
        for members in (self._places.above, self._places.behind):
            for query, names in members.items():
                for name in names:
                    found.setdefault(name, set()).add(query)
        return found

    @cached_property
    def _server_names(self) -> dict[tuple[str, int], str]:
        nodes = self._deployment.nodes
        return {(nodes[s.node].id, s.core): s.name for s in self._deployment.servers if s.node is not None}

    @cached_property
    def _link_names(self) -> dict[tuple[str, str], str]:
        links = self._deployment.links
        named = ((links[s.link], s.name) for s in self._deployment.servers if s.link is not None)
        return {(link.source, link.target): name for link, name in named}

    def servers_around(self, queries: Collection[str]) -> frozenset[str]:
        """Servers and links that events of some queries pass; all where servers cannot be looked at one by one."""
        places = self._places
        if self._deployment.other_policies or any(op.query is None and op.trigger for op in self._deployment.operators):
            return frozenset(places.with_links(places.used))
        members = {name for query in queries for of in (places.above, places.behind) for name in of.get(query, ())}
        return frozenset(places.with_links(server for name in members for server in places.places[name]))

    def servers_of(self, query: str) -> frozenset[str]:
        """Servers of a query and the links into them, at or above its sinks."""
        places = self._places
        return frozenset(server for name in places.above.get(query, ()) for server in places.places[name])

    def servers_loaded_by(self, query: str) -> frozenset[str]:
        """Servers and links that the events of a query come to: through its operators, and through who reads them."""
        own = {self._deployment.operators[j].id for j in self._deployment.operators_of(query)}
        places = self._places.places
        return frozenset(server for name in names_reached(own, self.readers.get) for server in places[name])

    def operators_on(self, servers: Collection[str]) -> frozenset[str]:
        """Operators with a part on some servers, or that read over some links, and all that is above them."""
        names = {name for server in servers for name in self._residents.get(server, ())}
        return frozenset(operator.id for operator in self._deployment.with_above(names)[1])

    def queries_on(self, servers: Collection[str]) -> frozenset[str]:
        """Queries with an operator on some servers, at or above their sinks or behind a window of theirs."""
        names = {name for server in servers for name in self._residents.get(server, ())}
        return frozenset(query for name in names for query in self._queries_of.get(name, ()))

    def difference(self, after: Deployment) -> ClusterDifference | None:
        """All that `after` has other than this deployment; None where that concerns everybody."""
        before = self._deployment
        if self._is_of_one_piece or any(getattr(before, name) != getattr(after, name) for name in _AS_ONE):
            return None
        if any(self._goes_another_way(after, every) for every in (1, self._every)) or self._has_other_policies(after):
            return None
        servers = self._servers_of_other_nodes(after)
        if servers is None or before.links != after.links:
            return None
        known, running = self._identities, before.operators
        joined, gone = after.operators[len(running) :], set[str]()
        if len(after.operators) < len(running) or not all(map(is_, running, after.operators)):
            joined = tuple(op for op in after.operators if known.get(op.id) is not op and known.get(op.id) != op)
            names = {op.id for op in after.operators}
            gone = {name for name in known if name not in names} | {op.id for op in joined if op.id in known}
            if not self._is_in_turn(after, joined):
                return None
        if not self._is_like_the_whole(joined, [known[name] for name in gone]):
            return None
        streams = {*self._other_sources(after), *gone, *(op.id for op in joined)}
        behind = names_reached(streams, self.readers.get) & known.keys()
        servers.update(*(self._places.places[name] for name in behind))
        servers.update(self._servers_of(joined, after))
        queries = {op.query for op in joined if op.query is not None}
        return ClusterDifference(joined, frozenset(gone), frozenset(servers), frozenset(queries))

    def _goes_another_way(self, after: Deployment, every: int) -> bool:
        """Whether the number of sources has all loads computed, and rounded, otherwise than before."""
        subintervals = -(-after.subintervals // every)
        was = has_few_sources(self._deployment.source_count, subintervals)
        return was != has_few_sources(after.source_count, subintervals)

    def _is_like_the_whole(self, joined: Iterable[Operator], gone: Iterable[Operator]) -> bool:
        """Whether all that holds of the deployment as one stays so: what is modelled, and what waits."""
        waits = self._deployment.oldest_backlog_s is not None  # its age may follow from the rates above it
        for op in (*joined, *gone):
            if (op.query is None and op.trigger) or (waits and op.id in self._identities):
                return False
            if any(entry.model or self._may_wait(entry) for entry in op.inputs):
                return False
        return True

    def _may_wait(self, entry: Input) -> bool:
        backlog = entry.backlog
        return entry.source in self._waiting_sources if backlog is None else not backlog.is_empty

    @cached_property
    def _waiting_sources(self) -> frozenset[str]:
        return frozenset(source.id for source in self._deployment.sources if source.backlog is not None)

    def _is_in_turn(self, after: Deployment, joined: Iterable[Operator]) -> bool:
        """Whether what was there and stays is listed in the same order."""
        fresh = {op.id for op in joined}
        stay = {op.id for op in after.operators} - fresh
        was = [op.id for op in self._deployment.operators if op.id in stay]
        return was == [op.id for op in after.operators if op.id in stay]

    def _servers_of_other_nodes(self, after: Deployment) -> set[str] | None:
        """Servers of nodes that work otherwise than before; None where a capacity varies or varied there."""
        if self._deployment.nodes is after.nodes:
            return set()
        known = {node.id: node for node in self._deployment.nodes}
        other = [node for node in after.nodes if not same_node(known.get(node.id), node)]
        if any(node.capacity_series_cps is not None or node.scheduling for node in other):
            return None
        if any(known[node.id].capacity_series_cps is not None for node in other if node.id in known):
            return None
        return {server.name for server in servers_of(tuple(other), ())}

    def _other_sources(self, after: Deployment) -> set[str]:
        known, index = self._deployment.sources, self._deployment.source_index
        others = [source for i, source in enumerate(after.sources) if i >= len(known) or source is not known[i]]
        return {
            source.id
            for source in others
            if not same_source(known[index[source.id]] if source.id in index else None, source)
        }

    def _servers_of(self, joined: Iterable[Operator], after: Deployment) -> set[str]:
        """Servers of operators as they are now, and the links into them and out of them."""
        now = {op.id: op for op in joined}
        found = set[str]()
        for op in joined:
            found.update(self._server_name(part, after) for part in op.replicas)
            for entry in op.inputs:
                sender = now.get(entry.source) or self._identities.get(entry.source)
                found |= self._links_between(sender, op)
            for name in self.readers.get(op.id, ()):
                found |= self._links_between(op, now.get(name) or self._identities[name])
        return found

    def _server_name(self, part: Replica, after: Deployment) -> str:
        name = self._server_names.get((part.node, part.core))
        if name is None:
            node = after.nodes[after.node_index[part.node]]
            name = servers_of((node,), ())[part.core].name
        return name

    def _links_between(self, sender: Operator | None, reader: Operator) -> set[str]:
        if sender is None or not self._link_names:
            return set()
        ends = ((a.node, b.node) for a in sender.replicas for b in reader.replicas)
        return {self._link_names[pair] for pair in ends if pair in self._link_names}

    def around(
        self, difference: ClusterDifference, servers: Collection[str], queries: Collection[str]
    ) -> Excerpt | None:
        """The excerpt in which all queries on some servers, and some others, are complete; None if it is most."""
        places = self._places
        inner = places.with_links(servers)
        found = {*queries, *difference.queries} & places.above.keys()
        for server in inner:
            for name in self._residents.get(server, ()):
                found |= self._queries_of.get(name, set())
        members = {name for query in found for of in (places.above, places.behind) for name in of.get(query, ())}
        complete = places.with_links(inner.union(*(places.places[name] for name in members)))
        names = members.union(*(self._residents.get(server, ()) for server in complete))
        names.update({entry.source for op in difference.joined for entry in op.inputs} & self._identities.keys())
        if self._deployment.other_policies:
            names = self._tied(names)  # bounds go through all servers that send to each other
            complete = complete.union(*(places.places[name] for name in names))
            inner, found = complete, found.union(*(self._queries_of.get(name, ()) for name in names))
        else:
            names.update(*(self.readers.get(name, ()) for name in tuple(names)))  # so that whoever goes beyond is seen
            names = {operator.id for operator in self._deployment.with_above(names)[1]}
        if len(names) > _LARGE_SHARE * len(self._identities):
            return None
        return Excerpt(frozenset(names), frozenset(complete), frozenset(found), frozenset(inner))

    def _tied(self, names: Collection[str]) -> set[str]:
        """Operators, and all that share a server or a stream with one of them, by whatever way."""

        def beside(name: str) -> set[str]:
            shared = (self._residents[server] for server in self._places.places[name])
            read = {entry.source for entry in self._identities[name].inputs} & self._identities.keys()
            return read.union(self.readers.get(name, ()), *shared)

        return names_reached(names, beside)

    def missed(self, excerpt: Excerpt, difference: ClusterDifference, flowed: ChangedFlow) -> set[str]:
        """Servers beyond which a change went where not all queries are complete; empty if it stayed within."""
        concerned = {query for name in flowed.late for query in self._queries_of.get(name, ())} | flowed.queries
        members = {
            name for query in concerned - excerpt.queries - difference.queries for name in self._places.above[query]
        }
        missed = {*flowed.touched} - excerpt.inner
        return missed.union(*(self._places.places[name] for name in members))
