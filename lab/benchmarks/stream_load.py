"""Frames of many agents with many queries, and a console that checks their results, for the stream benchmark."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import redis

from agent.wire import COUNTERS, Frame, FrameKind, batch_bytes, broker, decode_frames, encode_frame
from engine.dataflow import Pipeline
from engine.dataflow.arrow.kernels import aggregate_kernel, row_kernel
from engine.dataflow.types import WINDOW_START
from lab.benchmarks.telemetry_loop import START_US, WINDOW_S, ConsoleEndpoint, pipeline, records

__all__ = ["Load", "StreamConsole", "push_frames"]

_LIMITS = broker.BrokerLimits(total_bytes=2**30)
_SECOND_US = 1_000_000
_RETAIN_S = 3_600


@dataclass
class Load:
    """Agents that each send, an epoch of a second, what `per_agent` of the queries ask for, and their counters.

    Agents take queries in turn, so a query has `agents * per_agent / queries` of them. Every frame of records or of
    partial aggregates holds the same rows, moved to its epoch: what is sent costs little beside what is measured.
    """

    name: str
    agents: int
    queries: int = 10
    per_agent: int = 2
    groups: int = 20  #: in a frame
    rows: int = 100  #: in a frame, before what is filtered away
    as_records: bool = False  #: records, which the stream processor aggregates, instead of partial aggregates
    epoch: int = 0
    expected: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))  #: by query and window

    @property
    def names(self) -> list[str]:
        return [f"{self.name}/q{number}" for number in range(self.queries)]

    def queries_of(self, agent: int) -> list[str]:
        return [self.names[(agent * self.per_agent + k) % self.queries] for k in range(self.per_agent)]

    def plan(self) -> list[dict[str, Any]]:
        """The queries as the console names them."""
        agents: dict[str, list[str]] = defaultdict(list)
        for number in range(self.agents):
            for query in self.queries_of(number):
                agents[query].append(self._agent(number))
        document = dict(self._pipeline.document)
        settings = {"version": 1, "subinterval_s": 10, "retain_s": _RETAIN_S, "idle_after_s": 300}
        plan = {"plan": self._digest, "pipeline": document} | settings
        return [{"query": query, "agents": some} | plan for query, some in agents.items()]

    def frames(self) -> Iterator[list[tuple[Frame, bytes]]]:
        """Frames of the next epoch, agent by agent."""
        begin_us = START_US + self.epoch * _SECOND_US
        body, counters = self._body(begin_us), {query: self._counters(query, begin_us) for query in self.names}
        for number in range(self.agents):
            agent, queries = self._agent(number), self.queries_of(number)
            frames = []
            seq = self.epoch * (2 * len(queries) + 1)
            for query in queries:
                self.expected[query, begin_us - begin_us % (WINDOW_S * _SECOND_US)] += self._answered
                kind = FrameKind.RECORDS if self.as_records else FrameKind.PARTIALS
                entry = 0 if self.as_records else self._aggregate
                common = {"query": query, "plan": self._digest, "epoch": begin_us}
                frames.append(Frame(kind, agent, "l1", seq + 1, entry=entry, body=body, **common))
                mark = {"watermarks": {"0": begin_us + _SECOND_US}, "final": False}
                frames.append(Frame(FrameKind.MARK, agent, "l1", seq + 2, extra=mark, **common))
                seq += 2
            rows = pa.concat_tables([counters[query] for query in queries])
            frames.append(Frame(FrameKind.COUNTERS, agent, "l1", seq + 1, body=batch_bytes(rows.combine_chunks())))
            yield [(frame, encode_frame(frame)) for frame in frames]
        self.epoch += 1

    def closed(self) -> dict[tuple[str, int], int]:
        """Records by query and window of the windows that have ended."""
        end_us = START_US + self.epoch * _SECOND_US
        return {key: count for key, count in self.expected.items() if key[1] + WINDOW_S * _SECOND_US <= end_us}

    def _agent(self, number: int) -> str:
        return f"{self.name}-{number}"

    @cached_property
    def _pipeline(self) -> Pipeline:
        return pipeline()

    @cached_property
    def _digest(self) -> str:
        return self._pipeline.digest

    @cached_property
    def _aggregate(self) -> int:
        index = self._pipeline.aggregate
        assert index is not None
        return index

    @cached_property
    def _rows(self) -> pa.Table:
        return pa.Table.from_batches(records(self.rows, 0, _SECOND_US, hosts=self.groups)).combine_chunks()

    @cached_property
    def _answered(self) -> int:
        return int(self.rows - sum(self._rows["err_code"].to_pylist()))

    @cached_property
    def _partial(self) -> pa.Table:
        rows = self._rows
        for index in range(self._aggregate):
            rows = row_kernel(self._pipeline, index).run(rows)
        return aggregate_kernel(self._pipeline).partial(rows)

    def _body(self, begin_us: int) -> bytes:
        table, name = (self._rows, "ts") if self.as_records else (self._partial, WINDOW_START)
        times = table[name].cast(pa.int64()).to_numpy()
        times = times + begin_us - (0 if self.as_records else begin_us % (WINDOW_S * _SECOND_US))
        column = table.schema.field(name)
        moved = table.set_column(table.schema.get_field_index(name), column, pa.array(times).cast(column.type))
        return batch_bytes(moved.combine_chunks())

    def _counters(self, query: str, begin_us: int) -> pa.Table:
        """Counters of the operators of a query in an epoch."""
        nothing = {column.name: "" if column.type == pa.string() else 0 for column in COUNTERS}
        rows = [
            nothing
            | {"query": query, "plan": self._digest, "operator": operator.id, "fingerprint": operator.id}
            | {"entry": operator.index, "epoch_us": begin_us, "load_factor": 1.0, "cpu_ns": 1_000_000}
            | {"records_in": self.rows, "records_processed": self.rows, "records_out": self.rows}
            for operator in self._pipeline.operators
        ]
        return pa.Table.from_pylist(rows, schema=COUNTERS)


@dataclass
class StreamConsole(ConsoleEndpoint):
    """A console with many queries, which keeps the newest revision of each result."""

    queries: list[dict[str, Any]] = field(default_factory=list)
    results: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)

    def plan(self) -> bytes:
        return json.dumps({"version": 1, "queries": self.queries}).encode()

    def hear(self, body: bytes) -> None:
        for frame, _ in decode_frames(body):
            if frame.kind == FrameKind.RESULT:
                extra, key = dict(frame.extra), (frame.query, int(frame.extra["window_us"]))
                if key not in self.results or self.results[key]["revision"] <= extra["revision"]:
                    self.results[key] = extra
            elif frame.kind == FrameKind.STATISTICS:
                self.statistics += 1

    def wrong(self, expected: dict[tuple[str, int], int]) -> list[str]:
        """Windows whose records are not as many as were sent, or which say that they lack some."""
        return [
            f"{query} {window_us}: {expected[query, window_us]} sent, {told.get('records')} counted, "
            f"missing {told.get('missing')}"
            for query, window_us in expected
            if (told := self.results.get((query, window_us), {})).get("records") != expected[query, window_us]
            or told.get("missing")
        ]


def push_frames(clients: Sequence[redis.Redis], load: Load) -> int:
    """Send an epoch's frames to each broker; how many frames they were. A broker that is full is waited for."""
    frames = 0
    for agent_frames in load.frames():
        frames += len(agent_frames)
        for client in clients:
            while broker.accept_frames(client, agent_frames, _LIMITS).refused:
                time.sleep(0.02)
    return frames
