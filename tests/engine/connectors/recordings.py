"""Recorded answers of a real Flink, where they are at hand: folders of answers, and runs as polls of counters.

``SLUICE_CASES=… python -m tests.engine.connectors.recordings`` prints what calm runs predict of the others, as
docs/models/connectors.md has it.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.command_options import EstimateOptions
from engine.connectors.document import ImportedPool, import_picture
from engine.connectors.flink import read_flink
from engine.connectors.flink_polls import poll_flink
from engine.connectors.picture import ArrivalCounts, CounterPoll, EngineJob, EnginePicture, JobSample
from engine.connectors.statistics import sample_job
from engine.estimation.estimate import command

__all__ = [
    "DATA",
    "RUNS",
    "answers_of",
    "job_of",
    "latencies_of",
    "meta_of",
    "picture_of",
    "polls_of",
    "pool_of",
    "predict",
    "sample_of",
]

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


def sample_of(run: str, *, every: int = 1, step_s: float | None = None) -> JobSample:
    """Statistics of a run from each `every`-th second of its counters."""
    places = picture_of(f"run_{run}/rest").places
    return sample_job(job_of(run), polls_of(run)[::every], places=places, step_s=step_s)


def pool_of(run: str, *, every: int = 1, tells_cpu: bool = True) -> ImportedPool:
    """The run's job as nodes and a query; without CPU figures the threads of a slot share a server."""
    sample = sample_of(run, every=every)
    kept = sample if tells_cpu else replace(sample, cpu_cores={})
    return import_picture(picture_of(f"run_{run}/rest"), {sample.job: kept})


def predict(pool: ImportedPool, arrivals: ArrivalCounts | Sequence[float], statistic: str) -> dict[str, Any]:
    """Report of the pool's query at these arrivals, with a minute after them to catch up in."""
    query = pool.queries[0]
    objective = {"query": query.name, "statistic": statistic, "bound_s": 5.0}
    document = pool.to_deployment({next(iter(query.sources)): arrivals}, 1.0, [objective], quiet_s=60.0)
    report: dict[str, Any] = command(document, EstimateOptions()).queries[query.name].to_dict()
    return report


def _row(calm: str, run: str, pool: ImportedPool, arrivals: ArrivalCounts | Sequence[float], note: str) -> str:
    latencies = latencies_of(run)
    cells = []
    for statistic, measured in (("worst", max(latencies)), ("mean", statistics.fmean(latencies))):
        report = predict(pool, arrivals, statistic)
        error = 100 * (report["estimate_s"] / measured - 1)
        interval = f"{report['low_s']:.2f} to {report['high_s']:.2f}"
        cells.append(f"{report['estimate_s']:.2f} ({interval}) / {measured:.2f}, {error:+.1f} %")
    return f"| {calm} | {run} | {note} | {' | '.join(cells)} |"


def _rows() -> Iterator[str]:
    yield "| statistics of | run | | max: predicted (interval) / measured | mean |"
    yield "| --- | --- | --- | --- | --- |"
    pairs = [("calm", "over"), ("calm", "twoburst"), ("calm", "calm"), ("overcpu", "overcpu"), ("calm", "overcpu")]
    for calm, run in pairs:
        yield _row(calm, run, pool_of(calm), meta_of(run)["arrivals"], "a thread is a server")
    for calm, run in (("calm", "over"), ("calm", "twoburst"), ("overcpu", "overcpu")):
        yield _row(calm, run, pool_of(calm, tells_cpu=False), meta_of(run)["arrivals"], "a slot is a server")
    for every in (5, 15):
        yield _row("calm", "over", pool_of("calm", every=every), meta_of("over")["arrivals"], f"polls of {every} s")
    for every in (1, 5, 15):
        for run in ("over", "twoburst"):
            counts = next(iter(sample_of(run, every=every).arrivals.values()))
            yield _row("calm", run, pool_of("calm"), counts, f"arrivals by polls of {every} s")


if __name__ == "__main__":
    print("\n".join(_rows()) if RUNS else "No recorded runs: name the folder of the cases as SLUICE_CASES.")
