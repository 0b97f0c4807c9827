"""Reading groups: the lists, who sees and may decide on one, and what its members have in common."""

from __future__ import annotations

from django.db.models import Exists, OuterRef, QuerySet

from apps.admission.choices import AdmissionState, Verdict
from apps.admission.models import AdmissionRequest
from apps.core.errors import Conflict, Forbidden
from apps.core.filters import CallerFilter, ChoiceFilter, ListFilter, TextFilter, TimeFilter, sort_paths
from apps.core.reach import check_row, visible

__all__ = ["AdmissionGroupFilter", "check_members", "groups_listed", "refuse_member"]


class AdmissionGroupFilter(ListFilter):
    """`?cluster=eu-1&state=queued&verdict=reject&mine=true`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    state = ChoiceFilter(choices=AdmissionState.choices)
    verdict = ChoiceFilter(choices=Verdict.choices)
    mine = CallerFilter("requested_by", label="Whether you asked")
    created_at = TimeFilter()
    decided_at = TimeFilter()
    sorts = sort_paths("created_at", "decided_at", "updated_at", "state", "verdict")


def groups_listed(rows: QuerySet[AdmissionRequest]) -> QuerySet[AdmissionRequest]:
    """Of some requests the first that is left of each group, all members of which the caller sees."""
    members = AdmissionRequest.objects.filter(group=OuterRef("group"))
    seen = visible(AdmissionRequest.objects.all()).values("pk")
    grouped = rows.filter(group__isnull=False).select_related("group")
    return grouped.exclude(Exists(members.filter(place__lt=OuterRef("place")))).exclude(
        Exists(members.exclude(pk__in=seen))
    )


def check_members(request: AdmissionRequest) -> None:
    """Refuse a group where the caller may not do what the request needs with one of its members.

    Raises
    ------
    Forbidden
        Names the member.
    """
    for member in request.members:
        try:
            check_row(member)
        except Forbidden as refusal:
            message = f"{member.version} is a member of the group: {refusal.message}"
            raise Forbidden(message, [("members", message)], code=refusal.code) from None


def refuse_member(request: AdmissionRequest) -> None:
    """Refuse a decision about one member of a group alone.

    Raises
    ------
    Conflict
        `in_group`: names the group.
    """
    if request.group is not None:
        message = f"{request.version} is a member of the group {request.group_id}, which is decided on whole."
        raise Conflict(message, code="in_group", data={"group": str(request.group_id)})
