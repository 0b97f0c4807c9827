"""Latency markers of Flink, a lower bound of a job's latency: which metrics to ask for, and what they say.

With ``metrics.latency.interval`` set, sources emit markers that flow to the sinks. A marker is made where the source
emits it, so the wait before the source is not in it, and it passes operators by without being worked on, so neither are
their work and their windows: events take at least as long. With 1 kB records under back pressure markers told 2.8 s
where events took 11.7 s (docs/models/connectors.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.connectors.answers import normal_path, number_of
from engine.connectors.chains import duration_s
from engine.connectors.flink import metric_paths

__all__ = ["LATENCY_INTERVAL", "MarkerLatency", "has_markers", "is_marker", "marker_paths", "read_markers"]

LATENCY_INTERVAL = "metrics.latency.interval"
_MARKER = re.compile(r"latency\.(?:source_id|operator_id)\.")  # by the granularities operator, subtask and single
_MEAN, _P99 = ".latency_mean", ".latency_p99"
_MAX_PATHS = 4  # asked of a vertex: what some of its subtasks say is a lower bound as well


@dataclass(frozen=True, slots=True)
class MarkerLatency:
    """Latency of markers on the slowest way from a source to a sink, in seconds; the newest 128 markers of each."""

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


def read_markers(answers: Mapping[str, Any], job: str) -> MarkerLatency | None:
    """Latency of a job's markers, the largest of every sink, subtask and source; None where there are none yet.

    Parameters
    ----------
    answers : mapping of str to decoded JSON
        By path, those of `marker_paths` among them; Flink tells milliseconds.
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
