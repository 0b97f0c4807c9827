"""Operators of queries that stopped or were deleted are relatives of a candidate that never ran."""

from __future__ import annotations

import pytest

from apps.admission.models import AdmissionRequest
from apps.admission.questions import question_of
from apps.fleet.models import Cluster
from apps.queries.models import OperatorInput, Query
from apps.queries.services import query_delete, query_stop
from apps.queries.snapshots.cluster import candidate_document, cluster_snapshot
from apps.queries.snapshots.relatives import StoppedRelatives
from engine.document.candidate import read_candidate
from tests.apps.domain import start
from tests.apps.predictions.samples import make_cluster, make_query

pytestmark = pytest.mark.django_db


def relatives_of(query: Query) -> tuple[list[str], int]:
    """Ids of the relatives in its document, and of how many the cost of its filter is."""
    document = StoppedRelatives(query.cluster).beside(candidate_document(query.versions.get()))
    operators = read_candidate(document, cluster_snapshot(query.cluster).deployment).operators
    return [row["id"] for row in document.get("relatives", [])], operators[0].inputs[0].relatives


def ran(cluster: Cluster) -> Query:
    """A query that was measured, and runs."""
    query = make_query(cluster, "old")
    OperatorInput.objects.filter(operator__version__query=query).update(
        cycles_per_event=5e6, evidence="measured", events=50_000
    )
    return start(query, {"keep": "weak", "mean": "strong"})


def test_query_that_runs_no_more_is_a_relative_until_its_rows_are_gone() -> None:
    cluster = make_cluster()
    old, new = ran(cluster), make_query(cluster)
    assert relatives_of(new) == ([], 1)  # one that runs is in the deployment
    stopped = query_stop(query=old)
    assert relatives_of(new) == (["old/keep", "old/mean"], 1)
    query_delete(query=stopped)
    assert relatives_of(new) == (["old/keep", "old/mean"], 1)
    cluster.arrivals.all().delete()
    make_cluster("other")
    other = make_query(Cluster.objects.get(slug="other"))
    assert relatives_of(other) == ([], 0)


def test_relatives_that_run_no_more_are_asked_about_and_compared_by_nobody() -> None:
    cluster = make_cluster()
    old, new = ran(cluster), make_query(cluster)
    query_stop(query=old)
    request = AdmissionRequest(cluster=cluster, query=new, version=new.versions.get())
    before = question_of(request)
    OperatorInput.objects.filter(operator__version__query=old).update(cycles_per_event=9e6)
    after = question_of(request)
    assert before.digest == after.digest
    assert before.candidate["relatives"] != after.candidate["relatives"]
