"""Sums merge in any order, places are added as cycles, and ratios are of totals."""

from __future__ import annotations

import math
import random
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.measurement.costs import group_cost
from engine.measurement.places import PlaceWindow, samples_of, shares_of
from engine.measurement.ratios import BATCHES, Sample, batches_of, ratio, statistic, student
from engine.measurement.readiness import evidence, readiness
from engine.measurement.sums import Stamped, Sums, merged

ROW = {
    "records_in": 100,
    "records_processed": 60,
    "records_drained": 30,
    "records_overflow": 10,
    "records_out": 45,
    "bytes_in": 1000,
    "bytes_out": 400,
    "bytes_drained": 380,
    "cpu_ns": 2_000_000,
    "groups_out": 5,
    "records_shed": 3,
    "sampled": 60,
    "sum_wn2": 1.0,
    "sum_wng": 0.1,
    "sum_wg2": 0.01,
    "sum_wnt": 3e-5,
    "sum_wgt": 3e-6,
    "cost_count": 1,
    "cost_sum": 3e-5,
    "cost_sum2": 9e-10,
}


def test_records_handed_on_unprocessed_are_no_events() -> None:
    sums = Sums.of_wire(ROW)
    assert (sums.events, sums.outputs, sums.cpu_s, sums.shed) == (60, 45, 0.002, 3)


@given(st.lists(st.tuples(st.floats(0, 5000), st.floats(0, 1e9)), min_size=1, max_size=30), st.randoms())
def test_no_order_of_merging_gives_other_bits(values: list[tuple[float, float]], rng: random.Random) -> None:
    parts = [Stamped(at, Sums(events=n, cpu_s=n / 7)) for at, n in values]
    shuffled = rng.sample(parts, len(parts))
    assert merged(parts, reference_s=5000, half_life_s=300) == merged(shuffled, reference_s=5000, half_life_s=300)


def test_merging_in_steps_is_merging_at_once() -> None:
    parts = [
        Stamped(60.0 * i, Sums(**{field.name: float(i + k) for k, field in enumerate(fields(Sums))})) for i in range(9)
    ]
    early = merged(parts[:4], reference_s=240.0, half_life_s=100.0)
    late = merged(parts[4:], reference_s=500.0, half_life_s=100.0)
    stepwise = merged([late, early], reference_s=700.0, half_life_s=100.0)
    at_once = merged(parts, reference_s=700.0, half_life_s=100.0)
    for field in fields(Sums):
        assert getattr(stepwise.sums, field.name) == pytest.approx(getattr(at_once.sums, field.name), rel=1e-12)


def test_a_half_life_halves() -> None:
    old = merged([Stamped(0.0, Sums(events=8.0))], reference_s=20.0, half_life_s=10.0)
    assert old.sums.events == pytest.approx(2.0)


def test_a_ratio_is_of_sums_and_not_a_mean_of_ratios() -> None:
    assert ratio([1.0, 90.0], [10.0, 100.0]).value == pytest.approx(91 / 110)


def test_the_error_of_a_ratio_is_that_of_repeated_samples() -> None:
    """2,000 samples of 40 subintervals each: their spread is what each of them says of itself."""
    rng = np.random.default_rng(3)
    found = []
    for _ in range(2000):
        under = rng.poisson(200, 40).astype(float)
        over = rng.binomial(under.astype(int), 0.3) * rng.lognormal(0.0, 0.2, 40)
        found.append(ratio(over.tolist(), under.tolist()))
    spread = float(np.std([one.value for one in found]))
    told = float(np.mean([one.error for one in found]))
    assert told == pytest.approx(spread, rel=0.05)
    truth = 0.3 * math.exp(0.02)
    covered = np.mean([abs(one.value - truth) <= one.half_width for one in found])
    assert 0.87 <= covered <= 0.92


def test_student_is_that_of_the_tables() -> None:
    stats = pytest.importorskip("scipy.stats")
    for degrees in (1, 2, 5, 8, 9, 15, 60, 1000):
        assert student(degrees) == pytest.approx(stats.t.ppf(0.95, degrees), rel=2e-3)


def test_one_subinterval_has_no_error_and_none_has_no_events() -> None:
    assert ratio([3.0], [6.0]).error is None and ratio([3.0], [6.0]).half_width is None
    assert ratio([], []).value == 0.0 and ratio([1.0], [0.0]).value == 0.0


def test_batches_are_the_whole_sample_in_order() -> None:
    samples = [Sample(float(i), 10.0 + i, 5.0, 100.0 * i) for i in range(100)] + [Sample(100.0, 0.0, 0.0, 0.0)]
    found = batches_of(samples)
    assert len(found) == BATCHES
    assert sum(one.events for one in found) == pytest.approx(sum(one.events for one in samples))
    costs = [one.cycles / one.events for one in found]
    assert costs == sorted(costs)


def test_places_become_cycles_before_they_are_added() -> None:
    windows = [
        PlaceWindow("a", 0.0, Sums(events=100.0, outputs=50.0, cpu_s=0.1)),
        PlaceWindow("stream", 0.0, Sums(events=300.0, outputs=150.0, cpu_s=0.1)),
        PlaceWindow("unknown", 0.0, Sums(events=1e9, outputs=1e9, cpu_s=1e9)),
    ]
    sample = samples_of(windows, {"a": 1e9, "stream": 3e9})[0]
    assert (sample.events, sample.outputs, sample.cycles) == (400.0, 200.0, pytest.approx(4e8))


def test_apportioned_time_counts_only_where_none_was_taken() -> None:
    """Spark's 0.5 s a batch are not the cost of its 50 records."""
    taken = PlaceWindow("a", 0.0, Sums(events=100.0, cpu_s=0.1))
    apportioned = [PlaceWindow("stream", at, Sums(events=50.0, cpu_s=0.5), measured=False) for at in (0.0, 10.0)]
    speed = {"a": 1e6, "stream": 1e6}
    found = samples_of([taken, *apportioned], speed)
    assert [(one.events, one.costed) for one in found] == [(150.0, 100.0), (50.0, 0.0)]
    assert statistic(found, reference_s=0.0).cycles_per_event.value == pytest.approx(1000.0)
    alone = samples_of(apportioned, speed)
    assert [one.cycles / one.events for one in alone] == pytest.approx([1e4, 1e4])


def test_partial_aggregates_are_neither_output_nor_events() -> None:
    windows = [
        PlaceWindow("a", 0.0, Sums(events=90.0, outputs=9.0)),
        PlaceWindow("stream", 0.0, Sums(events=10.0, outputs=4.0)),
    ]
    found = samples_of(windows, {"a": 1.0, "stream": 1.0}, stateful=True)[0]
    assert (found.events, found.outputs) == (91.0, 4.0)  # 9 of the stream processor's 10 are the agent's partials
    assert shares_of(windows) == {"a": 0.9, "stream": 0.1}
    assert shares_of([PlaceWindow("a", 0.0, Sums())]) == {}


def test_cost_is_told_apart_by_records_and_groups() -> None:
    rng = np.random.default_rng(1)
    n, g = rng.integers(100, 2000, 50).astype(float), rng.integers(5, 60, 50).astype(float)
    t = 2e-6 * n + 5e-5 * g
    w = 1 / n**2
    sums = Sums(
        wn2=float((w * n * n).sum()), wng=float((w * n * g).sum()), wg2=float((w * g * g).sum()),
        wnt=float((w * n * t).sum()), wgt=float((w * g * t).sum()), cost_count=50,
    )  # fmt: skip
    found = group_cost(sums)
    assert (found.per_record_s, found.per_group_s) == (pytest.approx(2e-6), pytest.approx(5e-5))


def test_a_cost_in_proportion_is_put_down_to_the_records() -> None:
    n = 100.0
    sums = Sums(wn2=3.0, wng=0.3, wg2=0.03, wnt=3 * 4e-6, wgt=0.3 * 4e-6, cost_count=3, events=3 * n)
    assert group_cost(sums).per_group_s is None
    assert group_cost(sums).per_record_s == pytest.approx(4e-6)
    assert group_cost(Sums(wn2=1.0, cost_count=2)) is None


def _steady(count: int, events: float, noise: float = 0.0) -> list[Sample]:
    rng = np.random.default_rng(5)
    made = []
    for i in range(count):
        factor = 1.0 + noise * float(rng.standard_normal())
        made.append(Sample(10.0 * i, events, 0.5 * events * factor, 1000.0 * events * factor))
    return made


def test_steady_statistics_are_ready_after_three_subintervals() -> None:
    found = readiness(statistic(_steady(3, 10.0), reference_s=30.0), span_s=30.0, width_s=10.0)
    assert found.ready and found.events == 0
    early = readiness(statistic(_steady(2, 10.0), reference_s=20.0), span_s=20.0, width_s=10.0)
    assert not early.ready and early.reason == "20 of 30 events"
    assert (early.events, early.seconds) == (10, 10.0)


def test_noisy_statistics_say_how_many_more_events_they_want() -> None:
    """What is asked for is about enough: with so many more subintervals the same noise is ready."""
    sample = _steady(10, 50.0, noise=0.4)
    found = readiness(statistic(sample, reference_s=100.0), span_s=100.0, width_s=10.0)
    assert not found.ready and found.relative > 0.1
    needed = 10 + math.ceil(found.events / 50)
    later = readiness(statistic(_steady(needed, 50.0, noise=0.4), reference_s=0.0), span_s=10.0 * needed, width_s=10.0)
    assert later.relative == pytest.approx(0.1, rel=0.5)
    assert found.seconds == pytest.approx(found.events / 5.0)


def test_where_nothing_arrives_no_time_is_promised() -> None:
    found = readiness(statistic([], reference_s=0.0), span_s=0.0, width_s=10.0)
    assert (found.ready, found.events, found.seconds) == (False, 30, None)


def test_evidence_counts_what_is_missing() -> None:
    found = evidence([100.0, 110.0, 140.0], [True, True, False], events=12, width_s=10.0, now_s=160.0)
    assert (found.span_s, found.age_s, found.whole, found.extrapolated, found.missing) == (50.0, 10.0, 2, 1, 2)
    assert evidence([], [], events=0, width_s=1.0, now_s=5.0).age_s is None
