"""The form of an alert rule."""

from __future__ import annotations

from typing import Any

from django import forms

from apps.results.choices import Comparison, Severity
from apps.results.models import MOST_WINDOWS_IN_A_ROW, AlertRule

__all__ = ["RuleForm"]

_FIELDS = ("name", "column", "comparison", "threshold", "for_windows", "where", "severity", "enabled")
_LISTS = ("emails", "webhooks")


class RuleForm(forms.Form):
    """A threshold on a column. Rules are the service's."""

    name = forms.CharField(max_length=80, help_text="As it stands on the overview.")
    column = forms.CharField(max_length=120)
    comparison = forms.ChoiceField(label="Is", choices=Comparison.choices)
    threshold = forms.FloatField()
    for_windows = forms.IntegerField(
        label="Windows in a row",
        initial=1,
        min_value=1,
        max_value=MOST_WINDOWS_IN_A_ROW,
        help_text="One alone may be noise.",
    )
    where = forms.CharField(
        label="Only groups where",
        max_length=500,
        required=False,
        help_text="A condition on the columns of the result, such as dst in ('r1', 'r2'). Empty: every group.",
    )
    severity = forms.ChoiceField(choices=Severity.choices, initial=Severity.WARNING)
    enabled = forms.BooleanField(label="Evaluate it", required=False, initial=True)
    emails = forms.CharField(
        label="Mail to", required=False, widget=forms.Textarea(attrs={"rows": 2}), help_text="Addresses, one per line."
    )
    webhooks = forms.CharField(
        label="Tell webhooks",
        required=False,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="Addresses, one per line: each gets a signed message when alerts open and when they end.",
    )

    def __init__(self, *args: Any, columns: list[str], rule: AlertRule | None = None, **kwargs: Any) -> None:
        if rule is not None:
            lists = {name: "\n".join(getattr(rule, name)) for name in _LISTS}
            kwargs.setdefault("initial", {name: getattr(rule, name) for name in _FIELDS} | lists)
        super().__init__(*args, **kwargs)
        known = [*columns, *([rule.column] if rule is not None and rule.column not in columns else [])]
        if known:
            self.fields["column"] = forms.ChoiceField(choices=[(name, name) for name in known])

    def clean_emails(self) -> list[str]:
        return self.cleaned_data["emails"].replace(",", "\n").split()

    def clean_webhooks(self) -> list[str]:
        return [line.strip() for line in self.cleaned_data["webhooks"].splitlines() if line.strip()]
