"""Reader of Spark Structured Streaming: progress of its queries, and the executors that the driver's REST API lists.

Progress (StreamingQueryProgress) comes from a listener, `recentProgress` or a file, never from the REST API, which
knows executors alone. Among the answers it stands under `PROGRESS`: a list of progress objects, or the text of a file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any
from urllib.parse import quote

from engine.connectors.answers import Answers, Asking, number_of
from engine.connectors.arrivals import spread_counts
from engine.connectors.picture import (
    ArrivalCounts,
    EngineJob,
    EnginePicture,
    Exchange,
    Finding,
    JobSample,
    Place,
    Subtask,
    Vertex,
    VertexSample,
)
from engine.connectors.spark_batches import (
    QueryFit,
    StreamingQuery,
    fit_query,
    sink_name,
    stream_name,
    streaming_queries,
)
from engine.document.elements import Batch
from engine.errors import DocumentError, Fault
from engine.microbatch.model import WARM_UP_BATCHES, observed_latency
from engine.microbatch.progress import BatchProgress, read_progress, usual_trigger_s
from engine.microbatch.progress_text import ProgressText, read_progress_text

__all__ = ["PROGRESS", "next_spark_paths", "read_spark", "sample_spark", "spark_latencies"]

#: Where progress stands among the answers: it is uploaded or sent by a listener, not asked for.
PROGRESS = "/progress"

_WHAT = "set of Spark answers"
_API = "/api/v1"
_VERSION, _APPLICATIONS = f"{_API}/version", f"{_API}/applications?status=running"
_DRIVER = "driver"
_AT_ONCE_S = 1e-3  # the least trigger of a document: each batch follows the one before
_BEHIND_BATCHES = 5
_MAX_CORES = 1024  # of an executor, as of a node: each is a server with series of its own
_STATE_KINDS = (
    ("join", "join"),
    ("session", "window"),
    ("dedup", "aggregate"),
    ("stateStoreSave", "aggregate"),
    ("aggregat", "aggregate"),
)


def next_spark_paths(answers: Mapping[str, object], *, jobs: Collection[str] | None = None) -> Asking:
    """Paths of the driver's REST API that `read_spark` lacks; `jobs` are of no account, since it knows none.

    Examples
    --------
    >>> next_spark_paths({}).paths
    ('/api/v1/version', '/api/v1/applications?status=running')
    """
    known = Answers(answers, _WHAT)
    wanted = [(_VERSION, 50), (_APPLICATIONS, 600)]
    wanted += [(f"{_API}/applications/{quote(id_, safe='')}/executors", 2_000) for id_ in _applications(known)]
    missing = {path: size for path, size in wanted if path not in known}
    return Asking(tuple(missing), sum(missing.values()))


def _applications(known: Answers) -> list[str]:
    listing = known.raw(_APPLICATIONS) or known.raw(f"{_API}/applications")
    rows = listing if isinstance(listing, list) else ()
    return [str(row["id"]) for row in rows if isinstance(row, Mapping) and isinstance(row.get("id"), str)]


def read_spark(answers: Mapping[str, object], at_s: float) -> EnginePicture:
    """Executors and streaming queries of a Spark application.

    A query is a job: a vertex for each source, one for each operator with state, one for the sink, all in its trigger.

    Raises
    ------
    DocumentError
        With every fault of the progress or the answers; neither of the two there.
    """
    known = Answers(answers, _WHAT)
    queries = _queries(known)
    places = tuple(_places(known))
    listing = known.raw(_APPLICATIONS) or known.raw(f"{_API}/applications")
    if PROGRESS not in known and not isinstance(listing, list):
        known.add_fault(
            "", "", "there is neither progress of a query nor a list of applications; allowed: one of the two"
        )
    if not queries and not any(finding.code == "progress_idle" for finding in known.findings):
        known.find("missing", "progress_missing", "")
    if queries and not places:
        known.find("missing", "places_missing", "", "executors_missing")
    version = known.record(_VERSION)
    known.check()
    now_s = max((query.newest.begins_at.timestamp() + query.newest.duration_s for query in queries), default=at_s)
    jobs = tuple(_job(known, query, places) for query in queries)
    number = str(version.fields.get("spark") or "") if version else ""
    return EnginePicture("spark", number, now_s, places, jobs, tuple(known.findings))


def _queries(known: Answers) -> list[StreamingQuery]:
    """Queries with batches, by their ids; faults of the progress are faults of the answers."""
    given = known.raw(PROGRESS)
    if given is None or given == []:
        return []
    try:
        text = read_progress_text(given) if isinstance(given, str) else ProgressText(tuple(_listed(given)))
        reading = read_progress(text.documents)
    except DocumentError as error:
        for fault in error.faults:
            known.add_fault(PROGRESS, fault.path, fault.message)
        return []
    for fault in (*text.left_out, *reading.left_out):
        known.find("warning", "progress_left_out", "", fault=fault)
    if not any(batch.rows > 0 for batch in reading.batches):
        names = sorted({str(document.get("name") or document.get("id") or "a query") for document in text.documents})
        known.find("missing", "progress_idle", "", count=len(text.documents), names=names)
    return streaming_queries(reading.batches)


def _listed(given: Any) -> list[Any]:
    if isinstance(given, (list, tuple)):
        return list(given)
    if isinstance(given, Mapping):
        return [given]
    raise DocumentError([Fault("", "it is neither a list of progress nor a text of lines")], _WHAT)


def _places(known: Answers) -> Iterator[Place]:
    for path in known:
        if not re.fullmatch(rf"{_API}/applications/[^/]+/(?:all)?executors", path):
            continue
        rows = known.raw(path)
        rows = [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
        alive = [row for row in rows if row.get("isActive", True)]
        workers = [row for row in alive if row.get("id") != _DRIVER]
        for row in workers or alive:  # in local mode the driver does the work itself
            slots = number_of(row.get("maxTasks")) or number_of(row.get("totalCores")) or 0.0
            cores = number_of(row.get("totalCores")) or slots
            if not 1.0 <= slots <= _MAX_CORES:
                kind, id_ = "executor_too_large" if slots else "executor_without_cores", str(row.get("id"))
                known.find("warning", "cores_unknown", id_, kind, executor=id_, cores=slots, most=_MAX_CORES)
                continue
            host = str(row.get("hostPort") or "").rsplit(":", 1)[0]
            application = path.split("/")[4]
            id_, name = f"{application}/{row.get('id')}", f"executor-{row.get('id')}"
            yield Place(id_, name, cores, int(slots), host=host, heap_bytes=number_of(row.get("maxMemory")) or None)


def _job(known: Answers, query: StreamingQuery, places: Sequence[Place]) -> EngineJob:
    trigger = _trigger(known, query)
    slots = [place.id for place in places for _ in range(place.slots)]
    subtasks = tuple(Subtask(i, place) for i, place in enumerate(slots)) or (Subtask(0),)
    # The number of slots is no parallelism of the query: executors come and go without another version of it.
    made = partial(Vertex, parallelism=1, subtasks=subtasks, slot_group=query.id, trigger=trigger)
    newest = query.newest
    descriptions = [source.description for source in newest.sources] or [""]
    names = [stream_name(description) for description in descriptions]
    vertices = [
        made(f"source-{i}", name or "source", "source", stream=name or "source") for i, name in enumerate(names)
    ]
    before = tuple(Exchange(vertex.id, "hash" if newest.state else "forward") for vertex in vertices)
    for i, state in enumerate(newest.state):
        kind = next((kind for word, kind in _STATE_KINDS if word.lower() in state.operator.lower()), "other")
        vertices.append(made(f"state-{i}", state.operator, kind, inputs=before, state_bytes=state.memory_bytes))
        before = (Exchange(f"state-{i}"),)
    vertices.append(made("sink", sink_name(newest.sink), "sink", inputs=before))
    if len(newest.state) > 1:
        known.find("assumed", "order_assumed", query.name, job=query.name, count=len(newest.state))
    begun = min(batch.begins_at for batch in query.batches if batch.run_id == newest.run_id)
    partitions = next((s.shuffle_partitions for s in newest.state if s.shuffle_partitions), None)
    settings = {"spark.sql.shuffle.partitions": f"{partitions:g}"} if partitions else {}
    return EngineJob(query.id, query.name, "running", begun.timestamp(), tuple(vertices), settings)


def _trigger(known: Answers, query: StreamingQuery) -> Mapping[str, object]:
    told = query.newest.trigger_s
    own = [batch for batch in query.batches if batch.run_id == query.newest.run_id]
    interval_s = told if told is not None else usual_trigger_s(own[WARM_UP_BATCHES:])
    if interval_s is None:
        known.find("assumed", "trigger_assumed", query.name, job=query.name)
    elif told is None:
        known.find("found", "trigger_measured", query.name, job=query.name, interval_s=interval_s)
    model = fit_query(query).model
    return {"interval_s": max(_AT_ONCE_S, interval_s or 0.0), "overhead_s": model.fixed_s}


def sample_spark(job: EngineJob, answers: Mapping[str, object], *, step_s: float | None = None) -> JobSample:
    """Statistics of a streaming query from its batches, and arrivals at its sources.

    A batch of m rows takes F + k m (docs/models/microbatch.md). F is the trigger's overhead; k m is work of all servers
    together. Time of operators with state is told by tasks; what remains is counted at the sources.

    `job`: of `read_spark`. `answers`: those that it was read from, or later progress of the same query.

    Raises
    ------
    DocumentError
        The progress is not legible.
    """
    known = Answers(answers, _WHAT)
    query = _query_of(known, job)
    known.check()
    if query is None:
        finding = Finding.of("missing", "no_statistics", job.name, "progress_of_none", job=job.name)
        return JobSample(job.id, {}, {}, findings=(finding,))
    fit = fit_query(query)
    findings = list(_sample_findings(job, query, fit))
    servers = len(job.vertices[0].subtasks)
    operators = {vertex.id: _sample(job, vertex, query, fit, servers) for vertex in job.vertices}
    arrivals = {}
    for i, vertex in enumerate(vertex for vertex in job.vertices if vertex.is_source):
        counts = _arrivals(query, i, vertex.id, step_s)
        if counts is not None:
            arrivals[vertex.id] = counts
    newest_s = query.newest.begins_at.timestamp() + query.newest.duration_s
    span_s = newest_s - query.batches[0].begins_at.timestamp()
    waiting = dict(_waiting(job, query.newest))
    return JobSample(
        job.id, operators, arrivals, span_s=span_s, newest_s=newest_s, findings=tuple(findings), waiting=waiting
    )


def _query_of(known: Answers, job: EngineJob) -> StreamingQuery | None:
    """The query that a job is: by its id, which a checkpoint since then may have made an earlier one."""
    return next((query for query in _queries(known) if job.id in query.ids), None)


def spark_latencies(job: EngineJob, answers: Mapping[str, object], statistic: str) -> list[tuple[float, float]]:
    """(time, seconds) of a statistic (``worst``, ``mean``, ``q0.9``) of the latency that rows of each batch had.

    Rows of a batch came since the batch before it began, and were done when it ended.

    Raises
    ------
    DocumentError
        The progress is not legible.
    """
    known = Answers(answers, _WHAT)
    query = _query_of(known, job)
    known.check()
    samples = []
    for pair in pairwise(query.batches if query else ()):
        observed = observed_latency(pair, "mean" if statistic == "worst" else statistic)
        if observed is not None:
            latency_s = observed.interval_s + observed.batch_s if statistic == "worst" else observed.statistic_s
            samples.append((pair[1].begins_at.timestamp() + pair[1].duration_s, latency_s))
    return samples


def _waiting(job: EngineJob, newest: BatchProgress) -> Iterator[tuple[str, float]]:
    """Events beyond the end of the newest batch, by the vertex of the source."""
    vertices = [vertex.id for vertex in job.vertices if vertex.is_source]
    for vertex, source in zip(vertices, newest.sources, strict=False):
        if source.waiting is not None:
            yield vertex, source.waiting


def _sample(job: EngineJob, vertex: Vertex, query: StreamingQuery, fit: QueryFit, servers: int) -> VertexSample:
    batches, outputs_told = [], True
    with_rows = [batch for batch in query.batches if batch.rows > 0]
    for batch in with_rows[-fit.batches :]:
        beyond_s = batch.duration_s - fit.model.fixed_s
        work_s = max(0.0, fit.model.per_row_s * batch.rows if fit.assumed else beyond_s) * servers
        states_s = [_state_s(batch, i) for i in range(len(batch.state))]
        scale = min(1.0, 0.9 * work_s / math.fsum(states_s)) if math.fsum(states_s) > 0.0 else 0.0
        events = float(batch.rows)
        outputs, busy_s = events, 0.0
        if vertex.is_source:
            number = int(vertex.id.rsplit("-", 1)[1])
            told = batch.sources[number].rows if number < len(batch.sources) else None
            events = outputs = told if told is not None else events
            busy_s = (work_s - scale * math.fsum(states_s)) * (events / batch.rows)
        elif vertex.id.startswith("state-"):
            number = int(vertex.id.rsplit("-", 1)[1])
            busy_s = scale * states_s[number] if number < len(states_s) else 0.0
            figure = batch.state[number].updated_rows if number < len(batch.state) else None
            last = number == len(batch.state) - 1
            written = batch.output_rows if last and batch.output_rows is not None else figure
            outputs, outputs_told = (written, outputs_told) if written is not None else (events, False)
        batches.append(Batch(events, outputs, busy_s * 1e9))
    events = math.fsum(batch.events for batch in batches)
    findings = []
    if not outputs_told:
        subject = f"{job.name}/{vertex.label}"
        findings.append(Finding.of("assumed", "selectivity_assumed", subject, "rows_unknown", vertex=vertex.label))
    return VertexSample(
        vertex=vertex.id,
        events=events,
        cost_s=math.fsum(batch.cycles for batch in batches) / 1e9 / events if events > 0.0 else None,
        selectivity=math.fsum(batch.outputs for batch in batches) / events if events > 0.0 else None,
        batches=tuple(batch for batch in batches if batch.events > 0.0),
        span_s=(query.newest.begins_at - query.batches[0].begins_at).total_seconds() + query.newest.duration_s,
        findings=tuple(findings),
    )


def _state_s(batch: BatchProgress, number: int) -> float:
    """Seconds that tasks spent on the state of an operator, over all of them."""
    state = batch.state[number]
    return math.fsum(part or 0.0 for part in (state.update_ms, state.removal_ms, state.commit_ms)) / 1000


def _arrivals(query: StreamingQuery, number: int, vertex: str, step_s: float | None) -> ArrivalCounts | None:
    """Rows of a source between the beginnings of batches; by the broker's newest offsets where Spark tells them."""
    rows, offsets = [], []
    for before, batch in pairwise(query.batches):
        start_s, end_s = before.begins_at.timestamp(), batch.begins_at.timestamp()
        if before.run_id != batch.run_id or batch.batch != before.batch + 1 or end_s <= start_s:
            continue
        own = batch.sources[number] if number < len(batch.sources) else None
        earlier = before.sources[number] if number < len(before.sources) else None
        rows.append((start_s, end_s, float(batch.rows) if own is None or own.rows is None else own.rows))
        if own is not None and earlier is not None and own.latest and earlier.latest:
            offsets.append((start_s, end_s, _came(earlier.latest, own.latest)))
    if rows and len(offsets) == len(rows) and any(events for _, _, events in offsets):
        return spread_counts(vertex, offsets, "offsets", step_s=step_s)
    return spread_counts(vertex, rows, "read", step_s=step_s)


def _came(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """Events that came between two looks at the offsets. A partition that joined brings its history, which is no
    arrival; one that was made anew begins again at 0.
    """
    return math.fsum(max(0.0, offset - before[name]) for name, offset in after.items() if name in before)


def _sample_findings(job: EngineJob, query: StreamingQuery, fit: QueryFit) -> Iterator[Finding]:
    if fit.drift is not None:
        kind = "batches_slower" if fit.drift.bias > 0.0 else "batches_faster"
        told = {"job": job.name, "share": abs(fit.drift.bias), "count": fit.batches}
        yield Finding.of("warning", "batches_drift", job.name, kind, **told)
    if fit.assumed == "none":
        yield Finding.of("missing", "no_events", job.name, "batches_empty", job=job.name)
    elif fit.assumed:
        yield Finding.of("assumed", "fixed_time_unknown", job.name, job=job.name)
    else:
        sources = [vertex.label for vertex in job.vertices if vertex.is_source]
        yield Finding.of("assumed", "cost_at_source", job.name, job=job.name, sources=sources)
    if any(state.dropped_rows for batch in query.batches for state in batch.state):
        yield Finding.of("warning", "rows_dropped", job.name, job=job.name)
    behind = [max((s.behind or 0.0 for s in batch.sources), default=0.0) for batch in query.batches[-_BEHIND_BATCHES:]]
    if len(behind) == _BEHIND_BATCHES and all(a < b for a, b in pairwise(behind)):
        yield Finding.of("warning", "source_backpressured", job.name, "falling_behind", job=job.name)
