"""Latency of micro-batches: closed forms, a played-out engine beside them, the fit, and drift."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from engine.errors import DocumentError
from engine.microbatch.model import (
    BatchModel,
    batch_drift,
    coefficients,
    fit_batches,
    fit_durations,
    least_squares,
    observed_latency,
    wait_s,
)
from engine.microbatch.progress import BatchProgress

START = datetime(2026, 1, 1, tzinfo=UTC)


def played(model: BatchModel, rate: float, trigger_s: float, count: int = 400) -> list[BatchProgress]:
    """Batches as Spark runs them: at multiples of the trigger, or when the one before has ended if that is later."""
    draw = np.random.default_rng(7)
    begin_s, before_s, batches = 0.0, -trigger_s, []
    for number in range(count):
        rows = round(rate * (begin_s - before_s))
        duration_s = max(model.duration_s(rows) + model.sd_s * draw.standard_normal(), 0.001)
        batches.append(BatchProgress("run", number, START + timedelta(seconds=begin_s), rows, duration_s))
        ends_s = begin_s + duration_s
        before_s = begin_s
        begin_s = ends_s if ends_s > begin_s + trigger_s else begin_s + trigger_s
    return batches


@pytest.mark.parametrize(("rate", "trigger_s"), [(10_000, 1.0), (10_000, 5.0), (150_000, 1.0), (200_000, 0.1)])
def test_latency_agrees_with_a_played_out_engine(rate: float, trigger_s: float):
    model = BatchModel(0.3, 4e-6, sd_s=0.02)
    for statistic in ("mean", "q0.95"):
        expected = model.latency(rate, trigger_s, statistic)
        observed = observed_latency(played(model, rate, trigger_s)[50:], statistic)
        assert expected is not None
        assert observed is not None
        assert observed.statistic_s == pytest.approx(expected.statistic_s, rel=0.04)


def test_batches_that_outlast_the_trigger_follow_one_another():
    latency = BatchModel(0.5, 4e-6).latency(125_000, 0.2)
    assert latency is not None
    assert latency.is_late
    assert latency.interval_s == pytest.approx(1.0)
    assert latency.utilisation == pytest.approx(1.0)


def test_rate_of_one_second_of_work_per_second_has_no_latency():
    assert BatchModel(0.5, 4e-6).latency(250_000, 1.0) is None


@pytest.mark.parametrize("statistic", ["q0", "q1", "q1.5", "median", "q", "qnan", "0.95", ""])
def test_statistic_that_is_no_quantile_is_refused(statistic: str):
    with pytest.raises(DocumentError, match="allowed: mean, or a quantile"):
        BatchModel(0.5, 4e-6).latency(10.0, 1.0, statistic)


def test_quantile_of_wait_and_batch_agrees_with_drawn_sums():
    draw = np.random.default_rng(3)
    sums = draw.uniform(0, 2.0, 400_000) + 0.3 * draw.standard_normal(400_000)
    for level in (0.05, 0.5, 0.95, 0.99):
        assert wait_s(2.0, 0.3, level) == pytest.approx(np.quantile(sums, level), abs=0.01)


def test_one_wave_divides_the_work_and_a_second_doubles_its_share():
    stage = {"f0_s": 0.2, "t_task_s": 0.01, "c_in_s": 8e-6, "c_sh_s": 0.0, "alpha": 1.0}
    assert coefficients(cores=8, input_partitions=8, shuffle_partitions=8, **stage) == pytest.approx((0.22, 1e-6))
    assert coefficients(cores=8, input_partitions=9, shuffle_partitions=8, **stage) == pytest.approx((0.23, 16e-6 / 9))


def test_fit_finds_the_line_and_leaves_the_first_batches_of_a_run_out():
    model = BatchModel(0.4, 2e-5)
    batches = [
        BatchProgress("run", n, START + timedelta(seconds=n), rows, model.duration_s(rows) + (5.0 if n < 3 else 0.0))
        for n, rows in enumerate([100, 200, 300, 1_000, 5_000, 9_000, 0])
    ]
    fit = fit_batches(batches)
    assert (fit.fixed_s, fit.per_row_s) == pytest.approx((0.4, 2e-5))
    assert (fit.batches, fit.least_rows, fit.most_rows) == (3, 1_000, 9_000)
    assert fit.is_told_apart


def test_line_that_would_begin_below_zero_goes_through_zero():
    fit = least_squares([(100, 0.05), (200, 0.18), (300, 0.35)])
    assert fit.fixed_s == 0.0
    assert fit.per_row_s == pytest.approx((5 + 36 + 105) / 140_000)


@pytest.mark.parametrize("points", [[], [(1, 1), (2, 2)], [(5, 1), (5, 2), (5, 3)]])
def test_fit_needs_three_batches_of_two_sizes(points: list[tuple[float, float]]):
    with pytest.raises(DocumentError, match="at least 3, of 2 sizes"):
        least_squares(points)


def test_batches_of_nearly_one_size_do_not_tell_fixed_time_apart():
    assert not least_squares([(1000, 1.0), (1010, 1.02), (1020, 1.01)]).is_told_apart


def test_larger_batches_that_were_faster_are_predicted_by_the_mean() -> None:
    fit = fit_durations([(48_000, 4.1), (55_000, 3.2), (61_000, 3.4), (72_000, 2.6)])
    assert (fit.fixed_s, fit.per_row_s, fit.sd_s) == pytest.approx((3.325, 0.0, 0.618466), rel=1e-5)
    rising = [(48_000, 2.5), (55_000, 2.7), (61_000, 2.9), (72_000, 3.4)]
    assert fit_durations(rising) == least_squares(rising)


def test_batches_that_scatter_more_than_they_grow_tell_nothing_apart() -> None:
    assert not least_squares([(48_000, 4.1), (55_000, 3.2), (61_000, 3.4), (72_000, 2.6)]).is_told_apart
    assert not least_squares([(48_000, 3.1), (55_000, 4.2), (61_000, 2.4), (72_000, 3.6)]).is_told_apart
    assert least_squares([(48_000, 2.5), (55_000, 2.7), (61_000, 2.9), (72_000, 3.4)]).is_told_apart


def test_observed_latency_counts_rows_between_batches_of_one_run():
    batches = [
        BatchProgress("run", 0, START, 10, 0.5),
        BatchProgress("run", 1, START + timedelta(seconds=2), 10, 1.0),
        BatchProgress("other", 0, START + timedelta(seconds=100), 10, 9.0),
    ]
    observed = observed_latency(batches, "q0.95")
    assert observed is not None
    assert (observed.rows, observed.mean_s) == (10, 2.0)
    assert observed.statistic_s == pytest.approx(1.0 + 0.95 * 2.0)
    assert observed_latency(batches[:1]) is None


def test_drift_is_the_median_of_the_newest_batches():
    steady = [(1.1, 1.0)] * 30
    assert not batch_drift(steady).is_drifting
    assert batch_drift([*steady, *[(0.7, 1.0)] * 11]).bias == pytest.approx(-0.3)
    assert batch_drift([*steady, *[(0.7, 1.0)] * 11]).is_drifting
    assert batch_drift(steady[:4]) is None


def test_interval_of_the_fitted_trigger_covers_most_fits_of_noisy_batches() -> None:
    rng, true = np.random.default_rng(5), BatchModel(0.6, 1e-5)
    held, runs = 0, 200
    for _ in range(runs):
        sizes = np.repeat([8_000.0, 80_000.0], 6)
        seconds = [true.duration_s(rows) + rng.normal(0.0, 0.05) for rows in sizes]
        fitted = least_squares(list(zip(sizes.tolist(), seconds, strict=True)))
        interval = fitted.latency_interval(10_000, 4.0, fitted_trigger_s=4.0)
        latency = true.latency(10_000, 4.0)
        assert interval is not None and latency is not None
        held += interval[0] <= latency.mean_s + rng.normal(0.0, 0.05 / 12**0.5) <= interval[1]
    assert held >= 0.88 * runs


def test_interval_of_another_trigger_holds_fixed_time_of_each_batch_and_of_each_second() -> None:
    fitted = BatchModel(0.8, 1e-5, 0.01, 30, 8_000, 80_000)
    low, high = fitted.latency_interval(10_000, 2.0, fitted_trigger_s=4.0) or (0.0, 0.0)
    of_batch, of_second = (BatchModel(fixed_s, 1e-5).latency(10_000, 2.0) for fixed_s in (0.8, 0.4))
    assert of_batch is not None and of_second is not None
    assert low < of_second.mean_s < of_batch.mean_s < high < of_batch.mean_s + 0.05
    assert low > of_second.mean_s - 0.05


def test_interval_is_open_where_batches_may_not_keep_up_and_missing_without_batches() -> None:
    assert BatchModel(0.8, 1e-5, 0.01, 30, 8_000, 80_000).latency_interval(100_000, 4.0, fitted_trigger_s=4.0) == (
        float("inf"),
        float("inf"),
    )
    assert BatchModel(0.8, 1e-5).latency_interval(10_000, 4.0, fitted_trigger_s=4.0) is None
