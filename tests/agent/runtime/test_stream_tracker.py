"""Watermarks of a stream at an agent: forecasts, and reports of faults."""

from __future__ import annotations

import random

import pytest

from agent.runtime.deadlines import StreamTracker, sweep_prior
from engine.klink.settings import ScheduleSettings, WatermarkPrior
from tests.agent.runtime.doubles import SECOND_US

START_US = 1_700_000_000 * SECOND_US
PERIOD_US = 10 * SECOND_US
LEARNED = WatermarkPrior("probes", period_s=10, epochs=50, mean_s=2.0, variance_s2=0.25)


def tracker(prior: WatermarkPrior | None = None) -> StreamTracker:
    return StreamTracker("probes", PERIOD_US, ScheduleSettings(), sweep_prior(prior) if prior is not None else None)


def swept(stream: StreamTracker, *delays_s: float, first: int = 1, offset_s: float = 0.0) -> int:
    """Windows of 10 s whose watermarks come that late; event time is behind the clock. Returns the newest's number."""
    stream.read(START_US + (first - 1) * PERIOD_US + 1, int(START_US + ((first - 1) * 10 + offset_s) * SECOND_US))
    for number, delay_s in enumerate(delays_s, first):
        deadline_us = START_US + number * PERIOD_US
        stream.read(deadline_us, deadline_us + int((delay_s + offset_s) * SECOND_US))
    return first + len(delays_s) - 1


def expected_s(stream: StreamTracker) -> tuple[float, ...]:
    """Mean and interval of the next watermark, seconds after the start."""
    forecast = stream.forecast
    assert forecast is not None
    return tuple(
        round(time_ms / 1e3 - START_US / 1e6, 3) for time_ms in (forecast.mean_ms, forecast.least_ms, forecast.most_ms)
    )


def test_no_forecast_before_the_first_watermark():
    stream = tracker()
    stream.read(0, START_US)
    assert stream.forecast is None
    assert stream.late(START_US + 3600 * SECOND_US) == ""


def test_only_the_period_is_known_until_three_windows_were_seen():
    stream = tracker()
    swept(stream, 1.0, 3.0)
    assert expected_s(stream) == (30.0, 30.0, 30.0)
    stream.read(START_US + 3 * PERIOD_US, START_US + 32 * SECOND_US)
    assert expected_s(stream)[0] == 42.0
    assert stream.expected(START_US + 3 * PERIOD_US) is None
    stream.read(START_US + 4 * PERIOD_US, START_US + 43 * SECOND_US)
    told = stream.expected(START_US + 4 * PERIOD_US)
    assert told is not None
    assert told.mean_ms / 1e3 - START_US / 1e6 == pytest.approx(42.0)


def test_learned_statistics_start_a_query_and_give_way_to_measured_ones():
    stream = tracker(LEARNED)
    swept(stream, 0.0)
    assert expected_s(stream)[0] == pytest.approx(20 + 2 * 29 / 30, abs=1e-3)
    swept(stream, *[0.0] * 30, first=2)
    assert expected_s(stream) == (320.0, 320.0, 320.0)


def test_learned_delays_may_change_and_local_windows_stay():
    stream = tracker()
    swept(stream, *[1.0] * 5)
    stream.learn(ScheduleSettings(), sweep_prior(LEARNED))
    assert expected_s(stream)[0] == pytest.approx(60 + (5 * 1 + 25 * 2) / 30, abs=1e-3)
    stream.learn(ScheduleSettings(history=30), None)
    assert expected_s(stream) == (61.0, 61.0, 61.0)


def test_zero_variance_is_an_interval_of_no_width():
    stream = tracker()
    swept(stream, *[0.0] * 100)
    assert expected_s(stream) == (1010.0, 1010.0, 1010.0)
    assert stream.late(START_US + 1010 * SECOND_US) == ""


def test_missing_watermark_is_reported_until_it_comes():
    stream = tracker()
    swept(stream, *[1.0] * 10)
    assert stream.late(START_US + 108 * SECOND_US) == ""
    assert stream.late(START_US + 340 * SECOND_US) == "no watermark for 239 s"
    stream.read(START_US + 345 * SECOND_US, START_US + 346 * SECOND_US)
    assert stream.late(START_US + 347 * SECOND_US) == ""
    assert expected_s(stream)[0] > 351, "delays of minutes are in the history now"


def test_a_watermark_that_goes_back_changes_nothing():
    stream = tracker()
    swept(stream, *[1.0] * 5)
    before = stream.forecast
    stream.read(START_US + 20 * SECOND_US, START_US + 52 * SECOND_US)
    assert stream.forecast == before
    stream.read(START_US + 60 * SECOND_US, START_US + 61 * SECOND_US)
    assert expected_s(stream) == (71.0, 71.0, 71.0)


@pytest.mark.parametrize(
    ("offset_s", "words", "next_s"),
    [
        (-30.0, "event time is 30 s ahead of the clock", 30.0),
        (86_400.0, "event time is 86,400 s behind the clock", 60 + 86_400.0),
        (20.0, "", 80.0),
    ],
)
def test_clock_skew_is_compensated_and_reported(offset_s, words, next_s):
    stream = tracker()
    swept(stream, *[0.0] * 5, offset_s=offset_s)
    assert expected_s(stream)[0] == pytest.approx(next_s)
    assert stream.late(int(START_US + (51 + offset_s) * SECOND_US)) == words
    assert stream.skew_us == (offset_s * SECOND_US if words else 0)


def test_a_jump_of_hours_is_a_few_windows_not_thousands():
    stream = tracker()
    swept(stream, *[1.0] * 5)
    stream.read(START_US + 7 * 86_400 * SECOND_US, START_US + 60 * SECOND_US)
    assert len(stream._expected) <= 20
    assert stream.forecast is not None


def test_no_watermark_sequence_raises():
    draw = random.Random(7)
    stream = tracker(LEARNED)
    now_us = START_US
    for _ in range(3000):
        now_us += draw.choice((1, 10**5, 10**7, 10**9))
        stream.read(draw.choice((0, -5, now_us, now_us - 10**8, 2**53, draw.randrange(2**52))), now_us)
        forecast = stream.forecast
        assert forecast is None or forecast.least_ms <= forecast.mean_ms <= forecast.most_ms
        assert isinstance(stream.late(now_us), str)
