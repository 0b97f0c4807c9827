"""Calibration of intervals and errors of estimates, in words, lines and charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.safestring import SafeString

from apps.estimates.choices import CalibrationScope
from apps.estimates.models import AccuracyObservation, IntervalCalibration
from apps.ui.charts import Chart, Series, time_axis
from apps.ui.marks import evidence_mark
from apps.ui.numbers import MISSING, count, factor, percent, seconds
from apps.ui.sentences import sentence

__all__ = [
    "CalibrationLine",
    "CoveragePart",
    "before_after",
    "calibration_lines",
    "calibration_sentence",
    "coverage_parts",
    "error_chart",
    "factors_chart",
    "latency_chart",
    "scaling_words",
    "trust_words",
]

_POINTS = 240
_SAME = 0.005  # a factor as near to 1 as this is shown as 1


def scaling_words(lower: float, upper: float) -> str:
    """As stated; widened 1.8 ×; upper side widened 1.8 ×, lower side narrowed to 0.6 ×."""
    if abs(lower - upper) < _SAME:
        return _side_words(upper)
    return f"upper side {_side_words(upper)}, lower side {_side_words(lower)}"


def _side_words(value: float) -> str:
    if abs(value - 1.0) < _SAME:
        return "as stated"
    return f"widened {factor(value)}" if value > 1.0 else f"narrowed to {factor(value)}"


def trust_words(held: int, judged: int) -> str:
    """31 of the last 40 held."""
    return f"{held} of the last {judged} held" if judged else "none judged yet"


@dataclass(frozen=True)
class CalibrationLine:
    """A group's line of the table: what it is of, its runs, and how intervals did before and after scaling."""

    name: str
    note: str
    evidence: SafeString
    runs: str
    left_out: str
    coverage: str
    width: str
    bias: str
    upper: str
    lower: str
    trust: str
    is_own: bool


def calibration_lines(rows: Sequence[IntervalCalibration]) -> list[CalibrationLine]:
    """One line for each, the widest groups first, then by name."""
    order = list(CalibrationScope)
    return [_line(row) for row in sorted(rows, key=lambda row: (-order.index(row.group), _name(row), row.evidence))]


def _name(row: IntervalCalibration) -> str:
    if row.query is not None:
        return row.query.name
    if not row.statistic:
        return str(row.get_origin_display())
    statistic = {"worst": "Worst case", "mean": "Mean"}.get(row.statistic, "Quantiles")
    return f"{statistic}, {'with' if row.windowed else 'without'} windows"


def _line(row: IntervalCalibration) -> CalibrationLine:
    borrowed = row.scope if row.scope != row.group else ""
    note = "too few runs: as stated" if not row.scope else f"by {row.get_scope_display()}" if borrowed else ""
    return CalibrationLine(
        name=_name(row),
        note=note,
        evidence=evidence_mark(row.evidence),
        runs=count(row.own_runs),
        left_out=count(row.left_out) if row.left_out else MISSING,
        coverage=before_after(row.coverage_before, row.coverage_after),
        width=before_after(row.width_before, row.width_after),
        bias=str(factor(row.bias)),
        upper=_factor(row.upper, row.scope),
        lower=_factor(row.lower, row.scope),
        trust=f"{row.held} of {row.judged}" if row.trust else MISSING,
        is_own=row.scope == row.group,
    )


def before_after(before: float | None, after: float | None) -> str:
    """Of intervals as stated and as shown: 71% → 90%."""
    return MISSING if before is None else f"{percent(before)} → {percent(after)}"


def _factor(value: float, scope: str) -> str:
    return str(factor(value)) if scope else MISSING


def calibration_sentence(row: IntervalCalibration | None) -> SafeString | str:
    """Sentence on the intervals of a query: how they are scaled, by how many runs, and what it gave."""
    if row is None:
        return "No scored runs yet: intervals are shown as the model states them."
    return sentence("pages/accuracy/sentences/calibration.html", row=row, scaling=scaling_words(row.lower, row.upper))


def factors_chart(rows: Sequence[IntervalCalibration]) -> Chart | None:
    """Factors of one group over time, of rows oldest first; None before they were ever concluded."""
    if not any(row.scope for row in rows):
        return None
    start, end = rows[0].since, max(timezone.now(), rows[-1].updated_at)
    step = max(timedelta(seconds=30), (end - start) / _POINTS)
    points = (end - start) // step + 1
    upper: list[float] = []
    lower: list[float] = []
    at = 0
    for i in range(points):
        while at + 1 < len(rows) and rows[at + 1].since <= start + i * step:
            at += 1
        upper.append(rows[at].upper)
        lower.append(rows[at].lower)
    upper[-1], lower[-1] = rows[-1].upper, rows[-1].lower
    finding = f"Intervals of {_name(rows[-1])}: {scaling_words(rows[-1].lower, rows[-1].upper)}."
    series = [Series("estimate", "Upper side", y=upper), Series("alt", "Lower side", y=lower)]
    axis = time_axis(start, step.total_seconds(), points)
    return Chart("factors-over-time", finding, "×", axis, series, height=200, steps=True)


_MAX_POINTS = 480
_PARTS = 60


@dataclass(frozen=True)
class CoveragePart:
    """A stretch of the coverage strip: how many intervals held, out of how many; its bar's place and height."""

    x: float
    width: float
    held: int
    judged: int
    label: str

    @property
    def height(self) -> float:
        """Of 40; a part in which every interval failed is a full bar of the colour of failure."""
        return 40.0 * self.missed / self.judged if self.judged else 0.0

    @property
    def missed(self) -> int:
        return self.judged - self.held

    @property
    def y(self) -> float:
        return 40.0 - self.height


def _grid(rows: Sequence[AccuracyObservation], step: timedelta, most: int) -> tuple[datetime, timedelta, int]:
    """Beginning, width and number of equal stretches over some rows, oldest first."""
    span = rows[-1].starts_at - rows[0].starts_at + step
    wide = max(1, -(-(span // step) // most)) * step
    return rows[0].starts_at, wide, max(1, -(-span // wide))


def _placed(
    rows: Sequence[AccuracyObservation], start: datetime, wide: timedelta, count: int
) -> list[list[AccuracyObservation]]:
    found: list[list[AccuracyObservation]] = [[] for _ in range(count)]
    for row in rows:
        found[min(count - 1, (row.starts_at - start) // wide)].append(row)
    return found


def latency_chart(rows: Sequence[AccuracyObservation], step: timedelta, observed: str) -> Chart:
    """Estimate with its interval against what was measured; the largest of each stretch where many share a point."""
    start, wide, count = _grid(rows, step, _MAX_POINTS)
    parts = _placed(rows, start, wide, count)
    banded = [(i, part) for i, part in enumerate(parts) if part and all(row.high_s is not None for row in part)]
    lines = [
        Series("estimate", "Estimate", y=[max((row.expected_s for row in part), default=None) for part in parts]),
        Series(
            "measured", observed.capitalize(), y=[max((row.observed_s for row in part), default=None) for part in parts]
        ),
    ]
    if banded:
        band = Series(
            "band",
            "90% interval",
            low=[min(row.low_s or 0.0 for row in part) for _, part in banded],
            high=[max(row.high_s or 0.0 for row in part) for _, part in banded],
            x=[i * wide.total_seconds() for i, _ in banded],
        )
        lines.insert(0, band)
    newest = rows[-1]
    finding = (
        f"{newest.query.name}: {seconds(newest.expected_s)} estimated and {seconds(newest.observed_s)} {observed} "
        f"at {timezone.localtime(newest.starts_at):%H:%M:%S}."
    )
    return Chart("latency-over-time", finding, "s", time_axis(start, wide.total_seconds(), count), lines)


def error_chart(rows: Sequence[AccuracyObservation], step: timedelta, observed: str) -> Chart:
    """Size of the error as a share of what was measured, or simulated."""
    start, wide, count = _grid(rows, step, _MAX_POINTS)
    shares = [max((_share(row) for row in part), default=None) for part in _placed(rows, start, wide, count)]
    known = sorted(value for value in shares if value is not None)
    middle = known[len(known) // 2] / 100 if known else None
    finding = f"Error of {rows[-1].query.name}: {percent(middle)} of the {observed} latency in the median."
    line = Series("alt", f"Error, of the {observed} latency", y=shares)
    return Chart("error-over-time", finding, "%", time_axis(start, wide.total_seconds(), count), [line], height=200)


def _share(row: AccuracyObservation) -> float:
    return 100.0 * abs(row.error_s) / row.observed_s if row.observed_s > 0.0 else 0.0


def coverage_parts(rows: Sequence[AccuracyObservation], step: timedelta) -> list[CoveragePart]:
    """Stretches of time with how often the intervals of all queries held; only rows that had one count."""
    judged = [row for row in rows if row.covered is not None]
    if not judged:
        return []
    start, wide, count = _grid(judged, step, _PARTS)
    found = []
    for i, part in enumerate(_placed(judged, start, wide, count)):
        held = sum(bool(row.covered) for row in part)
        at = timezone.localtime(start + i * wide)
        label = f"{at:%H:%M}: {held} of {len(part)} held" if part else f"{at:%H:%M}: nothing measured"
        found.append(CoveragePart(i * 600 / count, 600 / count, held, len(part), label))
    return found
