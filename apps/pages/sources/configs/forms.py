"""Forms of configs: a new one, and the rollout policy with canaries, waves and limits."""

from __future__ import annotations

from typing import Any

from django import forms

from apps.core.limits import MAX_NOTE
from apps.pages.sources.agents.forms import AdaptingForm
from apps.pages.sources.schedule.forms import ScheduleForm
from apps.rollouts.configs.services import ConfigRequest
from apps.rollouts.models import RolloutPolicy
from apps.ui.forms import choice_field, range_field

__all__ = ["NewConfigForm", "PolicyForm"]


class NewConfigForm(AdaptingForm):
    """Which queries and agents, with which settings, and why."""

    words = forms.CharField(
        label="Description",
        max_length=MAX_NOTE,
        required=False,
        help_text="Shown beside its rollout. Left empty, it is written for you.",
    )
    queries = forms.MultipleChoiceField(
        label="Queries", required=False, widget=forms.CheckboxSelectMultiple, help_text="All unless you tick some."
    )
    agents = forms.MultipleChoiceField(
        label="Agents",
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="All unless you tick some. Those set by hand are left as they are.",
    )
    learned = forms.BooleanField(
        label="With learned operator statistics",
        required=False,
        initial=True,
        help_text="Costs and relay ratios with at least a thousand records behind them; agents start from them.",
    )

    with_schedule = forms.BooleanField(
        label="With scheduling settings",
        required=False,
        help_text="For whole agents, so for all of their queries.",
    )

    def __init__(self, data: Any = None, *args: Any, queries: list[str], agents: list[str], **kwargs: Any) -> None:
        super().__init__(data, *args, **kwargs)
        self.scheduling = ScheduleForm(data if data and data.get("with_schedule") else None, prefix="schedule")
        choice_field(self, "queries").choices = [(name, name) for name in queries]
        choice_field(self, "agents").choices = [(name, name) for name in agents]

    def is_valid(self) -> bool:
        """With what is said of scheduling, where it is: all faults at once."""
        own = super().is_valid()
        return (not self.scheduling.is_bound or self.scheduling.is_valid()) and own

    @property
    def wish(self) -> ConfigRequest:
        values = self.cleaned_data
        schedule = self.scheduling.settings if values["with_schedule"] else None
        return ConfigRequest(
            self.settings, tuple(values["queries"]), tuple(values["agents"]), values["learned"], schedule
        )

    @property
    def rest_body(self) -> dict[str, Any]:
        """As the REST API takes it."""
        if not self.is_bound or not self.is_valid():
            return {"words": "", "settings": {}, "queries": [], "agents": []}
        wish = self.wish
        body: dict[str, Any] = {
            "settings": dict(wish.settings or {}),
            "queries": list(wish.queries),
            "agents": list(wish.agents),
        }
        if wish.schedule is not None:
            body["schedule"] = dict(wish.schedule)
        return {"words": self.cleaned_data["words"], **body, "learned": wish.learned}


#: Of each number: label, why, least, most, unit, and by what it is multiplied to be read.
_NUMBERS: dict[str, tuple[str, str, float, float, str, float]] = {
    "canary_count": ("Canaries, at least", "Agents that get a config first.", 1, 10_000, "agents", 1),
    "canary_share": ("Canaries, as a share", "Of all agents, where that is more.", 0, 100, "%", 100),
    "canary_epochs": ("Canary observation time", "An epoch is a second.", 10, 600, "epochs", 1),
    "wave_epochs": ("Wave observation time", "Then the next one begins.", 10, 600, "epochs", 1),
    "silent_epochs": ("Acknowledgement timeout", "An agent silent for longer holds up nobody.", 5, 3600, "epochs", 1),
    "overflow_pp": (
        "Overflow limit",
        "Increase against before, and against the old config.",
        0,
        100,
        "points",
        1,
    ),
    "bytes_rel": ("Limit of bytes per record", "More by.", 0, 1000, "%", 100),
    "latency_rel": ("Delay limit", "Relative increase.", 0, 10_000, "%", 100),
    "latency_abs_s": ("Absolute delay limit", "A rollback needs both limits to be passed.", 0, 3600, "s", 1),
    "cpu_rel": ("CPU limit", "More by.", 0, 1000, "%", 100),
    "propose_every_s": ("Proposal interval", "A newer one replaces one that waits.", 10, 604_800, "s", 1),
}
_WHOLE = {"canary_count", "canary_epochs", "wave_epochs", "silent_epochs"}
_CANARIES = ("canary_count", "canary_share", "canary_epochs", "wave_epochs", "silent_epochs")
_LIMITS = ("overflow_pp", "bytes_rel", "latency_rel", "latency_abs_s", "cpu_rel")


def _field(name: str) -> forms.Field:
    label, why, low, high, unit, _ = _NUMBERS[name]
    return range_field(label, why, low, high, unit, whole=name in _WHOLE)


class PolicyForm(forms.Form):
    """A cluster's policy."""

    waves = forms.CharField(
        label="Waves", help_text="Share of all agents after each, such as 30, 100; the last is 100.", max_length=80
    )
    automatic = forms.BooleanField(label="Start proposals automatically", required=False)

    def __init__(self, *args: Any, policy: RolloutPolicy, **kwargs: Any) -> None:
        shown = {name: round(getattr(policy, name) * scale, 6) for name, (*_, scale) in _NUMBERS.items()}
        waves = ", ".join(f"{100 * share:g}" for share in policy.waves)
        kwargs.setdefault("initial", {**shown, "waves": waves, "automatic": policy.automatic})
        super().__init__(*args, **kwargs)
        for name in _NUMBERS:
            self.fields[name] = _field(name)

    def clean_waves(self) -> list[float]:
        """Shares that grow and end with all."""
        said = "They have to grow and end with 100, such as 30, 100."
        try:
            shares = [float(part) / 100 for part in self.cleaned_data["waves"].replace("%", " ").split(",")]
        except ValueError:
            raise forms.ValidationError(said) from None
        grows = all(a < b for a, b in zip([0.0, *shares], shares, strict=False))
        if not grows or shares[-1] != 1.0 or len(shares) > 10:
            raise forms.ValidationError(said)
        return shares

    @property
    def values(self) -> dict[str, Any]:
        """As the service takes them."""
        values = {name: self.cleaned_data[name] for name in ("waves", "automatic")}
        for name, (*_, scale) in _NUMBERS.items():
            value = self.cleaned_data[name]
            values[name] = value if name in _WHOLE else round(value / scale, 9)
        return values

    def _rows(self, names: tuple[str, ...]) -> list[tuple[Any, str]]:
        return [(self[name], _NUMBERS[name][4]) for name in names]

    @property
    def canaries(self) -> list[tuple[Any, str]]:
        """(field, unit)."""
        return self._rows(_CANARIES)

    @property
    def limits(self) -> list[tuple[Any, str]]:
        """(field, unit) of what takes a configuration back."""
        return self._rows(_LIMITS)
