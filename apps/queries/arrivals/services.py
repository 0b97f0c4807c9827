"""Arrivals of sources stored: from uploads, generators and lists of counts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from django.core.files.base import File

from apps.accounts.teams import team_named
from apps.core.errors import Conflict, Fault, Malformed
from apps.core.events import announce
from apps.core.labels import label_faults
from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster
from apps.fleet.services import cluster_changed, cluster_locked
from apps.ledger.recorder import recorded
from apps.queries.arrivals import series
from apps.queries.arrivals.grid import EventCounts, resample
from apps.queries.arrivals.inspection import Inspection, inspect_table
from apps.queries.arrivals.series import (
    check_free,
    check_length,
    check_step,
    count_faults,
    dispersion_faults,
    fill_faults,
    malformed,
    raise_faults,
    source_faults,
)
from apps.queries.arrivals.times import zone_of
from apps.queries.arrivals.uploads import UploadedTrace, read_trace_window, text_limit_bytes, upload_keep, upload_open
from apps.queries.choices import ArrivalOrigin
from apps.queries.models import ArrivalSeries
from apps.queries.selectors import queries_reading
from engine.arrays import FloatArray
from engine.document.elements import EventFields
from engine.errors import Fault as EngineFault
from engine.workload import GENERATORS, WorkloadError

__all__ = [
    "SourceCounts",
    "arrivals_create_from_counts",
    "arrivals_create_from_generator",
    "arrivals_create_from_upload",
    "arrivals_delete",
    "arrivals_dispersion_update",
    "arrivals_fields_update",
    "arrivals_inspect",
    "arrivals_owner_update",
    "arrivals_replace",
    "arrivals_revived",
    "arrivals_row",
    "arrivals_store",
    "generate_arrivals",
]

_BATCH = 500  # rows of one statement, each with a packed series
_REPLACED = tuple(
    field.name
    for field in ArrivalSeries._meta.concrete_fields
    if field.name not in ("id", "cluster", "source_id", "team", "labels", "created_at")
)


def generate_arrivals(spec: Mapping[str, Any], cluster: Cluster, path: str = "generator") -> FloatArray:
    """Events per slice of `{"kind": …, "mean_rate_eps": …, …}` on a cluster's grid.

    Raises
    ------
    Malformed
        With every parameter that is unknown or has a value it does not take.
    """
    kind = spec.get("kind")
    generate = GENERATORS.get(kind) if isinstance(kind, str) else None
    if generate is None:
        raise malformed([Fault(f"{path}.kind", f"kind is {kind!r}; allowed: {', '.join(GENERATORS)}")])
    options = {name: value for name, value in spec.items() if name != "kind"}
    defaults = {"mean_rate_eps": 0.0, **(generate.__kwdefaults__ or {})}
    allowed = ", ".join(defaults)
    faults = [Fault(f"{path}.{name}", f"unknown field; allowed: {allowed}") for name in options if name not in defaults]
    wrong = [name for name in defaults if name in options and not _fits(options[name], defaults[name])]
    faults += [
        Fault(f"{path}.{name}", f"{name} is {options[name]!r}; allowed: {_kind(defaults[name])}") for name in wrong
    ]
    if "mean_rate_eps" not in options:
        faults.append(Fault(f"{path}.mean_rate_eps", "mean_rate_eps is missing; allowed: events per second"))
    raise_faults(faults)
    try:
        return generate(**options, horizon_s=cluster.horizon_s, slice_s=cluster.slice_s)
    except WorkloadError as error:
        raise malformed([Fault(f"{path}.{name}", message) for name, message in error.faults.items()]) from None


def _fits(value: Any, default: Any) -> bool:
    """Whether a parameter is of its default's kind. bool is checked first, since Python counts it as a number."""
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(default, bool) and isinstance(value, bool)
    return isinstance(value, int) if isinstance(default, int) else isinstance(value, (int, float))


def _kind(default: Any) -> str:
    if isinstance(default, bool):
        return "true or false"
    return "a whole number" if isinstance(default, int) else "a number"


def arrivals_inspect(*, file: File[Any], time_zone: str = "UTC") -> tuple[str, Inspection]:
    """Keep an uploaded table and look at it: the key to store it by, and what it seems to hold.

    Raises
    ------
    Malformed
        It is not a table, or damaged.
    TooLarge
        It is larger than the limit, as it is or unpacked.
    """
    zone_of(time_zone)
    key = upload_keep(file)
    with upload_open(key) as upload:
        return key, inspect_table(upload.file, limit_bytes=text_limit_bytes(), time_zone=time_zone)


@recorded()
def arrivals_create_from_upload(
    *,
    cluster: Cluster,
    source_id: str,
    upload: UploadedTrace,
    stretch: str = "busiest",
    fill: str = "",
    description: str = "",
    replace: bool = False,
) -> ArrivalSeries:
    """Store a stretch of an uploaded trace, one horizon long.

    Parameters
    ----------
    upload : UploadedTrace
        A kept file and how to read it.
    stretch : str
        `busiest` (the horizon with the most events), `first`, or the time it begins at.
    fill : str
        `zero` or `repeat`; needed only where the trace ends before the horizon.
    replace : bool
        Replace arrivals of the same source.

    Raises
    ------
    Malformed
        With every fault: lines that cannot be read, columns that do not exist, a trace too short without `fill`.
    Conflict
        The source has arrivals already and `replace` is not set.
    """
    raise_faults(source_faults(source_id) + fill_faults(fill))
    check_free(cluster, source_id, replace)
    window = read_trace_window(cluster=cluster, upload=upload, stretch=stretch, fill=fill)
    return arrivals_replace(
        cluster=cluster,
        source_id=source_id,
        values=window.values,
        origin=ArrivalOrigin.UPLOAD,
        evidence=Evidence.MEASURED,
        spec=window.spec,
        description=description,
        starts_at=datetime.fromtimestamp(window.start_s, UTC),
        step_s=window.step_s,
        dispersion=window.dispersion,
        dispersion_step_s=window.dispersion_step_s,
    )


@recorded()
def arrivals_create_from_generator(
    *, cluster: Cluster, source_id: str, spec: Mapping[str, Any], description: str = "", replace: bool = False
) -> ArrivalSeries:
    """Generate arrivals: `spec` is `{"kind": "on_off" | "poisson" | "diurnal", "mean_rate_eps": …, "seed": …, …}`.

    Raises
    ------
    Malformed
        With every parameter that is unknown or has a value it does not take.
    """
    raise_faults(source_faults(source_id))
    check_free(cluster, source_id, replace)
    values = generate_arrivals(spec, cluster)
    return arrivals_replace(
        cluster=cluster,
        source_id=source_id,
        values=values,
        origin=ArrivalOrigin.GENERATOR,
        evidence=Evidence.ASSUMED,
        spec=dict(spec),
        description=description,
    )


@recorded()
def arrivals_create_from_counts(
    *,
    cluster: Cluster,
    source_id: str,
    counts: Sequence[float],
    step_s: float | None = None,
    fill: str = "",
    description: str = "",
    origin: str = ArrivalOrigin.DOCUMENT,
    evidence: str = Evidence.ASSUMED,
    known_step_s: float | None = None,
    dispersion: float | None = None,
    dispersion_step_s: float | None = None,
    replace: bool = False,
) -> ArrivalSeries:
    """Store counts of events, one per step (a slice of the cluster unless given) from the beginning of the horizon.

    `known_step_s` tells that the counts themselves were spread from wider ones; `dispersion` is stated of counts of
    `dispersion_step_s`.
    """
    counts = SourceCounts(source_id, counts, known_step_s, dispersion, dispersion_step_s)
    step_s = cluster.slice_s if step_s is None else step_s
    values = _values_on_grid(cluster, counts, step_s, fill)
    check_free(cluster, source_id, replace)
    return arrivals_replace(
        cluster=cluster,
        source_id=source_id,
        values=values,
        origin=origin,
        evidence=evidence,
        spec={"step_s": step_s, "counts": len(counts.counts), "fill": fill},
        description=description,
        step_s=max(step_s, known_step_s or 0.0),
        dispersion=dispersion,
        dispersion_step_s=dispersion_step_s,
    )


@dataclass(frozen=True)
class SourceCounts:
    """Counts of a source from the beginning of the horizon; fields as of `arrivals_create_from_counts`."""

    source_id: str
    counts: Sequence[float]
    known_step_s: float | None = None
    dispersion: float | None = None
    dispersion_step_s: float | None = None
    event_fields: EventFields | None = None


def _values_on_grid(cluster: Cluster, source: SourceCounts, step_s: float, fill: str) -> FloatArray:
    """Counts of `step_s` checked, and on the cluster's grid."""
    faults = source_faults(source.source_id)
    if not (math.isfinite(step_s) and step_s > 0):
        faults.append(Fault("step_s", f"step_s is {step_s}; allowed: a number above 0"))
    values = np.asarray(source.counts, dtype=np.float64)
    faults += fill_faults(fill) + dispersion_faults(source.dispersion, source.dispersion_step_s, cluster.horizon_s)
    faults += count_faults(values)
    raise_faults(faults)
    check_step(step_s, cluster.horizon_s, "step_s")
    if len(values) == cluster.slices and step_s == cluster.slice_s:
        return values
    trace = EventCounts(np.arange(len(values)) * step_s, np.full(len(values), step_s), values)
    check_length(trace, 0.0, cluster, fill)
    return resample(trace, start_s=0.0, slice_s=cluster.slice_s, slices=cluster.slices, fill=fill or "zero")


def arrivals_row(cluster: Cluster, source: SourceCounts, step_s: float, fill: str) -> ArrivalSeries:
    """The arrivals of a source of a document, checked and packed, but not stored: what takes long needs no transaction.

    Raises
    ------
    Malformed
        With every fault.
    """
    row = ArrivalSeries(cluster=cluster, source_id=source.source_id, origin=ArrivalOrigin.DOCUMENT)
    row.evidence, row.spec = Evidence.ASSUMED, {"step_s": step_s, "counts": len(source.counts), "fill": fill}
    _set_series(row, _values_on_grid(cluster, source, step_s, fill), max(step_s, source.known_step_s or 0.0))
    row.dispersion, row.dispersion_step_s = source.dispersion, source.dispersion_step_s
    if source.event_fields is not None:
        row.event_fields = source.event_fields.to_dict()
    return row


@recorded()
def arrivals_store(*, cluster: Cluster, rows: Sequence[ArrivalSeries]) -> list[str | None]:
    """Store rows of `arrivals_row`, by a number of statements that does not grow with them; digests of those before.

    Rows take the place of those of the same source, which keeps the fields of its events where none are stated.

    Raises
    ------
    Conflict
        The cluster's grid is another one by now.
    """
    _check_grid(cluster, cluster_locked(cluster).get())
    known = {row.source_id: row for row in cluster.arrivals.only("source_id", "digest", "event_fields")}
    for row in rows:
        if row.source_id in known:
            row.event_fields = row.event_fields or known[row.source_id].event_fields
    ArrivalSeries.objects.bulk_create(
        rows,
        batch_size=_BATCH,
        update_conflicts=True,
        unique_fields=["cluster", "source_id"],
        update_fields=_REPLACED,
    )
    cluster_changed.send(ArrivalSeries, cluster=cluster)
    announce(f"cluster:{cluster.slug}")
    return [known[row.source_id].digest if row.source_id in known else None for row in rows]


@recorded()
def arrivals_replace(
    *,
    cluster: Cluster,
    source_id: str,
    values: FloatArray,
    origin: str,
    evidence: str = Evidence.ASSUMED,
    spec: Mapping[str, Any] | None = None,
    description: str = "",
    starts_at: datetime | None = None,
    step_s: float | None = None,
    dispersion: float | None = None,
    dispersion_step_s: float | None = None,
) -> ArrivalSeries:
    """Store a source's events per slice of the cluster's grid, in the place of what it may have.

    Parameters
    ----------
    step_s : float
        Width of the counts that the values were spread from; None: they are exact.
    dispersion, dispersion_step_s : float
        Index of dispersion of the counts, and their width, where it is known.

    Raises
    ------
    Malformed
        Another number of values than the cluster has slices, a value that is negative, NaN or infinite.
    """
    present = cluster_locked(cluster).get()  # its grid stays as it is until this is stored
    faults = source_faults(source_id) + count_faults(values)
    _check_grid(cluster, present)
    if len(values) != present.slices:
        allowed = f"{present.slices}, the slices of the cluster's horizon"
        faults.append(Fault("counts", f"there are {len(values)} values; allowed: {allowed}"))
    if len(description) > 200:
        faults.append(Fault("description", f"description has {len(description)} characters; allowed: 200"))
    raise_faults(faults)
    row = ArrivalSeries.objects.filter(cluster=cluster, source_id=source_id).first()
    row = row or ArrivalSeries(cluster=cluster, source_id=source_id)
    row.origin, row.evidence, row.spec, row.description = origin, evidence, dict(spec or {}), description
    row.starts_at = starts_at
    row.dispersion, row.dispersion_step_s = dispersion, dispersion_step_s
    _set_series(row, values, step_s)
    row.save()
    announce(f"cluster:{cluster.slug}")
    return row


def _check_grid(cluster: Cluster, present: Cluster) -> None:
    """Refuse values on a grid that is not the cluster's any more."""
    if (present.subinterval_s, present.slices) != (cluster.subinterval_s, cluster.slices):
        raise Conflict("The cluster's subinterval or horizon was changed meanwhile. Store the arrivals again.")


def _set_series(row: ArrivalSeries, values: FloatArray, step_s: float | None) -> None:
    """The values of a row on its cluster's grid, and what is said of them."""
    row.slice_s, row.slices = row.cluster.slice_s, row.cluster.slices
    row.step_s = _step_s(step_s, row.cluster)
    row.data, row.digest = series.pack(values), series.digest(values)
    row.events, row.peak_eps = float(values.sum()), float(values.max() / row.slice_s)


def _step_s(step_s: float | None, cluster: Cluster) -> float | None:
    """Width of counts in whole slices, up to the horizon; None where slices are no finer than they were."""
    if step_s is None or step_s <= cluster.slice_s * (1.0 + 1e-6):
        return None
    return cluster.slice_s * min(math.ceil(step_s / cluster.slice_s - 1e-6), cluster.slices)


@recorded()
def arrivals_fields_update(*, arrivals: ArrivalSeries, event_fields: Any) -> ArrivalSeries:
    """State the fields of a source's events by type, `{"ints": 2, "strings": 3, "doubles": 1}`; None: not stated.

    Raises
    ------
    Malformed
        With every fault.
    """
    faults: list[EngineFault] = []
    fields = None if event_fields is None else EventFields.read(event_fields, "", "event_fields", faults)
    if faults:
        raise malformed([Fault(fault.path, fault.message) for fault in faults])
    arrivals.event_fields = fields.to_dict() if fields and event_fields else {}
    arrivals.save(update_fields=["event_fields", "updated_at"])
    announce(f"cluster:{arrivals.cluster.slug}")
    return arrivals


@recorded()
def arrivals_owner_update(*, arrivals: ArrivalSeries, team: Any = ..., labels: Any = ...) -> ArrivalSeries:
    """Say which team owns a source and which labels it has, each as it is unless given: who sees it goes by them.

    A team of a new name is made, and no name is nobody's; labels take the place of all that it has.

    Raises
    ------
    Malformed
        With every fault.
    """
    faults: list[Fault] = []
    if team is not ...:
        try:
            arrivals.team = team_named(team) if isinstance(team, str) else team
        except Malformed as error:
            faults += error.faults
    if labels is not ...:
        faults += label_faults(labels)
        arrivals.labels = labels
    raise_faults(faults)
    arrivals.save(update_fields=["team", "labels", "updated_at"])
    announce(f"cluster:{arrivals.cluster.slug}")
    return arrivals


@recorded()
def arrivals_dispersion_update(
    *, arrivals: ArrivalSeries, dispersion: float | None, dispersion_step_s: float | None
) -> ArrivalSeries:
    """State the index of dispersion of a source's counts and their width, as where the trace is known as counts over
    minutes alone; None for both: not stated. What replaces the arrivals replaces this too.

    Raises
    ------
    Malformed
        One without the other, a dispersion below 0, a width above the horizon.
    """
    raise_faults(dispersion_faults(dispersion, dispersion_step_s, arrivals.cluster.horizon_s))
    arrivals.dispersion, arrivals.dispersion_step_s = dispersion, dispersion_step_s
    arrivals.save(update_fields=["dispersion", "dispersion_step_s", "updated_at"])
    announce(f"cluster:{arrivals.cluster.slug}")
    return arrivals


@recorded()
def arrivals_revived(*, arrivals: ArrivalSeries) -> None:
    """Check arrivals that have come back, and tell of them: they are of the grid that they were stored at.

    Raises
    ------
    Conflict
        The cluster's grid is another one by now.
    """
    cluster = cluster_locked(arrivals.cluster).get()
    if (arrivals.slice_s, arrivals.slices) != (cluster.slice_s, cluster.slices):
        message = f"they are of {arrivals.slices} slices of {arrivals.slice_s:g} s; the cluster has {cluster.slices}"
        raise Conflict(f"The arrivals are of another grid: {message} of {cluster.slice_s:g} s.", [("slices", message)])
    cluster_changed.send(ArrivalSeries, cluster=cluster)
    announce(f"cluster:{cluster.slug}")


@recorded()
def arrivals_delete(*, arrivals: ArrivalSeries) -> None:
    """Delete a source's arrivals, unless a query reads them that is not stopped."""
    cluster_locked(arrivals.cluster).get()  # no query that reads them is started meanwhile
    names = queries_reading(arrivals)
    if names:
        raise Conflict(
            f"Source {arrivals.source_id!r} is read by {', '.join(names[:8])}. Stop or delete the queries first.",
            [("", f"query {name} reads it") for name in names],
        )
    announce(f"cluster:{arrivals.cluster.slug}")
    arrivals.delete()
