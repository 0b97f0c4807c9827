"""The load generator: rates, determinism, going on where it stopped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from agent.collect import Collector
from agent.collect.generator import RateCurve
from tests.agent.collect.collectors import collector_of

START_US = 1_700_000_000_000_000
COLUMNS = {"ts": "timestamp", "host": "string", "n": "int64", "rtt": "int64", "share": "float64", "ok": "bool"}
SPECS: dict[str, Any] = {
    "host": {"skewed": ["a", "b", "c"]},
    "n": {"sequence": 7},
    "rtt": {"lognormal": [500, 0.5]},
    "share": {"uniform": [0, 1]},
    "ok": {"constant": True},
}


def generator(**options: Any) -> Collector:
    given = {"rate_per_s": 1000, "columns": SPECS} | options
    return collector_of("generator", given, COLUMNS, name="load")


def drained(source: Collector, now_us: int, most: int = 10**9) -> pa.Table:
    return pa.Table.from_batches(source.poll(now_us, most), source.schema)


def test_generator_makes_records_at_the_rate_and_at_their_times() -> None:
    source = generator()
    first = drained(source, START_US)
    table = pa.concat_tables([first, drained(source, START_US + 10_000_000)])
    assert table.num_rows == 10_001  # the one at the very beginning included
    stamps = table["ts"].cast(pa.int64()).to_numpy()
    assert stamps[0] == START_US
    assert np.all(np.diff(stamps) == 1000)
    assert source.watermark_us() == START_US + 10_001_000


def test_rate_factor_multiplies_the_load() -> None:
    source = generator(times=10)
    drained(source, START_US)
    assert drained(source, START_US + 1_000_000).num_rows == 10_000


def test_records_do_not_depend_on_how_they_are_asked_for() -> None:
    whole, pieces = generator(), generator()
    drained(pieces, START_US, most=0)
    drained(whole, START_US, most=0)
    wanted = drained(whole, START_US + 9_000_000)
    given = [drained(pieces, START_US + us, most=777) for us in range(0, 12_000_000, 500_000)]
    assert pa.concat_tables(given).slice(0, wanted.num_rows).combine_chunks() == wanted.combine_chunks()


def test_records_depend_on_the_seed() -> None:
    def values(seed: int) -> list[int]:
        source = generator(seed=seed)
        source.poll(START_US, 1)
        return drained(source, START_US + 100_000)["rtt"].to_pylist()

    assert values(1) == values(1) != values(2)


def test_collector_continues_exactly_from_any_position() -> None:
    wanted = generator()
    wanted.poll(START_US, 0)
    whole = drained(wanted, START_US + 9_000_000)
    for taken in (1, 4095, 4096, 5000):
        first = generator()
        first.poll(START_US, 0)
        begin = drained(first, START_US + 9_000_000, most=taken)
        second = generator()
        second.seek(first.position())
        rest = drained(second, START_US + 9_000_000)
        assert pa.concat_tables([begin, rest]).combine_chunks() == whole.combine_chunks()


def test_changed_options_restart_the_replay() -> None:
    source = generator()
    source.poll(START_US, 10)
    with pytest.raises(ValueError, match="other options"):
        generator(times=2).seek(source.position())


def test_overdue_records_are_shed_and_counted() -> None:
    source = generator(max_lag_s=2)
    source.poll(START_US, 1)
    table = drained(source, START_US + 10_000_000)
    assert source.records_shed == 7999  # due from 1 ms to 8 s after the start
    assert table.num_rows == 2001
    assert source.report()["state"] == "shedding"
    assert source.report()["state"] == "collecting"


def test_finished_replay_ends_its_stream_and_closes_all_windows() -> None:
    source = generator(records=1500)
    drained(source, START_US)
    assert drained(source, START_US + 10_000_000).num_rows == 1499
    assert source.watermark_us() == START_US + 10_000_000
    assert source.report()["state"] == "ended"


def test_columns_are_as_described() -> None:
    source = generator()
    source.poll(START_US, 0)
    table = drained(source, START_US + 20_000_000)
    assert table["n"].to_pylist()[:9] == [0, 1, 2, 3, 4, 5, 6, 0, 1]
    assert abs(pc.quantile(table["rtt"], 0.5)[0].as_py() - 500) < 15
    counts = {row["values"]: row["counts"] for row in pc.value_counts(table["host"]).to_pylist()}
    assert abs(counts["a"] / counts["b"] - 2) < 0.15
    assert abs(counts["a"] / counts["c"] - 3) < 0.25
    assert 0 <= pc.min(table["share"]).as_py() <= pc.max(table["share"]).as_py() < 1


def test_a_line_of_text_made_of_parts() -> None:
    parts = {"tenant": {"choice": ["x", "y"]}, "ms": {"uniform": [10, 20]}}
    text = {"template": {"text": "tenant={tenant} ms={ms}", "parts": parts}}
    options = {"rate_per_s": 10, "columns": {"line": text}}
    source = collector_of("generator", options, {"ts": "timestamp", "line": "string"})
    source.poll(START_US, 0)
    lines = drained(source, START_US + 10_000_000)["line"].to_pylist()
    assert all(line.split()[0] in ("tenant=x", "tenant=y") for line in lines)
    assert {int(line.split("ms=")[1]) for line in lines} <= set(range(10, 21))


@pytest.mark.parametrize(
    ("points", "period_s"),
    [([], None), ([(0, 1), (10, 3)], None), ([(5, 0), (10, 2), (20, 1)], 30), ([(0, 0), (60, 1), (120, 0)], 120)],
)
def test_the_curves_inverse_is_its_integral(points: list[tuple[float, float]], period_s: float | None) -> None:
    curve = RateCurve(50.0, points, period_s)

    def rate(t: float) -> float:
        at = t if period_s is None else t % period_s
        return 50.0 * float(np.interp(at, *zip(*points, strict=True))) if points else 50.0

    due = curve.due_s(np.arange(5000))
    assert np.all(np.diff(due) >= 0)
    grid = np.arange(0, float(due[2000]), 0.01)
    expected = sum(rate(t + 0.005) * 0.01 for t in grid)
    assert expected == pytest.approx(2000, abs=1.5)


def test_rate_curve_that_ends_at_zero_ends_the_generator() -> None:
    curve = RateCurve(10.0, [(0, 1), (10, 0)])
    assert curve.records == 50
    assert RateCurve(10.0, [(0, 0), (10, 1)]).records == np.inf
