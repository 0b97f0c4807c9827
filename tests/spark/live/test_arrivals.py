"""Frames are processed once, in the order of their numbers."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from spark_jobs.input.arrivals import Arrival, order_frames, table_of_waiting

FRAME = Arrival("0/100-0", "a1", "l1", 1, "mark", "here/q", "p1", 0, 0, "{}", b"", 10)
KEY = ("a1", "l1")


def numbered(*numbers: int, **more: object) -> list[Arrival]:
    return [replace(FRAME, seq=number, **more) for number in numbers]


def test_any_order_comes_out_in_order() -> None:
    shuffled = numbered(*range(4, 30))
    Random(1).shuffle(shuffled)
    found = order_frames(shuffled, {KEY: 3}, step=1)
    assert [frame.seq for frame in found.due] == list(range(4, 30))
    assert (found.positions, found.early, found.duplicates) == ({KEY: 29}, [], 0)


def test_sequence_number_counts_once() -> None:
    found = order_frames(numbered(2, 3, 3, 4, 4), {KEY: 2}, step=1)
    assert ([frame.seq for frame in found.due], found.duplicates) == ([3, 4], 3)


def test_generations_and_agents_are_ordered_separately() -> None:
    others = [replace(FRAME, life="l2"), replace(FRAME, agent="a2")]
    assert len(order_frames([FRAME, *others], {}, step=1).due) == 3


def test_frames_behind_a_gap_wait_until_it_is_closed() -> None:
    first = order_frames(numbered(1, 3, 4), {}, step=7)
    assert [frame.seq for frame in first.due] == [1]
    assert [(frame.seq, frame.since) for frame in first.early] == [(3, 7), (4, 7)]
    second = order_frames([*first.early, *numbered(2)], first.positions, step=8)
    assert [frame.seq for frame in second.due] == [2, 3, 4]
    assert (second.early, second.lost, second.positions) == ([], [], {KEY: 4})


def test_gap_that_stays_open_is_reported_as_lost() -> None:
    waiting = order_frames(numbered(5, 6, 9), {KEY: 2}, step=1)
    assert waiting.due == []
    found = order_frames(waiting.early, waiting.positions, step=31)
    assert [frame.seq for frame in found.due] == [5, 6, 9]
    assert found.lost == ["frames 3 to 4 of agent a1 never came", "frames 7 to 8 of agent a1 never came"]


def test_gap_with_too_many_bytes_behind_it_is_skipped() -> None:
    found = order_frames(numbered(5, 6, size=40 * 2**20), {KEY: 2}, step=1)
    assert ([frame.seq for frame in found.due], len(found.lost)) == ([5, 6], 1)


def test_waiting_frames_survive_in_a_state() -> None:
    rows = table_of_waiting(numbered(5, since=3)).to_pylist()
    assert [Arrival(**row) for row in rows] == numbered(5, since=3)
