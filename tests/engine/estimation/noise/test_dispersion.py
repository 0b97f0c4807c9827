"""Numbers derived from counts, batches and given fields."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from engine.document.elements import Batch, Input, Source
from engine.estimation.noise.dispersion import (
    OU_MEAN_VARIANCE,
    ArrivalNoise,
    arrival_noise,
    cost_noise,
    dispersion,
    dispersion_below_grid,
    largest_service,
)


def source(arrivals: object, **fields: float) -> Source:
    return Source("s", np.array(arrivals, dtype=np.float64), **fields)


def test_dispersion_is_half_the_mean_square_of_steps_over_the_mean() -> None:
    # Steps 2, -2, 4: mean square 8; mean count 5.
    assert dispersion([3, 5, 3, 7]) == pytest.approx(8 / 2 / 4.5)


def test_a_trend_hardly_adds_to_dispersion() -> None:
    trend = np.arange(1000.0)
    assert trend.var() / trend.mean() > 100
    assert dispersion(trend) == pytest.approx(1 / 2 / trend.mean())


@pytest.mark.parametrize("counts", [[], [5], [0, 0, 0]])
def test_dispersion_of_too_little_is_not_a_number(counts: list[float]) -> None:
    assert math.isnan(dispersion(counts))
    assert dispersion_below_grid(counts) == 1.0


def test_clumps_within_slices_keep_their_dispersion_below_the_grid() -> None:
    # Every event comes five at once: counts of slices are independent, so pairs have the same dispersion.
    counts = 5.0 * np.random.default_rng(1).poisson(4.0, 20_000)
    assert dispersion(counts) == pytest.approx(5.0, rel=0.05)
    assert dispersion_below_grid(counts) == pytest.approx(5.0, rel=0.1)


def test_slow_bursts_are_poisson_below_the_grid() -> None:
    rate = np.repeat(np.random.default_rng(2).gamma(1.0, 10.0, 200), 100)
    counts = np.random.default_rng(3).poisson(rate)
    assert dispersion_below_grid(counts) < 1.2


def test_counts_of_slices_assume_nothing() -> None:
    noise = arrival_noise(source([4, 6, 4, 6]), 0.25)
    assert (noise.inside, noise.step_s, noise.assumed, noise.unknown) == (1.0, 0.25, "", False)


def test_dispersion_given_at_a_slice_holds_inside_it() -> None:
    given = source([4, 6, 4, 6], dispersion=3.0, dispersion_step_s=0.25)
    assert arrival_noise(given, 0.25).inside == 3.0
    assert arrival_noise(given, 0.1).inside == 1.0


def test_no_dispersion_at_all_is_kept() -> None:
    assert arrival_noise(source([4, 6], dispersion=0.0, dispersion_step_s=1.0), 1.0).inside == 0.0


def test_rate_inside_a_coarse_step_has_the_variance_of_its_dispersion() -> None:
    noise = arrival_noise(source([5.0] * 8, arrivals_step_s=4.0, dispersion=9.0, dispersion_step_s=2.0), 1.0)
    variance, length = noise.draw_rates(4, np.random.default_rng(1))
    # Rate 5 per second, 10 events in two seconds: (9 - 1) / 10.
    assert variance == pytest.approx(0.8 / OU_MEAN_VARIANCE)
    assert length == pytest.approx(2.0)
    assert (noise.inside, noise.step_s, noise.unknown) == (1.0, 4.0, True)
    assert str(noise.assumed).startswith("Arrivals of s inside 4\u00a0s")


def test_rates_that_move_faster_vary_more_for_the_same_counts_of_steps() -> None:
    # 10 events per second, 40 in a step of 4 s: a relative variance of 8 / 40 of the step's mean rate is an index of 9.
    noise = ArrivalNoise(1.0, 4.0, index=9.0, unit=1.0 / 40.0 / OU_MEAN_VARIANCE, length_s=4.0, shortest_s=0.25)
    variance, length = noise.draw_rates(32, np.random.default_rng(1))
    assert (length.min(), length.max()) == pytest.approx((0.25, 4.0), rel=0.1)
    apart = np.abs(np.subtract.outer(np.arange(800), np.arange(800))) * 0.005
    averaged = [squared * np.exp(-apart / seconds).mean() for squared, seconds in zip(variance, length, strict=True)]
    assert averaged == pytest.approx([8.0 / 40.0] * 32, rel=0.01)


def test_an_index_of_few_steps_is_uncertain() -> None:
    counts = np.repeat(np.random.default_rng(5).poisson(40.0, 10) * np.tile([1.0, 3.0], 5) / 4.0, 4)
    noise = arrival_noise(source(counts, arrivals_step_s=4.0), 1.0)
    assert noise.freedom == 9.0
    variance, length = noise.draw_rates(32, np.random.default_rng(1))
    fixed, same = dataclasses.replace(noise, freedom=0.0).draw_rates(32, np.random.default_rng(1))
    slow, known = length > 2.0, same > 2.0
    assert np.log(variance[slow]).std() > 2.0 * np.log(fixed[known]).std()


@pytest.mark.parametrize(("step_s", "at_s"), [(8.0, 1.0), (4.0, 1.0), (4.0, 0.2)])
def test_dispersion_measured_at_a_slice_or_an_eighth_of_the_step_is_not_assumed(step_s: float, at_s: float) -> None:
    measured = source([5.0] * 16, arrivals_step_s=step_s, dispersion=9.0, dispersion_step_s=at_s)
    noise = arrival_noise(measured, 1.0)
    assert (noise.unknown, noise.assumed) == (False, "")


def test_dispersion_measured_at_more_than_both_is_assumed_to_hold_inside_the_step() -> None:
    noise = arrival_noise(source([5.0] * 16, arrivals_step_s=8.0, dispersion=9.0, dispersion_step_s=1.5), 1.0)
    assert noise.unknown
    assert str(noise.assumed).endswith("moves with dispersion 9.0 at 1.5\u00a0s.")


def test_few_coarse_steps_count_as_dispersion_four() -> None:
    assert "dispersion 4.0 at 4\u00a0s" in str(arrival_noise(source([5.0] * 8, arrivals_step_s=4.0), 1.0).assumed)


def test_given_variation_of_costs_assumes_nothing() -> None:
    noise = cost_noise(Input("s", 1.0, 100.0, cost_cv2=0.5), "op")
    assert (noise.cv2, noise.slow, noise.freedom, noise.assumed) == (0.5, 0.0, 0.0, "")


def test_absent_variation_of_costs_is_assumed_to_be_one() -> None:
    noise = cost_noise(Input("s", 1.0, 100.0), "op")
    assert noise.cv2 == 1.0
    assert noise.assumed == "Variation of the cost of op<-s: 1."


def batches(*cycles: float, outputs: float = 5.0, events: float = 10.0) -> tuple[Batch, ...]:
    return tuple(Batch(events, outputs, amount) for amount in cycles)


def test_batches_tell_variation_and_errors() -> None:
    noise = cost_noise(Input("s", 0.5, 10.0, batches=batches(90, 110, 100)), "op")
    # Relative means 0.9, 1.1, 1: dispersion 10 (0.01 + 0.01) / 2 = 0.1 of 30 events.
    assert noise.cv2 == pytest.approx(0.1)
    assert noise.cost_error == pytest.approx(math.sqrt(0.1 / 30))
    assert (noise.output_error, noise.freedom, noise.slow) == (0.0, 2.0, 0.0)
    assert noise.unsure == pytest.approx(math.sqrt((3 + 6 * 0.1 - 1) / 30))
    assert "batches" in str(noise.assumed)
    assert noise.from_batches


def test_variation_from_batches_beyond_four_is_slow() -> None:
    noise = cost_noise(Input("s", 1.0, 10.0, batches=batches(10, 10, 10, 10, 10, 550, events=100.0)), "op")
    assert noise.cv2 == 4.0
    assert noise.slow > 0.0
    assert noise.length == 100.0


def test_more_dispersion_than_variation_is_slow() -> None:
    noise = cost_noise(Input("s", 1.0, 10.0, cost_cv2=1.0, cost_dispersion=5.0, cost_dispersion_events=100.0), "op")
    assert noise.slow == pytest.approx(4.0 / 100.0 / OU_MEAN_VARIANCE)


def test_what_batches_show_by_chance_is_not_slow() -> None:
    noise = cost_noise(Input("s", 1.0, 10.0, cost_cv2=0.08, batches=batches(90, 110, 100)), "op")
    assert noise.slow == 0.0


@pytest.mark.parametrize("amount", [0.0, 1e300])
def test_batches_of_nothing_or_far_too_much_give_finite_numbers(amount: float) -> None:
    noise = cost_noise(Input("s", 1.0, 10.0, batches=(*batches(amount, 0.0), Batch(0.0, 0.0, 0.0))), "op")
    assert all(math.isfinite(x) for x in (noise.cv2, noise.slow, noise.cost_error, noise.unsure))


def test_statistics_of_the_very_arrivals_have_no_error() -> None:
    noise = cost_noise(Input("s", 0.5, 10.0, batches=batches(90, 110, 100)), "op").of_these()
    assert (noise.cost_error, noise.output_error, noise.freedom, noise.unsure) == (0.0, 0.0, 0.0, 0.0)
    assert noise.cv2 == pytest.approx(0.1)


def test_largest_of_equal_services_is_one_of_them() -> None:
    assert largest_service(2.0, 0.0, 1000.0, [0.1, 0.9]).tolist() == [2.0, 2.0]


def test_largest_of_exponential_services_grows_with_the_logarithm_of_their_number() -> None:
    medians = [largest_service(1.0, 1.0, events, [0.5])[0] for events in (100.0, 10_000.0)]
    assert medians == pytest.approx([math.log(events / math.log(2)) for events in (100.0, 10_000.0)])


def test_largest_of_lognormal_services_is_at_its_upper_quantile() -> None:
    drawn = np.random.default_rng(4).lognormal(-0.5 * math.log(5), math.sqrt(math.log(5)), (1000, 1000)).max(axis=1)
    assert largest_service(1.0, 4.0, 1000.0, [0.5])[0] == pytest.approx(np.median(drawn), rel=0.1)
