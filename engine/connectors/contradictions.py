"""Contradictions between figures of the same thing: two that differ beyond their noise are told, and the worse decides.

What is compared (docs/models/connectors.md has the table): events that came by the broker against those a source read,
records written against records read behind them, threads that push back against how busy they say they are, what
threads account for against the time that passed, and CPU of a process against the busy time of its threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from engine.connectors.counter_changes import CounterChange, VertexChanges
from engine.connectors.picture import ArrivalCounts, EngineJob, Finding, Vertex, VertexSample

__all__ = ["SettledSample", "settle_contradictions"]

_MIN_SPAN_S = 10.0  # a shorter stretch tells no rate
_LATE_S = 15.0  # by so much may counters be older than they say
_TOLERANCE = 0.05  # of a count, beside its own noise
_SIGMAS = 4.0  # of a count's chance
_HELD = 0.05  # of the time, from which a source is held back by its readers
_PUSHED = 0.5  # of the time, from which a vertex is held back for good
_BUSY = 0.7  # of the hottest thread, from which it may be what holds others back
_UNTOLD = 0.1  # of the time that threads do not account for
_MIN_UNTOLD_S = 20.0
_BROKEN = 10.0  # times the time that passed, beyond which a busy time is none
_BESIDE_CORES, _BESIDE = 0.5, 1.5  # cores, and times the busy threads, that a process uses beside them


@dataclass(frozen=True)
class SettledSample:
    """Statistics and arrivals by the worse of two figures where they contradict each other, and what was found."""

    operators: Mapping[str, VertexSample]
    offsets: Mapping[str, ArrivalCounts]
    findings: tuple[Finding, ...]


def settle_contradictions(
    job: EngineJob,
    changes: Mapping[str, VertexChanges],
    operators: Mapping[str, VertexSample],
    offsets: Mapping[str, ArrivalCounts],
    busy_threads: Mapping[str, float | None],
    cpu_cores: Mapping[str, float],
) -> SettledSample:
    """Compare the figures of a job's operators.

    `offsets`: by vertex of a source, what came by the broker's account. `busy_threads` and `cpu_cores`: by place, as
    `JobSample` has them.
    """
    settled, kept = dict(operators), dict(offsets)
    findings: list[Finding] = []
    for vertex in job.vertices:
        own, subject = changes[vertex.id], f"{job.name}/{vertex.label}"
        if vertex.is_source and vertex.id in offsets:
            found = _compare_offsets(vertex, own, operators[vertex.id], offsets[vertex.id], subject)
            if found is not None and found[0]:
                settled[vertex.id] = _costing(settled[vertex.id], _cost_of_rate(vertex, own))
            elif found is not None:
                del kept[vertex.id]
            findings += [] if found is None else [found[1]]
        for finding, cost_s in _compare_busy(job, vertex, changes, operators, subject):
            settled[vertex.id] = _costing(settled[vertex.id], cost_s)
            findings.append(finding)
        if (impossible := _compare_span(vertex, own, settled[vertex.id], subject)) is not None:
            findings.append(impossible[0])
            settled[vertex.id] = _with_cost(settled[vertex.id], impossible[1])
        for finding, ratio in _compare_counts(job, vertex, changes, subject):
            if ratio > 1.0:
                for upstream in _upstreams(vertex):
                    settled[upstream] = replace(settled[upstream], taken=ratio)
            findings.append(finding)
    findings += _compare_cpu(job, busy_threads, cpu_cores)
    return SettledSample(settled, kept, tuple(findings))


def _compare_offsets(
    vertex: Vertex, changes: VertexChanges, sample: VertexSample, came: ArrivalCounts, subject: str
) -> tuple[bool, Finding] | None:
    """Whether a source reads less than comes although nobody holds it back, or more, with what to say; else None."""
    read, least, most, span_s = 0.0, 0.0, 0.0, 0.0
    for start_s, end_s, events in _runs(changes):
        shifted = [_count_between(came, start_s - late_s, end_s - late_s) for late_s in (0.0, 0.5 * _LATE_S, _LATE_S)]
        known = [count for count in shifted if count is not None]
        if known:
            read, least, most, span_s = read + events, least + min(known), most + max(known), span_s + end_s - start_s
    if span_s < _MIN_SPAN_S:
        return None
    if _exceeds(least, read) and (sample.backpressured_share or 0.0) < _HELD:
        kind, busy = "source_behind" if sample.busy_share is None else "source_behind_busy_told", sample.busy_share
        rates = {"came": least / span_s, "read": read / span_s}
        return True, Finding.of("warning", "source_behind", subject, kind, vertex=vertex.label, busy=busy, **rates)
    if _exceeds(read, most) and not came.is_whole:
        rates = {"came": most / span_s, "read": read / span_s}
        return False, Finding.of("warning", "offsets_below_read", subject, vertex=vertex.label, **rates)
    return None


def _runs(changes: VertexChanges) -> Iterator[tuple[float, float, float]]:
    """Stretches without a gap in them: begin, end, events."""
    for run in changes.runs:
        start_s, end_s, events = run[0].start_s, run[0].end_s, run[0].events
        for unit in run[1:]:
            if unit.start_s != end_s:
                yield start_s, end_s, events
                start_s, events = unit.start_s, 0.0
            end_s, events = unit.end_s, events + unit.events
        yield start_s, end_s, events


def _count_between(came: ArrivalCounts, start_s: float, end_s: float) -> float | None:
    """Events between two moments, spread evenly within steps; None where a step of them was not counted."""
    first, last = (start_s - came.start_s) / came.step_s, (end_s - came.start_s) / came.step_s
    if first < -1e-9 or last > len(came.counts) + 1.0 or last <= first:
        return None
    last = min(last, float(len(came.counts)))  # the newest step is not over when it is asked for
    total = 0.0
    for i in range(max(0, math.floor(first)), math.ceil(last)):
        count = came.counts[i]
        if count is None:
            return None
        total += count * (min(i + 1.0, last) - max(float(i), first))
    return total * (end_s - start_s) / ((last - first) * came.step_s)


def _exceeds(count: float, other: float) -> bool:
    """Whether one count is above another beyond chance."""
    return count - other > _TOLERANCE * count + _SIGMAS * math.sqrt(count + other)


def _compare_busy(
    job: EngineJob,
    vertex: Vertex,
    changes: Mapping[str, VertexChanges],
    operators: Mapping[str, VertexSample],
    subject: str,
) -> Iterator[tuple[Finding, float]]:
    """Threads that hold others back and say that they are hardly busy, and time that they do not account for."""
    own = operators[vertex.id]
    hottest = (own.busy_share or 0.0) * vertex.parallelism * _hottest(vertex, changes[vertex.id])
    held = max((operators[e.upstream].backpressured_share or 0.0 for e in vertex.inputs), default=0.0)
    others = [r for r in job.vertices if r.id != vertex.id and {e.upstream for e in r.inputs} & _upstreams(vertex)]
    is_alone = not any((operators[r.id].busy_share or 0.0) >= _BUSY for r in others)
    pushes_itself = (own.backpressured_share or 0.0) >= _HELD
    if held >= _PUSHED and own.busy_share is not None and hottest < _BUSY and not pushes_itself and is_alone:
        shares = {"held": held, "busy": own.busy_share}
        finding = Finding.of("warning", "held_back_unbusy", subject, vertex=vertex.label, **shares)
        yield finding, _cost_of_rate(vertex, changes[vertex.id])
    units = [unit for unit in changes[vertex.id].units if unit.busy_s is not None]
    span_s, events = math.fsum(unit.span_s for unit in units), math.fsum(unit.events for unit in units)
    untold_s = span_s - math.fsum(unit.clock_s for unit in units) / vertex.parallelism
    if events and untold_s > max(_MIN_UNTOLD_S, _UNTOLD * span_s):
        busy_s = math.fsum(unit.busy_s or 0.0 for unit in units)
        share = 1.0 - untold_s / span_s
        cost_s = (busy_s + untold_s * vertex.parallelism) / events
        yield Finding.of("warning", "time_unaccounted", subject, vertex=vertex.label, share=share), cost_s


def _compare_span(
    vertex: Vertex, changes: VertexChanges, sample: VertexSample, subject: str
) -> tuple[Finding, float] | None:
    """Busy time beyond what the threads have lived, and the cost that counts.

    That is the larger one, as everywhere, unless it is far from anything that can be: then a counter is broken.
    """
    units = [unit for unit in changes.units if unit.busy_s is not None]
    lived_s = vertex.parallelism * (_span_s(units) + _LATE_S)
    busy_s, events = math.fsum(unit.busy_s or 0.0 for unit in units), math.fsum(unit.events for unit in units)
    cost_s = sample.cost_s or 0.0
    if not events or busy_s <= (1.0 + _UNTOLD) * lived_s or cost_s <= lived_s / events:
        return None
    is_broken = busy_s > _BROKEN * lived_s
    kind, times = "busy_counter_broken" if is_broken else "", {"busy_s": busy_s, "lived_s": lived_s}
    finding = Finding.of("warning", "busy_beyond_time", subject, kind, vertex=vertex.label, **times)
    return finding, lived_s / events if is_broken else cost_s


def _upstreams(vertex: Vertex) -> set[str]:
    return {exchange.upstream for exchange in vertex.inputs}


def _hottest(vertex: Vertex, changes: VertexChanges) -> float:
    """Part of the events that the thread with the most takes."""
    return max(changes.shares, default=1.0 / vertex.parallelism)


def _cost_of_rate(vertex: Vertex, changes: VertexChanges) -> float:
    """Seconds per event of a thread that had no time left: what passed, over what the thread with the most took."""
    span_s = math.fsum(unit.span_s for unit in changes.units)
    events = math.fsum(unit.events for unit in changes.units)
    return span_s / (events * _hottest(vertex, changes)) if events > 0.0 else 0.0


def _compare_counts(
    job: EngineJob, vertex: Vertex, changes: Mapping[str, VertexChanges], subject: str
) -> Iterator[tuple[Finding, float]]:
    """Records read against records written before, where each of those before is read by this vertex alone, once."""
    readers = [(reader.id, exchange) for reader in job.vertices for exchange in reader.inputs]
    if not vertex.inputs or any(
        exchange.strategy == "broadcast" or sum(other.upstream == exchange.upstream for _, other in readers) > 1
        for exchange in vertex.inputs
    ):
        return
    own, before = changes[vertex.id].units, [changes[exchange.upstream].units for exchange in vertex.inputs]
    span_s = math.fsum(unit.span_s for unit in own)
    if not all(before) or any(_span_s(units) > 1.2 * span_s or span_s > 1.2 * _span_s(units) for units in before):
        return  # of other stretches
    read = math.fsum(unit.events for unit in own)
    written = math.fsum(unit.outputs for units in before for unit in units)
    # Counters of two vertices are refreshed apart, so that the largest step of each may be in one and not the other.
    largest = max((unit.events for unit in own), default=0.0)
    largest += math.fsum(max(unit.outputs for unit in units) for units in before)
    if span_s < _MIN_SPAN_S or not written or abs(read - written) <= largest or not _differs(read, written):
        return
    labels = {other.id: other.label for other in job.vertices}
    above = " and ".join(labels[exchange.upstream] for exchange in vertex.inputs)
    counts = {"read": read, "written": written}
    finding = Finding.of("warning", "counts_differ", subject, vertex=vertex.label, above=above, **counts)
    yield finding, read / written


def _differs(count: float, other: float) -> bool:
    return _exceeds(count, other) or _exceeds(other, count)


def _span_s(units: Sequence[CounterChange]) -> float:
    return math.fsum(unit.span_s for unit in units)


def _compare_cpu(
    job: EngineJob, busy_threads: Mapping[str, float | None], cpu_cores: Mapping[str, float]
) -> Iterator[Finding]:
    """Processes that compute beside their tasks: collection of garbage, compaction, clients of sources."""
    for place, cores in cpu_cores.items():
        busy = busy_threads.get(place)
        if busy is not None and cores > busy + _BESIDE_CORES and cores > _BESIDE * busy:
            yield Finding.of("found", "cpu_beside", job.name, job=job.name, place=place, cores=cores, busy=busy)


def _costing(sample: VertexSample, cost_s: float) -> VertexSample:
    """The sample with a larger cost; a smaller one changes nothing."""
    return _with_cost(sample, cost_s) if cost_s > (sample.cost_s or 0.0) else sample


def _with_cost(sample: VertexSample, cost_s: float) -> VertexSample:
    factor = cost_s / sample.cost_s if sample.cost_s else 0.0
    batches = tuple(replace(batch, cycles=batch.cycles * factor) for batch in sample.batches) if factor else ()
    return replace(sample, cost_s=cost_s, batches=batches, cost_by=None)
