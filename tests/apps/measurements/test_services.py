"""Measurements become the basis of estimates: when they are material, and only then."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from apps.estimates.models import EstimateRun
from apps.fleet.choices import Evidence
from apps.jobs.models import Job
from apps.measurements.frames import statistics_receive
from apps.measurements.models import OperatorStatistic, StatisticsWindow, StreamStretch
from apps.measurements.selectors import readiness_text
from apps.measurements.services import refine_all, refine_cluster
from apps.queries.arrivals import series
from apps.queries.models import ArrivalSeries, OperatorInput, Placement
from apps.queries.services import query_start, query_version_create
from apps.queries.snapshots.cluster import cluster_snapshot
from apps.telemetry.models import Assignment, LiveQuery
from engine.estimation.estimate import estimate
from tests.apps.measurements.frames import NOW, row, statistics_frame
from tests.apps.measurements.live import (
    CPS,
    OPERATORS,
    agent_ids,
    body,
    fingerprints,
    go_live,
    live_query,
    make_live_cluster,
)
from tests.apps.small_cluster import run_jobs

pytestmark = [pytest.mark.django_db, pytest.mark.moment]


@pytest.fixture
def live() -> LiveQuery:
    return live_query(make_live_cluster())


def tell(
    live: LiveQuery,
    subintervals: int = 12,
    *,
    per_agent: int = 1000,
    drained: float = 0.25,
    noise: float = 0.0,
    first: int = 2,
) -> None:
    """Subintervals of 10 s: agents drain a share before `good`, half of the records pass it, 20 groups are counted."""
    rng = np.random.default_rng(7)
    marks = fingerprints(live)
    rows: list[dict[str, Any]] = []

    def add(shared: dict[str, Any], operator: str, place: str, n: int, out: int, cycles: float, gone: int = 0) -> None:
        counts = {"records_in": n + gone, "records_processed": n, "records_drained": gone, "records_out": out}
        rows.append(row(operator, place, fingerprint=marks[operator], cpu_ns=round(n * cycles), **counts, **shared))

    for i in range(first, first + subintervals):
        slower = 1.0 + noise * float(rng.standard_normal())
        handed = round(per_agent * drained)
        shared = {"query": live.key, "plan": live.plan, "width_us": 10_000_000, "ago_s": 10.0 * (i + 2)}

        kept = per_agent - handed
        for place in agent_ids(live.query.cluster):
            add(shared, "window", place, per_agent, per_agent, 200.0 * slower)
            add(shared, "good", place, kept, kept // 2, 500.0 * slower, handed)
            add(shared, "count", place, kept // 2, 20, 800.0 * slower)
        total = handed * len(agent_ids(live.query.cluster))
        add(shared, "good", "stream", total, total // 2, 500.0 * slower)
        add(shared, "count", "stream", total // 2 + 20 * len(agent_ids(live.query.cluster)), 20, 800.0 * slower)
    statistics_receive([statistics_frame(*rows)])


def inputs(live: LiveQuery) -> dict[str, OperatorInput]:
    rows = OperatorInput.objects.filter(operator__version__query=live.query).select_related("operator")
    return {statistic.operator.name: statistic for statistic in rows}


def test_assumed_statistics_become_measured(live: LiveQuery) -> None:
    tell(live)
    found = refine_cluster(live.query.cluster, NOW)
    assert (found.inputs, found.sources) == (3, 1)
    known = inputs(live)
    assert {statistic.evidence for statistic in known.values()} == {Evidence.MEASURED}
    assert known["good"].selectivity == pytest.approx(0.5, abs=0.001)
    assert known["good"].cycles_per_event == pytest.approx(500.0)
    assert known["good"].events == 12 * 2000
    assert len(known["good"].batches) == 12
    # agents and stream together: 20 rows of closed windows of what passed the filter, partial aggregates not counted
    assert known["count"].selectivity == pytest.approx(20 / 1000, rel=0.01)


def test_repeated_measurements_change_nothing(live: LiveQuery) -> None:
    tell(live)
    refine_cluster(live.query.cluster, NOW)
    before = cluster_snapshot(live.query.cluster).digest
    again = refine_cluster(live.query.cluster, NOW + timedelta(seconds=10))
    assert (again.inputs, again.sources, again.placements) == (0, 0, 0)
    assert cluster_snapshot(live.query.cluster).digest == before


def test_noise_changes_no_statistic(live: LiveQuery) -> None:
    tell(live, 30, noise=0.05, first=10)
    refine_cluster(live.query.cluster, NOW)
    tell(live, 3, noise=0.05, first=6)
    assert refine_cluster(live.query.cluster, NOW + timedelta(seconds=30)).inputs == 0


def test_changed_selectivity_is_passed_on(live: LiveQuery) -> None:
    tell(live, 10, first=20)
    refine_cluster(live.query.cluster, NOW - timedelta(seconds=190))
    assert inputs(live)["good"].selectivity == pytest.approx(0.5, abs=0.001)
    StatisticsWindow.objects.update(records_out=0)
    tell(live, 10, first=5)
    StatisticsWindow.objects.filter(operator="good", records_out__gt=0).update(records_out=900)
    refine_cluster(live.query.cluster, NOW)
    assert inputs(live)["good"].selectivity != pytest.approx(0.5, abs=0.05)


@pytest.mark.django_db(transaction=True)
def test_update_requests_one_estimate() -> None:
    live = live_query(make_live_cluster())
    run_jobs()
    Job.objects.all().delete()
    tell(live)
    refine_all(NOW)
    assert Job.objects.count() == 1
    run_jobs()
    result = EstimateRun.objects.first().queries.get().result
    assert {
        entry["evidence"] for entry in result["uncovered"]
    } == set()  # every input has a sample: the interval is whole


def test_placement_follows_the_measured_shares(live: LiveQuery) -> None:
    tell(live)
    assert refine_cluster(live.query.cluster, NOW).placements == 1
    found = Placement.objects.filter(operator__name="good").values_list("node__name", "core", "fraction")
    shares = {(node, core): fraction for node, core, fraction in found}
    expected = {("agent-1", 0): 0.38, ("agent-2", 0): 0.38, ("stream", 0): 0.12, ("stream", 1): 0.12}
    assert shares == pytest.approx(expected, abs=0.02)
    assert sum(shares.values()) == pytest.approx(1.0)
    held = dict(Placement.objects.filter(operator__name="window").values_list("node__name", "fraction"))
    assert held == {"agent-1": 0.5, "agent-2": 0.5}
    deployment = cluster_snapshot(live.query.cluster).deployment
    assert estimate(deployment, mace_every=4).queries["errors"].estimate_s >= 0.0
    assert deployment.with_placement({}).operators == deployment.operators  # what derives from it is checked, too


def test_placement_follows_load_factors_before_any_measurement() -> None:
    live = live_query(make_live_cluster(), factors=(1.0, 0.5, 0.0))
    assert refine_cluster(live.query.cluster, NOW).placements == 1
    shares: dict[str, dict[str, float]] = {}
    for name, node, fraction in Placement.objects.values_list("operator__name", "node__name", "fraction"):
        shares.setdefault(name, {}).setdefault(node, 0.0)
        shares[name][node] += fraction
    assert shares["window"] == {"agent-1": 0.5, "agent-2": 0.5}
    assert shares["good"] == {"agent-1": 0.25, "agent-2": 0.25, "stream": 0.5}
    assert shares["count"] == {"stream": 1.0}


def test_placement_stays_without_a_node_of_the_stream_processor() -> None:
    cluster = make_live_cluster()
    live = live_query(cluster)
    Placement.objects.update(node=cluster.nodes.get(name="agent-1"))
    cluster.nodes.filter(name="stream").update(name="elsewhere")
    tell(live)
    assert refine_cluster(cluster, NOW).placements == 0


def test_arrivals_counted_by_agents_repeat_over_the_horizon(live: LiveQuery) -> None:
    tell(live)
    refine_cluster(live.query.cluster, NOW)
    found = ArrivalSeries.objects.get(source_id="probes")
    values = series.unpack(found.data)
    assert found.evidence == Evidence.MEASURED and found.origin == "telemetry"
    assert values.mean() * 4 == pytest.approx(2000.0, rel=1e-6)
    assert found.spec["measured_s"] == 120.0 and found.spec["extrapolated_s"] == 480.0 and found.spec["missing"] == 0


def test_gap_in_measurements_is_no_pause_of_the_source(live: LiveQuery) -> None:
    tell(live, 12)
    gap = StatisticsWindow.objects.order_by("starts_at").values_list("starts_at", flat=True)[20]
    StatisticsWindow.objects.filter(starts_at=gap).delete()
    refine_cluster(live.query.cluster, NOW)
    found = ArrivalSeries.objects.get(source_id="probes")
    assert found.spec["missing"] == 1 and series.unpack(found.data).min() > 0


def test_records_of_a_shared_source_are_counted_once(live: LiveQuery) -> None:
    other = live_query(live.query.cluster, "again")
    tell(live)
    tell(other)
    refine_cluster(live.query.cluster, NOW)
    values = series.unpack(ArrivalSeries.objects.get(source_id="probes").data)
    assert values.mean() * 4 == pytest.approx(2000.0, rel=1e-6)


def test_few_events_stay_assumed_and_name_what_is_missing(live: LiveQuery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    tell(live, 2, per_agent=8)
    refine_cluster(live.query.cluster, NOW)
    assert inputs(live)["good"].evidence == Evidence.ASSUMED
    found = OperatorStatistic.objects.get(operator="window")
    assert not found.ready and found.reason == "2 of 3 subintervals" and found.lacking_since == NOW
    assert (found.more_events, found.more_s) == (16, pytest.approx(10.0))
    assert readiness_text(found) == "16 more events, about 10 s"
    found.last_at -= timedelta(minutes=10)
    assert readiness_text(found) == "16 more events; nothing arrives at present"
    later = NOW + timedelta(seconds=40)
    tell(live, 6, per_agent=40, first=-3)
    refine_cluster(live.query.cluster, later)
    found.refresh_from_db()
    assert found.ready and found.lacking_since is None and found.reason == ""


def test_new_version_inherits_statistics_of_kept_operators(live: LiveQuery) -> None:
    tell(live)
    refine_cluster(live.query.cluster, NOW)
    changed = [*OPERATORS[:2], {**OPERATORS[2], "expression": {**OPERATORS[2]["expression"], "by": ["src", "err"]}}]
    version = query_version_create(query=live.query, body=body(changed))
    query_start(version=version, placement={operator["id"]: "stream" for operator in changed})
    live.query.refresh_from_db()
    go_live(live.query, version, changed)
    rows = OperatorInput.objects.filter(operator__version=version).select_related("operator")
    known = {statistic.operator.name: statistic for statistic in rows}
    assert {name: statistic.evidence for name, statistic in known.items()} == {
        "window": "measured",
        "good": "measured",
        "count": "assumed",
    }
    assert known["good"].cycles_per_event == pytest.approx(500.0) and known["good"].events == 24_000
    assert known["good"].batches


def test_stored_version_inherits_before_it_is_live(live: LiveQuery, django_capture_on_commit_callbacks: Any) -> None:
    """Its admission already rests on what was measured."""
    tell(live)
    refine_cluster(live.query.cluster, NOW)
    with django_capture_on_commit_callbacks(execute=True):
        version = query_version_create(query=live.query, body=body())
    rows = OperatorInput.objects.filter(operator__version=version)
    assert set(rows.values_list("evidence", flat=True)) == {"measured"}


def test_costs_of_agents_of_other_speed_are_converted_to_cycles(live: LiveQuery) -> None:
    agent = live.assignments.order_by("agent__name").first().agent
    agent.capacity_cps = 3 * CPS
    agent.save()
    tell(live, drained=0.0)
    refine_cluster(live.query.cluster, NOW)
    assert inputs(live)["good"].cycles_per_event == pytest.approx((3 * 500 + 500) / 2)


def test_stopped_query_is_not_updated(live: LiveQuery) -> None:
    tell(live)
    LiveQuery.objects.update(state="stopped")
    assert refine_all(NOW).inputs == 0
    assert Assignment.objects.count() == 2


def test_rest_shows_the_statistics_of_each_operator(live: LiveQuery, api: APIClient) -> None:
    address = f"/api/v1/queries/{live.query_id}/measurements"
    before = api.get(address).json()
    assert [entry["operator"] for entry in before] == ["window", "good", "count"]
    assert before[0]["statistic"] is None and not before[0]["ready"]
    tell(live)
    refine_cluster(live.query.cluster, NOW)
    found = api.get(address).json()[1]
    assert found["ready"] and found["text"] == "ready"
    assert found["statistic"]["shares"]["stream"] == pytest.approx(0.25)
    assert found["statistic"]["selectivity"] == pytest.approx(0.5, abs=0.001)
    assert found["statistic"]["whole"] == 12 and found["statistic"]["missing"] == 0
    assert api.get("/api/v1/queries/0/measurements").status_code == 404


def tell_steady(live: LiveQuery, subintervals: int, *, last_ago_s: float) -> None:
    """Subintervals of 4 s: each agent 320 events; 12 rows of a window of 10 s are put out 3 s after its end."""
    marks = fingerprints(live)
    rows: list[dict[str, Any]] = []
    last = (NOW.timestamp() - last_ago_s) // 4 * 4
    for i in range(subintervals):
        at_s = last - 4.0 * i
        shared = {"query": live.key, "plan": live.plan, "width_us": 4_000_000, "window_us": round(at_s * 1e6)}
        for operator in ("window", "good", "count"):
            for place in agent_ids(live.query.cluster):
                counts = {"records_in": 320, "records_processed": 320, "records_out": 320, "cpu_ns": 320_000}
                rows.append(row(operator, place, fingerprint=marks[operator], **counts, **shared))
        put_out = 12 * sum(at_s <= end + 3 < at_s + 4 for end in np.arange(at_s // 10 * 10 - 10, at_s + 10, 10))
        counts = {"records_in": 640, "records_processed": 640, "records_out": put_out, "cpu_ns": 0}
        rows.append(row("count", "stream", fingerprint=marks["count"], **counts, **shared))
    statistics_receive([statistics_frame(*rows)])


def test_windowed_aggregate_is_measured_by_whole_slides(live: LiveQuery) -> None:
    """Its output comes every 10 s, its subintervals are of 4 s; within two minutes it is ready."""
    tell_steady(live, 30, last_ago_s=16)
    refine_cluster(live.query.cluster, NOW)
    found = {statistic.operator: statistic for statistic in OperatorStatistic.objects.all()}
    assert found["count"].ready and 4 <= found["count"].units <= 6
    assert (
        found["count"].selectivity == pytest.approx(12 / 1600) and len(found["count"].batches) == found["count"].units
    )
    assert found["window"].units == 30 and found["window"].ready


def test_windowed_aggregate_is_not_passed_on_before_windows_closed(live: LiveQuery) -> None:
    tell_steady(live, 5, last_ago_s=16)
    refine_cluster(live.query.cluster, NOW)
    assert inputs(live)["window"].evidence == "measured" and inputs(live)["count"].evidence == "assumed"
    found = OperatorStatistic.objects.get(operator="count")
    assert not found.ready and found.reason == "1 of 3 blocks of 20 s" and found.more_s == pytest.approx(40.0)


def test_blocks_without_the_stream_processor_are_left_out(live: LiveQuery) -> None:
    tell_steady(live, 40, last_ago_s=16)
    StreamStretch.objects.create(
        work="away", begins_at=NOW - timedelta(seconds=200), ends_at=NOW - timedelta(seconds=90)
    )
    StatisticsWindow.objects.filter(place="stream", starts_at__lt=NOW - timedelta(seconds=95)).update(records_out=0)
    refine_cluster(live.query.cluster, NOW)
    found = OperatorStatistic.objects.get(operator="count")
    assert found.selectivity == pytest.approx(12 / 1600) and found.units <= 4
