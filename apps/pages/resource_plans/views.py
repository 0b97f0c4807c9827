"""Resource plans: the form, the list, and one with its answer."""

from __future__ import annotations

from functools import cached_property
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.accounts.permissions import signed_in_user
from apps.core.errors import SluiceError
from apps.fleet.models import Cluster
from apps.pages.base import ClusterPage, try_service
from apps.pages.crud import Crud
from apps.pages.jobs import run_state_mark
from apps.pages.resource_plans.facts import ResourcePlanFacts, size_words, subject_words
from apps.pages.resource_plans.forms import (
    ProfileSourceForm,
    ResourcePlanForm,
    field_names,
    sign_inputs,
    source_as_shown,
)
from apps.pages.runs import RunAction, RunPage
from apps.pages.saved_views.bar import open_views
from apps.planning.choices import ANSWER_STATES, PlanChoice, PlanEngine, RunState
from apps.planning.models import ResourcePlan
from apps.planning.resource_plan_questions import question_of
from apps.planning.resource_plan_sources import PlanSource
from apps.planning.resource_plans import RESOURCE_PLAN, ResourcePlanFilter, resource_plan_apply
from apps.saved_views.models import SavedList
from apps.ui.feedback import toast
from apps.ui.marks import state_mark
from apps.ui.numbers import MISSING, rate, seconds
from apps.ui.tables import Choice, Column, Filter, Table, request_columns
from engine.words import statistic_words

__all__ = [
    "ResourcePlanApply",
    "ResourcePlanCrud",
    "ResourcePlanNew",
    "ResourcePlanPage",
    "ResourcePlansPage",
    "resource_plans_table",
]


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
        return run_state_mark(row)
    return state_mark("holds" if row.facts["feasible"] else "breached", size_words(row))


def _latency(row: ResourcePlan) -> SafeString | str:
    return seconds(row.facts["metric_s"], apart_from=question_of(row).constraint_s).html if _has(row) else MISSING


def _largest(row: ResourcePlan) -> SafeString | str:
    return rate(row.facts["max_rate"]).html if _has(row) else MISSING


def _applied(row: ResourcePlan) -> str:
    return str(row.get_applied_choice_display() or MISSING)


def _has(row: ResourcePlan) -> bool:
    return bool(row.facts.get("feasible"))


class ResourcePlansPage(ClusterPage):
    """`/c/<slug>/provisioning/resource-plans/`: what was asked, newest first."""

    template_name = "pages/resource_plans/list.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        table = resource_plans_table(request, self.cluster)
        return self.page({"table": table})


class ResourcePlanNew(ClusterPage):
    """`/c/<slug>/provisioning/resource-plans/new/`: the form, filled from the address.

    `engine`, `source` and `pool` name where rate and work come from, `plan` a former plan; paths of inputs, such as
    `rate=2000`, replace single ones. POST asks; with faults the form again.
    """

    template_name = "pages/resource_plans/new.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        source = self.source
        overrides = {path: text for path, text in request.GET.items() if path in field_names(source.engine)}
        overrides |= {"statistic": request.GET["statistic"]} if request.GET.get("statistic") else {}
        form = ResourcePlanForm(engine=source.engine, inputs=source.inputs(), overrides=overrides)
        return self.shown(form, source)

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        source = source_as_shown(self.source, request.POST.get("shown", ""))
        form = ResourcePlanForm(request.POST, engine=source.engine, inputs=source.inputs(), overrides={})
        if form.is_valid():
            asked, is_done = try_service(form, lambda: self.ask(source, form), field_names(source.engine))
            if is_done:
                return redirect("pages:resource-plan", slug, asked[0].pk)
        return self.shown(form, source, status=422)

    def ask(self, source: PlanSource, form: ResourcePlanForm) -> Any:
        return RESOURCE_PLAN.request(
            cluster=self.cluster,
            user=signed_in_user(self.request),
            engine=source.engine,
            query=source.query,
            spark_query=source.spark_query,
            pool=source.pool,
            plan=source.plan,
            shown=source.shown,
            **form.given,
        )

    @cached_property
    def source(self) -> PlanSource:
        """Where the inputs come from."""
        plan = self.former
        if plan is not None:
            return PlanSource(self.cluster, plan.engine, plan=plan)
        return self.source_form.plan_source

    @cached_property
    def former(self) -> ResourcePlan | None:
        """The former plan that the address names."""
        try:
            identity = UUID(self.request.GET.get("plan", ""))
        except ValueError:
            return None
        return self.find(RESOURCE_PLAN.visible().filter(cluster=self.cluster), "resource plan", pk=identity)

    @cached_property
    def source_form(self) -> ProfileSourceForm:
        names = ("engine", "source", "pool")
        chosen = {name: self.request.GET[name] for name in names if name in self.request.GET}
        plan = self.former
        if plan is not None:
            chosen["engine"] = plan.engine
        return ProfileSourceForm({"engine": "microbatch", **chosen}, cluster=self.cluster)

    def shown(self, form: ResourcePlanForm, source: PlanSource, status: int = 200) -> HttpResponse:
        """The page with a form as it stands."""
        shown = sign_inputs(source, form.inputs)
        return self.page({"form": form, "source": source, "source_form": self.source_form, "shown": shown}, status)


class ResourcePlanPage(RunPage):
    """`/c/<slug>/provisioning/resource-plans/<uuid>/`; `?choice=latency` shows the other end's settings."""

    kind, noun = RESOURCE_PLAN, "resource plan"
    template_name = "pages/resource_plans/page.html"

    @property
    def choice(self) -> str:
        choice = (self.request.POST or self.request.GET).get("choice", "")
        return choice if choice in PlanChoice.values else PlanChoice.THROUGHPUT

    def shown(self, run: ResourcePlan, refusal: SluiceError | None = None) -> HttpResponse:
        return self.answer(run, refusal, facts=ResourcePlanFacts(run, self.choice))


class ResourcePlanApply(RunAction, ResourcePlanPage):
    """POST: take the chosen settings for the plan's Spark query."""

    def act(self, run: ResourcePlan) -> ResourcePlan:
        applied = resource_plan_apply(row=run, user=signed_in_user(self.request), choice=self.choice)
        name = applied.spark_query.name if applied.spark_query else ""
        said = f"The settings are noted for {name}: batches from now on are fitted anew."
        if applied.spark_query and applied.spark_query.is_own:
            said = f"{name} changes its trigger after the batch in work."
        toast(self.request, said)
        return applied

    def after(self, run: ResourcePlan) -> str:
        return f"{super().after(run)}?choice={self.choice}"


class ResourcePlanCrud(Crud):
    """Resource plans are asked for and deleted, never changed."""

    noun = "resource plan"
    keyword = "run"
    back = "pages:resource-plans"
    text_deleted = "The resource plan is deleted."
    service_delete = staticmethod(RESOURCE_PLAN.delete)

    def rows(self) -> QuerySet[ResourcePlan]:
        return RESOURCE_PLAN.visible().filter(cluster=self.cluster)
