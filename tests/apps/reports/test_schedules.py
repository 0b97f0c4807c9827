"""Due reports are written once: by schedule, made up for after a silence, unaffected by manual runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from apps.core.errors import Impossible, Malformed
from apps.jobs.models import Job, JobState
from apps.jobs.services import job_cancel
from apps.reports.choices import ReportState, Trigger
from apps.reports.lifecycle import REPORT, report_facts
from apps.reports.models import Report, ReportDefinition, ReportSchedule
from apps.reports.report import ProvisioningReport, ReportChanges
from apps.reports.sections.forecast import NoForecast
from apps.reports.selectors import schedule_sentence
from apps.reports.services import definition_update, reports_run_due, schedule_preview, schedule_set

pytestmark = pytest.mark.django_db

MONDAYS = {"every": "week", "days": ["mon"], "at": "07:00"}
DUE = datetime(2026, 11, 23, 6, tzinfo=UTC)


@pytest.fixture
def schedule(definition: ReportDefinition) -> ReportSchedule:
    row = schedule_set(definition=definition, rule=MONDAYS, time_zone="Europe/Berlin")
    ReportSchedule.objects.filter(pk=row.pk).update(next_at=DUE, starts_on="2026-11-20")
    row.refresh_from_db()
    return row


def test_schedule_is_described_in_a_sentence(schedule: ReportSchedule) -> None:
    assert schedule_sentence(schedule) == "every Monday at 07:00 Europe/Berlin; next 23 Nov, 07:00"


def test_due_report_is_requested_once(schedule: ReportSchedule) -> None:
    assert reports_run_due(DUE - timedelta(seconds=1)) == 0
    assert reports_run_due(DUE + timedelta(seconds=5)) == 1
    assert reports_run_due(DUE + timedelta(seconds=20)) == 0
    report = Report.objects.get()
    assert (report.trigger, report.due_at, report.missed) == (Trigger.SCHEDULED, DUE, 0)
    assert report.job is not None and report.job.state == JobState.QUEUED
    schedule.refresh_from_db()
    assert (schedule.next_at, schedule.last_due_at) == (DUE + timedelta(days=7), DUE)


def test_two_beats_at_once_write_one_report(schedule: ReportSchedule) -> None:
    """The second one still sees the old due time; the row it finds and the constraint keep it from a second report."""
    assert reports_run_due(DUE) == 1
    ReportSchedule.objects.update(next_at=DUE)
    assert reports_run_due(DUE) == 0
    assert Report.objects.count() == 1
    report = Report.objects.get()
    with pytest.raises(IntegrityError), transaction.atomic():
        Report.objects.create(definition=report.definition, due_at=DUE, trigger="scheduled", covers_until=DUE)


def test_missed_runs_are_made_up_for_by_one_report(schedule: ReportSchedule) -> None:
    back = DUE + timedelta(days=22)
    assert reports_run_due(back) == 1
    report = Report.objects.get()
    assert (report.trigger, report.missed, report.due_at) == (Trigger.MADE_UP, 4, DUE + timedelta(days=21))
    schedule.refresh_from_db()
    assert schedule.next_at == DUE + timedelta(days=28)
    assert reports_run_due(back) == 0


def test_manual_run_leaves_the_schedule_unchanged(schedule: ReportSchedule, user_of: Callable[..., Any]) -> None:
    first = REPORT.request(definition=schedule.definition, user=user_of())[0]
    assert REPORT.request(definition=schedule.definition, user=user_of())[0] == first, "it is being written already"
    schedule.refresh_from_db()
    assert (schedule.next_at, schedule.last_due_at) == (DUE, None)
    assert reports_run_due(DUE) == 1
    assert Report.objects.count() == 2


def test_paused_schedule_makes_up_for_no_missed_runs(schedule: ReportSchedule) -> None:
    definition_update(definition=schedule.definition, enabled=False)
    assert reports_run_due(DUE + timedelta(days=60)) == 0
    definition_update(definition=schedule.definition, enabled=True)
    schedule.refresh_from_db()
    assert schedule.next_at is not None
    assert schedule.next_at > datetime.now(UTC)


def test_due_run_is_kept_while_the_broker_is_away(schedule: ReportSchedule, settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    assert reports_run_due(DUE) == 0
    schedule.refresh_from_db()
    assert schedule.next_at == DUE
    assert not Report.objects.exists()


def test_a_rule_that_ends_is_refused_or_ends(definition: ReportDefinition) -> None:
    with pytest.raises(Impossible):
        schedule_set(
            definition=definition, rule={"every": "rrule", "rrule": "FREQ=DAILY;UNTIL=20200101"}, time_zone="UTC"
        )
    with pytest.raises(Malformed) as error:
        schedule_set(definition=definition, rule={"every": "day"}, time_zone="Mars/Olympus")
    assert [fault.path for fault in error.value.faults] == ["time_zone", "rule.at"]
    _, runs = schedule_preview(rule={"every": "day", "at": "07:00"}, time_zone="Asia/Kathmandu")
    assert len(runs) == 5


def test_facts_are_the_same_everywhere(definition: ReportDefinition, write: Callable[[Report], Report]) -> None:
    report = write(REPORT.request(definition=definition)[0])
    facts = report_facts(report)
    assert facts is not None
    assert report.state == ReportState.READY
    assert report.finding == "1 of 2 objectives hold; late is expected to be over." == facts.finding
    states = {row.query: row.state for row in facts.objectives.rows}
    assert states == {"late": "breached", "calm": "holds"}
    assert isinstance(facts, ProvisioningReport) and isinstance(facts.forecast, NoForecast)
    assert facts.changes == ReportChanges(parts=[], decisions=[])
    assert bytes(report.pdf or b"").startswith(b"%PDF-")


def test_next_report_lists_changes_since_the_last_one(
    definition: ReportDefinition, write: Callable[[Report], Report]
) -> None:
    first = write(REPORT.request(definition=definition)[0])
    query = definition.cluster.queries.get(name="late")
    query.objective_bound_s = 90.0
    query.save()
    second = report_facts(write(REPORT.request(definition=definition)[0]))
    assert isinstance(second, ProvisioningReport) and second.changes is not None
    assert second.changes.since == second.covers.since == first.covers_until
    assert any("query late" in text for text in second.changes.parts)


def test_a_cancelled_report_has_failed(definition: ReportDefinition) -> None:
    report = REPORT.request(definition=definition)[0]
    assert report.job is not None
    job_cancel(Job.objects.get(pk=report.job.pk))
    report.refresh_from_db()
    assert (report.state, report.error and report.error["code"]) == (ReportState.FAILED, "cancelled")
