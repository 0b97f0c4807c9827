"""Notices of incidents: recipients, mails and signed webhooks, delivery."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.template.loader import render_to_string

from apps.core.deliveries import Channel, Courier, send_soon
from apps.core.errors import SluiceError
from apps.core.events import announce
from apps.core.messages import Gone, post_signed, send_mail
from apps.estimates.words import cause_sentence, cause_title
from apps.incidents.choices import IncidentCause, IncidentSeverity, NoticeEvent
from apps.incidents.models import Incident, IncidentDelivery, IncidentNotice, IncidentRouting
from apps.planning.remedies import remedies_by_query, remedies_request
from apps.reports.deliveries import webhook_secret
from apps.ui.numbers import seconds

__all__ = ["incident_deliveries_send_due", "incident_notify", "incident_title"]

_MAX_QUERIES = 20
_SUBJECT_LENGTH = 180
_REMEDIES_S = 20.0  # that a mail waits for what helps, which takes seconds to find; webhooks wait for nothing
_MAX_SEARCHED = 3  # queries of an incident of which remedies are looked for
_MAX_REMEDIES = 3  # that a mail names of each


def incident_title(incident: Incident) -> str:
    """The cause in a few words; of what is not explained the query."""
    if incident.cause_kind == IncidentCause.UNEXPLAINED:
        return f"{incident.cause_subject} is late, not explained"
    return cause_title(replace(incident.lateness, kind=incident.cause_kind, subject=incident.cause_subject))


def incident_notify(incident: Incident, event: NoticeEvent, *, now: datetime) -> bool:
    """Address to a cluster's recipients what has become of an incident; False where nobody is told.

    Called inside the transaction in which it happens, so a change that is stored once is told once.
    """
    routing = IncidentRouting.objects.filter(cluster=incident.cluster).prefetch_related("webhooks").first()
    if routing is None or (
        event != NoticeEvent.RESOLVED and routing.severity == IncidentSeverity.CRITICAL != incident.severity
    ):
        return False
    webhooks = list(routing.webhooks.all())
    if not routing.emails and not webhooks:
        return False
    notice = IncidentNotice.objects.create(incident=incident, event=event, facts=_facts(incident), created_at=now)
    fields: dict[str, object] = {"notice": notice, "next_try_at": now}
    waits = event != NoticeEvent.RESOLVED and bool(routing.emails) and _look_for_remedies(incident)
    mailed: dict[str, object] = {**fields, "next_try_at": now + timedelta(seconds=_REMEDIES_S if waits else 0.0)}
    IncidentDelivery.objects.bulk_create(
        [
            *(IncidentDelivery(channel=Channel.EMAIL, target=email, **mailed) for email in routing.emails),
            *(
                IncidentDelivery(channel=Channel.WEBHOOK, target=url, webhook=webhook, **fields)
                for url, webhook in {webhook.url: webhook for webhook in webhooks}.items()
            ),
        ]
    )
    send_soon()
    return True


def _look_for_remedies(incident: Incident) -> bool:
    """Begin to look for remedies of the first queries that are late by their estimates; whether any is looked for.

    What is late by measurement alone is late for reasons that no estimate has.
    """
    members = incident.members.filter(ended_at=None, measured=False).select_related("query__cluster")
    begun = False
    for member in members.order_by("first_at", "pk")[:_MAX_SEARCHED]:
        with suppress(SluiceError):  # a query that has stopped meanwhile, or no broker: the mail says what it can
            remedies_request(query=member.query)
            begun = True
    return begun


def _facts(incident: Incident) -> dict[str, object]:
    """The incident as it is now: a delivery that is tried again says what was so then."""
    members = list(incident.members.select_related("query").order_by("first_at", "pk"))
    return {
        "id": incident.pk,
        "title": incident_title(incident),
        "cause": {**incident.cause, "words": cause_sentence(incident.lateness)},
        "severity": str(incident.severity),
        "state": str(incident.state),
        "opened_at": incident.opened_at.isoformat(),
        "resolved_at": incident.resolved_at.isoformat() if incident.resolved_at else None,
        "acknowledged": incident.acknowledged_at is not None,
        "query_count": len(members),
        "queries": [
            {
                "query": member.query.name,
                "state": member.state,
                "since": member.first_at.isoformat(),
                "is_late": member.ended_at is None,
                "bound_s": member.bound_s,
                "worst_s": member.worst_s,
                "evidence": member.evidence,
            }
            for member in members[:_MAX_QUERIES]
        ],
    }


def send_email(delivery: IncidentDelivery) -> None:
    """The same delivery always has the same Message-ID: a repeat is recognised. Raises as `send_mail`."""
    send_mail(lambda connection: _mail(delivery, connection))


def send_webhook(delivery: IncidentDelivery) -> None:
    """Raises as `post_signed`, and `Gone` where the webhook was deleted."""
    if delivery.webhook is None:
        raise Gone("The webhook was deleted.")
    secret = webhook_secret(delivery.webhook)
    post_signed(delivery.target, _message(delivery), number=f"incident-{delivery.pk}", secret=secret)


def _mail(delivery: IncidentDelivery, connection: Any) -> EmailMultiAlternatives:
    notice = delivery.notice
    context = {
        "facts": notice.facts,
        "event": notice.event,
        "cluster": notice.incident.cluster,
        "more": max(0, notice.facts["query_count"] - _MAX_QUERIES),
        "link": _page(notice) if settings.PUBLIC_URL else "",
        "helps": [] if notice.event == NoticeEvent.RESOLVED else _helps(notice),
    }
    return EmailMultiAlternatives(
        subject=_subject(notice)[:_SUBJECT_LENGTH],
        body=render_to_string("incidents/mail.txt", context),
        from_email=settings.DEFAULT_FROM_EMAIL,
        to=[delivery.target],
        connection=connection,
        headers={"Message-ID": f"<incident.{notice.pk}.{delivery.pk}@sluice>", "Auto-Submitted": "auto-generated"},
    )


def _helps(notice: IncidentNotice) -> list[dict[str, object]]:
    """The three best remedies of each query that is late still, as far as they are known by now, with links."""
    members = notice.incident.members.filter(ended_at=None).select_related("query__cluster").order_by("first_at", "pk")
    queries = [member.query for member in members[:_MAX_QUERIES]]
    known = {pk: answer for pk, answer in remedies_by_query(queries).items() if answer.state not in ("holds", "none")}
    base = f"{settings.PUBLIC_URL}/c/{notice.incident.cluster.slug}/queries"
    return [
        {
            "query": query.name,
            "words": known[query.pk].words,
            "remedies": [
                {"title": str(row.title), "latency": str(seconds(row.estimate_s)), "cost": str(row.cost)}
                for row in known[query.pk].remedies[:_MAX_REMEDIES]
            ],
            "link": f"{base}/{query.name}/remedies/" if settings.PUBLIC_URL else "",
        }
        for query in queries
        if query.pk in known
    ]


def _subject(notice: IncidentNotice) -> str:
    """`Critical: The stream processor is behind (this-host)`, on one line whatever the names hold."""
    facts: Mapping[str, Any] = notice.facts
    word = "Resolved" if notice.event == NoticeEvent.RESOLVED else IncidentSeverity(facts["severity"]).label
    return " ".join(f"{word}: {facts['title']} ({notice.incident.cluster.slug})".split())


def _page(notice: IncidentNotice) -> str:
    return f"{settings.PUBLIC_URL}/c/{notice.incident.cluster.slug}/incidents/{notice.incident_id}/"


def _message(delivery: IncidentDelivery) -> dict[str, object]:
    notice = delivery.notice
    return {
        "event": f"incident.{notice.event}",
        "delivery": delivery.pk,
        "at": notice.created_at.isoformat(),
        "cluster": notice.incident.cluster.slug,
        "incident": notice.facts,
        "links": {"page": _page(notice), "self": f"{settings.PUBLIC_URL}/api/v1/incidents/{notice.incident_id}"},
    }


_courier = Courier(
    rows=lambda: IncidentDelivery.objects.select_related("notice__incident__cluster", "webhook"),
    send={Channel.EMAIL: send_email, Channel.WEBHOOK: send_webhook},
    announce=lambda delivery: announce(f"incidents:{delivery.notice.incident.cluster.slug}"),
)


def incident_deliveries_send_due() -> int:
    """Send every notice whose time has come; returns how many arrived."""
    return _courier.send_due()
