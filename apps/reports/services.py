"""Report definitions with their parameters and schedules, webhooks, and the runs that are due."""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Fault, Impossible, Malformed, SluiceError
from apps.core.events import announce
from apps.core.messages import address_faults, email_faults
from apps.core.rest.serializers import unknown_message
from apps.fleet.models import Cluster
from apps.fleet.validation import check_free, check_row
from apps.ledger.recorder import recorded
from apps.queries.arrivals.times import zone_of
from apps.reports.calendar import CalendarRule, ScheduledRun, last_due, next_run, read_rule, runs_after
from apps.reports.choices import FORMATS, SECTIONS, ReportKind, Trigger
from apps.reports.lifecycle import REPORT
from apps.reports.models import Report, ReportDefinition, ReportSchedule, Webhook
from apps.reports.report import LatencyParameters, ProvisioningParameters
from engine.records import record_fields

__all__ = [
    "definition_create",
    "definition_delete",
    "definition_update",
    "reports_run_due",
    "schedule_preview",
    "schedule_remove",
    "schedule_set",
    "webhook_create",
    "webhook_delete",
    "webhook_renew_secret",
    "webhook_update",
]

_MAX_DAYS = 366
_MAX_GROWTH = 20.0


def read_parameters(
    kind: str, document: object, cluster: Cluster
) -> tuple[LatencyParameters | ProvisioningParameters | None, list[Fault]]:
    """The parameters with defaults filled in, or what is wrong with them."""
    if not isinstance(document, Mapping):
        return None, [Fault("parameters", f"parameters is {document!r}; allowed: an object")]
    allowed = list(record_fields(LatencyParameters if kind == ReportKind.LATENCY else ProvisioningParameters))
    unknown = [
        Fault(f"parameters.{name}", unknown_message(str(name), allowed)) for name in document if name not in allowed
    ]
    if kind == ReportKind.LATENCY:
        asked = LatencyParameters(document.get("query") or None, document.get("team") or None)
        faults = [*unknown, *_subject_faults(asked, cluster)]
        return (None if faults else asked), faults
    values = replace(ProvisioningParameters(), **{name: document[name] for name in allowed if name in document})
    faults = [*unknown, *_range_faults(values)]
    if faults:
        return None, faults
    return replace(values, sections=[name for name in SECTIONS if name in values.sections]), []


def _subject_faults(asked: LatencyParameters, cluster: Cluster) -> Iterator[Fault]:
    if bool(asked.query) == bool(asked.team):
        yield Fault("parameters", "a latency report is about a query or about a team: give one of the two")
    elif asked.query and not cluster.queries.filter(name=asked.query).exists():
        yield Fault("parameters.query", f"{asked.query!r} is no query of cluster {cluster.slug}")
    elif asked.team and not cluster.queries.filter(team__name=asked.team).exists():
        yield Fault("parameters.team", f"no query of cluster {cluster.slug} belongs to the team {asked.team!r}")


def _range_faults(values: ProvisioningParameters) -> Iterator[Fault]:
    sections, days, growth = values.sections, values.horizon_days, values.growth
    if not _is_list_of(sections, SECTIONS) or not sections:
        message = f"sections is {sections!r}; allowed is a list of {', '.join(SECTIONS)}"
        yield Fault("parameters.sections", message)
    if isinstance(days, bool) or not isinstance(days, int) or not 1 <= days <= _MAX_DAYS:
        message = f"horizon_days is {days!r}; allowed: a whole number from 1 to {_MAX_DAYS}"
        yield Fault("parameters.horizon_days", message)
    is_number = isinstance(growth, (int, float)) and not isinstance(growth, bool) and math.isfinite(growth)
    if not is_number or not 0 <= growth <= _MAX_GROWTH:
        message = f"growth is {growth!r}; allowed: a number from 0 to {_MAX_GROWTH:g}, 0.6 for 60 % more load"
        yield Fault("parameters.growth", message)


def _format_faults(formats: object) -> list[Fault]:
    """Formats are a list of those that exist; none is allowed: a mail then holds the text alone."""
    if _is_list_of(formats, FORMATS):
        return []
    return [Fault("formats", f"formats is {formats!r}; allowed is a list of {', '.join(FORMATS)}")]


def _is_list_of(values: object, allowed: Collection[str]) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) and value in allowed for value in values)


@recorded()
def definition_create(
    *,
    cluster: Cluster,
    kind: str,
    name: str,
    parameters: Mapping[str, object] | None = None,
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


@recorded()
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
        parameters, faults = read_parameters(row.kind, row.parameters, row.cluster)
        row.parameters = parameters.to_dict() if parameters is not None else {}
    faults += _format_faults(row.formats) + email_faults(row.emails)
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


@recorded()
def definition_delete(*, definition: ReportDefinition) -> None:
    """Delete a definition with its schedule and every report it led to."""
    definition.delete()
    announce("reports")


@recorded()
def webhook_create(*, cluster: Cluster, name: str, url: str, sends_decisions: bool = False) -> Webhook:
    """Register an address that is told of reports; of applied decisions, too, if it `sends_decisions`.

    `deliveries.webhook_secret` is what its messages are signed with.
    """
    return _hook_stored(
        Webhook(cluster=cluster, name=name, url=url, sends_decisions=sends_decisions, salt=secrets.token_hex(16))
    )


@recorded()
def webhook_update(*, webhook: Webhook, **values: Any) -> Webhook:
    """Rename a webhook or give it another address; the secret stays."""
    for field, value in values.items():
        setattr(webhook, field, value)
    return _hook_stored(webhook)


@recorded()
def webhook_renew_secret(*, webhook: Webhook) -> Webhook:
    """From now on messages are signed with a new secret."""
    webhook.salt = secrets.token_hex(16)
    webhook.save(update_fields=["salt", "updated_at"])
    return webhook


@recorded()
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


#: A report that starts later than this was missed, and is made up for.
LATE_AFTER = timedelta(minutes=5)
_PREVIEWED = 5

_log = logging.getLogger(__name__)


@recorded()
def schedule_set(*, definition: ReportDefinition, rule: Any, time_zone: str) -> ReportSchedule:
    """Give a definition a schedule, or another one. Its next due time is counted from now.

    Raises
    ------
    Malformed
        The rule or the zone cannot be read.
    Impossible
        The rule is never due any more.
    """
    read, zone, first = _read(rule, time_zone)
    schedule, _ = ReportSchedule.objects.update_or_create(
        definition=definition,
        defaults={
            "rule": dict(read.given),
            "time_zone": time_zone,
            "starts_on": timezone.now().astimezone(zone).date(),
            "next_at": first.at,
        },
    )
    announce("reports")
    return schedule


@recorded()
def schedule_remove(*, schedule: ReportSchedule) -> None:
    """From now on the definition is written by hand alone."""
    schedule.delete()
    announce("reports")


def schedule_resume(*, definition: ReportDefinition) -> None:
    """A schedule that has rested goes on from now; what it slept through is not made up for."""
    schedule = ReportSchedule.objects.filter(definition=definition).first()
    if schedule is not None:
        schedule.next_at = _next_at(schedule, timezone.now())
        schedule.save(update_fields=["next_at", "updated_at"])


def schedule_preview(*, rule: Any, time_zone: str, count: int = _PREVIEWED) -> tuple[CalendarRule, list[ScheduledRun]]:
    """Meaning of a rule and its next runs; refuses what `schedule_set` would refuse."""
    read, zone, _ = _read(rule, time_zone)
    now = timezone.now()
    runs = runs_after(read, zone, now, now.astimezone(zone).date())
    return read, [run for _, run in zip(range(count), runs, strict=False)]


def _read(rule: Any, time_zone: str) -> tuple[CalendarRule, ZoneInfo, ScheduledRun]:
    faults: list[Any] = []
    read: CalendarRule | None = None
    try:
        zone_of(time_zone)
    except Malformed as error:
        faults += error.faults
    try:
        read = read_rule(rule)
    except Malformed as error:
        faults += error.faults
    if read is None or faults:
        raise Malformed(f"{faults[0].path}: {faults[0].message}.", faults)
    zone, now = ZoneInfo(time_zone), timezone.now()
    first = next_run(read, zone, now, now.astimezone(zone).date())
    if first is None:
        raise Impossible("The rule is never due from now on.", [("rule", f"{read.sentence}: no run is to come")])
    return read, zone, first


def _next_at(schedule: ReportSchedule, after: datetime) -> datetime | None:
    run = next_run(read_rule(schedule.rule), ZoneInfo(schedule.time_zone), after, schedule.starts_on)
    return run.at if run is not None else None


def reports_run_due(now: datetime | None = None) -> int:
    """Ask for a report of every schedule whose time has come; returns how many.

    A schedule whose report cannot be asked for (Redis is away) keeps its due time and is looked at again.
    """
    now = now or timezone.now()
    due = ReportSchedule.objects.filter(next_at__lte=now, definition__enabled=True).order_by("next_at")
    found = 0
    for pk in list(due.values_list("pk", flat=True)):
        try:
            found += _take(pk, now)
        except SluiceError as error:
            _log.warning("schedule %s keeps its due time: %s", pk, error.message)
        except Exception:
            _log.exception("schedule %s keeps its due time", pk)
    return found


@transaction.atomic
def _take(pk: int, now: datetime) -> int:
    """Ask for the report of one schedule, under its lock."""
    locked = ReportSchedule.objects.select_for_update(of=("self",)).select_related("definition__cluster")
    schedule = locked.filter(pk=pk, next_at__lte=now, definition__enabled=True).first()
    if schedule is None or schedule.next_at is None:
        return 0
    zone = ZoneInfo(schedule.time_zone)
    due_at, count = last_due(read_rule(schedule.rule), zone, schedule.next_at, now, schedule.starts_on)
    schedule.next_at, schedule.last_due_at = _next_at(schedule, now), due_at
    schedule.save(update_fields=["next_at", "last_due_at", "updated_at"])
    if Report.objects.filter(definition=schedule.definition, due_at=due_at).exists():
        return 0
    was_missed = count > 1 or now - due_at > LATE_AFTER
    REPORT.request(
        definition=schedule.definition,
        trigger=Trigger.MADE_UP if was_missed else Trigger.SCHEDULED,
        due_at=due_at,
        missed=count if was_missed else 0,
    )
    return 1
