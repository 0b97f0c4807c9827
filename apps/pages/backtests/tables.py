"""Tables of backtests: those asked, and the requests of one."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.fleet.models import Cluster
from apps.pages.backtests.facts import BacktestFacts, moment_of, outcome_mark, period_words, policy_words
from apps.pages.context import url_of
from apps.pages.saved_views.bar import open_views
from apps.planning.backtests.selectors import backtests_visible
from apps.planning.choices import ANSWER_STATES, RunState
from apps.planning.filters import BacktestFilter
from apps.planning.models import BacktestRun
from apps.saved_views.choices import SavedList
from apps.ui.marks import state_mark
from apps.ui.tables import Choice, Column, Filter, Table, request_columns
from apps.ui.times import time_tag

__all__ = ["backtests_table", "requests_table"]

_STATES = {
    RunState.ASKED: "running",
    RunState.ANSWERED: "succeeded",
    RunState.FAILED: "failed",
    RunState.CANCELLED: "cancelled",
}


def backtests_table(request: HttpRequest, cluster: Cluster) -> Table:
    """Newest first."""
    states = [Choice(value, label) for value, label in ANSWER_STATES]
    return Table(
        request,
        [
            Column("policy", "Policy", _policy, csv=lambda row: policy_words(row.policy)),
            Column("period", "Period", _period, sort="since", csv=_period, full=True),
            Column("finding", "Finding", _finding, csv=_finding, full=True),
            Column("state", "State", _state, sort="state", csv=lambda row: row.state),
            *request_columns(),
        ],
        backtests_visible().filter(cluster=cluster),
        caption="Backtests",
        default_sort="-created",
        filters=[Filter("state", states, all_label="Any state")],
        filterset=BacktestFilter,
        views=open_views(request, SavedList.BACKTESTS),
        file_name=f"backtests-{cluster.slug}",
        empty={
            "icon": "undo",
            "title": "No backtest yet",
            "text": "Choose a period and a policy: it is replayed beside what was really decided.",
        },
    )


def _policy(row: BacktestRun) -> SafeString:
    url = reverse("pages:backtest", args=[row.cluster.slug, row.pk])
    words = policy_words(row.policy)
    return format_html('<a class="name" href="{}">{}</a>', url, words[0].upper() + words[1:])


def _period(row: BacktestRun) -> str:
    return period_words(row.since, row.until)


def _finding(row: BacktestRun) -> str:
    return row.facts.get("headline", "–")


def _state(row: BacktestRun) -> SafeString:
    return state_mark(_STATES[RunState(row.state)], RunState(row.state).label)


def requests_table(request: HttpRequest, facts: BacktestFacts) -> Table:
    """Every request under both policies."""
    kinds = [Choice("differs", "Differs"), Choice("same", "Same")]
    return Table(
        request,
        [
            Column(
                "query", "Query", lambda row: _query(facts, row), sort=lambda row: row["query"], csv=_plain("query")
            ),
            Column("asked", "Asked", _asked, sort=lambda row: row["at_s"], csv=lambda row: moment_of(row["at_s"])),
            Column(
                "recorded",
                "As recorded",
                lambda row: outcome_mark(row["recorded"]),
                short="Recorded",
                csv=_plain("recorded"),
            ),
            Column("outcome", "This policy", _outcome, short="Policy", csv=_plain("outcome")),
            Column("why", "Why", _why, csv=_plain("reason"), full=True, css=lambda row: "long"),
        ],
        facts.requests,
        caption="Requests",
        default_sort="asked",
        filters=[
            Filter(
                "differs",
                kinds,
                lambda rows, value: [row for row in rows if row["differs"] == (value == "differs")],
                "Every request",
            )
        ],
        file_name=f"backtest-{facts.row.pk}",
        identify=lambda row: row["id"],
        empty={
            "icon": "admission",
            "title": "Nobody asked in this period",
            "text": "Requests made later count too if all are asked at the beginning of the period.",
        },
    )


def _plain(name: str) -> Any:
    return lambda row: row[name]


def _query(facts: BacktestFacts, row: dict[str, Any]) -> SafeString:
    url = url_of("pages:admission", facts.cluster.slug, row["id"]) if row["id"] else ""
    return (
        format_html('<a class="name" href="{}">{}</a>', url, row["query"]) if url else format_html("{}", row["query"])
    )


def _asked(row: dict[str, Any]) -> SafeString:
    return time_tag(moment_of(row["at_s"]), relative=False)


def _why(row: dict[str, Any]) -> SafeString:
    """The policy's reason, and the recorded one where they differ."""
    if not row["differs"] or not row["recorded_reason"]:
        return format_html("{}", row["reason"])
    was = row["recorded_reason"]
    return format_html(
        '<div class="bt-why">{} <small class="muted bt-was">As recorded: {}</small></div>', row["reason"], was
    )


def _outcome(row: dict[str, Any]) -> SafeString:
    mark = outcome_mark(row["outcome"])
    return format_html('{} <small class="muted">differs</small>', mark) if row["differs"] else mark
