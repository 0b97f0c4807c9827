"""Statistics of a job from many polls of its counters: costs, selectivities, arrivals, shares, and how far they hold.

Each is a difference of counters between polls of one attempt, never a gauge: Flink's own are averages of 60 s. Cost is
busy time over records read, and busy time is wall time, so a contended host makes it longer; such stretches are marked
(`CONTENDED_LOAD`, `CONTENDED_GROWTH`). docs/models/connectors.md has the rules with what they were tried on.
"""

from __future__ import annotations

import itertools
import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from engine.connectors.picture import (
    ArrivalCounts,
    CounterPoll,
    EngineJob,
    Finding,
    JobSample,
    Place,
    Vertex,
    VertexCounters,
    VertexSample,
)
from engine.document.elements import Batch
from engine.measurement.variation import ScaleDispersion, choose_scale, cost_dispersion, cost_sums
from engine.words import counted, listed, percent_words, seconds_words

__all__ = ["CONTENDED_GROWTH", "CONTENDED_LOAD", "MAX_BATCHES", "nice_step_s", "sample_job", "spread_counts"]

#: A host is contended where its processes use so much of all its cores, by the sum of what they report or by its own.
CONTENDED_LOAD = 0.8
#: So is a stretch in which an event took so many times as long as in the operator's calmest tenth, while the process
#: used less than `_COMPUTING` of a core for each busy thread: they waited, and before they had not.
CONTENDED_GROWTH = 1.5
_COMPUTING = 0.8
_TELLING_SHARE = 0.2  # of a thread: the cost of what is busy less is not known well enough within seconds
_CALM = 0.1  # of the events are the calmest tenth

MAX_BATCHES = 200
_MIN_BATCH_S = 5.0  # shorter ones have more of the counters' own error (some 30 ms of idle time) than of the cost
_MIN_CHANGES = 3  # polls of the least sample worth a statistic

_BACKPRESSURED = 0.05  # of the time, from which a source's rate is no longer taken for what came
_SATURATED = 0.95
_MIN_SATURATED_S = 10.0
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
_LATE_S = 15.0  # by so much may metrics be older than the answer that holds them
_MAX_STEPS = 100_000


@dataclass(frozen=True, slots=True)
class _Unit:
    """Differences of a vertex's counters between two moments. Times are of its threads; None: they do not tell."""

    start_s: float
    end_s: float
    events: float
    outputs: float
    busy_s: float | None
    clock_s: float
    backpressured_s: float
    bytes_out: float | None = None

    def __add__(self, other: _Unit) -> _Unit:
        return _Unit(
            self.start_s,
            other.end_s,
            self.events + other.events,
            self.outputs + other.outputs,
            None if self.busy_s is None or other.busy_s is None else self.busy_s + other.busy_s,
            self.clock_s + other.clock_s,
            self.backpressured_s + other.backpressured_s,
            None if self.bytes_out is None or other.bytes_out is None else self.bytes_out + other.bytes_out,
        )

    @property
    def span_s(self) -> float:
        return self.end_s - self.start_s

    @property
    def busy_share(self) -> float:
        return (self.busy_s or 0.0) / self.clock_s if self.clock_s > 0.0 else 0.0


@dataclass(frozen=True, slots=True)
class _Changes:
    """A vertex over all polls: runs of adjoining units without a reset between them, and what else was seen."""

    runs: tuple[tuple[_Unit, ...], ...]
    shares: tuple[float, ...] = ()
    resets: int = 0
    without_counters: int = 0

    @property
    def units(self) -> list[_Unit]:
        return [unit for run in self.runs for unit in run]


def sample_job(
    job: EngineJob,
    polls: Iterable[CounterPoll],
    *,
    places: Iterable[Place] = (),
    step_s: float | None = None,
    offsets: Mapping[str, ArrivalCounts] | None = None,
) -> JobSample:
    """Statistics of each vertex and arrivals of each source.

    Parameters
    ----------
    job : EngineJob
        As it runs now. Polls of its earlier runs count as well, where their vertices have the same ids.
    polls : iterable of CounterPoll
        In any order. Two make a first statistic, some forty a good one; they may be closer than the engine refreshes
        its metrics, since what has not changed is no poll.
    places : iterable of Place
        Of the engine; those of one host add up to its load.
    step_s : float, optional
        Width of the steps of arrivals; a second, or what polls are apart where that is less, unless given.
    offsets : mapping of str to ArrivalCounts, optional
        By vertex, what came to its topics by the broker's own account, which back pressure does not hold back.

    Returns
    -------
    JobSample
        A vertex without two polls of one attempt has a sample of no events that says so.
    """
    ordered = _ordered(polls)
    read = {exchange.upstream for vertex in job.vertices for exchange in vertex.inputs}
    changes = {vertex.id: _changes(vertex, ordered) for vertex in job.vertices}
    cpu = _Cpu(ordered, places)
    batches = {id_: _batches(change.runs) for id_, change in changes.items()}
    contention = _contention(job, batches, changes, cpu)
    operators = {
        vertex.id: _sample(job, vertex, changes[vertex.id], batches[vertex.id], contention, is_read=vertex.id in read)
        for vertex in job.vertices
    }
    arrivals, findings = _arrivals(job, changes, operators, step_s, offsets or {})
    return JobSample(
        job=job.id,
        operators=operators,
        arrivals=arrivals,
        busy_threads=_busy_threads(job, changes),
        cpu_cores=cpu.cores(),
        span_s=max((sum(unit.span_s for unit in change.units) for change in changes.values()), default=0.0),
        newest_s=ordered[-1].at_s if ordered else None,
        findings=(*findings, *_job_findings(job, operators, changes, contention)),
    )


def _ordered(polls: Iterable[CounterPoll]) -> list[CounterPoll]:
    """Polls in order of time without those that repeat the one before: the engine had not refreshed its metrics."""
    kept: list[CounterPoll] = []
    for poll in sorted(polls, key=lambda poll: poll.at_s):
        before = kept[-1] if kept else None
        if before is None or before.attempt != poll.attempt or before.vertices != poll.vertices:
            kept.append(poll)
    return kept


def _changes(vertex: Vertex, polls: Sequence[CounterPoll]) -> _Changes:
    reads = any((counters.records_in or 0.0) > 0.0 for _, counters in _counters_of(vertex, polls))
    counts_read = reads or not vertex.is_source
    runs: list[list[_Unit]] = [[]]
    first: list[_Unit] = []  # with the first events of an attempt
    shares: list[float] = []
    resets, at_s = 0, 0.0
    before: tuple[CounterPoll, VertexCounters] | None = None
    for poll, counters in _counters_of(vertex, polls):
        if before is None or before[0].attempt != poll.attempt:
            resets += before is not None
            before, at_s = (poll, counters), poll.at_s
            runs.append([])
            continue
        unit = _difference(vertex, before[1], counters, at_s, poll.at_s, counts_read=counts_read)
        if unit is None:  # nothing has moved yet, or half of it
            continue
        if unit.events < 0.0 or unit.outputs < 0.0 or unit.clock_s < 0.0:
            resets += 1
            runs.append([])
        else:
            runs[-1].append(unit)
            if not before[1].records_in and before[1].busy_s and unit.events > 0.0 and not vertex.is_source:
                first.append(unit)
            shares = _added_shares(shares, before[1].records_in_by_subtask, counters.records_in_by_subtask)
        before, at_s = (poll, counters), unit.end_s
    missing = sum(vertex.id not in poll.vertices for poll in polls)
    total = math.fsum(shares)
    return _Changes(
        tuple(tuple(_begun(run, first)) for run in runs if run),
        tuple(share / total for share in shares) if total > 0.0 else (),
        resets,
        missing,
    )


def _begun(run: Sequence[_Unit], first: Sequence[_Unit]) -> Sequence[_Unit]:
    """A run from its first event on, if enough follows.

    A task that starts is busy with itself, which Flink takes back when it tells idle time: in the unit of the first
    events, so that their cost would be too low.
    """
    begin = next((i for i, unit in enumerate(run) if unit in first), -1)
    return run[begin + 1 :] if len(run) - begin > _MIN_CHANGES else run


def _counters_of(vertex: Vertex, polls: Sequence[CounterPoll]) -> Iterator[tuple[CounterPoll, VertexCounters]]:
    """Polls that tell the vertex's records."""
    for poll in polls:
        counters = poll.vertices.get(vertex.id)
        if counters is not None and (counters.records_in is not None or counters.records_out is not None):
            yield poll, counters


def _difference(
    vertex: Vertex, before: VertexCounters, after: VertexCounters, start_s: float, at_s: float, *, counts_read: bool
) -> _Unit | None:
    """Change between two polls; None where the threads' clock stands still though it is known."""
    events = (
        _minus(after.records_in, before.records_in) if counts_read else _minus(after.records_out, before.records_out)
    )
    outputs = _minus(after.records_out, before.records_out)
    if events is None:
        return None
    told = after.clock_s is not None and before.clock_s is not None
    clock_s = after.clock_s - before.clock_s if told else (at_s - start_s) * vertex.parallelism  # type: ignore[operator]
    if clock_s == 0.0:
        return None
    lived_s = clock_s / vertex.parallelism
    end_s = min(max(start_s + lived_s, at_s - _LATE_S, start_s), at_s + 1.0) if told and lived_s > 0.0 else at_s
    return _Unit(
        start_s=start_s,
        end_s=end_s,
        events=events,
        outputs=outputs or 0.0,
        busy_s=_minus(after.busy_s, before.busy_s) if told else None,
        clock_s=clock_s,
        backpressured_s=_minus(after.backpressured_s, before.backpressured_s) or 0.0,
        bytes_out=_minus(after.bytes_out, before.bytes_out),
    )


def _minus(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else after - before


def _added_shares(shares: list[float], before: Sequence[float], after: Sequence[float]) -> list[float]:
    if not after or len(before) != len(after) or (shares and len(shares) != len(after)):
        return shares
    return [share + max(0.0, b - a) for share, a, b in zip(shares or [0.0] * len(after), before, after, strict=True)]


class _Cpu:
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


def _settled(run: Sequence[_Unit]) -> list[_Unit]:
    """Units with events, none with a negative busy time.

    Busy time is what is left of the clock once idle time is subtracted, and idle time is told late: a decrease corrects
    the units before it, so it is merged with them. The first unit with events corrects the idle time before it, which
    no event cost, and says nothing. Outputs without events (a window that closes) belong to the events before them.
    """
    first = next((i for i, unit in enumerate(run) if unit.events > 0.0), 0)
    kept: list[_Unit] = []
    for unit in run[first + 1 :] if 0 < first < len(run) - 1 else run:
        adjoins = bool(kept) and kept[-1].end_s == unit.start_s
        if adjoins and (unit.events == 0.0 and unit.outputs > 0.0):
            kept[-1] += unit
        elif unit.events > 0.0 and (unit.busy_s is None or unit.busy_s >= 0.0):
            kept.append(unit)
        elif unit.busy_s is not None and unit.busy_s < 0.0 and adjoins:
            kept[-1] += unit
        while len(kept) > 1 and (kept[-1].busy_s or 0.0) < 0.0 and kept[-2].end_s == kept[-1].start_s:
            last = kept.pop()
            kept[-1] += last
    return [unit for unit in kept if unit.busy_s is None or unit.busy_s >= 0.0]


def _batches(runs: Iterable[Sequence[_Unit]]) -> list[_Unit]:
    """Units pooled to batches of at least `_MIN_BATCH_S`, and `MAX_BATCHES` of them at the most."""
    settled = [_settled(run) for run in runs]
    total_s = math.fsum(unit.span_s for units in settled for unit in units)
    least_s = max(_MIN_BATCH_S, total_s / MAX_BATCHES)
    pooled: list[_Unit] = []
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


def _pooled(unit: _Unit, later: _Unit) -> _Unit:
    """Both together; time between them, in which nothing came, counts for neither."""
    together = unit + later
    return replace(together, start_s=later.end_s - unit.span_s - later.span_s)


def _sample(
    job: EngineJob,
    vertex: Vertex,
    changes: _Changes,
    batches: Sequence[_Unit],
    contention: _Contention,
    *,
    is_read: bool,
) -> VertexSample:
    subject = f"{job.name}/{vertex.label}"
    costed = [batch for batch in batches if batch.busy_s is not None]
    events = math.fsum(batch.events for batch in batches)
    costed_events = math.fsum(batch.events for batch in costed)
    cost_s = math.fsum(batch.busy_s or 0.0 for batch in costed) / costed_events if costed_events > 0.0 else None
    outputs = [batch.outputs if is_read else batch.events for batch in batches]
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
            Batch(batch.events, batch.outputs if is_read else batch.events, (batch.busy_s or 0.0) * 1e9)
            for batch in costed
        ),
        span_s=math.fsum(batch.span_s for batch in batches),
        contended_s=contention.overlap_s(costed),
        findings=tuple(findings),
        bytes_per_event=math.fsum(size for size, _ in sizes) / written if written > 0.0 else None,
        shares=changes.shares,
        cost_dispersion=dispersion.value if dispersion else None,
        cost_dispersion_events=dispersion.scale if dispersion else None,
        busy_share=_told_share(units),
        backpressured_share=_share(math.fsum(unit.backpressured_s for unit in units), told_s) if told_s > 0.0 else None,
    )


def _share(part_s: float, clock_s: float) -> float:
    return min(1.0, max(0.0, part_s / clock_s))


def _dispersion(batches: Sequence[_Unit]) -> ScaleDispersion | None:
    """Variation of the cost at the scale of batches and of four in a row; None with fewer than ten."""
    scales = []
    for width in (1, 4):
        groups = [batches[i : i + width] for i in range(0, len(batches) - width + 1, width)]
        events = [math.fsum(batch.events for batch in group) for group in groups]
        busy = [math.fsum(batch.busy_s or 0.0 for batch in group) for group in groups]
        scales.append(cost_dispersion([cost_sums(events, busy)], "batches"))
    return choose_scale(scales)


@dataclass(frozen=True, slots=True)
class _Contention:
    """Stretches in which the hosts of some places were contended, and why."""

    stretches: tuple[tuple[float, float], ...] = ()
    reason: str = ""

    def overlap_s(self, batches: Sequence[_Unit]) -> float:
        overlaps = (
            min(batch.end_s, end) - max(batch.start_s, start) for batch in batches for start, end in self.stretches
        )
        return math.fsum(overlap for overlap in overlaps if overlap > 0.0)


def _contention(
    job: EngineJob, batches: Mapping[str, Sequence[_Unit]], changes: Mapping[str, _Changes], cpu: _Cpu
) -> _Contention:
    """Contention of hosts, as the job's operators show it that are busy enough to tell."""
    stretches: list[tuple[float, float]] = []
    most, full_load = 0.0, 0.0
    for vertex in job.vertices:
        costed = [batch for batch in batches[vertex.id] if batch.busy_s is not None]
        places = sorted({subtask.place for subtask in vertex.subtasks if subtask.place})
        calm_s = _calm_cost_s(costed) if (_told_share(changes[vertex.id].units) or 0.0) >= _TELLING_SHARE else 0.0
        for batch in costed:
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
        return _Contention(_merged(stretches), f"{percent_words(full_load)} of its cores were in use")
    return _Contention(_merged(stretches), f"events took up to {most:.1f} times as long as in the calmest tenth")


def _merged(stretches: Iterable[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    merged: list[tuple[float, float]] = []
    for start, end in sorted(stretches):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return tuple(merged)


def _told_share(units: Sequence[_Unit]) -> float | None:
    """Part of the time that threads were busy, over the stretches that they tell; None without any."""
    told = [unit for unit in units if unit.busy_s is not None]
    clock_s = math.fsum(unit.clock_s for unit in told)
    return _share(math.fsum(unit.busy_s or 0.0 for unit in told), clock_s) if clock_s > 0.0 else None


def _calm_cost_s(batches: Sequence[_Unit]) -> float:
    """Cost below which the calmest tenth of the events were."""
    by_cost = sorted(((batch.busy_s or 0.0) / batch.events, batch.events) for batch in batches)
    wanted = _CALM * math.fsum(events for _, events in by_cost)
    seen = 0.0
    for cost_s, events in by_cost:
        seen += events
        if seen >= wanted:
            return cost_s
    return 0.0


def _sample_findings(
    subject: str, vertex: Vertex, changes: _Changes, batches: Sequence[_Unit], cost_s: float | None
) -> Iterator[Finding]:
    units = changes.units
    if not units:
        words = "its counters were not told" if changes.without_counters else "no two polls of one attempt tell more"
        yield Finding("missing", "no_statistics", subject, f"{vertex.label} has no statistics yet: {words}.")
        return
    if not batches:
        yield Finding("missing", "no_events", subject, f"No event came to {vertex.label} while its counters were read.")
    elif cost_s is None:
        message = f"Flink does not tell the busy time of {vertex.label}, nor of what is chained to it: a legacy source."
        yield Finding("missing", "busy_time_missing", subject, message)
    elif len(batches) < _MIN_CHANGES:
        message = f"The statistics of {vertex.label} rest on {counted(len(batches), 'stretch', 'stretches')} so far."
        yield Finding("warning", "few_polls", subject, message)
    if changes.resets:
        message = (
            f"Counters of {vertex.label} began anew {counted(changes.resets, 'time')}; none was counted across that."
        )
        yield Finding("found", "counters_reset", subject, message)
    full_s = math.fsum(unit.span_s for unit in units if unit.events > 0.0 and unit.busy_share >= _SATURATED)
    if full_s >= _MIN_SATURATED_S:
        message = f"{vertex.label} was busy all the time for {seconds_words(full_s)[0]}: more came than it could do."
        yield Finding("found", "saturated", subject, message)


def _busy_threads(job: EngineJob, changes: Mapping[str, _Changes]) -> dict[str, float | None]:
    """Busy threads by place; a vertex's busy time is spread over its subtasks by what they took."""
    threads: dict[str, float | None] = {}
    for vertex in job.vertices:
        units = changes[vertex.id].units
        told_share = _told_share(units)
        busy = None if told_share is None else told_share * vertex.parallelism
        shares = changes[vertex.id].shares
        for subtask in vertex.subtasks:
            if subtask.place is None:
                continue
            part = shares[subtask.index] if subtask.index < len(shares) else 1.0 / vertex.parallelism
            before = threads.get(subtask.place, 0.0)
            threads[subtask.place] = None if busy is None or before is None else before + busy * part
    return threads


def _arrivals(
    job: EngineJob,
    changes: Mapping[str, _Changes],
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
        stretches = [(u.start_s, u.end_s, u.events) for u in changes[vertex.id].units if u.span_s > 0.0]
        reads = any(unit.outputs != unit.events for unit in changes[vertex.id].units)
        counts = spread_counts(vertex.id, stretches, "read" if reads else "written", step_s=step_s)
        if counts is None:
            findings.append(
                Finding("missing", "arrivals_missing", subject, f"No arrivals of {vertex.label} are known.")
            )
            continue
        arrivals[vertex.id] = counts
        if counts.known_step_s > _COARSE_S:
            message = (
                f"Arrivals of {vertex.label} are known by {counts.known_step_s:g} s: of a burst shorter than that only "
                "the mean is seen, so intervals are wide. Shorter intervals between polls, or offsets, tell more."
            )
            findings.append(Finding("found", "arrivals_coarse", subject, message))
        held = operators[vertex.id].backpressured_share
        if held is not None and held >= _BACKPRESSURED:
            message = (
                f"{vertex.label} was held back by its readers for {percent_words(held)} of the time: its rate is "
                "what the job could take, not what came. Offsets of the broker tell that."
            )
            findings.append(Finding("warning", "source_backpressured", subject, message))
    return arrivals, findings


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


def _job_findings(
    job: EngineJob,
    operators: Mapping[str, VertexSample],
    changes: Mapping[str, _Changes],
    contention: _Contention,
) -> Iterator[Finding]:
    contended_s = max((sample.contended_s for sample in operators.values()), default=0.0)
    if contended_s > 0.0:
        message = (
            f"{seconds_words(contended_s)[0]} of the statistics of {job.name} are of a contended host: "
            f"{contention.reason}. Busy time is wall time, so costs are those of a host as contended as that."
        )
        yield Finding("warning", "contended", job.name, message)
    read = {exchange.upstream for vertex in job.vertices for exchange in vertex.inputs}
    sinks = [vertex.label for vertex in job.vertices if vertex.id not in read and operators[vertex.id].events > 0.0]
    if sinks:
        verb = "puts" if len(sinks) == 1 else "put"
        message = f"Flink does not count what {listed(sinks)} {verb} out; one result per event is assumed."
        yield Finding("assumed", "sink_selectivity", job.name, message)
    sources = [(vertex, changes[vertex.id].units) for vertex in job.vertices if vertex.is_source]
    written = [vertex.label for vertex, units in sources if units and all(u.outputs == u.events for u in units)]
    if written:
        verb = "counts" if len(written) == 1 else "count"
        message = f"{listed(written)} {verb} only what leaves: filters chained to a source are not seen."
        yield Finding("assumed", "source_counts_written", job.name, message)
