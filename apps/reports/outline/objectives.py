"""Section of objectives and headroom, and the latency report to the users of a query or a team."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from apps.queries.choices import ObjectiveState
from apps.reports.blocks import Block, ReportCell, ReportColumn, ReportHeading, ReportPicture, ReportTable, ReportText
from apps.reports.drawings import Curve, Drawing, Plot, headroom_bars
from apps.reports.notation import local_day
from apps.ui.numbers import MISSING, percent, seconds, seconds_range, significant
from apps.ui.svg.scales import nice_ticks
from engine.words import counted, statistic_text

__all__ = ["latency_blocks", "objective_blocks", "objective_table"]

_DRAWN = 24
_COLUMNS = (
    ReportColumn("Query", "query", width=2.3),
    ReportColumn("Team", "team", width=1.3),
    ReportColumn("Objective", "objective_s", num=True, width=1.3),
    ReportColumn("Measured", "measured_s", num=True, width=1.0),
    ReportColumn("Estimate", "estimate_s", num=True, width=1.0),
    ReportColumn("Interval, 90%", "interval_high_s", num=True, width=1.6),
    ReportColumn("Headroom", "headroom_share", num=True, width=1.0),
    ReportColumn("Held in the period", "held_estimates", num=True, width=1.6),
)


def objective_blocks(facts: dict[str, Any]) -> Iterator[Block]:
    """Bars against objectives, then the numbers, then what was broken in the period."""
    objectives = facts["objectives"]
    rows = objectives["rows"]
    yield ReportHeading("objectives", "Objectives and headroom", "Least headroom first")
    if not rows:
        yield ReportText("Nothing was estimated yet: no query runs. Admit one, and the next report will speak of it.")
        return
    judged = [row for row in rows if row["bound_s"]]
    if judged:
        queries = counted(len(judged), "query", "queries")
        finding = f"Estimates of {queries} against objectives; the nearest to its own is {judged[0]['query']}."
        if len(judged) > _DRAWN:
            finding = f"{finding} The {_DRAWN} with least headroom are drawn."
        yield ReportPicture(
            finding,
            partial(headroom_bars, judged[:_DRAWN]),
            (("bar", "Estimate"), ("band", "Interval, 90%"), ("objective-line", "Objective")),
        )
    yield objective_table(facts)
    yield ReportText(_period(facts), quiet=True)


def objective_table(facts: dict[str, Any]) -> ReportTable:
    return ReportTable("objectives", "Objectives", _COLUMNS, [_cells(row) for row in facts["objectives"]["rows"]])


def _cells(row: dict[str, Any]) -> list[ReportCell]:
    bound = row["bound_s"]
    objective = f"{statistic_text(row['statistic'])} ≤ {seconds(bound)}" if bound else "none"
    period = row["period"]
    held = MISSING if period is None or not bound else f"{period['held']} of {period['runs']} estimates"
    interval = seconds_range(row["low_s"], row["high_s"], apart_from=bound)
    return [
        ReportCell(row["query"], row["query"], state=row["state"], strong=True),
        ReportCell(row["team"] or MISSING, row["team"]),
        ReportCell(objective, bound),
        ReportCell(str(seconds(row.get("measured_s"), apart_from=bound)), row.get("measured_s")),
        ReportCell(str(seconds(row["estimate_s"], apart_from=bound)), row["estimate_s"]),
        ReportCell("none yet" if row["high_s"] is None else str(interval), row["high_s"]),
        ReportCell(
            str(percent(row["headroom_share"])), row["headroom_share"], strong=row["state"] == ObjectiveState.BREACHED
        ),
        ReportCell(held, None if period is None else period["held"]),
    ]


def _period(facts: dict[str, Any]) -> str:
    """Which objectives were broken since the last report, and since when."""
    objectives, zone = facts["objectives"], ZoneInfo(facts["time_zone"])
    broken = [row for row in objectives["rows"] if row["period"] and row["period"]["broken"]]
    estimates = counted(objectives["runs"], "estimate")
    if not objectives["runs"]:
        return "The period holds no other estimate than the one above."
    if not broken:
        return f"In the {estimates} of the period no objective was over its bound."
    names = "; ".join(
        f"{row['query']} in {row['period']['broken']} of {row['period']['runs']}, first on "
        f"{local_day(row['period']['first_broken'], zone)}, at most {seconds(row['period']['highest_s'])}"
        for row in broken[:8]
    )
    return f"Over their objectives in the {estimates} of the period: {names}."


_MAX_CURVES = 6
_STATES = {
    ObjectiveState.HOLDS: "holds",
    ObjectiveState.AT_RISK: "may be missed",
    ObjectiveState.BREACHED: "is missed",
    ObjectiveState.UNKNOWN: "is not known to hold",
}
_LATENCY_COLUMNS = (
    ReportColumn("Query", "query", width=2.4),
    ReportColumn("Worst case", "worst_s", num=True),
    ReportColumn("Mean", "mean_s", num=True),
    ReportColumn("Median", "median_s", num=True),
    ReportColumn("p90", "p90_s", num=True),
    ReportColumn("p99", "p99_s", num=True),
    ReportColumn("Objective", "objective_s", num=True, width=1.5),
    ReportColumn("State", "state", width=1.6),
)


def latency_blocks(facts: dict[str, Any]) -> Iterator[Block]:
    """Latency of events: the numbers, the curve of each query, and how its objective was kept."""
    rows = facts["objectives"]["rows"]
    yield ReportHeading("latency", "How long events take", "The longest first")
    if not rows:
        yield ReportText("Nothing of it runs now, so there is no latency to report.")
    else:
        longest = sorted(rows, key=lambda row: -row["worst_s"])
        yield ReportTable("latency", "Latency", _LATENCY_COLUMNS, [_latency_cells(row) for row in longest])
        for row in longest[:_MAX_CURVES]:
            curve = facts["curves"].get(row["query"])
            if curve is not None and row["worst_s"] > 0:
                yield _curve(row, curve)
        judged = [row for row in rows if row["bound_s"]]
        yield ReportHeading("objectives", "Objectives", "Least headroom first")
        if len(judged) > 1:
            key = (("bar", "Estimate"), ("band", "Interval, 90%"), ("objective-line", "Objective"))
            yield ReportPicture("Estimates as a share of their objectives.", partial(headroom_bars, judged[:24]), key)
        yield objective_table(facts)
    if facts["absent"]:
        names = ", ".join(f"{fact['query']} ({fact['state'].lower()})" for fact in facts["absent"])
        yield ReportText(f"Not running, so not estimated: {names}.", quiet=True)


def _latency_cells(row: dict[str, Any]) -> list[ReportCell]:
    bound, quantiles = row["bound_s"], row["quantiles"]

    def cell(value: Any) -> ReportCell:
        return ReportCell(str(seconds(value)), value)

    objective = f"{statistic_text(row['statistic'])} ≤ {seconds(bound)}" if bound else "none"
    return [
        ReportCell(row["query"], row["query"], strong=True),
        cell(row["worst_s"]),
        cell(row["mean_s"]),
        *(cell(quantiles.get(name)) for name in ("0.5", "0.9", "0.99")),
        ReportCell(objective, bound),
        ReportCell(_STATES.get(row["state"], MISSING), row["state"], state=row["state"]),
    ]


def _curve(row: dict[str, Any], curve: dict[str, Any]) -> ReportPicture:
    name, bound = row["query"], row["bound_s"]
    finding = f"{name}: mean path of events by when they happened, at most {seconds(max(curve['flow_s']))}."
    key = [("estimate", "Mean path")]
    if bound and row["statistic"] == "worst":
        key.append(("objective-line", "Objective"))
    return ReportPicture(finding, partial(_draw, row, curve), key)


def _draw(row: dict[str, Any], curve: dict[str, Any], width: float) -> Drawing:
    times, path = curve["time_s"], curve["flow_s"]
    has_limit = bool(row["bound_s"]) and row["statistic"] == "worst"
    top = max([*path, row["bound_s"] if has_limit else 0.0]) * 1.08 or 1.0
    plot = Plot(width, 150, (times[0], times[-1]), top, right=86)
    plot.y_axis(lambda value, is_top: f"{significant(value)}{' s' if is_top else ''}")
    ticks = nice_ticks(times[-1] / 60, 6)
    plot.x_axis([(60 * value, significant(value)) for value in ticks], "min")
    plot.curve(Curve("c-estimate", "", times, path))
    if has_limit:
        plot.objective(row["bound_s"], f"Objective {seconds(row['bound_s'])}")
    return plot.drawing()
