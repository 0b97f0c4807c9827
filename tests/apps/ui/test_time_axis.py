"""Time axes: round local times, the zone and the duration."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from apps.ui.charts import Chart, Series, time_axis
from apps.ui.svg.axes import PictureFrame, clock_axis, span_words, strip_axis, time_ticks

START = datetime(2026, 11, 24, 9, 36, 10, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _in_berlin() -> Iterator[None]:
    with timezone.override(ZoneInfo("Europe/Berlin")):
        yield


@pytest.mark.parametrize(
    ("span_s", "words"),
    [
        (45.0, ["10:36:10", "10:36:20", "10:36:30", "10:36:40", "10:36:50"]),
        (1800.0, ["10:40", "10:45", "10:50", "10:55", "11:00", "11:05"]),
        (6 * 86_400.0, ["25 Nov", "26 Nov", "27 Nov", "28 Nov", "29 Nov", "30 Nov"]),
    ],
)
def test_ticks_are_at_round_local_times(span_s: float, words: list[str]) -> None:
    ticks = time_ticks(START, span_s, 6)
    assert [text for _, text in ticks] == words
    assert all(0 <= at_s <= span_s for at_s, _ in ticks)


def test_day_of_a_clock_change_keeps_true_local_times() -> None:
    ticks = time_ticks(datetime(2026, 10, 24, 22, 0, tzinfo=UTC), 12 * 3600, 6)  # clocks go back at 3 in the morning
    assert [text for _, text in ticks] == ["00:00", "02:00", "03:00", "05:00", "07:00", "09:00", "11:00"]


def test_span_has_both_ends_zone_and_duration() -> None:
    assert span_words(START, 1800.0) == "10:36 to 11:06 CET, 30\u00a0min"
    assert span_words(START, 120.0) == "10:36:10 to 10:38:10 CET, 2\u00a0min"


def test_strip_has_an_axis_that_screen_readers_hear() -> None:
    axis = strip_axis(START, 1800.0)
    assert 'aria-label="Time, 10:36 to 11:06 CET, 30\u00a0min"' in axis
    ticks = re.findall(r'class="mid" style="left:([\d.]+)%">([\d:]+)<', axis)
    assert [text for _, text in ticks] == ["10:50"]
    assert strip_axis(None, 1800.0) == strip_axis(START, None) == ""


def test_clock_axis_places_its_words_under_their_times() -> None:
    frame = PictureFrame("wide", 800, 50, 50)
    begin_us = START.timestamp() * 1e6
    shapes = clock_axis(frame, 100.0, begin_us, begin_us + 1.8e9, lambda at_us: (at_us - begin_us) / 1.8e9)
    words = {shape.words: shape.attributes["x"] for shape in shapes if shape.tag == "text"}
    assert words["10:50"] == pytest.approx((13 * 60 + 50) / 1800)


def test_axis_of_values_holds_those_below_nothing() -> None:
    """Headroom below 0 is drawn; an axis of positive values begins at 0."""

    def ends(*values: float) -> tuple[float | None, float]:
        series = [Series("estimate", "Headroom", y=values)]
        spec = Chart(id="c", finding="", unit="%", x=time_axis(START, 60.0, 1), series=series).spec
        return spec.get("bottom"), spec["top"]  # type: ignore[return-value]

    assert ends(-50.0, -20.0) == (pytest.approx(-54.0), 0.0)
    assert ends(-50.0, 20.0) == (pytest.approx(-54.0), pytest.approx(21.6))
    assert ends(10.0, 20.0) == (None, pytest.approx(21.6)) and ends(0.0) == (None, pytest.approx(1.08))
