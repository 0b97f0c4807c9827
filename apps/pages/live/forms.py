"""Forms of live queries: start, template and alert rule."""

from __future__ import annotations

from typing import Any

from django import forms

from apps.core.limits import MAX_ELEMENT_NAME, MAX_MESSAGE, MAX_NAME, MAX_SLUG
from apps.results.models import MAX_WINDOWS_IN_A_ROW, AlertRule, Comparison, Severity
from apps.ui.forms import JsonField, choice_field
from engine.dataflow.templates import Template

__all__ = ["RuleForm", "StartForm", "TemplateForm"]


class StartForm(forms.Form):
    """Agents that process the query, and how long it waits for them."""

    agents = forms.MultipleChoiceField(
        label="Agents",
        widget=forms.CheckboxSelectMultiple,
        help_text="Each collects the query's source and runs its first operators.",
    )
    idle_after_s = forms.FloatField(
        label="Idle timeout of an agent",
        min_value=1,
        max_value=86_400,
        initial=60,
        help_text="Windows close without an agent that is silent for longer.",
    )
    retain_s = forms.FloatField(
        label="Retention of closed windows",
        min_value=1,
        max_value=86_400,
        initial=900,
        help_text="In event time. Late records within it lead to another revision of the result.",
    )
    shed_late = forms.BooleanField(
        label="Lose records that are late everywhere",
        required=False,
        help_text="Under overload only, and only with an objective. Otherwise they are sent to the stream processor.",
    )

    def __init__(self, *args: Any, names: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choice_field(self, "agents").choices = [(name, name) for name in names]
        if not self.is_bound:
            self.initial.setdefault("agents", names)


#: Options that a collector requires.
_OPTIONS: dict[str, dict[str, Any]] = {
    "tcp_probe": {"peers": [{"address": "127.0.0.1:8000"}], "interval_s": 1},
    "log_file": {"path": "var/log/access.log", "begin": "end"},
}


class TemplateForm(forms.Form):
    """Parameters of a template, and the facts that every query has."""

    name = forms.CharField(
        label="Name of the query", max_length=MAX_SLUG, help_text="Lower-case letters, digits and hyphens."
    )
    source = forms.CharField(
        label="Reads the source",
        max_length=MAX_SLUG,
        help_text="A source that is collected already, or a new name to add one.",
    )
    options = JsonField(label="Options of its collector", required=False, help_text="As JSON; for a new source only.")
    rate_eps = forms.FloatField(
        label="Expected records", initial=100, min_value=0.001, help_text="An assumed rate, until it is measured."
    )
    bound_s = forms.FloatField(
        label="Objective",
        initial=10,
        required=False,
        min_value=0.001,
        help_text="Upper bound of its latency. Empty: no objective.",
    )
    team = forms.CharField(max_length=MAX_NAME, required=False, help_text="The team to contact about the query.")

    def __init__(self, *args: Any, template: Template, sources: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.template = template
        for parameter in template.parameters:
            self.fields[f"p_{parameter.name}"] = forms.FloatField(label=parameter.label, initial=parameter.default)
        self.fields["source"].widget.attrs["list"] = "known-sources"
        if not self.is_bound:
            self.initial.setdefault("name", template.name)
            self.initial.setdefault("source", sources[0] if sources else template.collector.replace("_", "-"))
            self.initial.setdefault("options", _OPTIONS.get(template.collector, {}))

    @property
    def parameter_fields(self) -> list[Any]:
        return [self[f"p_{parameter.name}"] for parameter in self.template.parameters]

    @property
    def parameters(self) -> dict[str, float]:
        """The parameters typed, as far as they are numbers."""
        data = self.cleaned_data if self.is_bound and hasattr(self, "cleaned_data") else {}
        typed = {
            parameter.name: data.get(f"p_{parameter.name}", parameter.default) for parameter in self.template.parameters
        }
        return {name: value for name, value in typed.items() if value is not None}


_FIELDS = ("name", "column", "comparison", "threshold", "for_windows", "where", "severity", "enabled")
_LISTS = ("emails", "webhooks")


class RuleForm(forms.Form):
    """A threshold on a column. The service checks the values."""

    name = forms.CharField(max_length=MAX_NAME, help_text="Its name on the overview.")
    column = forms.CharField(max_length=MAX_ELEMENT_NAME)
    comparison = forms.ChoiceField(label="Is", choices=Comparison.choices)
    threshold = forms.FloatField()
    for_windows = forms.IntegerField(
        label="Consecutive windows",
        initial=1,
        min_value=1,
        max_value=MAX_WINDOWS_IN_A_ROW,
        help_text="A single window may be noise.",
    )
    where = forms.CharField(
        label="Only groups where",
        max_length=MAX_MESSAGE,
        required=False,
        help_text="A condition on the columns of the result, such as dst in ('r1', 'r2'). Empty: every group.",
    )
    severity = forms.ChoiceField(choices=Severity.choices, initial=Severity.WARNING)
    enabled = forms.BooleanField(label="Enabled", required=False, initial=True)
    emails = forms.CharField(
        label="Email", required=False, widget=forms.Textarea(attrs={"rows": 2}), help_text="Addresses, one per line."
    )
    webhooks = forms.CharField(
        label="Webhooks",
        required=False,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="Addresses, one per line: each gets a signed message when alerts open and when they end.",
    )

    def __init__(self, *args: Any, columns: list[str], rule: AlertRule | None = None, **kwargs: Any) -> None:
        if rule is not None:
            lists = {name: "\n".join(getattr(rule, name)) for name in _LISTS}
            kwargs.setdefault("initial", {name: getattr(rule, name) for name in _FIELDS} | lists)
        super().__init__(*args, **kwargs)
        names = [*columns, *([rule.column] if rule is not None and rule.column not in columns else [])]
        if names:
            self.fields["column"] = forms.ChoiceField(choices=[(name, name) for name in names])

    def clean_emails(self) -> list[str]:
        return self.cleaned_data["emails"].replace(",", "\n").split()

    def clean_webhooks(self) -> list[str]:
        return [line.strip() for line in self.cleaned_data["webhooks"].splitlines() if line.strip()]
