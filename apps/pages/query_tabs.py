"""The tabs of a query."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django_htmx.http import HttpResponseClientRedirect

from apps.admission.selectors import admissions_visible
from apps.core.errors import Missing
from apps.estimates.selectors import query_history
from apps.pages.accuracy_parts import LatencyParts
from apps.pages.base import ClusterPage
from apps.pages.query_charts import history_chart, latency_chart
from apps.pages.query_detail import QueryDetail
from apps.pages.query_history import estimates_table
from apps.pages.query_measurements import MeasuredOperators
from apps.pages.query_picture import PlanPicture
from apps.pages.query_placement import PlacementLines
from apps.pages.query_statistics import StatisticsForm, statistic_lines, statistics_sentence
from apps.pages.version_diff import version_difference
from apps.queries.selectors import query_by_name, version_numbered, versions_listed

__all__ = [
    "DecisionsTab",
    "EstimatesTab",
    "PlacementTab",
    "PlanTab",
    "QueryTab",
    "StatisticsTab",
    "VersionsTab",
]

_TABS = {
    "plan": ("Plan and latency", "pages:query"),
    "live": ("Live", "pages:query-live"),
    "statistics": ("Statistics", "pages:query-statistics"),
    "placement": ("Placement", "pages:query-placement"),
    "versions": ("Versions", "pages:query-versions"),
    "plans": ("Plans", "pages:query-plans"),
    "decisions": ("Decisions", "pages:query-decisions"),
    "estimates": ("Estimates", "pages:query-estimates"),
}


class QueryTab(ClusterPage):
    """A page about one query."""

    tab = "plan"

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """An open page whose query was deleted meanwhile goes on to the list instead of complaining."""
        try:
            return super().dispatch(request, *args, **kwargs)
        except Missing:
            if not getattr(request, "htmx", False):
                raise
            return HttpResponseClientRedirect(reverse("pages:queries", args=[self.slug]))

    def detail(self, name: str) -> QueryDetail:
        return QueryDetail(query_by_name(self.cluster, name))

    def show(self, detail: QueryDetail, status: int = 200, **context: Any) -> HttpResponse:
        name = detail.query.name
        tabs = [
            (label, reverse(address, args=[self.slug, name]), tab == self.tab)
            for tab, (label, address) in _TABS.items()
        ]
        api = f"{reverse('api-index')}queries/{detail.query.pk}"
        shared = {
            "detail": detail,
            "query": detail.query,
            "tabs": tabs,
            "tab": self.tab,
            "api": api,
            "admission_url": detail.admission_url,
        }
        return self.page({**shared, **context}, status)


class PlanTab(QueryTab):
    """`/c/<slug>/queries/<name>/`: the plan, where the time goes, latency over the stretch."""

    template_name = "pages/queries/plan.html"

    def get(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        detail = self.detail(name)
        chart = latency_chart(detail.estimate) if detail.estimate else None
        return self.show(detail, plan=PlanPicture(detail), chart=chart, **_statistics(detail))


class StatisticsTab(QueryTab):
    """What is known of each input; `?edit=table` and `?edit=json` change it."""

    template_name = "pages/queries/statistics.html"
    tab = "statistics"

    def get(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        detail = self.detail(name)
        mode = request.GET.get("edit", "")
        may_edit = "operate" in request.user.scopes
        form = StatisticsForm(detail.version, mode) if may_edit and mode in StatisticsForm.MODES else None
        measured = MeasuredOperators(detail.query)
        latency = LatencyParts(detail.estimate)
        return self.show(detail, form=form, measured=measured, latency=latency, **_statistics(detail))

    def post(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        detail = self.detail(name)
        form = StatisticsForm(detail.version, request.GET.get("edit", "table"), request.POST)
        if form.save():
            return form.done(request, slug, name)
        return self.show(detail, 422, form=form, **_statistics(detail))


def _statistics(detail: QueryDetail) -> dict[str, Any]:
    lines = statistic_lines(detail.version, detail.result)
    return {"lines": lines, "statistics_sentence": statistics_sentence(lines)}


class PlacementTab(QueryTab):
    """Where its operators are, and what their nodes carry."""

    template_name = "pages/queries/placement.html"
    tab = "placement"

    def get(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        detail = self.detail(name)
        return self.show(detail, placement=PlacementLines(detail))


class VersionsTab(QueryTab):
    """Versions, and with `?from=1&to=2` the difference of two."""

    template_name = "pages/queries/versions.html"
    tab = "versions"

    def get(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        detail = self.detail(name)
        versions = list(versions_listed(detail.query))
        numbers = [request.GET.get(side, "") for side in ("from", "to")]
        context: dict[str, Any] = {"versions": versions}
        if all(number.isascii() and number.isdigit() and len(number) < 10 for number in numbers):
            old, new = (version_numbered(detail.query, int(number)) for number in numbers)
            context |= {"old": old, "new": new, "changes": version_difference(old, new)}
        return self.show(detail, **context)


class DecisionsTab(QueryTab):
    """Admission requests about this query."""

    template_name = "pages/queries/decisions.html"
    tab = "decisions"

    def get(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        detail = self.detail(name)
        return self.show(detail, requests=list(admissions_visible().filter(query=detail.query)[:100]))


class EstimatesTab(QueryTab):
    """Estimates over the past runs."""

    template_name = "pages/queries/estimates.html"
    tab = "estimates"

    def get(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        detail = self.detail(name)
        table = estimates_table(request, detail.query)
        if table.wants_csv:
            return table.csv_response()
        chart = history_chart(query_history(detail.query), detail.query.objective_bound_s)
        return self.show(detail, table=table, chart=chart)
