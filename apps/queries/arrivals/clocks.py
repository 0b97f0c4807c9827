"""Local times where a zone's clocks change: hours that come twice are told apart by the order of lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

import numpy as np
import numpy.typing as npt

from apps.queries.arrivals.times import has_zone, iso_utc
from engine.arrays import FloatArray
from engine.words import counted

__all__ = ["resolve_local_times"]

_DAY_S = 86_400.0


@dataclass(frozen=True)
class _ClockChange:
    """Change of a zone's clocks at `at_s` (unix seconds), by `by_s` (below 0: set back)."""

    at_s: float
    by_s: float
    offset_s: float  # before


def resolve_local_times(
    times: FloatArray, cells: list[str], zone: tzinfo, naive_of: Callable[[str], float]
) -> tuple[FloatArray, list[str]]:
    """Times of lines, in the order of the file, with the second of two equal hours where the order tells it.

    Parameters
    ----------
    times : ndarray, shape (n,)
        Unix seconds in the order of lines; a local time that comes twice is the first of both.
    cells : list of str
        Their texts: those that name an offset stay as they are.
    naive_of : callable
        A text as seconds of its own clock.

    Returns
    -------
    tuple
        The times, and what is to be told.
    """
    notes: list[str] = []
    if len(times) < 2:
        return times, notes
    forward = (np.diff(times) >= 0).mean() >= 0.5
    order = slice(None) if forward else slice(None, None, -1)
    times, cells = times[order].copy(), cells[order]
    for change in _clock_changes(times, zone):
        if change.by_s < 0:
            notes += _tell_apart(times, cells, change, zone)
        else:
            notes += _missing_hour(times, cells, change, zone, naive_of)
    return times[order], notes


def _clock_changes(times: FloatArray, zone: tzinfo) -> list[_ClockChange]:
    """Changes of the clocks on the days of `times`, a day more at either end."""
    days = np.unique(np.floor(times / _DAY_S))
    days = np.unique(np.concatenate([days - 1, days, days + 1]))
    offsets = {day: _offset_s(zone, day * _DAY_S) for day in np.unique(np.concatenate([days, days + 1])).tolist()}
    changes = []
    for day in days.tolist():
        before, after = offsets[day], offsets[day + 1]
        if before != after:
            low, high = day * _DAY_S, (day + 1) * _DAY_S
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if _offset_s(zone, middle) == before else (low, middle)
            changes.append(_ClockChange(high, after - before, before))
    return changes


def _offset_s(zone: tzinfo, at_s: float) -> float:
    offset = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=at_s)).astimezone(zone).utcoffset()
    return offset.total_seconds() if offset is not None else 0.0


def _tell_apart(times: FloatArray, cells: list[str], change: _ClockChange, zone: tzinfo) -> list[str]:
    """Move lines of the second of two equal hours, in place.

    It begins where the local time jumps back within that hour: by half of it or more, or by anything if the file is in
    order elsewhere; and where a time comes more often than every other time does. Where the hour is there once, it is
    the one that is joined to the rest of the file.
    """
    twice_s = -change.by_s
    inside = (times >= change.at_s - twice_s) & (times < change.at_s)
    places = np.flatnonzero(inside)
    places = places[[not has_zone(cells[i]) for i in places.tolist()]] if len(places) else places
    if not len(places):
        return []
    inside = np.zeros(len(times), dtype=bool)
    inside[places] = True
    steps = np.diff(times)
    elsewhere = steps[~(inside[1:] | inside[:-1])]
    in_order = bool((elsewhere >= 0).all())
    begins = iso_utc(change.at_s - twice_s + change.offset_s)[:16].replace("T", " ")
    hour = f"The hour from {begins} comes twice in {getattr(zone, 'key', 'this zone')}"
    if not in_order and (elsewhere < 0).mean() > 0.1:
        return [f"{hour}, and the lines keep no order: {counted(len(places), 'line')} of it count as the first."]
    second = _second_pass(times, inside, twice_s, in_order)
    if not second.any() and not (times[: places[0]] < change.at_s - twice_s).any() and places[-1] + 1 < len(times):
        second = inside  # nothing comes before: what is there is joined to the hours after
    times[second] += twice_s
    if second.any():
        return [f"{hour}: by the order of lines {counted(int(second.sum()), 'line')} count as the second."]
    return [f"{hour}: the lines do not jump back, so that {counted(len(places), 'line')} of it count as the first."]


def _second_pass(
    times: FloatArray, inside: npt.NDArray[np.bool_], twice_s: float, in_order: bool
) -> npt.NDArray[np.bool_]:
    second = np.zeros(len(times), dtype=bool)
    _, repeats = np.unique(times[~inside], return_counts=True)
    usual = int(repeats[0]) if len(repeats) > 1 and (repeats == repeats[0]).all() else len(times)
    places = np.flatnonzero(inside)
    ends_s = float(times[places].max()) + 2 * twice_s
    before, is_second, run = int(places[0]), False, 0
    for place in places.tolist():
        between = times[before + 1 : place]
        if len(between) and ((between < ends_s - 4 * twice_s) | (between > ends_s)).any():
            is_second, run = False, 0  # the file left that hour and came back: another series begins
        else:
            back_s = times[before] - times[place]
            run = run + 1 if back_s == 0 else 1
            if back_s >= 0.5 * twice_s or (in_order and back_s > 0) or run > usual:
                is_second = True
        second[place] = is_second
        before = place
    return second


def _missing_hour(
    times: FloatArray, cells: list[str], change: _ClockChange, zone: tzinfo, naive_of: Callable[[str], float]
) -> list[str]:
    """Lines whose local time the clocks jump over."""
    near = np.flatnonzero((times >= change.at_s) & (times < change.at_s + change.by_s)).tolist()
    begins = change.at_s + change.offset_s
    missing = [i for i in near if not has_zone(cells[i]) and begins <= naive_of(cells[i]) < begins + change.by_s]
    if not missing:
        return []
    name = getattr(zone, "key", "the zone")
    return [
        f"{counted(len(missing), 'line')} from {cells[missing[0]].strip()} on: {name} has no such time, its clocks are "
        f"set forward there. They count {change.by_s / 60:g} min later; if the file's clock never changes, choose a "
        "zone without summer time."
    ]
