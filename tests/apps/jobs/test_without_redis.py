"""Redis is away: whatever needs a worker says so with 503, and nothing of it is stored."""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework.test import APIClient

from apps.accounts.choices import Role
from apps.fleet.models import Cluster
from apps.jobs.models import Job
from apps.planning.choices import MoveState, RunState
from apps.planning.load_histories import history_create_from_generator
from apps.planning.models import Forecast, PlacementRun, PlanComparison, WhatIf
from apps.planning.placement_search import PLACEMENT
from apps.reports.models import Report
from apps.reports.services import definition_create
from tests.apps.small_cluster import run_jobs, small_cluster, start_query, user

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster() -> Cluster:
    cluster = small_cluster(nodes=("a", "b", "c"))
    start_query(cluster, "first", 0.7, "a")
    start_query(cluster, "second", 0.6, "a")
    return cluster


@pytest.fixture
def api() -> APIClient:
    client = APIClient()
    client.force_authenticate(user(Role.OPERATOR))
    return client


def without_redis(settings: Any) -> int:
    """From now on nobody answers; returns how many jobs there are."""
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    return Job.objects.count()


def refused(answer: Any) -> bool:
    return answer.status_code == 503 and "Redis" in answer.json()["detail"] and "Retry-After" in answer


def test_requests_that_need_a_worker_return_503_and_store_nothing(
    cluster: Cluster, api: APIClient, settings: Any
) -> None:
    history_create_from_generator(cluster=cluster, source_id="clicks", spec={"peak_rate_eps": 200, "weeks": 4})
    definition = definition_create(cluster=cluster, kind="provisioning", name="Weekly")
    query = cluster.queries.get(name="first")
    run_jobs()
    jobs = without_redis(settings)
    asked = {
        "placements": {"cluster": "little"},
        "what-ifs": {"cluster": "little", "changes": [{"scale_source": "*", "by": 1.2}]},
        "forecasts": {"cluster": "little", "horizon_days": 7},
        f"queries/{query.pk}/plans": {},
        f"report-definitions/{definition.pk}/run": {},
    }
    answers = {path: api.post(f"/api/v1/{path}", body, format="json") for path, body in asked.items()}
    assert [path for path, answer in answers.items() if not refused(answer)] == []
    assert Job.objects.count() == jobs
    for kind in (PlacementRun, WhatIf, Forecast, PlanComparison, Report):
        assert not kind.objects.exists(), kind


def test_proposal_stays_unapplied_without_a_broker(cluster: Cluster, api: APIClient, settings: Any) -> None:
    run, _ = PLACEMENT.request(cluster=cluster, user=None, budget_s=0.2)
    run_jobs()
    jobs = without_redis(settings)
    assert refused(api.post(f"/api/v1/placements/{run.pk}/apply", {}, format="json"))
    run.refresh_from_db()
    assert (run.state, run.batches, run.moves_job) == (RunState.PROPOSED, 0, None)
    assert set(run.moves.values_list("state", "batch")) == {(MoveState.PENDING, 0)}
    assert Job.objects.count() == jobs
