"""REST: sessions, invitations, and accounts of programs."""

from __future__ import annotations

from typing import Any

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.choices import Role
from apps.accounts.models import Group, Team, User
from apps.accounts.permissions import ScopePermission, SessionOnly, signed_in_user
from apps.core.filters import ChoiceFilter, ListFilter, TextFilter, TimeFilter, sort_paths
from apps.core.limits import MAX_NOTE
from apps.core.reach import AskedOn, row_visible
from apps.core.rest.api import ApiMixin, ReadViewSet, Router
from apps.core.rest.serializers import StrictSerializer, show_row
from apps.signin.choices import InvitationState
from apps.signin.invitations import MAX_DAYS, invitation_create, invitation_revoke, invitations_listed
from apps.signin.models import Invitation, ServiceAccount
from apps.signin.service_accounts import service_account_create, service_account_update, service_accounts_listed
from apps.signin.sessions import session_end, sessions_end, sessions_of

__all__ = ["InvitationViewSet", "PersonSessionsView", "ServiceAccountViewSet", "SessionsView"]


class _AdminViewSet(ReadViewSet):
    """Rows that administrators see, and change in a session of theirs alone."""

    asked_on = AskedOn.CONSOLE
    scopes = {"GET": "admin", "POST": "admin", "PATCH": "admin"}

    def get_permissions(self) -> list[BasePermission]:
        """Writes need a session; that is checked before scopes."""
        return [*([SessionOnly()] if self.request.method not in ("GET", "HEAD") else []), ScopePermission()]


class InvitationFilter(ListFilter):
    """`?state=open&sort=expires_at`."""

    state = ChoiceFilter(choices=InvitationState.choices)
    expires_at = TimeFilter()
    sorts = sort_paths("created_at", "expires_at")


class InvitationSerializer(serializers.ModelSerializer):
    """An invitation without the secret of its link."""

    email = serializers.CharField(
        read_only=True, help_text="The link is sent here, and the account gets this address; empty: to nobody."
    )
    state = serializers.ChoiceField(choices=InvitationState.choices, read_only=True)
    groups: serializers.SlugRelatedField[Any] = serializers.SlugRelatedField(
        slug_field="name", many=True, read_only=True
    )
    invited_by: serializers.SlugRelatedField[Any] = serializers.SlugRelatedField(slug_field="username", read_only=True)
    used_by: serializers.SlugRelatedField[Any] = serializers.SlugRelatedField(slug_field="username", read_only=True)

    class Meta:
        model = Invitation
        fields = [
            "id",
            "note",
            "email",
            "role",
            "groups",
            "state",
            "invited_by",
            "created_at",
            "expires_at",
            "revoked_at",
            "used_at",
            "used_by",
        ]
        read_only_fields = fields


class InvitationCreateSerializer(StrictSerializer):
    """Values of a new invitation."""

    note = serializers.CharField(max_length=MAX_NOTE, help_text="Whom it is for.")
    role = serializers.ChoiceField(choices=Role.choices, help_text="On everything.")
    groups: serializers.SlugRelatedField[Any] = serializers.SlugRelatedField(
        slug_field="name", many=True, queryset=Group.objects.all(), default=list
    )
    email = serializers.EmailField(default="", allow_blank=True)
    days = serializers.IntegerField(min_value=1, max_value=MAX_DAYS, default=7)


class InvitationCreatedSerializer(InvitationSerializer):
    """A new invitation with the secret of its link, shown this once: `/invitation/{secret}/`."""

    secret = serializers.CharField(read_only=True)

    class Meta(InvitationSerializer.Meta):
        fields = [*InvitationSerializer.Meta.fields, "secret"]
        read_only_fields = fields


class InvitationViewSet(_AdminViewSet):
    """Invitations. The secret is in the answer that creates one, and nowhere else.

    Creating one takes no `Idempotency-Key`: remembering the answer would store the secret.
    """

    queryset = Invitation.objects.none()
    serializer_class = InvitationSerializer
    filterset_class = InvitationFilter
    ordering = "-created_at"
    secret_actions = frozenset({"create"})

    def get_queryset(self) -> Any:
        return invitations_listed().prefetch_related("groups")

    @extend_schema(request=InvitationCreateSerializer, responses={201: InvitationCreatedSerializer})
    def create(self, request: Request) -> Response:
        """Invite somebody: the secret of the link is shown in this answer only."""
        serializer = InvitationCreateSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        invitation, secret = invitation_create(by=signed_in_user(request), **serializer.validated_data)
        shown = show_row(invitation, self.get_queryset(), InvitationSerializer)
        headers = {"Location": f"/api/v1/invitations/{invitation.pk}"}
        return Response({**shown, "secret": secret}, status=201, headers=headers)

    @extend_schema(request=None, responses=InvitationSerializer)
    @action(detail=True, methods=["post"])
    def revoke(self, request: Request, pk: str | None = None) -> Response:
        """Let the link work no more."""
        invitation = invitation_revoke(invitation=self.get_object())
        return Response(show_row(invitation, self.get_queryset(), InvitationSerializer))


class ServiceAccountFilter(ListFilter):
    """`?team=Payments&sort=ends_at`."""

    name = TextFilter("user__username", label="Its name")
    team = TextFilter("team__name", label="The team that answers for it")
    sorts = sort_paths("created_at", "ends_at", "used_at")


class ServiceAccountSerializer(serializers.ModelSerializer):
    """An account of a program; times are those of its tokens that work."""

    name = serializers.CharField(source="user.username", read_only=True)
    team: serializers.SlugRelatedField[Any] = serializers.SlugRelatedField(slug_field="name", read_only=True)
    is_active = serializers.BooleanField(source="user.is_active", read_only=True)
    token_count = serializers.IntegerField(read_only=True)
    used_at = serializers.DateTimeField(read_only=True, allow_null=True)
    ends_at = serializers.DateTimeField(read_only=True, allow_null=True, help_text="When the first of them expires.")

    class Meta:
        model = ServiceAccount
        fields = ["id", "name", "team", "description", "is_active", "token_count", "used_at", "ends_at", "created_at"]
        read_only_fields = fields


class ServiceAccountCreateSerializer(StrictSerializer):
    """Values of a new account of a program."""

    name = serializers.CharField(max_length=150)
    team: serializers.SlugRelatedField[Any] = serializers.SlugRelatedField(
        slug_field="name", queryset=Team.objects.all()
    )
    role = serializers.ChoiceField(choices=Role.choices, default="", allow_blank=True, help_text="On everything.")
    description = serializers.CharField(max_length=MAX_NOTE, default="", allow_blank=True)


class ServiceAccountChangeSerializer(StrictSerializer):
    """Another team, or switched on or off."""

    team: serializers.SlugRelatedField[Any] = serializers.SlugRelatedField(
        slug_field="name", queryset=Team.objects.all(), required=False
    )
    is_active = serializers.BooleanField(required=False, help_text="Switched off, its tokens are revoked for good.")


class ServiceAccountViewSet(_AdminViewSet):
    """Accounts of programs, such as CI: they have tokens and no password. Their tokens are made in the console."""

    queryset = ServiceAccount.objects.none()
    serializer_class = ServiceAccountSerializer
    filterset_class = ServiceAccountFilter
    ordering = "-created_at"

    def get_queryset(self) -> Any:
        return service_accounts_listed()

    @extend_schema(request=ServiceAccountCreateSerializer, responses={201: ServiceAccountSerializer})
    def create(self, request: Request) -> Response:
        """Make an account that nobody signs in to."""
        serializer = ServiceAccountCreateSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        account = service_account_create(by=signed_in_user(request), **serializer.validated_data)
        headers = {"Location": f"/api/v1/service-accounts/{account.pk}"}
        return Response(self._shown(account), status=201, headers=headers)

    @extend_schema(request=ServiceAccountChangeSerializer, responses=ServiceAccountSerializer)
    def partial_update(self, request: Request, pk: str | None = None) -> Response:
        """Give it to another team, or switch it on or off."""
        serializer = ServiceAccountChangeSerializer(data=request.data)
        account = self.get_object()
        serializer.is_valid(raise_exception=True)
        return Response(self._shown(service_account_update(account=account, **serializer.validated_data)))

    def _shown(self, account: ServiceAccount) -> Any:
        return show_row(account, self.get_queryset(), ServiceAccountSerializer)


class SessionSerializer(serializers.Serializer):
    """An open session in a browser. Its id names it, and nobody gets into it by that."""

    id = serializers.CharField()
    is_current = serializers.BooleanField(help_text="Whether it is the session of this request.")
    way = serializers.CharField(help_text="How it began: password, password and code, provider, invitation.")
    address = serializers.CharField(help_text="Where from it began.")
    browser = serializers.CharField()
    began_at = serializers.DateTimeField(allow_null=True)
    seen_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()


class _SessionsView(ApiMixin, APIView):
    """The sessions of one person."""

    def person(self) -> User:
        """The person that they are of."""
        raise NotImplementedError

    @extend_schema(responses=SessionSerializer(many=True))
    def get(self, request: Request, **key: Any) -> Response:
        """Open sessions: that of the request first, then those that were seen last."""
        return Response(SessionSerializer(sessions_of(self.person(), self.current_key), many=True).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, session_id: str = "", **key: Any) -> Response:
        """End one session, or without its id every one but that of the request; their open pages close."""
        if session_id:
            session_end(user=self.person(), session_id=session_id)
        else:
            sessions_end(user=self.person(), but=self.current_key)
        return Response(status=204)

    @property
    def current_key(self) -> str | None:
        """Key of the session that sent the request; None for a token."""
        return None if self.request.auth is not None else self.request.session.session_key


class SessionsView(_SessionsView):
    """One's own sessions, which a session alone ends."""

    asked_on = AskedOn.OWN
    scopes = {"DELETE": "read"}

    def get_permissions(self) -> list[BasePermission]:
        """Ending them needs a session; that is checked before scopes."""
        return [*([SessionOnly()] if self.request.method == "DELETE" else []), ScopePermission()]

    def person(self) -> User:
        return signed_in_user(self.request)


class PersonSessionsView(_SessionsView):
    """The sessions of somebody, for administrators."""

    scopes = {"GET": "admin", "DELETE": "admin"}

    def person(self) -> User:
        return row_visible(User.objects.all(), "person", pk=self.kwargs["pk"])


router = Router()
router.register("invitations", InvitationViewSet, basename="invitation")
router.register("service-accounts", ServiceAccountViewSet, basename="service-account")
_ALL, _ONE = ["get", "delete", "head", "options"], ["delete", "options"]
_OF_PERSON = "people/<int:pk>/sessions"
urlpatterns = [
    path("sessions", SessionsView.as_view(http_method_names=_ALL), name="sessions"),
    path("sessions/<str:session_id>", SessionsView.as_view(http_method_names=_ONE), name="session"),
    path(_OF_PERSON, PersonSessionsView.as_view(http_method_names=_ALL), name="person-sessions"),
    path(f"{_OF_PERSON}/<str:session_id>", PersonSessionsView.as_view(http_method_names=_ONE), name="person-session"),
    *router.urls,
]
