"""Backtests: asked with a form, listed, and one with its answer."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse

from apps.backtests.models import BacktestRun
from apps.backtests.selectors import backtests_listed
from apps.backtests.services import backtest_delete, backtest_request
from apps.core.errors import Missing
from apps.pages.backtest_facts import BacktestFacts
from apps.pages.backtest_forms import FAULTS_AT, BacktestForm
from apps.pages.backtest_reach import ReachFacts
from apps.pages.backtest_tables import backtests_table, requests_table
from apps.pages.base import ClusterPage, done, try_service

__all__ = ["BacktestDelete", "BacktestNow", "BacktestPage", "BacktestsPage"]


class BacktestsPage(ClusterPage):
    """`/c/<slug>/backtests/`: what records reach, a form, and what was asked."""

    template_name = "pages/backtests/list.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        table = backtests_table(request, self.cluster)
        return table.csv_response() if table.wants_csv else self.shown(BacktestForm(cluster=self.cluster))

    def shown(self, form: BacktestForm, status: int = 200) -> HttpResponse:
        """The page with a form as it stands."""
        context: dict[str, Any] = {"form": form, "table": backtests_table(self.request, self.cluster)}
        return self.page(context | {"reach": ReachFacts(self.cluster)}, status)


class BacktestNow(BacktestsPage):
    """POST: ask for a backtest; with faults the page again."""

    http_method_names = ["post"]
    scope = "operate"

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = BacktestForm(request.POST, cluster=self.cluster)
        if form.is_valid():
            asked, is_done = try_service(
                form, lambda: backtest_request(cluster=self.cluster, user=request.user, **form.asked), FAULTS_AT
            )
            if is_done:
                said = "The backtest is asked for; its answer appears here by itself."
                return done(request, said, "pages:backtest", slug, asked[0].pk)
        return self.shown(form, status=422)


class BacktestPage(ClusterPage):
    """`/c/<slug>/backtests/<uuid>/`; `?query=…` chooses whose latency is drawn."""

    template_name = "pages/backtests/page.html"

    def get(self, request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
        facts = BacktestFacts(_backtest(self, pk), request.GET)
        table = requests_table(request, facts)
        if table.wants_csv:
            return table.csv_response()
        return self.page({"facts": facts, "table": table})


class BacktestDelete(ClusterPage):
    """POST: forget a backtest."""

    http_method_names = ["post"]
    scope = "operate"

    def post(self, request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
        backtest_delete(row=_backtest(self, pk))
        return done(request, "The backtest is deleted.", "pages:backtests", slug)


def _backtest(page: ClusterPage, pk: UUID) -> BacktestRun:
    row = backtests_listed().filter(cluster=page.cluster, pk=pk).first()
    if row is None:
        raise Missing(f"Cluster {page.cluster.slug!r} has no backtest {pk}.")
    return row
