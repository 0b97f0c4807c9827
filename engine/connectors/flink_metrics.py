"""Metrics of Flink's vertices by name: which to ask for and what they say; latency markers, events that wait.

With ``metrics.latency.interval`` set, sources emit markers that flow to the sinks: a lower bound of a job's latency. A
marker is made where the source emits it, so the wait before the source is not in it, and it passes operators by without
being worked on, so neither are their work and their windows: events take at least as long. With 1 kB records under back
pressure markers told 2.8 s where events took 11.7 s (docs/models/connectors.md).

A source of Flink's newer interface tells ``pendingRecords``: what its partitions have that it has not fetched. Offsets
that it commits to the broker are those of its last checkpoint, so lag by them counts what is processed already.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import quote, unquote

from engine.connectors.answers import Asking, normal_path, number_of
from engine.connectors.chains import duration_s
from engine.records import Record

__all__ = [
    "LATENCY_INTERVAL",
    "MAX_URL_BYTES",
    "MarkerLatency",
    "event_metrics",
    "has_markers",
    "is_marker",
    "marker_paths",
    "metric_paths",
    "pending_paths",
    "read_markers",
    "read_metrics",
    "read_pending",
    "result_metrics",
]


_PENDING = ".pendingRecords"
_MAX_PENDING_PATHS = 4  # asked of a vertex


def pending_paths(job: str, vertex: str, names: Any) -> tuple[str, ...]:
    """Paths that ask a source's vertex for what waits before it, given the names of its metrics (`metric_paths`).

    Examples
    --------
    >>> pending_paths("j", "v", [{"id": "Source__orders.pendingRecords"}, {"id": "Source__orders.numRecordsIn"}])
    ('/jobs/j/vertices/v/subtasks/metrics?agg=sum,max&get=Source__orders.pendingRecords',)
    """
    return metric_paths(job, vertex, names, [_PENDING]).paths[:_MAX_PENDING_PATHS]


def read_pending(answers: Mapping[str, object], job: str) -> dict[str, float]:
    """Events that wait before each source of a job, by its vertex; vertices that do not tell are not in it.

    `answers`: by path, those of `pending_paths` among them. A negative number is one that the source does not know.
    """
    events: dict[str, float] = {}
    prefix = f"/jobs/{job}/vertices/"
    for path, answer in answers.items():
        plain = normal_path(path)
        if not plain.startswith(prefix) or "/subtasks/metrics?" not in path or not isinstance(answer, list):
            continue
        vertex = unquote(plain.removeprefix(prefix).partition("/")[0])
        for row in answer:
            name = str(row.get("id", "")) if isinstance(row, Mapping) else ""
            value = number_of(row.get("sum")) if name.endswith(_PENDING) else None
            if value is not None and value >= 0.0:
                events[vertex] = events.get(vertex, 0.0) + value
    return events


_TAKEN = ".numRecordsIn"
_SINK_OPERATOR = re.compile(r"^Sink__|__Writer$")
_MAX_SINKS = 16  # of a vertex


def result_metrics(names: Any) -> tuple[str, ...]:
    """Metrics by which a vertex's sinks count the results that they take, given the names of its metrics.

    A vertex that nobody reads counts none of what it puts out. Of a sink with a committer the writer counts.

    Examples
    --------
    >>> result_metrics([{"id": "GroupAggregate[5].numRecordsIn"}, {"id": "out[7]__Writer.numRecordsIn"}])
    ('out[7]__Writer.numRecordsIn',)
    """
    rows = names if isinstance(names, list) else []
    listed = sorted({str(row.get("id", "")) for row in rows if isinstance(row, Mapping)})
    taken = [name for name in listed if name.endswith(_TAKEN)]
    sinks = [name for name in taken if _SINK_OPERATOR.search(name.removesuffix(_TAKEN))]
    writers = [name for name in sinks if name.removesuffix(_TAKEN).endswith("__Writer")]
    return tuple(writers or sinks)[:_MAX_SINKS]


_MAX_SOURCES = 16  # of a vertex
_SOURCE_EVENTS = re.compile(r"^Source__.*\.numRecordsOut$")


def event_metrics(names: Any) -> tuple[str, ...]:
    """Metrics by which a vertex's source counts its events, given the names of its metrics.

    A vertex counts nothing that its source reads, and puts out what is left by all that is chained to it; one that is a
    whole job at most what its sink says of itself.

    Examples
    --------
    >>> event_metrics([{"id": "Source__clicks.numRecordsOut"}, {"id": "parse.numRecordsOut"}])
    ('Source__clicks.numRecordsOut',)
    """
    rows = names if isinstance(names, list) else []
    listed = {str(row.get("id", "")) for row in rows if isinstance(row, Mapping)}
    counting = tuple(sorted(name for name in listed if _SOURCE_EVENTS.match(name)))
    return counting if len(counting) <= _MAX_SOURCES else ()  # some of them would tell too few


LATENCY_INTERVAL = "metrics.latency.interval"
_MARKER = re.compile(r"latency\.(?:source_id|operator_id)\.")  # by the granularities operator, subtask and single
_MEAN, _P99 = ".latency_mean", ".latency_p99"
_MAX_PATHS = 4  # asked of a vertex: what some of its subtasks say is a lower bound as well


@dataclass(frozen=True, slots=True)
class MarkerLatency(Record):
    """Latency of markers on the slowest way from a source to a sink, in seconds; the newest 128 markers of each."""

    TITLE: ClassVar[str] = "a latency of markers"

    mean_s: float
    p99_s: float


def has_markers(settings: Mapping[str, str]) -> bool:
    """Whether sources emit markers, as far as the settings of a job tell.

    Examples
    --------
    >>> has_markers({"metrics.latency.interval": "500 ms"}), has_markers({"metrics.latency.interval": "0"})
    (True, False)
    """
    return (duration_s(settings.get(LATENCY_INTERVAL, "")) or 0.0) > 0.0


def is_marker(name: str) -> bool:
    """Whether a metric of a vertex is one of markers.

    Examples
    --------
    >>> is_marker("latency.operator_id.cd.operator_subtask_index.0.latency_p99"), is_marker("Sink.latency_p99")
    (True, False)
    """
    return bool(_MARKER.match(name))


def marker_paths(job: str, vertex: str, names: Any) -> tuple[str, ...]:
    """Paths that ask a vertex for its markers, given the names of its metrics (`metric_paths`)."""
    rows = names if isinstance(names, Sequence) and not isinstance(names, str) else ()
    markers = [row for row in rows if isinstance(row, Mapping) and is_marker(str(row.get("id", "")))]
    return metric_paths(job, vertex, markers, [_MEAN, _P99]).paths[:_MAX_PATHS]


def read_markers(answers: Mapping[str, object], job: str) -> MarkerLatency | None:
    """Latency of a job's markers, the largest of every sink, subtask and source; None where there are none yet.

    `answers`: by path, those of `marker_paths` among them; Flink tells milliseconds.
    """
    values: dict[str, list[float]] = {_MEAN: [], _P99: []}
    for path, answer in answers.items():
        is_asked = normal_path(path).startswith(f"/jobs/{job}/vertices/") and "/subtasks/metrics?" in path
        for row in answer if is_asked and isinstance(answer, list) else ():
            name = str(row.get("id", "")) if isinstance(row, Mapping) else ""
            value = number_of(row.get("max")) if is_marker(name) else None
            if value is not None and value >= 0.0:
                values.setdefault(f".{name.rpartition('.')[2]}", []).append(value / 1000)
    if not values[_MEAN] or not values[_P99]:
        return None
    return MarkerLatency(max(values[_MEAN]), max(values[_P99]))


#: Flink answers 404 to a request line of 4,096 bytes; some of it is the method, the protocol and a proxy's prefix.
MAX_URL_BYTES = 3_900


def metric_paths(job: str, vertex: str, names: Any, suffixes: Sequence[str]) -> Asking:
    """Paths that ask a vertex for its metrics whose names end so, summed over subtasks, each URL short enough.

    `names` is the answer of ``/jobs/:jid/vertices/:vid/subtasks/metrics``: that path answers nothing at all where one
    name is unknown, so names are asked first. Empty where it has none of them. `read_metrics` reads the answers.
    """
    base = f"/jobs/{job}/vertices/{vertex}/subtasks/metrics?agg=sum,max&get="
    found = [str(item.get("id", "")) for item in names if isinstance(item, Mapping)] if isinstance(names, list) else []
    chosen = sorted(name for name in set(found) if name.endswith(tuple(suffixes)))
    paths: list[str] = []
    for name in (quote(name, safe="") for name in chosen):
        if len(base) + len(name) > MAX_URL_BYTES:
            continue
        if paths and len(paths[-1]) + 1 + len(name) <= MAX_URL_BYTES:
            paths[-1] += f",{name}"
        else:
            paths.append(base + name)
    return Asking(tuple(paths), 90 * len(chosen))


def read_metrics(answer: Any) -> dict[str, float]:
    """Metrics by name from an answer: sums of an aggregated one, values of another; NaN and missing ones left out."""
    values: dict[str, float] = {}
    for item in answer if isinstance(answer, list) else ():
        if isinstance(item, Mapping):
            value = number_of(item.get("value", item.get("sum", item.get("max"))))
            if value is not None:
                values[str(item.get("id", ""))] = value
    return values
