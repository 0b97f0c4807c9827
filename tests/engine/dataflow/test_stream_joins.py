"""Joins of two streams: what matches, in which window, how often; and where such a join may stand."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from engine.dataflow import Pipeline
from engine.dataflow.arrow.kernels import StreamJoinKernel, kernel, stream_join_kernel, whole
from engine.errors import DocumentError
from tests.engine.dataflow.documents import TIME, document, pipeline, rows, table

WINDOW = {"op": "window", "size_s": 10}
COUNT = {"op": "aggregate", "by": ["s"], "compute": {"n": "count(*)", "least": "min(took)"}}
ACKS = {"acked": "timestamp", "id": "int64", "name": "string", "ms": "int64", "ratio": "float64"}
JOIN = {
    "op": "join", "stream": "acks", "time": "acked", "columns": ACKS, "on": {"i": "id", "s": "name"},
    "take": {"took": "ms"},
}  # fmt: skip


def acks(**columns: list[Any]) -> pa.Table:
    """Records of the other stream: times in seconds, what is left out is null."""
    length = len(columns["acked"])
    moments = pa.array([None if at is None else round(at * 1e6) for at in columns["acked"]], pa.int64()).cast(TIME)
    kinds = {"id": pa.int64(), "name": pa.string(), "ms": pa.int64(), "ratio": pa.float64()}
    return pa.table(
        {"acked": moments} | {name: pa.array(columns.get(name, [None] * length), kind) for name, kind in kinds.items()}
    )


def sent(at: list[float | None], **columns: list[Any]) -> pa.Table:
    return table(at=[None if entry is None else round(entry * 1e6) for entry in at], **columns)


def join(records: pa.Table, others: pa.Table, window: dict[str, Any] = WINDOW, **more: Any) -> list[tuple[Any, ...]]:
    """(at, i, s, took) of what a join puts out, in order."""
    chain = pipeline(window, {**JOIN, **more})
    made = whole(chain, records, others)
    assert made.schema == chain.output_schema
    return sorted(rows(made, "at", "i", "s", "took"), key=repr)


def test_records_of_one_window_match_by_equal_keys() -> None:
    records = sent([1, 2, 11, 12, None], i=[1, 2, 1, 3, 1], s=["a"] * 5)
    others = acks(
        acked=[9, 3, 10.5, 19, None], id=[1, 2, 1, 1, 1], name=["a", "b", "a", "a", "a"], ms=[7, 8, 9, 10, 11]
    )
    assert [row[1:] for row in join(records, others)] == [(1, "a", 7), (1, "a", 10), (1, "a", 9)]
    left = sorted((row[1:] for row in join(records, others, how="left")), key=repr)
    assert left == [(1, "a", 10), (1, "a", 7), (1, "a", 9), (2, "a", None), (3, "a", None)]


def test_null_keys_do_not_match() -> None:
    records = sent([1, 1], i=[None, 1], s=["a", None])
    others = acks(acked=[1, 1, 1], id=[None, 1, 1], name=["a", None, "a"], ms=[1, 2, 3])
    assert join(records, others) == []
    assert [row[3] for row in join(records, others, how="left")] == [None, None]


def test_record_matches_at_most_the_limit_earliest_first() -> None:
    records = sent([1, 2], i=[1, 1], s=["a", "a"])
    others = acks(acked=[5, 3, 3, 4, 3], id=[1] * 5, name=["a"] * 5, ms=[0, 9, None, 1, 8])
    assert [row[3] for row in join(records, others, most=2)] == [8, 9, 8, 9]
    assert [row[3] for row in join(records, others, most=3)] == [8, 9, None, 8, 9, None]
    assert len(join(records, others)) == 10


def test_records_match_in_every_shared_sliding_window() -> None:
    result = join(
        sent([7], i=[1], s=["a"]),
        acks(acked=[12, 21], id=[1, 1], name=["a", "a"], ms=[1, 2]),
        {"op": "window", "size_s": 10, "slide_s": 5},
    )
    assert [row[1:] for row in result] == [(1, "a", 1)]  # [5, 15) has both; [0, 10) and [10, 20) one of them
    result = join(
        sent([7], i=[1], s=["a"]),
        acks(acked=[8], id=[1], name=["a"], ms=[1]),
        {"op": "window", "size_s": 10, "slide_s": 5},
    )
    assert len(result) == 2


def test_nonfinite_numbers_of_the_other_stream_are_null() -> None:
    chain = pipeline(WINDOW, {**JOIN, "take": {"ratio": "ratio"}})
    others = acks(acked=[1, 1], id=[1, 2], name=["a", "a"], ratio=[float("nan"), 0.5])
    made = whole(chain, sent([1, 1], i=[1, 2], s=["a", "a"]), others)
    assert sorted(rows(made, "i", "ratio")) == [(1, None), (2, 0.5)]


def test_taken_columns_may_replace_existing_ones() -> None:
    chain = pipeline(WINDOW, {**JOIN, "take": {"s": "name", "j": "ms"}, "on": {"i": "id"}})
    made = whole(chain, sent([1], i=[1], s=["a"], j=[5]), acks(acked=[1], id=[1], name=["other"], ms=[6]))
    assert rows(made, "s", "j") == [("other", 6)]


def test_join_within_agents_matches_records_of_one_agent() -> None:
    chain = pipeline(WINDOW, {**JOIN, "within": "agent"})
    join = stream_join_kernel(chain)
    assert join.within_agent
    records = sent([1, 1], i=[1, 1], s=["a", "a"])
    windowed = records.append_column("window_start", pa.array([0, 0], pa.int64()).cast(TIME))
    others = acks(acked=[1, 1], id=[1, 1], name=["a", "a"], ms=[1, 2])
    side = join.side(others.append_column("_agent", pa.array(["x", "y"])))
    made = join.run(windowed.append_column("_agent", pa.array(["y", "z"])), side)
    assert made.schema == chain.operators[1].output_schema and made["took"].to_pylist() == [2]
    assert whole(chain, records, others).num_rows == 4  # without names all are of one agent


def matches(records: pa.Table, others: pa.Table, most: int, inner: bool, size: int) -> Iterator[tuple[Any, ...]]:
    """The meaning, one record after the other."""
    for record in records.to_pylist():
        window = record["at"].timestamp() // size
        result = [
            other
            for other in others.to_pylist()
            if other["acked"] is not None
            and other["acked"].timestamp() // size == window
            and None not in (record["i"], record["s"])
            and (other["id"], other["name"]) == (record["i"], record["s"])
        ]
        result.sort(key=lambda other: (other["acked"], other["ms"] is None, other["ms"] or 0))
        for other in result[:most]:
            yield record["at"], record["i"], record["s"], other["ms"]
        if not result and not inner:
            yield record["at"], record["i"], record["s"], None


@pytest.mark.parametrize("seed", range(8))
def test_stream_join_equals_a_loop_over_all_pairs_in_any_order(seed: int) -> None:
    draw = random.Random(seed)
    count = draw.choice([0, 1, 60])
    records = sent(
        [draw.uniform(0, 30) for _ in range(50)],
        i=[draw.choice([None, 1, 2, 3]) for _ in range(50)],
        s=[draw.choice([None, "", "a", "é"]) for _ in range(50)],
    )
    others = acks(
        acked=[draw.choice([None, draw.randrange(30)]) for _ in range(count)],
        id=[draw.choice([None, 1, 2, 3]) for _ in range(count)],
        name=[draw.choice([None, "", "a", "é"]) for _ in range(count)],
        ms=[draw.choice([None, draw.randrange(5)]) for _ in range(count)],
    )
    most, how = draw.choice([1, 2, 100]), draw.choice(["inner", "left"])
    turned = [
        entry.take(pa.array(draw.sample(range(entry.num_rows), entry.num_rows), pa.int64()))
        for entry in (records, others)
    ]
    result = join(*turned, most=most, how=how)
    assert result == sorted(matches(records, others, most, how == "inner", 10), key=repr)


def test_rule_3_keeps_the_stream_join_and_later_operators_at_the_stream_processor() -> None:
    for within, why in (("query", "may be at other sources"), ("agent", "no agent holds records back")):
        made = pipeline(WINDOW, {**JOIN, "within": within}, COUNT)
        assert [rule.number for rule in made.rules] == [None, 3, None] and made.source_operators == 1
        assert why in made.rules[1].reason and made.not_live == ()
        assert made.rules[2].reason == "o2 comes after o1, which must not run at a source"


def test_other_streams_records_enter_behind_all_operators_with_needed_columns() -> None:
    made = pipeline(WINDOW, JOIN, COUNT)
    assert (made.stream_join, made.other_entry, made.streams) == (1, 3, ("stream", "acks"))
    assert made.entry_schema(3) == pa.schema(
        [("acked", TIME), ("id", pa.int64()), ("ms", pa.int64()), ("name", pa.string())]
    )
    assert made.entry_schema(1) == made.operators[1].input_schema
    assert made.entry_schema(2) is None and made.entry_schema(4) is None and made.entry_schema(-1) is None
    assert isinstance(kernel(made, 1), StreamJoinKernel) and made.operators[1].stateful
    plain = pipeline(WINDOW, {**COUNT, "compute": {"n": "count(*)"}})
    assert plain.other_entry is None and plain.streams == ("stream",)
    assert [plain.entry_schema(k) is None for k in (-1, 0, 1, 2)] == [True, False, False, True]


def test_stream_join_parameters_are_part_of_the_fingerprint() -> None:
    plain = pipeline(WINDOW, JOIN).operators[1].fingerprint
    for change in ({"most": 7}, {"within": "agent"}, {"how": "left"}, {"stream": "other"}):
        assert pipeline(WINDOW, {**JOIN, **change}).operators[1].fingerprint != plain
    more = {**JOIN, "columns": {**ACKS, "unused": "bool"}, "most": 100}
    assert pipeline(WINDOW, more).operators[1].fingerprint == plain


@pytest.mark.parametrize(
    ("chain", "path", "says"),
    [
        ([JOIN], "operators[0].expression", "allowed: a window, then the join"),
        ([WINDOW, COUNT, JOIN], "operators[2].expression", "after the aggregate 'o1'"),
        ([WINDOW, JOIN, {**JOIN, "take": {"more": "ms"}}], "operators[2].expression", "allowed: one stream besides"),
        ([WINDOW, {**JOIN, "time": "ms"}], "operators[1].expression.time", "a int64; allowed: acked"),
        ([WINDOW, {**JOIN, "time": "at"}], "operators[1].expression.time", "no column; allowed: acked"),
        ([WINDOW, {**JOIN, "on": {"x": "ratio"}}], "operators[1].expression.on", "allowed: one type, and not float64"),
        ([WINDOW, {**JOIN, "take": {"at": "ms"}}], "operators[1].expression.take.at", "any column but window_start"),
        ([WINDOW, {**JOIN, "take": {"a": "mss"}}], "operators[1].expression.take", "did you mean 'ms'?"),
        ([WINDOW, {**JOIN, "most": 0}], "operators[1].expression.most", "allowed: a whole number from 1 to 1000"),
        ([WINDOW, {**JOIN, "within": "rack"}], "operators[1].expression.within", "allowed: query, agent"),
        ([WINDOW, {**JOIN, "table": "t"}], "operators[1].expression", "allowed: exactly one of both"),
    ],
)
def test_stream_join_faults_state_the_allowed_values(chain: list[dict[str, Any]], path: str, says: str) -> None:
    plain = [{**entry, "compute": {"n": "count(*)"}} if entry["op"] == "aggregate" else entry for entry in chain]
    with pytest.raises(DocumentError) as caught:
        Pipeline.parse(document(*plain))
    assert says in {fault.path: fault.message for fault in caught.value.faults}[path]


def test_stream_join_fields_are_refused_beside_a_table() -> None:
    tables = {"t": {"columns": {"k": "string", "v": "int64"}, "rows": []}}
    given = {"op": "join", "table": "t", "on": {"s": "k"}, "take": {"v": "v"}, "within": "agent", "most": 3}
    with pytest.raises(DocumentError) as caught:
        Pipeline.parse(document(given, tables=tables))
    assert [fault.path.rpartition(".")[2] for fault in caught.value.faults] == ["most", "within"]
