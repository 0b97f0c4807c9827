"""Asking for an admission: a registered query, or one described by a document. The answer is a preview."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from apps.admission.services import admission_preview
from apps.fleet.choices import NodeState
from apps.fleet.models import Cluster
from apps.pages.admission_forms import FAULT_FIELDS, DescribedForm, RegisteredForm, placement_of
from apps.pages.base import ClusterPage, try_service
from apps.pages.query_detail import statistic_words
from apps.queries.choices import QueryState
from apps.queries.models import Query, QueryVersion
from apps.ui.numbers import seconds

__all__ = ["AdmissionNew", "PlanPart"]


@dataclass(frozen=True)
class Plan:
    """The chosen query and version, with the operators that may be given a node."""

    cluster: Cluster
    name: str
    number: str = ""
    placement: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def query(self) -> Query | None:
        return self.cluster.queries.select_related("running_version").filter(name=self.name).first()

    @cached_property
    def versions(self) -> list[QueryVersion]:
        return list(self.query.versions.order_by("-number")) if self.query else []

    @cached_property
    def version(self) -> QueryVersion | None:
        wanted = [one for one in self.versions if str(one.number) == self.number]
        return next(iter(wanted or self.versions), None)

    @property
    def operators(self) -> list[tuple[Any, str]]:
        """(operator, the node asked for)."""
        if self.version is None:
            return []
        return [(one, self.placement.get(one.name, "")) for one in self.version.operators.order_by("position", "pk")]

    @cached_property
    def nodes(self) -> list[str]:
        """Nodes that take something new."""
        active = self.cluster.nodes.filter(state=NodeState.ACTIVE)
        return list(active.order_by("name").values_list("name", flat=True))

    @property
    def note(self) -> str:
        """What is known of the query that matters here."""
        if self.query is None:
            return ""
        bound_s = self.query.objective_bound_s
        words = statistic_words(self.query.objective_statistic) if self.query.objective_statistic else ""
        objective = f"Its objective: {words} at most {seconds(bound_s)}." if bound_s else "It has no objective."
        running = self.query.running_version
        runs = f" Version {running.number} runs now." if running and self.query.state == QueryState.RUNNING else ""
        return f"{objective}{runs}"


class AdmissionNew(ClusterPage):
    """`/c/<slug>/admission/new/?query=checkout`, or `?way=document`"""

    template_name = "pages/admission/new.html"
    scope = "operate"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        name, number = request.GET.get("query", ""), request.GET.get("version", "")
        if self._is_document:
            return self._shown(DescribedForm(initial={"name": name}))
        plan = Plan(self.cluster, name, number)
        initial = {"query": name, "version": plan.version.number if plan.version else None}
        return self._shown(RegisteredForm(initial=initial, cluster=self.cluster, query=plan.query), plan)

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        if self._is_document:
            form, plan = DescribedForm(request.POST, request.FILES), None
        else:
            placement = placement_of(request.POST)
            plan = Plan(self.cluster, request.POST.get("query", ""), request.POST.get("version", ""), placement)
            form = RegisteredForm(request.POST, cluster=self.cluster, query=plan.query)
        if form.is_valid():
            asked, ok = try_service(form, lambda: self._ask(form), FAULT_FIELDS)
            if ok:
                return redirect("pages:admission", slug, asked.pk)
        return self._shown(form, plan, 422)

    def _ask(self, form: Any) -> Any:
        found, _ = admission_preview(cluster=self.cluster, user=self.request.user, **form.asked)
        return found

    @property
    def _is_document(self) -> bool:
        return self.request.GET.get("way") == "document"

    def _shown(self, form: Any, plan: Plan | None = None, status: int = 200) -> HttpResponse:
        here = reverse("pages:admission-new", args=[self.cluster.slug])
        tabs = [
            ("A registered query", here, not self._is_document),
            ("A document", f"{here}?way=document", self._is_document),
        ]
        has_queries = self._is_document or self.cluster.queries.exists()
        context = {"form": form, "plan": plan, "tabs": tabs, "has_queries": has_queries, "rest_body": self._body(plan)}
        return self.page(context, status)

    def _body(self, plan: Plan | None) -> dict[str, Any]:
        """The call that asks the same."""
        body: dict[str, Any] = {"cluster": self.cluster.slug}
        if self._is_document:
            return {**body, "document": {"query": "checkout", "operators": []}}
        if plan and plan.version:
            return {**body, "query": plan.name, "version": plan.version.number}
        return {**body, "query": "checkout"}


class PlanPart(ClusterPage):
    """The part of the form that depends on the query."""

    template_name = "pages/admission/plan.html"
    scope = "operate"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        plan = Plan(
            self.cluster, request.GET.get("query", ""), request.GET.get("version", ""), placement_of(request.GET)
        )
        return self.page({"plan": plan})
