"""Placement searches: requested, stopped, stored and deleted. Applying a proposal is in `moves`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Conflict, Impossible
from apps.core.events import announce
from apps.fleet.choices import NodeState
from apps.fleet.models import Cluster
from apps.jobs.models import Job
from apps.planning.choices import ENDED_STATES, PlacementAlgorithm, RunState
from apps.planning.models import PlacementMove, PlacementRun
from apps.planning.placements.parameters import check_parameters, objective_default
from apps.planning.runs import PLACEMENT
from apps.queries.choices import QueryState
from apps.queries.snapshots.cluster import Snapshot

__all__ = [
    "live_topic",
    "move_rows",
    "placement_delete",
    "placement_facts",
    "placement_live",
    "placement_request",
    "placement_request_again",
    "placement_started",
    "placement_stop",
    "placement_store",
]


def placement_facts(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Figures of a proposal for lists."""
    kept = ("objective", "value_before", "value_after", "mace_before_s", "mace_after_s", "flow_before_s")
    kept += ("flow_after_s", "bound_s", "bound_kind", "gap", "stopped", "elapsed_s", "rounds")
    facts = {name: answer.get(name) for name in kept}
    facts["moves"] = len(answer["moves"])
    facts["queries"], facts["operators"] = len(answer["queries"]), len(answer["placement"])
    facts["duration_s"] = sum(move["duration_s"] or 0.0 for move in answer["moves"])
    for moment in ("before", "after"):
        states = [query[f"{moment}_state"] for query in answer["queries"]]
        facts[f"breached_{moment}"] = states.count("breached")
        facts[f"tightest_{moment}"] = _tightest(answer["queries"], f"{moment}_s")
    return facts


def _tightest(queries: Sequence[Mapping[str, Any]], moment: str) -> dict[str, Any] | None:
    """The query whose latency is the largest share of its objective, priorities left out; None without any."""
    shares = {q["query"]: q[moment] / q["bound_s"] for q in queries if q["bound_s"] and q[moment] is not None}
    name = max(shares, key=lambda query: shares[query], default=None)
    return None if name is None else {"query": name, "share": shares[name]}


def move_rows(run: PlacementRun, answer: Mapping[str, Any]) -> list[PlacementMove]:
    """One unsaved row per move, in order."""
    return [_row(run, number, move) for number, move in enumerate(answer["moves"], start=1)]


def _row(run: PlacementRun, number: int, move: Mapping[str, Any]) -> PlacementMove:
    return PlacementMove(
        run=run,
        number=number,
        operator=move["operator"],
        query=move["query"] or move["operator"].partition("/")[0],
        before=_replicas(move["from"]),
        after=_replicas(move["to"]),
        kind=move["kind"],
        why=str(move.get("why") or "")[:300],
        state_bytes=move.get("state_bytes"),
        duration_s=move.get("duration_s") or 0.0,
        bump_s=move.get("bump_s") or 0.0,
        bump_query=move.get("bump_query") or "",
    )


def _replicas(parts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"node": part["node"], "core": part.get("core", 0), "fraction": part.get("fraction", 1.0)} for part in parts
    ]


@transaction.atomic
def placement_request(
    *,
    cluster: Cluster,
    user: User | None,
    algorithm: str = PlacementAlgorithm.SEARCH,
    objective: str | None = None,
    budget_s: float = 5.0,
    seed: int = 0,
    constraints: Mapping[str, Any] | None = None,
    parent: PlacementRun | None = None,
) -> tuple[PlacementRun, Job]:
    """Look for a better placement of everything that runs in `cluster`.

    Parameters
    ----------
    objective : str, optional
        What is made small; without it what `objective_default` says.

    Raises
    ------
    Impossible
        There is nothing to place, or nowhere to place it.
    Malformed
        With every fault of what was asked.
    """
    _require_placeable(cluster)
    asked = check_parameters(
        cluster=cluster,
        algorithm=algorithm,
        objective=objective or objective_default(cluster),
        budget_s=budget_s,
        seed=seed,
        constraints=constraints or {},
    )
    run = PlacementRun.objects.create(cluster=cluster, requested_by=user, parent=parent, **asked)
    return run, PLACEMENT.submit(run, cluster, user)


def placement_request_again(*, run: PlacementRun, user: User | None) -> tuple[PlacementRun, Job]:
    """Repeat a search on the present cluster."""
    asked = {name: getattr(run, name) for name in ("algorithm", "objective", "budget_s", "seed", "constraints")}
    return placement_request(cluster=run.cluster, user=user, parent=run, **asked)


@transaction.atomic
def placement_stop(*, run: PlacementRun) -> PlacementRun:
    """Stop a search and keep the best so far as its proposal. Cancelling its job instead keeps nothing."""
    run = PlacementRun.objects.select_for_update(of=("self",)).select_related("cluster", "job").get(pk=run.pk)
    if run.state != RunState.SEARCHING:
        state = run.get_state_display().lower()
        raise Conflict(f"The run is {state}; only a search can be stopped.", code="wrong_state")
    run.stop_requested = True
    run.save(update_fields=["stop_requested", "updated_at"])
    PLACEMENT.announce(run)
    return run


def placement_started(*, run: PlacementRun, snapshot: Snapshot) -> None:
    """Store the snapshot of a search that begins; what an earlier attempt left is dropped."""
    PlacementRun.objects.filter(pk=run.pk).update(
        snapshot=snapshot.digest, snapshot_parts=snapshot.parts, started_at=timezone.now(), live={}
    )
    PLACEMENT.announce(run)


def placement_live(*, run: PlacementRun, best: Mapping[str, Any]) -> bool:
    """Store the best so far for the page; returns whether the search is to stop and keep it."""
    PlacementRun.objects.filter(pk=run.pk).update(live=dict(best))
    announce(live_topic(run))
    return PlacementRun.objects.filter(pk=run.pk, stop_requested=True).exists()


def placement_store(*, run: PlacementRun, answer: Mapping[str, Any]) -> PlacementRun:
    """Store the proposal and its moves. Called inside the job's transaction."""
    run = PlacementRun.objects.select_for_update(of=("self",)).select_related("cluster").get(pk=run.pk)
    run.result, run.facts, run.live = dict(answer), placement_facts(answer), {}
    run.state, run.proposed_at = RunState.PROPOSED, timezone.now()
    run.save(update_fields=["result", "facts", "live", "state", "proposed_at", "updated_at"])
    run.moves.all().delete()
    PlacementMove.objects.bulk_create(move_rows(run, answer), batch_size=500)
    PLACEMENT.announce(run)
    return run


@transaction.atomic
def placement_delete(*, run: PlacementRun) -> None:
    """Delete a run with its moves; what it moved stays where it is."""
    run = PlacementRun.objects.select_for_update(of=("self",)).select_related("cluster").get(pk=run.pk)
    if run.state not in ENDED_STATES:
        state = run.get_state_display().lower()
        raise Conflict(f"The run is {state}; stop it before it is deleted.", code="wrong_state")
    announce(f"cluster:{run.cluster.slug}")
    run.delete()


def live_topic(run: PlacementRun) -> str:
    """Topic of a running search, announced at most twice a second; the run's own topic tells changes of its state."""
    return f"placement-live:{run.pk}"


def _require_placeable(cluster: Cluster) -> None:
    if not cluster.nodes.exclude(state=NodeState.OFFLINE).exists():
        message = f"Cluster {cluster.slug} has no node that could take an operator; register one or bring one online."
        raise Impossible(message, [("cluster", f"{cluster.slug} has no nodes")])
    if not cluster.queries.filter(state=QueryState.RUNNING).exists():
        message = f"Nothing runs in cluster {cluster.slug}; admit a query first."
        raise Impossible(message, [("cluster", f"nothing runs in {cluster.slug}")])
