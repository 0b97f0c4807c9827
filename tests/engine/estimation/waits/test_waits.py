"""Waits in closed form: windows, watermarks, counts, nests of windows, buffers, bursts, several ways."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.estimation.waits.estimate import query_waits
from engine.estimation.waits.summary import independent_waits
from tests.engine.estimation.waits.systems import TUMBLING, deployment, operator, terms_of, waits_of

SLIDING = {"policy": "time", "type": "sliding", "size": 60.0, "slide": 5.0}


def of_window(**window: Any) -> Any:
    return waits_of(deployment([operator("w", "s", window={**TUMBLING, **window})], s=[100.0] * 120))


@pytest.mark.parametrize(
    ("window", "worst_s", "mean_s"),
    [
        ({}, 10.0, 5.0),
        (SLIDING, 5.0, 2.5),
        ({"watermark_delay_s": 2.0}, 12.0, 7.0),
        ({"watermark_delay_s": 2.0, "allowed_lateness_s": 3.0}, 15.0, 10.0),
        ({"watermark_delay_s": 2.0, "measured_from": "window_end"}, 2.0, 2.0),
        ({"policy": "count", "size": 1000}, 10.0, 5.0),
        ({"policy": "count", "type": "sliding", "size": 1000, "slide": 200}, 2.0, 1.0),
    ],
)
def test_wait_is_the_period_and_the_delays(window: dict[str, Any], worst_s: float, mean_s: float) -> None:
    waits = of_window(**window)
    assert waits.longest_s == pytest.approx(worst_s, abs=0.03)
    assert waits.mean_s == pytest.approx(mean_s, abs=0.012)


@pytest.mark.parametrize("level", [0.01, 0.5, 0.9, 0.99])
def test_quantile_of_a_fill_is_that_of_a_uniform(level: float) -> None:
    waits = of_window()
    assert float(np.quantile(waits.waits_s, level)) == pytest.approx(10.0 * level, abs=0.01)


def test_terms_are_named_and_add_up() -> None:
    waits = of_window(watermark_delay_s=2.0, allowed_lateness_s=3.0)
    assert terms_of(waits) == [("w", "window"), ("w", "watermark"), ("w", "lateness")]
    assert sum(term.mean_s for term in waits.terms) == pytest.approx(waits.mean_s)
    assert sum(term.worst_s for term in waits.terms) == pytest.approx(waits.longest_s)


def test_window_that_emits_on_update_holds_nothing() -> None:
    system = deployment([operator("w", "s", window={**TUMBLING, "emit": "on_update"})], s=[100.0] * 60)
    assert query_waits(system) == {}


def test_latency_from_the_windows_end_has_no_fill() -> None:
    system = deployment([operator("w", "s", window={**TUMBLING, "measured_from": "window_end"})], s=[100.0] * 60)
    assert not query_waits(system)["q"]


def test_count_window_is_slowest_where_little_comes() -> None:
    window = {"policy": "count", "type": "tumbling", "size": 1000}
    waits = waits_of(deployment([operator("w", "s", window=window)], s=[100.0] * 60 + [20.0] * 60))
    assert waits.longest_s == pytest.approx(50.0, rel=1e-3)
    assert waits.worst_s[0] == pytest.approx(10.0, rel=0.01)
    assert waits.worst_s[60] == pytest.approx(50.0, rel=0.01)


def test_count_window_waits_through_a_pause_of_its_source() -> None:
    window = {"policy": "count", "type": "tumbling", "size": 1000}
    waits = waits_of(deployment([operator("w", "s", window=window)], s=[100.0] * 60 + [0.0] * 30 + [100.0] * 30))
    assert waits.longest_s == pytest.approx(40.0, rel=1e-3)
    assert any("rare keys wait longer" in str(sentence) for sentence in waits.not_modelled)


def test_window_by_event_time_waits_for_the_next_event() -> None:
    sparse = [1.0 if p % 20 == 0 else 0.0 for p in range(120)]
    window = {**TUMBLING, "watermark_delay_s": 0.0}
    waits = waits_of(deployment([operator("w", "s", "t", window=window)], s=[100.0] * 120, t=sparse))
    watermark = next(term for term in waits.terms if term.kind == "watermark")
    assert watermark.worst_s == pytest.approx(20.0, abs=1.1)  # when in its second each comes is not known


def test_source_without_events_is_said_to_hold_up_windows() -> None:
    window = {**TUMBLING, "watermark_delay_s": 0.0}
    waits = waits_of(deployment([operator("w", "s", "t", window=window)], s=[100.0] * 60, t=[0.0] * 60))
    assert waits.longest_s == pytest.approx(10.0, abs=0.03)
    assert any(str(sentence).startswith("t has no events") for sentence in waits.not_modelled)


def nest(outer_s: float, **window: Any) -> Any:
    outer = {"policy": "time", "type": "tumbling", "size": outer_s, **window}
    operators = [operator("inner", "s", window={**TUMBLING, **window}), operator("outer", "inner", window=outer)]
    return waits_of(deployment(operators, s=[100.0] * 240))


@pytest.mark.parametrize(
    ("outer_s", "worst_s", "mean_s"),
    [
        (10.0, 10.0, 5.0),  # what leaves at an end is of the window that ends there
        (60.0, 60.0, 30.0),
        (15.0, 20.0, 5.0 + 5.0),  # from 10, 20, 30: 5, 10, 0 more
    ],
)
def test_nested_windows_by_event_time_are_aligned(outer_s: float, worst_s: float, mean_s: float) -> None:
    waits = nest(outer_s, watermark_delay_s=1.0)
    assert waits.longest_s == pytest.approx(worst_s + 1.0, abs=0.04)
    assert waits.mean_s == pytest.approx(mean_s + 1.0, abs=0.03)


def test_nested_windows_by_the_clock_miss_each_other() -> None:
    waits = nest(60.0)
    assert waits.longest_s == pytest.approx(70.0)
    assert waits.mean_s == pytest.approx(5.0 + 35.0, rel=1e-3)


def test_watermark_counts_once_for_all_windows_of_a_stream() -> None:
    lags = [term.worst_s for term in nest(60.0, watermark_delay_s=4.0).terms if term.kind == "watermark"]
    assert lags == [pytest.approx(4.0, abs=0.04)]


def test_join_waits_for_the_slower_side() -> None:
    window = {**TUMBLING, "watermark_delay_s": 1.0}
    slow = {**TUMBLING, "watermark_delay_s": 6.0}
    operators = [operator("late", "t", window=slow), operator("join", "s", "late", window=window)]
    waits = waits_of(deployment(operators, s=[100.0] * 120, t=[100.0] * 120))
    assert waits.longest_s == pytest.approx(16.0, abs=0.04)
    assert waits.mean_s == pytest.approx(11.0, abs=0.03)


def test_buffers_of_exchanges_add_up() -> None:
    operators = [operator("a", "s", buffer_timeout_s=0.1)]
    operators += [operator(name, above, buffer_timeout_s=0.1) for name, above in (("b", "a"), ("c", "b"))]
    waits = waits_of(deployment([*operators, operator("d", "c")], s=[100.0] * 60))
    assert terms_of(waits) == [("a", "buffer"), ("b", "buffer"), ("c", "buffer")]
    assert waits.longest_s == pytest.approx(0.3)
    assert waits.mean_s == pytest.approx(0.15, rel=1e-3)
    drawn = np.random.default_rng(1).random((200_000, 3)).sum(axis=1) * 0.1
    assert float(np.quantile(waits.waits_s, 0.95)) == pytest.approx(float(np.quantile(drawn, 0.95)), rel=0.01)


def test_buffer_that_fills_first_leaves_first_and_is_bounded_by_its_timeout() -> None:
    operators = [operator("a", "s", buffer_timeout_s=0.1, bytes_per_event=32_768.0 / 10.0), operator("b", "a")]
    waits = waits_of(deployment(operators, s=[1000.0] * 60))  # a buffer of 10 events fills in 10 ms
    assert waits.mean_s == pytest.approx(0.005, rel=1e-2)
    assert waits.longest_s == pytest.approx(0.1)


def test_events_of_a_buffer_wait_for_those_before_them_at_the_reader() -> None:
    operators = [operator("a", "s", buffer_timeout_s=0.1), operator("b", "a", cost=5000.0)]
    waits = waits_of(deployment(operators, s=[100.0] * 60))  # 10 events at once, which take half of the 0.1 s
    assert waits.mean_s == pytest.approx(0.075, rel=1e-3)
    assert float(waits.waits_s.min()) == pytest.approx(0.05, rel=1e-2)
    assert waits.longest_s == pytest.approx(0.1)


def test_buffer_before_a_backlog_costs_nothing() -> None:
    operators = [operator("a", "s", buffer_timeout_s=0.1), operator("b", "a", cost=20_000.0)]
    waits = waits_of(deployment(operators, s=[100.0] * 60))  # twice what b can do
    assert waits.mean_s < 0.001
    assert waits.worst_s[-1] == 0.0


def test_buffers_one_behind_the_other_differ_from_run_to_run() -> None:
    """A second buffer leaves a fixed time after the first: 50 ms is its mean over runs, not within one."""
    one = [operator("a", "s", buffer_timeout_s=0.1), operator("b", "a")]
    two = [one[0], operator("b", "a", buffer_timeout_s=0.1), operator("c", "b")]
    single, double = (waits_of(deployment(operators, s=[100.0] * 600)) for operators in (one, two))
    assert single.margin("mean").above_s < 0.002
    assert double.margin("mean").above_s == pytest.approx(0.05, rel=0.1)
    assert double.margin("worst").shift_s == pytest.approx(-0.05, rel=0.1)
    assert double.margin("worst").above_s == pytest.approx(0.05, rel=0.1)


def test_results_that_come_at_once_wait_for_each_other() -> None:
    sink = operator("sink", "w", cost=1000.0)
    system = deployment([operator("w", "s", selectivity=0.1, window=TUMBLING), sink], s=[1000.0] * 60)
    waits = waits_of(system)  # 1,000 results at a time, 1 ms of work each
    burst = next(term for term in waits.terms if term.kind == "burst")
    assert burst.worst_s == pytest.approx(1.0, rel=1e-3)
    assert burst.mean_s == pytest.approx(0.5, rel=1e-2)


def test_results_that_come_at_once_are_named_where_they_hold_up_other_queries() -> None:
    own = [operator("w", "s", selectivity=0.1, window=TUMBLING), operator("sink", "w", cost=4000.0)]
    other = {**operator("other", "s"), "query": "other"}
    system = deployment([*own, other], s=[1000.0] * 60)
    sentences = [str(sentence).replace("\xa0", " ") for sentence in query_waits(system)["q"].not_modelled]
    assert any("4 s of work on core 0 of n" in sentence and "other queries" in sentence for sentence in sentences)


def test_two_ways_mix_by_their_events() -> None:
    raw = operator("raw", "s")
    counts = operator("counts", "s", selectivity=0.5, window=TUMBLING)
    waits = waits_of(deployment([raw, counts], s=[100.0] * 60))
    assert waits.longest_s == pytest.approx(10.0)
    assert waits.mean_s == pytest.approx(5.0 / 3.0, rel=1e-2)


def test_more_ways_than_are_kept_apart_end_with_the_longest() -> None:
    operators = []
    above = ["s"]
    for i in range(6):
        held = operator(f"h{i}", *above, buffer_timeout_s=0.1 * (i + 1))
        operators += [held, operator(f"p{i}", *above)]
        above = [f"h{i}", f"p{i}"]
    waits = waits_of(deployment([*operators, operator("end", *above)], s=[100.0] * 30))
    assert waits.longest_s == pytest.approx(sum(0.1 * (i + 1) for i in range(6)))


def test_window_of_which_nothing_is_stated_is_named() -> None:
    waits = waits_of(deployment([operator("session", "s", kind="window")], s=[100.0] * 30))
    assert not waits
    assert waits.not_modelled == ("Windows of session are not described: their wait is not counted.",)


def test_same_question_has_the_same_answer() -> None:
    assert (of_window().waits_s == of_window().waits_s).all()


def test_waits_follow_more_of_everything() -> None:
    """Longer windows, delays, triggers and timeouts never shorten a wait."""
    rng = np.random.default_rng(2)
    for _ in range(20):
        size, delay, timeout = rng.uniform(1.0, 20.0), rng.uniform(0.0, 5.0), rng.uniform(0.0, 0.5)

        def waits(more: float, size: float = size, delay: float = delay, timeout: float = timeout) -> Any:
            window = {**TUMBLING, "size": size * more, "watermark_delay_s": delay * more}
            above = operator("a", "s", buffer_timeout_s=timeout * more)
            return waits_of(deployment([above, operator("w", "a", window=window)], s=[100.0] * 60))

        assert waits(1.5).longest_s >= waits(1.0).longest_s
        assert waits(1.5).mean_s >= waits(1.0).mean_s


def test_no_events_wait_for_nothing() -> None:
    system = deployment([operator("w", "s", window=TUMBLING)], s=[0.0] * 30)
    waits = query_waits(system)["q"]
    assert not waits and waits.longest_s == 0.0


def test_statistics_are_those_of_queue_and_wait_together() -> None:
    waits = of_window()
    latency_s, weights = np.zeros(120), np.ones(120)
    latency_s[:12] = 5.0
    assert waits.added_s(latency_s, weights, "worst") == pytest.approx(10.0)
    assert waits.added_s(latency_s, weights, "mean") == pytest.approx(5.0, rel=1e-3)
    drawn = np.random.default_rng(3).random(200_000) * 10.0 + np.random.default_rng(4).choice(latency_s, 200_000)
    for level in (0.5, 0.9, 0.99):
        added = waits.added_s(latency_s, weights, f"q{level}")
        queued = 0.0 if level < 0.9 else float(np.quantile(latency_s, level, method="inverted_cdf"))
        assert queued + added == pytest.approx(float(np.quantile(drawn, level)), abs=0.05)


def test_worst_case_pairs_queue_and_wait_slice_by_slice() -> None:
    window = {"policy": "count", "type": "tumbling", "size": 1000}
    waits = waits_of(deployment([operator("w", "s", window=window)], s=[100.0] * 60 + [20.0] * 60))
    latency_s = np.zeros(120)
    latency_s[:30] = 8.0  # busy where much comes, and windows fill fast
    assert waits.added_s(latency_s, np.ones(120), "worst") == pytest.approx(50.0 - 8.0, rel=0.01)


@pytest.mark.parametrize("selectivity", [0.8, 0.5, 0.1])
def test_session_lasts_as_long_as_events_of_its_key_come(selectivity: float) -> None:
    """Events of 200 keys at random: gap (1 / p - 1) / -ln p, where p is the share of events that end a session."""
    window = {"policy": "time", "type": "session", "size": 10.0}
    waits = waits_of(deployment([operator("w", "s", selectivity=selectivity, window=window)], s=[100.0] * 600))
    rng, gap_s = np.random.default_rng(1), 10.0
    rate = -np.log(selectivity) / gap_s
    times_s = np.cumsum(rng.exponential(1.0 / rate, 200_000))
    last = np.flatnonzero(np.append(np.diff(times_s) >= gap_s, True))
    lasting_s = times_s[last[np.searchsorted(last, np.arange(len(times_s)))]] + gap_s - times_s
    assert waits.mean_s == pytest.approx(float(lasting_s.mean()), rel=0.04)
    assert waits.mean_s == pytest.approx(gap_s * (1.0 / selectivity - 1.0) / -np.log(selectivity), rel=0.03)
    assert float(np.quantile(waits.waits_s, 0.9)) == pytest.approx(float(np.quantile(lasting_s, 0.9)), rel=0.06)
    assert waits.longest_s > 0.7 * float(np.quantile(lasting_s, 1.0 - 1.0 / 60_000)) and not waits.is_bounded


def test_session_of_single_events_waits_for_its_gap_and_the_watermark() -> None:
    window = {"policy": "time", "type": "session", "size": 10.0, "watermark_delay_s": 2.0}
    waits = waits_of(deployment([operator("w", "s", selectivity=1.0, window=window)], s=[100.0] * 60))
    assert waits.mean_s == pytest.approx(12.0, abs=0.1)
    assert "sessions_alike" in {fact.kind.rpartition(".")[2] for fact in waits.not_modelled}


def test_window_that_works_as_it_closes_adds_the_work_of_what_it_holds() -> None:
    """100 events/s that take 2 ms each on its server: 2 s of work wait for the end of 10 s."""
    system = {"work_at": "close"}
    row = operator("w", "s", window={**TUMBLING, **system})
    plain = waits_of(deployment([operator("w", "s", window=TUMBLING)], s=[100.0] * 120))
    made = deployment([row], s=[100.0] * 120)
    seconds = 1000.0 * float(made.operators[0].inputs[0].cycles_per_event) / float(made.capacities[0, 0])
    waits = waits_of(made)
    assert ("w", "closing") in terms_of(waits)
    assert waits.longest_s == pytest.approx(plain.longest_s + seconds, rel=0.01)
    assert waits.mean_s == pytest.approx(plain.mean_s + 0.75 * seconds, rel=0.01)


def test_quantile_of_a_long_tail_is_never_shortened_by_a_short_wait() -> None:
    """The tail lies between two of the points that stand for the queues: taken with other points it fell out."""
    latency_s = np.full(2_000, 0.1)
    latency_s[-21:] = np.geomspace(1.0, 60.0, 21)
    waits = independent_waits([("sink", "buffer", np.linspace(0.0, 0.1, 50))])
    for level in (0.5, 0.9, 0.98, 0.985, 0.9894, 0.99, 0.999):
        added_s = waits.added_s(latency_s, np.ones(2_000), f"q{level}")
        assert 0.0 <= added_s <= 0.1
