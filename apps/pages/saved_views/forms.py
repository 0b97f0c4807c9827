"""The form of a saved view."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import QueryDict

from apps.core.limits import MAX_NAME
from apps.saved_views.models import SavedView
from apps.saved_views.permissions import ViewCaller

__all__ = ["SavedViewForm"]


class SavedViewForm(forms.Form):
    """Name and readers of a view, and the filters that it holds as the query of an address."""

    name = forms.CharField(max_length=MAX_NAME, label="Name of the view")
    is_team = forms.BooleanField(required=False, label="For the team", help_text="Listed for everybody who signs in.")
    is_my_default = forms.BooleanField(required=False, label="Open the list with it")
    is_team_default = forms.BooleanField(
        required=False, label="Open the list with it for the team", help_text="For everybody who chose no other."
    )
    list_name = forms.CharField(widget=forms.HiddenInput)
    parameters = forms.CharField(widget=forms.HiddenInput, required=False)
    next = forms.CharField(widget=forms.HiddenInput, required=False)

    def __init__(self, *data: Any, caller: ViewCaller, view: SavedView | None = None, **options: Any) -> None:
        super().__init__(*data, **options)
        if view is not None:
            query = QueryDict(mutable=True)
            query.update(view.parameters)
            self.initial = {
                "name": view.name,
                "is_team": view.is_team,
                "is_my_default": getattr(view, "is_my_default", False),
                "is_team_default": view.is_team_default,
                "list_name": view.list_name,
                "parameters": query.urlencode(),
            }
        if not caller.may_share:
            del self.fields["is_team"], self.fields["is_team_default"]

    @property
    def values(self) -> dict[str, Any]:
        """Values of the services that save a view."""
        cleaned = self.cleaned_data
        shared = {name: cleaned[name] for name in ("is_team",) if name in cleaned}
        return {"name": cleaned["name"], "parameters": QueryDict(cleaned["parameters"]).dict(), **shared}

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if cleaned.get("is_team_default") and not cleaned.get("is_team"):
            self.add_error("is_team_default", "Only a view for the team opens the list for the team.")
        return cleaned
