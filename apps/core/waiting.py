"""Answers to requests that take longer: 202 with the job's address, or the result if the caller waits for it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any, Protocol

from rest_framework.request import Request
from rest_framework.response import Response

from apps.core.errors import Fault, Impossible

__all__ = ["MAX_WAIT_S", "job_response", "prefer_wait"]

MAX_WAIT_S = 30.0
_POLL_S = (0.02, 0.05, 0.1, 0.2)  # the last one repeats
_WAIT = re.compile(r"(?:^|[,;])\s*wait\s*=\s*(\d{1,6})\s*(?=$|[,;])")


class Waitable(Protocol):
    """What is needed of a job here (`apps.jobs.models.Job` has it; this layer knows no jobs)."""

    pk: Any
    state: str
    error: dict[str, Any] | None
    result_api_url: str

    @property
    def is_finished(self) -> bool: ...
    def refresh_from_db(self) -> None: ...
    def as_json(self) -> dict[str, Any]: ...


def prefer_wait(request: Request) -> float:
    """Seconds of `Prefer: wait=N` (RFC 7240), at most `MAX_WAIT_S`; 0 without one."""
    match = _WAIT.search(request.headers.get("Prefer", ""))
    return min(float(match[1]), MAX_WAIT_S) if match else 0.0


def job_response(
    request: Request, job: Waitable, result: Callable[[Waitable], Any] | None = None, *, status: int = 200
) -> Response:
    """Answer a request whose work a job does.

    Without `Prefer: wait=N`, or when N seconds were not enough: 202, `Location` of the job, and the job as body.
    Otherwise what `result(job)` gives (the job itself without `result`), with `Content-Location` of the outcome. A
    failed job's error is raised as the refusal it is. Call it outside of a transaction, or the job cannot start.
    """
    wait_s = prefer_wait(request)
    if wait_s:
        _wait(job, wait_s)
    applied = {"Preference-Applied": f"wait={wait_s:.0f}"} if wait_s and job.is_finished else {}
    if not applied:
        return Response(job.as_json(), status=202, headers={"Location": f"/api/v1/jobs/{job.pk}"})
    if job.state == "failed":
        error = job.error or {}
        faults = [Fault(fault["path"], fault["message"]) for fault in error.get("faults", [])]
        raise Impossible(error.get("message", "The job failed."), faults, code=error.get("code"))
    if job.state == "succeeded" and result is not None:
        location = {"Content-Location": job.result_api_url} if job.result_api_url else {}
        return Response(result(job), status=status, headers={**applied, **location})
    return Response(job.as_json(), status=200, headers=applied)


def _wait(job: Waitable, wait_s: float) -> None:
    until, polls = time.monotonic() + wait_s, iter(_POLL_S)
    pause = _POLL_S[0]
    while True:
        job.refresh_from_db()
        left = until - time.monotonic()
        if job.is_finished or left <= 0:
            return
        pause = next(polls, pause)
        time.sleep(min(pause, left))
