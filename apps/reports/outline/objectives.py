"""The section of objectives and headroom."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from apps.estimates.choices import ObjectiveState
from apps.reports.blocks import Block, Cell, Column, Heading, Picture, Table, Text
from apps.reports.drawings.rows import headroom_bars
from apps.reports.outline.times import day
from apps.ui.numbers import MISSING, percent, seconds, seconds_range

__all__ = ["objective_blocks", "objective_table", "statistic_text"]

_DRAWN = 24
_COLUMNS = (
    Column("Query", "query", width=2.3),
    Column("Team", "team", width=1.3),
    Column("Objective", "objective_s", num=True, width=1.3),
    Column("Estimate", "estimate_s", num=True, width=1.0),
    Column("Interval, 90%", "interval_high_s", num=True, width=1.6),
    Column("Headroom", "headroom_share", num=True, width=1.0),
    Column("Held in the period", "held_estimates", num=True, width=1.6),
)


def objective_blocks(facts: dict[str, Any]) -> Iterator[Block]:
    """Bars against objectives, then the numbers, then what was broken in the period."""
    found = facts["objectives"]
    rows = found["rows"]
    yield Heading("objectives", "Objectives and headroom", "Least headroom first")
    if not rows:
        yield Text("Nothing was estimated yet: no query runs. Admit one, and the next report will speak of it.")
        return
    judged = [row for row in rows if row["bound_s"]]
    if judged:
        finding = f"Estimates of {len(judged)} queries as a share of their objectives"
        more = f" The {_DRAWN} with least headroom are drawn." if len(judged) > _DRAWN else ""
        yield Picture(
            f"{finding}; the nearest to its objective is {judged[0]['query']}.{more}",
            partial(headroom_bars, judged[:_DRAWN]),
            (("bar", "Estimate"), ("band", "Interval, 90%"), ("objective-line", "Objective")),
        )
    yield objective_table(facts)
    yield Text(_period(facts), quiet=True)


def objective_table(facts: dict[str, Any]) -> Table:
    return Table("objectives", "Objectives", _COLUMNS, [_cells(row) for row in facts["objectives"]["rows"]])


def statistic_text(statistic: str) -> str:
    """worst, mean, p99 for q0.99."""
    return f"p{100 * float(statistic[1:]):g}" if statistic.startswith("q") else statistic


def _cells(row: dict[str, Any]) -> list[Cell]:
    bound = row["bound_s"]
    objective = f"{statistic_text(row['statistic'])} ≤ {seconds(bound)}" if bound else "none"
    period = row["period"]
    held = MISSING if period is None or not bound else f"{period['held']} of {period['runs']} estimates"
    interval = seconds_range(row["low_s"], row["high_s"], apart_from=bound)
    return [
        Cell(row["query"], row["query"], state=row["state"], strong=True),
        Cell(row["team"] or MISSING, row["team"]),
        Cell(objective, bound),
        Cell(str(seconds(row["estimate_s"], apart_from=bound, under=row["resolution_s"])), row["estimate_s"]),
        Cell("none yet" if row["high_s"] is None else str(interval), row["high_s"]),
        Cell(
            str(percent(row["headroom_share"])), row["headroom_share"], strong=row["state"] == ObjectiveState.BREACHED
        ),
        Cell(held, None if period is None else period["held"]),
    ]


def _period(facts: dict[str, Any]) -> str:
    """Which objectives were broken since the last report, and since when."""
    found, zone = facts["objectives"], ZoneInfo(facts["time_zone"])
    broken = [row for row in found["rows"] if row["period"] and row["period"]["broken"]]
    counted = "1 estimate" if found["runs"] == 1 else f"{found['runs']} estimates"
    if not found["runs"]:
        return "The period holds no other estimate than the one above."
    if not broken:
        return f"In the {counted} of the period no objective was over its bound."
    names = "; ".join(
        f"{row['query']} in {row['period']['broken']} of {row['period']['runs']}, first on "
        f"{day(row['period']['first_broken'], zone)}, at most {seconds(row['period']['highest_s'])}"
        for row in broken[:8]
    )
    return f"Over their objectives in the {counted} of the period: {names}."
