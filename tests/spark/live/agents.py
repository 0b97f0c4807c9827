"""Agents that send frames as real ones would, and the expected results."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from agent.wire import COUNTERS, Frame, FrameKind, batch_bytes
from engine.dataflow.arrow.kernels import aggregate_kernel, row_kernel, whole
from engine.dataflow.pipeline import Pipeline
from tests.spark.live.rows import in_order

SECOND = 1_000_000
START_US = 1_700_000_000 * SECOND
PROBES = {"ts": "timestamp", "src": "string", "dst": "string", "rtt": "int64", "loss": "float64", "err": "int64"}
PAIRS = {
    "source": {"id": "probes", "time": "ts", "columns": PROBES},
    "tables": {
        "racks": {"columns": {"host": "string", "rack": "string"}, "rows": [[f"h{i}", f"r{i % 3}"] for i in range(6)]}
    },
    "operators": [
        {"id": "window", "expression": {"op": "window", "size_s": 5}},
        {"id": "answered", "expression": {"op": "filter", "where": "err = 0"}},
        {
            "id": "rack",
            "expression": {
                "op": "join", "table": "racks", "on": {"src": "host"}, "take": {"rack": "rack"}, "how": "left",
            },
        },
        {"id": "slow", "expression": {"op": "map", "set": {"ms": "rtt / 1000"}}},
        {
            "id": "pairs",
            "expression": {
                "op": "aggregate",
                "by": ["rack", "dst"],
                "compute": {
                    "n": "count(*)", "mean": "avg(rtt)", "most": "max(ms)", "half": "quantile(rtt, 0.5)",
                    "loss": "sum(loss)",
                },
            },
        },
        {"id": "enough", "expression": {"op": "filter", "where": "n > 1"}},
    ],
}  # fmt: skip
SLIDING = {
    "source": {"id": "probes", "time": "ts", "columns": PROBES},
    "operators": [
        {"id": "window", "expression": {"op": "window", "size_s": 6, "slide_s": 2}},
        {"id": "hosts", "expression": {"op": "aggregate", "by": ["src"], "compute": {"n": "count(*)"}}},
        {"id": "all", "expression": {"op": "aggregate", "by": [], "compute": {"hosts": "count(*)", "n": "sum(n)"}}},
    ],
}


@dataclass
class SmallAgent:
    """Sends epochs of random records of one query, cut by random load factors at every proxy."""

    name: str
    query: str
    pipeline: Pipeline
    seed: int = 0
    life: str = "l1"
    seq: int = 0
    epoch: int = 0
    holds: bool = False  #: partial aggregates until their window closes, with a checkpoint after each epoch
    parts: int = 2  #: of a checkpoint
    records: list[pa.Table] = field(default_factory=list)  #: everything it ever saw
    sent: list[Frame] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(f"{self.seed}-{self.name}")
        assert self.pipeline.aggregate is not None
        self._aggregate = self.pipeline.aggregate
        self._open = aggregate_kernel(self.pipeline).partial_schema.empty_table()

    def run(self, epochs: int, count: int = 40, factor: float | None = None, final: bool = False) -> list[Frame]:
        """Frames of the next epochs; load factors are drawn anew for each unless `factor` gives them all."""
        return [frame for i in range(epochs) for frame in self.step(count, factor, final and i == epochs - 1)]

    def step(self, count: int = 40, factor: float | None = None, final: bool = False) -> list[Frame]:
        begin_us = START_US + self.epoch * SECOND
        self.epoch += 1
        seen = self._rows(begin_us, count)
        self.records.append(seen)
        frames = [*self._proxies(seen, factor, begin_us), self._mark(begin_us, final)]
        self.sent += frames
        return frames

    def counters(self, rows: list[dict[str, Any]]) -> Frame:
        """A COUNTERS frame; what a row leaves out is 0."""
        empty = {column.name: "" if column.type == pa.string() else 0 for column in COUNTERS}
        table = pa.Table.from_pylist([empty | row for row in rows], schema=COUNTERS)
        frame = self._frame(FrameKind.COUNTERS, 0, 0, body=batch_bytes(table))
        self.sent.append(frame)
        return frame

    def _rows(self, begin_us: int, count: int) -> pa.Table:
        draw = self._random
        rows = [
            {
                "ts": begin_us + draw.randrange(SECOND),
                "src": f"h{draw.randrange(8)}",
                "dst": draw.choice(["d1", "d2", None]),
                "rtt": draw.randrange(50, 50_000),
                "loss": draw.randrange(1000) / 1000,
                "err": draw.choice([0, 0, 0, 1]),
            }
            for _ in range(count)
        ]
        columns = {name: pa.array([row[name] for row in rows]) for name in self.pipeline.source.schema.names}
        return pa.table(columns).cast(self.pipeline.source.schema)

    def _proxies(self, rows: pa.Table, factor: float | None, epoch: int) -> Iterator[Frame]:
        for index in range(self._aggregate + 1):
            share = self._random.choice([0.0, 0.3, 0.7, 1.0]) if factor is None else factor
            kept = pa.array([self._random.random() < share for _ in range(rows.num_rows)], pa.bool_())
            drained = rows.filter(pa.compute.invert(kept))
            for begin in range(0, drained.num_rows, 25):
                yield self._frame(
                    FrameKind.RECORDS, index, epoch, body=batch_bytes(drained.slice(begin, 25).combine_chunks())
                )
            rows = rows.filter(kept)
            if index < self._aggregate:
                rows = row_kernel(self.pipeline, index).run(rows)
        if self.holds:
            yield from self._held(rows, epoch)
        elif rows.num_rows:
            yield self._partial(FrameKind.PARTIALS, aggregate_kernel(self.pipeline).partial(rows), epoch)

    def _held(self, rows: pa.Table, epoch: int) -> Iterator[Frame]:
        """Rows closed by this epoch's mark, and a checkpoint of the rest."""
        assert self.pipeline.window is not None
        kernel = aggregate_kernel(self.pipeline)
        merged = kernel.merge([self._open, kernel.partial(rows)])
        ends = pa.compute.add(merged["window_start"].cast(pa.int64()), self.pipeline.window.size_us)
        closed = pa.compute.less_equal(ends, epoch + SECOND)
        gone, self._open = merged.filter(closed), merged.filter(pa.compute.invert(closed))
        if gone.num_rows:
            yield self._partial(FrameKind.PARTIALS, gone, epoch)
        for part in range(1, self.parts + 1):
            some = self._open.slice(*self._cut(part))
            yield self._partial(FrameKind.CHECKPOINT, some, epoch, extra={"part": part, "parts": self.parts})

    def _cut(self, part: int) -> tuple[int, int]:
        begin, end = (self._open.num_rows * i // self.parts for i in (part - 1, part))
        return begin, end - begin

    def _partial(self, kind: FrameKind, rows: pa.Table, epoch: int, **more: Any) -> Frame:
        return self._frame(kind, self._aggregate, epoch, body=batch_bytes(rows.combine_chunks()), **more)

    def _mark(self, epoch: int, final: bool = False) -> Frame:
        paths = {str(k): epoch + SECOND for k in range(self._aggregate + 2)}
        extra = {"watermarks": paths, "closing_epoch_us": epoch, "final": final}
        return self._frame(FrameKind.MARK, 0, epoch, extra=extra)

    def _frame(self, kind: FrameKind, entry: int, epoch: int, **more: Any) -> Frame:
        self.seq += 1
        return Frame(kind, self.name, self.life, self.seq, self.query, self.pipeline.digest, entry, epoch, **more)


def expected(pipeline: Pipeline, agents: Sequence[SmallAgent], before_us: int | None = None) -> list[dict[str, Any]]:
    """Result of the query run whole over the records of all agents, for windows that end by `before_us`."""
    assert pipeline.window is not None
    rows = whole(pipeline, pa.concat_tables([table for agent in agents for table in agent.records])).to_pylist()
    size = pipeline.window.size_us
    return in_order([row for row in rows if before_us is None or _micros(row["window_start"]) + size <= before_us])


def _micros(moment: Any) -> int:
    return round(moment.timestamp() * SECOND)
