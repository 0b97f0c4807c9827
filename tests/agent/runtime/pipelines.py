"""Queries and records for tests of the runtime."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

from engine.dataflow import Pipeline

COLUMNS = {"ts": "timestamp", "src": "string", "dst": "string", "rtt_us": "int64", "err": "int64"}
HOSTS = ("a", "b", "c", "d", "e")
START_US = 1_700_000_000_000_000
AGENT = "5f9c1b1e-0000-4000-8000-000000000001"


def probes_pipeline(*, where: str = "err = 0", slide_s: int = 10, source: str = "probes") -> Pipeline:
    """Window, filter, join with a static table, group and aggregate, and a filter on the closed windows."""
    compute = {"n": "count(*)", "total": "sum(rtt_us)", "least": "min(rtt_us)", "most": "max(rtt_us)"}
    operators: list[tuple[str, dict[str, Any]]] = [
        ("window", {"op": "window", "size_s": 10, "slide_s": slide_s}),
        ("ok", {"op": "filter", "where": where}),
        ("tors", {"op": "join", "table": "tor_of", "on": {"src": "ip"}, "take": {"tor": "tor"}, "how": "inner"}),
        ("stats", {"op": "aggregate", "by": ["tor", "dst"], "compute": compute | {"p50": "quantile(rtt_us, 0.5)"}}),
        ("seen", {"op": "filter", "where": "n >= 2"}),
    ]
    return Pipeline.parse(
        {
            "source": {"id": source, "time": "ts", "columns": COLUMNS},
            "tables": {
                "tor_of": {
                    "columns": {"ip": "string", "tor": "string"},
                    "rows": [[host, f"tor{i // 2}"] for i, host in enumerate(HOSTS[:-1])],
                }
            },
            "operators": [{"id": name, "kind": says["op"], "expression": says} for name, says in operators],
        }
    )


def probe_records(
    pipeline: Pipeline, count: int, *, seed: int = 0, span_s: int = 40, disorder_s: float = 2
) -> pa.Table:
    """Probes between hosts, in about the order of their time."""
    draw = random.Random(seed)
    rows = [
        (
            START_US + int((i * span_s / count + draw.uniform(0, disorder_s)) * 1e6),
            draw.choice(HOSTS),
            draw.choice(HOSTS),
            draw.randrange(100, 10_000),
            int(draw.random() < 0.2),
        )
        for i in range(count)
    ]
    columns = dict(zip(COLUMNS, zip(*rows, strict=True) if rows else [[]] * len(COLUMNS), strict=True))
    schema = pipeline.source.schema
    return pa.Table.from_arrays([pa.array(columns[f.name], f.type) for f in schema], schema=schema)
