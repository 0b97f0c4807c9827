"""The list of queries."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from apps.estimates.selectors import run_latest
from apps.pages.base import ClusterPage
from apps.pages.query_table import queries_sentence, queries_table, query_lines

__all__ = ["QueriesPage"]

_KEY = [("bar", "Estimate"), ("band", "Interval, 90%"), ("objective", "Objective")]


class QueriesPage(ClusterPage):
    """`/c/<slug>/queries/`"""

    template_name = "pages/queries/list.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        run = run_latest(self.cluster)
        lines = query_lines(self.cluster, run)
        table = queries_table(request, self.cluster, lines, can_change="operate" in request.user.scopes)
        if table.wants_csv:
            return table.csv_response()
        return self.page({"table": table, "sentence": queries_sentence(lines), "run": run, "key": _KEY})
