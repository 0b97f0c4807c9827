"""Backtests: the form, the list, and one with its answer."""

from __future__ import annotations

from datetime import timedelta
from operator import attrgetter
from typing import Any

from django import forms
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.accounts.permissions import signed_in_user
from apps.core.errors import SluiceError
from apps.fleet.models import Cluster
from apps.pages.backtests.facts import BacktestFacts, ReachFacts, moment_of, outcome_mark, period_words, policy_words
from apps.pages.base import ClusterPage, done, try_service
from apps.pages.context import url_of
from apps.pages.crud import Crud
from apps.pages.jobs import run_state_mark
from apps.pages.runs import RunPage
from apps.pages.saved_views.bar import open_views
from apps.planning.backtests import BACKTEST, BacktestFilter, policy_default
from apps.planning.choices import ANSWER_STATES, RequestTiming
from apps.planning.models import BacktestRun
from apps.saved_views.models import SavedList
from apps.ui.tables import Choice, Column, Filter, Table, request_columns
from apps.ui.times import time_tag
from engine.backtest.policy import ReplayPolicy
from engine.backtest.result import ReplayedRequest

__all__ = ["BacktestCrud", "BacktestNow", "BacktestPage", "BacktestsPage"]

PERIODS = {
    "hour": ("Last hour", timedelta(hours=1)),
    "day": ("Last day", timedelta(days=1)),
    "week": ("Last week", timedelta(days=7)),
}
#: Where refusals of the service belong, as paths of faults begin.
FAULTS_AT = {"policy.": "", "cluster": "period"} | {
    f"policy.{name}": name for name in ("admission", "at_risk", "assumed", "headroom", "placement", "max_moves")
}
_LOCAL = "%Y-%m-%dT%H:%M"
_REVIEW_CHOICES = [("admit", "Admit"), ("review", "Leave to a person: not admitted here")]


def backtests_table(request: HttpRequest, cluster: Cluster) -> Table:
    """Newest first."""
    states = [Choice(value, label) for value, label in ANSWER_STATES]
    return Table(
        request,
        [
            Column("policy", "Policy", _policy, csv=lambda row: policy_words(ReplayPolicy.parse(row.policy))),
            Column("period", "Period", _period, sort="since", csv=_period, full=True),
            Column("finding", "Finding", _finding, csv=_finding, full=True),
            Column("state", "State", _state, sort="state", csv=lambda row: row.state),
            *request_columns(),
        ],
        BACKTEST.visible().filter(cluster=cluster),
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
    words = policy_words(ReplayPolicy.parse(row.policy))
    return format_html('<a class="name" href="{}">{}</a>', url, words[0].upper() + words[1:])


def _period(row: BacktestRun) -> str:
    return period_words(row.since, row.until)


def _finding(row: BacktestRun) -> str:
    return row.facts.get("headline", "–")


def _state(row: BacktestRun) -> SafeString:
    return run_state_mark(row)


def requests_table(request: HttpRequest, facts: BacktestFacts) -> Table:
    """Every request under both policies."""
    kinds = [Choice("differs", "Differs"), Choice("same", "Same")]
    return Table(
        request,
        [
            Column("query", "Query", lambda row: _query(facts, row), sort=attrgetter("query"), csv=attrgetter("query")),
            Column("asked", "Asked", _asked, sort=lambda row: row.at_s, csv=lambda row: moment_of(row.at_s)),
            Column(
                "recorded",
                "As recorded",
                lambda row: outcome_mark(row.recorded),
                short="Recorded",
                csv=attrgetter("recorded"),
            ),
            Column("outcome", "This policy", _outcome, short="Policy", csv=attrgetter("outcome")),
            Column("why", "Why", _why, csv=attrgetter("reason"), full=True, css=lambda row: "long"),
        ],
        facts.requests,
        caption="Requests",
        default_sort="asked",
        filters=[
            Filter(
                "differs",
                kinds,
                lambda rows, value: [row for row in rows if row.differs == (value == "differs")],
                "Every request",
            )
        ],
        file_name=f"backtest-{facts.row.pk}",
        identify=lambda row: row.id,
        empty={
            "icon": "admission",
            "title": "Nobody asked in this period",
            "text": "Requests made later count too if all are asked at the beginning of the period.",
        },
    )


def _query(facts: BacktestFacts, row: ReplayedRequest) -> SafeString:
    url = url_of("pages:admission", facts.cluster.slug, row.id) if row.id else ""
    return format_html('<a class="name" href="{}">{}</a>', url, row.query) if url else format_html("{}", row.query)


def _asked(row: ReplayedRequest) -> SafeString:
    return time_tag(moment_of(row.at_s), relative=False)


def _why(row: ReplayedRequest) -> SafeString:
    """The policy's reason, and the recorded one where they differ."""
    if not row.differs or not row.recorded_reason:
        return format_html("{}", row.reason)
    was = row.recorded_reason
    return format_html(
        '<div class="bt-why">{} <small class="muted bt-was">As recorded: {}</small></div>', row.reason, was
    )


def _outcome(row: ReplayedRequest) -> SafeString:
    mark = outcome_mark(row.outcome)
    return format_html('{} <small class="muted">differs</small>', mark) if row.differs else mark


def _moment(label: str, text: str) -> forms.DateTimeField:
    widget = forms.DateTimeInput(attrs={"type": "datetime-local"}, format=_LOCAL)
    return forms.DateTimeField(label=label, required=False, widget=widget, help_text=text)


class BacktestForm(forms.Form):
    """A period in the person's zone, and a policy."""

    period = forms.ChoiceField(
        choices=[*((key, label) for key, (label, _) in PERIODS.items()), ("custom", "From and until, below")],
        initial="week",
        help_text="Only what records reach of it is replayed.",
    )
    since = _moment("From", "With a period of your own; in your time zone.")
    until = _moment("Until", "Empty: now.")
    ask = forms.ChoiceField(
        label="Requests are asked",
        choices=RequestTiming.choices,
        initial=RequestTiming.RECORDED,
        help_text="At the beginning shows what every request does to the whole period.",
    )
    admission = forms.ChoiceField(
        choices=[
            ("mace", "By the engine, with the rules below"),
            ("everything", "Everything is admitted that finds a node"),
            ("recorded", "As it was really decided"),
        ],
        help_text="How each request is decided at the load of its moment.",
    )
    at_risk = forms.ChoiceField(
        label="At risk",
        choices=_REVIEW_CHOICES,
        help_text="The estimate holds, the upper end of its interval does not.",
    )
    assumed = forms.ChoiceField(
        label="Assumed statistics", choices=_REVIEW_CHOICES, help_text="Or measured on too few events to be sure."
    )
    headroom = forms.FloatField(
        initial=0, min_value=0, max_value=90, help_text="Share of every objective that must stay free."
    )
    placement = forms.ChoiceField(
        choices=[
            ("keep", "Stays as it is"),
            ("greedy", "Placed anew by greedy when an objective is threatened"),
            ("search", "Searched anew when an objective is threatened"),
        ],
        help_text="A move is made only where it lowers the worst latency.",
    )
    max_moves = forms.IntegerField(
        label="Moves at most", required=False, min_value=0, help_text="Over the whole period; empty: any number."
    )

    def __init__(self, *args: Any, cluster: Cluster, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, value in policy_default(cluster).items():
            self.fields[name].initial = value

    def clean(self) -> None:
        super().clean()
        data = self.cleaned_data
        if data.get("period") == "custom" and not data.get("since") and "since" not in self.errors:
            self.add_error("since", "Say from when; the period is your own.")

    @property
    def asked(self) -> dict[str, object]:
        """Arguments of `BACKTEST.request`."""
        data = self.cleaned_data
        until = timezone.now()
        if data["period"] == "custom":
            until = data["until"] or until
            since = data["since"]
        else:
            since = until - PERIODS[data["period"]][1]
        names = ("admission", "at_risk", "assumed", "placement", "max_moves")
        policy = {name: data[name] for name in names} | {"headroom": data["headroom"] / 100.0}
        return {"since": since, "until": until, "ask": data["ask"], "policy": policy}


class BacktestsPage(ClusterPage):
    """`/c/<slug>/backtests/`: what records reach, a form, and what was asked."""

    template_name = "pages/backtests/list.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.shown(BacktestForm(cluster=self.cluster))

    def shown(self, form: BacktestForm, status: int = 200) -> HttpResponse:
        """The page with a form as it stands."""
        context: dict[str, object] = {"form": form, "table": backtests_table(self.request, self.cluster)}
        return self.page(context | {"reach": ReachFacts(self.cluster)}, status)


class BacktestNow(BacktestsPage):
    """POST: ask for a backtest; with faults the page again."""

    http_method_names = ["post"]
    scope = "operate"

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = BacktestForm(request.POST, cluster=self.cluster)
        if form.is_valid():
            asked, is_done = try_service(
                form,
                lambda: BACKTEST.request(cluster=self.cluster, user=signed_in_user(request), **form.asked),
                FAULTS_AT,
            )
            if is_done:
                said = "The backtest is asked for; its answer appears here by itself."
                return done(request, said, "pages:backtest", slug, asked[0].pk)
        return self.shown(form, status=422)


class BacktestPage(RunPage):
    """`/c/<slug>/backtests/<uuid>/`; `?query=…` chooses whose latency is drawn."""

    kind, noun = BACKTEST, "backtest"
    template_name = "pages/backtests/page.html"

    def shown(self, run: BacktestRun, refusal: SluiceError | None = None) -> HttpResponse:
        facts = BacktestFacts(run, self.request.GET)
        return self.answer(run, facts=facts, table=requests_table(self.request, facts))


class BacktestCrud(Crud):
    """Backtests are asked for and forgotten, never changed."""

    noun = "backtest"
    keyword = "run"
    back = "pages:backtests"
    text_deleted = "The backtest is deleted."
    service_delete = staticmethod(BACKTEST.delete)

    def rows(self) -> QuerySet[BacktestRun]:
        return BACKTEST.visible().filter(cluster=self.cluster)
