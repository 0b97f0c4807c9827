"""A small cluster with a report definition."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from apps.fleet.models import Cluster
from apps.jobs.models import Job, JobState
from apps.jobs.runner import run_job
from apps.reports.lifecycle import REPORT
from apps.reports.models import Report, ReportDefinition
from apps.reports.services import definition_create
from tests.apps import small_cluster
from tests.apps.receivers import closed_port, hook, mailbox
from tests.apps.recordings import recorded

__all__ = ["closed_port", "hook", "mailbox"]


@pytest.fixture
def cluster(db: None) -> Cluster:
    """Two nodes; `calm` holds its objective, `late` misses it."""
    return recorded(_cluster_in_berlin)


def _cluster_in_berlin() -> Cluster:
    cluster = small_cluster.small_cluster(time_zone="Europe/Berlin")
    small_cluster.start_query(cluster, "calm", 0.5, "a", bound_s=20.0)
    small_cluster.start_query(cluster, "late", 1.2, "b", bound_s=2.0)
    Job.objects.all().delete()
    return cluster


@pytest.fixture
def definition(cluster: Cluster) -> ReportDefinition:
    """Without purchases, whose search takes seconds."""
    sections = ["objectives", "fleet", "forecast", "changes"]
    return definition_create(cluster=cluster, kind="provisioning", name="Weekly", parameters={"sections": sections})


@pytest.fixture
def write() -> Callable[[Report], Report]:
    """Do the job of a report here and now."""

    def do(report: Report) -> Report:
        ended = run_job(report.job.pk, REPORT.work)
        assert ended is not None and ended.state == JobState.SUCCEEDED, ended and ended.error
        report.refresh_from_db()
        return report

    return do
