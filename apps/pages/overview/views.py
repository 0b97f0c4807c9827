"""Overview of a cluster: objectives by headroom, excess of nodes, attention list and decisions."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from apps.accounts.permissions import signed_in_user
from apps.core.reach import AskedOn, is_seen_in_part, visible
from apps.estimates.selectors import estimate_under_way
from apps.estimates.services import ESTIMATE
from apps.fleet.models import Cluster
from apps.jobs.models import Job
from apps.pages.base import ClusterPage, Page
from apps.pages.fleet.views import EXAMPLE
from apps.pages.overview.attention import attention_list
from apps.pages.overview.findings import Findings
from apps.pages.overview.tables import objectives_table
from apps.ui.feedback import toast

__all__ = ["EstimateNow", "Home", "Overview"]


class Home(Page):
    """`/`: the last visited cluster, or the first step if there is none."""

    asked_on = AskedOn.PARTS
    template_name = "pages/overview/home.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        keys = dict(visible(Cluster.objects.all()).values_list("slug", "pk"))
        if not keys:
            return self.page({"example": EXAMPLE})
        remembered = request.session.get("cluster")
        slug = remembered if remembered in keys else next(iter(keys))
        return redirect("pages:queries" if is_seen_in_part(keys[slug]) else "pages:overview", slug)


class Overview(ClusterPage):
    """`/c/<slug>/`"""

    template_name = "pages/overview/page.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        findings = Findings(self.cluster)
        table = objectives_table(request, findings)
        items, count = attention_list(findings, signed_in_user(request))
        context = {"attention": items, "attention_count": count, "attention_left": count - len(items)}
        return self.page({"findings": findings, "table": table, "estimate_job": self.estimate_job, **context})

    @cached_property
    def estimate_job(self) -> Job | None:
        """The newest estimate of this cluster that is not finished."""
        return estimate_under_way(self.cluster)


class EstimateNow(ClusterPage):
    """POST: estimate all running queries, then go back to the page of the button."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        ESTIMATE.request(cluster=self.cluster, user=signed_in_user(request))
        toast(request, f"An estimate of {self.cluster.name} is on its way.")
        return redirect(_back(request) or reverse("pages:overview", args=[slug]))


def _back(request: HttpRequest) -> str:
    """The page of this cluster that the form stood on; never another site."""
    address: Any = request.POST.get("next", "")
    return address if address.startswith("/c/") and "//" not in address else ""
