"""The strip of numbers at the top, and the section of the fleet."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from apps.reports.blocks import Block, Cell, Column, Heading, Picture, Stat, Stats, Table, Text
from apps.reports.drawings.rows import excess_strips
from apps.reports.money import money
from apps.ui.numbers import MISSING, Quantity, cps, percent, ratio, seconds

__all__ = ["fleet_blocks", "summary_blocks"]

_DRAWN = 24
_STATES = {"active": "Active", "draining": "Draining", "offline": "Offline", "planned": "Planned"}
_NODES = (
    Column("Node", "node", width=1.5),
    Column("Pool", "pool", width=1.5),
    Column("State", "state", width=1.1),
    Column("Cores", "cores", num=True, width=0.7),
    Column("Capacity per core", "capacity_cycles_per_s", num=True, width=1.7),
    Column("Mean load", "mean_load", num=True),
    Column("Peak load", "peak_load", num=True),
    Column("Excess", "excess_s", num=True),
    Column("Price per hour", "price_per_hour", num=True, width=1.3),
)
_POOLS = (
    Column("Pool", "pool", width=2),
    Column("Nodes", "nodes", num=True),
    Column("Cores each", "cores", num=True),
    Column("Capacity per core", "capacity_cycles_per_s", num=True, width=1.6),
    Column("Price of a node per hour", "price_per_hour", num=True, width=1.8),
    Column("Of the pool", "cost_per_hour", num=True, width=1.3),
)


def summary_blocks(facts: dict[str, Any]) -> Iterator[Block]:
    """Four values in one band."""
    rows = [row for row in facts["objectives"]["rows"] if row["bound_s"]]
    fleet, counts = facts["fleet"], facts["counts"]
    if not fleet["nodes"]:
        return
    least = rows[0] if rows else None
    worst = fleet["nodes"][0]
    unpriced = fleet["without_price"]
    price = money(fleet["cost_per_hour"], fleet["currency"])
    yield Stats(
        [
            Stat("Objectives that hold", Quantity(str(counts["held"]), f"of {counts['judged']}"), _broken(counts)),
            Stat(
                "Smallest headroom",
                seconds(least["headroom_s"]) if least else Quantity(MISSING),
                f"{least['query']}, {percent(least['headroom_share'])}" if least else "No objective to hold against",
            ),
            Stat("Largest node excess", seconds(worst["excess_s"]), f"{worst['name']}, work waiting at its peak"),
            Stat(
                "Fleet per hour",
                Quantity(price),
                f"{unpriced} nodes without a price" if unpriced else f"{len(fleet['nodes'])} nodes",
            ),
        ]
    )


def _broken(counts: dict[str, int]) -> str:
    if not counts["broken"] and not counts["at_risk"]:
        return "None at risk"
    return f"{counts['broken']} over, {counts['at_risk']} at risk"


def fleet_blocks(facts: dict[str, Any]) -> Iterator[Block]:
    """Excess over time, then nodes, then pools with what they cost."""
    fleet = facts["fleet"]
    nodes, currency = fleet["nodes"], fleet["currency"]
    yield Heading("fleet", "Fleet now", "The most excess first")
    if not nodes:
        yield Text("No nodes are registered.")
        return
    drawn = [node for node in nodes if node["excess"]][:_DRAWN]
    if drawn:
        stretch = seconds(fleet["stretch_s"])
        more = f" The {_DRAWN} with most excess are drawn." if len(nodes) > _DRAWN else ""
        yield Picture(
            f"Work waiting on each node over {stretch} of arrivals, in seconds to clear it; "
            f"the most is {seconds(drawn[0]['excess_s'])} on {drawn[0]['name']}.{more}",
            partial(excess_strips, drawn),
            (*((f"h{step}", text) for step, text in enumerate(("0", "0.5", "1", "2", "4", "6 s or more"))),),
        )
    yield Table("nodes", "Nodes", _NODES, [_node(node, currency) for node in nodes])
    if fleet["links"]:
        names = "; ".join(f"{one['name']} {seconds(one['excess_s'])}" for one in fleet["links"][:6])
        yield Text(f"Links that hold records up: {names}.")
    yield Table("pools", "Pools", _POOLS, [_pool(pool, currency) for pool in fleet["pools"]])
    if fleet["without_price"]:
        yield Text(f"{fleet['without_price']} nodes have no price: set it at their pool.", quiet=True)


def _node(node: dict[str, Any], currency: str) -> list[Cell]:
    return [
        Cell(node["name"], node["name"], strong=True),
        Cell(node["pool"], node["pool"]),
        Cell(_STATES.get(node["state"], node["state"]), node["state"]),
        Cell(str(node["cores"]), node["cores"]),
        Cell(str(cps(node["capacity_cps"])), node["capacity_cps"]),
        Cell(ratio(node["mean_load"]), node["mean_load"]),
        Cell(ratio(node["peak_load"]), node["peak_load"]),
        Cell(str(seconds(node["excess_s"])), node["excess_s"]),
        Cell(money(node["price_per_hour"], currency), node["price_per_hour"]),
    ]


def _pool(pool: dict[str, Any], currency: str) -> list[Cell]:
    price = pool["price_per_hour"]
    total = None if price is None else price * pool["nodes"]
    return [
        Cell(pool["name"], pool["name"], strong=True),
        Cell(str(pool["nodes"]), pool["nodes"]),
        Cell(str(pool["cores"]), pool["cores"]),
        Cell(str(cps(pool["capacity_cps"])), pool["capacity_cps"]),
        Cell(money(price, currency), price),
        Cell(money(total, currency), total),
    ]
