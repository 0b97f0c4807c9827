"""Rows of a cluster that its snapshot is made of, kept in memory and brought forward by the marks of what has changed.

Each process has its own; a restart loses it, and it is read anew. A transaction sees what it wrote itself: such a state
is kept with what is to be done after its commit, and gone if it is rolled back. Rows of a state are never changed:
threads that bring one forward at the same time do the same work twice, and the further one stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from django.db import connection, transaction
from django.db.models import F

from apps.fleet.choices import ABSENT
from apps.fleet.models import Cluster, Link, Node
from apps.queries.arrivals.series import arrival_rows, load_arrays
from apps.queries.choices import QueryState
from apps.queries.models import ArrivalSeries, Query
from apps.queries.snapshots.contents import link_content, node_content, part_content, source_content
from apps.queries.snapshots.elements import (
    RunningQuery,
    engine_node,
    engine_source,
    private_arrivals,
    running_queries,
    source_name,
)
from apps.queries.snapshots.row_changes import FLEET, QUERY, SOURCE, RowChanges, row_changes
from engine.document import elements
from engine.query_graph.graph import NOMINAL_PROCESSOR
from engine.query_graph.processors import STREAM_PROCESSORS

__all__ = ["ClusterState", "cluster_state", "nodes_present"]

_TRIES = 3  # rows that are written all the time are taken as they are read
_shared: dict[int, ClusterState] = {}  # by cluster; written whole, so that no lock is needed


@dataclass(frozen=True, eq=False)
class ClusterState:
    """Rows of a cluster as of a position among the marks; arrivals without their data.

    `made` has what was made of a state without changes: it goes with the state. `sources` are kept from state to state,
    each with the row that it was made of.
    """

    changes: RowChanges
    nodes: list[Node] = field(repr=False)
    links: list[Link] = field(repr=False)
    running: Mapping[int, RunningQuery] = field(repr=False)
    arrivals: Mapping[str, ArrivalSeries] = field(repr=False)
    sources: dict[str, tuple[Any, elements.Source]] = field(default_factory=dict, repr=False)
    made: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def node_names(self) -> dict[int, str]:
        return {node.pk: node.name for node in self.nodes}

    @property
    def ordered(self) -> list[RunningQuery]:
        """Running queries in the order in which they were admitted.

        Ties between operators on one server go by listing order, and admission lists the candidate last: listed here
        in the order in which they were placed, queries have the estimates that their previews showed.
        """
        if "ordered" not in self.made:
            self.made["ordered"] = sorted(self.running.values(), key=lambda row: (row.first_placed, row.query.name))
        listed: list[RunningQuery] = self.made["ordered"]
        return listed

    @property
    def stream_processor(self) -> str:
        """Flink where all that has run was imported from one; else the nominal one, which nobody has measured."""
        if "stream_processor" not in self.made:
            engines = {running.engine for running in self.running.values() if not running.never_ran}
            known = engines & STREAM_PROCESSORS.keys()
            self.made["stream_processor"] = str(*known) if len(engines) == len(known) == 1 else NOMINAL_PROCESSOR
        name: str = self.made["stream_processor"]
        return name

    def parts(self, cluster: Cluster, policies: Mapping[str, str]) -> dict[str, str]:
        """Identity of the content of each part, by the part's name."""
        names = self.node_names
        return {
            "grid": part_content(subinterval_s=cluster.subinterval_s, horizon_s=cluster.horizon_s),
            "policy": part_content(version=cluster.policy_version),
            **({} if self.stream_processor == NOMINAL_PROCESSOR else {"processor": self.stream_processor}),
            **{f"node:{node.name}": node_content(node, policies.get(node.name)) for node in self.nodes},
            **{f"link:{names[link.source_id]}->{names[link.target_id]}": link_content(link) for link in self.links},
            **{f"query:{running.query.name}": running.content for running in self.ordered},
            **{f"source:{name}": source_content(row) for name, row in self.arrivals.items()},
        }

    def engine_sources(self) -> tuple[elements.Source, ...]:
        """Each source once in its original, and once for every query that has a share of it; by name."""
        wanted: dict[str, tuple[Any, ...]] = {}
        for running in self.ordered:
            query, private = running.query, running.query.reads_privately
            share = query.rate_share if private else None
            for source in running.reads:
                row = self.arrivals.get(source)
                if row is not None:
                    wanted[source_name(source, query.name, private)] = (row, share)
        made = {name: known for name in wanted if (known := self.sources.get(name)) is not None}
        new = {name: of for name, of in wanted.items() if name not in made or not _is_same(made[name][0], of)}
        arrays = load_arrays({row.pk: row for row, _ in new.values()}.values())
        for name, (row, share) in new.items():
            values = arrays[row.source_id]
            if share is not None:
                values = private_arrivals(values, share)
            made[name] = ((row, share), engine_source(row, values, name))
        for name in [name for name in list(self.sources) if name not in made]:
            self.sources.pop(name, None)
        self.sources.update(made)
        return tuple(made[name][1] for name in sorted(made))


def _is_same(known: tuple[Any, ...], wanted: tuple[Any, ...]) -> bool:
    """Whether a source was made of the same row, with the same share."""
    return known[0] is wanted[0] and known[1] == wanted[1]


def cluster_state(cluster: Cluster) -> ClusterState:
    """The rows of a cluster as they are now, of one moment unless they are written all the time."""
    state = _known(cluster)
    for _ in range(_TRIES):
        known = state.changes if state is not None else None
        changes = row_changes(cluster, *((known.position, known.seen) if known is not None else (None,)))
        if state is None or changes.epoch != state.changes.epoch:
            state = _read(cluster, changes)
        elif changes.keys:
            state = _forwarded(state, cluster, changes)
        else:
            state = replace(state, changes=changes)
            break
        if changes.is_own:  # its marks are there again next time
            break
    assert state is not None
    _keep(cluster, state)
    return state


def nodes_present(cluster: Cluster) -> list[Node]:
    """Nodes that are there."""
    return list(cluster.nodes.exclude(state__in=ABSENT).select_related("pool"))


@dataclass(frozen=True)
class _Commit:
    """Keeps a state once what it has seen is committed."""

    cluster: int
    state: ClusterState

    def __call__(self) -> None:
        if not connection.in_atomic_block:  # tests run what follows a commit without one
            _shared[self.cluster] = self.state


def _known(cluster: Cluster) -> ClusterState | None:
    """The state to go on from: that which the present transaction has read, or else the process's."""
    for _, function, *_ in reversed(connection.run_on_commit):
        if isinstance(function, _Commit) and function.cluster == cluster.pk:
            return function.state
    return _shared.get(cluster.pk)


def _keep(cluster: Cluster, state: ClusterState) -> None:
    before = _known(cluster)
    if before is state or (before is not None and before.changes == state.changes):
        return
    keep = _Commit(cluster.pk, state)
    if connection.in_atomic_block:
        transaction.on_commit(keep, robust=True)
        return
    newest = before is None or before.changes.epoch != state.changes.epoch
    if newest or before.changes.position <= state.changes.position:
        keep()


def _running(cluster: Cluster, keys: Iterable[int] | None, nodes: Mapping[int, str]) -> dict[int, RunningQuery]:
    rows = Query.objects.filter(cluster=cluster, state=QueryState.RUNNING, running_version__isnull=False)
    rows = rows.annotate(engine=F("imported_job__connection__engine"))
    return running_queries(list(rows if keys is None else _in_parts(rows, keys)), nodes)


def _in_parts(rows: Any, keys: Iterable[int]) -> list[Query]:
    listed = list(keys)
    return [row for i in range(0, len(listed), 1000) for row in rows.filter(pk__in=listed[i : i + 1000])]


def _fleet(cluster: Cluster) -> tuple[list[Node], list[Link]]:
    nodes = nodes_present(cluster)
    present = {node.pk for node in nodes}
    links = [link for link in Link.objects.filter(cluster=cluster) if {link.source_id, link.target_id} <= present]
    return nodes, links


def _arrivals(cluster: Cluster, names: Iterable[str]) -> dict[str, ArrivalSeries]:
    listed = sorted(names)
    rows = (row for i in range(0, len(listed), 1000) for row in arrival_rows(cluster, listed[i : i + 1000]))
    return {row.source_id: row for row in rows}


def _read(cluster: Cluster, changes: RowChanges) -> ClusterState:
    """Everything, from nothing."""
    nodes, links = _fleet(cluster)
    running = _running(cluster, None, {node.pk: node.name for node in nodes})
    arrivals = _arrivals(cluster, {name for query in running.values() for name in query.reads})
    return ClusterState(changes, nodes, links, running, arrivals)


def _forwarded(state: ClusterState, cluster: Cluster, changes: RowChanges) -> ClusterState:
    """The state with the rows that are marked read anew; the same rows where nothing of them is another.

    Drafts are marked, too, and rows that were saved as they were.
    """
    nodes, links = _fleet(cluster) if changes.keys.get(FLEET) else (state.nodes, state.links)
    if _fleet_content(nodes, links) == _fleet_content(state.nodes, state.links):
        nodes, links = state.nodes, state.links
    names = {node.pk: node.name for node in nodes}
    marked = changes.keys.get(QUERY, frozenset())
    if names != state.node_names:  # places name nodes
        running = _running(cluster, None, names)
    else:
        running = dict(state.running)
        read = _running(cluster, marked, names) if marked else {}
        for key in marked:
            row, was = read.get(key), running.get(key)
            if row is None:
                running.pop(key, None)
            elif was is None or row.compared != was.compared:
                running[key] = row
    marked = changes.keys.get(SOURCE, frozenset())
    arrivals = state.arrivals
    if marked or running != state.running:
        wanted = {name for query in running.values() for name in query.reads}
        kept = {name: row for name, row in arrivals.items() if name in wanted and row.pk not in marked}
        arrivals = kept | _arrivals(cluster, wanted - kept.keys())
    is_same = nodes is state.nodes and running == state.running and arrivals.keys() == state.arrivals.keys()
    if is_same and not any(row.pk in marked for row in arrivals.values()):
        return replace(state, changes=changes)
    return ClusterState(changes, nodes, links, running, arrivals, dict(state.sources))


def _fleet_content(nodes: Iterable[Node], links: Iterable[Link]) -> list[Any]:
    """All that a snapshot has of nodes and links."""
    listed: list[Any] = [(node.pk, node.state, vars(engine_node(node))) for node in nodes]
    return listed + [(link.source_id, link.target_id, link_content(link)) for link in links]
