"""Changing what is reported: definitions and webhooks. Schedules are in `scheduling`, reports in `writing`."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from django.db import transaction

from apps.accounts.models import User
from apps.core.errors import Fault
from apps.core.events import announce
from apps.core.mailing import email_faults
from apps.core.sending import address_faults
from apps.fleet.models import Cluster
from apps.fleet.validation import check_free, check_row
from apps.reports.choices import ReportKind
from apps.reports.models import ReportDefinition, Webhook
from apps.reports.parameters import format_faults, read_parameters
from apps.reports.scheduling import schedule_resume

__all__ = [
    "definition_create",
    "definition_delete",
    "definition_update",
    "webhook_create",
    "webhook_delete",
    "webhook_renew_secret",
    "webhook_update",
]


@transaction.atomic
def definition_create(
    *,
    cluster: Cluster,
    kind: str,
    name: str,
    parameters: Mapping[str, Any] | None = None,
    formats: list[str] | None = None,
    emails: list[str] | None = None,
    webhooks: Iterable[Webhook] = (),
    enabled: bool = True,
    user: User | None = None,
) -> ReportDefinition:
    """Define a report. What its parameters leave out takes its default.

    Raises
    ------
    Malformed
        With every fault of every field.
    Conflict
        The name is taken in this cluster.
    """
    row = ReportDefinition(
        cluster=cluster,
        kind=kind,
        name=name,
        parameters=parameters or {},
        formats=["pdf"] if formats is None else formats,
        emails=emails or [],
        enabled=enabled,
        created_by=user if user is not None and user.pk else None,
    )
    return _stored(row, webhooks)


@transaction.atomic
def definition_update(*, definition: ReportDefinition, **values: Any) -> ReportDefinition:
    """Change fields of a definition; reports that were written stay as they are. A rested schedule counts from now."""
    webhooks = values.pop("webhooks", None)
    was_enabled = definition.enabled
    for field, value in values.items():
        setattr(definition, field, value)
    _stored(definition, webhooks)
    if definition.enabled and not was_enabled:
        schedule_resume(definition=definition)
    return definition


def _stored(row: ReportDefinition, webhooks: Iterable[Webhook] | None) -> ReportDefinition:
    faults: list[Fault] = []
    if row.kind in ReportKind.values:
        row.parameters, faults = read_parameters(row.kind, row.parameters, row.cluster)
    faults += format_faults(row.formats) + email_faults(row.emails)
    chosen = None if webhooks is None else list(webhooks)
    if chosen and any(hook.cluster_id != row.cluster_id for hook in chosen):
        faults.append(Fault("webhooks", "a webhook of another cluster"))
    row.name = row.name.strip() if isinstance(row.name, str) else row.name
    check_row(row, faults)
    check_free(ReportDefinition.objects.filter(cluster=row.cluster), row, name=row.name)
    row.save()
    if chosen is not None:
        row.webhooks.set(chosen)
    announce("reports")
    return row


@transaction.atomic
def definition_delete(*, definition: ReportDefinition) -> None:
    """Delete a definition with its schedule and every report it led to."""
    definition.delete()
    announce("reports")


@transaction.atomic
def webhook_create(*, cluster: Cluster, name: str, url: str) -> Webhook:
    """Register an address that is told of reports; `signing.webhook_secret` is what its messages are signed with."""
    return _hook_stored(Webhook(cluster=cluster, name=name, url=url, salt=secrets.token_hex(16)))


@transaction.atomic
def webhook_update(*, webhook: Webhook, **values: Any) -> Webhook:
    """Rename a webhook or give it another address; the secret stays."""
    for field, value in values.items():
        setattr(webhook, field, value)
    return _hook_stored(webhook)


@transaction.atomic
def webhook_renew_secret(*, webhook: Webhook) -> Webhook:
    """From now on messages are signed with a new secret."""
    webhook.salt = secrets.token_hex(16)
    webhook.save(update_fields=["salt", "updated_at"])
    return webhook


@transaction.atomic
def webhook_delete(*, webhook: Webhook) -> None:
    """Deliveries that wait for it are given up at their next try."""
    webhook.delete()
    announce("reports")


def _hook_stored(row: Webhook) -> Webhook:
    row.name = row.name.strip() if isinstance(row.name, str) else row.name
    check_row(row, address_faults(row.url))
    check_free(Webhook.objects.filter(cluster=row.cluster), row, name=row.name)
    row.save()
    announce("reports")
    return row
