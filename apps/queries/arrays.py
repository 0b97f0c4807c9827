"""Arrivals as arrays, unpacked once per content and process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from threading import Lock

from apps.fleet.models import Cluster
from apps.queries import series
from apps.queries.models import ArrivalSeries
from engine.elements import FloatArray, frozen_array

__all__ = ["arrays_of", "arrival_rows"]

_CACHED_BYTES = 256_000_000


def arrival_rows(cluster: Cluster, names: Iterable[str]) -> list[ArrivalSeries]:
    """The named arrivals of a cluster without their data."""
    return list(ArrivalSeries.objects.filter(cluster=cluster, source_id__in=list(names)).defer("data", "spec"))


class _Arrays:
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


_arrays_by_digest = _Arrays(_CACHED_BYTES)


def arrays_of(rows: Iterable[ArrivalSeries]) -> dict[str, FloatArray]:
    """The series of every row by source, unpacked once per content and process."""
    rows = list(rows)
    found = {row.source_id: _arrays_by_digest.get(row.digest) for row in rows}
    missing = [row.pk for row in rows if found[row.source_id] is None]
    if missing:
        for row in ArrivalSeries.objects.filter(pk__in=missing):
            found[row.source_id] = _arrays_by_digest.put(row.digest, frozen_array(series.unpack(row.data)))
    return {name: values for name, values in found.items() if values is not None}
