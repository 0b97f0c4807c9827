"""Numbers in tables: how people and programs write them, and what they count, by whole columns, names and units."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from apps.core.errors import Malformed
from apps.core.limits import MAX_EVENTS_PER_COUNT
from engine.arrays import FloatArray
from engine.words import counted

__all__ = [
    "COUNT_KINDS",
    "DECIMAL_MARKS",
    "CountKind",
    "NumberStyle",
    "differences",
    "find_count_kind",
    "find_number_style",
    "is_number",
    "kind_of_name",
    "rate_seconds",
]

DECIMAL_MARKS = {"point": "Decimal point: 1,234.5", "comma": "Decimal comma: 1.234,5"}

_MAX_WRITTEN = 64  # characters of a number with its unit; more are none, and are not compared with patterns
_MAGNITUDES = {
    "": 1.0,
    "k": 1e3,
    "m": 1e6,
    "mil": 1e6,
    "mio": 1e6,
    "g": 1e9,
    "b": 1e9,
    "bil": 1e9,
    "mrd": 1e9,
    "t": 1e12,
}
_SPACES = " '’\u00a0\u2009\u202f"
_CELL = re.compile(
    rf"(?P<sign>[+-]?)(?P<digits>\d[\d.,{_SPACES}]*\d|\d|\.\d+)(?P<power>[eE][+-]?\d+)?"
    rf"[\s\u00a0\u202f]*(?P<scale>(?:[kK]|M|G|B|T|Mil|Mio|Bil|Mrd)(?![a-zA-Z]))?\.?"
    rf"(?P<unit>(?:[\s\u00a0\u202f]+|(?<=[kKMGBT\d])(?=[a-zA-Z/%°€$]))[a-zA-Z/%°€$][\w/ .%]*)?\Z"
)
_PLAIN = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*\Z", re.ASCII)
_GROUPED = re.compile(r"\d{1,3}(?:([.,])\d{3})+\Z")
_PER = {
    "s": 1.0, "sec": 1.0, "second": 1.0, "min": 60.0, "m": 60.0, "minute": 60.0,
    "h": 3600.0, "hr": 3600.0, "hour": 3600.0,
}  # fmt: skip
_RATE = re.compile(r"(?:/\s*|\bper\s+)(s|sec|second|min|m|minute|h|hr|hour)s?\Z", re.IGNORECASE)
_SHORT_RATES = {
    "rps": 1.0,
    "eps": 1.0,
    "qps": 1.0,
    "tps": 1.0,
    "ops": 1.0,
    "cps": 1.0,
    "hz": 1.0,
    "reqps": 1.0,
    "rpm": 60.0,
}
_NO_COUNTS = re.compile(
    r"%|°|[€$]|(?:[kmgt]i?)?(?:b|bytes?|bits?|bps)(?:/s)?|[kmgt]ib|(?:ns|us|µs|ms|s|secs?|seconds?|min|minutes?|h|hours?|days?)",
    re.IGNORECASE,
)
_SCALED_UNITS = re.compile(r"[kKMGT](?:req|op|ev|msg|hit|quer|rec|row|call)", re.ASCII)  # 1.2 kreq/s


@dataclass(frozen=True)
class NumberStyle:
    """Spelling of the numbers of a column.

    `decimal` is the mark before fractions, "" where a column has no mark at all; `per_s` the seconds that a unit such
    as `/min` divides by, None without one; `is_ambiguous` if 1,234 may be a thousand or one and a bit.
    """

    decimal: str = "."
    groups: str = ""
    has_scale: bool = False
    unit: str = ""
    per_s: float | None = None
    is_ambiguous: bool = False

    @property
    def is_plain(self) -> bool:
        return not (self.groups or self.has_scale or self.unit) and self.decimal == "."

    def count_of(self, cell: str) -> float:
        """A cell as a number of events, 0 to `MAX_EVENTS_PER_COUNT`; ValueError for anything else."""
        value = float(cell) if self.is_plain else self._number(cell)
        # The comparison is also false for NaN; float() takes underscores, people do not write them in tables.
        if not 0 <= value <= MAX_EVENTS_PER_COUNT or "_" in cell:
            raise ValueError(cell)
        return value

    def _number(self, cell: str) -> float:
        parts = _parts(cell)
        if parts is None or (parts["unit"] or "").strip() not in ("", self.unit, *_numbers_of_unit(self.unit)):
            raise ValueError(cell)
        digits = parts["digits"]
        whole, mark, fraction = digits.rpartition(self.decimal) if self.decimal in digits else (digits, "", "")
        if any(mark in self.groups for mark in whole) and not _is_grouped(whole, self.groups):
            raise ValueError(cell)
        for group in self.groups:
            whole = whole.replace(group, "")
        scale = _MAGNITUDES[(parts["scale"] or "").lower()]
        return float(f"{parts['sign']}{whole}{'.' if mark else ''}{fraction}{parts['power'] or ''}") * scale

    @property
    def notes(self) -> list[str]:
        """Sentences about the style, for before anything is stored."""
        notes = []
        if self.groups in {",", "."}:
            notes.append(f"{self.groups!r} in counts is read as a separator of thousands.")
        if self.decimal == ",":
            notes.append("',' in counts is read as a decimal comma.")
        if self.has_scale:
            notes.append("Counts are written with K, M or the like, rounded to the digits that stand there.")
        if self.unit:
            notes.append(f"The unit {self.unit!r} of counts is left away.")
        if self.is_ambiguous:
            example = "1.234" if self.decimal == "." and not self.groups else "1,234"
            notes.append(
                f"Counts such as {example} may be thousands or fractions; they are read with a decimal "
                f"{'point' if self.decimal == '.' else 'comma'}. If that is wrong, choose decimal_mark."
            )
        return notes


def is_number(cell: str) -> bool:
    """Whether a cell is a number without a unit, however it is written."""
    parts = _parts(cell)
    return bool(_PLAIN.match(cell)) or (parts is not None and parts["unit"] is None)


def find_number_style(cells: Sequence[str], delimiter: str = ",", decimal_mark: str = "") -> NumberStyle | None:
    """The style that nine of ten cells, or more, are written in; None if they are no counts.

    Parameters
    ----------
    delimiter : str
        Of the table: where it is a semicolon, a comma is rather a decimal one.
    decimal_mark : {"", "point", "comma"}
        The mark before fractions, if it is known.
    """
    cells = [cell for cell in cells if cell.strip()]
    if not cells:
        return None
    parts = [found for cell in cells if (found := _parts(cell))]
    if len(parts) < 0.9 * len(cells):
        return None
    style = _style_of([part["digits"] for part in parts], delimiter, decimal_mark)
    units = sorted({(part["unit"] or "").strip() for part in parts}, key=len)
    scales = {part["scale"] for part in parts} - {None}
    unit = units[-1]
    if (
        scales == {"B"}
        or _SCALED_UNITS.match(unit)
        or _NO_COUNTS.fullmatch(unit)
        or any(other not in ("", *_numbers_of_unit(unit)) for other in units)
    ):
        return None  # B alone is rather bytes
    return NumberStyle(style.decimal, style.groups, bool(scales), unit, _seconds_of_unit(unit), style.is_ambiguous)


def _parts(cell: str) -> re.Match[str] | None:
    text = cell.strip()
    return _CELL.match(text) if len(text) <= _MAX_WRITTEN else None


def _style_of(digits: Sequence[str], delimiter: str, decimal_mark: str) -> NumberStyle:
    spaces = "".join(sorted({mark for text in digits for mark in text if mark in _SPACES}))
    marked = [text for text in digits if "," in text or "." in text]
    if decimal_mark:
        decimal = "." if decimal_mark == "point" else ","
        other = "," if decimal == "." else "."
        return NumberStyle(decimal, spaces + (other if any(other in text for text in marked) else ""))
    if not marked:
        return NumberStyle(".", spaces)
    both = [text for text in marked if "," in text and "." in text]
    if both or spaces:
        last = max(both or marked, key=len)
        decimal = "," if last.rfind(",") > last.rfind(".") else "."
        other = "," if decimal == "." else "."
        return NumberStyle(decimal, spaces + (other if any(other in text for text in marked) else ""))
    mark = "," if "," in marked[0] else "."
    if any(text.count(mark) > 1 for text in marked):
        return NumberStyle("," if mark == "." else ".", mark)
    if not all(_GROUPED.match(text) and not text.startswith("0") for text in marked):
        return NumberStyle(mark)
    # Each has one mark and three digits after it: 1,234 in a file of commas is a thousand. Elsewhere a count without a
    # mark that reaches a thousand tells that the mark is before fractions.
    if mark == "," and delimiter != ";":
        return NumberStyle(".", mark)
    return NumberStyle(mark, is_ambiguous=not any(len(text) > 3 for text in digits if mark not in text))


def _is_grouped(whole: str, groups: str) -> bool:
    pieces = re.split("[" + re.escape(groups) + "]", whole)
    return 1 <= len(pieces[0]) <= 3 and all(len(piece) == 3 for piece in pieces[1:])


def _numbers_of_unit(unit: str) -> tuple[str, ...]:
    """A unit in singular and plural."""
    return (unit, unit.removesuffix("s"), f"{unit}s") if unit else ("",)


def _seconds_of_unit(unit: str) -> float | None:
    rate = _RATE.search(unit)
    return _PER[rate[1].lower()] if rate else _SHORT_RATES.get(unit.lower())


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
