"""A cluster with a job that was imported from Flink, and a decision on it."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from apps.admission.models import AdmissionRequest
from apps.admission.previews import ADMISSION
from apps.admission.questions import AdmissionQuestion
from apps.connections.models import Connection, ImportedJob
from apps.fleet.models import Cluster
from apps.queries.models import Query
from tests.apps.receivers import hook
from tests.apps.small_cluster import make_query, run_jobs, small_cluster, start_query

__all__ = ["hook"]

VERTEX = "bc764cd8ddf7a0cff126f51c16239658"
JOB = "bb8f15efbb8f15efbb8f15efbb8f15ef"


def import_job(query: Query, engine: str = "flink", **fields: Any) -> ImportedJob:
    """Keep what a connection keeps of a query of one operator, `work`."""
    connection, _ = Connection.objects.get_or_create(
        cluster=query.cluster, name=engine, defaults={"engine": engine, "url": "http://127.0.0.1:8081"}
    )
    kept = {
        "engine_id": JOB,
        "name": query.name,
        "state": "running",
        "shape": "0" * 64,
        "vertices": {"work": VERTEX},
        "places": {"a": "tm-a", "b": "tm-b"},
        "started_at": timezone.now(),
        "seen_at": timezone.now(),
    }
    return ImportedJob.objects.create(
        connection=connection, query=query, version=query.versions.first(), **{**kept, **fields}
    )


@pytest.fixture
def cluster(db: None) -> Cluster:
    """`orders` is a draft and a job of Flink's, `plain` is no job."""
    cluster = small_cluster()
    start_query(cluster, "first", 0.6, "a")
    import_job(make_query(cluster, "orders", 0.2))
    make_query(cluster, "plain", 0.1)
    return cluster


@pytest.fixture
def decision(cluster: Cluster) -> AdmissionRequest:
    """A preview of `orders` that passes."""
    return decided(cluster, "orders")


def decided(cluster: Cluster, query: str) -> AdmissionRequest:
    request, _ = ADMISSION.request(cluster=cluster, user=None, question=AdmissionQuestion(query=query))
    run_jobs()
    request.refresh_from_db()
    return request
