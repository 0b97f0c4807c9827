"""The life of a placement search: asked, stopped, stored, forgotten. Applying a proposal is in `applying`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Conflict, Impossible
from apps.core.events import announce
from apps.core.packing import pack_json
from apps.fleet.choices import NodeState
from apps.fleet.models import Cluster
from apps.jobs.choices import JobKind
from apps.jobs.models import Job
from apps.jobs.services import job_submit
from apps.placements.asking import asked_checked, objective_usual
from apps.placements.choices import ENDED, Algorithm, RunState
from apps.placements.models import PlacementMove, PlacementRun
from apps.placements.results import facts_of, move_rows
from apps.queries.choices import QueryState
from apps.queries.snapshots import Snapshot

__all__ = [
    "live_topic",
    "placement_announce",
    "placement_delete",
    "placement_live",
    "placement_request",
    "placement_request_again",
    "placement_started",
    "placement_stop",
    "placement_store",
    "placements_purge",
]

_KEPT = timedelta(days=90)


@transaction.atomic
def placement_request(
    *,
    cluster: Cluster,
    user: User | None,
    algorithm: str = Algorithm.SEARCH,
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
        What is made small; without it what `objective_usual` says.

    Raises
    ------
    Impossible
        There is nothing to place, or nowhere to place it.
    Malformed
        With every fault of what was asked.
    """
    _require_something(cluster)
    asked = asked_checked(
        cluster=cluster,
        algorithm=algorithm,
        objective=objective or objective_usual(cluster),
        budget_s=budget_s,
        seed=seed,
        constraints=constraints or {},
    )
    run = PlacementRun.objects.create(cluster=cluster, requested_by=user, parent=parent, **asked)
    run.job = job_submit(
        kind=JobKind.PLACEMENT,
        title=f"Search a placement of {cluster.slug}",
        params={"placement": str(run.pk)},
        cluster=cluster,
        user=user,
    )
    run.save(update_fields=["job", "updated_at"])
    placement_announce(run)
    return run, run.job


def placement_request_again(*, run: PlacementRun, user: User | None) -> tuple[PlacementRun, Job]:
    """The same search of the cluster as it is now."""
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
    placement_announce(run)
    return run


def placement_started(*, run: PlacementRun, snapshot: Snapshot) -> None:
    """Note what the search looks at; what an earlier attempt left is forgotten."""
    PlacementRun.objects.filter(pk=run.pk).update(
        snapshot=snapshot.digest, snapshot_parts=snapshot.parts, started_at=timezone.now(), live={}
    )
    placement_announce(run)


def placement_live(*, run: PlacementRun, best: Mapping[str, Any]) -> bool:
    """Keep the best so far for whoever looks; gives whether somebody wants the search to stop and keep it."""
    PlacementRun.objects.filter(pk=run.pk).update(live=dict(best))
    announce(live_topic(run))
    return PlacementRun.objects.filter(pk=run.pk, stop_requested=True).exists()


def placement_store(*, run: PlacementRun, answer: Mapping[str, Any]) -> PlacementRun:
    """Keep the proposal and its moves. Called inside the job's transaction."""
    run = PlacementRun.objects.select_for_update(of=("self",)).select_related("cluster").get(pk=run.pk)
    run.result, run.facts, run.live = pack_json(answer), facts_of(answer), {}
    run.state, run.proposed_at = RunState.PROPOSED, timezone.now()
    run.save(update_fields=["result", "facts", "live", "state", "proposed_at", "updated_at"])
    run.moves.all().delete()
    PlacementMove.objects.bulk_create(move_rows(run, answer), batch_size=500)
    placement_announce(run)
    return run


@transaction.atomic
def placement_delete(*, run: PlacementRun) -> None:
    """Forget a run with its moves; what it moved stays where it is."""
    run = PlacementRun.objects.select_for_update(of=("self",)).select_related("cluster").get(pk=run.pk)
    if run.state not in ENDED:
        state = run.get_state_display().lower()
        raise Conflict(f"The run is {state}; stop it before it is deleted.", code="wrong_state")
    announce(f"cluster:{run.cluster.slug}")
    run.delete()


def placements_purge() -> int:
    """Forget runs that ended long ago; returns how many."""
    old = PlacementRun.objects.filter(state__in=ENDED, created_at__lt=timezone.now() - _KEPT)
    return old.delete()[1].get("placements.PlacementRun", 0)


def live_topic(run: PlacementRun) -> str:
    """Announced at most twice a second while the search runs; the run's own topic tells changes of its state."""
    return f"placement-live:{run.pk}"


def placement_announce(run: PlacementRun) -> None:
    """Tell open pages that the run has changed."""
    announce(f"placement:{run.pk}")
    announce(f"placements:{run.cluster.slug}")


def _require_something(cluster: Cluster) -> None:
    if not cluster.nodes.exclude(state=NodeState.OFFLINE).exists():
        message = f"Cluster {cluster.slug} has no node that could take an operator; register one or bring one online."
        raise Impossible(message, [("cluster", f"{cluster.slug} has no nodes")])
    if not cluster.queries.filter(state=QueryState.RUNNING).exists():
        message = f"Nothing runs in cluster {cluster.slug}; admit a query first."
        raise Impossible(message, [("cluster", f"nothing runs in {cluster.slug}")])
