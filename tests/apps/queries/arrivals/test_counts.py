"""Counts of tables in the spellings of programs and people: numbers, rates and running totals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from apps.core.errors import Malformed
from apps.queries.arrivals.numerals import find_number_style, kind_of_name
from tests.apps.queries.arrivals.table_files import look, read, table

BEGINS = datetime(2026, 3, 2, 10, tzinfo=UTC)


def minutes(values: list[str], delimiter: str = ",") -> list[str]:
    return [f"{BEGINS + timedelta(minutes=i):%Y-%m-%d %H:%M:%S}{delimiter}{value}" for i, value in enumerate(values)]


@pytest.mark.parametrize(
    ("cells", "delimiter", "numbers"),
    [
        (["1,234", "999", "12,345,678"], ",", [1234, 999, 12_345_678]),
        (["1,234", "2,345"], ",", [1234, 2345]),
        (["1,234.5", "12.0"], ",", [1234.5, 12]),
        (["1200,5", "7"], ";", [1200.5, 7]),
        (["1.234,5", "1.234"], ";", [1234.5, 1234]),
        (["1.234.567", "1.234"], ";", [1_234_567, 1234]),
        (["0,125", "1,250"], ";", [0.125, 1.25]),
        (["1 234", "12 345 678", "5"], ",", [1234, 12_345_678, 5]),
        (["1\u202f234,5", "1\u00a0000"], ";", [1234.5, 1000]),
        (["1'234", "1’234.5"], ",", [1234, 1234.5]),
        (["1.20 K", "3 k", "1.2M", "950", "1.5 Mil"], ",", [1200, 3000, 1.2e6, 950, 1.5e6]),
        (["1,20 K", "3 K"], ";", [1200, 3000]),
        (["12 req", "1 req", "7 reqs"], ",", [12, 1, 7]),
        (["12 Messages", "3 Messages"], ",", [12, 3]),
        (["1e3", "2.5E+2", "7"], ",", [1000, 250, 7]),
    ],
)
def test_numbers_are_read_as_a_column_writes_them(cells: list[str], delimiter: str, numbers: list[float]) -> None:
    style = find_number_style(cells, delimiter)
    assert style is not None
    assert [style.count_of(cell) for cell in cells] == pytest.approx(numbers)


@pytest.mark.parametrize(
    "cells",
    [
        ["12 ms", "15 ms"],
        ["12 %", "50%"],
        ["1.2 MB", "3 MB"],
        ["1.2 B", "3 B"],
        ["5 kreq/s", "6 kreq/s"],
        ["10.0.0.1:80"],
        ["many"],
    ],
)
def test_measures_of_something_else_are_no_counts(cells: list[str]) -> None:
    assert find_number_style(cells) is None


def test_a_cell_that_breaks_the_style_of_its_column_is_told() -> None:
    text = table("time,count", minutes(['"1,234"'] * 30 + ['"1,23"']))
    reading = read(text, time_column="time", count_column="count", decimal_mark="point")
    assert [problem.value for problem in reading.problems] == ["1,23"]


def test_counts_of_a_spreadsheet_are_counts() -> None:
    thousands = look(table("time,requests", minutes([f'"{1200 + i:,}"' for i in range(30)])))
    assert (thousands.count_column, thousands.events) == ("requests", 36_435)
    comma = look(table("Zeit;Anzahl", minutes([f"{1200 + i},5" for i in range(30)], ";")))
    assert (comma.delimiter, comma.count_column, comma.events) == (";", "Anzahl", 36_450)
    headerless = look("\n".join(minutes([f"{1200 + i},5" for i in range(30)], ";")))
    assert (headerless.delimiter, headerless.events) == (";", 36_450)
    grafana = look(table('"Time","requests"', [f'"{line[:19]}","{line[20:]}"' for line in minutes(["1.20 K"] * 30)]))
    assert (grafana.count_column, grafana.events) == ("requests", 36_000)
    assert any("rounded" in note for note in grafana.notes) and any("thousands" in note for note in thousands.notes)


def test_a_mark_that_may_be_either_is_asked_for() -> None:
    text = table("Zeit;Anzahl", minutes(["1.234", "2.345", "3.456", "1.001"], ";"))
    found = look(text)
    assert found.events is None and any("choose decimal_mark" in note for note in found.notes)
    with pytest.raises(Malformed) as error:
        read(text, time_column="Zeit", count_column="Anzahl")
    assert error.value.faults[0].path == "decimal_mark"
    point = read(text, time_column="Zeit", count_column="Anzahl", decimal_mark="point")
    comma = read(text, time_column="Zeit", count_column="Anzahl", decimal_mark="comma")
    assert point.trace is not None and point.trace.total == pytest.approx(8.036)
    assert comma.trace is not None and comma.trace.total == pytest.approx(8036)


def test_a_column_named_like_a_count_that_cannot_be_read_is_told() -> None:
    found = look(table("time,requests", minutes(["about a dozen"] * 30)))
    assert found.count_column is None
    assert any("'requests' is named like a count" in note and "about a dozen" in note for note in found.warnings)


def test_column_that_is_taken_by_the_step_of_times_is_told() -> None:
    rows = [f"{line};{i % 7}" for i, line in enumerate(minutes(["200"] * 30, ";"))]
    found = look(table("time;status;served", rows))
    assert found.count_column == "served" and any("'served' is taken, not status" in note for note in found.warnings)


def test_regular_times_without_a_count_are_told() -> None:
    found = look(table("time,latency", minutes(["12 ms"] * 30)))
    assert found.count_column is None and any("regular step" in note for note in found.warnings)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Requests/s", "rate"),
        ("requests_per_second", "rate"),
        ("events per sec", "rate"),
        ("rps", "rate"),
        ("EPS", "rate"),
        ("sum(rate(http_requests_total[5m]))", "rate"),
        ("mean_rate_eps", "rate"),
        ("requestRate", "rate"),
        ("requests/min", "rate_per_minute"),
        ("rpm", "rate_per_minute"),
        ("http_requests_total", "total"),
        ('{__name__="http_requests_total", instance="a"}', "total"),
        ("sum(increase(http_requests_total[1m]))", "count"),
        ("cumulative requests", "total"),
        ("requests", "count"),
        ("count", "count"),
        ("operations", "count"),
    ],
)
def test_names_tell_rates_and_totals_from_counts(name: str, kind: str) -> None:
    assert kind_of_name(name) == kind


def test_rates_are_multiplied_by_their_step() -> None:
    second = look(table("time,Requests/s", minutes(["25.0"] * 60)))
    assert (second.count_kind, second.events) == ("rate", 25 * 3600)
    minute = look(table("time,requests/min", minutes(["600"] * 60)))
    assert (minute.count_kind, minute.events) == ("rate_per_minute", 36_000)
    unit = look(table("time,requests", minutes(['"1,200/s"'] * 60)))
    assert (unit.count_kind, unit.events) == ("rate", 1200 * 3600)
    assert any("not counts" in note for note in unit.notes)
    counts = read(table("time,rps", minutes(["25"] * 60)), time_column="time", count_column="rps", count_kind="count")
    assert counts.trace is not None and counts.trace.total == 1500


def test_running_totals_count_by_their_differences() -> None:
    found = look(table("time,http_requests_total", minutes([str(1_000_000 + 600 * i) for i in range(61)])))
    assert (found.count_kind, found.events, found.step_s, found.span_s) == ("total", 36_000, 60.0, 3600.0)
    assert any("differences count" in note for note in found.notes)


def test_a_total_that_begins_anew_counts_from_zero() -> None:
    values = [600 * i for i in range(30)] + [150 + 600 * i for i in range(30)]
    found = look(table("time,requests_total", minutes([str(value) for value in values])))
    assert found.events == 600 * 29 + 150 + 600 * 29
    assert any("falls 1 time" in note for note in found.notes)


def test_a_total_whose_name_is_silent_is_found_by_its_smoothness() -> None:
    rises = np.random.default_rng(3).poisson(600, 60)
    found = look(table("time,requests", minutes([str(1_000_000 + value) for value in np.cumsum(rises)])))
    assert (found.count_kind, found.events) == ("total", rises[1:].sum())


def test_counts_that_grow_are_counts_and_that_is_told() -> None:
    for values in ([100 * i for i in range(1, 41)], [round(1000 * 1.05**i) for i in range(40)]):
        found = look(table("time,requests", minutes([str(value) for value in values])))
        assert (found.count_kind, found.events) == ("count", sum(values))
        assert any("never fall" in note and "count_kind" in note for note in found.notes)
    noisy = np.random.default_rng(5).poisson(np.linspace(100, 5000, 60))
    found = look(table("time,requests", minutes([str(value) for value in noisy])))
    assert (found.count_kind, found.events) == ("count", noisy.sum())


def test_few_totals_of_steps_that_grow_are_counts_and_that_is_told() -> None:
    few = look(table("time,total", minutes(["100", "120", "130", "160", "190"])))
    assert (few.count_kind, few.events) == ("count", 700) and any("never fall" in note for note in few.notes)
    assert look(table("time,total", minutes([str(600 * i) for i in range(30)]))).count_kind == "total"
    assert look(table("time,sum(requests)", minutes([str(600 + i) for i in range(30)]))).count_kind == "count"


def test_totals_of_series_that_come_and_go_are_refused() -> None:
    rows = [f"{line},a" for line in minutes([str(600 * i) for i in range(40)])]
    rows += [f"{line},b" for line in minutes([str(1_000_000 + 600 * i) for i in range(20)])]
    with pytest.raises(Malformed) as error:
        read(table("time,hits_total,host", rows), time_column="time", count_column="hits_total", count_kind="total")
    assert error.value.faults[0].path == "count_kind"


def test_choices_that_do_not_exist_are_named_all_at_once() -> None:
    with pytest.raises(Malformed) as error:
        read("t,n\n", time_column="t", count_column="n", time_format="x", count_kind="gauge", decimal_mark=";")
    assert [fault.path for fault in error.value.faults] == ["time_format", "count_kind", "decimal_mark"]
    with pytest.raises(Malformed, match="no meaning without a count_column"):
        read("t\n2026-03-01\n", time_column="t", count_kind="rate")


def test_a_peak_far_above_what_is_usual_is_told() -> None:
    found = look(table("time,count", minutes(["600"] * 30 + ["6000000"] + ["600"] * 29)))
    assert any("10,000 times the median" in note and "10:30:00" in note for note in found.notes)


def test_counts_of_nothing_have_no_peak() -> None:
    assert not look(table("time,count", minutes(["0"] * 30))).notes


def test_numbers_below_zero_are_no_counts_and_that_is_told() -> None:
    found = look(table("time,change", minutes(["5", "-5"] * 15)))
    assert found.count_column is None and any("'-5'" in warning for warning in found.warnings)


def test_lines_of_sums_are_left_out_where_they_add_up_the_others() -> None:
    rows = [
        f"{line},{name}"
        for name, value in (("/a", "10"), ("/b", "15"), ("Aggregated", "25"))
        for line in minutes([value] * 30)
    ]
    found = look(table("time,Requests/s,Name", rows))
    assert found.events == 25 * 1800 and any("30 lines of sums left out" in note for note in found.notes)
    alone = look(table("time,Requests/s,Name", rows[-30:]))
    assert alone.events == 25 * 1800


def test_a_sum_under_the_table_is_left_out() -> None:
    found = look(table("time,count", [*minutes(["600"] * 30), "Total,18000"]))
    assert (found.events, found.problems_total) == (18_000, 0)
    assert any("sums without a time" in note for note in found.notes)
