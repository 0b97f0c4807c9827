"""The secret that messages to a webhook are signed with."""

from __future__ import annotations

from django.utils.crypto import salted_hmac

from apps.reports.models import Webhook

__all__ = ["webhook_secret"]

_KEY = "sluice.reports.webhook"


def webhook_secret(webhook: Webhook) -> str:
    """Derived from the installation's key and the webhook's salt, so that the database holds no secret."""
    return salted_hmac(_KEY, f"{webhook.pk}:{webhook.salt}", algorithm="sha256").hexdigest()
