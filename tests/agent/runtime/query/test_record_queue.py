"""Queues of records and marks: in order, nothing lost, and what an epoch changed says all."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.runtime.query.record_queue import (
    MAX_SWEEPS,
    QueuedMark,
    QueuedRecords,
    RecordQueue,
    apply_change,
    swept_windows,
)


def numbers(start: int, count: int) -> pa.Table:
    return pa.table({"n": pa.array(range(start, start + count), pa.int64())})


def values(tables: list[pa.Table]) -> list[int]:
    return [value for table in tables for value in table["n"].to_pylist()]


def told(items) -> list:
    """Numbers of records and watermarks, in order."""
    return [
        record
        for item in items
        for record in (
            item.table["n"].to_pylist() if isinstance(item, QueuedRecords) else [f"mark {item.watermark_us}"]
        )
    ]


@pytest.mark.parametrize("most", [1, 3, 7, 100])
def test_a_queue_gives_pieces_in_order(most):
    queue = RecordQueue()
    for start in (0, 4, 8):
        queue.put(numbers(start, 4))
    taken = []
    while queue.records:
        taken += values([queue.take(most).table])
    assert taken == list(range(12))
    assert queue.size_bytes == 0


def test_queued_records_keep_no_larger_table_in_memory():
    queue, many = RecordQueue(), numbers(0, 10_000)
    queue.put(many.slice(10, 1))
    queue.put(pa.concat_tables([many.slice(9_990, 10), many.slice(0, 10)]))
    queue.put(many.slice(0, 9_000))
    came = [item.table for item in queue.change().came]
    assert values(came) == [10, *range(9_990, 10_000), *range(10), *range(9_000)]
    assert [table.get_total_buffer_size() for table in came[:2]] == [8, 160]
    assert came[2].column(0).chunk(0).buffers()[1].address == many.column(0).chunk(0).buffers()[1].address, "no copy"
    assert [item.table for item in queue.items()] == came


def test_a_mark_comes_out_when_all_before_it_is_taken():
    queue = RecordQueue()
    queue.mark(QueuedMark(5, 0))
    assert [mark.watermark_us for mark in queue.passed()] == [5], "nothing waits before it"
    queue.put(numbers(0, 3), arrived_us=10, least_us=7)
    queue.mark(QueuedMark(8, 10))
    queue.put(numbers(3, 2), arrived_us=20, least_us=6)
    queue.mark(QueuedMark(9, 20))
    assert (queue.arrived_us, queue.least_us, queue.first) == (10, 6, 3)
    assert [queue.older(than) for than in (10, 11, 20, 21)] == [0, 3, 3, 5]
    assert queue.before(9) == (QueuedMark(9, 20), 5)
    assert queue.before(10) is None
    queue.take(2)
    assert queue.passed() == []
    assert queue.before(8) == (QueuedMark(8, 10), 1)
    taken = queue.take(2)  # of both polls, across the mark
    assert (values([taken.table]), taken.arrived_us, taken.least_us) == ([2, 3], 10, 6)
    assert [mark.watermark_us for mark in queue.passed()] == [8]
    queue.take(1)
    assert [mark.watermark_us for mark in queue.passed()] == [9]
    assert (queue.arrived_us, queue.least_us, queue.first, queue.older(100)) == (None, None, 0, 0)


def test_marks_with_nothing_between_become_one_unless_a_window_ends_between_them():
    queue = RecordQueue(period_us=10)
    queue.put(numbers(0, 1))
    for at, watermark in enumerate((8, 9, 10, 11, 19, 21)):
        queue.mark(QueuedMark(watermark, arrived_us=at))
    queue.take(1)
    assert [(mark.watermark_us, mark.arrived_us) for mark in queue.passed()] == [(9, 0), (19, 2), (21, 5)]


actions = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 5)),
    st.tuples(st.just("mark"), st.integers(1, 7)),
    st.tuples(st.just("take"), st.integers(1, 8)),
    st.tuples(st.just("end"), st.booleans()),
)


@given(st.lists(actions, max_size=60), st.sampled_from([None, 10]))
def test_changes_of_epochs_rebuild_the_queue_and_marks_are_never_early(script, period_us):
    queue, stored = RecordQueue(period_us), []
    came = taken = watermark = 0
    due = []  # watermarks, and how many records came before each
    for action, value in script:
        if action == "put":
            queue.put(numbers(came, value), arrived_us=came)
            came += value
        elif action == "mark":
            watermark += value
            due.append((watermark, came))
            queue.mark(QueuedMark(watermark, came))
        elif action == "take" and queue.records:
            chunk = queue.take(value)
            assert values([chunk.table]) == list(range(taken, taken + chunk.records))
            taken += chunk.records
        elif action == "end":
            stored = list(apply_change(stored, queue.change()))
            assert told(stored) == told(queue.items())
            if value:
                queue = RecordQueue(period_us)
                queue.restore(stored)
        out = [mark.watermark_us for mark in queue.passed()]
        assert queue.records == came - taken
        if out:
            assert out[-1] == max(mark for mark, before in due if before <= taken)
        assert told(queue.items()) == [
            entry for entry in told(queue.items()) if isinstance(entry, str) or entry >= taken
        ], "nothing comes back"
    assert len(told(queue.items())) - sum(isinstance(item, QueuedMark) for item in queue.items()) == came - taken


def deadlines(watermark_us: int, before_us: int, arrived_us: int) -> list[int]:
    return [
        sweep.deadline_us for sweep in swept_windows(QueuedMark(watermark_us, arrived_us, 7, 0.5), before_us, 10, 99)
    ]


def test_sweeps_are_the_deadlines_that_a_mark_passed():
    assert deadlines(19, 11, arrived_us=19) == []
    assert deadlines(20, 11, arrived_us=23) == [20]
    assert deadlines(45, 20, arrived_us=47) == [30, 40]
    (window,) = swept_windows(QueuedMark(20, 23, 7, 0.5), 19, 10, 99)
    assert (window.period_us, window.arrived_us, window.swept_us, window.queued, window.work_s, window.emitted_us) == (
        10,
        23,
        99,
        7,
        0.5,
        0,
    )


def test_sweeps_of_clocks_that_are_wrong_and_of_streams_that_come_back_are_bounded():
    assert deadlines(1000, 995, arrived_us=3) == [1000], "a clock that is ahead passes one window at a time"
    assert deadlines(2**60, 25, arrived_us=47) == [30, 40, 50], "a stream that has ended"
    late = deadlines(10_000, 10, arrived_us=10_000)
    assert late == list(range(10_000 - 10 * (MAX_SWEEPS - 1), 10_001, 10))
