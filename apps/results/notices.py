"""Notices of alerts: recipients, mails and signed webhooks, delivery."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.template.loader import render_to_string

from apps.core.clock import shared_now
from apps.core.deliveries import Channel, Courier, send_soon
from apps.core.errors import Fault
from apps.core.events import announce
from apps.core.keys import derived_secret
from apps.core.limits import MAX_RULE_WEBHOOKS
from apps.core.messages import address_faults, email_faults, post_signed, send_mail
from apps.results.models import Alert, AlertDelivery, AlertEvent, AlertNotice, AlertRule

__all__ = [
    "alert_deliveries_send_due",
    "alerts_notify",
    "recipient_faults",
    "rule_secret",
    "send_email",
    "send_webhook",
]


_MAX_CHARACTERS = 500
_FIELDS = {AlertEvent.FIRING: "fired_notice", AlertEvent.RESOLVED: "resolved_notice"}


def alerts_notify(rule: AlertRule, event: AlertEvent, alerts: Sequence[Alert]) -> None:
    """Address to a rule's recipients what has just happened to alerts of it: one message for all of them.

    Called inside the transaction in which it happens, so a transition that is stored once is notified once.
    """
    readers = [(Channel.EMAIL, email) for email in rule.emails] + [
        (Channel.WEBHOOK, webhook) for webhook in rule.webhooks
    ]
    if not alerts or not readers:
        return
    notice = AlertNotice.objects.create(rule=rule, event=event)
    Alert.objects.filter(pk__in=[alert.pk for alert in alerts]).update(**{_FIELDS[event]: notice})
    now = shared_now()
    AlertDelivery.objects.bulk_create(
        AlertDelivery(notice=notice, channel=channel, target=target, next_try_at=now) for channel, target in readers
    )
    send_soon()


def rule_secret(rule: AlertRule) -> str:
    """Key that signs a rule's messages to webhooks. Raises Conflict as `derived_secret` does."""
    return derived_secret("sluice.results.alert-rule", str(rule.pk))


def recipient_faults(emails: Any, webhooks: Any) -> list[Fault]:
    """Faults in the recipients of a rule."""
    faults = email_faults(emails)
    if not isinstance(webhooks, list) or len(webhooks) > MAX_RULE_WEBHOOKS:
        return [*faults, Fault("webhooks", f"allowed is a list of at most {MAX_RULE_WEBHOOKS} addresses")]
    for index, webhook in enumerate(webhooks):
        faults += address_faults(webhook, f"webhooks[{index}]") or _length_faults(webhook, f"webhooks[{index}]")
    if len({str(webhook) for webhook in webhooks}) < len(webhooks):
        faults.append(Fault("webhooks", "an address is there twice"))
    return faults


def _length_faults(url: str, path: str) -> Iterable[Fault]:
    if len(url) > _MAX_CHARACTERS:
        yield Fault(path, f"it has {len(url)} characters; allowed: {_MAX_CHARACTERS}")


_MAX_LISTED = 20


def send_email(delivery: AlertDelivery) -> None:
    """The same delivery always has the same Message-ID: a repeat is recognised. Raises as `send_mail`."""
    send_mail(lambda connection: _mail(delivery, connection))


def send_webhook(delivery: AlertDelivery) -> None:
    """Raises as `post_signed`."""
    secret = rule_secret(delivery.notice.rule)
    post_signed(delivery.target, _message(delivery), number=f"alert-{delivery.pk}", secret=secret)


def _mail(delivery: AlertDelivery, connection: Any) -> EmailMultiAlternatives:
    notice, rule = delivery.notice, delivery.notice.rule
    alerts = list(notice.alerts)
    context = {
        "rule": rule,
        "is_firing": notice.event == AlertEvent.FIRING,
        "alerts": alerts[:_MAX_LISTED],
        "more": len(alerts[_MAX_LISTED:]),
        "link": _page(notice) if settings.PUBLIC_URL else "",
    }
    return EmailMultiAlternatives(
        subject=_subject(notice, alerts)[:180],
        body=render_to_string("results/alert_mail.txt", context),
        from_email=settings.DEFAULT_FROM_EMAIL,
        to=[delivery.target],
        connection=connection,
        headers={"Message-ID": f"<alert.{notice.pk}.{delivery.pk}@sluice>", "Auto-Submitted": "auto-generated"},
    )


def _subject(notice: AlertNotice, alerts: Sequence[Alert]) -> str:
    """`Critical: Slow links fires for src = a, dst = b (lab/probes)`, on one line whatever the names hold."""
    rule = notice.rule
    groups = f"{len(alerts)} groups"
    if len(alerts) == 1:
        groups = alerts[0].group_text or "all rows"
    severity, query = rule.get_severity_display(), f"{rule.query.cluster.slug}/{rule.query.name}"
    text = f"{severity}: {rule.name} is over for {groups} ({query})"
    if notice.event == AlertEvent.FIRING:
        text = f"{severity}: {rule.name} fires for {groups} ({query})"
    return " ".join(text.split())


def _page(notice: AlertNotice) -> str:
    query = notice.rule.query
    return f"{settings.PUBLIC_URL}/c/{query.cluster.slug}/queries/{query.name}/live/"


def _message(delivery: AlertDelivery) -> dict[str, object]:
    notice, rule = delivery.notice, delivery.notice.rule
    names = ("name", "severity", "column", "comparison", "threshold", "for_windows", "where")
    return {
        "event": f"alert.{notice.event}",
        "delivery": delivery.pk,
        "at": notice.created_at.isoformat(),
        "cluster": rule.query.cluster.slug,
        "query": rule.query.name,
        "rule": {"id": rule.pk, **{name: getattr(rule, name) for name in names}},
        "alerts": [_alert(alert) for alert in notice.alerts],
        "links": {"page": _page(notice)},
    }


def _alert(alert: Alert) -> dict[str, object]:
    names = ("group", "opened_window_us", "opened_value", "last_value", "worst_value", "resolved_by", "resolved_value")
    return {
        "id": alert.pk,
        **{name: getattr(alert, name) for name in names},
        "opened_at": alert.opened_at.isoformat(),
        "resolved_at": alert.resolved_at.isoformat() if alert.resolved_at else None,
    }


_courier = Courier(
    rows=lambda: AlertDelivery.objects.select_related("notice__rule__query__cluster"),
    send={Channel.EMAIL: send_email, Channel.WEBHOOK: send_webhook},
    announce=lambda delivery: announce(f"results:{delivery.notice.rule.query_id}"),
)


def alert_deliveries_send_due() -> int:
    """Send every notice whose time has come; returns how many arrived."""
    return _courier.send_due()
