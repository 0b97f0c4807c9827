"""Intervals of watermarks: exact for exchangeable delays, and a counterexample for each condition."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from engine.klink.slack import overdue_forecast
from engine.klink.watermarks import SweepHistory, empirical_interval

CONFIDENCE = 0.9


def is_held(known: list[float], coming: float, confidence: float = CONFIDENCE) -> bool:
    interval = empirical_interval(sorted(known), confidence)
    assert interval is not None
    return interval[0] <= coming <= interval[1]


@pytest.mark.parametrize("confidence", [0.8, 0.9, 0.95])
@pytest.mark.parametrize("delays", [range(40), [0.0] * 35 + [1e3, 1e4, 1e5, 1e6, 1e7], [1.5**k for k in range(40)]])
def test_interval_holds_whichever_of_exchangeable_delays_comes_next(delays, confidence):
    """Of any 40 delays each is the next one in its turn: the share held is the probability, without any draw."""
    values = [float(delay) for delay in delays]
    held = sum(is_held(values[:i] + values[i + 1 :], values[i], confidence) for i in range(len(values)))
    assert held >= confidence * len(values)


def test_interval_misses_every_delay_of_a_trend():
    delays = [300.0 + 10.0 * window for window in range(400)]
    assert not any(is_held(delays[:n], delays[n]) for n in range(40, 400))


def test_interval_misses_most_of_the_first_stall_that_spans_windows():
    delays = [300.0 + window % 7 for window in range(400)] + [5000.0 + window for window in range(40)]
    held = [is_held(delays[:n], delays[n]) for n in range(400, 440)]
    assert sum(held) < CONFIDENCE * len(held) / 2
    apart = delays[:]
    random.Random(1).shuffle(apart)  # the same delays without their order
    assert sum(is_held(apart[:400], delay) for delay in apart[400:]) >= CONFIDENCE * 40


def test_interval_of_one_history_may_hold_less_than_its_confidence():
    """The probability is a mean over histories: of this one the interval ends below half of what comes."""
    lucky = [float(delay % 50) for delay in range(100)]
    coming = [float(delay) for delay in range(100)]
    assert sum(is_held(lucky, delay) for delay in coming) < 0.6 * len(coming)


def overdue_end_ms(delays: list[float], late_ms: float) -> float:
    """Delay with which the interval of a watermark ends that is late by so much."""
    history = SweepHistory(400)
    for window, delay in enumerate(delays):
        history.add(window * 1000.0, delay)
    forecast = replace(history.forecast(0.0, CONFIDENCE), mean_ms=min(late_ms, 1.0) - 1.0)
    return overdue_forecast(forecast.deadline_ms + late_ms, forecast, CONFIDENCE).most_ms - forecast.deadline_ms


def test_interval_of_what_is_overdue_holds_whichever_comes_next():
    values = [300.0] * 40 + [1000.0 * 1.2**k for k in range(30)]
    held = [overdue_end_ms(values[:i] + values[i + 1 :], 500.0) >= values[i] for i in range(40, 70)]
    assert sum(held) >= CONFIDENCE * len(held)


def test_interval_of_what_is_overdue_misses_stalls_that_grow():
    """100 stalls in a row, each longer than the one before: hardly any is held."""
    values = [300.0] * 40 + [1000.0 + 50.0 * k for k in range(130)]
    held = [overdue_end_ms(values[:n], 500.0) >= values[n] for n in range(70, 170)]
    assert sum(held) < len(held) / 2
