"""REST: what telemetry measured of a query's operators."""

from __future__ import annotations

from typing import Any

from django.urls import URLPattern, URLResolver, path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.choices import Scope
from apps.core.reach import AskedOn, row_visible
from apps.measurements.models import OperatorStatistic
from apps.measurements.selectors import evidence_of_operators
from apps.queries.models import Query

__all__ = [
    "QueryMeasurementsView",
]


class _StatisticSerializer(serializers.ModelSerializer):
    """A measured statistic, its standard errors, and the evidence behind it."""

    shares = serializers.DictField(child=serializers.FloatField(), help_text="Share of the events by place.")

    class Meta:
        model = OperatorStatistic
        fields = ["fingerprint", "selectivity", "selectivity_error", "cycles_per_event", "cycles_error", "events"]
        fields += [
            "first_at",
            "last_at",
            "whole",
            "extrapolated",
            "missing",
            "shares",
            "cost_dispersion",
            "cost_dispersion_events",
            "cost_units",
            "cost_unit",
            "reason",
            "more_events",
            "more_s",
        ]


class MeasuredOperatorSerializer(serializers.Serializer):
    """An operator of the pipeline a query runs live; `statistic` is null until an event came."""

    operator = serializers.CharField()
    ready = serializers.BooleanField()
    text = serializers.CharField(help_text="ready, or what is missing, such as: 240 more events, about 3 min.")
    lacking_since = serializers.DateTimeField(allow_null=True)
    statistic = _StatisticSerializer(allow_null=True)


class QueryMeasurementsView(APIView):
    """Measurements of each operator from telemetry, and when they suffice."""

    asked_on = AskedOn.NARROWED

    scopes = {"GET": Scope.READ}

    @extend_schema(responses=MeasuredOperatorSerializer(many=True))
    def get(self, request: Request, pk: int) -> Response:
        query = row_visible(Query.objects.select_related("cluster"), pk=pk)
        evidence: Any = evidence_of_operators(query)
        return Response(MeasuredOperatorSerializer(evidence, many=True).data)


urlpatterns: list[URLPattern | URLResolver] = [
    path("queries/<int:pk>/measurements", QueryMeasurementsView.as_view(), name="query-measurements"),
]
