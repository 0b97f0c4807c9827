"""Times of tables in the spellings of programs and people."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from apps.core.errors import Malformed
from apps.queries.arrivals.grid import resample
from apps.queries.arrivals.times import format_of, has_zone, parser_of
from tests.apps.queries.arrivals.table_files import look, read, table

BEGINS = datetime(2026, 3, 2, tzinfo=UTC)


def test_calendar_digits_of_hours_are_no_seconds_since_1970() -> None:
    hours = [f"{BEGINS + timedelta(hours=i):%Y%m%d%H},800" for i in range(48)]
    found = look(table("timestamp,views", hours))
    assert (found.time_format, found.step_s, found.events) == ("digits", 3600.0, 38_400)
    assert found.starts_at == "2026-03-02T00:00:00Z" and "calendar digits" in found.notes[0]


@pytest.mark.parametrize(
    ("pattern", "step"),
    [
        ("%Y%m%d", timedelta(days=1)),
        ("%Y%m%d%H", timedelta(hours=1)),
        ("%Y%m%d%H%M", timedelta(minutes=1)),
        ("%Y%m%d%H%M%S", timedelta(seconds=10)),
        ("%Y%m%d%H%M%S000", timedelta(seconds=1)),
    ],
)
def test_calendar_digits_of_every_width_keep_their_step(pattern: str, step: timedelta) -> None:
    found = look(table("time,count", [f"{(BEGINS + i * step).strftime(pattern)},600" for i in range(40)]))
    assert (found.time_format, found.step_s) == ("digits", step.total_seconds())
    assert found.events == 40 * 600


def test_one_cell_that_is_no_calendar_time_makes_digits_a_number() -> None:
    seconds = [str(1_772_409_600 + 7 * i) for i in range(50)]
    assert format_of(seconds) == "unix_s"
    assert format_of(["2026030210", "2026030211", "2026039912"]) == "unix_s"
    assert format_of(["20260302", "20261302"]) is None, "numbers of eight digits are rather counts"


@pytest.mark.parametrize(
    ("cell", "time_format", "seconds"),
    [
        ("2026-03-02 09:30:00 UTC", "iso", 1772443800),
        ("2026-03-02 09:30:00,250", "iso", 1772443800.25),
        ("2026/03/02 09:30", "iso", 1772443800),
        ("2026-03-02T09:30:00.000+0100", "iso", 1772440200),
        ("2026-03-02 9:30 AM", "iso", 1772443800),
        ("20260302-093000", "iso", 1772443800),
        ("25.03.2026 09:30:00", "dmy", 1774431000),
        ("25.3.26, 9:30", "dmy", 1774431000),
        ("25/03/2026 09:30:00", "dmy", 1774431000),
        ("3/25/2026 12:30:00 AM", "mdy", 1774398600),
        ("3/25/2026 9:30 pm", "mdy", 1774474200),
        ("25/Mar/2026:10:30:00 +0100", "named", 1774431000),
        ("[25/Mar/2026:10:30:00 +0100]", "named", 1774431000),
        ("Wed, 25 Mar 2026 09:30:00 GMT", "named", 1774431000),
        ("Wed Mar 25 09:30:00 2026", "named", 1774431000),
        ("Wed Mar 25 09:30:00 UTC 2026", "named", 1774431000),
        ("Wed Mar 25 2026 10:30:00 GMT+0100 (Central European Standard Time)", "named", 1774431000),
        ("Mar 25, 2026, 9:30:00 AM", "named", 1774431000),
        ("25-Mar-2026 09:30", "named", 1774431000),
    ],
)
def test_spellings_of_times_are_found_out(cell: str, time_format: str, seconds: float) -> None:
    assert format_of([cell]) == time_format
    assert parser_of(time_format, UTC)(cell) == pytest.approx(seconds, abs=1e-6)


@pytest.mark.parametrize(
    "cell", ["31.02.2026", "13/13/2026", "2026-03-02 25:00", "3/2/2026 13:00 PM", "Foo 12, 2026", "10.0.0.1", "1,5"]
)
def test_what_is_no_time_has_no_format(cell: str) -> None:
    assert format_of([cell]) is None


def test_days_and_months_that_nothing_tells_apart_are_asked_for() -> None:
    rows = [f"03/04/2026 10:{i:02d},5" for i in range(30)]
    text = table("Date,count", rows)
    found = look(text)
    assert found.events is None and any("choose dmy or mdy" in note for note in found.notes)
    with pytest.raises(Malformed) as error:
        read(text, time_column="Date", count_column="count")
    assert error.value.faults[0].path == "time_format"
    april = read(text, time_column="Date", count_column="count", time_format="dmy")
    march = read(text, time_column="Date", count_column="count", time_format="mdy")
    assert april.trace is not None and march.trace is not None
    assert datetime.fromtimestamp(april.trace.start_s, UTC).month == 4
    assert datetime.fromtimestamp(march.trace.start_s, UTC).month == 3


def test_a_day_above_twelve_anywhere_in_the_file_tells_days_from_months() -> None:
    begins = datetime(2026, 3, 1, tzinfo=UTC)
    hours = [begins + timedelta(minutes=15 * i) for i in range(96 * 14)]
    found = look(table("Date,count", [f"{hour:%m/%d/%Y %H:%M},5" for hour in hours]))
    assert (found.time_format, found.starts_at, found.step_s) == ("mdy", "2026-03-01T00:00:00Z", 900)
    assert any("month first" in note for note in found.notes)


def test_dots_stand_behind_days() -> None:
    assert format_of(["03.04.2026 10:00", "04.04.2026 10:00"]) == "dmy"


def test_implausible_years_are_told() -> None:
    future = look(table("t,count", [f"{2_540_000_000 + i},5" for i in range(20)]))
    assert any("2050" in note and "format" in note for note in future.notes)
    past = look(table("t,count", [f"{160_000_000 + i},5" for i in range(20)]))
    assert any("1975" in note for note in past.notes)
    assert not look(table("t,count", [f"{1_772_409_600 + i},5" for i in range(20)])).notes


def test_offsets_in_a_time_are_seen() -> None:
    named = ["2026-10-25 02:30:00+01:00", "2026-10-25T02:30:00Z", "2026-10-25 02:30 UTC", "25/Oct/2026:02:30:00 +0100"]
    assert all(has_zone(cell) for cell in named)
    assert not any(
        has_zone(cell) for cell in ["2026-10-25", "2026-10-25 02:30:00", "25.10.2026 02:30", "Oct 25 02:30:00 2026"]
    )


BERLIN, YORK = "Europe/Berlin", "America/New_York"


def local_rows(zone: str, begins: str, step_s: int, rows: int, suffix: str = "") -> list[str]:
    start = datetime.fromisoformat(begins)
    return [
        f"{(start + timedelta(seconds=step_s * i)).astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M:%S}{suffix}"
        for i in range(rows)
    ]


NIGHTS = [
    (BERLIN, "2026-10-24T23:00:00+00:00"),
    (YORK, "2026-11-01T04:00:00+00:00"),
    ("Australia/Lord_Howe", "2026-04-04T13:00:00+00:00"),
]


@pytest.mark.parametrize(("zone", "begins"), NIGHTS)
@pytest.mark.parametrize("step_s", [300, 900, 1800])
def test_counts_keep_their_rate_where_clocks_are_set_back(zone: str, begins: str, step_s: int) -> None:
    rows = local_rows(zone, begins, step_s, 5 * 3600 // step_s, f",{10 * step_s}")
    for lines in (rows, rows[::-1]):
        reading = read(table("time,count", lines), time_column="time", count_column="count", time_zone=zone)
        assert reading.trace is not None
        assert reading.trace.end_s - reading.trace.start_s == 5 * 3600
        values = resample(reading.trace, start_s=reading.trace.start_s, slice_s=600.0, slices=30)
        assert values == pytest.approx(np.full(30, 6000.0))
        assert any("comes twice" in note for note in reading.notes)
        assert not any("repeat" in note for note in reading.notes)


def test_hourly_counts_come_twice_with_the_same_time() -> None:
    rows = local_rows(BERLIN, "2026-10-24T20:00:00+00:00", 3600, 12, ",36000")
    reading = read(table("time,count", rows), time_column="time", count_column="count", time_zone=BERLIN)
    assert reading.trace is not None and reading.trace.end_s - reading.trace.start_s == 12 * 3600
    assert resample(reading.trace, start_s=reading.trace.start_s, slice_s=3600.0, slices=12).tolist() == [36_000] * 12


def test_hourly_counts_of_two_series_come_twice_each() -> None:
    hours = local_rows(BERLIN, "2026-10-24T20:00:00+00:00", 3600, 12)
    rows = [f"{hour},{name},18000" for hour in hours for name in "ab"]
    reading = read(table("time,name,count", rows), time_column="time", count_column="count", time_zone=BERLIN)
    assert reading.trace is not None
    assert resample(reading.trace, start_s=reading.trace.start_s, slice_s=3600.0, slices=12).tolist() == [36_000] * 12


def test_series_one_after_the_other_have_that_hour_each() -> None:
    hours = local_rows(BERLIN, "2026-10-24T20:00:00+00:00", 1800, 24)
    rows = [f"{hour},{name},9000" for name in "ab" for hour in hours]
    reading = read(table("time,name,count", rows), time_column="time", count_column="count", time_zone=BERLIN)
    assert reading.trace is not None
    assert resample(reading.trace, start_s=reading.trace.start_s, slice_s=1800.0, slices=24).tolist() == [18_000] * 24


@pytest.mark.parametrize(("zone", "begins"), NIGHTS)
def test_events_keep_their_rate_where_clocks_are_set_back(zone: str, begins: str) -> None:
    found = look(table("time", local_rows(zone, begins, 10, 1800)), time_zone=zone)
    assert found.span_s == pytest.approx(17_990, abs=1e-3)
    reading = read(table("time", local_rows(zone, begins, 10, 1800)), time_column="time", time_zone=zone)
    assert reading.trace is not None
    values = resample(reading.trace, start_s=reading.trace.start_s, slice_s=600.0, slices=30)
    assert values.tolist() == [60] * 30


def test_lines_out_of_order_by_seconds_do_not_begin_the_second_hour() -> None:
    rows = local_rows(BERLIN, "2026-10-24T23:00:00+00:00", 1, 5 * 3600)
    for i in range(100, len(rows) - 2, 97):
        rows[i], rows[i + 1] = rows[i + 1], rows[i]
    reading = read(table("time", rows), time_column="time", time_zone=BERLIN)
    assert reading.trace is not None
    values = resample(reading.trace, start_s=reading.trace.start_s, slice_s=600.0, slices=30)
    assert values == pytest.approx(np.full(30, 600.0), abs=3)


def test_an_hour_that_is_there_once_joins_what_is_beside_it() -> None:
    before = local_rows(BERLIN, "2026-10-24T23:00:00+00:00", 600, 12)
    reading = read(table("time", before), time_column="time", time_zone=BERLIN)
    assert reading.trace is not None and reading.trace.end_s - reading.trace.start_s == pytest.approx(6600)
    after = local_rows(BERLIN, "2026-10-25T01:00:00+00:00", 600, 12)
    reading = read(table("time", after), time_column="time", time_zone=BERLIN)
    assert reading.trace is not None and reading.trace.end_s - reading.trace.start_s == pytest.approx(6600)


def test_times_with_an_offset_of_their_own_stay_as_they_are() -> None:
    rows = [f"2026-10-25T02:{i:02d}:00+0{hours}:00" for hours in (2, 1) for i in range(0, 60, 5)]
    reading = read(table("time", rows), time_column="time", time_zone=BERLIN)
    assert reading.trace is not None and reading.trace.end_s - reading.trace.start_s == pytest.approx(6900)
    assert not reading.notes


def test_times_that_clocks_jump_over_are_told() -> None:
    rows = [f"2026-03-29 {hour:02d}:{minute:02d},5" for hour in range(5) for minute in (0, 30)]
    reading = read(table("time,count", rows), time_column="time", count_column="count", time_zone=BERLIN)
    assert any("2 lines from 2026-03-29 02:00" in note and "no such time" in note for note in reading.notes)
    whole = [row for row in rows if " 02:" not in row]
    reading = read(table("time,count", whole), time_column="time", count_column="count", time_zone=BERLIN)
    assert not reading.notes, "the clocks go forward; nothing is missing"


def test_no_order_of_lines_tells_nothing_of_that_hour() -> None:
    rows = local_rows(BERLIN, "2026-10-24T23:00:00+00:00", 300, 60, ",3000")
    mixed = [rows[i * 23 % 60] for i in range(60)]
    reading = read(table("time,count", mixed), time_column="time", count_column="count", time_zone=BERLIN)
    assert any("keep no order" in note for note in reading.notes)
