"""The form of a backtest: which period, through which policy. It reads what was typed; rules are the services'."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.utils import timezone

from apps.backtests.choices import Asked
from apps.backtests.selectors import policy_default
from apps.fleet.models import Cluster

__all__ = ["FAULTS_AT", "PERIODS", "BacktestForm"]

PERIODS = {
    "hour": ("Last hour", timedelta(hours=1)),
    "day": ("Last day", timedelta(days=1)),
    "week": ("Last week", timedelta(days=7)),
}
#: Where refusals of the service belong, as paths of faults begin.
FAULTS_AT = {"policy.": "", "cluster": "period"} | {
    f"policy.{name}": name for name in ("admission", "at_risk", "assumed", "headroom", "placement", "max_moves")
}
_LOCAL = "%Y-%m-%dT%H:%M"
_DOUBT = [("admit", "Admit"), ("review", "Leave to a person: not admitted here")]


def _moment(label: str, text: str) -> forms.DateTimeField:
    widget = forms.DateTimeInput(attrs={"type": "datetime-local"}, format=_LOCAL)
    return forms.DateTimeField(label=label, required=False, widget=widget, help_text=text)


class BacktestForm(forms.Form):
    """A period in the person's zone, and a policy."""

    period = forms.ChoiceField(
        choices=[*((key, label) for key, (label, _) in PERIODS.items()), ("custom", "From and until, below")],
        initial="week",
        help_text="Only what records reach of it is replayed.",
    )
    since = _moment("From", "With a period of your own; in your time zone.")
    until = _moment("Until", "Empty: now.")
    ask = forms.ChoiceField(
        label="Requests are asked",
        choices=Asked.choices,
        initial=Asked.RECORDED,
        help_text="At the beginning shows what every request does to the whole period.",
    )
    admission = forms.ChoiceField(
        choices=[
            ("mace", "By the engine, with the rules below"),
            ("everything", "Everything is admitted that finds a node"),
            ("recorded", "As it was really decided"),
        ],
        help_text="How each request is decided at the load of its moment.",
    )
    at_risk = forms.ChoiceField(
        label="At risk", choices=_DOUBT, help_text="The estimate holds, the upper end of its interval does not."
    )
    assumed = forms.ChoiceField(
        label="Assumed statistics", choices=_DOUBT, help_text="Or measured on too few events to be sure."
    )
    headroom = forms.FloatField(
        initial=0, min_value=0, max_value=90, help_text="Share of every objective that must stay free."
    )
    placement = forms.ChoiceField(
        choices=[
            ("keep", "Stays as it is"),
            ("greedy", "Placed anew by greedy when an objective is threatened"),
            ("search", "Searched anew when an objective is threatened"),
        ],
        help_text="A move is made only where it lowers the worst latency.",
    )
    max_moves = forms.IntegerField(
        label="Moves at most", required=False, min_value=0, help_text="Over the whole period; empty: any number."
    )

    def __init__(self, *args: Any, cluster: Cluster, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, value in policy_default(cluster).items():
            self.fields[name].initial = value

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        if data.get("period") == "custom" and not data.get("since") and "since" not in self.errors:
            self.add_error("since", "Say from when; the period is your own.")
        return data

    @property
    def asked(self) -> dict[str, Any]:
        """Arguments of `backtest_request`."""
        data = self.cleaned_data
        until = timezone.now()
        if data["period"] == "custom":
            until = data["until"] or until
            since = data["since"]
        else:
            since = until - PERIODS[data["period"]][1]
        names = ("admission", "at_risk", "assumed", "placement", "max_moves")
        policy = {name: data[name] for name in names} | {"headroom": data["headroom"] / 100.0}
        return {"since": since, "until": until, "ask": data["ask"], "policy": policy}
