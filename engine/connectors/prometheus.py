"""Reader of Prometheus: range answers become the same polls of counters as Flink's own, arrivals, measured latencies.

Series of Flink's reporter are joined by `job_id` and `task_id`, which are ids of job and vertex; names are mangled
there (``windowed_counts``, ``127_0_0_1``). Counters are asked for, never rates: `rate()` hides resets and counts at
edges. Prometheus knows no exchanges, so the picture of a job comes from Flink, or from a `MappedOperator` each.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from engine.connectors.answers import Answers, number_of
from engine.connectors.flink import Asking
from engine.connectors.picture import (
    ArrivalCounts,
    CounterPoll,
    EngineJob,
    EnginePicture,
    Exchange,
    Finding,
    Place,
    Subtask,
    Vertex,
    VertexCounters,
)
from engine.connectors.statistics import nice_step_s, spread_counts
from engine.words import counted, listed

__all__ = [
    "MAX_POINTS",
    "FlinkSeries",
    "LatencyStretch",
    "MappedOperator",
    "RangeAnswer",
    "RangeSeries",
    "RangeWindow",
    "flink_paths",
    "mapped_paths",
    "read_counts",
    "read_flink_series",
    "read_latency",
    "read_mapped",
    "read_range",
]

#: Points that Prometheus gives for one series and no more.
MAX_POINTS = 11_000
_WHAT = "set of Prometheus answers"
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
_MILLISECONDS = 1000.0


@dataclass(frozen=True, slots=True)
class RangeWindow:
    """Stretch that is asked for, with a step that gives no more points than Prometheus does.

    Examples
    --------
    >>> RangeWindow.of(0.0, 3600.0, 15.0).step_s, RangeWindow.of(0.0, 30 * 86400.0, 15.0).step_s
    (15.0, 300.0)
    """

    start_s: float
    end_s: float
    step_s: float

    @classmethod
    def of(cls, start_s: float, end_s: float, scrape_s: float) -> RangeWindow:
        """A stretch by steps of the interval of scrapes, or longer ones where these are too many."""
        needed_s = (end_s - start_s) / (MAX_POINTS - 1)
        return cls(start_s, end_s, scrape_s if needed_s <= scrape_s else nice_step_s(needed_s / 0.95))

    def path(self, query: str) -> str:
        """Path to ask, GET."""
        times = f"start={self.start_s:.3f}&end={self.end_s:.3f}&step={self.step_s:g}"
        return f"/api/v1/query_range?query={quote(query, safe='')}&{times}"


@dataclass(frozen=True, slots=True)
class RangeSeries:
    """One series: labels, and values by time; those that are NaN or infinite are left out."""

    labels: Mapping[str, str]
    samples: tuple[tuple[float, float], ...]
    unreadable: int = 0


@dataclass(frozen=True, slots=True)
class RangeAnswer:
    """All series of one query."""

    series: tuple[RangeSeries, ...]


def read_range(known: Answers, path: str, what: str) -> RangeAnswer | None:
    """Series of one range (or instant) answer; None where it was not asked. Warnings of the server become findings.

    An error of the server, HTML, native histograms and values of another type are faults, in words of `what`.
    """
    if path not in known:
        return None
    answer = known.raw(path)
    if not isinstance(answer, Mapping) or "status" not in answer:
        known.add_fault(
            what, "", "it answered with no JSON of Prometheus; allowed: the API below /api/v1 of a Prometheus"
        )
        return None
    for warning in (*_texts(answer.get("warnings")), *_texts(answer.get("infos"))):
        known.find("warning", "prometheus_warning", what, f"Prometheus warns of {what}: {warning}")
    if answer["status"] != "success":
        words = f"{answer.get('errorType') or 'error'}: {answer.get('error') or 'without words'}"
        known.add_fault(what, "", f"Prometheus refused the query ({words})")
        return None
    data = answer.get("data")
    kind = data.get("resultType") if isinstance(data, Mapping) else None
    rows = data.get("result") if isinstance(data, Mapping) else None
    if kind not in ("matrix", "vector") or not isinstance(rows, list):
        known.add_fault(what, "data.resultType", f"resultType is {kind!r}; allowed: matrix or vector")
        return None
    series = []
    for i, row in enumerate(rows):
        if not isinstance(row, Mapping):
            known.add_fault(what, f"data.result[{i}]", "it is no series")
        elif ("histograms" in row or "histogram" in row) and "values" not in row and "value" not in row:
            message = "it is a native histogram; allowed: numbers, such as histogram_quantile(0.99, …) of it"
            known.add_fault(what, f"data.result[{i}]", message)
        else:
            series.append(_series(row))
    unreadable = sum(one.unreadable for one in series)
    if unreadable:
        message = f"{counted(unreadable, 'value')} of {what} are NaN or infinite, and count as missing."
        known.find("warning", "values_unreadable", what, message)
    return RangeAnswer(tuple(series))


def _texts(items: Any) -> list[str]:
    return [str(item) for item in items] if isinstance(items, list) else []


def _series(row: Mapping[str, Any]) -> RangeSeries:
    labels = row.get("metric")
    points = row.get("values", [row["value"]] if "value" in row else [])
    samples, unreadable = [], 0
    for point in points if isinstance(points, list) else []:
        pair = point if isinstance(point, (list, tuple)) and len(point) == 2 else (None, None)
        at_s, value = number_of(pair[0]), number_of(pair[1])
        if at_s is None or value is None:
            unreadable += 1
        else:
            samples.append((at_s, value))
    names = {str(key): str(value) for key, value in labels.items()} if isinstance(labels, Mapping) else {}
    return RangeSeries(names, tuple(samples), unreadable)


def flink_paths(window: RangeWindow, jobs: Sequence[str] = ()) -> Asking:
    """Range queries that `read_flink_series` reads: counters of tasks, CPU of TaskManagers, and of hosts.

    `jobs` are ids; every job's unless given. The host's CPU comes from node_exporter, where Prometheus has it.
    """
    paths = [window.path(query) for query in _flink_queries(window, jobs).values()]
    points = max(1.0, (window.end_s - window.start_s) / window.step_s)
    return Asking(tuple(paths), round(len(paths) * 10 * (600 + 30 * points)))


def _flink_queries(window: RangeWindow, jobs: Sequence[str]) -> dict[str, str]:
    chosen = f'{{job_id=~"{"|".join(sorted(jobs))}"}}' if jobs else ""
    queries = {name: f"{_TASK}{metric}{chosen}" for name, metric in _COUNTERS.items()}
    host = _HOST_LOAD.format(range_s=max(_MIN_RATE_RANGE_S, 2 * window.step_s))
    return queries | {"cpu_load": _CPU_LOAD, "cpu_time": _CPU_TIME, "host_load": host}


@dataclass(frozen=True, slots=True)
class FlinkSeries:
    """Polls of counters by job, at each step of the window, and what reading them brought up."""

    polls: Mapping[str, tuple[CounterPoll, ...]]
    findings: tuple[Finding, ...]


def read_flink_series(answers: Mapping[str, Any], window: RangeWindow, jobs: Sequence[str] = ()) -> FlinkSeries:
    """Polls of Flink jobs from the answers to `flink_paths` of the same window and jobs.

    At each step the subtasks of a vertex are added up. Where one is missing, or is another attempt's, the poll is of
    another `attempt`, so that nothing is counted across it. NaN is missing: a source that does not tell its busy time.

    Raises
    ------
    DocumentError
        With every fault: errors of Prometheus, answers of something else, no answer at all.
    """
    known = Answers(answers, _WHAT)
    ranges = {name: read_range(known, window.path(q), name) for name, q in _flink_queries(window, jobs).items()}
    if all(answer is None for answer in ranges.values()):
        known.add_fault("", "", "there is no answer to a query of Flink's metrics; allowed: those that were asked for")
    known.check()
    tables = {name: _by_task(ranges[name], name) for name in _COUNTERS}
    places = _by_place(ranges.get("cpu_load")), _by_place(ranges.get("cpu_time"), 1e9)
    hosts = _host_loads(known, ranges.get("host_load"), places[0])
    found = sorted({key[0] for table in tables.values() for key in table})
    if not found:
        known.find("missing", "metrics_missing", "", f"Prometheus has no {_TASK}… in that stretch.")
    absent = [_COUNTERS[name] for name in ("records_in", "records_out", "busy_s") if not tables[name] and found]
    if absent:
        known.find("missing", "metrics_missing", "", f"Prometheus has no {_TASK}{listed(absent)}.")
    polls = {job: tuple(_polls(job, tables, places, hosts)) for job in found}
    for job, own in polls.items():
        _describe_gaps(known, job, [poll.at_s for poll in own], window)
    return FlinkSeries(polls, tuple(known.findings))


_Task = tuple[str, str, str, str]  # job, vertex, subtask, attempt


def _by_task(answer: RangeAnswer | None, name: str) -> dict[_Task, dict[float, float]]:
    scale = 1 / _MILLISECONDS if name.endswith("_s") else 1.0
    table: dict[_Task, dict[float, float]] = {}
    for series in answer.series if answer else ():
        labels = series.labels
        if "job_id" in labels and "task_id" in labels:
            attempt = labels.get("task_attempt_id", labels.get("task_attempt_num", ""))
            key = labels["job_id"], labels["task_id"], labels.get("subtask_index", "0"), attempt
            table.setdefault(key, {}).update({at_s: value * scale for at_s, value in series.samples})
    return table


def _by_place(answer: RangeAnswer | None, divisor: float = 1.0) -> dict[str, dict[float, float]]:
    return {
        series.labels["tm_id"]: {at_s: value / divisor for at_s, value in series.samples}
        for series in (answer.series if answer else ())
        if "tm_id" in series.labels
    }


def _host_loads(known: Answers, answer: RangeAnswer | None, places: Mapping[str, Any]) -> Mapping[float, float]:
    """Load of the host by time, where there is one host only: Flink's labels do not name it as node_exporter does."""
    series = answer.series if answer else ()
    if len(series) > 1 and places:
        message = (
            f"{counted(len(series), 'host')} tell their load; which of them runs what is not known, so none is used."
        )
        known.find("missing", "hosts_unknown", "", message)
    return {at_s: min(1.0, max(0.0, value)) for at_s, value in series[0].samples} if len(series) == 1 else {}


def _polls(
    job: str,
    tables: Mapping[str, Mapping[_Task, Mapping[float, float]]],
    places: tuple[Mapping[str, Mapping[float, float]], Mapping[str, Mapping[float, float]]],
    hosts: Mapping[float, float],
) -> Iterable[CounterPoll]:
    tasks = sorted({key for table in tables.values() for key in table if key[0] == job})
    times = sorted({at_s for table in tables.values() for key in tasks for at_s in table.get(key, {})})
    for at_s in times:
        alive = [key for key in tasks if any(at_s in table.get(key, {}) for table in tables.values())]
        begun = "\n".join(" ".join(key) for key in alive)
        vertices = {}
        for vertex in sorted({key[1] for key in alive}):
            own = sorted((key for key in alive if key[1] == vertex), key=lambda key: int(number_of(key[2]) or 0))
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
        message = f"{counted(missing, 'step')} of {window.step_s:g} s are missing in the series of {subject}."
        known.find("warning", "gaps", subject, message)


@dataclass(frozen=True, slots=True)
class MappedOperator:
    """Operator of an engine that is neither Flink nor Spark, by the queries that tell of it.

    Attributes
    ----------
    reads : tuple of str
        Names of the operators that it reads; empty for a source.
    rate : str
        PromQL of events/s that it takes, one series, or several that are added up.
    cost : str
        PromQL of the seconds that an event takes it, of one thread; empty where that is not known.
    outputs : str
        PromQL of events/s that it puts out; empty: what it takes.
    parallelism : int
        Threads or processes that it runs in.
    """

    name: str
    rate: str
    reads: tuple[str, ...] = ()
    cost: str = ""
    outputs: str = ""
    kind: str = "other"
    parallelism: int = 1
    place: str | None = None


def mapped_paths(operators: Sequence[MappedOperator], window: RangeWindow) -> Asking:
    """Range queries that `read_mapped` reads."""
    queries = {query for op in operators for query in (op.rate, op.cost, op.outputs) if query}
    points = max(1.0, (window.end_s - window.start_s) / window.step_s)
    return Asking(tuple(window.path(query) for query in sorted(queries)), round(len(queries) * (300 + 30 * points)))


def read_mapped(
    job: str, operators: Sequence[MappedOperator], answers: Mapping[str, Any], window: RangeWindow
) -> tuple[EnginePicture, tuple[CounterPoll, ...]]:
    """Picture of a job and polls of its counters, from the answers to `mapped_paths`.

    Rates and costs of each step are added up to counters, so that what follows is the same as for Flink. A step whose
    rate is missing breaks the polls in two.

    Raises
    ------
    DocumentError
        With every fault: errors of Prometheus, operators that read what is not there.
    """
    known = Answers(answers, _WHAT)
    names = [operator.name for operator in operators]
    for operator in operators:
        for name in operator.reads:
            if name not in names or name == operator.name:
                known.add_fault(
                    operator.name, "reads", f"reads {name!r}; allowed: other operators of {listed(names, 9)}"
                )
    columns = {
        operator.name: tuple(
            _column(known, window, query, operator.name, add=kind != "cost")
            for kind, query in (("rate", operator.rate), ("cost", operator.cost), ("outputs", operator.outputs))
        )
        for operator in operators
    }
    known.check()
    places = {op.place: op for op in operators if op.place}
    picture = EnginePicture(
        "prometheus",
        "",
        window.end_s,
        tuple(Place(place, place, sum(op.parallelism for op in operators if op.place == place), 0) for place in places),
        (EngineJob(job, job, "running", window.start_s, tuple(_mapped_vertices(operators))),),
        tuple(known.findings),
    )
    return picture, tuple(_mapped_polls(job, operators, columns, window))


def _mapped_vertices(operators: Sequence[MappedOperator]) -> Iterable[Vertex]:
    placed: set[str] = set()
    waiting = list(operators)
    while waiting:
        ready = [op for op in waiting if set(op.reads) <= placed] or waiting  # a cycle is the document's to refuse
        for op in ready:
            yield Vertex(
                id=op.name,
                label=op.name,
                kind=op.kind if op.reads else "source",
                parallelism=op.parallelism,
                inputs=tuple(Exchange(name) for name in op.reads),
                subtasks=tuple(Subtask(i, op.place) for i in range(op.parallelism)),
            )
            placed.add(op.name)
        waiting = [op for op in waiting if op.name not in placed]


def _column(known: Answers, window: RangeWindow, query: str, subject: str, *, add: bool) -> dict[float, float]:
    """Values of a query by time: series added up, or the largest of them."""
    answer = read_range(known, window.path(query), subject) if query else None
    if query and answer is not None and not any(series.samples for series in answer.series):
        known.find("missing", "metrics_missing", subject, f"Prometheus has nothing for {query}.")
    by_time: dict[float, list[float]] = {}
    for series in answer.series if answer else ():
        for at_s, value in series.samples:
            by_time.setdefault(at_s, []).append(max(0.0, value))
    return {at_s: math.fsum(values) if add else max(values) for at_s, values in by_time.items()}


def _mapped_polls(
    job: str,
    operators: Sequence[MappedOperator],
    columns: Mapping[str, tuple[dict[float, float], ...]],
    window: RangeWindow,
) -> Iterable[CounterPoll]:
    sums = {op.name: [0.0, 0.0, 0.0, 0.0] for op in operators}  # events, outputs, busy and idle seconds
    attempt = 0
    steps = round((window.end_s - window.start_s) / window.step_s)
    yield _mapped_poll(job, operators, sums, window.start_s, attempt)
    for i in range(1, steps + 1):
        at_s = window.start_s + i * window.step_s
        complete = True
        for op in operators:
            rate, cost, outputs = (_nearest(column, at_s, window.step_s) for column in columns[op.name])
            if rate is None or (op.outputs and outputs is None) or (op.cost and cost is None and rate > 0.0):
                complete = False
                continue
            events = rate * window.step_s
            busy_s = min(events * (cost or 0.0), op.parallelism * window.step_s)
            own = sums[op.name]
            own[0] += events
            own[1] += (outputs if op.outputs and outputs is not None else rate) * window.step_s
            own[2] += busy_s
            own[3] += op.parallelism * window.step_s - busy_s
        if not complete:
            attempt += 1
        yield _mapped_poll(job, operators, sums, at_s, attempt)


def _nearest(column: Mapping[float, float], at_s: float, step_s: float) -> float | None:
    """Value at a time; Prometheus answers at the very steps that were asked for, to the millisecond."""
    value = column.get(at_s)
    if value is None:
        value = next((v for t, v in column.items() if abs(t - at_s) < 0.01 * step_s), None)
    return value


def _mapped_poll(
    job: str, operators: Sequence[MappedOperator], sums: Mapping[str, Sequence[float]], at_s: float, attempt: int
) -> CounterPoll:
    vertices = {}
    for op in operators:
        events, outputs, busy_s, idle_s = sums[op.name]
        told = bool(op.cost)
        vertices[op.name] = VertexCounters(
            records_in=events,
            records_out=outputs,
            busy_s=busy_s if told else None,
            idle_s=idle_s if told else None,
            backpressured_s=0.0 if told else None,
        )
    return CounterPoll(job, at_s, f"{job} {attempt}", vertices)


def read_counts(
    answers: Mapping[str, Any], path: str, vertex: str, *, step_s: float | None = None
) -> tuple[ArrivalCounts | None, tuple[Finding, ...]]:
    """Arrivals from a counter by time (offsets of a topic's end), and findings: differences of each series, added up.

    A series that falls has begun anew, and says nothing of that step. None where the query has no two points.

    Raises
    ------
    DocumentError
        Prometheus refused the query, or it was not asked.
    """
    known = _asked(answers, path)
    answer = read_range(known, path, "arrivals")
    stretches: dict[tuple[float, float], float] = {}
    for series in answer.series if answer else ():
        for (before_s, before), (at_s, value) in zip(series.samples, series.samples[1:], strict=False):
            if value >= before:
                stretches[before_s, at_s] = stretches.get((before_s, at_s), 0.0) + value - before
    known.check()
    in_order = [(start, end, events) for (start, end), events in sorted(stretches.items())]
    return spread_counts(vertex, in_order, "offsets", step_s=step_s), tuple(known.findings)


def _asked(answers: Mapping[str, Any], path: str) -> Answers:
    known = Answers(answers, _WHAT)
    if path not in known:
        known.add_fault(path, "", "it was not asked; allowed: the answer to that path")
    return known


@dataclass(frozen=True, slots=True)
class LatencyStretch:
    """Latency that was measured over a stretch, in seconds, of so many samples; each is a value of the user's query."""

    start_s: float
    end_s: float
    mean_s: float
    largest_s: float
    samples: int


def read_latency(
    answers: Mapping[str, Any], path: str, *, stretch_s: float, scale: float = 1.0
) -> tuple[tuple[LatencyStretch, ...], tuple[Finding, ...]]:
    """Measured latencies by stretches of `stretch_s` from a user's query, and findings.

    Of several series the largest at each time counts; `scale` makes seconds of its unit. Flink's own latency markers
    are a lower bound, and no such query: under back pressure they said 2.8 s where 11.7 s were true.

    Raises
    ------
    DocumentError
        Prometheus refused the query, or it was not asked.
    """
    known = _asked(answers, path)
    answer = read_range(known, path, "latency")
    known.check()
    largest: dict[float, float] = {}
    for series in answer.series if answer else ():
        for at_s, value in series.samples:
            if value >= 0.0:
                largest[at_s] = max(largest.get(at_s, 0.0), value * scale)
    stretches: dict[int, list[float]] = {}
    for at_s, value in largest.items():
        stretches.setdefault(math.floor(at_s / stretch_s), []).append(value)
    latencies = (
        LatencyStretch(i * stretch_s, (i + 1) * stretch_s, math.fsum(values) / len(values), max(values), len(values))
        for i, values in sorted(stretches.items())
    )
    return tuple(latencies), tuple(known.findings)
