"""History of the stream processor: batch jobs over it, their last runs, and running them now."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from apps.accounts.permissions import signed_in_user
from apps.pages.base import ClusterPage, done
from apps.pages.sources.facts import source_tabs
from apps.pages.sources.history.facts import HistoryFacts
from apps.planning.history.services import history_request

__all__ = ["HistoryPage", "HistoryRun"]


class HistoryPage(ClusterPage):
    """`/c/<slug>/sources/history/`; the history is that of the installation, whatever the cluster."""

    template_name = "pages/sources/history/page.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.page({"history": HistoryFacts.now(), "tabs": source_tabs(slug, "history")})


class HistoryRun(ClusterPage):
    """POST: run a job, or all without one."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        job = history_request(jobs=request.POST.getlist("job"), user=signed_in_user(request))
        return done(request, f"{job.title} is on its way.", "pages:stream-history", slug)
