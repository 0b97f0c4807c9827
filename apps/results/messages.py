"""What those hear whom a rule tells: a mail, and the signed message to a webhook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.template.loader import render_to_string

from apps.core.mailing import mail
from apps.core.sending import post_signed
from apps.results.choices import AlertEvent
from apps.results.models import Alert, AlertDelivery, AlertNotice
from apps.results.notifying import rule_secret

__all__ = ["send_email", "send_webhook"]

_MOST_LISTED = 20


def send_email(delivery: AlertDelivery) -> None:
    """The same delivery always has the same Message-ID: a repeat is known as one. Raises as `mail`."""
    mail(lambda connection: _mail(delivery, connection))


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
        "alerts": alerts[:_MOST_LISTED],
        "more": len(alerts[_MOST_LISTED:]),
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
    groups = (alerts[0].group_text or "all rows") if len(alerts) == 1 else f"{len(alerts)} groups"
    does = "fires" if notice.event == AlertEvent.FIRING else "is over"
    severity, query = rule.get_severity_display(), f"{rule.query.cluster.slug}/{rule.query.name}"
    return " ".join(f"{severity}: {rule.name} {does} for {groups} ({query})".split())


def _page(notice: AlertNotice) -> str:
    query = notice.rule.query
    return f"{settings.PUBLIC_URL}/c/{query.cluster.slug}/queries/{query.name}/live/"


def _message(delivery: AlertDelivery) -> dict[str, Any]:
    notice, rule = delivery.notice, delivery.notice.rule
    names = ("name", "severity", "column", "comparison", "threshold", "for_windows", "where")
    return {
        "event": f"alert.{notice.event}",
        "delivery": delivery.pk,
        "at": notice.created_at.isoformat(),
        "cluster": rule.query.cluster.slug,
        "query": rule.query.name,
        "rule": {"id": rule.pk, **{name: getattr(rule, name) for name in names}},
        "alerts": [_alert(one) for one in notice.alerts],
        "links": {"page": _page(notice)},
    }


def _alert(alert: Alert) -> dict[str, Any]:
    names = ("group", "opened_window_us", "opened_value", "last_value", "worst_value", "resolved_by", "resolved_value")
    return {
        "id": alert.pk,
        **{name: getattr(alert, name) for name in names},
        "opened_at": alert.opened_at.isoformat(),
        "resolved_at": alert.resolved_at.isoformat() if alert.resolved_at else None,
    }
