"""Accuracy of estimates: predicted against measured, coverage of intervals, bias, trust."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from apps.accounts.permissions import signed_in_user
from apps.estimates.choices import RunOrigin
from apps.estimates.simulations import simulation_request
from apps.pages.accuracy.facts import AccuracyFacts, accuracy_tabs
from apps.pages.accuracy.tables import kinds_table, observations_table, origins_table, queries_table
from apps.pages.base import ClusterPage
from apps.ui.feedback import toast

__all__ = ["AccuracyPage", "SimulateNow"]


class AccuracyPage(ClusterPage):
    """`/c/<slug>/accuracy/`; `?origin=…&query=…&span=…&evidence=…` choose what is judged."""

    template_name = "pages/accuracy/page.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        facts = AccuracyFacts(self.cluster, request.GET)
        table = observations_table(request, facts)
        if table.wants_csv:
            return table.csv_response()
        context = {
            "facts": facts,
            "table": table,
            "origins": origins_table(facts),
            "queries": queries_table(request, facts),
            "kinds": kinds_table(facts),
            "tabs": accuracy_tabs(slug, "estimates"),
        }
        return self.page(context)


class SimulateNow(ClusterPage):
    """POST: score the estimate of what runs by simulations of it."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        simulation_request(cluster=self.cluster, user=signed_in_user(request))
        toast(request, f"Simulations of {self.cluster.name} are on their way.")
        return redirect(f"{reverse('pages:accuracy', args=[slug])}?origin={RunOrigin.SIMULATED}")
