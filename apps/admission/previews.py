"""Preview jobs: load a request, ask the engine, store the answer, apply it where that was asked for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

from django.db import transaction

from apps.admission.choices import AdmissionState, Verdict
from apps.admission.decisions import apply_decided, enqueue_decided, has_later_start, is_passing
from apps.admission.models import AdmissionRequest
from apps.admission.questions import RequestQuestion, question_changes, question_of
from apps.admission.selectors import change_to_start, is_over
from apps.admission.services import admission_announce, admission_submit, release_queued_query
from apps.core.clock import shared_now
from apps.core.errors import Impossible, SluiceError
from apps.core.limits import MAX_REASON
from apps.estimates.work import SLICES_PER_SUBINTERVAL
from apps.fleet.models import Cluster
from apps.jobs.models import Job
from apps.jobs.runner import JobOutcome, JobReporter
from apps.predictions.choices import PredictionPurpose
from apps.predictions.services import CandidatePrediction, candidate_predict, prediction_store
from engine.admission.answer import AdmissionDecision, AdmissionPolicy
from engine.admission.decision import decide
from engine.document.candidate import read_candidate

__all__ = ["admission_decide", "admission_store", "preview_admission"]

MAX_TRIES = 20  # of a request that is to be applied, on a cluster that moves during each
_log = logging.getLogger(__name__)


def admission_decide(
    request: AdmissionRequest, *, purpose: str, progress: Callable[[float, str], None] | None = None
) -> tuple[RequestQuestion, AdmissionDecision, CandidatePrediction | None]:
    """Ask the engine about the request on the cluster as it is now; of a query that never ran, a model first."""
    begun_s = time.perf_counter()
    question = question_of(request)
    prediction = _predict(request, question, begun_s) if question.never_ran else None
    later = change_to_start(request) if purpose == "queue" else []
    decision = decide(
        question.running,
        question.candidate,
        policy=_policy(request.cluster, question),
        changes=[*request.changes, *later],
        mace_every=SLICES_PER_SUBINTERVAL,
        prediction=prediction.answer if prediction else None,
        predictor=prediction.predictor if prediction else None,
        record=question.record,
        calibrations=question.calibrations,
        currency=request.cluster.currency,
        progress=progress,
    )
    if prediction is not None and decision.prediction is not None:
        prediction = replace(prediction, answer=decision.prediction)  # of the placement that was decided on
    return question, decision, prediction


def _predict(request: AdmissionRequest, question: RequestQuestion, begun_s: float) -> CandidatePrediction | None:
    """The prediction for a request; None without a model, and then a person decides."""
    try:
        return candidate_predict(
            cluster=request.cluster,
            running=question.running,
            candidate=read_candidate(question.candidate, question.running),
            closed_nodes=question.closed_nodes,
            target=request.target,
            begun_s=begun_s,
        )
    except Impossible as error:
        _log.warning("query %s is not predicted: %s", request.query, error)
        return None


def admission_store(
    *,
    request: AdmissionRequest,
    purpose: str,
    question: RequestQuestion,
    decision: AdmissionDecision,
    prediction: CandidatePrediction | None = None,
    tries: int = 0,
) -> AdmissionRequest:
    """Keep the answer; apply it at once where that was asked for. Called inside the job's transaction."""
    Cluster.objects.select_for_update().get(pk=request.cluster_id)
    # Locked, so that an answer does not overwrite what a person has decided in the same moment.
    rows = AdmissionRequest.objects.select_for_update(of=("self",))
    request = rows.select_related("cluster", "query", "version__query__cluster").get(pk=request.pk)
    if request.state not in {AdmissionState.ESTIMATING, AdmissionState.QUEUED}:
        return request  # withdrawn meanwhile: the answer comes too late
    now = shared_now()
    answer = decision.to_dict()
    request.curves = answer.pop("curves")
    request.result, request.verdict = answer, decision.verdict
    if prediction is not None:
        request.prediction = prediction_store(
            version=request.version,
            prediction=prediction,
            purpose=PredictionPurpose.ADMISSION,
            user=request.requested_by,
        )
    request.snapshot, request.snapshot_parts = question.digest, question.parts
    request.previewed_at = request.previewed_at if purpose == "queue" else now
    request.valid_until = now + timedelta(seconds=request.cluster.preview_valid_s)
    _settle(request, purpose, tries)
    admission_announce(request)
    return request


def _settle(request: AdmissionRequest, purpose: str, tries: int) -> None:
    """Move the request on by its answer."""
    request.state = AdmissionState.QUEUED if purpose == "queue" else AdmissionState.PREVIEW
    request.save()
    if not request.apply_when_admitted and purpose != "queue":
        return
    moved = question_changes(request) if is_passing(request) or request.verdict == Verdict.QUEUE else []
    if moved:
        _ask_again(request, purpose, tries + 1, moved)
    elif is_passing(request) and (purpose == "queue" or not has_later_start(request)):
        _apply(request)
    elif request.verdict == Verdict.QUEUE or has_later_start(request):
        enqueue_decided(request, request.decided_by or request.requested_by)
    elif request.verdict == Verdict.REVIEW:
        request.state = AdmissionState.AWAITING
        request.save(update_fields=["state", "updated_at"])
        release_queued_query(request)
    elif purpose == "queue":
        _refused_in_queue(request)


def _ask_again(request: AdmissionRequest, purpose: str, tries: int, moved: Sequence[str]) -> None:
    """The cluster moved while the engine was at work: again for a request, with the next review for a queued one.

    Among many that apply at once each try lets another one through, so its turn comes; a cluster that moves for ever
    gives it none, and then the request says so.
    """
    if purpose == "queue":
        return
    if tries < MAX_TRIES:
        request.state = AdmissionState.ESTIMATING
        request.save(update_fields=["state", "updated_at"])
        admission_submit(request=request, user=request.requested_by, tries=tries)
        return
    message = f"Not applied: the cluster moved during each of {tries} previews, last {', '.join(moved)}. Apply it anew."
    request.decision_reason = message[:MAX_REASON]
    request.save(update_fields=["decision_reason", "updated_at"])
    release_queued_query(request)


def _apply(request: AdmissionRequest) -> None:
    """Apply; if it cannot be done, the answer is kept all the same, with why."""
    try:
        with transaction.atomic():
            apply_decided(request, request.decided_by or request.requested_by)
    except SluiceError as error:
        request.refresh_from_db()
        request.state = AdmissionState.PREVIEW
        request.decision_reason = f"Not applied: {error.message}"[:MAX_REASON]
        request.save(update_fields=["state", "decision_reason", "updated_at"])
        release_queued_query(request)


def _refused_in_queue(request: AdmissionRequest) -> None:
    """It waits on, with no start in sight, until its patience ends; then the answer stands."""
    if is_over(request):
        request.state = AdmissionState.PREVIEW
    else:
        request.valid_until = None
    request.starts_at = None
    request.save(update_fields=["state", "starts_at", "valid_until", "updated_at"])
    release_queued_query(request)


def _policy(cluster: Cluster, question: RequestQuestion) -> AdmissionPolicy:
    """The cluster's rules; nodes that were being drained when the snapshot was taken take nothing new."""
    return AdmissionPolicy(**cluster.review_rules, thin_below=cluster.thin_below, closed_nodes=question.closed_nodes)


def preview_admission(report: JobReporter) -> JobOutcome:
    """Decide about the job's request on its cluster as it is now."""
    rows = AdmissionRequest.objects.select_related("cluster", "query", "version__query__cluster")
    request = rows.get(pk=report.job.params["admission"])
    purpose, tries = report.job.params["purpose"], report.job.params.get("tries", 0)
    report(0.0, "Taking a snapshot")
    question, decision, prediction = admission_decide(request, purpose=purpose, progress=report)

    def store(job: Job) -> JobOutcome:
        stored = admission_store(
            request=request,
            purpose=purpose,
            question=question,
            decision=decision,
            prediction=prediction,
            tries=tries,
        )
        page = f"/c/{stored.cluster.slug}/admission/{stored.pk}/"
        return JobOutcome({"verdict": stored.verdict, "state": stored.state}, page, f"/api/v1/admissions/{stored.pk}")

    return JobOutcome(store=store)
