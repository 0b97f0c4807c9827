"""Rows of statistics as the stream processor sends them, and the frames of them."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from agent.wire import STATISTICS, Frame, FrameKind, batch_bytes, encode_frame
from spark_jobs.history.archive import STATISTICS_ROWS

__all__ = ["DAY_US", "NOON_US", "archived", "random_rows", "result_bytes", "row", "statistics_bytes"]

DAY_US = 86_400_000_000
NOON_US = int(datetime(2026, 11, 24, 12, tzinfo=UTC).timestamp()) * 1_000_000
_WIDTH_US = 10_000_000


def row(**values: Any) -> dict[str, Any]:
    """A row of STATISTICS; what is not said is 0."""
    texts = {"query": "here/q", "plan": "p1", "operator": "o", "fingerprint": "f", "place": "agent-1"}
    usual = {"window_us": NOON_US, "width_us": _WIDTH_US, "batch": 1, "measured": True}
    return dict.fromkeys(STATISTICS.names, 0) | texts | usual | values


def random_rows(seed: int, subintervals: int = 12) -> list[dict[str, Any]]:
    """Two operators at two agents and the stream over three days, counts and sums of fits as epochs give them."""
    generator = random.Random(seed)
    rows = []
    for operator, place in [("a", "agent-1"), ("a", "agent-2"), ("b", "agent-1"), ("b", "stream")]:
        for number in range(subintervals):
            begin_us = NOON_US + number % 3 * DAY_US + number * _WIDTH_US
            rows.append(row(operator=operator, place=place, window_us=begin_us, **_sums(generator, operator == "a")))
    return rows


def _sums(generator: random.Random, is_first: bool) -> dict[str, Any]:
    sums: dict[str, Any] = dict.fromkeys(("sum_wn2", "sum_wng", "sum_wg2", "sum_wnt", "sum_wgt"), 0.0)
    sums |= {"cost_count": 0, "cost_sum": 0.0, "cost_sum2": 0.0, "epochs": 0, "records_processed": 0, "groups_out": 0}
    cpu_s = 0.0
    for _ in range(generator.randrange(5)):
        n, share = generator.randrange(30, 3000), generator.random()
        g = round(n * share)
        t = (2e-6 * n + 5e-6 * g) * generator.uniform(0.9, 1.1)
        cost, cpu_s = t / n, cpu_s + t
        terms = (1.0, g / n, g * g / n**2, cost, g * t / n**2, 1, cost, cost * cost, 1, n, g)
        sums = {name: value + term for (name, value), term in zip(sums.items(), terms, strict=True)}
    processed = sums["records_processed"]
    more = {"cpu_ns": round(cpu_s * 1e9), "records_in": processed + 3, "records_drained": 3, "sampled": processed}
    if is_first and processed:
        more |= {"fine_pairs": 40.0, "fine_squares": 50.0, "fine_rates": 45.0, "fine_span_s": 8.0}
    return sums | more | {"records_out": round(processed * generator.random()), "run_records": float(processed)}


def archived(rows: list[dict[str, Any]], era: int = 0) -> pa.Table:
    """The rows as the archive keeps them."""
    return pa.Table.from_pylist([{"era": era} | values for values in rows], STATISTICS_ROWS)


def statistics_bytes(rows: list[dict[str, Any]]) -> bytes:
    """A STATISTICS frame of these rows."""
    body = batch_bytes(pa.Table.from_pylist(rows, STATISTICS))
    return encode_frame(Frame(FrameKind.STATISTICS, "stream", "stream", 1, body=body))


def result_bytes(emitted_us: int = NOON_US, **says: Any) -> bytes:
    """A RESULT frame of a window."""
    extra = {"window_us": 5, "width_us": 10, "revision": 0, "batch": 1, "complete": True, "missing": []}
    extra |= {"late": 2, "early": 0, "rows": 3, "records": 40, "closing_epoch_us": None, "emitted_us": emitted_us}
    frame = Frame(FrameKind.RESULT, "stream", "stream", 2, query="here/q", plan="p1", epoch=5, extra=extra | says)
    return encode_frame(frame)
