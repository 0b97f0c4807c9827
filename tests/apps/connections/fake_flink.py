"""A Flink session cluster as its REST API shows it, with a clock that each poll of a job moves on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tests.apps.connections.engine_server import EngineServer, Reply

__all__ = ["EPOCH_S", "FakeFlink", "FakeJob", "FakeVertex", "shop_job"]

EPOCH_S = 1_790_000_000.0


@dataclass(frozen=True)
class FakeVertex:
    """A vertex that takes `cost_s` a record; None: it does not tell, as a legacy source."""

    name: str
    cost_s: float | None
    selectivity: float = 1.0
    parallelism: int = 1
    state_bytes: float = 0.0  #: by its newest checkpoint

    @property
    def id(self) -> str:
        return hashlib.md5(self.name.encode(), usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class FakeJob:
    """A chain of vertices that reads `rate` records a second, since `started_s` of the cluster's clock."""

    name: str
    vertices: tuple[FakeVertex, ...]
    rate: float = 100.0
    started_s: float = -60.0
    state: str = "RUNNING"
    run: int = 1  #: of the job, which its id hangs on
    attempt: int = 0

    @property
    def id(self) -> str:
        return hashlib.md5(f"{self.name}{self.run}".encode(), usedforsecurity=False).hexdigest()


def shop_job(**fields: Any) -> FakeJob:
    """Source, two maps and a sink, of which the second map runs twice."""
    vertices = (
        FakeVertex("Source: clicks", None),
        FakeVertex("parse", 0.0005, selectivity=0.8),
        FakeVertex("enrich", 0.004, parallelism=2),
        FakeVertex("Sink: results", 0.001),
    )
    return FakeJob(**{"name": "shop", "vertices": vertices, **fields})


@dataclass
class FakeFlink:
    """Its jobs and TaskManagers; `now_s` moves by `step_s` with each answer about a job."""

    jobs: list[FakeJob] = field(default_factory=lambda: [shop_job()])
    places: list[str] = field(default_factory=lambda: ["tm1"])
    slots: int = 4
    step_s: float = 5.0
    now_s: float = 0.0
    version: str = "2.3.0"
    latency_s: float | None = None
    marker_ms: float | None = None  #: of its latency markers; None: it emits none
    backend: str | None = None  #: its state backend; None: it takes no checkpoints
    pause_ms: float = 0.0  #: that a checkpoint stops every vertex for
    savepoint: str = ""  #: kind of its newest savepoint, SAVEPOINT or that of a stop
    pending: float | None = None  #: records that wait before its sources; None: they do not tell
    topic: str = ""  #: of Kafka, two partitions of which its sources read, as their metrics spell it
    busy_of_ten: int | None = None  #: looks at threads of old sources that find them at work; None: it shows no threads
    looks: int = 0

    def serve(self, server: EngineServer) -> None:
        """Answer every path of a server."""
        server.find = self.reply

    def reply(self, path: str) -> Reply:
        plain = path.partition("?")[0]
        parts = plain.strip("/").split("/")
        answer = self.answer(plain, parts, path)
        return Reply(answer) if answer is not None else Reply({"errors": ["Not found."]}, 404)

    def answer(self, plain: str, parts: list[str], path: str) -> Any:
        if plain == "/overview":
            return {"taskmanagers": len(self.places), "slots-total": 4, "flink-version": self.version}
        if plain == "/jobs/overview":
            return {"jobs": [self._row(job) for job in self.jobs]}
        if plain == "/taskmanagers":
            return {"taskmanagers": [self._place(place) for place in self.places]}
        if plain == "/jobmanager/config":
            interval = [] if self.marker_ms is None else [{"key": "metrics.latency.interval", "value": "500"}]
            return [{"key": "execution.buffer-timeout.interval", "value": "100 ms"}, *interval]
        if parts[0] == "taskmanagers" and parts[-1] == "thread-dump":
            return self._threads()
        if parts[0] == "taskmanagers":
            return [{"id": "Status.JVM.CPU.Load", "value": "0.1"}, {"id": "Status.JVM.CPU.Time", "value": "1000000000"}]
        job = next((job for job in self.jobs if len(parts) > 1 and job.id == parts[1]), None)
        if job is None:
            return None
        if len(parts) == 2:
            self.now_s += self.step_s
            return self._job(job)
        if parts[2] == "vertices" and len(parts) == 4:
            return self._vertex(job, parts[3])
        if parts[2] == "vertices" and parts[4:] == ["subtasks", "metrics"]:
            values: dict[str, float] = {**self._latencies(), **self._sink_counts(job, parts[3])}
            if self.pending is not None:
                values["Source__clicks.pendingRecords"] = self.pending
            for partition in range(2 if self.topic and parts[3] == job.vertices[0].id else 0):
                values[f"Source__clicks.KafkaSourceReader.topic.{self.topic}.partition.{partition}.currentOffset"] = 1.0
            rows = [{"id": name, "max": value, "sum": value} for name, value in values.items()]
            return [row for row in rows if "get=" not in path or str(row["id"]) in path]
        if parts[2] == "checkpoints" and self.backend is not None:
            return self._checkpoints(job, parts[3:])
        if parts[2] == "checkpoints" and self.savepoint:
            return {"latest": {"savepoint": {"id": 4, "status": "COMPLETED", "checkpoint_type": self.savepoint}}}
        return {} if parts[2] in {"config", "checkpoints"} else None

    def _threads(self) -> dict[str, Any] | None:
        """Threads of old sources, in so many of ten looks at work in the operator behind them."""
        if self.busy_of_ten is None:
            return None
        works = self.looks % 10 < self.busy_of_ten
        self.looks += 1
        at = "StreamMap.processElement(StreamMap.java:38)" if works else "java.lang.Thread.sleep(Native Method)"
        names = [
            f"Legacy Source Thread - {vertex.name} ({i + 1}/{vertex.parallelism})#{job.attempt}"
            for job in self.jobs
            for vertex in job.vertices
            if vertex.cost_s is None
            for i in range(vertex.parallelism)
        ]
        rows = {name: f'"{name}" Id=7 TIMED_WAITING\n\tat org.apache.flink.{at}\n\n' for name in names}
        return {"threadInfos": [{"threadName": n, "stringifiedThreadInfo": text} for n, text in rows.items()]}

    def _checkpoints(self, job: FakeJob, rest: list[str]) -> dict[str, Any]:
        sizes = {vertex.id: vertex.state_bytes for vertex in job.vertices}
        newest: dict[str, Any] = {"id": 3, "state_size": sum(sizes.values()), "checkpointed_size": 1_000}
        if rest == ["config"]:
            return {"interval": 10_000, "state_backend": self.backend}
        newest |= {"status": "COMPLETED", "trigger_timestamp": self._ms(-10.0), "end_to_end_duration": 400}
        if "subtasks" in rest:
            pauses = dict.fromkeys(("min", "avg", "max"), self.pause_ms)
            return {"summary": {"checkpoint_duration": {"sync": pauses}}}
        if rest:
            return newest | {"tasks": {id_: {"state_size": size} for id_, size in sizes.items()}}
        return {"latest": {"completed": newest}}

    def change(self, name: str, change: Callable[[FakeJob], FakeJob]) -> None:
        """Another state of a job."""
        self.jobs = [change(job) if job.name == name else job for job in self.jobs]

    def restart(self, name: str, **fields: Any) -> None:
        """The job runs anew under another id, as after a redeploy by a savepoint."""
        self.change(name, lambda job: replace(job, run=job.run + 1, started_s=self.now_s, **fields))

    def _latencies(self) -> dict[str, float]:
        """Of a sink's metrics, what was measured and what markers tell."""
        marker = "latency.source_id.a.operator_id.b.operator_subtask_index.0.latency"
        measured = {} if self.latency_s is None else {"Sink__results.resultLatencyWorst": self.latency_s}
        ms = self.marker_ms
        return measured if ms is None else {**measured, f"{marker}_mean": ms / 2, f"{marker}_p99": ms}

    def _sink_counts(self, job: FakeJob, id_: str) -> dict[str, float]:
        """Results that the last vertex's sink took: its vertex counts none of what it puts out."""
        last = job.vertices[-1]
        taken = self.metrics(job, len(job.vertices) - 1)["read-records"]
        return {f"{last.name.replace(': ', '__')}.numRecordsIn": taken * last.selectivity} if last.id == id_ else {}

    def _ms(self, moment_s: float) -> int:
        return round(1000 * (EPOCH_S + moment_s))

    def _row(self, job: FakeJob) -> dict[str, Any]:
        begun = self._ms(job.started_s)
        return {"jid": job.id, "name": job.name, "state": job.state, "start-time": begun, "end-time": -1}

    def _place(self, place: str) -> dict[str, Any]:
        resource = {"cpuCores": 8.0, "taskHeapMemory": 256, "managedMemory": 64, "networkMemory": 32}
        hardware = {"cpuCores": 8, "physicalMemory": 16 * 2**30}
        path = f"pekko.tcp://flink@10.0.0.{1 + self.places.index(place)}:6122/user/rpc/taskmanager_0"
        return {"id": place, "path": path, "slotsNumber": self.slots, "freeSlots": 0} | {
            "totalResource": resource,
            "hardware": hardware,
        }

    def metrics(self, job: FakeJob, position: int) -> dict[str, Any]:
        """Counters of a vertex now, in the words of the REST API."""
        vertex, lived_s = job.vertices[position], self.now_s - job.started_s
        records = job.rate * lived_s
        for before in job.vertices[:position]:
            records *= before.selectivity
        read, written = float(int(records)), float(int(records * vertex.selectivity))
        last, first = position == len(job.vertices) - 1, position == 0
        busy_ms: Any = "NaN" if vertex.cost_s is None else 1000 * vertex.cost_s * read
        idle_ms = 0.0 if vertex.cost_s is None else 1000 * lived_s * vertex.parallelism - busy_ms
        return {
            "read-records": 0 if first else read,
            "write-records": 0 if last else written,
            "write-bytes": 40 * written,
            "accumulated-busy-time": busy_ms,
            "accumulated-idle-time": idle_ms,
            "accumulated-backpressured-time": 0,
        }

    def _job(self, job: FakeJob) -> dict[str, Any]:
        vertices = [
            {
                "id": vertex.id,
                "name": vertex.name,
                "parallelism": vertex.parallelism,
                "maxParallelism": 128,
                "status": "RUNNING",
                "slotSharingGroupId": "a" * 32,
                "start-time": self._ms(job.started_s) + job.attempt,
                "metrics": self.metrics(job, position),
            }
            for position, vertex in enumerate(job.vertices)
        ]
        nodes = [
            {"id": vertex.id, "parallelism": vertex.parallelism, "description": vertex.name}
            | ({"inputs": [{"num": 0, "id": job.vertices[i - 1].id, "ship_strategy": "HASH"}]} if i else {})
            for i, vertex in enumerate(job.vertices)
        ]
        begun, now = self._ms(job.started_s), self._ms(self.now_s)
        head = {"jid": job.id, "name": job.name, "state": job.state, "start-time": begun, "now": now}
        return head | {"job-type": "STREAMING", "vertices": vertices, "plan": {"jid": job.id, "nodes": nodes}}

    def _vertex(self, job: FakeJob, id_: str) -> dict[str, Any] | None:
        position = next((i for i, vertex in enumerate(job.vertices) if vertex.id == id_), None)
        if position is None:
            return None
        vertex, metrics = job.vertices[position], self.metrics(job, position)
        parts = {
            name: value / vertex.parallelism if isinstance(value, float) else value for name, value in metrics.items()
        }
        subtasks = [
            {"subtask": i, "status": "RUNNING", "attempt": job.attempt, "metrics": parts}
            | {"taskmanager-id": self.places[i % len(self.places)], "endpoint": "10.0.0.1:6122"}
            for i in range(vertex.parallelism)
        ]
        return {
            "id": id_,
            "name": vertex.name,
            "parallelism": vertex.parallelism,
            "subtasks": subtasks,
        }
