"""Forecasts: requested, made by a job, renewed daily or when load histories change; and their REST API."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.core.errors import Fault, Impossible, Malformed, SluiceError
from apps.core.events import announce
from apps.core.filters import ListFilter, TextFilter, TimeFilter, sort_paths
from apps.core.limits import DIGEST_LENGTH
from apps.core.rest.api import StrictSerializer
from apps.core.rest.lists import parse_whole_number
from apps.core.rest.records import StoredRecordField
from apps.fleet.models import Cluster
from apps.fleet.serializers import ClusterField
from apps.jobs.models import Job, JobKind
from apps.jobs.runner import JobReporter
from apps.jobs.runs import AnswerKind, register
from apps.jobs.viewsets import AnswerViewSet, describe_create
from apps.planning.forecast_findings import forecast_regret, forecast_series, pools_basis
from apps.planning.load_buckets import coarsen_buckets
from apps.planning.load_histories import history_values
from apps.planning.models import Forecast, LoadHistory
from apps.queries.arrivals.times import zone_of
from apps.queries.models import ArrivalSeries
from apps.queries.snapshots.cluster import SLICES_PER_SUBINTERVAL
from apps.queries.snapshots.parts import snapshot_take
from engine.errors import InfeasibleError
from engine.forecasts.answer import ForecastAnswer
from engine.forecasts.regret import LeastRegret

if TYPE_CHECKING:  # it loads numba, which only workers need
    from engine.forecasts.forecast import SourceHistory

__all__ = [
    "DEFAULT_DAYS",
    "FORECAST",
    "HORIZON_DAYS",
    "MAX_FORECASTS",
    "ForecastFilter",
    "ForecastViewSet",
    "forecast_bucket_s",
    "forecast_renew_all",
    "histories_digest",
]

_log = logging.getLogger(__name__)

HORIZON_DAYS = (1, 56)
DEFAULT_DAYS = 28
MAX_FORECASTS, MAX_FORECAST_SERIES = 60, 10  # forecasts of a cluster that keep their findings, and their curves
_RENEW_AFTER = timedelta(days=1)
_POOL_SHARES = (-0.3, -0.2, -0.1, 0.0, 0.1, 0.2)  # pools judged: smaller and larger by these shares
_DAY_S = 86_400
_MAX_STEPS = 5_376  # of a forecast: 56 days by quarters of an hour


class ForecastKind(AnswerKind[Forecast]):
    """Forecast of a cluster's load and what it does to its objectives."""

    model, job, name, path = Forecast, JobKind.FORECAST, "forecast", "forecasts"
    bulk = ("series", "snapshot_parts")

    def title(self, run: Forecast) -> str:
        return f"Forecast {run.cluster.slug}"

    def page(self, run: Forecast) -> str:
        return f"/c/{run.cluster.slug}/provisioning/forecast/"

    def announce(self, run: Forecast) -> None:
        announce(f"cluster:{run.cluster.slug}")

    def once(self, run: Forecast, params: Mapping[str, object]) -> str:
        return f"forecast:{run.cluster_id}:{params['horizon_days']}:{params['seed']}"

    def ask(self, cluster: Cluster, *, horizon_days: int = DEFAULT_DAYS, seed: int = 0) -> Mapping[str, object]:
        """Days ahead, and a seed: the same histories and seed give the same forecast.

        Raises
        ------
        Malformed
            A horizon or seed out of range.
        Impossible
            The cluster has no load history.
        """
        low, high = HORIZON_DAYS
        faults = []
        if not low <= horizon_days <= high:
            faults.append(Fault("horizon_days", f"horizon_days is {horizon_days}; allowed: {low} to {high}"))
        if not 0 <= seed < 2**31:
            faults.append(Fault("seed", f"seed is {seed}; allowed: 0 to 2147483647"))
        if faults:
            raise Malformed(f"{faults[0].path}: {faults[0].message}.", faults)
        mark = histories_digest(cluster)
        if not mark:
            message = f"{cluster.slug} has no load history; upload or generate one first"
            raise Impossible(f"cluster: {message}.", [("cluster", message)])
        return {"horizon_days": horizon_days, "seed": seed, "histories": mark}

    def answer(self, run: Forecast, report: JobReporter) -> None:
        from engine.forecasts.outlook import outlook  # numba with it, which only workers load

        cluster, params = run.cluster, report.job.params
        report(0.0, "Taking a snapshot")
        snapshot = snapshot_take(cluster)
        rows = list(LoadHistory.objects.filter(cluster=cluster))
        if not rows:
            message = "the cluster has no load history any more"
            raise InfeasibleError(f"No forecast: {message}", [Fault("cluster", message)])
        horizon_s = int(params.get("horizon_days", DEFAULT_DAYS)) * _DAY_S
        bucket_s = forecast_bucket_s((row.bucket_s for row in rows), horizon_s)
        histories = _histories(cluster, rows, bucket_s)
        run.seed = int(params.get("seed", 0))
        started = time.perf_counter()
        forecast = outlook(
            snapshot.deployment if snapshot.deployment.operators else None,
            histories,
            bucket_s=bucket_s,
            horizon=horizon_s // bucket_s,
            mace_every=SLICES_PER_SUBINTERVAL,
            extra_nodes=_extra_nodes(len(snapshot.deployment.nodes)),
            closed=snapshot.closed_nodes,
            seed=run.seed,
            zone=zone_of(cluster.time_zone),
            progress=report,
        )
        run.duration_s = time.perf_counter() - started
        run.snapshot, run.snapshot_parts = snapshot.digest, dict(snapshot.parts)
        run.histories = {row.source_id: row.digest for row in rows}
        run.bucket_s, run.horizon = int(forecast.bucket_s), forecast.horizon
        run.starts_at = datetime.fromtimestamp(forecast.starts_s, UTC)
        run.result, run.series = forecast.answer.to_dict(), forecast.series()

    def keep(self, run: Forecast, answer: None, job: Job) -> Forecast:
        """Write a forecast; older ones lose their curves, and older still go."""
        run.requested_by, run.finished_at = job.requested_by, timezone.now()
        self.write(run)
        ids = list(Forecast.objects.filter(cluster=run.cluster).values_list("pk", flat=True)[: MAX_FORECASTS + 20])
        Forecast.objects.filter(pk__in=ids[MAX_FORECAST_SERIES:MAX_FORECASTS], series__isnull=False).update(series=None)
        Forecast.objects.filter(pk__in=ids[MAX_FORECASTS:]).delete()
        self.announce(run)
        return run

    def facts(self, run: Forecast) -> Mapping[str, object]:
        answer = ForecastAnswer.parse(run.result)
        return {
            "forecast": run.pk,
            "sources": len(answer.sources),
            "refused": len(answer.refused),
            "threatened": sum(bool(query.violations) for query in answer.queries),
            "duration_s": round(run.duration_s, 3),
        }


FORECAST = register(ForecastKind())


def _extra_nodes(present: int) -> list[int]:
    """Differences to the present pool, each of at least one node."""
    differences = {0}
    for share in _POOL_SHARES:
        differences.add(round(present * share) or (int(share > 0) - int(share < 0)))
    return sorted(differences)


def forecast_bucket_s(buckets_s: Iterable[int], horizon_s: int) -> int:
    """Bucket of a forecast: the shortest that all histories add up to, divides a day and leaves it few enough steps."""
    common_s = math.lcm(*buckets_s)
    widths = range(common_s, _DAY_S + 1, common_s)
    return next(width for width in widths if _DAY_S % width == 0 and horizon_s <= _MAX_STEPS * width)


def _histories(cluster: Cluster, rows: list[LoadHistory], bucket_s: int) -> dict[str, SourceHistory]:
    """Histories in buckets of this length, with the mean rate of each source's stretch of arrivals."""
    from engine.forecasts.forecast import SourceHistory

    stretches = ArrivalSeries.objects.filter(cluster=cluster).defer("data", "spec")
    means = {row.source_id: row.mean_eps for row in stretches}
    histories = {}
    for row in rows:
        start_s, values = coarsen_buckets(row.starts_at.timestamp(), history_values(row), row.bucket_s, bucket_s)
        histories[row.source_id] = SourceHistory(values, start_s, means.get(row.source_id, 0.0))
    return histories


def histories_digest(cluster: Cluster) -> str:
    """A digest of a cluster's histories; empty without any."""
    rows = LoadHistory.objects.filter(cluster=cluster).order_by("source_id").values_list("source_id", "digest")
    digests = list(rows)
    return hashlib.sha256(json.dumps(digests).encode()).hexdigest()[:16] if digests else ""


def forecast_renew_all() -> int:
    """Request a forecast of every cluster whose histories have changed, or whose newest is a day old; returns the
    number.

    A request that failed is not repeated before a day is over, unless the histories change.
    """
    asked = 0
    for cluster in Cluster.objects.filter(load_histories__isnull=False).distinct():
        mark = histories_digest(cluster)
        since = timezone.now() - _RENEW_AFTER
        jobs = Job.objects.filter(kind=JobKind.FORECAST, cluster=cluster, created_at__gte=since)
        if jobs.filter(params__histories=mark).exists():
            continue
        try:
            FORECAST.request(cluster=cluster)
            asked += 1
        except SluiceError as error:
            _log.warning("cluster %s is not forecast now: %s", cluster.slug, error)
    return asked


class ForecastFilter(ListFilter):
    """`?cluster=eu-1&created_at__gte=2026-03-01T00:00:00Z`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    created_at = TimeFilter()
    sorts = sort_paths("created_at", "starts_at", "duration_s", cluster="cluster__slug")


class ForecastCreateSerializer(StrictSerializer):
    """A forecast to make."""

    cluster = ClusterField()
    horizon_days = serializers.IntegerField(
        default=DEFAULT_DAYS, help_text=f"Days ahead, {HORIZON_DAYS[0]} to {HORIZON_DAYS[1]}."
    )
    seed = serializers.IntegerField(default=0, help_text="The same histories and seed give the same forecast.")


class ForecastSerializer(serializers.ModelSerializer):
    """A forecast: backtests, dates of violations, probabilities and pools; its curves are at `…/series`."""

    cluster = serializers.CharField(source="cluster.slug")
    snapshot = serializers.CharField(max_length=DIGEST_LENGTH, help_text="Digest of the cluster it was computed on.")
    result = StoredRecordField(ForecastAnswer)
    histories = serializers.JSONField()
    ends_at = serializers.DateTimeField()
    pools_basis = serializers.SerializerMethodField(help_text="What pool sizes rest on, and how the bench's differ.")

    class Meta:
        model = Forecast
        fields = ["id", "cluster", "job", "snapshot", "histories", "bucket_s", "starts_at", "ends_at", "horizon"]
        fields += ["seed", "result", "pools_basis", "duration_s", "created_at"]

    def get_pools_basis(self, row: Forecast) -> str:
        return pools_basis(row)


_COST = OpenApiParameter("cost_per_violation_hour", float, description="What an hour of violation costs.", default=100)
_DAYS = OpenApiParameter("horizon_days", int, description="Days compared; all that were forecast unless given.")


@describe_create("Forecast a cluster's load and what it does to its objectives.")
class ForecastViewSet(AnswerViewSet):
    """Forecasts of clusters, newest first. POST asks for one: 202 with a job, or the result with `Prefer: wait=N`."""

    kind = FORECAST
    queryset = Forecast.objects.none()
    serializer_class = detail_class = ForecastSerializer
    question_class = ForecastCreateSerializer
    filterset_class = ForecastFilter
    ordering = "-created_at"

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


def _cost(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= 1e12 or "_" in text:
        message = f"cost_per_violation_hour is {text!r}; allowed: a number from 0 to 1e12"
        raise Malformed(f"{message}.", [("cost_per_violation_hour", message)])
    return value
