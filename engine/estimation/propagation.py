"""Flow of a deployment that differs little from one whose Flow is known: changes spread until nothing differs.

Loads are by stimulus time, so that what operators do to each other they do on the servers they share. A change is
computed on the servers that it touches; what these hand on is held against what they handed on before, and a server
joins where a time that comes to it is another one. Numbers are those of the whole computation, to the last bit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np

from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.document.elements import Node, Operator, Source
from engine.estimation.backlog import lead_of
from engine.estimation.cluster_places import ClusterPlaces, ReplicaName, replica_names
from engine.estimation.flow import Flow, flow, room_for_times
from engine.estimation.flow_kernel import FlowTimes
from engine.estimation.loads import has_few_sources

__all__ = [
    "BeyondExcerpt",
    "ChangedFlow",
    "FlowBase",
    "changed_flow",
    "flow_base",
    "same_node",
    "same_source",
    "spread_flow",
]

T = TypeVar("T")
_MANY_SERVERS = 0.15  # share of the servers that a change reached, beyond which all are computed
_LARGE_SHARE = 0.2  # of the replicas with other times, beyond which those of all are stacked anew
_ALONE = 2  # times that a server is computed before it is taken together with others that came as often
_MAX_BEGINNINGS = 32  # servers of a stress beyond which only what is late is followed: beginnings spread everywhere


class BeyondExcerpt(Exception):
    """A change goes on to `servers`, of which not all that is on them was looked at."""

    def __init__(self, servers: Collection[str]) -> None:
        super().__init__()
        self.servers = servers


class ReplicaTimes(NamedTuple):
    """Begin and finish of the slices of one replica, and its largest latency, as `FlowTimes` has them."""

    start: FloatArray
    finish: FloatArray
    latency_s: float


@dataclass(frozen=True, eq=False)
class FlowBase:
    """Flow by input of a deployment, with the times of all replicas.

    Of one that is laid over another (`overlaid`), `flow` is that of `timed`, the deployment of before; `newer` are the
    times of the replicas that have others.
    """

    deployment: Deployment
    flow: Flow
    timed: Deployment | None = None
    newer: Mapping[ReplicaName, ReplicaTimes] = field(default_factory=dict)

    @cached_property
    def _row(self) -> dict[ReplicaName, int]:
        """Row of every replica in the times of the flow."""
        return {name: i for i, name in enumerate(replica_names(self.timed or self.deployment))}

    def times_of(self, name: ReplicaName) -> ReplicaTimes | None:
        """Times of a replica; None if it was not there."""
        if name in self.newer:
            return self.newer[name]
        row, times = self._row.get(name), self.flow.times
        assert times is not None
        return None if row is None else ReplicaTimes(times.start[row], times.finish[row], float(times.latency[row]))

    @cached_property
    def latencies_s(self) -> dict[ReplicaName, float]:
        """Largest latency at each replica, if its output ends there."""
        assert self.flow.times is not None
        known = dict(zip(self._row, self.flow.times.latency.tolist(), strict=True))
        return known | {name: times.latency_s for name, times in self.newer.items()}

    @cached_property
    def operators(self) -> dict[str, Operator]:
        """Operators by their id."""
        return {operator.id: operator for operator in self.deployment.operators}

    @cached_property
    def cluster(self) -> ClusterPlaces:
        """Places of its operators."""
        return ClusterPlaces(self.deployment)

    def moved(self, after: Deployment, found: ChangedFlow) -> FlowBase:
        """The base of the changed deployment, of what was found and of the rest as it was.

        Its flow has no latency of the whole by subinterval: `Flow.latency_s` is empty.
        """
        overlaid, names = self.overlaid(after, found), replica_names(after)
        times = self.stacked(range(len(names)), [overlaid.times_of(name) for name in names])
        return FlowBase(after, self._joined(after, found, times))

    def stacked(self, replicas: Sequence[int], known: Sequence[ReplicaTimes | None]) -> FlowTimes:
        """Times of some replicas one above the other."""
        was = self.flow.times
        assert was is not None
        shape = len(known), len(known[0].start) if known and known[0] else was.start.shape[1]
        times = FlowTimes(
            np.array(replicas, dtype=np.int64), room_for_times(shape), room_for_times(shape), np.zeros(len(known))
        )
        for row, of in enumerate(known):
            assert of is not None
            times.start[row], times.finish[row], times.latency[row] = of
        return times

    def overlaid(self, after: Deployment, found: ChangedFlow) -> FlowBase:
        """The base of the changed deployment for further changes; its flow says nothing of queries."""
        return self._laid_over(after, self.flow, found.times)

    def joined(self, after: Deployment, found: ChangedFlow) -> FlowBase:
        """As `moved`, with the times laid over those of before; stacked anew once they are many."""
        if len(self.newer) + len(found.times) > _LARGE_SHARE * len(self._row):
            return self.moved(after, found)
        times = self.flow.times
        assert times is not None
        return self._laid_over(after, self._joined(after, found, times), found.times)

    def _laid_over(self, deployment: Deployment, known: Flow, newer: Mapping[ReplicaName, ReplicaTimes]) -> FlowBase:
        base = FlowBase(deployment, known, self.timed or self.deployment, {**self.newer, **newer})
        vars(base)["_row"] = self._row
        return base

    def of_part(self, part: Deployment) -> FlowBase:
        """The base of some of the operators, for changes of these; its flow says nothing of queries."""
        return self._laid_over(part, self.flow, {})

    def _joined(self, after: Deployment, found: ChangedFlow, times: FlowTimes) -> Flow:
        """Flow of all queries, each as it was found or as it was."""
        was, now = self.flow, found.flow

        def joined(new: Mapping[str, T], old: Mapping[str, T]) -> dict[str, T]:
            of = {query: new if query in found.queries else old for query in after.queries}
            return {query: rows[query] for query, rows in of.items() if query in rows}

        return Flow(
            np.zeros(0),
            joined(now.by_query, was.by_query),
            was.slices,
            joined(now.hops, was.hops),
            lead_of(after),
            lead_by_query=joined(now.lead_by_query, was.lead_by_query),
            lead_events=joined(now.lead_events, was.lead_events),
            times=times,
        )


@dataclass(frozen=True, eq=False)
class ChangedFlow:
    """Flow of what a change concerns.

    Attributes
    ----------
    queries : frozenset of str
        Queries on whose way something differs: the load of a server or link, or when a slice is done with.
    deployment : Deployment
        All that is on the servers of these queries, and what is above it. Loads of their servers are whole.
    flow : Flow
        Of that deployment. Of other queries it says nothing.
    servers : frozenset of str
        Servers and links that are whole there: all that a change touches, and those of the queries.
    times : mapping
        Times of all replicas that have others than before, wherever they are.
    touched : frozenset of str
        Servers on which what loads them differs, or their capacity.
    late : frozenset of str
        Operators that finish at another time, or to which a link may bring its events at another.
    """

    queries: frozenset[str]
    deployment: Deployment
    servers: frozenset[str]
    flow: Flow
    times: Mapping[ReplicaName, ReplicaTimes]
    touched: frozenset[str]
    late: frozenset[str]


def flow_base(deployment: Deployment, *, slices: int = 1) -> FlowBase:
    """Flow by input of a placed deployment, as changes are computed from it."""
    return FlowBase(deployment, flow(deployment, slices=slices, by_input=True, keep_times=True))


def changed_flow(
    base: FlowBase,
    after: Deployment,
    *,
    concerned: Collection[str] = (),
    anew: bool = False,
    within: Collection[str] | None = None,
) -> ChangedFlow:
    """Flow of the queries of `after` that differ in anything from those of `base`.

    Parameters
    ----------
    base : FlowBase
        Of a deployment of the same subintervals.
    after : Deployment
        The changed deployment, placed.
    concerned : collection of str
        Queries that are looked at in any case.
    anew : bool
        Whether nothing of before is used.
    within : collection of str, optional
        Of an excerpt, the servers on which all is that is on them in the whole.

    Raises
    ------
    ValueError
        If the subintervals are others.
    BeyondExcerpt
        If another server than those `within` is concerned.
    """
    return _Propagation(base, after, anew, within).run(concerned)


def spread_flow(base: FlowBase, after: Deployment, *, anew: bool = False) -> ChangedFlow:
    """Flow of the servers of `after` that differ from those of `base`, and of no query: a stress, for changes of it.

    Where it goes beyond 32 servers, beginnings that alone differ are not followed: hardly anything finishes at another
    time for them.
    """
    return _Propagation(base, after, anew, None).run(None)


class _Propagation:
    """The spread of one change; servers go by their names, which are the same before and after."""

    def __init__(self, base: FlowBase, after: Deployment, anew: bool, within: Collection[str] | None) -> None:
        before = base.deployment
        if (before.subintervals, before.subinterval_s) != (after.subintervals, after.subinterval_s):
            raise ValueError("subintervals differ; allowed: a deployment of the same subintervals")
        self._base, self._after, self._anew, self._within = base, after, anew, within
        self._slices = base.flow.slices
        self._cluster, self._known = ClusterPlaces(after), base.cluster
        self._newer: dict[ReplicaName, ReplicaTimes] = {}

    def run(self, concerned: Collection[str] | None) -> ChangedFlow:
        """Flow of the queries that differ; of none where `concerned` is None."""
        touched = self._touched()
        if not touched >= self._cluster.used:  # else all are computed, whatever moves
            self._spread(touched, _MAX_BEGINNINGS if concerned is None else np.inf)
        # By what was there as well: an operator that has left no longer stands behind anybody's window.
        late = [name for name in self._newer if self._is_late(name)]  # a beginning is nobody's latency
        late += self._cluster.readers_over_links(touched, self._newer)
        hit = self._cluster.queries_with(touched, late) | self._known.queries_with(touched, ()) | {*(concerned or ())}
        queries = frozenset() if concerned is None else hit & {*self._after.queries}
        whole = self._cluster.with_links(touched | self._cluster.servers_of_queries(queries))
        self._stay(whole)
        part = self._cluster.part(whole, queries)
        flowed = self._flow(part, whole, trace=True)
        self._take(part, flowed)
        names = frozenset(operator for operator, _ in late)
        return ChangedFlow(queries, part, frozenset(whole), flowed, self._newer, frozenset(touched), names)

    def _stay(self, servers: set[str]) -> None:
        if self._within is not None and not servers <= {*self._within}:
            raise BeyondExcerpt(servers)

    def _spread(self, touched: set[str], begin: float) -> None:
        """Compute servers until no time differs that comes to one of them.

        Beyond `begin` servers, what begins at another time and finishes at the same is not followed any further.

        Each round takes those alone to which another time came in the last one. Servers that wait for each other would
        go on for as many rounds as a delay takes from one to the other: those that come again are taken together.
        """
        looks, todo = Counter[str](), self._cluster.with_links(touched)
        while todo:
            looks.update(todo)
            again = {server for server, count in looks.items() if count > _ALONE}
            if again & todo:
                todo = self._cluster.with_links(todo | again)
            if self._within is None and begin == np.inf and len(looks) > _MANY_SERVERS * len(self._cluster.used):
                todo = {*self._cluster.used}  # the rest is soon reached: all at once is cheaper
            self._stay(todo)
            part = self._cluster.part(todo)
            moved = self._take(part, self._flow(part, todo))
            followed = (name for name, is_late in moved.items() if is_late or len(looks) <= begin)
            todo = self._cluster.with_links(self._cluster.servers_behind(followed) - todo)

    def _flow(self, part: Deployment, active: Collection[str], *, trace: bool = False) -> Flow:
        """Flow of the servers in `active`; replicas elsewhere have the times that are known."""
        given, known = [], []
        for i, (name, server) in enumerate(zip(replica_names(part), _servers_of_replicas(part), strict=True)):
            if server not in active:
                given.append(i)
                known.append(self._times_of(name))
        times = self._base.stacked(given, known)
        return flow(part, slices=self._slices, by_input=True, trace=trace, keep_times=True, given=times)

    def _times_of(self, name: ReplicaName) -> ReplicaTimes | None:
        return self._newer.get(name) or self._base.times_of(name)

    def _take(self, part: Deployment, flowed: Flow) -> dict[ReplicaName, bool]:
        """Keep what was computed where it differs from before.

        Returns the replicas that have other times than were known, and whether they finish at another one.
        """
        found, names, moved = flowed.times, replica_names(part), {}
        assert found is not None
        for i, r in enumerate(found.replica.tolist()):
            name, times = names[r], ReplicaTimes(found.start[i], found.finish[i], float(found.latency[i]))
            known, was = self._times_of(name), self._base.times_of(name)
            if _is_same(times, known):
                continue
            moved[name] = known is None or not np.array_equal(times.finish, known.finish)
            if _is_same(times, was):
                self._newer.pop(name, None)
            else:
                self._newer[name] = ReplicaTimes(times.start.copy(), times.finish.copy(), times.latency_s)
        return moved

    def _is_late(self, name: ReplicaName) -> bool:
        """Whether a replica finishes at another time than before."""
        was = self._base.times_of(name)
        return was is None or not np.array_equal(self._newer[name].finish, was.finish)

    def _touched(self) -> set[str]:
        """Servers whose capacity, residents, or work of these differ."""
        before, after = self._base.deployment, self._after
        as_one = "combine", "scheduling", "statistics_of", "oldest_backlog_s", "has_models", "has_series"
        if (
            self._anew
            or has_few_sources(before.source_count, before.subintervals)
            != has_few_sources(after.source_count, after.subintervals)
            or any(getattr(before, name) != getattr(after, name) for name in as_one)
            or _is_of_one_piece(before)
            or _is_of_one_piece(after)
        ):
            return {server.name for server in after.servers}
        nodes = {node.id: node for node in before.nodes}
        touched = {
            server.name
            for server in after.servers
            if server.node is not None
            and not same_node(nodes.get(after.nodes[server.node].id), after.nodes[server.node])
        }
        was, now = self._known.residents, self._cluster.residents
        differing = self._differing()
        for server in {**was, **now}:
            if was.get(server) != now.get(server) or any(name in differing for name, *_ in now.get(server, ())):
                touched.add(server)
        return touched & {server.name for server in after.servers}

    def _differing(self) -> set[str]:
        """Operators that do something else than before, or with other events."""
        before, after = self._base.deployment, self._after
        sources = {source.id: source for source in before.sources}
        streams = {source.id for source in after.sources if not same_source(sources.get(source.id), source)}
        known, differing = self._base.operators, set[str]()
        for j in after.order:
            operator = after.operators[j]
            was = known.get(operator.id)
            has_other_events = any(entry.source in streams for entry in operator.inputs)
            if was is operator and not has_other_events:
                continue
            if has_other_events or was is None or _work_of(was) != _work_of(operator):
                differing.add(operator.id)
            if has_other_events or was is None or _output_of(was) != _output_of(operator):
                streams.add(operator.id)
        return differing


def _is_same(times: ReplicaTimes, was: ReplicaTimes | None) -> bool:
    return (
        was is not None
        and times.latency_s == was.latency_s
        and np.array_equal(times.finish, was.finish)
        and np.array_equal(times.start, was.start)
    )


def _servers_of_replicas(deployment: Deployment) -> list[str]:
    return [deployment.servers[i].name for i in deployment.layout.rep_server]


def _is_of_one_piece(deployment: Deployment) -> bool:
    """Whether a part says nothing: bounds under other policies go through all servers, batches over all operators."""
    return bool(deployment.other_policies) or any(op.query is None and op.trigger for op in deployment.operators)


_WORK = tuple(field.name for field in fields(Operator) if field.name != "replicas")


def _work_of(operator: Operator) -> list[object]:
    """All that an operator is, but for its place."""
    return [getattr(operator, name) for name in _WORK]


def _output_of(operator: Operator) -> list[object]:
    """All that decides about the events an operator puts out, but for those that come."""
    return [(entry.source, entry.selectivity, entry.model, entry.backlog) for entry in operator.inputs]


def same_source(was: Source | None, now: Source) -> bool:
    if was is None or was is now:
        return was is now
    return all(np.array_equal(getattr(was, f.name), getattr(now, f.name)) for f in fields(Source))


def same_node(was: Node | None, now: Node) -> bool:
    """Whether a node works as it did."""
    if was is None or was is now:
        return was is now
    if (was.capacity_cps, was.cores, was.scheduling) != (now.capacity_cps, now.cores, now.scheduling):
        return False
    a, b = was.capacity_series_cps, now.capacity_series_cps
    return a is b or (a is not None and b is not None and np.array_equal(a, b))
