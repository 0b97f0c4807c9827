"""The list of a cluster's queries, and the list of one query's estimates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.db.models import Count, F, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.core.reach import is_seen_in_part
from apps.estimates.models import EstimateRun, QueryEstimate
from apps.estimates.selectors import (
    expected_counts,
    objective_statuses,
    objectives_by_headroom,
    queries_judged,
    state_counts,
)
from apps.fleet.models import Cluster
from apps.pages.context import url_of
from apps.pages.labels import LABELS_TEXT, label_filters, labels_column, named_with_labels, with_labels_text
from apps.pages.overview.tables import (
    estimate_cell,
    estimate_figures,
    interval_cell,
    measured_columns,
    objective_bar,
    objective_text,
    state_and_name,
)
from apps.pages.queries.capacity import capacity_cell
from apps.pages.saved_views.bar import open_views
from apps.queries.choices import QueryState
from apps.queries.models import Query
from apps.queries.selectors import QueryFilter, queries_never_run
from apps.saved_views.models import SavedList
from apps.ui.marks import STATES, expected_mark
from apps.ui.numbers import MISSING, percent, ratio, seconds
from apps.ui.sentences import server_tag
from apps.ui.tables import Choice, Column, Filter, Table, address, judged_choice
from apps.ui.times import time_tag

__all__ = ["QueriesTable", "QueryLine", "estimates_table", "queries_sentence", "queries_table"]


_ORDER = ("breached", "at_risk", "unknown", "holds", "none", "no_estimate", "queued", "draft", "stopped")
_TONES = {"breached": "bad", "at_risk": "watch", "unknown": "watch"}


@dataclass(frozen=True)
class QueryLine:
    """A query and, where it runs, its newest estimate."""

    query: Query
    estimate: QueryEstimate | None
    never_ran: bool
    state: str  #: against the objective while it runs, else the query's own

    @property
    def evidence(self) -> str:
        """Mark of its numbers as long as nobody knows its costs."""
        if not self.never_ran:
            return ""
        return "unmeasured" if self.query.state == QueryState.RUNNING else "never_ran"

    @property
    def mark(self) -> str:
        """Key of the mark of its state: whether that is measured or estimated is seen."""
        status = getattr(self.query, "objective_status", None)
        if self.query.state != QueryState.RUNNING or status is None or status.state != self.state:
            return self.state
        return str(status.mark)

    @property
    def capacity(self) -> Mapping[str, Any] | None:
        """Its capacity as it is kept; None of one that was estimated without."""
        return getattr(self.estimate, "capacity", None)

    @property
    def headroom_share(self) -> float | None:
        status = getattr(self.query, "objective_status", None) if self.query.state == QueryState.RUNNING else None
        if status is not None:
            return float(status.headroom_share) if status.headroom_share is not None else None
        return self.estimate.headroom[1] if self.estimate else None


def query_lines(run: EstimateRun | None, queries: Sequence[Any]) -> list[QueryLine]:
    """Some queries of `queries_judged` with what the run says of those that are running."""
    running = [query.pk for query in queries if query.state == QueryState.RUNNING]
    rows = objectives_by_headroom(run).filter(query__in=running).defer("series", "result") if run and running else None
    if rows is not None:
        rows = rows.annotate(capacity=F("result__capacity"))
    estimates = {row.query_id: row for row in rows or ()}
    new = queries_never_run(query.pk for query in queries)
    return [QueryLine(query, estimates.get(query.pk), query.pk in new, query.shown_state) for query in queries]


def queries_sentence(counts: Mapping[str, int], expected: Mapping[str, int]) -> str:
    """9 running: 1 expected over the objective, 1 at risk, 7 hold. 2 drafts, 1 queued."""
    if not counts:
        return "None yet. Describe a query, then preview its admission."
    split = {**counts}
    for state in set(expected) & {"breached", "holds"}:
        split[state] -= expected[state]
        split[f"expected_{state}"] = expected[state]
    judged = [f"{n} {words}" for state, words in _RUNNING_WORDS if (n := split.get(state, 0))]
    others = [f"{n} {words}" for state, words in _OTHER_WORDS if (n := counts.get(state, 0))]
    running = sum(split.get(state, 0) for state, _ in _RUNNING_WORDS)
    text = f"{running} running: {', '.join(judged)}." if judged else "None running."
    return f"{text} {', '.join(others)}." if others else text


_RUNNING_WORDS = (
    ("breached", "over the objective"),
    ("expected_breached", "expected over the objective"),
    ("at_risk", "at risk"),
    ("unknown", "of unknown latency"),
    ("holds", "within the objective"),
    ("expected_holds", "within the objective by estimate"),
    ("none", "without an objective"),
    ("no_estimate", "not estimated yet"),
)
_OTHER_WORDS = (("queued", "queued"), ("draft", "not admitted yet"), ("stopped", "stopped"))


def queries_table(request: HttpRequest, cluster: Cluster, run: EstimateRun | None, *, can_change: bool) -> QueriesTable:
    """Least headroom first; chips by state and by team."""
    views = open_views(request, SavedList.QUERIES)
    empty = {
        "icon": "queries",
        "title": "No queries yet",
        "text": "Describe a query by its operators, then preview its admission.",
    }
    if is_seen_in_part(cluster.pk):
        empty |= {"title": "No queries of yours", "text": "Shown are those of your teams, and with your labels."}
    if can_change:
        empty |= {"url": reverse("pages:query-new", args=[cluster.slug]), "action": "New query", "action_icon": "plus"}
    rows = queries_judged(cluster, run)
    labels = label_filters(request, rows)
    counts, expected = state_counts(rows), expected_counts(rows)
    return QueriesTable(
        request,
        [
            *_columns(request, cluster.slug, objective_statuses().filter(query__cluster=cluster, lacking="").exists()),
            labels_column(request, of=lambda line: line.query.labels),
        ],
        with_labels_text(rows).select_related("objective_status", "team").defer("backlogs"),
        caption="Queries",
        default_sort="headroom",
        filters=[_states(counts, expected, request.GET.get("state", "")), *_teams(rows), *labels],
        filterset=QueryFilter,
        search=["name", "team__name", "description", LABELS_TEXT],
        search_label="Name, team, label or description",
        views=views,
        load=partial(query_lines, run),
        row_count=sum(counts.values()),
        file_name=f"queries-{cluster.slug}",
        select=can_change and bool(counts),
        identify=lambda query: query.name,
        empty=empty,
        counts=counts,
        expected=expected,
    )


@dataclass
class QueriesTable(Table):
    """The list of queries, with how many are in each state."""

    counts: Mapping[str, int] = field(default_factory=dict)
    expected: Mapping[str, int] = field(default_factory=dict)  #: of them, by an estimate alone


def _states(counts: Mapping[str, int], expected: Mapping[str, int], chosen: str) -> Filter:
    """States of the rows, and the chosen one: that no query is breached any more is an answer, too."""
    choices = []
    for state in _ORDER:
        count = counts.get(state, 0)
        if count or state == chosen:
            choices.append(judged_choice(state, count, expected.get(state, 0)))
    keep = lambda rows, value: rows.filter(shown_state=value)  # noqa: E731
    return Filter("state", choices, keep, "All", sum(counts.values()))


def _teams(rows: QuerySet[Query]) -> list[Filter]:
    teams = rows.exclude(team=None).order_by("team__name").values_list("team__name").annotate(n=Count("pk"))
    choices = [Choice(team, team, n) for team, n in teams[: _MAX_TEAMS + 1]]
    if not 1 < len(choices) <= _MAX_TEAMS:
        return []
    return [Filter("team", choices, lambda rows, value: rows.filter(team__name=value), "Every team")]


_MAX_TEAMS = 6  # more are no row of chips


def _state(line: QueryLine) -> SafeString:
    """The word; its shape stands before the name."""
    return format_html('<span class="{}">{}</span>', _TONES.get(line.state, "sub"), STATES[line.mark].label)


def _bar(line: QueryLine) -> Any:
    row = line.estimate
    if row is None or not row.bound_s:
        return ""
    return objective_bar(row)


def _estimate(line: QueryLine) -> Any:
    if line.estimate is None:
        return format_html('<span class="muted">{}</span>', "predicted" if line.never_ran else "none yet")
    interval = interval_cell(line.estimate)
    return format_html('{} <span class="muted sm interval">{}</span>', estimate_cell(line.estimate), interval)


def _bottleneck(slug: str, line: QueryLine) -> Any:
    row = line.estimate
    if row is None or not row.bottleneck_server:
        return MISSING
    load: SafeString = format_html('<span class="muted sm">{}</span>', ratio(row.bottleneck_load))
    server = server_tag(row.bottleneck_server)
    if not row.bottleneck_node:
        return format_html("{} {}", server, load)
    url = reverse("pages:node", args=[slug, row.bottleneck_node])
    return format_html('<a class="name" href="{}">{}</a> {}', url, server, load)


def _columns(request: HttpRequest, slug: str, has_measured: bool) -> list[Column]:
    return [
        Column(
            "query",
            "Query",
            lambda line: named_with_labels(
                state_and_name(
                    line.mark,
                    line.query.name,
                    reverse("pages:query", args=[slug, line.query.name]),
                    evidence=line.evidence,
                ),
                line.query.labels,
                lambda selector: address(request, labels=selector),
            ),
            sort=F("name"),
            csv=lambda line: line.query.name,
        ),
        Column("state", "State", _state, csv=lambda line: line.state),
        Column(
            "objective",
            "Objective",
            lambda line: objective_text(line.query.objective_statistic, line.query.objective_bound_s),
            sort=F("objective_bound_s"),
            csv=lambda line: line.query.objective_bound_s,
            num=True,
        ),
        Column("bar", "Against objective", _bar, csv=lambda line: line.query.objective_statistic, full=True),
        Column(
            "headroom",
            "Headroom",
            lambda line: percent(line.headroom_share).html,
            sort=F("rank"),
            csv=lambda line: line.headroom_share,
            num=True,
            css=lambda line: _TONES.get(line.state, ""),
        ),
        Column(
            "estimate",
            "Estimate",
            _estimate,
            sort=F("estimate_s"),
            csv=lambda line: estimate_figures(line.estimate)[0] if line.estimate else None,
            num=True,
            high_first=True,
        ),
        *measured_columns(has_measured),
        Column(
            "interval",
            "Interval, 90%",
            lambda line: MISSING,
            csv=lambda line: estimate_figures(line.estimate)[1] if line.estimate else None,
            file_only=True,
        ),
        Column(
            "bottleneck",
            "Bottleneck",
            lambda line: _bottleneck(slug, line),
            csv=lambda line: (line.estimate and line.estimate.bottleneck_server) or None,
        ),
        Column(
            "sustains",
            "Sustains",
            lambda line: capacity_cell(line.capacity),
            sort=F("tightest_factor"),
            csv=lambda line: (line.capacity or {}).get("rate_per_s"),
            num=True,
        ),
        Column("team", "Team", lambda line: str(line.query.team or MISSING), sort=F("team_rank")),
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
        Column("state", "State", lambda row: expected_mark(row.state), sort="state", csv=lambda row: row.state),
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
            file_only=True,
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
