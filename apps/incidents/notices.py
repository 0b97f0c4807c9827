"""Notices of incidents: recipients, mails, signed webhooks and channels, delivery."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypedDict

from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.db.models import QuerySet
from django.template.loader import render_to_string

from apps.core.clock import shared_now
from apps.core.deliveries import Channel, Courier, DeliveryState, send_soon
from apps.core.errors import SluiceError
from apps.core.events import announce
from apps.core.messages import Gone, Undelivered, post_signed, send_mail
from apps.estimates.words import cause_sentence, cause_title
from apps.incidents.channels import STATEFUL, ChannelMessage, channel_send
from apps.incidents.choices import ChannelKind, IncidentCause, IncidentSeverity, IncidentState, NoticeEvent
from apps.incidents.models import (
    Incident,
    IncidentChannel,
    IncidentDelivery,
    IncidentNotice,
    IncidentQuery,
    IncidentRouting,
)
from apps.incidents.selectors import silence_of
from apps.jobs.models import FINISHED, Job, JobKind
from apps.planning.remedies import remedies_by_query, remedies_request
from apps.reports.deliveries import webhook_secret
from apps.ui.numbers import seconds

__all__ = [
    "alerts_renew",
    "channel_try",
    "incident_deliveries_send_due",
    "incident_notify",
    "incident_title",
    "look_for_remedies",
]

_MAX_QUERIES = 20
_SUBJECT_LENGTH = 180
_REMEDIES_S = 20.0  # that a mail waits for what helps, which takes seconds to find; webhooks wait for nothing
_MAX_SEARCHED = 3  # queries of an incident of which remedies are looked for
_MAX_AT_ONCE = 6  # such searches of a cluster that wait or run
_MAX_REMEDIES = 3  # that a mail names of each


def incident_title(incident: Incident) -> str:
    """The cause in a few words; of what is not explained the query. What estimates alone expect says so."""
    if incident.cause_kind == IncidentCause.UNEXPLAINED:
        verb = "is late" if incident.measured else "is expected to be late"
        return f"{incident.cause_subject} {verb}, not explained"
    title = cause_title(replace(incident.lateness, kind=incident.cause_kind, subject=incident.cause_subject))
    return title if incident.measured else f"Expected: {title}"


class IncidentTelling(NamedTuple):
    """Result of a notice: whether anybody is told, and whether mails wait for what helps (`look_for_remedies`)."""

    is_told: bool
    waits_for_remedies: bool = False


def incident_notify(incident: Incident, event: NoticeEvent, *, now: datetime) -> IncidentTelling:
    """Address to a cluster's recipients what has become of an incident.

    Called inside the transaction in which it happens, so a change that is stored once is told once.
    """
    is_over = event == NoticeEvent.RESOLVED  # told to those who were told that it began, whatever is silent by now
    if not is_over and silence_of(incident, now) is not None:
        return IncidentTelling(is_told=False)
    severity = incident.notified if is_over else incident.severity
    wanted = [choice for choice in IncidentSeverity if choice == severity or choice == IncidentSeverity.WARNING]
    routing = IncidentRouting.objects.filter(cluster=incident.cluster, severity__in=wanted)
    routing = routing.prefetch_related("webhooks").first() or IncidentRouting()
    webhooks = list(routing.webhooks.all()) if routing.pk else []
    channels = list(IncidentChannel.objects.filter(cluster=incident.cluster, enabled=True, severity__in=wanted))
    if not routing.emails and not webhooks and not channels:
        return IncidentTelling(is_told=False)
    notice = IncidentNotice.objects.create(incident=incident, event=event, facts=_facts(incident), created_at=now)
    fields: dict[str, object] = {"notice": notice, "next_try_at": now}
    waits = event != NoticeEvent.RESOLVED and bool(routing.emails) and _may_look_for_remedies(incident)
    mailed: dict[str, object] = {**fields, "next_try_at": now + timedelta(seconds=_REMEDIES_S if waits else 0.0)}
    IncidentDelivery.objects.bulk_create(
        [
            *(IncidentDelivery(channel=Channel.EMAIL, target=email, **mailed) for email in routing.emails),
            *(
                IncidentDelivery(channel=Channel.WEBHOOK, target=url, webhook=webhook, **fields)
                for url, webhook in {webhook.url: webhook for webhook in webhooks}.items()
            ),
            *filter(None, (_of_channel(channel, notice) for channel in channels)),
        ]
    )
    send_soon()
    return IncidentTelling(is_told=True, waits_for_remedies=waits)


def _may_look_for_remedies(incident: Incident) -> bool:
    """Whether queries are late by their estimates, and workers are free to look for what helps them.

    What is late by measurement alone is late for reasons that no estimate has. Where much is late at once a few are
    looked for: workers have the estimates to renew.
    """
    unfinished = Job.objects.filter(kind=JobKind.REMEDIES, cluster=incident.cluster).exclude(state__in=FINISHED)
    return unfinished.count() < _MAX_AT_ONCE and _late_by_estimate(incident).exists()


def _late_by_estimate(incident: Incident) -> QuerySet[IncidentQuery]:
    return incident.members.filter(ended_at=None, measured=False)


def look_for_remedies(incident: Incident) -> None:
    """Begin to look for remedies of the first queries that are late by their estimates. Called after the transaction
    of the notice: each compares the cluster with what is known.
    """
    if not _may_look_for_remedies(incident):
        return
    members = _late_by_estimate(incident).select_related("query__cluster").order_by("first_at", "pk")
    for member in members[:_MAX_SEARCHED]:
        with suppress(SluiceError):  # a query that has stopped meanwhile, or no broker: the mail says what it can
            remedies_request(query=member.query)


def _of_channel(channel: IncidentChannel, notice: IncidentNotice) -> IncidentDelivery | None:
    """Delivery to a channel; None where the notice joins one that is still gathered.

    The row is locked: a worker that takes it in this moment waits for this transaction, and reads what joined.
    """
    if channel.group_s:
        gathered = channel.deliveries.select_for_update().filter(state=DeliveryState.WAITING, attempts=0).first()
        if gathered is not None:
            gathered.grouped.add(notice)
            return None
    due = notice.created_at + timedelta(seconds=channel.group_s)
    return IncidentDelivery(
        notice=notice, channel=Channel.SERVICE, target=channel.name, destination=channel, next_try_at=due
    )


def _facts(incident: Incident) -> dict[str, object]:
    """The incident as it is now: a delivery that is tried again says what was so then."""
    members = list(incident.members.select_related("query").order_by("first_at", "pk"))
    return {
        "id": incident.pk,
        "title": incident_title(incident),
        "cause": {**incident.cause, "words": cause_sentence(incident.lateness)},
        "severity": str(incident.severity),
        "measured": incident.measured,
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


def send_to_channel(delivery: IncidentDelivery) -> None:
    """All that was gathered, in one message. Raises as `channel_send`, and `Gone` where the channel is no more."""
    channel = delivery.destination
    if channel is None or not channel.enabled:
        raise Gone("The channel was deleted." if channel is None else "The channel is switched off.")
    gathered = delivery.grouped.select_related("incident__cluster").order_by("created_at", "pk")
    channel_send(channel, [_channel_message(notice) for notice in (delivery.notice, *gathered)])


class ChannelTrial(TypedDict):
    """Outcome of a test message."""

    arrived: bool
    error: str


def channel_try(channel: IncidentChannel) -> ChannelTrial:
    """Tell a channel of an incident that is none, and, where it keeps states, that it is over."""
    now = shared_now()
    cause = {"kind": "test", "words": "Somebody tries the channel. Nothing is late."}
    facts = {"id": 0, "title": "Test of a channel", "cause": cause, "severity": str(channel.severity), "queries": []}
    facts |= {"state": "open", "opened_at": now.isoformat(), "resolved_at": None, "query_count": 0}
    slug = channel.cluster.slug
    opened = ChannelMessage(
        id=f"test-{channel.pk}-{now.timestamp():.3f}",
        key=f"sluice-{slug}-test-{channel.pk}",
        event=NoticeEvent.OPENED,
        is_resolved=False,
        cluster=slug,
        subject=f"Test: Sluice reaches this channel ({slug})",
        text=str(cause["words"]),
        facts=facts,
        at=now,
        page=f"{settings.PUBLIC_URL}/c/{slug}/incidents/",
    )
    try:
        channel_send(channel, [opened])
        if channel.kind in STATEFUL:
            channel_send(channel, [replace(opened, event=NoticeEvent.RESOLVED, is_resolved=True)])
    except (Undelivered, Gone) as error:
        return {"arrived": False, "error": str(error)}
    return {"arrived": True, "error": ""}


def alerts_renew(now: datetime | None = None) -> int:
    """Send the alerts of open incidents to every Alertmanager again, which forgets those that nobody repeats.

    What it lost in a restart comes back by that. Returns how many channels took them.
    """
    present = now or shared_now()
    renewed = 0
    rows = IncidentChannel.objects.filter(kind=ChannelKind.ALERTMANAGER, enabled=True).select_related("cluster")
    for channel in rows:
        told = Incident.objects.filter(cluster=channel.cluster, state=IncidentState.OPEN).exclude(notified="")
        if channel.severity == IncidentSeverity.CRITICAL:
            told = told.filter(severity=IncidentSeverity.CRITICAL)
        incidents = [row for row in told.select_related("cluster") if silence_of(row, present) is None]
        notices = [
            IncidentNotice(incident=row, event=NoticeEvent.OPENED, facts=_facts(row), created_at=present)
            for row in incidents
        ]
        if notices:
            with suppress(Undelivered, Gone):  # kept at the channel; the next round repeats all of them
                channel_send(channel, [_channel_message(notice, has_text=False) for notice in notices])
                renewed += 1
    return renewed


def _channel_message(notice: IncidentNotice, *, has_text: bool = True) -> ChannelMessage:
    incident = notice.incident
    return ChannelMessage(
        id=f"incident-notice-{notice.pk}",
        key=f"sluice-{incident.pk}-{incident.opened_at.timestamp():.0f}",  # a cluster may be renamed meanwhile
        event=NoticeEvent(notice.event),
        is_resolved=not incident.is_open,
        cluster=incident.cluster.slug,
        subject=_subject(notice)[:_SUBJECT_LENGTH],
        text=_mail_text(notice) if has_text else "",
        facts=notice.facts,
        at=notice.created_at,
        page=_page(notice),
    )


def _mail_text(notice: IncidentNotice) -> str:
    context = {
        "facts": notice.facts,
        "event": notice.event,
        "cluster": notice.incident.cluster,
        "more": max(0, notice.facts["query_count"] - _MAX_QUERIES),
        "link": _page(notice) if settings.PUBLIC_URL else "",
        "helps": [] if notice.event == NoticeEvent.RESOLVED else _helps(notice),
    }
    return render_to_string("incidents/mail.txt", context)


def _mail(delivery: IncidentDelivery, connection: Any) -> EmailMultiAlternatives:
    notice = delivery.notice
    return EmailMultiAlternatives(
        subject=_subject(notice)[:_SUBJECT_LENGTH],
        body=_mail_text(notice),
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
    rows=lambda: IncidentDelivery.objects.select_related("notice__incident__cluster", "webhook", "destination"),
    send={Channel.EMAIL: send_email, Channel.WEBHOOK: send_webhook, Channel.SERVICE: send_to_channel},
    announce=lambda delivery: announce(f"incidents:{delivery.notice.incident.cluster.slug}"),
)


def incident_deliveries_send_due() -> int:
    """Send every notice whose time has come; returns how many arrived."""
    return _courier.send_due()
