"""Pages of channels: services that are told of incidents, a test of each, and times in which nobody is told."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone

from apps.accounts.permissions import signed_in_user
from apps.core.limits import MAX_NAME, MAX_QUERY_PATH, MAX_REASON, MAX_URL
from apps.fleet.models import Cluster
from apps.incidents.channels import MAX_ADDRESS
from apps.incidents.choices import ChannelKind, IncidentCause, IncidentSeverity
from apps.incidents.models import IncidentChannel, IncidentSilence
from apps.incidents.notices import channel_try
from apps.incidents.selectors import channels_listed, silences_listed
from apps.incidents.services import channel_create, channel_delete, channel_update, silence_create, silence_end
from apps.pages.base import ClusterPage, done, try_service
from apps.pages.crud import Crud

__all__ = ["ChannelCrud", "ChannelTest", "ChannelsPage", "SilenceEnd"]

_LASTS = {"1": "an hour", "4": "four hours", "12": "twelve hours", "24": "a day", "72": "three days", "168": "a week"}


class ChannelForm(forms.Form):
    """A channel. Address and token are never filled in: empty ones of a channel stay as they are."""

    kind = forms.ChoiceField(label="Service", choices=ChannelKind.choices)
    name = forms.CharField(max_length=MAX_NAME, help_text="As it is called here, such as on-call or #streams.")
    address = forms.CharField(
        required=False,
        max_length=MAX_ADDRESS,
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
        help_text="Alertmanager: the address below which its API lies. Slack and Teams: that of the webhook. "
        "CloudEvents: where events are posted. Another service: a URL of Apprise, such as mmost://host/token. "
        "PagerDuty and Opsgenie: empty, unless in another region.",
    )
    token = forms.CharField(
        label="Key or token",
        required=False,
        max_length=MAX_URL,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text="PagerDuty: the integration key. Opsgenie: the API key. Alertmanager, CloudEvents: a bearer token.",
    )
    severity = forms.ChoiceField(
        label="Tell of",
        choices=[
            (IncidentSeverity.CRITICAL, "Critical incidents: an objective is breached"),
            (IncidentSeverity.WARNING, "Warnings too: an objective is at risk"),
        ],
    )
    group_s = forms.IntegerField(
        label="Gather for, seconds",
        min_value=0,
        max_value=3600,
        initial=0,
        help_text="Incidents within that time are one message; 0 tells of each at once.",
    )
    enabled = forms.BooleanField(label="Switched on", required=False, initial=True)

    def __init__(self, *args: Any, instance: IncidentChannel | None = None, **kwargs: Any) -> None:
        if instance is not None:
            names = ("kind", "name", "severity", "group_s", "enabled")
            kwargs["initial"] = {name: getattr(instance, name) for name in names}
        super().__init__(*args, **kwargs)
        if instance is not None:
            del self.fields["kind"]
            self.fields["address"].help_text = f"Now {instance.shown_address or 'the default'}; empty: it stays."
            self.fields["token"].help_text = "Empty: it stays; with another address it has to be given again."


class SilenceForm(forms.Form):
    """A time in which nobody is told."""

    lasts_h = forms.ChoiceField(label="From now on for", choices=list(_LASTS.items()), initial="4")
    cause_kind = forms.ChoiceField(label="Cause", required=False, choices=[("", "Any cause"), *IncidentCause.choices])
    subject = forms.CharField(
        required=False,
        max_length=MAX_QUERY_PATH,
        help_text="Name of an agent, source, node, engine or query; empty: all.",
    )
    reason = forms.CharField(max_length=MAX_REASON, help_text="For those who wonder why it is quiet.")


class ChannelsPage(ClusterPage):
    """`/c/<slug>/incidents/channels/`: channels, silences, and a form of a silence."""

    template_name = "pages/incidents/channels.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.show(SilenceForm())

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = SilenceForm(request.POST)
        if form.is_valid():
            values = dict(form.cleaned_data)
            ends_at = timezone.now() + timedelta(hours=int(values.pop("lasts_h")))
            user, cluster = signed_in_user(request), self.cluster
            silence, is_stored = try_service(
                form, lambda: silence_create(cluster=cluster, ends_at=ends_at, user=user, **values)
            )
            if is_stored:
                return done(request, f"Nobody is told: {silence}.", "pages:incident-channels", slug)
        return self.show(form, 422)

    def show(self, form: SilenceForm, status: int = 200) -> HttpResponse:
        silences = silences_listed().filter(cluster=self.cluster, ends_at__gt=timezone.now())
        return self.page({"form": form, "silences": silences, "channels": _channels(self.cluster)}, status)


class ChannelCrud(Crud):
    """Channels of a cluster."""

    noun = "channel"
    form_class = ChannelForm
    template_name = "pages/incidents/channel.html"
    back = "pages:incident-channels"
    delete_name = "pages:incident-channel-delete"
    text_saved = "Channel {row} is stored."
    text_deleted = "Channel {row} is deleted."
    service_create = staticmethod(channel_create)
    service_update = staticmethod(channel_update)
    service_delete = staticmethod(channel_delete)

    def rows(self) -> QuerySet[IncidentChannel]:
        return _channels(self.cluster)


class ChannelTest(ClusterPage):
    """POST: a test message, and whether it arrived."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        channel = self.find(_channels(self.cluster), "channel", pk=pk)
        trial = channel_try(channel)
        if trial["arrived"]:
            return done(request, f"The test arrived at {channel}.", "pages:incident-channels", slug)
        return redirect("pages:incident-channels", slug)  # the list says why it did not


class SilenceEnd(ClusterPage):
    """POST: end a silence now."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        rows: QuerySet[IncidentSilence] = silences_listed().filter(cluster=self.cluster)
        silence_end(silence=self.find(rows, "silence", pk=pk))
        return done(request, "Incidents are told again.", "pages:incident-channels", slug)


def _channels(cluster: Cluster) -> QuerySet[IncidentChannel]:
    return channels_listed().filter(cluster=cluster)
