"""Estimates of live queries: their waits, what became of them, and intervals widened until they are honest."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apps.estimates.accuracy import KEEP, accuracy_observe_all, accuracy_purge
from apps.estimates.calibration import INTERVAL, calibrations_refresh, group_of
from apps.estimates.models import (
    AccuracyObservation,
    EstimateRun,
    IntervalCalibration,
    QueryEstimate,
    UnscoredInterval,
)
from apps.estimates.refresh import live_estimates_refresh
from apps.estimates.selectors import query_estimate_latest
from apps.estimates.services import ESTIMATE
from apps.estimates.summary import accuracy_summary
from apps.measurements.models import StreamStretch
from apps.measurements.stream_processor import timing_now
from apps.microbatch.models import MicroBatch
from apps.queries.models import Query
from apps.results.models import ResultWindow
from apps.telemetry.models import LiveQuery
from apps.telemetry.streams import ASSUMED_TRIGGER_S
from engine.estimation.answer import UncoveredInput
from tests.apps.estimates.answers import live_parts, stored
from tests.apps.estimates.runs import NOW, SPREAD, make_runs
from tests.apps.measurements.live import live_query, make_live_cluster
from tests.apps.microbatch.own import own_batch
from tests.apps.small_cluster import run_jobs

pytestmark = [pytest.mark.django_db, pytest.mark.moment]


@pytest.fixture
def live() -> LiveQuery:
    return live_query(make_live_cluster())


def estimated(query: Query, at: datetime | None = None) -> QueryEstimate:
    ESTIMATE.request(cluster=query.cluster)
    run_jobs()
    row = query_estimate_latest(query)
    assert row is not None
    if at is not None:
        EstimateRun.objects.filter(pk=row.run_id).update(created_at=at)
        row.refresh_from_db()
    return row


def window(query: Query, at: datetime, latency_s: float | None = 3.2, **fields: Any) -> ResultWindow:
    """A complete window whose result came at `at`."""
    return ResultWindow.objects.create(
        query=query, plan="p", window_us=round(at.timestamp() * 1e6), width_us=10_000_000, row_count=0, body=b"",
        **{"complete": True, "emitted_at": at, "latency_s": latency_s, **fields},
    )  # fmt: skip


def test_live_estimate_adds_waits_of_epoch_trigger_and_batch(live: LiveQuery) -> None:
    bare = estimated(live.query)
    parts = bare.result["live"]
    assert (parts["epoch_s"], parts["trigger_s"], parts["overhead_s"]) == (1.0, 2.0, 0.0)
    assert parts["evidence"] == "assumed" and 3.0 <= bare.estimate_s < 3.1
    own_batch(NOW)
    row = estimated(live.query)
    parts = row.result["live"]
    assert (parts["epoch_s"], parts["trigger_s"], parts["evidence"]) == (1.0, 2.0, "measured")
    assert parts["overhead_s"] + parts["work_s"] == pytest.approx(0.6, abs=0.01)
    assert row.estimate_s == pytest.approx(bare.estimate_s + 0.6, abs=0.01)
    assert row.result["mean_s"] < row.estimate_s
    assert parts["upper_s"] >= row.estimate_s
    assert row.headroom_share == pytest.approx((10.0 - row.estimate_s) / 10.0)
    assert row.state == "holds"


def test_objective_below_the_waits_is_breached() -> None:
    live = live_query(make_live_cluster(), bound_s=3.0)
    own_batch(NOW)
    assert estimated(live.query).state == "breached"


def test_estimate_of_a_query_that_is_not_live_is_the_engines_answer(live: LiveQuery) -> None:
    own_batch(NOW)
    LiveQuery.objects.update(state="stopped")
    row = estimated(live.query)
    assert "live" not in row.result and "trust" not in row.result and row.estimate_s < 0.1


def test_timing_is_that_of_the_newest_batches_without_warm_up() -> None:
    assert timing_now().is_assumed and timing_now().interval_s == ASSUMED_TRIGGER_S
    MicroBatch.objects.filter(pk=own_batch(NOW, 6, duration_s=9.0).pk).update(is_warm_up=True)
    assert timing_now().is_assumed
    own_batch(NOW)
    own_batch(NOW + timedelta(seconds=10), 12, duration_s=3.5)
    found = timing_now()
    assert not found.is_assumed and found.batches_s == (3.5, 0.6) and found.interval_s == pytest.approx(2.05)


def test_measured_interval_is_compared_with_the_estimate_in_force(live: LiveQuery) -> None:
    own_batch(NOW)
    row = estimated(live.query, NOW - timedelta(minutes=5))
    begin = datetime.fromtimestamp((NOW.timestamp() // 30 - 4) * 30, UTC)
    for k, latency in enumerate((2.4, 3.1, 2.9)):
        window(live.query, begin + timedelta(seconds=5 + 10 * k), latency)
    window(live.query, begin + timedelta(seconds=6), 9.0, complete=False)
    window(live.query, begin + timedelta(seconds=7), 9.0, revision=1)
    window(live.query, begin + timedelta(seconds=8), -1.0)
    window(live.query, begin + timedelta(seconds=31), 3.3)
    assert accuracy_observe_all(NOW) == 2
    first = AccuracyObservation.objects.order_by("starts_at").first()
    assert (first.starts_at, first.windows, first.left_out) == (begin, 3, 3)
    assert first.observed_s == 3.1 and first.expected_s == row.estimate_s and first.statistic == "worst"
    assert first.estimate_id == row.pk and first.parts["epoch_s"] == 1.0
    assert first.error_s == pytest.approx(row.estimate_s - 3.1)
    assert accuracy_observe_all(NOW) == 0  # each interval once


def stretch(work: str, begins_at: datetime, ends_at: datetime) -> StreamStretch:
    return StreamStretch.objects.create(work=work, begins_at=begins_at, ends_at=ends_at)


def test_interval_while_the_stream_processor_warms_up_is_disturbed(live: LiveQuery) -> None:
    """Two windows closed while it was starting, one just before it went away: three intervals of four are left out."""
    own_batch(NOW)
    row = estimated(live.query, NOW - timedelta(minutes=8))
    begin = datetime.fromtimestamp((NOW.timestamp() // 30 - 8) * 30, UTC)
    stretch("warming", begin, begin + timedelta(seconds=40))
    stretch("steady", begin + timedelta(seconds=40), begin + timedelta(seconds=95))
    stretch("away", begin + timedelta(seconds=95), begin + timedelta(seconds=110))
    window(live.query, begin + timedelta(seconds=29), 27.0)
    window(live.query, begin + timedelta(seconds=42), 12.0)
    window(live.query, begin + timedelta(seconds=43), 2.5)
    window(live.query, begin + timedelta(seconds=70), 3.1)
    window(live.query, begin + timedelta(seconds=112), 20.0)
    accuracy_observe_all(NOW)
    rows = list(AccuracyObservation.objects.order_by("starts_at"))
    assert [row.disturbed for row in rows] == ["warming", "warming", "", "away"]
    assert [row.covered for row in rows if row.disturbed] == [None] * 3 and rows[0].observed_s == 27.0
    found = accuracy_summary(AccuracyObservation.objects.all())
    assert found.disturbed == {"warming": 2, "away": 1} and found.judged.outcomes == len(found.rows) == 1
    assert found.judged.bias == pytest.approx((row.estimate_s - 3.1) / 3.1)
    own = IntervalCalibration.objects.get(query=live.query)
    assert (own.own_runs, own.left_out) == (1, 3)


def test_assumed_waits_make_the_evidence_assumed() -> None:
    assert stored(live=live_parts(evidence="assumed")).evidence == "assumed"
    assert stored(live=live_parts()).evidence == "measured"
    assert stored(live=live_parts(), uncovered=(UncoveredInput("a", "s", None),)).evidence == "assumed"


def test_mean_objective_is_compared_with_the_measured_mean(live: LiveQuery) -> None:
    Query.objects.update(objective_statistic="mean")
    estimated(live.query, NOW - timedelta(minutes=5))
    begin = datetime.fromtimestamp((NOW.timestamp() // 30 - 3) * 30, UTC)
    window(live.query, begin + timedelta(seconds=1), 2.0)
    window(live.query, begin + timedelta(seconds=2), 3.0)
    accuracy_observe_all(NOW)
    assert AccuracyObservation.objects.get().observed_s == 2.5


def test_no_observation_before_the_first_estimate(live: LiveQuery) -> None:
    estimated(live.query)
    window(live.query, NOW - timedelta(minutes=3))
    assert accuracy_observe_all(NOW) == 0


def test_interval_that_may_still_grow_is_not_observed(live: LiveQuery) -> None:
    estimated(live.query, NOW - timedelta(minutes=5))
    begin = datetime.fromtimestamp(NOW.timestamp() // 30 * 30, UTC)
    window(live.query, begin + timedelta(seconds=1))
    assert accuracy_observe_all(begin + timedelta(seconds=39)) == 0
    assert accuracy_observe_all(begin + timedelta(seconds=40)) == 1


def test_scored_run_keeps_the_interval_as_stated_and_as_shown(live: LiveQuery) -> None:
    """With latencies four times as far off as stated, the next interval is wider, and its runs say from what."""
    own_batch(NOW)
    stated = estimated(live.query)
    assert stated.result["calibration"]["scope"] == ""
    assert stated.result["calibration"]["stated"] == [stated.low_s, stated.high_s]
    make_runs(live.query, 60, spread=4.0 * SPREAD, evidence=stated.answer.evidence)
    calibrations_refresh({group_of(row) for row in AccuracyObservation.objects.all()}, now=NOW)
    row = estimated(live.query, NOW - timedelta(minutes=5))
    applied = row.result["calibration"]
    assert applied["scope"] == "query" and applied["runs"] == 60 and applied["upper"] > 2.5
    assert row.low_s == applied["stated"][0] < row.estimate_s < applied["stated"][1] < row.high_s
    assert row.result["realised"]["worst"]["high_s"] == row.high_s <= row.result["under_s"]
    AccuracyObservation.objects.all().delete()
    window(live.query, datetime.fromtimestamp((NOW.timestamp() // 30 - 4) * 30, UTC) + timedelta(seconds=5), 3.1)
    accuracy_observe_all(NOW)
    found = AccuracyObservation.objects.get()
    assert [found.stated_low_s, found.stated_high_s] == applied["stated"]
    assert [found.low_s, found.high_s] == applied["run"] and found.upper_factor == applied["upper"]
    assert (found.origin, found.windowed, found.covered) == ("live", True, True)


def test_every_judged_interval_is_calibrated_with(live: LiveQuery) -> None:
    own_batch(NOW)
    estimated(live.query, NOW - timedelta(minutes=30))
    begin = datetime.fromtimestamp((NOW.timestamp() // 30 - 40) * 30, UTC)
    for i in range(25):
        window(live.query, begin + i * INTERVAL + timedelta(seconds=5), 20.0)
    assert accuracy_observe_all(NOW) == 25
    row = IntervalCalibration.objects.get(query=live.query)
    assert (row.own_runs, row.coverage_before, row.scope) == (25, 0.0, "query") and row.upper > 1.0
    assert IntervalCalibration.objects.filter(query=None).count() == 2


def test_changed_waits_or_calibration_request_an_estimate(live: LiveQuery) -> None:
    """Neither is part of a snapshot."""
    assert live_estimates_refresh() == 0  # never estimated: that is the start's business
    estimated(live.query)
    assert live_estimates_refresh() == 0
    own_batch(NOW)
    assert live_estimates_refresh() == 1
    run_jobs()
    assert query_estimate_latest(live.query).result["live"]["evidence"] == "measured"
    assert live_estimates_refresh() == 0
    own_batch(NOW + timedelta(seconds=10), 8, duration_s=0.62)
    assert live_estimates_refresh() == 0
    for k in range(5):
        own_batch(NOW + timedelta(seconds=20 + k), 9 + k, duration_s=2.5)
    assert live_estimates_refresh() == 1
    run_jobs()
    make_runs(live.query, 30, spread=4.0 * SPREAD, evidence="assumed")
    rows = AccuracyObservation.objects.all()
    rows.update(evidence=query_estimate_latest(live.query).answer.evidence)
    calibrations_refresh({group_of(row) for row in rows}, now=NOW)
    assert live_estimates_refresh() == 0  # factors can wait until the estimate is a minute old
    EstimateRun.objects.update(created_at=NOW - timedelta(seconds=61))
    assert live_estimates_refresh() == 1
    run_jobs()
    assert live_estimates_refresh() == 0 and query_estimate_latest(live.query).result["calibration"]["upper"] > 2.0


def test_old_observations_are_purged(live: LiveQuery) -> None:
    make_runs(live.query, 2)
    AccuracyObservation.objects.filter(starts_at__lt=NOW - 1.5 * INTERVAL).update(starts_at=NOW - KEEP - INTERVAL)
    assert accuracy_purge(NOW) == 1 and AccuracyObservation.objects.count() == 1


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"complete": False}, "incomplete"),
        ({"revision": 1}, "revised"),
        ({"latency_s": -1.0}, "clocks"),
        ({"version_number": 7}, "version"),
    ],
)
def test_interval_that_cannot_be_scored_is_kept_with_its_reason(
    live: LiveQuery, fields: dict[str, Any], reason: str
) -> None:
    estimated(live.query, NOW - timedelta(minutes=5))
    window(live.query, NOW - timedelta(minutes=3), **fields)
    for _ in range(2):  # looked at again, it is counted once
        assert accuracy_observe_all(NOW) == 0
        row = UnscoredInterval.objects.get()
        assert (row.reason, row.windows) == (reason, 1)


def test_interval_before_the_first_estimate_is_counted_as_not_scored(live: LiveQuery) -> None:
    estimated(live.query, NOW)
    window(live.query, NOW - timedelta(minutes=3))
    accuracy_observe_all(NOW + timedelta(minutes=2))
    assert UnscoredInterval.objects.get().reason == "no_estimate"
    assert accuracy_purge(NOW + KEEP) == 1
