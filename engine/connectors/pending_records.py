"""Events that wait before the sources of a Flink job: which metrics to ask for, and what they say.

A source of Flink's newer interface tells ``pendingRecords``: what its partitions have that it has not fetched. Offsets
that it commits to the broker are those of its last checkpoint, so lag by them counts what is processed already.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from engine.connectors.answers import normal_path, number_of
from engine.connectors.flink import metric_paths

__all__ = ["pending_paths", "read_pending"]

_PENDING = ".pendingRecords"
_MAX_PATHS = 4  # asked of a vertex


def pending_paths(job: str, vertex: str, names: Any) -> tuple[str, ...]:
    """Paths that ask a source's vertex for what waits before it, given the names of its metrics (`metric_paths`).

    Examples
    --------
    >>> pending_paths("j", "v", [{"id": "Source__orders.pendingRecords"}, {"id": "Source__orders.numRecordsIn"}])
    ('/jobs/j/vertices/v/subtasks/metrics?agg=sum,max&get=Source__orders.pendingRecords',)
    """
    return metric_paths(job, vertex, names, [_PENDING]).paths[:_MAX_PATHS]


def read_pending(answers: Mapping[str, Any], job: str) -> dict[str, float]:
    """Events that wait before each source of a job, by its vertex; vertices that do not tell are not in it.

    Parameters
    ----------
    answers : mapping of str to decoded JSON
        By path, those of `pending_paths` among them. A negative number is one that the source does not know.
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
