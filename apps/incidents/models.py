"""Incidents of clusters: late queries by cause, their timeline, and the way to readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils import timezone

from apps.core.deliveries import DeliveryRow
from apps.core.limits import MAX_NAME, MAX_NOTE, MAX_QUERY_PATH, MAX_REASON, MAX_URL
from apps.core.secrets import SealedField
from apps.fleet.models import Cluster
from apps.incidents.choices import (
    ChannelKind,
    IncidentCause,
    IncidentEventKind,
    IncidentSeverity,
    IncidentState,
    NoticeEvent,
)
from apps.ledger.recorder import Tracked, add_related
from apps.queries.choices import ObjectiveState
from apps.queries.models import Query
from apps.reports.models import Webhook
from engine.measurement.causes import LatenessCause

__all__ = [
    "ADDRESS_PURPOSE",
    "KEEP_DAYS",
    "TOKEN_PURPOSE",
    "Incident",
    "IncidentChannel",
    "IncidentDelivery",
    "IncidentEvent",
    "IncidentNotice",
    "IncidentQuery",
    "IncidentRouting",
    "IncidentSilence",
]

KEEP_DAYS = 90
ADDRESS_PURPOSE, TOKEN_PURPOSE = "incidents.channel.address", "incidents.channel.token"


class IncidentRouting(Tracked):
    """Where a cluster's incidents are reported to, from which severity on, and how long they are kept."""

    ledger_kind, ledger_name = "routing", "cluster__slug"

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, related_name="incident_routing")
    emails = models.JSONField(default=list, blank=True, help_text="Addresses that are mailed.")
    webhooks = models.ManyToManyField(
        Webhook,
        blank=True,
        related_name="incident_routings",
        help_text="Webhooks of the cluster that get a signed POST.",
    )
    severity = models.CharField(
        max_length=8,
        choices=IncidentSeverity.choices,
        default=IncidentSeverity.CRITICAL,
        help_text="The least that is reported: critical leaves out what is only at risk.",
    )
    keep_days = models.PositiveIntegerField(
        default=KEEP_DAYS,
        validators=[MinValueValidator(1), MaxValueValidator(3650)],
        help_text="How long resolved incidents are kept.",
    )
    updated_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"routing of {self.cluster_id}"

    @classmethod
    def ledger_more(cls, images: Mapping[Any, dict[str, Any]]) -> None:
        """Add its webhooks, by key."""
        add_related(images, cls.webhooks.through, "incidentrouting", "webhook")


class IncidentChannel(Tracked):
    """A service that is told of a cluster's incidents. Address and token are encrypted, and never shown."""

    ledger_kind, ledger_kept = "channel", False
    ledger_ignored = frozenset({"error", "tried_at"})
    ledger_secret = frozenset({"sealed_address", "sealed_token"})

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="incident_channels")
    name = models.CharField(max_length=MAX_NAME)
    kind = models.CharField(max_length=12, choices=ChannelKind.choices)
    sealed_address = SealedField(
        purpose=ADDRESS_PURPOSE, blank=True, help_text="Encrypted: addresses of chats hold a secret."
    )
    sealed_token = SealedField(purpose=TOKEN_PURPOSE, blank=True, help_text="Key or bearer token, encrypted.")
    shown_address = models.CharField(max_length=MAX_URL, blank=True, help_text="The part that holds no secret.")
    severity = models.CharField(
        max_length=8,
        choices=IncidentSeverity.choices,
        default=IncidentSeverity.CRITICAL,
        help_text="The least that is reported.",
    )
    group_s = models.PositiveIntegerField(
        default=0,
        validators=[MaxValueValidator(3600)],
        help_text="Seconds in which incidents are gathered into one message; 0: each at once.",
    )
    enabled = models.BooleanField(default=True, help_text="Off: it is told nothing.")
    error = models.CharField(max_length=MAX_REASON, blank=True, help_text="Why the last message did not arrive.")
    tried_at = models.DateTimeField(null=True, blank=True, help_text="When the last message was sent or failed.")
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="channel_name_once_per_cluster")]

    def __str__(self) -> str:
        return self.name


class IncidentSilence(Tracked):
    """A time in which incidents of a cluster are told to nobody: of one cause, of one subject, or all."""

    ledger_kind, ledger_name = "silence", "reason"

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="incident_silences")
    cause_kind = models.CharField(
        max_length=16, choices=IncidentCause.choices, blank=True, help_text="Of this cause alone; empty: of any."
    )
    subject = models.CharField(
        max_length=MAX_QUERY_PATH, blank=True, help_text="Of this agent, source, node, engine or query; empty: any."
    )
    starts_at = models.DateTimeField(default=timezone.now)
    ends_at = models.DateTimeField()
    reason = models.CharField(max_length=MAX_REASON, help_text="Why, for those who wonder.")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-ends_at", "-pk"]

    def __str__(self) -> str:
        return f"silence of {self.subject or self.get_cause_kind_display() or 'all'}"


class Incident(models.Model):
    """Queries that are late by one cause, from the first to be late until the last is well again; or an engine away."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="incidents")
    cause_kind = models.CharField(max_length=16, choices=IncidentCause.choices)
    cause_subject = models.CharField(
        max_length=MAX_QUERY_PATH,
        blank=True,
        help_text="The agent, source, node or connection; where nothing explains it, the query.",
    )
    cause = models.JSONField(default=dict, help_text="The cause with its newest figures.")
    severity = models.CharField(max_length=8, choices=IncidentSeverity.choices)
    state = models.CharField(max_length=8, choices=IncidentState.choices, default=IncidentState.OPEN)
    opened_at = models.DateTimeField(help_text="When it was seen first.")
    last_late_at = models.DateTimeField(help_text="When a query of it was late last.")
    resolved_at = models.DateTimeField(null=True, blank=True)
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    acknowledged_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    note = models.CharField(max_length=MAX_NOTE, blank=True, help_text="Note of the person who acknowledged it.")
    done_at = models.DateTimeField(
        null=True, blank=True, help_text="When a person said last that what was mended on paper is done."
    )
    measured = models.BooleanField(
        default=False, help_text="Whether it was measured, since it opened last; else estimates alone expect it."
    )
    notified = models.CharField(
        max_length=8, blank=True, choices=IncidentSeverity.choices, help_text="Severity that its readers were told."
    )
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-opened_at", "-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "cause_kind", "cause_subject"],
                condition=models.Q(state=IncidentState.OPEN),
                name="one_open_incident_per_cause",
            )
        ]
        indexes = [models.Index(fields=["cluster", "state", "-opened_at"], name="incident_by_state")]

    def __str__(self) -> str:
        return f"{self.get_cause_kind_display()} {self.cause_subject}".strip()

    @property
    def lateness(self) -> LatenessCause:
        """The stored cause."""
        return LatenessCause.parse(self.cause)

    @property
    def is_open(self) -> bool:
        return self.state == IncidentState.OPEN

    @property
    def query_count(self) -> int:
        """Queries that took part."""
        return len(self.members.all())

    @property
    def late_count(self) -> int:
        """Queries that are late still."""
        return sum(member.ended_at is None for member in self.members.all())


class IncidentQuery(models.Model):
    """A query's part in an incident."""

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="members")
    query = models.ForeignKey(Query, on_delete=models.CASCADE, related_name="incident_parts")
    first_at = models.DateTimeField()
    last_late_at = models.DateTimeField(help_text="When it was late last.")
    ended_at = models.DateTimeField(null=True, blank=True, help_text="When it was well again for long enough.")
    state = models.CharField(max_length=10, choices=ObjectiveState.choices, help_text="The worst while it took part.")
    measured = models.BooleanField(default=False, help_text="Whether a measurement said that it was late.")
    bound_s = models.FloatField(null=True)
    worst_s = models.FloatField(null=True, help_text="The largest latency that it was held against.")
    evidence = models.CharField(max_length=MAX_REASON, blank=True, help_text="What its state rests on, in words.")
    unconfirmed_at = models.DateTimeField(
        null=True, blank=True, help_text="When it was well again on paper alone: nothing was measured since."
    )
    other_cause = models.JSONField(default=dict, blank=True, help_text="Another cause that is named of it lately.")
    other_since = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["first_at", "pk"]
        constraints = [models.UniqueConstraint(fields=["incident", "query"], name="query_once_per_incident")]

    def __str__(self) -> str:
        return f"{self.query} in {self.incident_id}"


class IncidentEvent(models.Model):
    """An entry of an incident's timeline."""

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="events")
    at = models.DateTimeField(default=timezone.now)
    kind = models.CharField(max_length=12, choices=IncidentEventKind.choices)
    query_name = models.CharField(max_length=MAX_QUERY_PATH, blank=True)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    text = models.CharField(max_length=MAX_REASON, blank=True, help_text="Evidence, cause or note, in words.")

    class Meta:
        ordering = ["at", "pk"]

    def __str__(self) -> str:
        return f"{self.incident_id} {self.kind}"


class IncidentNotice(models.Model):
    """Message of an incident at one moment, with what was so then."""

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="notices")
    event = models.CharField(max_length=9, choices=NoticeEvent.choices)
    facts = models.JSONField(default=dict, help_text="The incident as it was.")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["created_at", "pk"]

    def __str__(self) -> str:
        return f"{self.incident_id} {self.event}"


class IncidentDelivery(DeliveryRow):
    """A notice on its way to one reader."""

    notice = models.ForeignKey(IncidentNotice, on_delete=models.CASCADE, related_name="deliveries")
    webhook: Any = models.ForeignKey(
        Webhook, null=True, blank=True, on_delete=models.SET_NULL, related_name="incident_deliveries"
    )
    destination: Any = models.ForeignKey(
        IncidentChannel, null=True, blank=True, on_delete=models.SET_NULL, related_name="deliveries"
    )
    grouped = models.ManyToManyField(
        IncidentNotice, blank=True, related_name="group_deliveries", help_text="Notices told in the same message."
    )

    class Meta:
        ordering = ["channel", "target"]
        verbose_name_plural = "incident deliveries"
        constraints = [
            models.UniqueConstraint(fields=["notice", "channel", "target"], name="one_incident_notice_per_target")
        ]

    def __str__(self) -> str:
        return f"{self.notice} to {self.shown_target}"
