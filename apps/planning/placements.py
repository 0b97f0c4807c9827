"""Placement runs as clients see them: what can be done with one now, and the REST API from the search to the moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import signed_in_user
from apps.core.filters import ChoiceFilter, ListFilter, TextFilter, TimeFilter, sort_paths
from apps.core.limits import MAX_NOTE
from apps.core.rest.api import StrictSerializer
from apps.core.rest.serializers import field_type, read_body
from apps.fleet.models import Cluster
from apps.jobs.api import JobSerializer
from apps.jobs.viewsets import RunDeletion, RunRowSerializer, RunViewSet, describe_create
from apps.planning.choices import (
    APPLYING_STATES,
    PLACEMENT_STATES,
    UNDOABLE_STATES,
    MoveState,
    PlacementAlgorithm,
    PlacementObjective,
    RunState,
)
from apps.planning.models import PlacementMove, PlacementRun
from apps.planning.placement_moves import (
    BATCH_SIZE,
    MAX_BATCH_SIZE,
    MAX_PACE,
    changes_since,
    placement_abort,
    placement_apply,
    placement_done,
    placement_undo,
)
from apps.planning.placement_parameters import MAX_BUDGET_S, MAX_SEED
from apps.planning.placement_search import PLACEMENT, placement_stop
from apps.queries.snapshots.parts import parts_shown

__all__ = ["PlacementFilter", "PlacementStanding", "PlacementViewSet", "placement_in_progress", "placement_standing"]


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


def placement_in_progress(cluster: Cluster) -> PlacementRun | None:
    """The run that is being applied or undone in a cluster."""
    return PLACEMENT.visible().filter(cluster=cluster, state__in=APPLYING_STATES).first()


def placement_standing(run: PlacementRun, *, compare: bool = True) -> PlacementStanding:
    """Compare a run with the cluster as it is now; without `compare` as if nothing had moved, which is quicker."""
    is_proposal, is_undoable = run.state == RunState.PROPOSED, False
    if run.state in UNDOABLE_STATES:
        is_undoable = run.moves.filter(state=MoveState.DONE).exists()
    if not is_proposal and not is_undoable:
        return PlacementStanding((), False, False, f"The run is {run.get_state_display().lower()}.")
    digest, parts = (run.snapshot, run.snapshot_parts) if is_proposal else (run.expected, run.expected_parts)
    taken_by = lambda: run.job if is_proposal else run.moves_job  # noqa: E731
    changes = changes_since(digest, parts, parts_shown(run.cluster, taken_by)) if compare else []
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


class PlacementFilter(ListFilter):
    """`?cluster=eu-1&state=proposed&state=applied`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    state = ChoiceFilter(choices=PLACEMENT_STATES)
    created_at = TimeFilter()
    applied_at = TimeFilter()
    sorts = sort_paths("created_at", "finished_at", "applied_at", "state", "objective", cluster="cluster__slug")


class PlacementCreateSerializer(StrictSerializer):
    """A search for a better placement of what runs in a cluster."""

    cluster = serializers.CharField(help_text="Slug of the cluster.")
    algorithm = serializers.ChoiceField(choices=PlacementAlgorithm.choices, default=PlacementAlgorithm.SEARCH)
    objective = serializers.ChoiceField(
        choices=PlacementObjective.choices,
        required=False,
        help_text="worst: the largest Mace of any core. objectives: the largest priority-weighted latency over bound, "
        "the default where a running query has an objective.",
    )
    budget_s = serializers.FloatField(default=5.0, help_text=f"Seconds to search, up to {MAX_BUDGET_S:g}.")
    seed = serializers.IntegerField(default=0, help_text=f"Of the random numbers, 0 to {MAX_SEED}.")
    constraints = serializers.DictField(
        required=False,
        help_text="As in deployment documents: pin, forbid, apart, max_moves, may_split. "
        "Operators are named query/operator.",
    )


class PlacementApplySerializer(StrictSerializer):
    """Parameters of applying moves."""

    pace = serializers.FloatField(
        default=1.0, help_text=f"Pause after a batch as a multiple of its estimated duration, 0 to {MAX_PACE:g}."
    )
    batch_size = serializers.IntegerField(
        default=BATCH_SIZE, help_text=f"At most so many moves at a time, 1 to {MAX_BATCH_SIZE}."
    )


class PlacementDoneSerializer(StrictSerializer):
    """Note on how an engine made the moves."""

    note = serializers.CharField(max_length=MAX_NOTE, help_text="What was done, and where.")


class PlacementMoveSerializer(serializers.ModelSerializer):
    """A move of a proposal."""

    class Meta:
        model = PlacementMove
        fields = ["number", "batch", "operator", "query", "kind", "before", "after", "why", "state_bytes"]
        fields += ["duration_s", "bump_s", "bump_query", "state", "applied_at"]


class PlacementSerializer(RunRowSerializer):
    """A run in a list."""

    applied_by = serializers.CharField(source="applied_by.username", default=None)
    done_by = serializers.CharField(source="done_by.username", default=None)
    facts = serializers.JSONField(help_text="The proposal in a few numbers; empty while it is looked for.")

    class Meta:
        model = PlacementRun
        fields = ["id", "cluster", "state", "message", "algorithm", "objective", "budget_s", "seed", "constraints"]
        fields += ["facts", "job", "moves_job", "parent", "requested_by", "applied_by", "batches", "pace"]
        fields += ["done_at", "done_by", "done_note"]
        fields += ["created_at", "started_at", "proposed_at", "applied_at", "finished_at", "updated_at"]


class PlacementDetailSerializer(PlacementSerializer):
    """A run whole: the proposal with before and after per query, and its moves in order with what became of each."""

    snapshot = serializers.CharField()
    live = serializers.JSONField(help_text="Best so far while it searches; empty otherwise.")
    proposal = serializers.SerializerMethodField(
        help_text="The engine's answer: queries before and after, nodes, bound and gap; null while it is looked for."
    )
    moves = PlacementMoveSerializer(many=True)
    moves_done = serializers.SerializerMethodField()
    standing = serializers.SerializerMethodField(help_text="What can be done with it now.")

    class Meta(PlacementSerializer.Meta):
        fields = [*PlacementSerializer.Meta.fields, "snapshot", "live", "proposal", "moves", "moves_done", "standing"]

    @field_type(dict[str, Any] | None)
    def get_proposal(self, run: PlacementRun) -> Any:
        """Without its moves, which stand beside it with what became of them."""
        answer = run.result
        return None if answer is None else {key: value for key, value in answer.items() if key != "moves"}

    def get_moves_done(self, run: PlacementRun) -> int:
        return sum(move.state == MoveState.DONE for move in run.moves.all())

    @field_type(dict[str, Any])
    def get_standing(self, run: PlacementRun) -> Any:
        standing = placement_standing(run)
        return {
            "stale": standing.is_stale,
            "changed": list(standing.changes),
            "can_apply": standing.can_apply,
            "can_undo": standing.can_undo,
            "why_not": standing.why_not,
        }


_ANSWER = {200: PlacementDetailSerializer, 202: JobSerializer}


@describe_create(
    "Search a placement. 202 with a job, or the proposal with `Prefer: wait=N`.\n\n"
    "Nothing moves before the proposal is applied."
)
class PlacementViewSet(RunDeletion, RunViewSet):
    """Placement runs. POST searches: 202 with a job, or the proposal with `Prefer: wait=N`.

    Nothing moves before the proposal is applied. Applying is refused with 409 when the cluster has moved since the
    search looked at it; `changed` says what. Moves are made in batches, as a job that can be aborted and undone.
    """

    kind = PLACEMENT
    queryset = PlacementRun.objects.none()
    filterset_class = PlacementFilter
    serializer_class, detail_class = PlacementSerializer, PlacementDetailSerializer
    question_class = PlacementCreateSerializer

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Delete a run that has ended; what it moved stays where it is."""
        return super().destroy(request, *args, **kwargs)

    @extend_schema(request=None, responses=PlacementDetailSerializer)
    @action(detail=True, methods=["post"])
    def stop(self, request: Request, pk: str) -> Response:
        """Stop a search and keep the best so far as its proposal. Cancelling its job keeps nothing."""
        return Response(self.shown(placement_stop(run=self.get_object())))

    @extend_schema(request=PlacementApplySerializer, responses=_ANSWER)
    @action(detail=True, methods=["post"])
    def apply(self, request: Request, pk: str) -> Response:
        """Apply the moves of a proposal, batch by batch."""
        how = read_body(PlacementApplySerializer, request)
        return self.answer(request, *placement_apply(run=self.get_object(), user=signed_in_user(request), **how))

    @extend_schema(request=None, responses=PlacementDetailSerializer)
    @action(detail=True, methods=["post"])
    def abort(self, request: Request, pk: str) -> Response:
        """Abort after the current batch; what was moved stays."""
        return Response(self.shown(placement_abort(run=self.get_object())))

    @extend_schema(request=PlacementDoneSerializer, responses=PlacementDetailSerializer)
    @action(detail=True, methods=["post"])
    def done(self, request: Request, pk: str) -> Response:
        """Say that an engine made the moves of an applied run, which Sluice records alone."""
        note = read_body(PlacementDoneSerializer, request)["note"]
        return Response(self.shown(placement_done(run=self.get_object(), note=note, user=signed_in_user(request))))

    @extend_schema(request=None, responses=_ANSWER)
    @action(detail=True, methods=["post"])
    def undo(self, request: Request, pk: str) -> Response:
        """Move back what was moved, the last batch first; refused if anything else has moved since."""
        return self.answer(request, *placement_undo(run=self.get_object(), user=signed_in_user(request)))
