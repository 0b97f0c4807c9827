"""Time-series charts: a description in Python, drawn in the browser by static/js/charts.js.

Curves are named by role (estimate, band, measured, load, alt, third), never by number: the role decides colour, dash
and marker. The same numbers are offered as a table below the picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from django.utils import timezone

from apps.ui.numbers import Quantity, as_float, scaled, seconds

__all__ = ["Chart", "ChartMark", "Series", "elapsed_axis", "time_axis"]

_ROLES = {"estimate", "forecast", "band", "measured", "load", "alt", "third"}
_TABLE_ROWS = 24
_DATED_FROM_S = 600.0  # steps so long make a table of days


@dataclass(frozen=True)
class ChartAxis:
    """Seconds from `first`, in steps; real time has its start and the offsets of its zone: (from when, seconds)."""

    kind: str
    first: float
    step: float
    start: float = 0.0
    offsets: Sequence[Sequence[float]] = ()

    def label(self, index: int) -> str:
        at_s = self.first + index * self.step
        if self.kind == "elapsed":
            minutes, second = divmod(round(at_s), 60)
            return f"{minutes // 60}:{minutes % 60:02d}:{second:02d}"
        local = timezone.localtime(datetime.fromtimestamp(self.start + at_s, tz=UTC))
        return f"{local.day} {local:%b, %H:%M}" if self.step >= _DATED_FROM_S else f"{local:%H:%M:%S}"


def elapsed_axis(step_s: float, first_s: float = 0.0) -> ChartAxis:
    """Time since the beginning of the estimated stretch."""
    return ChartAxis("elapsed", first_s, step_s)


def time_axis(start: datetime, step_s: float, slices: int) -> ChartAxis:
    """Real time in the active zone, with its changes of offset (daylight saving) inside the stretch."""
    offsets: list[list[float]] = []
    span_s = step_s * slices
    for hour in range(int(span_s // 3600) + 2):
        moment = timezone.localtime(start + timedelta(hours=hour))
        offset = (moment.utcoffset() or timedelta()).total_seconds()
        if not offsets or offsets[-1][1] != offset:
            offsets.append([moment.timestamp(), offset])
    return ChartAxis("time", 0.0, step_s, start.timestamp(), offsets)


@dataclass(frozen=True)
class Series:
    """A curve. `band` has `low` and `high`, the others `y`; `x` replaces the axis' own points (measured dots)."""

    role: str
    name: str
    y: Sequence[float | None] | None = None
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    x: Sequence[float] | None = None
    ink: str = ""

    def to_dict(self) -> dict[str, object]:
        if self.role not in _ROLES:
            raise ValueError(f"role {self.role!r}: allowed are {', '.join(sorted(_ROLES))}")
        parts = {"y": self.y, "low": self.low, "high": self.high, "x": self.x}
        lists = {name: [_rounded(v) for v in values] for name, values in parts.items() if values is not None}
        return {"role": self.role, "name": self.name, **({"ink": self.ink} if self.ink else {}), **lists}


@dataclass(frozen=True)
class ChartMark:
    """A vertical line at `x` (seconds from the axis' start, or its unit): dotted, or solid for "now".

    `side` is where its label stands: "center", or "left" or "right" of the line where two labels would overlap.
    """

    x: float
    label: str
    solid: bool = False
    side: str = "center"


@dataclass(frozen=True)
class Chart:
    """One quantity over one axis.

    `finding` is the sentence a reader of the picture would take away; screen readers hear it. With `moments`, the
    address of a page that takes `since` and `until` in local time, a click opens it at a moment, dragging between two.
    """

    id: str
    finding: str
    unit: str
    x: ChartAxis
    series: Sequence[Series]
    objective_s: float | None = None
    objective_name: str = "Objective"
    marks: Sequence[ChartMark] = field(default_factory=tuple)
    height: int = 260
    steps: bool = False
    moments: str = ""

    @property
    def spec(self) -> dict[str, object]:
        """The description that the browser draws."""
        return {
            "unit": self.unit,
            "format": ".3~g" if self.unit in {"s", "ms", "%"} else ".3~s",
            "x": asdict(self.x),
            "series": [series.to_dict() for series in self.series],
            "objective": self._objective,
            "marks": [asdict(mark) for mark in self.marks],
            "top": self._top * 1.08,
            **({"bottom": bottom * 1.08} if (bottom := self._bottom) < 0.0 else {}),
            "height": self.height,
            "steps": self.steps,
            **({"moments": self.moments} if self.moments else {}),
        }

    @property
    def _objective(self) -> dict[str, object] | None:
        if self.objective_s is None:
            return None
        return {"value": self.objective_s, "label": f"{self.objective_name} {seconds(self.objective_s)}"}

    @property
    def _top(self) -> float:
        values = [_peak(values) for series in self.series for values in (series.y, series.high) if values is not None]
        top = max(values, default=1.0)
        return max(top, 0.0) if self._bottom < 0.0 else top or 1.0

    @property
    def _bottom(self) -> float:
        """The axis begins at 0, or at the least of values that are below it."""
        values = [values for series in self.series for values in (series.y, series.low) if values is not None]
        return min(
            (-_peak([-value for value in map(as_float, row) if value is not None]) for row in values), default=0.0
        )

    @property
    def key(self) -> list[tuple[str, str]]:
        """Entries of the legend, in drawing order."""
        entries = [(series.role, series.name) for series in self.series]
        return [*entries, ("objective-line", self.objective_name)] if self.objective_s is not None else entries

    @property
    def table_head(self) -> list[str]:
        return [series.name for series in self.series if series.y is not None and series.x is None]

    @property
    def table(self) -> list[tuple[str, list[str]]]:
        """At most 24 lines: the largest value of each of as many equal parts, so that peaks stay visible."""
        curves = [series.y for series in self.series if series.y is not None and series.x is None]
        if not curves:
            return []
        size = len(curves[0])
        edges = sorted({round(i * size / min(_TABLE_ROWS, size)) for i in range(min(_TABLE_ROWS, size) + 1)})
        return [
            (self.x.label(a), [str(self._quantity(_peak(curve[a:b]))) for curve in curves]) for a, b in pairwise(edges)
        ]

    def _quantity(self, value: float) -> Quantity:
        return seconds(value) if self.unit == "s" else scaled(value, self.unit)


def _peak(values: Sequence[float | None]) -> float:
    return max((value for value in map(as_float, values) if value is not None), default=0.0)


def _rounded(value: Any) -> float | None:
    """Six digits are more than a picture can show and half the bytes."""
    number = as_float(value)
    return None if number is None else float(f"{number:.6g}")
