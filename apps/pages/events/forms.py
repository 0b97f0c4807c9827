"""Form of an event: factors as people write them, times on the clock of a zone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms

from apps.accounts.models import User
from apps.core.limits import MAX_NAME, MAX_REASON, MAX_TIME_ZONE
from apps.fleet.models import Cluster
from apps.planning.choices import EventRepeat
from apps.planning.event_factors import LoadOwners, factors_text, text_factors
from apps.planning.models import PlannedEvent
from apps.queries.arrivals.times import zone_of

__all__ = ["EventForm"]

_LOCAL = "%Y-%m-%dT%H:%M"
_NAMED = 12


def _moment(label: str, text: str = "", *, required: bool = True) -> forms.CharField:
    widget = forms.DateTimeInput(attrs={"type": "datetime-local"}, format=_LOCAL)
    return forms.CharField(label=label, required=required, widget=widget, help_text=text)


class EventForm(forms.Form):
    """An event, for services that check what it says."""

    name = forms.CharField(max_length=MAX_NAME, help_text="Such as Black Friday.")
    factors = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 3, "placeholder": "orders 3x, rest 1.5x"}),
        required=False,
        help_text="Times the ordinary load, one a line or between commas.",
    )
    follows_trace = forms.BooleanField(
        label="Everything else comes as the last time",
        required=False,
        help_text="Hour by hour from the load history, where it reaches back; else the factor of the rest.",
    )
    starts_at = _moment("From")
    ends_at = _moment("To")
    time_zone = forms.CharField(max_length=MAX_TIME_ZONE, help_text="Both times are on its clock.")
    repeat = forms.ChoiceField(label="Comes", choices=EventRepeat.choices, initial=EventRepeat.ONCE)
    trace_starts_at = _moment("Began the last time", "Empty: 52 weeks, or one repeat, before.", required=False)
    lose_one = forms.BooleanField(label="Survive the loss of any one node", required=False, initial=True)
    lead_time_days = forms.FloatField(
        label="Lead time", initial=14, min_value=0, max_value=365, help_text="From an order of nodes until they run."
    )
    cost_per_violation_hour = forms.FloatField(
        label="Cost of an hour over an objective", initial=100, min_value=0, help_text="Weighs nodes against lateness."
    )
    owner = forms.ChoiceField(required=False)
    description = forms.CharField(max_length=MAX_REASON, required=False)

    def __init__(
        self, *args: Any, cluster: Cluster, user: User, instance: PlannedEvent | None = None, **kw: Any
    ) -> None:
        kw["initial"] = {**_initial(instance, cluster, user), **kw.get("initial", {})}
        super().__init__(*args, **kw)
        owners = LoadOwners(cluster)
        names = {"the sources": owners.sources, "teams": owners.teams, "classes": owners.classes}
        known = "; ".join(f"{kind} {', '.join(found[:_NAMED])}" for kind, found in names.items() if found)
        field = self.fields["factors"]
        field.help_text = (
            f"{field.help_text} Also “team ads 2x” and “class 0 1.2x”: queries of that priority. There are {known}."
        )
        people = User.objects.filter(is_active=True).order_by("username").values_list("username", flat=True)
        self.fields["owner"].choices = [("", "Nobody"), *((name, name) for name in people)]  # type: ignore[attr-defined]

    @property
    def values(self) -> Mapping[str, object]:
        """Arguments of the services."""
        data = dict(self.cleaned_data)
        data["factors"] = text_factors(data["factors"])
        return data


def _initial(event: PlannedEvent | None, cluster: Cluster, user: User) -> dict[str, object]:
    if event is None:
        return {"time_zone": cluster.time_zone, "owner": user.username}
    zone = zone_of(event.time_zone)
    times = {"starts_at": event.starts_at, "ends_at": event.ends_at, "trace_starts_at": event.trace_starts_at}
    names = ("name", "follows_trace", "time_zone", "repeat", "lose_one", "lead_time_days", "description")
    return {
        **{name: getattr(event, name) for name in (*names, "cost_per_violation_hour")},
        **{name: at.astimezone(zone).strftime(_LOCAL) if at else "" for name, at in times.items()},
        "factors": factors_text(event.factors),
        "owner": event.owner.username if event.owner else "",
    }
