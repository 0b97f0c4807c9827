"""The budget against what the process really uses."""

from __future__ import annotations

import time

import pyarrow as pa

from agent.runtime import QueryConfig, Runtime, RuntimeConfig, Spool
from engine.dataflow import Pipeline
from engine.dataflow.templates import S2SPROBE
from tests.agent.runtime.doubles import TableSource


def s2s_probe(slide_s: int = 10) -> Pipeline:
    document = S2SPROBE("probes").document
    document["operators"][0]["expression"]["slide_s"] = slide_s
    return Pipeline.parse(document)


class Endless(TableSource):
    """The same records again and again, as many as anybody asks for."""

    def poll(self, now_us: int, most: int) -> list[pa.RecordBatch]:
        return self.table.slice(0, most).to_batches()


def probes(pipeline: Pipeline, records: int) -> pa.Table:
    columns = {
        "ts": pa.array([1_700_000_000_000_000 + i * 100 for i in range(records)], pa.int64()).cast(
            pa.timestamp("us", "UTC")
        ),
        "src_ip": pa.array([f"10.0.0.{i % 17}" for i in range(records)]),
        "dst_ip": pa.array([f"10.0.1.{i % 23}" for i in range(records)]),
        "src_cluster": pa.array(["one"] * records),
        "dst_cluster": pa.array(["two"] * records),
        "rtt_us": pa.array([100 + i % 5000 for i in range(records)], pa.int64()),
        "err_code": pa.array([int(i % 7 == 0) for i in range(records)], pa.int64()),
    }
    return pa.table(columns).select(pipeline.source.schema.names)


def test_the_budget_holds_by_the_real_clock(tmp_path):
    """Four times what a fifth of a core can do: the process stays at its budget, the rest overflows."""
    pipeline, budget_cores, span_s = s2s_probe(slide_s=1), 0.2, 3.0
    source = Endless(probes(pipeline, 20_000), [1])
    spool = Spool(tmp_path / "spool", 2**29, sync=False)
    query = QueryConfig("here/s2s", pipeline, (1.0, 1.0, 1.0))
    config = RuntimeConfig(1, "agent", (query,), epoch_s=0.25, sub_epochs=5, budget_cores=budget_cores)
    runtime = Runtime(config, {"probes": source}, spool)
    for _ in range(5):  # the first epochs learn what operators cost
        time.sleep(runtime.tick())
    began, used = time.monotonic(), time.process_time()
    while time.monotonic() - began < span_s:
        time.sleep(runtime.tick())
    share = (time.process_time() - used) / (time.monotonic() - began)
    assert share < 1.25 * budget_cores
    assert runtime.state()["queries"][0]["state"] == "overflowing"
