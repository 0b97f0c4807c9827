"""Facts of the history's page: each job with its last run, and the days that are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from apps.jobs.models import Job
from apps.pages.sources.facts import moment_of
from apps.planning.choices import HistoryJob
from apps.planning.history.selectors import HistoryJobStatus, history_status

__all__ = ["HistoryFacts", "HistoryLine"]

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
