"""State of the stream processor: its operators as last reported, a reading of what they keep, and asking for one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse

from apps.accounts.permissions import signed_in_user
from apps.jobs.models import Job
from apps.pages.base import ClusterPage, done
from apps.pages.sources.facts import StreamCard, moment_of, source_tabs
from apps.planning.choices import HistoryJob
from apps.planning.history_jobs import HistoryJobStatus, history_request, history_status
from apps.telemetry.streams import StateKey, StateReading, state_reading, state_reading_request
from apps.ui.numbers import bytes_size, count
from apps.ui.tables import Column, Table

__all__ = ["HistoryPage", "HistoryRun", "StatePage", "StateRead"]

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
    def figures(self) -> Mapping[str, object]:
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


#: What a variable holds, in words.
ABOUT = {
    "facts": "Last batch of the partition, and counts of duplicates, gaps and unreadable frames",
    "positions": "How far each agent has come",
    "waiting": "Frames that wait for one before them, or for a plan",
    "heard": "Queries whose agents may become silent",
    "flow": "Watermark, agents and the list of windows of a query",
    "windows": "Aggregates of windows that are open or may be issued again",
    "checkpoints": "What agents had in open windows, should they become silent",
    "sides": "Rows that a join keeps of its streams",
    "work": "Work of the query's own operators, not summed yet",
    "work_sums": "Sums of that work",
    "clock": "When statistics were last summed and told",
    "counters": "Counters of agents, not summed yet",
    "sweeps": "Sweeping watermarks, not taken in yet",
    "sums": "Sums of the subintervals in progress",
    "newest": "Newest epoch of each agent",
    "learned_operators": "What was learned of operators, by level of load",
    "learned_cycles": "Their closings of windows",
    "learned_sent": "Figures as they were last told",
    "swept_rings": "Newest sweeping watermarks of each stream",
    "swept_sent": "Figures of these as they were last told",
}


def keys_table(request: HttpRequest, reading: StateReading) -> Table:
    """Keys by size."""
    return Table(
        request,
        [
            Column("key", "Key", _key_words, sort=lambda key: key.key, csv=lambda key: key.key),
            Column("operator", "Operator", lambda key: key.operator, sort=lambda key: key.operator),
            Column("variable", "Variable", lambda key: key.variable, sort=lambda key: key.variable),
            _number("rows", "Rows", count),
            _number("bytes", "Size", lambda size: bytes_size(size).html),
        ],
        list(reading.keys),
        caption="Largest keys",
        default_sort="-bytes",
        search=lambda key: f"{key.key} {key.operator} {key.variable}",
        page_size=20,
        file_name="largest-keys",
        identify=lambda key: f"{key.operator} {key.variable} {key.key}",
        empty={"title": "No key matches", "text": "Search for a part of a query's name, an operator or a variable."},
    )


def _number(name: str, label: str, shown: Callable[[Any], Any]) -> Column:
    def value(key: StateKey) -> int:
        return int(getattr(key, name))

    return Column(name, label, lambda key: shown(value(key)), sort=value, csv=value, num=True, high_first=True)


def _key_words(key: StateKey) -> str:
    """The key as people know it: a partition, a query with its plan and shard, or a bucket of statistics."""
    if key.operator == "generations":
        return f"Partition {key.key}" if key.key.isdigit() else "Changes of the plan"
    if key.key.startswith("#"):
        return f"Statistics, bucket {key.key[1:]}"
    query, plan, shard = (*key.key.split("|"), "", "")[:3]
    return f"{query}, plan {plan[:8]}, shard {shard}" if shard else key.key


class StatePage(ClusterPage):
    """`/c/<slug>/sources/state/`; the state is that of the installation, whatever the cluster."""

    template_name = "pages/sources/state/page.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        reading = state_reading()
        table = None if reading is None or not reading.keys else keys_table(request, reading)
        shown = {
            "stream": StreamCard(slug, {}),
            "reading": reading,
            "variables": [(row, ABOUT.get(row.variable, "")) for row in reading.variables] if reading else [],
            "table": table,
            "tabs": source_tabs(slug, "state"),
        }
        return self.page(shown)


class StateRead(ClusterPage):
    """POST: ask for a reading."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        state_reading_request()
        text = "The stream processor reads its state, at most once a minute; the page shows it when it is there."
        return done(request, text, "pages:stream-state", slug)
