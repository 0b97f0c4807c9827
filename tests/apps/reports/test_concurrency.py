"""Two beats and several workers at the same moment: a due time leads to one report, a delivery is made once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apps.core.deliveries import DeliveryState
from apps.fleet.models import Cluster
from apps.jobs.models import Job
from apps.reports.deliveries import deliveries_send_due
from apps.reports.lifecycle import REPORT
from apps.reports.models import Delivery, Report, ReportDefinition, ReportSchedule
from apps.reports.services import definition_create, reports_run_due, schedule_set, webhook_create
from apps.reports.work import gather_facts
from tests.apps.concurrency import run_concurrently
from tests.apps.small_cluster import small_cluster

AT_ONCE = 4
DUE = datetime(2026, 11, 23, 6, tzinfo=UTC)


@pytest.mark.postgres
def test_concurrent_beats_take_a_due_schedule_once(postgres_db: str) -> None:
    schedules = [scheduled(small_cluster(f"c{i}")) for i in range(3)]
    Job.objects.all().delete()
    outcomes = run_concurrently([lambda: reports_run_due(DUE)] * AT_ONCE)
    assert outcomes == {"done": AT_ONCE}
    assert Report.objects.count() == Job.objects.count() == len(schedules)
    assert set(Report.objects.values_list("due_at", flat=True)) == {DUE}
    after = set(ReportSchedule.objects.values_list("next_at", "last_due_at"))
    assert after == {(DUE + timedelta(days=7), DUE)}


@pytest.mark.postgres
def test_delivery_is_made_by_one_of_several_workers(postgres_db: str, hook: Any) -> None:
    cluster = small_cluster()
    definition = defined(cluster)
    definition.webhooks.set(
        [webhook_create(cluster=cluster, name=f"h{i}", url=f"{hook.url}&hook={i}") for i in range(3)]
    )
    report, job = REPORT.request(definition=definition)
    facts, _ = gather_facts(report, lambda share, step: None)
    report.result, report.finding = facts.to_dict(), facts.finding
    assert job is not None
    REPORT.keep(report, None, job)
    assert run_concurrently([deliveries_send_due] * AT_ONCE) == {"done": AT_ONCE}
    assert len(hook.requests) == 3
    assert set(Delivery.objects.values_list("state", "attempts")) == {(DeliveryState.SENT, 1)}


def scheduled(cluster: Cluster) -> ReportSchedule:
    rule = {"every": "week", "days": ["mon"], "at": "06:00"}
    row = schedule_set(definition=defined(cluster), rule=rule, time_zone="UTC")
    ReportSchedule.objects.filter(pk=row.pk).update(next_at=DUE, starts_on="2026-11-20")
    return row


def defined(cluster: Cluster) -> ReportDefinition:
    return definition_create(cluster=cluster, kind="provisioning", name="Weekly")
