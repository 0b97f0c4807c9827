"""Polls of a Flink job's counters, from its own answers and from what its reporter told Prometheus.

Of ``GET /jobs/:jid`` two polls are statistics: accumulated busy time over records read, which no 60 s average hides
(docs/models/connectors.md). Series of Prometheus are joined by `job_id` and `task_id`, which are ids of job and vertex;
names are mangled there (``windowed_counts``, ``127_0_0_1``). Prometheus knows no exchanges, so the picture of a job
comes from Flink.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote

from engine.connectors.answers import AnswerObject, Answers, Asking, number_of
from engine.connectors.flink import ANSWER_BYTES, ENDED, FLINK_ANSWERS, asking_of, cpu_paths, cpu_use, oversize_words
from engine.connectors.flink_metrics import metric_paths, read_metrics
from engine.connectors.picture import CounterPoll, EngineJob, EnginePicture, Finding, Place, VertexCounters
from engine.connectors.prometheus import PROMETHEUS_ANSWERS, RangeAnswer, RangeSeries, RangeWindow, read_range

__all__ = [
    "FlinkSeries",
    "continue_attempt",
    "flink_series_paths",
    "poll_flink",
    "poll_paths",
    "read_flink_series",
]

_TASK = "flink_taskmanager_job_task_"
_COUNTERS = {
    "records_in": "numRecordsIn",
    "records_out": "numRecordsOut",
    "bytes_out": "numBytesOut",
    "busy_s": "accumulateBusyTimeMs",
    "idle_s": "accumulateIdleTimeMs",
    "backpressured_s": "accumulateBackPressuredTimeMs",
}
_CPU_LOAD, _CPU_TIME = "flink_taskmanager_Status_JVM_CPU_Load", "flink_taskmanager_Status_JVM_CPU_Time"
_HOST_LOAD = '1 - avg by (instance) (rate(node_cpu_seconds_total{{mode="idle"}}[{range_s:g}s]))'
_MIN_RATE_RANGE_S = 60.0  # two scrapes and more, whatever the step
_STALE_S = 30.0  # by so much may Flink's own answers be older than they say, and more
_MILLISECONDS, _NANOSECONDS = 1e3, 1e9
_MANGLED = re.compile(r"[^a-zA-Z0-9:_]")  # characters that the reporter makes underscores in values of labels


def flink_series_paths(window: RangeWindow, job: EngineJob) -> Asking:
    """Range queries that `read_flink_series` reads: counters of a job's tasks, CPU of TaskManagers, and of hosts.

    The host's CPU comes from node_exporter, where Prometheus has it.
    """
    subtasks = sum(vertex.parallelism for vertex in job.vertices)
    return window.asking(_queries(window, job.id).values(), subtasks)


def _queries(window: RangeWindow, job: str) -> dict[str, str]:
    queries = {name: f'{_TASK}{metric}{{job_id="{job}"}}' for name, metric in _COUNTERS.items()}
    host = _HOST_LOAD.format(range_s=max(_MIN_RATE_RANGE_S, 2 * window.step_s))
    return queries | {"cpu_load": _CPU_LOAD, "cpu_time": _CPU_TIME, "host_load": host}


@dataclass(frozen=True, slots=True)
class FlinkSeries:
    """Polls of a job's counters, one at each step of the window that has some, and what reading them brought up."""

    polls: tuple[CounterPoll, ...]
    findings: tuple[Finding, ...]


def read_flink_series(
    answers: Mapping[str, object], window: RangeWindow, job: EngineJob, places: Iterable[Place] = ()
) -> FlinkSeries:
    """Polls of a Flink job from the answers to `flink_series_paths` of the same window and job.

    At each step the subtasks of a vertex are added up. Where one is missing, or is another attempt's, the poll is of
    another `attempt`, so that nothing is counted across it. NaN is missing: a source that does not tell its busy time.
    CPU is of those `places` whose ids the reporter's labels are made of.

    Raises
    ------
    DocumentError
        With every fault: errors of Prometheus, answers of something else, no answer at all.
    """
    known = Answers(answers, PROMETHEUS_ANSWERS)
    ranges = {name: read_range(known, window.path(q), name) for name, q in _queries(window, job.id).items()}
    if all(answer is None for answer in ranges.values()):
        known.add_fault("", "", "there is no answer to a query of Flink's metrics; allowed: those that were asked for")
    known.check()
    tables = {name: _by_task(ranges[name], _MILLISECONDS if name.endswith("_s") else 1.0) for name in _COUNTERS}
    ids = {_MANGLED.sub("_", place.id): place.id for place in places}
    loads, times_s = _by_place(ranges["cpu_load"], ids), _by_place(ranges["cpu_time"], ids, _NANOSECONDS)
    hosts = _host_loads(known, ranges["host_load"], loads)
    polls = tuple(_polls(job.id, tables, (loads, times_s), hosts))
    absent = [_COUNTERS[name] for name in ("records_in", "records_out", "busy_s") if not tables[name]]
    if absent and polls:
        known.find("missing", "metrics_missing", job.name, job=job.name, prefix=_TASK, metrics=absent)
    _describe_gaps(known, job.name, [poll.at_s for poll in polls], window)
    # NaN is how the reporter says that busy time is not told, which the statistics say by operator.
    findings = (finding for finding in known.findings if finding.code != "values_unreadable")
    return FlinkSeries(polls, tuple(findings))


def continue_attempt(polls: Sequence[CounterPoll], following: CounterPoll) -> tuple[CounterPoll, ...]:
    """Polls from before one of Flink's own: those of the last attempt are of its attempt, if no counter fell between.

    Flink's answers are older than they say, so the newest polls may be ahead of it; those are left out.
    """
    before = [
        poll
        for poll in polls
        if poll.at_s < following.at_s and not (poll.at_s > following.at_s - _STALE_S and _is_ahead(poll, following))
    ]
    if not before or _is_ahead(before[-1], following):
        return tuple(before)
    last = before[-1].attempt
    return tuple(replace(poll, attempt=following.attempt) if poll.attempt == last else poll for poll in before)


def _is_ahead(poll: CounterPoll, following: CounterPoll) -> bool:
    pairs = [(poll.vertices.get(id_), counters) for id_, counters in following.vertices.items()]
    return any(
        _exceeds(before.records_in, after.records_in) or _exceeds(before.records_out, after.records_out)
        for before, after in pairs
        if before is not None
    )


def _exceeds(before: float | None, after: float | None) -> bool:
    return before is not None and after is not None and before > after


_Task = tuple[str, str, str]  # vertex, subtask, attempt


def _by_task(answer: RangeAnswer | None, divisor: float) -> dict[_Task, dict[float, float]]:
    table: dict[_Task, dict[float, float]] = {}
    for series in answer.series if answer else ():
        labels = series.labels
        if "task_id" in labels:
            attempt = labels.get("task_attempt_id", labels.get("task_attempt_num", ""))
            key = labels["task_id"], labels.get("subtask_index", "0"), attempt
            table.setdefault(key, {}).update({at_s: value / divisor for at_s, value in series.samples})
    return table


def _by_place(
    answer: RangeAnswer | None, ids: Mapping[str, str], divisor: float = 1.0
) -> dict[str, dict[float, float]]:
    told: dict[str, list[RangeSeries]] = {}
    for series in answer.series if answer else ():
        if series.labels.get("tm_id") in ids:
            told.setdefault(ids[series.labels["tm_id"]], []).append(series)
    # Of several clusters with equal ids nobody knows which series is of this one.
    return {
        place: {at_s: value / divisor for at_s, value in rows[0].samples}
        for place, rows in told.items()
        if len(rows) == 1
    }


def _host_loads(known: Answers, answer: RangeAnswer | None, places: Mapping[str, object]) -> Mapping[float, float]:
    """Load of the host by time, where there is one host only: Flink's labels do not name it as node_exporter does."""
    series = answer.series if answer else ()
    if len(series) > 1 and places:
        known.find("missing", "hosts_unknown", "", count=len(series))
    return {at_s: min(1.0, max(0.0, value)) for at_s, value in series[0].samples} if len(series) == 1 else {}


def _polls(
    job: str,
    tables: Mapping[str, Mapping[_Task, Mapping[float, float]]],
    places: tuple[Mapping[str, Mapping[float, float]], Mapping[str, Mapping[float, float]]],
    hosts: Mapping[float, float],
) -> Iterable[CounterPoll]:
    tasks = sorted({key for table in tables.values() for key in table})
    times = sorted({at_s for table in tables.values() for key in tasks for at_s in table.get(key, {})})
    for at_s in times:
        alive = [key for key in tasks if any(at_s in table.get(key, {}) for table in tables.values())]
        begun = "\n".join(" ".join(key) for key in alive)
        vertices = {}
        for vertex in sorted({key[0] for key in alive}):
            own = sorted((key for key in alive if key[0] == vertex), key=lambda key: int(number_of(key[1]) or 0))
            sums = {name: _sum(table, own, at_s) for name, table in tables.items()}
            by_subtask = [tables["records_in"].get(key, {}).get(at_s) for key in own]
            if not any(by_subtask):
                by_subtask = [tables["records_out"].get(key, {}).get(at_s) for key in own]
            told = tuple(value for value in by_subtask if value is not None)
            vertices[vertex] = VertexCounters(**sums, records_in_by_subtask=told if len(told) == len(own) else ())
        loads, times_s = places
        yield CounterPoll(
            job=job,
            at_s=at_s,
            attempt=hashlib.sha256(f"{job}\n{begun}".encode()).hexdigest()[:32],
            vertices=vertices,
            cpu_loads={place: values[at_s] for place, values in loads.items() if at_s in values},
            cpu_s={place: values[at_s] for place, values in times_s.items() if at_s in values},
            host_loads={place: hosts[at_s] for place in loads if at_s in hosts},
        )


def _sum(table: Mapping[_Task, Mapping[float, float]], tasks: Sequence[_Task], at_s: float) -> float | None:
    values = [table.get(key, {}).get(at_s) for key in tasks]
    known = [value for value in values if value is not None]
    return math.fsum(known) if known and len(known) == len(values) else None


def _describe_gaps(known: Answers, subject: str, times: Sequence[float], window: RangeWindow) -> None:
    missing = round((times[-1] - times[0]) / window.step_s) + 1 - len(times) if times else 0
    if missing > 0:
        known.find("warning", "gaps", subject, count=missing, step_s=window.step_s, series=subject)


def poll_paths(picture: EnginePicture, jobs: Collection[str] | None = None) -> Asking:
    """Paths of one poll of counters: each job, its vertices of several subtasks, and the CPU of each place.

    `jobs` are ids; all of the picture unless given. `poll_flink` reads the answers.
    """
    wanted: list[tuple[str, int]] = []
    for job in picture.jobs:
        if jobs is not None and job.id not in jobs:
            continue
        wanted.append((f"/jobs/{job.id}", 1_000 + ANSWER_BYTES["vertex"] * len(job.vertices)))
        wanted += [
            (f"/jobs/{job.id}/vertices/{vertex.id}", 600 + ANSWER_BYTES["subtask"] * vertex.parallelism)
            for vertex in job.vertices
            if vertex.parallelism > 1
        ]
        for vertex in job.vertices:
            names = [{"id": name} for name in (*vertex.event_metrics, *vertex.result_metrics)]
            wanted += [(path, 300) for path in metric_paths(job.id, vertex.id, names, [""]).paths]
    wanted += [(path, 200) for path in cpu_paths(place.id for place in picture.places)]
    return asking_of(Answers({}, FLINK_ANSWERS), wanted)


def poll_flink(answers: Mapping[str, object], job: str, at_s: float) -> CounterPoll:
    """Counters of one job from its answer, with subtasks and CPU of places as far as they were asked (`poll_paths`).

    Busy time of ``"NaN"`` (a legacy source, which hides all that is chained to it) and the -1 of older versions become
    None, as do records that Flink has not collected yet; negative counters are 0.

    `job`: its id. `at_s`: when it was asked, by our clock; Flink's own is taken where it tells it.

    Raises
    ------
    DocumentError
        The job is not among the answers, is too large, or its answer is not legible.
    """
    known = Answers(answers, FLINK_ANSWERS)
    path = f"/jobs/{job}"
    answer = known.record(path)
    if answer is None:
        reason = f"it answered with an error: {known.refusal(path)}" if path in known else "it was not asked"
        known.add_fault(path, "", f"{reason}; allowed: the job's own answer")
        known.check()
        raise AssertionError("a fault was raised")  # pragma: no cover
    if (problem := oversize_words(answer)) is not None:
        known.add_fault(path, "vertices", f"the job has {problem}")
        known.check()
    vertices, begun, asked = {}, [job], _asked_metrics(known, path)
    for row in answer.records("vertices"):
        id_ = row.text("id")
        begun.append(f"{id_} {row.fields.get('start-time')} {row.fields.get('parallelism')}")
        subtasks = known.record(f"{path}/vertices/{id_}")
        by_subtask = list(subtasks.records("subtasks")) if subtasks is not None else []
        begun += [str(part.fields.get("attempt")) for part in by_subtask]
        counters = _counters(row.record("metrics", required=False), by_subtask)
        own = asked.get(id_, ())
        counters = replace(counters, results=_counted(known, own, ".numRecordsIn"))
        if any(".numRecordsOut" in one for one in own):  # no answer is no count: the vertex's own says 0
            counters = replace(counters, records_in=_counted(known, own, ".numRecordsOut"))
        # Threads of a vertex that has ended are idle for ever, and Flink counts that as busy time.
        ended = str(row.fields.get("status")) in ENDED
        vertices[id_] = replace(counters, busy_s=None) if ended else counters
    places = sorted({p.split("/")[2] for p in known if p.startswith("/taskmanagers/") and p.count("/") >= 3})
    cpu = {place: cpu_use(known, place) for place in places}
    now_s = (answer.optional("now") or 0.0) / 1000 or at_s
    known.check()
    return CounterPoll(
        job=job,
        at_s=now_s,
        attempt=hashlib.sha256("\n".join(begun).encode()).hexdigest()[:32],
        vertices=vertices,
        cpu_loads={place: load for place, (load, _) in cpu.items() if load is not None},
        cpu_s={place: seconds for place, (_, seconds) in cpu.items() if seconds is not None},
    )


def _counters(metrics: AnswerObject, subtasks: Sequence[AnswerObject]) -> VertexCounters:
    records_in = _collected(metrics, "read-records")
    by_subtask = [_collected(part.record("metrics", required=False), "read-records") for part in subtasks]
    if not any(by_subtask):  # a source that does not count what it reads
        by_subtask = [_collected(part.record("metrics", required=False), "write-records") for part in subtasks]
    return VertexCounters(
        records_in=records_in,
        records_out=_collected(metrics, "write-records"),
        busy_s=_seconds(metrics, "accumulated-busy-time"),
        idle_s=_seconds(metrics, "accumulated-idle-time"),
        backpressured_s=_seconds(metrics, "accumulated-backpressured-time"),
        records_in_by_subtask=tuple(n for n in by_subtask if n is not None) if None not in by_subtask else (),
        bytes_out=_collected(metrics, "write-bytes"),
    )


def _asked_metrics(known: Answers, path: str) -> dict[str, list[str]]:
    """Paths that asked for metrics of a job's vertices, by vertex."""
    found: dict[str, list[str]] = {}
    for asked in known:
        parts = unquote(asked).removeprefix(f"{path}/vertices/").split("/", 2) if asked.startswith("/jobs/") else []
        if len(parts) == 3 and parts[0] and f"{parts[1]}/{parts[2]}".startswith("subtasks/metrics?"):
            found.setdefault(parts[0], []).append(asked)
    return found


def _counted(known: Answers, asked: Iterable[str], suffix: str) -> float | None:
    """Sum of the counts of a vertex's operators under names that end so, from answers to these paths."""
    told = [read_metrics(known.raw(path)) for path in asked if suffix in path]
    counts = [value for values in told for name, value in values.items() if name.endswith(suffix)]
    return math.fsum(counts) if counts else None


def _collected(metrics: AnswerObject, name: str) -> float | None:
    """A counter; None where it is missing or not collected from every subtask yet."""
    value = metrics.optional(name)
    return None if value is None or metrics.fields.get(f"{name}-complete") is False else max(0.0, value)


def _seconds(metrics: AnswerObject, name: str) -> float | None:
    value = metrics.optional(name)
    return None if value is None or value < 0.0 else value / 1000
