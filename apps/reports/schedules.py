"""Schedules of reports, and the runs that are due."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.db import transaction
from django.utils import timezone

from apps.core.errors import Impossible, Malformed, SluiceError
from apps.core.events import announce
from apps.queries.arrivals.times import zone_of
from apps.reports.calendar import CalendarRule, ScheduledRun, last_due, next_run, read_rule, runs_after
from apps.reports.choices import Trigger
from apps.reports.lifecycle import report_request
from apps.reports.models import Report, ReportDefinition, ReportSchedule

__all__ = ["LATE_AFTER", "reports_run_due", "schedule_preview", "schedule_remove", "schedule_resume", "schedule_set"]

#: A report that starts later than this was missed, and is made up for.
LATE_AFTER = timedelta(minutes=5)
_PREVIEWED = 5

_log = logging.getLogger(__name__)


@transaction.atomic
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


@transaction.atomic
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
    report_request(
        definition=schedule.definition,
        trigger=Trigger.MADE_UP if was_missed else Trigger.SCHEDULED,
        due_at=due_at,
        missed=count if was_missed else 0,
    )
    return 1
