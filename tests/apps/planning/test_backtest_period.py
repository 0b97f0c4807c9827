"""Backtests of live queries: what agents counted, by subinterval and by the hour; waits and measured latencies."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from apps.estimates.accuracy import INTERVAL
from apps.estimates.models import AccuracyObservation, QueryEstimate
from apps.estimates.services import ESTIMATE
from apps.measurements.models import StatisticsHour
from apps.planning.backtest_period import load_period
from apps.planning.backtest_records import SegmentGrid, recorded_reaches, segment_grid, source_records
from apps.planning.models import BacktestRun
from apps.telemetry.models import LiveQuery
from engine.backtest.comparison import backtest_policies
from engine.backtest.policy import RECORDED
from tests.apps import small_cluster
from tests.apps.estimates.answers import live_parts
from tests.apps.measurements.live import agent_ids, live_query, make_live_cluster
from tests.apps.measurements.test_services import NOW, tell
from tests.apps.planning.test_backtests import history

pytestmark = [pytest.mark.django_db, pytest.mark.moment]

MINUTE = timedelta(minutes=1)


@pytest.fixture
def live() -> LiveQuery:
    """Two agents have counted 1,000 records each in every 10 s of the last five minutes."""
    live = live_query(make_live_cluster())
    tell(live, 30)
    return live


def hour(live: LiveQuery, at: datetime, records: float, windows: int) -> None:
    for place in agent_ids(live.query.cluster):
        StatisticsHour.objects.create(
            cluster=live.query.cluster, query=live.query, plan=live.plan, operator="window", fingerprint="f",
            place=place, starts_at=at, width_s=10.0, windows=windows, measured_windows=windows, records_in=records,
        )  # fmt: skip


def test_telemetry_of_subintervals_is_the_finest_record(live: LiveQuery) -> None:
    (reach,) = recorded_reaches(live.query.cluster)
    assert (reach.source, reach.kind, reach.width_s) == ("probes", "measured", 10.0)
    grid = segment_grid([reach], NOW - 60 * MINUTE, NOW)
    assert grid is not None and grid.width_s == 60.0 and 5 <= grid.segments <= 6
    record = source_records(live.query.cluster, grid)["probes"]
    known_rates = record.rates_eps[np.isfinite(record.rates_eps)]
    np.testing.assert_allclose(known_rates, 200.0)
    assert record.measured == len(known_rates) >= 5 and record.arrivals_eps == pytest.approx(10.0)


def test_hours_with_gaps_have_the_mean_rate_of_their_windows(live: LiveQuery) -> None:
    at = datetime.fromtimestamp(NOW.timestamp() // 3600 * 3600, UTC) - timedelta(hours=5)
    hour(live, at, 90_000.0, windows=180)  # half of the hour was told: 50 events/s at each of two agents
    history(live.query.cluster, [10.0] * 3, at + timedelta(hours=2), "probes")
    record = source_records(live.query.cluster, SegmentGrid(at.timestamp() - 3600, 3600.0, 4, False))["probes"]
    np.testing.assert_allclose(record.rates_eps, [10.0, 100.0, 10.0, np.nan])
    assert (record.measured, record.known) == (1, 3)


def test_measured_latencies_stand_beside_replayed_ones_with_waits_added(live: LiveQuery) -> None:
    cluster = live.query.cluster
    ESTIMATE.request(cluster=cluster)
    small_cluster.run_jobs()
    estimate = QueryEstimate.objects.get()
    estimate.result = {**estimate.result, "live": live_parts().to_dict()}
    estimate.save(update_fields=["result"])
    at = datetime.fromtimestamp((NOW.timestamp() - 180) // 60 * 60, UTC)
    for i, observed_s in enumerate((2.5, 3.5)):
        AccuracyObservation.objects.create(
            cluster=cluster, query=live.query, version=1, estimated_at=at, starts_at=at + i * INTERVAL,
            ends_at=at + (i + 1) * INTERVAL, statistic="worst", evidence="measured", expected_s=3.0,
            observed_s=observed_s, windows=3,
        )  # fmt: skip
    run = BacktestRun(cluster=cluster, since=NOW - 60 * MINUTE, until=NOW, ask="recorded")
    grid = segment_grid(recorded_reaches(cluster), run.since, run.until)
    assert grid is not None
    period = load_period(run, grid)
    assert period.added_s == {"errors": 3.0}
    answer = backtest_policies(period, RECORDED).to_dict()
    assert answer["recorded"]["queries"]["errors"]["latency_s"][0] >= 3.0
    (measured,) = answer["measured"]
    assert (measured["query"], measured["segments"], measured["measured_s"]) == ("errors", 1, 3.5)
