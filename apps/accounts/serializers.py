"""Tokens as REST shows and takes them."""

from __future__ import annotations

from rest_framework import serializers

from apps.accounts.choices import Scope, TokenState
from apps.accounts.models import Token
from apps.core.limits import MAX_NAME
from apps.core.rest.serializers import StrictSerializer

__all__ = ["TokenCreateSerializer", "TokenCreatedSerializer", "TokenSerializer"]


class TokenSerializer(serializers.ModelSerializer):
    """A token without its secret."""

    state = serializers.ChoiceField(choices=TokenState.choices, read_only=True)
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=Scope.choices))
    networks = serializers.ListField(child=serializers.CharField())

    class Meta:
        model = Token
        fields = [
            "id",
            "name",
            "prefix",
            "scopes",
            "networks",
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
    expires_at = serializers.DateTimeField(default=None, allow_null=True, help_text="Null: never.")


class TokenCreatedSerializer(TokenSerializer):
    """A new token with its secret, shown this once."""

    secret = serializers.CharField(read_only=True)

    class Meta(TokenSerializer.Meta):
        fields = [*TokenSerializer.Meta.fields, "secret"]
        read_only_fields = fields
