"""Reading placement runs: lists, proposals, and what can be done with a run now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from apps.fleet.models import Cluster
from apps.planning.choices import APPLYING_STATES, UNDOABLE_STATES, MoveState, RunState
from apps.planning.models import PlacementRun
from apps.planning.placements.moves import changes_since
from apps.queries.snapshots.cluster import cluster_snapshot

__all__ = ["PlacementStanding", "placement_in_progress", "placement_standing", "placements_visible"]


@dataclass(frozen=True)
class PlacementStanding:
    """Actions that a run allows now, and the reason when it allows none."""

    changes: Sequence[str]
    can_apply: bool
    can_undo: bool
    why_not: str

    @property
    def is_stale(self) -> bool:
        return bool(self.changes)


def placements_visible() -> QuerySet[PlacementRun]:
    """Every run without its bulk, newest first."""
    rows = PlacementRun.objects.select_related("cluster", "job", "moves_job", "requested_by", "applied_by")
    return rows.defer("snapshot_parts", "expected_parts", "result", "live")


def placement_in_progress(cluster: Cluster) -> PlacementRun | None:
    """The run that is being applied or undone in a cluster."""
    return placements_visible().filter(cluster=cluster, state__in=APPLYING_STATES).first()


def placement_standing(run: PlacementRun, *, compare: bool = True) -> PlacementStanding:
    """Compare a run with the cluster as it is now; without `compare` as if nothing had moved, which is quicker."""
    is_proposal, is_undoable = run.state == RunState.PROPOSED, False
    if run.state in UNDOABLE_STATES:
        is_undoable = run.moves.filter(state=MoveState.DONE).exists()
    if not is_proposal and not is_undoable:
        return PlacementStanding((), False, False, f"The run is {run.get_state_display().lower()}.")
    digest, parts = (run.snapshot, run.snapshot_parts) if is_proposal else (run.expected, run.expected_parts)
    changes = changes_since(digest, parts, cluster_snapshot(run.cluster)) if compare else []
    other = placement_in_progress(run.cluster)
    why_not = _why_not(run, changes, other)
    free = not why_not
    return PlacementStanding(changes, is_proposal and free, is_undoable and free, why_not)


def _why_not(run: PlacementRun, changes: Sequence[str], other: PlacementRun | None) -> str:
    if changes:
        since = "the search looked at it" if run.state == RunState.PROPOSED else "this run left it"
        return f"The cluster has moved since {since}: {', '.join(changes[:5])}."
    if other is not None:
        return f"Another run is {other.get_state_display().lower()}; wait until it has ended, or abort it."
    if run.state == RunState.PROPOSED and not run.facts.get("moves"):
        return "The proposal moves nothing: what runs now is its answer."
    return ""
