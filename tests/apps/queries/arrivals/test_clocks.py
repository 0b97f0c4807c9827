"""The nights in which clocks are set back and forward."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from apps.queries.arrivals.grid import resample
from tests.apps.queries.arrivals.table_files import look, read, table

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
