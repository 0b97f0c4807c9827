"""Small answers of Flink, as its REST API gives them, and polls made of them."""

from __future__ import annotations

from typing import Any

from engine.connectors.flink_polls import poll_flink
from engine.connectors.picture import CounterPoll

__all__ = ["JOB", "NOW_MS", "cluster", "job_answer", "poll", "taskmanager", "vertex"]

JOB = "a" * 32
NOW_MS = 1_700_000_100_000


def vertex(
    id_: str,
    name: str,
    *inputs: str | tuple[str, str],
    parallelism: int = 1,
    description: str = "",
    read: Any = 0,
    written: Any = 0,
    busy: Any = 0,
    idle: Any = 0,
    held: Any = 0,
    start: int = 1,
    **metrics: Any,
) -> dict[str, Any]:
    """A vertex with its node of the plan under `node`; inputs by id, or id and strategy."""
    edges = [entry if isinstance(entry, tuple) else (entry, "FORWARD") for entry in inputs]
    node = {"id": id_, "parallelism": parallelism, "description": description or f"{name}<br/>"}
    if edges:
        node["inputs"] = [{"num": i, "id": e, "ship_strategy": s} for i, (e, s) in enumerate(edges)]
    counters = {"read-records": read, "write-records": written, "accumulated-busy-time": busy}
    counters |= {"accumulated-idle-time": idle, "accumulated-backpressured-time": held}
    return {
        "id": id_,
        "name": name,
        "parallelism": parallelism,
        "maxParallelism": -1,
        "slotSharingGroupId": "g",
        "status": "RUNNING",
        "start-time": start,
        "metrics": counters | {key.replace("_", "-"): value for key, value in metrics.items()},
        "node": node,
    }


def job_answer(*vertices: dict[str, Any], now_ms: float = NOW_MS, **fields: Any) -> dict[str, Any]:
    """The answer of a job; nodes of its plan come last vertex first, as Flink may give them."""
    rows = [{key: value for key, value in row.items() if key != "node"} for row in vertices]
    answer = {
        "jid": JOB,
        "name": "orders",
        "state": "RUNNING",
        "job-type": "STREAMING",
        "start-time": 1_700_000_000_000,
    }
    plan = {"jid": JOB, "nodes": [row["node"] for row in reversed(vertices)]}
    return answer | {"now": now_ms, "vertices": rows, "plan": plan, "field-of-tomorrow": 1} | fields


def taskmanager(id_: str = "tm1", host: str = "10.0.0.1", slots: int = 2, **fields: Any) -> dict[str, Any]:
    resource = {
        "cpuCores": 2.0,
        "taskHeapMemory": 256,
        "managedMemory": 64,
        "networkMemory": 32,
        "taskOffHeapMemory": 0,
    }
    row = {"id": id_, "path": f"pekko.tcp://flink@{host}:35023/user/rpc/taskmanager_0", "slotsNumber": slots}
    row |= {"timeSinceLastHeartbeat": 1_700_000_099_000, "totalResource": resource}
    return row | {"hardware": {"cpuCores": 8, "physicalMemory": 17_179_869_184}} | fields


def cluster(*vertices: dict[str, Any], place: str = "tm1", **answers: Any) -> dict[str, Any]:
    """Answers of a cluster of one TaskManager with one job of these vertices, all subtasks there."""
    parts: dict[str, Any] = {
        "/overview": {"flink-version": "2.3.0", "taskmanagers": 1},
        "/jobs/overview": {"jobs": [{"jid": JOB, "name": "orders", "state": "RUNNING"}]},
        "/taskmanagers": {"taskmanagers": [taskmanager()]},
        "/jobmanager/config": [{"key": "metrics.fetcher.update-interval", "value": "1000"}],
        f"/jobs/{JOB}": job_answer(*vertices),
    }
    for row in vertices:
        subtasks = [{"subtask": i, "taskmanager-id": place, "attempt": 0} for i in range(row["parallelism"])]
        parts[f"/jobs/{JOB}/vertices/{row['id']}"] = {"id": row["id"], "subtasks": subtasks}
    return parts | answers


def poll(at_s: float, *vertices: dict[str, Any], load: float | None = None, cpu_s: float | None = None) -> CounterPoll:
    """A poll of these vertices `at_s` seconds after a beginning."""
    answers: dict[str, Any] = {f"/jobs/{JOB}": job_answer(*vertices, now_ms=NOW_MS + at_s * 1000)}
    metrics = [("Status.JVM.CPU.Load", load), ("Status.JVM.CPU.Time", None if cpu_s is None else cpu_s * 1e9)]
    answers["/taskmanagers/tm1/metrics?get=cpu"] = [{"id": k, "value": str(v)} for k, v in metrics if v is not None]
    return poll_flink(answers, JOB, 0.0)
