"""One operator at several places, the agents and the stream processor, as one.

CPU seconds of different machines are not the same work: they become cycles by the capacity of the place before they are
added. Records that one place handed on unprocessed are not counted there, so nothing is counted twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from engine.measurement.ratios import Sample
from engine.measurement.sums import Sums

__all__ = ["STREAM", "PlaceWindow", "samples_of", "shares_of"]

STREAM = "stream"  # the stream processor's place on the wire


@dataclass(frozen=True, slots=True)
class PlaceWindow:
    """The sums of one subinterval at one place; `measured`: CPU time was taken by operator and not apportioned."""

    place: str
    at_s: float
    sums: Sums
    measured: bool = True


def samples_of(
    windows: Iterable[PlaceWindow], capacity_cps: Mapping[str, float], *, stateful: bool = False
) -> list[Sample]:
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
    known = [one for one in windows if one.place in capacity_cps]
    own = [one for one in known if one.measured]
    taken = own if math.fsum(one.sums.events for one in own) > 0.0 else known
    chosen = {id(one) for one in taken}
    found: dict[float, list[PlaceWindow]] = {}
    for one in known:
        found.setdefault(one.at_s, []).append(one)
    return [
        _sample(at_s, parts, [one for one in parts if id(one) in chosen], capacity_cps, stateful)
        for at_s, parts in sorted(found.items())
    ]


def _events(parts: list[PlaceWindow], stateful: bool) -> float:
    events = math.fsum(one.sums.events for one in parts)
    partials = math.fsum(one.sums.outputs for one in parts if one.place != STREAM) if stateful else 0.0
    return events - partials


def _sample(
    at_s: float,
    parts: list[PlaceWindow],
    taken: list[PlaceWindow],
    capacity_cps: Mapping[str, float],
    stateful: bool,
) -> Sample:
    return Sample(
        at_s=at_s,
        events=_events(parts, stateful),
        outputs=math.fsum(one.sums.outputs for one in parts if one.place == STREAM or not stateful),
        cycles=math.fsum(one.sums.cpu_s * capacity_cps[one.place] for one in taken),
        costed=math.fsum(one.sums.events for one in taken),
    )


def shares_of(windows: Iterable[PlaceWindow]) -> dict[str, float]:
    """Share of an operator's events that each place worked on; empty where there were none.

    Examples
    --------
    >>> at = [PlaceWindow("a", 0.0, Sums(events=30.0)), PlaceWindow("stream", 0.0, Sums(events=10.0))]
    >>> shares_of(at)
    {'a': 0.75, 'stream': 0.25}
    """
    events: dict[str, list[float]] = {}
    for one in windows:
        events.setdefault(one.place, []).append(one.sums.events)
    totals = {place: math.fsum(counts) for place, counts in events.items()}
    whole = math.fsum(totals.values())
    return {place: count / whole for place, count in sorted(totals.items()) if count > 0.0} if whole > 0.0 else {}
