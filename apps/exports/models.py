"""Notices of applied decisions and their way to webhooks."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils import timezone

from apps.admission.models import AdmissionRequest
from apps.core.deliveries import DeliveryRow
from apps.core.models import PackedJSONField
from apps.reports.models import Webhook

__all__ = ["DecisionDelivery", "DecisionNotice"]


class DecisionNotice(models.Model):
    """Message of a decision when it was applied, with its export as it was then."""

    request = models.ForeignKey(AdmissionRequest, on_delete=models.CASCADE, related_name="notices")
    facts = PackedJSONField(help_text="{admission, export}.")
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        ordering = ["created_at", "pk"]

    def __str__(self) -> str:
        return f"decision on {self.request.version}"


class DecisionDelivery(DeliveryRow):
    """A notice on its way to a webhook."""

    notice = models.ForeignKey(DecisionNotice, on_delete=models.CASCADE, related_name="deliveries")
    webhook: Any = models.ForeignKey(
        Webhook, null=True, blank=True, on_delete=models.SET_NULL, related_name="decision_deliveries"
    )

    class Meta:
        ordering = ["target"]
        verbose_name_plural = "decision deliveries"
        constraints = [models.UniqueConstraint(fields=["notice", "target"], name="one_decision_notice_per_target")]

    def __str__(self) -> str:
        return f"{self.notice} to {self.shown_target}"
