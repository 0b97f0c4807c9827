"""Nodes on the placement pages: excess over time and operators as blocks, now or before and after a proposal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import Q
from django.db.models.fields.json import KT
from django.http import HttpRequest
from django.utils.safestring import SafeString

from apps.estimates.models import EstimateRun, NodeEstimate, QueryEstimate
from apps.estimates.selectors import nodes_by_excess, run_latest
from apps.fleet.choices import NodeState
from apps.fleet.models import Cluster, Node
from apps.pages.context import url_of
from apps.pages.placement.charts import Block, Letters, blocks_bar, scale_of
from apps.planning.placement_search import PlacementProposal
from apps.queries.choices import QueryState
from apps.queries.models import Operator, Placement
from apps.ui.numbers import MISSING, Quantity, ratio, seconds
from apps.ui.pictures import heat_strip
from apps.ui.sentences import sentence, server_tag
from engine.document.elements import Replica
from engine.placement.answer import CoreChange
from engine.words import server_words

__all__ = ["CoreLine", "CoreMoment", "NodeChange", "NodePicture", "NodesChanged", "NodesNow", "server_name"]


_PER_PAGE = 12
_HOT_S = 4.0


@dataclass(frozen=True)
class CoreLine:
    """A core: its blocks and how full it is."""

    name: SafeString
    bar: SafeString
    load: str
    is_bottleneck: bool = False
    label: str = ""


@dataclass(frozen=True)
class NodePicture:
    """A node's row."""

    name: str
    url: str
    note: str
    strip: SafeString | str
    peak: Quantity
    peak_tone: str
    cores: Sequence[CoreLine]


def server_name(node: str, core: int, cores: int) -> str:
    """Name of a core in the engine's documents."""
    return f"{node}#{core}" if cores > 1 else node


def query_names(cluster: Cluster) -> list[str]:
    """Queries of a cluster in the order of their creation, which gives them their letters."""
    return list(cluster.queries.order_by("pk").values_list("name", flat=True))


class NodesNow:
    """Nodes and their operators now. Only the nodes of the page asked for are drawn."""

    def __init__(self, request: HttpRequest, cluster: Cluster) -> None:
        self.request, self.cluster = request, cluster
        self.letters = Letters(query_names(cluster))

    @property
    def wanted(self) -> str:
        return self.request.GET.get("node", "").strip()

    @property
    def pool(self) -> str:
        return self.request.GET.get("pool", "")

    @cached_property
    def run(self) -> EstimateRun | None:
        return run_latest(self.cluster)

    @cached_property
    def excess(self) -> dict[str, tuple[float, float]]:
        """(largest excess, highest load) of every node in the newest estimate."""
        if self.run is None:
            return {}
        rows = nodes_by_excess(self.run).exclude(node_name="").order_by()
        return {row["place"]: (row["excess"], row["peak"]) for row in rows}

    @cached_property
    def bottleneck(self) -> str:
        """The core with the most excess, if any work waits at all."""
        if self.run is None:
            return ""
        worst = NodeEstimate.objects.filter(run=self.run, excess_s__gt=0).exclude(node_name="")
        return worst.order_by("-excess_s", "server").values_list("server", flat=True).first() or ""

    @cached_property
    def all_nodes(self) -> list[Node]:
        rows = self.cluster.nodes.exclude(state=NodeState.OFFLINE).select_related("pool")
        return sorted(rows, key=lambda node: (*(-value for value in self.excess.get(node.name, (0.0, 0.0))), node.name))

    @cached_property
    def pools(self) -> list[tuple[str, int]]:
        """(pool, how many of its nodes are up)."""
        counts: dict[str, int] = {}
        for node in self.all_nodes:
            counts[node.pool.name] = counts.get(node.pool.name, 0) + 1
        return sorted(counts.items())

    @cached_property
    def nodes(self) -> list[Node]:
        """Those that pass search and pool."""
        rows = [node for node in self.all_nodes if self.pool in {"", node.pool.name}]
        if not self.wanted:
            return rows
        text = self.wanted.lower()
        holding = Placement.objects.filter(node__cluster=self.cluster).filter(
            Q(operator__name__icontains=self.wanted) | Q(operator__version__query__name__icontains=self.wanted)
        )
        held = set(holding.values_list("node_id", flat=True))
        return [node for node in rows if text in node.name.lower() or node.pk in held]

    @cached_property
    def page(self) -> Page:
        return Paginator(self.nodes, _PER_PAGE).get_page(self.request.GET.get("nodes"))

    @cached_property
    def rows(self) -> list[NodePicture]:
        nodes = list(self.page)
        blocks = self._blocks(nodes)
        scale = scale_of(blocks.values())
        servers = self._servers(nodes)
        return [self._row(node, blocks, servers.get(node.name, []), scale) for node in nodes]

    def _row(
        self, node: Node, blocks: Mapping[tuple[int, int], list[Block]], servers: Sequence[NodeEstimate], scale: float
    ) -> NodePicture:
        by_server = {row.server: row for row in servers}
        peak_s = max((row.excess_s for row in servers), default=None)
        series = [max(values) for values in zip_longest(*(row.excess for row in servers), fillvalue=0.0)]
        strip = heat_strip(series, f"{node.name}: highest excess {seconds(peak_s)}") if series else MISSING
        cores = []
        for core in range(node.cores):
            name = server_name(node.name, core, node.cores)
            row = by_server.get(name)
            held = blocks.get((node.pk, core), [])
            bar = blocks_bar(server_words(name, begins=True), held, self.letters, scale)
            load = ratio(row.mean_load) if row else MISSING
            cores.append(CoreLine(server_tag(name), bar, load, name == self.bottleneck))
        return NodePicture(
            node.name,
            url_of("pages:node", self.cluster.slug, node.name),
            "draining" if node.state == NodeState.DRAINING else node.pool.name,
            strip,
            seconds(peak_s),
            "watch" if (peak_s or 0.0) >= _HOT_S else "",
            cores,
        )

    def _servers(self, nodes: Iterable[Node]) -> dict[str, list[NodeEstimate]]:
        servers: dict[str, list[NodeEstimate]] = {}
        if self.run is not None:
            for row in NodeEstimate.objects.filter(run=self.run, node_name__in=[node.name for node in nodes]):
                servers.setdefault(row.node_name, []).append(row)
        return servers

    def _blocks(self, nodes: Sequence[Node]) -> dict[tuple[int, int], list[Block]]:
        rows = list(
            Placement.objects.filter(node__in=nodes)
            .values_list(
                "node_id",
                "core",
                "fraction",
                "operator__name",
                "operator__version__query__name",
                "node__capacity_cps",
                "operator__version__query_id",
            )
            .order_by("operator__version__query__name", "operator__position")
        )
        loads = self._loads({row[6] for row in rows})
        blocks: dict[tuple[int, int], list[Block]] = {}
        for node, core, fraction, operator, query, capacity_cps, _ in rows:
            cycles = loads.get(query, {}).get(operator, {}).get("load_mean_cps")
            load = None if cycles is None else cycles * fraction / capacity_cps
            blocks.setdefault((node, core), []).append(Block(query, operator, load, fraction))
        return blocks

    def _loads(self, queries: set[int]) -> dict[str, Any]:
        """{query: {operator: its facts in the newest estimate}}."""
        if self.run is None:
            return {}
        rows = QueryEstimate.objects.filter(run=self.run, query__in=queries).annotate(of=KT("result__operators"))
        facts = rows.values_list("query__name", "of")
        return {name: json.loads(text) if text else {} for name, text in facts}

    # -- what is said of them

    @property
    def sentence(self) -> SafeString:
        """62 operators of 10 queries on 12 nodes; n07 carries the most excess, 8.1 s at its peak."""
        operators = Operator.objects.filter(version__running_as__cluster=self.cluster).count()
        queries = self.cluster.queries.filter(state=QueryState.RUNNING).count()
        excess = self.excess.get(self.bottleneck.partition("#")[0])
        return sentence(
            "pages/placement/sentences/now.html",
            operators=operators,
            queries=queries,
            nodes=len(self.all_nodes),
            bottleneck=server_words(self.bottleneck),
            excess_s=excess and excess[0],
            is_estimated=self.run is not None,
        )


Replicas = Sequence[Replica]


@dataclass(frozen=True)
class CoreMoment:
    """A node before or after."""

    words: str
    strip: SafeString | str
    peak: Quantity
    peak_tone: str
    cores: Sequence[CoreLine]


@dataclass(frozen=True)
class NodeChange:
    """A node before and after."""

    name: str
    url: str
    note: str
    moments: Sequence[CoreMoment]


class NodesChanged:
    """The nodes of a proposal. Only those of the asked page are drawn."""

    def __init__(self, request: HttpRequest, cluster: Cluster, proposal: PlacementProposal, *, per_page: int) -> None:
        self.request, self.slug, self.proposal, self.per_page = request, cluster.slug, proposal, per_page
        self.letters = Letters(query_names(cluster))

    @property
    def shows_all(self) -> bool:
        return self.request.GET.get("which") == "all" or not self.touched

    @cached_property
    def servers(self) -> dict[str, list[CoreChange]]:
        """Cores by node."""
        servers: dict[str, list[CoreChange]] = {}
        for row in self.proposal.nodes:
            servers.setdefault(row.node, []).append(row)
        return servers

    @cached_property
    def touched(self) -> list[str]:
        """Nodes that a move leaves or reaches."""
        names = {part.node for move in self.proposal.moves for part in (*move.before, *move.after)}
        return [name for name in self._ranked if name in names]

    @cached_property
    def _ranked(self) -> list[str]:
        """The most excess first, before or after."""

        def worst(name: str) -> float:
            return max(max(row.before_mace_s, row.after_mace_s) for row in self.servers[name])

        return sorted(self.servers, key=lambda name: (-worst(name), name))

    @property
    def total(self) -> int:
        return len(self.servers)

    @cached_property
    def page(self) -> Page:
        rows = self._ranked if self.shows_all else self.touched
        return Paginator(rows, self.per_page).get_page(self.request.GET.get("nodes"))

    @cached_property
    def rows(self) -> list[NodeChange]:
        names = list(self.page)
        before = self._blocks(self._before, set(names), "gone")
        after = self._blocks(self.proposal.placement, set(names), "come")
        scale = scale_of([*before.values(), *after.values()])
        return [self._row(name, before, after, scale) for name in names]

    def _row(
        self,
        name: str,
        before: Mapping[tuple[str, int], list[Block]],
        after: Mapping[tuple[str, int], list[Block]],
        scale: float,
    ) -> NodeChange:
        moments = [
            self._moment(name, "Before", before, scale),
            self._moment(name, "After", after, scale),
        ]
        url = url_of("pages:node", self.slug, name)
        return NodeChange(name, url, "" if name in self.touched else "stays as it is", moments)

    def _moment(self, name: str, words: str, blocks: Mapping[tuple[str, int], list[Block]], scale: float) -> CoreMoment:
        key = words.lower()
        rows = self.servers[name]
        peak_s = max(_mace_s(row, key) for row in rows)
        series = [
            max(values) for values in zip_longest(*(getattr(row, f"excess_{key}") for row in rows), fillvalue=0.0)
        ]
        strip = heat_strip(series, f"{name} {key}: highest excess {seconds(peak_s)}") if series else MISSING
        cores = [self._core(name, core, row, key, blocks, scale) for core, row in enumerate(rows)]
        return CoreMoment(words, strip, seconds(peak_s), "watch" if peak_s >= _HOT_S else "", cores)

    def _core(
        self,
        name: str,
        core: int,
        row: CoreChange,
        key: str,
        blocks: Mapping[tuple[str, int], list[Block]],
        scale: float,
    ) -> CoreLine:
        held = blocks.get((name, core), [])
        bar = blocks_bar(f"{server_words(row.server, begins=True)} {key}", held, self.letters, scale)
        load = sum(block.load or 0.0 for block in held)
        return CoreLine(server_tag(row.server), bar, ratio(load), row.server == self._bottleneck(key))

    def _bottleneck(self, key: str) -> str:
        return self._bottlenecks[key]

    @cached_property
    def _bottlenecks(self) -> dict[str, str]:
        rows = [row for rows in self.servers.values() for row in rows]
        bottlenecks = {}
        for key in ("before", "after"):
            worst = max(rows, key=lambda row, key=key: _mace_s(row, key), default=None)
            bottlenecks[key] = worst.server if worst and _mace_s(worst, key) > 0 else ""
        return bottlenecks

    @cached_property
    def _before(self) -> Mapping[str, Replicas]:
        return self.proposal.placement | {move.operator: move.before for move in self.proposal.moves}

    def _blocks(
        self, placement: Mapping[str, Replicas], nodes: set[str], word: str
    ) -> dict[tuple[str, int], list[Block]]:
        """Blocks of the cores of some nodes."""
        blocks: dict[tuple[str, int], list[Block]] = {}
        for operator, replicas in placement.items():
            for part in replicas:
                if part.node in nodes:
                    blocks.setdefault((part.node, part.core), []).append(self._block(operator, part, word))
        return blocks

    def _block(self, operator: str, part: Replica, word: str) -> Block:
        query, _, name = operator.partition("/")
        cycles, capacity_cps = self.proposal.loads.get(operator), self.proposal.capacities.get(part.node)
        load = cycles * part.fraction / capacity_cps if cycles is not None and capacity_cps else None
        other = self.proposal.placement.get(operator, ()) if word == "gone" else self._before.get(operator, ())
        is_same = any((part.node, part.core) == (replica.node, replica.core) for replica in other)
        return Block(query, name or operator, load, part.fraction, "" if is_same else word)


def _mace_s(row: CoreChange, moment: str) -> float:
    return row.before_mace_s if moment == "before" else row.after_mace_s
