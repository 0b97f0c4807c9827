"""What a decision changes besides starting its query: rates, nodes, objectives, places."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from apps.core.errors import Conflict
from apps.fleet.models import Cluster, Node
from apps.fleet.services import link_create, node_create
from apps.queries.models import Query
from apps.queries.services import placement_move, query_update

__all__ = ["changes_apply", "placement_of", "share_of", "start_of"]


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


def share_of(changes: Sequence[Mapping[str, Any]]) -> float:
    """The share of its sources' events that the query is admitted with."""
    return next((float(change["share"]) for change in changes if change["kind"] == "scale_rate"), 1.0)


def _add_node(cluster: Cluster, candidate: Query, change: Mapping[str, Any]) -> None:
    """A node like another one, with the same links, and links between the two as slow as the worst of them."""
    like = cluster.nodes.select_related("pool").get(name=change["like"])
    node = node_create(
        pool=like.pool, name=change["id"], capacity_cps=change["capacity_cps"], cores=change.get("cores", like.cores)
    )
    out, into = list(like.links_out.all()), list(like.links_in.all())
    for link in out:
        _link(node, link.target, link.bandwidth_bytes_s, link.delay_s)
    for link in into:
        _link(link.source, node, link.bandwidth_bytes_s, link.delay_s)
    if links := out + into:
        bandwidth = min((link.bandwidth_bytes_s for link in links if link.bandwidth_bytes_s is not None), default=None)
        delay_s = max(link.delay_s for link in links)
        _link(like, node, bandwidth, delay_s)
        _link(node, like, bandwidth, delay_s)


def _link(source: Node, target: Node, bandwidth_bytes_s: float | None, delay_s: float) -> None:
    link_create(source=source, target=target, bandwidth_bytes_s=bandwidth_bytes_s, delay_s=delay_s)


def _objective(cluster: Cluster, candidate: Query, change: Mapping[str, Any]) -> None:
    objective = {"statistic": change["statistic"], "bound_s": change["bound_s"]}
    query_update(query=_query(cluster, change["query"]), objective=objective)


def _move(cluster: Cluster, candidate: Query, change: Mapping[str, Any]) -> None:
    """Move a neighbour's operator; the candidate's own moves are part of its decided placement."""
    query_name, _, name = change["operator"].partition("/")
    if query_name != candidate.name:
        where = {"node": change["node"], "core": change.get("core", 0)}
        placement_move(query=_query(cluster, query_name), placement={name: where})


def _query(cluster: Cluster, name: str) -> Query:
    found = cluster.queries.filter(name=name).first()
    if found is None:
        raise Conflict(f"Query {name} of the decision's changes is gone. Preview it again.")
    return found


_HANDLERS: dict[str, Callable[[Cluster, Query, Mapping[str, Any]], None]] = {
    "add_node": _add_node,
    "objective": _objective,
    "move": _move,
}
