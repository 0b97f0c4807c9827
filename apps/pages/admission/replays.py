"""Page of the replay of a month: what is asked, the job, and the decisions that would be otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import Any
from zoneinfo import ZoneInfo

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.accounts.permissions import signed_in_user
from apps.admission.choices import Verdict
from apps.admission.month_replays import MonthReplay, month_replay_job, month_replay_latest, month_replay_request
from apps.admission.policy_previews import DAYS
from apps.admission.replays import DecisionReplay
from apps.core.clock import shared_now
from apps.fleet.models import Cluster
from apps.pages.admission.views import admission_tabs
from apps.pages.base import ClusterPage, try_service
from apps.pages.context import url_of
from apps.ui.marks import verdict_badge
from apps.ui.tables import Choice, Column, Filter, Table
from apps.ui.times import time_tag
from engine.admission.replay import TAKEN

__all__ = ["MonthReplayForm", "MonthReplayPage"]

_MONTHS = 12
_RECENT = "recent"  # in place of a month
_TAKEN_LABELS = {
    "load": "Load of the query",
    "cost": "Costs of its events",
    "model": "Model",
    "policy": "Policy",
    "cluster": "Cluster with what runs",
}
_CHANGE_LABELS = {
    "load": "Load",
    "cost": "Cost of an event",
    "model": "Model",
    "policy": "Policy",
    "cluster": "Load of what runs",
    "": "Nothing that was kept",
}


class MonthReplayForm(forms.Form):
    """Time of the decisions, and what is taken of today."""

    month = forms.ChoiceField(label="Decisions of")
    taken = forms.MultipleChoiceField(
        label="Taken as it is today",
        choices=list(_TAKEN_LABELS.items()),
        widget=forms.CheckboxSelectMultiple,
        help_text="The rest as the decision kept it. Of model and cluster it kept the estimates alone: take both, or "
        "the policy alone.",
    )

    def __init__(self, cluster: Cluster, data: Any = None) -> None:
        super().__init__(data, initial={"taken": TAKEN})
        self.fields["month"].choices = [(_RECENT, f"the last {DAYS} days"), *_months(cluster)]  # type: ignore[attr-defined]

    @property
    def question(self) -> dict[str, object]:
        """The question, as the service takes it."""
        month = self.cleaned_data["month"]
        return {"month": None if month == _RECENT else month, "taken": self.cleaned_data["taken"]}


def _months(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """This month and those before it, by the cluster's zone."""
    today = shared_now().astimezone(ZoneInfo(cluster.time_zone)).date()
    months = 12 * today.year + today.month - 1
    for number in range(months, months - _MONTHS, -1):
        day = today.replace(year=number // 12, month=number % 12 + 1, day=1)
        yield f"{day:%Y-%m}", f"{day:%B %Y}"


class MonthReplayPage(ClusterPage):
    """`/c/<slug>/admission/replays/`: POST asks for a replay."""

    template_name = "pages/admission/replays.html"
    write_scope = "operate"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.answer(MonthReplayForm(self.cluster))

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = MonthReplayForm(self.cluster, request.POST)
        if form.is_valid():
            user = signed_in_user(request)
            _, ok = try_service(
                form, lambda: month_replay_request(cluster=self.cluster, question=form.question, user=user)
            )
            if ok:
                return redirect("pages:month-replay", slug)
        return self.answer(form, 422)

    def answer(self, form: MonthReplayForm, status: int = 200) -> HttpResponse:
        facts = MonthFacts(self.cluster)
        table = replays_table(self.request, self.cluster, facts.answer) if facts.answer is not None else None
        tabs = admission_tabs(self.slug, "replays")
        return self.page({"form": form, "facts": facts, "table": table, "tabs": tabs}, status)


class MonthFacts:
    """The newest answer of a cluster, and the job that finds the next."""

    def __init__(self, cluster: Cluster) -> None:
        self.answer = month_replay_latest(cluster)
        job = month_replay_job(cluster)
        self.job = None if job is None or job.state == "succeeded" else job

    @cached_property
    def taken(self) -> list[str]:
        """Labels of what the answer takes of today."""
        taken = self.answer.question.taken if self.answer is not None else ()
        return [label[:1].lower() + label[1:] for kind, label in _TAKEN_LABELS.items() if kind in taken]


def replays_table(request: HttpRequest, cluster: Cluster, answer: MonthReplay) -> Table:
    """Decisions that would be otherwise, by kind of difference."""
    rows = answer.listed
    kinds = [Choice(pair, _pair_words(pair), n) for pair, n in Counter(map(_pair, rows)).most_common()]
    causes = [Choice(kind or "none", _CHANGE_LABELS[kind], n) for kind, n in Counter(map(_cause, rows)).most_common()]
    return Table(
        request,
        _columns(cluster),
        rows,
        caption="Decisions that would be otherwise",
        default_sort="-decided",
        filters=[
            Filter("verdicts", kinds, _keep_pair, all_count=len(rows)),
            Filter("cause", causes, _keep_cause, all_label="All that changed", as_menu=True, all_count=len(rows)),
        ],
        search=lambda row: row.query,
        search_label="Query",
        identify=lambda row: row.id,
        file_name="replays",
        empty={"icon": "admission", "title": "None would be otherwise", "text": answer.sentence},
    )


def _pair(row: DecisionReplay) -> str:
    return f"{row.then}>{row.now}"


def _pair_words(pair: str) -> str:
    then, _, now = pair.partition(">")
    return f"{Verdict(then).label} to {Verdict(now).label.lower()}"


def _cause(row: DecisionReplay) -> str:
    """Kind of the change that tells most; empty where none was kept."""
    return row.changes[0].kind if row.changes else ""


def _keep_pair(rows: Any, pair: str) -> list[DecisionReplay]:
    return [row for row in rows if _pair(row) == pair]


def _keep_cause(rows: Any, kind: str) -> list[DecisionReplay]:
    return [row for row in rows if (_cause(row) or "none") == kind]


def _columns(cluster: Cluster) -> list[Column]:
    def name(row: DecisionReplay) -> SafeString:
        address = url_of("pages:admission", cluster.slug, row.id)
        return format_html('<a class="name" href="{}">{} v{}</a>', address, row.query, row.version)

    return [
        Column("query", "Decision", name, sort=lambda row: row.query, csv=lambda row: f"{row.query} v{row.version}"),
        Column(
            "decided",
            "Decided",
            lambda row: time_tag(row.decided_at, relative=False),
            sort=lambda row: row.decided_at,
            csv=lambda row: row.decided_at.isoformat(),
            high_first=True,
        ),
        Column("then", "Then", lambda row: verdict_badge(row.then), csv=lambda row: row.then),
        Column("now", "Now", lambda row: verdict_badge(row.now), csv=lambda row: row.now),
        Column("changed", "Finding", lambda row: row.sentence, full=True),
        Column("because", "Because", lambda row: row.because, full=True),
    ]
