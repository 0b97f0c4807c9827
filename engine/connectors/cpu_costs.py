"""Costs of operators that tell no busy time, from the CPU time of the processes that run them.

Over stretches of polls the CPU time of a job's TaskManagers is what they take by themselves and what each event costs:

    cores = own + sum over operators of (events/s x cost),  own and costs at least 0

It is fitted by non-negative least squares. Of operators that tell their busy time the CPU time lies between nothing
(they wait) and all of it (they compute), so each fit is made with both, and the cost lies between the two, widened by
what the residuals allow. A cost is told only where events came at rates that differ and do not move together, and
where no other job runs there.

CPU time does not see what a thread waits for, so by itself it is the least that an event may cost (``cpu_time``). The
most is what the hottest thread had at the highest rate that it took: one over that rate. Where load rose so far that
the two are close, the cost is known between them (``load_step``).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from engine.arrays import FloatArray
from engine.connectors.picture import CostOrigin, CounterPoll, EngineJob, Finding, Vertex, VertexCounters, VertexSample
from engine.document.elements import Batch

__all__ = ["fit_costs", "is_close", "tell_costs_by_cpu", "told_between"]

_TOLD = {"cpu_time": "cost_by_cpu_time", "load_step": "cost_by_load_step"}  # findings, by where a cost is from

_WINDOW_S = 10.0
_MIN_WINDOWS = 8
_LEVEL_Z = 1.645  # of a 90 % interval
_MAX_ERROR = 0.25  # of a cost: one that is known worse is not told
_TOGETHER = 0.98  # correlation from which rates move together
_BATCHES = 12


@dataclass(frozen=True, eq=False)
class _CpuWindows:
    """Cores that were used, events/s of the operators without a cost, and busy threads of those with one, by window."""

    cores: FloatArray  # (w,)
    rates: FloatArray  # (w, u)
    busy: FloatArray  # (w,)


def tell_costs_by_cpu(
    job: EngineJob, polls: Sequence[CounterPoll], operators: Mapping[str, VertexSample], *, is_alone: bool
) -> tuple[dict[str, VertexSample], list[Finding]]:
    """Samples of the operators whose cost CPU time tells, and what was found of all that tell no busy time.

    `polls`: in order of time. `is_alone`: no other job runs on the places of this one.
    """
    unknown = [v for v in job.vertices if operators[v.id].events > 0.0 and operators[v.id].cost_s is None]
    if not unknown or not any(poll.cpu_s for poll in polls):
        return {}, []
    names = [vertex.label for vertex in unknown]
    if not is_alone:
        return {}, [Finding.of("missing", "cpu_of_several", job.name, vertices=names)]
    windows = _windows(job, polls, unknown, operators)
    if windows is None:
        return {}, [Finding.of("missing", "cpu_windows_few", job.name, vertices=names)]
    if _moves_together(windows.rates):
        return {}, [Finding.of("missing", "cpu_rates_together", job.name, vertices=names)]
    told: dict[str, VertexSample] = {}
    findings: list[Finding] = []
    most = fit_costs(windows.rates, windows.cores)
    least = fit_costs(windows.rates, np.maximum(windows.cores - windows.busy, 0.0))
    for u, vertex in enumerate(unknown):
        error_s, subject = _LEVEL_Z * max(least[1][u], most[1][u]), f"{job.name}/{vertex.label}"
        low_s, high_s = min(least[0][u], most[0][u]) - error_s, max(least[0][u], most[0][u]) + error_s
        if not is_close(low_s, high_s):
            findings.append(Finding.of("missing", "cpu_load_alike", subject, vertex=vertex.label))
            continue
        sample = operators[vertex.id]
        origin: CostOrigin = "cpu_time"
        ceiling_s = 1.0 / (windows.rates[:, u].max() * max(sample.shares, default=1.0 / vertex.parallelism))
        if ceiling_s >= low_s and is_close(low_s, ceiling_s):
            high_s, origin = ceiling_s, "load_step"
        told[vertex.id] = told_between(sample, 0.5 * (low_s + high_s), low_s, high_s, origin)
        costs = {"low_s": low_s, "high_s": high_s}
        findings.append(Finding.of("found", _TOLD[origin], subject, vertex=vertex.label, **costs))
    return told, findings


def _moves_together(rates: FloatArray) -> bool:
    """Whether the rates of two operators rise and fall as one, so that nothing tells their costs apart."""
    centred = rates - rates.mean(axis=0)
    norms = np.linalg.norm(centred, axis=0)
    products = np.triu(np.abs(centred.T @ centred), 1)
    return bool((products > _TOGETHER * np.outer(norms, norms)).any())


def is_close(low_s: float, high_s: float) -> bool:
    """Whether an interval tells a cost: its error is at most `_MAX_ERROR` of its middle."""
    return low_s > 0.0 and high_s - low_s <= _LEVEL_Z * _MAX_ERROR * (high_s + low_s)


def _windows(
    job: EngineJob, polls: Sequence[CounterPoll], unknown: Sequence[Vertex], operators: Mapping[str, VertexSample]
) -> _CpuWindows | None:
    """Stretches of at least `_WINDOW_S` in which all was told and nothing began anew; None where they are too few."""
    places = {subtask.place for vertex in job.vertices for subtask in vertex.subtasks}
    if not places or None in places:
        return None
    known = [vertex for vertex in job.vertices if operators[vertex.id].cost_s is not None]
    whole = [poll for poll in polls if _is_whole(poll, [str(place) for place in places], job.vertices)]
    rows: list[tuple[float, list[float], float]] = []
    for _, attempt in itertools.groupby(whole, key=lambda poll: poll.attempt):
        begin: CounterPoll | None = None
        for poll in attempt:
            if begin is None:
                begin = poll
            if (span_s := poll.at_s - begin.at_s) < _WINDOW_S:
                continue
            used_s = math.fsum(poll.cpu_s[str(place)] - begin.cpu_s[str(place)] for place in places)
            events = [_events(vertex, poll) - _events(vertex, begin) for vertex in unknown]
            busy = math.fsum(
                (_events(vertex, poll) - _events(vertex, begin)) * (operators[vertex.id].cost_s or 0.0)
                for vertex in known
            )
            if used_s >= 0.0 and min(events) >= 0.0:
                rows.append((used_s / span_s, [count / span_s for count in events], busy / span_s))
            begin = poll
    if len(rows) < _MIN_WINDOWS:
        return None
    return _CpuWindows(
        np.array([row[0] for row in rows]), np.array([row[1] for row in rows]), np.array([row[2] for row in rows])
    )


def _is_whole(poll: CounterPoll, places: Collection[str], vertices: Sequence[Vertex]) -> bool:
    return all(place in poll.cpu_s for place in places) and all(
        vertex.id in poll.vertices and _count(vertex, poll.vertices[vertex.id]) is not None for vertex in vertices
    )


def _events(vertex: Vertex, poll: CounterPoll) -> float:
    return _count(vertex, poll.vertices[vertex.id]) or 0.0


def _count(vertex: Vertex, counters: VertexCounters) -> float | None:
    """Events that a vertex took: of a source that does not count them, those that it put out."""
    return counters.records_out if vertex.is_source and not counters.records_in else counters.records_in


def fit_costs(rates: FloatArray, cores: FloatArray, weights: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
    """Costs of each operator in core seconds, and their standard errors, (u,); infinite where rates tell nothing.

    Parameters
    ----------
    rates : array, shape (w, u)
        Events/s of each operator in each stretch.
    cores : array, shape (w,)
        Work in each, in core seconds a second.
    weights : array, shape (w,), optional
        By which each stretch counts; alike unless given.
    """
    design = np.column_stack([rates, np.ones(len(rates))])
    if weights is not None:
        roots = np.sqrt(weights / weights.mean())
        design, cores = design * roots[:, None], cores * roots
    scale = np.maximum(design.max(axis=0), 1e-300)
    solution = _least_squares(design / scale, cores)
    residual = float(np.linalg.norm(design / scale @ solution - cores))
    freedom = max(1, len(cores) - design.shape[1])
    gram = (design / scale).T @ (design / scale)
    if np.linalg.cond(gram) > 1e10:
        return solution[:-1] / scale[:-1], np.full(rates.shape[1], np.inf)
    # var(b) = s^2 (X'X)^-1, s^2 of the residuals
    errors = np.sqrt(residual**2 / freedom * np.diag(np.linalg.inv(gram)))
    return solution[:-1] / scale[:-1], errors[:-1] / scale[:-1]


def _least_squares(design: FloatArray, values: FloatArray) -> FloatArray:
    """Non-negative least squares, by dropping the most negative coefficient until none is; the web loads no SciPy."""
    kept = list(range(design.shape[1]))
    solution = np.zeros(design.shape[1])
    while kept:
        part = np.linalg.lstsq(design[:, kept], values, rcond=None)[0]
        if part.min() >= 0.0:
            solution[kept] = part
            break
        del kept[int(part.argmin())]
    return solution


def told_between(sample: VertexSample, cost_s: float, low_s: float, high_s: float, origin: CostOrigin) -> VertexSample:
    """The sample with a cost, and batches whose mean has its 90 % interval, to both sides as wide as to the wider."""
    error_s = max(high_s - cost_s, cost_s - low_s) / _LEVEL_Z
    # Of K equal batches of cost c (1 +- d) the mean has the error c d / sqrt(K - 1).
    spread = min(0.95, error_s / cost_s * math.sqrt(_BATCHES - 1))
    events, selectivity = sample.events / _BATCHES, 1.0 if sample.selectivity is None else sample.selectivity
    batches = tuple(
        Batch(events, events * selectivity, events * cost_s * 1e9 * (1.0 + (spread if k % 2 else -spread)))
        for k in range(_BATCHES)
    )
    findings = tuple(finding for finding in sample.findings if finding.code != "busy_time_missing")
    return replace(sample, cost_s=cost_s, batches=batches, findings=findings, cost_by=origin)
