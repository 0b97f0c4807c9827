"""One host's part of an experiment with agents: an agent, a relay, or the stream processor that finishes the query.

``python -m lab.testbed.agent_process PLAN REPORT``: the plan is JSON with a `role`; on SIGTERM what was counted is
written as JSON. Agents and relays are the product's own; the stream processor runs what is left of each record,
merges partial rows and closes windows, epoch by epoch in the order in which frames come.
"""

from __future__ import annotations

import hashlib
import json
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from agent.config import AgentConfig, ChildConfig, QueryConfig, RelayConfig
from agent.relay.relay import Relay
from agent.relay.server import UNKNOWN, RelayServer, Reply
from agent.runtime import Runtime, Spool
from agent.uplink.console import Client
from agent.uplink.sender import CONSOLE, SpoolSender
from agent.wire import Frame, FrameKind, decode_frames, table_of
from engine.dataflow import Pipeline
from engine.dataflow.arrow.kernels import RowKernel, aggregate_kernel, kernel, rest
from engine.jarvis.settings import AdaptationSettings
from lab.benchmarks.jarvis_real import LogLines, log_pipeline

__all__ = ["PORT", "QUERY", "EpochReceiver", "run", "secret_hash"]

PORT = 7200
QUERY = "bench/log-analytics"
_SPOOL_BYTES = 2**28
_COUNTED = ("records_in", "records_processed", "records_overflow")  # of the first operator


def secret_hash(name: str) -> str:
    """Hash by which a receiver knows the agent of this name; its secret is the name."""
    return hashlib.sha256(name.encode()).hexdigest()


class EpochReceiver:
    """The stream processor's side of one query: finishes what comes, and notes when each epoch of an agent is done.

    An epoch is done when its mark has come, behind all its frames: its records have run through the operators that
    were left, and the windows that all agents have passed are closed.
    """

    def __init__(self, pipeline: Pipeline, agents: list[str], epoch_s: float) -> None:
        self._pipeline, self._epoch_us = pipeline, int(epoch_s * 1e6)
        self._agents = {secret_hash(name): name for name in agents}
        self._lock = threading.Lock()
        self._seqs: dict[tuple[str, str], int] = {}  # by agent and life
        self._watermarks_us = dict.fromkeys(agents, 0)
        self._partials: list[pa.Table] = []
        self._bytes: Counter[str] = Counter()  # by agent, since its last mark
        self.epochs: list[dict[str, Any]] = []  #: agent, epoch_us, latency_s, bytes
        self.windows: list[dict[str, Any]] = []  #: end_us, latency_s, rows
        self.counts: list[dict[str, Any]] = []  #: agent, epoch_us, and counters of the first operator

    def admits(self, hashed: str) -> bool:
        """Whether an agent has this secret."""
        return hashed in self._agents

    def take(self, hashed: str, data: bytes) -> Reply:
        """Frames of a post, each once."""
        name = self._agents.get(hashed)
        if name is None:
            return UNKNOWN
        with self._lock:
            seq = 0
            for frame, raw in decode_frames(data):
                seq = self._seqs.setdefault((name, frame.life), 0)
                if frame.seq > seq:
                    self._bytes[name] += len(raw)
                    self._take(name, frame)
                    seq = self._seqs[name, frame.life] = frame.seq
        return Reply(200, {"accepted_seq": seq, "committed_seq": seq})

    def _take(self, name: str, frame: Frame) -> None:
        if frame.kind == FrameKind.RECORDS:
            table = table_of(frame.body)
            for k in range(frame.entry, self._pipeline.aggregate or 0):
                operator = kernel(self._pipeline, k)
                assert isinstance(operator, RowKernel)
                table = operator.run(table)
            self._partials.append(aggregate_kernel(self._pipeline).partial(table))
        elif frame.kind == FrameKind.PARTIALS:
            self._partials.append(table_of(frame.body))
        elif frame.kind == FrameKind.COUNTERS:
            self._count(frame)
        elif frame.kind == FrameKind.MARK:
            self._watermarks_us[name] = min(frame.extra["watermarks"].values())
            self._close_windows(min(self._watermarks_us.values()))
            late_s = (time.time_ns() // 1000 - frame.epoch - self._epoch_us) / 1e6
            row = {"agent": name, "epoch_us": frame.epoch, "latency_s": late_s, "bytes": self._bytes.pop(name, 0)}
            self.epochs.append(row)

    def _count(self, frame: Frame) -> None:
        rows = table_of(frame.body).to_pylist()
        self.counts += [
            {"agent": frame.extra.get("origin", frame.agent), "epoch_us": row["epoch_us"]}
            | {column: row[column] for column in _COUNTED}
            for row in rows
            if row["entry"] == 0
        ]

    def _close_windows(self, watermark_us: int) -> None:
        if not self._partials or self._pipeline.window is None:
            return
        aggregate, size_us = aggregate_kernel(self._pipeline), self._pipeline.window.size_us
        merged = aggregate.merge(self._partials)
        ends_us = pc.add(merged["window_start"].cast(pa.int64()), size_us)
        closed = pc.less_equal(ends_us, watermark_us)
        going, self._partials = merged.filter(closed), [merged.filter(pc.invert(closed))]
        if going.num_rows:
            result = rest(self._pipeline, aggregate.finalise(going))
            now_us, end_us = time.time_ns() // 1000, pc.max(ends_us.filter(closed)).as_py()
            self.windows.append({"end_us": end_us, "latency_s": (now_us - end_us) / 1e6, "rows": result.num_rows})


def _receive(plan: Mapping[str, Any], stopping: threading.Event) -> dict[str, Any]:
    receiver = EpochReceiver(log_pipeline(), plan["agents"], plan["epoch_s"])
    server = RelayServer((plan["listen"], PORT), receiver.admits, receiver.take)
    _wait(stopping)
    server.close()
    return {"epochs": receiver.epochs, "windows": receiver.windows, "counts": receiver.counts}


def _wait(stopping: threading.Event) -> None:
    print("ready", flush=True)
    stopping.wait()


def _sender(plan: Mapping[str, Any], spool: Spool, folder: Path) -> SpoolSender:
    return SpoolSender(spool, lambda _: Client(plan["url"], secret=plan["name"]), folder, route=CONSOLE)


def _relay(plan: Mapping[str, Any], stopping: threading.Event) -> dict[str, Any]:
    pipeline = log_pipeline()
    children = tuple(ChildConfig(name, secret_hash(name), {QUERY: pipeline.digest}) for name in plan["agents"])
    relay = RelayConfig((plan["listen"], PORT), children, {pipeline.digest: pipeline})
    config = AgentConfig(
        version=1, agent=plan["name"], cluster="bench", sources={}, queries=(), relay=relay, epoch_s=plan["epoch_s"]
    )
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as name:
        spool = Spool(Path(name) / "spool", _SPOOL_BYTES)
        sender = _sender(plan, spool, Path(name))
        sender.start()
        print("ready", flush=True)
        Relay(config, spool).run(stopping)
        sender.stop(1.0)
        spool.close()
    return {}


def _agent(plan: Mapping[str, Any], stopping: threading.Event) -> dict[str, Any]:
    pipeline = log_pipeline()
    settings = AdaptationSettings(method=plan["method"])
    query = QueryConfig(query=QUERY, version=1, plan=pipeline.digest, pipeline=pipeline, settings=settings)
    config = AgentConfig(
        version=1, agent=plan["name"], cluster="bench", sources={}, queries=(query,), epoch_s=plan["epoch_s"],
        budget_cores=plan["budget_cores"], spool_max_bytes=_SPOOL_BYTES,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as name:
        spool = Spool(Path(name) / "spool", _SPOOL_BYTES)
        runtime = Runtime(config, {"lines": LogLines(plan["lines_s"])}, spool)
        sender = _sender(plan, spool, Path(name))
        print("ready", flush=True)
        sender.start()
        while not stopping.is_set():
            stopping.wait(runtime.tick())
        sender.stop(0.0)
        spool.close()
    return {"fault": sender.fault}


_ROLES = {"agent": _agent, "relay": _relay, "processor": _receive}


def run(plan: Path, report: Path) -> None:
    """Play the plan's role until SIGTERM, then write the report."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    given = json.loads(plan.read_text())
    report.write_text(json.dumps(_ROLES[given["role"]](given, stopping)))


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]))
