"""Calibration of intervals on the accuracy page: lines by group, the history of factors, and their words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.utils import timezone
from django.utils.safestring import SafeString

from apps.estimates.choices import CalibrationScope
from apps.estimates.models import IntervalCalibration
from apps.ui.charts import Chart, Series, time_axis
from apps.ui.marks import evidence_mark
from apps.ui.numbers import MISSING, count, factor, percent
from apps.ui.sentences import sentence

__all__ = [
    "CalibrationLine",
    "before_after",
    "calibration_lines",
    "calibration_sentence",
    "factors_chart",
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
