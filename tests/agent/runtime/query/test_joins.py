"""A query that joins another stream: its agent sends both, each record once, and marks only what both have passed."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from agent.runtime import Runtime, Spool
from agent.wire import FrameKind, decode_frames, table_of
from engine.dataflow import Pipeline
from engine.dataflow.arrow.kernels import aggregate_kernel, rest, row_kernel, stream_join_kernel, whole
from tests.agent.reference import rows_of
from tests.agent.runtime.configs import agent_config, query_config
from tests.agent.runtime.doubles import SECOND_US, ManualClock, TableSource
from tests.agent.runtime.epochs import by_hand
from tests.agent.runtime.pipelines import AGENT, COLUMNS, START_US, probe_records

QUERY = "here/answers"
ACKS = {"acked": "timestamp", "host": "string", "ms": "int64", "note": "string"}


def joining(stream: str = "acks", **more: object) -> Pipeline:
    join = {
        "op": "join",
        "stream": stream,
        "time": "acked",
        "columns": ACKS,
        "on": {"src": "host"},
        "take": {"ms": "ms"},
    }
    operators = {
        "window": {"op": "window", "size_s": 5},
        "ok": {"op": "filter", "where": "err = 0"},
        "answer": {**join, **more},
        "hosts": {"op": "aggregate", "by": ["src"], "compute": {"n": "count(*)", "ms": "sum(ms)"}},
    }
    return Pipeline.parse(
        {
            "source": {"id": "probes", "time": "ts", "columns": COLUMNS},
            "operators": [{"id": name, "expression": says} for name, says in operators.items()],
        }
    )


def ack_records(count: int, seed: int = 1) -> pa.Table:
    """Answers of hosts, in about the order of their time."""
    draw = random.Random(seed)
    at = [START_US + int((i * 40 / count + draw.uniform(0, 2)) * 1e6) for i in range(count)]
    kind = pa.timestamp("us", "UTC")
    return pa.table(
        {
            "acked": pa.array(at, pa.int64()).cast(kind),
            "host": [draw.choice("abcdef") for _ in at],
            "ms": pa.array([draw.randrange(100) for _ in at], pa.int64()),
            "note": ["not needed"] * count,
        }
    )


class Processor:
    """A stream processor in memory: what a query's frames say, and whether its marks hold."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.seq, self.watermark_us, self.late = 0, 0, 0
        self.entries: dict[int, list[pa.Table]] = defaultdict(list)

    def take(self, data: bytes) -> None:
        for frame, _ in decode_frames(data):
            if frame.seq <= self.seq:
                continue
            assert frame.seq == self.seq + 1
            self.seq = frame.seq
            if frame.kind == FrameKind.RECORDS:
                self._take(frame.entry, table_of(frame.body))
            elif frame.kind == FrameKind.MARK:
                (watermark_us,) = set(frame.extra["watermarks"].values())
                assert watermark_us >= self.watermark_us
                self.watermark_us = watermark_us
            assert frame.kind != FrameKind.PARTIALS

    def _take(self, entry: int, table: pa.Table) -> None:
        assert table.schema.equals(self.pipeline.entry_schema(entry))
        time = table["acked" if entry == self.pipeline.other_entry else "ts"].cast(pa.int64())
        self.late += pc.sum(pc.less(time, self.watermark_us).cast(pa.int64())).as_py()
        self.entries[entry].append(table)

    def result(self) -> pa.Table:
        pipeline, join = self.pipeline, stream_join_kernel(self.pipeline)
        rows = [table for index in range(3) for table in self._through(index, self.entries[index])]
        found = join.run(pa.concat_tables(rows), join.side(pa.concat_tables(self.entries[pipeline.other_entry])))
        aggregate = aggregate_kernel(pipeline)
        return rest(pipeline, aggregate.finalise(aggregate.partial(found)))

    def _through(self, first: int, tables: list[pa.Table]) -> list[pa.Table]:
        for index in range(first, self.pipeline.stream_join):
            tables = [row_kernel(self.pipeline, index).run(table) for table in tables]
        return tables


class Host:
    """An agent over two tables that may die."""

    def __init__(self, directory: Path, pipeline: Pipeline, sizes: dict[str, list[int]], budget_cores: float) -> None:
        self.directory, self.pipeline, self.sizes = directory, pipeline, sizes
        self.tables = {"probes": probe_records(pipeline, 900), "acks": ack_records(500)}
        self.budget_cores = budget_cores
        self.clock = ManualClock(cpu_step_ns=2_000_000)
        self.processor = Processor(pipeline)
        self.start()

    def start(self) -> None:
        self.spool = Spool(self.directory, 64 * 2**20, sync=False)
        self.sources = {
            name: TableSource(self.tables[name], sizes, "acked" if name == "acks" else "ts")
            for name, sizes in self.sizes.items()
        }
        query = query_config(QUERY, self.pipeline, by_hand(0.8, 0.6))
        config = agent_config(1, AGENT, (query,), budget_cores=self.budget_cores, sub_epochs=3, batch_records=50)
        self.runtime = Runtime(config, self.sources, self.spool, self.clock, quota=lambda: 64.0)

    def epochs(self, count: int) -> None:
        for _ in range(count):
            assert self.runtime.run_epoch()
            self.clock.pass_s(1)
        for seq, data in self.spool.unsent(2**30):
            self.processor.take(data)
            self.spool.acknowledged(seq)

    def die(self) -> None:
        """In the middle of an epoch."""
        self.runtime.tick()
        self.spool.close()
        self.start()

    @property
    def done(self) -> bool:
        return all(source.done for source in self.sources.values())


@pytest.mark.parametrize("budget_cores", [8.0, 0.01], ids=["time for all", "hardly any CPU time"])
def test_both_streams_survive_kills_and_no_record_comes_after_its_mark(tmp_path: Path, budget_cores: float) -> None:
    host = Host(tmp_path, joining(), {"probes": [17, 3], "acks": [5, 40]}, budget_cores)
    for _ in range(4):
        host.epochs(6)
        host.die()
    while not host.done:
        host.epochs(5)
    host.epochs(10)  # what waits may wait for no more than the backlog limit
    found = host.processor
    assert found.late == 0 and found.watermark_us > START_US + 40 * SECOND_US
    assert rows_of(found.result()) == rows_of(whole(joining(), host.tables["probes"], host.tables["acks"]))
    counted = sum(table.num_rows for table in found.entries[joining().other_entry])
    assert counted == host.tables["acks"].num_rows


def test_the_watermark_is_that_of_the_slower_stream(tmp_path: Path) -> None:
    host = Host(tmp_path, joining(), {"probes": [300], "acks": [1]}, 8.0)
    host.epochs(10)
    slow = host.sources["acks"].watermark_us()
    assert host.sources["probes"].done and host.processor.watermark_us == slow
    (state,) = host.runtime.state()["queries"]
    assert state["watermark_us"] == slow


def test_a_stream_may_be_joined_with_itself(tmp_path: Path) -> None:
    columns = {"columns": COLUMNS, "time": "ts", "on": {"src": "dst"}, "take": {"ms": "rtt_us"}}
    pipeline = joining("probes", **columns)
    host = Host(tmp_path, pipeline, {"probes": [30]}, 8.0)
    host.processor._take = lambda entry, table: host.processor.entries[entry].append(table)
    while not host.done:
        host.epochs(5)
    host.epochs(3)
    probes = host.tables["probes"]
    assert rows_of(host.processor.result()) == rows_of(whole(pipeline, probes, probes))


def test_query_without_its_second_stream_is_refused_with_a_reason(tmp_path: Path) -> None:
    host = Host(tmp_path, joining(), {"probes": [30]}, 8.0)
    host.epochs(1)
    (state,) = host.runtime.state()["queries"]
    assert state["state"] == "refused"
    assert state["faults"] == ["source 'acks' is not configured here; there are: ['probes']"]
