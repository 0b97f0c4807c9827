"""Differences of a job's counters between polls: what each vertex did from one to the next, restarts left out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from engine.connectors.picture import CounterPoll, Vertex, VertexCounters

__all__ = [
    "MIN_CHANGES",
    "CounterChange",
    "VertexChanges",
    "busy_share_of",
    "ordered_polls",
    "share_of",
    "vertex_changes",
]

MIN_CHANGES = 3  #: of the least sample worth a statistic
_LATE_S = 15.0  # by so much may metrics be older than the answer that holds them


@dataclass(frozen=True, slots=True)
class CounterChange:
    """Differences of a vertex's counters between two moments. Times are of its threads; None: they do not tell."""

    start_s: float
    end_s: float
    events: float
    outputs: float
    busy_s: float | None
    clock_s: float
    backpressured_s: float
    bytes_out: float | None = None
    results: float | None = None  #: that sinks took

    def __add__(self, other: CounterChange) -> CounterChange:
        return CounterChange(
            self.start_s,
            other.end_s,
            self.events + other.events,
            self.outputs + other.outputs,
            None if self.busy_s is None or other.busy_s is None else self.busy_s + other.busy_s,
            self.clock_s + other.clock_s,
            self.backpressured_s + other.backpressured_s,
            None if self.bytes_out is None or other.bytes_out is None else self.bytes_out + other.bytes_out,
            None if self.results is None or other.results is None else self.results + other.results,
        )

    @property
    def span_s(self) -> float:
        return self.end_s - self.start_s

    @property
    def busy_share(self) -> float:
        return (self.busy_s or 0.0) / self.clock_s if self.clock_s > 0.0 else 0.0


@dataclass(frozen=True, slots=True)
class VertexChanges:
    """A vertex over all polls: runs of adjoining units without a reset between them, and what else was seen."""

    runs: tuple[tuple[CounterChange, ...], ...]
    shares: tuple[float, ...] = ()
    resets: int = 0
    without_counters: int = 0

    @property
    def units(self) -> list[CounterChange]:
        return [unit for run in self.runs for unit in run]


def ordered_polls(polls: Iterable[CounterPoll]) -> list[CounterPoll]:
    """Polls in order of time without those that repeat the one before: the engine had not refreshed its metrics."""
    kept: list[CounterPoll] = []
    for poll in sorted(polls, key=lambda poll: poll.at_s):
        before = kept[-1] if kept else None
        if before is None or before.attempt != poll.attempt or before.vertices != poll.vertices:
            kept.append(poll)
    return kept


def vertex_changes(vertex: Vertex, polls: Sequence[CounterPoll]) -> VertexChanges:
    """Changes of a vertex from one poll to the next, of polls in order of time."""
    reads = any((counters.records_in or 0.0) > 0.0 for _, counters in _counters_of(vertex, polls))
    counts_read = reads or not vertex.is_source
    # Before its source's own metric was asked, the counters of a whole job said 0 of what it had read.
    is_untold = reads and bool(vertex.event_metrics)
    runs: list[list[CounterChange]] = [[]]
    first: list[CounterChange] = []  # with the first events of an attempt
    shares: list[float] = []
    resets, at_s = 0, 0.0
    before: tuple[CounterPoll, VertexCounters] | None = None
    for poll, counters in _counters_of(vertex, polls):
        if is_untold and not counters.records_in:
            continue
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
    return VertexChanges(
        tuple(tuple(_begun(run, first)) for run in runs if run),
        tuple(share / total for share in shares) if total > 0.0 else (),
        resets,
        missing,
    )


def _begun(run: Sequence[CounterChange], first: Sequence[CounterChange]) -> Sequence[CounterChange]:
    """A run from its first event on, if enough follows.

    A task that starts is busy with itself, which Flink takes back when it tells idle time: in the unit of the first
    events, so that their cost would be too low.
    """
    begin = next((i for i, unit in enumerate(run) if unit in first), -1)
    return run[begin + 1 :] if len(run) - begin > MIN_CHANGES else run


def _counters_of(vertex: Vertex, polls: Sequence[CounterPoll]) -> Iterator[tuple[CounterPoll, VertexCounters]]:
    """Polls that tell the vertex's records."""
    for poll in polls:
        counters = poll.vertices.get(vertex.id)
        if counters is not None and (counters.records_in is not None or counters.records_out is not None):
            yield poll, counters


def _difference(
    vertex: Vertex, before: VertexCounters, after: VertexCounters, start_s: float, at_s: float, *, counts_read: bool
) -> CounterChange | None:
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
    return CounterChange(
        start_s=start_s,
        end_s=end_s,
        events=events,
        outputs=outputs or 0.0,
        busy_s=_minus(after.busy_s, before.busy_s) if told else None,
        clock_s=clock_s,
        backpressured_s=_minus(after.backpressured_s, before.backpressured_s) or 0.0,
        bytes_out=_grown(after.bytes_out, before.bytes_out),
        results=_grown(after.results, before.results),
    )


def _minus(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else after - before


def _grown(after: float | None, before: float | None) -> float | None:
    """Change of a counter that can only grow; None where it fell, which tells nothing of the stretch."""
    change = _minus(after, before)
    return change if change is not None and change >= 0.0 else None


def _added_shares(shares: list[float], before: Sequence[float], after: Sequence[float]) -> list[float]:
    if not after or len(before) != len(after) or (shares and len(shares) != len(after)):
        return shares
    return [share + max(0.0, b - a) for share, a, b in zip(shares or [0.0] * len(after), before, after, strict=True)]


def busy_share_of(units: Sequence[CounterChange]) -> float | None:
    """Part of the time that threads were busy, over the stretches that they tell; None without any."""
    told = [unit for unit in units if unit.busy_s is not None]
    clock_s = math.fsum(unit.clock_s for unit in told)
    return share_of(math.fsum(unit.busy_s or 0.0 for unit in told), clock_s) if clock_s > 0.0 else None


def share_of(part_s: float, clock_s: float) -> float:
    """Part of a time, 0 to 1 whatever the counters say."""
    return min(1.0, max(0.0, part_s / clock_s))
