"""Kinds of counts in a table: events of each step, rates, and running totals, told by names, units and values."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from apps.core.errors import Malformed
from engine.arrays import FloatArray
from engine.words import counted

__all__ = ["COUNT_KINDS", "CountKind", "differences", "find_count_kind", "kind_of_name", "rate_seconds"]

COUNT_KINDS: dict[str, str] = {
    "count": "events of the step that begins at the line's time",
    "rate": "events per second",
    "rate_per_minute": "events per minute",
    "rate_per_hour": "events per hour",
    "total": "running total since some time, as of a counter: its differences count",
}
_RATE_SECONDS = {"rate": 1.0, "rate_per_minute": 60.0, "rate_per_hour": 3600.0}
_PER_SECOND = re.compile(
    r"(?:/|\bper\b|\bp(?=/))\s*\(?s(?:ec(?:onds?)?)?\b|\brate\b|\bthroughput\b|\bhz\b"
    r"|\b(?:r|e|q|t|o|c|m|req|ev|msg|op)ps\b|\bops\b|\birate\b",
    re.IGNORECASE,
)
_PER_MINUTE = re.compile(r"(?:/|\bper\b)\s*\(?m(?:in(?:utes?)?)?\b|\b(?:r|e|q|t|c)pm\b", re.IGNORECASE)
_PER_HOUR = re.compile(r"(?:/|\bper\b)\s*\(?h(?:ours?|r)?\b|\b(?:r|e|q|t|c)ph\b", re.IGNORECASE)
_TOTAL = re.compile(r"\btotal\b|\bcumulat|\brunning\b|\bso far\b|\bcounter\b|\boffset\b|\bkumul", re.IGNORECASE)
_METRIC = re.compile(r'__name__="([^"]+)"')
_DIFFERENCE = re.compile(r"\bi?(?:increase|delta|diff|difference)\b", re.IGNORECASE)
_MIN_TOTALS = 4  # values from which on a rise tells something
_MIN_BARE_TOTALS = 10  # as many where the name is "total" alone, which may be that of each step
_MIN_BENDS = 20  # values from which on their scatter is known well enough


@dataclass(frozen=True)
class CountKind:
    """Kind of the numbers of a column, and what is told of it."""

    name: str
    notes: tuple[str, ...] = ()


def kind_of_name(name: str) -> str:
    """Kind of a column's numbers by its name alone."""
    metric = _METRIC.search(name)
    bare = metric[1] if metric else re.sub(r"\{.*\}", "", name)
    words = re.sub(r"[_\-.]+", " ", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", bare))
    if _DIFFERENCE.search(words):
        return "count"
    for kind, pattern in (("rate_per_minute", _PER_MINUTE), ("rate_per_hour", _PER_HOUR), ("rate", _PER_SECOND)):
        if pattern.search(words):
            return kind
    return "total" if _TOTAL.search(words) else "count"


def rate_seconds(kind: str) -> float | None:
    """Seconds that a rate is of; None for what is no rate."""
    return _RATE_SECONDS.get(kind)


def find_count_kind(name: str, per_s: float | None, values: FloatArray) -> CountKind:
    """The kind of a column's numbers, in order of time and added up where a time comes again.

    A running total never falls, apart from restarts at zero. It is taken for one where its name says so, or where it
    is smoother than any count could be though its rises differ; what only rises is told.
    """
    if per_s is not None:
        kind = next(kind for kind, seconds in _RATE_SECONDS.items() if seconds == per_s)
        return CountKind(kind, (f"By their unit the numbers are {COUNT_KINDS[kind]}, not counts.",))
    named = kind_of_name(name)
    if named in _RATE_SECONDS:
        note = f"By its name column {name!r} holds {COUNT_KINDS[named]}, not counts: each is multiplied by its step."
        return CountKind(named, (note,))
    if not _only_rises(values):
        return CountKind("count")
    if name.strip().lower() in {"total", "totals"} and len(values) < _MIN_BARE_TOTALS:
        named = "count"
    said = "Its numbers never fall" if not len(_resets(values)) else "Its numbers fall only to begin anew"
    if named == "total" or _is_smoother_than_counts(values):
        why = "its name says so" if named == "total" else "they rise more smoothly than counts do"
        note = f"Column {name!r} is read as a running total, so that its differences count. {said}, and {why}."
        return CountKind("total", (note,))
    note = f"Column {name!r} is read as counts. {said}: if it is a running total, choose that (count_kind total)."
    return CountKind("count", (note,))


def _resets(values: FloatArray) -> npt.NDArray[np.intp]:
    return np.flatnonzero(np.diff(values) < 0)


def _only_rises(values: FloatArray) -> bool:
    """Whether values rise, apart from few restarts at less than a tenth of what was reached."""
    if len(values) < _MIN_TOTALS or values[-1] == values[0] == values.max():
        return False
    falls = _resets(values)
    restarts = values[falls + 1] <= 0.1 * values[falls]
    rises = np.diff(values) > 0
    return bool(restarts.all()) and len(falls) <= 0.05 * len(values) and bool(rises.mean() >= 0.5)


def _is_smoother_than_counts(values: FloatArray) -> bool:
    """Whether values bend less than independent counts must, though their rises scatter as counts do.

    A count scatters by its root at least, so that differences of differences of counts n have a variance of 6 n or
    more; those of a running total with rises r have 2 r. What bends less than that is a curve that somebody drew.
    """
    if len(values) < _MIN_BENDS:
        return False
    bends = float(np.diff(values, 2).std())
    counts, rises = float(np.median(values)), float(np.median(np.diff(values)))
    return bends < 0.5 * (6.0 * counts) ** 0.5 and bends > 0.5 * (2.0 * max(rises, 1.0)) ** 0.5


def differences(
    times: FloatArray, totals: FloatArray, repeats: npt.NDArray[np.intp]
) -> tuple[FloatArray, FloatArray, FloatArray, list[str]]:
    """Events between neighbouring totals: their beginnings, widths and counts, and what is told.

    A total that falls began anew at zero: what it shows has come since.

    Raises
    ------
    Malformed
        Several totals at some times and fewer at others: their sum jumps where one joins.
    """
    if len(repeats) and repeats.min() != repeats.max():
        message = (
            f"some times have {int(repeats.max())} lines and others {int(repeats.min())}: sums of so many running "
            "totals jump where one is missing; allowed: a file of one series, or of all series at each time"
        )
        raise Malformed(f"count_kind: {message}.", [("count_kind", message)])
    steps = np.diff(totals)
    fell = steps < 0
    notes = []
    if fell.any():
        notes.append(f"The running total falls {counted(int(fell.sum()), 'time')}: there it began anew at zero.")
    return times[:-1], np.diff(times), np.where(fell, totals[1:], steps), notes
