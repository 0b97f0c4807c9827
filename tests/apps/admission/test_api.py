"""REST: admission requests and what may be done with them, by whom."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.admission.models import AdmissionRequest
from apps.fleet.models import Cluster
from apps.fleet.services import node_update
from apps.jobs.models import Job, JobKind, JobState
from apps.jobs.runner import run_job
from apps.queries.models import Query
from tests.apps.recordings import recorded
from tests.apps.small_cluster import body, make_query, run_jobs, small_cluster, start_query
from workers.jobs import JOB_WORK

pytestmark = pytest.mark.django_db

URL = "/api/v1/admissions"


@pytest.fixture
def cluster() -> Cluster:
    return recorded(_busy_cluster)


def _busy_cluster() -> Cluster:
    cluster = small_cluster()
    start_query(cluster, "first", 0.6, "a")
    start_query(cluster, "second", 0.4, "b")
    make_query(cluster, "third", 0.5)
    return cluster


@pytest.fixture
def admitter(api_of: Any) -> Any:
    return api_of("admitter")


def ask(client: Any, **asked: Any) -> Any:
    return client.post(URL, {"cluster": "little", "query": "third", **asked}, format="json")


def decided(client: Any, **asked: Any) -> str:
    """Address of a request that has its verdict."""
    address = ask(client, **asked).json()["result_api_url"]
    run_jobs()
    return address


def test_a_preview_is_a_job_and_a_request(admitter: Any, cluster: Any) -> None:
    answer = ask(admitter, reason="A try")
    assert answer.status_code == 202
    estimating = admitter.get(answer.json()["result_api_url"]).json()
    assert (estimating["state"], estimating["verdict"], estimating["decision"]) == ("estimating", "", None)
    run_jobs()
    job = admitter.get(answer["Location"]).json()
    assert job["result"] == {"verdict": "admit", "state": "preview"}
    assert job["result_api_url"] == answer.json()["result_api_url"]
    request = admitter.get(job["result_api_url"]).json()
    assert (request["query"], request["version"], request["verdict"], request["reason"]) == (
        "third",
        1,
        "admit",
        "A try",
    )
    assert request["decision"]["placement"] == {"third/work": [{"node": "b", "core": 0, "fraction": 1.0}]}
    assert request["headline"] == request["decision"]["headline"]
    assert request["standing"]["can_apply"]
    applied = admitter.post(f"{job['result_api_url']}/apply")
    assert (applied.status_code, applied.json()["state"], applied.json()["decided_by"]) == (
        200,
        "applied",
        "a-admitter",
    )
    again = admitter.post(f"{job['result_api_url']}/apply")
    assert (again.status_code, again.json()["code"]) == (409, "wrong_state")


def test_apply_returns_409_with_changes_when_the_cluster_moved(admitter: Any, cluster: Any) -> None:
    address = decided(admitter)
    node_update(node=cluster.nodes.get(name="a"), capacity_cps=990.0)
    answer = admitter.post(f"{address}/apply")
    assert (answer.status_code, answer.json()["code"]) == (409, "stale")
    assert answer.json()["changed"][0].startswith("node a: capacity changed")
    AdmissionRequest.objects.update(valid_until=timezone.now() - timedelta(seconds=1))
    assert admitter.post(f"{address}/apply").json()["code"] == "expired"


def test_rejected_request_needs_an_alternative_or_an_override(admitter: Any, cluster: Any) -> None:
    make_query(cluster, "fourth", 0.65)
    address = decided(admitter, query="fourth")
    refused = admitter.post(f"{address}/apply")
    assert (refused.status_code, refused.json()["code"]) == (422, "verdict_reject")
    unknown = admitter.post(f"{address}/preview", {"choice": "nonsense"}, format="json")
    assert (unknown.status_code, unknown.json()["faults"][0]["path"]) == (400, "choice")
    choice = admitter.get(address).json()["decision"]["choices"][0]
    child = admitter.post(f"{address}/preview", {"choice": choice["id"]}, format="json")
    assert child.status_code == 202
    run_jobs()
    taken = admitter.get(child.json()["result_api_url"]).json()
    assert (taken["verdict"], taken["parent"]) == ("admit_with_changes", address.rsplit("/", 1)[1])
    assert admitter.post(f"{address}/override", {}, format="json").status_code == 400
    forced = admitter.post(f"{address}/override", {"reason": "Now"}, format="json")
    assert (forced.status_code, forced.json()["overridden"]) == (200, True)


def test_curves_come_with_the_verdict(admitter: Any, cluster: Any) -> None:
    address = ask(admitter, placement={"work": "a"}).json()["result_api_url"]
    before = admitter.get(f"{address}/curves").json()
    assert before == {"starts_at": None, "step_s": None, "before": None, "after": None, "choices": {}}
    run_jobs()
    request = admitter.get(address).json()
    assert request["verdict"] == "reject"
    assert "curves" not in request["decision"]
    curves = admitter.get(f"{address}/curves").json()
    assert curves["starts_at"] == request["previewed_at"]
    effects = {row["query"]: row for row in request["decision"]["effects"]}
    assert set(curves["after"]["queries"]) == {"first", "third"}
    for name, path in curves["after"]["queries"].items():
        assert max(path) == pytest.approx(effects[name]["flow_s"], rel=1e-3)
        assert 0 < len(path) <= 120 and len(path) * curves["step_s"] >= cluster.horizon_s
    assert "first" in curves["before"]["queries"] and "third" not in curves["before"]["queries"]
    assert set(curves["choices"]) == {choice["id"] for choice in request["decision"]["choices"]}
    peak = next(node["after_peak"] for node in request["decision"]["nodes"] if node["node"] == "a")
    assert max(curves["after"]["nodes"]["a"]) == pytest.approx(peak, abs=1e-3)


def test_request_has_the_states_of_its_parts(admitter: Any, cluster: Any) -> None:
    address = ask(admitter).json()["result_api_url"]
    assert admitter.get(address).json()["parts"] == {}
    run_first(JobKind.ADMISSION_PREVIEW)
    first = admitter.get(address).json()
    assert first["verdict"] == "admit"
    passes = {"state": "does_not_apply", "message": "It passes as asked: no change is needed.", "seconds": None}
    assert first["parts"]["alternatives"] == passes
    assert first["parts"]["robustness"] == {"state": "pending", "message": "", "seconds": None}
    assert (first["decision"]["robustness"], first["decision"]["thin"]) == (None, "pending")
    assert admitter.post(f"{address}/parts").json()["code"] == "under_way"
    run_first(JobKind.ADMISSION_PARTS)
    last = admitter.get(address, HTTP_PREFER="wait=20")
    assert last["Preference-Applied"] == "wait=20"
    assert last.json()["parts"]["robustness"]["state"] == "done"
    assert last.json()["decision"]["robustness"]
    job = admitter.get(f"/api/v1/jobs/{last.json()['parts_job']}").json()
    assert job["result"] == {"admission": last.json()["id"], "alternatives": "does_not_apply", "robustness": "done"}
    assert job["result_api_url"] == address
    assert admitter.post(f"{address}/parts").json()["code"] == "nothing_to_compute"


def test_parts_are_computed_again_by_a_post(admitter: Any, cluster: Any) -> None:
    address = ask(admitter).json()["result_api_url"]
    run_first(JobKind.ADMISSION_PREVIEW)
    admitter.post(f"/api/v1/jobs/{admitter.get(address).json()['parts_job']}/cancel")
    assert admitter.get(address).json()["parts"]["robustness"]["state"] == "cancelled"
    again = admitter.post(f"{address}/parts")
    assert (again.status_code, again.json()["result_api_url"]) == (202, address)
    run_first(JobKind.ADMISSION_PARTS)
    assert admitter.get(address).json()["parts"]["robustness"]["state"] == "done"


def run_first(kind: JobKind) -> None:
    """Do the first job of a kind that waits."""
    job = Job.objects.filter(state=JobState.QUEUED, kind=kind).earliest("created_at")
    run_job(job.pk, JOB_WORK[kind])


def test_an_idempotency_key_replays_the_answer(admitter: Any, cluster: Any) -> None:
    key = {"HTTP_IDEMPOTENCY_KEY": "k-1"}
    asked = {"cluster": "little", "query": "third"}
    first = admitter.post(URL, asked, format="json", **key)
    run_jobs()
    second = admitter.post(URL, asked, format="json", **key)
    assert second["Idempotency-Replayed"] == "true"
    assert second.json()["id"] == first.json()["id"]
    assert AdmissionRequest.objects.count() == 1


def test_operator_asks_for_a_review_but_does_not_apply(api_of: Any, cluster: Any) -> None:
    operator = api_of("operator")
    assert ask(operator, mode="apply").status_code == 403
    address = decided(operator)
    assert operator.post(f"{address}/request-review", {"reason": "Please"}, format="json").json()["state"] == "awaiting"
    assert operator.post(f"{address}/withdraw").json()["state"] == "withdrawn"


def test_admissions_are_filtered_by_parameters(api_of: Any, cluster: Any) -> None:
    operator, admitter = api_of("operator"), api_of("admitter")
    make_query(cluster, "fourth", 0.9)
    decided(operator)
    decided(admitter, query="fourth")

    def names(query: str) -> list[str]:
        return [row["query"] for row in operator.get(f"{URL}?{query}").json()["results"]]

    assert names("") == ["fourth", "third"]
    assert names("verdict=reject") == ["fourth"]
    assert names("state=preview&state=queued") == ["fourth", "third"]
    assert names("state=queued") == []
    assert names("mine=true") == ["third"]
    assert names("cluster=little&query=third") == ["third"]
    assert operator.get(f"{URL}?verdict=perhaps").status_code == 400


@pytest.mark.parametrize(
    ("asked", "status", "path"),
    [
        ({"query": None, "document": None}, 400, "query"),
        ({"document": {"query": "x"}}, 400, ""),
        ({"cluster": "nowhere"}, 404, "cluster"),
        ({"query": "nobody"}, 404, "query"),
        ({"version": 9}, 404, "version"),
        ({"mode": "maybe"}, 400, "mode"),
        ({"may_wait_s": -1}, 400, "may_wait_s"),
        ({"may_wait_s": "soon"}, 400, "may_wait_s"),
        ({"objective": {"statistic": "q1.5", "bound_s": 1}}, 400, "objective.statistic"),
        ({"objective": {"statistic": "worst"}}, 400, "objective.bound_s"),
        ({"placement": {"work": "zz"}}, 400, "placement.work"),
        ({"placement": {"wurk": "a"}}, 400, "placement.wurk"),
        ({"placement": {"work": "a#1"}}, 400, "placement.work"),
        ({"changes": [{"kind": "wish"}]}, 400, "changes[0].kind"),
        ({"changes": [{"kind": "scale_rate", "query": "third", "share": 2}]}, 400, "changes[0].share"),
        ({"plcement": {}}, 400, "plcement"),
    ],
)
def test_faults_name_their_field(admitter: Any, cluster: Any, asked: dict[str, Any], status: int, path: str) -> None:
    answer = ask(admitter, **asked)
    assert answer.status_code == status
    assert path in [fault["path"] for fault in answer.json()["faults"]]
    assert not AdmissionRequest.objects.exists()


def test_faulty_document_is_refused_whole(admitter: Any, cluster: Any) -> None:
    cyclic = {
        "query": "round",
        "operators": [
            {"id": "x", "inputs": [{"from": "y", "selectivity": 1, "cycles_per_event": 1}]},
            {"id": "y", "inputs": [{"from": "x", "selectivity": 1, "cycles_per_event": -1}]},
        ],
    }
    answer = admitter.post(URL, {"cluster": "little", "document": cyclic}, format="json")
    assert answer.status_code == 400
    assert "document.operators[1].inputs[0].cycles_per_event" in [f["path"] for f in answer.json()["faults"]]
    cyclic["operators"][1]["inputs"][0]["cycles_per_event"] = 1
    answer = admitter.post(URL, {"cluster": "little", "document": cyclic}, format="json")
    assert answer.status_code == 400
    assert "cycle" in answer.json()["detail"]
    assert not Query.objects.filter(name="round").exists()


def test_document_is_previewed(admitter: Any, cluster: Any) -> None:
    document = {"query": "new", **body(0.2), "objective": {"statistic": "q0.99", "bound_s": 1.0}}
    answer = admitter.post(URL, {"cluster": "little", "document": document, "mode": "apply"}, format="json")
    run_jobs()
    request = admitter.get(answer.json()["result_api_url"]).json()
    assert (request["state"], request["verdict"], request["mode"]) == ("applied", "admit", "apply")


def test_preview_without_redis_stores_nothing(admitter: Any, cluster: Any, settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    document = {"query": "new", **body(0.2)}
    answer = admitter.post(URL, {"cluster": "little", "document": document}, format="json")
    assert answer.status_code == 503
    assert not Query.objects.filter(name="new").exists()
    assert not AdmissionRequest.objects.exists()
    assert admitter.get(URL).status_code == 200
