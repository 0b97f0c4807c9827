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
    a place took the operator's own time, its cost per event stands for the events of all places; a subinterval without
    such a place is extrapolated from the mean of the others. Only where no place took it, apportioned time counts.
    """
    known = [one for one in windows if one.place in capacity_cps]
    own = [one for one in known if one.measured]
    taken = own if math.fsum(one.sums.events for one in own) > 0.0 else known
    events = math.fsum(one.sums.events for one in taken)
    usual = math.fsum(_cycles(one, capacity_cps) for one in taken) / events if events > 0.0 else 0.0
    found: dict[float, list[PlaceWindow]] = {}
    for one in known:
        found.setdefault(one.at_s, []).append(one)
    chosen = {id(one) for one in taken}
    samples = []
    for at_s, parts in sorted(found.items()):
        costed = [one for one in parts if id(one) in chosen]
        samples.append(_sample(at_s, parts, costed, capacity_cps, usual, stateful))
    return samples


def _cycles(one: PlaceWindow, capacity_cps: Mapping[str, float]) -> float:
    return one.sums.cpu_s * capacity_cps[one.place]


def _events(parts: list[PlaceWindow], stateful: bool) -> float:
    near = math.fsum(one.sums.events for one in parts if one.place != STREAM)
    far = math.fsum(one.sums.events for one in parts if one.place == STREAM)
    partials = math.fsum(one.sums.outputs for one in parts if one.place != STREAM) if stateful else 0.0
    return near + max(0.0, far - partials)


def _sample(
    at_s: float,
    parts: list[PlaceWindow],
    costed: list[PlaceWindow],
    capacity_cps: Mapping[str, float],
    usual: float,
    stateful: bool,
) -> Sample:
    events = _events(parts, stateful)
    known = math.fsum(one.sums.events for one in costed)
    cost = math.fsum(_cycles(one, capacity_cps) for one in costed) / known if known > 0.0 else usual
    outputs = math.fsum(one.sums.outputs for one in parts if one.place == STREAM or not stateful)
    return Sample(at_s=at_s, events=events, outputs=outputs, cycles=cost * events)


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
