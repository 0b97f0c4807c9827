"""Completion of a preview: a job computes the parts of its decision, of the snapshot that its verdict is of."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from celery.exceptions import SoftTimeLimitExceeded
from django.db import transaction

from apps.accounts.models import User
from apps.admission.choices import OPEN, AdmissionSource, AdmissionState, PartState
from apps.admission.kept_questions import forget_question, keep_question, kept_question
from apps.admission.members import requests_locked
from apps.admission.models import AdmissionRequest
from apps.admission.parts import (
    DecisionPart,
    part_keep,
    parts_announce,
    parts_end,
    parts_job_stop,
    parts_of,
    parts_under_way,
    parts_write,
)
from apps.admission.questions import RequestQuestion, ask_engine, is_model_changed, question_of
from apps.admission.standings import policy_standing
from apps.core.errors import Conflict, Impossible, SluiceError
from apps.core.rest.problems import as_sluice_error
from apps.jobs.models import LATER, Job, JobKind, JobState
from apps.jobs.runner import JobOutcome, JobReporter
from apps.jobs.runs import RUN_KINDS
from apps.jobs.services import JobCancelled, JobSuperseded, job_submit, on_unanswered
from engine.admission.answer import PartName

if TYPE_CHECKING:
    from engine.admission.decision import OpenDecision

__all__ = ["complete_preview", "completion_begin", "completion_retry"]

_log = logging.getLogger(__name__)

_SPENT = "It was cut after {:g} s, the time that the settings of the cluster give it."
_TASK_OVER = "It was cut after {:.0f} s: the task that computes it may take no longer (SLUICE_TASK_VISIBILITY_S)."
_LOST = (
    "The snapshot of the verdict is no longer there, and the cluster has moved since. Preview it again to have both of "
    "one snapshot."
)


class PartOutOfBudget(Exception):
    """A part has taken the time that it may."""


def completion_begin(request: AdmissionRequest, question: RequestQuestion) -> None:
    """Have the parts of a new decision computed, unless the request has gone on. The caller holds its lock.

    The question is kept after the commit, so that no verdict waits for the disk. Parts that cannot be sent cost no
    verdict: they fail, and can be tried again.
    """
    if request.state == AdmissionState.ESTIMATING:
        parts_end(request, PartState.CANCELLED, "The cluster moved meanwhile: it is previewed again.")
    if not parts_under_way(request):
        return
    transaction.on_commit(partial(keep_question, request.pk, question), robust=True)
    try:
        _submit(request, request.requested_by)
    except SluiceError as error:
        parts_end(request, PartState.FAILED, error.message)


def _submit(request: AdmissionRequest, user: User | None, by: Callable[..., Job] = job_submit) -> Job:
    """Submit the job of the parts, in place of one of before."""
    before = request.parts_job
    is_asked_for = request.source != AdmissionSource.KUBERNETES or before is not None
    later = {} if is_asked_for else {LATER: True}
    request.parts_job = by(
        kind=JobKind.ADMISSION_PARTS,
        title=f"Parts of preview {request.version}",
        params={"admission": str(request.pk), "snapshot": request.snapshot} | later,
        cluster=request.cluster,
        user=user,
        dedupe_key=f"parts:{request.pk}:{request.snapshot}",
    )
    request.save(update_fields=["parts_job", "updated_at"])
    if before is not None and before.pk != request.parts_job.pk:
        parts_job_stop(before)
    return request.parts_job


@transaction.atomic
def completion_retry(*, request: AdmissionRequest, user: User | None, by: Callable[..., Job] = job_submit) -> Job:
    """Compute the parts again that were cut, cancelled or failed, of the same snapshot.

    Raises
    ------
    Conflict
        The request has gone on, its parts are under way, or there is none to compute again.
    Impossible
        The cluster gives parts no time.
    """
    request = requests_locked().get(pk=request.pk)
    if request.state not in OPEN - {AdmissionState.ESTIMATING}:
        state = request.get_state_display().lower()
        raise Conflict(f"The request is {state}; only of an open preview parts are computed.", code="wrong_state")
    if parts_under_way(request):
        raise Conflict("Its parts are being computed.", code="under_way")
    again = [name for name, part in parts_of(request).items() if part.can_be_retried]
    if not again:
        raise Conflict("No part of it was cut, cancelled or failed.", code="nothing_to_compute")
    if not request.cluster.parts_budget_s:
        message = f"{request.cluster.slug} gives parts of previews no time: parts_budget_s is 0."
        raise Impossible(message, [("parts_budget_s", "is 0; allowed: more, for parts to be computed")])
    parts_write(request, dict.fromkeys(again, DecisionPart(PartState.PENDING)))
    request.save(update_fields=["parts", "result", "updated_at"])
    parts_announce(request)
    return _submit(request, user, by)


def complete_preview(report: JobReporter) -> JobOutcome:
    """The work of the job: each part within its budget, stored as it comes. Parts of before it was killed stay.

    Where all are there, it was killed before it could say so.
    """
    job = report.job
    rows = AdmissionRequest.objects.select_related("cluster", "query", "version__query__cluster")
    request = rows.filter(pk=job.params["admission"]).first()
    if request is None or not _is_its(job, request) or _is_cancelled(request):
        raise JobCancelled(str(job.pk))
    names = parts_under_way(request)
    if names:
        opened = _reopen(request, lambda share, step: report(0.3 * share, step))
    for i, name in enumerate(names):
        begin, length = 0.3 + 0.7 * i / len(names), 0.7 / len(names)
        _compute(opened, name, request, report, lambda share, begin=begin, length=length: begin + length * share)
    request.refresh_from_db(fields=["parts"])
    parts = parts_of(request)
    if not any(part.can_be_retried for part in parts.values()):
        forget_question(request.pk)
    facts = {"admission": str(request.pk), **{name: part.state for name, part in parts.items()}}
    preview = RUN_KINDS[JobKind.ADMISSION_PREVIEW]
    return JobOutcome(facts, preview.page(request), preview.address(request))


def _is_its(job: Job, request: AdmissionRequest) -> bool:
    """Whether a job is that of the request's present decision."""
    return request.parts_job_id == job.pk and request.snapshot == job.params["snapshot"]


def _is_cancelled(request: AdmissionRequest) -> bool:
    return any(part.state == PartState.CANCELLED for part in parts_of(request).values())


def _reopen(request: AdmissionRequest, report: Callable[[float, str], None]) -> OpenDecision:
    """The decision opened again, of the snapshot that its verdict is of.

    Raises
    ------
    Impossible
        The snapshot is gone, or what is computed of it is another verdict: its parts would be those of another.
    """
    report(0.0, "Taking the verdict's snapshot")
    begun_s = time.perf_counter()
    question, decision = kept_question(request), request.decision
    if question is None:
        question = question_of(request)
    if decision is None or question.digest != request.snapshot or is_model_changed(request, question):
        raise Impossible(_LOST, code="snapshot_lost")
    facts = decision.policy_facts
    ahead = question.standing.ahead if question.standing is not None else ()
    question = replace(question, standing=None if facts is None else policy_standing(request, facts, ahead))
    opened, _, _ = ask_engine(request, question, decision.changes, report, begun_s, decision.policy)
    again = opened.decision
    if (again.verdict, again.placement, again.start_p) != (decision.verdict, decision.placement, decision.start_p):
        message = "Computed again, the same snapshot gives another verdict or placement. Preview it again."
        raise Impossible(message, code="verdict_differs")
    return opened


def _compute(
    opened: OpenDecision,
    name: PartName,
    request: AdmissionRequest,
    report: JobReporter,
    whole: Callable[[float], float],
) -> None:
    """Compute a part and store what it has found, with why it is not whole. What ends the job ends this, too.

    The time limit of tasks cuts it as its budget does: between two steps, or within one that is very long.
    """
    budget_s, left_s, begun_s = request.cluster.parts_budget_s, report.left_s, time.monotonic()

    def tell(share: float, step: str) -> None:
        report(whole(share), step)
        if time.monotonic() - begun_s > min(budget_s, left_s):
            raise PartOutOfBudget

    _store(report.job, lambda row: parts_write(row, {name: DecisionPart(PartState.RUNNING)}))
    state, message = PartState.DONE, ""
    try:
        if left_s <= 0:
            raise PartOutOfBudget
        opened.compute(name, tell)
    except (PartOutOfBudget, SoftTimeLimitExceeded) as limit:
        is_of_task = left_s < budget_s or isinstance(limit, SoftTimeLimitExceeded)
        spent_s = time.monotonic() - begun_s
        state, message = PartState.OUT_OF_BUDGET, _TASK_OVER.format(spent_s) if is_of_task else _SPENT.format(budget_s)
    except (JobCancelled, JobSuperseded):
        raise
    except Exception as error:
        state, message = PartState.FAILED, _failure(error, report.job)
    part = DecisionPart(state, message, round(time.monotonic() - begun_s, 3))
    decision = opened.decision
    _store(report.job, lambda row: part_keep(row, name, part, decision))


def _failure(error: Exception, job: Job) -> str:
    """Why a part failed. A database that does not answer is let through: the job is done again."""
    refusal = as_sluice_error(error)
    if refusal is not None and refusal.status == 503:
        raise error
    if refusal is not None:
        return refusal.message
    _log.exception("a part of a preview failed unexpectedly")
    return f"Something went wrong inside Sluice. The worker's log has it under job {job.pk}."


@transaction.atomic
def _store(job: Job, write: Callable[[AdmissionRequest], None]) -> None:
    """Change a request whose job this still is.

    Raises
    ------
    JobCancelled
        It has gone on, or has another decision.
    """
    row = requests_locked().filter(pk=job.params["admission"]).first()
    if row is None or not _is_its(job, row) or not parts_under_way(row):
        raise JobCancelled(str(job.pk))
    write(row)
    row.save(update_fields=["parts", "result", "curves", "updated_at"])
    parts_announce(row)


def _end(job: Job) -> None:
    """Let the parts that are not there end with their job."""
    row = requests_locked().filter(pk=job.params["admission"]).first()
    if row is None or not _is_its(job, row):
        return
    if job.state == JobState.CANCELLED:
        parts_end(row, PartState.CANCELLED, "Its job was cancelled.")
    else:
        parts_end(row, PartState.FAILED, str((job.error or {}).get("message", "Its job failed.")))


on_unanswered(JobKind.ADMISSION_PARTS, _end)
