"""The fleet: its facts, the strip of numbers at the top, and its section."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from apps.estimates.models import EstimateRun
from apps.estimates.selectors import node_estimates, servers_by_node
from apps.fleet.choices import NodeState
from apps.fleet.models import Cluster, Node, NodePool
from apps.reports.blocks import (
    Block,
    ReportColumn,
    ReportHeading,
    ReportPicture,
    ReportStat,
    ReportStats,
    ReportTable,
    ReportText,
)
from apps.reports.drawings import fitted, label
from apps.reports.sections.objectives import ReportObjectives
from apps.ui.numbers import MISSING, Quantity, cps, money, percent, ratio, seconds
from apps.ui.pictures import EXCESS_CAP_S, EXCESS_STEPS_S, excess_step
from apps.ui.svg.pdf import text_width
from apps.ui.svg.shapes import Drawing, Shape, rect
from engine.records import Record
from engine.words import counted

__all__ = ["ReportFleet", "fleet_blocks", "fleet_facts", "summary_blocks"]

_DRAWN = 24
_STRIP_ROW = 13.5
_CAP_STEP = EXCESS_STEPS_S.index(EXCESS_CAP_S)


@dataclass(frozen=True)
class ReportNode(Record):
    """A node, with its load in the estimate where it has any."""

    name: str
    pool: str
    state: str
    cores: int
    capacity_cps: float
    price_per_hour: float | None
    mean_load: float | None
    peak_load: float | None
    excess_s: float | None
    excess: list[float]


@dataclass(frozen=True)
class ReportPool(Record):
    """A pool with its nodes that are not offline."""

    name: str
    nodes: int
    cores: int
    capacity_cps: float
    price_per_hour: float | None

    @property
    def cost_per_hour(self) -> float | None:
        return None if self.price_per_hour is None else self.price_per_hour * self.nodes


@dataclass(frozen=True)
class ReportLink(Record):
    """A link that holds records up."""

    name: str
    peak_load: float
    excess_s: float


@dataclass(frozen=True)
class ReportFleet(Record):
    """Nodes, the most excess first, pools, links that hold work up, and what the fleet costs."""

    nodes: list[ReportNode]
    pools: list[ReportPool]
    links: list[ReportLink]
    currency: str
    cost_per_hour: float | None
    without_price: int
    stretch_s: float | None


def fleet_facts(cluster: Cluster, run: EstimateRun | None) -> ReportFleet:
    servers = servers_by_node(node_estimates(run)) if run is not None else []
    loads = {server.node_name: server for server in servers if server.node_name}
    nodes = list(Node.objects.filter(cluster=cluster).select_related("pool").order_by("name"))
    rows = []
    for node in nodes:
        load = loads.get(node.name)
        rows.append(
            ReportNode(
                name=node.name,
                pool=node.pool.name,
                state=node.state,
                cores=node.cores,
                capacity_cps=node.capacity_cps,
                price_per_hour=_price(node.pool),
                mean_load=load.mean_load if load else None,
                peak_load=load.peak_load if load else None,
                excess_s=load.excess_s if load else None,
                excess=load.excess if load else [],
            )
        )
    rows.sort(key=lambda row: (-(row.excess_s or 0), -(row.peak_load or 0), row.name))
    present = [row for row in rows if row.state != NodeState.OFFLINE]
    prices = [row.price_per_hour for row in present if row.price_per_hour is not None]
    sizes = Counter(node.pool_id for node in nodes if node.state != NodeState.OFFLINE)
    return ReportFleet(
        nodes=rows,
        pools=[
            ReportPool(pool.name, sizes[pool.pk], pool.cores, pool.capacity_cps, _price(pool))
            for pool in NodePool.objects.filter(cluster=cluster).order_by("name")
        ],
        links=[
            ReportLink(server.name.replace("->", " to "), server.peak_load, server.excess_s)
            for server in servers
            if not server.node_name and server.excess_s > 0
        ],
        currency=cluster.currency,
        cost_per_hour=sum(prices) if prices else None,
        without_price=len(present) - len(prices),
        stretch_s=run.horizon_s if run is not None else None,
    )


def _price(pool: NodePool) -> float | None:
    return None if pool.price_per_hour is None else float(pool.price_per_hour)


def summary_blocks(objectives: ReportObjectives, fleet: ReportFleet) -> Iterator[Block]:
    """Four values in one band."""
    if not fleet.nodes:
        return
    nearest, worst, counts = next(iter(objectives.judged), None), fleet.nodes[0], objectives.counts
    unpriced = fleet.without_price
    yield ReportStats(
        [
            ReportStat("Objectives that hold", Quantity(str(counts.held), f"of {counts.judged}"), counts.words),
            ReportStat(
                "Smallest headroom",
                seconds(nearest.headroom_s) if nearest else Quantity(MISSING),
                f"{nearest.query}, {percent(nearest.headroom_share)}" if nearest else "No objective to hold against",
            ),
            ReportStat("Largest node excess", seconds(worst.excess_s), f"{worst.name}, work waiting at its peak"),
            ReportStat(
                "Fleet per hour",
                Quantity(money(fleet.cost_per_hour, fleet.currency)),
                f"{counted(unpriced, 'node')} without a price" if unpriced else counted(len(fleet.nodes), "node"),
            ),
        ]
    )


def fleet_blocks(fleet: ReportFleet) -> Iterator[Block]:
    """Excess over time, then nodes, then pools with what they cost."""
    yield ReportHeading("fleet", "Fleet now", "The most excess first")
    if not fleet.nodes:
        yield ReportText("No nodes are registered.")
        return
    drawn = [node for node in fleet.nodes if node.excess][:_DRAWN]
    if drawn:
        finding = (
            f"Work waiting on each node over {seconds(fleet.stretch_s)} of arrivals, in seconds to clear it; "
            f"the most is {seconds(drawn[0].excess_s)} on {drawn[0].name}."
        )
        if len(fleet.nodes) > _DRAWN:
            finding = f"{finding} The {_DRAWN} with most excess are drawn."
        key = [(f"h{step}", text) for step, text in enumerate(("0", "0.5", "1", "2", "4", "6 s or more"))]
        yield ReportPicture(finding, partial(_excess_strips, drawn), key)
    yield ReportTable("nodes", "Nodes", _node_columns(fleet.currency), fleet.nodes)
    if fleet.links:
        names = "; ".join(f"{link.name} {seconds(link.excess_s)}" for link in fleet.links[:6])
        yield ReportText(f"Links that hold records up: {names}.")
    yield ReportTable("pools", "Pools", _pool_columns(fleet.currency), fleet.pools)
    if fleet.without_price:
        yield ReportText(f"{fleet.without_price} nodes have no price: set it at their pool.", quiet=True)


def _node_columns(currency: str) -> list[ReportColumn[ReportNode]]:
    price = partial(money, currency=currency)
    return [
        ReportColumn("Node", "node", "name", strong=True, width=1.5),
        ReportColumn("Pool", "pool", width=1.5),
        ReportColumn("State", "state", write=lambda state: NodeState(state).label, width=1.1),
        ReportColumn("Cores", "cores", num=True, width=0.7),
        ReportColumn("Capacity per core", "capacity_cycles_per_s", "capacity_cps", cps, num=True, width=1.7),
        ReportColumn("Mean load", "mean_load", write=ratio, num=True),
        ReportColumn("Peak load", "peak_load", write=ratio, num=True),
        ReportColumn("Excess", "excess_s", write=seconds, num=True),
        ReportColumn("Price per hour", "price_per_hour", write=price, num=True, width=1.3),
    ]


def _pool_columns(currency: str) -> list[ReportColumn[ReportPool]]:
    price = partial(money, currency=currency)
    return [
        ReportColumn("Pool", "pool", "name", strong=True, width=2),
        ReportColumn("Nodes", "nodes", num=True),
        ReportColumn("Cores each", "cores", num=True),
        ReportColumn("Capacity per core", "capacity_cycles_per_s", "capacity_cps", cps, num=True, width=1.6),
        ReportColumn("Price of a node per hour", "price_per_hour", write=price, num=True, width=1.8),
        ReportColumn("Of the pool", "cost_per_hour", write=price, num=True, width=1.3),
    ]


def _excess_strips(rows: Sequence[ReportNode], width: float) -> Drawing:
    """Excess of each node over the horizon, in six steps of lightness; a cap marks four seconds and more."""
    left = min(max((text_width(row.name, 8.5) for row in rows), default=0) + 8, 0.24 * width)
    bar = width - left - 112.0
    shapes = [
        label(left + bar + 8, 8, "highest excess", size=7),
        label(width, 8, "mean load", size=7, anchor="end"),
    ]
    for i, row in enumerate(rows):
        base = 14 + _STRIP_ROW * (i + 1) - 3
        shapes.append(label(0, base - 1, fitted(row.name, left - 4), size=8.5, colour="ink"))
        shapes += _strip(row.excess, left, bar, base)
        shapes.append(label(left + bar + 8, base - 1, str(seconds(row.excess_s)), size=8, colour="ink-2"))
        shapes.append(label(width, base - 1, str(ratio(row.mean_load)), size=8, colour="ink-2", anchor="end"))
    return Drawing(width, _STRIP_ROW * len(rows) + 14, shapes)


def _strip(values: Sequence[float], left: float, bar: float, base: float) -> list[Shape]:
    """Neighbours of the same step are one rectangle: fewer lines in the file, and no hair between them."""
    shapes = [rect(left, base - 8, bar, 8, fill="h0")]
    count = len(values)
    begin = 0
    for index in range(1, count + 1):
        step = excess_step(values[begin])
        if index < count and excess_step(values[index]) == step:
            continue
        if step:
            x, width = left + begin / count * bar, (index - begin) / count * bar
            shapes.append(rect(x, base - 8, width, 8, fill=f"h{step}"))
            if step >= _CAP_STEP:
                shapes.append(rect(x, base - 9.6, width, 1.6, fill="bad"))
        begin = index
    return shapes
