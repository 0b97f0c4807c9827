"""Several workers that judge objectives and bring incidents up to date at once, on PostgreSQL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections

from apps.estimates.models import ObjectiveStatus
from apps.estimates.objectives import objectives_refresh
from apps.estimates.services import ESTIMATE
from apps.incidents.models import Incident, IncidentEvent
from apps.incidents.refresh import incidents_refresh
from apps.incidents.selectors import incidents_listed, incidents_unseen
from tests.apps.incidents.states import BEGIN, STREAM, late
from tests.apps.small_cluster import run_jobs, small_cluster, start_query

pytestmark = pytest.mark.moment


@pytest.mark.postgres
def test_workers_at_once_judge_once_and_open_one_incident(postgres_db: str) -> None:
    cluster = small_cluster()
    start_query(cluster, "calm", 0.1, "a", bound_s=20.0)
    start_query(cluster, "late", 1.2, "b", bound_s=2.0)
    ESTIMATE.request(cluster=cluster)
    run_jobs()

    def judge(_: int) -> None:
        try:
            objectives_refresh(cluster)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as workers:
        list(workers.map(judge, range(8)))
    states = dict(ObjectiveStatus.objects.values_list("query__name", "state"))
    assert states == {"calm": "holds", "late": "breached"}
    incident = Incident.objects.get()
    assert (incident.cause_kind, incident.cause_subject) == ("node_busy", "b")
    assert list(IncidentEvent.objects.values_list("kind", flat=True)) == ["opened", "expected"]


@pytest.mark.postgres
def test_lists_of_incidents_read_on_postgresql(postgres_db: str) -> None:
    cluster = small_cluster()
    for name in ("one", "two"):
        start_query(cluster, name, 0.1, "a", bound_s=15.0)
        late(cluster, name, STREAM)
    incidents_refresh(cluster, now=BEGIN)
    assert [row.member_count for row in incidents_unseen()] == [2]
    found = incidents_listed().filter(members__query__name__startswith="t").distinct()
    assert [row.query_count for row in found] == [2]
