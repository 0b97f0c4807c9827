"""Estimates after a change: what differs is written, the rest is copied, and all is as if everything was made anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.forms.models import model_to_dict
from django.test.utils import CaptureQueriesContext

from apps.estimates import bases, services
from apps.estimates.models import EstimateRun, NodeEstimate, ObjectiveStatus, QueryEstimate
from apps.estimates.services import ESTIMATE
from apps.fleet.models import Cluster, Node
from apps.fleet.services import node_create
from apps.queries.models import ArrivalSeries, OperatorInput, Query
from apps.queries.services import query_stop, query_update
from apps.queries.snapshots.parts import snapshot_take
from tests.apps.small_cluster import make_query, small_cluster, start_query

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster(settings: Any, tmp_path: Any) -> Cluster:
    settings.VAR_DIR = tmp_path
    bases._kept.clear()
    cluster = small_cluster()
    start_query(cluster, "first", 0.5, "a")
    start_query(cluster, "second", 0.3, "a")
    start_query(cluster, "third", 0.4, "b")
    return cluster


def estimated(cluster: Cluster) -> EstimateRun:
    run = EstimateRun(cluster=Cluster.objects.get(pk=cluster.pk))
    return ESTIMATE.take(run, snapshot_take(run.cluster), lambda share, step: None)


def rows_of(run: EstimateRun) -> dict[str, dict[str, Any]]:
    """All rows of a run by what they are of, and the statuses, without keys and times."""
    own = {"id", "run", "estimate", "since", "updated_at"}
    rows: dict[str, dict[str, Any]] = {}
    for row in QueryEstimate.objects.filter(run=run):
        rows[f"query {row.query_id}"] = {**model_to_dict(row, exclude=own), "series": row.series and bytes(row.series)}
    for server in NodeEstimate.objects.filter(run=run):
        rows[f"server {server.server}"] = model_to_dict(server, exclude=own)
    for status in ObjectiveStatus.objects.select_related("estimate"):
        assert status.estimate is None or status.estimate.run_id == run.pk
        rows[f"status {status.query_id}"] = {**model_to_dict(status, exclude=own), "of": status.estimate is not None}
    return rows


def cost_up(cluster: Cluster) -> None:
    row = OperatorInput.objects.filter(operator__version__query__name="first").first()
    assert row is not None and row.cycles_per_event is not None
    row.cycles_per_event *= 1.3
    row.save()


def capacity_down(cluster: Cluster) -> None:
    node = Node.objects.get(cluster=cluster, name="b")
    node.capacity_cps *= 0.8
    node.save()


CHANGES: dict[str, Callable[[Cluster], object]] = {
    "nothing": lambda cluster: None,
    "cost": cost_up,
    "capacity": capacity_down,
    "stop": lambda cluster: query_stop(query=Query.objects.get(name="second")),
    "start": lambda cluster: start_query(cluster, "fourth", 0.2, "b"),
    "objective": lambda cluster: query_update(
        query=Query.objects.get(name="third"), objective={"statistic": "worst", "bound_s": 0.01}
    ),
    "objective gone": lambda cluster: query_update(query=Query.objects.get(name="third"), objective=None),
    "arrivals": lambda cluster: ArrivalSeries.objects.update(step_s=2.0),
    "new node": lambda cluster: node_create(pool=cluster.pools.get(), name="d", capacity_cps=1000.0, cores=2),
    "draft": lambda cluster: make_query(cluster, "draft", 0.1),
}


@pytest.mark.parametrize("names", [[name] for name in CHANGES] + [["cost", "stop", "start", "objective"]])
def test_estimate_after_changes_is_that_of_everything_anew(cluster: Cluster, names: list[str]) -> None:
    estimated(cluster)
    for name in names:
        CHANGES[name](cluster)
        after = rows_of(estimated(cluster))
    bases._kept.clear()
    for path in bases._folder().glob("*"):
        path.unlink()
    assert after == rows_of(estimated(cluster))


def test_only_rows_that_differ_are_made_anew(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    estimated(cluster)
    made: list[str] = []
    real = services._query_row
    monkeypatch.setattr(
        services, "_query_row", lambda run, query, row: (made.append(query.name), real(run, query, row))[1]
    )
    cost_up(cluster)
    run = estimated(cluster)
    assert sorted(made) == ["first", "second"], "both are on the node whose load has changed"
    assert run.queries.count() == 3 and run.base["moves"] == 1


def test_statements_of_an_estimate_after_a_change_are_as_many_however_much_runs(cluster: Cluster) -> None:
    def statements() -> int:
        cost_up(cluster)
        with CaptureQueriesContext(connection) as captured:
            estimated(cluster)
        return len(captured)

    estimated(cluster)
    few = statements()
    for i in range(12):
        start_query(cluster, f"more{i}", 0.01, "b")
    estimated(cluster)
    assert statements() <= few + 2
