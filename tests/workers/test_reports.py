"""A worker killed while it writes a report: it is written again, kept once, and addressed once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.jobs.models import Job, JobState
from apps.jobs.runner import run_job
from apps.jobs.selectors import jobs_lost
from apps.reports.choices import ReportState
from apps.reports.lifecycle import REPORT
from apps.reports.models import Delivery, Report
from apps.reports.services import definition_create, reports_run_due
from tests.apps.small_cluster import small_cluster, start_query
from workers.schedule import send_deliveries

pytestmark = pytest.mark.django_db


def test_a_report_of_a_killed_worker_is_written_again(monkeypatch: Any) -> None:
    cluster = small_cluster()
    start_query(cluster, "calm", 0.5, "a", bound_s=20.0)
    definition = definition_create(
        cluster=cluster,
        kind="provisioning",
        name="Weekly",
        parameters={"sections": ["objectives"]},
        emails=["ops@example.org"],
    )
    report = REPORT.request(definition=definition)[0]
    job = str(report.job_id)

    class Killed(BaseException):
        """Nothing in the worker catches it, as nothing catches a SIGKILL."""

    def killed(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(REPORT, "keep", killed)
        with pytest.raises(Killed):
            run_job(job, REPORT.work)
    assert Report.objects.get().state == ReportState.WRITING
    assert not Delivery.objects.exists()
    silent = timezone.now() - timedelta(minutes=5)
    Job.objects.filter(pk=job).update(heartbeat_at=silent, sent_at=silent)
    assert [str(lost.pk) for lost in jobs_lost()] == [job]
    run_job(job, REPORT.work)
    run_job(job, REPORT.work)  # delivered twice by the broker
    assert Job.objects.get(pk=job).state == JobState.SUCCEEDED
    assert Job.objects.get(pk=job).attempt == 2
    assert Report.objects.get().state == ReportState.READY
    assert Delivery.objects.count() == 1


def test_scheduled_report_tasks_do_nothing_without_due_reports() -> None:
    assert (reports_run_due(), send_deliveries()) == (0, 0)
