"""Charts of accuracy: latency, error, and how often intervals held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from apps.estimates.models import AccuracyObservation
from apps.ui.charts import Chart, Series, time_axis
from apps.ui.numbers import percent, seconds

__all__ = ["CoveragePart", "coverage_parts", "error_chart", "latency_chart"]

_POINTS = 480
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
    start, wide, count = _grid(rows, step, _POINTS)
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
    start, wide, count = _grid(rows, step, _POINTS)
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
