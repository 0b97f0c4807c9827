"""Moments of the calendar: where clocks change, and what is written as one is read as the same one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from launcher.moments import MOMENTS, MomentError, parse_moment

NOWS = [
    datetime(2026, 11, 26, 14, 46, 54, tzinfo=UTC),
    datetime(2028, 2, 29, 13, tzinfo=UTC),
    datetime(2027, 3, 28, 0, 59, 59, tzinfo=UTC),
    datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC),
]


@pytest.mark.parametrize("now", NOWS)
@pytest.mark.parametrize("name", MOMENTS)
def test_moment_is_read_as_it_is_written(name: str, now: datetime) -> None:
    moment = parse_moment(name, now)
    again = parse_moment(str(moment))
    assert again == moment
    assert again.at.utcoffset() == moment.at.utcoffset()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tomorrow", "2026-11-27T14:46:54+00:00"),
        ("in-400-days", "2027-12-31T14:46:54+00:00"),
        ("leap-day", "2028-02-29T12:00:00+00:00"),
        ("berlin-spring", "2027-03-28T01:59:00+01:00[Europe/Berlin]"),
        ("berlin-autumn", "2027-10-31T02:30:00+01:00[Europe/Berlin]"),
        ("new-york-spring", "2027-03-14T01:59:00-05:00[America/New_York]"),
        ("new-york-autumn", "2027-11-07T01:30:00-05:00[America/New_York]"),
        ("last-minute-of-year", "2026-12-31T23:59:00+00:00"),
    ],
)
def test_named_moment_is_the_next_one(name: str, expected: str) -> None:
    assert str(parse_moment(name, NOWS[0])) == expected


@pytest.mark.parametrize("name", ["berlin-spring", "new-york-spring"])
def test_clocks_jump_a_minute_after_a_moment_of_spring(name: str) -> None:
    at = parse_moment(name, NOWS[0]).at
    assert ((at.astimezone(UTC) + timedelta(minutes=1)).astimezone(at.tzinfo)).hour == 3


@pytest.mark.parametrize("name", ["berlin-autumn", "new-york-autumn"])
def test_moment_of_autumn_is_in_the_hour_that_comes_again(name: str) -> None:
    at = parse_moment(name, NOWS[0]).at
    before = (at.astimezone(UTC) - timedelta(hours=1)).astimezone(at.tzinfo)
    assert (before.hour, before.minute, before.fold, at.fold) == (at.hour, at.minute, 0, 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2027-05-01", "2027-05-01T00:00:00+00:00"),
        ("2027-05-01T10:30", "2027-05-01T10:30:00+00:00"),
        ("2027-05-01T10:30[America/New_York]", "2027-05-01T10:30:00-04:00[America/New_York]"),
    ],
)
def test_any_time_is_a_moment(text: str, expected: str) -> None:
    assert str(parse_moment(text)) == expected


@pytest.mark.parametrize(
    "text", ["", "easter", "2027-02-29", "2027-05-01[Europe/Nowhere]", "2027-05-01[../x]", "[", "]"]
)
def test_what_is_no_moment_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(MomentError, match=r"allowed are tomorrow, .* or a time such as 2027-05-01") as refused:
        parse_moment(text)
    assert repr(text) in str(refused.value)
