"""Effect of each operation on records."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from engine.dataflow import Pipeline
from engine.dataflow.arrow.kernels import NotRunnableError, kernel, rest, row_kernel, whole
from engine.errors import DocumentError
from tests.engine.dataflow.documents import document, pipeline, rows, table

SECOND = 1_000_000
SWITCHES = {"columns": {"ip": "string", "port": "int64", "tor": "string"}, "rows": [["a", 1, "t1"], ["a", 2, None]]}


def run(expression: dict[str, Any], given: pa.Table, **more: Any) -> pa.Table:
    return row_kernel(pipeline(expression, **more), 0).run(given)


def starts(given: pa.Table) -> list[int]:
    return given["window_start"].cast(pa.int64()).to_pylist()


def test_tumbling_windows_begin_at_multiples_of_their_size_even_before_1970() -> None:
    made = run({"op": "window", "size_s": 10}, table(at=[0, 9_999_999, 10 * SECOND, -1, None]))
    assert starts(made) == [0, 0, 10 * SECOND, -10 * SECOND]


def test_sliding_window_copies_a_record_into_each_of_its_windows() -> None:
    made = run({"op": "window", "size_s": 10, "slide_s": 5}, table(at=[12 * SECOND, 4 * SECOND], i=[1, 2]))
    assert sorted(zip(made["i"].to_pylist(), starts(made), strict=True)) == [
        (1, 5 * SECOND),
        (1, 10 * SECOND),
        (2, -5 * SECOND),
        (2, 0),
    ]


def test_filter_drops_false_and_null() -> None:
    assert run({"op": "filter", "where": "i > 1"}, table(i=[1, 2, None]))["i"].to_pylist() == [2]


def test_map_computes_all_columns_from_its_input() -> None:
    made = run({"op": "map", "set": {"j": "i", "i": "j", "sum": "i + j"}}, table(i=[1], j=[2]))
    assert rows(made, "i", "j", "sum") == [(2, 1, 3)]
    assert made.schema.names == ["at", "b", "i", "j", "s", "x", "y", "sum"]


def test_project_keeps_time_and_window() -> None:
    chain = pipeline({"op": "window", "size_s": 1}, {"op": "project", "columns": {"two": "i * 2", "a": "s"}})
    assert chain.operators[1].output_schema.names == ["window_start", "at", "a", "two"]


@pytest.mark.parametrize(
    ("how", "expected"), [("inner", [(1, "t1"), (2, None)]), ("left", [(1, "t1"), (2, None), (3, None), (None, None)])]
)
def test_join_looks_up_keys(how: str, expected: list[Any]) -> None:
    join = {"op": "join", "table": "switches", "on": {"s": "ip", "i": "port"}, "take": {"tor": "tor"}, "how": how}
    made = run(join, table(s=["a", "a", "a", "a"], i=[1, 2, 3, None]), tables={"switches": SWITCHES})
    assert rows(made, "i", "tor") == expected


def test_null_key_joins_nothing_even_with_null_in_the_table() -> None:
    tables = {"t": {"columns": {"k": "string", "v": "int64"}, "rows": [[None, 1], ["a", 2]]}}
    made = run({"op": "join", "table": "t", "on": {"s": "k"}, "take": {"v": "v"}}, table(s=[None, "a"]), tables=tables)
    assert made["v"].to_pylist() == [2]


def parsed(lines: list[str | None], **parse: Any) -> list[tuple[Any, ...]]:
    made = run({"op": "parse", "column": "s", **parse}, table(s=lines))
    assert "s" not in made.schema.names
    return rows(made, *sorted(parse["into"]))


def test_regex_parse_extracts_groups_and_drops_other_lines() -> None:
    parse = {"as": "regex", "pattern": r"(?P<k>\w+)=(?P<v>\d+)?;", "into": {"k": "string", "v": "int64"}}
    lines = ["a=1;", "x b=22; c=3;", "c=;", "junk", None]
    assert parsed(lines, **parse) == [("a", 1), ("b", 22), ("c", None)]
    assert parsed(lines, **parse, on_error="null") == [("a", 1), ("b", 22), ("c", None), (None, None), (None, None)]


def test_key_value_parse_finds_keys_in_any_order() -> None:
    lines = ["b=1.5 a=x", "xa=n a=y b=z", "a= a=2", "none", None]
    assert parsed(lines, **{"as": "kv", "into": {"a": "string", "b": "float64"}}) == [
        ("x", 1.5),
        ("y", None),
        ("", None),
    ]
    piped = {"as": "kv", "separator": "|", "assign": ":", "into": {"a": "int64"}}
    assert parsed(["b:2|a:1", "a:1 |b:2"], **piped) == [(1,), (None,)]


def test_json_parse_gives_typed_values_and_null_for_others() -> None:
    lines = [
        '{"i": 1, "f": 2, "text": "a", "b": true, "t": "1970-01-01 00:00:01"}',
        '{"i": 1.5, "f": "2", "text": 3, "b": 1, "t": 5, "more": {}}',
        '{"i": 9223372036854775808, "f": 1e999, "b": null}',
        '{"f": NaN}',
        '{"text": "\\ud800"}',
        "[1]",
        '{"i": 1',
        None,
    ]
    into = {"i": "int64", "f": "float64", "text": "string", "b": "bool", "t": "timestamp"}
    result = parsed(lines, **{"as": "json", "into": into})
    assert [row[:3] for row in result] == [(True, 2.0, 1), *[(None,) * 3] * 2]
    assert [row[3] is None for row in result] == [False, True, True]
    assert [row[4] for row in result] == ["a", None, None]
    assert len(parsed(lines, **{"as": "json", "into": into, "on_error": "null"})) == len(lines)


def test_buckets_are_numbered_from_below_the_first_bound_to_above_the_last() -> None:
    values = [-1.0, 0.0, 9.99, 10.0, 30.0, None]
    even = run({"op": "buckets", "column": "x", "from": 0, "to": 30, "width": 10, "into": "n"}, table(x=values))
    assert even["n"].to_pylist() == [0, 1, 1, 2, 4, None]
    listed = run({"op": "buckets", "column": "i", "bounds": [1, 5], "into": "n"}, table(i=[0, 1, 5, None]))
    assert listed["n"].to_pylist() == [0, 1, 2, None]


def test_nonfinite_source_values_are_null_to_the_first_operator() -> None:
    odd = table(x=[float("nan"), float("inf"), 1.0])
    assert run({"op": "filter", "where": "true"}, odd)["x"].to_pylist() == [None, None, 1.0]


def test_operators_after_the_aggregate_run_on_its_rows_and_may_aggregate_again() -> None:
    chain = pipeline(
        {"op": "window", "size_s": 10},
        {"op": "aggregate", "by": ["s"], "compute": {"n": "count(*)"}},
        {"op": "filter", "where": "n > 1"},
        {"op": "aggregate", "by": [], "compute": {"groups": "count(*)", "largest": "max(n)"}},
    )
    given = table(at=[1, 2, 3, 4, 5], s=["a", "a", "b", "c", "c"])
    assert rows(whole(chain, given), "groups", "largest") == [(2, 2)]
    closed = Pipeline.parse(document(*[entry["expression"] for entry in chain.document["operators"][:2]]))
    assert rest(chain, whole(closed, given)).equals(whole(chain, given))


def test_kernel_returns_the_input_kind_for_any_column_order() -> None:
    given = table(i=[1, 2]).select(["s", "i", "j", "at", "x", "y", "b"])
    chain = pipeline({"op": "filter", "where": "i > 1"})
    from_table = row_kernel(chain, 0).run(given)
    from_batch = row_kernel(chain, 0).run(given.to_batches()[0])
    assert isinstance(from_table, pa.Table) and isinstance(from_batch, pa.RecordBatch)
    assert from_table.schema == chain.operators[0].output_schema == from_batch.schema
    assert row_kernel(chain, 0).run(given.slice(0, 0)).num_rows == 0


def test_operator_that_can_run_nowhere_has_no_kernel() -> None:
    chain = pipeline({"op": "window", "size_s": 1}, {"op": "aggregate", "compute": {"m": "median(x)"}})
    with pytest.raises(NotRunnableError, match="quantile"):
        kernel(chain, 1)


@pytest.mark.parametrize(
    ("expression", "path", "says"),
    [
        ({"op": "window", "size_s": 10, "slide_s": 3}, "slide_s", "slide_s is 3; allowed: size_s (10) divided by"),
        ({"op": "window", "size_s": 0}, "size_s", "size_s is 0; allowed: a finite number from 0.001"),
        ({"op": "windows", "size_s": 1}, "op", "did you mean 'window'?"),
        ({"op": "map", "set": {"at": "at"}}, "set.at", "allowed: any column but window_start and the time"),
        ({"op": "map", "set": {"1a": "i"}}, "set.1a", "allowed: a letter, then letters"),
        ({"op": "map", "set": {}}, "set", "set is empty; allowed: at least one column"),
        ({"op": "map", "set": {"I": "i"}}, "", "'i' and 'I' differ in case alone"),
        ({"op": "join", "table": "t", "on": {"s": "k"}, "take": {"v": "v"}}, "table", "allowed: none: tables is empty"),
        ({"op": "join", "on": {"s": "k"}, "take": {"v": "v"}}, "", "allowed: exactly one of both"),
        ({"op": "aggregate", "by": ["x"], "compute": {"n": "count(*)"}}, "by", "a float64; allowed: int64"),
        ({"op": "aggregate", "by": ["i", "i"], "compute": {"n": "count(*)"}}, "by", "names 'i' twice"),
        ({"op": "aggregate", "by": ["i"], "compute": {"i": "count(*)"}}, "compute.i", "but grouped by too"),
        ({"op": "aggregate", "by": [], "compute": {"n": "count(*)"}}, "by", "by is empty"),
        ({"op": "aggregate", "by": ["i"], "compute": {"n": "sum(s)"}}, "compute.n", "sum is given a string"),
        ({"op": "aggregate", "by": ["i"], "compute": {"n": "sum(x) / 2"}}, "compute.n", "a map after the aggregate"),
        ({"op": "aggregate", "by": ["i"], "compute": {"n": "quantile(x, 2)"}}, "compute.n", "a constant from 0 to 1"),
        ({"op": "parse", "column": "i", "as": "kv", "into": {"a": "string"}}, "column", "a int64; allowed: a string"),
        ({"op": "parse", "column": "s", "as": "regex", "into": {"a": "string"}}, "pattern", "pattern is missing"),
        (
            {"op": "parse", "column": "s", "as": "regex", "pattern": "(?P<b>a)", "into": {"a": "string"}},
            "pattern",
            "with the named groups b; allowed: also a",
        ),
        (
            {"op": "parse", "column": "s", "as": "json", "pattern": "a", "into": {"a": "string"}},
            "pattern",
            "not with as",
        ),
        ({"op": "buckets", "column": "x", "into": "n"}, "", "allowed: one of both"),
        ({"op": "buckets", "column": "x", "bounds": [2, 1], "into": "n"}, "bounds", "each above the one before"),
        ({"op": "buckets", "column": "x", "from": 0, "to": 1, "width": 0.3, "into": "n"}, "width", "1 to 999 steps"),
        ({"op": "buckets", "column": "s", "bounds": [1], "into": "n"}, "column", "allowed: int64 or float64"),
    ],
)
def test_faults_name_the_field_its_value_and_what_is_allowed(expression: dict[str, Any], path: str, says: str) -> None:
    with pytest.raises(DocumentError) as caught:
        Pipeline.parse(document(expression))
    (fault,) = caught.value.faults
    assert fault.path == ("operators[0].expression." + path).rstrip(".")
    assert says in fault.message, fault.message
