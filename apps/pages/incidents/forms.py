"""Forms of incidents: their routing."""

from __future__ import annotations

from typing import Any

from django import forms

from apps.fleet.models import Cluster
from apps.incidents.choices import IncidentSeverity
from apps.incidents.selectors import routing_of
from apps.incidents.services import MAX_KEEP_DAYS, incident_routing_update
from apps.pages.base import try_service
from apps.reports.models import Webhook

__all__ = ["RoutingForm"]


class RoutingForm(forms.Form):
    """Where incidents of a cluster are reported to."""

    emails = forms.CharField(
        label="Mail to", required=False, widget=forms.Textarea(attrs={"rows": 3}), help_text="One address a line."
    )
    webhooks = forms.ModelMultipleChoiceField(
        Webhook.objects.none(),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="Each gets a signed POST when an incident opens, becomes critical, and is resolved.",
    )
    severity = forms.ChoiceField(
        label="Report",
        choices=[
            (IncidentSeverity.CRITICAL, "Critical incidents: an objective is breached"),
            (IncidentSeverity.WARNING, "Warnings too: an objective is at risk"),
        ],
    )
    keep_days = forms.IntegerField(
        label="Keep resolved ones, days", min_value=1, max_value=MAX_KEEP_DAYS, help_text="Then they are deleted."
    )

    def __init__(self, cluster: Cluster, *args: Any, **kwargs: Any) -> None:
        routing = routing_of(cluster)
        initial = {
            "emails": "\n".join(routing.emails),
            "webhooks": list(routing.webhooks.all()) if routing.pk else [],
            "severity": routing.severity,
            "keep_days": routing.keep_days,
        }
        super().__init__(*args, initial=initial, **kwargs)
        self.cluster = cluster
        field: Any = self.fields["webhooks"]
        field.queryset = Webhook.objects.filter(cluster=cluster)

    def save(self) -> bool:
        """Store the routing; False with the faults shown."""
        if not self.is_valid():
            return False
        values = self.cleaned_data
        emails = [line.strip() for line in values["emails"].splitlines() if line.strip()]
        _, is_stored = try_service(
            self,
            lambda: incident_routing_update(
                cluster=self.cluster,
                emails=emails,
                webhooks=values["webhooks"],
                severity=values["severity"],
                keep_days=values["keep_days"],
            ),
        )
        return is_stored
