"""Columns of lists that are keys of answers are read by PostgreSQL, too."""

from __future__ import annotations

import pytest

from apps.estimates.refresh import refresh_paused
from apps.estimates.selectors import queries_judged, run_latest
from apps.estimates.services import ESTIMATE
from tests.apps.small_cluster import run_jobs, small_cluster, start_query


@pytest.mark.postgres
def test_list_of_queries_has_its_columns(postgres_db: str) -> None:
    with refresh_paused():
        cluster = small_cluster()
        start_query(cluster, "calm", 0.5, "a")
        ESTIMATE.request(cluster=cluster)
        run_jobs()
    (row,) = queries_judged(cluster, run_latest(cluster))
    assert row.shown_state == "holds" and row.tightest_factor is None
