"""Objectives now and in the period, and the latency report to the users of a query or a team."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import ClassVar
from zoneinfo import ZoneInfo

from django.db.models import Count, Max, Min, Q, QuerySet

from apps.estimates.answers import curves_unpack
from apps.estimates.models import EstimateRun, QueryEstimate
from apps.estimates.selectors import objectives_by_headroom
from apps.estimates.words import cause_sentence, evidence_words
from apps.fleet.models import Cluster
from apps.queries.choices import ObjectiveState
from apps.queries.models import Query
from apps.reports.blocks import (
    Block,
    ReportColumn,
    ReportHeading,
    ReportPicture,
    ReportTable,
    ReportText,
    local_day,
    or_missing,
)
from apps.reports.drawings import Curve, Plot, fitted, label, state_shape
from apps.ui.numbers import MISSING, Quantity, percent, seconds, seconds_range, significant
from apps.ui.svg.pdf import text_width
from apps.ui.svg.scales import Scale, nice_ticks
from apps.ui.svg.shapes import Drawing, Shape, path, rect
from engine.arrays import step_maxima
from engine.document.policies import SchedulingBound
from engine.records import Moment, Record
from engine.words import bound_words, counted, statistic_text

__all__ = [
    "AbsentQuery",
    "LatencyCurve",
    "ObjectiveCounts",
    "ReportObjectives",
    "ReportQuery",
    "absent_queries",
    "latency_blocks",
    "latency_curves",
    "objective_blocks",
    "objective_facts",
    "queries_of",
]

_DRAWN = 24
_MAX_CURVES = 6
_POINTS = 240
_ROW = 15.0
_SCREEN = 1.3  # fonts of screens, bold ones too, are at most so much wider than those of PDF
#: The objective always stands at three quarters of a bar's width, so that rows compare by eye.
_OBJECTIVE_AT = 0.75
_BAR_KEY = (("bar", "Estimate"), ("band", "Interval, 90%"), ("objective-line", "Objective"))


@dataclass(frozen=True)
class QueryPeriod(Record):
    """Estimates of a query since the last report, by what they said of its objective."""

    runs: int
    held: int
    at_risk: int
    broken: int
    highest_s: float | None
    first_broken: Moment | None


@dataclass(frozen=True)
class ReportQuery(Record):
    """A running query against its objective."""

    query: str
    team: str
    version: int
    statistic: str
    bound_s: float | None
    estimate_s: float
    low_s: float | None
    high_s: float | None
    worst_s: float
    mean_s: float | None
    quantiles: dict[str, float | None]
    headroom_s: float | None
    headroom_share: float | None
    standing: str
    measured_s: float | None
    evidence: str
    cause: str
    resolution_s: float | None
    state: str
    bottleneck: str
    bottleneck_load: float | None
    scheduling: SchedulingBound | None
    assumed: int
    period: QueryPeriod | None

    @property
    def is_expected(self) -> bool:
        """Whether an estimate alone says that it is late."""
        return self.state == ObjectiveState.BREACHED and self.measured_s is None

    @property
    def state_words(self) -> str:
        return "is expected to be missed" if self.is_expected else _STATES.get(self.state, "")

    @property
    def objective(self) -> str:
        return f"{statistic_text(self.statistic)} ≤ {seconds(self.bound_s)}" if self.bound_s else "none"

    @property
    def interval(self) -> str:
        return (
            "none yet" if self.high_s is None else str(seconds_range(self.low_s, self.high_s, apart_from=self.bound_s))
        )

    @property
    def median_s(self) -> float | None:
        return self.quantiles.get("0.5")

    @property
    def p90_s(self) -> float | None:
        return self.quantiles.get("0.9")

    @property
    def p99_s(self) -> float | None:
        return self.quantiles.get("0.99")

    @property
    def held_estimates(self) -> int | None:
        return None if self.period is None else self.period.held

    @property
    def held(self) -> str:
        return f"{self.period.held} of {self.period.runs} estimates" if self.period and self.bound_s else MISSING

    @property
    def is_breached(self) -> bool:
        return self.state == ObjectiveState.BREACHED

    def beside_bound(self, value_s: float | None) -> Quantity:
        """Seconds to as many digits as tell them from the objective."""
        return seconds(value_s, apart_from=self.bound_s)


@dataclass(frozen=True)
class ObjectiveCounts(Record):
    """Queries with an objective, by what is known of it."""

    judged: int
    held: int
    at_risk: int
    broken: int
    unknown: int

    @property
    def words(self) -> str:
        unknown = f", {self.unknown} unknown" if self.unknown else ""
        if not self.broken and not self.at_risk:
            return f"None at risk{unknown}"
        return f"{self.broken} over, {self.at_risk} at risk{unknown}"


@dataclass(frozen=True)
class ReportObjectives(Record):
    """One row for each running query, least headroom first, and the estimates of the period."""

    TITLE: ClassVar[str] = "objectives"

    rows: list[ReportQuery]
    runs: int
    since: Moment | None

    @property
    def judged(self) -> list[ReportQuery]:
        """Queries with an objective."""
        return [row for row in self.rows if row.bound_s]

    @property
    def counts(self) -> ObjectiveCounts:
        states = [row.state for row in self.judged]
        order = (ObjectiveState.HOLDS, ObjectiveState.AT_RISK, ObjectiveState.BREACHED, ObjectiveState.UNKNOWN)
        return ObjectiveCounts(len(states), *(states.count(state) for state in order))


@dataclass(frozen=True)
class LatencyCurve(Record):
    """The mean path over the stretch, the maximum of each of at most 240 parts."""

    time_s: list[float]
    flow_s: list[float]


@dataclass(frozen=True)
class AbsentQuery(Record):
    """A query that does not run."""

    query: str
    state: str

    def __str__(self) -> str:
        return f"{self.query} ({self.state.lower()})"


def objective_facts(
    cluster: Cluster,
    run: EstimateRun | None,
    since: datetime | None,
    until: datetime,
    names: Collection[str] | None = None,
) -> ReportObjectives:
    """Each running query (of `names`, if given) with its counts of the period."""
    if run is None:
        return ReportObjectives([], 0, None)
    runs = EstimateRun.objects.filter(cluster=cluster, created_at__lte=until)
    if since is not None:
        runs = runs.filter(created_at__gt=since)
    periods = _periods(runs)
    rows = [_query(row, periods.get(row.query_id)) for row in objectives_by_headroom(run)]
    return ReportObjectives(
        rows=[row for row in rows if names is None or row.query in names],
        runs=runs.count(),
        since=runs.aggregate(first=Min("created_at"))["first"],
    )


def _periods(runs: QuerySet[EstimateRun]) -> dict[int, QueryPeriod]:
    counts = (
        QueryEstimate.objects.filter(run__in=runs)
        .order_by()
        .values("query_id")
        .annotate(
            runs=Count("pk"),
            held=Count("pk", filter=Q(state=ObjectiveState.HOLDS)),
            at_risk=Count("pk", filter=Q(state=ObjectiveState.AT_RISK)),
            broken=Count("pk", filter=Q(state=ObjectiveState.BREACHED)),
            highest_s=Max("estimate_s"),
            first_broken=Min("run__created_at", filter=Q(state=ObjectiveState.BREACHED)),
        )
    )
    return {row.pop("query_id"): QueryPeriod(**row) for row in counts}


def _query(row: QueryEstimate, period: QueryPeriod | None) -> ReportQuery:
    answer, bottleneck, standing = row.answer, row.answer.bottleneck, row.standing
    headroom_s, headroom_share = row.headroom
    return ReportQuery(
        query=row.query.name,
        team=str(row.query.team or ""),
        version=row.version.number,
        statistic=row.statistic,
        bound_s=row.bound_s,
        estimate_s=row.estimate_s,
        low_s=row.low_s,
        high_s=row.high_s,
        worst_s=row.worst_s,
        mean_s=answer.mean_s,
        quantiles=dict(answer.quantiles),
        headroom_s=headroom_s,
        headroom_share=headroom_share,
        standing=answer.standing.sentence,
        measured_s=row.measured_s,
        evidence=evidence_words(standing) if standing is not None else "",
        cause=cause_sentence(standing.lateness[0]) if standing is not None and standing.causes else "",
        resolution_s=answer.resolution_s,
        state=row.judged_state,
        bottleneck=(bottleneck.node or bottleneck.server) if bottleneck else "",
        bottleneck_load=bottleneck.load_peak if bottleneck else None,
        scheduling=answer.scheduling,
        assumed=sum(entry.evidence == "assumed" for entry in answer.uncovered),
        period=period,
    )


def queries_of(cluster: Cluster, query: str | None, team: str | None) -> QuerySet[Query]:
    """The one query of that name, or those of a team."""
    queries = Query.objects.filter(cluster=cluster).order_by("name")
    return queries.filter(name=query) if query else queries.filter(team__name=team)


def absent_queries(queries: QuerySet[Query], objectives: ReportObjectives) -> list[AbsentQuery]:
    """Those of the queries that do not run."""
    known = {row.query for row in objectives.rows}
    return [AbsentQuery(query.name, query.get_state_display()) for query in queries if query.name not in known]


def latency_curves(run: EstimateRun | None, objectives: ReportObjectives) -> dict[str, LatencyCurve]:
    """Curves of the queries, where they were kept."""
    names = {row.query for row in objectives.rows}
    rows = QueryEstimate.objects.filter(run=run, query__name__in=names, series__isnull=False).select_related("query")
    curves = {}
    for row in rows:
        series = curves_unpack(row.series)
        width = -(-len(series["time_s"]) // _POINTS)
        flow_s = [round(value, 6) for value in step_maxima(series["flow_s"], _POINTS).tolist()]
        curves[row.query.name] = LatencyCurve(series["time_s"][::width], flow_s)
    return curves


_COLUMNS: Sequence[ReportColumn[ReportQuery]] = (
    ReportColumn("Query", "query", state=lambda row: row.state, strong=True, width=2.3),
    ReportColumn("Team", "team", write=or_missing, width=1.3),
    ReportColumn("Objective", "objective_s", "bound_s", show=lambda row: row.objective, num=True, width=1.3),
    ReportColumn("Measured", "measured_s", show=lambda row: row.beside_bound(row.measured_s), num=True),
    ReportColumn("Estimate", "estimate_s", show=lambda row: row.beside_bound(row.estimate_s), num=True),
    ReportColumn("Interval, 90%", "interval_high_s", "high_s", show=lambda row: row.interval, num=True, width=1.6),
    ReportColumn("Headroom", "headroom_share", write=percent, strong=lambda row: row.is_breached, num=True),
    ReportColumn("Held in the period", "held_estimates", show=lambda row: row.held, num=True, width=1.6),
)


def _table(objectives: ReportObjectives) -> Block:
    return ReportTable("objectives", "Objectives", _COLUMNS, objectives.rows)


def objective_blocks(objectives: ReportObjectives, zone: ZoneInfo) -> Iterator[Block]:
    """Bars against objectives, then the numbers, then what was broken in the period."""
    yield ReportHeading("objectives", "Objectives and headroom", "Least headroom first")
    if not objectives.rows:
        yield ReportText("Nothing was estimated yet: no query runs. Admit one, and the next report will speak of it.")
        return
    if judged := objectives.judged:
        queries = counted(len(judged), "query", "queries")
        finding = f"Estimates of {queries} against objectives; the nearest to its own is {judged[0].query}."
        if len(judged) > _DRAWN:
            finding = f"{finding} The {_DRAWN} with least headroom are drawn."
        yield ReportPicture(finding, partial(_headroom_bars, judged[:_DRAWN]), _BAR_KEY)
    yield _table(objectives)
    yield ReportText(_period(objectives, zone), quiet=True)


def _period(objectives: ReportObjectives, zone: ZoneInfo) -> str:
    """Which objectives were broken since the last report, and since when."""
    if not objectives.runs:
        return "The period holds no other estimate than the one above."
    estimates = counted(objectives.runs, "estimate")
    names = [
        f"{row.query} in {row.period.broken} of {row.period.runs}, first on "
        f"{local_day(row.period.first_broken, zone)}, at most {seconds(row.period.highest_s)}"
        for row in objectives.rows
        if row.period is not None and row.period.first_broken is not None
    ]
    if not names:
        return f"In the {estimates} of the period no objective was over its bound."
    return f"Over their objectives in the {estimates} of the period: {'; '.join(names[:8])}."


def _headroom_bars(rows: Sequence[ReportQuery], width: float) -> Drawing:
    """Estimate, interval and objective of each query on one scale: shares of its objective."""
    names = max((text_width(row.query, 8.5) for row in rows), default=0)
    words = max((text_width(bound_words(row.estimate_s, row.bound_s), 8) for row in rows), default=0)
    gaps = max((text_width(_headroom_words(row.headroom_s), 8) for row in rows), default=0)
    left = min(_SCREEN * names + 18, 0.3 * width)
    bar = width - left - max(118.0, _SCREEN * (words + gaps) + 22)
    height = _ROW * len(rows) + 12
    x = left + _OBJECTIVE_AT * bar
    shapes: list[Shape] = []
    for i, row in enumerate(rows):
        shapes += _headroom_row(row, left, bar, 12 + _ROW * (i + 1) - 3.5, width)
    shapes.append(path("M", x, height, "V", 11, stroke="c-objective", stroke_width=1.3))
    shapes.append(label(x, 8, "Objective", size=7.5, colour="c-objective", bold=True, anchor="middle"))
    return Drawing(width, height, shapes)


def _headroom_row(row: ReportQuery, left: float, bar: float, base: float, width: float) -> list[Shape]:
    x = Scale(0, (row.bound_s or 0.0) / _OBJECTIVE_AT, begin=left, end=left + bar)
    end, limit = x(row.estimate_s), left + _OBJECTIVE_AT * bar
    shapes = [
        state_shape(row.state, 0, base - 8, 8.5),
        label(12, base - 1, fitted(row.query, (left - 16) / _SCREEN), size=8.5, colour="ink"),
        rect(left, base - 7, bar, 7, fill="sunken"),
    ]
    if row.low_s is not None and row.high_s is not None:
        low, high = x(row.low_s), x(row.high_s)
        shapes.append(rect(low, base - 8.5, max(high - low, 0.8), 10, fill="c-band"))
    shapes.append(rect(left, base - 6, min(end, limit) - left, 5, fill="c-fill"))
    if end > limit:
        shapes.append(rect(limit, base - 6, end - limit, 5, fill="bad"))
    shapes.append(path("M", end, base + 1.5, "V", base - 8.5, stroke="c-estimate", stroke_width=1.6))
    words = bound_words(row.estimate_s, row.bound_s)
    shapes.append(label(left + bar + 8, base - 1, words, size=8, colour="ink-2"))
    is_over = row.headroom_s is None or row.headroom_s < 0
    colour = "bad" if is_over else "ink-3"
    return [
        *shapes,
        label(width, base - 1, _headroom_words(row.headroom_s), size=8, colour=colour, bold=is_over, anchor="end"),
    ]


def _headroom_words(gap_s: float | None) -> str:
    """Words for what is left of an objective; there is no such number where a latency is unknown, or only grows."""
    if gap_s is None:
        return "no headroom"
    return f"{seconds(-gap_s)} over" if gap_s < 0 else f"{seconds(gap_s)} left"


_STATES: dict[str, str] = {
    ObjectiveState.HOLDS: "holds",
    ObjectiveState.AT_RISK: "may be missed",
    ObjectiveState.BREACHED: "is missed",
    ObjectiveState.UNKNOWN: "is not known to hold",
}
_LATENCY_COLUMNS: Sequence[ReportColumn[ReportQuery]] = (
    ReportColumn("Query", "query", strong=True, width=2.4),
    ReportColumn("Worst case", "worst_s", write=seconds, num=True),
    ReportColumn("Mean", "mean_s", write=seconds, num=True),
    ReportColumn("Median", "median_s", write=seconds, num=True),
    ReportColumn("p90", "p90_s", write=seconds, num=True),
    ReportColumn("p99", "p99_s", write=seconds, num=True),
    ReportColumn("Objective", "objective_s", "bound_s", show=lambda row: row.objective, num=True, width=1.5),
    ReportColumn("State", "state", show=lambda row: row.state_words, state=lambda row: row.state, width=1.6),
)


def latency_blocks(
    objectives: ReportObjectives, curves: dict[str, LatencyCurve], absent: Sequence[AbsentQuery]
) -> Iterator[Block]:
    """Latency of events: the numbers, the curve of each query, and how its objective was kept."""
    yield ReportHeading("latency", "How long events take", "The longest first")
    if not objectives.rows:
        yield ReportText("Nothing of it runs now, so there is no latency to report.")
    else:
        longest = sorted(objectives.rows, key=lambda row: -row.worst_s)
        yield ReportTable("latency", "Latency", _LATENCY_COLUMNS, longest)
        for row in longest[:_MAX_CURVES]:
            if row.query in curves and row.worst_s > 0:
                yield _curve(row, curves[row.query])
        yield ReportHeading("objectives", "Objectives", "Least headroom first")
        if len(objectives.judged) > 1:
            finding = "Estimates as a share of their objectives."
            yield ReportPicture(finding, partial(_headroom_bars, objectives.judged[:_DRAWN]), _BAR_KEY)
        yield _table(objectives)
    if absent:
        yield ReportText(f"Not running, so not estimated: {', '.join(map(str, absent))}.", quiet=True)


def _curve(row: ReportQuery, curve: LatencyCurve) -> ReportPicture:
    finding = f"{row.query}: mean path of events by when they happened, at most {seconds(max(curve.flow_s))}."
    bound_s = row.bound_s if row.statistic == "worst" else None
    key = [("estimate", "Mean path"), *([("objective-line", "Objective")] if bound_s else [])]
    return ReportPicture(finding, partial(_draw, curve, bound_s or 0.0), key)


def _draw(curve: LatencyCurve, bound_s: float, width: float) -> Drawing:
    times = curve.time_s
    plot = Plot(width, 150, (times[0], times[-1]), max([*curve.flow_s, bound_s]) * 1.08 or 1.0, right=86)
    plot.y_axis(lambda value, is_top: f"{significant(value)}{' s' if is_top else ''}")
    plot.x_axis([(60 * value, significant(value)) for value in nice_ticks(times[-1] / 60, 6)], "min")
    plot.curve(Curve("c-estimate", "", times, curve.flow_s))
    if bound_s:
        plot.objective(bound_s, f"Objective {seconds(bound_s)}")
    return plot.drawing()
