"""Range answers of Prometheus: the stretch to ask for, series as they came, and counts and latencies made of them.

Counters are asked for, never rates: `rate()` hides resets and counts at edges.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from engine.connectors.answers import Answers, Asking, number_of
from engine.connectors.arrivals import nice_step_s, spread_counts
from engine.connectors.picture import ArrivalCounts, Finding

__all__ = [
    "MAX_POINTS",
    "PROMETHEUS_ANSWERS",
    "RangeAnswer",
    "RangeSeries",
    "RangeWindow",
    "read_counts",
    "read_latency",
    "read_range",
]

#: Points that Prometheus gives for one series and no more.
MAX_POINTS = 11_000
PROMETHEUS_ANSWERS = "set of Prometheus answers"  #: in words, for faults
#: Labels by which two Prometheus that watch the same tell their series apart.
_REPLICA_LABELS = frozenset(("prometheus_replica", "__replica__", "thanos_replica", "thanos_ruler_replica"))
_ANEW = 0.5  # of a counter, below which it has begun anew; a smaller fall is another exporter that lags
_MIN_JUMP, _JUMP = 1_000.0, 50.0  # events, and times the usual growth of a step, by which a sum jumps
_QUERY_BYTES, _POINT_BYTES = 300, 30  # of an answer, from recorded ones: labels of a series, a value with its time


@dataclass(frozen=True, slots=True)
class RangeWindow:
    """Stretch that is asked for, with a step that gives no more points than Prometheus does.

    It begins and ends at multiples of the step: servers that put a cache or a range of their own in front of Prometheus
    (VictoriaMetrics, Thanos, Mimir) answer at those, whatever is asked for.

    Examples
    --------
    >>> RangeWindow.of(0.0, 3600.0, 15.0).step_s, RangeWindow.of(0.0, 30 * 86400.0, 15.0).step_s
    (15.0, 300.0)
    >>> RangeWindow.of(100.0, 1000.0, 15.0)
    RangeWindow(start_s=90.0, end_s=990.0, step_s=15.0)
    """

    start_s: float
    end_s: float
    step_s: float

    @classmethod
    def of(cls, start_s: float, end_s: float, scrape_s: float) -> RangeWindow:
        """A stretch by steps of the interval of scrapes, or longer ones where these are too many."""
        needed_s = (end_s - start_s) / (MAX_POINTS - 1)
        step_s = scrape_s if needed_s <= scrape_s else nice_step_s(needed_s / 0.95)
        return cls(step_s * math.floor(start_s / step_s), step_s * math.floor(end_s / step_s), step_s)

    @property
    def steps(self) -> int:
        """Steps from the beginning to the end."""
        return round((self.end_s - self.start_s) / self.step_s)

    def step_of(self, at_s: float) -> int:
        """The step that a time is nearest to, from 0; answers may stand beside those that were asked for."""
        return math.floor((at_s - self.start_s) / self.step_s + 0.5)

    def path(self, query: str) -> str:
        """Path to ask, GET."""
        times = f"start={self.start_s:.3f}&end={self.end_s:.3f}&step={self.step_s:g}"
        return f"/api/v1/query_range?query={quote(query, safe='')}&{times}"

    def asking(self, queries: Iterable[str], series: int = 1) -> Asking:
        """Paths of several queries, with the bytes of their answers if each has so many series."""
        paths = tuple(self.path(query) for query in queries)
        points = max(1, self.steps)
        return Asking(paths, round(len(paths) * series * (_QUERY_BYTES + _POINT_BYTES * points)))


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
        refusal = known.refusal(path)
        words = f"an error ({refusal})" if refusal else "no JSON of Prometheus"
        known.add_fault(what, "", f"it answered with {words}; allowed: the API below /api/v1 of a Prometheus")
        return None
    for warning in (*_texts(answer.get("warnings")), *_texts(answer.get("infos"))):
        known.find("warning", "prometheus_warning", what, what=what, warning=warning)
    if answer.get("isPartial") is True:
        known.find("warning", "partial_answer", what, what=what)
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
        known.find("warning", "values_unreadable", what, what=what, count=unreadable)
    merged = _without_replicas(series)
    if len(merged) < len(series):
        known.find("found", "replicas_merged", what, what=what, count=len(series) - len(merged))
    return RangeAnswer(merged)


def _without_replicas(series: Iterable[RangeSeries]) -> tuple[RangeSeries, ...]:
    """Series without those of a second Prometheus: of each time the first that tells it counts."""
    by_labels: dict[frozenset[tuple[str, str]], RangeSeries] = {}
    for entry in series:
        labels = {key: value for key, value in entry.labels.items() if key not in _REPLICA_LABELS}
        first = by_labels.get(key := frozenset(labels.items())) if len(labels) < len(entry.labels) else None
        if first is None:
            by_labels[key if len(labels) < len(entry.labels) else frozenset([("", str(len(by_labels)))])] = entry
        else:
            samples = tuple(sorted((dict(entry.samples) | dict(first.samples)).items()))
            by_labels[key] = RangeSeries(labels, samples, first.unreadable)
    return tuple(by_labels.values())


def _texts(items: Any) -> list[str]:
    if isinstance(items, str) and items:
        return [items]
    return [str(item) for item in items] if isinstance(items, list) else []


def _series(row: Mapping[str, object]) -> RangeSeries:
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


def read_counts(
    answers: Mapping[str, object], path: str, vertex: str, *, step_s: float | None = None
) -> tuple[ArrivalCounts | None, tuple[Finding, ...]]:
    """Arrivals from a counter by time (offsets of a topic's end), and findings: differences of each series, added up.

    Of several series of one topic's partition, as two exporters tell it, the largest counts at each time. A series that
    falls by half has begun anew, and says nothing of that step, nor does the first value of one that joins. None where
    the query has no two points.

    Raises
    ------
    DocumentError
        Prometheus refused the query, or it was not asked.
    """
    known = _asked(answers, path)
    answer = read_range(known, path, "arrivals")
    known.check()
    series = _by_partition(known, answer.series if answer else ())
    times = sorted({at_s for samples, _ in series for at_s, _ in samples})
    stretches: dict[tuple[float, float], float] = {}
    for samples, is_partition in series:
        steps = [(a, b, y - x) for (a, x), (b, y) in itertools.pairwise(samples) if y >= x]
        for start_s, end_s, events in steps if is_partition else _without_jumps(known, steps):
            for begin_s, stop_s, part in _shared_out(start_s, end_s, events, times):
                stretches[begin_s, stop_s] = stretches.get((begin_s, stop_s), 0.0) + part
    in_order = [(start, end, events) for (start, end), events in sorted(stretches.items())]
    return spread_counts(vertex, in_order, "offsets", step_s=step_s), tuple(known.findings)


_Samples = Sequence[tuple[float, float]]


def _by_partition(known: Answers, series: Iterable[RangeSeries]) -> list[tuple[_Samples, bool]]:
    """Samples of each partition once, and whether they are of a partition; others as they are."""
    partitions: dict[tuple[str, ...], list[RangeSeries]] = {}
    others: list[tuple[_Samples, bool]] = []
    for entry in series:
        if "partition" in entry.labels:
            clusters = sorted(f"{name}={value}" for name, value in entry.labels.items() if "cluster" in name)
            key = (entry.labels.get("topic", ""), entry.labels["partition"], *clusters)
            partitions.setdefault(key, []).append(entry)
        else:
            others.append((entry.samples, False))
    twice = 0
    for entries in partitions.values():
        for alike in _alike(entries):
            twice += len(alike) > 1
            others.append((_largest(alike), True))
    if twice:
        known.find("found", "offsets_twice", "arrivals", count=twice)
    counted_as: dict[tuple[str, ...], int] = {}
    for key, entries in partitions.items():
        counted_as[key[:2]] = counted_as.get(key[:2], 0) + len(_alike(entries))
    if (several := max(counted_as.values(), default=1)) > 1:
        known.find("warning", "offsets_of_several", "arrivals", count=several)
    return others


def _alike(entries: Sequence[RangeSeries]) -> list[list[RangeSeries]]:
    """Series of one partition in groups that tell the same offsets: those whose ranges of values meet, or nearly."""
    groups: list[tuple[float, float, list[RangeSeries]]] = []
    for low, high, entry in sorted(((*_range_of(entry), entry) for entry in entries), key=lambda row: row[:2]):
        if groups and low <= groups[-1][1] + (groups[-1][1] - groups[-1][0]) + (high - low):
            first, last, members = groups.pop()
            groups.append((first, max(last, high), [*members, entry]))
        else:
            groups.append((low, high, [entry]))
    return [members for _, _, members in groups]


def _range_of(entry: RangeSeries) -> tuple[float, float]:
    values = [value for _, value in entry.samples]
    return min(values, default=0.0), max(values, default=0.0)


def _largest(entries: Sequence[RangeSeries]) -> _Samples:
    """The largest value at each time, no lower than before unless it has begun anew: of several exporters one lags."""
    if len(entries) == 1:
        return entries[0].samples
    values: dict[float, float] = {}
    for entry in entries:
        for at_s, value in entry.samples:
            values[at_s] = max(value, values.get(at_s, value))
    samples: list[tuple[float, float]] = []
    for at_s, value in sorted(values.items()):
        before = samples[-1][1] if samples else value
        samples.append((at_s, before if _ANEW * before <= value < before else value))
    return samples


def _without_jumps(known: Answers, steps: Sequence[tuple[float, float, float]]) -> list[tuple[float, float, float]]:
    """Steps of a sum of partitions without one that holds the whole history of what joined it."""
    usual = statistics.median([events for _, _, events in steps]) if steps else 0.0
    rest = math.fsum(events for _, _, events in steps)
    jumps = [s for s in steps if s[2] >= max(_MIN_JUMP, _JUMP * usual) and s[2] > rest - s[2] and len(steps) > 2]
    for _, _, events in jumps:
        known.find("warning", "offsets_jump", "arrivals", events=events, usual=usual)
    return [step for step in steps if step not in jumps]


def _shared_out(
    start_s: float, end_s: float, events: float, times: Sequence[float]
) -> Iterator[tuple[float, float, float]]:
    """A stretch cut at the times that others tell within it: one partition's gap is none of the topic."""
    edges = [start_s, *(at_s for at_s in times if start_s < at_s < end_s), end_s]
    for begin_s, stop_s in itertools.pairwise(edges):
        yield begin_s, stop_s, events * (stop_s - begin_s) / (end_s - start_s)


def _asked(answers: Mapping[str, object], path: str) -> Answers:
    known = Answers(answers, PROMETHEUS_ANSWERS)
    if path not in known:
        known.add_fault(path, "", "it was not asked; allowed: the answer to that path")
    return known


def read_latency(
    answers: Mapping[str, object], path: str
) -> tuple[tuple[tuple[float, float], ...], tuple[Finding, ...]]:
    """Measured latencies from a user's query of seconds, as (time, seconds) in order of time, and findings.

    Of several series the largest at each time counts. Flink's own latency markers are a lower bound, and no such query:
    under back pressure they said 2.8 s where 11.7 s were true.

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
                largest[at_s] = max(largest.get(at_s, 0.0), value)
    return tuple(sorted(largest.items())), tuple(known.findings)
