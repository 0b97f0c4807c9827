"""Members of a decision: the request alone, or all of its group, which goes through the states of a request as one."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import QuerySet

from apps.admission.models import AdmissionRequest
from apps.core.events import announce
from apps.core.reach import is_seen_in_part
from engine.words import counted, listed

__all__ = [
    "admission_announce",
    "group_names",
    "lost_members",
    "lost_words",
    "members_announce",
    "members_locked",
    "members_set",
    "names_of",
    "requests_locked",
]


def admission_announce(request: AdmissionRequest) -> None:
    """Tell open pages that the request has changed."""
    announce(f"admission:{request.pk}")
    announce(f"cluster:{request.cluster.slug}")


def members_announce(members: Sequence[AdmissionRequest]) -> None:
    """Tell open pages that a request or a group has changed."""
    for member in members:
        admission_announce(member)


def requests_locked() -> QuerySet[AdmissionRequest]:
    """Requests for update, with what a decision reads of them."""
    rows = AdmissionRequest.objects.select_for_update(of=("self",))
    return rows.select_related("cluster", "group", "query__team", "version__query__cluster", "job", "parts_job")


def members_locked(request: AdmissionRequest) -> list[AdmissionRequest]:
    """The request for update, or all that are left of its group in their order."""
    if request.group_id is None:
        return [requests_locked().get(pk=request.pk)]
    return list(requests_locked().filter(group=request.group_id).order_by("place"))


def members_set(members: Sequence[AdmissionRequest], **values: object) -> None:
    """Give all members the same values of some columns."""
    for member in members:
        for name, value in values.items():
            setattr(member, name, value)
        member.save(update_fields=[*values, "updated_at"])


def lost_members(members: Sequence[AdmissionRequest]) -> list[str]:
    """Versions of a group whose requests are gone, as with their queries."""
    group = members[0].group
    left = {member.place for member in members}
    return [] if group is None else [name for i, name in enumerate(group.names) if i not in left]


def names_of(members: Sequence[AdmissionRequest]) -> str:
    """`checkout v3`, or of a group `checkout v3 and sales v1`."""
    return listed([str(member.version) for member in members])


def group_names(members: Sequence[AdmissionRequest]) -> list[str]:
    """Versions that a group was asked for, in their order, by the members that are left.

    Those that are gone have no name for who sees a part of the cluster: whose they were is no longer known.
    """
    group, left = members[0].group, {member.place for member in members}
    names = [] if group is None else group.names
    if not is_seen_in_part(members[0].cluster_id):
        return list(names)
    return [name if i in left else "a query that was deleted" for i, name in enumerate(names)]


def lost_words(lost: Sequence[str]) -> str:
    """The members of a group that are gone, as a sentence without their names: owners of the others read it."""
    number = counted(len(lost), "query", "queries")
    return f"{number} of the group {'was' if len(lost) == 1 else 'were'} deleted. Ask for the others anew."
