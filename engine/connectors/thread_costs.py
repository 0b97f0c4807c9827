"""Costs of old sources and what is chained to them, from looks at their threads.

A look at a random moment finds a thread at work for as large a part of looks as it works of the time. In a stretch in
which r events/s came to each thread, an event that costs c is at work for c r of the time, so that over all stretches

    c = looks that found it at work / sum over stretches of (looks x r)

Its interval is Wilson's for a share of so many looks (Wilson, "Probable inference, the law of succession, and
statistical inference", JASA 22, 1927), of fewer of them where looks of one stretch resemble each other: by the
variance between stretches over that of independent looks. Looks that tell nothing may have been at work: they make the
cost larger, and the lower end leaves them out. No event costs more than one over the highest rate that a thread took,
so that the lower end is never above that, whatever other stretches had. What a source waits for within its own code,
which may be its next event, is no cost.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from engine.connectors.counter_changes import CounterChange, VertexChanges
from engine.connectors.cpu_costs import is_close, told_between
from engine.connectors.marginal_costs import LoadPoint
from engine.connectors.picture import CounterPoll, EngineJob, Finding, ThreadLooks, Vertex, VertexSample
from engine.connectors.thread_stacks import merged_looks
from engine.words import percent_words

__all__ = ["describe_chains", "running_threads", "tell_costs_by_threads", "watched_points"]

_LEVEL_Z = 1.645  # of a 90 % interval
_STRETCH_S = 5.0  # of shorter ones a beat within a second tells too much
_MIN_STRETCHES = _IN_A_ROW = 4
_NAMED_SHARE = 0.02  # of the work of a chain, from which its operator is named


@dataclass(frozen=True, slots=True)
class _WatchedStretch:
    """Looks at the threads of a vertex in a stretch, and events/s that each of its threads took meanwhile."""

    start_s: float
    end_s: float
    looks: ThreadLooks
    rate_per_thread: float


@dataclass(frozen=True, slots=True)
class _WatchedCost:
    """Cost of an event with its 90 % interval, in seconds, and the part of the time that threads were at work."""

    cost_s: float
    low_s: float
    high_s: float
    busy: float


def tell_costs_by_threads(
    job: EngineJob,
    polls: Sequence[CounterPoll],
    changes: Mapping[str, VertexChanges],
    operators: Mapping[str, VertexSample],
) -> tuple[dict[str, VertexSample], list[Finding]]:
    """Samples of the operators whose cost looks at their threads tell, and what was found of all that were looked at.

    `polls`: in order of time, also those whose counters repeat the ones before.
    """
    told: dict[str, VertexSample] = {}
    findings: list[Finding] = []
    for vertex in job.vertices:
        sample = operators[vertex.id]
        stretches = list(_watched(vertex, polls, changes[vertex.id]))
        looks = _sum(stretches)
        if sample.cost_s is not None or sample.events <= 0.0 or not looks.count:
            continue
        subject = f"{job.name}/{vertex.label}"
        cost = _cost(stretches) if len(stretches) >= _MIN_STRETCHES else None
        counts = {"vertex": vertex.label, "count": looks.count, "working": looks.working}
        if cost is None or not is_close(cost.low_s, cost.high_s):
            findings.append(Finding.of("missing", "thread_looks_few", subject, **counts))
            continue
        known = told_between(sample, cost.cost_s, cost.low_s, cost.high_s, "thread_stacks")
        told[vertex.id] = replace(known, busy_share=cost.busy)
        ends = {"low_s": cost.low_s, "high_s": cost.high_s}
        findings.append(Finding.of("found", "cost_by_threads", subject, **counts, **ends))
        findings += _parts(vertex, subject, looks)
    return told, findings


def running_threads(vertex: Vertex, polls: Sequence[CounterPoll]) -> float:
    """Threads of a vertex that had the CPU or wanted it, on average, at the least by how few looks there were."""
    looks = _merged([poll.threads[vertex.id] for poll in polls if vertex.id in poll.threads])
    return vertex.parallelism * _wilson(looks.running / looks.count, looks.count)[0] if looks.count else 0.0


def watched_points(
    vertex: Vertex,
    polls: Sequence[CounterPoll],
    changes: VertexChanges,
    contended: Sequence[tuple[float, float]],
) -> list[LoadPoint]:
    """Stretches in which the threads of a vertex were looked at while no host was contended."""
    points = []
    for stretch in _watched(vertex, polls, changes):
        if any(stretch.start_s < end_s and start_s < stretch.end_s for start_s, end_s in contended):
            continue
        busy = (stretch.looks.working + stretch.looks.undecided) / stretch.looks.count
        span_s = stretch.end_s - stretch.start_s
        points.append(LoadPoint(span_s, stretch.rate_per_thread, busy, float(stretch.looks.count)))
    return points


def _watched(vertex: Vertex, polls: Sequence[CounterPoll], changes: VertexChanges) -> Iterator[_WatchedStretch]:
    """Stretches of one attempt in which threads were looked at."""
    looked = [(poll.at_s, poll.threads[vertex.id]) for poll in polls if vertex.id in poll.threads]
    for run in changes.runs:
        for stretch in _stretches(run):
            own = [looks for at_s, looks in looked if stretch.start_s <= at_s < stretch.end_s]
            total = _merged(own)
            if total.count and stretch.span_s > 0.0:
                yield _WatchedStretch(
                    stretch.start_s, stretch.end_s, total, stretch.events / stretch.span_s / vertex.parallelism
                )


def _stretches(run: Sequence[CounterChange]) -> list[CounterChange]:
    """A run as stretches of at least `_STRETCH_S`; what is left over belongs to the last one."""
    stretches: list[CounterChange] = []
    for unit in run:
        if stretches and stretches[-1].span_s < _STRETCH_S:
            stretches[-1] += unit
        else:
            stretches.append(unit)
    if len(stretches) > 1 and stretches[-1].span_s < _STRETCH_S:
        stretches[-2:] = [stretches[-2] + stretches[-1]]
    return stretches


def _merged(looks: Sequence[ThreadLooks]) -> ThreadLooks:
    total = ThreadLooks(0, 0, 0, 0)
    for own in looks:
        total = merged_looks(total, own)
    return total


def _sum(stretches: Sequence[_WatchedStretch]) -> ThreadLooks:
    return _merged([stretch.looks for stretch in stretches])


def _cost(stretches: Sequence[_WatchedStretch]) -> _WatchedCost | None:
    looks = _sum(stretches)
    most = looks.working + looks.undecided
    exposure = math.fsum(stretch.looks.count * stretch.rate_per_thread for stretch in stretches)
    if exposure <= 0.0 or not looks.working:
        return None
    mean_rate = exposure / looks.count
    independent = looks.count / _resemblance(stretches, most / exposure)
    low, _ = _wilson(looks.working / looks.count, independent)
    _, high = _wilson(most / looks.count, independent)
    ceiling_s = 1.0 / _highest_rate(stretches)
    return _WatchedCost(most / exposure, min(low / mean_rate, ceiling_s), high / mean_rate, most / looks.count)


def _highest_rate(stretches: Sequence[_WatchedStretch]) -> float:
    """Highest mean rate of some stretches in a row: that of one alone hangs on when its counters were refreshed."""
    rates = [stretch.rate_per_thread for stretch in stretches]
    return max(math.fsum(rates[i : i + _IN_A_ROW]) for i in range(len(rates) - _IN_A_ROW + 1)) / _IN_A_ROW


def _resemblance(stretches: Sequence[_WatchedStretch], cost_s: float) -> float:
    """Variance of what was found between stretches over that of independent looks, at least 1."""
    squares, expected = 0.0, 0.0
    for stretch in stretches:
        share = min(1.0, cost_s * stretch.rate_per_thread)
        found = stretch.looks.working + stretch.looks.undecided
        squares += (found - stretch.looks.count * share) ** 2
        expected += stretch.looks.count * share * (1.0 - share)
    # sum (x - n p)^2 / sum n p (1 - p), with one degree of freedom for the cost
    freedom = len(stretches) / (len(stretches) - 1)
    return max(1.0, freedom * squares / expected) if expected > 0.0 else 1.0


def _wilson(share: float, looks: float) -> tuple[float, float]:
    """90 % interval of a share that so many independent looks had."""
    z2 = _LEVEL_Z**2 / looks
    # (p + z²/2n ± z √(p (1 - p)/n + z²/4n²)) / (1 + z²/n)
    middle = share + z2 / 2
    half = math.sqrt(z2 * share * (1.0 - share) + z2**2 / 4)
    return max(0.0, (middle - half) / (1.0 + z2)), (middle + half) / (1.0 + z2)


def describe_chains(
    job: EngineJob, polls: Iterable[CounterPoll], operators: Mapping[str, VertexSample]
) -> list[Finding]:
    """Findings on which operators of a chain its busy time is, by flame graphs; each graph counts once."""
    graphs: dict[str, dict[float, ThreadLooks]] = {}
    for poll in polls:
        for id_, flame in poll.flames.items():
            graphs.setdefault(id_, {})[flame.end_s] = flame.looks
    findings: list[Finding] = []
    for vertex in job.vertices:
        cost_s = operators[vertex.id].cost_s
        if vertex.id in graphs and cost_s:
            looks = _merged(list(graphs[vertex.id].values()))
            findings += _parts(vertex, f"{job.name}/{vertex.label}", looks, "chain_parts_flames", cost_s=cost_s)
    return findings


def _parts(
    vertex: Vertex, subject: str, looks: ThreadLooks, kind: str = "chain_parts", **values: object
) -> Iterator[Finding]:
    """Operators of a chain in a row by their part of its work; of one that branches nobody knows which it was."""
    total = sum(looks.by_operator)
    if not vertex.chained or not total:
        return
    shares = sorted(itertools.zip_longest(looks.by_operator, vertex.chained), key=lambda pair: -(pair[0] or 0))
    parts = []
    for n, name in shares:
        if n and name and n >= _NAMED_SHARE * total:
            low, high = _wilson(n / total, total)
            parts.append(f"{name} {percent_words(n / total)} ({percent_words(low)} to {percent_words(high)})")
    yield Finding.of("found", "chain_parts", subject, kind, vertex=vertex.label, count=total, parts=parts, **values)
