"""Statistics: sums merge in any order, ratios are of totals, and moving load factors do not change them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from engine.measurement.places import PlaceWindow, block_s, gather_blocks, merge_places, place_shares
from engine.measurement.statistics import (
    BATCHES,
    InputStatistic,
    OperatorSample,
    describe_evidence,
    estimate_ratio,
    estimate_statistic,
    group_batches,
    judge_readiness,
    student_quantile,
)
from engine.measurement.sums import CostEquations, decay, fit_group_cost


def test_weight_halves_after_one_half_life() -> None:
    assert [decay(age_s, 10.0) for age_s in (0.0, 10.0, 20.0)] == [1.0, 0.5, 0.25]


def test_ratio_is_of_sums_and_not_a_mean_of_ratios() -> None:
    assert estimate_ratio([1.0, 90.0], [10.0, 100.0]).value == pytest.approx(91 / 110)


def test_error_of_a_ratio_equals_the_spread_of_repeated_samples() -> None:
    """2,000 samples of 40 subintervals each: their spread is what each of them says of itself."""
    rng = np.random.default_rng(3)
    result = []
    for _ in range(2000):
        under = rng.poisson(200, 40).astype(float)
        over = rng.binomial(under.astype(int), 0.3) * rng.lognormal(0.0, 0.2, 40)
        result.append(estimate_ratio(over.tolist(), under.tolist()))
    spread = float(np.std([ratio.value for ratio in result]))
    stated = float(np.mean([ratio.error for ratio in result]))
    assert stated == pytest.approx(spread, rel=0.05)
    truth = 0.3 * math.exp(0.02)
    covered = np.mean([abs(ratio.value - truth) <= ratio.half_width for ratio in result])
    assert 0.87 <= covered <= 0.92


def test_student_quantiles_agree_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    for degrees in (1, 2, 5, 8, 9, 15, 60, 1000):
        assert student_quantile(degrees) == pytest.approx(stats.t.ppf(0.95, degrees), rel=2e-3)


def test_ratio_of_one_subinterval_has_no_error() -> None:
    assert estimate_ratio([3.0], [6.0]).error is None and estimate_ratio([3.0], [6.0]).half_width is None
    assert estimate_ratio([], []).value == 0.0 and estimate_ratio([1.0], [0.0]).value == 0.0


def test_batches_hold_the_whole_sample_in_order() -> None:
    samples = [OperatorSample(float(i), 10.0 + i, 5.0, 100.0 * i) for i in range(100)] + [
        OperatorSample(100.0, 0.0, 0.0, 0.0)
    ]
    result = group_batches(samples)
    assert len(result) == BATCHES
    assert sum(batch.events for batch in result) == pytest.approx(sum(sample.events for sample in samples))
    costs = [batch.cycles / batch.events for batch in result]
    assert costs == sorted(costs)


def test_cpu_times_of_places_are_added_as_cycles() -> None:
    windows = [
        PlaceWindow("a", 0.0, records_processed=100.0, records_out=50.0, cpu_ns=1e8),
        PlaceWindow("stream", 0.0, records_processed=300.0, records_out=150.0, cpu_ns=1e8),
        PlaceWindow("unknown", 0.0, records_processed=1e9, records_out=1e9, cpu_ns=1e18),
    ]
    sample = merge_places(windows, {"a": 1e9, "stream": 3e9})[0]
    assert (sample.events, sample.outputs, sample.cycles) == (400.0, 200.0, pytest.approx(4e8))


def test_apportioned_cpu_time_counts_only_without_measured_time() -> None:
    """Spark's 0.5 s a batch are not the cost of its 50 records."""
    taken = PlaceWindow("a", 0.0, records_processed=100.0, cpu_ns=1e8)
    apportioned = [PlaceWindow("stream", at, records_processed=50.0, cpu_ns=5e8, measured=False) for at in (0.0, 10.0)]
    speed = {"a": 1e6, "stream": 1e6}
    result = merge_places([taken, *apportioned], speed)
    assert [(sample.events, sample.costed) for sample in result] == [(150.0, 100.0), (50.0, 0.0)]
    assert estimate_statistic(result, reference_s=0.0).cycles_per_event.value == pytest.approx(1000.0)
    alone = merge_places(apportioned, speed)
    assert [sample.cycles / sample.events for sample in alone] == pytest.approx([1e4, 1e4])


def test_partial_aggregates_are_neither_output_nor_events() -> None:
    windows = [
        PlaceWindow("a", 0.0, records_processed=90.0, records_out=9.0),
        PlaceWindow("stream", 0.0, records_processed=10.0, records_out=4.0),
    ]
    result = merge_places(windows, {"a": 1.0, "stream": 1.0}, stateful=True)[0]
    assert (result.events, result.outputs) == (91.0, 4.0)  # 9 of the stream processor's 10 are the agent's partials
    assert place_shares(windows) == {"a": 0.9, "stream": 0.1}
    assert place_shares([PlaceWindow("a", 0.0)]) == {}


def test_cost_is_separated_into_records_and_groups() -> None:
    rng = np.random.default_rng(1)
    n, g = rng.integers(100, 2000, 50).astype(float), rng.integers(5, 60, 50).astype(float)
    t = 2e-6 * n + 5e-5 * g
    w = 1 / n**2
    sums = CostEquations(50, *(float((w * x * y).sum()) for x, y in ((n, n), (n, g), (g, g), (n, t), (g, t))))
    result = fit_group_cost(sums)
    assert (result.per_record_s, result.per_group_s) == (pytest.approx(2e-6), pytest.approx(5e-5))


def test_cost_in_fixed_proportion_is_attributed_to_records() -> None:
    sums = CostEquations(3, sum_wn2=3.0, sum_wng=0.3, sum_wg2=0.03, sum_wnt=3 * 4e-6, sum_wgt=0.3 * 4e-6)
    assert fit_group_cost(sums).per_group_s is None
    assert fit_group_cost(sums).per_record_s == pytest.approx(4e-6)
    assert fit_group_cost(CostEquations(cost_count=2, sum_wn2=1.0)) is None


def _steady(count: int, events: float, noise: float = 0.0) -> list[OperatorSample]:
    rng = np.random.default_rng(5)
    samples = []
    for i in range(count):
        factor = 1.0 + noise * float(rng.standard_normal())
        samples.append(OperatorSample(10.0 * i, events, 0.5 * events * factor, 1000.0 * events * factor))
    return samples


def test_steady_statistics_are_ready_after_three_subintervals() -> None:
    result = judge_readiness(estimate_statistic(_steady(3, 10.0), reference_s=30.0), span_s=30.0, width_s=10.0)
    assert result.ready and result.events == 0
    early = judge_readiness(estimate_statistic(_steady(2, 10.0), reference_s=20.0), span_s=20.0, width_s=10.0)
    assert not early.ready and early.reason == "20 of 30 events"
    assert (early.events, early.seconds) == (10, 10.0)


def test_noisy_statistics_state_how_many_more_events_they_need() -> None:
    """The requested number of subintervals is about enough: with so many more the same noise is ready."""
    sample = _steady(10, 50.0, noise=0.4)
    result = judge_readiness(estimate_statistic(sample, reference_s=100.0), span_s=100.0, width_s=10.0)
    assert not result.ready and result.relative > 0.1
    needed = 10 + math.ceil(result.events / 50)
    later = judge_readiness(
        estimate_statistic(_steady(needed, 50.0, noise=0.4), reference_s=0.0), span_s=10.0 * needed, width_s=10.0
    )
    assert later.relative == pytest.approx(0.1, rel=0.5)
    assert result.seconds == pytest.approx(result.events / 5.0)


def test_readiness_without_arrivals_has_no_time_left() -> None:
    result = judge_readiness(estimate_statistic([], reference_s=0.0), span_s=0.0, width_s=10.0)
    assert (result.ready, result.events, result.seconds) == (False, 30, None)


def test_evidence_counts_missing_subintervals() -> None:
    result = describe_evidence([100.0, 110.0, 140.0], [True, True, False], events=12, width_s=10.0, now_s=160.0)
    assert (result.span_s, result.age_s, result.whole, result.extrapolated, result.missing) == (50.0, 10.0, 2, 1, 2)
    assert describe_evidence([], [], events=0, width_s=1.0, now_s=5.0).age_s is None


WIDTH_S, WINDOW_S, N = 4.0, 10.0, 4000
SPEED = {"a": 1e9, "stream": 1e9}
COST_S, RUN_S, SELECTIVITY = 2e-6, 4e-4, 0.6  #: per record, per subinterval however few there are, records out by in

Factors = Callable[[int], float]


def everywhere(_: int) -> float:
    return 1.0


def jumping(k: int) -> float:
    """From hardly anything to everything and back, every other subinterval."""
    return 0.01 if k % 2 else 1.0


def drawn(k: int) -> float:
    return float(np.random.default_rng(k).choice([0.005, 0.05, 0.4, 1.0]))


def filtered(count: int, factor: Factors, noise: float = 0.05) -> list[PlaceWindow]:
    """A filter at an agent and at the stream processor, whose share is what the load factor leaves it."""
    rng, windows = np.random.default_rng(5), []
    for k in range(count):
        near = round(N * factor(k))
        spent_s = (COST_S * near + RUN_S) * (1.0 + noise * float(rng.standard_normal()))
        out = rng.binomial(near, SELECTIVITY), rng.binomial(N - near, SELECTIVITY)
        at_s = k * WIDTH_S
        windows.append(PlaceWindow("a", at_s, records_processed=near, records_out=float(out[0]), cpu_ns=1e9 * spent_s))
        windows.append(PlaceWindow("stream", at_s, N - near, float(out[1]), cpu_ns=5e8, measured=False))
    return windows


def learned(windows: list[PlaceWindow]) -> InputStatistic:
    return estimate_statistic(merge_places(windows, SPEED), reference_s=0.0)


@pytest.mark.parametrize("factor", [everywhere, jumping, drawn])
def test_selectivity_and_cost_are_ratios_of_sums_under_moving_load_factors(factor: Factors) -> None:
    windows = filtered(120, factor)
    result = learned(windows)
    near = [window for window in windows if window.place == "a"]
    spent_ns, worked = (math.fsum(getattr(window, name) for window in near) for name in ("cpu_ns", "records_processed"))
    assert result.cycles_per_event.value == pytest.approx(spent_ns / worked)
    assert result.selectivity.value == pytest.approx(SELECTIVITY, rel=0.01)
    assert result.events == 120 * N


def test_subintervals_with_few_records_do_not_inflate_the_cost() -> None:
    """Taken one by one, 40 records that cost 12 times as much each would stand for 4,000."""
    steady, moving = learned(filtered(120, everywhere)), learned(filtered(120, jumping))
    assert moving.cycles_per_event.value == pytest.approx(steady.cycles_per_event.value, rel=0.08)


@pytest.mark.parametrize("factor", [jumping, drawn])
def test_moving_load_factors_do_not_reduce_readiness(factor: Factors) -> None:
    result = learned(filtered(60, factor))
    judged = judge_readiness(result, span_s=240.0, width_s=WIDTH_S)
    assert judged.ready, judged.reason


@pytest.mark.parametrize("factor", [jumping, drawn])
def test_interval_covers_the_truth_at_its_level(factor: Factors) -> None:
    """With costs per record alone and their noise; 300 samples of 30 subintervals."""
    rng, covered = np.random.default_rng(1), 0
    for _ in range(300):
        worked = np.array([max(1.0, N * factor(k)) for k in range(30)])
        cycles = 2000.0 * worked * rng.lognormal(-0.02, 0.2, 30)
        samples = [OperatorSample(float(k), N, 0.0, c, n) for k, (c, n) in enumerate(zip(cycles, worked, strict=True))]
        statistic = estimate_statistic(samples, reference_s=0.0).cycles_per_event
        assert statistic.half_width is not None
        covered += abs(statistic.value - 2000.0) <= statistic.half_width
    assert 0.82 <= covered / 300 <= 0.95


def test_batches_keep_the_ratio_of_sums_and_its_error() -> None:
    samples = merge_places(filtered(32, drawn), SPEED)
    result, batches = estimate_statistic(samples, reference_s=0.0), group_batches(samples)
    events, cycles = (math.fsum(getattr(batch, name) for batch in batches) for name in ("events", "cycles"))
    assert (events, cycles / events) == (32 * N, pytest.approx(result.cycles_per_event.value))
    deviations = [batch.cycles - result.cycles_per_event.value * batch.events for batch in batches]
    error = math.sqrt(32 / 31 * math.fsum(deviation**2 for deviation in deviations)) / events
    assert error == pytest.approx(result.cycles_per_event.error, rel=1e-9)


def aggregated(count: int, factor: Factors, groups: int = 200) -> list[PlaceWindow]:
    """An aggregate over windows of 10 s: what an agent puts out of one arrives, and is merged, two seconds later."""
    ends = [WINDOW_S * w for w in range(1, count)]
    windows = []
    for k in range(count):
        begin, end = k * WIDTH_S, (k + 1) * WIDTH_S
        near = round(N * factor(k))
        sent = groups * sum(begin <= at + 0.5 < end for at in ends)
        came = groups * sum(begin <= at + 2.5 < end for at in ends)
        put_out = groups * sum(begin <= at + 4.0 < end for at in ends)
        windows.append(PlaceWindow("a", begin, records_processed=near, records_out=sent, cpu_ns=1e3 * near))
        windows.append(
            PlaceWindow("stream", begin, records_processed=N - near + came, records_out=put_out, measured=False)
        )
    return windows


@pytest.mark.parametrize("factor", [everywhere, jumping, drawn])
def test_partial_aggregates_are_not_counted_in_any_subinterval(factor: Factors) -> None:
    samples = merge_places(aggregated(125, factor), SPEED, stateful=True)
    blocks = gather_blocks(samples, width_s=WIDTH_S, block=block_s(WINDOW_S, WIDTH_S))
    result = estimate_statistic(blocks[1:], reference_s=0.0)
    assert result.events == pytest.approx((len(blocks) - 1) * 5 * N, rel=1e-9)
    assert result.selectivity.value == pytest.approx(2 * 200 / (5 * N), rel=0.01)


def test_shares_are_of_all_records() -> None:
    shares = place_shares(filtered(40, jumping))
    assert shares == pytest.approx({"a": 0.505, "stream": 0.495})
