"""The last epochs of each query at each agent, in a real Redis."""

from __future__ import annotations

from typing import Any

import pytest

from apps.telemetry import epochs
from apps.telemetry.epochs import epochs_add, epochs_of
from apps.telemetry.streams import stream_client
from engine.rollouts.measures import EpochRow, Sweep, WatermarkForecast

pytestmark = pytest.mark.usefixtures("redis_url")

S = 1_000_000
BEGIN = 1_700_000_000 * S


def row(number: int, **fields: Any) -> EpochRow:
    values: dict[str, Any] = {"epoch_us": BEGIN + number * S, "load_factors": (1.0, 0.25), "records_in": number}
    values |= {"bytes_in": 86 * number, "bytes_sent": 40, "overflow": 0, "used_s": 0.01, "budget_s": 0.02}
    return EpochRow(**(values | {"idle_s": 0.01, "delay_s": None, "version": None} | fields))


def rows(since: int, until: int) -> list[EpochRow]:
    return [row(number) for number in range(since, until)]


def numbers(found: list[EpochRow]) -> list[int]:
    return [(stored.epoch_us - BEGIN) // S for stored in found]


def test_rows_are_read_back_unchanged() -> None:
    given = [row(1, delay_s=0.4, version=7), row(2)]
    epochs_add("a", {"c/q": given, "c/none": []})
    assert epochs_of(["a", "b"]) == {"a": {"c/q": given}}


def test_scheduling_fields_are_read_back_and_older_rows_lack_them() -> None:
    scheduled = row(
        1,
        queued=7,
        queued_bytes=602,
        slack_s=-0.25,
        expected=WatermarkForecast(BEGIN + 4 * S, BEGIN + 3 * S, BEGIN + 5 * S),
        sweeps=(Sweep(BEGIN, BEGIN, BEGIN + S, BEGIN + S, BEGIN + S, BEGIN + 2 * S), Sweep(BEGIN, None, None, 1, 2, 3)),
        spans=((0.0, 120.5), (480.0, 20.0)),
        schedule_version=9,
    )
    epochs_add("a", {"c/q": [scheduled]})
    assert epochs_of(["a"]) == {"a": {"c/q": [scheduled]}}


def test_sweep_has_latency_delay_and_hit() -> None:
    known = Sweep(10 * S, 10 * S, 11 * S, 10 * S + 400_000, 11 * S, 12 * S)
    assert (known.delay_s, known.latency_s, known.interval_s, known.is_hit) == (0.4, 2.0, (0.0, 1.0), True)
    assert known._replace(arrived_us=12 * S).is_hit is False
    odd = Sweep(10 * S, None, None, 9 * S, 9 * S, 11 * S)  # the clocks differ, and nothing was known yet
    assert (odd.delay_s, odd.interval_s, odd.is_hit) == (0.0, None, None)


def test_repeated_rows_are_kept_once_and_in_order() -> None:
    epochs_add("a", {"c/q": rows(0, 3)})
    epochs_add("a", {"c/q": rows(0, 3)})  # the answer was lost
    epochs_add("a", {"c/q": rows(1, 6)})
    epochs_add("a", {"c/q": rows(2, 4)})  # one that overtook another
    assert numbers(epochs_of(["a"])["a"]["c/q"]) == [0, 1, 2, 3, 4, 5]


def test_rows_are_kept_by_agent_and_query() -> None:
    epochs_add("a", {"c/q": rows(0, 2), "c/r": rows(5, 6)})
    epochs_add("b", {"c/q": rows(1, 3)})
    found = epochs_of(["a", "b"])
    assert {(agent, query): numbers(own) for agent, by_query in found.items() for query, own in by_query.items()} == {
        ("a", "c/q"): [0, 1],
        ("a", "c/r"): [5],
        ("b", "c/q"): [1, 2],
    }


def test_oldest_rows_are_dropped_and_all_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "MAX_ROWS", 10)
    epochs_add("a", {"c/q": rows(0, 8)})
    epochs_add("a", {"c/q": rows(8, 15)})
    assert numbers(epochs_of(["a"])["a"]["c/q"]) == list(range(5, 15))
    client = stream_client()
    assert all(0 < client.ttl(key) <= epochs._KEPT_S for key in client.scan_iter("sluice:epochs:*"))
    assert len(list(client.scan_iter("sluice:epochs:*"))) == 2


def test_rows_since_a_moment() -> None:
    epochs_add("a", {"c/q": rows(0, 100), "c/old": rows(0, 5)})
    assert numbers(epochs_of(["a"], BEGIN + 97 * S)["a"]["c/q"]) == [97, 98, 99]
    assert set(epochs_of(["a"], BEGIN + 97 * S)["a"]) == {"c/q"}
    assert numbers(epochs_of(["a"], BEGIN + 96 * S + 1)["a"]["c/q"]) == [97, 98, 99]
    assert epochs_of(["a"], BEGIN + 100 * S) == {}
    assert len(epochs_of(["a"], 0)["a"]["c/q"]) == 100


def test_older_rows_are_accepted_after_expiry() -> None:
    """The clock of a host was ahead, and was put back."""
    epochs_add("a", {"c/q": rows(1000, 1001)})
    stream_client().delete(epochs._rows("a", "c/q"))
    epochs_add("a", {"c/q": rows(0, 2)})
    assert numbers(epochs_of(["a"])["a"]["c/q"]) == [0, 1]
