"""Load histories of sources: kept from uploads, a generator or counts, extended, deleted; and their REST API."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.core.body_sizes import DOCUMENT
from apps.core.errors import Conflict, Fault, Malformed
from apps.core.events import announce
from apps.core.filters import ChoiceFilter, ListFilter, TextFilter, TimeFilter, sort_paths
from apps.core.rest.api import ServiceViewSet
from apps.core.rest.serializers import read_body
from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster
from apps.fleet.serializers import ClusterField, InClusterSerializer
from apps.planning.choices import HistoryOrigin
from apps.planning.load_buckets import bucket_trace, generate_history, merge_buckets, read_generator
from apps.planning.models import LoadHistory
from apps.queries.arrivals import series
from apps.queries.arrivals.grid import EventCounts
from apps.queries.arrivals.series import malformed, raise_faults, source_faults
from apps.queries.arrivals.services import arrivals_inspect
from apps.queries.arrivals.times import zone_of
from apps.queries.arrivals.uploads import UploadedTrace
from apps.queries.serializers import READING_FIELDS, TableReadingSerializer
from engine.arrays import FloatArray
from engine.forecasts.history import bucket_fault
from engine.words import listed

__all__ = [
    "MAX_BUCKETS",
    "MIN_BUCKETS",
    "LoadHistoryFilter",
    "LoadHistoryViewSet",
    "histories_visible",
    "history_create_from_generator",
    "history_create_from_upload",
    "history_delete",
    "history_extend",
    "history_store_measured",
    "history_values",
]

MIN_BUCKETS = 16
_MEASURED_BUCKET_S = 3600
MAX_BUCKETS = 100_000


def history_values(history: LoadHistory) -> FloatArray:
    """Events per bucket, NaN where nothing is known."""
    return series.unpack(history.data)


@transaction.atomic
def history_create_from_upload(
    *,
    cluster: Cluster,
    source_id: str,
    upload: UploadedTrace,
    bucket_s: int = 3600,
    description: str = "",
    replace: bool = False,
    origin: str = HistoryOrigin.UPLOAD,
) -> LoadHistory:
    """Store an uploaded trace as a source's load per bucket.

    Parameters
    ----------
    upload : UploadedTrace
        A kept file and how to read it.
    bucket_s : int
        Whole seconds from 60 that divide a day.
    replace : bool
        Replace a history of the same source.

    Raises
    ------
    Malformed
        With every fault: lines that cannot be read, columns that do not exist, a trace too short.
    Conflict
        The source has a history already and `replace` is not set.
    """
    raise_faults(source_faults(source_id) + _bucket_faults(bucket_s))
    _require_free(cluster, source_id, replace)
    name, reading, trace = upload.read()
    start_s, values = bucket_trace(trace, bucket_s)
    spec = upload.spec(name, reading)
    return _history_store(cluster, source_id, start_s, values, bucket_s, origin, Evidence.MEASURED, spec, description)


@transaction.atomic
def history_create_from_generator(
    *,
    cluster: Cluster,
    source_id: str,
    spec: Mapping[str, object],
    bucket_s: int = 3600,
    ends_at: datetime | None = None,
    description: str = "",
    replace: bool = False,
) -> LoadHistory:
    """Generate a history that ends at `ends_at` (now); parameters as of `read_generator`.

    Raises
    ------
    Malformed
        With every parameter that is unknown or out of range.
    Conflict
        The source has a history already and `replace` is not set.
    """
    raise_faults(source_faults(source_id) + _bucket_faults(bucket_s))
    full = read_generator(spec)
    raise_faults(_length_faults(round(full["weeks"] * 604_800 / bucket_s), bucket_s))
    _require_free(cluster, source_id, replace)
    zone = zone_of(cluster.time_zone)
    start_s, values = generate_history(full, bucket_s=bucket_s, ends_at=ends_at or timezone.now(), zone=zone)
    origin = HistoryOrigin.GENERATOR
    return _history_store(
        cluster, source_id, start_s, values, bucket_s, origin, Evidence.ASSUMED, dict(full), description
    )


@transaction.atomic
def history_extend(*, history: LoadHistory, upload: UploadedTrace) -> LoadHistory:
    """Add an uploaded trace to a history; where both cover a bucket the upload counts, between them is a gap."""
    name, reading, trace = upload.read()
    later_s, later = bucket_trace(trace, history.bucket_s)
    if not len(later):
        raise malformed([Fault("file", f"the file covers no whole bucket of {history.bucket_s} s")])
    first_s = history.starts_at.timestamp()
    span = abs(later_s - first_s) / history.bucket_s + max(len(later), history.buckets)
    if span > MAX_BUCKETS:
        raise malformed([Fault("file", f"both together span {span:,.0f} buckets; allowed: at most {MAX_BUCKETS:,}")])
    start_s, values = merge_buckets(first_s, history_values(history), later_s, later, history.bucket_s)
    file = {"file": name, "lines": reading.rows, "count_kind": reading.count_kind, "notes": list(reading.notes)}
    files = [*history.spec.get("extended", []), file]
    spec = {**history.spec, "extended": files[-20:]}
    evidence = history.evidence if history.evidence == Evidence.ASSUMED else Evidence.MEASURED
    return _history_store(
        history.cluster,
        history.source_id,
        start_s,
        values,
        history.bucket_s,
        history.origin,
        evidence,
        spec,
        history.description,
    )


@transaction.atomic
def history_store_measured(*, cluster: Cluster, source_id: str, trace: EventCounts) -> LoadHistory | None:
    """Keep what agents counted as a source's load per hour, behind what was kept so before.

    A history that somebody uploaded or generated stays as it is, and counts that last longer than an hour or fill
    fewer than `MIN_BUCKETS` hours make none: None in each case.
    """
    row = LoadHistory.objects.select_for_update().filter(cluster=cluster, source_id=source_id).first()
    if (row is not None and row.origin != HistoryOrigin.TELEMETRY) or trace.widths_s.max() > _MEASURED_BUCKET_S:
        return None
    start_s, values = bucket_trace(trace, _MEASURED_BUCKET_S)
    if row is not None and len(values):
        first_s = row.starts_at.timestamp()
        start_s, values = merge_buckets(first_s, history_values(row), start_s, values, _MEASURED_BUCKET_S)
        start_s, values = start_s + _MEASURED_BUCKET_S * max(0, len(values) - MAX_BUCKETS), values[-MAX_BUCKETS:]
    if len(values) < MIN_BUCKETS or not (values > 0.0).any():
        return None
    origin, spec = HistoryOrigin.TELEMETRY, {"width_s": float(trace.widths_s.min())}
    description = row.description if row is not None else ""
    return _history_store(
        cluster, source_id, start_s, values, _MEASURED_BUCKET_S, origin, Evidence.MEASURED, spec, description
    )


@transaction.atomic
def history_delete(*, history: LoadHistory) -> None:
    """Delete a history; forecasts made of it stay as they are."""
    announce(f"cluster:{history.cluster.slug}")
    history.delete()


def _history_store(
    cluster: Cluster,
    source_id: str,
    start_s: float,
    values: FloatArray,
    bucket_s: int,
    origin: str,
    evidence: str,
    spec: Mapping[str, object],
    description: str,
) -> LoadHistory:
    is_known = np.isfinite(values)
    faults = _length_faults(len(values), bucket_s)
    if len(values) and not (values[is_known] > 0).any():
        faults.append(Fault("file", "it holds no event; allowed: a trace with events"))
    if len(description) > 200:
        faults.append(Fault("description", f"description has {len(description)} characters; allowed: 200"))
    raise_faults(faults)
    row = LoadHistory.objects.filter(cluster=cluster, source_id=source_id).first()
    row = row or LoadHistory(cluster=cluster, source_id=source_id)
    row.origin, row.evidence, row.spec, row.description = origin, evidence, dict(spec), description
    row.bucket_s, row.buckets, row.missing = bucket_s, len(values), int((~is_known).sum())
    row.starts_at = datetime.fromtimestamp(start_s, UTC)
    row.events = float(values[is_known].sum())
    row.data, row.digest = series.pack(values), series.digest(values)
    row.save()
    announce(f"cluster:{cluster.slug}")
    return row


def _length_faults(buckets: int, bucket_s: int) -> list[Fault]:
    if MIN_BUCKETS <= buckets <= MAX_BUCKETS:
        return []
    allowed = f"{MIN_BUCKETS} to {MAX_BUCKETS:,}"
    return [Fault("bucket_s", f"that makes {buckets:,} whole buckets of {bucket_s} s; allowed: {allowed}")]


def _bucket_faults(bucket_s: Any) -> list[Fault]:
    fault = bucket_fault(bucket_s)
    return [Fault("bucket_s", fault)] if fault else []


def _require_free(cluster: Cluster, source_id: str, replace: bool) -> None:
    if not replace and LoadHistory.objects.filter(cluster=cluster, source_id=source_id).exists():
        message = f"{source_id!r} has a load history already; set replace to replace it"
        raise Conflict(f"source_id: {message}.", [("source_id", message)])


def histories_visible() -> QuerySet[LoadHistory]:
    """Every history without its data."""
    return LoadHistory.objects.select_related("cluster").defer("data")


class LoadHistoryFilter(ListFilter):
    """`?cluster=eu-1&source_id__contains=click&evidence=measured`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    source_id = TextFilter(label="The source's id")
    origin = ChoiceFilter(choices=HistoryOrigin.choices)
    evidence = ChoiceFilter(choices=Evidence.choices)
    starts_at = TimeFilter()
    sorts = sort_paths("source_id", "starts_at", "events", "created_at", "updated_at", cluster="cluster__slug")


class HistorySerializer(InClusterSerializer):
    """A source's load history without its data."""

    source_id = serializers.CharField(read_only=True)
    origin = serializers.ChoiceField(HistoryOrigin.choices, read_only=True)
    evidence = serializers.ChoiceField(Evidence.choices, read_only=True)
    description = serializers.CharField(read_only=True)
    spec = serializers.JSONField(read_only=True)
    bucket_s = serializers.IntegerField(read_only=True)
    buckets = serializers.IntegerField(read_only=True)
    missing = serializers.IntegerField(read_only=True)
    starts_at = serializers.DateTimeField(read_only=True)
    ends_at = serializers.DateTimeField(read_only=True)
    events = serializers.FloatField(read_only=True)
    mean_eps = serializers.FloatField(read_only=True)
    digest = serializers.CharField(read_only=True)
    created_at = serializers.DateTimeField(read_only=True)
    updated_at = serializers.DateTimeField(read_only=True)


class _FromFileSerializer(TableReadingSerializer):
    file = serializers.FileField(required=False)
    key = serializers.CharField(required=False, help_text="Of an upload that was inspected (arrivals/inspect).")


class HistoryExtendSerializer(_FromFileSerializer):
    """Extension of a history: `file` (in a form) or `key` of an inspected upload."""

    def validate(self, values: Any) -> Any:
        if ("file" in values) == ("key" in values):
            raise serializers.ValidationError("give exactly one of file and key")
        return values


class HistoryCreateSerializer(_FromFileSerializer):
    """A load history from exactly one of `file` (in a form), `key` (of an inspected upload) and `generator`."""

    cluster = ClusterField()
    source_id = serializers.CharField()
    description = serializers.CharField(required=False, allow_blank=True)
    replace = serializers.BooleanField(required=False)
    bucket_s = serializers.IntegerField(
        required=False, help_text="Whole seconds from 60 that divide a day; 3600 unless given."
    )
    generator = serializers.DictField(
        required=False, help_text='{"peak_rate_eps": 900, "weeks": 8, "growth_per_week": 0.02, …}'
    )

    def validate(self, values: Any) -> Any:
        kinds = [kind for kind in ("file", "key", "generator") if kind in values]
        if len(kinds) != 1:
            names = listed(kinds) or "none of them"
            raise serializers.ValidationError(f"give exactly one of file, key, generator; {names} is given")
        others = sorted(READING_FIELDS & set(values)) if kinds[0] == "generator" else []
        if others:
            raise serializers.ValidationError(dict.fromkeys(others, "has no meaning with generator"))
        return values


def _with_key(values: Any) -> Any:
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


def _store(**values: Any) -> LoadHistory:
    """A history from a file, an inspected upload or a generator."""
    if "generator" in values:
        return history_create_from_generator(spec=values.pop("generator"), **values)
    return history_create_from_upload(**UploadedTrace.split(_with_key(values)))


class LoadHistoryViewSet(ServiceViewSet):
    """Events of each source per hour (or another bucket) over weeks: what forecasts are made of."""

    http_method_names = ["get", "head", "post", "delete", "options"]
    body_sizes = {"create": DOCUMENT, "extend": DOCUMENT}
    queryset = LoadHistory.objects.none()
    serializer_class, create_class = HistorySerializer, HistoryCreateSerializer
    filterset_class = LoadHistoryFilter
    ordering = "source_id"
    row_keyword = "history"
    service_create = staticmethod(_store)
    service_delete = staticmethod(history_delete)

    def get_queryset(self) -> Any:
        return histories_visible()

    @extend_schema(
        request={"application/json": HistoryCreateSerializer, "multipart/form-data": HistoryCreateSerializer},
        responses={201: HistorySerializer},
    )
    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Store a history from a file, an inspected upload or a generator."""
        return super().create(request, *args, **kwargs)

    @extend_schema(
        request={"application/json": HistoryExtendSerializer, "multipart/form-data": HistoryExtendSerializer},
        responses=HistorySerializer,
    )
    @action(detail=True, methods=["post"])
    def extend(self, request: Request, pk: str | None = None) -> Response:
        """Add another file; where both cover a bucket, the new file counts."""
        history = self.get_object()
        values = _with_key(read_body(HistoryExtendSerializer, request))
        history_extend(history=history, **UploadedTrace.split(values))
        return Response(self._shown(history))

    @extend_schema(responses=OpenApiTypes.OBJECT)
    @action(detail=True, methods=["get"])
    def series(self, request: Request, pk: str | None = None) -> Response:
        """Events per bucket, null where nothing is known."""
        history = self.get_object()
        values = history_values(history)
        counts = [value if math.isfinite(value) else None for value in np.round(values, 3).tolist()]
        return Response({"starts_at": history.starts_at, "bucket_s": history.bucket_s, "counts": counts})
