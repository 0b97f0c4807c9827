"""REST: tokens of the signed-in person, who alone creates and revokes them."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.choices import Scope, TokenState
from apps.accounts.models import Team, Token
from apps.accounts.permissions import ScopePermission, SessionOnly, signed_in_user
from apps.accounts.services import token_create, token_revoke, tokens_of
from apps.core.filters import ChoiceFilter, ListFilter, TextFilter, TimeFilter, sort_paths
from apps.core.limits import MAX_NAME
from apps.core.reach import AskedOn
from apps.core.rest.api import ReadViewSet, Router
from apps.core.rest.serializers import StrictSerializer, field_type, show_row

__all__ = ["TokenViewSet"]

_clusters = apps.get_model("fleet.Cluster")._default_manager  # a model of the same floor


class TokenFilter(ListFilter):
    """`?state=active&sort=last_used_at`."""

    name = TextFilter(label="Its name")
    state = ChoiceFilter(choices=TokenState.choices)
    expires_at = TimeFilter()
    last_used_at = TimeFilter()
    sorts = sort_paths("name", "created_at", "expires_at", "last_used_at")


class TokenSerializer(serializers.ModelSerializer):
    """A token without its secret."""

    state = serializers.ChoiceField(choices=TokenState.choices, read_only=True)
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=Scope.choices))
    networks = serializers.ListField(child=serializers.CharField())
    clusters = serializers.SerializerMethodField(help_text="Slugs of the clusters that it is bound to.")
    teams = serializers.SerializerMethodField(help_text="Names of the teams that it is bound to.")
    is_bound = serializers.SerializerMethodField(help_text="Whether it works on these alone, also once they are gone.")

    @field_type(list[str])
    def get_clusters(self, token: Token) -> list[str]:
        return token.bound_to["clusters"]

    @field_type(list[str])
    def get_teams(self, token: Token) -> list[str]:
        return token.bound_to["teams"]

    @field_type(bool)
    def get_is_bound(self, token: Token) -> bool:
        return token.places is not None

    class Meta:
        model = Token
        fields = [
            "id",
            "name",
            "prefix",
            "scopes",
            "networks",
            "clusters",
            "teams",
            "is_bound",
            "state",
            "created_at",
            "expires_at",
            "revoked_at",
            "last_used_at",
        ]
        read_only_fields = fields


class TokenCreateSerializer(StrictSerializer):
    """Values of a new token; `token_create` checks them."""

    name = serializers.CharField(max_length=MAX_NAME)
    scopes = serializers.ListField(child=serializers.CharField(), help_text=f"Of {', '.join(Scope.values)}.")
    networks = serializers.ListField(child=serializers.CharField(), default=list, help_text="CIDR; empty: anywhere.")
    clusters: Any = serializers.SlugRelatedField(
        slug_field="slug", queryset=_clusters.all(), many=True, default=list, help_text="It works on these alone."
    )
    teams: Any = serializers.SlugRelatedField(
        slug_field="name", queryset=Team.objects.all(), many=True, default=list, help_text="And on what these own."
    )
    expires_at = serializers.DateTimeField(default=None, allow_null=True, help_text="Null: never.")


class TokenCreatedSerializer(TokenSerializer):
    """A new token with its secret, shown this once."""

    secret = serializers.CharField(read_only=True)

    class Meta(TokenSerializer.Meta):
        fields = [*TokenSerializer.Meta.fields, "secret"]
        read_only_fields = fields


class TokenViewSet(ReadViewSet):
    """Your tokens. The secret is in the answer that creates one, and nowhere else.

    Creating one takes no `Idempotency-Key`: remembering the answer would store the secret.
    """

    asked_on = AskedOn.OWN
    queryset = Token.objects.none()
    serializer_class = TokenSerializer
    filterset_class = TokenFilter
    ordering = "-created_at"
    scopes = {"POST": "read"}
    secret_actions = frozenset({"create"})

    def get_queryset(self) -> Any:
        return tokens_of(signed_in_user(self.request))

    def get_permissions(self) -> list[BasePermission]:
        """Writes need a session; that is checked before scopes."""
        return [*([SessionOnly()] if self.request.method == "POST" else []), ScopePermission()]

    @extend_schema(request=TokenCreateSerializer, responses={201: TokenCreatedSerializer})
    def create(self, request: Request) -> Response:
        """Create a token: its secret is shown in this answer only."""
        serializer = TokenCreateSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        token, secret = token_create(user=signed_in_user(request), **serializer.validated_data)
        shown = show_row(token, self.get_queryset(), TokenSerializer)
        headers = {"Location": f"/api/v1/tokens/{token.pk}"}
        return Response({**shown, "secret": secret}, status=201, headers=headers)

    @extend_schema(request=None, responses=TokenSerializer)
    @action(detail=True, methods=["post"])
    def revoke(self, request: Request, pk: str | None = None) -> Response:
        """End a token now."""
        token = token_revoke(token=self.get_object())
        return Response(show_row(token, self.get_queryset(), TokenSerializer))


router = Router()
router.register("tokens", TokenViewSet, basename="token")
urlpatterns = router.urls
