"""Costs of an execution by the counters of its engine, against which predictions of what never ran are held.

Source of the costs: Costream (ICDE 2024), definitions 1, 4 and 5. Latencies are in no counter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from engine.connectors.counter_changes import ordered_polls
from engine.connectors.picture import ArrivalCounts, CounterPoll, EngineJob, Vertex, VertexCounters

__all__ = ["CountedCosts", "counted_costs"]

_HELD_BACK = 0.1  # share of a source's time from which on it is held back: "low" in Flink's own words
_FULL = 0.9  # of its time at work: one that is not held back may still fall behind
_STAYS = 0.02  # of what comes to a broker; more that stays there is back-pressure, as in the fluid


@dataclass(frozen=True)
class CountedCosts:
    """Costs of a stretch of `span_s` seconds; None: not told.

    Attributes
    ----------
    throughput_eps
        Results that came to the sinks. None where the job began anew meanwhile: what came then is not counted whole.
    backpressure
        Whether more than 2 % of what came stayed at the broker, where that tells what came; or else whether a source
        was held back for a tenth of its time or more. None where none was, but one worked nearly all of the time:
        whether it keeps up, its counters do not tell.
    success
        Whether there was any result. None where there was none, but a window may not have been full yet.
    restarts
        How often the job began anew.
    rates_eps
        Events/s that came to each source, by vertex; only of those that are told, by the broker or since nothing held
        them back.
    """

    span_s: float
    throughput_eps: float | None
    backpressure: bool | None
    success: bool | None
    restarts: int = 0
    rates_eps: Mapping[str, float] = field(default_factory=dict)


def counted_costs(
    job: EngineJob, polls: Sequence[CounterPoll], arrivals: Mapping[str, ArrivalCounts] | None = None
) -> CountedCosts | None:
    """Costs between the first and the last of the polls; None where a poll is alone, or nothing came to the job.

    Parameters
    ----------
    arrivals
        Events that came to sources, by vertex. Those count that a broker tells of all that the source reads.
    """
    rounds = ordered_polls(polls)
    if len(rounds) < 2 or rounds[-1].at_s <= rounds[0].at_s:
        return None
    start_s, span_s = rounds[0].at_s, rounds[-1].at_s - rounds[0].at_s
    restarts = sum(before.attempt != after.attempt for before, after in pairwise(rounds))
    results = [_results(vertex, rounds) for vertex in job.sinks]
    known = [count for count in results if count is not None]
    count = math.fsum(known) if known and len(known) == len(results) else None
    sources = [vertex for vertex in job.vertices if vertex.is_source]
    taken = {vertex.id: _taken(vertex, rounds) for vertex in sources}
    if not any(taken.values()):
        return None
    came = {
        id_: counts.spread(start_s, span_s, 1)[0]
        for id_, counts in (arrivals or {}).items()
        if counts.origin == "offsets" and counts.is_whole and _covers(counts, start_s, start_s + span_s)
    }
    backpressure = None if restarts else _backpressure(sources, rounds, taken, came)
    rates = {id_: events / span_s for id_, events in came.items()}
    if backpressure is False:
        rates = {id_: events / span_s for id_, events in taken.items() if events is not None} | rates
    may_be_silent = span_s < max(vertex.silence_s for vertex in job.vertices)
    return CountedCosts(
        span_s,
        throughput_eps=None if count is None or restarts else count / span_s,
        backpressure=backpressure,
        success=None if count is None or (count == 0.0 and may_be_silent) else count > 0.0,
        restarts=restarts,
        rates_eps=rates,
    )


def _covers(counts: ArrivalCounts, start_s: float, end_s: float) -> bool:
    """Whether somebody counted through the whole stretch, but for a step at either end."""
    first, last = ((at_s - counts.start_s) / counts.step_s for at_s in (start_s, end_s))
    inside = counts.counts[max(math.floor(first), 0) : math.ceil(last)]
    return first >= -1.0 and last <= len(counts.counts) + 1.0 and bool(inside) and None not in inside


def _steps(vertex: Vertex, rounds: Sequence[CounterPoll]) -> Iterator[tuple[VertexCounters | None, VertexCounters]]:
    """A vertex's counters before and after each step between polls; before is None where they began anew."""
    for before, after in pairwise(rounds):
        if vertex.id in after.vertices:
            known = before.vertices.get(vertex.id) if before.attempt == after.attempt else None
            yield known, after.vertices[vertex.id]


def _grown(name: str, vertex: Vertex, rounds: Sequence[CounterPoll]) -> float | None:
    """Growth of a counter over all steps; None where one of them does not tell it."""
    total, is_told = 0.0, False
    for before, after in _steps(vertex, rounds):
        now, then = getattr(after, name), 0.0 if before is None else getattr(before, name)
        if now is None or then is None:
            return None
        total, is_told = total + max(now - then, 0.0), True
    return total if is_told else None


def _results(vertex: Vertex, rounds: Sequence[CounterPoll]) -> float | None:
    """Results that a sink took: by its own count, or else events that came to it from another thread."""
    own = _grown("results", vertex, rounds)
    return _grown("records_in", vertex, rounds) if own is None and vertex.inputs else own


def _taken(vertex: Vertex, rounds: Sequence[CounterPoll]) -> float | None:
    """Events that a source read: by its own count where it has one, or else what it handed on."""
    read = _grown("records_in", vertex, rounds)
    return read or _grown("records_out", vertex, rounds)


def _backpressure(
    sources: Sequence[Vertex],
    rounds: Sequence[CounterPoll],
    taken: Mapping[str, float | None],
    came: Mapping[str, float],
) -> bool | None:
    verdicts: list[bool | None] = []
    for vertex in sources:
        events, read = came.get(vertex.id), taken[vertex.id]
        if events and read is not None:
            verdicts.append(events - read > _STAYS * events)
        else:
            verdicts.append(_is_held_back(vertex, rounds))
    if any(verdicts):
        return True
    return None if None in verdicts or not verdicts else False


def _is_held_back(vertex: Vertex, rounds: Sequence[CounterPoll]) -> bool | None:
    """Whether a source had to wait for what follows it; None where its counters do not tell."""
    busy_s, idle_s, held_s = (_grown(name, vertex, rounds) for name in ("busy_s", "idle_s", "backpressured_s"))
    if busy_s is None or idle_s is None or held_s is None:
        return None
    clock_s = busy_s + idle_s + held_s
    if clock_s <= 0.0:
        return None
    if held_s >= _HELD_BACK * clock_s:
        return True
    return None if busy_s >= _FULL * clock_s else False
