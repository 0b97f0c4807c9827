"""The table of a cluster's running queries against their objectives."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.estimates.choices import Certainty
from apps.estimates.models import QueryEstimate
from apps.estimates.words import lacking_words, measured_words
from apps.pages.context import url_of
from apps.pages.overview.findings import Findings, headroom_of, headroom_rank
from apps.queries.choices import ObjectiveState
from apps.ui.marks import STATES, evidence_mark, icon
from apps.ui.numbers import MISSING, percent, seconds, seconds_range
from apps.ui.pictures import headroom_bar, sparkline
from apps.ui.tables import Choice, Column, Filter, Table
from engine.words import statistic_text

__all__ = [
    "estimate_cell",
    "estimate_figures",
    "interval_cell",
    "measured_columns",
    "objective_bar",
    "objective_text",
    "objectives_table",
    "state_and_name",
]

_PAGE = 12
_TONES: dict[str, str] = {
    ObjectiveState.BREACHED: "bad",
    ObjectiveState.AT_RISK: "watch",
    ObjectiveState.UNKNOWN: "watch",
}
_STATE_ORDER = (
    ObjectiveState.BREACHED,
    ObjectiveState.AT_RISK,
    ObjectiveState.UNKNOWN,
    ObjectiveState.HOLDS,
    ObjectiveState.NONE,
)


def objective_text(statistic: str, bound_s: float | None) -> SafeString:
    """worst ≤ 10 s."""
    if not bound_s:
        return format_html('<span class="muted">{}</span>', "none")
    return format_html('<span class="muted sm">{} ≤</span> {}', statistic_text(statistic), seconds(bound_s).html)


def state_and_name(state: str, name: str, url: str, note: str = "", evidence: str = "") -> SafeString:
    """A row's heading: the state's icon before the name, the mark of its evidence behind where that is to be seen."""
    mark = STATES[state]
    link = (
        format_html('<a class="name" href="{}">{}</a>', url, name)
        if url
        else format_html('<b class="name">{}</b>', name)
    )
    extra = format_html(' <span class="muted sm">{}</span>', note) if note else ""
    if evidence:
        extra = format_html("{} {}", extra, evidence_mark(evidence, short=True))
    return format_html(
        '<span class="nm">{}{}{}<span class="vh">{}</span></span>',
        icon(mark.drawing, mark.tone or "muted"),
        link,
        extra,
        mark.label,
    )


def objectives_table(request: HttpRequest, findings: Findings) -> Table:
    """Least headroom first; chips by state."""
    return Table(
        request,
        _columns(findings),
        findings.rows,
        caption="Objectives by headroom",
        default_sort="headroom",
        filters=[_states(findings)],
        page_size=_PAGE,
        file_name=f"objectives-{findings.cluster.slug}",
    )


def _states(findings: Findings) -> Filter:
    choices = []
    for state in _STATE_ORDER:
        count = len(findings.with_state(state))
        if count or state not in (ObjectiveState.NONE, ObjectiveState.UNKNOWN):
            mark = STATES[state]
            choices.append(Choice(state, mark.label, count, mark.drawing, mark.tone or "muted"))
    return Filter("state", choices, _keep_state, all_count=len(findings.rows))


def _keep_state(rows: list[QueryEstimate], value: str) -> list[QueryEstimate]:
    return [row for row in rows if row.judged_state == value]


def _share(row: QueryEstimate) -> float | None:
    return headroom_of(row)[1]


def _tone(row: QueryEstimate) -> str:
    return _TONES.get(row.judged_state, "")


def estimate_figures(row: QueryEstimate) -> tuple[float | None, float | None]:
    """Estimate and upper end of its interval, for files; None of each that nobody knows or that has no end."""
    if row.certainty == Certainty.UNKNOWN:
        return None, None
    return row.estimate_s, None if row.certainty == Certainty.ENDLESS else row.high_s


def estimate_cell(row: QueryEstimate) -> SafeString:
    """The estimate; "unknown" where nothing comes out, and "over 25 s" where it only grows."""
    value = seconds(row.estimate_s, apart_from=row.bound_s)
    if row.certainty == Certainty.UNKNOWN:
        title = f"Nothing comes out. One event would take {value}."
        return format_html('<span class="watch" title="{}">{}</span>', title, "unknown")
    if row.certainty == Certainty.ENDLESS:
        title = "It reaches this within the horizon, and grows on."
        return format_html('<span class="bad" title="{}"><span class="sm">over</span> {}</span>', title, value.html)
    return value.html


def interval_cell(row: QueryEstimate) -> SafeString:
    """The 90 % interval; in its place the word for a latency without one."""
    if row.certainty == Certainty.UNKNOWN:
        return format_html("{}", MISSING)
    if row.certainty == Certainty.ENDLESS:
        return format_html('<span class="bad">{}</span>', "never catches up")
    if row.high_s is None:
        return format_html('<span class="muted">{}</span>', "none yet")
    return seconds_range(row.low_s, row.high_s, apart_from=row.bound_s).html


def objective_bar(row: QueryEstimate) -> SafeString:
    """Estimate, interval and measurement against the objective; nothing where neither is known."""
    is_endless = row.certainty == Certainty.ENDLESS
    if row.certainty == Certainty.UNKNOWN and row.measured_s is None:
        return SafeString("")
    low_s, high_s = (None, None) if is_endless else (row.low_s, row.high_s)
    return headroom_bar(
        row.estimate_s,
        row.bound_s,
        low_s,
        high_s,
        measured_s=row.measured_s,
        name=row.query.name,
        is_endless=is_endless,
    )


def measured_columns(has_measured: bool, estimate_of: Callable[[Any], QueryEstimate | None]) -> list[Column]:
    """The column of what was measured lately, where anything was; `estimate_of` is a row's estimate."""

    def measured(row: Any) -> float | None:
        estimate = estimate_of(row)
        return estimate.measured_s if estimate is not None else None

    def text(row: Any) -> SafeString:
        estimate = estimate_of(row)
        standing = estimate.standing if estimate is not None else None
        if standing is None or estimate is None:
            return format_html("{}", MISSING)
        title = measured_words(standing) or lacking_words(standing)
        value = seconds(estimate.measured_s, apart_from=standing.bound_s).html
        tone = "bad" if estimate.measured_s and standing.bound_s and estimate.measured_s > standing.bound_s else ""
        return format_html('<span class="{}" title="{}">{}</span>', tone, title, value)

    if not has_measured:
        return []
    return [Column("measured", "Measured", text, sort=measured, csv=measured, num=True, high_first=True)]


def _spark(findings: Findings, row: QueryEstimate) -> SafeString:
    label = f"{row.query.name}, last estimates, now {seconds(row.estimate_s, apart_from=row.bound_s)}"
    values, times = findings.history.get(row.query_id, []), list(findings.last_runs.values())
    first = times[len(values) - 1] if values else times[0]
    span_s = (times[0] - first).total_seconds()
    return sparkline(values, label, row.bound_s, 44, first=first, span_s=span_s)


def _columns(findings: Findings) -> list[Column]:
    slug = findings.cluster.slug
    return [
        Column(
            "query",
            "Query",
            lambda row: state_and_name(
                row.judged_state,
                row.query.name,
                url_of("pages:query", slug, row.query.name),
                evidence="unmeasured" if row.query_id in findings.never_run else "",
            ),
            sort=lambda row: row.query.name,
            csv=lambda row: row.query.name,
        ),
        Column(
            "objective",
            "Objective",
            lambda row: objective_text(row.statistic, row.bound_s),
            sort=lambda row: row.bound_s,
            csv=lambda row: row.bound_s,
            num=True,
        ),
        Column("bar", "Against objective", objective_bar, csv=lambda row: row.judged_state, full=True),
        Column(
            "headroom",
            "Headroom",
            lambda row: percent(_share(row)).html,
            sort=lambda row: headroom_rank(row.judged_state, _share(row)),
            csv=_share,
            num=True,
            css=_tone,
        ),
        Column(
            "estimate",
            "Estimate",
            estimate_cell,
            sort=lambda row: row.estimate_s,
            csv=lambda row: estimate_figures(row)[0],
            num=True,
            high_first=True,
        ),
        *measured_columns(findings.has_measured, lambda row: row),
        Column(
            "interval",
            "Interval, 90%",
            interval_cell,
            csv=lambda row: estimate_figures(row)[1],
            num=True,
            short="Interval",
        ),
        Column("spark", "Last runs", partial(_spark, findings), csv=lambda row: None, hide=True),
    ]
