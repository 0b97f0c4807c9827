"""Ages are told by one clock, whichever host asks: a worker whose clock is wrong is no lost worker."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.utils import timezone

from apps.core import clock
from apps.core.clock import shared_now
from apps.jobs.models import Job, JobKind
from apps.jobs.selectors import jobs_lost
from apps.jobs.services import LOST_AFTER, job_heartbeat, job_start, job_submit
from apps.telemetry.agent_services import agent_enrol, enrolment_create
from apps.telemetry.models import AgentState
from apps.telemetry.selectors import agent_state
from tests.apps.domain import make_cluster
from tests.apps.telemetry.world import client_of, heartbeat

REAL_NOW = timezone.now


@pytest.fixture
def host_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """`host_of(-60)`: from now on this process is on a host whose clock is a minute behind."""

    def move(ahead_s: float) -> None:
        clock._asked.clear()  # each host asks for itself
        monkeypatch.setattr(timezone, "now", lambda: REAL_NOW() + timedelta(seconds=ahead_s))

    return move


@pytest.mark.postgres
@pytest.mark.parametrize("behind_s", [60, 3600, -3600])
def test_running_job_of_a_host_with_another_clock_is_not_lost(
    postgres_db: str, host_of: Callable[[float], None], behind_s: float
) -> None:
    host_of(0)
    submitted = job_submit(JobKind.HISTORY, "Long", {})
    host_of(-behind_s)
    job = job_start(submitted.pk)
    assert job is not None
    job_heartbeat(job)
    host_of(0)
    assert not jobs_lost().exists()
    assert job_start(job.pk) is None, "a second delivery is a duplicate"


@pytest.mark.postgres
@pytest.mark.parametrize("behind_s", [60, -60])
def test_silent_job_is_lost_whatever_the_clock_of_the_host_that_looks(
    postgres_db: str, host_of: Callable[[float], None], behind_s: float
) -> None:
    job = job_start(job_submit(JobKind.HISTORY, "Long", {}).pk)
    assert job is not None
    silent = shared_now() - LOST_AFTER - timedelta(seconds=1)
    Job.objects.update(heartbeat_at=silent, sent_at=silent)
    host_of(-behind_s)
    assert list(jobs_lost()) == [job]


@pytest.mark.postgres
def test_agent_that_reports_to_a_host_with_another_clock_is_heard_by_all(
    postgres_db: str, host_of: Callable[[float], None]
) -> None:
    _, token = enrolment_create(cluster=make_cluster(), user=None)
    joined = agent_enrol(token=token, name="a1")
    host_of(-600)
    assert heartbeat(client_of(joined), joined).status_code == 200
    host_of(0)
    joined.agent.refresh_from_db()
    assert agent_state(joined.agent).state not in {AgentState.SILENT, AgentState.NEVER}


@pytest.mark.postgres
def test_shared_clock_goes_on_between_questions_and_ignores_steps_of_the_hosts_clock(
    postgres_db: str, host_of: Callable[[float], None]
) -> None:
    host_of(0)
    first, seen = shared_now(), len(connection.queries_log)
    clocks = [first, *(shared_now() for _ in range(50))]
    assert clocks == sorted(clocks)
    assert len(connection.queries_log) == seen
    host_of(86_400)
    assert abs((shared_now() - first).total_seconds()) < 60


@pytest.mark.django_db
def test_sqlite_is_on_the_host_of_all_its_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = datetime(2027, 2, 3, tzinfo=REAL_NOW().tzinfo)
    monkeypatch.setattr(timezone, "now", lambda: moment)
    assert shared_now() == moment
