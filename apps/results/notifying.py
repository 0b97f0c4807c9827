"""Telling people and programs that alerts fire, and that they do no more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.utils import timezone
from django.utils.crypto import salted_hmac

from apps.core.delivering import Channel, send_soon
from apps.core.errors import Fault
from apps.core.mailing import email_faults
from apps.core.sending import address_faults
from apps.results.choices import AlertEvent
from apps.results.models import Alert, AlertDelivery, AlertNotice, AlertRule

__all__ = ["alerts_tell", "recipient_faults", "rule_secret"]

_MOST_WEBHOOKS = 10
_MOST_CHARACTERS = 500
_FIELDS = {AlertEvent.FIRING: "fired_notice", AlertEvent.RESOLVED: "resolved_notice"}


def alerts_tell(rule: AlertRule, event: AlertEvent, alerts: Sequence[Alert]) -> None:
    """Address to a rule's recipients what has just happened to alerts of it: one message for all of them.

    Called inside the transaction in which it happens, so a transition that is stored once is told once.
    """
    readers = [(Channel.EMAIL, one) for one in rule.emails] + [(Channel.WEBHOOK, one) for one in rule.webhooks]
    if not alerts or not readers:
        return
    notice = AlertNotice.objects.create(rule=rule, event=event)
    Alert.objects.filter(pk__in=[alert.pk for alert in alerts]).update(**{_FIELDS[event]: notice})
    now = timezone.now()
    AlertDelivery.objects.bulk_create(
        AlertDelivery(notice=notice, channel=channel, target=target, next_try_at=now) for channel, target in readers
    )
    send_soon()


def rule_secret(rule: AlertRule) -> str:
    """What messages of a rule to webhooks are signed with: derived, so that the database holds no secret."""
    return salted_hmac("sluice.results.alert-rule", str(rule.pk), algorithm="sha256").hexdigest()


def recipient_faults(emails: Any, webhooks: Any) -> list[Fault]:
    """What is wrong with whom a rule tells."""
    faults = email_faults(emails)
    if not isinstance(webhooks, list) or len(webhooks) > _MOST_WEBHOOKS:
        return [*faults, Fault("webhooks", f"allowed is a list of at most {_MOST_WEBHOOKS} addresses")]
    for index, one in enumerate(webhooks):
        faults += address_faults(one, f"webhooks[{index}]") or _length_faults(one, f"webhooks[{index}]")
    if len({str(one) for one in webhooks}) < len(webhooks):
        faults.append(Fault("webhooks", "an address is there twice"))
    return faults


def _length_faults(url: str, path: str) -> Iterable[Fault]:
    if len(url) > _MOST_CHARACTERS:
        yield Fault(path, f"it has {len(url)} characters; allowed: {_MOST_CHARACTERS}")
