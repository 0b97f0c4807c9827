"""Arrivals at sources: events counted between polls, put into steps of one width, with gaps and edges of bursts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from engine.connectors.counter_changes import CounterChange, VertexChanges
from engine.connectors.picture import ArrivalCounts, EngineJob, Finding, VertexSample

__all__ = ["nice_step_s", "source_arrivals", "spread_counts"]

_BACKPRESSURED = 0.05  # of the time, from which a source's rate is no longer taken for what came
_EDGE = 1.5  # times the rate before, or less than one such part of it: no change by chance
_COARSE_S = 5.0  # from which on bursts of an overload are hidden in it
_GAP = 4.0  # usual intervals between polls; what came within a longer one is not known
_MIN_GAP_S = 30.0
_STEPS_S = (
    0.1,
    0.2,
    0.25,
    0.5,
    1.0,
    2.0,
    5.0,
    10.0,
    15.0,
    20.0,
    30.0,
    60.0,
    120.0,
    300.0,
    600.0,
    900.0,
    1800.0,
    3600.0,
)
_ABOUT = 0.1  # of a step, by which polls may be late
_MAX_STEPS = 100_000
_MIN_ATTEMPT_S = 60.0  # that tells its rate by itself
_ALIKE = 1.5  # times the rate, from which an attempt is of another load


def source_arrivals(
    job: EngineJob,
    changes: Mapping[str, VertexChanges],
    operators: Mapping[str, VertexSample],
    step_s: float | None,
    offsets: Mapping[str, ArrivalCounts],
) -> tuple[dict[str, ArrivalCounts], list[Finding]]:
    arrivals: dict[str, ArrivalCounts] = {}
    findings: list[Finding] = []
    for vertex in job.vertices:
        if not vertex.is_source:
            continue
        subject = f"{job.name}/{vertex.label}"
        if vertex.id in offsets:
            arrivals[vertex.id] = replace(offsets[vertex.id], vertex=vertex.id)
            continue
        runs = [_emptied(run) for run in changes[vertex.id].runs] if vertex.has_ended else changes[vertex.id].runs
        attempts, lower, higher = _compared_attempts(runs)
        for kind, others in (("", lower), ("attempts_above", higher)):
            if others:
                rates = {"now": _rate(_newest_of(attempts)), "before": _rate(others[-1])}
                told = {"vertex": vertex.label, "count": len(others), **rates}
                findings.append(Finding.of("found", "attempts_apart", subject, kind, **told))
        stretches = [(u.start_s, u.end_s, u.events) for run in attempts for u in run if u.span_s > 0.0]
        reads = any(unit.outputs != unit.events for unit in changes[vertex.id].units)
        counts = spread_counts(vertex.id, stretches, "read" if reads else "written", step_s=step_s)
        if counts is None:
            findings.append(Finding.of("missing", "arrivals_missing", subject, vertex=vertex.label))
            continue
        arrivals[vertex.id] = counts
        if counts.known_step_s > _COARSE_S:
            told = {"vertex": vertex.label, "step_s": counts.known_step_s}
            findings.append(Finding.of("found", "arrivals_coarse", subject, **told))
        held = operators[vertex.id].backpressured_share
        if held is not None and held >= _BACKPRESSURED:
            findings.append(Finding.of("warning", "source_backpressured", subject, vertex=vertex.label, held=held))
    return arrivals, findings


_Attempt = Sequence[CounterChange]


def _emptied(run: _Attempt) -> _Attempt:
    """A run of a source that has ended since: what came then comes no more."""
    return [replace(unit, events=0.0, outputs=0.0) for unit in run]


def _compared_attempts(runs: Sequence[_Attempt]) -> tuple[list[_Attempt], list[_Attempt], list[_Attempt]]:
    """Attempts whose arrivals count; those that do not, as their rate is below the newest one's; those with one above.

    A lower rate is of another load. So may a higher one be, or of a source that made up for the time in which it was
    down; but it may come again as well, so it counts for as long as it is known.
    """
    timed = [run for run in runs if _span_s(run) > 0.0]
    if not timed:
        return [], [], []
    newest = _newest_of(timed)
    rate, before = _rate(newest), timed[: timed.index(newest)]
    lower = [run for run in before if rate > _ALIKE * _rate(run)]
    higher = [run for run in before if _rate(run) > _ALIKE * rate]
    return [run for run in timed if run not in lower], lower, higher


def _newest_of(attempts: Sequence[_Attempt]) -> _Attempt:
    """The newest attempt that is long enough to tell its rate; the first one where none is."""
    return next((run for run in reversed(attempts) if _span_s(run) >= _MIN_ATTEMPT_S), attempts[0])


def _span_s(run: Sequence[CounterChange]) -> float:
    return math.fsum(unit.span_s for unit in run)


def _rate(run: Sequence[CounterChange]) -> float:
    span_s = _span_s(run)
    return math.fsum(unit.events for unit in run) / span_s if span_s > 0.0 else 0.0


def spread_counts(
    vertex: str,
    stretches: Sequence[tuple[float, float, float]],
    origin: str,
    *,
    step_s: float | None = None,
) -> ArrivalCounts | None:
    """Counts by step from stretches (begin, end, events) in order, each spread evenly; None without any.

    Where a rate changes by half or more from the stretch before to the one after, and is in between, it changed within:
    at the moment that keeps the number of events. Spread evenly, a burst would lose its edges, and its queue with them.

    A stretch of more than four usual ones, and half a minute, is a gap, as is what no stretch covers: what came within
    it may have come at once.

    Examples
    --------
    >>> spread_counts("v", [(0.0, 2.0, 10.0), (2.0, 4.0, 30.0)], "written", step_s=1.0).counts
    (5.0, 5.0, 15.0, 15.0)
    """
    if not stretches:
        return None
    spans = [end - start for start, end, _ in stretches]
    usual_s = statistics.median(spans)
    longest_s = max(_GAP * usual_s, _MIN_GAP_S)
    # Finer than polls, so that a stretch is not spread twice: into these steps, and into a document's subintervals.
    width_s = step_s or min(1.0, nice_step_s(usual_s))
    kept = [stretch for stretch, span_s in zip(stretches, spans, strict=True) if span_s <= longest_s]
    if not kept:
        return None
    if step_s is None:
        width_s = max(width_s, nice_step_s((kept[-1][1] - kept[0][0]) / _MAX_STEPS))
    first = math.ceil(kept[0][0] / width_s - 1e-9)
    steps = math.floor(kept[-1][1] / width_s + 1e-9) - first
    if steps < 1 or steps > _MAX_STEPS:
        first, steps = math.floor(kept[0][0] / width_s), 1 if steps < 1 else _MAX_STEPS
    counts, covered_s = [0.0] * steps, [0.0] * steps
    for start, end, events in _with_edges(kept):
        for i in range(max(0, math.floor(start / width_s) - first), min(steps, math.ceil(end / width_s) - first)):
            begin = (first + i) * width_s
            overlap = min(end, begin + width_s) - max(start, begin)
            if overlap > 0.0:
                counts[i] += events * overlap / (end - start)
                covered_s[i] += overlap
    span_s = sorted(end - start for start, end, _ in kept)[int(0.9 * (len(kept) - 1))]
    known_step_s = width_s * max(1, math.ceil(span_s / width_s - _ABOUT))
    return ArrivalCounts(
        vertex=vertex,
        start_s=first * width_s,
        step_s=width_s,
        counts=tuple(
            count if steps == 1 or seconds >= 0.999 * width_s else None
            for count, seconds in zip(counts, covered_s, strict=True)
        ),
        known_step_s=known_step_s,
        origin=origin,  # type: ignore[arg-type]
    )


def _with_edges(stretches: Sequence[tuple[float, float, float]]) -> Iterator[tuple[float, float, float]]:
    """Stretches, those within which the rate of arrivals stepped up or down cut in two at that moment."""
    rates = [events / (end - start) for start, end, events in stretches]
    for i, (start, end, events) in enumerate(stretches):
        if 0 < i < len(stretches) - 1 and stretches[i - 1][1] >= start and stretches[i + 1][0] <= end:
            before, after = rates[i - 1], rates[i + 1]
            if min(before, after) < rates[i] < max(before, after) and max(before, after) >= _EDGE * min(before, after):
                edge = end - (end - start) * (rates[i] - before) / (after - before)
                yield start, edge, before * (edge - start)
                yield edge, end, after * (end - edge)
                continue
        yield start, end, events


def nice_step_s(interval_s: float) -> float:
    """The least round step that is no shorter than 95 % of an interval.

    Examples
    --------
    >>> nice_step_s(1.003), nice_step_s(13.0), nice_step_s(9000.0)
    (1.0, 15.0, 3600.0)
    """
    return next((step for step in _STEPS_S if step >= 0.95 * interval_s), _STEPS_S[-1])
