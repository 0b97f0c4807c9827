"""Partials merge: however records are cut and in whatever order parts come, the result is that of the whole."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from ddsketch import DDSketch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.dataflow import sketch
from engine.dataflow.arrow.kernels import aggregate_kernel, partial_schema, row_kernel, whole
from tests.engine.dataflow.documents import pipeline, rows, table

PIPELINE = pipeline(
    {"op": "window", "size_s": 10, "slide_s": 5},
    {"op": "filter", "where": "i is null or i % 7 <> 0"},
    {"op": "map", "set": {"ratio": "x / j", "k": "coalesce(i % 3, -1)"}},
    {"op": "project", "columns": {"s": "s", "k": "k", "i": "i", "x": "x", "ratio": "ratio", "at2": "at"}},
    {"op": "buckets", "column": "x", "from": -100, "to": 100, "width": 50, "into": "bucket"},
    {
        "op": "aggregate",
        "by": ["s", "k", "bucket"],
        "compute": {
            "records": "count(*)",
            "known": "count(x)",
            "i_sum": "sum(i)",
            "i_avg": "avg(i)",
            "x_sum": "sum(x)",
            "x_avg": "avg(ratio)",
            "x_min": "min(x)",
            "x_max": "max(x)",
            "at_max": "max(at2)",
            "s_min": "min(s)",
            "p50": "quantile(x, 0.5)",
            "p99": "quantile(x, 0.99)",
            "i_p10": "quantile(i, 0.1)",
        },
    },
)
ROW_KERNELS = [row_kernel(PIPELINE, k) for k in range(len(PIPELINE.operators) - 1)]
FLOATS = ("i_avg", "x_sum", "x_avg")
MOST = 2**63 - 1

records = st.lists(
    st.tuples(
        st.integers(-30_000_000, 30_000_000) | st.none(),
        st.integers(-20, 20) | st.sampled_from([None, MOST, -MOST]),
        st.integers(-3, 3) | st.none(),
        st.floats(-1e6, 1e6) | st.sampled_from([None, math.nan, math.inf, 0.0, 5e-324, 1e300]),
        st.sampled_from([None, "", "a", "b", "é"]),
    ),
    max_size=40,
)
relaxed = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def given_records(found: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*found, strict=True)) or [()] * 5
    return table(**{name: list(column) for name, column in zip(("at", "i", "j", "x", "s"), columns, strict=True)})


def through(given: pa.Table) -> pa.Table:
    for kernel in ROW_KERNELS:
        given = kernel.run(given)
    return given


def cut(given: pa.Table, places: list[int]) -> list[pa.Table]:
    bounds = [0, *sorted(place % (given.num_rows + 1) for place in places), given.num_rows]
    return [given.slice(low, high - low) for low, high in pairwise(bounds)]


def assert_same(found: pa.Table, expected: pa.Table) -> None:
    """Whole numbers, texts, times and sketches exactly; what was added up of floats to rounding."""
    assert found.schema == expected.schema
    for name in expected.schema.names:
        left, right = found[name].to_pylist(), expected[name].to_pylist()
        if name in FLOATS:
            assert left == [None if value is None else pytest.approx(value, rel=1e-9, abs=1e-6) for value in right], (
                name
            )
        else:
            assert left == right, name


@relaxed
@given(records, st.lists(st.integers(0, 200), max_size=6), st.randoms(use_true_random=False))
def test_partials_of_any_cut_merge_in_any_order_to_the_whole(found: Any, places: list[int], random: Any) -> None:
    given = given_records(found)
    kernel = aggregate_kernel(PIPELINE)
    parts = [kernel.partial(through(part)) for part in cut(given, places)]
    random.shuffle(parts)
    half = random.randrange(len(parts))
    nested = [kernel.merge(parts[:half]), *parts[half:]] if half else parts
    for together in (parts, nested):
        merged = kernel.merge(together)
        assert merged.schema == partial_schema(PIPELINE)
        assert_same(kernel.finalise(merged), whole(PIPELINE, given))


@relaxed
@given(records, st.lists(st.integers(0, 200), max_size=6))
def test_pipeline_over_any_batches_equals_the_pipeline_over_all(found: Any, places: list[int]) -> None:
    given = given_records(found)
    parts = [through(part) for part in cut(given, places)]
    assert sorted(map(repr, rows(pa.concat_tables(parts)))) == sorted(map(repr, rows(through(given))))


def test_aggregates_treat_nulls_like_sql() -> None:
    chain = pipeline(
        {
            "op": "aggregate",
            "by": ["s"],
            "compute": {
                "n": "count(*)",
                "c": "count(x)",
                "t": "sum(x)",
                "a": "avg(x)",
                "lo": "min(x)",
                "q": "quantile(x, 0.5)",
            },
        }
    )
    made = whole(chain, table(s=["a", "a", None, None], x=[None, None, 1.0, None]))
    assert rows(made, "s", "n", "c", "t", "a", "lo") == [("a", 2, 0, None, None, None), (None, 2, 1, 1.0, 1.0, 1.0)]
    assert made["q"].to_pylist() == [None, pytest.approx(1.0, rel=0.01)]


def test_integer_sum_wraps_modulo_two_to_the_64() -> None:
    chain = pipeline({"op": "aggregate", "by": ["s"], "compute": {"t": "sum(i)"}})
    assert whole(chain, table(s=["a"] * 3, i=[MOST, 1, -1]))["t"].to_pylist() == [MOST]
    assert whole(chain, table(s=["a"] * 2, i=[MOST, 1]))["t"].to_pylist() == [-MOST - 1]


def test_outputs_of_one_argument_share_states() -> None:
    compute = {"a": "avg(x)", "t": "sum(x)", "c": "count(x)", "p": "quantile(x, 0.1)", "q": "quantile(x, 0.9)"}
    chain = pipeline({"op": "aggregate", "by": ["s"], "compute": compute})
    assert partial_schema(chain).names == ["s", "_rows", "_sum_0", "_count_0", "_sketch_0"]


def test_partials_always_count_rows() -> None:
    chain = pipeline({"op": "aggregate", "by": ["s"], "compute": {"m": "max(x)"}})
    made = aggregate_kernel(chain).partial(table(s=["a", "a", "b"], x=[1.0, None, 2.0]))
    assert dict(rows(made, "s", "_rows")) == {"a": 2, "b": 1}


def test_merge_of_no_partial_is_refused_and_empty_partials_merge() -> None:
    kernel = aggregate_kernel(PIPELINE)
    with pytest.raises(ValueError, match="at least one partial"):
        kernel.merge([])
    empty = kernel.partial(through(given_records([])))
    assert kernel.finalise(kernel.merge([empty, empty])).num_rows == 0


def test_partial_of_another_writer_merges() -> None:
    """Spark calls the items of a list otherwise, and says of counts that they are never null."""
    chain = pipeline({"op": "aggregate", "by": ["s"], "compute": {"q": "quantile(x, 1)"}})
    kernel = aggregate_kernel(chain)
    mine = kernel.partial(table(s=["a", "b"], x=[1.0, 2.0]))
    parts = pa.struct([pa.field("bucket", pa.int32(), False), pa.field("count", pa.int64(), False)])
    items = pa.list_(pa.field("element", parts, False))
    theirs = mine.set_column(2, pa.field("_sketch_0", items), mine["_sketch_0"].cast(items)).select([2, 1, 0])
    assert kernel.merge([mine, theirs]).equals(kernel.merge([mine, mine]))


def sketch_of(values: list[float | None]) -> pa.ListArray:
    buckets = sketch.bucket_of(pa.array(values, pa.float64()))
    return sketch.sketches(pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), buckets))


@relaxed
@given(
    st.lists(st.floats(-1e12, 1e12).filter(lambda x: x == 0 or abs(x) > 1e-9), min_size=1, max_size=60), st.floats(0, 1)
)
def test_quantiles_equal_the_ddsketch_package(values: list[float], share: float) -> None:
    reference = DDSketch(relative_accuracy=sketch.ALPHA)
    for value in values:
        reference.add(value)
    (result,) = sketch.quantile(sketch_of([*values, None]), share).to_pylist()
    assert result == pytest.approx(reference.get_quantile_value(share), rel=1e-9)


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.99, 1.0])
@pytest.mark.parametrize("values", ["lognormal", "negative", "mixed", "huge", "tiny"])
def test_quantile_is_within_one_percent_of_the_sorted_values(values: str, share: float) -> None:
    drawn = np.random.default_rng(7).lognormal(5, 2, 5_000)
    given = {
        "lognormal": drawn,
        "negative": -drawn,
        "mixed": np.concatenate([drawn, -drawn, [0.0] * 11]),
        "huge": np.minimum(drawn, 1e5) * 1e303,
        "tiny": drawn * 1e-310,
    }[values]
    exact = float(np.sort(given)[math.floor(share * (len(given) - 1))])
    (result,) = sketch.quantile(sketch_of(given.tolist()), share).to_pylist()
    assert abs(result - exact) <= sketch.ALPHA * abs(exact) * (1 + 1e-9) + 5e-324


def test_empty_sketch_has_no_quantile() -> None:
    assert sketch.quantile(sketch_of([None, None]), 0.5).to_pylist() == [None]
    assert sketch_of([None]).to_pylist() == [[]]


SMALL = aggregate_kernel(
    pipeline(
        {"op": "window", "size_s": 10},
        {"op": "aggregate", "by": ["s"], "compute": {"n": "count(x)", "p50": "quantile(x, 0.5)"}},
    )
)


def partial_with(**columns: Any) -> pa.Table:
    """A partial of one group, some of its columns others."""
    schema = SMALL.partial_schema
    sketches = [name for name in schema.names if schema.field(name).type == sketch.SKETCH_TYPE]
    row = {name: 1 for name in schema.names if pa.types.is_int64(schema.field(name).type)}
    row |= {"window_start": 0, "s": "a"} | {key: [{"bucket": 40000, "count": 1}] for key in sketches}
    return pa.Table.from_pylist([row | columns], schema=schema)


def test_valid_partial_has_no_fault() -> None:
    assert SMALL.partial_fault(partial_with()) == ""
    assert SMALL.partial_fault(partial_with(s=None, _sketch_0=[])) == ""
    assert SMALL.partial_fault(SMALL.partial_schema.empty_table()) == ""


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"window_start": None}, "window_start is null"),
        ({"_rows": None}, "_rows has values that count nothing"),
        ({"_rows": -1}, "_rows has values that count nothing"),
        ({"_rows": MOST}, "_rows has values that count nothing"),
        ({"_sketch_0": [None]}, "_sketch_0 is no sketch"),
        ({"_sketch_0": [{"bucket": None, "count": 1}]}, "_sketch_0 is no sketch"),
        ({"_sketch_0": [{"bucket": 5, "count": -1}]}, "_sketch_0 is no sketch"),
        ({"_sketch_0": [{"bucket": 2**17, "count": 1}]}, "_sketch_0 is no sketch"),
        ({"_sketch_0": [{"bucket": 5, "count": MOST}]}, "_sketch_0 is no sketch"),
    ],
)
def test_impossible_partial_has_a_fault(columns: dict[str, Any], words: str) -> None:
    assert words in SMALL.partial_fault(partial_with(**columns))


def test_nonfinite_values_are_in_no_bucket() -> None:
    result = sketch.sketches(
        pa.ListArray.from_arrays([0, 2, 4], sketch.bucket_of(pa.array([1.0, math.inf, math.nan, 2])))
    )
    assert sketch.quantile(result, 0.5).to_pylist() == pytest.approx([1.0, 2.0], rel=0.01)
