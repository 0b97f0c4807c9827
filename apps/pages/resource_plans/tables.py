"""Tables of resource plans."""

from __future__ import annotations

from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.fleet.models import Cluster
from apps.pages.resource_plans.facts import size_words, subject_words
from apps.pages.saved_views.bar import open_views
from apps.planning.choices import ANSWER_STATES, PlanEngine, RunState
from apps.planning.models import ResourcePlan
from apps.planning.resource_plan_questions import question_of
from apps.planning.resource_plans import RESOURCE_PLAN, ResourcePlanFilter
from apps.saved_views.models import SavedList
from apps.ui.marks import state_mark
from apps.ui.numbers import MISSING, rate, seconds
from apps.ui.tables import Choice, Column, Filter, Table, request_columns
from engine.words import statistic_words

__all__ = ["resource_plans_table"]

_STATES = {
    RunState.ASKED: "running",
    RunState.ANSWERED: "succeeded",
    RunState.FAILED: "failed",
    RunState.CANCELLED: "cancelled",
}


def resource_plans_table(request: HttpRequest, cluster: Cluster) -> Table:
    """Newest first."""
    engines = [Choice(value, label) for value, label in PlanEngine.choices]
    states = [Choice(value, label) for value, label in ANSWER_STATES]
    answers = [Choice("true", "Feasible"), Choice("false", "Not feasible")]
    return Table(
        request,
        [
            Column("subject", "Plan", _subject, csv=subject_words),
            Column("rate", "Rate", _rate, sort="question__rate", csv=lambda row: question_of(row).rate, num=True),
            Column(
                "constraint",
                "Constraint",
                _constraint,
                sort="question__constraint_s",
                csv=lambda row: question_of(row).constraint_s,
                num=True,
            ),
            Column("answer", "Answer", _answer, csv=size_words, full=True),
            Column("latency", "Latency", _latency, csv=lambda row: row.facts.get("metric_s"), num=True),
            Column("largest", "Largest rate", _largest, csv=lambda row: row.facts.get("max_rate"), num=True),
            Column("applied", "Applied", _applied, csv=lambda row: row.applied_choice),
            *request_columns(),
        ],
        RESOURCE_PLAN.visible().filter(cluster=cluster),
        caption="Resource plans",
        default_sort="-created",
        filters=[
            Filter("engine", engines, all_label="Any engine"),
            Filter("feasible", answers, all_label="Any answer"),
            Filter("state", states, all_label="Any state", as_menu=True),
        ],
        filterset=ResourcePlanFilter,
        views=open_views(request, SavedList.RESOURCE_PLANS),
        file_name=f"resource-plans-{cluster.slug}",
        empty={
            "icon": "tune",
            "title": "No resource plan yet",
            "text": "Give a rate and a latency constraint: the plan says how many nodes or executors keep it.",
            "url": reverse("pages:resource-plan-new", args=[cluster.slug]),
            "action": "Plan resources",
        },
    )


def _subject(row: ResourcePlan) -> SafeString:
    url = reverse("pages:resource-plan", args=[row.cluster.slug, row.pk])
    return format_html(
        '<a class="name" href="{}">{}</a> <small class="muted">{}</small>',
        url,
        subject_words(row),
        row.get_engine_display(),
    )


def _rate(row: ResourcePlan) -> SafeString:
    return rate(question_of(row).rate).html


def _constraint(row: ResourcePlan) -> SafeString:
    asked = question_of(row)
    bound = seconds(asked.constraint_s).html
    return format_html('{} <small class="muted">{}</small>', bound, statistic_words(asked.statistic))


def _answer(row: ResourcePlan) -> SafeString:
    if row.state != RunState.ANSWERED:
        return state_mark(_STATES[RunState(row.state)], RunState(row.state).label)
    return state_mark("holds" if row.facts["feasible"] else "breached", size_words(row))


def _latency(row: ResourcePlan) -> SafeString | str:
    return seconds(row.facts["metric_s"], apart_from=question_of(row).constraint_s).html if _has(row) else MISSING


def _largest(row: ResourcePlan) -> SafeString | str:
    return rate(row.facts["max_rate"]).html if _has(row) else MISSING


def _applied(row: ResourcePlan) -> str:
    return str(row.get_applied_choice_display() or MISSING)


def _has(row: ResourcePlan) -> bool:
    return bool(row.facts.get("feasible"))
