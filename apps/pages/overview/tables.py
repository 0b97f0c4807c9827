"""The table of a cluster's running queries against their objectives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db.models import F
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.estimates.choices import Certainty
from apps.estimates.models import QueryEstimate
from apps.estimates.selectors import estimates_named
from apps.estimates.words import lacking_words, measured_words
from apps.pages.context import url_of
from apps.pages.overview.findings import Findings
from apps.queries.choices import ObjectiveState
from apps.queries.selectors import queries_never_run
from apps.ui.marks import STATES, evidence_mark, icon
from apps.ui.numbers import MISSING, percent, seconds, seconds_range
from apps.ui.pictures import headroom_bar, sparkline
from apps.ui.tables import Column, Filter, Table, judged_choice
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
        findings.rows.values_list("pk", flat=True),
        caption="Objectives by headroom",
        default_sort="headroom",
        filters=[_states(findings)],
        page_size=_PAGE,
        load=partial(_objective_lines, findings),
        row_count=findings.row_count,
        identify=lambda key: key,
        file_name=f"objectives-{findings.cluster.slug}",
    )


@dataclass(frozen=True)
class _ObjectiveLine:
    """An estimate of the list, with what is read for those on its page alone."""

    estimate: QueryEstimate
    history: list[float]
    never_ran: bool

    @property
    def share(self) -> float | None:
        return self.estimate.headroom[1]


def _objective_lines(findings: Findings, keys: list[int]) -> list[_ObjectiveLine]:
    rows = estimates_named(keys)
    queries = [row.query_id for row in rows]
    histories, new = findings.histories(queries), queries_never_run(queries)
    return [_ObjectiveLine(row, histories.get(row.query_id, []), row.query_id in new) for row in rows]


def _states(findings: Findings) -> Filter:
    choices = []
    for state in _STATE_ORDER:
        count = findings.counts.get(state, 0)
        if count or state not in (ObjectiveState.NONE, ObjectiveState.UNKNOWN):
            choices.append(judged_choice(state, count, findings.expected_counts.get(state, 0)))
    keep = lambda rows, value: rows.filter(shown_state=value)  # noqa: E731
    return Filter("state", choices, keep, all_count=findings.row_count)


def estimate_figures(row: QueryEstimate) -> tuple[float | None, float | None]:
    """Estimate and upper end of its interval, for files; None of each that nobody knows or that has no end."""
    if row.certainty == Certainty.UNKNOWN:
        return None, None
    return row.estimate_s, None if row.certainty == Certainty.ENDLESS else row.high_s


def estimate_cell(row: QueryEstimate) -> SafeString:
    """The estimate; "unknown" where nobody knows it, and "over 25 s" where it only grows."""
    value = seconds(row.estimate_s, apart_from=row.bound_s)
    if row.certainty == Certainty.UNKNOWN:
        title = f"Not known. By what is known an event takes {value}."
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


def measured_columns(has_measured: bool) -> list[Column]:
    """The column of what was measured lately, where anything was, of lines with an `estimate`."""

    def measured(line: Any) -> float | None:
        return line.estimate.measured_s if line.estimate is not None else None

    def text(line: Any) -> SafeString:
        estimate = line.estimate
        standing = estimate.standing if estimate is not None else None
        if standing is None or estimate is None:
            return format_html("{}", MISSING)
        title = measured_words(standing) or lacking_words(standing)
        value = seconds(estimate.measured_s, apart_from=standing.bound_s).html
        tone = "bad" if estimate.measured_s and standing.bound_s and estimate.measured_s > standing.bound_s else ""
        return format_html('<span class="{}" title="{}">{}</span>', tone, title, value)

    if not has_measured:
        return []
    return [Column("measured", "Measured", text, sort=F("measured_rank"), csv=measured, num=True, high_first=True)]


def _spark(findings: Findings, line: _ObjectiveLine) -> SafeString:
    row, values = line.estimate, line.history
    label = f"{row.query.name}, last estimates, now {seconds(row.estimate_s, apart_from=row.bound_s)}"
    times = list(findings.last_runs.values())
    first = times[len(values) - 1] if values else times[0]
    span_s = (times[0] - first).total_seconds()
    return sparkline(values, label, row.bound_s, 44, first=first, span_s=span_s)


def _columns(findings: Findings) -> list[Column]:
    slug = findings.cluster.slug
    return [
        Column(
            "query",
            "Query",
            lambda line: state_and_name(
                line.estimate.mark,
                line.estimate.query.name,
                url_of("pages:query", slug, line.estimate.query.name),
                evidence="unmeasured" if line.never_ran else "",
            ),
            sort=F("query__name"),
            csv=lambda line: line.estimate.query.name,
        ),
        Column(
            "objective",
            "Objective",
            lambda line: objective_text(line.estimate.statistic, line.estimate.bound_s),
            sort=F("bound_s"),
            csv=lambda line: line.estimate.bound_s,
            num=True,
        ),
        Column(
            "bar",
            "Against objective",
            lambda line: objective_bar(line.estimate),
            csv=lambda line: line.estimate.judged_state,
            full=True,
        ),
        Column(
            "headroom",
            "Headroom",
            lambda line: percent(line.share).html,
            sort=F("rank"),
            csv=lambda line: line.share,
            num=True,
            css=lambda line: _TONES.get(line.estimate.judged_state, ""),
        ),
        Column(
            "estimate",
            "Estimate",
            lambda line: estimate_cell(line.estimate),
            sort=F("estimate_s"),
            csv=lambda line: estimate_figures(line.estimate)[0],
            num=True,
            high_first=True,
        ),
        *measured_columns(findings.has_measured),
        Column(
            "interval",
            "Interval, 90%",
            lambda line: interval_cell(line.estimate),
            csv=lambda line: estimate_figures(line.estimate)[1],
            num=True,
            short="Interval",
        ),
        Column("spark", "Last runs", partial(_spark, findings), csv=lambda line: None, hide=True),
    ]
