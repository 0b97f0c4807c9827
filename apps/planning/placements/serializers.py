"""Placement runs as the REST API takes and shows them."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.core.rest.api import StrictSerializer
from apps.core.rest.serializers import field_type
from apps.planning.choices import MoveState, PlacementAlgorithm, PlacementObjective
from apps.planning.models import PlacementMove, PlacementRun
from apps.planning.placements.moves import BATCH_SIZE, MAX_BATCH_SIZE, MAX_PACE
from apps.planning.placements.parameters import MAX_BUDGET_S, MAX_SEED
from apps.planning.placements.selectors import placement_standing

__all__ = [
    "PlacementApplySerializer",
    "PlacementCreateSerializer",
    "PlacementDetailSerializer",
    "PlacementMoveSerializer",
    "PlacementSerializer",
]


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


class PlacementMoveSerializer(serializers.ModelSerializer):
    """A move of a proposal."""

    class Meta:
        model = PlacementMove
        fields = ["number", "batch", "operator", "query", "kind", "before", "after", "why", "state_bytes"]
        fields += ["duration_s", "bump_s", "bump_query", "state", "applied_at"]


class PlacementSerializer(serializers.ModelSerializer):
    """A run in a list."""

    cluster = serializers.CharField(source="cluster.slug")
    requested_by = serializers.CharField(source="requested_by.username", default=None)
    applied_by = serializers.CharField(source="applied_by.username", default=None)
    facts = serializers.JSONField(help_text="The proposal in a few numbers; empty while it is looked for.")

    class Meta:
        model = PlacementRun
        fields = ["id", "cluster", "state", "message", "algorithm", "objective", "budget_s", "seed", "constraints"]
        fields += ["facts", "job", "moves_job", "parent", "requested_by", "applied_by", "batches", "pace"]
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
    def get_proposal(self, run: PlacementRun) -> dict[str, Any] | None:
        """Without its moves, which stand beside it with what became of them."""
        answer = run.result
        return None if answer is None else {key: value for key, value in answer.items() if key != "moves"}

    def get_moves_done(self, run: PlacementRun) -> int:
        return sum(move.state == MoveState.DONE for move in run.moves.all())

    @field_type(dict[str, Any])
    def get_standing(self, run: PlacementRun) -> dict[str, Any]:
        standing = placement_standing(run)
        return {
            "stale": standing.is_stale,
            "changed": list(standing.changes),
            "can_apply": standing.can_apply,
            "can_undo": standing.can_undo,
            "why_not": standing.why_not,
        }
