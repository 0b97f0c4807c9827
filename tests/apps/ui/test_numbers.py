"""Numbers and times as texts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from apps.ui import numbers, times


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (8.2431, "8.2"),
        (0.938, "0.94"),
        (0.00213, "0.0021"),
        (13.62, "13.6"),
        (33.0, "33"),
        (1214.4, "1,214"),
        (-0.4, "−0.4"),
        (0.0, "0"),
        (-0.0, "0"),
        (None, "–"),
        (float("nan"), "–"),
        (float("inf"), "–"),
        ("soon", "–"),
    ],
)
def test_numbers_have_two_or_three_significant_digits(value: object, text: str) -> None:
    assert numbers.significant(value) == text


def test_value_near_an_objective_is_written_apart_from_it() -> None:
    assert numbers.significant(3.04, apart_from=3.0) == "3.04"
    assert numbers.significant(2.9996, apart_from=3.0) == "2.9996"
    assert numbers.significant(3.0, apart_from=3.0) == "3"
    assert str(numbers.seconds(10.02, apart_from=10)) == "10.02\u00a0s"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (8.2, "8.2\u00a0s"),
        (0.094, "94\u00a0ms"),
        (0.0000421, "42.1\u00a0µs"),
        (0, "0\u00a0s"),
        (599, "599\u00a0s"),
        (900, "15\u00a0min"),
        (3600, "1\u00a0h"),
        (9000, "2.5\u00a0h"),
        (604_800, "7\u00a0d"),
        (None, "–"),
    ],
)
def test_seconds_choose_their_unit(value: float | None, text: str) -> None:
    assert str(numbers.seconds(value)) == text


def test_large_numbers_have_prefixes_and_shares_percent() -> None:
    assert str(numbers.rate(42_100)) == "42.1\u00a0k/s"
    assert str(numbers.cps(3e9)) == "3\u00a0Gcycles/s"
    assert str(numbers.byte_rate(1.25e8)) == "125\u00a0MB/s"
    assert str(numbers.scaled(999_700)) == "1\u00a0M"
    assert str(numbers.percent(0.184)) == "18%"
    assert str(numbers.percent(-0.13)) == "−13%"
    assert str(numbers.percent(0.042)) == "4.2%"
    assert numbers.ratio(0.934) == "0.93"
    assert numbers.ratio(1.2149) == "1.21"
    assert numbers.ratio(0.7) == "0.70"
    assert numbers.ratio(0.001) == "0"
    assert numbers.count(9_999) == "9,999"
    assert str(numbers.factor(1.31)) == "1.3\u00a0×"


def test_units_are_set_apart_in_html() -> None:
    assert numbers.seconds(8.2).html == '8.2<span class="u">s</span>'
    assert numbers.seconds(None).html == "–"


NOW = datetime(2026, 11, 21, 13, 32, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    ("elapsed", "text"),
    [
        (timedelta(seconds=10), "just now"),
        (timedelta(minutes=22), "22\u00a0min ago"),
        (timedelta(minutes=70), "13:22"),
        (timedelta(days=4), "17 Nov, 14:32"),
        (timedelta(days=400), "17 Oct 2025"),
        (timedelta(seconds=-30), "in 1\u00a0min"),
        (timedelta(minutes=-5), "in 5\u00a0min"),
        (timedelta(minutes=-70), "15:42"),
    ],
)
def test_recent_times_are_relative(elapsed: timedelta, text: str) -> None:
    with timezone.override("Europe/Berlin"):
        assert times.ago(NOW - elapsed, NOW) == text


def test_exact_time_says_its_zone() -> None:
    with timezone.override("Europe/Berlin"):
        assert times.exact(NOW) == "21 Nov 2026, 14:32:08 CET"
        assert 'title="21 Nov 2026, 14:32:08 CET"' in times.time_tag(NOW)
    assert times.time_tag(None) == "–"
