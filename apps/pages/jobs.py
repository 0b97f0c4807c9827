"""Background work: the list, one job with its progress, and cancelling it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.core.errors import Missing
from apps.core.reach import AskedOn, row_visible, visible
from apps.jobs.api import JobFilter
from apps.jobs.models import Job, JobState, Run
from apps.jobs.selectors import jobs_visible
from apps.jobs.services import job_cancel
from apps.pages.base import Page
from apps.pages.context import url_of
from apps.pages.saved_views.bar import open_views
from apps.planning.choices import RunState
from apps.saved_views.models import SavedList
from apps.ui.feedback import refresh
from apps.ui.marks import STATES, VERDICTS, state_mark
from apps.ui.numbers import percent, seconds
from apps.ui.tables import Column, Filter, Table, state_choices
from apps.ui.times import time_tag
from engine.words import counted

__all__ = ["JobCancelView", "JobPage", "JobProgress", "JobsMenu", "JobsPage", "run_state_mark"]

#: Drawing of each state of a run: those of jobs.
_RUN_STATES = {
    RunState.ASKED: "running",
    RunState.ANSWERED: "succeeded",
    RunState.FAILED: "failed",
    RunState.CANCELLED: "cancelled",
}


def run_state_mark(run: Run) -> SafeString:
    """State of a run whose answer is all that becomes of it."""
    state = RunState(run.state)
    return state_mark(_RUN_STATES[state], state.label)


class JobsPage(Page):
    """`/jobs/`"""

    asked_on = AskedOn.NARROWED
    template_name = "pages/jobs/list.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        table = jobs_table(request)
        return self.page({"table": table, "sentence": _sentence(_counts())})


class JobPage(Page):
    """`/jobs/<uuid>/`"""

    asked_on = AskedOn.NARROWED
    template_name = "pages/jobs/detail.html"

    def get(self, request: HttpRequest, pk: UUID) -> HttpResponse:
        job = _job(pk)
        return self.page({"job": job, "facts": _facts(job)})


class JobProgress(Page):
    """The part of a page that follows one job."""

    asked_on = AskedOn.NARROWED

    def get(self, request: HttpRequest, pk: UUID) -> HttpResponse:
        return render(request, "pages/jobs/progress.html", {"job": _job(pk)})


class JobCancelView(Page):
    """POST: stop a job; answers with its progress."""

    asked_on = AskedOn.NARROWED
    http_method_names = ["post"]

    def post(self, request: HttpRequest, pk: UUID) -> HttpResponse:
        job = job_cancel(_job(pk))
        return refresh(render(request, "pages/jobs/progress.html", {"job": job}), f"job:{job.pk}", "jobs")


class JobsMenu(Page):
    """Running jobs of the top bar and the navigation."""

    asked_on = AskedOn.NARROWED

    def get(self, request: HttpRequest) -> HttpResponse:
        return render(request, "pages/jobs/menu.html", {})


def _job(pk: UUID) -> Job:
    try:
        return row_visible(jobs_visible(), "job", pk=pk)
    except Missing:
        raise Missing(f"There is no job {pk}. Jobs are kept for a while after they end.") from None


def _counts() -> dict[str, int]:
    rows = visible(Job.objects.order_by()).values("state").annotate(n=Count("pk")).values_list("state", "n")
    return dict(rows)


def _sentence(counts: dict[str, int]) -> str:
    """9 jobs: 1 running, 2 waiting for a worker."""
    words = {JobState.RUNNING: "running", JobState.QUEUED: "waiting for a worker", JobState.FAILED: "failed"}
    parts = [f"{counts[str(state)]} {text}" for state, text in words.items() if counts.get(str(state))]
    if parts:
        return f"{counted(sum(counts.values()), 'job')}: {', '.join(parts)}."
    return f"No job runs or waits, and none of the {sum(counts.values())} kept failed." if counts else "No jobs yet."


def jobs_table(request: HttpRequest) -> Table:
    """Newest first."""
    counts = _counts()
    choices = state_choices(JobState.values, counts)
    return Table(
        request,
        _columns(),
        visible(jobs_visible()).defer("params", "result"),
        caption="Jobs",
        default_sort="-created",
        filters=[Filter("state", choices, all_count=sum(counts.values()))],
        filterset=JobFilter,
        search=["title", "cluster__slug", "requested_by__username"],
        search_label="Title, cluster or person",
        views=open_views(request, SavedList.JOBS),
        file_name="jobs",
        empty={
            "icon": "jobs",
            "title": "No jobs yet",
            "text": "Estimates and previews run in the background and appear here.",
        },
    )


def _name(job: Job) -> SafeString:
    return format_html('<a class="name" href="{}">{}</a>', url_of("pages:job", job.pk), job.title)


def _progress(job: Job) -> Any:
    if job.state == JobState.RUNNING:
        return format_html('{} <span class="muted sm">{}</span>', percent(job.progress).html, job.step)
    return "" if job.state != JobState.FAILED else (job.error or {}).get("message", "")


def _took_s(job: Job) -> float | None:
    if job.started_at is None or job.finished_at is None:
        return None
    return (job.finished_at - job.started_at).total_seconds()


def _columns() -> list[Column]:
    return [
        Column("title", "Job", _name, sort="title", csv=lambda job: job.title),
        Column("state", "State", lambda job: state_mark(job.state), sort="state", csv=lambda job: job.state),
        Column("far", "Progress", _progress, csv=lambda job: job.progress, full=True),
        Column("cluster", "Cluster", lambda job: job.cluster.slug if job.cluster else "–", sort="cluster__slug"),
        Column(
            "who",
            "Requested by",
            lambda job: job.requested_by.get_username() if job.requested_by else "Sluice",
            sort="requested_by__username",
        ),
        Column("took", "Duration", lambda job: seconds(_took_s(job)).html, csv=_took_s, num=True),
        Column(
            "created",
            "Requested",
            lambda job: time_tag(job.created_at),
            sort="created_at",
            csv=lambda job: job.created_at,
            num=True,
            high_first=True,
        ),
    ]


def _facts(job: Job) -> list[tuple[str, Any]]:
    """Facts on a job's page: (name, value)."""
    facts = [
        ("Kind", job.get_kind_display()),
        ("Cluster", job.cluster.slug if job.cluster else "–"),
        ("Requested by", job.requested_by.get_username() if job.requested_by else "Sluice"),
        ("Requested", time_tag(job.created_at, relative=False)),
        ("Started", time_tag(job.started_at, relative=False)),
        ("Finished", time_tag(job.finished_at, relative=False)),
        ("Duration", seconds(_took_s(job))),
        ("Attempts", job.attempt),
    ]
    return [*facts, *((key.replace("_", " ").capitalize(), value) for key, value in _plain(job.result or {}))]


def _plain(result: Mapping[str, object]) -> list[tuple[str, Any]]:
    """The scalar facts of an outcome; what is nested is on its own page."""
    marks = {**STATES, **VERDICTS}
    return [
        (key, marks[value].label if value in marks else value)
        for key, value in result.items()
        if isinstance(value, (str, int, float)) and value != ""
    ]
