"""The webhook of Kubernetes: what is asked, answered and kept."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from rest_framework.test import APIClient

from apps.accounts.services import token_create
from apps.admission.models import AdmissionRequest
from apps.fleet.models import Cluster
from apps.jobs.models import Job, JobKind
from apps.kubernetes.models import KubernetesReview
from apps.queries.models import Query, QueryVersion
from tests.apps.policies.documents import set_policy
from tests.apps.small_cluster import body as plan
from tests.apps.small_cluster import run_jobs

pytestmark = pytest.mark.django_db

URL = "/webhooks/kubernetes/admission/little"
Review = Callable[..., dict[str, Any]]


def send(client: APIClient, body: Any, url: str = f"{URL}?timeout=10s") -> dict[str, Any]:
    answer = client.post(url, body, format="json")
    assert answer.status_code == 200, answer.content
    assert answer.json()["kind"] == "AdmissionReview" and answer.json()["apiVersion"] == "admission.k8s.io/v1"
    response: dict[str, Any] = answer.json()["response"]
    assert response["uid"] == body["request"]["uid"], "the API server compares it"
    return response


def test_a_job_that_fits_is_allowed_and_an_ordinary_request_says_why(
    api: APIClient, cluster: Cluster, review: Review, worker: None
) -> None:
    response = send(api, review("flink_create"))
    assert response["allowed"] is True
    row = KubernetesReview.objects.get()
    assert (row.kind, row.path, row.operation, row.dry_run) == ("FlinkDeployment", "streams/third", "CREATE", False)
    assert row.username == "system:serviceaccount:argocd:argocd-application-controller"
    assert row.admission is not None and (row.admission.verdict, row.admission.source) == ("admit", "kubernetes")
    assert "FlinkDeployment streams/third" in row.admission.reason


def test_a_job_that_does_not_fit_is_denied_with_the_reason(
    api: APIClient, cluster: Cluster, review: Review, worker: None
) -> None:
    body = review("flink_create")
    body["request"]["object"]["metadata"]["annotations"]["sluice.io/query"] = "big"
    response = send(api, body)
    assert response["allowed"] is False
    assert response["status"]["code"] == 403
    assert "/c/little/admission/" in response["status"]["message"] and "big" in response["status"]["message"]
    assert "\n" not in response["status"]["message"]
    assert Query.objects.get(name="big").state == "draft"


def test_an_admitted_query_runs_where_the_token_may_admit(
    api_of: Any, cluster: Cluster, review: Review, worker: None
) -> None:
    send(api_of("admitter"), review("flink_create"))
    assert Query.objects.get(name="third").state == "running"
    assert KubernetesReview.objects.get().admission.state == "applied"  # type: ignore[union-attr]


def test_a_token_that_may_not_admit_only_previews(
    api: APIClient, cluster: Cluster, review: Review, worker: None
) -> None:
    send(api, review("flink_create"))
    assert Query.objects.get(name="third").state == "draft"


def test_a_dry_run_starts_nothing_and_leaves_no_open_request(
    api_of: Any, cluster: Cluster, review: Review, worker: None
) -> None:
    response = send(api_of("admitter"), review("flink_dry_run"))
    assert response["allowed"] is True
    row = KubernetesReview.objects.get()
    assert row.dry_run and row.admission is not None
    assert (row.admission.verdict, row.admission.state) == ("admit", "withdrawn")
    assert Query.objects.get(name="third").state == "draft"


def dry_run_of(review: Review, document: dict[str, Any]) -> dict[str, Any]:
    body = review("flink_dry_run")
    body["request"]["object"]["metadata"]["annotations"]["sluice.io/document"] = json.dumps(document)
    return body


@pytest.mark.parametrize(("load", "verdict"), [(0.1, "Admit"), (0.95, "Reject")])
def test_a_dry_run_with_a_document_is_estimated_and_registers_nothing(
    api: APIClient, cluster: Cluster, review: Review, worker: None, load: float, verdict: str
) -> None:
    Cluster.objects.update(kubernetes_unknown="allow")
    document = {"query": "fourth", **plan(load), "objective": {"statistic": "worst", "bound_s": 5.0}}
    models = (Query, QueryVersion, AdmissionRequest)
    before = [model.objects.count() for model in models]
    response = send(api, dry_run_of(review, document))
    assert response["allowed"] is (verdict == "Admit")
    assert response["status"]["message"].startswith(f"{verdict}: ")
    assert [model.objects.count() for model in models] == before
    row, job = KubernetesReview.objects.get(), Job.objects.get()
    assert (row.basis, row.dry_run, row.admission) == ("verdict", True, None)
    assert (job.kind, job.params) == (JobKind.DRY_RUN, {}), "nothing of the document stays"


@pytest.mark.parametrize(("fallback", "allowed"), [("allow", True), ("deny", False)])
def test_a_dry_run_without_a_verdict_in_time_is_answered_by_the_rule_and_cancelled(
    api: APIClient, cluster: Cluster, review: Review, fallback: str, allowed: bool
) -> None:
    Cluster.objects.update(kubernetes_late=fallback)
    body = dry_run_of(review, {"query": "fourth", **plan(0.1)})
    response = send(api, body, f"{URL}?timeout=100ms")  # no worker is there
    assert response["allowed"] is allowed
    assert KubernetesReview.objects.get().basis == "late"
    assert (Job.objects.get().state, Job.objects.get().params) == ("cancelled", {})


def test_a_dry_run_of_a_faulty_document_is_not_known_and_says_the_fault(
    api: APIClient, cluster: Cluster, review: Review, worker: None
) -> None:
    Cluster.objects.update(kubernetes_unknown="deny")
    response = send(api, dry_run_of(review, {"query": "fourth", "operators": [{"id": "a"}]}))
    assert response["allowed"] is False and "document.operators" in response["status"]["message"]
    assert not Job.objects.exists()


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_document_in_an_annotation_is_registered_and_decided_on(
    api: APIClient, cluster: Cluster, review: Review, worker: None, form: str
) -> None:
    document = {**plan(0.1), "objective": {"statistic": "worst", "bound_s": 5.0}}
    text = json.dumps(document) if form == "json" else yaml.safe_dump(document)
    body = review("flink_create")
    body["request"]["object"]["metadata"]["name"] = "fourth"
    body["request"]["object"]["metadata"]["annotations"]["sluice.io/document"] = text
    assert send(api, body)["allowed"] is True
    assert Query.objects.get(name="fourth").admissions.get().verdict == "admit"


def test_the_same_review_asked_twice_is_answered_once(
    api: APIClient, cluster: Cluster, review: Review, worker: None
) -> None:
    first = send(api, review("flink_create"))
    assert send(api, review("flink_create")) == first
    assert KubernetesReview.objects.count() == 1 and AdmissionRequest.objects.count() == 1


def test_a_uid_of_another_question_is_denied_and_changes_nothing(
    api: APIClient, cluster: Cluster, review: Review, worker: None
) -> None:
    send(api, review("flink_create"))
    other = review("spark_create", uid=review("flink_create")["request"]["uid"])
    response = send(api, other)
    assert (response["allowed"], response["status"]["code"]) == (False, 409)
    assert KubernetesReview.objects.get().kind == "FlinkDeployment"


@pytest.mark.parametrize("name", ["session_create", "spark_create"])
def test_session_jobs_and_spark_applications_are_decided_on(
    api: APIClient, cluster: Cluster, review: Review, worker: None, name: str
) -> None:
    response = send(api, review(name))
    assert response["allowed"] is True
    assert KubernetesReview.objects.get().basis == "verdict"


def test_deleting_is_allowed_without_a_look(api: APIClient, cluster: Cluster, review: Review) -> None:
    assert send(api, review("flink_delete"))["allowed"] is True
    assert KubernetesReview.objects.get().path == "streams/third"
    assert not AdmissionRequest.objects.exists()


def test_an_update_of_nothing_but_metadata_is_allowed(api: APIClient, cluster: Cluster, review: Review) -> None:
    body = review("flink_update")
    body["request"]["object"] = copy.deepcopy(body["request"]["oldObject"])
    body["request"]["object"]["metadata"]["finalizers"] = ["flinkdeployments.flink.apache.org/finalizer"]
    assert send(api, body)["allowed"] is True
    assert KubernetesReview.objects.get().basis == "unchanged"


def test_an_update_that_resumes_a_job_is_decided_on(
    api: APIClient, cluster: Cluster, review: Review, worker: None
) -> None:
    body = review("flink_update")
    body["request"]["object"]["spec"]["job"]["state"] = "suspended"
    assert send(api, body)["allowed"] is True
    assert KubernetesReview.objects.get().basis == "stops"
    resumed = review("flink_update", uid="resumed")
    resumed["request"]["oldObject"]["spec"]["job"]["state"] = "suspended"
    send(api, resumed)
    assert KubernetesReview.objects.get(uid="resumed").basis == "verdict"


def test_a_query_that_runs_already_needs_no_verdict(api: APIClient, cluster: Cluster, review: Review) -> None:
    body = review("flink_update")
    body["request"]["object"]["metadata"]["annotations"]["sluice.io/query"] = "first"
    response = send(api, body)
    assert response["allowed"] is True and KubernetesReview.objects.get().basis == "running"
    assert "parallelism of 2" in response["warnings"][0]


@pytest.mark.parametrize(("fallback", "allowed"), [("allow", True), ("deny", False)])
def test_an_unknown_job_is_answered_by_the_rule_of_the_cluster(
    api: APIClient, cluster: Cluster, review: Review, fallback: str, allowed: bool
) -> None:
    Cluster.objects.update(kubernetes_unknown=fallback)
    body = review("flink_create")
    body["request"]["object"]["metadata"]["name"] = "nobody-knows-it"
    response = send(api, body)
    assert response["allowed"] is allowed
    text = response["warnings"][0] if allowed else response["status"]["message"]
    assert "sluice.io/query" in response["status"]["message"] and "rule" in text


@pytest.mark.parametrize(("fallback", "allowed"), [("allow", True), ("deny", False)])
def test_no_verdict_in_time_is_answered_by_the_rule_of_the_cluster(
    api: APIClient, cluster: Cluster, review: Review, fallback: str, allowed: bool
) -> None:
    Cluster.objects.update(kubernetes_late=fallback)
    response = send(api, review("flink_create"), f"{URL}?timeout=100ms")  # no worker is there
    assert response["allowed"] is allowed
    row = KubernetesReview.objects.get()
    assert (row.basis, row.admission.verdict) == ("late", "")  # type: ignore[union-attr]
    assert row.waited_s < 5


@pytest.mark.parametrize(("fallback", "state"), [("allow", "applied"), ("deny", "preview")])
def test_verdict_that_comes_late_is_applied_only_where_the_job_was_let_in(
    api_of: Any, cluster: Cluster, review: Review, fallback: str, state: str
) -> None:
    Cluster.objects.update(kubernetes_late=fallback)
    send(api_of("admitter"), review("flink_create"), f"{URL}?timeout=100ms")
    run_jobs()
    assert KubernetesReview.objects.get().admission.state == state  # type: ignore[union-attr]


def test_reviews_at_once_are_decided_on_beside_each_other(
    api_of: Any, cluster: Cluster, review: Review, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that fit alone and not together: both are asked before either is answered."""
    first = {"query": "one", **plan(0.5), "objective": {"statistic": "worst", "bound_s": 5.0}}
    second = {**first, "query": "two"}
    bodies = [review("flink_create", uid=uid) for uid in ("1", "2")]
    for body, document in zip(bodies, (first, second), strict=True):
        body["request"]["object"]["metadata"]["annotations"]["sluice.io/document"] = json.dumps(document)
    waiting = [bodies[1]]
    answers: list[dict[str, Any]] = []

    def work(job: Job, wait_s: float) -> None:
        if waiting:
            answers.append(send(api_of("admitter"), waiting.pop()))
        run_jobs()
        job.refresh_from_db()

    monkeypatch.setattr("apps.jobs.api.job_wait", work)
    answers.append(send(api_of("admitter"), bodies[0]))
    assert sorted(answer["allowed"] for answer in answers) == [False, True]
    assert Query.objects.filter(name__in=("one", "two"), state="running").count() == 1


@pytest.mark.parametrize(("fallback", "allowed"), [("allow", True), ("deny", False)])
def test_a_review_by_a_person_is_answered_by_the_rule_of_the_cluster(
    api: APIClient, cluster: Cluster, review: Review, worker: None, fallback: str, allowed: bool
) -> None:
    Cluster.objects.update(kubernetes_review=fallback)
    set_policy(cluster, evidence={"assumed": "review"})
    response = send(api, review("flink_create"))
    assert response["allowed"] is allowed
    assert KubernetesReview.objects.get().admission.state == "awaiting"  # type: ignore[union-attr]


def test_less_parallelism_than_was_measured_is_never_simply_admitted(
    api: APIClient, cluster: Cluster, review: Review, worker: None
) -> None:
    operator = Query.objects.get(name="third").versions.get().operators.get()
    operator.requested = [{"node": "a", "core": 0, "fraction": 0.5}, {"node": "b", "core": 0, "fraction": 0.5}]
    operator.save()
    Cluster.objects.update(kubernetes_review="deny")
    response = send(api, review("flink_create"))
    assert response["allowed"] is False and "parallelism of 1" in response["status"]["message"]


def test_another_kind_is_let_through_with_a_warning(api: APIClient, cluster: Cluster, review: Review) -> None:
    body = review("flink_create")
    body["request"]["object"] |= {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []}}
    response = send(api, body)
    assert response["allowed"] is True and "Pod v1" in response["warnings"][0]


def test_another_version_of_a_known_kind_is_not_known(api: APIClient, cluster: Cluster, review: Review) -> None:
    Cluster.objects.update(kubernetes_unknown="deny")
    body = review("flink_create")
    body["request"]["object"]["apiVersion"] = "flink.apache.org/v2"
    assert send(api, body)["allowed"] is False


def test_an_object_of_ten_thousand_containers_is_answered(
    api: APIClient, cluster: Cluster, review: Review, worker: None
) -> None:
    body = review("flink_create")
    containers = [{"name": f"c{i}", "image": "registry.example.org/a:1", "env": [{"name": "X", "value": "y" * 220}]}
                  for i in range(10_000)]  # fmt: skip
    body["request"]["object"]["spec"]["podTemplate"]["spec"]["containers"] = containers
    assert len(json.dumps(body)) > 2_500_000
    assert send(api, body)["allowed"] is True


@pytest.mark.parametrize(
    "spec", [None, [], 7, {"job": "x", "flinkConfiguration": []}, {"job": {"parallelism": "four"}}]
)
def test_a_specification_that_is_none_is_answered_by_the_rule(
    api: APIClient, cluster: Cluster, review: Review, worker: None, spec: Any
) -> None:
    body = review("flink_create")
    body["request"]["object"]["spec"] = spec
    send(api, body)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"kind": "Pod"}, "kind"),
        ({"apiVersion": "admission.k8s.io/v1beta1"}, "apiVersion"),
        ({"request": None}, "request"),
        ({"request": []}, "request"),
        ({"request": {}}, "request.uid"),
        ({"request": {"uid": "x", "operation": "PATCH", "object": {}}}, "request.operation"),
        ({"request": {"uid": "x", "operation": "CREATE"}}, "request.object"),
        ({"request": {"uid": "x" * 500, "operation": "CREATE", "object": {}}}, "request.uid"),
    ],
)
def test_what_is_no_review_is_refused_in_words(
    api: APIClient, cluster: Cluster, review: Review, change: dict[str, Any], path: str
) -> None:
    answer = api.post(URL, {**review("flink_create"), **change}, format="json")
    assert answer.status_code == 400
    assert path in {fault["path"] for fault in answer.json()["faults"]}
    assert not KubernetesReview.objects.exists()


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"a": NaN}', b"[" * 500],
    ids=["empty", "half", "list", "null", "bytes", "nan", "deep"],
)
def test_a_body_that_is_no_json_is_refused_in_words(api: APIClient, cluster: Cluster, body: bytes) -> None:
    answer = api.post(URL, body, content_type="application/json")
    assert answer.status_code == 400 and answer.json()["detail"]


def test_a_token_in_the_address_is_taken(user_of: Any, cluster: Cluster, review: Review, worker: None) -> None:
    user = user_of("operator")
    _, secret = token_create(user=user, name="api server", scopes=["operate"])
    assert send(APIClient(), review("flink_create"), f"{URL}/{secret}")["allowed"] is True
    assert APIClient().post(f"{URL}/slu_wrong", review("flink_create"), format="json").status_code == 401


def test_a_token_in_the_address_stays_out_of_the_log(
    user_of: Any, cluster: Cluster, review: Review, caplog: pytest.LogCaptureFixture
) -> None:
    _, secret = token_create(user=user_of("operator"), name="api server", scopes=["operate"])
    with caplog.at_level("INFO", logger="sluice.access"):
        send(APIClient(), review("flink_delete"), f"{URL}/{secret}")
    assert "kubernetes-admission-token" in caplog.text and secret not in caplog.text


def test_strangers_and_readers_are_refused(api_of: Any, cluster: Cluster, review: Review) -> None:
    assert APIClient().post(URL, review("flink_create"), format="json").status_code == 401
    assert api_of("viewer").post(URL, review("flink_create"), format="json").status_code == 403
    assert not KubernetesReview.objects.exists()


def test_an_address_without_a_cluster_means_the_one_there_is(api: APIClient, cluster: Cluster, review: Review) -> None:
    assert send(api, review("flink_delete"), "/webhooks/kubernetes/admission")["allowed"] is True
    answer = api.post("/webhooks/kubernetes/admission/nowhere", review("flink_delete"), format="json")
    assert answer.status_code == 404


def created(kind: str, version: str, **spec: Any) -> dict[str, Any]:
    item = {"apiVersion": version, "kind": kind, "metadata": {"name": "nightly", "namespace": "streams"}}
    request = {"uid": f"{kind}-1", "operation": "CREATE", "name": "nightly", "namespace": "streams"}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return review | {"request": request | {"object": item | {"spec": spec}}}


FLINK, SPARK = "flink.apache.org/v1beta1", "sparkoperator.k8s.io/v1beta2"


@pytest.mark.parametrize(
    ("body", "basis", "words"),
    [
        (created("FlinkDeployment", FLINK, image="flink:1.20", taskManager={}), "stops", "runs no job of its own"),
        (created("FlinkStateSnapshot", FLINK, savepoint={}), "other", "decides on no FlinkStateSnapshot"),
        (created("FlinkBlueGreenDeployment", FLINK, template={}), "other", "Each FlinkDeployment that is made of it"),
        (created("ScheduledSparkApplication", SPARK, schedule="@daily"), "other", "Each SparkApplication"),
        (created("SparkConnect", "sparkoperator.k8s.io/v1alpha1", server={}), "other", "decides on no SparkConnect"),
    ],
    ids=["session", "snapshot", "blue-green", "scheduled", "connect"],
)
def test_object_that_starts_no_job_is_allowed_where_unknown_jobs_are_denied(
    api: APIClient, cluster: Cluster, body: dict[str, Any], basis: str, words: str
) -> None:
    Cluster.objects.update(kubernetes_unknown="deny")
    response = send(api, body)
    assert response["allowed"] is True and words in response["status"]["message"]
    assert KubernetesReview.objects.get().basis == basis


@pytest.mark.parametrize(
    "body",
    [
        created("FlinkDeployment", "flink.apache.org/v2", job={}),
        created("FlinkDeployment", FLINK, job="orders.jar"),
        created("FlinkDeployment", FLINK) | {},
        created("FlinkSessionJob", FLINK, deploymentName="session"),
    ],
    ids=["version", "job", "named", "session-job"],
)
def test_job_that_is_not_known_falls_under_the_rule(api: APIClient, cluster: Cluster, body: dict[str, Any]) -> None:
    Cluster.objects.update(kubernetes_unknown="deny")
    if body["request"]["object"]["spec"] == {}:  # what is annotated with a query is decided on, session or not
        body["request"]["object"]["metadata"]["annotations"] = {"sluice.io/query": "nobody-knows-it"}
    assert send(api, body)["allowed"] is False
    assert KubernetesReview.objects.get().basis == "unknown"
