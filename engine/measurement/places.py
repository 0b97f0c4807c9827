"""Samples of one operator at several places, the agents and the stream processor, gathered as one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.measurement.statistics import OperatorSample

__all__ = [
    "MAX_SLIDES",
    "STREAM",
    "PlaceWindow",
    "block_s",
    "expected_shares",
    "gather_blocks",
    "merge_places",
    "place_shares",
]


MAX_SLIDES = 10  # in a block; subintervals that fit no better are counted where they begin
_US = 1_000_000

STREAM = "stream"  # the stream processor's place on the wire


def block_s(slide_s: float, width_s: float) -> float:
    """The shortest time that is a whole number of slides and of subintervals.

    Where that is longer than ten of the longer of the two, it is so many whole slides as these ten take.

    Examples
    --------
    >>> block_s(10.0, 4.0), block_s(10.0, 10.0), block_s(5.0, 60.0), block_s(10.0, 0.7)
    (20.0, 10.0, 60.0, 70.0)
    """
    slide, width = round(slide_s * _US), round(width_s * _US)
    exact = math.lcm(slide, width)
    max_block = MAX_SLIDES * max(slide, width)
    return (exact if exact <= max_block else math.ceil(max_block / slide) * slide) / _US


def gather_blocks(
    samples: Sequence[OperatorSample], *, width_s: float, block: float, without: Sequence[tuple[float, float]] = ()
) -> list[OperatorSample]:
    """Sums of the whole blocks that some subintervals cover, in order of time.

    Parameters
    ----------
    samples : sequence of Sample
        One for each subinterval, in order of time.
    width_s, block : float
        Widths of a subinterval and of a block (`block_s`); blocks are counted from 1970, as windows are.
    without : sequence of (float, float)
        Periods of time whose blocks are left out: what was put out then is of other events.

    Notes
    -----
    Before the first whole block all that is known is one sample, of which no error can be told.
    """
    if not samples:
        return []
    first_s, last_s = samples[0].at_s, samples[-1].at_s + width_s
    blocks: dict[int, list[OperatorSample]] = {}
    for sample in samples:
        blocks.setdefault(math.floor(sample.at_s / block), []).append(sample)
    whole = [
        _sum(k * block, parts)
        for k, parts in sorted(blocks.items())
        if first_s <= k * block and (k + 1) * block <= last_s and not _overlaps(k * block, (k + 1) * block, without)
    ]
    return whole or [_sum(first_s, samples)]


def _overlaps(begin: float, end: float, periods: Sequence[tuple[float, float]]) -> bool:
    return any(since < end and until > begin for since, until in periods)


def _sum(at_s: float, parts: Sequence[OperatorSample]) -> OperatorSample:
    names = ("events", "outputs", "cycles", "under_cycles")
    return OperatorSample(at_s, *(math.fsum(getattr(part, name) for part in parts) for name in names))


@dataclass(frozen=True, slots=True)
class PlaceWindow:
    """Sums of one subinterval at one place; `measured`: CPU time was taken by operator and not apportioned.

    `run_records` and `run_cpu_s` are of the operator's runs that were taken one by one.
    """

    place: str
    at_s: float
    records_processed: float = 0.0
    records_out: float = 0.0
    cpu_ns: float = 0.0
    run_records: float = 0.0
    run_cpu_s: float = 0.0
    measured: bool = True


def merge_places(
    windows: Iterable[PlaceWindow], capacity_cps: Mapping[str, float], *, stateful: bool = False
) -> list[OperatorSample]:
    """One sample for each subinterval, all places together, in order of time.

    Parameters
    ----------
    capacity_cps : mapping
        Cycles per second of one core by place. Windows of a place without one are left out: its seconds are no cycles.
    stateful : bool
        Of an operator that aggregates, only the stream processor's output counts, and what agents put out is taken off
        the stream processor's events: these are partial aggregates that it merges, of records counted already.

    Notes
    -----
    Time that was apportioned holds the engine's fixed expense of a batch, which does not grow with the events. So where
    a place took the operator's own time, cycles are of its events alone (`costed`), and the ratio of the two stands for
    the events of all places; a subinterval without such a place has none. Only where no place took it, apportioned time
    counts. Load factors move: a subinterval in which agents worked on little says little of costs, and counts little.

    Partial aggregates may leave an agent in one subinterval and be merged in the next: events of the first are too few
    then and those of the second too many, and only over whole windows right.
    """
    known = [window for window in windows if window.place in capacity_cps]
    own = [window for window in known if window.measured]
    taken = own if math.fsum(window.records_processed for window in own) > 0.0 else known
    chosen = {id(window) for window in taken}
    by_time: dict[float, list[PlaceWindow]] = {}
    for window in known:
        by_time.setdefault(window.at_s, []).append(window)
    return [
        _sample(at_s, parts, [part for part in parts if id(part) in chosen], capacity_cps, stateful)
        for at_s, parts in sorted(by_time.items())
    ]


def _events(parts: list[PlaceWindow], stateful: bool) -> float:
    events = math.fsum(part.records_processed for part in parts)
    partials = math.fsum(part.records_out for part in parts if part.place != STREAM) if stateful else 0.0
    return events - partials


def _sample(
    at_s: float,
    parts: list[PlaceWindow],
    taken: list[PlaceWindow],
    capacity_cps: Mapping[str, float],
    stateful: bool,
) -> OperatorSample:
    return OperatorSample(
        at_s=at_s,
        events=_events(parts, stateful),
        outputs=math.fsum(part.records_out for part in parts if part.place == STREAM or not stateful),
        cycles=math.fsum(window.cpu_ns / 1e9 * capacity_cps[window.place] for window in taken),
        costed=math.fsum(window.records_processed for window in taken),
    )


def place_shares(windows: Iterable[PlaceWindow]) -> dict[str, float]:
    """Share of an operator's events that each place worked on; empty where there were none.

    Examples
    --------
    >>> at = [PlaceWindow("a", 0.0, records_processed=30.0), PlaceWindow("stream", 0.0, records_processed=10.0)]
    >>> place_shares(at)
    {'a': 0.75, 'stream': 0.25}
    """
    events: dict[str, list[float]] = {}
    for window in windows:
        events.setdefault(window.place, []).append(window.records_processed)
    totals = {place: math.fsum(counts) for place, counts in events.items()}
    whole = math.fsum(totals.values())
    return {place: count / whole for place, count in sorted(totals.items()) if count > 0.0} if whole > 0.0 else {}


def expected_shares(load_factors: Mapping[str, Sequence[float]], operators: int) -> list[dict[str, float]]:
    """Share of each operator's events by place; agents are taken to collect alike.

    A record that is drained before an operator passes no later one at its source: the share that reaches operator j
    there is the product of the load factors up to j. The rest is the stream processor's.

    Parameters
    ----------
    load_factors : mapping
        By agent, for each operator that may run at a source, the share of records it takes.
    operators : int
        Of the whole pipeline.

    Examples
    --------
    >>> expected_shares({"a": [1.0, 0.5], "b": [1.0, 0.0]}, 3)
    [{'a': 0.5, 'b': 0.5, 'stream': 0.0}, {'a': 0.25, 'b': 0.0, 'stream': 0.75}, {'a': 0.0, 'b': 0.0, 'stream': 1.0}]
    """
    shares = []
    for j in range(operators):
        near = {
            agent: math.prod(factors[: j + 1]) / len(load_factors) if j < len(factors) else 0.0
            for agent, factors in load_factors.items()
        }
        shares.append({**near, STREAM: 1.0 - math.fsum(near.values())})
    return shares
