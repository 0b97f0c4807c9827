"""Columns that lists filter, sort and group by say the same as the answers they repeat, after every kind of change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from apps.estimates.answers import StoredEstimate
from apps.estimates.models import EstimateRun, ObjectiveStatus, QueryEstimate
from apps.estimates.objectives import objectives_refresh
from apps.estimates.selectors import nodes_by_excess, queries_judged, run_latest, servers_by_node, state_counts
from apps.estimates.services import ESTIMATE, listed_facts
from apps.fleet.models import Cluster
from apps.jobs.models import Job
from apps.queries.services import query_delete, query_start, query_stop, query_update, query_version_create
from apps.queries.statistics import statistics_update
from engine.measurement.trust import LOST, EstimateTrust
from tests.apps import small_cluster
from tests.apps.estimates.answers import widening

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster() -> Cluster:
    cluster = small_cluster.small_cluster()
    small_cluster.start_query(cluster, "calm", 0.5, "a", bound_s=20.0)
    small_cluster.start_query(cluster, "late", 1.2, "b", bound_s=2.0)
    estimate(cluster)
    return cluster


def estimate(cluster: Cluster) -> None:
    ESTIMATE.request(cluster=cluster)
    small_cluster.run_jobs()


def shown(cluster: Cluster) -> dict[str, str]:
    """State of each query as lists have it."""
    rows: Any = queries_judged(cluster, run_latest(cluster))
    states = dict(rows.values_list("name", "shown_state"))
    counts = state_counts(rows)
    assert counts == {state: list(states.values()).count(state) for state in states.values()}
    return states


def check_columns(cluster: Cluster) -> None:
    """Each column against what it repeats."""
    for row in QueryEstimate.objects.filter(run__cluster=cluster):
        bottleneck, applied = row.answer.bottleneck, row.answer.calibration
        assert row.bottleneck_server == (bottleneck.server if bottleneck else "")
        assert row.bottleneck_node == ((bottleneck.node or "") if bottleneck else "")
        assert row.bottleneck_load == (bottleneck.load_peak if bottleneck else None)
        assert row.trust == (applied.trust.state if applied else "")
    for status in ObjectiveStatus.objects.filter(query__cluster=cluster):
        first = next(iter(status.lateness), None)
        is_late = status.state in ("breached", "at_risk")
        assert bool(status.cause_kind) == is_late
        if first is not None:
            assert status.cause_kind == first.kind
            assert status.cause_subject == (status.query.name if first.kind == "unexplained" else first.subject)


def test_states_follow_starts_and_stops(cluster: Cluster) -> None:
    assert shown(cluster) == {"calm": "holds", "late": "breached"}
    small_cluster.make_query(cluster, "idea", 0.1)
    small_cluster.start_query(cluster, "new", 0.1, "a")
    assert shown(cluster) == {"calm": "holds", "idea": "draft", "late": "breached", "new": "no_estimate"}
    query_stop(query=cluster.queries.get(name="late"))
    assert shown(cluster)["late"] == "stopped"
    estimate(cluster)
    assert shown(cluster) == {"calm": "holds", "idea": "draft", "late": "stopped", "new": "holds"}
    check_columns(cluster)
    version = cluster.queries.get(name="late").versions.get()
    query_start(version=version, placement={"work": [{"node": "b"}]})
    assert shown(cluster)["late"] == "no_estimate"
    estimate(cluster)
    assert shown(cluster)["late"] == "breached"
    check_columns(cluster)


def test_states_follow_edits_once_objectives_are_judged(cluster: Cluster) -> None:
    late = cluster.queries.get(name="late")
    query_update(query=late, objective={"statistic": "worst", "bound_s": 500.0})
    objectives_refresh(cluster)
    status = ObjectiveStatus.objects.get(query=late)
    assert (shown(cluster)["late"], status.bound_s) == (status.state, 500.0)
    query_update(query=late, objective=None)
    objectives_refresh(cluster)
    assert shown(cluster)["late"] == ObjectiveStatus.objects.get(query=late).state == "none"
    check_columns(cluster)


def test_states_follow_statistics_versions_and_deletions_with_the_next_estimate(cluster: Cluster) -> None:
    late = cluster.queries.get(name="late")
    version = late.versions.get()
    statistics_update(version=version, statistics=[{"operator": "work", "input": "clicks", "cycles_per_event": 0.1}])
    assert shown(cluster)["late"] == "breached"  # until the next estimate, which is asked for
    estimate(cluster)
    assert shown(cluster)["late"] == "holds"
    check_columns(cluster)
    query_version_create(query=late, body=small_cluster.body(1.2))
    assert shown(cluster)["late"] == "holds"  # what runs stays as it is
    query_stop(query=late)
    query_delete(query=late)
    assert shown(cluster) == {"calm": "holds"}
    assert not ObjectiveStatus.objects.exclude(query__name="calm").exists()


def test_states_stay_with_an_estimate_that_fails(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    before = EstimateRun.objects.count()
    monkeypatch.setattr(type(ESTIMATE), "answer", lambda *_: 1 / 0)
    ESTIMATE.request(cluster=cluster)
    small_cluster.run_jobs()
    assert Job.objects.filter(state="failed").exists() and EstimateRun.objects.count() == before
    assert shown(cluster) == {"calm": "holds", "late": "breached"}
    check_columns(cluster)


def test_states_outlive_runs_that_are_dropped(cluster: Cluster) -> None:
    estimate(cluster)
    EstimateRun.objects.filter(cluster=cluster).earliest("created_at").delete()
    assert shown(cluster) == {"calm": "holds", "late": "breached"}
    EstimateRun.objects.filter(cluster=cluster).delete()
    objectives_refresh(cluster)
    assert shown(cluster) == {"calm": "no_estimate", "late": "no_estimate"}


def test_nodes_by_excess_are_those_of_their_cores(cluster: Cluster) -> None:
    run = run_latest(cluster)
    assert run is not None
    whole = servers_by_node(run.nodes.all())
    totals = list(nodes_by_excess(run))
    assert [row["place"] for row in totals] == [server.name for server in whole]
    assert [(row["mean"], row["peak"], row["excess"]) for row in totals] == [
        (server.mean_load, server.peak_load, server.excess_s) for server in whole
    ]


def test_lost_trust_is_a_column_of_the_estimate(cluster: Cluster) -> None:
    row = QueryEstimate.objects.filter(query__name="calm").latest("pk")
    lost = replace(widening(2.0), trust=EstimateTrust(20, 40, LOST))
    answer = StoredEstimate.parse({**row.result, "calibration": lost.to_dict()})
    assert listed_facts(answer)["trust"] == LOST
