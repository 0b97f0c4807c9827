"""Joins of two streams mean the same by pyarrow and by Spark SQL, on random batches and on empty ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from engine.dataflow import Pipeline
from engine.dataflow.arrow.kernels import row_kernel, stream_join_kernel
from engine.dataflow.types import AGENT
from tests.spark.batches import COLUMNS, batch, differences, pipeline_of
from tests.spark.spark_sql import select, side

YEAR_S = 31_536_000
TEXTS = ["", "a", "A", "é", "日本語"]
JOIN = {
    "op": "join",
    "stream": "others",
    "time": "later",
    "columns": {name: str(kind) for name, kind in COLUMNS.items()},
    "on": {"s": "t"},
    "take": {"a_text": "s", "b_float": "x", "c_flag": "b", "m": "n"},
}
JOINS: Mapping[str, Mapping[str, Any]] = {
    "inner": {},
    "left": {"how": "left"},
    "by several columns": {"on": {"s": "t", "b": "c"}},
    "by an instant": {"on": {"at": "later"}, "most": 5},
    "left by a flag": {"on": {"b": "c"}, "how": "left", "most": 3},
    "the first alone": {"most": 1},
    "the first few, by all that is taken": {"most": 2, "take": {"z_float": "x", "text": "s", "flag": "b", "m": "n"}},
    "within agents": {"within": "agent", "how": "left", "most": 2},
}


def others(seed: int, rows: int) -> pa.Table:
    """Records whose times are often the same, so that what else they hold decides which come first."""
    made = batch(seed, rows, texts=TEXTS)
    times = pc.if_else(made["c"], pa.scalar(1_577_934_245_123_456, pa.int64()), made["later"].cast(pa.int64()))
    return made.set_column(made.schema.get_field_index("later"), "later", times.cast(made.schema.field("later").type))


def with_agents(table: pa.Table) -> pa.Table:
    return table.append_column(AGENT, pa.array([f"agent{i % 3}" for i in range(table.num_rows)], pa.string()))


def by_spark(spark: Any, pipeline: Pipeline, records: pa.Table, other: pa.Table) -> pa.Table:
    for name, table in (("records", records), ("others", other)):
        spark.createDataFrame(table).createOrReplaceTempView(name)
    spark.sql(side(pipeline, "others")).createOrReplaceTempView("side")
    return spark.sql(select(pipeline, 1, "records", other="side")).toArrow()


@pytest.mark.parametrize("name", JOINS)
@pytest.mark.parametrize("slide_s", [YEAR_S, YEAR_S / 2], ids=["tumbling", "sliding"])
def test_joins_of_streams_mean_the_same(spark: Any, name: str, slide_s: float) -> None:
    window = {"op": "window", "size_s": YEAR_S, "slide_s": slide_s}
    pipeline = Pipeline.parse(pipeline_of(window, {**JOIN, **JOINS[name]}))
    join = stream_join_kernel(pipeline)
    for seed, rows, more in ((1, 400, 300), (2, 0, 20), (3, 20, 0)):
        records = row_kernel(pipeline, 0).run(batch(seed, rows, texts=TEXTS))
        other = others(seed + 10, more)
        if join.within_agent:
            records, other = with_agents(records), with_agents(other)
        found = join.run(records, join.side(other))
        wrong = differences(found, by_spark(spark, pipeline, records, other), ["n", "window_start", "m"])
        assert not wrong, "\n".join(wrong)
        assert found.num_rows or not rows or not more
