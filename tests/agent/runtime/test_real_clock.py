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
    """The same records with every poll."""

    def poll(self, now_us: int, most: int) -> list[pa.RecordBatch]:
        return self.table.slice(0, most).to_batches()

    def triple(self) -> None:
        self.table = pa.concat_tables([self.table] * 3).combine_chunks()


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


def states(runtime: Runtime, spool: Spool, span_s: float) -> list[str]:
    """The query's state after every sub-epoch of a span; what is sent is committed at once."""
    began, found = time.monotonic(), []
    while time.monotonic() - began < span_s:
        time.sleep(runtime.tick())
        spool.committed(spool.last_seq)
        found.append(runtime.state()["queries"][0]["state"])
    return found


def test_the_budget_holds_by_the_real_clock(tmp_path):
    """More than a fifth of a core can do, whatever a core can do: the process stays at its budget, the rest overflows.

    The load is tripled until it is too much, so that it is never many times too much either: overflow costs, too.
    """
    pipeline, budget_cores, span_s = s2s_probe(slide_s=1), 0.2, 3.0
    source = Endless(probes(pipeline, 1000), [1])
    spool = Spool(tmp_path / "spool", 2**28, sync=False)
    query = QueryConfig("here/s2s", pipeline, (1.0, 1.0, 1.0))
    config = RuntimeConfig(1, "agent", (query,), epoch_s=0.25, sub_epochs=5, budget_cores=budget_cores)
    runtime = Runtime(config, {"probes": source}, spool)
    while set(states(runtime, spool, 1.5)[-10:]) != {"overflowing"}:  # the first epochs learn what operators cost
        source.triple()
        assert source.table.num_rows < 10**7, "a fifth of a core takes it all"
    began, used = time.monotonic(), time.process_time()
    seen = states(runtime, spool, span_s)
    share = (time.process_time() - used) / (time.monotonic() - began)
    assert share < 1.25 * budget_cores
    assert set(seen) == {"overflowing"}
