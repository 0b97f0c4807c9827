"""Control proxies: shares kept over time, and no record unaccounted for."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.runtime.proxy import ControlProxy, RecordQueue


def numbers(start: int, count: int) -> pa.Table:
    return pa.table({"n": pa.array(range(start, start + count), pa.int64())})


def values(tables: list[pa.Table]) -> list[int]:
    return [value for table in tables for value in table["n"].to_pylist()]


@given(st.floats(0, 1), st.lists(st.integers(0, 50), max_size=40))
def test_over_time_exactly_the_load_factor_passes(load_factor, polls):
    proxy, passed, came = ControlProxy(load_factor), 0, 0
    for count in polls:
        proxy.admit(numbers(came, count))
        came += count
        passed = proxy.queue.records
        assert abs(passed - load_factor * came) < 1 + 1e-6


@given(
    st.floats(0, 1),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.booleans()), max_size=20),
)
def test_every_record_is_processed_or_drained_or_overflows_once(load_factor, steps):
    proxy, came, processed, drained = ControlProxy(load_factor), 0, [], []
    for arriving, running, ending in steps:
        proxy.admit(numbers(came, arriving))
        came += arriving
        if running and proxy.queue.records:
            chunk = proxy.queue.take(running)
            proxy.counts.records_processed += chunk.num_rows
            processed.append(chunk)
        if ending:
            tables, counts = proxy.end_epoch()
            assert counts.records_in == counts.records_processed + counts.records_drained + counts.records_overflow
            assert counts.records_drained + counts.records_overflow == sum(table.num_rows for table in tables)
            assert proxy.queue.records == 0
            drained += tables
    drained += proxy.end_epoch()[0]
    assert sorted(values(processed) + values(drained)) == list(range(came))


def test_those_that_pass_are_not_always_the_first_of_a_batch():
    proxy = ControlProxy(0.25)
    for _ in range(4):
        proxy.admit(numbers(0, 8))
    assert sorted(values([proxy.queue.take(8)])) == list(range(8))


def test_overflow_is_told_from_planned_drain():
    proxy = ControlProxy(0.5)
    proxy.admit(numbers(0, 10))
    tables, counts = proxy.end_epoch()
    assert (counts.records_drained, counts.records_overflow) == (5, 5)
    assert sorted(values(tables)) == list(range(10))
    assert counts.bytes_drained == counts.bytes_in == 80


@pytest.mark.parametrize("most", [1, 3, 7, 100])
def test_a_queue_gives_pieces_in_order(most):
    queue = RecordQueue()
    for start in (0, 4, 8):
        queue.put(numbers(start, 4))
    taken = []
    while queue.records:
        taken += values([queue.take(most)])
    assert taken == list(range(12))
