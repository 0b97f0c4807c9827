"""Range answers of Prometheus: the stretch to ask for, series as they came, and counts and latencies made of them.

Counters are asked for, never rates: `rate()` hides resets and counts at edges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from engine.connectors.answers import Answers, number_of
from engine.connectors.arrivals import nice_step_s, spread_counts
from engine.connectors.flink import Asking
from engine.connectors.picture import ArrivalCounts, Finding
from engine.words import counted

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
_QUERY_BYTES, _POINT_BYTES = 300, 30  # of an answer, from recorded ones: labels of a series, a value with its time


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

    def asking(self, queries: Iterable[str], series: int = 1) -> Asking:
        """Paths of several queries, with the bytes of their answers if each has so many series."""
        paths = tuple(self.path(query) for query in queries)
        points = max(1.0, (self.end_s - self.start_s) / self.step_s)
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
    known = Answers(answers, PROMETHEUS_ANSWERS)
    if path not in known:
        known.add_fault(path, "", "it was not asked; allowed: the answer to that path")
    return known


def read_latency(answers: Mapping[str, Any], path: str) -> tuple[tuple[tuple[float, float], ...], tuple[Finding, ...]]:
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
