"""Dry runs: what a verdict about a document would be, without registering anything of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from django.db import transaction

from apps.accounts.models import User
from apps.admission.models import AdmissionRequest
from apps.admission.previews import ADMISSION
from apps.admission.questions import AdmissionQuestion, ask_engine, question_of
from apps.fleet.models import Cluster
from apps.jobs.models import Job, JobKind
from apps.jobs.runner import JobOutcome, JobReporter
from apps.jobs.services import job_submit, on_unanswered
from apps.queries.snapshots.outlines import ClusterOutline, cluster_outline
from apps.queries.snapshots.parts import snapshot_take
from engine.admission.answer import Thinness
from engine.records import Record

__all__ = ["DryRunAnswer", "dry_run_request", "preview_dry_run"]

_DOCUMENT = "document"


@dataclass(frozen=True)
class DryRunAnswer(Record):
    """The verdict about a document. Parts never follow it: whether it is thin is not known then."""

    TITLE: ClassVar[str] = "the answer of a dry run"

    verdict: str
    headline: str
    thin: Thinness


def dry_run_request(*, cluster: Cluster, user: User, document: Mapping[str, Any]) -> Job:
    """Request the verdict about a document, whose faults are told at once. Its job keeps the document until its end.

    Raises
    ------
    SluiceError
        The document cannot be decided on.
    Unavailable
        The broker does not answer.
    """
    outline = cluster_outline(cluster)  # others may write meanwhile
    with transaction.atomic():
        _draft(cluster, user, document, outline)
        transaction.set_rollback(True)
    return job_submit(
        kind=JobKind.DRY_RUN,
        title=f"Dry run of {document.get('query')}",
        params={_DOCUMENT: dict(document)},
        cluster=cluster,
        user=user,
    )


def preview_dry_run(report: JobReporter) -> JobOutcome:
    """The work of the job: what is registered to ask the engine is gone before the engine is asked."""
    job, begun_s = report.job, time.perf_counter()
    cluster, user = job.cluster, job.requested_by
    assert cluster is not None
    report(0.0, "Taking a snapshot")
    snapshot, outline = snapshot_take(cluster), cluster_outline(cluster)  # others may write meanwhile
    with transaction.atomic():
        request = _draft(cluster, user, job.params[_DOCUMENT], outline)
        question = question_of(request, snapshot)
        transaction.set_rollback(True)
    opened, _, _ = ask_engine(request, question, request.changes, report, begun_s)
    decision = opened.decision
    thin = "unknown" if decision.thin == "pending" else decision.thin
    answer = DryRunAnswer(decision.verdict, decision.headline, thin)
    return JobOutcome(answer.to_dict(), store=_forget_document)


def _draft(
    cluster: Cluster, user: User | None, document: Mapping[str, Any], outline: ClusterOutline
) -> AdmissionRequest:
    """A request about a document, for a transaction that is rolled back."""
    question = AdmissionQuestion(document=document)
    return ADMISSION.create(cluster=cluster, user=user, question=question, outline=outline)


def _forget_document(job: Job) -> None:
    """Nothing of a document stays where its job has ended."""
    Job.objects.filter(pk=job.pk).update(params={})


on_unanswered(JobKind.DRY_RUN, _forget_document)
