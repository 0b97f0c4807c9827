"""Recorded answers of a real Flink, where they are at hand: folders of answers, and runs as polls of counters."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.connectors.flink import poll_flink, read_flink
from engine.connectors.picture import CounterPoll, EngineJob, EnginePicture

__all__ = ["DATA", "RUNS", "answers_of", "job_of", "latencies_of", "meta_of", "picture_of", "polls_of"]

ROOT = Path(__file__).resolve().parents[3]
CASES = Path(os.environ.get("SLUICE_CASES") or ROOT.parent / "shared" / "cases")
DATA = CASES.parent / "data" / "flink"
RUNS = sorted(path.name.removeprefix("run_") for path in DATA.glob("run_*") if (path / "meta.json").exists())
_METRICS = {
    "read-records": "numRecordsIn",
    "write-records": "numRecordsOut",
    "accumulated-busy-time": "accumulateBusyTimeMs",
    "accumulated-idle-time": "accumulateIdleTimeMs",
    "accumulated-backpressured-time": "accumulateBackPressuredTimeMs",
}


def answers_of(folder: str) -> dict[str, Any]:
    """Answers of one recorded folder by the path that was asked."""
    answers = {}
    for line in (DATA / folder / "INDEX.tsv").read_text().splitlines():
        name, _, path = line.split("\t")
        file = DATA / folder / f"{name}.json"
        if file.exists():
            answers[path] = json.loads(file.read_text())
    return answers


def picture_of(folder: str) -> EnginePicture:
    return read_flink(answers_of(folder), 1795370000.0)


def meta_of(run: str) -> dict[str, Any]:
    meta: dict[str, Any] = json.loads((DATA / f"run_{run}" / "meta.json").read_text())
    return meta


def latencies_of(run: str) -> list[float]:
    """Seconds from the scheduled arrival of each result's event to the result."""
    lines = (DATA / f"run_{run}" / "latency.csv").read_text().splitlines()[1:]
    return [float(line.split(",")[2]) for line in lines]


def job_of(run: str) -> EngineJob:
    return picture_of(f"run_{run}/rest").jobs[0]


def polls_of(run: str) -> list[CounterPoll]:
    """The run's counters, second by second, as the job's own answer would have told them."""
    return list(_polls(run))


def _polls(run: str) -> Iterator[CounterPoll]:
    meta, job = meta_of(run), job_of(run)
    answer = answers_of(f"run_{run}/rest")[f"/jobs/{job.id}"]
    for line in (DATA / f"run_{run}" / "series.jsonl").read_text().splitlines():
        row = json.loads(line)
        by_vertex = {id_: row[f"v{i}"] for i, id_ in enumerate(meta["order"])}
        vertices = [vertex | {"metrics": _metrics(by_vertex[vertex["id"]])} for vertex in answer["vertices"]]
        cpu = [{"id": id_, "value": value} for id_, value in row["tm"].items()]
        answers = {
            f"/jobs/{job.id}": answer | {"now": row["t"] * 1000, "vertices": vertices},
            "/taskmanagers/tm1/metrics?get=Status.JVM.CPU.Load,Status.JVM.CPU.Time": cpu,
        }
        yield poll_flink(answers, job.id, row["t"])


def _metrics(sums: dict[str, Any]) -> dict[str, Any]:
    return {name: sums[metric] for name, metric in _METRICS.items() if metric in sums}
