"""Grants and groups: who is given a role where, and that somebody is always left who may give them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from django.core.exceptions import ValidationError
from django.db.models import Model, Q, QuerySet

from apps.accounts.choices import Role
from apps.accounts.models import Grant, Group, Team, User
from apps.core.errors import Conflict, Fault, Malformed, field_faults
from apps.core.events import announce_session_end
from apps.core.labels import selector_parse
from apps.ledger.recorder import recorded
from engine.words import listed

__all__ = [
    "admin_kept",
    "grant_give",
    "grant_take",
    "group_create",
    "group_delete",
    "group_update",
    "members_set",
]


def _admins() -> QuerySet[User]:
    """People who may sign in and administer everything."""
    everywhere = Grant.objects.filter(role=Role.ADMIN, cluster=None, team=None)
    people = Q(grants__in=everywhere) | Q(memberships__grants__in=everywhere) | Q(is_superuser=True)
    return User.objects.filter(people, is_active=True)


@contextmanager
def admin_kept() -> Iterator[None]:
    """A change of a transaction that is refused where it would leave nobody who administers everything.

    Raises
    ------
    Conflict
        `last_admin`.
    """
    # One at a time: two who each take away the other's role would leave nobody.
    list(Grant.objects.select_for_update().filter(role=Role.ADMIN, cluster=None, team=None))
    had_one = _admins().exists()
    yield
    if had_one and not _admins().exists():
        raise Conflict(
            "Nobody would be left who may administer everything. Give somebody else that role first.", code="last_admin"
        )


@recorded()
def grant_give(
    *,
    role: str,
    user: User | None = None,
    group: Group | None = None,
    cluster: Model | None = None,
    team: Team | None = None,
    selector: str = "",
) -> Grant:
    """Give a person or a group a role: on a cluster, what a selector of labels matches in it, what a team owns, or on
    everything.

    Another role that they have been given there makes way.

    Raises
    ------
    Malformed
        An unknown role; not one holder; a cluster and a team at once; a selector that is none, or without a cluster.
    Conflict
        `last_admin`.
    """
    faults: list[Fault] = []
    if role not in Role.values:
        faults.append(Fault("role", f"{role!r} is not one of {listed(Role.values)}"))
    if (user is None) == (group is None):
        faults.append(Fault("user", "name either a person or a group"))
    if cluster is not None and team is not None:
        faults.append(Fault("team", "name a cluster, a team, or neither for everything"))
    if selector and cluster is None:
        faults.append(Fault("selector", "labels are those in one cluster; name the cluster"))
    if selector:  # also of blanks alone: nobody is given a whole cluster by a slip
        try:
            selector = str(selector_parse(selector, "selector"))
        except Malformed as error:
            faults += error.faults
    if faults:
        raise Malformed(f"The role cannot be given: {faults[0].path}: {faults[0].message}.", faults)
    place = {"user": user, "group": group, "cluster": cluster, "team": team, "selector": selector}
    with admin_kept():
        grant = Grant.objects.filter(**place).first() or Grant(**place)
        grant.role = role
        grant.save()
    _announce(grant.user, grant.group)
    return grant


@recorded()
def grant_take(*, grant: Grant) -> None:
    """Take a role away again. Raises Conflict (`last_admin`)."""
    _announce(grant.user, grant.group)
    with admin_kept():
        grant.delete()


@recorded()
def group_create(*, name: str, members: Iterable[User] = ()) -> Group:
    """Create a group, which is granted nothing yet."""
    group = Group(name=name.strip())
    _check(group)
    group.save()
    group.members.set(members)
    return group


@recorded()
def group_update(*, group: Group, name: str | None = None, members: Iterable[User] | None = None) -> Group:
    """Change a group's name or who is in it. Raises Conflict (`last_admin`)."""
    if name is not None:
        group.name = name.strip()
        _check(group)
        group.save()
    if members is not None:
        members_set(group=group, members=members)
    return group


@recorded()
def members_set(*, group: Group, members: Iterable[User]) -> None:
    """Put these people into a group, and take all others out. Raises Conflict (`last_admin`)."""
    Group.ledger_touch(group.pk)
    _announce(None, group)
    with admin_kept():
        group.members.set(members)
    _announce(None, group)


@recorded()
def group_delete(*, group: Group) -> None:
    """Delete a group with what it was granted. Raises Conflict (`last_admin`)."""
    _announce(None, group)
    with admin_kept():
        group.delete()


def _announce(user: User | None, group: Group | None) -> None:
    """Have the open pages of whom it concerns look again what they may be told."""
    people = [user.pk] if user is not None else [] if group is None else group.members.values_list("pk", flat=True)
    for key in people:
        announce_session_end(key)


def _check(group: Group) -> None:
    try:
        group.clean_fields()
    except ValidationError as error:
        faults = field_faults(error)
        raise Malformed(f"The group cannot be kept: {faults[0].path}: {faults[0].message}.", faults) from None
    if Group.objects.filter(name=group.name).exclude(pk=group.pk).exists():
        raise Conflict(f"There is a group {group.name!r} already.", [("name", "is taken")])
