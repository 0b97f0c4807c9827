"""Progress of the streaming query for the console: every micro-batch once, with the records it held."""

from __future__ import annotations

import json
import re
import threading
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agent.wire import broker
from spark_jobs.console import ConsoleAway, ConsoleClient, ConsoleRefused
from spark_jobs.stream import OPERATORS

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.listener import StreamingQueryProgress

__all__ = ["ProgressFeed"]

NAME = "stream processor"
_MAX_UNSENT = 500  # batches that wait while the console is away; the oldest go first
_MAX_POSTED = 100
_MAX_REMEMBERED = 1_000  # batches whose records are known, before Spark has reported them
_MIN_TRIGGER_S, _MAX_TRIGGER_S = 0.1, 600.0


class ProgressFigures:
    """Figures of the newest batch, and sums over those since this process began."""

    def __init__(self) -> None:
        self._last: dict[str, Any] = {}
        self._operators: dict[str, dict[str, float | None]] = {}
        self._totals: dict[str, float] = defaultdict(float)

    def add(self, document: Mapping[str, Any]) -> None:
        """Add a batch's progress, in which operators have their names."""
        records, batch_s = document["numInputRows"], document.get("durationMs", {}).get("triggerExecution", 0) / 1000
        self._last = {"records": records, "batch_s": batch_s}
        self._sum("batches", 1)
        self._sum("records", records)
        self._sum("batch_s", batch_s)
        observed = document.get("observedMetrics") or {}
        for operator in document.get("stateOperators", ()):
            name = operator["operatorName"]
            figures = _operator_figures(operator, document["batchId"], observed.get(name) or {})
            for key in _SUMMED:
                self._sum(f"{name}.{key}", figures[key] or 0)
            self._operators[name] = figures

    def report(self) -> dict[str, Any]:
        """For the report of the stream processor; nothing before the first batch."""
        if not self._last:
            return {}
        operators = [
            {"operator": name, **figures, **{f"{key}_total": self._totals[f"{name}.{key}"] for key in _SUMMED}}
            for name, figures in self._operators.items()
        ]
        totals = {f"{key}_total": round(self._totals[key], 3) for key in ("batches", "records", "batch_s")}
        return {**self._last, **totals, "operators": operators}

    def _sum(self, key: str, value: float) -> None:
        self._totals[key] += value


_SUMMED = ("updated_rows", "commit_s", "output_rows", "output_bytes")
_SNAPSHOT = "SnapshotLastUploaded."  # a version by partition: batch n makes version n + 1


def _operator_figures(operator: Mapping[str, Any], batch: int, observed: Mapping[str, Any]) -> dict[str, float | None]:
    """Figures of an operator in one batch; those that Spark does not report are None.

    `batches_since_snapshot` is what a restart replays, of the partition with the oldest snapshot.
    """
    more = operator.get("customMetrics") or {}
    snapshots = [version for name, version in more.items() if name.startswith(_SNAPSHOT)]
    return {
        "rows": operator.get("numRowsTotal"),
        "updated_rows": operator.get("numRowsUpdated"),
        "memory_bytes": operator.get("memoryUsedBytes"),
        "disk_bytes": more.get("rocksdbSstFileSize"),
        "update_s": operator.get("allUpdatesTimeMs", 0) / 1000,
        "commit_s": operator.get("commitTimeMs", 0) / 1000,
        "batches_since_snapshot": max(0, batch + 1 - min(snapshots)) if snapshots else None,
        "output_rows": observed.get("rows"),
        "output_bytes": observed.get("bytes"),
    }


class ProgressFeed:
    """Collects progress, posts it, and knows the trigger that the console asks for.

    Spark counts spans as rows, because frames are read behind its back: `records` of a batch replace them. Without the
    console posts are late, and nothing else is.
    """

    def __init__(self, console: ConsoleClient, master: str, trigger_s: float, shuffle_partitions: int) -> None:
        self._console, self._master, self._shuffle_partitions = console, master, shuffle_partitions
        self._records: dict[int, int] = {}
        self._unsent: deque[dict[str, Any]] = deque(maxlen=_MAX_UNSENT)
        self._seen: tuple[str, int] = ("", -1)
        self._looking = threading.Lock()  # reports look now and then, the main thread when a query has ended
        self.trigger_s = trigger_s  #: of the query that runs
        self.wanted_trigger_s = trigger_s
        self.fault = ""
        self.figures = ProgressFigures()

    def batch_taken(self, batch: int, records: int) -> None:
        """Note the records of a batch; called by Spark's thread before the batch ends."""
        self._records[batch] = records
        while len(self._records) > _MAX_REMEMBERED:
            del self._records[next(iter(self._records))]

    def look(self, query: StreamingQuery) -> None:
        """Take up what has ended since the last look: the last progress alone, where there is one more."""
        with self._looking:
            last = query.lastProgress
            if last is None:
                return
            run, batch = str(last["runId"]), int(last["batchId"])
            if (run, batch) == self._seen:
                return
            is_next = self._seen == (run, batch - 1)
            for progress in [last] if is_next and last["numInputRows"] else query.recentProgress:
                self._take(progress, run)

    def _take(self, progress: StreamingQueryProgress, run: str) -> None:
        batch = int(progress["batchId"])
        seen = self._seen[1] if self._seen[0] == run else -1
        if batch <= seen or not progress["numInputRows"]:
            return
        self._seen = run, batch
        records = self._records.pop(batch, None)
        if records is None:
            return  # a batch that was committed before
        document = json.loads(progress.json)
        for rate_of_spans in ("inputRowsPerSecond", "processedRowsPerSecond"):
            document.pop(rate_of_spans, None)
        document["numInputRows"] = records
        document["trigger"] = {"type": "ProcessingTime", "intervalMs": round(self.trigger_s * 1000)}
        for name, operator in zip(OPERATORS, document.get("stateOperators", ()), strict=False):
            operator["operatorName"] = name
        self.figures.add(document)
        self._unsent.append(document)

    def post(self) -> None:
        """Post what waits, and read the trigger that the console asks for."""
        while documents := list(self._unsent)[:_MAX_POSTED]:
            try:
                answer = self._console.post_progress({"query": self._query(), "progress": documents})
            except ConsoleAway:
                return
            except ConsoleRefused as refused:  # an older console, or one that cannot read it: not a reason to stop
                self.fault, answer = f"progress: {refused}", {}
            else:
                self.fault = ""
            for _ in documents:
                self._unsent.popleft()
            self._read(answer.get("settings"))

    def _read(self, settings: Any) -> None:
        wanted = settings.get("trigger_s") if isinstance(settings, Mapping) else None
        if isinstance(wanted, (int, float)) and not isinstance(wanted, bool):
            self.wanted_trigger_s = min(max(float(wanted), _MIN_TRIGGER_S), _MAX_TRIGGER_S)

    def _query(self) -> dict[str, Any]:
        """The query and its settings, as far as this process knows them."""
        return {
            "name": NAME,
            "executors": 1,
            "cores_per_executor": _local_cores(self._master),
            "input_partitions": broker.PARTITIONS,
            "shuffle_partitions": self._shuffle_partitions,
            "trigger_s": self.trigger_s,
            "stateful": True,
        }


def _local_cores(master: str) -> int | None:
    """Cores of a local master; None where executors are elsewhere.

    Examples
    --------
    >>> _local_cores("local[2]"), _local_cores("spark://host:7077")
    (2, None)
    """
    found = re.fullmatch(r"local\[(\d+)\]", master)
    return int(found[1]) if found else None
