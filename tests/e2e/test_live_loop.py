"""The whole live loop under kill -9 of each of its processes: counts are exact afterwards, and nobody lent a hand."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from agent.collect.generator import LoadGenerator
from agent.collect.options import GeneratorOptions
from tests.e2e.live_world import LINES_QUERY, NUMBERS_QUERY, World
from tests.servers import wait_until

RECORDS, RATE_PER_S = 30_000, 600.0
LINES = 3_000
#: What is killed, and how it is recognised: all words stand in the command line.
VICTIMS = {
    "agent": ("agent", "run", "agent-1"),
    "redis": ("-server 127.0.0.1:",),
    "JVM": ("java", "pyspark"),
    "web": ("uvicorn",),
    "worker": ("celery", "worker"),
    "driver": ("-m", "spark_jobs"),
    "the other agent": ("agent", "run", "agent-2"),
}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, records=RECORDS, rate_per_s=RATE_PER_S)
    yield made
    made.stop()


def _generated(seed: int) -> pa.Table:
    """All that a generator of this seed ever makes, whatever its times are."""
    schema = pa.schema([("key", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("value", pa.int64())])
    drawn = {"key": {"choice": ["a", "b", "c", "d"]}, "value": {"sequence": 1000}}
    options = {"rate_per_s": RATE_PER_S, "records": RECORDS, "columns": drawn, "seed": seed, "max_lag_s": 1e9}
    made = LoadGenerator("numbers", schema, "ts", GeneratorOptions.parse(options))
    made.poll(1_000_000, 0)
    return pa.Table.from_batches(made.poll(10**13, RECORDS), schema)


def _wanted() -> dict[str, tuple[int, int]]:
    """Count and sum by key over both agents, after the filter."""
    found: dict[str, tuple[int, int]] = {}
    for seed in (0, 2):
        table = _generated(seed)
        keys, values = table["key"].to_numpy(zero_copy_only=False), table["value"].to_numpy()
        kept = values % 10 != 3
        for key in "abcd":
            mine = kept & (keys == key)
            count, total = found.get(key, (0, 0))
            found[key] = (count + int(mine.sum()), total + int(values[mine].sum()))
    return found


def _summed(windows: dict[str, list[dict[str, Any]]]) -> dict[str, tuple[int, int]]:
    counts: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    for rows in windows.values():
        for row in rows:
            counts[row["key"]] += row["n"]
            totals[row["key"]] += row["total"]
    return {key: (counts[key], totals[key]) for key in sorted(counts)}


@pytest.mark.slow
@pytest.mark.night
@pytest.mark.e2e
def test_counts_are_exact_after_every_process_was_killed(world: World) -> None:
    world.start()
    world.wait_for("stream processor: ready", 300)
    written = 0
    for words in VICTIMS.values():
        world.write_lines(written, written + LINES // len(VICTIMS))
        written += LINES // len(VICTIMS)
        time.sleep(2.0)
        wait_until(lambda words=words: world.kill(*words), what=f"a process of {words} to kill")
        time.sleep(2.0)
    world.write_lines(written, LINES)
    wanted = {NUMBERS_QUERY: _wanted(), LINES_QUERY: _wanted_lines()}
    found = world.wait_results(lambda now: _sums(now) == wanted and _counted(now) == 2 * RECORDS, 300)
    assert _sums(found) == wanted, world.screen[-6000:]
    assert found["late"] == 0
    assert _counted(found) == 2 * RECORDS


def _counted(found: dict[str, Any]) -> int:
    """Records of the query with numbers, as the statistics count them."""
    return int(found["statistics"].get(f"{NUMBERS_QUERY}/window", 0))


def _sums(found: dict[str, Any]) -> dict[str, dict[str, tuple[int, int]]]:
    return {name: _summed(found["windows"].get(name, {})) for name in (NUMBERS_QUERY, LINES_QUERY)}


def _wanted_lines() -> dict[str, tuple[int, int]]:
    numbers = np.arange(LINES)
    return {
        f"k{rest}": (int((numbers % 3 == rest).sum()), int(numbers[numbers % 3 == rest].sum())) for rest in range(3)
    }
