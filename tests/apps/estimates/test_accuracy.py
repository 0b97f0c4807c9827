"""Estimates of live queries: their waits, what became of them, and intervals widened until they are honest."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from apps.estimates.accuracy import INTERVAL, KEEP, accuracy_observe_all, accuracy_purge
from apps.estimates.models import AccuracyObservation, EstimateRun, QueryEstimate
from apps.estimates.refresh import live_estimates_refresh
from apps.estimates.selectors import query_estimate_latest
from apps.estimates.services import estimate_request
from apps.estimates.trust import accuracy_summary, evidence_of, trust_of
from apps.measurements.models import StreamStretch
from apps.measurements.stream_processor import timing_now
from apps.microbatch.models import MicroBatch
from apps.queries.models import Query
from apps.results.models import ResultWindow
from apps.telemetry.ingest.streams import ASSUMED_TRIGGER_S
from apps.telemetry.models import LiveQuery
from tests.apps.measurements.live import live_query, make_live_cluster
from tests.apps.microbatch.own import own_batch
from tests.apps.small_cluster import run_jobs

pytestmark = pytest.mark.django_db

NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture
def live() -> LiveQuery:
    return live_query(make_live_cluster())


def estimated(query: Query, at: datetime | None = None) -> QueryEstimate:
    estimate_request(cluster=query.cluster)
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


def observation(
    query: Query, i: int, *, expected: float = 3.0, observed: float = 3.2, half: float | None = 0.5, **fields: Any
) -> AccuracyObservation:
    """One of `i` intervals ago."""
    at = NOW - (i + 1) * INTERVAL
    return AccuracyObservation.objects.create(
        cluster=query.cluster, query=query, version=1, estimated_at=at, starts_at=at, ends_at=at + INTERVAL,
        expected_s=expected, observed_s=observed, half_s=half, windows=3,
        **{"statistic": "worst", "evidence": "assumed", **fields},
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
    assert trust_of(live.query, "worst", rows[2].evidence)[0].outcomes == 1


def test_assumed_waits_make_the_evidence_assumed() -> None:
    assert evidence_of({"live": {"evidence": "assumed"}}) == "assumed"
    assert evidence_of({"live": {"evidence": "measured"}, "uncovered": []}) == "measured"
    assert evidence_of({"live": {"evidence": "measured"}, "uncovered": [{"operator": "a"}]}) == "assumed"


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


def test_interval_is_widened_by_past_errors(live: LiveQuery) -> None:
    """With errors four times the stated half width, the next interval is wide enough for nine in ten of them."""
    rng = np.random.default_rng(2)
    own_batch(NOW)
    stated = estimated(live.query)
    half = 0.4
    for i, error in enumerate((1.6 * rng.standard_normal(100)).tolist()):
        observation(live.query, i, expected=3.0 + error, observed=3.0, half=half)
    trusted, whose = trust_of(live.query, "worst", "assumed")
    assert whose == "query" and trusted.factor == pytest.approx(1.645 * 4, rel=0.25)
    row = estimated(live.query)
    said = row.result["trust"]
    assert said["factor"] == trusted.factor and said["score"] == pytest.approx(1 / trusted.factor)
    assert row.estimate_s == pytest.approx(stated.estimate_s)
    assert row.high_s - row.estimate_s == pytest.approx(trusted.factor * (stated.high_s - stated.estimate_s))
    assert row.low_s == pytest.approx(
        max(0.0, row.estimate_s - trusted.factor * (stated.estimate_s - stated.low_s)), abs=1e-9
    )
    assert said["stated"] == pytest.approx([stated.low_s, stated.high_s])
    assert said["half_s"] == pytest.approx((stated.high_s - stated.low_s) / 2)
    accepted = [abs(row.error_s) <= trusted.half_s for row in AccuracyObservation.objects.all()]
    assert 0.88 <= np.mean(accepted) <= 0.95


def test_query_without_observations_takes_the_factor_of_its_cluster(live: LiveQuery) -> None:
    other = live_query(live.query.cluster, "young").query
    for i in range(40):
        observation(live.query, i, expected=5.0, observed=3.0, half=0.5)
    trusted, whose = trust_of(other, "worst", "assumed")
    assert (whose, trusted.factor, trusted.half_s) == ("cluster", 4.0, None)
    assert trust_of(other, "mean", "assumed")[0].factor == 1.0
    assert trust_of(other, "worst", "measured")[0].factor == 1.0


def test_changed_waits_or_trust_request_an_estimate(live: LiveQuery) -> None:
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
    for i in range(30):
        observation(live.query, i, expected=5.0, observed=3.0, half=0.5)
    assert live_estimates_refresh() == 0  # trust can wait until the estimate is a minute old
    EstimateRun.objects.update(created_at=NOW - timedelta(seconds=61))
    assert live_estimates_refresh() == 1
    run_jobs()
    assert live_estimates_refresh() == 0 and query_estimate_latest(live.query).result["trust"]["factor"] == 4.0


def test_old_observations_are_purged(live: LiveQuery) -> None:
    observation(live.query, 1)
    observation(live.query, 3)
    AccuracyObservation.objects.filter(starts_at__lt=NOW - 3 * INTERVAL).update(starts_at=NOW - KEEP - INTERVAL)
    assert accuracy_purge(NOW) == 1 and AccuracyObservation.objects.count() == 1
