"""REST: jobs, how they are listed and shown, and the answer to a request whose work a job does."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from django.db import connection
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.core.errors import Fault, Impossible
from apps.core.filters import CallerFilter, ChoiceFilter, ListFilter, TextFilter, TimeFilter, sort_paths
from apps.core.reach import is_seen_in_part
from apps.core.rest.api import PromisedResponse, ReadViewSet, Router
from apps.core.rest.problems import StoredProblemSerializer
from apps.jobs.models import FINISHED, Job, JobKind, JobState
from apps.jobs.selectors import jobs_visible
from apps.jobs.services import job_cancel, job_name_result

__all__ = [
    "MAX_WAIT_S",
    "JobFilter",
    "JobSerializer",
    "JobViewSet",
    "job_response",
    "job_wait",
    "prefer_wait",
    "release_connection",
    "wait_applied",
]


MAX_WAIT_S = 30.0
_POLL_S = (0.02, 0.05, 0.1, 0.2)  # the last one repeats
_WAIT = re.compile(r"(?:^|[,;])\s*wait\s*=\s*(\d{1,6})\s*(?=$|[,;])")


class JobFilter(ListFilter):
    """`?state=queued&state=running&kind=…&cluster=eu-1&mine=true`."""

    state = ChoiceFilter(choices=JobState.choices)
    kind = ChoiceFilter(choices=JobKind.choices)
    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    mine = CallerFilter("requested_by", label="Whether you requested it")
    created_at = TimeFilter()
    finished_at = TimeFilter()
    sorts = sort_paths("created_at", "started_at", "finished_at", "state", "kind", cluster="cluster__slug")


class JobSerializer(serializers.ModelSerializer):
    """State, progress (0 to 1), step in words, and where the result is."""

    url = serializers.SerializerMethodField()
    cluster: Any = serializers.SlugRelatedField(slug_field="slug", read_only=True)
    requested_by: Any = serializers.SlugRelatedField(slug_field="username", read_only=True)
    error = StoredProblemSerializer(read_only=True, allow_null=True)

    class Meta:
        model = Job
        fields = [
            "id",
            "url",
            "kind",
            "title",
            "cluster",
            "requested_by",
            "state",
            "progress",
            "step",
            "attempt",
            "cancel_requested",
            "result",
            "result_url",
            "result_api_url",
            "error",
            "created_at",
            "started_at",
            "finished_at",
        ]
        read_only_fields = fields

    def to_representation(self, instance: Job) -> Any:
        """A result is of the whole cluster: who sees a part of it reads the part at the result's address."""
        shown = super().to_representation(instance)
        is_part = instance.cluster_id is not None and is_seen_in_part(instance.cluster_id)
        return {**shown, "result": None} if is_part else shown

    @extend_schema_field(serializers.CharField())
    def get_url(self, job: Job) -> str:
        return f"/api/v1/jobs/{job.pk}"


def prefer_wait(request: Request) -> float:
    """Seconds of `Prefer: wait=N` (RFC 7240), at most `MAX_WAIT_S`; 0 without one."""
    match = _WAIT.search(request.headers.get("Prefer", ""))
    return min(float(match[1]), MAX_WAIT_S) if match else 0.0


def wait_applied(wait_s: float) -> dict[str, str]:
    """The header that says for how long an answer has waited; none where it was not asked to."""
    return {"Preference-Applied": f"wait={wait_s:.0f}"} if wait_s else {}


def job_response(
    request: Request, job: Job, result: Callable[[Job], Any] | None = None, *, address: str = ""
) -> Response:
    """Answer a request whose work a job does, in one of two shapes.

    Without `Prefer: wait=N`, or when N seconds were not enough: 202 with the job as body and its `Location`. Where the
    result has its `address` from the beginning, the job names it as `result_api_url`.

    Otherwise 200 with what `result(job)` gives, `Content-Location` of the result, and `Preference-Applied`; without
    `result`, or when the job was cancelled, with the job itself. A failed job's error is raised as the refusal it is.
    It is waited for once the handler's transaction is committed: before that the job cannot start.
    """
    if address and not job.result_api_url:
        job_name_result(job, address)
    wait_s = prefer_wait(request)
    return _accepted(job, finish=lambda: _waited(job, wait_s, result)) if wait_s else _accepted(job)


def _accepted(job: Job, finish: Callable[[], Response] | None = None) -> Response:
    data, headers = JobSerializer(job).data, {"Location": f"/api/v1/jobs/{job.pk}"}
    if finish is None:
        return Response(data, status=202, headers=headers)
    return PromisedResponse(data, finish=finish, status=202, headers=headers)


def _waited(job: Job, wait_s: float, result: Callable[[Job], Any] | None) -> Response:
    job_wait(job, wait_s)
    if not job.is_finished:
        return _accepted(job)
    if job.state == "failed":
        error = job.error or {}
        faults = [Fault(fault["path"], fault["message"]) for fault in error.get("faults", [])]
        raise Impossible(error.get("message", "The job failed."), faults, code=error.get("code"))
    applied = wait_applied(wait_s)
    location = f"/api/v1/jobs/{job.pk}"
    if job.state == "succeeded" and result is not None:
        return Response(result(job), headers={**applied, "Content-Location": job.result_api_url or location})
    return Response(JobSerializer(job).data, headers={**applied, "Content-Location": location})


def job_wait(job: Job, wait_s: float) -> None:
    """Read the job once it has ended, or after so many seconds. Call it outside of a transaction.

    Many wait at once, beside the workers that they wait for: each look is for the state alone.
    """
    until, polls = time.monotonic() + wait_s, iter(_POLL_S)
    pause = _POLL_S[0]
    while True:
        state = Job.objects.filter(pk=job.pk).values_list("state", flat=True).get()
        left = until - time.monotonic()
        if state in FINISHED or left <= 0:
            job.refresh_from_db()
            return
        pause = next(polls, pause)
        release_connection()
        time.sleep(min(pause, left))


def release_connection() -> None:
    """Let others have the database connection while this thread only waits; the next statement takes one again.

    SQLite's are nobody else's, and to open one costs ten times as much as a look at a job.
    """
    if connection.vendor != "sqlite" and not connection.in_atomic_block:
        connection.close()


class JobViewSet(ReadViewSet):
    """Background work: state, progress from 0 to 1, step, and the address of its result."""

    queryset = Job.objects.none()
    serializer_class = JobSerializer
    filterset_class = JobFilter
    ordering = "-created_at"

    def get_queryset(self) -> Any:
        return jobs_visible()

    @extend_schema(request=None, responses=JobSerializer)
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str | None = None) -> Response:
        """Cancel a job. A waiting one ends at once, a running one at its next step; 409 if it has ended already."""
        return Response(JobSerializer(job_cancel(self.get_object())).data)


router = Router()
router.register("jobs", JobViewSet, basename="job")
urlpatterns = router.urls
