"""Changes to incidents by people, and their retention."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Fault, Malformed, fault_count
from apps.core.events import announce
from apps.core.limits import MAX_NOTE
from apps.core.messages import email_faults
from apps.fleet.models import Cluster
from apps.incidents.choices import IncidentEventKind, IncidentSeverity, IncidentState
from apps.incidents.models import KEEP_DAYS, Incident, IncidentEvent, IncidentRouting
from apps.reports.models import Webhook

__all__ = ["MAX_KEEP_DAYS", "incident_acknowledge", "incident_routing_update", "incidents_purge"]

MAX_KEEP_DAYS = 3650


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


def incidents_purge(now: datetime | None = None) -> int:
    """Purge resolved incidents that are older than their cluster keeps them; returns how many."""
    present, gone = now or timezone.now(), 0
    kept = dict(IncidentRouting.objects.values_list("cluster_id", "keep_days"))
    for cluster_id in Cluster.objects.values_list("pk", flat=True):
        before = present - timedelta(days=kept.get(cluster_id, KEEP_DAYS))
        rows = Incident.objects.filter(cluster=cluster_id, state=IncidentState.RESOLVED, resolved_at__lt=before)
        gone += rows.count()
        rows.delete()
    return gone
