"""Predictions of queries that never ran, side by side in one run: ``./sluice lab costream [--quick | --training N]``.

All contenders are trained on the same simulated traces: a constant, the fluid, flat boosting, the graph network as
published (where PyTorch is there) and the fluid with its residual. Printed are errors on held-out traces, by shape and
by the weakest host; on hosts between those that were trained; on shapes and chains that were not; on another engine;
on the real executions that come with Sluice; what intervals hold; and whether the distance tells where the residual
errs. Needs scikit-learn (lab/requirements.txt). Targets count at full size; smaller ones show them. On two cores 4,000
traces to train on take less than ten minutes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.costream.adaptation import Observation
from engine.costream.residual import COSTS
from engine.query_graph.graph import CostTrace, TraceLabel
from engine.simulation.cohort import TraceSettings
from engine.simulation.cohort_tables import OTHER_ENGINE
from lab.benchmarks.costream_executions import (
    FLINK_EXECUTIONS,
    SHIPPED_EXECUTIONS,
    judged_observations,
    read_executions,
)
from lab.benchmarks.machine import machine
from lab.simulation.cohort_shapes import UNSEEN_RANGES, UNSEEN_SHAPES
from lab.training.boosted_trees import SKLEARN_MISSING
from lab.training.dataset import CorpusOrigin, TraceSet

if TYPE_CHECKING:
    from lab.benchmarks.costream_contenders import Contender

__all__ = ["main"]

_SEED = 15
_COVERAGE = (0.88, 0.93)  # of intervals that are to hold 90 %
_WORSE = 1.02  # times the fluid's median error less 1 that counts as no worse
_FULL, _QUICK = 16_000, 1_500  # traces to train on
_MOST = 100_000
_EPOCHS = 40  # of the network
_SHAPES, _HOSTS = ("linear", "two-way", "three-way"), ("weak", "medium", "strong")


def main(arguments: Sequence[str] = ()) -> int:
    """Print all tables; returns 1 if a target is missed at full size."""
    parser = argparse.ArgumentParser(
        prog="sluice lab costream", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help=f"{_QUICK:,} traces to train on: a few minutes")
    size.add_argument("--training", type=int, default=_FULL, metavar="N", help=f"traces to train on ({_FULL:,})")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="processes (default: one per core)")
    parser.add_argument("--placements", action="store_true", help="first placements of contested queries as well")
    options = parser.parse_args(list(arguments))
    if not _QUICK <= options.training <= _MOST:
        parser.error(f"--training is {options.training:,}; allowed: {_QUICK:,} to {_MOST:,}")
    if find_spec("sklearn") is None:
        print(SKLEARN_MISSING, file=sys.stderr)
        return 1
    training = _QUICK if options.quick else options.training
    met = _Benchmark(training, max(1, options.processes)).run(options.placements)
    return 0 if met or training < _FULL else 1


class _Benchmark:
    """A run: its traces, its contenders, and its tables in order."""

    def __init__(self, training: int, processes: int) -> None:
        from lab.benchmarks.costream_traces import Workshop

        self.training = training
        self.validation, self.test = max(500, 3 * training // 16), max(400, training // 8)
        self.unseen = max(100, training // 16)
        self.processes, self.workshop = processes, Workshop(_SEED, processes)
        self.begin = time.monotonic()
        self.missed: list[str] = []

    def run(self, has_placements: bool) -> bool:
        """Whether all targets are met."""
        from lab.benchmarks.costream_contenders import all_contenders
        from lab.training.costream import train_ensemble

        print(f"Machine: {machine()}; load {os.getloadavg()[0]:.1f}")
        every = self.workshop.traces("main", self.training + self.validation + self.test)
        first, second = self.training, self.training + self.validation
        training, validation = every.subset(range(first)), every.subset(range(first, second))
        test = every.subset(range(second, len(every)))
        self._note("traces")
        ensemble = train_ensemble(training, validation, version="benchmark")
        contenders = all_contenders(training, validation, ensemble, _EPOCHS)
        begin, end = ensemble.arrays["shrinkage"]
        print(f"The residual is shrunk between distances {begin:g} and {end:g}")
        self._note("contenders")
        self._print("Held out", contenders, test)
        for words, of_trace in ((_SHAPES, np.minimum(test.facts.joins, 2)), (_HOSTS, test.facts.weakest)):
            for i, word in enumerate(words):
                self._print(f"Held out, {word}", contenders, test.subset(of_trace == i), is_judged=False)
        between = self.workshop.traces("between", self.unseen, TraceSettings(ranges=UNSEEN_RANGES))
        self._print("Hosts between those that were trained", contenders, between)
        unseen = {
            shape: self.workshop.traces(shape, self.unseen, TraceSettings(shapes={shape: 1.0}))
            for shape in UNSEEN_SHAPES
        }
        for shape, traces in unseen.items():
            self._print(f"Unseen shape, {shape}", contenders, traces)
        other = self.workshop.traces("other engine", self.unseen, TraceSettings(world=OTHER_ENGINE))
        self._print("Another engine", contenders, other, is_judged=False)
        for words, path in (("processes under quotas", SHIPPED_EXECUTIONS), ("Flink", FLINK_EXECUTIONS)):
            self._print(f"Real executions, {words}", contenders, _executed(path), is_judged=False)
        self._print_distance(contenders[-1], [test, between, *unseen.values()])
        if has_placements:
            from lab.benchmarks.costream_placement import print_contested, print_startup

            print_contested(contenders, 20, 6_000, self.processes, _SEED)
            print_startup(contenders[-1], 100, self.processes, _SEED)
        print(f"\nMissed targets: {'; '.join(self.missed) or 'none'}; {self._minutes():.1f} minutes in all")
        return not self.missed

    def _print(self, title: str, contenders: Sequence[Contender], traces: TraceSet, *, is_judged: bool = True) -> None:
        from lab.benchmarks.costream_contenders import print_errors

        rows = [(contender.name, contender.errors(traces)) for contender in contenders]
        print_errors(f"{title}: {len(traces)} traces", rows)
        if is_judged:
            self._judge(title, rows[-1][1])

    def _judge(self, title: str, errors: dict[str, Any]) -> None:
        for cost in COSTS:
            own = errors[cost]
            if own["q50"] is None:
                continue
            if own["q50"] - 1.0 > _WORSE * (own["fluid"]["q50"] - 1.0) and own["q95"] > own["fluid"]["q95"]:
                self.missed.append(f"{title}: {cost} is worse than the fluid")
            if not _COVERAGE[0] <= own["coverage"] <= _COVERAGE[1]:
                self.missed.append(f"{title}: intervals of {cost} hold {own['coverage']:.1%}")

    def _print_distance(self, contender: Contender, sets: Sequence[TraceSet]) -> None:
        """Errors and what intervals hold by distance, over all sets."""
        distances, errors, held = [], [], []
        for traces in sets:
            answers, ok = contender.answers(traces), traces.success
            assert answers.distance is not None and answers.ends is not None
            low, high = answers.ends
            distances.append(answers.distance[ok])
            errors.append(np.abs(traces.targets - answers.centre)[ok])
            held.append(((low <= traces.targets) & (traces.targets <= high))[ok])
        distance, error, inside = (np.concatenate(parts) for parts in (distances, errors, held))
        print("\nBy distance from what was trained: runs, q0.5 of T, Lp and Le, and what their intervals hold")
        bounds = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, np.inf]
        for low_end, high_end in pairwise(bounds):
            rows = (distance >= low_end) & (distance < high_end)
            if rows.any():
                medians = ", ".join(f"{value:.3f}" for value in np.exp(np.median(error[rows], axis=0)))
                shares = ", ".join(f"{100 * value:.1f}" for value in inside[rows].mean(axis=0))
                print(f"  {low_end:3.1f} to {high_end:3.1f}{rows.sum():7}   {medians}   {shares}")

    def _note(self, what: str) -> None:
        print(f"({what}: {self._minutes():.1f} minutes)", file=sys.stderr, flush=True)

    def _minutes(self) -> float:
        return (time.monotonic() - self.begin) / 60


def _executed(path: Path) -> TraceSet:
    """Real executions as a trace set; costs and votes that they are no proof of are left out."""
    observed, _ = judged_observations(read_executions(path))
    traces = [_labelled(entry) for entry in observed if entry.success is not None]
    return TraceSet.of_traces(CorpusOrigin(path.name, "", "real", "", None, ""), traces)


def _labelled(entry: Observation) -> CostTrace:
    return replace(entry.trace, label=TraceLabel(*entry.costs, 0.0, bool(entry.backpressure), bool(entry.success)))
