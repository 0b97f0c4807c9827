"""Recordings of real agents, whose words are said again under many names."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from agent.config import AgentConfig, QueryConfig
from agent.runtime import Runtime, Spool
from agent.wire import Frame, decode_frames, encode_frame
from engine.dataflow import Pipeline
from engine.jarvis.settings import AdaptationSettings
from lab.benchmarks.telemetry_loop import FRAME_RECORDS, START_US, Feed, records

__all__ = ["AgentRecording", "record_agent"]

_EPOCH_US = 1_000_000


@dataclass(frozen=True)
class AgentRecording:
    """Frames of an agent by epoch, and what its heartbeats say of the query."""

    query: str
    plan: str
    epochs: Sequence[Sequence[Frame]]

    @property
    def frames_per_epoch(self) -> float:
        return sum(map(len, self.epochs)) / len(self.epochs)

    def post(self, agent: str, epoch: int) -> bytes:
        """The frames of an epoch as another agent sends them."""
        return b"".join(encode_frame(replace(frame, agent=agent)) for frame in self.epochs[epoch])

    def heartbeat(self, number: int, now_s: float) -> dict[str, Any]:
        """The report that follows two epochs."""
        last = sum(map(len, self.epochs[: 2 * number + 2]))
        rows = [self._epoch_row(2 * number + i) for i in range(2)]
        report = {"query": self.query, "plan": self.plan, "state": "running", "load_factors": [1.0, 1.0, 1.0]}
        facts = {"life": self.epochs[0][0].life, "version": "0.2.0", "time": now_s, "cpu_cores": 0.02}
        return facts | {"sent_seq": last, "acked_seq": last, "queries": [report | {"epochs": rows}]}

    def _epoch_row(self, epoch: int) -> dict[str, Any]:
        counts = {"n": 100, "bi": 8600, "bs": 430, "o": 0, "u": 0.015, "b": 0.2, "i": 0.1}
        return {"e": START_US + epoch * _EPOCH_US, "p": [1.0, 1.0, 1.0], **counts, "d": 0.4, "v": None}


def record_agent(
    query: str, plan: str, document: Mapping[str, Any], *, epochs: int, rows: int = 100, seed: int = 1
) -> AgentRecording:
    """Run a real agent's runtime on `rows` probes an epoch, all of whose operators it takes itself."""
    pipeline = Pipeline.parse(document)
    by_hand = AdaptationSettings(method="fixed", load_factors=(1.0,) * pipeline.source_operators)
    config = AgentConfig(
        version=1, agent="recorded", cluster=query.partition("/")[0], sources={}, budget_cores=64.0,
        queries=(QueryConfig(query=query, version=1, plan=plan, pipeline=pipeline, settings=by_hand),),
        batch_records=FRAME_RECORDS,
    )  # fmt: skip
    feed, found = _Probes(pipeline), list[list[Frame]]()
    with tempfile.TemporaryDirectory(prefix="sluice-recording-") as folder:
        spool = Spool(Path(folder) / "spool", 2**28)
        runtime = Runtime(config, {pipeline.source.id: feed}, spool)
        for epoch in range(epochs):
            begin_us = START_US + epoch * _EPOCH_US
            feed.load(records(rows, begin_us, _EPOCH_US, hosts=20, seed=seed + epoch), begin_us + _EPOCH_US)
            runtime.run_epoch()
            found.append([frame for _, data in spool.unsent() for frame, _ in decode_frames(bytes(data))])
            spool.acknowledged(found[-1][-1].seq if found[-1] else 0)
    return AgentRecording(query, plan, found)


class _Probes(Feed):
    """A feed with the columns that a query's source has."""

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__()
        self.schema = pipeline.source.schema

    def load(self, batches: Sequence[pa.RecordBatch], end_us: int, most: int = 2**31) -> None:
        super().load([batch.select(self.schema.names).cast(self.schema) for batch in batches], end_us, most)
