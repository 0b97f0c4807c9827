"""Statistics of a job from many polls of its counters: costs, selectivities, arrivals, shares, and how far they hold.

Each is a difference of counters between polls of one attempt, never a gauge: Flink's own are averages of 60 s. Cost is
busy time over records read, and busy time is wall time, so a contended host makes it longer; such stretches are marked
(`engine.connectors.statistics`). docs/models/connectors.md has the rules with what they were tried on.
"""

from __future__ import annotations

import itertools
import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from engine.connectors.arrivals import source_arrivals
from engine.connectors.batch_outputs import batch_outputs
from engine.connectors.contradictions import settle_contradictions
from engine.connectors.counter_changes import (
    MIN_CHANGES,
    CounterChange,
    VertexChanges,
    busy_share_of,
    ordered_polls,
    share_of,
    vertex_changes,
)
from engine.connectors.cpu_costs import tell_costs_by_cpu
from engine.connectors.exchanges import bound_flows, describe_flows
from engine.connectors.marginal_costs import LoadPoint, count_loads, with_marginal_cost
from engine.connectors.picture import (
    ArrivalCounts,
    CounterPoll,
    EngineJob,
    Finding,
    JobSample,
    Place,
    Vertex,
    VertexSample,
)
from engine.connectors.thread_costs import describe_chains, running_threads, tell_costs_by_threads, watched_points
from engine.document.elements import Batch
from engine.document.unknown_costs import FULL_SPAN_S
from engine.measurement.variation import ScaleDispersion, choose_scale, cost_dispersion, cost_sums
from engine.words import percent_words

__all__ = [
    "CONTENDED_GROWTH",
    "CONTENDED_LOAD",
    "MAX_BATCHES",
    "Contention",
    "CpuUse",
    "find_contention",
    "sample_job",
]


#: A host is contended where its processes use so much of all its cores, by the sum of what they report or by its own.
CONTENDED_LOAD = 0.8
#: So is a stretch in which an event took so many times as long as in the operator's calmest tenth, while the process
#: used less than `_COMPUTING` of a core for each busy thread: they waited, and before they had not.
CONTENDED_GROWTH = 1.5
_COMPUTING = 0.8
_TELLING_SHARE = 0.2  # of a thread: the cost of what is busy less is not known well enough within seconds
_MIN_QUIET = 0.05  # of a cost, whatever CPU time and calm stretches say
_CALM = 0.1  # of the events are the calmest tenth


class CpuUse:
    """CPU of places over time: what their processes used, and what is known of their hosts."""

    def __init__(self, polls: Sequence[CounterPoll], places: Iterable[Place]) -> None:
        self._polls = polls
        self._times = [poll.at_s for poll in polls]
        self._hosts = {place.id: place.host for place in places}

    def cores(self) -> dict[str, float]:
        """Cores that each place's process used on average; where its CPU time is not told, nothing is."""
        used: dict[str, float] = {}
        for place in sorted({place for poll in self._polls for place in poll.cpu_s}):
            cpu_s, span_s = self._used(place, self._polls)
            if span_s > 0.0:
                used[place] = cpu_s / span_s
        return used

    def used_s(self, places: Iterable[str], start_s: float, end_s: float) -> float | None:
        """CPU seconds of the places' processes about between two moments; None where one does not tell."""
        within = self._within(start_s, end_s)
        total = 0.0
        for place in places:
            cpu_s, span_s = self._used(place, within)
            if span_s <= 0.0:
                return None
            total += cpu_s / span_s * (end_s - start_s)
        return total

    def load(self, places: Iterable[str], start_s: float, end_s: float) -> float | None:
        """Largest mean load of a place's host, by its own account or by the sum of the processes known on it."""
        within = self._within(start_s, end_s)
        loads = []
        for place in places:
            own = [poll.host_loads[place] for poll in within if place in poll.host_loads]
            sums = [self._sum(poll, place) for poll in within if place in poll.cpu_loads]
            if own or sums:
                loads.append(statistics.fmean(own or sums))
        return max(loads, default=None)

    def _sum(self, poll: CounterPoll, place: str) -> float:
        host = self._hosts.get(place)
        same = (
            load
            for other, load in poll.cpu_loads.items()
            if other == place or (host and self._hosts.get(other) == host)
        )
        return min(1.0, sum(same))

    def _within(self, start_s: float, end_s: float) -> Sequence[CounterPoll]:
        first, end = bisect_left(self._times, start_s - 1.0), bisect_right(self._times, end_s + 1.0)
        return self._polls[first:end]

    @staticmethod
    def _used(place: str, polls: Sequence[CounterPoll]) -> tuple[float, float]:
        told = [poll for poll in polls if place in poll.cpu_s]
        pairs = [(a, b) for a, b in itertools.pairwise(told) if b.cpu_s[place] >= a.cpu_s[place]]
        return (
            math.fsum(b.cpu_s[place] - a.cpu_s[place] for a, b in pairs),
            math.fsum(b.at_s - a.at_s for a, b in pairs),
        )


@dataclass(frozen=True, slots=True)
class Contention:
    """Stretches in which the hosts of some places were contended, and why."""

    stretches: tuple[tuple[float, float], ...] = ()
    reason: str = ""

    def overlap_s(self, batches: Sequence[CounterChange]) -> float:
        overlaps = (
            min(batch.end_s, end) - max(batch.start_s, start) for batch in batches for start, end in self.stretches
        )
        return math.fsum(overlap for overlap in overlaps if overlap > 0.0)


def find_contention(
    job: EngineJob, batches: Mapping[str, Sequence[CounterChange]], changes: Mapping[str, VertexChanges], cpu: CpuUse
) -> Contention:
    """Contention of hosts, as the job's operators show it that are busy enough to tell."""
    stretches: list[tuple[float, float]] = []
    most, full_load = 0.0, 0.0
    for vertex in job.vertices:
        costed = [batch for batch in batches[vertex.id] if batch.busy_s is not None]
        places = sorted({subtask.place for subtask in vertex.subtasks if subtask.place})
        calm_s = _calm_cost_s(costed) if (busy_share_of(changes[vertex.id].units) or 0.0) >= _TELLING_SHARE else 0.0
        for batch in batches[vertex.id]:
            load = cpu.load(places, batch.start_s, batch.end_s) or 0.0
            growth = (batch.busy_s or 0.0) / batch.events / calm_s if calm_s > 0.0 else 0.0
            used_s = cpu.used_s(places, batch.start_s, batch.end_s) if places else None
            computes = used_s is not None and used_s >= _COMPUTING * (batch.busy_s or 0.0)
            if load >= CONTENDED_LOAD:
                full_load = max(full_load, load)
            elif growth < CONTENDED_GROWTH or computes:
                continue
            most = max(most, growth)
            stretches.append((batch.start_s, batch.end_s))
    if full_load:
        return Contention(_merged(stretches), f"{percent_words(full_load)} of its cores were in use")
    return Contention(_merged(stretches), f"events took up to {most:.1f} times as long as in the calmest tenth")


def _find_starved(
    job: EngineJob, batches: Mapping[str, Sequence[CounterChange]], polls: Sequence[CounterPoll], cpu: CpuUse
) -> Contention:
    """Contention, all the time, where looks found more threads that want the CPU than their processes had of it."""
    used = cpu.cores()
    for vertex in job.vertices:
        places = {subtask.place or "" for subtask in vertex.subtasks}
        running, had = running_threads(vertex, polls), math.fsum(used.get(place, 0.0) for place in places)
        if places <= used.keys() and batches[vertex.id] and had < _COMPUTING * running:
            whole = tuple((batch.start_s, batch.end_s) for own in batches.values() for batch in own)
            return Contention(
                _merged(whole), f"{running:.1f} threads wanted the CPU, of which {had:.1f} cores were had"
            )
    return Contention()


def _merged(stretches: Iterable[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    merged: list[tuple[float, float]] = []
    for start, end in sorted(stretches):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return tuple(merged)


def _calm_cost_s(batches: Sequence[CounterChange]) -> float:
    """Cost below which the calmest tenth of the events were."""
    by_cost = sorted(((batch.busy_s or 0.0) / batch.events, batch.events) for batch in batches)
    wanted = _CALM * math.fsum(events for _, events in by_cost)
    seen = 0.0
    for cost_s, events in by_cost:
        seen += events
        if seen >= wanted:
            return cost_s
    return 0.0


MAX_BATCHES = 200
_MIN_BATCH_S = 5.0  # shorter ones have more of the counters' own error (some 30 ms of idle time) than of the cost
_SATURATED = 0.95
_MIN_SATURATED_S = 10.0


def sample_job(
    job: EngineJob,
    polls: Iterable[CounterPoll],
    *,
    places: Iterable[Place] = (),
    step_s: float | None = None,
    offsets: Mapping[str, ArrivalCounts] | None = None,
    is_alone: bool = True,
) -> JobSample:
    """Statistics of each vertex and arrivals of each source.

    `job`: as it runs now. Polls of its earlier runs count as well, where their vertices have the same ids. `polls`: in
    any order. Two make a first statistic, some forty a good one; they may be closer than the engine refreshes its
    metrics, since what has not changed is no poll. `places`: of the engine; those of one host add up to its load.
    `step_s`: width of the steps of arrivals; a second, or what polls are apart where that is less, unless given.
    `offsets`: by vertex, what came to its topics by the broker's own account, which back pressure does not hold back.
    `is_alone`: no other job runs on its places, so that their CPU time is its own.

    Returns
    -------
    JobSample
        A vertex without two polls of one attempt has a sample of no events that says so.
    """
    asked = sorted(polls, key=lambda poll: poll.at_s)
    ordered = ordered_polls(asked)
    read = {exchange.upstream for vertex in job.vertices for exchange in vertex.inputs}
    changes = {vertex.id: vertex_changes(vertex, ordered) for vertex in job.vertices}
    cpu = CpuUse(ordered, places)
    batches = {id_: _batches(change.runs) for id_, change in changes.items()}
    contention = find_contention(job, batches, changes, cpu)
    if not contention.stretches:
        contention = _find_starved(job, batches, asked, cpu)
    operators = {
        vertex.id: _ended_sample(job, vertex, changes[vertex.id])
        if vertex.has_ended
        else _sample(job, vertex, changes[vertex.id], batches[vertex.id], contention, is_read=vertex.id in read)
        for vertex in job.vertices
    }
    newest_s = next((poll.at_s for poll in ordered if poll.attempt == ordered[-1].attempt), 0.0)
    told, by_threads = tell_costs_by_threads(job, asked, changes, operators)
    operators |= told
    told, by_cpu = tell_costs_by_cpu(job, ordered, operators, is_alone=is_alone)
    operators |= told
    for vertex in job.vertices:
        own = operators[vertex.id]
        if own.cost_by == "thread_stacks":
            points = watched_points(vertex, asked, changes[vertex.id], contention.stretches)
        elif own.cost_by is None:
            points = _load_points(vertex, batches[vertex.id], contention)
        else:
            continue
        rate_now = _newest_rate(vertex, changes[vertex.id], newest_s)
        operators[vertex.id] = with_marginal_cost(own, points, rate_now=rate_now)
    busy_threads, cpu_cores = _busy_threads(job, operators), cpu.cores()
    for vertex in job.vertices:
        shares = _on_cpu(vertex, busy_threads, cpu_cores)
        operators[vertex.id] = _with_quiet_share(operators[vertex.id], batches[vertex.id], contention, shares)
    ended = {vertex.id for vertex in job.vertices if vertex.has_ended}
    read_on = {id_: counts for id_, counts in (offsets or {}).items() if id_ not in ended}
    settled = settle_contradictions(job, changes, operators, read_on, busy_threads, cpu_cores)
    arrivals, findings = source_arrivals(job, changes, operators, step_s, settled.offsets)
    flows = bound_flows(job, changes)
    span_s = _span_since(changes, 0.0)
    measured_s = _span_since(changes, newest_s)
    return JobSample(
        job=job.id,
        operators=settled.operators,
        arrivals=arrivals,
        busy_threads=busy_threads,
        cpu_cores=cpu_cores,
        span_s=span_s,
        measured_s=measured_s,
        newest_s=ordered[-1].at_s if ordered else None,
        findings=(
            *findings,
            *settled.findings,
            *describe_flows(job, flows),
            *_describe_span(job, batches, span_s, measured_s),
            *by_threads,
            *by_cpu,
            *describe_chains(job, asked, operators),
            *_load_findings(job, operators),
            *_job_findings(job, operators, changes, contention),
        ),
        flows=flows,
    )


def _span_since(changes: Mapping[str, VertexChanges], start_s: float) -> float:
    """Seconds that counters were watched for from a moment on, of the vertex that tells most."""
    units = (change.units for change in changes.values())
    return max((math.fsum(unit.span_s for unit in own if unit.start_s >= start_s) for own in units), default=0.0)


def _settled(run: Sequence[CounterChange]) -> list[CounterChange]:
    """Units with events, none with a negative busy time.

    Busy time is what is left of the clock once idle time is subtracted, and idle time is told late: a decrease corrects
    the units before it, whether they had events or not, so it is merged with them. The first unit with events corrects
    the idle time before it, which no event cost, and says nothing. Outputs without events (a window that closes) belong
    to the events before them.
    """
    first = next((i for i, unit in enumerate(run) if unit.events > 0.0), 0)
    corrected: list[CounterChange] = []
    for unit in run[first + 1 :] if 0 < first < len(run) - 1 else run:
        corrected.append(unit)
        while len(corrected) > 1 and (corrected[-1].busy_s or 0.0) < 0.0 and _adjoin(*corrected[-2:]):
            corrected[-2:] = [corrected[-2] + corrected[-1]]
    kept: list[CounterChange] = []
    for unit in corrected:
        if kept and unit.events == 0.0 and (unit.outputs > 0.0 or unit.results):
            kept[-1] = _pooled(kept[-1], unit)
        elif unit.events > 0.0:
            kept.append(unit)
    return [unit for unit in kept if unit.busy_s is None or unit.busy_s >= 0.0]


def _adjoin(unit: CounterChange, later: CounterChange) -> bool:
    return unit.end_s == later.start_s


def _batches(runs: Iterable[Sequence[CounterChange]]) -> list[CounterChange]:
    """Units pooled to batches of at least `_MIN_BATCH_S`, and `MAX_BATCHES` of them at the most."""
    settled = [_settled(run) for run in runs]
    total_s = math.fsum(unit.span_s for units in settled for unit in units)
    least_s = max(_MIN_BATCH_S, total_s / MAX_BATCHES)
    pooled: list[CounterChange] = []
    for units in settled:
        first = len(pooled)
        for unit in units:
            if len(pooled) > first and pooled[-1].span_s < least_s:
                pooled[-1] = _pooled(pooled[-1], unit)
            else:
                pooled.append(unit)
        if len(pooled) > first + 1 and pooled[-1].span_s < 0.5 * least_s:
            last = pooled.pop()
            pooled[-1] = _pooled(pooled[-1], last)
    return pooled


def _pooled(unit: CounterChange, later: CounterChange) -> CounterChange:
    """Both together; time between them, in which nothing came, counts for neither."""
    together = unit + later
    return replace(together, start_s=later.end_s - unit.span_s - later.span_s)


def _sample(
    job: EngineJob,
    vertex: Vertex,
    changes: VertexChanges,
    batches: Sequence[CounterChange],
    contention: Contention,
    *,
    is_read: bool,
) -> VertexSample:
    subject = f"{job.name}/{vertex.label}"
    costed = [batch for batch in batches if batch.busy_s is not None]
    events = math.fsum(batch.events for batch in batches)
    costed_events = math.fsum(batch.events for batch in costed)
    cost_s = math.fsum(batch.busy_s or 0.0 for batch in costed) / costed_events if costed_events > 0.0 else None
    outputs = batch_outputs(vertex, changes, batches, is_read=is_read)
    selectivity = math.fsum(outputs) / events if events > 0.0 else None
    sizes = [(b.bytes_out, b.outputs) for b in batches if b.bytes_out is not None and b.outputs > 0.0]
    written = math.fsum(outputs for _, outputs in sizes)
    dispersion = _dispersion(costed)
    findings = list(_sample_findings(subject, vertex, changes, batches, cost_s))
    units = changes.units
    told_s = math.fsum(unit.clock_s for unit in units if unit.busy_s is not None)
    return VertexSample(
        vertex=vertex.id,
        events=events,
        cost_s=cost_s,
        selectivity=selectivity,
        batches=tuple(
            Batch(batch.events, put_out, (batch.busy_s or 0.0) * 1e9)
            for batch, put_out in zip(batches, outputs, strict=True)
            if batch.busy_s is not None
        ),
        span_s=math.fsum(batch.span_s for batch in batches),
        contended_s=contention.overlap_s(costed),
        findings=tuple(findings),
        bytes_per_event=math.fsum(size for size, _ in sizes) / written if written > 0.0 else None,
        shares=changes.shares,
        cost_dispersion=dispersion.value if dispersion else None,
        cost_dispersion_events=dispersion.scale if dispersion else None,
        busy_share=busy_share_of(units),
        backpressured_share=share_of(math.fsum(unit.backpressured_s for unit in units), told_s)
        if told_s > 0.0
        else None,
    )


def _ended_sample(job: EngineJob, vertex: Vertex, changes: VertexChanges) -> VertexSample:
    """Sample of a vertex that is done for good: it takes nothing, whatever events cost it before."""
    return VertexSample(
        vertex=vertex.id,
        events=math.fsum(unit.events for unit in changes.units),
        cost_s=0.0,
        selectivity=0.0,
        batches=(),
        span_s=math.fsum(unit.span_s for unit in changes.units),
        findings=(Finding.of("found", "vertex_ended", f"{job.name}/{vertex.label}", vertex=vertex.label),),
        shares=changes.shares,
        busy_share=0.0,
        backpressured_share=0.0,
    )


def _dispersion(batches: Sequence[CounterChange]) -> ScaleDispersion | None:
    """Variation of the cost at the scale of batches and of four in a row; None with fewer than ten."""
    scales = []
    for width in (1, 4):
        groups = [batches[i : i + width] for i in range(0, len(batches) - width + 1, width)]
        events = [math.fsum(batch.events for batch in group) for group in groups]
        busy = [math.fsum(batch.busy_s or 0.0 for batch in group) for group in groups]
        scales.append(cost_dispersion([cost_sums(events, busy)], "batches"))
    return choose_scale(scales)


def _sample_findings(
    subject: str, vertex: Vertex, changes: VertexChanges, batches: Sequence[CounterChange], cost_s: float | None
) -> Iterator[Finding]:
    units = changes.units
    if not units:
        kind = "counters_missing" if changes.without_counters else "polls_missing"
        yield Finding.of("missing", "no_statistics", subject, kind, vertex=vertex.label)
        return
    if not batches:
        yield Finding.of("missing", "no_events", subject, vertex=vertex.label)
    elif cost_s is None:
        yield Finding.of("missing", "busy_time_missing", subject, vertex=vertex.label)
    elif len(batches) < MIN_CHANGES:
        yield Finding.of("warning", "few_polls", subject, vertex=vertex.label, count=len(batches))
    if changes.resets:
        yield Finding.of("found", "counters_reset", subject, vertex=vertex.label, count=changes.resets)
    full_s = math.fsum(unit.span_s for unit in units if unit.events > 0.0 and unit.busy_share >= _SATURATED)
    if full_s >= _MIN_SATURATED_S:
        yield Finding.of("found", "saturated", subject, vertex=vertex.label, full_s=full_s)


def _busy_threads(job: EngineJob, operators: Mapping[str, VertexSample]) -> dict[str, float | None]:
    """Busy threads by place; a vertex's busy time is spread over its subtasks by what they took."""
    threads: dict[str, float | None] = {}
    for vertex in job.vertices:
        told_share, shares = operators[vertex.id].busy_share, operators[vertex.id].shares
        busy = None if told_share is None else told_share * vertex.parallelism
        for subtask in vertex.subtasks:
            if subtask.place is None:
                continue
            part = shares[subtask.index] if subtask.index < len(shares) else 1.0 / vertex.parallelism
            before = threads.get(subtask.place, 0.0)
            threads[subtask.place] = None if busy is None or before is None else before + busy * part
    return threads


def _on_cpu(vertex: Vertex, busy_threads: Mapping[str, float | None], cpu_cores: Mapping[str, float]) -> float | None:
    """Part of the busy time of a vertex's places that their processes were on the CPU, at the most; None: not known."""
    places = {subtask.place for subtask in vertex.subtasks}
    threads = [busy_threads.get(place) if place else None for place in places]
    cores = [cpu_cores.get(place) if place else None for place in places]
    busy, used = math.fsum(n or 0.0 for n in threads), math.fsum(n or 0.0 for n in cores)
    return None if None in threads or None in cores or busy <= 0.0 else min(1.0, used / busy)


def _with_quiet_share(
    sample: VertexSample, batches: Sequence[CounterChange], contention: Contention, on_cpu: float | None
) -> VertexSample:
    """The sample with the least part of its cost that a quiet host leaves, where its hosts were contended.

    That is the cost of its calmest tenth where that was seen on a quiet host. Otherwise what was contended kept at
    least what the process was on the CPU for, r of the time: with c of the mean and contended for s of it,
    quiet / c = 1 / (1 - s + s / r).
    """
    if not sample.cost_s or not batches:
        return sample
    contended_s = contention.overlap_s(batches)
    span_s = math.fsum(batch.span_s for batch in batches)
    if contended_s <= 0.0 or span_s <= 0.0:
        return sample
    costed = [batch for batch in batches if batch.busy_s is not None] if sample.cost_by is None else []
    quiet = _calm_cost_s(costed) / sample.cost_s if costed else 1.0
    share = min(1.0, contended_s / span_s)
    if on_cpu and (not costed or share > 1.0 - _CALM):
        quiet = min(quiet, 1.0 / (1.0 - share + share / on_cpu))
    return replace(sample, contended_s=contended_s, quiet_share=min(1.0, max(_MIN_QUIET, quiet)))


def _load_points(vertex: Vertex, batches: Sequence[CounterChange], contention: Contention) -> list[LoadPoint]:
    """Stretches in which a vertex told its busy time while no host was contended."""
    return [
        LoadPoint(
            batch.span_s,
            batch.events / batch.span_s / vertex.parallelism,
            batch.busy_s / batch.span_s / vertex.parallelism,
            batch.span_s,
        )
        for batch in batches
        if batch.busy_s is not None and batch.span_s > 0.0 and not contention.overlap_s([batch])
    ]


def _newest_rate(vertex: Vertex, changes: VertexChanges, newest_s: float) -> float | None:
    """Events/s that each thread took in the newest attempt; None where it took none."""
    units = [unit for unit in changes.units if unit.start_s >= newest_s]
    span_s = math.fsum(unit.span_s for unit in units)
    events = math.fsum(unit.events for unit in units)
    return events / span_s / vertex.parallelism if span_s > 0.0 and events > 0.0 else None


def _load_findings(job: EngineJob, operators: Mapping[str, VertexSample]) -> Iterator[Finding]:
    """Findings on costs that fall with the load: which several loads told, and that others were seen under one."""
    falls = []
    for vertex in job.vertices:
        own = operators[vertex.id]
        if own.marginal is None or not own.cost_s:
            continue
        if own.marginal.is_measured:
            ends = {"low_s": own.cost_s * own.marginal.low, "high_s": own.cost_s * own.marginal.high}
            told = {"vertex": vertex.label, "loads": own.marginal.loads, "now_s": own.cost_s}
            yield Finding.of("found", "marginal_cost", f"{job.name}/{vertex.label}", **told, **ends)
        else:
            falls.append(1.0 - own.marginal.low)
    if falls:
        yield Finding.of("assumed", "one_load", job.name, job=job.name, count=len(falls), fall=max(falls))


def _describe_span(
    job: EngineJob, batches: Mapping[str, Sequence[CounterChange]], span_s: float, measured_s: float
) -> Iterator[Finding]:
    """Finding on the time and the loads that the statistics cover; none where nothing was measured.

    `measured_s`: of these, those of the job as it runs now.
    """
    rates = ([batch.events / batch.span_s for batch in own if batch.span_s > 0.0] for own in batches.values())
    loads = max(map(count_loads, rates), default=0)
    if not loads:
        return
    told = {"job": job.name, "span_s": span_s, "loads": loads}
    if measured_s < FULL_SPAN_S:
        yield Finding.of("missing", "still_measuring", job.name, rest_s=FULL_SPAN_S - measured_s, **told)
    else:
        yield Finding.of("found", "measured_over", job.name, **told)


def _job_findings(
    job: EngineJob,
    operators: Mapping[str, VertexSample],
    changes: Mapping[str, VertexChanges],
    contention: Contention,
) -> Iterator[Finding]:
    contended_s = max((sample.contended_s for sample in operators.values()), default=0.0)
    if contended_s > 0.0:
        least = min(sample.quiet_share for sample in operators.values())
        told = {"contended_s": contended_s, "reason": contention.reason, "least": least}
        kind = "contended_least" if least < 1.0 else ""
        yield Finding.of("warning", "contended", job.name, kind, job=job.name, **told)
    read = {exchange.upstream for vertex in job.vertices for exchange in vertex.inputs}
    counted = {id_ for id_, own in changes.items() if any(unit.results is not None for unit in own.units)}
    silent = [vertex for vertex in job.vertices if vertex.id not in read | counted]
    sinks = [vertex.label for vertex in silent if operators[vertex.id].events > 0.0]
    if sinks:
        yield Finding.of("assumed", "sink_selectivity", job.name, sinks=sinks)
    running = [vertex for vertex in job.vertices if vertex.is_source and not vertex.has_ended]
    sources = [(vertex, changes[vertex.id].units) for vertex in running]
    written = [vertex.label for vertex, units in sources if units and all(u.outputs == u.events for u in units)]
    if written:
        yield Finding.of("assumed", "source_counts_written", job.name, sources=written)
