"""Life of an admission request: created, previewed, withdrawn, reviewed, declined; the review of the queue."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.admission.choices import OPEN, AdmissionSource, AdmissionState
from apps.admission.models import AdmissionRequest
from apps.admission.questions import (
    AdmissionQuestion,
    draft_from_document,
    draft_version,
    fingerprint,
    question_changes,
    question_check,
)
from apps.admission.selectors import is_due, is_over
from apps.core.errors import Conflict, Malformed, SluiceError
from apps.core.events import announce
from apps.fleet.models import Cluster
from apps.jobs.models import Job, JobKind, JobState
from apps.jobs.services import job_cancel, job_submit, on_unanswered
from apps.queries.choices import QueryState
from apps.queries.snapshots.cluster import ClusterOutline, cluster_outline
from engine.errors import EngineError

__all__ = [
    "admission_announce",
    "admission_create",
    "admission_create_follower",
    "admission_decline",
    "admission_preview",
    "admission_preview_again",
    "admission_preview_alternative",
    "admission_request_review",
    "admission_submit",
    "admission_withdraw",
    "connect",
    "queue_review",
    "release_queued_query",
]


def admission_preview(
    *,
    cluster: Cluster,
    user: User | None,
    question: AdmissionQuestion,
    source: AdmissionSource = AdmissionSource.CONSOLE,
) -> tuple[AdmissionRequest, Job]:
    """Ask whether a version of a query may run.

    Returns
    -------
    The request and the job that estimates it.
    """
    outline = cluster_outline(cluster)
    with transaction.atomic():
        request = admission_create(cluster=cluster, user=user, question=question, source=source, outline=outline)
        return _with_job(request, user)


@transaction.atomic
def admission_create(
    *,
    cluster: Cluster,
    user: User | None,
    question: AdmissionQuestion,
    source: AdmissionSource = AdmissionSource.CONSOLE,
    outline: ClusterOutline | None = None,
) -> AdmissionRequest:
    """Write a request, not sent to the engine yet. A document also describes the query and the sources it brings.

    The same question asked again while the first is still estimated gives the first request, which has its job.
    Everything is checked before a worker has to look at it, and stored whole or not at all. The check needs no more
    of the cluster than its `outline`, taken before the lock.
    """
    outline = outline or cluster_outline(cluster)
    Cluster.objects.select_for_update().get(pk=cluster.pk)
    digest = question.digest(cluster.slug)
    same = _still_estimating(cluster, digest)
    if same is not None:
        return same
    objective = question.objective.to_dict() if question.objective else {}
    if question.document is not None:
        drafted, own_objective = draft_from_document(cluster=cluster, document=question.document, user=user)
        objective = objective or own_objective
    else:
        drafted = draft_version(cluster=cluster, name=question.query or "", number=question.version)
    request = AdmissionRequest.objects.create(
        cluster=cluster,
        query=drafted.query,
        version=drafted,
        requested_by=user,
        reason=question.reason[:300],
        source=source,
        apply_when_admitted=question.mode == "apply",
        objective=objective,
        fingerprint=digest,
        placement=dict(question.placement),
        changes=[dict(change) for change in question.changes],
        may_wait_s=question.may_wait_s,
        target=question.target,
    )
    question_check(request, outline, path="document" if question.document is not None else "query")
    return request


#: States in which the same question, asked again, takes a request's place.
_REPLACED = frozenset({AdmissionState.FAILED, AdmissionState.PREVIEW, AdmissionState.AWAITING})


def admission_preview_again(*, request: AdmissionRequest, user: User | None) -> tuple[AdmissionRequest, Job]:
    """The same question asked of the cluster as it is now: a new request that takes the old one's place."""
    outline = cluster_outline(request.cluster)
    with transaction.atomic():
        request = _locked(request)
        if request.state == AdmissionState.ESTIMATING and request.job is not None:
            return request, request.job
        follower = admission_create_follower(request=request, user=user, changes=request.changes, outline=outline)
        return _with_job(follower, user)


def admission_preview_alternative(
    *, request: AdmissionRequest, alternative: str, user: User | None
) -> tuple[AdmissionRequest, Job]:
    """Preview an alternative that a decision offered: a new request with its changes."""
    outline = cluster_outline(request.cluster)
    with transaction.atomic():
        request = _locked(request)
        offered = request.decision.alternatives if request.decision else ()
        alternatives = {row.id: [change.to_dict() for change in row.changes] for row in offered}
        if alternative not in alternatives:
            allowed = ", ".join(alternatives) or "none: this decision offers no alternatives"
            message = f"{alternative!r} is not one of: {allowed}"
            raise Malformed(f"choice: {alternative!r} is not offered.", [("choice", message)])
        changes = alternatives[alternative]
        follower = admission_create_follower(request=request, user=user, changes=changes, outline=outline)
        return _with_job(follower, user)


def admission_submit(*, request: AdmissionRequest, user: User | None, purpose: str = "preview", tries: int = 0) -> Job:
    """Send the request to the engine. `purpose` is ``preview`` or ``queue``; `tries` failed before."""
    job = job_submit(
        kind=JobKind.ADMISSION_PREVIEW,
        title=f"Preview {request.version}",
        params={"admission": str(request.pk), "purpose": purpose, "tries": tries},
        cluster=request.cluster,
        user=user,
        dedupe_key=f"admission:{request.pk}",
    )
    request.job = job
    request.save(update_fields=["job", "updated_at"])
    admission_announce(request)
    return job


@transaction.atomic
def admission_withdraw(*, request: AdmissionRequest, user: User | None, reason: str = "") -> AdmissionRequest:
    """Take a request back. One that is being estimated is cancelled."""
    # The job before the request, as the end of a job takes them: the other way round the two would block each other.
    Job.objects.select_for_update().filter(pk=request.job_id).first()
    request = _locked(request)
    _require_state(request, OPEN, "withdrawn")
    job = request.job
    _close(request, AdmissionState.WITHDRAWN, user, reason)
    if job is not None and not job.is_finished:
        job_cancel(job)
    return request


@transaction.atomic
def admission_request_review(*, request: AdmissionRequest, user: User | None, reason: str = "") -> AdmissionRequest:
    """Ask a person to decide. They may take their time: the request no longer expires, but it may still go stale."""
    request = _locked(request)
    _require_state(request, {AdmissionState.PREVIEW}, "sent for review")
    request.state, request.decision_reason, request.valid_until = AdmissionState.AWAITING, reason[:300], None
    request.save(update_fields=["state", "decision_reason", "valid_until", "updated_at"])
    admission_announce(request)
    return request


@transaction.atomic
def admission_decline(*, request: AdmissionRequest, user: User, reason: str) -> AdmissionRequest:
    """A person says no, with a reason."""
    request = _locked(request)
    _require_reason(reason)
    _require_state(request, {AdmissionState.PREVIEW, AdmissionState.AWAITING, AdmissionState.QUEUED}, "declined")
    _close(request, AdmissionState.DECLINED, user, reason)
    return request


def admission_announce(request: AdmissionRequest) -> None:
    """Tell open pages that the request has changed."""
    announce(f"admission:{request.pk}")
    announce(f"cluster:{request.cluster.slug}")


def _still_estimating(cluster: Cluster, digest: str) -> AdmissionRequest | None:
    return (
        AdmissionRequest.objects.select_related("job", "query", "version", "cluster")
        .filter(cluster=cluster, fingerprint=digest, state=AdmissionState.ESTIMATING)
        .first()
    )


def admission_create_follower(
    *,
    request: AdmissionRequest,
    user: User | None,
    changes: Iterable[Mapping[str, object]],
    outline: ClusterOutline | None = None,
) -> AdmissionRequest:
    """Write a request like `request` with these changes, not sent to the engine yet.

    The same question asked again while the first is still estimated gives the first; answered, it is superseded.
    """
    outline = outline or cluster_outline(request.cluster)
    asked = [dict(change) for change in changes]
    digest = fingerprint({"follows": str(request.pk), "changes": asked})
    same = _still_estimating(request.cluster, digest)
    if same is not None:
        return same
    follower = AdmissionRequest.objects.create(
        cluster=request.cluster,
        query=request.query,
        version=request.version,
        parent=request,
        requested_by=user,
        reason=request.reason,
        source=request.source,
        objective=request.objective,
        fingerprint=digest,
        placement=request.placement,
        changes=asked,
        may_wait_s=request.may_wait_s,
        target=request.target,
    )
    question_check(follower, outline, path="query")
    if request.state in _REPLACED and asked == request.changes:
        _close(request, AdmissionState.SUPERSEDED, None, "")
    return follower


def _with_job(request: AdmissionRequest, user: User | None) -> tuple[AdmissionRequest, Job]:
    return request, request.job or admission_submit(request=request, user=user)


def _locked(request: AdmissionRequest) -> AdmissionRequest:
    rows = AdmissionRequest.objects.select_for_update(of=("self",)).select_related(
        "cluster", "query", "version__query", "job"
    )
    return rows.get(pk=request.pk)


def _close(request: AdmissionRequest, state: AdmissionState, user: User | None, reason: str) -> None:
    request.state, request.decided_by, request.decided_at = state, user, timezone.now()
    request.decision_reason = reason[:300]
    request.save(update_fields=["state", "decided_by", "decided_at", "decision_reason", "updated_at"])
    release_queued_query(request)
    admission_announce(request)


def release_queued_query(request: AdmissionRequest) -> None:
    """A query that waited for nothing but this request goes back to what it was."""
    query = request.query
    if query.state == QueryState.QUEUED and not query.admissions.filter(state=AdmissionState.QUEUED).exists():
        query.state = QueryState.DRAFT
        query.save(update_fields=["state", "updated_at"])
        announce(f"query:{request.cluster.slug}/{query.name}")


def _require_state(request: AdmissionRequest, allowed: Iterable[str], verb: str) -> None:
    if request.state not in allowed:
        names = ", ".join(sorted(AdmissionState(state).label.lower() for state in allowed))
        state = request.get_state_display().lower()
        raise Conflict(f"The request is {state}; only one that is {names} can be {verb}.", code="wrong_state")


def _require_reason(reason: str) -> None:
    if not reason.strip():
        raise Malformed("reason: say why; it is kept with the decision.", [("reason", "is missing; say why")])


_log = logging.getLogger(__name__)


def queue_review() -> int:
    """Ask again about every queued request that is due, whose cluster has changed or whose patience has ended.

    Returns how many were sent to the engine; they are applied by the worker if they are admitted. One that cannot be
    looked at now does not keep the others waiting: its turn comes with the next review.
    """
    queued = AdmissionRequest.objects.filter(state=AdmissionState.QUEUED).order_by("decided_at")
    sent = 0
    for request in queued.select_related("cluster", "query", "version__query", "job"):
        try:
            sent += _review_queued(request)
        except (SluiceError, EngineError) as error:
            _log.warning("queued request %s is not reviewed now: %s", request.pk, error)
    return sent


def _review_queued(request: AdmissionRequest) -> bool:
    """Look after one queued request; whether it was sent to the engine."""
    if request.query.state not in {QueryState.QUEUED, QueryState.RUNNING}:
        admission_withdraw(request=request, user=None, reason="Its query was stopped")
        return False
    if (request.job is not None and not request.job.is_finished) or not _is_review_needed(request):
        return False
    admission_submit(request=request, user=request.requested_by, purpose="queue")
    return True


def _is_review_needed(request: AdmissionRequest) -> bool:
    return is_due(request) or is_over(request) or bool(question_changes(request))


# A queued request survives the cancellation of one look at it: the next review asks again.
_ENDS = {
    (JobState.FAILED, AdmissionState.ESTIMATING): AdmissionState.FAILED,
    (JobState.FAILED, AdmissionState.QUEUED): AdmissionState.FAILED,
    (JobState.CANCELLED, AdmissionState.ESTIMATING): AdmissionState.WITHDRAWN,
}


def connect() -> None:
    on_unanswered(JobKind.ADMISSION_PREVIEW, _end_request)


def _end_request(job: Job) -> None:
    rows = AdmissionRequest.objects.select_related("cluster", "query")
    request = rows.filter(pk=job.params["admission"]).first()
    state = _ENDS.get((JobState(job.state), AdmissionState(request.state))) if request is not None else None
    if request is None or state is None:
        return
    request.state = state
    request.save(update_fields=["state", "updated_at"])
    release_queued_query(request)
    admission_announce(request)
