"""REST: receipts of decisions, the board of promises, and why a verdict was wrong."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.choices import Scope
from apps.accounts.permissions import signed_in_user
from apps.admission.boards import PromiseBoard, ReceiptFilter, promise_board, receipts_listed
from apps.admission.choices import WrongReason
from apps.admission.models import Receipt
from apps.admission.receipts import receipt_reason
from apps.core.limits import MAX_REASON
from apps.core.reach import AskedOn
from apps.core.rest.api import ReadViewSet, StrictSerializer
from apps.core.rest.records import StoredRecordField
from apps.core.rest.serializers import read_body
from apps.fleet.models import Cluster
from apps.queries.masks import MaskedSerializerMixin
from engine.admission.promises import PromiseChange, PromiseError

__all__ = ["ReceiptReasonSerializer", "ReceiptSerializer", "ReceiptViewSet"]


class ReceiptSerializer(MaskedSerializerMixin, serializers.ModelSerializer):
    """A decision that came back: promised, measured, what became of it, and what else changed since."""

    cluster = serializers.CharField(source="promise.cluster.slug")
    admission = serializers.UUIDField(
        source="promise.request_id", allow_null=True, help_text="The decision; null once its query was deleted."
    )
    query = serializers.CharField(source="promise.query_name")
    version = serializers.IntegerField(source="promise.version")
    verdict = serializers.CharField(source="promise.verdict")
    overridden = serializers.BooleanField(source="promise.overridden")
    model = serializers.CharField(source="promise.model", help_text="flow, or the model that predicted it.")
    evidence = serializers.CharField(source="promise.evidence", help_text="Weakest origin of the costs.")
    decided_at = serializers.DateTimeField(source="promise.decided_at")
    statistic = serializers.CharField(source="promise.statistic")
    bound_s = serializers.FloatField(source="promise.bound_s", allow_null=True)
    promised_s = serializers.FloatField(source="promise.promised_s", allow_null=True)
    low_s = serializers.FloatField(source="promise.low_s", allow_null=True)
    high_s = serializers.FloatField(source="promise.high_s", allow_null=True)
    changes = serializers.ListField(child=StoredRecordField(PromiseChange))
    error = StoredRecordField(
        PromiseError, allow_null=True, help_text="Measured less promised, by what made it; null: not known."
    )
    reason_by = serializers.CharField(source="reason_by.username", default=None, allow_null=True)

    class Meta:
        model = Receipt
        fields = ["id", "cluster", "admission", "query", "version", "verdict", "overridden", "model", "evidence"]
        fields += ["decided_at", "span", "due_at", "outcome", "lacking", "statistic", "bound_s", "promised_s", "low_s"]
        fields += ["high_s", "measured_s", "results", "since", "interval_held", "is_wrong", "changes", "decisions"]
        fields += ["error", "error_lack", "written_at", "reason", "reason_text", "reason_by", "reason_at"]

    def cluster_of_row(self, row: Receipt) -> Cluster:
        return row.promise.cluster


class ReceiptReasonSerializer(StrictSerializer):
    """Why a verdict turned out wrong. With `failure` and `measurement` what was measured is set aside."""

    reason = serializers.ChoiceField(WrongReason.choices)
    text = serializers.CharField(
        max_length=MAX_REASON, required=False, allow_blank=True, default="", help_text="Needed with `other`."
    )


class ReceiptViewSet(ReadViewSet):
    """Receipts: every decision comes back after an hour, a day and a week, newest first. Those to come are not listed.

    A request lists its own, those to come as well, as `receipts`.
    """

    asked_on = AskedOn.PARTS
    queryset = Receipt.objects.none()
    serializer_class = ReceiptSerializer
    filterset_class = ReceiptFilter
    ordering = "-due_at"
    list_actions = ("list", "summary")
    scopes = {"GET": Scope.READ, "explain": Scope.ADMIT}

    def get_queryset(self) -> Any:
        return receipts_listed()

    @extend_schema(responses=PromiseBoard, filters=True)
    @action(detail=False, methods=["get"], pagination_class=None)
    def summary(self, request: Request) -> Response:
        """Counts of the receipts that the filters leave, by outcome: all, by verdict, model, evidence and span."""
        return Response(promise_board(self.filter_queryset(self.get_queryset())).to_dict())

    @extend_schema(request=ReceiptReasonSerializer, responses=ReceiptSerializer)
    @action(detail=True, methods=["post"], url_path="reason")
    def explain(self, request: Request, pk: str) -> Response:
        """Say why the verdict turned out wrong; 409 where it did not. Given again, it takes the place of the other."""
        told = read_body(ReceiptReasonSerializer, request)
        receipt_reason(receipt=self.get_object(), user=signed_in_user(request), **told)
        return Response(self.get_serializer(self.get_object()).data)
