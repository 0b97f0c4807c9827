"""Everything that a job does is answered in one of two shapes: 202 with the job, or the result that was waited for."""

from __future__ import annotations

import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import settings
from drf_spectacular.generators import SchemaGenerator

from apps.jobs import api as jobs_api
from apps.jobs.api import JobSerializer
from apps.jobs.models import JobState
from tests.apps import small_cluster
from tests.apps.contracts.test_endpoints import address, client_of

pytestmark = pytest.mark.django_db

_STAGE = {"engine": "stage", "rate": 100.0, "constraint_s": 60.0, "max_nodes": 2}
_STAGE_PROFILE = {"alpha": 0.5, "c_map": 1e3, "c_red": 1e3, "b_in": 100.0, "b_out": 100.0}
#: Bodies that the world of the contracts answers with a job; {name} is a part of it.
BODIES: dict[str, dict[str, Any]] = {
    "admission-list": {"cluster": "{cluster}", "query": "draft", "may_wait_s": 1},
    "admission-preview": {},
    "admission-group-list": {"cluster": "{cluster}", "members": [{"query": "draft"}, {"query": "paired"}]},
    "admission-group-preview": {},
    "estimate-list": {"cluster": "{cluster}"},
    "accuracy-simulation": {"cluster": "{cluster}"},
    "query-plans": {},
    "query-parallelism": {},
    "query-remedies": {},
    "placement-list": {"cluster": "{cluster}", "budget_s": 0.1},
    "backtest-list": {"cluster": "{cluster}"},
    "evacuation-list": {"cluster": "{cluster}", "nodes": ["n1"]},
    "event-run-list": {"event": "{event}"},
    "forecast-list": {"cluster": "{cluster}", "horizon_days": 1},
    "what-if-list": {"cluster": "{cluster}", "options": {"seed": 7}},
    "resource-plan-list": {"cluster": "{cluster}", **_STAGE, "profile": _STAGE_PROFILE},
    "report-definition-run": {},
}
#: These need what a small world does not have: moves to make, executions or epochs that were recorded, 300 operators,
#: an engine that answers, a Spark of their own.
#: Tests of their rooms have it; here they are held to the one function that answers.
ELSEWHERE = {"placement-apply", "placement-undo", "fine-tuning-list", "schedule-replay", "cluster-document"}
ELSEWHERE |= {"admission-complete", "connection-check", "connection-import", "connection-refresh", "history"}
ELSEWHERE |= {"query-capacity", "admission-replay", "month-replay"}


#: Those whose result is several rows of a list.
LISTS = {"accuracy-simulation"}
#: Those whose result is that of a query, without a number of its own.
OF_QUERY = {"query-parallelism", "query-remedies"}


def body_of(name: str, world: dict[str, Any]) -> dict[str, Any]:
    return {key: value.format(**world) if isinstance(value, str) else value for key, value in BODIES[name].items()}


def test_every_operation_with_a_job_is_in_this_contract(world: dict[str, Any]) -> None:
    schema: Any = SchemaGenerator().get_schema(request=None, public=True)
    described = set()
    for path, methods in schema["paths"].items():
        for operation in methods.values():
            if "202" in operation["responses"]:
                described.add(re.sub(r"\{\w+\}", "{}", path))
                assert set(operation["responses"]["202"]["headers"]) == {"Location"}
                assert {"Content-Location", "Preference-Applied"} <= set(operation["responses"]["200"]["headers"])
                assert "Prefer" in {row["name"] for row in operation["parameters"]}
    assert described == {_shape(name, world) for name in {*BODIES, *ELSEWHERE}}


def _shape(name: str, world: dict[str, Any]) -> str:
    from tests.apps.contracts.endpoints import ENDPOINTS

    path = address(name, world)
    for value in ENDPOINTS[name].at.values():
        path = path.replace(f"/{world.get(value, value)}", "/{}")
    return path


def test_one_function_answers_with_202() -> None:
    apps = Path(settings.BASE_DIR) / "apps"
    found = {file.relative_to(apps).as_posix() for file in apps.rglob("*.py") if "status=202" in file.read_text()}
    assert found == {"jobs/api.py"}


@pytest.mark.parametrize("name", BODIES)
def test_answer_is_202_with_the_job(name: str, world: dict[str, Any]) -> None:
    answer = client_of("admin").post(address(name, world), body_of(name, world), format="json")
    assert answer.status_code == 202, answer.content
    job = answer.json()
    assert set(job) == set(JobSerializer.Meta.fields)
    assert answer["Location"] == job["url"] == f"/api/v1/jobs/{job['id']}"
    assert (job["state"], job["progress"], job["step"], job["error"]) == (JobState.QUEUED, 0.0, "", None)
    assert "Preference-Applied" not in answer and "Content-Location" not in answer
    if job["result_api_url"]:
        assert client_of("admin").get(job["result_api_url"]).status_code == 200


@pytest.mark.parametrize("name", BODIES)
def test_wait_that_is_met_answers_200_with_the_result(
    name: str, world: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause between two looks at the job is when this test's worker does it."""
    pause = SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: small_cluster.run_jobs())
    monkeypatch.setattr(jobs_api, "time", pause)
    client = client_of("admin")
    answer = client.post(
        address(name, world), body_of(name, world), format="json", headers={"Prefer": "respond-async, wait=60"}
    )
    assert (answer.status_code, answer["Preference-Applied"]) == (200, "wait=30"), answer.content
    assert "Location" not in answer
    assert not answer["Content-Location"].startswith("/api/v1/jobs/")
    found = client.get(answer["Content-Location"]).json()
    if name in LISTS:
        assert len(found["results"]) == answer.json()["runs"] > 0
    elif name in OF_QUERY:
        assert found == answer.json()
    else:
        assert found["id"] == answer.json()["id"]
