"""Backlogs of queries: stated over REST and on the page, measured, aged, and where horizons begin with them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from apps.core.errors import Malformed
from apps.fleet.models import Cluster
from apps.queries.backlogs import backlogs_measure, backlogs_of, backlogs_update
from apps.queries.models import Query
from apps.queries.services import query_version_create
from apps.queries.snapshots.cluster import candidate_document, cluster_parts, cluster_snapshot, snapshot_changes
from tests.apps.domain import BODY, fault_paths, make_cluster, make_query, start

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster()


@pytest.fixture
def query(cluster: Cluster) -> Query:
    return start(make_query(cluster))


def used(cluster: Cluster) -> dict[str, tuple[float | None, str]]:
    return {found.operator: (found.events, found.standing) for found in cluster_snapshot(cluster).deployment.backlogs}


def test_stated_backlog_is_where_the_snapshot_begins(cluster: Cluster, query: Query) -> None:
    backlogs_update(query=query, backlogs=[{"from": "clicks", "behind_s": 1200}])
    rate = 100.0 / cluster.slice_s
    assert used(cluster) == {"checkout/parse": (pytest.approx(1200 * rate), "used")}
    assert cluster_snapshot(cluster, with_waiting=False).deployment.backlogs == ()


def test_backlog_between_operators_is_of_the_input_that_is_named(cluster: Cluster, query: Query) -> None:
    backlogs_update(query=query, backlogs=[{"operator": "count", "from": "parse", "events": 500}])
    assert used(cluster) == {"checkout/count": (500.0, "used")}


def test_old_reading_is_kept_and_no_longer_used(cluster: Cluster, query: Query) -> None:
    read_at = (timezone.now() - timedelta(hours=1)).isoformat()
    backlogs_update(query=query, backlogs=[{"from": "clicks", "events": 500, "read_at": read_at}])
    assert used(cluster) == {"checkout/parse": (500.0, "stale")}
    (shown,) = backlogs_of(query)
    assert shown.is_stale and shown.age_s == pytest.approx(3600, abs=60)


def test_every_fault_is_told_and_nothing_is_stored(query: Query) -> None:
    backlogs_update(query=query, backlogs=[{"from": "clicks", "events": 5}])
    bad: list[Any] = [
        {"from": "taps", "events": 1},
        {"from": "clicks"},
        {"from": "clicks", "events": -1, "lag": 3},
        {"operator": "join", "from": "clicks", "events": 1},
        {"from": "clicks", "events": 1, "read_at": "2099-01-01T00:00:00Z"},
        {"from": "clicks", "events": 1, "read_at": "yesterday"},
    ]
    with pytest.raises(Malformed) as refused:
        backlogs_update(query=query, backlogs=bad)
    assert fault_paths(refused) >= {
        "backlogs[0].from",
        "backlogs[1]",
        "backlogs[2].events",
        "backlogs[2].lag",
        "backlogs[3].operator",
        "backlogs[4].read_at",
        "backlogs[5].read_at",
    }
    query.refresh_from_db()
    assert [row["events"] for row in query.backlogs] == [5.0]


def test_measured_backlog_takes_the_place_of_an_older_one_only(query: Query) -> None:
    assert backlogs_measure(query=query, events={"clicks": 1e6}, read_at=NOW)
    assert not backlogs_measure(query=query, events={"clicks": 5.0}, read_at=NOW - timedelta(seconds=1))
    (row,) = query.backlogs
    assert (row["events"], row["origin"]) == (1e6, "measured")


def test_preview_moves_with_the_size_of_a_backlog_and_not_with_its_age(cluster: Cluster, query: Query) -> None:
    backlogs_measure(query=query, events={"clicks": 1e6}, read_at=NOW)
    before = cluster_parts(cluster)
    backlogs_measure(query=query, events={"clicks": 1.01e6}, read_at=NOW + timedelta(seconds=60))
    assert cluster_parts(cluster) == before
    backlogs_measure(query=query, events={"clicks": 4e6}, read_at=NOW + timedelta(seconds=120))
    (change,) = snapshot_changes(before, cluster_parts(cluster))
    assert change.startswith("query checkout: what waits")


def test_body_states_backlogs_of_its_inputs(query: Query) -> None:
    operators = [dict(operator) for operator in BODY["operators"]]
    entry = {**operators[0]["inputs"][0], "backlog": {"behind_s": 30.0, "age_s": 10.0}}
    operators[0] = {**operators[0], "inputs": [entry]}
    query_version_create(query=query, body={"operators": operators})
    query.refresh_from_db()
    (row,) = query.backlogs
    assert (row["operator"], row["from"], row["behind_s"], row["origin"]) == ("parse", "clicks", 30.0, "stated")


def test_candidate_of_a_stopped_query_brings_its_backlog(cluster: Cluster) -> None:
    query = make_query(cluster)
    backlogs_update(query=query, backlogs=[{"from": "clicks", "behind_s": 60}])
    document = candidate_document(query.versions.get())
    backlog = document["operators"][0]["inputs"][0]["backlog"]
    assert (backlog["behind_s"], backlog["origin"]) == (60.0, "stated")
    assert "backlog" not in document["operators"][1]["inputs"][0]


def test_rest_states_shows_and_clears_backlogs(api: APIClient, query: Query) -> None:
    path = f"/api/v1/queries/{query.pk}/backlogs"
    assert api.get(path).json() == {"backlogs": []}
    answer = api.put(path, {"backlogs": [{"from": "clicks", "behind_s": 1200}]}, format="json")
    assert answer.status_code == 200
    (shown,) = api.get(path).json()["backlogs"]
    assert (shown["from"], shown["behind_s"], shown["origin"], shown["is_stale"]) == ("clicks", 1200.0, "stated", False)
    refused = api.put(path, {"backlogs": [{"from": "taps", "events": "many"}]}, format="json")
    assert refused.status_code == 400
    assert api.put(path, {"backlogs": []}, format="json").json() == {"backlogs": []}
