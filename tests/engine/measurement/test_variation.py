"""Variation of costs and arrivals: what was put into random runs and steps comes out of their sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from itertools import pairwise

import numpy as np
import pytest

from engine.arrays import FloatArray
from engine.document.elements import Input, Source
from engine.estimation.noise.dispersion import arrival_noise, cost_noise
from engine.measurement.places import PlaceWindow
from engine.measurement.variation import (
    ARRIVAL_STEPS_S,
    CostSums,
    CountSums,
    RunSums,
    ScaleDispersion,
    add_costs,
    add_counts,
    arrivals_dispersion,
    choose_scale,
    cost_dispersion,
    cost_sums,
    measure_arrivals,
    measure_costs,
    measure_events,
    pair_sums,
)

POLL_S = 0.1


def run_times(
    rng: np.random.Generator, *, cv2: float, events: int = 1_000_000, fixed: float = 0.0, slow: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Runs of 50 to 800 records whose costs are gamma with mean 1, times `slow`, and what a run costs by itself."""
    costs = rng.gamma(1.0 / cv2, cv2, events) * (1.0 if slow is None else slow)
    ends = np.cumsum(rng.integers(50, 800, events // 50))
    starts = np.concatenate([[0], ends[ends < events]])
    sizes = np.diff(np.append(starts, events)).astype(np.float64)
    return sizes, np.add.reduceat(costs, starts) + fixed


def wandering(rng: np.random.Generator, *, variance: float, length: int, events: int, step: int = 20) -> FloatArray:
    """An Ornstein-Uhlenbeck factor of mean 1 and this relative variance, correlated over `length` events."""
    keep, values = np.exp(-step / length), [rng.standard_normal()]
    for draw in rng.standard_normal(events // step - 1):
        values.append(keep * values[-1] + np.sqrt(1.0 - keep * keep) * draw)
    return np.repeat(np.maximum(1.0 + np.sqrt(variance) * np.array(values), 0.0), step)


def gathered(values: Sequence[float] | FloatArray, count: int) -> FloatArray:
    whole = np.asarray(values)[: len(values) // count * count]
    return np.asarray(whole.reshape(-1, count).sum(axis=1))


@pytest.mark.parametrize("cv2", [0.2, 1.0, 4.0])
@pytest.mark.parametrize("together", [1, 10, 50])
def test_variation_of_independent_costs_is_found_at_every_scale(cv2: float, together: int) -> None:
    sizes, times = run_times(np.random.default_rng(5), cv2=cv2)
    found = cost_dispersion([cost_sums(gathered(sizes, together), gathered(times, together))])
    assert found is not None
    assert found.value == pytest.approx(cv2, rel=4.0 * np.sqrt(2.0 / found.count))


def test_fixed_expense_of_a_run_varies_no_cost() -> None:
    sizes, times = run_times(np.random.default_rng(6), cv2=0.5, fixed=300.0)
    found = cost_dispersion([cost_sums(sizes, times)])
    share = times.sum() / (times.sum() - 300.0 * len(times))  # the mean cost of a record, over that without expense
    assert found is not None
    assert found.value == pytest.approx(0.5 / share**2, rel=0.1)


def test_slow_changes_of_costs_are_found_at_their_length() -> None:
    rng = np.random.default_rng(7)
    slow = wandering(rng, variance=0.04, length=4000, events=2_000_000)
    sizes, times = run_times(rng, cv2=0.3, events=len(slow), slow=slow)
    scales = [cost_dispersion([cost_sums(gathered(sizes, k), gathered(times, k))]) for k in (1, 10, 100)]
    found = choose_scale(scales)
    assert found is not None and found is scales[1]
    noise = cost_noise(
        Input("s", 1.0, 1.0, cost_cv2=0.3, cost_dispersion=found.value, cost_dispersion_events=found.scale)
    )
    assert noise.slow == pytest.approx(0.04, rel=0.35)
    assert noise.length == pytest.approx(4000, rel=0.35)


def test_ten_units_are_the_least_and_nothing_spent_is_nothing_known() -> None:
    assert cost_dispersion([cost_sums([5.0] * 9, [1.0] * 9)]) is None
    assert cost_dispersion([cost_sums([5.0] * 10, [0.0] * 10)]) is None
    alike = cost_dispersion([cost_sums([5.0] * 10, [1.0] * 10)])
    assert alike is not None and (alike.scale, alike.count) == (5.0, 10.0)
    assert alike.value == pytest.approx(0.0, abs=1e-12)
    assert cost_sums([0.0, 5.0], [3.0, 1.0]) == CostSums(1.0, 5.0, 1.0, 25.0, 5.0, 1.0)


def test_parts_of_costs_add_up_to_the_whole_in_any_order() -> None:
    sizes, times = run_times(np.random.default_rng(8), cv2=1.0, events=200_000)
    parts = [cost_sums(sizes[i::7], times[i::7]) for i in range(7)]
    assert cost_dispersion(parts) == cost_dispersion(reversed(parts))
    whole = cost_dispersion([cost_sums(sizes, times)])
    assert whole is not None
    assert astuple(cost_dispersion(parts) or whole)[:3] == pytest.approx(astuple(whole)[:3])


def step_sums(polled: FloatArray, step_s: float) -> CountSums:
    """Sums of counts polled every tenth of a second."""
    counts = gathered(polled, round(step_s / POLL_S)).tolist()
    return add_counts(pair_sums(before, step_s, after, step_s) for before, after in pairwise(counts))


def index_at(polled: FloatArray, step_s: float) -> float:
    found = arrivals_dispersion([step_sums(polled, step_s)])
    assert found is not None and found.scale == pytest.approx(step_s)
    return found.value


def bursts(rng: np.random.Generator, *, rate_eps: float, mean_s: float, span_s: float) -> FloatArray:
    """Counts of an on-off source by poll, on and off for as long on average."""
    rates = np.zeros(round(span_s / POLL_S))
    at_s = 0.0
    while at_s < span_s:
        on_s = rng.exponential(mean_s)
        rates[round(at_s / POLL_S) : round((at_s + on_s) / POLL_S)] = rate_eps
        at_s += on_s + rng.exponential(mean_s)
    return rng.poisson(rates * POLL_S).astype(np.float64)


@pytest.mark.parametrize("step_s", ARRIVAL_STEPS_S)
def test_poisson_arrivals_have_a_dispersion_of_one_and_clumps_their_size(step_s: float) -> None:
    rng = np.random.default_rng(9)
    assert index_at(rng.poisson(5.0, 18_000).astype(float), step_s) == pytest.approx(1.0, abs=0.25)
    assert index_at(6.0 * rng.poisson(1.0, 18_000), step_s) == pytest.approx(6.0, rel=0.25)


def test_a_daily_rise_is_no_burst() -> None:
    rising = np.random.default_rng(10).poisson(np.linspace(1.0, 50.0, 18_000)).astype(float)
    assert index_at(rising, 5.0) == pytest.approx(1.0, abs=0.25)


def test_bursts_are_found_at_their_length() -> None:
    polled = bursts(np.random.default_rng(11), rate_eps=100.0, mean_s=1.0, span_s=3600.0)
    scales = [arrivals_dispersion([step_sums(polled, step_s)]) for step_s in ARRIVAL_STEPS_S]
    found = choose_scale(scales, least=1.0)
    assert found is not None and found.scale == pytest.approx(1.0)
    # Exponential on and off times: the rate has a relative variance of 1 and is correlated over half of their mean.
    # Over steps of twice that length neighbours show 0.38 of its variance, 50 events a second times.
    assert found.value == pytest.approx(1.0 + 50.0 * 0.38, rel=0.2)
    known = Source("s", np.full(8, 50.0), arrivals_step_s=8.0, dispersion=found.value, dispersion_step_s=found.scale)
    noise = arrival_noise(known, 1.0)
    assert (noise.index, noise.length_s, noise.assumed) == (found.value, found.scale, "")


def test_steps_of_unequal_length_are_compared_by_their_rates() -> None:
    rng = np.random.default_rng(12)
    lengths = rng.uniform(0.1, 0.4, 10_000)
    counts = rng.poisson(1000.0 * lengths)
    steps = pairwise(zip(counts.tolist(), lengths.tolist(), strict=True))
    found = arrivals_dispersion([add_counts(pair_sums(*before, *after) for before, after in steps)])
    assert found is not None and found.value == pytest.approx(1.0, abs=0.08)


def test_few_pairs_and_silence_tell_no_dispersion() -> None:
    assert arrivals_dispersion([step_sums(np.ones(100), 0.2)]) is None
    assert arrivals_dispersion([step_sums(np.zeros(1000), 0.2)]) is None
    assert arrivals_dispersion([]) is None


def test_bursts_of_several_places_are_taken_to_come_together() -> None:
    rng = np.random.default_rng(13)
    clumps = [step_sums(6.0 * rng.poisson(1.0, 10_000), 0.2) for _ in range(4)]
    found = arrivals_dispersion(clumps)
    assert found is not None
    # Thinned to a quarter, as a walk does, each place has its own bursts again.
    assert 1.0 + (found.value - 1.0) / 4.0 == pytest.approx(6.0, rel=0.1)


def test_many_steady_places_are_no_burst_by_chance() -> None:
    rng = np.random.default_rng(14)
    found = arrivals_dispersion([step_sums(rng.poisson(5.0, 1000).astype(float), 0.2) for _ in range(200)])
    assert found is not None and found.value == pytest.approx(1.0, abs=0.2)


def test_scale_with_half_of_the_largest_dispersion_is_chosen() -> None:
    scales = [ScaleDispersion(value, scale, 100.0) for value, scale in ((4.0, 1.0), (9.0, 10.0), (16.0, 100.0))]
    assert choose_scale(reversed(scales)) is scales[1]
    assert choose_scale([None, scales[0], None]) is scales[0]
    assert choose_scale([None]) is None
    regular = [ScaleDispersion(value, scale, 100.0) for value, scale in ((0.5, 0.2), (0.1, 1.0))]
    assert choose_scale(regular, least=1.0) is regular[0]


def sums_of_runs(sizes: FloatArray, times: FloatArray, *, epoch: int = 5) -> RunSums:
    """Sums of runs as an agent counts them, `epoch` of them in each epoch."""
    return RunSums(cost_sums(sizes, times), cost_sums(gathered(sizes, epoch), gathered(times, epoch)))


def added(parts: Sequence[RunSums]) -> RunSums:
    return RunSums(add_costs(part.runs for part in parts), add_costs(part.epochs for part in parts))


def window_of(place: str, at_s: float, sums: RunSums) -> PlaceWindow:
    return PlaceWindow(place, at_s, run_records=sums.runs.n, run_cpu_s=sums.runs.t)


def test_costs_of_places_are_compared_in_cycles() -> None:
    rng = np.random.default_rng(15)
    windows, places = [], {"stream": added([])}
    for place, capacity in (("slow", 1e6), ("fast", 4e6)):
        parts = []
        for at in range(12):
            sizes, times = run_times(rng, cv2=0.5, events=50_000)
            parts.append(sums_of_runs(sizes, times / capacity))
            windows.append(window_of(place, 10.0 * at, parts[-1]))
        places[place] = added(parts)
    windows.append(PlaceWindow("stream", 0.0, 1e6, cpu_ns=1e11, measured=False))
    places["unknown"] = sums_of_runs(*run_times(rng, cv2=4.0, events=50_000))
    windows.append(window_of("unknown", 0.0, places["unknown"]))
    found = measure_costs(places, windows, {"slow": 1e6, "fast": 4e6, "stream": 1e6})
    assert found is not None and found.unit == "runs"
    assert found.value == pytest.approx(0.5, rel=0.15)
    assert measure_costs({"stream": places["stream"]}, windows[-2:-1], {"stream": 1e6}) is None


def test_costs_that_change_from_subinterval_to_subinterval_are_found_there() -> None:
    rng = np.random.default_rng(20)
    parts = []
    for _ in range(60):
        sizes, times = run_times(rng, cv2=0.5, events=20_000)
        parts.append(sums_of_runs(sizes, times * rng.normal(1.0, 0.2)))
    windows = [window_of("a", 10.0 * at, sums) for at, sums in enumerate(parts)]
    found = measure_costs({"a": added(parts)}, windows, {"a": 1.0})
    assert found is not None and found.unit == "subintervals"
    assert found.value / found.scale == pytest.approx(0.04, rel=0.5)


def test_sums_of_runs_add_up_to_those_of_all_runs() -> None:
    sizes, times = run_times(np.random.default_rng(16), cv2=0.5, events=40_000)
    parts = [sums_of_runs(sizes[i : i + 20], times[i : i + 20]) for i in range(0, 80, 20)]
    whole = sums_of_runs(sizes[:80], times[:80])
    for one, other in ((added(parts).runs, whole.runs), (added(parts).epochs, whole.epochs)):
        assert astuple(one) == pytest.approx(astuple(other))


def test_arrivals_of_a_source_are_measured_no_wider_than_asked() -> None:
    rng = np.random.default_rng(17)
    polled = bursts(rng, rate_eps=100.0, mean_s=5.0, span_s=3600.0)
    told = [step_sums(polled, step_s) for step_s in ARRIVAL_STEPS_S]
    wide, narrow = measure_arrivals({"a": told}, 15.0), measure_arrivals({"a": told}, 0.25)
    assert wide is not None and wide.scale == pytest.approx(5.0)
    assert narrow is not None and narrow.scale == pytest.approx(0.2)
    assert measure_arrivals({"a": told}, 0.05) is None
    assert measure_arrivals({}, 15.0) is None


def test_single_events_tell_cv2_and_slow_changes() -> None:
    rng = np.random.default_rng(18)
    slow = wandering(rng, variance=0.1, length=500, events=100_000, step=10)
    found = measure_events(100.0 * rng.gamma(2.0, 0.5, 100_000) * slow, selectivity=0.5)
    assert found.mean == pytest.approx(100.0, rel=0.1)
    assert found.cv2 == pytest.approx(0.5 + 0.1 + 0.05, rel=0.1)
    assert found.dispersion is not None
    assert 200 <= found.dispersion.scale <= 2000
    assert found.dispersion.value > 10.0
    assert len(found.batches) == 32
    assert sum(batch.events for batch in found.batches) == 100_000
    assert sum(batch.outputs for batch in found.batches) == pytest.approx(50_000)


def test_independent_single_events_have_no_slow_component() -> None:
    found = measure_events(np.random.default_rng(19).gamma(2.0, 0.5, 20_000))
    dispersion = found.dispersion
    assert dispersion is not None
    noise = cost_noise(
        Input(
            "s",
            cycles_per_event=found.mean,
            batches=found.batches,
            cost_cv2=found.cv2,
            cost_dispersion=dispersion.value,
            cost_dispersion_events=dispersion.scale,
        )
    )
    assert (noise.assumed, noise.slow) == ("", 0.0)


@pytest.mark.parametrize("costs", [[], [5.0], [0.0, 0.0]])
def test_costs_of_single_events_that_tell_nothing_are_refused(costs: list[float]) -> None:
    with pytest.raises(ValueError, match="two or more, with a sum above 0"):
        measure_events(costs)
    assert measure_events([1.0, 3.0]).dispersion is None
