"""Reading people, groups, teams and grants, and the filters of their lists, shared by pages and REST."""

from __future__ import annotations

from django.apps import apps
from django.db.models import Count, Model, OuterRef, Q, QuerySet, Subquery

from apps.accounts.choices import Role
from apps.accounts.models import Grant, Group, Team, User
from apps.core.filters import BooleanFilter, ChoiceFilter, ListFilter, TextFilter, TimeFilter, sort_paths
from apps.core.reach import Reach

__all__ = [
    "GrantFilter",
    "GroupFilter",
    "PersonFilter",
    "TeamFilter",
    "access_of",
    "grants_listed",
    "groups_listed",
    "people_listed",
    "places_of",
    "teams_listed",
]


def people_listed() -> QuerySet[User]:
    """People with `everywhere`, the role on everything that each was given in person, and their groups."""
    everywhere = Grant.objects.filter(cluster=None, team=None, user=OuterRef("pk")).values("role")
    return User.objects.annotate(everywhere=Subquery(everywhere)).prefetch_related("memberships").order_by("username")


def groups_listed() -> QuerySet[Group]:
    """Groups with `member_count` and `grant_count`."""
    counts = {"member_count": Count("members", distinct=True), "grant_count": Count("grants", distinct=True)}
    return Group.objects.annotate(**counts).order_by("name")


def teams_listed() -> QuerySet[Team]:
    """Teams with `query_count` and `grant_count`."""
    counts = {"query_count": Count("queries", distinct=True), "grant_count": Count("grants", distinct=True)}
    return Team.objects.annotate(**counts).order_by("name")


def grants_listed() -> QuerySet[Grant]:
    """Grants with their holder and place."""
    return Grant.objects.select_related("user", "group", "cluster", "team").order_by("pk")


def access_of(person: User) -> QuerySet[Grant]:
    """Every grant that counts for a person, its own and those of its groups: what it may do where, and why."""
    return grants_listed().filter(Q(user=person) | Q(group__members=person))


def places_of(reach: Reach) -> list[tuple[str, Model]]:
    """Clusters and teams that a reach has something on, each (`cluster` or `team`, row)."""
    clusters = apps.get_model("fleet.Cluster")._default_manager.order_by("slug")
    teams = Team.objects.all()
    if not reach.everything:
        within = {*reach.clusters, *(cluster for cluster, _ in reach.labels)}
        clusters, teams = clusters.filter(pk__in=within), teams.filter(pk__in=list(reach.teams))
    return [*(("cluster", row) for row in clusters), *(("team", row) for row in teams)]


class PersonFilter(ListFilter):
    """`?username__contains=ann&is_active=true&group=platform`."""

    username = TextFilter(label="User name")
    email = TextFilter(label="Address")
    group = TextFilter("memberships__name", label="A group that the person is in")
    is_active = BooleanFilter(label="Whether the person may sign in")
    last_login = TimeFilter()
    sorts = sort_paths("username", "last_login")


class GroupFilter(ListFilter):
    """`?name__contains=platform&member=ann`."""

    name = TextFilter(label="Its name")
    member = TextFilter("members__username", label="User name of a member")
    sorts = sort_paths("name", "created_at")


class TeamFilter(ListFilter):
    """`?name__contains=ads`."""

    name = TextFilter(label="Its name")
    sorts = sort_paths("name", "created_at")


class GrantFilter(ListFilter):
    """`?user=ann&role=operator&cluster=eu-1`."""

    user = TextFilter("user__username", label="User name of its holder")
    group = TextFilter("group__name", label="Name of the group that holds it")
    role = ChoiceFilter(choices=Role.choices)
    cluster = TextFilter("cluster__slug", label="Slug of the cluster that it is on")
    team = TextFilter("team__name", label="Name of the team that it is on")
    selector = TextFilter(label="Selector of labels that it is on, in its one form")
    created_at = TimeFilter()
    sorts = sort_paths("created_at", "role", id="pk")
