"""Changes to incidents by people, and their retention."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Conflict, Fault, Malformed, fault_count
from apps.core.events import announce
from apps.core.limits import MAX_NOTE
from apps.core.messages import email_faults
from apps.core.secrets import SecretLost, seal_secret, unseal_secret
from apps.fleet.models import Cluster
from apps.fleet.validation import check_free, check_row
from apps.incidents.channels import DEFAULT_ADDRESSES, channel_faults, public_part
from apps.incidents.choices import IncidentEventKind, IncidentSeverity, IncidentState
from apps.incidents.models import (
    ADDRESS_PURPOSE,
    KEEP_DAYS,
    TOKEN_PURPOSE,
    Incident,
    IncidentChannel,
    IncidentEvent,
    IncidentRouting,
    IncidentSilence,
)
from apps.ledger.recorder import recorded
from apps.reports.models import Webhook

__all__ = [
    "MAX_KEEP_DAYS",
    "channel_create",
    "channel_delete",
    "channel_update",
    "incident_acknowledge",
    "incident_done",
    "incident_routing_update",
    "incidents_purge",
    "silence_create",
    "silence_end",
]

MAX_KEEP_DAYS = 3650
MAX_SILENCE = timedelta(days=30)


@transaction.atomic
def incident_acknowledge(*, incident: Incident, user: User | None = None, note: str = "") -> Incident:
    """Note that somebody has seen it. The first who says so is remembered; it stays open until its queries are well."""
    row = Incident.objects.select_for_update(of=("self",)).select_related("cluster").get(pk=incident.pk)
    if len(note) > MAX_NOTE:
        fault = Fault("note", f"it has {len(note)} characters; allowed: {MAX_NOTE}")
        raise Malformed("note: it is too long.", [fault])
    if row.acknowledged_at is None:
        row.acknowledged_at, row.acknowledged_by, row.note = timezone.now(), user, note
        row.save(update_fields=["acknowledged_at", "acknowledged_by", "note", "updated_at"])
        IncidentEvent.objects.create(
            incident=row, at=row.acknowledged_at, kind=IncidentEventKind.ACKNOWLEDGED, user=user, text=note
        )
        announce(f"incidents:{row.cluster.slug}")
        announce("incidents")
        announce(f"cluster:{row.cluster.slug}")
    return row


@transaction.atomic
def incident_done(*, incident: Incident, reason: str, user: User | None = None) -> Incident:
    """Say that what was mended on paper was done: its queries that are well on paper leave at the next round.

    Raises
    ------
    Malformed
        There is no reason, or it is too long.
    Conflict
        No query of it is well on paper alone (`nothing_on_paper`).
    """
    reason = reason.strip()
    if not 0 < len(reason) <= MAX_NOTE:
        given = f"it has {len(reason)} characters" if reason else "it is empty"
        raise Malformed(
            "reason: say what was done.", [Fault("reason", f"{given}; allowed: 1 to {MAX_NOTE} characters")]
        )
    row = Incident.objects.select_for_update(of=("self",)).select_related("cluster").get(pk=incident.pk)
    if not row.is_open or not row.members.filter(ended_at=None, unconfirmed_at__isnull=False).exists():
        raise Conflict("No query of the incident is well on paper alone.", code="nothing_on_paper")
    row.done_at = timezone.now()
    row.save(update_fields=["done_at", "updated_at"])
    IncidentEvent.objects.create(incident=row, at=row.done_at, kind=IncidentEventKind.DONE, user=user, text=reason)
    announce(f"incidents:{row.cluster.slug}")
    return row


@recorded()
def incident_routing_update(
    *,
    cluster: Cluster,
    emails: Any = (),
    webhooks: Iterable[Webhook] = (),
    severity: str = IncidentSeverity.CRITICAL,
    keep_days: int = KEEP_DAYS,
) -> IncidentRouting:
    """Say where a cluster's incidents are reported to, from which severity on, and how long they are kept.

    Raises
    ------
    Malformed
        With every fault of the values.
    """
    chosen = list(webhooks)
    faults = email_faults(list(emails) if isinstance(emails, tuple) else emails)
    faults += [
        Fault(f"webhooks[{index}]", f"webhook {webhook.name!r} is of another cluster; allowed: those of {cluster.slug}")
        for index, webhook in enumerate(chosen)
        if webhook.cluster_id != cluster.pk
    ]
    if severity not in IncidentSeverity.values:
        faults.append(Fault("severity", f"severity is {severity!r}; allowed: {', '.join(IncidentSeverity.values)}"))
    if isinstance(keep_days, bool) or not isinstance(keep_days, int) or not 1 <= keep_days <= MAX_KEEP_DAYS:
        faults.append(Fault("keep_days", f"keep_days is {keep_days!r}; allowed: 1 to {MAX_KEEP_DAYS:,} days"))
    if faults:
        raise Malformed(f"The routing has {fault_count(faults)}; first: {faults[0].path}: {faults[0].message}", faults)
    routing, _ = IncidentRouting.objects.update_or_create(
        cluster=cluster, defaults={"emails": list(emails), "severity": severity, "keep_days": keep_days}
    )
    routing.webhooks.set(chosen)
    announce(f"incidents:{cluster.slug}")
    return routing


@recorded()
def channel_create(
    *, cluster: Cluster, kind: str, name: str, address: str = "", token: str = "", **values: Any
) -> IncidentChannel:
    """Tell another service of a cluster's incidents. `values` are severity, group_s and enabled.

    Raises
    ------
    Malformed
        With every fault of every field.
    Conflict
        The name is taken in this cluster.
    """
    row = IncidentChannel(cluster=cluster, kind=kind, name=name, **values)
    return _channel_stored(row, address, token)


@recorded()
def channel_update(
    *, channel: IncidentChannel, address: str | None = None, token: str | None = None, **values: Any
) -> IncidentChannel:
    """Change a channel. An address or a token that is None or empty stays as it is. Raises as `channel_create`.

    With another address the token has to be given again: who may change a channel may not read what it sends.
    """
    faults = [
        Fault(name, f"{name} is {str(values[name])!r}; allowed: {str(stays)!r}, which it keeps, or another channel")
        for name in ("cluster", "kind")
        if name in values and values[name] != (stays := getattr(channel, name))
    ]
    if faults:
        raise Malformed(f"{faults[0].path}: a channel keeps its {faults[0].path}.", faults)
    for field, value in values.items():
        setattr(channel, field, value)
    if not address and not token:
        return _row_stored(channel)
    kept = _kept_address(channel)
    if kept is None and not address:
        faults.append(Fault("address", "address is missing; the old one cannot be read any more, give it again"))
    if channel.sealed_token and not token and (address or "").strip() != kept:
        faults.append(Fault("token", "token is missing; the old one is not sent to another address, give it again"))
    return _channel_stored(channel, address or kept or "", token or _kept_token(channel), faults)


def _kept_address(channel: IncidentChannel) -> str | None:
    """None where it was sealed under another key of the installation."""
    with suppress(SecretLost):
        return unseal_secret(channel.sealed_address, ADDRESS_PURPOSE)
    return None


def _kept_token(channel: IncidentChannel) -> str:
    """Empty where it was sealed under another key of the installation: then it has to be given again."""
    with suppress(SecretLost):
        return unseal_secret(channel.sealed_token, TOKEN_PURPOSE)
    return ""


def _channel_stored(row: IncidentChannel, address: str, token: str, faults: Sequence[Fault] = ()) -> IncidentChannel:
    address, token = address.strip(), token.strip()
    faults = faults or channel_faults(row.kind, address, token)
    row.sealed_address = seal_secret(address, ADDRESS_PURPOSE)
    row.sealed_token = seal_secret(token, TOKEN_PURPOSE)
    row.shown_address = "" if faults else public_part(row.kind, address or DEFAULT_ADDRESSES.get(row.kind, ""))
    return _row_stored(row, faults)


def _row_stored(row: IncidentChannel, faults: Sequence[Fault] = ()) -> IncidentChannel:
    row.name = row.name.strip() if isinstance(row.name, str) else row.name
    check_row(row, faults)
    check_free(IncidentChannel.objects.filter(cluster=row.cluster), row, name=row.name)
    row.save()
    announce(f"incidents:{row.cluster.slug}")
    return row


@recorded()
def channel_delete(*, channel: IncidentChannel) -> None:
    """Messages that wait for it are given up at their next try."""
    channel.delete()
    announce(f"incidents:{channel.cluster.slug}")


@recorded()
def silence_create(
    *,
    cluster: Cluster,
    ends_at: datetime,
    reason: str,
    starts_at: datetime | None = None,
    cause_kind: str = "",
    subject: str = "",
    user: User | None = None,
) -> IncidentSilence:
    """Tell nobody of a cluster's incidents for a time: of one cause, of one subject, or of all.

    Those that are open when it ends are told then. Raises `Malformed` with every fault.
    """
    now = timezone.now()
    row = IncidentSilence(
        cluster=cluster,
        cause_kind=cause_kind,
        subject=subject.strip(),
        starts_at=starts_at or now,
        ends_at=ends_at,
        reason=reason.strip(),
        created_by=user if user is not None and user.pk else None,
    )
    faults = []
    if ends_at <= now:
        faults.append(Fault("ends_at", f"ends_at is {ends_at:%Y-%m-%d %H:%M %Z}; allowed: a time to come"))
    elif ends_at <= row.starts_at:
        faults.append(Fault("ends_at", f"ends_at is not after starts_at, {row.starts_at:%Y-%m-%d %H:%M %Z}"))
    elif ends_at - row.starts_at > MAX_SILENCE:
        faults.append(Fault("ends_at", f"it lasts longer than {MAX_SILENCE.days} days; allowed: at most that"))
    check_row(row, faults)
    row.save()
    announce(f"incidents:{cluster.slug}")
    return row


@recorded()
def silence_end(*, silence: IncidentSilence) -> None:
    """End a silence now; one that has not begun is deleted."""
    now = timezone.now()
    if silence.starts_at >= now:
        silence.delete()
    elif silence.ends_at > now:
        silence.ends_at = now
        silence.save(update_fields=["ends_at"])
    announce(f"incidents:{silence.cluster.slug}")


def incidents_purge(now: datetime | None = None) -> int:
    """Purge resolved incidents that are older than their cluster keeps them; returns how many."""
    present, gone = now or timezone.now(), 0
    kept = dict(IncidentRouting.objects.values_list("cluster_id", "keep_days"))
    for cluster_id in Cluster.objects.values_list("pk", flat=True):
        before = present - timedelta(days=kept.get(cluster_id, KEEP_DAYS))
        rows = Incident.objects.filter(cluster=cluster_id, state=IncidentState.RESOLVED, resolved_at__lt=before)
        gone += rows.count()
        rows.delete()
        IncidentSilence.objects.filter(cluster=cluster_id, ends_at__lt=before).delete()
    return gone
