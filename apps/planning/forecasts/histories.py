"""Load histories of sources: put in buckets from uploads or generated, extended, deleted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from typing import Any

import numpy as np
from django.db import transaction
from django.utils import timezone

from apps.core.errors import Conflict, Fault
from apps.core.events import announce
from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster
from apps.planning.choices import HistoryOrigin
from apps.planning.models import LoadHistory
from apps.queries.arrivals import series
from apps.queries.arrivals.grid import EventCounts, EventStamps, Trace, resample
from apps.queries.arrivals.series import malformed, raise_faults, source_faults
from apps.queries.arrivals.times import zone_of
from apps.queries.arrivals.uploads import UploadedTrace
from engine.arrays import FloatArray
from engine.forecasts.history import bucket_fault

__all__ = [
    "GENERATOR_DEFAULTS",
    "MAX_BUCKETS",
    "MIN_BUCKETS",
    "bucket_trace",
    "coarsen_buckets",
    "generate_history",
    "history_create_from_generator",
    "history_create_from_upload",
    "history_delete",
    "history_extend",
    "history_store_measured",
    "history_values",
    "merge_buckets",
    "read_generator",
]

_MIN_KNOWN_SHARE = 0.5  # share of a bucket that counts must cover for it to be known
# name: default, least, most, what it is
_FIELDS: dict[str, tuple[float, float, float]] = {
    "peak_rate_eps": (0.0, 0.0, 1e9),
    "weeks": (8, 1, 104),
    "growth_per_week": (0.02, -0.5, 0.5),
    "daily_swing": (0.5, 0.0, 1.0),
    "weekend_dip": (0.2, 0.0, 1.0),
    "peak_hour": (14.0, 0.0, 24.0),
    "noise": (0.03, 0.0, 1.0),
    "seed": (0, 0, 2**31 - 1),
}
_WHOLE = {"weeks", "seed"}
GENERATOR_DEFAULTS = {name: entry[0] for name, entry in _FIELDS.items()}
MIN_BUCKETS = 16
_MEASURED_BUCKET_S = 3600
MAX_BUCKETS = 100_000


def bucket_trace(trace: Trace, bucket_s: int) -> tuple[float, FloatArray]:
    """Unix time of the first bucket, and events per bucket, NaN in gaps.

    Buckets at either end that the trace covers only in part are left out. A bucket half covered or more is scaled up to
    its whole; of single events nothing tells a gap from silence, so silence it is.

    Raises
    ------
    Malformed
        Counts that last longer than a bucket: nothing tells how their events are spread over several.
    """
    step_s = float(np.median(trace.widths_s)) if isinstance(trace, EventCounts) else 0.0
    if step_s > bucket_s * (1.0 + 1e-9):
        raise malformed([Fault("file", f"its counts last {step_s:g} s each; allowed: up to the bucket ({bucket_s} s)")])
    first_s = math.floor(trace.start_s / bucket_s) * bucket_s
    buckets = max(1, math.ceil((trace.end_s - first_s) / bucket_s))
    grid = {"start_s": first_s, "slice_s": float(bucket_s), "slices": buckets}
    values = resample(trace, **grid)
    covered = _covered_share(trace, grid, bucket_s)
    whole = np.flatnonzero(covered > 0.999)
    if not len(whole):
        return first_s, np.zeros(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.where(covered >= _MIN_KNOWN_SHARE, values / covered, np.nan)
    low, high = int(whole[0]), int(whole[-1]) + 1
    return first_s + low * bucket_s, values[low:high]


def _covered_share(trace: Trace, grid: dict[str, float], bucket_s: int) -> FloatArray:
    if isinstance(trace, EventStamps):
        share = np.ones(int(grid["slices"]))
        # The ends are known as far as half of the usual distance of two events beyond the first and the last.
        near = (trace.end_s - trace.start_s) / max(1.0, 2.0 * trace.total)
        share[0] = min(1.0, (grid["start_s"] + bucket_s - trace.start_s + near) / bucket_s)
        share[-1] = min(1.0, (trace.end_s + near - grid["start_s"]) / bucket_s - (len(share) - 1))
        return share
    known_s = resample(EventCounts(trace.starts_s, trace.widths_s, trace.widths_s), **grid)  # type: ignore[arg-type]
    return np.asarray(known_s / bucket_s)


def merge_buckets(
    first_s: float, values: FloatArray, later_s: float, later: FloatArray, bucket_s: int
) -> tuple[float, FloatArray]:
    """Two series on one grid as one: where both know a bucket the later one counts, between them is a gap."""
    start_s = min(first_s, later_s)
    places = [round((at - start_s) / bucket_s) for at in (first_s, later_s)]
    whole = np.full(max(places[0] + len(values), places[1] + len(later)), np.nan)
    whole[places[0] : places[0] + len(values)] = values
    part = whole[places[1] : places[1] + len(later)]
    np.copyto(part, later, where=np.isfinite(later))
    return start_s, whole


def coarsen_buckets(first_s: float, values: FloatArray, bucket_s: int, wanted_s: int) -> tuple[float, FloatArray]:
    """A series in larger buckets (a multiple of its own); a bucket with an unknown part is unknown."""
    if wanted_s % bucket_s:
        raise ValueError(f"buckets of {bucket_s} s do not add up to {wanted_s} s")
    factor = wanted_s // bucket_s
    start_s = math.ceil(first_s / wanted_s) * wanted_s
    skip = round((start_s - first_s) / bucket_s)
    count = max(0, (len(values) - skip) // factor)
    return start_s, values[skip : skip + count * factor].reshape(count, factor).sum(axis=1)


def read_generator(fields: Mapping[str, Any], path: str = "generator") -> dict[str, float]:
    """The parameters with their defaults.

    Raises
    ------
    Malformed
        With every parameter that is unknown, missing or out of range.
    """
    faults = [
        Fault(f"{path}.{name}", f"unknown field; allowed: {', '.join(_FIELDS)}")
        for name in fields
        if name not in _FIELDS
    ]
    if "peak_rate_eps" not in fields:
        faults.append(Fault(f"{path}.peak_rate_eps", "peak_rate_eps is missing; allowed: events per second"))
    for name, (_, lowest, highest) in _FIELDS.items():
        value = fields.get(name, lowest)
        kind = "a whole number" if name in _WHOLE else "a number"
        fits = isinstance(value, int if name in _WHOLE else (int, float)) and not isinstance(value, bool)
        if not (fits and lowest <= value <= highest):
            allowed = f"{kind} from {lowest:g} to {highest:g}"
            faults.append(Fault(f"{path}.{name}", f"{name} is {value!r}; allowed: {allowed}"))
    if faults:
        raise malformed(faults)
    return {**GENERATOR_DEFAULTS, **fields}


def generate_history(
    spec: Mapping[str, float], *, bucket_s: int, ends_at: datetime, zone: tzinfo
) -> tuple[float, FloatArray]:
    """Unix time of the first bucket and events per bucket, up to the last bucket that is over at `ends_at`.

    The rate is ``peak_rate_eps`` in the busiest hour of a working day at the end; `daily_swing` below it twelve hours
    from `peak_hour`; `weekend_dip` lower on Saturday and Sunday; and smaller in the past by the growth per week. Days
    are those of `zone`.
    """
    if fault := bucket_fault(bucket_s):
        raise ValueError(fault)
    end_s = math.floor(ends_at.timestamp() / bucket_s) * bucket_s
    count = round(spec["weeks"] * 604_800 / bucket_s)
    start_s = end_s - count * bucket_s
    middles = start_s + (np.arange(count) + 0.5) * bucket_s
    local = [datetime.fromtimestamp(at, UTC).astimezone(zone) for at in middles]
    hours = np.array([at.hour + at.minute / 60.0 for at in local])
    weekend = np.array([at.weekday() >= 5 for at in local])
    day = 1.0 - spec["daily_swing"] * 0.5 * (1.0 - np.cos(2.0 * np.pi * (hours - spec["peak_hour"]) / 24.0))
    week = np.where(weekend, 1.0 - spec["weekend_dip"], 1.0)
    growth = (1.0 + spec["growth_per_week"]) ** ((middles - end_s) / 604_800.0)
    rng = np.random.default_rng(int(spec["seed"]))
    noise = rng.normal(0.0, spec["noise"], count)
    rate = spec["peak_rate_eps"] * day * week * growth * np.exp(noise - 0.5 * spec["noise"] ** 2)
    return start_s, rng.poisson(rate * bucket_s).astype(np.float64)


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
    spec: Mapping[str, Any],
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
    spec: Mapping[str, Any],
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
