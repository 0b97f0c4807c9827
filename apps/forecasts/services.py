"""Keeping load histories: from uploads and generators, extended, deleted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
from django.db import transaction
from django.utils import timezone

from apps.core.errors import Conflict, Fault
from apps.core.events import announce
from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster
from apps.forecasts.bucketing import bucketed, merged
from apps.forecasts.choices import BUCKETS, HistoryOrigin
from apps.forecasts.generating import generated_history, history_spec
from apps.forecasts.models import LoadHistory
from apps.queries import series
from apps.queries.arrival_checks import malformed, refuse, source_faults
from apps.queries.stretches import trace_of_upload
from apps.queries.times import zone_of
from engine.elements import FloatArray

__all__ = [
    "FEWEST_BUCKETS",
    "MOST_BUCKETS",
    "history_create_from_generator",
    "history_create_from_upload",
    "history_delete",
    "history_extend",
    "history_values",
]

FEWEST_BUCKETS = 16
MOST_BUCKETS = 100_000


def history_values(history: LoadHistory) -> FloatArray:
    """Events per bucket, NaN where nothing is known."""
    return series.unpack(history.data)


@transaction.atomic
def history_create_from_upload(
    *,
    cluster: Cluster,
    source_id: str,
    key: str,
    time_column: str,
    count_column: str | None = None,
    time_zone: str = "UTC",
    time_format: str | None = None,
    bucket_s: int = 3600,
    description: str = "",
    leave_out_problems: bool = False,
    replace: bool = False,
    origin: str = HistoryOrigin.UPLOAD,
) -> LoadHistory:
    """Keep the whole of an uploaded trace as a source's load per bucket.

    Parameters
    ----------
    key : str
        From `apps.queries.arrivals.arrivals_inspect`.
    time_column, count_column : str
        Names of columns. Without a count column every line is one event.
    bucket_s : int
        One of `BUCKETS`.
    replace : bool
        Replace a history of the same source.

    Raises
    ------
    Malformed
        With every fault: lines that cannot be read, columns that do not exist, a trace too short.
    Conflict
        The source has a history already and `replace` is not set.
    """
    refuse(source_faults(source_id) + _bucket_faults(bucket_s))
    _check_free(cluster, source_id, replace)
    name, reading, trace = trace_of_upload(key, time_column, count_column, time_zone, time_format, leave_out_problems)
    start_s, values = bucketed(trace, bucket_s)
    spec = {
        "file": name,
        "time_column": time_column,
        "count_column": count_column,
        "time_zone": time_zone,
        "lines": reading.rows,
        "lines_left_out": reading.problems_total,
        "notes": list(reading.notes),
    }
    return _store(cluster, source_id, start_s, values, bucket_s, origin, Evidence.MEASURED, spec, description)


@transaction.atomic
def history_create_from_generator(
    *,
    cluster: Cluster,
    source_id: str,
    spec: Mapping[str, Any],
    bucket_s: int = 3600,
    ends_at: datetime | None = None,
    description: str = "",
    replace: bool = False,
) -> LoadHistory:
    """Make up a history that ends at `ends_at` (now): see `apps.forecasts.generating`.

    Raises
    ------
    Malformed
        With every parameter that is unknown or out of range.
    Conflict
        The source has a history already and `replace` is not set.
    """
    refuse(source_faults(source_id) + _bucket_faults(bucket_s))
    full = history_spec(spec)
    _check_free(cluster, source_id, replace)
    zone = zone_of(cluster.time_zone)
    start_s, values = generated_history(full, bucket_s=bucket_s, ends_at=ends_at or timezone.now(), zone=zone)
    origin = HistoryOrigin.GENERATOR
    return _store(cluster, source_id, start_s, values, bucket_s, origin, Evidence.ASSUMED, dict(full), description)


@transaction.atomic
def history_extend(
    *,
    history: LoadHistory,
    key: str,
    time_column: str,
    count_column: str | None = None,
    time_zone: str = "UTC",
    time_format: str | None = None,
    leave_out_problems: bool = False,
) -> LoadHistory:
    """Add what an uploaded trace knows: where both know a bucket the upload counts, between them is a gap."""
    name, reading, trace = trace_of_upload(key, time_column, count_column, time_zone, time_format, leave_out_problems)
    later_s, later = bucketed(trace, history.bucket_s)
    if not len(later):
        raise malformed([Fault("file", f"the file covers no whole bucket of {history.bucket_s} s")])
    first_s = history.starts_at.timestamp()
    span = abs(later_s - first_s) / history.bucket_s + max(len(later), history.buckets)
    if span > MOST_BUCKETS:
        raise malformed([Fault("file", f"both together span {span:,.0f} buckets; allowed: at most {MOST_BUCKETS:,}")])
    start_s, values = merged(first_s, history_values(history), later_s, later, history.bucket_s)
    files = [*history.spec.get("extended", []), {"file": name, "lines": reading.rows}]
    spec = {**history.spec, "extended": files[-20:]}
    evidence = history.evidence if history.evidence == Evidence.ASSUMED else Evidence.MEASURED
    return _store(
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
def history_delete(*, history: LoadHistory) -> None:
    """Delete a history; forecasts made of it stay as they are."""
    announce(f"cluster:{history.cluster.slug}")
    history.delete()


def _store(
    cluster: Cluster,
    source_id: str,
    start_s: float,
    values: FloatArray,
    bucket_s: int,
    origin: str,
    evidence: str,
    spec: Mapping[str, Any],
    description: str,
) -> LoadHistory:
    known = np.isfinite(values)
    faults = _length_faults(values, bucket_s)
    if len(values) and not (values[known] > 0).any():
        faults.append(Fault("file", "it holds no event; allowed: a trace with events"))
    if len(description) > 200:
        faults.append(Fault("description", f"description has {len(description)} characters; allowed: 200"))
    refuse(faults)
    row = LoadHistory.objects.filter(cluster=cluster, source_id=source_id).first()
    row = row or LoadHistory(cluster=cluster, source_id=source_id)
    row.origin, row.evidence, row.spec, row.description = origin, evidence, dict(spec), description
    row.bucket_s, row.buckets, row.missing = bucket_s, len(values), int((~known).sum())
    row.starts_at = datetime.fromtimestamp(start_s, UTC)
    row.events = float(values[known].sum())
    row.data, row.digest = series.pack(values), series.digest(values)
    row.save()
    announce(f"cluster:{cluster.slug}")
    return row


def _length_faults(values: FloatArray, bucket_s: int) -> list[Fault]:
    if FEWEST_BUCKETS <= len(values) <= MOST_BUCKETS:
        return []
    allowed = f"{FEWEST_BUCKETS} to {MOST_BUCKETS:,}"
    return [Fault("bucket_s", f"that makes {len(values):,} whole buckets of {bucket_s} s; allowed: {allowed}")]


def _bucket_faults(bucket_s: Any) -> list[Fault]:
    if bucket_s in BUCKETS and not isinstance(bucket_s, bool):
        return []
    return [Fault("bucket_s", f"bucket_s is {bucket_s!r}; allowed: {', '.join(map(str, BUCKETS))}")]


def _check_free(cluster: Cluster, source_id: str, replace: bool) -> None:
    if not replace and LoadHistory.objects.filter(cluster=cluster, source_id=source_id).exists():
        message = f"{source_id!r} has a load history already; set replace to replace it"
        raise Conflict(f"source_id: {message}.", [("source_id", message)])
