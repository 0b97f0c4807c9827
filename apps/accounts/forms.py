"""Forms of the settings pages."""

from __future__ import annotations

import zoneinfo
from datetime import timedelta
from functools import cache
from typing import Any

from django import forms
from django.utils import timezone

from apps.accounts.choices import Scope
from apps.accounts.models import User
from apps.accounts.selectors import places_of
from apps.core.limits import MAX_NAME
from apps.ui.forms import choice_field

__all__ = ["PasswordForm", "ProfileForm", "TokenForm", "new_password_field"]


@cache
def _zones() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


class ProfileForm(forms.ModelForm):
    """Profile of the signed-in person. `form.zones` lists the names for a datalist."""

    class Meta:
        model = User
        fields = ["time_zone", "single_keys"]
        labels = {"time_zone": "Time zone", "single_keys": "Single-key shortcuts"}
        widgets = {"time_zone": forms.TextInput(attrs={"list": "zones"})}

    @property
    def zones(self) -> list[str]:
        return sorted(zone for zone in _zones() if "/" in zone or zone == "UTC")

    def clean_time_zone(self) -> str:
        zone = self.cleaned_data["time_zone"]
        if zone not in _zones():
            raise forms.ValidationError(f"{zone!r} is not a time zone; write it like Europe/Berlin.")
        return zone


def new_password_field(label: str = "New password", help_text: str = "At least 10 characters.") -> forms.CharField:
    """A field for a password that browsers offer to make up and to keep."""
    widget = forms.PasswordInput(attrs={"autocomplete": "new-password"})
    return forms.CharField(label=label, widget=widget, help_text=help_text, strip=False)


class PasswordForm(forms.Form):
    """The own password: the present one and, twice, the new one."""

    current = forms.CharField(
        label="Present password",
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
        strip=False,
    )
    password = new_password_field()
    again = new_password_field("New password again", "")

    def clean(self) -> None:
        super().clean()
        cleaned = self.cleaned_data
        if cleaned.get("again") and cleaned.get("password") and cleaned["again"] != cleaned["password"]:
            self.add_error("again", "The two are not the same.")


class TokenForm(forms.Form):
    """A new token of the signed-in person, with the scopes of its owner."""

    name = forms.CharField(max_length=MAX_NAME, help_text="What uses it, such as ci or grafana.")
    scopes = forms.MultipleChoiceField(choices=Scope.choices, widget=forms.CheckboxSelectMultiple)
    days = forms.IntegerField(
        label="Validity in days", min_value=1, max_value=3650, required=False, initial=90, help_text="Empty: no expiry."
    )
    networks = forms.CharField(
        required=False, help_text="Networks it may be used from, such as 10.0.0.0/8 fd00::/8. Empty: anywhere."
    )
    places = forms.MultipleChoiceField(
        label="Only on",
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="Clusters, and what teams own. Unless any is chosen: wherever its owner may.",
    )

    def __init__(self, user: User, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._places = {f"{kind}:{row.pk}": row for kind, row in places_of(user.reach)}
        choice_field(self, "places").choices = [
            (key, f"{key.split(':')[0]} {row}") for key, row in self._places.items()
        ]
        choice_field(self, "scopes").choices = [choice for choice in Scope.choices if choice[0] in user.scopes]

    def arguments(self) -> dict[str, object]:
        """The cleaned fields as `token_create` takes them."""
        days = self.cleaned_data["days"]
        chosen = [(key, self._places[key]) for key in self.cleaned_data["places"]]
        return {
            "name": self.cleaned_data["name"],
            "scopes": self.cleaned_data["scopes"],
            "expires_at": timezone.now() + timedelta(days=days) if days else None,
            "networks": self.cleaned_data["networks"].replace(",", " ").split(),
            **{f"{kind}s": [row for key, row in chosen if key.startswith(kind)] for kind in ("cluster", "team")},
        }
