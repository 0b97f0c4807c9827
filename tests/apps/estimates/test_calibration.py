"""Factors by group of scored runs: fall-back, history, what is left out, and the estimates they are applied to."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.estimates import calibration
from apps.estimates.answers import StoredEstimate
from apps.estimates.calibration import (
    CalibrationGroup,
    calibrations_in_force,
    calibrations_purge,
    calibrations_refresh,
    group_of,
    in_force,
    is_windowed,
    scaled_estimate,
)
from apps.estimates.models import AccuracyObservation, IntervalCalibration
from apps.queries.models import Query
from engine.estimation.noise.summary import RealisedStatistic
from engine.measurement.calibration import AS_STATED
from tests.apps.estimates.answers import stored
from tests.apps.estimates.runs import NOW, SPREAD, make_runs
from tests.apps.measurements.live import live_query, make_live_cluster
from tests.apps.small_cluster import make_query, small_cluster

pytestmark = [pytest.mark.django_db, pytest.mark.moment]


@pytest.fixture
def query() -> Query:
    return live_query(make_live_cluster()).query


def refreshed(now=NOW) -> int:
    return calibrations_refresh({group_of(row) for row in AccuracyObservation.objects.all()}, now=now)


def group(query: Query, statistic: str = "worst", evidence: str = "measured") -> CalibrationGroup:
    return CalibrationGroup(query.cluster_id, "live", evidence, statistic, True, query.pk)


def test_group_has_factors_of_its_own_from_twenty_runs_on(query: Query) -> None:
    make_runs(query, 18, spread=3 * SPREAD)
    refreshed()
    row = IntervalCalibration.objects.get(query=query)
    assert (row.lower, row.upper, row.scope, row.runs, row.own_runs) == (1.0, 1.0, "", 0, 18)
    AccuracyObservation.objects.all().delete()
    make_runs(query, 40, spread=3 * SPREAD)
    refreshed(NOW + timedelta(seconds=30))
    row = IntervalCalibration.objects.get(query=query, until=None)
    assert row.scope == "query" and row.runs == row.own_runs == 40 and min(row.lower, row.upper) > 1.5
    assert row.coverage_before == row.coverage_after < 0.7
    assert row.width_before == pytest.approx(2 * math.sinh(1.645 * SPREAD), rel=0.01)


def test_query_with_few_runs_takes_the_factors_of_its_kind_and_then_of_its_origin(query: Query) -> None:
    other = live_query(query.cluster, "young").query
    make_runs(query, 60, spread=4 * SPREAD)
    make_runs(other, 5, seed=2)
    make_runs(other, 3, ago=5, statistic="mean")
    refreshed()
    rows = calibrations_in_force(query.cluster)
    own, young = in_force(group(query), rows), in_force(group(other), rows)
    assert own.scope == "query" and young.scope == "kind" and young.factors.upper > 2.0
    assert young.factors.runs == 65
    mean = in_force(group(other, "mean"), rows)
    assert mean.scope == "origin" and mean.factors.runs == 68 and mean.factors.upper > 2.0
    never = in_force(group(other, "q0.99"), rows)
    assert never.scope == "origin"
    assert in_force(group(other, "worst", "assumed"), rows).factors == AS_STATED


def test_quantiles_of_all_levels_are_one_kind_and_groups_of_their_own_by_query(query: Query) -> None:
    make_runs(query, 30, statistic="q0.99", spread=3 * SPREAD)
    make_runs(live_query(query.cluster, "other").query, 30, statistic="q0.5")
    refreshed()
    kind = IntervalCalibration.objects.get(query=None, statistic="quantile")
    assert kind.own_runs == 60
    assert set(IntervalCalibration.objects.exclude(query=None).values_list("statistic", flat=True)) == {"q0.99", "q0.5"}


def test_runs_that_count_for_nothing_are_left_out_and_counted(query: Query) -> None:
    make_runs(query, 30)
    odd = AccuracyObservation.objects.order_by("pk")
    odd.filter(pk__in=[row.pk for row in odd[:3]]).update(disturbed="warming", covered=None, observed_s=90.0)
    odd.filter(pk__in=[row.pk for row in odd[3:5]]).update(stated_low_s=None, stated_high_s=None)
    refreshed()
    row = IntervalCalibration.objects.get(query=query)
    assert (row.own_runs, row.left_out, row.upper) == (25, 5, pytest.approx(1.0, abs=0.5))


def test_history_grows_with_moves_and_by_the_hour_only(query: Query) -> None:
    make_runs(query, 60, spread=3 * SPREAD)
    refreshed()
    refreshed(NOW + timedelta(seconds=30))
    row = IntervalCalibration.objects.get(query=query)
    assert row.since == NOW and row.updated_at == NOW + timedelta(seconds=30)
    AccuracyObservation.objects.update(observed_s=3.0)
    refreshed(NOW + timedelta(seconds=60))
    old, new = IntervalCalibration.objects.filter(query=query).order_by("pk")
    assert old.until == new.since == NOW + timedelta(seconds=60) and new.upper == 1.0 and new.until is None
    refreshed(NOW + timedelta(hours=2))
    assert IntervalCalibration.objects.filter(query=query).count() == 3
    assert calibrations_purge(NOW + timedelta(days=30, seconds=61)) > 0
    assert IntervalCalibration.objects.filter(query=query).count() == 1


def test_lost_trust_is_told_with_its_count(query: Query) -> None:
    make_runs(query, 60)
    AccuracyObservation.objects.update(covered=True)
    newest = AccuracyObservation.objects.order_by("-starts_at")[:14]
    AccuracyObservation.objects.filter(pk__in=[row.pk for row in newest]).update(covered=False)
    refreshed()
    found = in_force(group(query), calibrations_in_force(query.cluster))
    assert (found.trust.state, found.trust.held, found.trust.judged) == ("lost", 26, 40)
    assert IntervalCalibration.objects.get(query=None, statistic="worst").trust == ""


def test_three_queries_that_are_always_right_are_narrowed_and_a_fourth_with_them(query: Query) -> None:
    queries = [query, *(live_query(query.cluster, f"live-{i}").query for i in range(2))]
    for seed, one in enumerate(queries):
        make_runs(one, 200, spread=SPREAD / 4, seed=seed)
    refreshed()
    kind = IntervalCalibration.objects.get(query=None, statistic="worst")
    assert kind.scope == "kind" and kind.upper < 0.6 and kind.lower < 0.6 and kind.coverage_before == 1.0
    own = IntervalCalibration.objects.get(query=query)
    assert own.scope == "query" and own.upper < 0.7
    newcomer = live_query(query.cluster, "newcomer").query
    assert in_force(group(newcomer), calibrations_in_force(query.cluster)).factors.upper == kind.upper


def test_wide_group_of_many_runs_is_a_sample_of_every_instant(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "_MAX_POOLED", 200)
    others = [live_query(query.cluster, f"live-{i}").query for i in range(9)]
    for seed, one in enumerate([query, *others]):
        make_runs(one, 100, seed=seed)
    refreshed()
    rows = calibration._weighing(CalibrationGroup(query.cluster_id, "live", "measured", "worst", True))
    assert 120 <= len(rows) <= 200 and len({row.starts_at for row in rows}) > 60
    assert {row.query_id for row in rows} == {one.pk for one in [query, *others]}


def test_refresh_asks_the_same_of_the_database_whatever_the_number_of_runs(query: Query) -> None:
    make_runs(query, 20)
    refreshed()
    with CaptureQueriesContext(connection) as few:
        refreshed(NOW + timedelta(seconds=1))
    AccuracyObservation.objects.all().delete()
    make_runs(query, 600)
    with CaptureQueriesContext(connection) as many:
        refreshed(NOW + timedelta(seconds=2))
    assert len(many) <= len(few) + 3


def test_answer_says_how_it_was_scaled_and_keeps_what_was_stated(query: Query) -> None:
    make_runs(query, 60, spread=4 * SPREAD)
    refreshed()
    answer = stored(realised={"worst": RealisedStatistic(4.0, 3.5, 4.5), "mean": RealisedStatistic(2.0, 1.8, 2.2)})
    rows = calibrations_in_force(query.cluster)
    found = scaled_estimate(answer, group(query), rows)
    assert found.calibration.stated == (3.5, 4.5) and found.calibration.runs == 60
    assert found.low_s == 3.5 and found.high_s > 5.0 and found.state == "at_risk"
    low, high = found.calibration.run
    assert low < 3.5 and high == found.high_s
    assert found.realised["worst"].high_s == found.high_s == found.under_s
    mean = found.realised["mean"]  # by the runs of its origin
    assert mean.low_s < 1.8 and mean.high_s > 2.2
    assert found.estimate_s == 4.0
    assert StoredEstimate.parse(found.to_dict()).to_dict() == found.to_dict()
    other = live_query(make_live_cluster("elsewhere", 1), "far").query
    unscaled = scaled_estimate(answer, group(other), calibrations_in_force(other.cluster))
    assert (unscaled.low_s, unscaled.high_s, unscaled.state) == (3.5, 4.5, "holds")
    assert unscaled.calibration.scope == ""


def test_version_with_a_window_is_told_from_one_without(query: Query) -> None:
    assert is_windowed(query.versions.get())
    plain = make_query(small_cluster(), "plain", 1.0)
    assert not is_windowed(plain.versions.get())


def test_runs_narrow_what_a_run_shows_and_never_the_worst_case_of_the_horizon(query: Query) -> None:
    for seed, one in enumerate([query, *(live_query(query.cluster, f"live-{i}").query for i in range(2))]):
        make_runs(one, 200, spread=SPREAD / 4, seed=seed)
    refreshed()
    answer = stored(high_s=5.5, under_s=5.5)
    found = scaled_estimate(answer, group(query), calibrations_in_force(query.cluster))
    assert (found.low_s, found.high_s, found.under_s, found.state) == (3.5, 5.5, 5.5, "at_risk")
    low, high = found.calibration.run
    assert 3.5 < low < 4.0 < high < 5.0
