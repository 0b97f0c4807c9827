"""Resource plans: the form, the list, and one with its answer."""

from __future__ import annotations

from functools import cached_property
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from apps.accounts.permissions import signed_in_user
from apps.core.errors import Conflict, Impossible, Malformed
from apps.pages.base import ClusterPage, done, try_service
from apps.pages.crud import Crud
from apps.pages.resource_plans.facts import ResourcePlanFacts
from apps.pages.resource_plans.forms import ProfileSourceForm, ResourcePlanForm, sign_inputs, source_as_shown
from apps.pages.resource_plans.inputs import field_names
from apps.pages.resource_plans.tables import resource_plans_table
from apps.planning.choices import PlanChoice
from apps.planning.models import ResourcePlan
from apps.planning.resource_plan_sources import PlanSource
from apps.planning.resource_plans import RESOURCE_PLAN, resource_plan_apply

__all__ = ["ResourcePlanApply", "ResourcePlanCrud", "ResourcePlanNew", "ResourcePlanPage", "ResourcePlansPage"]


class ResourcePlansPage(ClusterPage):
    """`/c/<slug>/provisioning/resource-plans/`: what was asked, newest first."""

    template_name = "pages/resource_plans/list.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        table = resource_plans_table(request, self.cluster)
        return table.csv_response() if table.wants_csv else self.page({"table": table})


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


class ResourcePlanPage(ClusterPage):
    """`/c/<slug>/provisioning/resource-plans/<uuid>/`; `?choice=latency` shows the other end's settings."""

    template_name = "pages/resource_plans/page.html"

    def get(self, request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
        return self.shown(self.row(pk), request.GET.get("choice", ""))

    def row(self, pk: UUID) -> ResourcePlan:
        return self.find(RESOURCE_PLAN.visible().filter(cluster=self.cluster), "resource plan", pk=pk)

    def shown(self, row: ResourcePlan, choice: str, status: int = 200, refusal: str = "") -> HttpResponse:
        """The page, with what an action was refused for."""
        return self.page({"facts": ResourcePlanFacts(row, choice), "refusal": refusal}, status)


class ResourcePlanApply(ResourcePlanPage):
    """POST: take the chosen settings for the plan's Spark query."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
        row, choice = self.row(pk), request.POST.get("choice", "")
        choice = choice if choice in PlanChoice.values else PlanChoice.THROUGHPUT
        try:
            applied = resource_plan_apply(row=row, user=signed_in_user(request), choice=choice)
        except (Conflict, Impossible, Malformed) as refusal:
            return self.shown(row, choice, refusal.status, refusal.message)
        name = applied.spark_query.name if applied.spark_query else ""
        said = f"The settings are noted for {name}: batches from now on are fitted anew."
        if applied.spark_query and applied.spark_query.is_own:
            said = f"{name} changes its trigger after the batch in work."
        return done(request, said, f"{reverse('pages:resource-plan', args=[slug, pk])}?choice={choice}")


class ResourcePlanCrud(Crud):
    """Resource plans are asked for and deleted, never changed."""

    noun = "resource plan"
    keyword = "run"
    back = "pages:resource-plans"
    text_deleted = "The resource plan is deleted."
    service_delete = staticmethod(RESOURCE_PLAN.delete)

    def rows(self) -> QuerySet[ResourcePlan]:
        return RESOURCE_PLAN.visible().filter(cluster=self.cluster)
