"""Grants: what they add up to, and that somebody who gives them is always left."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from apps.accounts.grants import grant_give, grant_take, group_create, group_delete, group_update
from apps.accounts.models import Grant, User
from apps.accounts.services import user_update
from apps.accounts.teams import team_create, team_delete, team_named
from apps.core.errors import Conflict, Malformed
from tests.apps.people import person
from tests.apps.small_cluster import make_query, small_cluster

pytestmark = pytest.mark.django_db


def test_grants_of_a_person_and_of_its_groups_add_up() -> None:
    cluster, team, ann = small_cluster(), team_create(name="ads"), person("ann")
    grant_give(group=group_create(name="platform", members=[ann]), role="admitter", cluster=cluster)
    grant_give(user=ann, role="author", team=team)
    ann.refresh_from_db()
    assert ann.reach.everything == {"read"}
    assert "admit" in ann.reach.on_cluster(cluster.pk)
    assert "admit" not in ann.reach.on_cluster(cluster.pk + 1)
    assert ann.reach.on_owned(None, team.pk, {}) == {"read", "author"}


def test_a_second_role_at_the_same_place_takes_the_place_of_the_first() -> None:
    ann = person("ann", "viewer")
    grant_give(user=ann, role="operator")
    assert list(Grant.objects.values_list("role", flat=True)) == ["operator"]


def test_faults_of_a_grant_are_told_at_once() -> None:
    with pytest.raises(Malformed) as caught:
        grant_give(role="king", cluster=small_cluster(), team=team_create(name="ads"))
    assert {fault.path for fault in caught.value.faults} == {"role", "user", "team"}


def test_a_role_on_labels_has_one_form_and_is_no_role_on_the_cluster() -> None:
    cluster, ann = small_cluster(), person("ann")
    grant_give(user=ann, role="author", cluster=cluster, selector=" tier in (b, a),domain==payments")
    grant = grant_give(user=ann, role="viewer", cluster=cluster, selector="domain=payments,tier in (a,b)")
    assert list(Grant.objects.exclude(selector="").values_list("role", flat=True)) == ["viewer"]
    assert grant.place == f"what has labels in cluster {cluster}: domain is payments, and tier is a or b"
    ann.refresh_from_db()
    assert ann.reach.on_cluster(cluster.pk) == {"read"}  # that on everything
    assert ann.reach.labels == {(cluster.pk, "domain=payments,tier in (a,b)"): {"read"}}
    bound = ann.reach.bound([cluster.pk], [])
    assert bound.labels == ann.reach.labels and ann.reach.bound([], []).labels == {}


@pytest.mark.parametrize(("selector", "faults"), [(" ", 1), ("a b,c>1", 2), ("a=$,", 2)])
def test_a_slip_in_a_selector_gives_nobody_a_cluster(selector: str, faults: int) -> None:
    ann = person("ann", "viewer")
    for place in ({"cluster": small_cluster()}, {}):
        with pytest.raises(Malformed) as caught:
            grant_give(user=ann, role="admin", selector=selector, **place)  # type: ignore[arg-type]
        assert [fault.path for fault in caught.value.faults] == ["selector"] * (faults + (not place))
    assert Grant.objects.count() == 1


def _demote(boss: User) -> None:
    grant_give(user=boss, role="viewer")


def _take(boss: User) -> None:
    grant_take(grant=boss.grants.get())


def _switch_off(boss: User) -> None:
    user_update(user=boss, by=User(username="other"), is_active=False)


@pytest.mark.parametrize("change", [_demote, _take, _switch_off])
def test_the_last_administrator_stays(change: Callable[[User], object]) -> None:
    boss = person("boss", "admin")
    with pytest.raises(Conflict) as caught:
        change(boss)
    assert caught.value.code == "last_admin"
    boss.refresh_from_db()
    assert boss.is_active
    assert boss.role == "admin"
    person("second", "admin")
    change(boss)


def test_the_last_administrators_group_stays_and_keeps_its_last_member() -> None:
    group = group_create(name="platform", members=[person("ann")])
    grant_give(group=group, role="admin")
    with pytest.raises(Conflict, match="Nobody would be left"):
        group_update(group=group, members=[])
    assert group.members.count() == 1
    with pytest.raises(Conflict, match="Nobody would be left"):
        group_delete(group=group)
    assert User.objects.get(username="ann").scopes >= {"admin"}


def test_a_team_that_owns_queries_is_not_deleted() -> None:
    query, team = make_query(small_cluster(), "orders", 0.1), team_named("ads")
    query.team = team
    query.save()
    assert team is not None
    with pytest.raises(Conflict, match="it owns 1 query"):
        team_delete(team=team)
    assert team_named(" ads ") == team
