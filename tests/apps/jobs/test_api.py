"""Jobs over REST, and answers that wait for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from rest_framework.request import Request
from rest_framework.test import APIClient, APIRequestFactory

from apps.accounts.models import User
from apps.core.errors import Impossible
from apps.core.rest.api import PromisedResponse
from apps.jobs import api as jobs_api
from apps.jobs.api import job_response
from apps.jobs.models import Job, JobKind, JobState
from apps.jobs.runner import JobOutcome, run_job
from apps.jobs.services import job_submit


@pytest.fixture
def job(user_of: Callable[..., User]) -> Job:
    return Job.objects.create(kind=JobKind.ESTIMATE, title="Estimate it", requested_by=user_of("operator"))


def asked(prefer: str = "") -> Request:
    return Request(APIRequestFactory().post("/", headers={"Prefer": prefer} if prefer else {}))


@pytest.mark.django_db
def test_job_is_returned_with_every_field(api: APIClient, job: Job) -> None:
    body = api.get(f"/api/v1/jobs/{job.pk}").json()
    assert body["url"] == f"/api/v1/jobs/{job.pk}"
    assert (body["state"], body["progress"], body["requested_by"]) == ("queued", 0.0, "a-operator")


@pytest.mark.django_db
def test_jobs_are_filtered(api: APIClient, job: Job, user_of: Callable[..., User]) -> None:
    other = Job.objects.create(kind=JobKind.ESTIMATE_DOCUMENT, title="Other", state=JobState.FAILED)

    def found(query: str) -> set[str]:
        return {row["id"] for row in api.get(f"/api/v1/jobs?{query}").json()["results"]}

    assert found("") == {str(job.pk), str(other.pk)}
    assert found("state=failed") == {str(other.pk)}
    assert found("state=failed&state=queued") == {str(job.pk), str(other.pk)}
    assert found("mine=true") == {str(job.pk)}
    assert found(f"kind={JobKind.ESTIMATE_DOCUMENT}") == {str(other.pk)}
    assert found("cluster=none") == set()
    refused = api.get("/api/v1/jobs?state=lost")
    assert (refused.status_code, refused.json()["faults"][0]["path"]) == (400, "state")
    refused = api.get("/api/v1/jobs?stat=failed&x=1")
    allowed = "state, kind, cluster, mine, created_at, finished_at, sort, cursor, page_size"
    assert refused.status_code == 400
    assert refused.json()["faults"] == [
        {"path": "stat", "message": "unknown parameter; did you mean state?"},
        {"path": "x", "message": f"unknown parameter; allowed are {allowed}"},
    ]


@pytest.mark.django_db
def test_list_needs_the_same_number_of_statements_for_more_rows(
    api: APIClient, user_of: Callable[..., User], django_assert_max_num_queries: Any
) -> None:
    user = user_of("operator")
    Job.objects.bulk_create(Job(kind=JobKind.ESTIMATE, title=f"{n}", requested_by=user) for n in range(40))
    api.get("/api/v1/jobs")
    with django_assert_max_num_queries(3):
        assert len(api.get("/api/v1/jobs").json()["results"]) == 40


@pytest.mark.django_db
def test_cancellation_needs_the_operate_scope(api_of: Callable[..., APIClient], job: Job) -> None:
    refused = api_of("viewer").post(f"/api/v1/jobs/{job.pk}/cancel")
    assert (refused.status_code, refused.json()["code"]) == (403, "scope_missing")
    assert "Operator" in refused.json()["detail"]
    assert api_of("operator").post(f"/api/v1/jobs/{job.pk}/cancel").json()["state"] == "cancelled"
    Job.objects.update(state=JobState.SUCCEEDED)
    assert api_of("operator").post(f"/api/v1/jobs/{job.pk}/cancel").status_code == 409


def answered(response: Any) -> Any:
    """The answer that the client gets: a view waits once the effect is committed."""
    return response.finish() if isinstance(response, PromisedResponse) else response


@pytest.mark.django_db
def test_unknown_job_returns_404(api: APIClient) -> None:
    assert api.get("/api/v1/jobs/nonsense").status_code == 404


@pytest.mark.django_db
def test_request_without_prefer_wait_returns_202(job: Job) -> None:
    answer = job_response(asked(), job)
    assert (answer.status_code, answer["Location"]) == (202, f"/api/v1/jobs/{job.pk}")
    assert answer.data["state"] == "queued"


@pytest.mark.django_db
def test_wait_that_is_too_short_returns_202(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        """Time that passes only in sleep."""

        now_s = 100.0

        def monotonic(self) -> float:
            return self.now_s

        def sleep(self, seconds: float) -> None:
            self.now_s += seconds

    clock = Clock()
    monkeypatch.setattr(jobs_api, "time", clock)
    assert answered(job_response(asked("respond-async, wait=1"), job)).status_code == 202
    assert clock.now_s == pytest.approx(101.0)


@pytest.mark.django_db(transaction=True)
def test_wait_returns_the_result_of_a_finished_job() -> None:
    job = job_submit(JobKind.ESTIMATE, "Estimate it", {})

    def worker() -> None:
        time.sleep(0.2)
        run_job(job.pk, lambda report: JobOutcome({"worst_s": 3.5}, api_url="/api/v1/estimates/1"))
        connection.close()

    thread = threading.Thread(target=worker)
    thread.start()
    answer = answered(job_response(asked("wait=30"), job, lambda job: job.result))
    thread.join()
    assert (answer.status_code, answer.data) == (200, {"worst_s": 3.5})
    assert answer["Content-Location"] == "/api/v1/estimates/1"
    assert answer["Preference-Applied"] == "wait=30"


@pytest.mark.django_db
def test_wait_for_a_failed_job_returns_its_refusal(job: Job) -> None:
    faults = [{"path": "operators[0]", "message": "has no node"}]
    Job.objects.update(state=JobState.FAILED, error={"code": "infeasible", "message": "No room.", "faults": faults})
    with pytest.raises(Impossible) as caught:
        answered(job_response(asked("wait=1"), job))
    assert caught.value.as_dict() == {"code": "infeasible", "message": "No room.", "faults": faults}
