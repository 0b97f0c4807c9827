"""Lists of the fleet, and the facts of one node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from django.db.models import Count, F, Max, QuerySet, Sum
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.estimates.models import EstimateRun, NodeEstimate
from apps.estimates.selectors import ServerLoad, run_latest, servers_by_node, servers_drawn
from apps.fleet.choices import ABSENT, NodeState
from apps.fleet.models import Cluster, Link, Node, NodePool
from apps.fleet.selectors import NodeFilter, PoolFilter
from apps.pages.connections.looks import NodePlace, place_of_node
from apps.pages.context import url_of
from apps.pages.labels import LABELS_TEXT, label_filters, labels_column, with_labels_text
from apps.pages.overview.findings import NodeLine, Stat
from apps.pages.saved_views.bar import open_views
from apps.planning.choices import OPEN_EVACUATION_STATES
from apps.planning.evacuations import EVACUATION
from apps.queries.models import Placement
from apps.queries.selectors import cluster_memory
from apps.saved_views.models import SavedList
from apps.ui.charts import Chart, Series, time_axis
from apps.ui.marks import EVIDENCE, STATES, evidence_mark, icon
from apps.ui.numbers import MISSING, Quantity, byte_rate, bytes_size, cps, percent, ratio, seconds
from apps.ui.pictures import heat_strip, load_bar
from apps.ui.tables import Choice, Column, Filter, Table, state_choices
from engine.document.memory import NodeMemory
from engine.words import counted, listed, server_words

__all__ = ["ListedNode", "NodeDetail", "NodeOperator", "fleet_sentence", "links_table", "nodes_table", "pools_table"]


def fleet_sentence(cluster: Cluster) -> str:
    """12 nodes with 48 cores, 1 draining."""
    rows = cluster.nodes.order_by().values("state").annotate(n=Count("pk"), cores=Sum("cores"))
    by_state = {row["state"]: row for row in rows}
    nodes = sum(row["n"] for row in by_state.values())
    if not nodes:
        return "No nodes yet. Queries need at least one to run on."
    up = [row for state, row in by_state.items() if state not in ABSENT]
    cores = sum(row["cores"] for row in up)
    figures = [f"{counted(nodes, 'node')} with {counted(cores, 'core')} at work"]
    others = (state for state in (NodeState.DRAINING, NodeState.PLANNED, NodeState.OFFLINE) if state in by_state)
    figures += [f"{by_state[state]['n']} {state.label.lower()}" for state in others]
    return f"{', '.join(figures)}."


def nodes_table(
    request: HttpRequest,
    cluster: Cluster,
    rows: QuerySet[Node],
    run: EstimateRun | None,
    pools: Sequence[str],
    *,
    can_change: bool,
) -> Table:
    """Nodes with capacity, load and excess of the newest estimate."""
    counts = dict(cluster.nodes.order_by().values("state").annotate(n=Count("pk")).values_list("state", "n"))
    states = state_choices(NodeState.values, counts)
    filters = [Filter("state", states, all_count=sum(counts.values()))]
    if 1 < len(pools) <= 8:
        of_pool = [Choice(name, name) for name in pools]
        filters.append(Filter("pool", of_pool, all_label="Every pool"))
    labels = label_filters(request, rows, "labels", "pool__labels")
    return Table(
        request,
        [
            *_node_columns(cluster, run),
            labels_column(request, labels, lambda line: line.node.all_labels),
        ],
        with_labels_text(rows),
        caption="Nodes",
        default_sort="name",
        filters=[*filters, *labels],
        filterset=NodeFilter,
        search=["name", "pool__name", LABELS_TEXT],
        search_label="Node, pool or label",
        views=open_views(request, SavedList.NODES),
        file_name=f"nodes-{cluster.slug}",
        select=can_change,
        identify=lambda node: node.name,
        load=partial(_node_rows, cluster, run),
        empty={"icon": "nodes", "title": "No nodes yet", "text": "Register one by one, or import a list of them."},
    )


@dataclass(frozen=True)
class ListedNode:
    """A node of the list, with its load in the newest estimate and the state it holds."""

    node: Node
    server: ServerLoad | None
    memory: NodeMemory | None

    @property
    def peak_load(self) -> float | None:
        return self.server.peak_load if self.server else None

    @property
    def excess_s(self) -> float | None:
        return self.server.excess_s if self.server else None


def _node_rows(cluster: Cluster, run: EstimateRun | None, nodes: list[Node]) -> list[ListedNode]:
    names = [node.name for node in nodes]
    servers = {server.node_name: server for server in servers_drawn(run, names)} if run is not None else {}
    memory = cluster_memory(cluster, of=names)
    return [ListedNode(node, servers.get(node.name), memory.get(node.name)) for node in nodes]


def _node_name(cluster: Cluster, node: Node) -> SafeString:
    url = reverse("pages:node", args=[cluster.slug, node.name])
    mark = STATES[node.state]
    return format_html(
        '<span class="nm">{}<a class="name" href="{}">{}</a></span>',
        icon(mark.drawing, mark.tone or "muted"),
        url,
        node.name,
    )


_STAYING = 6  # operators named that a draining node still runs
_MAX_SCALE = 2.0  # of bars of load: one node far over its capacity does not flatten all others


def state_text(entry: NodeMemory | None) -> SafeString | str:
    """7.5 GiB of 8 GiB: known state of a node against its memory, and whether some of it is not known."""
    if entry is None:
        return MISSING
    memory = bytes_size(entry.memory_bytes) if entry.memory_bytes is not None else "unknown"
    held = bytes_size(entry.held_bytes)
    if entry.unknown:
        unknown = f"and {counted(len(entry.unknown), 'operator')} not known"
        return format_html("{} of {} <small>{}</small>", held, memory, unknown)
    return format_html("{} of {}", held, memory)


def _node_columns(cluster: Cluster, run: EstimateRun | None) -> list[Column]:
    highest = run.nodes.exclude(node_name="").aggregate(peak=Max("peak_load"))["peak"] if run is not None else None
    scale = min(1.0 if highest is None else highest, _MAX_SCALE)

    def load(row: ListedNode) -> Any:
        if row.server is None:
            return format_html('<span class="muted">{}</span>', "none yet")
        return load_bar(row.server.mean_load, row.server.peak_load, scale)

    def strip(row: ListedNode) -> Any:
        server = row.server
        return heat_strip(server.excess, f"{server.name}: highest excess {seconds(server.excess_s)}") if server else ""

    return [
        Column("name", "Node", lambda row: _node_name(cluster, row.node), sort="name", csv=lambda row: row.node.name),
        Column("pool", "Pool", lambda row: row.node.pool.name, sort="pool__name"),
        Column(
            "state", "State", lambda row: STATES[row.node.state].label, sort="state", csv=lambda row: row.node.state
        ),
        Column("cores", "Cores", lambda row: row.node.cores, sort="cores", num=True, high_first=True),
        Column(
            "capacity",
            "Capacity per core",
            lambda row: format_html(
                "{} {}", cps(row.node.capacity_cps).html, evidence_mark(row.node.evidence, short=True)
            ),
            sort="capacity_cps",
            csv=lambda row: row.node.capacity_cps,
            num=True,
            short="Capacity",
            high_first=True,
        ),
        Column(
            "held",
            "State in memory",
            lambda row: state_text(row.memory),
            csv=lambda row: row.memory.held_bytes if row.memory else None,
            num=True,
            css=lambda row: "bad" if row.memory and row.memory.over_bytes > 0 else "",
        ),
        Column(
            "operators",
            "Operators",
            lambda row: row.node.operator_count,
            sort="operator_count",
            num=True,
            high_first=True,
        ),
        Column(
            "load",
            "Load, busiest core",
            load,
            csv=lambda row: row.server.mean_load if row.server else None,
            short="Load",
        ),
        Column(
            "peak",
            "Peak load",
            lambda row: ratio(row.peak_load),
            csv=lambda row: row.peak_load,
            num=True,
            css=lambda row: "bad" if (row.peak_load or 0) > 1 else "",
        ),
        Column(
            "excess",
            "Excess",
            lambda row: MISSING if row.excess_s is None else seconds(row.excess_s).html,
            sort=F("excess_s"),
            csv=lambda row: row.excess_s,
            num=True,
            high_first=True,
            css=lambda row: "watch" if (row.excess_s or 0) >= 4 else "",
        ),
        Column("strip", "Excess over time", strip, csv=lambda row: None, full=True),
    ]


def pools_table(request: HttpRequest, cluster: Cluster, rows: QuerySet[NodePool]) -> Table:
    def name(pool: NodePool) -> SafeString:
        url = reverse("pages:pool-edit", args=[cluster.slug, pool.pk])
        return format_html('<a class="name" href="{}">{}</a>', url, pool.name)

    def plan(pool: NodePool) -> SafeString:
        return format_html('<a href="{}">Plan nodes</a>', reverse("pages:pool-plan", args=[cluster.slug, pool.pk]))

    labels = label_filters(request, cluster.pools.all())
    columns = [
        Column("name", "Pool", name, sort="name", csv=lambda pool: pool.name),
        Column("nodes", "Nodes", lambda pool: pool.node_count, sort="node_count", num=True, high_first=True),
        Column("cores", "Cores each", lambda pool: pool.cores, sort="cores", num=True),
        Column(
            "capacity",
            "Capacity per core",
            lambda pool: cps(pool.capacity_cps).html,
            sort="capacity_cps",
            csv=lambda pool: pool.capacity_cps,
            num=True,
        ),
        Column(
            "memory",
            "Memory",
            lambda pool: bytes_size(pool.memory_bytes).html,
            csv=lambda pool: pool.memory_bytes,
            num=True,
        ),
        Column(
            "price",
            "Price per hour",
            lambda pool: MISSING if pool.price_per_hour is None else f"{pool.price_per_hour.normalize():f}",
            csv=lambda pool: pool.price_per_hour,
            num=True,
        ),
        Column("team", "Team", lambda pool: str(pool.team or MISSING), sort="team__name"),
        Column("plan", "Plan nodes", plan),
        labels_column(request, labels),
    ]
    empty = {
        "icon": "nodes",
        "title": "No pools yet",
        "text": "A pool holds nodes of one type: the same capacity and cores.",
    }
    views = open_views(request, SavedList.POOLS)
    return Table(
        request,
        columns,
        rows,
        "Pools",
        "name",
        labels,
        PoolFilter,
        file_name=f"pools-{cluster.slug}",
        empty=empty,
        views=views,
    )


def links_table(request: HttpRequest, cluster: Cluster, rows: QuerySet[Link]) -> Table:
    def ends(link: Link) -> SafeString:
        url = reverse("pages:link-edit", args=[cluster.slug, link.pk])
        return format_html('<a class="name" href="{}">{} → {}</a>', url, link.source.name, link.target.name)

    def bandwidth(link: Link) -> Any:
        if link.bandwidth_bytes_s is None:
            return format_html('<span class="muted">{}</span>', "no limit")
        return byte_rate(link.bandwidth_bytes_s).html

    columns = [
        Column("from", "Link", ends, sort="source__name", csv=lambda link: f"{link.source.name}->{link.target.name}"),
        Column(
            "bandwidth",
            "Bandwidth",
            bandwidth,
            sort="bandwidth_bytes_s",
            csv=lambda link: link.bandwidth_bytes_s,
            num=True,
        ),
        Column(
            "delay",
            "Delay",
            lambda link: seconds(link.delay_s).html,
            sort="delay_s",
            csv=lambda link: link.delay_s,
            num=True,
        ),
    ]
    return Table(
        request,
        columns,
        rows,
        caption="Links",
        default_sort="from",
        search=["source__name", "target__name"],
        search_label="Node at either end",
        views=open_views(request, SavedList.LINKS),
        file_name=f"links-{cluster.slug}",
        empty={"icon": "link", "title": "No links", "text": "Sending between nodes without a link costs nothing."},
    )


@dataclass(frozen=True)
class NodeOperator:
    """An operator on the node."""

    name: str
    kind: str
    query: str
    query_url: str
    core: int
    fraction: str


class NodeDetail:
    """Facts of a node: its cores, operators, queries and figures."""

    def __init__(self, cluster: Cluster, node: Node) -> None:
        self.cluster = cluster
        self.node = node

    @cached_property
    def run(self) -> EstimateRun | None:
        return run_latest(self.cluster)

    @cached_property
    def memory(self) -> NodeMemory | None:
        """State of its operators against its memory; None where it takes no operators."""
        return cluster_memory(self.cluster, of=[self.node.name]).get(self.node.name)

    @cached_property
    def place(self) -> NodePlace | None:
        """The TaskManager or executor that it is; None for a machine that no engine brought."""
        return place_of_node(self.node)

    @cached_property
    def servers(self) -> list[NodeEstimate]:
        """Its cores, the busiest first."""
        if self.run is None:
            return []
        return list(self.run.nodes.filter(node_name=self.node.name).order_by("-peak_load", "-excess_s", "server"))

    @cached_property
    def load(self) -> ServerLoad | None:
        """The node as a whole; None without an estimate."""
        return next(iter(servers_by_node(self.servers)), None)

    @cached_property
    def operators(self) -> list[NodeOperator]:
        rows = Placement.objects.filter(node=self.node).select_related("operator__version__query")
        return [
            self._operator(row) for row in rows.order_by("operator__version__query__name", "operator__position", "core")
        ]

    def _operator(self, row: Placement) -> NodeOperator:
        query = row.operator.version.query
        url = url_of("pages:query", self.cluster.slug, query.name)
        share = "" if row.fraction >= 1 else str(percent(row.fraction))
        return NodeOperator(row.operator.name, row.operator.get_kind_display(), query.name, url, row.core, share)

    @cached_property
    def queries(self) -> list[str]:
        return list(dict.fromkeys(line.query for line in self.operators))

    @property
    def staying(self) -> str:
        """Names of the operators on it."""
        return listed(list(dict.fromkeys(f"{line.query}/{line.name}" for line in self.operators)), _STAYING)

    @property
    def evacuation(self) -> str:
        """Address of the evacuation under way that it is part of; empty without one."""
        rows = EVACUATION.visible().filter(cluster=self.cluster, state__in=OPEN_EVACUATION_STATES)
        return next((EVACUATION.page(run) for run in rows if self.node.name in run.nodes), "")

    @property
    def sentence(self) -> str:
        size = f"{counted(self.node.cores, 'core')} of {cps(self.node.capacity_cps)}"
        if self.node.state == NodeState.OFFLINE:
            return f"{size}, offline: not part of the cluster's capacity."
        if self.node.state == NodeState.PLANNED:
            return f"{size}, planned: not part of the cluster's capacity until it is activated."
        if not self.operators:
            return f"{size}, empty: no operator is placed on it."
        sentences = [f"{size}; {len(self.queries)} queries share it."]
        if len(self.queries) == 1:
            sentences = [f"{size}; 1 query uses it."]
        if self.load:
            sentences.append(f"At its peak a core runs at {ratio(self.load.peak_load)} of its capacity.")
        return " ".join(sentences)

    @property
    def stats(self) -> list[Stat]:
        load = self.load
        mean = Quantity(ratio(load.mean_load), "of capacity") if load else Quantity(MISSING)
        excess = seconds(load.excess_s) if load else Quantity(MISSING)
        evidence = EVIDENCE[self.node.evidence].label.lower()
        return [
            Stat("Capacity per core", cps(self.node.capacity_cps), f"{evidence}, pool {self.node.pool.name}"),
            Stat("Load, busiest core", mean, f"{ratio(load.peak_load)} at its peak" if load else "No estimate yet"),
            Stat("Excess at its peak", excess, "work waiting" if load else "No estimate yet"),
            *([self._memory_stat(self.memory)] if self.memory is not None else []),
            Stat("Operators", Quantity(str(len(self.operators))), ", ".join(self.queries[:3]) or "none"),
        ]

    @staticmethod
    def _memory_stat(entry: NodeMemory) -> Stat:
        memory = (
            "of memory that is not stated" if entry.memory_bytes is None else f"of {bytes_size(entry.memory_bytes)}"
        )
        notes = [memory]
        if entry.over_bytes:
            notes.append(f"{bytes_size(entry.over_bytes)} too much")
        if entry.unknown:
            notes.append(f"state of {listed(entry.unknown)} is not stated")
        return Stat(
            "State in memory", bytes_size(entry.held_bytes), ", ".join(notes), "bad" if entry.over_bytes else ""
        )

    @property
    def lines(self) -> list[NodeLine]:
        """A strip per core."""
        return [
            NodeLine(
                server_words(server.server, begins=True),
                "",
                heat_strip(
                    server.excess,
                    f"{server_words(server.server, begins=True)}: highest excess {seconds(server.excess_s)}",
                ),
                seconds(server.excess_s),
                "watch" if server.excess_s >= 4 else "",
                ratio(server.mean_load),
            )
            for server in self.servers
        ]

    @cached_property
    def chart(self) -> Chart | None:
        """Excess of the node over the estimated horizon."""
        if self.load is None or self.run is None:
            return None
        step_s = self.run.horizon_s / max(len(self.load.excess), 1)
        return Chart(
            id="node-excess",
            finding=f"Work waiting on {self.node.name} over the horizon, at most {seconds(self.load.excess_s)}.",
            unit="s",
            x=time_axis(self.run.created_at, step_s, len(self.load.excess)),
            series=[Series("load", "Work waiting", y=self.load.excess)],
            height=220,
            steps=True,
        )
