"""Forms of signing in, of second factors, links and invitations."""

from __future__ import annotations

from typing import Any

from django import forms

from apps.accounts.choices import Role
from apps.accounts.forms import new_password_field
from apps.accounts.models import Group, Team
from apps.core.limits import MAX_NOTE
from apps.signin.invitations import MAX_DAYS

__all__ = [
    "AcceptForm",
    "CodeForm",
    "FirstCodeForm",
    "InvitationForm",
    "ResetForm",
    "ResetRequestForm",
    "ServiceAccountForm",
]

_MAX_NAME = 254  # of an address


class CodeForm(forms.Form):
    """A code of the authenticator app, or a recovery code."""

    code = forms.CharField(
        label="Code",
        max_length=40,
        widget=forms.TextInput(attrs={"autocomplete": "one-time-code", "inputmode": "text", "autofocus": True}),
        help_text="Six digits of your authenticator app, or a recovery code.",
    )


class FirstCodeForm(forms.Form):
    """The first code of an authenticator app."""

    code = forms.CharField(
        label="Code of the app",
        max_length=10,
        widget=forms.TextInput(attrs={"autocomplete": "one-time-code", "inputmode": "numeric"}),
        help_text="The six digits that it shows now.",
    )


class ResetRequestForm(forms.Form):
    """User name or address of somebody who cannot sign in."""

    name = forms.CharField(
        label="User name or address", max_length=_MAX_NAME, widget=forms.TextInput(attrs={"autocomplete": "username"})
    )


class _TwiceForm(forms.Form):
    """A new password, typed twice."""

    password = new_password_field()
    again = new_password_field("New password again", "")

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if cleaned.get("again") and cleaned.get("password") and cleaned["again"] != cleaned["password"]:
            self.add_error("again", "The two are not the same.")
        return cleaned


class ResetForm(_TwiceForm):
    """Another password by a link."""


class AcceptForm(_TwiceForm):
    """The account of somebody who was invited."""

    username = forms.CharField(
        label="User name", max_length=150, widget=forms.TextInput(attrs={"autocomplete": "username"})
    )
    field_order = ["username", "password", "again"]


class ServiceAccountForm(forms.Form):
    """An account of a program."""

    name = forms.CharField(label="Name", max_length=150, help_text="Such as ci or deploy-webhook.")
    team = forms.ModelChoiceField(queryset=Team.objects.all(), help_text="It answers for the account.")
    role = forms.ChoiceField(
        choices=[("", "none: granted under People alone"), *Role.choices], required=False, label="Role on everything"
    )
    description = forms.CharField(max_length=MAX_NOTE, required=False, help_text="What it is for.")


class InvitationForm(forms.Form):
    """Somebody who is to have an account."""

    note = forms.CharField(label="For", max_length=MAX_NOTE, help_text="Whom it is for, as the list is to say it.")
    email = forms.EmailField(label="Address", required=False, help_text="The link is sent here if mail is set up.")
    role = forms.ChoiceField(choices=Role.choices, initial=Role.VIEWER)
    groups = forms.ModelMultipleChoiceField(
        queryset=Group.objects.all(), required=False, widget=forms.CheckboxSelectMultiple
    )
    days = forms.IntegerField(label="Valid for days", min_value=1, max_value=MAX_DAYS, initial=7)
