"""Form of a policy as a text."""

from __future__ import annotations

from django import forms

from apps.core.limits import MAX_REASON
from apps.policies.api import MAX_POLICY_TEXT

__all__ = ["PolicyTextForm"]


class PolicyTextForm(forms.Form):
    """A policy as YAML or JSON."""

    text = forms.CharField(
        label="Policy",
        max_length=MAX_POLICY_TEXT,
        widget=forms.Textarea(attrs={"rows": 24, "spellcheck": "false", "class": "mono"}),
        help_text="YAML or JSON, whole: what is left out is as by default.",
    )
    note = forms.CharField(label="Reason", max_length=MAX_REASON, required=False, help_text="Kept with the version.")
    base = forms.IntegerField(widget=forms.HiddenInput, min_value=0)
