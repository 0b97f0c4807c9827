"""REST: manifests decided on as Kubernetes would be answered, and the list of answers."""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework.test import APIClient

from apps.fleet.models import Cluster
from apps.kubernetes.models import KubernetesReview
from apps.queries.models import Query

pytestmark = pytest.mark.django_db

URL = "/api/v1/kubernetes-reviews"


def manifest(*names: str) -> str:
    return "\n---\n".join(
        f"apiVersion: flink.apache.org/v1beta1\nkind: FlinkDeployment\nmetadata: {{name: {name}, namespace: streams}}\n"
        "spec:\n  job: {parallelism: 1}"
        for name in names
    )


def ask(client: APIClient, text: str, **more: Any) -> Any:
    return client.post(URL, {"cluster": "little", "manifest": text, **more}, format="json")


def test_each_object_of_a_manifest_is_answered(api: APIClient, cluster: Cluster, worker: None) -> None:
    answer = ask(api, manifest("third", "big"))
    assert answer.status_code == 200, answer.content
    assert answer.json()["allowed"] is False
    assert [(row["name"], row["verdict"], row["allowed"]) for row in answer.json()["reviews"]] == [
        ("third", "admit", True),
        ("big", "reject", False),
    ]
    assert {row.origin for row in KubernetesReview.objects.all()} == {"manifest"}


def test_a_manifest_is_applied_by_those_who_may_admit(
    api: APIClient, api_of: Any, cluster: Cluster, worker: None
) -> None:
    assert ask(api, manifest("third"), mode="apply").status_code == 403
    (row,) = ask(api_of("admitter"), manifest("third"), mode="apply").json()["reviews"]
    assert (row["state"], Query.objects.get(name="third").state) == ("applied", "running")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "line 1"),
        ("a: b: c", "line 1"),
        ("# nothing", "manifest"),
        ("just text", "manifest[0]"),
        ("a: &x [1]\nb: *x", "manifest[0].apiVersion"),
        ("a: &x [*x]", "aliases"),
        ("apiVersion: v1\nkind: Pod", "manifest[0].metadata"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {}", "manifest[0].metadata"),
        ("!!python/object/apply:os.system [ls]", "manifest"),
        ("[" * 3000, "manifest"),
    ],
)
def test_what_is_no_manifest_is_refused_in_words(api: APIClient, cluster: Cluster, text: str, words: str) -> None:
    answer = ask(api, text)
    assert answer.status_code == 400
    assert words in str(answer.json()) and not KubernetesReview.objects.exists()


def test_answers_are_listed_and_filtered(api: APIClient, cluster: Cluster, worker: None) -> None:
    ask(api, manifest("third", "nobody-knows-it"))
    rows = api.get(f"{URL}?cluster=little&basis=unknown").json()["results"]
    assert [row["name"] for row in rows] == ["nobody-knows-it"]
    found = api.get("/api/v1/admissions?source=kubernetes").json()["results"]
    assert [(row["query"], row["source"]) for row in found] == [("third", "kubernetes")]
