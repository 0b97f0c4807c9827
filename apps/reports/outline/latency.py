"""The report to the users of a query or a team."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from reportlab.graphics.shapes import Drawing

from apps.estimates.choices import ObjectiveState
from apps.reports.blocks import Block, Cell, Column, Heading, Picture, Table, Text
from apps.reports.drawings.plot import Curve, Plot, nice_ticks
from apps.reports.drawings.rows import headroom_bars
from apps.reports.outline.objectives import objective_table, statistic_text
from apps.ui.numbers import MISSING, seconds, significant

__all__ = ["latency_blocks"]

_MOST_CURVES = 6
_STATES = {
    ObjectiveState.HOLDS: "holds",
    ObjectiveState.AT_RISK: "may be missed",
    ObjectiveState.BREACHED: "is missed",
}
_COLUMNS = (
    Column("Query", "query", width=2.4),
    Column("Worst case", "worst_s", num=True),
    Column("Mean", "mean_s", num=True),
    Column("Median", "median_s", num=True),
    Column("p90", "p90_s", num=True),
    Column("p99", "p99_s", num=True),
    Column("Objective", "objective_s", num=True, width=1.5),
    Column("State", "state", width=1.6),
)


def latency_blocks(facts: dict[str, Any]) -> Iterator[Block]:
    """How long events take: the numbers, the curve of each query, and how its objective was kept."""
    rows = facts["objectives"]["rows"]
    yield Heading("latency", "How long events take", "The longest first")
    if not rows:
        yield Text("Nothing of it runs now, so there is no latency to report.")
    else:
        longest = sorted(rows, key=lambda row: -row["worst_s"])
        yield Table("latency", "Latency", _COLUMNS, [_cells(row) for row in longest])
        for row in longest[:_MOST_CURVES]:
            curve = facts["curves"].get(row["query"])
            if curve is not None and row["worst_s"] > 0:
                yield _curve(row, curve)
        judged = [row for row in rows if row["bound_s"]]
        yield Heading("objectives", "Objectives", "Least headroom first")
        if len(judged) > 1:
            key = (("bar", "Estimate"), ("band", "Interval, 90%"), ("objective-line", "Objective"))
            yield Picture("Estimates as a share of their objectives.", partial(headroom_bars, judged[:24]), key)
        yield objective_table(facts)
    if facts["absent"]:
        names = ", ".join(f"{one['query']} ({one['state'].lower()})" for one in facts["absent"])
        yield Text(f"Not running, so not estimated: {names}.", quiet=True)


def _cells(row: dict[str, Any]) -> list[Cell]:
    bound, under = row["bound_s"], row["resolution_s"]
    quantiles = row["quantiles"]

    def cell(value: Any) -> Cell:
        return Cell(str(seconds(value, under=under)), value)

    objective = f"{statistic_text(row['statistic'])} ≤ {seconds(bound)}" if bound else "none"
    return [
        Cell(row["query"], row["query"], strong=True),
        cell(row["worst_s"]),
        cell(row["mean_s"]),
        *(cell(quantiles.get(name)) for name in ("0.5", "0.9", "0.99")),
        Cell(objective, bound),
        Cell(_STATES.get(row["state"], MISSING), row["state"], state=row["state"]),
    ]


def _curve(row: dict[str, Any], curve: dict[str, Any]) -> Picture:
    name, bound = row["query"], row["bound_s"]
    finding = f"{name}: latency of events by when they happened, at most {seconds(row['worst_s'])}."
    key = [("estimate", "Estimate")]
    if curve["high_s"] is not None:
        key.append(("band", "Interval, 90%"))
    if bound and row["statistic"] == "worst":
        key.append(("objective-line", "Objective"))
    return Picture(finding, partial(_draw, row, curve), key)


def _draw(row: dict[str, Any], curve: dict[str, Any], width: float) -> Drawing:
    times, estimate = curve["time_s"], curve["estimate_s"]
    has_limit = bool(row["bound_s"]) and row["statistic"] == "worst"
    top = max([*estimate, *(curve["high_s"] or []), row["bound_s"] if has_limit else 0.0]) * 1.08
    plot = Plot(width, 150, (times[0], times[-1]), top, right=86)
    plot.y_axis(lambda value, is_top: f"{significant(value)}{' s' if is_top else ''}")
    ticks = nice_ticks(times[-1] / 60, 6)
    plot.x_axis([(60 * value, significant(value)) for value in ticks], "min")
    if curve["high_s"] is not None:
        plot.band(times, curve["low_s"], curve["high_s"])
    plot.curve(Curve("c-estimate", "", times, estimate))
    if has_limit:
        plot.objective(row["bound_s"], f"Objective {seconds(row['bound_s'])}")
    return plot.finish()
