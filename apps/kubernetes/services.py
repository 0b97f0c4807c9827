"""Reviews of Kubernetes answered: found or predicted, asked of the ordinary admission, within the time there is."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from django.db import DatabaseError, IntegrityError, transaction

from apps.accounts.models import User
from apps.admission.choices import AdmissionSource, AdmissionState, Verdict
from apps.admission.decisions import admission_apply, admission_hold, admission_request_review, admission_withdraw
from apps.admission.dry_runs import DryRunAnswer, dry_run_request
from apps.admission.models import AdmissionRequest
from apps.admission.previews import ADMISSION
from apps.admission.questions import AdmissionQuestion
from apps.connections.models import ImportedJob
from apps.core.clock import shared_now
from apps.core.errors import Conflict, SluiceError, Unavailable
from apps.core.events import announce
from apps.core.limits import MAX_MESSAGE
from apps.fleet.choices import Fallback
from apps.fleet.models import Cluster
from apps.jobs import api as jobs_api
from apps.jobs.models import Job, JobState
from apps.jobs.services import job_cancel
from apps.kubernetes.models import KubernetesReview, ReviewBasis, ReviewOrigin
from apps.kubernetes.objects import DOCUMENT_ANNOTATION, QUERY_ANNOTATION, ReviewRequest, StreamingObject, read_document
from apps.kubernetes.words import (
    admission_link,
    dry_run_words,
    fallback_words,
    message_line,
    thin_warnings,
    verdict_words,
    warning_lines,
)
from apps.queries.choices import QueryState
from apps.queries.models import Query, QueryVersion

__all__ = ["review_answer", "reviews_purge"]

KEEP_DAYS = 90
_POLL_S = 0.1
_ABANDONED = timedelta(minutes=2)  # nobody waits for a review for longer than 30 s
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Answer:
    """An answer before it is stored."""

    allowed: bool
    basis: str
    message: str
    warnings: Sequence[str] = ()


def review_answer(
    *,
    cluster: Cluster,
    user: User,
    review: ReviewRequest,
    budget_s: float,
    may_apply: bool = False,
    origin: str = ReviewOrigin.WEBHOOK,
) -> KubernetesReview:
    """Answer a review within `budget_s` seconds, and keep the answer. Call it outside of a transaction.

    The same review asked again is given the same answer; a dry run starts nothing and leaves no open request behind.
    Without a verdict that says yes or no the cluster's rules decide (`kubernetes_unknown`, `kubernetes_late`,
    `kubernetes_review`).

    Parameters
    ----------
    may_apply : bool
        Whether an admitted query counts as running from now on.

    Raises
    ------
    Conflict
        The review's uid was used for another question.
    """
    begun_s = time.monotonic()
    row, is_mine = _claim(cluster, user, review, origin)
    if not is_mine and not _is_taken_over(row):
        return _answered(row, cluster, begun_s + budget_s)
    try:
        answer = _quick(review) or _decided(row, user, review, begun_s + budget_s, may_apply)
    except Exception:
        _log.exception("the review %s failed unexpectedly", row.uid)
        why = "Something went wrong inside Sluice; the console's log has it."
        answer = _unknown(cluster, why)
        if row.admission is not None and not answer.allowed:
            with suppress(DatabaseError):
                _hold(row, row.admission)
    row.allowed, row.basis = answer.allowed, answer.basis
    row.message, row.warnings = message_line(answer.message), warning_lines(answer.warnings)
    row.waited_s = time.monotonic() - begun_s
    row.save()
    announce(f"kubernetes:{cluster.slug}")
    return row


def reviews_purge() -> int:
    """Delete answers that are older than they are kept; returns how many."""
    before = shared_now() - timedelta(days=KEEP_DAYS)
    return KubernetesReview.objects.filter(created_at__lt=before).delete()[0]


def _claim(cluster: Cluster, user: User, review: ReviewRequest, origin: str) -> tuple[KubernetesReview, bool]:
    """The review's row, and whether it was written just now: of several that ask at once, one answers."""
    item = review.subject
    known = KubernetesReview.objects.filter(cluster=cluster, uid=review.uid).first()
    if known is None:
        try:
            with transaction.atomic():
                return KubernetesReview.objects.create(
                    cluster=cluster,
                    uid=review.uid,
                    digest=review.digest,
                    origin=origin,
                    api_version=item.api_version,
                    kind=item.kind,
                    namespace=item.namespace,
                    name=item.name,
                    operation=review.operation,
                    username=review.username,
                    dry_run=review.dry_run,
                    asked_by=user,
                ), True
        except IntegrityError:
            known = KubernetesReview.objects.get(cluster=cluster, uid=review.uid)
    if known.digest != review.digest:
        raise Conflict(f"The uid {review.uid} was used for another question: {known}.", [("request.uid", "was used")])
    return known, False


def _is_taken_over(row: KubernetesReview) -> bool:
    """Whether a review is this request's from now on: who was answering it has been gone for longer than anyone waits.

    Doing it again is safe: a preview under way is joined, and a query that was started by it runs already.
    """
    now = shared_now()
    if row.allowed is not None or now - row.created_at < _ABANDONED:
        return False
    mine = KubernetesReview.objects.filter(pk=row.pk, allowed=None, created_at=row.created_at)
    return bool(mine.update(created_at=now))


def _answered(row: KubernetesReview, cluster: Cluster, until_s: float) -> KubernetesReview:
    """The row once another request has answered it; else the rule on late verdicts, not stored."""
    while row.allowed is None and time.monotonic() < until_s:
        jobs_api.release_connection()
        time.sleep(_POLL_S)
        row.refresh_from_db()
    if row.allowed is None:
        answer = _late(cluster, "The same review is being answered still.")
        row.allowed, row.basis, row.message = answer.allowed, answer.basis, message_line(answer.message)
        row.warnings = warning_lines(answer.warnings)
    return row


def _quick(review: ReviewRequest) -> _Answer | None:
    """Answers that need no look at the cluster."""
    item, before = review.subject, review.before
    words = f"{item.kind} {item.api_version}"
    if review.operation in {"DELETE", "CONNECT"}:
        return _Answer(True, ReviewBasis.STOPS, f"{review.operation} adds no load.")
    if not item.is_readable and not item.is_other_version:
        warning = f"it decides on no {words}: narrow the rules of the webhook."
        made = f" Each {item.makes} that is made of it is decided on by itself." if item.makes else ""
        return _Answer(True, ReviewBasis.OTHER, f"Sluice decides on no {words}.{made}", [warning])
    if item.is_readable and not item.has_job and not item.faults:
        message = "It is a session cluster and runs no job of its own: each FlinkSessionJob is decided on by itself."
        return _Answer(True, ReviewBasis.STOPS, message)
    if item.is_readable and item.is_suspended:
        return _Answer(True, ReviewBasis.STOPS, "It is suspended and takes no load.")
    if item.is_readable and before is not None and before.material == item.material:
        return _Answer(True, ReviewBasis.UNCHANGED, "Its specification is as it was.")
    return None


def _decided(row: KubernetesReview, user: User, review: ReviewRequest, until_s: float, may_apply: bool) -> _Answer:
    item, cluster = review.subject, row.cluster
    if not item.is_readable:
        return _unknown(cluster, f"{item.kind} of {item.api_version} cannot be read by this version of Sluice.")
    subject = subject_of(cluster, item)
    if subject.why_not:
        return _unknown(cluster, subject.why_not)
    if subject.version is not None:
        at_once = _without_verdict(cluster, subject.version, item)
        if at_once is not None:
            return at_once
    elif review.dry_run:
        return _rehearsed(cluster, user, subject, until_s)
    request, answer = _previewed(row, user, subject, until_s, may_apply=may_apply and not review.dry_run)
    if answer is not None or request is None:
        return answer or _unknown(cluster, "There is no verdict.")
    return _by_verdict(row, request, user)


def _without_verdict(cluster: Cluster, version: QueryVersion, item: StreamingObject) -> _Answer | None:
    """Answers about a version of which a verdict would say nothing: it runs, or would not run as it was measured."""
    asked, known = item.parallelism, version_parallelism(version)
    if asked is not None and asked < known:
        why = (
            f"It asks for a parallelism of {asked}; the statistics and the placement of {version} are of {known}. "
            "A person has to decide, or register a version with fewer replicas."
        )
        return _by_rule(cluster.kubernetes_review, "requests for a person", ReviewBasis.LESS, why)
    query = version.query
    if query.state != QueryState.RUNNING or query.running_version_id != version.pk:
        return None
    warnings = []
    if asked is not None and asked > known:
        warnings = [
            f"it asks for a parallelism of {asked}; {version} is known with {known}. Nothing is estimated anew."
        ]
    if item.least_parallelism is not None and item.least_parallelism < known:
        warnings.append(
            f"it may run with a parallelism of {item.least_parallelism} while executors come and go; {version} is "
            f"known with {known}."
        )
    return _Answer(True, ReviewBasis.RUNNING, f"{version} runs already: its load is part of the cluster's.", warnings)


def _rehearsed(cluster: Cluster, user: User, subject: ReviewSubject, until_s: float) -> _Answer:
    """Of a dry run with a document: the verdict that it would get. Nothing of it is registered."""
    try:
        job = dry_run_request(cluster=cluster, user=user, document=subject.document or {})
    except Unavailable as error:
        return _late(cluster, error.message)
    except SluiceError as error:
        return _unknown(cluster, f"The query cannot be decided on: {error.message}")
    jobs_api.job_wait(job, max(0.0, until_s - time.monotonic()))
    if not job.is_finished:
        with suppress(Conflict):  # it has ended in this moment: nobody waits for it any more
            job_cancel(job)
        return _late(cluster, "The verdict of the dry run is not there in time.")
    if job.state != JobState.SUCCEEDED:
        return _unknown(cluster, _failure_words(job))
    found = DryRunAnswer.parse(job.result)
    return _by_decision(cluster, found.verdict, dry_run_words(found), thin_warnings(found.thin))


def _previewed(
    row: KubernetesReview, user: User, subject: ReviewSubject, until_s: float, *, may_apply: bool
) -> tuple[AdmissionRequest | None, _Answer | None]:
    """The request once it is decided, and applied where it may be; or the answer where that failed or takes too long.

    The worker applies it in the transaction that keeps the verdict, on an unmoved cluster: of many reviews at once each
    is decided on beside those that were let in before.
    """
    reason = f"Kubernetes: {row.operation} {row.kind} {row.path} by {row.username or 'nobody named'}"
    question = AdmissionQuestion(document=subject.document, reason=reason, mode="apply" if may_apply else "preview")
    if subject.version is not None:
        question = replace(question, query=subject.version.query.name, version=subject.version.number)
    try:
        request, job = ADMISSION.request(
            cluster=row.cluster,
            user=user,
            source=AdmissionSource.KUBERNETES,
            question=question,
        )
    except Unavailable as error:
        return None, _late(row.cluster, error.message)
    except SluiceError as error:
        return None, _unknown(row.cluster, f"The query cannot be decided on: {error.message}")
    row.admission = request
    row.save(update_fields=["admission"])
    while True:
        jobs_api.job_wait(job, max(0.0, until_s - time.monotonic()))
        request = ADMISSION.visible().defer(None).get(pk=request.pk)
        if request.state != AdmissionState.ESTIMATING or request.job in (None, job):
            break
        job = request.job  # the cluster moved while the verdict was computed: it is asked again
    if may_apply and request.state == AdmissionState.ESTIMATING and not _late(row.cluster, "").allowed:
        request = _hold(row, request)
    if row.dry_run:
        _close_dry_run(row, request, user)
    if request.state == AdmissionState.ESTIMATING:
        words = f"The verdict is not there in time; it will stand at {admission_link(request)}"
        return request, _late(row.cluster, words)
    if not request.verdict:
        return request, _unknown(row.cluster, _failure_words(job))
    if may_apply and request.verdict == Verdict.ADMIT and request.state == AdmissionState.PREVIEW:
        # Another review of the same question was out of time, and had it held.
        try:
            request = admission_apply(request=request, user=user)
        except SluiceError as error:
            return request, _late(row.cluster, f"It was admitted. {error.message}")
    if may_apply and request.verdict == Verdict.ADMIT and request.state != AdmissionState.APPLIED:
        return request, _late(row.cluster, f"It was admitted. {request.decision_reason or 'It was not applied.'}")
    return request, None


def _hold(row: KubernetesReview, request: AdmissionRequest) -> AdmissionRequest:
    """Have a request not applied that is answered by no, unless others wait for it or asked for it themselves."""
    others = request.kubernetes_reviews.filter(allowed=None).exclude(pk=row.pk)
    if request.source != AdmissionSource.KUBERNETES or others.exists():
        return request
    return admission_hold(request=request)


def _failure_words(job: Job) -> str:
    return f"The preview ended without a verdict: {(job.error or {}).get('message', 'it was cancelled.')}"


def _close_dry_run(row: KubernetesReview, request: AdmissionRequest, user: User) -> None:
    """A dry run leaves nothing for somebody to act on; a request that others asked as well stays theirs."""
    if request.created_at < row.created_at or request.kubernetes_reviews.exclude(pk=row.pk).exists():
        return
    try:
        admission_withdraw(request=request, user=user, reason="Dry run of Kubernetes.")
    except Conflict:  # decided on by somebody in this moment
        _log.info("the dry run's request %s was closed by another", request.pk)


def _by_verdict(row: KubernetesReview, request: AdmissionRequest, user: User) -> _Answer:
    if request.verdict == Verdict.REVIEW and not row.dry_run and request.state == AdmissionState.PREVIEW:
        admission_request_review(request=request, user=user, reason=request.reason)
    thin = request.decision.thin if request.decision is not None else False
    return _by_decision(
        row.cluster, request.verdict, verdict_words(request), thin_warnings(thin, admission_link(request))
    )


def _by_decision(cluster: Cluster, verdict: str, words: str, warnings: Sequence[str]) -> _Answer:
    """Kubernetes makes no changes and has no queue: admit is the one verdict that lets an object pass."""
    if verdict == Verdict.REVIEW:
        answer = _by_rule(cluster.kubernetes_review, "requests for a person", ReviewBasis.VERDICT, words)
        return _Answer(answer.allowed, answer.basis, answer.message, [*answer.warnings, *warnings])
    return _Answer(verdict == Verdict.ADMIT, ReviewBasis.VERDICT, words, warnings)


def _unknown(cluster: Cluster, why: str) -> _Answer:
    return _by_rule(cluster.kubernetes_unknown, "jobs that are not known", ReviewBasis.UNKNOWN, why)


def _late(cluster: Cluster, why: str) -> _Answer:
    return _by_rule(cluster.kubernetes_late, "verdicts that are late", ReviewBasis.LATE, why)


def _by_rule(fallback: str, rule: str, basis: str, why: str) -> _Answer:
    allowed = fallback == Fallback.ALLOW
    text = f"{fallback_words(fallback, rule)} {why[: 2 * MAX_MESSAGE]}"
    return _Answer(allowed, basis, text, [text] if allowed else [])


@dataclass(frozen=True)
class ReviewSubject:
    """A version to be decided on, or a document that describes one; `why_not` is a sentence where there is neither."""

    version: QueryVersion | None = None
    document: Mapping[str, Any] | None = None
    why_not: str = ""


def subject_of(cluster: Cluster, item: StreamingObject) -> ReviewSubject:
    """The query that an object means: by its annotations, then by an imported job's name, then by its own name.

    A document is predicted where its costs are unknown, like every query that never ran.
    """
    if item.faults:
        return ReviewSubject(why_not=f"The object cannot be read: {item.faults[0]}.")
    if item.document:
        return _document(item)
    if item.query:
        query = cluster.queries.filter(name=item.query).first()
        if query is None:
            return ReviewSubject(
                why_not=f"{QUERY_ANNOTATION} names {item.query!r}, which is no query of {cluster.slug}."
            )
        return _newest(query)
    jobs = list(_jobs(cluster, item))
    if len(jobs) > 1:
        names = ", ".join(f"{job.query.name} ({job.connection.name})" for job in jobs[:5])
        return ReviewSubject(why_not=f"Several queries are a job of this name: {names}. {QUERY_ANNOTATION} says which.")
    if jobs:
        return _imported(jobs[0])
    names = [f"{item.namespace}.{item.name}", f"{item.namespace}-{item.name}", item.name]
    found = {query.name: query for query in cluster.queries.filter(name__in=names)}
    query = next((found[name] for name in names if name in found), None)
    if query is not None:
        return _newest(query)
    return ReviewSubject(
        why_not=f"No query of {cluster.slug} is {item.kind} {item.namespace}/{item.name}: import its job by a "
        f"connection, or annotate it with {QUERY_ANNOTATION} or {DOCUMENT_ANNOTATION}."
    )


def version_parallelism(version: QueryVersion) -> int:
    """The most replicas that an operator of a version has, as it runs or as its document asks."""
    rows = version.operators.prefetch_related("placements")
    return max((len(row.placements.all()) or len(row.requested) or 1 for row in rows), default=1)


def _document(item: StreamingObject) -> ReviewSubject:
    try:
        document = read_document(item.document)
    except SluiceError as error:
        return ReviewSubject(why_not=error.message)
    if not isinstance(document, Mapping):
        return ReviewSubject(why_not=f"{DOCUMENT_ANNOTATION} holds no object.")
    return ReviewSubject(document={"query": item.query or item.name, **document})


def _jobs(cluster: Cluster, item: StreamingObject) -> Any:
    """Imported jobs of the first of the object's names that has any."""
    rows = ImportedJob.objects.select_related("connection", "query__running_version", "version__query")
    for name in item.job_names:
        jobs = rows.filter(connection__cluster=cluster, name=name)[:6]
        if jobs:
            return jobs
    return []


def _imported(job: ImportedJob) -> ReviewSubject:
    return ReviewSubject(version=job.version) if job.version is not None else _newest(job.query)


def _newest(query: Query) -> ReviewSubject:
    version = query.versions.select_related("query__cluster").first()
    if version is None:
        return ReviewSubject(why_not=f"Query {query.name} has no version.")
    return ReviewSubject(version=version)
