"""Report definitions with their parameters, and webhooks. Schedules are in `schedules`, reports in `lifecycle`."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from django.db import transaction

from apps.accounts.models import User
from apps.core.errors import Fault
from apps.core.events import announce
from apps.core.messages import address_faults, email_faults
from apps.core.rest.serializers import unknown_message
from apps.fleet.models import Cluster
from apps.fleet.validation import check_free, check_row
from apps.reports.choices import FORMATS, SECTIONS, ReportKind
from apps.reports.models import ReportDefinition, Webhook
from apps.reports.schedules import schedule_resume

__all__ = [
    "DEFAULTS",
    "definition_create",
    "definition_delete",
    "definition_update",
    "format_faults",
    "read_parameters",
    "webhook_create",
    "webhook_delete",
    "webhook_renew_secret",
    "webhook_update",
]


DEFAULTS: dict[str, Any] = {"sections": list(SECTIONS), "horizon_days": 28, "growth": 0.6}
_MAX_DAYS = 366
_MAX_GROWTH = 20.0


def read_parameters(kind: str, document: Any, cluster: Cluster) -> tuple[dict[str, Any], list[Fault]]:
    """The parameters with defaults filled in, and what is wrong with them."""
    if not isinstance(document, Mapping):
        return {}, [Fault("parameters", f"parameters is {document!r}; allowed: an object")]
    if kind == ReportKind.LATENCY:
        return _latency(document, cluster)
    values = {**DEFAULTS, **document}
    faults = _unknown(document, list(DEFAULTS))
    if not _is_list_of(values["sections"], SECTIONS) or not values["sections"]:
        allowed = f"allowed is a list of {', '.join(SECTIONS)}"
        faults.append(Fault("parameters.sections", f"sections is {values['sections']!r}; {allowed}"))
    else:
        values["sections"] = [name for name in SECTIONS if name in values["sections"]]
    days = values["horizon_days"]
    if isinstance(days, bool) or not isinstance(days, int) or not 1 <= days <= _MAX_DAYS:
        message = f"horizon_days is {days!r}; allowed: a whole number from 1 to {_MAX_DAYS}"
        faults.append(Fault("parameters.horizon_days", message))
    growth = values["growth"]
    is_number = isinstance(growth, (int, float)) and not isinstance(growth, bool) and math.isfinite(growth)
    if not is_number or not 0 <= growth <= _MAX_GROWTH:
        message = f"growth is {growth!r}; allowed: a number from 0 to {_MAX_GROWTH:g}, 0.6 for 60 % more load"
        faults.append(Fault("parameters.growth", message))
    return values, faults


def _latency(document: Mapping[str, Any], cluster: Cluster) -> tuple[dict[str, Any], list[Fault]]:
    """One query, or every query of a team."""
    faults = _unknown(document, ["query", "team"])
    query, team = document.get("query") or "", document.get("team") or ""
    if bool(query) == bool(team):
        faults.append(Fault("parameters", "a latency report is about a query or about a team: give one of the two"))
    elif query and not cluster.queries.filter(name=query).exists():
        faults.append(Fault("parameters.query", f"{query!r} is no query of cluster {cluster.slug}"))
    elif team and not cluster.queries.filter(team=team).exists():
        faults.append(Fault("parameters.team", f"no query of cluster {cluster.slug} belongs to the team {team!r}"))
    return ({"query": query} if query else {"team": team}), faults


def format_faults(formats: Any) -> list[Fault]:
    """Formats are a list of those that exist; none is allowed: a mail then holds the text alone."""
    if _is_list_of(formats, FORMATS):
        return []
    return [Fault("formats", f"formats is {formats!r}; allowed is a list of {', '.join(FORMATS)}")]


def _unknown(document: Mapping[str, Any], allowed: list[str]) -> list[Fault]:
    return [
        Fault(f"parameters.{name}", unknown_message(str(name), allowed)) for name in document if name not in allowed
    ]


def _is_list_of(values: Any, allowed: Mapping[str, Any]) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) and value in allowed for value in values)


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
def webhook_create(*, cluster: Cluster, name: str, url: str, sends_decisions: bool = False) -> Webhook:
    """Register an address that is told of reports; of applied decisions, too, if it `sends_decisions`.

    `deliveries.webhook_secret` is what its messages are signed with.
    """
    return _hook_stored(
        Webhook(cluster=cluster, name=name, url=url, sends_decisions=sends_decisions, salt=secrets.token_hex(16))
    )


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
