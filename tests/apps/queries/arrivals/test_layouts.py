"""Headers, titles, comments and delimiters of tables."""

from __future__ import annotations

import io
import zipfile

import pytest

from apps.core.errors import Malformed
from tests.apps.queries.arrivals.table_files import look, table

ROWS = [f"2026-03-02 10:{i:02d}:00,5" for i in range(30)]
LOCUST = "Timestamp,User Count,Type,Name,Requests/s,Failures/s,50%,66%,95%,100%,Total Request Count,Total Failure Count"


def test_the_history_of_locust_counts_its_requests() -> None:
    rows = [f"{1772445600 + i},10,,Aggregated,25.000000,0.000000,85,90,120,300,{25 * i},0" for i in range(60)]
    found = look(table(LOCUST, rows))
    assert found.has_header and found.columns[6].name == "50%" and found.problems_total == 0
    assert (found.count_column, found.count_kind, found.events) == ("Requests/s", "rate", 1500)


@pytest.mark.parametrize("header", ["time,50%", "time,0.95", "time,2xx", "1m bucket,hits", "time,count"])
def test_header_may_begin_with_digits(header: str) -> None:
    found = look(table(header, ROWS))
    assert found.has_header and [column.name for column in found.columns] == header.split(",")
    assert (found.rows, found.problems_total) == (30, 0)


def test_table_without_a_header_has_none() -> None:
    found = look("\n".join(ROWS))
    assert (found.has_header, found.rows, found.columns[0].name) == (False, 30, "column 1")


def test_first_line_that_is_damaged_data_is_no_header() -> None:
    found = look("\n".join(["2026-03-0210:00,5", *ROWS]))
    assert not found.has_header and [problem.line for problem in found.problems] == [1]


def test_line_of_excel_names_the_delimiter() -> None:
    for line in ("sep=;", "SEP=;", '"sep=;"', "\ufeffsep=;"):
        found = look(table(line, ["time;count", *(row.replace(",", ";") for row in ROWS)]))
        assert (found.delimiter, found.count_column, found.events) == (";", "count", 150)
    assert look(table("sep=^", ["time^count", *(row.replace(",", "^") for row in ROWS)])).events == 150


def test_comments_are_no_data() -> None:
    rows = [*ROWS[:10], "# restarted", *ROWS[10:], "// the end"]
    found = look(table("# made by hand, with care", ["//", "time,count", *rows]))
    assert (found.columns[1].name, found.rows, found.events, found.problems_total) == ("count", 30, 150, 0)


def test_names_may_stand_in_a_comment() -> None:
    found = look(table("# made by hand", ["# time,count", *ROWS]))
    assert [column.name for column in found.columns] == ["time", "count"] and found.events == 150


def test_titles_and_several_header_lines_are_told() -> None:
    found = look(table("Requests of the shop", ["", "Exported 2 March", "time,requests", ",1/s", *ROWS]))
    assert [column.name for column in found.columns] == ["time", "requests 1/s"]
    assert (found.count_kind, found.events) == ("rate", 5 * 1800)
    assert any("2 lines before the table" in note for note in found.notes)
    assert any("header has 2 lines" in note for note in found.notes)


def test_long_headers_name_columns_by_their_first_line() -> None:
    header = ["Full label,RequestCount", "Account,123456789012", "Region,eu-west-1", "Statistic,Sum", "Period,60"]
    found = look(table(header[0], [*header[1:], *(row.replace("-", "/") for row in ROWS)]))
    assert [column.name for column in found.columns] == ["Full label", "RequestCount"]
    assert (found.rows, found.events, found.problems_total) == (30, 150, 0)


def test_months_are_read_below_a_title() -> None:
    rows = [f"{2015 + i // 12}-{i % 12 + 1:02d},{'<1' if i % 5 == 0 else i}" for i in range(48)]
    found = look(table("Category: All", ["", "Month,python: (Worldwide)", *rows]))
    assert (found.has_header, found.rows, found.starts_at) == (True, 48, "2015-01-01T00:00:00Z")
    assert found.count_column is None and any("such as '<1'" in note for note in found.warnings)


def test_delimiters_at_the_end_of_lines_make_no_column() -> None:
    found = look(table("time,count", [f"{row}," for row in ROWS] + [",,", ","]))
    assert (found.rows, found.events, found.problems_total) == (30, 150, 0)


def test_times_of_day_in_a_column_of_their_own_are_told() -> None:
    found = look(table("Date,Time,count", [f"{row[:10]},{row[11:]}" for row in ROWS]))
    assert any("'Time' holds times of day" in warning for warning in found.warnings)


def test_tables_of_very_many_columns_are_refused() -> None:
    with pytest.raises(Malformed, match="columns; allowed"):
        look(table("a," * 5000, ["5," * 5000]))


def test_very_long_cells_are_neither_times_nor_numbers() -> None:
    for cell in ("1" + " " * 30_000 + "!", "9" * 30_000, "12:00" + " " * 30_000 + "x", "1," * 3 + "0" * 30_000):
        quoted = f'"{cell}"'
        found = look(table("time,count,other", [f"{row},{quoted}" for row in ROWS] + [f"{quoted},{quoted},5"]))
        assert found.problems_total == 2


def test_header_alone_has_no_rows() -> None:
    found = look("time,count\n")
    assert found.has_header and found.rows == 0 and [c.name for c in found.columns] == ["time", "count"]


def zip_of(files: dict[str, str], packing: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", packing) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return buffer.getvalue()


@pytest.mark.parametrize("packing", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_zip_with_one_table_is_read(packing: int) -> None:
    files = {"export/": "", "export/requests.csv": table("time,count", ROWS), "__MACOSX/export/._requests.csv": "x"}
    packed = zip_of(files, packing)
    assert look(packed).events == 150
    damaged = bytearray(packed)
    damaged[60:90] = bytes(30)
    with pytest.raises(Malformed):
        look(bytes(damaged))


def test_zip_with_more_than_one_table_is_refused() -> None:
    with pytest.raises(Malformed, match="holds 2 files"):
        look(zip_of({"a.csv": "t\n", "b.csv": "t\n"}))
    with pytest.raises(Malformed, match="damaged"):
        look(b"PK\x03\x04" + bytes(100))
