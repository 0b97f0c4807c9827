"""Engine level: estimates and verdicts on one cluster, step by step, in a process of its own."""

from __future__ import annotations

import resource
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from engine.admission.answer import AdmissionDecision
from engine.admission.decision import decide, open_decision
from engine.document.deployment import Deployment
from engine.estimation.base import EstimateBase
from engine.estimation.estimate import estimate
from lab.benchmarks.scale.clusters import MACE_EVERY, OPERATORS, SLICES, candidate_document, cluster_document
from lab.benchmarks.scale.figures import ScaleFigure, Target
from lab.benchmarks.scale.steps import ScaleStep
from lab.benchmarks.scale.work import WorkCount, count_work

__all__ = ["ENGINE_STEPS", "ENGINE_TARGETS", "engine_memory_bytes", "run_engine_steps", "verdict_work"]

_WARMUP_QUERIES = 16

COLD, WARM, WARM_P95 = "verdict, first (cold)", "verdict, warm, p50", "verdict, warm, p95"
PARTS, CHANGE, WHOLE = "verdict with all its parts", "estimates after one change", "estimate of everything"
MEMORY, PEAK = "memory beside mapped files, at the end", "memory, peak"
WORK = {
    "work of a verdict, replicas": "replicas",
    "work of a verdict, stages of walks": "stages",
    "work of a verdict, reports": "reports",
    "work of a verdict, calls": "calls",
}
_COUNTED = 5  # candidates whose work is counted

ENGINE_TARGETS = (
    Target(WARM, 0.5),
    Target(WARM_P95, 2.0),
    Target(WARM, 0.3, queries=100),
    Target(WARM, 1.5, over=1000),
    Target(PARTS, 15.0),
    Target(CHANGE, 2.0),
    Target(WHOLE, 60.0),
    Target(MEMORY, 1.0),
    *(Target(name, 1.5, queries=1000, over=100) for name in WORK),
)


@dataclass
class _EngineRun:
    """A cluster under measurement; each step leaves the figures it found."""

    kind: str
    queries: int
    load: float
    candidates: int
    figures: list[ScaleFigure] = field(default_factory=list)
    deployment: Deployment | None = None

    def build(self) -> None:
        document = cluster_document(self.kind, self.queries, load=self.load)
        with _Watch(self, "reading the document"):
            self.deployment = Deployment.parse(document)

    def cold(self) -> None:
        """The first verdict of a process: what runs is estimated for it."""
        with _Watch(self, COLD) as watch:
            watch.note = self._verdict(0)

    def warm(self) -> None:
        """Verdicts about different candidates in turn, each on the cluster as it was."""
        walls_s, cpus_s, verdicts = [], [], Counter[str]()
        for number in range(1, self.candidates + 1):
            cpu_s, began_s = time.process_time(), time.perf_counter()
            verdict = self._verdict(number)
            walls_s.append(time.perf_counter() - began_s)
            cpus_s.append(time.process_time() - cpu_s)
            verdicts[verdict] += 1
        note = f"{self.candidates} candidates: " + ", ".join(f"{n} {name}" for name, n in verdicts.items())
        self._take(WARM, statistics.median(walls_s), cpu_s=statistics.median(cpus_s), note=note)
        self._take(WARM_P95, float(np.quantile(walls_s, 0.95)), cpu_s=float(np.quantile(cpus_s, 0.95)))

    def change(self) -> None:
        """Estimates of what a change concerns, as after an apply: from what is kept of before."""
        base = EstimateBase.of(self._placed, MACE_EVERY)
        after = _faster_operator(self._placed)
        base.changed(after)  # what a base keeps for all changes is not of this one
        with _Watch(self, CHANGE) as watch:
            changed = base.changed(after).realised()
            watch.note = f"{len(changed.queries)} queries estimated anew"

    def parts(self) -> None:
        """A verdict with how much it stands, alternatives and curves."""
        with _Watch(self, PARTS) as watch:
            candidate = candidate_document(0, self.queries)
            watch.note = _decided(decide(self._placed, candidate, mace_every=MACE_EVERY))

    def whole(self) -> None:
        """The estimate of everything with random costs, from nothing."""
        with _Watch(self, WHOLE):
            estimate(self._placed, mace_every=MACE_EVERY)

    def work(self) -> None:
        """Work of a verdict about a candidate with places, on average: a verdict changes what is on these cores."""
        counts = verdict_work(self._placed, self.kind, self.queries, range(_COUNTED))
        for name, key in WORK.items():
            self._take(name, statistics.fmean(getattr(count, key) for count in counts), unit="")

    def memory(self) -> None:
        anonymous = _status_bytes("RssAnon")
        if anonymous is not None:
            self._take(MEMORY, anonymous / 1e9, unit="GB")
        self._take(PEAK, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9, unit="GB")

    @property
    def _placed(self) -> Deployment:
        assert self.deployment is not None
        return self.deployment

    def _verdict(self, number: int) -> str:
        """Verdict about a candidate, without the parts of a decision that follow it."""
        candidate = candidate_document(number, self.queries)
        return open_decision(self._placed, candidate, mace_every=MACE_EVERY).decision.verdict

    def _take(self, name: str, value: float, **more: Any) -> None:
        self.figures.append(ScaleFigure(name, self.kind, self.queries, value, **more))


def verdict_work(deployment: Deployment, kind: str, queries: int, numbers: Iterable[int]) -> list[WorkCount]:
    """Work of verdicts about candidates that ask for places, on what is known of the cluster."""
    open_decision(deployment, candidate_document(0, queries), mace_every=MACE_EVERY)
    counts = []
    for number in numbers:
        candidate = candidate_document(number, queries, kind=kind)
        with count_work() as count:
            open_decision(deployment, candidate, mace_every=MACE_EVERY)
        counts.append(count)
    return counts


class _Watch:
    """Wall and CPU seconds of a block, taken as a figure."""

    def __init__(self, run: _EngineRun, name: str) -> None:
        self._run, self._name, self.note = run, name, ""

    def __enter__(self) -> _Watch:
        self._cpu_s, self._began_s = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        wall_s, cpu_s = time.perf_counter() - self._began_s, time.process_time() - self._cpu_s
        if failure is None:
            self._run._take(self._name, wall_s, cpu_s=cpu_s, note=self.note)


ENGINE_STEPS = (
    ScaleStep("build", ("reading the document",)),
    ScaleStep("cold", (COLD,)),
    ScaleStep("warm", (WARM, WARM_P95), needs="cold"),
    ScaleStep("parts", (PARTS,), needs="cold"),
    ScaleStep("change", (CHANGE,), needs="cold"),
    ScaleStep("whole", (WHOLE,)),
    ScaleStep("work", tuple(WORK), needs="cold"),
    ScaleStep("memory", (MEMORY, PEAK)),
)


def run_engine_steps(settings: Mapping[str, Any], said: Connection, steps: list[str]) -> None:
    """Run steps in turn, each followed by the figures it found; compiled functions are loaded before the first."""
    _run_all(_EngineRun("uniform", _WARMUP_QUERIES, 1.0, 1), [step.name for step in ENGINE_STEPS], lambda figures: None)
    said.send([])
    run = _EngineRun(**settings)
    if steps[0] != "build":  # an earlier process did not finish a step; what it had measured is not measured again
        _run_all(run, ["build", "cold"] if steps[0] == "warm" else ["build"], lambda figures: None)
    said.send([])
    _run_all(run, steps, said.send)


def _run_all(run: _EngineRun, steps: list[str], tell: Callable[[list[ScaleFigure]], None]) -> None:
    for step in steps:
        run.figures = []
        getattr(run, step)()
        tell(run.figures)


def engine_memory_bytes(queries: int, slices: int = SLICES) -> int:
    """About what the steps need at most: times and latencies of all operators, slice by slice, and the walk's paths."""
    return 400_000_000 + OPERATORS * queries * slices * _BYTES_PER_CELL


_BYTES_PER_CELL = 60  # of an operator in a slice, as measured from 1,000 queries


def _faster_operator(deployment: Deployment) -> Deployment:
    """The deployment with other statistics of one operator, as measurements bring them."""
    operators = list(deployment.operators)
    at = len(operators) // 2
    entry = operators[at].inputs[0]
    changed = replace(entry, cycles_per_event=0.9 * (entry.cycles_per_event or 1.0))
    operators[at] = replace(operators[at], inputs=(changed, *operators[at].inputs[1:]))
    return replace(deployment, operators=tuple(operators))


def _decided(decision: AdmissionDecision) -> str:
    return f"{decision.verdict}, {len(decision.alternatives)} alternatives"


def _status_bytes(key: str) -> int | None:
    """A line of this process's status; None where the system has none."""
    path = Path("/proc/self/status")
    lines = path.read_text().splitlines() if path.exists() else []
    values = [line.split()[1] for line in lines if line.startswith(f"{key}:")]
    return int(values[0]) * 1024 if values else None
