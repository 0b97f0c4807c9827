"""Reading admission requests: what may be done with one now, its patience, and filters of lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar

from pydantic import Field

from apps.admission.choices import AdmissionSource, AdmissionState, Verdict
from apps.admission.members import lost_members
from apps.admission.models import AdmissionRequest
from apps.admission.others import changes_told
from apps.admission.owners import refusal_of_owners
from apps.admission.questions import question_changes
from apps.core.clock import shared_now
from apps.core.filters import CallerFilter, ChoiceFilter, ListFilter, TextFilter, TimeFilter, sort_paths
from apps.core.limits import MAX_WAIT_S
from apps.core.reach import is_seen_in_part
from apps.queries.masks import mask_of
from apps.queries.snapshots.parts import parts_shown
from engine.admission.changes import LaterStart
from engine.records import Record

__all__ = [
    "AdmissionFilter",
    "AdmissionStanding",
    "admission_headline",
    "admission_never_ran",
    "admission_standing",
    "change_to_start",
    "is_due",
    "is_over",
    "masked_result",
    "patience_ends_at",
]


@dataclass(frozen=True)
class AdmissionStanding(Record):
    """Permitted decisions on a request now, and the reason against the others."""

    TITLE: ClassVar[str] = "a standing"

    is_stale: Annotated[bool, Field(alias="stale")]
    changes: Annotated[tuple[str, ...], Field(alias="changed")]
    is_expired: Annotated[bool, Field(alias="expired")]
    can_apply: bool
    can_approve: bool
    can_override: bool
    why_not: str


def masked_result(request: AdmissionRequest) -> Mapping[str, Any] | None:
    """The decision as it is stored, masked for whoever sees a part of the cluster; None while there is none."""
    mask = mask_of(request.cluster) if request.result and is_seen_in_part(request.cluster_id) else None
    return request.result if mask is None else mask.document(request.result)


def admission_headline(request: AdmissionRequest) -> str:
    """The decision in one sentence, masked for whoever sees a part of the cluster; empty while there is none."""
    return str((masked_result(request) or {}).get("headline", ""))


def admission_never_ran(request: AdmissionRequest) -> bool | None:
    """Whether the query had never run when its request was decided on; None before.

    The decision says so itself, and goes on saying so once the query is measured.
    """
    return bool(request.result["never_ran"]) if request.result else None


def admission_standing(request: AdmissionRequest) -> AdmissionStanding:
    """Compare a request, with all of its group where it has one, with the cluster as it is now."""
    is_open = request.state in {AdmissionState.PREVIEW, AdmissionState.AWAITING, AdmissionState.QUEUED}
    is_expired = is_open and request.valid_until is not None and shared_now() > request.valid_until
    is_compared = is_open and not (is_expired and not request.snapshot_parts)  # of old ones that is no longer kept
    changes = question_changes(request, parts_shown(request.cluster, lambda: request.job).parts) if is_compared else []
    changes = changes_told(request, changes)
    members = request.members
    usable = is_open and not changes and not is_expired and not lost_members(members)
    passing = request.verdict in {Verdict.ADMIT, Verdict.ADMIT_WITH_CHANGES}
    is_override = request.verdict == Verdict.REJECT
    refusals = (refusal_of_owners(member, is_override=is_override) for member in members if usable)
    owners = next(filter(None, refusals), "")
    usable = usable and not owners
    return AdmissionStanding(
        is_stale=bool(changes),
        changes=tuple(changes),
        is_expired=is_expired,
        can_apply=usable and (passing or request.verdict == Verdict.QUEUE) and request.state != AdmissionState.QUEUED,
        can_approve=usable and request.verdict == Verdict.REVIEW,
        can_override=usable and not passing,
        why_not=owners or _why_not(request, changes, is_open, is_expired),
    )


def _why_not(request: AdmissionRequest, changes: Sequence[str], is_open: bool, is_expired: bool) -> str:
    if not is_open:
        return f"The request is {request.get_state_display().lower()}."
    if changes:
        return f"The cluster has moved since the preview: {', '.join(changes)}. Preview it again."
    if is_expired:
        return "The preview is no longer valid. Preview it again."
    if request.state == AdmissionState.QUEUED:
        return "It waits in the queue and starts by itself."
    if request.override_by is not None:
        return f"{request.override_by} has overridden the verdict ({request.override_reason}); another has to confirm."
    if request.verdict == Verdict.REVIEW:
        return "A person has to decide: ask for a review, or approve it."
    if request.verdict == Verdict.REJECT:
        return "The verdict is reject. Take one of the alternatives, or ask for a review."
    return ""


def change_to_start(request: AdmissionRequest) -> list[LaterStart]:
    """The change that starts the request where a start was found for it, once that time has come.

    There is none before, nor where it waits for the policy: then it is asked about as it is.
    """
    decision = request.decision
    if not is_due(request) or any(isinstance(change, LaterStart) for change in request.asked_changes):
        return []
    if decision is None or decision.start_p is None:
        return []
    return [LaterStart(decision.start_p, decision.start_s)]


def is_due(request: AdmissionRequest) -> bool:
    """Whether its expected start has come."""
    return request.starts_at is not None and shared_now() >= request.starts_at


def is_over(request: AdmissionRequest) -> bool:
    """Whether it has waited for as long as its requester would."""
    return shared_now() > patience_ends_at(request)


def patience_ends_at(request: AdmissionRequest) -> datetime:
    """Moment at which the requester no longer wants to wait."""
    asked_at = request.previewed_at or request.created_at
    return max(request.starts_at or asked_at, asked_at + timedelta(seconds=min(request.may_wait_s, MAX_WAIT_S)))


class AdmissionFilter(ListFilter):
    """`?cluster=eu-1&query=checkout&state=preview&state=queued&verdict=reject&source=kubernetes&mine=true`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    query = TextFilter("query__name", label="Name of the query")
    state = ChoiceFilter(choices=AdmissionState.choices)
    verdict = ChoiceFilter(choices=Verdict.choices)
    source = ChoiceFilter(choices=AdmissionSource.choices)
    mine = CallerFilter("requested_by", label="Whether you asked")
    created_at = TimeFilter()
    decided_at = TimeFilter()
    sorts = sort_paths("created_at", "decided_at", "updated_at", "state", "verdict", query="query__name")
