"""Rounds of a Flink's answers as people record or serve them: small, whole, and by the documented shape."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.apps.connections.engine_server import Reply

__all__ = ["TASKMANAGER", "LiveFlink", "RecordedJob", "RecordedVertex", "rounds_of"]

TASKMANAGER = "10.0.0.5:6122-a1b2c3"
BEGUN_S = 1_750_000_000.0


def digest(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class RecordedVertex:
    """A vertex that takes `rate` events/s, each for `cost_s`, and puts out as many; `inputs` are names, one an edge."""

    name: str
    rate: float = 200.0
    cost_s: float = 0.0005
    inputs: tuple[str, ...] = ()
    description: str = ""
    parallelism: int = 1
    strategy: str = "HASH"

    def metrics(self, lived_s: float, part: float = 1.0) -> dict[str, Any]:
        events = int(self.rate * lived_s * part)
        busy_ms = 1000.0 * events * self.cost_s
        threads = 1 if part < 1.0 else self.parallelism
        return {
            "read-records": events if self.inputs else 0,
            "write-records": events,
            "write-bytes": 100 * events,
            "accumulated-busy-time": busy_ms,
            "accumulated-idle-time": max(0.0, 1000.0 * lived_s * threads - busy_ms),
            "accumulated-backpressured-time": 0,
        }


@dataclass(frozen=True)
class RecordedJob:
    """A job of such vertices; `answer` stands in place of its own one, as of a job that waits."""

    name: str
    vertices: tuple[RecordedVertex, ...] = ()
    state: str = "RUNNING"
    answer: dict[str, Any] | None = None

    @property
    def id(self) -> str:
        return digest(self.name)


def rounds_of(
    *jobs: RecordedJob, count: int = 14, step_s: float = 5.0, begun_s: float = BEGUN_S
) -> list[dict[str, Any]]:
    """Rounds of answers by path, `step_s` apart, the first of a minute after the jobs began."""
    return [round_of(jobs, begun_s, 60.0 + step_s * i) for i in range(count)]


def round_of(jobs: Sequence[RecordedJob], begun_s: float, lived_s: float) -> dict[str, Any]:
    begun_ms, now_ms = round(1000 * begun_s), round(1000 * (begun_s + lived_s))
    resource = {"cpuCores": 16.0, "taskHeapMemory": 1000, "managedMemory": 1000, "networkMemory": 200}
    place = {"id": TASKMANAGER, "path": "akka.tcp://flink@10.0.0.5:6122/user/rpc/taskmanager_0", "slotsNumber": 8}
    listing = [{"jid": job.id, "name": job.name, "state": job.state, "start-time": begun_ms} for job in jobs]
    cpu = [{"id": "Status.JVM.CPU.Load", "value": "0.1"}, {"id": "Status.JVM.CPU.Time", "value": str(lived_s * 1.1e9)}]
    answers: dict[str, Any] = {
        "/overview": {"taskmanagers": 1, "flink-version": "1.20.1"},
        "/jobs/overview": {"jobs": listing},
        "/taskmanagers": {"taskmanagers": [place | {"totalResource": resource, "hardware": {"cpuCores": 16}}]},
        "/jobmanager/config": [{"key": "metrics.fetcher.update-interval", "value": "1000"}],
        f"/taskmanagers/{TASKMANAGER}/metrics?get=Status.JVM.CPU.Load,Status.JVM.CPU.Time": cpu,
    }
    for job in jobs:
        head = {"jid": job.id, "name": job.name, "state": job.state, "start-time": begun_ms, "now": now_ms}
        if job.answer is not None:
            answers[f"/jobs/{job.id}"] = head | job.answer
            continue
        rows = [vertex_row(vertex, begun_ms, lived_s) for vertex in job.vertices]
        plan = {"jid": job.id, "type": "STREAMING", "nodes": [node_of(vertex) for vertex in job.vertices]}
        answers[f"/jobs/{job.id}"] = head | {"vertices": rows, "plan": plan}
        answers[f"/jobs/{job.id}/config"] = {"execution-config": {"user-config": {}}}
        answers[f"/jobs/{job.id}/checkpoints/config"] = {"interval": 60000}
        for vertex in job.vertices:
            subtasks = [subtask_of(vertex, i, lived_s) for i in range(vertex.parallelism)]
            answers[f"/jobs/{job.id}/vertices/{digest(vertex.name)}"] = {"subtasks": subtasks}
    return answers


def vertex_row(vertex: RecordedVertex, begun_ms: int, lived_s: float) -> dict[str, Any]:
    row = {"id": digest(vertex.name), "name": vertex.name, "parallelism": vertex.parallelism, "status": "RUNNING"}
    return row | {"start-time": begun_ms, "slotSharingGroupId": "g", "metrics": vertex.metrics(lived_s)}


def node_of(vertex: RecordedVertex) -> dict[str, Any]:
    node: dict[str, Any] = {"id": digest(vertex.name), "description": vertex.description or vertex.name}
    edges = [{"num": i, "id": digest(name), "ship_strategy": vertex.strategy} for i, name in enumerate(vertex.inputs)]
    return node | ({"inputs": edges} if edges else {})


def subtask_of(vertex: RecordedVertex, index: int, lived_s: float) -> dict[str, Any]:
    row = {"subtask": index, "attempt": 0, "taskmanager-id": TASKMANAGER}
    return row | {"metrics": vertex.metrics(lived_s, 1.0 / vertex.parallelism)}


@dataclass
class LiveFlink:
    """A job on a Flink by a clock that each answer about it moves, and a Prometheus with offsets of its topic.

    `now_s` is the present; the last of `polls` answers is of then. `came` are the series of offsets: labels, and events
    a second.
    """

    job: RecordedJob
    now_s: float
    came: Sequence[tuple[dict[str, str], float]] = ()
    polls: int = 14
    step_s: float = 5.0
    told: int = 0

    def reply(self, path: str) -> Reply:
        plain = unquote(path)
        if "/query_range" in plain:
            return Reply(self._offsets(path))
        if plain == f"/jobs/{self.job.id}":
            self.told += 1
        begun_s = self.now_s - 60.0 - self.step_s * self.polls
        answer = round_of([self.job], begun_s, 60.0 + self.step_s * min(self.told, self.polls)).get(plain)
        return Reply({"errors": ["Not found."]}, 404) if answer is None else Reply(answer)

    def _offsets(self, path: str) -> dict[str, Any]:
        asked = {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()}
        start, end, step = (float(asked[name]) for name in ("start", "end", "step"))
        times = [start + step * i for i in range(int((end - start) / step) + 1)] if "kafka" in asked["query"] else []
        rows = [
            {"metric": labels, "values": [[at, str(10_000_000 + rate * (at - self.now_s))] for at in times]}
            for labels, rate in self.came
        ]
        return {"status": "success", "data": {"resultType": "matrix", "result": rows if times else []}}
