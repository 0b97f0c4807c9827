"""An estimate of a live cluster follows the policy that its agents say is in force, and says so."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from apps.estimates.models import ObjectiveStatus
from apps.estimates.objectives import objectives_refresh
from apps.estimates.refresh import estimate_refresh_all, live_estimates_refresh
from apps.estimates.selectors import query_estimate_latest, run_latest
from apps.estimates.services import ESTIMATE
from apps.fleet.models import Cluster
from apps.incidents.models import Incident
from apps.pages.accuracy.latency import LatencyParts
from apps.pages.overview.findings import Findings
from apps.pages.queries.facts import QueryDetail
from apps.queries.models import Query
from apps.queries.services import query_create, query_start
from apps.queries.snapshots.cluster import cluster_snapshot
from apps.reports.sections.findings import report_risks
from apps.reports.sections.fleet import fleet_facts
from apps.telemetry.models import Agent
from tests.apps.estimates.test_objectives import NOW, windows
from tests.apps.measurements.live import OPERATORS, body, go_live, make_live_cluster
from tests.apps.microbatch.own import own_batch
from tests.apps.small_cluster import run_jobs

pytestmark = pytest.mark.django_db


@pytest.fixture
def query() -> Query:
    """Live, its first operator on agent-1, the others on the stream processor."""
    return started(make_live_cluster(), "errors")


def started(cluster: Cluster, name: str) -> Query:
    query = query_create(cluster=cluster, name=name, body=body(), objective={"statistic": "worst", "bound_s": 10.0})
    first, *others = (operator["id"] for operator in OPERATORS)
    version = query.versions.get()
    query_start(version=version, placement={first: "agent-1", **dict.fromkeys(others, "stream")})
    go_live(query, version)
    query.refresh_from_db()
    return query


def say(cluster: Cluster, name: str, policy: str) -> None:
    Agent.objects.filter(cluster=cluster, name=name).update(heartbeat={"schedule": {"policy": policy}})


def estimated(query: Query):
    ESTIMATE.request(cluster=query.cluster)
    run_jobs()
    row, run = query_estimate_latest(query), run_latest(query.cluster)
    assert row is not None and run is not None
    return row, run


def scheduling_risks(query: Query, run):
    risks = report_risks(run, fleet_facts(query.cluster, run), [], [])
    return [risk for risk in risks if risk.subject == "Scheduling"]


def test_bound_is_that_of_stimulus_time_before_any_report(query: Query) -> None:
    row, run = estimated(query)
    assert "scheduling" not in row.result and "scheduling" not in run.result
    assert QueryDetail(query)._mace().note == "Largest excess on its servers"
    assert "No bound is proven" not in LatencyParts(row).sentence
    assert not scheduling_risks(query, run)


def test_policy_without_a_proven_bound_shows_none_anywhere(query: Query) -> None:
    say(query.cluster, "agent-1", "klink")
    row, run = estimated(query)
    assert run.result["scheduling"]["nodes"] == {"agent-1": "klink"}
    assert run.result["upper_wc"] is None
    assert row.result["scheduling"]["upper_s"] is row.result["live"]["upper_s"] is None
    assert row.result["scheduling"]["words"] == "agent-1 runs klink, not stimulus time: no upper bound is proven."
    assert QueryDetail(query)._mace().note == "No bound is proven, as agent-1 runs klink"
    assert "No bound is proven, as agent-1 runs klink" in LatencyParts(row).sentence
    (risk,) = scheduling_risks(query, run)
    assert risk.text.startswith("agent-1 runs klink") and risk.text.endswith("are those of stimulus time.")


def test_unknown_upper_end_is_no_lateness_and_what_is_measured_decides(query: Query) -> None:
    started(query.cluster, "beside")
    say(query.cluster, "agent-1", "klink")
    row, _ = estimated(query)
    assert row.state == "at_risk"
    objectives_refresh(query.cluster)
    assert (row.query.objective_status.state, row.query.objective_status.decided_by) == ("unknown", "estimate")
    assert "is not known: the estimate is of stimulus time and agent-1 runs Klink" in QueryDetail(query).sentence
    assert "How much higher <b>2 queries</b> end" in Findings(query.cluster).sentence
    windows(query, 4.0, count=9)
    objectives_refresh(query.cluster, now=NOW)
    status = ObjectiveStatus.objects.get(query=query)
    assert (status.state, status.decided_by, status.measured_s) == ("holds", "measurement", 4.0)
    assert not Incident.objects.exists()


def test_agents_with_stimulus_time_or_without_the_query_change_nothing(query: Query) -> None:
    say(query.cluster, "agent-1", "stimulus-time")
    say(query.cluster, "agent-2", "klink")
    row, run = estimated(query)
    assert "scheduling" not in run.result and "scheduling" not in row.result


def test_another_policy_requests_one_estimate(query: Query) -> None:
    own_batch(datetime.now(UTC))
    estimated(query)
    assert live_estimates_refresh() == 0
    say(query.cluster, "agent-2", "klink")
    assert estimate_refresh_all() == 1
    run_jobs()
    assert estimate_refresh_all() == 0
    say(query.cluster, "agent-2", "fcfs")
    assert estimate_refresh_all() == 1


def test_loosest_policy_of_the_agents_at_a_node_counts(query: Query) -> None:
    node = Agent.objects.get(cluster=query.cluster, name="agent-1").node
    Agent.objects.create(cluster=query.cluster, name="second", node=node)
    say(query.cluster, "agent-1", "stimulus-time")
    say(query.cluster, "second", "fcfs")
    found = cluster_snapshot(query.cluster).deployment
    assert found.other_policies == {"agent-1": "fcfs"}
