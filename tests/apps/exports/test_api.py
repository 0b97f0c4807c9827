"""REST: decisions and proposals as an engine's operator applies them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from rest_framework.test import APIClient

from apps.admission.decisions import admission_apply
from apps.admission.models import AdmissionRequest
from apps.connections.looks import KeptJob, KeptLook, KeptOperator
from apps.connections.models import ImportedJob
from apps.fleet.models import Cluster
from apps.planning.placement_search import PLACEMENT
from apps.queries.models import Query
from apps.queries.services import query_version_create
from engine.connectors.picture import Place
from tests.apps.exports.conftest import JOB, VERTEX, decided, import_job
from tests.apps.small_cluster import body, run_jobs, start_query

pytestmark = pytest.mark.django_db

OVERRIDES = "pipeline.jobvertex-parallelism-overrides"


def url(request: AdmissionRequest, **asked: str) -> str:
    return f"/api/v1/admissions/{request.pk}/export?" + "&".join(f"{name}={value}" for name, value in asked.items())


def test_a_decision_is_exported_as_yaml_and_as_json_alike(api: APIClient, decision: AdmissionRequest) -> None:
    text, document = api.get(url(decision)), api.get(url(decision, format="json"))
    assert (text.status_code, text["Content-Type"]) == (200, "application/yaml; charset=utf-8")
    assert text["Content-Disposition"].endswith('.yaml"')
    assert yaml.safe_load(text.content) == document.json()
    assert document.json()["apply"]["settings"] == {OVERRIDES: f"{VERTEX}:1"}
    assert document.json()["apply"]["calls"][0]["path"] == f"/jobs/{JOB}/resource-requirements"


def test_a_part_is_what_its_tool_takes(api: APIClient, decision: AdmissionRequest) -> None:
    patch = yaml.safe_load(api.get(url(decision, part="patch")).content)
    assert (patch["apiVersion"], patch["kind"]) == ("flink.apache.org/v1beta1", "FlinkDeployment")
    assert patch["spec"]["job"]["parallelism"] == 1
    assert yaml.safe_load(api.get(url(decision, part="calls")).content)[0]["method"] == "PUT"


def test_the_reverse_of_an_applied_decision_is_what_ran_before(api: APIClient, cluster: Cluster) -> None:
    query = start_query(cluster, "moving", 0.2, "b")
    import_job(query, vertices={"work": VERTEX})
    query_version_create(query=query, body=body(0.25))
    request = decided(cluster, "moving")
    admission_apply(request=request, user=None)
    request.refresh_from_db()
    assert request.placed_before == {"work": [{"node": "b", "core": 0, "fraction": 1.0}]}
    reverse = api.get(url(request, format="json", part="settings", direction="reverse")).json()
    assert reverse == {OVERRIDES: f"{VERTEX}:1"}


def test_a_decision_on_another_version_than_the_engine_runs_says_so(api: APIClient, decision: AdmissionRequest) -> None:
    ImportedJob.objects.update(version=None)
    notes = api.get(url(decision, format="json")).json()["notes"]
    assert "version" in {note["code"] for note in notes if note["level"] == "assumed"}


def test_vertices_that_no_operator_stands_for_keep_their_parallelism(
    api: APIClient, decision: AdmissionRequest
) -> None:
    operators = tuple(
        KeptOperator(id_, "", "map", parallelism, None, (), ()) for id_, parallelism in ((VERTEX, 1), ("ab" * 16, 3))
    )
    job = KeptJob(JOB, "", "running", 0.0, operators, 0, None)
    connection = ImportedJob.objects.get().connection
    connection.look = KeptLook(0.0, "", (Place("tm-a", "a", 4.0, 2, 2**31),), (job,)).to_dict()
    connection.save()
    (call,) = api.get(url(decision, format="json", part="calls")).json()
    assert call["body"]["ab" * 16]["parallelism"]["upperBound"] == 3, "Flink refuses a part of the vertices"
    assert api.get(url(decision, format="json", part="patch")).json()["spec"]["job"]["parallelism"] == 3


def test_an_export_of_what_was_not_admitted_says_so(api: APIClient, decision: AdmissionRequest) -> None:
    AdmissionRequest.objects.update(verdict="reject")
    note = api.get(url(decision, format="json")).json()["notes"][0]
    assert (note["level"], note["code"]) == ("lost", "verdict") and "reject" in note["message"]


def test_a_query_that_was_not_imported_has_nothing_to_export_to(api: APIClient, cluster: Cluster) -> None:
    answer = api.get(url(decided(cluster, "plain")))
    assert (answer.status_code, answer.json()["code"]) == (422, "not_imported")


def test_a_request_without_a_verdict_has_nothing_to_export(api: APIClient, decision: AdmissionRequest) -> None:
    AdmissionRequest.objects.update(result=None, verdict="")
    answer = api.get(url(decision))
    assert (answer.status_code, answer.json()["code"]) == (422, "nothing_to_export")


def test_every_parameter_at_fault_is_named(api: APIClient, decision: AdmissionRequest) -> None:
    answer = api.get(url(decision, format="xml", engine="storm", part="half", direction="up"))
    assert answer.status_code == 400
    assert {fault["path"] for fault in answer.json()["faults"]} == {"format", "engine", "part", "direction"}


def test_an_imported_query_is_exported_for_spark_if_its_connection_is(api: APIClient, cluster: Cluster) -> None:
    import_job(Query.objects.get(name="plain"), engine="spark")
    document = api.get(url(decided(cluster, "plain"), format="json")).json()
    assert document["engine"] == "spark"
    assert document["apply"]["patch"]["kind"] == "SparkApplication"


def test_a_proposal_is_exported_for_each_imported_query(api: APIClient, cluster: Cluster) -> None:
    import_job(Query.objects.get(name="first"))
    run, _ = PLACEMENT.request(cluster=cluster, user=None, budget_s=0.1)
    run_jobs()
    document: dict[str, Any] = api.get(f"/api/v1/placements/{run.pk}/export?format=json").json()
    assert document["job"] == {"id": JOB, "name": "first"}
    assert document["operators"][0]["parallelism"] == 1
    assert api.get(f"/api/v1/placements/{run.pk}/export?query=nobody").status_code == 404
