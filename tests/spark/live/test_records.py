"""Records at hand become partial aggregates, from whichever operators they enter at."""

from __future__ import annotations

import pyarrow as pa
import pytest

from engine.dataflow.pipeline import Pipeline
from spark_jobs.plans import aggregate_of, row_operator
from spark_jobs.records import partial_of_records
from spark_jobs.windows import OperatorWork
from tests.spark.live.agents import START_US, SmallAgent


@pytest.fixture
def records(pairs: Pipeline) -> pa.Table:
    agent = SmallAgent("a0", "here/pairs", pairs)
    agent.run(2)
    return pa.concat_tables(agent.records)


def test_entries_without_records_add_nothing(pairs: Pipeline, records: pa.Table) -> None:
    work = OperatorWork()
    assert partial_of_records(pairs, {0: [], 2: []}, work).equals(aggregate_of(pairs).partial_schema.empty_table())
    assert work.counts == {}
    windowed = row_operator(pairs, 0).run(records)
    alone = partial_of_records(pairs, {1: [windowed]}, OperatorWork())
    assert partial_of_records(pairs, {0: [], 1: [windowed], 3: []}, work).equals(alone)
    assert alone.num_rows and min(work.counts) == 1
    assert alone["window_start"].cast(pa.int64()).to_pylist()[0] >= START_US - START_US % 1_000_000


def test_records_that_entered_late_count_as_those_that_entered_first(pairs: Pipeline, records: pa.Table) -> None:
    half = records.num_rows // 2
    late = row_operator(pairs, 0).run(records.slice(half))
    whole = aggregate_of(pairs).finalise(partial_of_records(pairs, {0: [records]}, OperatorWork()))
    split = aggregate_of(pairs).finalise(
        partial_of_records(pairs, {0: [records.slice(0, half)], 1: [late]}, OperatorWork())
    )
    assert split.drop_columns(["mean"]).equals(whole.drop_columns(["mean"]))
    assert split["mean"].to_pylist() == pytest.approx(whole["mean"].to_pylist())
