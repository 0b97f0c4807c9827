"""Accuracy of estimates: predicted against measured, coverage of intervals, bias, trust."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from apps.pages.accuracy.facts import AccuracyFacts, accuracy_tabs
from apps.pages.accuracy.tables import observations_table, queries_table
from apps.pages.base import ClusterPage

__all__ = ["AccuracyPage"]


class AccuracyPage(ClusterPage):
    """`/c/<slug>/accuracy/`; `?query=…&span=…&evidence=…` choose what is judged."""

    template_name = "pages/accuracy/page.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        facts = AccuracyFacts(self.cluster, request.GET)
        table = observations_table(request, facts)
        if table.wants_csv:
            return table.csv_response()
        context = {"facts": facts, "table": table, "queries": queries_table(request, facts)}
        return self.page({**context, "tabs": accuracy_tabs(slug, "estimates")})
