"""Forms of scheduling: the policy and its parameters, each within its safe range."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms

from apps.core.limits import MAX_NOTE
from apps.ui.forms import choice_field, range_field
from engine.klink.settings import SCHEDULE, ScheduleSettings

__all__ = ["POLICY_NAMES", "POLICY_WORDS", "ScheduleForm", "SwitchForm", "schedule_setting_words"]


POLICY_NAMES = {
    "klink": "Klink",
    "stimulus-time": "stimulus time",
    "fcfs": "first come, first served",
    "round-robin": "round robin",
}
#: What each does.
POLICY_WORDS = {
    "klink": "Windows whose watermark is here by how late they are, then the least slack (Klink)",
    "stimulus-time": "The earliest event first (stimulus time)",
    "fcfs": "The record that has waited longest first (first come, first served)",
    "round-robin": "Each in turn (round robin)",
}
_DEFAULTS = ScheduleSettings()
#: Of each number: label, why, unit, and by what it is multiplied to be read.
_NUMBERS: dict[str, tuple[str, str, str, float]] = {
    "cycle_ms": ("Scheduling quantum", "Time until the policy chooses again (r).", "ms", 1),
    "confidence": (
        "Confidence of watermark intervals",
        "Share of watermarks that arrive within their interval (f).",
        "%",
        100,
    ),
    "history": ("Watermark history", "Windows of each stream that the next watermark is predicted from (h).", "", 1),
    "memory_bytes": ("Memory limit", "Above it, the query that frees the most memory runs first (b).", "MiB", 2**-20),
    "release_share": (
        "Memory release share",
        "Share freed before slack decides again; a small share makes the modes alternate.",
        "%",
        100,
    ),
    "release_s": ("Memory release time", "Time after which slack decides again in any case.", "s", 1),
    "starvation_s": ("Starvation limit", "Longest time a query with records waits to run.", "s", 1),
    "backlog_periods": ("Backlog limit", "Windows of the query for which its records may wait.", "windows", 1),
    "backlog_most_s": ("Backlog time limit", "Records that wait longer are sent on unprocessed.", "s", 1),
}
_RANGES = {field.name: field.kind for field in SCHEDULE.fields}
_MAX_DIGITS = 12


def _number(name: str) -> forms.Field:
    kind, (label, why, unit, scale) = _RANGES[name], _NUMBERS[name]
    low, high = (round(edge * scale, _MAX_DIGITS) for edge in (_edge(kind), kind.most))
    said = f"More than 0, up to {high:,g}." if kind.least is None else f"{low:g} to {high:,g}."
    return range_field(label, f"{why} {said}", low, high, unit, whole=bool(kind.whole) and scale == 1)


def _edge(kind: Any) -> float:
    """The least that is allowed; what has to be above 0 is at least a thousandth."""
    return float(kind.least) if kind.least is not None else 0.001


class ScheduleForm(forms.Form):
    """Settings of scheduling. `settings` gives what differs from the defaults."""

    policy = forms.ChoiceField(label="Scheduling policy", choices=list(POLICY_WORDS.items()))

    def __init__(self, *args: Any, current: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        settings = {**_DEFAULTS.to_dict(), **(current or {})}
        shown = {name: _shown(name, settings[name]) for name in _NUMBERS}
        kwargs["initial"] = {"policy": settings["policy"], **shown, **(kwargs.get("initial") or {})}
        super().__init__(*args, **kwargs)
        for name in _NUMBERS:
            self.fields[name] = _number(name)

    @property
    def parameters(self) -> list[tuple[Any, str]]:
        """(field, unit) of the numbers."""
        return [(self[name], unit) for name, (_, _, unit, _) in _NUMBERS.items()]

    @property
    def has_own_parameters(self) -> bool:
        """Whether one of the numbers is no default, or wrong: they are shown then."""
        bound = [(self[name], _shown(name, getattr(_DEFAULTS, name))) for name in _NUMBERS]
        return any(field.errors or str(field.value()) != default for field, default in bound)

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that differ from the defaults, as the services take them."""
        settings = {"policy": self.cleaned_data["policy"], **{name: self._value(name) for name in _NUMBERS}}
        defaults = _DEFAULTS.to_dict()
        return {name: value for name, value in settings.items() if value != defaults[name]}

    def _value(self, name: str) -> Any:
        value = self.cleaned_data[name] / _NUMBERS[name][3]
        return round(value) if _RANGES[name].whole else round(value, 9)


def _shown(name: str, value: Any) -> str:
    return f"{round(float(value) * _NUMBERS[name][3], 6):.12g}"


def schedule_setting_words(name: str, value: Any) -> tuple[str, str]:
    """A setting of scheduling by its name, and its value, both as people read them."""
    if name == "policy":
        return "Scheduling policy", POLICY_NAMES.get(str(value), str(value))
    if name not in _NUMBERS:
        return name, str(value)
    label, _, unit, _ = _NUMBERS[name]
    try:
        shown = _shown(name, value)
    except (TypeError, ValueError):
        return label, str(value)
    apart = "" if unit in ("", "%") else "\N{NO-BREAK SPACE}"
    return label, f"{shown}{apart}{unit}"


class SwitchForm(ScheduleForm):
    """Which agents, with which settings, and why."""

    agents = forms.MultipleChoiceField(
        label="Agents", required=False, widget=forms.CheckboxSelectMultiple, help_text="All unless you tick some."
    )
    words = forms.CharField(
        label="Description",
        max_length=MAX_NOTE,
        required=False,
        help_text="Shown beside its rollout. Left empty, it is written for you.",
    )

    def __init__(self, *args: Any, agents: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choice_field(self, "agents").choices = [(name, name) for name in agents]

    @property
    def rest_body(self) -> dict[str, Any]:
        """As the REST API takes it."""
        if not self.is_bound or not self.is_valid():
            return {"mode": "preview", "words": "", "settings": {"policy": self.initial["policy"]}, "agents": []}
        values = self.cleaned_data
        asked = {"settings": self.settings, "agents": list(values["agents"])}
        return {"mode": "preview", "words": values["words"], **asked}
