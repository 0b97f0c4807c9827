"""REST: load histories of sources, and forecasts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import mixins, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.choices import Scope
from apps.accounts.permissions import signed_in_user
from apps.core.body_sizes import DOCUMENT
from apps.core.errors import Malformed
from apps.core.rest.api import ApiMixin
from apps.core.rest.lists import parse_whole_number
from apps.core.rest.serializers import read_body
from apps.jobs.api import job_response
from apps.jobs.models import Job
from apps.jobs.serializers import JobSerializer
from apps.planning.filters import ForecastFilter, LoadHistoryFilter
from apps.planning.forecasts import histories
from apps.planning.forecasts.selectors import forecast_regret, forecast_series, forecasts_visible, histories_visible
from apps.planning.forecasts.serializers import (
    ForecastCreateSerializer,
    ForecastSerializer,
    HistoryCreateSerializer,
    HistoryExtendSerializer,
    HistorySerializer,
)
from apps.planning.forecasts.services import forecast_request
from apps.planning.models import Forecast, LoadHistory
from apps.queries.arrivals.services import arrivals_inspect
from apps.queries.arrivals.uploads import UploadedTrace
from engine.forecasts.regret import LeastRegret

__all__ = ["ForecastViewSet", "LoadHistoryViewSet"]

_COST = OpenApiParameter("cost_per_violation_hour", float, description="What an hour of violation costs.", default=100)
_DAYS = OpenApiParameter("horizon_days", int, description="Days compared; all that were forecast unless given.")


class LoadHistoryViewSet(
    ApiMixin,
    mixins.CreateModelMixin,
    mixins.RetrieveModelMixin,
    mixins.DestroyModelMixin,
    mixins.ListModelMixin,
    viewsets.GenericViewSet,
):
    """Events of each source per hour (or another bucket) over weeks: what forecasts are made of."""

    body_sizes = {"create": DOCUMENT, "extend": DOCUMENT}
    queryset = LoadHistory.objects.none()
    serializer_class = HistorySerializer
    filterset_class = LoadHistoryFilter
    ordering = "source_id"

    def get_queryset(self) -> Any:
        return histories_visible()

    @extend_schema(
        request={"application/json": HistoryCreateSerializer, "multipart/form-data": HistoryCreateSerializer},
        responses={201: HistorySerializer},
    )
    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Store a history from a file, an inspected upload or a generator."""
        values = read_body(HistoryCreateSerializer, request)
        if "generator" in values:
            stored = histories.history_create_from_generator(spec=values.pop("generator"), **values)
        else:
            stored = histories.history_create_from_upload(**UploadedTrace.split(_with_key(values)))
        shown = HistorySerializer(self.get_queryset().get(pk=stored.pk)).data
        return Response(shown, status=201, headers={"Location": f"{request.path}/{stored.pk}"})

    def perform_destroy(self, instance: LoadHistory) -> None:
        histories.history_delete(history=instance)

    @extend_schema(
        request={"application/json": HistoryExtendSerializer, "multipart/form-data": HistoryExtendSerializer},
        responses=HistorySerializer,
    )
    @action(detail=True, methods=["post"])
    def extend(self, request: Request, pk: str | None = None) -> Response:
        """Add another file; where both cover a bucket, the new file counts."""
        history = self.get_object()
        values = _with_key(read_body(HistoryExtendSerializer, request))
        histories.history_extend(history=history, **UploadedTrace.split(values))
        return Response(HistorySerializer(self.get_queryset().get(pk=history.pk)).data)

    @extend_schema(responses=OpenApiTypes.OBJECT)
    @action(detail=True, methods=["get"])
    def series(self, request: Request, pk: str | None = None) -> Response:
        """Events per bucket, null where nothing is known."""
        history = self.get_object()
        values = histories.history_values(history)
        counts = [value if math.isfinite(value) else None for value in np.round(values, 3).tolist()]
        return Response({"starts_at": history.starts_at, "bucket_s": history.bucket_s, "counts": counts})


class ForecastViewSet(ApiMixin, mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet):
    """Forecasts of clusters, newest first. POST asks for one: 202 with a job, or the result with `Prefer: wait=N`."""

    queryset = Forecast.objects.none()
    serializer_class = ForecastSerializer
    filterset_class = ForecastFilter
    ordering = "-created_at"
    scopes = {"GET": Scope.READ, "POST": Scope.OPERATE}

    def get_queryset(self) -> Any:
        return forecasts_visible()

    @extend_schema(request=ForecastCreateSerializer, responses={200: ForecastSerializer, 202: JobSerializer})
    def create(self, request: Request) -> Response:
        """Forecast a cluster's load and what it does to its objectives."""
        job = forecast_request(user=signed_in_user(request), **read_body(ForecastCreateSerializer, request))
        return job_response(request, job, _outcome)

    @extend_schema(responses=OpenApiTypes.OBJECT)
    @action(detail=True, methods=["get"])
    def series(self, request: Request, pk: str | None = None) -> Response:
        """Curves of a forecast: sources and total in events/s, queries in s, hours of violation by pool and day."""
        return Response(forecast_series(self.get_object()))

    @extend_schema(parameters=[_COST, _DAYS], responses=LeastRegret, filters=False)
    @action(detail=True, methods=["get"])
    def regret(self, request: Request, pk: str | None = None) -> Response:
        """Pool sizes compared by the cost of nodes and of violated objectives."""
        forecast = self.get_object()
        max_days = max(1, forecast.horizon * forecast.bucket_s // 86_400)
        days = parse_whole_number(request.query_params.get("horizon_days", str(max_days)), "horizon_days", 1, max_days)
        cost = _cost(request.query_params.get("cost_per_violation_hour", "100"))
        regret = forecast_regret(forecast, cost_per_violation_hour=cost, horizon_days=days)
        return Response(regret.to_dict())


def _with_key(values: dict[str, Any]) -> dict[str, Any]:
    """With the key of the upload in the place of a file."""
    if "file" in values:
        key, inspection = arrivals_inspect(file=values.pop("file"), time_zone=values.get("time_zone", "UTC"))
        values["key"] = key
        if "time_column" not in values and inspection.time_column:
            values["time_column"] = inspection.time_column
            values.setdefault("count_column", inspection.count_column)
    if "time_column" not in values:
        raise Malformed("time_column is missing.", [("time_column", "is missing; allowed: a column of the file")])
    return values


def _cost(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= 1e12 or "_" in text:
        message = f"cost_per_violation_hour is {text!r}; allowed: a number from 0 to 1e12"
        raise Malformed(f"{message}.", [("cost_per_violation_hour", message)])
    return value


def _outcome(job: Job) -> Any:
    return ForecastSerializer(forecasts_visible().get(job_id=job.pk)).data
