"""Control proxies: shares kept over time, and no record unaccounted for."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from agent.runtime.query.control_proxy import ControlProxy


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
    st.lists(st.tuples(*[st.integers(0, 30)] * 3, st.booleans()), max_size=20),
)
def test_every_record_is_processed_drained_overflowed_or_queued_once(load_factor, steps):
    proxy, came, processed, drained, before = ControlProxy(load_factor), 0, [], [], 0
    for arriving, running, giving_up, ending in steps:
        proxy.admit(numbers(came, arriving))
        came += arriving
        if running and proxy.queue.records:
            chunk = proxy.queue.take(running).table
            proxy.counts.records_processed += chunk.num_rows
            processed.append(chunk)
        if ending:
            if proxy.queue.records:
                proxy.overflow(giving_up)
            tables, counts = proxy.end_epoch()
            gone = counts.records_processed + counts.records_drained + counts.records_overflow
            assert counts.records_in + before == gone + counts.records_queued
            assert counts.records_drained + counts.records_overflow == sum(table.num_rows for table in tables)
            before = counts.records_queued
            drained += tables
    proxy.overflow(proxy.queue.records)
    drained += proxy.end_epoch()[0]
    assert sorted(values(processed) + values(drained)) == list(range(came))


def test_those_that_pass_are_not_always_the_first_of_a_batch():
    proxy = ControlProxy(0.25)
    for _ in range(4):
        proxy.admit(numbers(0, 8))
    assert sorted(values([proxy.queue.take(8).table])) == list(range(8))


def test_overflow_is_counted_apart_from_planned_drain():
    proxy = ControlProxy(0.5)
    proxy.admit(numbers(0, 10))
    proxy.overflow(5)
    tables, counts = proxy.end_epoch()
    assert (counts.records_drained, counts.records_overflow) == (5, 5)
    assert sorted(values(tables)) == list(range(10))
    assert counts.bytes_drained == counts.bytes_in == 80
