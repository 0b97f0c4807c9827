"""Forms of scheduling: the policy and its parameters, each within its safe range."""

from __future__ import annotations

from typing import Any

from django import forms

from apps.core.limits import MAX_NOTE
from apps.ui.forms import choice_field
from apps.ui.record_forms import SettingsForm
from engine.klink.settings import ScheduleSettings

__all__ = ["POLICY_WORDS", "ScheduleForm", "SwitchForm"]


#: What each does.
POLICY_WORDS = {
    "klink": "Windows whose watermark is here by how late they are, then the least slack (Klink)",
    "stimulus-time": "The earliest event first (stimulus time)",
    "fcfs": "The record that has waited longest first (first come, first served)",
    "round-robin": "Each in turn (round robin)",
}


class ScheduleForm(SettingsForm):
    """Settings of scheduling."""

    RECORD = ScheduleSettings

    policy = forms.ChoiceField(label="Scheduling policy", choices=list(POLICY_WORDS.items()))


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
