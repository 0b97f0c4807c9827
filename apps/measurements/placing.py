"""A live query's placement follows where its operators really run: at the agents' nodes and the stream processor's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apps.measurements.models import OperatorStatistic
from apps.measurements.places import Places
from apps.measurements.plans import PlanOperator
from apps.queries.models import Placement, Query
from apps.queries.services import placement_move
from apps.telemetry.models import LiveQuery
from engine.measurement.changes import rounded_shares, shares_differ, shares_moved
from engine.measurement.pace import News
from engine.measurement.places import STREAM
from engine.measurement.placing import expected_shares

__all__ = ["PlacementNews", "placement_news", "placement_store"]


@dataclass(frozen=True)
class PlacementNews:
    """Operators of a query that run elsewhere than their placement says."""

    query: Query
    placement: Mapping[str, Any]
    news: News


def placement_news(*, live: LiveQuery, operators: list[PlanOperator], places: Places) -> PlacementNews | None:
    """Where operators run; None where nothing differs, or where a place is no node of the cluster.

    Shares are those that were measured last, or else what the load factors say. The stream processor's share is
    spread evenly over the cores of its node, whose tasks run side by side; an operator that neither is stateless nor
    merges stays on one.
    """
    if STREAM not in places.nodes:
        return None
    stored = _stored(live)
    wanted: dict[str, Any] = {}
    moved = 0.0
    for one, shares in zip(operators, _shares(live, operators), strict=True):
        by_node, before = _by_node(shares, places), _summed(stored.get(one.name, []))
        if one.name in stored and by_node and shares_differ(by_node, before):
            wanted[one.name] = _replicas(by_node, places, spread=one.merges or one.at_sources)
            moved = max(moved, shares_moved(by_node, before))
    return PlacementNews(live.query, wanted, News(moved=moved)) if wanted else None


def placement_store(found: PlacementNews) -> None:
    """Move the operators."""
    placement_move(query=found.query, placement=dict(found.placement))


def _shares(live: LiveQuery, operators: list[PlanOperator]) -> list[dict[str, float]]:
    factors = {
        str(row.agent_id): list(row.load_factors)[: live.source_operators]
        for row in live.assignments.filter(enabled=True).select_related("agent")
    }
    expected = expected_shares(factors, len(operators)) if factors else [{STREAM: 1.0} for _ in operators]
    known = {row.fingerprint: row.shares for row in OperatorStatistic.objects.filter(query=live.query)}
    return [known.get(one.fingerprint) or by_load for one, by_load in zip(operators, expected, strict=True)]


def _by_node(shares: dict[str, float], places: Places) -> dict[str, float]:
    """Shares of nodes; what runs at an agent without one is counted as the stream processor's."""
    found: dict[str, float] = {}
    for place, share in shares.items():
        node = places.nodes.get(place) or places.nodes[STREAM]
        found[node.name] = found.get(node.name, 0.0) + share
    return rounded_shares(found)


def _stored(live: LiveQuery) -> dict[str, list[tuple[str, float]]]:
    rows = Placement.objects.filter(operator__version=live.query.running_version_id)
    found: dict[str, list[tuple[str, float]]] = {}
    for name, node, fraction in rows.values_list("operator__name", "node__name", "fraction"):
        found.setdefault(name, []).append((node, fraction))
    return found


def _summed(replicas: list[tuple[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for node, fraction in replicas:
        found[node] = found.get(node, 0.0) + fraction
    return found


def _replicas(by_node: dict[str, float], places: Places, *, spread: bool) -> list[dict[str, Any]]:
    stream = places.nodes[STREAM]
    replicas = []
    for name, share in sorted(by_node.items()):
        cores = stream.cores if spread and name == stream.name else 1
        replicas += [{"node": name, "core": core, "fraction": share / cores} for core in range(cores)]
    return replicas
