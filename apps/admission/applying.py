"""Applying a decision: serialised per cluster, and only on the cluster it was made for."""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.admission.changes import changes_apply, placement_of, share_of, start_of
from apps.admission.choices import OPEN, AdmissionState, Verdict
from apps.admission.models import AdmissionRequest
from apps.admission.questions import question_changes, question_of
from apps.admission.services import admission_announce
from apps.core.errors import Conflict, Impossible, Malformed, Stale
from apps.core.events import announce
from apps.fleet.models import Cluster
from apps.queries.choices import QueryState
from apps.queries.services import query_start, query_update

__all__ = [
    "admission_apply",
    "admission_approve",
    "admission_override",
    "apply_decided",
    "enqueue",
    "is_passing",
    "waits",
]

_PASSING = frozenset({Verdict.ADMIT, Verdict.ADMIT_WITH_CHANGES})
_APPLICABLE = frozenset({AdmissionState.PREVIEW, AdmissionState.AWAITING, AdmissionState.QUEUED})


@transaction.atomic
def admission_apply(*, request: AdmissionRequest, user: User | None) -> AdmissionRequest:
    """Do what the verdict says: start the query, or put it into the queue.

    Raises
    ------
    Stale
        The cluster has moved since the preview (`data["changed"]` says what), or the preview has expired.
    Conflict
        The request is not in a state to be applied.
    Impossible
        The verdict is review or reject: a person has to approve or to override.
    """
    request = _lock(request)
    _require_applicable(request)
    if request.verdict == Verdict.QUEUE or (is_passing(request) and waits(request)):
        _require_fresh(request)
        return enqueue(request, user)
    if not is_passing(request):
        hint = "Ask for a review or approve it." if request.verdict == Verdict.REVIEW else "Take a choice or override."
        verdict = request.get_verdict_display().lower()
        raise Impossible(f"The verdict is {verdict}. {hint}", code=f"verdict_{request.verdict}")
    _require_fresh(request)
    return apply_decided(request, user)


@transaction.atomic
def admission_approve(*, request: AdmissionRequest, user: User, reason: str = "") -> AdmissionRequest:
    """A person says yes to a verdict that asks for one (review), or that would have passed anyway."""
    request = _lock(request)
    _require_applicable(request)
    if request.verdict not in _PASSING | {Verdict.REVIEW}:
        verdict = request.get_verdict_display().lower()
        raise Impossible(f"The verdict is {verdict}; approving it needs an override with a reason.", code="override")
    _require_fresh(request)
    request.decision_reason = reason[:300]
    return apply_decided(request, user)


@transaction.atomic
def admission_override(*, request: AdmissionRequest, user: User, reason: str) -> AdmissionRequest:
    """A person applies a request against its verdict, and says why. The cluster still must not have moved."""
    if not reason.strip():
        raise Malformed("reason: an override needs one.", [("reason", "is missing; say why the verdict is overridden")])
    request = _lock(request)
    _require_applicable(request)
    if is_passing(request):
        raise Conflict("The verdict is to admit: apply it, there is nothing to override.", code="nothing_to_override")
    _require_fresh(request)
    request.overridden, request.decision_reason = True, reason[:300]
    return apply_decided(request, user)


def is_passing(request: AdmissionRequest) -> bool:
    """Whether the verdict alone lets the query start."""
    return request.verdict in _PASSING


def waits(request: AdmissionRequest) -> bool:
    """Whether the decision rests on a later start."""
    return start_of((request.result or {}).get("changes") or []) > 0


def apply_decided(request: AdmissionRequest, user: User | None) -> AdmissionRequest:
    """Start the query as decided. The caller holds the cluster's lock and has compared the snapshot."""
    decision = request.result or {}
    changes = decision.get("changes") or []
    query = request.query
    if request.objective:
        query_update(query=query, objective=request.objective)
    changes_apply(request.cluster, query, changes)
    query_start(
        version=request.version,
        placement=placement_of(query, decision),
        rate_share=share_of(changes),
        start_s=start_of(changes),
    )
    request.state, request.decided_by, request.decided_at = AdmissionState.APPLIED, user, timezone.now()
    request.save()
    _supersede_others(request)
    admission_announce(request)
    announce(f"query:{request.cluster.slug}/{query.name}")
    return request


def _lock(request: AdmissionRequest) -> AdmissionRequest:
    """One decision at a time per cluster: whoever comes second sees what the first has changed."""
    Cluster.objects.select_for_update().get(pk=request.cluster_id)
    rows = AdmissionRequest.objects.select_for_update(of=("self",))
    return rows.select_related("cluster", "query", "version__query", "job").get(pk=request.pk)


def _require_applicable(request: AdmissionRequest) -> None:
    if request.state not in _APPLICABLE:
        state = request.get_state_display().lower()
        raise Conflict(f"The request is {state}; only a preview can be applied.", code="wrong_state")
    query = request.query
    if query.state == QueryState.RUNNING and query.running_version_id == request.version_id:
        raise Conflict(f"{request.version} runs already; another request has started it.", code="running")
    if request.valid_until is not None and timezone.now() > request.valid_until:
        message = f"The preview was valid until {request.valid_until:%Y-%m-%d %H:%M:%S} UTC. Preview it again."
        raise Stale(message, code="expired")


def _require_fresh(request: AdmissionRequest) -> None:
    changed = question_changes(request, question_of(request))
    if changed:
        raise Stale(
            f"The cluster has moved since the preview: {', '.join(changed)}. Preview it again.",
            [("snapshot", change) for change in changed],
            data={"changed": changed},
        )


def enqueue(request: AdmissionRequest, user: User | None) -> AdmissionRequest:
    """Put the request into the queue until its start. The caller holds the cluster's lock."""
    answer = request.result or {}
    start_s = float(answer.get("start_s") or start_of(answer.get("changes") or []))
    request.starts_at = (request.previewed_at or timezone.now()) + timedelta(seconds=start_s)
    request.state, request.decided_by, request.decided_at = AdmissionState.QUEUED, user, timezone.now()
    request.valid_until = None
    request.save()
    query = request.query
    if query.state != QueryState.RUNNING:
        query.state = QueryState.QUEUED
        query.save(update_fields=["state", "updated_at"])
        announce(f"query:{request.cluster.slug}/{query.name}")
    admission_announce(request)
    return request


def _supersede_others(request: AdmissionRequest) -> None:
    others = request.query.admissions.filter(state__in=OPEN - {AdmissionState.ESTIMATING}).exclude(pk=request.pk)
    for other in others:
        other.state = AdmissionState.SUPERSEDED
        other.save(update_fields=["state", "updated_at"])
        admission_announce(other)
