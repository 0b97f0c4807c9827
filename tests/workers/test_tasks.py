"""Every job has its task, every schedule too; the engine is warm before work comes."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings

from apps.estimates.models import EstimateRun
from apps.estimates.services import ESTIMATE
from apps.jobs.models import Job, JobKind, JobState
from console.celery import app
from tests.apps.small_cluster import make_query, small_cluster, start_query
from workers.lifecycle import warm_up


@pytest.fixture(autouse=True)
def _tasks() -> None:
    app.loader.import_default_modules()


@pytest.mark.parametrize("kind", JobKind.values)
def test_every_kind_of_job_has_a_task(kind: str) -> None:
    assert kind in app.tasks


def test_every_schedule_has_a_task_that_expires_before_the_next_and_comes_after_people() -> None:
    for name, entry in settings.CELERY_BEAT_SCHEDULE.items():
        assert entry["task"] in app.tasks, name
        assert entry["options"]["expires"] <= entry["schedule"], name
        assert entry["options"]["priority"] == settings.SCHEDULED_PRIORITY, name


def test_a_warm_engine_answers_within_a_second() -> None:
    warm_up()
    assert warm_up() < 1.0


@pytest.mark.django_db
def test_the_task_of_a_job_stores_its_result() -> None:
    cluster = small_cluster()
    start_query(cluster, "q", 0.5, "a")
    job = ESTIMATE.request(cluster=cluster)[1]
    app.tasks[job.kind].apply(args=[str(job.pk)], throw=True)
    assert EstimateRun.objects.get().job == job
    assert Job.objects.get(pk=job.pk).state == JobState.SUCCEEDED


@pytest.mark.django_db
def test_scheduled_tasks_do_nothing_on_an_idle_installation() -> None:
    make_query(small_cluster(), "draft", 0.5)
    app.tasks["workers.seal_ledger"].apply(throw=True)  # what was just made
    for entry in settings.CELERY_BEAT_SCHEDULE.values():
        done: Any = app.tasks[entry["task"]].apply(throw=True)
        assert done.result == 0
