"""Partial aggregates and whole pipelines: Spark's partials merge with those of agents into the result of pyarrow
alone.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from engine.dataflow import Pipeline, templates
from engine.dataflow.arrow.kernels import aggregate_kernel, partial_schema, rest, row_kernel, whole
from engine.dataflow.types import Type
from tests.spark.batches import batch, differences, pipeline_of
from tests.spark.spark_sql import partial, select

COMPUTE = {
    "n": "count(*)",
    "known": "count(x)",
    "texts": "count(s)",
    "total": "sum(i % 1000)",
    "average": "avg(y)",
    "least": "min(x)",
    "most": "max(i)",
    "first": "min(t)",
    "last": "max(at)",
    "spread": "max(y) ",
    "few": "sum(if(b, 1, null))",
}
AGGREGATES = {
    "plain": {"op": "aggregate", "by": ["c"], "compute": COMPUTE},
    "by several columns": {"op": "aggregate", "by": ["s", "b", "later"], "compute": COMPUTE},
    "by a whole number": {"op": "aggregate", "by": ["i"], "compute": {"n": "count(*)", "m": "max(s)"}},
    "one sketch": {"op": "aggregate", "by": ["c"], "compute": {"p": "quantile(x, 0.5)", "q": "quantile(x, 0.99)"}},
    "several sketches": {
        "op": "aggregate",
        "by": ["b", "t"],
        "compute": {"p": "quantile(x, 0.5)", "q": "quantile(i, 0)", "r": "quantile(y * 2, 1)", **COMPUTE},
    },
}


def spark_partial(spark: Any, pipeline: Pipeline, records: pa.Table) -> pa.Table:
    """The partial aggregates of records, all operators up to the aggregate run by Spark."""
    views = {}
    for name, table in pipeline.tables.items():
        views[name] = f"table_{name}"
        spark.createDataFrame(table.data).createOrReplaceTempView(views[name])
    view = "entry_0"
    spark.createDataFrame(records).createOrReplaceTempView(view)
    for k in range(pipeline.aggregate):
        spark.sql(select(pipeline, k, view, views)).createOrReplaceTempView(f"entry_{k + 1}")
        view = f"entry_{k + 1}"
    return spark.sql(partial(pipeline, view)).toArrow()


def arrow_partial(pipeline: Pipeline, records: pa.Table) -> pa.Table:
    for k in range(pipeline.aggregate):
        records = row_kernel(pipeline, k).run(records)
    return aggregate_kernel(pipeline).partial(records)


def alike(pipeline: Pipeline, mine: pa.Table, theirs: pa.Table) -> list[str]:
    keys = list(pipeline.operators[pipeline.aggregate].spec.keys)
    return differences(mine, theirs.cast(partial_schema(pipeline)), keys)


@pytest.mark.parametrize("name", AGGREGATES)
def test_partial_aggregates_are_the_same(spark: Any, name: str) -> None:
    pipeline = Pipeline.parse(pipeline_of(AGGREGATES[name]))
    for seed, rows in ((1, 500), (2, 0)):
        records = batch(seed, rows, huge=False)
        wrong = alike(pipeline, arrow_partial(pipeline, records), spark_partial(spark, pipeline, records))
        assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", ["plain", "several sketches"])
def test_partials_of_spark_and_of_agents_merge_into_the_whole(spark: Any, name: str) -> None:
    operation = AGGREGATES[name]
    window = {"op": "window", "size_s": 3_000_000, "slide_s": 1_000_000}
    pipeline = Pipeline.parse(pipeline_of(window, {"op": "filter", "where": "i <> 7"}, operation))
    records = batch(5, 600, huge=False)
    parts = [spark_partial(spark, pipeline, records.slice(0, 250)), arrow_partial(pipeline, records.slice(250))]
    kernel = aggregate_kernel(pipeline)
    merged = kernel.merge([part.cast(kernel.partial_schema) for part in parts])
    found = rest(pipeline, kernel.finalise(merged))
    keys = list(pipeline.operators[2].spec.keys)
    wrong = differences(whole(pipeline, records), found, keys)
    assert not wrong, "\n".join(wrong)


LOG_LINES = [
    "time=2026-11-21T15:04:05.123456+00:00 method=GET route=pages:overview path=/c/e/ status=200 ms=12.34 bytes=5123",
    "time=2026-11-21T15:04:06.000001+00:00 method=POST route=api:queries path=/api/ status=500 ms=812 bytes=-",
    "time=x method=GET route=pages:overview path=/ status=404 ms=0.5 bytes=1",
    '127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif?x=1 HTTP/1.0" 200 2326',
    '10.0.0.7 - frank [10/Oct/2000:13:55:37 -0700] "POST /a/b/c HTTP/1.1" 503 - "http://ref" "agent/1.0"',
    "tenant name=alpha, job running time=12.5, cpu util=40, memory util=73.2",
    "Tenant Name=alpha; job running time=99; cpu util=100; memory util=0",
    "tenant name=beta job running time=1 cpu util=5 memory util=50",
    "tenant=gamma time=11 cpu=12 memory=13",
    "nothing of all that",
    "",
]


@pytest.mark.parametrize("name", sorted(templates.TEMPLATES))
def test_templates_give_the_same_on_both(spark: Any, name: str) -> None:
    document = templates.TEMPLATES[name]().document
    addresses = ["10.0.0.1", "10.0.0.2", "10.0.1.1", "host-a", "elsewhere"]
    if document.get("tables"):
        document["tables"]["tor_of"]["rows"] = [[address, f"tor-{i % 2}"] for i, address in enumerate(addresses[:4])]
    pipeline = Pipeline.parse(document)
    columns = {name: Type(kind) for name, kind in pipeline.source.columns.items()}
    texts = LOG_LINES if "line" in columns else addresses
    records = batch(11, 600, columns, texts, huge=False)
    begin_us = 1_700_000_000_000_000
    stamps = pa.array([begin_us + 50_000 * k for k in range(600)], pa.timestamp("us", "UTC"))
    records = records.set_column(records.schema.get_field_index("ts"), "ts", stamps)
    mine, theirs = arrow_partial(pipeline, records), spark_partial(spark, pipeline, records)
    assert mine.num_rows > 0
    wrong = alike(pipeline, mine, theirs)
    assert not wrong, "\n".join(wrong)
