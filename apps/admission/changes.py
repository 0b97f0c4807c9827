"""What a decision changes besides starting its query: rates, nodes, objectives, places."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from apps.core.errors import Conflict
from apps.fleet.models import Cluster, Node
from apps.fleet.services import node_create
from apps.queries.models import Operator, Placement, Query

__all__ = ["changes_apply", "placement_of", "start_of"]


def changes_apply(cluster: Cluster, candidate: Query, changes: Sequence[Mapping[str, Any]]) -> None:
    """Carry out the changes that the decision rests on. The candidate's own placement comes with its start."""
    for change in changes:
        handler = _HANDLERS.get(change["kind"])
        if handler is not None:
            handler(cluster, candidate, change)


def placement_of(query: Query, decision: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The decided replicas of each of the query's operators, by the operator's name within the query."""
    prefix = f"{query.name}/"
    return {
        operator.removeprefix(prefix): list(replicas)
        for operator, replicas in decision["placement"].items()
        if operator.startswith(prefix)
    }


def start_of(changes: Sequence[Mapping[str, Any]]) -> float:
    """Seconds into the horizon at which the query starts to read; 0 unless it was queued."""
    return max((float(change["seconds"]) for change in changes if change["kind"] == "start_at"), default=0.0)


def _scale_rate(cluster: Cluster, candidate: Query, change: Mapping[str, Any]) -> None:
    query = _query(cluster, change["query"])
    query.rate_share = change["share"]
    query.save(update_fields=["rate_share", "updated_at"])


def _add_node(cluster: Cluster, candidate: Query, change: Mapping[str, Any]) -> None:
    like = cluster.nodes.select_related("pool").get(name=change["like"])
    node_create(
        pool=like.pool,
        name=change["id"],
        capacity_cps=change.get("capacity_cps", like.capacity_cps),
        cores=change.get("cores", like.cores),
    )


def _objective(cluster: Cluster, candidate: Query, change: Mapping[str, Any]) -> None:
    query = _query(cluster, change["query"])
    query.objective_statistic, query.objective_bound_s = change["statistic"], change["bound_s"]
    query.save(update_fields=["objective_statistic", "objective_bound_s", "updated_at"])


def _move(cluster: Cluster, candidate: Query, change: Mapping[str, Any]) -> None:
    """Move a neighbour's operator whole; the candidate's own moves are part of its decided placement."""
    query_name, _, name = change["operator"].partition("/")
    if query_name == candidate.name:
        return
    operator = Operator.objects.get(version__running_as=_query(cluster, query_name), name=name)
    node = Node.objects.get(cluster=cluster, name=change["node"])
    operator.placements.all().delete()
    Placement.objects.create(operator=operator, node=node, core=change.get("core", 0))


def _query(cluster: Cluster, name: str) -> Query:
    found = cluster.queries.filter(name=name).first()
    if found is None:
        raise Conflict(f"Query {name} of the decision's changes is gone. Preview it again.")
    return found


_HANDLERS: dict[str, Callable[[Cluster, Query, Mapping[str, Any]], None]] = {
    "scale_rate": _scale_rate,
    "add_node": _add_node,
    "objective": _objective,
    "move": _move,
}
