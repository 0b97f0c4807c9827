"""Every operator means the same by pyarrow and by Spark SQL, on random batches and on empty ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from engine.dataflow import Pipeline
from engine.dataflow.arrow.kernels import row_kernel
from engine.dataflow.types import Type
from tests.spark.batches import batch, differences, pipeline_of
from tests.spark.spark_sql import select

SIZES = ((1, 600), (2, 0))
HOSTS = {
    "columns": {"name": "string", "number": "int64", "place": "string", "weight": "float64"},
    "rows": [
        ["a", 1, "north", 0.5],
        ["A", 1, "south", -0.0],
        ["", 2, None, None],
        [None, 3, "nowhere", 1.0],
        ["Zürich", None, "west", 2.0],
        ["a", -1, "east", 1e300],
        ["日本語", 7, "far", 3.5],
    ],
}
UNIQUE = {
    "columns": {"name": "string", "place": "string"},
    "rows": [["a", "north"], ["", None], [None, "nowhere"], ["日本語", "far"]],
}
LINES = [
    "GET /index.html 200 12.5",
    "POST /a?b=c 404 7",
    "GET  200 1",
    "",
    "no match",
    "GET /x 99999999999999999999 1e3",
    "PUT /日本 201 .5 trailing",
    "GET /y two 3",
    "level=warn code=12 at=2020-01-02T03:04:05Z ok=true text=é",
    "code=13",
    "xcode=14 level=",
    "level=info level=again code=1x ok=TRUE",
    " level=spaced  code=15",
    "level==odd code=16 ok=false",
    '{"level": "warn", "code": 12, "ms": 1.5, "ok": true, "at": "2020-01-02 03:04:05"}',
    '{"level": 7, "code": "12", "ms": "1.5", "ok": "true", "at": 5}',
    '{"code": 1.0, "ms": 3, "level": null}',
    '{"code": 9223372036854775808, "ms": 1e999, "level": ""}',
    '{"code": -9223372036854775808, "ms": -0.0}',
    '{"code": 123456789012345678901234567890123456789012, "ms": 123456789012345678901234567890123456789012}',
    '{"code": 1e3, "ms": 1e3}',
    '{"ms": 0.1234567890123456789012345678901234567890123456789}',
    '{"code": 1, "code": 2}',
    '{"nested": {"code": 5}, "level": "\\u00e9\\n", "ok": false}',
    '{"level": ["a"], "code": {"a": 1}, "ok": 0}',
    "{}",
    " { } ",
    "[]",
    '[{"code": 1}]',
    "12",
    "null",
    '"text"',
    '{"code": 1} trailing',
    '{"code": 01}',
    '{"code": NaN}',
    "{'code': 1}",
    '{"code": 1,}',
    '{"code"',
    '{"level": "tab\there"}',
    '{"level": "\\ud800"}',
    '{"a.b": 1, "code": 2}',
]
INTO = {"code": "int64", "level": "string", "ms": "float64", "ok": "bool", "when": "timestamp"}

OPERATIONS: Mapping[str, Mapping[str, Any]] = {
    "tumbling window": {"op": "window", "size_s": 10},
    "sliding window": {"op": "window", "size_s": 7.5, "slide_s": 2.5},
    "window of a millisecond": {"op": "window", "size_s": 0.001},
    "filter": {"op": "filter", "where": "x > 0 and (i % 2 = 0 or s is null)"},
    "filter by a condition that may be null": {"op": "filter", "where": "b"},
    "filter that keeps nothing": {"op": "filter", "where": "i < i"},
    "filter without a column": {"op": "filter", "where": "1 = 1"},
    "map": {"op": "map", "set": {"x": "x + 1", "k": "i * 2", "s": "upper(t)", "z": "1"}},
    "project": {"op": "project", "columns": {"n": "n", "x": "y", "y": "x", "one": "'constant'"}},
    "inner join": {"op": "join", "table": "unique", "on": {"s": "name"}, "take": {"place": "place"}},
    "left join": {"op": "join", "table": "unique", "on": {"s": "name"}, "take": {"t": "place"}, "how": "left"},
    "inner join by two columns": {
        "op": "join",
        "table": "hosts",
        "on": {"s": "name", "i": "number"},
        "take": {"place": "place", "weight": "weight"},
    },
    "left join by two columns": {
        "op": "join",
        "table": "hosts",
        "on": {"i": "number", "s": "name"},
        "take": {"w": "weight"},
        "how": "left",
    },
    "buckets of floats": {"op": "buckets", "column": "x", "bounds": [-10, -0.5, 0, 0.1, 1, 2.5, 1e9], "into": "k"},
    "buckets of whole numbers": {"op": "buckets", "column": "i", "bounds": [0, 1, 7.5, 9007199254740992], "into": "k"},
    "buckets of one width": {"op": "buckets", "column": "y", "from": -50, "to": 50, "width": 0.5, "into": "y"},
    "buckets with one bound": {"op": "buckets", "column": "x", "bounds": [0], "into": "k"},
}
PARSES: Mapping[str, Mapping[str, Any]] = {
    "regex": {
        "as": "regex",
        "pattern": r"^(?P<method>[A-Z]+) (?P<path>\S*)(?: |$)(?P<code>\S+) (?P<ms>[0-9.e]+)",
        "into": {"method": "string", "code": "int64", "ms": "float64", "path": "string"},
    },
    "regex with a part that may be missing": {
        "as": "regex",
        "pattern": r"code=(?P<code>\d+)(?: at=(?P<when>\S+))?(?P<rest>.*)$",
        "into": {"code": "int64", "when": "timestamp", "rest": "string"},
    },
    "kv": {"as": "kv", "into": {name: kind for name, kind in INTO.items() if name != "when"} | {"at_": "timestamp"}},
    "kv with other signs": {"as": "kv", "separator": "&", "assign": ":", "into": {"code": "string"}},
    "json": {"as": "json", "into": INTO},
}


def by_spark(spark: Any, pipeline: Pipeline, records: pa.Table) -> pa.Table:
    spark.createDataFrame(records).createOrReplaceTempView("records")
    views = {}
    for name, table in pipeline.tables.items():
        views[name] = f"table_{name}"
        spark.createDataFrame(table.data).createOrReplaceTempView(views[name])
    return spark.sql(select(pipeline, 0, "records", views)).toArrow()


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_mean_the_same(spark: Any, name: str) -> None:
    tables = {"hosts": HOSTS, "unique": UNIQUE}
    pipeline = Pipeline.parse(pipeline_of(OPERATIONS[name], tables=tables))
    keys = [name for name in ("n", "window_start") if name in pipeline.operators[0].output_schema.names]
    for seed, rows in SIZES:
        records = batch(seed, rows)
        wrong = differences(row_kernel(pipeline, 0).run(records), by_spark(spark, pipeline, records), keys)
        assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("on_error", ["drop", "null"])
@pytest.mark.parametrize("name", PARSES)
def test_parses_mean_the_same(spark: Any, name: str, on_error: str) -> None:
    columns = {"at": Type.TIMESTAMP, "line": Type.STRING, "n": Type.INT64}
    operation = {"op": "parse", "column": "line", "on_error": on_error, **PARSES[name]}
    pipeline = Pipeline.parse(pipeline_of(operation, columns=columns))
    for records in (batch(1, 400, columns, LINES), batch(2, 200, columns), batch(3, 0, columns)):
        wrong = differences(row_kernel(pipeline, 0).run(records), by_spark(spark, pipeline, records), ["n"])
        assert not wrong, "\n".join(wrong)
