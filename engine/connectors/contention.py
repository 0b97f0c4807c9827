"""CPU of places and their hosts, and the stretches in which a host was contended: there wall time is more than work."""

from __future__ import annotations

import itertools
import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.connectors.counter_changes import CounterChange, VertexChanges, busy_share_of
from engine.connectors.picture import CounterPoll, EngineJob, Place
from engine.words import percent_words

__all__ = ["CONTENDED_GROWTH", "CONTENDED_LOAD", "Contention", "CpuUse", "find_contention"]

#: A host is contended where its processes use so much of all its cores, by the sum of what they report or by its own.
CONTENDED_LOAD = 0.8
#: So is a stretch in which an event took so many times as long as in the operator's calmest tenth, while the process
#: used less than `_COMPUTING` of a core for each busy thread: they waited, and before they had not.
CONTENDED_GROWTH = 1.5
_COMPUTING = 0.8
_TELLING_SHARE = 0.2  # of a thread: the cost of what is busy less is not known well enough within seconds
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
        return Contention(_merged(stretches), f"{percent_words(full_load)} of its cores were in use")
    return Contention(_merged(stretches), f"events took up to {most:.1f} times as long as in the calmest tenth")


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
