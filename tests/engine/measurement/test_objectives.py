"""State of an objective: measurement first, as long as it is fresh and rests on enough results."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.latency_state import KNOWN, LatencyStanding
from engine.measurement.objectives import (
    LatencyResult,
    MeasuredLatency,
    judge_objective,
    measure_latency,
    results_needed,
    statistic_of,
)

NOW = 100_000.0


def measured(value_s: float | None, lacking: str = "") -> MeasuredLatency:
    return MeasuredLatency(value_s, 20, 3, 600.0, NOW - 5.0, 0, lacking)


NOTHING = measured(None, "none")


@pytest.mark.parametrize(
    ("estimate_s", "high_s", "found", "state", "decided_by", "value_s"),
    [
        (12.0, 16.0, measured(78.7), "breached", "measurement", 78.7),
        (12.0, 14.0, measured(78.7), "breached", "measurement", 78.7),
        (None, None, measured(78.7), "breached", "measurement", 78.7),
        (12.0, 14.0, measured(9.0), "holds", "measurement", 12.0),
        (None, None, measured(9.0), "holds", "measurement", 9.0),
        (12.0, 16.0, measured(9.0), "at_risk", "estimate", 12.0),
        (17.0, 19.0, measured(9.0), "at_risk", "estimate", 17.0),
        (12.0, 16.0, NOTHING, "at_risk", "estimate", 12.0),
        (17.0, 19.0, NOTHING, "breached", "estimate", 17.0),
        (12.0, 14.0, NOTHING, "holds", "estimate", 12.0),
        (12.0, None, NOTHING, "holds", "estimate", 12.0),
        (12.0, 14.0, measured(78.7, "stale"), "holds", "estimate", 12.0),
        (12.0, 14.0, measured(78.7, "few"), "holds", "estimate", 12.0),
        (12.0, 14.0, measured(78.7, "disturbed"), "holds", "estimate", 12.0),
        (15.0, 15.0, measured(15.0), "holds", "measurement", 15.0),
    ],
)
def test_state_follows_the_measurement_before_the_estimate(
    estimate_s: float | None, high_s: float | None, found: MeasuredLatency, state: str, decided_by: str, value_s: float
) -> None:
    judged = judge_objective(15.0, estimate_s, high_s, KNOWN, found)
    assert judged is not None
    assert (judged.state, judged.decided_by, judged.value_s) == (state, decided_by, value_s)


@pytest.mark.parametrize(
    ("kind", "found", "state", "decided_by"),
    [
        ("unknown", NOTHING, "unknown", "estimate"),
        ("never_catches_up", NOTHING, "breached", "estimate"),
        ("unknown", measured(9.0), "holds", "measurement"),  # something comes out after all
        ("never_catches_up", measured(9.0), "at_risk", "estimate"),
        ("unknown", measured(78.7), "breached", "measurement"),
    ],
)
def test_figure_that_is_no_latency_has_neither_hold_nor_headroom(
    kind: str, found: MeasuredLatency, state: str, decided_by: str
) -> None:
    judged = judge_objective(15.0, 1.0, 2.0, LatencyStanding(kind), found)
    assert judged is not None
    assert (judged.state, judged.decided_by) == (state, decided_by)
    if found is NOTHING:
        assert judged.headroom_share(15.0) is None


def test_query_without_evidence_has_no_state() -> None:
    assert judge_objective(15.0, None, None, KNOWN, NOTHING) is None
    assert judge_objective(None, None, None, KNOWN, NOTHING) is None


def test_query_without_an_objective_is_judged_against_nothing() -> None:
    judged = judge_objective(None, 12.0, 16.0, KNOWN, measured(78.7))
    assert judged is not None and judged.state == "none" and judged.headroom_share(None) is None


def test_headroom_is_counted_from_the_larger_of_both() -> None:
    for found, share in ((measured(18.0), -0.2), (measured(3.0), 0.2), (NOTHING, 0.2)):
        judged = judge_objective(15.0, 12.0, 14.0, KNOWN, found)
        assert judged is not None and judged.headroom_share(15.0) == pytest.approx(share)


def every(step_s: float, count: int, latency_s: float = 1.0, *, age_s: float = 0.0) -> list[LatencyResult]:
    return [LatencyResult(NOW - age_s - i * step_s, latency_s) for i in range(count)]


def test_only_the_last_ten_minutes_are_measured() -> None:
    results = [*every(10.0, 50), LatencyResult(NOW - 700.0, 99.0)]
    found = measure_latency(results, "worst", NOW)
    assert (found.value_s, found.results, found.span_s, found.lacking) == (1.0, 50, 600.0, "")


def test_period_reaches_back_for_results_it_lacks_and_says_how_far() -> None:
    found = measure_latency(every(60.0, 60), "q0.95", NOW)
    assert (found.results, found.needed, found.span_s, found.lacking) == (20, 20, 1140.0, "")
    assert measure_latency(every(60.0, 60), "q0.99", NOW).lacking == "few"
    assert measure_latency([LatencyResult(NOW - 3601.0, 1.0)] * 9, "worst", NOW).lacking == "none"


def test_old_results_are_stale_unless_they_are_rare() -> None:
    assert measure_latency(every(10.0, 20, age_s=121.0), "worst", NOW).lacking == "stale"
    assert measure_latency(every(10.0, 20, age_s=119.0), "worst", NOW).lacking == ""
    assert measure_latency(every(300.0, 5, age_s=600.0), "worst", NOW).lacking == ""


def test_results_of_a_stream_processor_that_was_not_at_work_are_left_out_and_counted() -> None:
    started = [LatencyResult(NOW - i, 80.0, disturbed=True) for i in range(5)]
    found = measure_latency([*started, *every(10.0, 4, age_s=10.0)], "worst", NOW)
    assert (found.value_s, found.results, found.left_out, found.lacking) == (1.0, 4, 5, "")
    alone = measure_latency(started, "worst", NOW)
    assert (alone.value_s, alone.left_out, alone.lacking) == (None, 5, "disturbed")


def test_results_of_the_future_are_ignored() -> None:
    assert measure_latency([LatencyResult(NOW + 5.0, 99.0)] * 5, "worst", NOW).lacking == "none"


def test_two_results_are_too_few() -> None:
    assert measure_latency(every(10.0, 2), "mean", NOW).lacking == "few"


@pytest.mark.parametrize(
    ("statistic", "needed"), [("worst", 3), ("mean", 3), ("q0.5", 3), ("q0.9", 10), ("q0.999", 1000)]
)
def test_quantile_takes_so_many_results_that_it_is_not_their_worst(statistic: str, needed: int) -> None:
    assert results_needed(statistic) == needed


_RESULTS = st.lists(
    st.builds(LatencyResult, st.floats(0.0, 1e6), st.floats(0.0, 1e3), st.integers(1, 50)), min_size=1, max_size=30
)


@given(_RESULTS, st.sampled_from(["worst", "mean", "q0.5", "q0.9"]))
def test_statistic_lies_within_its_results_and_below_their_worst(results: list[LatencyResult], statistic: str) -> None:
    value_s = statistic_of(results, statistic)
    latencies = [result.latency_s for result in results]
    assert min(latencies) * (1 - 1e-12) <= value_s <= max(latencies) * (1 + 1e-12)
    if statistic == "worst":
        assert value_s == max(latencies)


@given(_RESULTS, st.floats(0.001, 1e3))
def test_more_latency_never_makes_a_breach_hold(results: list[LatencyResult], bound_s: float) -> None:
    here = [result._replace(at_s=NOW - 10.0) for result in results] * 3
    later = [result._replace(latency_s=2.0 * result.latency_s + 1.0) for result in here]
    order = ("holds", "at_risk", "breached")
    before, after = (
        judge_objective(bound_s, 1.0, 2.0, KNOWN, measure_latency(rows, "worst", NOW)) for rows in (here, later)
    )
    assert before is not None and after is not None and order.index(after.state) >= order.index(before.state)
