"""Forms of agents: the method that finds load factors and its parameters, and load factors by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms

from apps.ui.record_forms import SettingsForm
from engine.jarvis.settings import METHOD_WORDS, OBJECTIVES, AdaptationSettings

__all__ = ["AdaptingForm", "FactorsForm"]


class AdaptingForm(SettingsForm):
    """Settings of adapting; load factors by hand have a form of their own."""

    RECORD = AdaptationSettings

    method = forms.ChoiceField(label="Method", choices=[(k, v) for k, v in METHOD_WORDS.items() if k != "fixed"])
    objective = forms.ChoiceField(
        label="Objective",
        choices=list(OBJECTIVES.items()),
        help_text="Quantity to minimise: bytes, unless each record has its price.",
    )

    def __init__(self, *args: Any, current: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        given = dict(current or {})
        if given.get("method") == "fixed":
            del given["method"]
        super().__init__(*args, current=given, **kwargs)


class FactorsForm(forms.Form):
    """One number for each operator that may run at the source: its id, and what it is now where that is known."""

    def __init__(self, *args: Any, operators: list[tuple[str, float | None]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.operators = operators
        for place, (name, now) in enumerate(operators):
            self.fields[f"f{place}"] = forms.FloatField(
                label=name,
                min_value=0.0,
                max_value=1.0,
                initial=round(now or 0.0, 4),
                error_messages={
                    "required": "Enter 0 to 1.",
                    "invalid": "It is no number. Enter 0 to 1.",
                    "min_value": "A load factor is at least 0. Enter 0 to 1.",
                    "max_value": "A load factor is at most 1. Enter 0 to 1.",
                },
            )

    @property
    def values(self) -> list[float]:
        return [self.cleaned_data[f"f{place}"] for place in range(len(self.operators))]

    @property
    def rows(self) -> list[tuple[Any, float | None, str]]:
        """(field, what it is now, what stands in the field)."""
        bound = [(self[f"f{place}"], now) for place, (_, now) in enumerate(self.operators)]
        return [(field, now, field.value() if self.is_bound else f"{field.value():g}") for field, now in bound]
