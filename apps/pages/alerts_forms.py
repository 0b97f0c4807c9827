"""The form of an alert rule."""

from __future__ import annotations

from typing import Any

from django import forms

from apps.results.choices import Comparison, Severity
from apps.results.models import MOST_WINDOWS_IN_A_ROW, AlertRule

__all__ = ["RuleForm"]

_FIELDS = ("name", "column", "comparison", "threshold", "for_windows", "where", "severity", "enabled")


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

    def __init__(self, *args: Any, columns: list[str], rule: AlertRule | None = None, **kwargs: Any) -> None:
        if rule is not None:
            kwargs.setdefault("initial", {name: getattr(rule, name) for name in _FIELDS})
        super().__init__(*args, **kwargs)
        known = [*columns, *([rule.column] if rule is not None and rule.column not in columns else [])]
        if known:
            self.fields["column"] = forms.ChoiceField(choices=[(name, name) for name in known])
