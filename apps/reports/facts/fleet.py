"""The fleet as it is: nodes with load and excess, pools with prices."""

from __future__ import annotations

from collections import Counter
from typing import Any

from apps.estimates.models import EstimateRun
from apps.estimates.selectors import node_estimates
from apps.estimates.servers import ServerLoad, servers_by_node
from apps.fleet.choices import NodeState
from apps.fleet.models import Cluster, Node, NodePool

__all__ = ["fleet_facts"]


def fleet_facts(cluster: Cluster, run: EstimateRun | None) -> dict[str, Any]:
    """`nodes` (the most excess first), `pools`, `links` that hold work up, and what the fleet costs."""
    servers = servers_by_node(node_estimates(run)) if run is not None else []
    by_name = {one.node_name: one for one in servers if one.node_name}
    nodes = list(Node.objects.filter(cluster=cluster).select_related("pool").order_by("name"))
    rows = [_node(node, by_name.get(node.name)) for node in nodes]
    rows.sort(key=lambda row: (-(row["excess_s"] or 0), -(row["peak_load"] or 0), row["name"]))
    priced = [row for row in rows if row["price_per_hour"] is not None and row["state"] != NodeState.OFFLINE]
    unpriced = [row for row in rows if row["price_per_hour"] is None and row["state"] != NodeState.OFFLINE]
    return {
        "nodes": rows,
        "pools": _pools(cluster, nodes),
        "links": [_link(one) for one in servers if not one.node_name and one.excess_s > 0],
        "currency": cluster.currency,
        "cost_per_hour": sum(row["price_per_hour"] for row in priced) if priced else None,
        "without_price": len(unpriced),
        "stretch_s": run.slices * run.slice_s if run is not None else None,
    }


def _node(node: Node, load: ServerLoad | None) -> dict[str, Any]:
    price = node.pool.price_per_hour
    return {
        "name": node.name,
        "pool": node.pool.name,
        "state": node.state,
        "cores": node.cores,
        "capacity_cps": node.capacity_cps,
        "price_per_hour": None if price is None else float(price),
        "mean_load": load.mean_load if load else None,
        "peak_load": load.peak_load if load else None,
        "excess_s": load.excess_s if load else None,
        "excess": load.excess if load else [],
    }


def _link(one: ServerLoad) -> dict[str, Any]:
    return {"name": one.name.replace("->", " to "), "peak_load": one.peak_load, "excess_s": one.excess_s}


def _pools(cluster: Cluster, nodes: list[Node]) -> list[dict[str, Any]]:
    counted = Counter(node.pool_id for node in nodes if node.state != NodeState.OFFLINE)
    return [
        {
            "name": pool.name,
            "nodes": counted[pool.pk],
            "cores": pool.cores,
            "capacity_cps": pool.capacity_cps,
            "price_per_hour": None if pool.price_per_hour is None else float(pool.price_per_hour),
        }
        for pool in NodePool.objects.filter(cluster=cluster).order_by("name")
    ]
