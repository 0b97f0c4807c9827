"""Series of arrivals: packed for the database, cached as arrays, checked before they are stored."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from threading import Lock

import numpy as np
import numpy.typing as npt
import zstandard

from apps.core.errors import Conflict, Fault, Malformed, fault_count
from apps.core.limits import MAX_EVENTS_PER_COUNT
from apps.fleet.models import Cluster
from apps.queries.arrivals.grid import Trace
from apps.queries.models import ArrivalSeries
from engine.arrays import FloatArray, frozen_array
from engine.document.kinds import MAX_DISPERSION

__all__ = [
    "FILLS",
    "arrival_rows",
    "check_free",
    "check_length",
    "check_step",
    "count_faults",
    "digest",
    "dispersion_faults",
    "downsampled",
    "fill_faults",
    "load_arrays",
    "malformed",
    "pack",
    "raise_faults",
    "source_faults",
    "unpack",
]


# Level 3 packs a day of slices in a few milliseconds; higher levels gain little on counts.
_LEVEL = 3


def pack(values: npt.ArrayLike) -> bytes:
    """Compress a series, shape (n,), for a binary column."""
    return zstandard.ZstdCompressor(level=_LEVEL).compress(_raw(values))


def unpack(data: bytes | memoryview) -> FloatArray:
    """The series that `pack` compressed, read-only, shape (n,)."""
    return np.frombuffer(zstandard.ZstdDecompressor().decompress(bytes(data)), dtype="<f8")


def digest(values: npt.ArrayLike) -> str:
    """SHA-256 of the uncompressed series, in hex: the same numbers have the same digest."""
    return hashlib.sha256(_raw(values)).hexdigest()


def downsampled(values: FloatArray, points: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """A series in at most `points` nearly equal parts, for a chart.

    Returns
    -------
    first : ndarray, shape (m,)
        Index of each part's first value, m = min(points, n).
    mean, largest : ndarray, shape (m,)
        Mean and maximum of each part: a peak of one slice stays visible.
    """
    edges = np.linspace(0, len(values), min(points, len(values)) + 1).round().astype(np.int64)
    first, width = edges[:-1], np.diff(edges)
    return first.astype(np.float64), np.add.reduceat(values, first) / width, np.maximum.reduceat(values, first)


def _raw(values: npt.ArrayLike) -> bytes:
    # Adding 0.0 turns -0.0 into 0.0, so that equal series have equal bytes.
    return (np.ascontiguousarray(values, dtype="<f8") + 0.0).tobytes()


_CACHED_BYTES = 256_000_000


def arrival_rows(cluster: Cluster, names: Iterable[str]) -> list[ArrivalSeries]:
    """The named arrivals of a cluster without their data."""
    return list(ArrivalSeries.objects.filter(cluster=cluster, source_id__in=list(names)).defer("data", "spec"))


class _ArrayCache:
    """Unpacked series by digest, the least recently used dropped first."""

    def __init__(self, most_bytes: int) -> None:
        self._kept: OrderedDict[str, FloatArray] = OrderedDict()
        self._bytes, self._most_bytes, self._lock = 0, most_bytes, Lock()

    def get(self, digest: str) -> FloatArray | None:
        with self._lock:
            if digest in self._kept:
                self._kept.move_to_end(digest)
            return self._kept.get(digest)

    def put(self, digest: str, values: FloatArray) -> FloatArray:
        with self._lock:
            if digest not in self._kept:
                self._kept[digest] = values
                self._bytes += values.nbytes
            while self._bytes > self._most_bytes and len(self._kept) > 1:
                self._bytes -= self._kept.popitem(last=False)[1].nbytes
        return values


_arrays_by_digest = _ArrayCache(_CACHED_BYTES)


def load_arrays(rows: Iterable[ArrivalSeries]) -> dict[str, FloatArray]:
    """The series of every row by source, unpacked once per content and process."""
    rows = list(rows)
    arrays = {row.source_id: _arrays_by_digest.get(row.digest) for row in rows}
    missing = [row.pk for row in rows if arrays[row.source_id] is None]
    if missing:
        for row in ArrivalSeries.objects.filter(pk__in=missing):
            arrays[row.source_id] = _arrays_by_digest.put(row.digest, frozen_array(unpack(row.data)))
    return {name: values for name, values in arrays.items() if values is not None}


FILLS = ("zero", "repeat")


def fill_faults(fill: str) -> list[Fault]:
    """`fill` is one of the ways to go on after a trace's end, or empty where there is no need."""
    if fill in ("", *FILLS):
        return []
    return [Fault("fill", f"fill is {fill!r}; allowed: {', '.join(FILLS)}, or empty where the trace is long enough")]


def dispersion_faults(dispersion: float | None, dispersion_step_s: float | None, horizon_s: float) -> list[Fault]:
    """An index of dispersion and the width of the counts that it is of: both, or none of them."""
    given = {"dispersion": dispersion, "dispersion_step_s": dispersion_step_s}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == 1:
        other = next(name for name in given if name not in missing)
        return [Fault(missing[0], f"{missing[0]} is missing; {other} needs it")]
    if dispersion is None or dispersion_step_s is None:
        return []
    faults = []
    if not 0 <= dispersion <= MAX_DISPERSION:
        message = f"dispersion is {dispersion:g}; allowed: a number from 0 to {MAX_DISPERSION:g}"
        faults.append(Fault("dispersion", message))
    if not 0 < dispersion_step_s <= horizon_s:
        allowed = f"a number above 0, up to the horizon ({horizon_s:g} s)"
        faults.append(Fault("dispersion_step_s", f"dispersion_step_s is {dispersion_step_s:g}; allowed: {allowed}"))
    return faults


def source_faults(source_id: str) -> list[Fault]:
    """A source's name is printable and cannot be taken for an operator's or a private copy's."""
    if not isinstance(source_id, str) or not source_id.strip() or len(source_id) > 120 or not source_id.isprintable():
        return [Fault("source_id", f"source_id is {source_id!r}; allowed: 1 to 120 printable characters")]
    if "/" in source_id or "@" in source_id:
        # "q/op" is how operators are called in a cluster's documents, "source@q" how private copies are.
        return [Fault("source_id", f"source_id is {source_id!r}; allowed: no / and no @ in it")]
    return []


def count_faults(values: FloatArray) -> list[Fault]:
    """Every count is a number of at least 0; NaN fails both comparisons."""
    if values.ndim != 1 or not len(values):
        return [Fault("counts", "counts is empty; allowed: a list of numbers")]
    bad = np.flatnonzero(~((values >= 0) & (values <= MAX_EVENTS_PER_COUNT)))
    allowed = f"a number from 0 to {MAX_EVENTS_PER_COUNT:g}"
    return [Fault(f"counts[{i}]", f"item {i} is {values[i]}; allowed: {allowed}") for i in bad[:20].tolist()]


def check_free(cluster: Cluster, source_id: str, replace: bool) -> None:
    """Refuse a second series of a source unless it is to replace the first."""
    if not replace and ArrivalSeries.objects.filter(cluster=cluster, source_id=source_id).exists():
        message = f"{source_id!r} has arrivals already; set replace to replace them"
        raise Conflict(f"source_id: {message}.", [("source_id", message)])


def malformed(faults: Sequence[Fault]) -> Malformed:
    """The refusal that carries `faults`."""
    return Malformed(f"The arrivals have {fault_count(faults)}; first: {faults[0].path}: {faults[0].message}", faults)


def raise_faults(faults: Sequence[Fault]) -> None:
    """Raise Malformed if there are faults."""
    if faults:
        raise malformed(faults)


def check_step(step_s: float, horizon_s: float, path: str) -> None:
    """Refuse counts that last longer than the horizon: how many of their events come within it is not known."""
    if step_s > horizon_s * (1.0 + 1e-9):
        message = f"a count lasts {step_s:g} s; allowed: up to the horizon ({horizon_s:g} s)"
        raise Malformed(f"{path}: {message}.", [(path, message)])


def check_length(trace: Trace, start_s: float, cluster: Cluster, fill: str) -> None:
    """Refuse a trace that ends before the horizon unless it is said what follows."""
    known_s = trace.end_s - start_s
    if known_s < cluster.horizon_s * (1 - 1e-9) and not fill:
        message = (
            f"the trace has {known_s:,.0f} s from there on, the horizon {cluster.horizon_s:,.0f} s; "
            "choose fill: repeat it, or zero events after its end"
        )
        raise Malformed(f"fill: {message}.", [("fill", message)])
