"""History of the stream processor: batch jobs over it, their last runs, and running them now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse

from apps.accounts.permissions import signed_in_user
from apps.jobs.models import Job
from apps.pages.base import ClusterPage, done
from apps.pages.sources.facts import moment_of, source_tabs
from apps.planning.choices import HistoryJob
from apps.planning.history_jobs import HistoryJobStatus, history_request, history_status

__all__ = ["HistoryPage", "HistoryRun"]

_ABOUT = {
    HistoryJob.COMPACT: "Few files of the many of each finished day; days past their retention go.",
    HistoryJob.STATISTICS: "Counts, CPU time, selectivity and costs by query, operator and place, with errors.",
    HistoryJob.COSTS: "Costs of a record and of a group of each operator, fitted over all days.",
    HistoryJob.ARRIVALS: "Arrivals by subinterval; load histories of the sources, which forecasts are made of.",
    HistoryJob.CALIBRATION: "Factors that make intervals cover what they claim, from scored runs of all days.",
}
_KINDS = {"statistics": "Statistics", "results": "Results", "runs": "Scored runs"}


@dataclass(frozen=True)
class HistoryLine:
    """A job in the table."""

    status: HistoryJobStatus
    about: str

    @property
    def figures(self) -> Mapping[str, Any]:
        return self.status.figures

    @property
    def first_at(self) -> datetime | None:
        return moment_of(self.figures.get("first_us"))

    @property
    def end_at(self) -> datetime | None:
        return moment_of(self.figures.get("end_us"))


@dataclass(frozen=True)
class HistoryFacts:
    """The page: `days` are (kind, figures) of what is kept, as of the last run."""

    lines: list[HistoryLine]
    under_way: Job | None
    next_at: datetime
    days: list[tuple[str, Mapping[str, Any]]]

    @classmethod
    def now(cls) -> HistoryFacts:
        status = history_status()
        return cls(
            lines=[HistoryLine(job, _ABOUT[HistoryJob(job.job)]) for job in status.jobs],
            under_way=status.under_way,
            next_at=status.next_at,
            days=[(label, status.days[kind]) for kind, label in _KINDS.items() if kind in status.days],
        )

    @property
    def has_run(self) -> bool:
        return any(line.status.run is not None for line in self.lines)


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
