"""The strip of numbers at the top, and the section of the fleet."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from apps.reports.blocks import (
    Block,
    ReportCell,
    ReportColumn,
    ReportHeading,
    ReportPicture,
    ReportStat,
    ReportStats,
    ReportTable,
    ReportText,
)
from apps.reports.drawings import excess_strips
from apps.ui.numbers import MISSING, Quantity, cps, money, percent, ratio, seconds
from engine.words import counted

__all__ = ["fleet_blocks", "summary_blocks"]

_DRAWN = 24
_STATES = {"active": "Active", "draining": "Draining", "offline": "Offline", "planned": "Planned"}
_NODES = (
    ReportColumn("Node", "node", width=1.5),
    ReportColumn("Pool", "pool", width=1.5),
    ReportColumn("State", "state", width=1.1),
    ReportColumn("Cores", "cores", num=True, width=0.7),
    ReportColumn("Capacity per core", "capacity_cycles_per_s", num=True, width=1.7),
    ReportColumn("Mean load", "mean_load", num=True),
    ReportColumn("Peak load", "peak_load", num=True),
    ReportColumn("Excess", "excess_s", num=True),
    ReportColumn("Price per hour", "price_per_hour", num=True, width=1.3),
)
_POOLS = (
    ReportColumn("Pool", "pool", width=2),
    ReportColumn("Nodes", "nodes", num=True),
    ReportColumn("Cores each", "cores", num=True),
    ReportColumn("Capacity per core", "capacity_cycles_per_s", num=True, width=1.6),
    ReportColumn("Price of a node per hour", "price_per_hour", num=True, width=1.8),
    ReportColumn("Of the pool", "cost_per_hour", num=True, width=1.3),
)


def summary_blocks(facts: dict[str, Any]) -> Iterator[Block]:
    """Four values in one band."""
    rows = [row for row in facts["objectives"]["rows"] if row["bound_s"]]
    fleet, counts = facts["fleet"], facts["counts"]
    if not fleet["nodes"]:
        return
    nearest = rows[0] if rows else None
    worst = fleet["nodes"][0]
    unpriced = fleet["without_price"]
    price = money(fleet["cost_per_hour"], fleet["currency"])
    yield ReportStats(
        [
            ReportStat(
                "Objectives that hold", Quantity(str(counts["held"]), f"of {counts['judged']}"), _broken(counts)
            ),
            ReportStat(
                "Smallest headroom",
                seconds(nearest["headroom_s"]) if nearest else Quantity(MISSING),
                f"{nearest['query']}, {percent(nearest['headroom_share'])}"
                if nearest
                else "No objective to hold against",
            ),
            ReportStat("Largest node excess", seconds(worst["excess_s"]), f"{worst['name']}, work waiting at its peak"),
            ReportStat(
                "Fleet per hour",
                Quantity(price),
                f"{counted(unpriced, 'node')} without a price" if unpriced else counted(len(fleet["nodes"]), "node"),
            ),
        ]
    )


def _broken(counts: dict[str, int]) -> str:
    unknown = f", {counts['unknown']} unknown" if counts.get("unknown") else ""
    if not counts["broken"] and not counts["at_risk"]:
        return f"None at risk{unknown}"
    return f"{counts['broken']} over, {counts['at_risk']} at risk{unknown}"


def fleet_blocks(facts: dict[str, Any]) -> Iterator[Block]:
    """Excess over time, then nodes, then pools with what they cost."""
    fleet = facts["fleet"]
    nodes, currency = fleet["nodes"], fleet["currency"]
    yield ReportHeading("fleet", "Fleet now", "The most excess first")
    if not nodes:
        yield ReportText("No nodes are registered.")
        return
    drawn = [node for node in nodes if node["excess"]][:_DRAWN]
    if drawn:
        stretch = seconds(fleet["stretch_s"])
        finding = (
            f"Work waiting on each node over {stretch} of arrivals, in seconds to clear it; "
            f"the most is {seconds(drawn[0]['excess_s'])} on {drawn[0]['name']}."
        )
        if len(nodes) > _DRAWN:
            finding = f"{finding} The {_DRAWN} with most excess are drawn."
        yield ReportPicture(
            finding,
            partial(excess_strips, drawn),
            (*((f"h{step}", text) for step, text in enumerate(("0", "0.5", "1", "2", "4", "6 s or more"))),),
        )
    yield ReportTable("nodes", "Nodes", _NODES, [_node(node, currency) for node in nodes])
    if fleet["links"]:
        names = "; ".join(f"{link['name']} {seconds(link['excess_s'])}" for link in fleet["links"][:6])
        yield ReportText(f"Links that hold records up: {names}.")
    yield ReportTable("pools", "Pools", _POOLS, [_pool(pool, currency) for pool in fleet["pools"]])
    if fleet["without_price"]:
        yield ReportText(f"{fleet['without_price']} nodes have no price: set it at their pool.", quiet=True)


def _node(node: dict[str, Any], currency: str) -> list[ReportCell]:
    return [
        ReportCell(node["name"], node["name"], strong=True),
        ReportCell(node["pool"], node["pool"]),
        ReportCell(_STATES.get(node["state"], node["state"]), node["state"]),
        ReportCell(str(node["cores"]), node["cores"]),
        ReportCell(str(cps(node["capacity_cps"])), node["capacity_cps"]),
        ReportCell(ratio(node["mean_load"]), node["mean_load"]),
        ReportCell(ratio(node["peak_load"]), node["peak_load"]),
        ReportCell(str(seconds(node["excess_s"])), node["excess_s"]),
        ReportCell(money(node["price_per_hour"], currency), node["price_per_hour"]),
    ]


def _pool(pool: dict[str, Any], currency: str) -> list[ReportCell]:
    price = pool["price_per_hour"]
    total = None if price is None else price * pool["nodes"]
    return [
        ReportCell(pool["name"], pool["name"], strong=True),
        ReportCell(str(pool["nodes"]), pool["nodes"]),
        ReportCell(str(pool["cores"]), pool["cores"]),
        ReportCell(str(cps(pool["capacity_cps"])), pool["capacity_cps"]),
        ReportCell(money(price, currency), price),
        ReportCell(money(total, currency), total),
    ]
