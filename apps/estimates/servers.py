"""Servers of an estimate put together as people see them: a node's cores as one line, a link as another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest

from apps.estimates.models import NodeEstimate

__all__ = ["ServerLoad", "servers_by_node"]


@dataclass(frozen=True)
class ServerLoad:
    """A node or link in an estimate. For a node: its busiest core's load, and at each time its largest excess."""

    name: str
    node_name: str
    mean_load: float
    peak_load: float
    excess_s: float
    excess: list[float]


def servers_by_node(rows: Iterable[NodeEstimate]) -> list[ServerLoad]:
    """One entry per node and per link, the most excess first, then the highest load."""
    groups: dict[str, list[NodeEstimate]] = {}
    for row in rows:
        groups.setdefault(row.node_name or row.server, []).append(row)
    merged = [_merged(name, cores) for name, cores in groups.items()]
    return sorted(merged, key=lambda one: (-one.excess_s, -one.peak_load, one.name))


def _merged(name: str, cores: list[NodeEstimate]) -> ServerLoad:
    busiest = max(cores, key=lambda core: core.mean_load)
    return ServerLoad(
        name=name,
        node_name=busiest.node_name,
        mean_load=busiest.mean_load,
        peak_load=max(core.peak_load for core in cores),
        excess_s=max(core.excess_s for core in cores),
        excess=[max(values) for values in zip_longest(*(core.excess for core in cores), fillvalue=0.0)],
    )
