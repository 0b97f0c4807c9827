"""REST: how good estimates were."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import mixins, serializers, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.choices import Scope
from apps.core.api import ApiMixin
from apps.estimates.accuracy_filters import AccuracyFilter
from apps.estimates.accuracy_selectors import accuracy_listed, accuracy_summary
from apps.estimates.models import AccuracyObservation

__all__ = ["AccuracyViewSet"]


class AccuracySerializer(serializers.ModelSerializer):
    """One interval: the estimate in force, and the latency measured in it."""

    cluster = serializers.CharField(source="cluster.slug")
    query = serializers.CharField(source="query.name")
    error_s = serializers.FloatField(help_text="Expected less observed.")
    parts = serializers.DictField(child=serializers.FloatField(), allow_null=True)
    kinds = serializers.DictField(child=serializers.ListField(child=serializers.FloatField()))

    class Meta:
        model = AccuracyObservation
        fields = ["id", "cluster", "query", "query_id", "version", "estimate", "estimated_at", "starts_at", "ends_at"]
        fields += ["statistic", "evidence", "expected_s", "low_s", "high_s", "half_s", "factor", "observed_s"]
        fields += ["error_s", "covered", "disturbed", "windows", "left_out", "parts", "kinds"]


class _JudgedSerializer(serializers.Serializer):
    """Coverage of the 90 % intervals shown, and errors as ratios of sums."""

    outcomes = serializers.IntegerField()
    coverage = serializers.FloatField(allow_null=True)
    bias = serializers.FloatField(allow_null=True, help_text="Share by which estimates were too high.")
    median_error = serializers.FloatField(allow_null=True)


class _QuerySerializer(serializers.Serializer):
    query = serializers.CharField(source="query.name")
    judged = _JudgedSerializer()
    trust = serializers.FloatField(source="trust.score", help_text="0 to 1; 1: intervals are shown as stated.")
    factor = serializers.FloatField(source="trust.factor", help_text="By which the next interval is widened.")
    trust_of = serializers.CharField(help_text="Whose past that is: query or cluster.")
    concluded = serializers.BooleanField(source="trust.concluded", help_text="False with fewer than 20 intervals.")


class _KindSerializer(serializers.Serializer):
    kind = serializers.CharField()
    expected_cps = serializers.FloatField()
    measured_cps = serializers.FloatField()
    bias = serializers.FloatField(allow_null=True)


class AccuracySummarySerializer(serializers.Serializer):
    """Figures of the newest observations that the filters leave, at most 5,000; `more` were left out as older."""

    judged = _JudgedSerializer()
    more = serializers.IntegerField()
    disturbed = serializers.DictField(
        child=serializers.IntegerField(),
        help_text="Intervals left out because the stream processor was warming, away or catching_up.",
    )
    queries = serializers.SerializerMethodField()
    kinds = serializers.SerializerMethodField(help_text="Work by kind of operator, cycles per second.")

    @extend_schema_field(_QuerySerializer(many=True))
    def get_queries(self, found: Any) -> Any:
        return _QuerySerializer(found.queries, many=True).data

    @extend_schema_field(_KindSerializer(many=True))
    def get_kinds(self, found: Any) -> Any:
        return _KindSerializer(found.kinds, many=True).data


class AccuracyViewSet(ApiMixin, mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet):
    """Estimates of live queries against the latency that was measured, one row for every 30 seconds, newest first."""

    queryset = AccuracyObservation.objects.none()
    serializer_class = AccuracySerializer
    filterset_class = AccuracyFilter
    ordering = "-starts_at"
    scopes = {"GET": Scope.READ}

    def get_queryset(self) -> Any:
        return accuracy_listed()

    @extend_schema(responses=AccuracySummarySerializer)
    @action(detail=False, methods=["get"], pagination_class=None)
    def summary(self, request: Request) -> Response:
        """Coverage, bias and trust: together, by query, by kind of operator."""
        found = accuracy_summary(self.filter_queryset(self.get_queryset()))
        return Response(AccuracySummarySerializer(found).data)
