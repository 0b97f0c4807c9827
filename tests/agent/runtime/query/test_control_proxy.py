"""Control proxies: shares kept over time, and no record unaccounted for."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
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


def passing_of(load_factor: float, batches: list[pa.Table]) -> Counter[int]:
    proxy = ControlProxy(load_factor)
    for batch in batches:
        proxy.admit(batch)
    return Counter(values([proxy.queue.take(proxy.queue.records).table]))


def test_every_place_of_a_batch_passes_as_often():
    passed = passing_of(0.25, [numbers(0, 8)] * 4000)
    assert set(passed) == set(range(8)) and sum(passed.values()) == 8000
    assert all(abs(count - 1000) < 120 for count in passed.values())  # four standard deviations


@pytest.mark.parametrize("load_factor", [0.25, 0.5, 0.75])
@pytest.mark.parametrize("batches", [2, 4, 5])
def test_a_source_that_asks_all_in_turn_has_no_records_that_never_pass(load_factor, batches):
    """A round of 100 keys takes so many batches: were the start to move on evenly, the same would pass every time."""
    size = 100 // batches
    passed = passing_of(load_factor, [numbers(size * number, size) for number in range(batches)] * 100)
    assert min(passed[key] for key in range(100)) > 100 * load_factor - 4 * (100 * load_factor) ** 0.5
    assert max(passed.values()) < 100 * load_factor + 4 * (100 * load_factor) ** 0.5


def test_overflow_is_counted_apart_from_planned_drain():
    proxy = ControlProxy(0.5)
    proxy.admit(numbers(0, 10))
    proxy.overflow(5)
    tables, counts = proxy.end_epoch()
    assert (counts.records_drained, counts.records_overflow) == (5, 5)
    assert sorted(values(tables)) == list(range(10))
    assert counts.bytes_drained == counts.bytes_in == 80
