"""Rows of epochs: each is reported until a heartbeat that had it is acknowledged, with the delay of its frames."""

from __future__ import annotations

import pytest

from agent.runtime.reports import MAX_ROWS, EpochRows
from tests.agent.runtime.epochs import by_hand
from tests.agent.runtime.hosts import QUERY, Host

SECOND_NS = 10**9


def delays(rows: EpochRows, now_s: float) -> list[float | None]:
    return [row["d"] for row in rows.unreported(int(now_s * SECOND_NS)).get("q", [])]


def add(rows: EpochRows, *epochs_s: int) -> None:
    """Epochs of a second that began then."""
    for second in epochs_s:
        rows.add(second * 1_000_000, (second + 1) * SECOND_NS, {"q": {"e": second * 1_000_000}})


def test_row_is_reported_until_it_is_acknowledged():
    rows = EpochRows()
    add(rows, 1, 2, 3)
    assert [row["e"] for row in rows.unreported(0)["q"]] == [1_000_000, 2_000_000, 3_000_000]
    rows.mark_reported("q", 2_000_000)
    rows.mark_reported("another", 2_000_000)
    assert [row["e"] for row in rows.unreported(0)["q"]] == [3_000_000]


def test_rows_of_an_hour_are_bounded_and_a_removed_query_has_none():
    rows = EpochRows()
    add(rows, *range(3600))
    assert [row["e"] // 1_000_000 for row in rows.unreported(0)["q"]] == list(range(3600 - MAX_ROWS, 3600))
    rows.acknowledged(1_000_000, 3600 * SECOND_NS)  # one that is forgotten
    assert delays(rows, 3600)[-1] is None
    rows.add(4_000_000_000, 0, {"other": {"e": 4_000_000_000}})
    assert list(rows.unreported(0)) == ["other"]


def test_delay_of_a_row_is_its_own_or_the_newest_acknowledged_or_its_wait():
    rows = EpochRows()
    add(rows, 1, 2)
    assert delays(rows, 3.0) == [None, None], "nothing is known yet"
    rows.acknowledged(1_000_000, int(2.4 * SECOND_NS))
    assert delays(rows, 3.1) == [0.4, 0.4]
    assert delays(rows, 5.0) == [0.4, 2.0]
    rows.mark_reported("q", 2_000_000)
    rows.acknowledged(2_000_000, 9 * SECOND_NS)  # acknowledged after it was told
    add(rows, 9)
    assert delays(rows, 10.0) == [6.0]


def test_rows_are_the_epochs_of_the_query(tmp_path):
    host = Host(tmp_path, cores=0.3, rate_per_s=1000, settings=by_hand(0.5, 1, 1, 1))
    rows = host.epochs(12)
    for row in rows:
        counted = [counter for counter in host.reference.counters if counter["epoch_us"] == row["e"]]
        assert row["p"] == [counter["load_factor"] for counter in counted] == [0.5, 1.0, 1.0, 1.0]
        assert (row["n"], row["bi"]) == (counted[0]["records_in"], counted[0]["bytes_in"])
        assert row["bs"] == sum(counter["bytes_drained"] for counter in counted) + counted[-1]["bytes_out"]
        assert row["o"] == sum(counter["records_overflow"] for counter in counted)
        assert row["u"] == pytest.approx(sum(counter["cpu_ns"] for counter in counted) / 1e9)
        assert (round(row["b"] - row["u"], 6), row["v"]) == (row["i"], None)
    assert any(row["bs"] > 20_000 for row in rows), "windows closed"
    assert all(0 <= row["d"] <= 0.2 for row in rows), "frames are taken when an epoch is over"
    host.runtime.mark_reported({QUERY: rows[-3]["e"]})
    assert len(host.runtime.unreported()[QUERY]) == 2


def test_rows_wait_for_an_absent_console_with_their_delay(tmp_path):
    host = Host(tmp_path, cores=0.3, rate_per_s=100)
    host.epochs(2)
    taken, host._send = host._send, lambda: None
    rows = host.epochs(5)
    assert [round(row["d"]) for row in rows] == [4, 3, 2, 1, 0]
    host._send = taken
    assert round(host.epochs(1)[0]["d"]) == 0
    assert [round(row["d"]) for row in host.runtime.unreported()[QUERY][2:]] == [5, 4, 3, 2, 1, 0]
