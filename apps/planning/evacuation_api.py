"""Evacuations over REST: planned, confirmed, ended, stopped, and as commands for those who carry them out."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import signed_in_user
from apps.core.rest.api import StrictSerializer
from apps.core.rest.records import StoredRecordField
from apps.core.rest.serializers import read_body
from apps.jobs.viewsets import RunDeletion, RunRowSerializer, RunViewSet, describe_create
from apps.planning.choices import EvacuationOrder
from apps.planning.evacuation_commands import evacuation_commands
from apps.planning.evacuation_steps import (
    evacuation_confirm,
    evacuation_finish,
    evacuation_obstacle,
    evacuation_stop,
)
from apps.planning.evacuations import EVACUATION, EvacuationFilter, load_words
from apps.planning.models import Evacuation, EvacuationStep
from apps.planning.placement_moves import MAX_BATCH_SIZE, MAX_PACE
from engine.provisioning.answers.evacuations import EvacuationPlan

__all__ = ["EvacuationViewSet"]


class EvacuationCreateSerializer(StrictSerializer):
    """Nodes that are to be away for a time."""

    cluster = serializers.CharField(help_text="Slug of the cluster.")
    nodes = serializers.ListField(
        child=serializers.CharField(),
        help_text="Names of nodes; rack=r7 stands for every node with that label, pool=large for those of a pool.",
    )
    order = serializers.ChoiceField(
        EvacuationOrder.choices,
        default=EvacuationOrder.TOGETHER,
        help_text="together: all are away at once. each, domain: a rolling upgrade, by node or by failure domain.",
    )
    domain = serializers.CharField(
        default="", allow_blank=True, help_text="Label whose values are failure domains, such as rack."
    )
    starts_at = serializers.DateTimeField(
        required=False, allow_null=True, help_text="Null: as soon as it is confirmed."
    )
    ends_at = serializers.DateTimeField(
        required=False, allow_null=True, help_text="When the nodes are to be back. Null: when told by `finish`."
    )
    hold_s = serializers.FloatField(
        default=0.0, help_text="How long the nodes of each step are away, where steps follow one another."
    )
    back = serializers.BooleanField(default=True, help_text="Whether operators return with their nodes.")
    constraints = serializers.DictField(required=False, help_text="pin, forbid and apart, as of a placement.")
    pace = serializers.FloatField(
        default=1.0, help_text=f"Pause after a batch as a multiple of its estimated duration, 0 to {MAX_PACE:g}."
    )
    batch_size = serializers.IntegerField(
        default=1, help_text=f"At most so many moves at a time, 1 to {MAX_BATCH_SIZE}."
    )


class EvacuationConfirmSerializer(StrictSerializer):
    """Consequences that are accepted with a confirmation."""

    accept_late = serializers.BooleanField(
        default=False, help_text="Whether queries that the plan breaks, or makes late for a time, may be so."
    )


class EvacuationStepSerializer(serializers.ModelSerializer):
    """A step, and how far it is."""

    class Meta:
        model = EvacuationStep
        fields = ["number", "nodes", "state", "placement", "begun_at", "emptied_at", "ended_at", "note"]


class EvacuationSerializer(RunRowSerializer):
    """An evacuation in a list."""

    confirmed_by = serializers.CharField(source="confirmed_by.username", default=None)
    facts = serializers.JSONField(help_text="The plan in a few numbers; empty while it is made.")
    steps = EvacuationStepSerializer(many=True)

    class Meta:
        model = Evacuation
        fields = ["id", "cluster", "state", "message", "nodes", "order", "domain", "starts_at", "ends_at", "hold_s"]
        fields += ["back", "constraints", "pace", "batch_size", "facts", "steps", "job", "requested_by"]
        fields += ["confirmed_by", "confirmed_at", "begun_at", "created_at", "finished_at", "updated_at"]


class EvacuationDetailSerializer(EvacuationSerializer):
    """An evacuation with its plan: moves, queries before and with the nodes away, delays, losses that would do harm."""

    plan = StoredRecordField(EvacuationPlan, source="result")
    load = serializers.SerializerMethodField(help_text="The load that the plan is made for, in words.")
    obstacle = serializers.SerializerMethodField(
        help_text="Why the plan cannot be confirmed, whatever is accepted with it; empty if it can."
    )

    class Meta(EvacuationSerializer.Meta):
        fields = [*EvacuationSerializer.Meta.fields, "snapshot", "load", "obstacle", "plan"]

    def get_load(self, run: Evacuation) -> str:
        return load_words(run) if run.facts else ""

    def get_obstacle(self, run: Evacuation) -> str:
        obstacle = evacuation_obstacle(run)
        return obstacle.message if obstacle else ""


@describe_create(
    "Plan an evacuation. 202 with a job, or the plan with `Prefer: wait=N`.\n\n"
    "Nothing is drained or moved before the plan is confirmed."
)
class EvacuationViewSet(RunDeletion, RunViewSet):
    """Evacuations: nodes emptied together, or one after the other.

    POST plans one. Confirmed, it begins at its time, moves what is on the nodes in batches, and has them back at its
    end. It is stopped and taken back when another node goes away or a query is measured late beyond what was confirmed.
    """

    kind = EVACUATION
    queryset = Evacuation.objects.none()
    filterset_class = EvacuationFilter
    serializer_class, detail_class = EvacuationSerializer, EvacuationDetailSerializer
    question_class = EvacuationCreateSerializer

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Delete an evacuation that is not under way; what it moved stays where it is."""
        return super().destroy(request, *args, **kwargs)

    @extend_schema(request=EvacuationConfirmSerializer, responses=EvacuationDetailSerializer)
    @action(detail=True, methods=["post"])
    def confirm(self, request: Request, pk: str) -> Response:
        """Confirm a plan: it is carried out from its beginning on."""
        how = read_body(EvacuationConfirmSerializer, request)
        return Response(self.shown(evacuation_confirm(run=self.get_object(), user=signed_in_user(request), **how)))

    @extend_schema(request=None, responses=EvacuationDetailSerializer)
    @action(detail=True, methods=["post"])
    def finish(self, request: Request, pk: str) -> Response:
        """End the time that the nodes are away: they are back, and their operators return where that was asked."""
        return Response(self.shown(evacuation_finish(run=self.get_object())))

    @extend_schema(request=None, responses=EvacuationDetailSerializer)
    @action(detail=True, methods=["post"])
    def stop(self, request: Request, pk: str) -> Response:
        """Stop an evacuation: what it moved is taken back, and its nodes take operators again."""
        return Response(self.shown(evacuation_stop(run=self.get_object())))

    @extend_schema(responses={(200, "text/plain"): OpenApiTypes.STR})
    @action(detail=True, methods=["get"])
    def commands(self, request: Request, pk: str) -> HttpResponse:
        """The plan as commands with their times, for what a connected engine runs."""
        return HttpResponse(evacuation_commands(self.get_object()), content_type="text/plain; charset=utf-8")
