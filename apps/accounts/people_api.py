"""REST: people, groups, teams, and what they are granted. For those who administer everything."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.choices import Role, Scope
from apps.accounts.grants import grant_give, grant_take, group_create, group_delete, group_update
from apps.accounts.models import Grant, Group, Team, User
from apps.accounts.permissions import signed_in_user
from apps.accounts.selectors import (
    GrantFilter,
    GroupFilter,
    PersonFilter,
    TeamFilter,
    access_of,
    grants_listed,
    groups_listed,
    people_listed,
    teams_listed,
)
from apps.accounts.services import user_create, user_update
from apps.accounts.teams import team_create, team_delete, team_update
from apps.core.limits import MAX_NAMES_LISTED
from apps.core.reach import AskedOn
from apps.core.rest.api import Router, ServiceViewSet, StrictSerializer
from apps.core.rest.serializers import read_body

__all__: list[str] = []

_clusters = apps.get_model("fleet.Cluster")._default_manager  # a model of the same floor
_ADMIN = dict.fromkeys(("GET", "POST", "PATCH", "DELETE"), Scope.ADMIN)


class PersonSerializer(StrictSerializer):
    """A person who may sign in."""

    id = serializers.IntegerField(read_only=True)
    username = serializers.CharField(read_only=True)
    email = serializers.CharField(read_only=True)
    is_active = serializers.BooleanField(required=False, help_text="Whether the person may sign in.")
    role = serializers.ChoiceField(
        Role.choices,
        source="everywhere",
        required=False,
        allow_null=True,
        help_text="On everything, given in person; null: none. See its access for what else counts.",
    )
    groups = serializers.SerializerMethodField(help_text="Names of the groups that the person is in.")
    last_login = serializers.DateTimeField(read_only=True, allow_null=True)

    def get_groups(self, person: User) -> list[str]:
        return [group.name for group in person.memberships.all()]


class PersonCreateSerializer(StrictSerializer):
    """A person to be."""

    username = serializers.CharField()
    password = serializers.CharField(write_only=True)
    role = serializers.ChoiceField(Role.choices, default=Role.VIEWER, help_text="On everything.")
    email = serializers.CharField(default="", allow_blank=True)


class GrantSerializer(StrictSerializer):
    """A role that a person or a group was given: on everything, a cluster, labels in one, or what a team owns."""

    id = serializers.IntegerField(read_only=True)
    user: Any = serializers.SlugRelatedField(
        slug_field="username", queryset=User.objects.all(), default=None, allow_null=True, help_text="Its holder, or"
    )
    group: Any = serializers.SlugRelatedField(
        slug_field="name", queryset=Group.objects.all(), default=None, allow_null=True, help_text="the group that is."
    )
    role = serializers.ChoiceField(Role.choices)
    cluster: Any = serializers.SlugRelatedField(
        slug_field="slug",
        queryset=_clusters.all(),
        default=None,
        allow_null=True,
        help_text="Null: not on one cluster alone.",
    )
    team: Any = serializers.SlugRelatedField(
        slug_field="name",
        queryset=Team.objects.all(),
        default=None,
        allow_null=True,
        help_text="Null: not on a team alone.",
    )
    selector = serializers.CharField(
        default="",
        allow_blank=True,
        trim_whitespace=False,
        help_text="Of labels: on what it matches in the cluster, such as `domain=payments`; empty: not by labels.",
    )
    created_at = serializers.DateTimeField(read_only=True)


class GroupSerializer(StrictSerializer):
    """People who are granted roles together."""

    id = serializers.IntegerField(read_only=True)
    name = serializers.CharField()
    members: Any = serializers.SlugRelatedField(
        slug_field="username", queryset=User.objects.all(), many=True, required=False, help_text="All of its members."
    )
    member_count = serializers.IntegerField(read_only=True)
    grant_count = serializers.IntegerField(read_only=True)

    def validate_members(self, members: list[User]) -> list[User]:
        if len(members) > MAX_NAMES_LISTED:
            raise serializers.ValidationError(f"names {len(members)} people; allowed: at most {MAX_NAMES_LISTED}")
        return members


class TeamSerializer(StrictSerializer):
    """A team and how much it owns."""

    id = serializers.IntegerField(read_only=True)
    name = serializers.CharField()
    description = serializers.CharField(required=False, allow_blank=True)
    clusters: Any = serializers.SlugRelatedField(
        slug_field="slug",
        queryset=_clusters.all(),
        many=True,
        required=False,
        help_text="Clusters in which its authors may register queries of it, besides those where it owns some.",
    )
    query_count = serializers.IntegerField(read_only=True)
    grant_count = serializers.IntegerField(read_only=True)


class PersonViewSet(ServiceViewSet):
    """People who may sign in. A person is switched off, never deleted: what they did stays theirs."""

    asked_on = AskedOn.CONSOLE
    http_method_names = ["get", "post", "patch", "head", "options"]
    queryset = User.objects.none()
    serializer_class, create_class = PersonSerializer, PersonCreateSerializer
    filterset_class = PersonFilter
    ordering = "username"
    scopes = _ADMIN
    secret_actions = frozenset({"create"})
    service_create = staticmethod(user_create)

    def get_queryset(self) -> Any:
        return people_listed()

    def partial_update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Change somebody's role on everything, or whether they may sign in. Nobody changes their own."""
        person, values = self.get_object(), read_body(PersonSerializer, request)
        if "everywhere" in values:
            values["role"] = values.pop("everywhere")
        return Response(self._shown(user_update(user=person, by=signed_in_user(request), **values)))

    @extend_schema(responses=GrantSerializer(many=True), filters=False)
    @action(detail=True, methods=["get"], pagination_class=None, filterset_class=None)
    def access(self, request: Request, pk: str | None = None) -> Response:
        """Every grant that counts for a person: its own, and those of its groups."""
        return Response(GrantSerializer(access_of(self.get_object()), many=True).data)


class GroupViewSet(ServiceViewSet):
    """Groups of people."""

    asked_on = AskedOn.CONSOLE
    queryset = Group.objects.none()
    serializer_class = GroupSerializer
    filterset_class = GroupFilter
    ordering = "name"
    scopes = _ADMIN
    row_keyword = "group"
    service_create = staticmethod(group_create)
    service_update = staticmethod(group_update)
    service_delete = staticmethod(group_delete)

    def get_queryset(self) -> Any:
        return groups_listed().prefetch_related("members")


class TeamViewSet(ServiceViewSet):
    """Teams, which own queries. A query that names a new team makes it."""

    queryset = Team.objects.none()
    serializer_class = TeamSerializer
    filterset_class = TeamFilter
    ordering = "name"
    scopes = {**_ADMIN, "GET": Scope.READ}
    row_keyword = "team"
    service_create = staticmethod(team_create)
    service_update = staticmethod(team_update)
    service_delete = staticmethod(team_delete)

    def get_queryset(self) -> Any:
        return teams_listed().prefetch_related("clusters")


class GrantViewSet(ServiceViewSet):
    """Roles that were given. Another role for the same holder at the same place takes the place of the first."""

    asked_on = AskedOn.CONSOLE
    http_method_names = ["get", "post", "delete", "head", "options"]
    queryset = Grant.objects.none()
    serializer_class = GrantSerializer
    filterset_class = GrantFilter
    ordering = "pk"
    scopes = _ADMIN
    row_keyword = "grant"
    service_create = staticmethod(grant_give)
    service_delete = staticmethod(grant_take)

    def get_queryset(self) -> Any:
        return grants_listed()


router = Router()
router.register("people", PersonViewSet, basename="person")
router.register("groups", GroupViewSet, basename="group")
router.register("teams", TeamViewSet, basename="team")
router.register("grants", GrantViewSet, basename="grant")
urlpatterns = router.urls
