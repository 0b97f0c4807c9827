"""Reading of StreamingQueryProgress objects, whatever Spark's version; `progress_text` finds them in a text."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from engine.errors import DocumentError, Fault, join_path, value_words
from engine.kinds import Number, String
from engine.microbatch.progress_text import shorten_faults
from engine.records import BAD

__all__ = ["BatchProgress", "ProgressReading", "offset_of", "read_progress", "usual_trigger_s"]

_WHAT = "progress of a Spark query"
_COUNT = Number(least=0, most=10**15, whole=True)
_MS = Number(least=0, most=1e18)  # also bytes: sums of what is larger would overflow
_DURATION_MS = Number(least=0, most=1e10)
_TRIGGER_MS = Number(least=0, most=86_400_000)
_PARTITIONS = Number(least=1, most=100_000, whole=True)
_TEXT = String()
_MAX_DAMAGED_SHARE = 0.1  # of the objects; more are of another kind
_BUSY = 0.9  # of the distance to the next: a batch that fills more of it may have been followed at once
_MIN_INTERVALS = 5
_ALIKE = 0.1
_STATE_FIGURES = {
    "numRowsTotal": "rows",
    "numRowsUpdated": "updated_rows",
    "memoryUsedBytes": "memory_bytes",
    "allUpdatesTimeMs": "update_ms",
    "allRemovalsTimeMs": "removal_ms",
    "commitTimeMs": "commit_ms",
    "numRowsDroppedByWatermark": "dropped_rows",
    "numShufflePartitions": "shuffle_partitions",
}


@dataclass(frozen=True, slots=True)
class StateFigures:
    """One stateful operator in one micro-batch; None where Spark's version does not report the figure."""

    operator: str
    rows: float | None = None
    updated_rows: float | None = None
    memory_bytes: float | None = None
    update_ms: float | None = None
    removal_ms: float | None = None
    commit_ms: float | None = None
    dropped_rows: float | None = None
    shuffle_partitions: float | None = None


@dataclass(frozen=True, slots=True)
class SourceFigures:
    """One source in one micro-batch; None where Spark does not tell.

    `latest` is the newest offset of each partition of a Kafka source: those of others count anything (the rate source's
    are seconds). `behind` is how far the partition that is furthest behind was, in offsets. `waiting` is what all
    partitions of a Kafka source had beyond the end of the batch.
    """

    description: str
    rows: float | None = None
    latest: Mapping[str, float] | None = None
    behind: float | None = None
    waiting: float | None = None


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """One micro-batch that ran: where it belongs, rows, durations, state.

    `begins_at` is Spark's `timestamp`, the beginning of the trigger. `duration_s` is `durationMs.triggerExecution`, or
    `batchDuration` where that is all there is. `event_lag_s` is how far the largest event time lay behind the
    beginning. `trigger_s` is the interval of a processing-time trigger, which Spark reports from version 5 on.
    """

    run_id: str
    batch: int
    begins_at: datetime
    rows: int
    duration_s: float
    name: str = ""
    query_id: str = ""
    parts_s: Mapping[str, float] = field(default_factory=dict)
    rows_per_s: float | None = None
    event_lag_s: float | None = None
    trigger_s: float | None = None
    state: tuple[StateFigures, ...] = ()
    sources: tuple[SourceFigures, ...] = ()
    sink: str = ""
    output_rows: float | None = None


@dataclass(frozen=True, slots=True)
class ProgressReading:
    """Micro-batches in the order of their beginning; `repeated` were given twice, `idle` had no new batch.

    `left_out` names objects that were left out among others, and figures that nothing rests on.
    """

    batches: tuple[BatchProgress, ...]
    repeated: int
    idle: int
    left_out: tuple[Fault, ...] = ()


def read_progress(documents: Sequence[Any]) -> ProgressReading:
    """Read progress objects; fields that are not used may be there or not, whatever Spark's version.

    A batch that comes again (a query that idles repeats its last number) counts once, the one with rows. Of many
    objects a few that are damaged are left out, and so are figures that are odd, but that nothing rests on.

    Raises
    ------
    DocumentError
        More than a tenth of the objects lack a field or have a value of the wrong kind, each by its place; an empty
        list.
    """
    faults: list[Fault] = []
    odd: list[Fault] = []
    if not documents:
        raise DocumentError([Fault("", "it has no micro-batch; the query must have run at least once")], _WHAT)
    read = [_batch(document, f"[{number}]", faults, odd) for number, document in enumerate(documents)]
    damaged = sum(batch is None for batch in read)
    if damaged == len(read) or damaged > _MAX_DAMAGED_SHARE * len(read):
        raise DocumentError(shorten_faults([*faults, *odd]), _WHAT)
    return _once((batch for batch in read if batch is not None), [*faults, *odd])


def _once(batches: Iterable[BatchProgress], left_out: Sequence[Fault]) -> ProgressReading:
    kept: dict[tuple[str, int], BatchProgress] = {}
    repeated = idle = 0
    for batch in batches:
        key = (batch.run_id, batch.batch)
        before = kept.get(key)
        if batch.rows == 0 and not batch.parts_s.get("addBatch"):
            idle += 1
        elif before is None or (before.rows == 0 and batch.rows > 0):
            kept[key] = batch
        else:
            repeated += 1
    ordered = sorted(kept.values(), key=lambda batch: (batch.begins_at, batch.batch))
    return ProgressReading(tuple(ordered), repeated, idle, tuple(shorten_faults(left_out)))


def _batch(document: Any, path: str, faults: list[Fault], odd: list[Fault]) -> BatchProgress | None:
    """A batch whose fields are whole; figures that may be missing are missing where they are `odd`."""
    if not isinstance(document, Mapping):
        faults.append(Fault(path, f"{path} is {value_words(document)}; allowed: a progress object"))
        return None
    before = len(faults)
    fields = {
        "run_id": _required(document, "runId", _TEXT, path, faults),
        "batch": _required(document, "batchId", _COUNT, path, faults),
        "rows": _rows(document, path, faults),
        "begins_at": _instant(document, path, faults),
        "duration_s": _duration_s(document, path, faults),
    }
    parts_s = _parts_s(document, path, odd)
    state = _state(document.get("stateOperators"), join_path(path, "stateOperators"), odd)
    rows_per_s = _rate(document, path, odd)
    lag_s = _event_lag_s(document.get("eventTime"), fields["begins_at"], join_path(path, "eventTime"), odd)
    trigger_s = _trigger_s(document.get("trigger"), join_path(path, "trigger"), odd)
    if len(faults) > before:
        return None
    return BatchProgress(
        **fields,
        name=str(document.get("name") or ""),
        query_id=str(document.get("id") or ""),
        parts_s=parts_s,
        rows_per_s=rows_per_s,
        event_lag_s=lag_s,
        trigger_s=trigger_s,
        state=state,
        sources=_sources(document.get("sources")),
        **_sink(document.get("sink")),
    )


def _required(document: Mapping[str, Any], key: str, kind: Number | String, path: str, faults: list[Fault]) -> Any:
    if key not in document:
        faults.append(Fault(join_path(path, key), f"{key} is missing; a micro-batch's progress has it"))
        return BAD
    return kind.read(document[key], path, key, faults)


def _rows(document: Mapping[str, Any], path: str, faults: list[Fault]) -> Any:
    """Rows of all sources; event logs hold them by source alone."""
    sources = document.get("sources")
    if "numInputRows" in document or not isinstance(sources, list) or not sources:
        return _required(document, "numInputRows", _COUNT, path, faults)
    read = [
        _required(
            source if isinstance(source, Mapping) else {},
            "numInputRows",
            _COUNT,
            f"{join_path(path, 'sources')}[{number}]",
            faults,
        )
        for number, source in enumerate(sources)
    ]
    return BAD if BAD in read else _COUNT.read(sum(read), path, "numInputRows", faults)


def _instant(document: Mapping[str, Any], path: str, faults: list[Fault]) -> Any:
    text = _required(document, "timestamp", _TEXT, path, faults)
    return BAD if text is BAD else _utc(text, join_path(path, "timestamp"), "timestamp", faults)


def _utc(text: Any, path: str, key: str, faults: list[Fault]) -> Any:
    try:
        instant = datetime.fromisoformat(text)
        return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    except (OverflowError, TypeError, ValueError):
        allowed = "an instant such as 2026-01-31T08:00:00.000Z"
        faults.append(Fault(path, f"{key} is {value_words(text)}; allowed: {allowed}"))
        return BAD


def _duration_s(document: Mapping[str, Any], path: str, faults: list[Fault]) -> Any:
    durations = document.get("durationMs")
    if isinstance(durations, Mapping) and "triggerExecution" in durations:
        value = _DURATION_MS.read(
            durations["triggerExecution"], join_path(path, "durationMs"), "triggerExecution", faults
        )
    elif "batchDuration" in document:
        value = _DURATION_MS.read(document["batchDuration"], path, "batchDuration", faults)
    else:
        where = join_path(path, "durationMs.triggerExecution")
        faults.append(Fault(where, "durationMs.triggerExecution is missing, and so is batchDuration; one is needed"))
        return BAD
    return value if value is BAD else value / 1000


def _parts_s(document: Mapping[str, Any], path: str, faults: list[Fault]) -> dict[str, float]:
    durations = document.get("durationMs")
    if durations is None:
        return {}
    where = join_path(path, "durationMs")
    if not isinstance(durations, Mapping):
        faults.append(Fault(where, f"durationMs is {value_words(durations)}; allowed: an object"))
        return {}
    others = {name: value for name, value in durations.items() if name != "triggerExecution"}
    read = {name: _MS.read(value, where, name, faults) for name, value in others.items()}
    return {name: value / 1000 for name, value in read.items() if value is not BAD}


def _rate(document: Mapping[str, Any], path: str, faults: list[Fault]) -> float | None:
    """Rows per second; Spark leaves it out, or says NaN, where no time has passed."""
    value = document.get("inputRowsPerSecond")
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    read = _MS.read(value, path, "inputRowsPerSecond", faults)
    return None if read is BAD else read


def _trigger_s(trigger: Any, path: str, faults: list[Fault]) -> float | None:
    if not isinstance(trigger, Mapping) or trigger.get("type") != "ProcessingTime" or "intervalMs" not in trigger:
        return None
    read = _TRIGGER_MS.read(trigger["intervalMs"], path, "intervalMs", faults)
    return None if read is BAD else read / 1000


def _event_lag_s(event_time: Any, begins_at: Any, path: str, faults: list[Fault]) -> float | None:
    if not isinstance(event_time, Mapping) or "max" not in event_time or begins_at is BAD:
        return None
    largest = _utc(event_time["max"], join_path(path, "max"), "max", faults)
    return None if largest is BAD else float((begins_at - largest).total_seconds())


def _state(operators: Any, path: str, faults: list[Fault]) -> tuple[StateFigures, ...]:
    if operators is None:
        return ()
    if not isinstance(operators, list):
        faults.append(Fault(path, f"stateOperators is {value_words(operators)}; allowed: a list"))
        return ()
    figures = []
    for number, operator in enumerate(operators):
        where = f"{path}[{number}]"
        if not isinstance(operator, Mapping):
            faults.append(Fault(where, f"item {number} is {value_words(operator)}; allowed: an object"))
            continue
        values = {
            name: (_PARTITIONS if name == "shuffle_partitions" else _MS).read(operator[key], where, key, faults)
            for key, name in _STATE_FIGURES.items()
            if operator.get(key) is not None
        }
        values = {name: value for name, value in values.items() if value is not BAD}
        figures.append(StateFigures(str(operator.get("operatorName") or f"operator {number + 1}"), **values))
    return tuple(figures)


def _sources(sources: Any) -> tuple[SourceFigures, ...]:
    """Figures of sources as far as they are legible: Kafka's lags are texts, offsets null, numbers or objects."""
    figures = []
    for source in sources if isinstance(sources, list) else ():
        if isinstance(source, Mapping):
            metrics, description = source.get("metrics"), str(source.get("description") or "")
            behind = metrics.get("maxOffsetsBehindLatest") if isinstance(metrics, Mapping) else None
            figures.append(
                SourceFigures(
                    description,
                    _legible(source.get("numInputRows")),
                    _latest_offsets(source, metrics) if description.startswith("Kafka") else None,
                    _legible(behind),
                    _waiting(source, metrics) if description.startswith("Kafka") else None,
                )
            )
    return tuple(figures)


def _waiting(source: Mapping[str, Any], metrics: Any) -> float | None:
    """Events of all partitions beyond a batch's end: newest less end offsets; else mean lag times partitions."""
    latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
    if latest and end:
        return math.fsum(max(0.0, offset - end.get(name, offset)) for name, offset in latest.items())
    told = metrics if isinstance(metrics, Mapping) else {}
    mean, most = _legible(told.get("avgOffsetsBehindLatest")), _legible(told.get("maxOffsetsBehindLatest"))
    return mean * len(end) if mean is not None and end else most  # one partition's lag is the least that waits


def _sink(sink: Any) -> dict[str, Any]:
    """Description of the sink and the rows that it was given; -1 is a number that it does not know."""
    if not isinstance(sink, Mapping):
        return {}
    return {"sink": str(sink.get("description") or ""), "output_rows": _legible(sink.get("numOutputRows"))}


def _legible(value: Any) -> float | None:
    """A number of at least 0, also as a text such as ``6.9E8``."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (OverflowError, ValueError):
        return None
    return number if 0.0 <= number <= 1e18 else None


def offset_of(offset: Any) -> Any:
    """An offset as Spark means it: event logs, PySpark's progress and older versions hold it as JSON in a text."""
    if isinstance(offset, str) and offset.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(offset)
        except (ValueError, RecursionError):
            return None
    return offset


def _latest_offsets(source: Mapping[str, Any], metrics: Any) -> Mapping[str, float] | None:
    """Newest offset of each partition, ``topic/partition``; where a platform leaves them out, by how far it is behind.

    `avgOffsetsBehindLatest` is of partitions that are each so far behind on average: their sum is right.
    """
    latest = _offsets(source.get("latestOffset"))
    if latest:
        return latest
    ends = _offsets(source.get("endOffset"))
    behind = _legible(metrics.get("avgOffsetsBehindLatest")) if isinstance(metrics, Mapping) else None
    return {name: end + behind for name, end in ends.items()} if ends and behind is not None else None


def _offsets(offset: Any) -> dict[str, float]:
    """Offsets of ``{topic: {partition: offset}}``; none where one is not legible."""
    topics = offset_of(offset)
    found: dict[str, float] = {}
    for topic, partitions in topics.items() if isinstance(topics, Mapping) else ():
        for partition, value in partitions.items() if isinstance(partitions, Mapping) else ():
            number = _legible(value)
            if number is None:
                return {}
            found[f"{topic}/{partition}"] = number
    return found


def usual_trigger_s(batches: Sequence[BatchProgress]) -> float | None:
    """Usual distance of batches that did not fill it; None where they follow one another, or irregularly."""
    intervals = [
        interval_s
        for before, batch in pairwise(batches)
        if batch.batch == before.batch + 1
        and before.duration_s < _BUSY * (interval_s := (batch.begins_at - before.begins_at).total_seconds())
    ]
    if len(intervals) < max(_MIN_INTERVALS, (len(batches) - 1) / 2):
        return None
    usual_s = statistics.median(intervals)
    alike = sum(abs(interval_s - usual_s) <= _ALIKE * usual_s for interval_s in intervals)
    return round(usual_s, 1 if usual_s >= 1 else 2) if alike >= 0.8 * len(intervals) else None
