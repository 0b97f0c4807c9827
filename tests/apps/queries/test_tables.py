"""Uploaded tables, odd ones included."""

from __future__ import annotations

import gzip
import io
import lzma
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from apps.core.errors import Malformed, TooLarge
from apps.queries.arrivals.grid import EventCounts, EventStamps, busiest_start, resample
from apps.queries.arrivals.inspection import inspect_table
from apps.queries.arrivals.tables import read_trace

LIMIT = 50_000_000
DATA = Path(os.environ.get("SLUICE_DATA") or Path(__file__).resolve().parents[4] / "shared" / "data")


def look(text: str | bytes, **arguments: Any) -> Any:
    return inspect_table(_file(text), limit_bytes=LIMIT, **arguments)


def read(text: str | bytes, **arguments: Any) -> Any:
    return read_trace(_file(text), limit_bytes=LIMIT, **arguments)


def _file(text: str | bytes) -> io.BytesIO:
    return io.BytesIO(text.encode() if isinstance(text, str) else text)


COUNTS = "period,count\n2026-03-01 00:00:00,5\n2026-03-01 00:01:00,7\n2026-03-01 00:02:00,0\n"


def test_counts_with_a_header() -> None:
    found = look(COUNTS)
    assert (found.time_column, found.time_format, found.count_column) == ("period", "iso", "count")
    assert (found.rows, found.step_s, found.events, found.span_s) == (3, 60.0, 12.0, 180.0)
    assert (found.starts_at, found.ends_at) == ("2026-03-01T00:00:00Z", "2026-03-01T00:03:00Z")
    assert found.preview[0] == ("2026-03-01 00:00:00", "5") and found.problems == ()


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, lambda b: zstandard.ZstdCompressor().compress(b)])
def test_compressed_tables(pack: Any) -> None:
    assert look(pack(COUNTS.encode())).events == 12.0


def test_a_damaged_archive_is_refused() -> None:
    text = COUNTS.encode() * 50
    for whole in (gzip.compress(text), lzma.compress(text), zstandard.ZstdCompressor().compress(text)):
        with pytest.raises(Malformed, match="damaged or cut off"):
            look(whole[:-12])


def test_decompression_bomb_is_refused() -> None:
    with pytest.raises(TooLarge, match="1 MB"):
        inspect_table(_file(gzip.compress(b"2026-03-01\n" * 200_000)), limit_bytes=1_000_000)


def test_parts_of_an_archive_follow_each_other() -> None:
    pack = zstandard.ZstdCompressor().compress
    half = len(COUNTS) // 2
    assert look(pack(COUNTS[:half].encode()) + pack(COUNTS[half:].encode())).events == 12.0
    assert look(gzip.compress(COUNTS[:half].encode()) + gzip.compress(COUNTS[half:].encode())).events == 12.0


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiter_is_detected(delimiter: str) -> None:
    found = look(COUNTS.replace(",", delimiter))
    assert found.delimiter == delimiter and found.events == 12.0


def test_a_single_column_of_stamps_without_a_header() -> None:
    found = look("807256800\n807256804\n807256804\n807256900.5\n")
    assert (found.has_header, found.time_column, found.count_column) == (False, "column 1", None)
    assert found.time_format == "unix_s" and found.events == 4


@pytest.mark.parametrize(
    ("cell", "time_format", "seconds"),
    [
        ("2026-03-01T09:30:00Z", "iso", 1772357400),
        ("2026-03-01T09:30:00+01:00", "iso", 1772353800),
        ("2026-03-01 09:30:00.1234567", "iso", 1772357400.123456),
        ("2026-03-01", "iso", 1772323200),
        ("1772357400", "unix_s", 1772357400),
        ("1772357400123", "unix_ms", 1772357400.123),
        ("1772357400123456", "unix_us", 1772357400.123456),
        ("1772357400123456789", "unix_ns", 1772357400.123456789),
    ],
)
def test_time_formats_are_detected(cell: str, time_format: str, seconds: float) -> None:
    found = look(f"when\n{cell}\n")
    assert found.time_format == time_format
    reading = read(f"when\n{cell}\n", time_column="when")
    assert reading.trace.times_s[0] == pytest.approx(seconds, abs=2e-6)


@pytest.mark.parametrize(
    "cell", ["0001-01-01T00:00:00+14:00", "9999-12-31 23:59:59", "5138-11-17", "1899-12-31T23:59:59Z"]
)
def test_times_at_the_edges_of_the_calendar_are_lines_in_error(cell: str) -> None:
    reading = read(f"t,n\n1900-01-01,1\n5137-12-31,1\n{cell},1\n", time_column="t", count_column="n", time_format="iso")
    assert [(problem.line, problem.column) for problem in reading.problems] == [(4, "t")]
    found = look("t,n\n1900-01-01,1\n5137-12-31,1\n")
    assert found.ends_at is not None and found.starts_at == "1900-01-01T00:00:00Z"


def test_times_without_a_zone_are_read_in_the_given_one() -> None:
    text = "t\n2026-01-15 12:00:00\n2026-07-15 12:00:00\n2026-07-15 12:00:00Z\n"
    reading = read(text, time_column="t", time_zone="Europe/Berlin")
    hours = (reading.trace.times_s % 86_400) / 3600
    assert hours.tolist() == [11, 10, 12]
    with pytest.raises(Malformed, match="Mars/Olympus"):
        read(text, time_column="t", time_zone="Mars/Olympus")


def test_every_malformed_line_is_counted_and_the_first_twenty_are_told() -> None:
    good = "".join(f"2026-03-01 00:{i:02d}:00,1\n" for i in range(10, 40))
    bad = (
        "2026-03-01 00:50:00,-3\nyesterday,4\n2026-03-01 00:52:00,many\n2026-03-01 00:53:00\n2026-03-01 00:54:00,nan\n"
    )
    reading = read(f"t,n\n{good}{bad}", time_column="t", count_column="n")
    assert reading.problems_total == 5
    assert [(p.line, p.column, p.value) for p in reading.problems] == [
        (32, "n", "-3"),
        (33, "t", "yesterday"),
        (34, "n", "many"),
        (35, "(line)", "2026-03-01 00:53:00"),
        (36, "n", "nan"),
    ]
    many = read(
        "t,n\n2026-03-01,1\n2026-03-02,1\n" + "x,y\n" * 300, time_column="t", count_column="n", time_format="iso"
    )
    assert many.problems_total == 600 and len(many.problems) == 20 and many.problems[0].line == 4


def test_unsorted_and_repeated_times_are_sorted_and_noted() -> None:
    text = "t,n\n2026-03-01 00:02:00,3\n2026-03-01 00:00:00,1\n2026-03-01 00:01:00,2\n2026-03-01 00:01:00,5\n"
    reading = read(text, time_column="t", count_column="n")
    assert isinstance(reading.trace, EventCounts)
    assert reading.trace.counts.tolist() == [1, 7, 3]
    assert any("sorted" in note for note in reading.notes) and any("added" in note for note in reading.notes)


def test_gaps_are_noted_and_stay_empty() -> None:
    text = "t,n\n" + "".join(f"2026-03-01 00:{i:02d}:00,6\n" for i in (0, 1, 2, 7, 8))
    reading = read(text, time_column="t", count_column="n")
    assert "1 gap: 4 steps of 60 s" in reading.notes[0] and "2026-03-01 00:03:00 UTC" in reading.notes[0]
    got = resample(reading.trace, start_s=reading.trace.start_s, slice_s=60.0, slices=9)
    assert got.tolist() == [6, 6, 6, 0, 0, 0, 0, 6, 6]


def test_numbers_beside_irregular_stamps_are_not_taken_for_counts() -> None:
    text = "TIMESTAMP,ContextTokens\n2023-11-16 18:17:03.97,4808\n2023-11-16 18:17:04.03,3180\n2023-11-16 18:17:09,1\n"
    found = look(text)
    assert found.count_column is None and found.events == 3
    regular = look("a,b\n2026-03-01 00:00:00,4\n2026-03-01 00:01:00,5\n2026-03-01 00:02:00,6\n2026-03-01 00:03:00,6\n")
    assert regular.count_column == "b"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (b"", "empty"),
        (b"\n\n  \n", "empty"),
        (b"\x00\x01\x02\x03", "not text"),
        ("t,n\n2026-03-01,ä\n".encode("latin-1"), "not UTF-8"),
    ],
)
def test_files_that_are_no_table_are_refused(text: bytes, word: str) -> None:
    with pytest.raises(Malformed, match=word):
        look(text)


def test_a_table_without_times_says_so() -> None:
    found = look("name,size\na,1\nb,2\n")
    assert found.time_column is None and "No column looks like a time" in found.notes[0]


def test_columns_that_do_not_exist_are_named() -> None:
    with pytest.raises(Malformed) as error:
        read(COUNTS, time_column="when", count_column="n")
    assert [fault.path for fault in error.value.faults] == ["time_column", "count_column"]
    assert "period, count" in error.value.message


def test_one_count_alone_has_no_length() -> None:
    with pytest.raises(Malformed, match="at least two"):
        read("t,n\n2026-03-01,1\n", time_column="t", count_column="n")
    assert "at least two" in look("t,count\n2026-03-01,1\n").notes[0]


def test_byte_order_mark_and_quotes_of_excel_are_read() -> None:
    text = '\ufeff"time";"requests"\r\n"2026-03-01 00:00:00";"5"\r\n"2026-03-01 00:01:00";"6"\r\n'
    found = look(text)
    assert (found.time_column, found.count_column, found.events) == ("time", "requests", 11)
    assert look(text.encode("utf-16")).events == 11


def test_columns_of_the_same_name_are_told_apart() -> None:
    assert [c.name for c in look("t,n,n,\n2026-03-01,1,2,3\n2026-03-02,1,2,3\n").columns] == [
        "t",
        "n",
        "n (3)",
        "column 4",
    ]


# -- a real trace


needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the real traces are not here")


@needs_data
def test_the_world_cup_is_read() -> None:
    path = DATA / "worldcup98_requests_per_minute.csv.gz"
    with path.open("rb") as file:
        found = inspect_table(file, limit_bytes=LIMIT)
        reading = read_trace(file, limit_bytes=LIMIT, time_column="period", count_column="count")
    assert (found.time_column, found.count_column, found.rows, found.problems_total) == ("period", "count", 125_300, 0)
    start = busiest_start(reading.trace, 3600.0)
    values = resample(reading.trace, start_s=start, slice_s=0.25, slices=14_400)
    assert reading.trace.counts.max() / 60 == pytest.approx(3824, abs=1)
    assert values.sum() > 0.9 * reading.trace.counts.sum() / (87 * 24) * 5
    days = resample(reading.trace, start_s=reading.trace.start_s, slice_s=1800.0, slices=48 * 89)
    assert days.sum() == pytest.approx(reading.trace.counts.sum(), rel=1e-9)


@needs_data
def test_individual_stamps_of_a_real_service() -> None:
    with (DATA / "azure_llm" / "AzureLLMInferenceTrace_code.csv.gz").open("rb") as file:
        reading = read_trace(file, limit_bytes=LIMIT, time_column="TIMESTAMP")
    assert isinstance(reading.trace, EventStamps) and len(reading.trace.times_s) == 8819
    assert not np.diff(reading.trace.times_s).min() < 0
