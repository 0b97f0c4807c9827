"""REST: saved views of the console's lists."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import Model
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.choices import Scope
from apps.core.reach import AskedOn
from apps.core.rest.api import Router, ServiceViewSet, StrictSerializer
from apps.saved_views.models import SavedList, SavedView
from apps.saved_views.selectors import SavedViewFilter, ViewCaller, caller_of, views_visible
from apps.saved_views.services import (
    my_default_set,
    saved_view_create,
    saved_view_delete,
    saved_view_update,
    team_default_set,
)

__all__ = ["SavedViewViewSet"]


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


class SavedViewViewSet(ServiceViewSet):
    """Filters, search and order of a list under a name: your own, and those of the team.

    Its owner changes and deletes a view, and an administrator those of the team. A view of your own needs the scope
    read; one for the team needs operate. Others' own views are not there.
    """

    asked_on = AskedOn.OWN
    queryset = SavedView.objects.none()
    serializer_class = SavedViewSerializer
    filterset_class = SavedViewFilter
    lookup_value_regex = "[0-9a-f-]{36}"
    ordering = "name"
    scopes = dict.fromkeys(("POST", "PATCH", "DELETE"), Scope.READ)  # what is changed decides: `ViewCaller`

    def get_queryset(self) -> Any:
        return views_visible(caller_of(self.request))

    @transaction.atomic
    def create_row(self, **values: Any) -> Model:
        caller, defaults = caller_of(self.request), _defaults(values)
        view = saved_view_create(by=caller, **values)
        _set_defaults(view, caller, defaults)
        return view

    def partial_update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        view, caller = self.get_object(), caller_of(request)
        serializer = self.get_serializer(view, data=request.data, partial=True)
        serializer.is_valid(raise_exception=True)
        values = dict(serializer.validated_data)
        defaults = _defaults(values)
        if values:
            saved_view_update(view=view, by=caller, **values)
        _set_defaults(view, caller, defaults)
        return Response(self._shown(view))

    def destroy(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        saved_view_delete(view=self.get_object(), by=caller_of(request))
        return Response(status=204)


def _defaults(values: dict[str, Any]) -> dict[str, bool]:
    """Take out of the values of a view whose default it is to be."""
    return {name: values.pop(name) for name in ("is_team_default", "is_my_default") if name in values}


def _set_defaults(view: SavedView, caller: ViewCaller, defaults: dict[str, bool]) -> None:
    if "is_team_default" in defaults:
        team_default_set(view=view, by=caller, is_default=defaults["is_team_default"])
    if defaults.get("is_my_default"):
        my_default_set(by=caller, list_name=view.list_name, view=view)
    elif "is_my_default" in defaults and view.default_of.filter(user=caller.user).exists():
        my_default_set(by=caller, list_name=view.list_name, view=None)


router = Router()
router.register("saved-views", SavedViewViewSet, basename="saved-view")
urlpatterns = router.urls
