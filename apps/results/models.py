"""Results of live queries, window by window, and alerts on them."""

from __future__ import annotations

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils import timezone

from apps.core.deliveries import DeliveryRow
from apps.core.limits import DIGEST_LENGTH, MAX_ELEMENT_NAME, MAX_MESSAGE, MAX_NAME, MAX_NOTE, MAX_REASON
from apps.ledger.recorder import Tracked
from apps.queries.models import Query

__all__ = [
    "MAX_WINDOWS_IN_A_ROW",
    "Alert",
    "AlertDelivery",
    "AlertEvent",
    "AlertNotice",
    "AlertRule",
    "AlertState",
    "Comparison",
    "ResolvedBy",
    "ResultWindow",
    "Severity",
]


class Comparison(models.TextChoices):
    """Comparison of a value with the threshold."""

    ABOVE = "gt", "above"
    AT_LEAST = "ge", "at least"
    BELOW = "lt", "below"
    AT_MOST = "le", "at most"


class Severity(models.TextChoices):
    """Severity of an alert; the overview lists the worst first."""

    CRITICAL = "critical", "Critical"  #: somebody has to act now
    WARNING = "warning", "Warning"  #: somebody should look at it
    NOTICE = "notice", "Notice"  #: worth knowing


class AlertState(models.TextChoices):
    """State of an alert."""

    FIRING = "firing", "Firing"  #: the newest windows break the rule
    RESOLVED = "resolved", "Resolved"  #: they do no more


class AlertEvent(models.TextChoices):
    """Message of a rule to its recipients."""

    FIRING = "firing", "Firing"
    RESOLVED = "resolved", "Resolved"


class ResolvedBy(models.TextChoices):
    """Why an alert has ended."""

    VALUE = "value", "the value is back"
    GONE = "gone", "the group has no rows any more"
    CHANGED = "changed", "the rule was changed or switched off"
    STOPPED = "stopped", "the query was stopped"


MAX_WINDOWS_IN_A_ROW = 100


class ResultWindow(models.Model):
    """The rows of one closed window. A higher revision, made of records that came late, replaces a lower one."""

    query = models.ForeignKey(Query, on_delete=models.CASCADE, related_name="result_windows")
    version_number = models.PositiveIntegerField(null=True, help_text="Version that ran; null: no longer known.")
    plan = models.CharField(max_length=DIGEST_LENGTH, help_text="Digest of the pipeline it was computed with.")
    window_us = models.BigIntegerField(help_text="Beginning of the window, microseconds since 1970.")
    width_us = models.BigIntegerField()
    revision = models.PositiveIntegerField(default=0)
    complete = models.BooleanField(help_text="Whether every agent that was expected has reported.")
    missing = models.JSONField(default=list, help_text="Agents it did not wait for.")
    recovered = models.JSONField(default=dict, help_text="{agent: records recovered from its checkpoint}.")
    late = models.BigIntegerField(default=0, help_text="Records that came too late for any revision.")
    early = models.BigIntegerField(default=0, help_text="Records of times too far ahead, left out.")
    records = models.BigIntegerField(default=0, help_text="Records counted in it.")
    row_count = models.PositiveIntegerField()
    body = models.BinaryField(help_text="An Arrow IPC stream, compressed with zstd.")
    batch = models.BigIntegerField(default=0, help_text="Micro-batch that made it.")
    closing_epoch_at = models.DateTimeField(null=True, help_text="Epoch of the agents whose watermark closed it.")
    emitted_at = models.DateTimeField()
    latency_s = models.FloatField(null=True, help_text="From the closing epoch to the result.")
    received_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-window_us", "-pk"]
        constraints = [models.UniqueConstraint(fields=["query", "plan", "window_us"], name="result_window_once")]
        indexes = [models.Index(fields=["query", "-window_us"], name="result_by_window")]

    def __str__(self) -> str:
        return f"{self.query} {self.window_us}"


class AlertRule(Tracked):
    """A threshold on a column of a query's results, for each group, for some windows in a row."""

    ledger_kind, ledger_cluster = "alert-rule", "query__cluster"
    ledger_ignored = frozenset({"fault", "unlisted", "evaluated_at"})  # of its evaluation
    ledger_guarded = frozenset({"webhooks"})

    query = models.ForeignKey(Query, on_delete=models.CASCADE, related_name="alert_rules")
    name = models.CharField(max_length=MAX_NAME)
    column = models.CharField(max_length=MAX_ELEMENT_NAME, help_text="A number in the results.")
    comparison = models.CharField(max_length=2, choices=Comparison.choices, default=Comparison.ABOVE)
    threshold = models.FloatField()
    for_windows = models.PositiveSmallIntegerField(
        default=1,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_WINDOWS_IN_A_ROW)],
        help_text="Windows in a row that must break it.",
    )
    where = models.CharField(
        max_length=MAX_MESSAGE, blank=True, help_text="Condition on the columns that name a group."
    )
    severity = models.CharField(max_length=8, choices=Severity.choices, default=Severity.WARNING)
    enabled = models.BooleanField(default=True)
    emails = models.JSONField(default=list, blank=True, help_text="Addresses that are mailed when alerts open and end.")
    webhooks = models.JSONField(default=list, blank=True, help_text="Addresses that then get a signed POST.")
    fault = models.CharField(
        max_length=MAX_REASON, blank=True, help_text="Why it could not be evaluated the last time."
    )
    unlisted = models.PositiveIntegerField(default=0, help_text="Groups that break it beyond those with an alert.")
    evaluated_at = models.DateTimeField(null=True, blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["query", "name"], name="alert_rule_name_once_per_query")]

    def __str__(self) -> str:
        return self.name

    @property
    def condition(self) -> str:
        """`median_rtt above 20`."""
        return f"{self.column} {self.get_comparison_display()} {self.threshold:g}"


class AlertNotice(models.Model):
    """Message of a rule at one moment: these alerts have opened, or ended."""

    rule = models.ForeignKey(AlertRule, on_delete=models.CASCADE, related_name="notices")
    event = models.CharField(max_length=8, choices=AlertEvent.choices)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    def __str__(self) -> str:
        return f"{self.rule} {self.event}"

    @property
    def alerts(self) -> models.QuerySet[Alert]:
        """Whom it is about, the first to open first."""
        rows = self.fired_alerts if self.event == AlertEvent.FIRING else self.resolved_alerts
        return rows.order_by("pk")


class AlertDelivery(DeliveryRow):
    """A notice on its way to one recipient."""

    notice = models.ForeignKey(AlertNotice, on_delete=models.CASCADE, related_name="deliveries")

    class Meta:
        ordering = ["channel", "target"]
        verbose_name_plural = "alert deliveries"
        constraints = [models.UniqueConstraint(fields=["notice", "channel", "target"], name="one_notice_per_target")]

    def __str__(self) -> str:
        return f"{self.notice} to {self.shown_target}"


class Alert(models.Model):
    """One group that broke a rule, from the window that opened it to the one that resolved it."""

    rule = models.ForeignKey(AlertRule, on_delete=models.CASCADE, related_name="alerts")
    group = models.JSONField(default=dict, help_text="{column: value} of the columns that name the group.")
    group_key = models.CharField(max_length=DIGEST_LENGTH, help_text="Digest of the group.")
    state = models.CharField(max_length=8, choices=AlertState.choices, default=AlertState.FIRING)
    opened_at = models.DateTimeField(default=timezone.now)
    opened_window_us = models.BigIntegerField()
    opened_value = models.FloatField()
    last_value = models.FloatField()
    worst_value = models.FloatField()
    last_window_us = models.BigIntegerField()
    resolved_at = models.DateTimeField(null=True, blank=True)
    resolved_by = models.CharField(max_length=8, choices=ResolvedBy.choices, blank=True)
    resolved_value = models.FloatField(null=True, blank=True)
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    acknowledged_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    note = models.CharField(max_length=MAX_NOTE, blank=True, help_text="Note of the person who acknowledged it.")
    fired_notice = models.ForeignKey(
        AlertNotice, null=True, blank=True, on_delete=models.SET_NULL, related_name="fired_alerts"
    )
    resolved_notice = models.ForeignKey(
        AlertNotice, null=True, blank=True, on_delete=models.SET_NULL, related_name="resolved_alerts"
    )

    class Meta:
        ordering = ["-opened_at", "-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["rule", "group_key"],
                condition=models.Q(state=AlertState.FIRING),
                name="one_firing_alert_per_group",
            )
        ]
        indexes = [models.Index(fields=["state", "-opened_at"], name="alert_by_state")]

    def __str__(self) -> str:
        return f"{self.rule}: {self.group_text or 'all rows'}"

    @property
    def deliveries(self) -> list[AlertDelivery]:
        """Deliveries of the opening, then of the end, and their outcome."""
        notices = (self.fired_notice, self.resolved_notice)
        return [delivery for notice in notices if notice is not None for delivery in notice.deliveries.all()]

    @property
    def group_text(self) -> str:
        """`src = r1a, dst = r2b`."""
        return ", ".join(f"{name} = {'null' if value is None else value}" for name, value in self.group.items())
