"""The list of a cluster's queries, and the list of one query's estimates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.estimates.models import EstimateRun, ObjectiveStatus, QueryEstimate
from apps.estimates.selectors import objectives_by_headroom
from apps.fleet.models import Cluster
from apps.pages.context import url_of
from apps.pages.overview.findings import headroom_of, headroom_rank
from apps.pages.overview.tables import (
    estimate_cell,
    estimate_figures,
    interval_cell,
    measured_columns,
    objective_bar,
    objective_text,
    state_and_name,
)
from apps.pages.saved_views.bar import open_views
from apps.queries.choices import QueryState
from apps.queries.models import Query
from apps.queries.selectors import queries_listed, queries_never_run
from apps.saved_views.models import SavedList
from apps.ui.marks import STATES, state_mark
from apps.ui.numbers import MISSING, percent, ratio, seconds
from apps.ui.sentences import server_tag
from apps.ui.tables import Choice, Column, Filter, Table
from apps.ui.times import time_tag
from engine.estimation.answer import Bottleneck

__all__ = ["QueryLine", "estimates_table", "queries_sentence", "queries_table", "query_lines"]


_ORDER = ("breached", "at_risk", "unknown", "holds", "none", "no_estimate", "queued", "draft", "stopped")
_TONES = {"breached": "bad", "at_risk": "watch", "unknown": "watch"}


@dataclass(frozen=True)
class QueryLine:
    """A query and, where it runs, its newest estimate and its status."""

    query: Query
    estimate: QueryEstimate | None
    never_ran: bool = False

    @property
    def evidence(self) -> str:
        """Mark of its numbers as long as nobody knows its costs."""
        if not self.never_ran:
            return ""
        return "unmeasured" if self.query.state == QueryState.RUNNING else "never_ran"

    @property
    def state(self) -> str:
        """State against the objective while it runs, else the query's own."""
        if self.query.state != QueryState.RUNNING:
            return str(self.query.state)
        if self.standing is not None:
            return str(self.standing.state)
        return self.estimate.judged_state if self.estimate else "no_estimate"

    @property
    def estimate_s(self) -> float | None:
        return self.estimate.estimate_s if self.estimate else None

    @property
    def headroom_share(self) -> float | None:
        if self.standing is not None:
            return self.standing.headroom_share
        return headroom_of(self.estimate)[1] if self.estimate else None

    @property
    def standing(self) -> ObjectiveStatus | None:
        """Its status by measurement and estimate, while it runs."""
        return getattr(self.query, "objective_status", None) if self.query.state == QueryState.RUNNING else None

    @property
    def bottleneck(self) -> Bottleneck | None:
        return self.estimate.answer.bottleneck if self.estimate else None


def query_lines(cluster: Cluster, run: EstimateRun | None) -> list[QueryLine]:
    """Every query of a cluster, by name, with what the run says of those that are running."""
    estimates = {row.query_id: row for row in objectives_by_headroom(run)} if run else {}
    rows: QuerySet[Query] = queries_listed().filter(cluster=cluster).order_by("name")
    new = queries_never_run(cluster)
    return [
        QueryLine(query, estimates.get(query.pk) if query.state == QueryState.RUNNING else None, query.pk in new)
        for query in rows
    ]


def queries_sentence(lines: list[QueryLine]) -> str:
    """9 running: 1 breached, 1 at risk, 7 hold. 2 drafts, 1 queued."""
    if not lines:
        return "None yet. Describe a query, then preview its admission."
    running = [line for line in lines if line.query.state == QueryState.RUNNING]
    judged = [f"{n} {words}" for state, words in _RUNNING_WORDS if (n := _count(running, state))]
    others = [f"{n} {words}" for state, words in _OTHER_WORDS if (n := _count(lines, state))]
    text = f"{len(running)} running: {', '.join(judged)}." if judged else "None running."
    return f"{text} {', '.join(others)}." if others else text


_RUNNING_WORDS = (
    ("breached", "over the objective"),
    ("at_risk", "at risk"),
    ("unknown", "of unknown latency"),
    ("holds", "within the objective"),
    ("none", "without an objective"),
    ("no_estimate", "not estimated yet"),
)
_OTHER_WORDS = (("queued", "queued"), ("draft", "not admitted yet"), ("stopped", "stopped"))


def _count(lines: list[QueryLine], state: str) -> int:
    return sum(line.state == state for line in lines)


def queries_table(request: HttpRequest, cluster: Cluster, lines: list[QueryLine], *, can_change: bool) -> Table:
    """Least headroom first; chips by state and by team."""
    views = open_views(request, SavedList.QUERIES)
    empty = {
        "icon": "queries",
        "title": "No queries yet",
        "text": "Describe a query by its operators, then preview its admission.",
    }
    if can_change:
        empty |= {"url": reverse("pages:query-new", args=[cluster.slug]), "action": "New query", "action_icon": "plus"}
    return Table(
        request,
        _columns(cluster.slug, any(line.estimate and line.estimate.measured_s is not None for line in lines)),
        lines,
        caption="Queries",
        default_sort="headroom",
        filters=[_states(lines, request.GET.get("state", "")), *_teams(lines)],
        search=lambda line: f"{line.query.name} {line.query.team} {line.query.description}",
        search_label="Name, team or description",
        views=views,
        file_name=f"queries-{cluster.slug}",
        select=can_change and bool(lines),
        identify=lambda line: line.query.name,
        empty=empty,
    )


def _states(lines: list[QueryLine], chosen: str) -> Filter:
    """States of the rows, and the chosen one: that no query is breached any more is an answer, too."""
    choices = []
    for state in _ORDER:
        count = _count(lines, state)
        if count or state == chosen:
            mark = STATES[state]
            choices.append(Choice(state, mark.label, count, mark.drawing, mark.tone or "muted"))
    return Filter(
        "state", choices, lambda rows, value: [line for line in rows if line.state == value], "All", len(lines)
    )


def _teams(lines: list[QueryLine]) -> list[Filter]:
    teams = sorted({line.query.team for line in lines if line.query.team})
    if not 1 < len(teams) <= 6:
        return []
    choices = [Choice(team, team, sum(line.query.team == team for line in lines)) for team in teams]
    return [
        Filter("team", choices, lambda rows, value: [line for line in rows if line.query.team == value], "Every team")
    ]


def _state(line: QueryLine) -> SafeString:
    """The word; its shape stands before the name."""
    return format_html('<span class="{}">{}</span>', _TONES.get(line.state, "sub"), STATES[line.state].label)


def _bar(line: QueryLine) -> Any:
    row = line.estimate
    if row is None or not row.bound_s:
        return ""
    return objective_bar(row)


def _estimate(line: QueryLine) -> Any:
    if line.estimate is None:
        return format_html('<span class="muted">{}</span>', "predicted" if line.never_ran else "none yet")
    return estimate_cell(line.estimate)


def _bottleneck(slug: str, line: QueryLine) -> Any:
    bottleneck = line.bottleneck
    if bottleneck is None:
        return MISSING
    load: SafeString = format_html('<span class="muted sm">{}</span>', ratio(bottleneck.load_peak))
    server = server_tag(bottleneck.server)
    if not bottleneck.node:
        return format_html("{} {}", server, load)
    url = reverse("pages:node", args=[slug, bottleneck.node])
    return format_html('<a class="name" href="{}">{}</a> {}', url, server, load)


def _columns(slug: str, has_measured: bool) -> list[Column]:
    return [
        Column(
            "query",
            "Query",
            lambda line: state_and_name(
                line.state,
                line.query.name,
                reverse("pages:query", args=[slug, line.query.name]),
                evidence=line.evidence,
            ),
            sort=lambda line: line.query.name,
            csv=lambda line: line.query.name,
        ),
        Column("state", "State", _state, csv=lambda line: line.state),
        Column(
            "objective",
            "Objective",
            lambda line: objective_text(line.query.objective_statistic, line.query.objective_bound_s),
            sort=lambda line: line.query.objective_bound_s,
            csv=lambda line: line.query.objective_bound_s,
            num=True,
        ),
        Column("bar", "Against objective", _bar, csv=lambda line: line.query.objective_statistic, full=True),
        Column(
            "headroom",
            "Headroom",
            lambda line: percent(line.headroom_share).html,
            sort=lambda line: headroom_rank(line.state, line.headroom_share),
            csv=lambda line: line.headroom_share,
            num=True,
            css=lambda line: _TONES.get(line.state, ""),
        ),
        Column(
            "estimate",
            "Estimate",
            _estimate,
            sort=lambda line: line.estimate_s,
            csv=lambda line: estimate_figures(line.estimate)[0] if line.estimate else None,
            num=True,
            high_first=True,
        ),
        *measured_columns(has_measured, lambda line: line.estimate),
        Column(
            "interval",
            "Interval, 90%",
            lambda line: interval_cell(line.estimate) if line.estimate else MISSING,
            csv=lambda line: estimate_figures(line.estimate)[1] if line.estimate else None,
            num=True,
            short="Interval",
        ),
        Column(
            "bottleneck",
            "Bottleneck",
            lambda line: _bottleneck(slug, line),
            csv=lambda line: line.bottleneck and line.bottleneck.server,
        ),
        Column("team", "Team", lambda line: line.query.team or MISSING, sort=lambda line: line.query.team or None),
    ]


def estimates_table(request: HttpRequest, query: Query) -> Table:
    """Newest first."""
    rows = QueryEstimate.objects.filter(query=query).select_related("run", "version").defer("series", "result")
    return Table(
        request,
        _run_columns(),
        rows.defer("run__result", "run__snapshot_parts", "series", "result"),
        caption="Estimates",
        default_sort="-at",
        file_name=f"estimates-{query.name}",
        empty={
            "icon": "overview",
            "title": "No estimates yet",
            "text": "Queries are estimated together from the moment they are admitted.",
        },
    )


def _run_time(row: QueryEstimate) -> Any:
    tag = time_tag(row.run.created_at, relative=False)
    url = url_of("pages:job", row.run.job_id) if row.run.job_id else ""
    return format_html('<a class="name" href="{}">{}</a>', url, tag) if url else tag


def _run_columns() -> list[Column]:
    return [
        Column(
            "at", "Estimated", _run_time, sort="run__created_at", csv=lambda row: row.run.created_at, high_first=True
        ),
        Column("state", "State", lambda row: state_mark(row.state), sort="state", csv=lambda row: row.state),
        Column("version", "Version", lambda row: row.version.number, sort="version__number", num=True),
        Column(
            "estimate",
            "Estimate",
            estimate_cell,
            sort="estimate_s",
            csv=lambda row: estimate_figures(row)[0],
            num=True,
            high_first=True,
        ),
        Column(
            "interval",
            "Interval, 90%",
            interval_cell,
            csv=lambda row: estimate_figures(row)[1],
            num=True,
            short="Interval",
        ),
        Column(
            "objective",
            "Objective",
            lambda row: seconds(row.bound_s).html,
            sort="bound_s",
            csv=lambda row: row.bound_s,
            num=True,
        ),
        Column(
            "headroom",
            "Headroom",
            lambda row: percent(row.headroom_share).html,
            sort="headroom_share",
            csv=lambda row: row.headroom_share,
            num=True,
        ),
        Column(
            "worst",
            "Worst case",
            lambda row: seconds(row.worst_s).html,
            sort="worst_s",
            csv=lambda row: row.worst_s,
            num=True,
        ),
        Column(
            "mace", "Mace", lambda row: seconds(row.mace_s).html, sort="mace_s", csv=lambda row: row.mace_s, num=True
        ),
    ]
