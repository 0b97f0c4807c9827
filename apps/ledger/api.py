"""REST: the changes of objects, and taking them back."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any
from uuid import UUID

from django.apps import apps
from django.urls import URLPattern, URLResolver, path
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.core.limits import MAX_REASON
from apps.core.reach import AskedOn, row_visible
from apps.core.rest.api import ApiMixin, ReadViewSet, Router, StrictSerializer
from apps.core.rest.serializers import field_type
from apps.ledger.models import ObjectChange
from apps.ledger.moments import ObjectDifference, cluster_compare
from apps.ledger.selectors import ChangeFilter, changes_check, changes_listed, shown_fields
from apps.ledger.undo import change_undo, group_undo, undo_obstacle
from apps.ledger.webhook_api import LedgerWebhookRetryView, LedgerWebhookTestView, LedgerWebhookView
from apps.ledger.words import FieldWords, ObjectNames, change_words

__all__ = [
    "ChangeSerializer",
    "ChangeViewSet",
    "ComparisonView",
    "FieldWordsSerializer",
    "GroupUndoView",
    "UndoSerializer",
]


class FieldWordsSerializer(serializers.Serializer[FieldWords]):
    """A field that has changed, in words."""

    field = serializers.CharField(help_text="Its name, as in `before` and `after`.")
    label = serializers.CharField()
    before = serializers.CharField()
    after = serializers.CharField()


class ChangeSerializer(serializers.ModelSerializer):
    """A change of an object; of a changed one, `before` and `after` have the fields that differ."""

    before = serializers.SerializerMethodField(help_text="{field: value}, or null for a new object.")
    after = serializers.SerializerMethodField(help_text="{field: value}, or null for a deleted object.")
    words = serializers.SerializerMethodField(help_text="Fields that differ, as readers know them; else empty.")
    undone_by = serializers.SerializerMethodField(help_text="The change that took it back.")
    not_undoable = serializers.SerializerMethodField(help_text="Why it cannot be taken back; empty: it may be tried.")

    class Meta:
        model = ObjectChange
        fields = ["id", "kind", "object_id", "name", "cluster", "action", "at", "before", "after", "words"]
        fields += [
            "user",
            "token",
            "job",
            "address",
            "request_id",
            "why",
            "group",
            "cause",
            "undoes",
            "undone_by",
            "not_undoable",
        ]
        fields += ["number", "prev_hash", "hash"]

    @field_type(dict[str, Any] | None)
    def get_before(self, change: ObjectChange) -> dict[str, Any] | None:
        return self._shown(change, change.before)

    @field_type(dict[str, Any] | None)
    def get_after(self, change: ObjectChange) -> dict[str, Any] | None:
        return self._shown(change, change.after)

    @extend_schema_field(FieldWordsSerializer(many=True))
    def get_words(self, change: ObjectChange) -> list[dict[str, str]]:
        names = self.context.setdefault("object_names", ObjectNames())  # of all rows: each name is looked up once
        return [asdict(line) for line in change_words(change, names, may_change=self._may_change)]

    def _shown(self, change: ObjectChange, fields: dict[str, Any] | None) -> dict[str, Any] | None:
        return shown_fields(change, fields, may_change=self._may_change)

    @property
    def _may_change(self) -> bool:
        request = self.context["request"]
        return "operate" in request.user.scopes and bool({"operate", "admin"} & _scopes_held(request))

    @field_type(int | None)
    def get_undone_by(self, change: ObjectChange) -> int | None:
        return change.undone.pk if hasattr(change, "undone") else None

    @field_type(str)
    def get_not_undoable(self, change: ObjectChange) -> str:
        return undo_obstacle(change)


class UndoSerializer(StrictSerializer):
    """Reason for taking a change back."""

    why = serializers.CharField(required=False, allow_blank=True, default="", max_length=MAX_REASON)


def _why(request: Request) -> str:
    serializer = UndoSerializer(data=request.data)
    serializer.is_valid(raise_exception=True)
    return str(serializer.validated_data["why"])


def _scopes_held(request: Request) -> set[str]:
    """Scopes that a request may use: a token may have fewer than its owner."""
    own = set(getattr(request.user, "scopes", ()))
    return own & set(getattr(request.auth, "scopes", own))


class ChangeViewSet(ReadViewSet):
    """Changes of objects, newest first: who, when, why, before and after. Those of people and tokens are for admins."""

    queryset = ObjectChange.objects.none()
    serializer_class = ChangeSerializer
    filterset_class = ChangeFilter
    ordering = "-pk"

    def get_queryset(self) -> Any:
        return changes_listed(of_people="admin" in _scopes_held(self.request))

    @extend_schema(request=UndoSerializer, responses=ChangeSerializer, filters=False)
    @action(detail=True, methods=["post"], pagination_class=None, filterset_class=None)
    def undo(self, request: Request, pk: str | None = None) -> Response:
        """Take a change back, if its object is still as it left it. Answers with the change that does it."""
        undoing = change_undo(pk=self.get_object().pk, why=_why(request))
        return Response(self.get_serializer(changes_listed(of_people=True).get(pk=undoing.pk)).data)


class GroupUndoView(ApiMixin, APIView):
    """All changes of one request."""

    asked_on = AskedOn.NARROWED

    @extend_schema(request=UndoSerializer, responses=ChangeSerializer(many=True))
    def post(self, request: Request, group: UUID) -> Response:
        """Take back all changes of a request, the last first: all of them or none."""
        changes_check(str(group))
        undoing = group_undo(group=str(group), why=_why(request))
        rows = changes_listed(of_people=True).filter(pk__in=[change.pk for change in undoing]).order_by("-pk")
        return Response(ChangeSerializer(rows, many=True, context={"request": request}).data)


class ComparisonAskSerializer(StrictSerializer):
    """A cluster and two moments."""

    cluster = serializers.CharField(help_text="Its slug.")
    since = serializers.DateTimeField(help_text="The earlier moment, ISO 8601.")
    until = serializers.DateTimeField(required=False, help_text="The later one; now unless given.")

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        until = values.setdefault("until", timezone.now())
        if values["since"] >= until:
            message = f"it is {values['since'].isoformat()}; allowed: before {until.isoformat()}, the later moment"
            raise serializers.ValidationError({"since": message})
        return values


class DifferenceSerializer(serializers.Serializer):
    """An object that is not at the later moment as it was at the earlier one."""

    kind = serializers.CharField()
    object_id = serializers.CharField()
    name = serializers.CharField()
    before = serializers.SerializerMethodField(help_text="Fields that differ; null: it did not exist.")
    after = serializers.SerializerMethodField(help_text="The same at the later moment; null: it was deleted.")
    changes = serializers.SerializerMethodField(help_text="Ids of the changes between, the oldest first.")
    not_undoable = serializers.CharField(source="obstacle", help_text="Why it cannot go back; empty: it may be tried.")

    @field_type(dict[str, Any] | None)
    def get_before(self, found: ObjectDifference) -> dict[str, Any] | None:
        return self._shown(found, found.before)

    @field_type(dict[str, Any] | None)
    def get_after(self, found: ObjectDifference) -> dict[str, Any] | None:
        return self._shown(found, found.after)

    @field_type(list[int])
    def get_changes(self, found: ObjectDifference) -> list[int]:
        return [change.pk for change in found.changes]

    def _shown(self, found: ObjectDifference, fields: dict[str, Any] | None) -> dict[str, Any] | None:
        return shown_fields(found.changes[-1], fields, may_change="operate" in _scopes_held(self.context["request"]))


class ComparisonSerializer(serializers.Serializer):
    """A cluster at two moments."""

    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    reaches_back = serializers.BooleanField(
        help_text="Whether the ledger reaches back to the earlier moment: else nothing is known of what lies before it."
    )
    left_out = serializers.IntegerField(help_text="Changes beyond the newest 5000, which are not compared.")
    differences = DifferenceSerializer(many=True)


_MOMENTS = [
    OpenApiParameter("cluster", str, required=True, description="Slug of the cluster."),
    OpenApiParameter("since", datetime, required=True, description="The earlier moment."),
    OpenApiParameter("until", datetime, description="The later moment; now unless given."),
]


class ComparisonView(ApiMixin, APIView):
    """Objects of a cluster at two moments."""

    asked_on = AskedOn.NARROWED

    @extend_schema(parameters=_MOMENTS, responses=ComparisonSerializer)
    def get(self, request: Request) -> Response:
        """Objects of a cluster that differ between two moments; what was changed and changed back does not."""
        serializer = ComparisonAskSerializer(data=request.query_params.dict())
        serializer.is_valid(raise_exception=True)
        asked = serializer.validated_data
        cluster = row_visible(apps.get_model("fleet.Cluster")._default_manager.all(), slug=asked["cluster"])
        found = cluster_compare(cluster.pk, asked["since"], asked["until"])
        answer = {"since": asked["since"], "until": asked["until"], **vars(found)}
        return Response(ComparisonSerializer(answer, context={"request": request}).data)


router = Router()
router.register("changes", ChangeViewSet, basename="change")
urlpatterns: list[URLPattern | URLResolver] = [
    path("changes/compare", ComparisonView.as_view(), name="change-compare"),
    path("ledger-webhook", LedgerWebhookView.as_view(), name="ledger-webhook"),
    path("ledger-webhook/test", LedgerWebhookTestView.as_view(), name="ledger-webhook-test"),
    path("ledger-webhook/retry", LedgerWebhookRetryView.as_view(), name="ledger-webhook-retry"),
    path("changes/groups/<uuid:group>/undo", GroupUndoView.as_view(), name="change-group-undo"),
    *router.urls,
]
