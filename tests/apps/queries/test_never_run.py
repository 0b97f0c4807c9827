"""Queries that never ran: no cost is stored, a nominal one stands in, and measured statistics take its place."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from rest_framework.test import APIClient

from apps.core.errors import Malformed
from apps.queries.arrivals.services import arrivals_fields_update
from apps.queries.bodies import version_body
from apps.queries.documents import document_export, document_import
from apps.queries.models import OperatorInput, Query
from apps.queries.selectors import version_numbered
from apps.queries.services import query_version_create
from apps.queries.snapshots.cluster import candidate_document, cluster_snapshot
from apps.queries.statistics import statistics_update
from tests.apps.domain import BODY, fault_paths, make_cluster, make_query, start

pytestmark = pytest.mark.django_db

FIELDS = {"ints": 2, "strings": 1, "doubles": 0}


def never_run_body() -> dict[str, Any]:
    body = deepcopy(BODY)
    for operator in body["operators"]:
        del operator["inputs"][0]["cycles_per_event"]
        operator["evidence"] = {"kind": "predicted", "events": 0}
    body["operators"][0] |= {"kind": "filter", "filter": {"function": "<", "literal_type": "int"}}
    body["operators"][1]["aggregate"] = {"function": "mean", "argument_type": "int", "group_by_type": "string"}
    return body


@pytest.fixture
def query() -> Query:
    return make_query(make_cluster(), body=never_run_body())


def test_body_without_costs_comes_back_without_them(query: Query) -> None:
    assert version_body(version_numbered(query, 1)) == never_run_body()
    rows = OperatorInput.objects.values_list("cycles_per_event", "evidence")
    assert set(rows) == {(None, "predicted")}


def test_snapshot_has_nominal_costs_that_an_export_leaves_out(query: Query) -> None:
    start(query)
    operators = cluster_snapshot(query.cluster).deployment.operators
    assert all(op.never_ran and op.inputs[0].cycles_per_event > 0 for op in operators)
    assert {op.evidence.kind for op in operators if op.evidence} == {"predicted"}
    arrivals_fields_update(arrivals=query.cluster.arrivals.get(), event_fields=FIELDS)
    document = document_export(query.cluster)
    other = make_cluster("eu-2", nodes=0)
    document_import(cluster=other, document=document, start=True)
    assert document_export(other) == document
    assert document["sources"][0]["event_fields"] == FIELDS
    assert "cycles_per_event" not in document["operators"][0]["inputs"][0]


def test_candidate_says_what_is_known_and_nothing_else(query: Query) -> None:
    document = candidate_document(query.versions.get())
    assert document["operators"][0]["filter"] == {"function": "<", "literal_type": "int"}
    assert all("cycles_per_event" not in operator["inputs"][0] for operator in document["operators"])


def test_cost_is_measured_once_it_is_known(query: Query) -> None:
    version = query.versions.get()
    told = {"operator": "parse", "selectivity": 0.5}
    statistics_update(version=version, statistics=[told])
    entry = OperatorInput.objects.get(operator__name="parse")
    assert (entry.cycles_per_event, entry.evidence) == (None, "predicted")
    with pytest.raises(Malformed) as error:
        statistics_update(version=version, statistics=[{**told, "evidence": "measured"}])
    assert fault_paths(error) == {"statistics[0].evidence"}
    statistics_update(version=version, statistics=[{**told, "cycles_per_event": 5e3}])
    entry.refresh_from_db()
    assert (entry.cycles_per_event, entry.evidence) == (5e3, "measured")


def test_new_version_keeps_its_own_costs_where_the_old_one_has_none(query: Query) -> None:
    version = query_version_create(query=query, body=BODY, carry_statistics=True)
    assert version.operators.get(name="parse").inputs.get().cycles_per_event == 20_000


def test_rest_states_the_fields_of_a_source(api: APIClient, query: Query) -> None:
    url = f"/api/v1/arrivals/{query.cluster.arrivals.get().pk}"
    assert api.get(url).json()["event_fields"] is None
    assert api.patch(url, {"event_fields": {"ints": 3}}, format="json").json()["event_fields"]["ints"] == 3
    bad = api.patch(url, {"event_fields": {"ints": 1.5, "bools": 1}}, format="json").json()
    assert {fault["path"] for fault in bad["faults"]} == {"event_fields.ints", "event_fields.bools"}
    counts = {"cluster": "eu-1", "source_id": "views", "counts": [1] * 16, "event_fields": FIELDS}
    assert api.post("/api/v1/arrivals", counts, format="json").json()["event_fields"] == FIELDS
