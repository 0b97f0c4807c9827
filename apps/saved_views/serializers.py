"""Saved views over REST. Services check everything beyond types."""

from __future__ import annotations

from rest_framework import serializers

from apps.core.rest.api import StrictSerializer
from apps.saved_views.choices import SavedList

__all__ = ["SavedViewSerializer"]


class SavedViewSerializer(StrictSerializer):
    """A view of a list: `?view=` and its id behind the list's address in the console opens it, for everybody."""

    id = serializers.UUIDField(read_only=True)
    list_name = serializers.ChoiceField(SavedList.choices, help_text="Set on creation.")
    name = serializers.CharField()
    parameters = serializers.DictField(
        child=serializers.CharField(), help_text="Filters as in the list's address, q for the search, sort."
    )
    is_team = serializers.BooleanField(required=False, help_text="Listed for everybody; false unless given.")
    is_team_default = serializers.BooleanField(
        required=False, help_text="The list opens with it for everybody who chose no other."
    )
    is_my_default = serializers.BooleanField(required=False, help_text="The list opens with it for the caller.")
    owner = serializers.CharField(source="owner.username", read_only=True)
    created_at = serializers.DateTimeField(read_only=True)
    updated_at = serializers.DateTimeField(read_only=True)

    def get_fields(self) -> dict[str, serializers.Field]:
        fields = super().get_fields()
        if self.instance is not None:
            fields["list_name"] = serializers.ChoiceField(SavedList.choices, read_only=True)
        return fields
