"""HTTP to the console: the plan comes from there; results, statistics and progress of micro-batches go there."""

from __future__ import annotations

import json
import re
import threading
from collections import defaultdict, deque
from collections.abc import Mapping
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, cast
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

from agent.wire import broker
from spark_jobs.stream import OPERATORS

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.listener import StreamingQueryProgress

__all__ = ["ConsoleAway", "ConsoleClient", "ConsoleFailed", "ConsoleRefused", "ProgressFeed"]

FRAMES_TYPE = "application/vnd.sluice.frames"
_BASE = "/api/v1/stream-processor"
_SHOWN_CHARACTERS = 300
#: Answers that say nothing of what was sent: the same request may do later.
_PASSING = frozenset({401, 403, 408, 409, 425, 429})
#: Those of a console, or of a proxy before it, that is not there.
_ABSENT = frozenset({502, 503, 504})


class ConsoleAway(RuntimeError):
    """No answer of the console, or one that a later request may change; the text says which."""


class ConsoleFailed(ConsoleAway):
    """The console failed at this request, by fault of the data or of the console."""


class ConsoleRefused(RuntimeError):
    """The console takes no such thing, today or later."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"the console answered {status}: {message}")
        self.status = status


class ConsoleClient:
    """The stream processor's end of the REST API."""

    def __init__(self, url: str, token: str, timeout_s: float = 10.0) -> None:
        self._url = url.rstrip("/")
        self._base, self._token, self._timeout_s = self._url + _BASE, token, timeout_s
        self._etag: str | None = None

    def plan(self) -> dict[str, Any] | None:
        """The queries that are live; None when nothing changed since the last call.

        Raises
        ------
        ConsoleAway, Refused
        """
        more = {"If-None-Match": self._etag} if self._etag else {}
        status, headers, body = self._ask("GET", "/plan", more)
        if status == 304:
            return None
        answer = self._read(body)
        self._etag = headers.get("ETag")
        return answer

    def pipeline(self, digest: str) -> dict[str, Any]:
        """The document of a pipeline that was live once.

        Raises
        ------
        ConsoleAway, Refused
        """
        answer = self._read(self._ask("GET", f"/pipelines/{quote(digest, safe='')}", {})[2])
        return answer.get("pipeline", answer)

    def post(self, frames: bytes) -> None:
        """Hand over RESULT and STATISTICS frames; the console knows those it has.

        Raises
        ------
        ConsoleAway, ConsoleFailed, Refused
        """
        self._ask("POST", "/frames", {"Content-Type": FRAMES_TYPE}, frames)

    def post_progress(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Hand over progress of the streaming query; the answer has the settings that the console asks for.

        Raises
        ------
        ConsoleAway, ConsoleFailed, Refused
        """
        body = json.dumps(document).encode()
        return self._read(self._ask("POST", "/progress", {"Content-Type": "application/json"}, body)[2])

    def is_well(self) -> bool:
        """Whether the console reports itself ready: its database answers and has its tables."""
        try:
            with urlopen(f"{self._url}/healthz", timeout=self._timeout_s) as answer:
                return bool(answer.status == 200)
        except (HTTPException, OSError):
            return False

    def _ask(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        document = {"Authorization": f"Bearer {self._token}", "Accept": "application/json", **headers}
        request = Request(self._base + path, data=body, headers=document, method=method)
        try:
            with urlopen(request, timeout=self._timeout_s) as answer:
                return answer.status, cast(Mapping[str, str], answer.headers), answer.read()
        except HTTPError as error:
            with error:
                if error.code == 304:
                    return 304, cast(Mapping[str, str], error.headers), b""
                text = _reason(error.read())[:_SHOWN_CHARACTERS]
            if error.code >= 500 or error.code in _PASSING:
                failed = error.code >= 500 and error.code not in _ABSENT
                away = ConsoleFailed if failed else ConsoleAway
                raise away(f"the console answered {error.code}: {text}") from error
            raise ConsoleRefused(error.code, text) from error
        except (URLError, HTTPException, OSError) as error:
            raise ConsoleAway(f"the console does not answer at {self._base}: {error}") from error

    def _read(self, body: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(body)
        except ValueError as error:
            raise ConsoleAway(f"the console's answer is no JSON: {error}") from error
        if not isinstance(answer, dict):
            raise ConsoleAway(f"the console's answer is a {type(answer).__name__}; allowed: an object")
        return answer


def _reason(body: bytes) -> str:
    """The sentence of a refusal; the body as text where it is no problem of the console's (a proxy's page, say)."""
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")


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
