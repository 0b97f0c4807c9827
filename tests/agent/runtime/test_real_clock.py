"""The budget against the real CPU time of the process."""

from __future__ import annotations

import time

import pyarrow as pa

from agent.runtime import Runtime, Spool
from engine.dataflow import Pipeline
from engine.dataflow.templates import S2SPROBE
from tests.agent.runtime.configs import agent_config, query_config
from tests.agent.runtime.doubles import TableSource
from tests.agent.runtime.epochs import by_hand


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


def watched(runtime: Runtime, spool: Spool, span_s: float) -> tuple[float, list[str]]:
    """Cores that the process used in a span, and the query's state after each sub-epoch; what is sent is committed."""
    began, used, found = time.monotonic(), time.process_time(), []
    while time.monotonic() - began < span_s:
        time.sleep(runtime.tick())
        spool.committed(spool.last_seq)
        found.append(runtime.state()["queries"][0]["state"])
    return (time.process_time() - used) / (time.monotonic() - began), found


def test_the_budget_holds_by_the_real_clock(tmp_path):
    """The process stays at its budget, from a load that leaves it idle to one of which a fifth of a core drains a part.

    How much that is depends on the machine: the load is tripled until most of a span overflows.
    """
    pipeline, budget_cores = s2s_probe(slide_s=1), 0.2
    source = Endless(probes(pipeline, 1000), [1])
    spool = Spool(tmp_path / "spool", 2**28, sync=False)
    query = query_config("here/s2s", pipeline, by_hand(1.0, 1.0, 1.0))
    config = agent_config(1, "agent", (query,), epoch_s=0.25, sub_epochs=5, budget_cores=budget_cores)
    runtime = Runtime(config, {"probes": source}, spool)
    watched(runtime, spool, 1.5)  # the first epochs learn what operators cost
    while True:
        cores, seen = watched(runtime, spool, 3.0)
        assert cores < 1.5 * budget_cores
        if seen.count("overflowing") > len(seen) / 2:
            return
        source.triple()
        assert source.table.num_rows < 10**7, "a fifth of a core takes it all"
