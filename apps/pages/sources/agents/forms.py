"""Forms of agents: the method that finds load factors and its parameters, and load factors by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms

from apps.ui.forms import range_field
from engine.jarvis.settings import SETTINGS, AdaptationSettings

__all__ = ["METHOD_WORDS", "AdaptingForm", "FactorsForm", "setting_words"]


#: What each method does; load factors by hand have a page of their own.
METHOD_WORDS = {
    "scalar": "By itself, along the best plans for its CPU",
    "best-op": "Whole operators alone, as many as fit (Best-OP)",
    "filter-src": "Filters alone (Filter-Src)",
    "all-src": "Everything at the source (All-Src)",
    "all-sp": "Nothing at the source (All-SP)",
    "fixed": "By hand",
}
_OBJECTIVES = {"bytes": "Bytes", "records": "Records"}
_DEFAULTS = AdaptationSettings()
#: Shares that people read and type in percent.
_PERCENT = ("margin", "floor", "drained_thres", "idle_thres")
_LABELS = {
    "margin": ("CPU margin", "Share of the budget that plans use; the rest absorbs bursts."),
    "floor": (
        "Probe share",
        "Share of records that run the whole pipeline, so that costs of idle operators stay known; 0 for none.",
    ),
    "drained_thres": ("Congestion threshold", "Overflow, as a share of records, at which load is taken back at once."),
    "idle_thres": ("Idle threshold", "Unused share of the budget at which it takes on more load."),
    "z_least": ("Smallest effective budget", "As a multiple of the budget."),
    "z_most": ("Largest effective budget", "As a multiple of the budget."),
}
_RANGES = {field.name: field.kind for field in SETTINGS.fields}


def _scale(name: str) -> float:
    return 100.0 if name in _PERCENT else 1.0


def _number(name: str) -> forms.Field:
    kind, scale, (label, why) = _RANGES[name], _scale(name), _LABELS[name]
    low, high = kind.least * scale, kind.most * scale
    return range_field(
        label, f"{why} {low:g} to {high:,g}.", low, high, "%" if scale > 1 else "", whole=bool(kind.whole)
    )


class AdaptingForm(forms.Form):
    """Settings of adapting. `settings` gives what differs from the defaults."""

    method = forms.ChoiceField(label="Method", choices=[(k, v) for k, v in METHOD_WORDS.items() if k != "fixed"])
    objective = forms.ChoiceField(
        label="Objective",
        choices=list(_OBJECTIVES.items()),
        help_text="Quantity to minimise: bytes, unless each record has its price.",
    )

    def __init__(self, *args: Any, current: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        settings = {**_DEFAULTS.to_dict(), **(current or {})}
        if settings["method"] == "fixed":
            settings["method"] = _DEFAULTS.method
        shown = {name: f"{round(settings[name] * _scale(name), 6):.12g}" for name in _LABELS}
        kwargs["initial"] = {**settings, **shown, **(kwargs.get("initial") or {})}
        super().__init__(*args, **kwargs)
        for name in _LABELS:
            self.fields[name] = _number(name)

    @property
    def parameters(self) -> list[tuple[Any, str]]:
        """(field, unit) of the numbers."""
        return [(self[name], "%" if name in _PERCENT else "") for name in _LABELS]

    @property
    def has_own_parameters(self) -> bool:
        """Whether one of the numbers is no default, or wrong: they are shown then."""
        own = {name: round(getattr(_DEFAULTS, name) * _scale(name), 6) for name in _LABELS}
        shown = ((self[name], default) for name, default in own.items())
        return any(bound.errors or _differs(bound.value(), default) for bound, default in shown)

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that differ from the defaults, as the services take them."""
        settings = {name: self.cleaned_data[name] for name in ("method", "objective")}
        for name in _LABELS:
            value = self.cleaned_data[name]
            settings[name] = value if isinstance(value, int) else round(value / _scale(name), 9)
        defaults = _DEFAULTS.to_dict()
        return {name: value for name, value in settings.items() if value != defaults[name]}


def _differs(value: Any, default: float) -> bool:
    try:
        return abs(float(value) - default) > 1e-9
    except (TypeError, ValueError):
        return True


def setting_words(name: str, value: str) -> tuple[str, str]:
    """A setting by its name, and its value as a text, both as people read them."""
    if name in _LABELS:
        try:
            return _LABELS[name][0], _value_text(name, float(value))
        except ValueError:
            return _LABELS[name][0], value
    words = {"method": "Method", "objective": "Objective", "load_factors": "Load factors"}
    return words.get(name, name), METHOD_WORDS.get(value, value) if name == "method" else value


def _value_text(name: str, value: float) -> str:
    return f"{round(value * _scale(name), 6):g}{'%' if name in _PERCENT else ''}"


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
