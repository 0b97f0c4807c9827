"""What the runtime costs beside the operators themselves, by the CPU clock."""

from __future__ import annotations

import statistics
import time

import pyarrow as pa

from agent.runtime import QueryConfig, Runtime, RuntimeConfig, Spool
from engine.dataflow import Pipeline
from engine.dataflow.arrow import AggregateKernel, kernel
from engine.dataflow.templates import S2SPROBE
from tests.agent.runtime.doubles import TableSource

LEAST_RATIO = 0.7
BATCH = 1000
RECORDS = 100_000


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


def bare_s(pipeline: Pipeline, batches: list[pa.RecordBatch]) -> float:
    """The same operators on the same batches, and nothing else."""
    kernels = [kernel(pipeline, k) for k in range(pipeline.source_operators)]
    aggregate = kernels[-1]
    assert isinstance(aggregate, AggregateKernel)
    began = time.thread_time()
    partials = []
    for batch in batches:
        for one in kernels[:-1]:
            batch = one.run(batch)
        partials.append(aggregate.partial(batch))
        if len(partials) == 16:
            partials = [aggregate.merge(partials)]
    return time.thread_time() - began


def runtime_s(pipeline: Pipeline, records: pa.Table, directory) -> float:
    source = TableSource(records, [4 * BATCH])
    spool = Spool(directory, 2**28)
    query = QueryConfig("here/s2s", pipeline, (1.0, 1.0, 1.0))
    config = RuntimeConfig(1, "agent", (query,), epoch_s=60, budget_cores=64)
    runtime = Runtime(config, {"probes": source}, spool, quota=lambda: 64.0)
    began = time.thread_time()
    while not source.done:
        runtime.run_epoch()
    spent = time.thread_time() - began
    assert runtime.state()["queries"][0]["state"] == "steady"
    return spent


def test_throughput_per_core_beside_bare_operators(tmp_path):
    pipeline = s2s_probe()
    records = probes(pipeline, RECORDS)
    batches = records.to_batches(max_chunksize=BATCH)
    ratios = [bare_s(pipeline, batches) / runtime_s(pipeline, records, tmp_path / str(i)) for i in range(3)]
    assert statistics.median(ratios) >= LEAST_RATIO, ratios


def test_the_budget_holds_by_the_real_clock(tmp_path):
    """Far more than a fifth of a core can do: the process stays at its budget, the rest overflows."""
    pipeline, budget_cores, span_s = s2s_probe(slide_s=1), 0.2, 3.0
    source = Endless(probes(pipeline, 5000), [1])
    spool = Spool(tmp_path / "spool", 2**28, sync=False)
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


def test_at_rest_it_takes_less_than_a_hundredth_of_a_core(tmp_path):
    pipeline = s2s_probe()
    source = TableSource(probes(pipeline, 0), [1])
    spool = Spool(tmp_path / "spool", 2**28)
    config = RuntimeConfig(1, "agent", (QueryConfig("here/s2s", pipeline, (1.0, 1.0, 1.0)),))
    runtime = Runtime(config, {"probes": source}, spool)
    runtime.run_epoch()
    began = time.thread_time()
    for _ in range(20):
        runtime.run_epoch()
    assert (time.thread_time() - began) / 20 < 0.01 * config.epoch_s
