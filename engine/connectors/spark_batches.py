"""Streaming queries in Spark's progress: which batches are of one query, and what these say of its time per row."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from engine.connectors.statistics import MAX_BATCHES
from engine.errors import DocumentError
from engine.microbatch.model import (
    DRIFT_BATCHES,
    MIN_BATCHES,
    TOLD_APART,
    WARM_UP_BATCHES,
    BatchDrift,
    BatchModel,
    batch_drift,
    fit_durations,
)
from engine.microbatch.progress import BatchProgress

__all__ = ["QueryFit", "StreamingQuery", "fit_query", "sink_name", "stream_name", "streaming_queries"]

_WRITERS = re.compile(r"([A-Za-z]+)(?:\$)?(?:@[0-9a-f]+)?(?:\[.*)?$")


@dataclass(frozen=True, slots=True)
class StreamingQuery:
    """Micro-batches of one streaming query, those of its newest run last; all of one plan, that of the newest.

    `id` is that of the checkpoint in use, `ids` those of earlier ones as well.
    """

    id: str
    ids: frozenset[str]
    name: str
    batches: tuple[BatchProgress, ...]

    @property
    def newest(self) -> BatchProgress:
        return self.batches[-1]


@dataclass(frozen=True, slots=True)
class QueryFit:
    """Fixed time and time per row of a query's batches.

    `assumed` is ``none`` without a batch with rows, ``both`` where the two cannot be told apart. `drift` is by how much
    the newest batches differ from those before them, where they do: the model is then of the newest `batches` alone.
    """

    model: BatchModel
    assumed: str = ""
    batches: int = MAX_BATCHES
    drift: BatchDrift | None = None


def streaming_queries(batches: Iterable[BatchProgress]) -> list[StreamingQuery]:
    """Queries that batches, oldest first, are of. Runs of one query follow one another; those of two overlap.

    A query keeps its id over runs, and its name over checkpoints, which bring a new id. Without a name it is the query
    that read and wrote the same.
    """
    runs: dict[str, list[BatchProgress]] = {}
    for batch in batches:
        runs.setdefault(batch.run_id, []).append(batch)
    found: list[list[BatchProgress]] = []
    for run in runs.values():
        earlier = next((before for before in found if _is_same(before[-1], run[0])), None)
        if earlier is None:
            found.append(run)
        else:
            earlier += run
    return [_query(own) for own in found]


def _is_same(before: BatchProgress, after: BatchProgress) -> bool:
    """Whether a run that begins with a batch is of the query that another batch was the last of."""
    if before.query_id and before.query_id == after.query_id:
        return True
    if (after.begins_at - before.begins_at).total_seconds() < before.duration_s or before.name != after.name:
        return False
    return bool(before.name) or _plan_of(before, in_full=True) == _plan_of(after, in_full=True)


def _plan_of(batch: BatchProgress, *, in_full: bool = False) -> tuple[object, ...]:
    """Sources and operators with state, by which batches are of one plan; in full also what is read and written."""
    states = tuple(state.operator for state in batch.state)
    sources = tuple(stream_name(source.description) for source in batch.sources)
    return (sources, states, sink_name(batch.sink)) if in_full else (len(sources), states)


def _query(batches: Sequence[BatchProgress]) -> StreamingQuery:
    newest = batches[-1]
    plan = _plan_of(next((batch for batch in reversed(batches) if batch.rows > 0), newest))
    id_ = newest.query_id or newest.run_id
    return StreamingQuery(
        id=id_,
        ids=frozenset(batch.query_id for batch in batches if batch.query_id) | {id_},
        name=newest.name or f"query-{id_[:8]}",
        batches=tuple(batch for batch in batches if _plan_of(batch) == plan),
    )


def stream_name(description: str) -> str:
    """Name of what a source reads: the topics of ``KafkaV2[Subscribe[orders]]``, the folder of a file source."""
    inner = re.findall(r"\[([^\[\]]+)\]", description)
    if not inner:
        return description.split("[")[0].strip()
    return inner[-1].rstrip("/").rsplit("/", 1)[-1].strip() or description.split("[")[0]


def sink_name(description: str) -> str:
    """Name of what writes, of ``org.apache.spark…ConsoleTable$@7687f0e2``."""
    found = _WRITERS.search(description.rsplit(".", 1)[-1].strip())
    return found[1] if found else "sink"


def fit_query(query: StreamingQuery) -> QueryFit:
    """Fit of a query's batches with rows; of the newest alone where these differ from those before."""
    points = _points(query)
    if not points:
        return QueryFit(BatchModel(0.0, 0.0), "none")
    older, newest = points[:-DRIFT_BATCHES], points[-DRIFT_BATCHES:]
    former = _line(older)
    drift = None if former is None else batch_drift(_foretold(former, newest))
    if former is None or drift is None or not drift.is_drifting:
        return _told_apart(points)
    fit = _told_apart(newest)
    if fit.assumed and former.is_told_apart and former.per_row_s > 0.0:  # faster or slower by one factor
        factor = 1.0 + drift.bias
        model = replace(former, fixed_s=factor * former.fixed_s, per_row_s=factor * former.per_row_s)
        fit = QueryFit(model)
    return replace(fit, batches=len(newest), drift=drift)


def _foretold(model: BatchModel, points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """(measured, predicted) seconds of batches that a model can speak of: of sizes it knows."""
    low, high = model.least_rows / TOLD_APART, model.most_rows * TOLD_APART
    return [(seconds, model.duration_s(rows)) for rows, seconds in points if model.is_told_apart or low <= rows <= high]


def _points(query: StreamingQuery) -> list[tuple[float, float]]:
    """(rows, seconds) of batches with rows, oldest first, without those of a warm-up where there are others."""
    seen: dict[str, int] = {}
    points = []
    for batch in query.batches:
        if batch.rows > 0:
            seen[batch.run_id] = seen.get(batch.run_id, 0) + 1
            if seen[batch.run_id] > WARM_UP_BATCHES:
                points.append((float(batch.rows), batch.duration_s))
    return points or [(float(batch.rows), batch.duration_s) for batch in query.batches if batch.rows > 0]


def _line(points: Sequence[tuple[float, float]]) -> BatchModel | None:
    """Model that predicts: a line, the mean of batches of one size; None below three batches."""
    try:
        return fit_durations(points)
    except DocumentError:
        if len(points) < MIN_BATCHES:
            return None
        rows = [rows for rows, _ in points]
        mean_s = statistics.fmean(seconds for _, seconds in points)
        return BatchModel(mean_s, 0.0, batches=len(points), least_rows=min(rows), most_rows=max(rows))


def _told_apart(points: Sequence[tuple[float, float]]) -> QueryFit:
    """Fixed time and time per row; each the most that it can be where they cannot be told apart."""
    model = _line(points)
    if model is not None and model.is_told_apart and model.per_row_s > 0.0:
        return QueryFit(model)
    seconds = math.fsum(seconds for _, seconds in points)
    rows = math.fsum(rows for rows, _ in points)
    per_row_s = seconds / rows if model is None else model.largest_per_row_s
    return QueryFit(BatchModel(seconds / len(points), per_row_s, batches=len(points)), "both")
