"""Statistics of a query whose load factors move all the time are those of its operators, and not of the moves."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from engine.measurement.blocks import block_s, blocks_of
from engine.measurement.places import PlaceWindow, samples_of, shares_of
from engine.measurement.ratios import Sample, Statistic, batches_of, statistic
from engine.measurement.readiness import readiness
from engine.measurement.sums import Sums

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
        windows.append(PlaceWindow("a", at_s, Sums(events=near, outputs=float(out[0]), cpu_s=spent_s)))
        stream = Sums(events=N - near, outputs=float(out[1]), cpu_s=0.5)
        windows.append(PlaceWindow("stream", at_s, stream, measured=False))
    return windows


def learned(windows: list[PlaceWindow]) -> Statistic:
    return statistic(samples_of(windows, SPEED), reference_s=0.0)


@pytest.mark.parametrize("factor", [everywhere, jumping, drawn])
def test_selectivity_and_cost_are_ratios_of_sums(factor: Factors) -> None:
    windows = filtered(120, factor)
    found = learned(windows)
    near = [one.sums for one in windows if one.place == "a"]
    spent, worked = (math.fsum(getattr(one, name) for one in near) for name in ("cpu_s", "events"))
    assert found.cycles_per_event.value == pytest.approx(1e9 * spent / worked)
    assert found.selectivity.value == pytest.approx(SELECTIVITY, rel=0.01)
    assert found.events == 120 * N


def test_subintervals_with_few_records_at_agents_do_not_make_records_dear() -> None:
    """Taken one by one, 40 records that cost 12 times as much each would stand for 4,000."""
    steady, moving = learned(filtered(120, everywhere)), learned(filtered(120, jumping))
    assert moving.cycles_per_event.value == pytest.approx(steady.cycles_per_event.value, rel=0.08)


@pytest.mark.parametrize("factor", [jumping, drawn])
def test_moves_take_no_readiness_away(factor: Factors) -> None:
    found = learned(filtered(60, factor))
    judged = readiness(found, span_s=240.0, width_s=WIDTH_S)
    assert judged.ready, judged.reason


@pytest.mark.parametrize("factor", [jumping, drawn])
def test_the_interval_holds_the_truth_as_often_as_it_says(factor: Factors) -> None:
    """With costs per record alone and their noise; 300 samples of 30 subintervals."""
    rng, covered = np.random.default_rng(1), 0
    for _ in range(300):
        worked = np.array([max(1.0, N * factor(k)) for k in range(30)])
        cycles = 2000.0 * worked * rng.lognormal(-0.02, 0.2, 30)
        samples = [Sample(float(k), N, 0.0, c, n) for k, (c, n) in enumerate(zip(cycles, worked, strict=True))]
        one = statistic(samples, reference_s=0.0).cycles_per_event
        assert one.half_width is not None
        covered += abs(one.value - 2000.0) <= one.half_width
    assert 0.82 <= covered / 300 <= 0.95


def test_batches_have_the_ratio_of_sums_and_its_error() -> None:
    samples = samples_of(filtered(32, drawn), SPEED)
    found, batches = statistic(samples, reference_s=0.0), batches_of(samples)
    events, cycles = (math.fsum(getattr(one, name) for one in batches) for name in ("events", "cycles"))
    assert (events, cycles / events) == (32 * N, pytest.approx(found.cycles_per_event.value))
    deviations = [one.cycles - found.cycles_per_event.value * one.events for one in batches]
    error = math.sqrt(32 / 31 * math.fsum(one**2 for one in deviations)) / events
    assert error == pytest.approx(found.cycles_per_event.error, rel=1e-9)


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
        windows.append(PlaceWindow("a", begin, Sums(events=near, outputs=sent, cpu_s=1e-6 * near)))
        windows.append(PlaceWindow("stream", begin, Sums(events=N - near + came, outputs=put_out), measured=False))
    return windows


@pytest.mark.parametrize("factor", [everywhere, jumping, drawn])
def test_partial_aggregates_are_counted_nowhere_whatever_subinterval_they_arrive_in(factor: Factors) -> None:
    samples = samples_of(aggregated(125, factor), SPEED, stateful=True)
    blocks = blocks_of(samples, width_s=WIDTH_S, block=block_s(WINDOW_S, WIDTH_S))
    found = statistic(blocks[1:], reference_s=0.0)
    assert found.events == pytest.approx((len(blocks) - 1) * 5 * N, rel=1e-9)
    assert found.selectivity.value == pytest.approx(2 * 200 / (5 * N), rel=0.01)


def test_shares_are_of_all_records_of_a_stretch() -> None:
    shares = shares_of(filtered(40, jumping))
    assert shares == pytest.approx({"a": 0.505, "stream": 0.495})
