"""Recorded reviews, a cluster that knows their job, and a worker that is quick."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from apps.fleet.models import Cluster
from apps.jobs.models import Job
from tests.apps.recordings import recorded
from tests.apps.small_cluster import make_query, run_jobs, small_cluster, start_query

REVIEWS = Path(__file__).parent / "reviews"


@pytest.fixture
def review() -> Callable[..., dict[str, Any]]:
    """`review("flink_create", uid="1")`: a recorded review, parts of its request replaced."""

    def read(name: str, **request: Any) -> dict[str, Any]:
        body: dict[str, Any] = json.loads((REVIEWS / f"{name}.json").read_text())
        body["request"].update(request)
        return body

    return read


@pytest.fixture
def cluster() -> Cluster:
    """The job of the recorded reviews is a draft that fits; `big` is one that does not."""
    return recorded(_cluster_with_drafts)


def _cluster_with_drafts() -> Cluster:
    cluster = small_cluster()
    start_query(cluster, "first", 0.6, "a")
    start_query(cluster, "second", 0.4, "b")
    make_query(cluster, "third", 0.2)
    make_query(cluster, "big", 0.95)
    return cluster


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are done while they are waited for, in this thread: it holds the test's transaction."""

    def work(job: Job, wait_s: float) -> None:
        run_jobs()
        job.refresh_from_db()

    monkeypatch.setattr("apps.jobs.api.job_wait", work)
