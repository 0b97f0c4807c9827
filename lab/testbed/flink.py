"""Flink across hosts: ``./sluice lab testbed flink``. One TaskManager on each, with CPU quotas and links of their own.

A job with exchanges between all hosts runs on three alike ones, with a slow host, and with a slow link. Its largest
rate and its latencies are predicted from a light load, and measured. Costs are those that its counters tell of all
hosts together; links are told to the prediction, since no engine knows them.
"""

from __future__ import annotations

import gc
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from engine.connectors.flink import read_flink
from engine.errors import DocumentError
from lab.benchmarks.flink.client import SCHEDULED_JOB, FlinkClient, FlinkRefusal, compiled_jar
from lab.benchmarks.flink.runs import RunFailed
from lab.benchmarks.flink_jobs.jobs import SOURCE, StreamJob
from lab.benchmarks.flink_jobs.runs import run_phase
from lab.benchmarks.machine import machine
from lab.benchmarks.nexmark.prediction import predict_query
from lab.benchmarks.nexmark.runs import QueryRun, Timing
from lab.benchmarks.nexmark.table import ScoredQuery, latency_table, rate_table
from lab.testbed.testbed import Host, Testbed
from launcher.engines.flink import FlinkCluster, FlinkHost, FlinkOptions
from launcher.engines.flink_package import fetch_flink
from launcher.output import Terminal
from launcher.places import free_port, var_dir
from launcher.runner import ProcessRunner, Stopped

__all__ = ["SCENES", "FlinkScene", "ScoredScene", "links_between", "report_flink"]

_JOB = StreamJob("exchanges", (2000, 3000), (15,))
_LOADS = (1, 5)
_SATURATING = 40
_SETTINGS = {
    "taskmanager.memory.task.heap.size": "192m",
    "taskmanager.memory.network.min": "64m",
    "taskmanager.memory.network.max": "64m",
    "metrics.fetcher.update-interval": "1000",
}


@dataclass(frozen=True, slots=True)
class FlinkScene:
    """Hosts of one run."""

    name: str
    hosts: tuple[Host, ...]


def _hosts(*sizes: tuple[float, float]) -> tuple[Host, ...]:
    return tuple(Host(f"host{number}", *size) for number, size in enumerate(sizes, start=1))


SCENES = (
    FlinkScene("alike", _hosts((0.5, 100.0), (0.5, 100.0), (0.5, 100.0))),
    FlinkScene("slow host", _hosts((0.5, 100.0), (0.5, 100.0), (0.2, 100.0))),
    FlinkScene("slow link", _hosts((0.5, 100.0), (0.5, 100.0), (0.5, 0.5))),
)


class ScoredScene(ScoredQuery):
    """The job on the hosts of a scene; `query` is the scene's name."""

    @property
    def statistics(self) -> tuple[str, ...]:
        return _JOB.statistics


def report_flink(*, seconds: float, scenes: Sequence[FlinkScene] = SCENES) -> int:
    """Print the hosts of each scene as they were imported, and what was predicted and measured.

    1 where a scene could not be run.
    """
    signal.signal(signal.SIGTERM, _stop)
    print(f"Machine: {machine()}\n")
    print(
        "| scene | host | cores | link (Mbit/s) | imported cores | load of the machine |\n|" + " --- |" * 6, flush=True
    )
    rows = []
    for scene in scenes:
        run = QueryRun(scene.name, "compute", _JOB.rates[0])
        try:
            for name in _run(scene, run, Timing(calm_s=2.0 * seconds, load_s=seconds, warm_s=6.0)):
                phase = run.phases[name]
                told = f"{phase.rate_per_s:.0f} of {phase.asked_per_s} events/s"
                print(f"{scene.name} {name}: {told}", file=sys.stderr, flush=True)
        except (RunFailed, FlinkRefusal) as failure:
            run.failure = str(failure).splitlines()[-1]
        rows.append(_score(scene, run))
    print("\n".join(["", rate_table(rows), latency_table(rows)]))
    return int(any(row.failure for row in rows))


def _stop(*_: object) -> None:
    raise Stopped


def _run(scene: FlinkScene, run: QueryRun, timing: Timing) -> Iterator[str]:
    """Start the hosts with their Flink, run every phase on them; the name of each once the run has it.

    Hosts have all cores until the TaskManagers have joined: a small one would take minutes to start.
    """
    runner = ProcessRunner(Terminal(sys.stderr), var_dir() / "log")
    fetch_flink(runner.console)
    started = [Host(host.name, None, host.mbit_s) for host in scene.hosts]
    with Testbed(started) as bed, tempfile.TemporaryDirectory(prefix="sluice-flink-hosts-") as scratch:
        places = [FlinkHost(bed.address(h.name), tuple(bed.command(h.name, ())), h.cores) for h in scene.hosts]
        options = FlinkOptions(
            free_port(), slots=1, settings=_SETTINGS, address=bed.machine_address, hosts=tuple(places)
        )
        cluster = FlinkCluster(var_dir() / "flink-hosts", options)
        try:
            cluster.start(runner)
            for host in scene.hosts:
                bed.limit(host.name, cores=host.cores)
            with closing(FlinkClient(cluster.url)) as client:
                jar = client.upload(
                    compiled_jar(SOURCE, cluster.ports["gateway"], main="FlinkJobs", uses=[SCHEDULED_JOB])
                )
                phases = [*((f"load {times}", times) for times in _LOADS), ("saturated 1", _SATURATING)]
                for name, times in phases:
                    run.phases[name] = run_phase(
                        client, jar, _JOB, run.work, timing, Path(scratch), times, len(scene.hosts)
                    )
                    yield name
        finally:
            gc.collect()  # objects of Java that are let go of later would ask a gateway that has gone
            runner.stop()


def _score(scene: FlinkScene, run: QueryRun) -> ScoredScene:
    """Answers from the light load; the hosts are printed as they were imported."""
    if "load 1" not in run.phases:
        return ScoredScene(scene.name, run, None, run.failure)
    phase = run.phases["load 1"]
    places = sorted(read_flink(phase.picture, phase.polls[-1][0]).places, key=lambda place: place.name)
    for host, place in zip(scene.hosts, places, strict=True):
        cells = [scene.name, host.name, f"{host.cores:g}", f"{host.mbit_s:g}", f"{place.cores:g}", f"{phase.load:.1f}"]
        print(f"| {' | '.join(cells)} |", flush=True)
    links = list(links_between({place.name: host for place, host in zip(places, scene.hosts, strict=True)}))
    try:
        return ScoredScene(scene.name, run, predict_query(phase, has_beats=False, links=links), run.failure)
    except DocumentError as error:
        return ScoredScene(scene.name, run, None, f"not imported: {error}")


def links_between(hosts: Mapping[str, Host]) -> Iterator[dict[str, object]]:
    """Links between nodes of a document: what goes from one to another is held to the slower of their two links."""
    for source, a in hosts.items():
        for target, b in hosts.items():
            if source != target and a.mbit_s is not None and b.mbit_s is not None:
                yield {"from": source, "to": target, "bandwidth_bytes_s": min(a.mbit_s, b.mbit_s) * 1e6 / 8}
