"""Groups: several queries that are asked for together and admitted all or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from django.db import transaction

from apps.admission.choices import OPEN
from apps.admission.members import lost_members
from apps.admission.models import AdmissionGroup, AdmissionRequest
from apps.admission.questions import MemberQuestion, fingerprint
from apps.core.errors import Fault, Malformed, SluiceError, fault_count, join_path
from apps.core.limits import MAX_REASON, MAX_WAIT_S
from apps.fleet.models import Cluster
from engine.admission.changes import Change, LaterStart, NewNode, OperatorMove, start_p_in
from engine.kinds import Number
from engine.records import BAD, ItemCount, Record, Words

__all__ = ["MAX_MEMBERS", "GroupQuestion", "group_members_write", "groups_broken"]

MAX_MEMBERS = 10  # each is estimated beside the others, and alone where the whole does not fit


@dataclass(frozen=True, kw_only=True)
class GroupQuestion(Record):
    """A request to run several queries together: all or none."""

    TITLE: ClassVar[str] = "a request for a group"
    JUDGES_PARTS: ClassVar[bool] = True

    members: Annotated[
        tuple[MemberQuestion, ...],
        ItemCount(2, MAX_MEMBERS),
        Words("Different queries, in the order in which they are tried one beside the other."),
    ]
    may_wait_s: Annotated[
        float, Number(least=0, most=MAX_WAIT_S), Words("How long they would wait in the queue, as one entry.")
    ] = 0.0
    mode: Annotated[
        Literal["preview", "apply"],
        Words("preview only says what would happen; apply does it at once if the verdict lets it (scope admit)."),
    ] = "preview"
    reason: Annotated[str, Words("Why they are wanted; kept with the decision.")] = ""

    def find_faults(self) -> Iterator[Fault]:
        members = () if self.members is BAD else self.members
        names = ["" if member is BAD else member.name for member in members]
        for i, name in enumerate(names):
            if name and name in names[:i]:
                field = "query" if members[i].query is not None else "document.query"
                message = f"{name!r} is members[{names.index(name)}] already; allowed: each query once"
                yield Fault(f"members[{i}].{field}", message)
        if self.reason is not BAD and len(self.reason) > MAX_REASON:
            yield Fault("reason", f"reason has {len(self.reason)} characters; allowed: at most {MAX_REASON}")

    def digest(self, cluster: str) -> str:
        """Digest by which the same question asked again is known, whatever the reason."""
        asked = {name: value for name, value in self.to_dict().items() if name != "reason"}
        return fingerprint({**asked, "cluster": cluster})


def group_members_write(
    *, cluster: Cluster, asked: Sequence[object], write: Callable[..., AdmissionRequest]
) -> list[AdmissionRequest]:
    """Write a group and its members, each by `write(question, group=, place=)`; the caller holds the cluster's lock.

    Raises
    ------
    Malformed
        With the faults of all members, each path beginning with `members[i]`. Nothing of the group stays.
    """
    group, members, faults = AdmissionGroup.objects.create(cluster=cluster), list[AdmissionRequest](), list[Fault]()
    for i, question in enumerate(asked):
        try:
            with transaction.atomic():
                members.append(write(question, group=group, place=i))
        except SluiceError as error:
            own = error.faults or [Fault("", error.message)]
            faults += [Fault(join_path(f"members[{i}]", fault.path), fault.message) for fault in own]
    if not faults:
        faults = [*_doubled(members), *_starts_apart(members)]
    if faults:
        raise Malformed(f"The group has {fault_count(faults)}; first: {faults[0].path}: {faults[0].message}", faults)
    group.names = [str(member.version) for member in members]
    group.save(update_fields=["names"])
    return members


def _doubled(members: Sequence[AdmissionRequest]) -> Iterator[Fault]:
    """Nodes that changes of two members add, and operators that they move or that another member's are."""
    seen: dict[tuple[str, str], int] = {}
    own = {member.query.name: i for i, member in enumerate(members)}
    for i, j, change in _changes_of(members):
        match change:
            case NewNode(id=node):
                key, field, does = ("node", node), "id", "adds"
            case OperatorMove(operator=operator):
                key, field, does = ("operator", operator), "operator", "moves"
                owner = own.get(operator.partition("/")[0], i)
                if owner != i:
                    message = f"operator is {operator!r}, which is of members[{owner}]; allowed: move it there"
                    yield Fault(f"members[{i}].changes[{j}].operator", message)
                    continue
            case _:
                continue
        first = seen.setdefault(key, i)
        if first != i:
            allowed = "another name" if field == "id" else "once"
            message = f"{field} is {key[1]!r}, which members[{first}] {does} already; allowed: {allowed}"
            yield Fault(f"members[{i}].changes[{j}].{field}", message)


def _starts_apart(members: Sequence[AdmissionRequest]) -> Iterator[Fault]:
    """Starts that are not that of the first member: all start at once."""
    start_p = start_p_in(members[0].asked_changes)
    stated = {i: j for i, j, change in _changes_of(members) if isinstance(change, LaterStart)}
    for i, member in enumerate(members):
        own_p = start_p_in(member.asked_changes)
        if own_p != start_p:
            path = f"members[{i}].changes[{stated[i]}].p" if i in stated else f"members[{i}].changes"
            yield Fault(path, f"it starts in subinterval {own_p}, members[0] in {start_p}; allowed: one start of all")


def _changes_of(members: Sequence[AdmissionRequest]) -> Iterator[tuple[int, int, Change]]:
    """Changes of all members, each with the member's place and its own."""
    for i, member in enumerate(members):
        yield from ((i, j, change) for j, change in enumerate(member.asked_changes))


def groups_broken() -> Mapping[AdmissionRequest, list[str]]:
    """The first of the members that are left of each group that lost some while something may still become of it."""
    rows = AdmissionRequest.objects.filter(state__in=OPEN, group__isnull=False).select_related(
        "group", "version__query"
    )
    left: dict[object, list[AdmissionRequest]] = {}
    for row in rows.defer("curves", "snapshot_parts", "result").order_by("place"):
        left.setdefault(row.group_id, []).append(row)
    return {members[0]: lost for members in left.values() if (lost := lost_members(members))}
