"""Reports: what is written, when, what came of it, and its way to readers."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone

from apps.core.deliveries import DeliveryRow
from apps.core.limits import DIGEST_LENGTH, MAX_MESSAGE, MAX_NAME, MAX_TIME_ZONE, MAX_URL
from apps.fleet.models import Cluster
from apps.jobs.models import Run
from apps.ledger.recorder import Tracked, add_related
from apps.reports.choices import ReportKind, ReportState, Trigger

__all__ = ["Delivery", "Report", "ReportDefinition", "ReportSchedule", "Webhook"]


class Webhook(Tracked):
    """An address that is told of finished reports, and of decisions.

    Its secret is derived from the salt and a root of the installation.
    """

    ledger_kind = "webhook"
    ledger_secret = frozenset({"salt"})  # its secret is derived from it
    ledger_guarded = frozenset({"url"})

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="webhooks")
    name = models.CharField(max_length=MAX_NAME)
    url = models.CharField(max_length=MAX_URL, help_text="http or https.")
    sends_decisions = models.BooleanField(
        default=False, help_text="Told of each decision that is applied to an imported query, with its export."
    )
    salt = models.CharField(max_length=DIGEST_LENGTH, help_text="Renewed when the secret is.")
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="webhook_name_once_per_cluster")]

    def __str__(self) -> str:
        return self.name


class ReportDefinition(Tracked):
    """A report as somebody wants it: defined once, written as often as its schedule or a person says."""

    ledger_kind = "report"

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="report_definitions")
    kind = models.CharField(max_length=14, choices=ReportKind.choices)
    name = models.CharField(max_length=MAX_NAME)
    parameters = models.JSONField(
        default=dict, blank=True, help_text="Provisioning: sections, horizon_days, growth. Latency: query or team."
    )
    formats = models.JSONField(default=list, blank=True, help_text="What is attached to mails: html, pdf, csv, json.")
    emails = models.JSONField(default=list, blank=True, help_text="Addresses it is mailed to.")
    webhooks = models.ManyToManyField(Webhook, blank=True, related_name="definitions")
    enabled = models.BooleanField(default=True, help_text="Off: its schedule is paused.")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="report_name_once_per_cluster")]

    def __str__(self) -> str:
        return self.name

    @classmethod
    def ledger_more(cls, images: Mapping[Any, dict[str, Any]]) -> None:
        """Add its webhooks, by key."""
        add_related(images, cls.webhooks.through, "reportdefinition", "webhook")


class ReportSchedule(Tracked):
    """Schedule of a report."""

    ledger_kind, ledger_name, ledger_cluster = "report-schedule", "definition__name", "definition__cluster"
    ledger_ignored = frozenset({"next_at", "last_due_at"})  # its course

    definition = models.OneToOneField(ReportDefinition, on_delete=models.CASCADE, related_name="schedule")
    rule = models.JSONField(help_text="As apps.reports.calendar reads it.")
    time_zone = models.CharField(max_length=MAX_TIME_ZONE, default="UTC")
    starts_on = models.DateField(help_text="The day a rule that counts begins at.")
    next_at = models.DateTimeField(null=True, blank=True, db_index=True, help_text="Null: the rule has ended.")
    last_due_at = models.DateTimeField(null=True, blank=True, help_text="The last due time that led to a report.")
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["next_at", "pk"]

    def __str__(self) -> str:
        return f"schedule of {self.definition}"


class Report(Run):
    """One report: facts computed once, which are its result, and their renderings."""

    definition = models.ForeignKey(ReportDefinition, on_delete=models.CASCADE, related_name="reports")
    trigger = models.CharField(max_length=10, choices=Trigger.choices)
    state = models.CharField(max_length=12, choices=ReportState.choices, default=ReportState.WRITING, db_index=True)
    due_at = models.DateTimeField(null=True, blank=True, help_text="Null for one written by hand.")
    covers_from = models.DateTimeField(null=True, blank=True, help_text="When the report before it was written.")
    covers_until = models.DateTimeField(help_text="The moment it describes.")
    missed = models.PositiveIntegerField(default=0, help_text="Due times that it makes up for.")
    finding = models.CharField(max_length=MAX_MESSAGE, blank=True, help_text="Its first sentence.")
    snapshot_parts = models.JSONField(default=dict, help_text="{part: digest}, for the next one to tell what changed.")
    html = models.BinaryField(null=True, help_text="Compressed with zstd.")
    pdf = models.BinaryField(null=True)
    csv = models.BinaryField(null=True, help_text="A zip file of one table each.")
    error = models.JSONField(null=True, blank=True, help_text="{code, message, faults} when failed.")
    written_at = models.DateTimeField(null=True, blank=True)

    class Meta(Run.Meta):
        constraints = [models.UniqueConstraint(fields=["definition", "due_at"], name="one_report_per_due_time")]

    def __str__(self) -> str:
        return f"{self.definition} of {self.covers_until:%Y-%m-%d %H:%M}"


class Delivery(DeliveryRow):
    """A finished report on its way to one reader."""

    report = models.ForeignKey(Report, on_delete=models.CASCADE, related_name="deliveries")
    webhook = models.ForeignKey(Webhook, null=True, blank=True, on_delete=models.SET_NULL, related_name="deliveries")

    class Meta:
        ordering = ["channel", "target"]
        verbose_name_plural = "deliveries"
        constraints = [models.UniqueConstraint(fields=["report", "channel", "target"], name="one_delivery_per_target")]

    def __str__(self) -> str:
        return f"{self.report_id} to {self.target}"
