"""Predictions of queries that never ran, side by side in one run: ``./sluice lab costream [--quick]``.

All contenders are trained on the same simulated traces: three flat baselines, the network as in the paper and the
recommended one; the noise floor is what four further runs of a trace say of it. Printed are errors over all test
traces, by type of query, by hardware and on the hard traces; on hardware, patterns and benchmarks that were not
trained; ablations; monotonicity; first placements of contested queries; and the start-up beside a monitoring scheduler.
Needs PyTorch and scikit-learn (lab/requirements.txt). Targets count at full size; the quick one shows them.
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
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.costream.prediction import COSTS, ensemble_bounds
from engine.costream.weights import WeightsError
from engine.query_graph.graph import CostTrace, HostNode
from lab.benchmarks.machine import machine
from lab.training.costream import TORCH_MISSING
from lab.training.dataset import TraceSet

if TYPE_CHECKING:
    from lab.benchmarks.costream_contenders import Contender, Sizes
    from lab.training.fit import FitSettings

__all__ = ["main"]

_SEED = 15
_MISSING = TORCH_MISSING.replace(
    "PyTorch is not installed, and training needs it", "PyTorch or scikit-learn is missing"
)

# Of the recommended network, with the simulator of the corpus; hard: on the traces where the anchor is off.
_FLOOR_FACTOR = 2.5  # (q0.5 - 1) at most so many times the floor's
_FAIR_SHARE = 0.25  # q0.95 at most so much of the fair flat baseline's
_MAX_HARD = {"q50": 1.30, "q95": 8.0}  # of Lp
_MAX_CHAIN_Q50 = {"T": 1.30, "Lp": 1.30}
_MAX_HIGHER, _HIGHER = 0.05, 1.05  # share of traces in which a better host may predict a latency so much higher
_COVERAGE = (0.78, 0.85)

_HARDWARE = {
    "cpu, %": lambda host: host.cpu_percent,
    "memory, MB": lambda host: host.ram_mb,
    "bandwidth, Mbit/s": lambda host: host.bandwidth_mbit_s,
    "latency, ms": lambda host: 1e3 * host.latency_s,
}


def main(arguments: Sequence[str] = ()) -> int:
    """Print all tables; returns 1 if a target is missed at full size."""
    parser = argparse.ArgumentParser(
        prog="sluice lab costream", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few traces and epochs: a few minutes")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="processes (default: one per core)")
    options = parser.parse_args(list(arguments))
    if find_spec("torch") is None or find_spec("sklearn") is None:
        print(_MISSING, file=sys.stderr)
        return 1
    met = _Benchmark(quick=options.quick, processes=max(1, options.processes)).run()
    return 0 if met or options.quick else 1


def _sizes(quick: bool) -> Sizes:
    from lab.benchmarks.costream_contenders import Sizes

    if quick:
        return Sizes(1500, 300, 400, 100, 100, 800, (100,), 12, 8, (1,), 3, 400, 10)
    return Sizes(16_000, 2_000, 2_000, 500, 500, 4_100, (100, 500, 3000), 40, 25, (1, 2, 3), 20, 6000, 100)


class _Benchmark:
    """A run: its traces, its contenders, and its sections in order."""

    def __init__(self, *, quick: bool, processes: int) -> None:
        from lab.benchmarks.costream_traces import Workshop

        self.sizes, self.processes = _sizes(quick), processes
        self.workshop = Workshop(_SEED, processes)
        self.begin = time.monotonic()
        self.missed: list[str] = []

    def run(self) -> bool:
        """Whether all targets are met."""
        from lab.benchmarks.costream_generalization import (
            print_benchmarks,
            print_chains,
            print_extrapolation,
            print_interpolation,
        )
        from lab.benchmarks.costream_placement import print_contested, print_startup

        sizes = self.sizes
        print(f"Machine: {machine()}")
        print(
            f"{sizes.training:,} traces to train on, {sizes.validation:,} for validation, {sizes.test:,} for test; "
            f"networks by {len(sizes.seeds)} seeds and at most {sizes.epochs} epochs; all simulated",
            flush=True,
        )
        every = self.workshop.traces("main", sizes.training + sizes.validation + sizes.test)
        first, second = sizes.training, sizes.training + sizes.validation
        training, validation = every.subset(range(first)), every.subset(range(first, second))
        test = every.subset(range(second, len(every)))
        self._note("traces")
        contenders = self._contenders(training, validation)
        self._note("contenders")
        self._print_accuracy(contenders, test)
        print_interpolation(contenders, self.workshop, sizes)
        chains = print_chains(contenders, training, test, self.workshop, sizes)[contenders[-1].name]
        for cost, most in _MAX_CHAIN_Q50.items():
            self._judge(f"q0.5 of {cost} on chains of four filters", chains[cost]["q50"], most)
        print_benchmarks(contenders, self.workshop, sizes)
        self._note("unseen queries")
        print_extrapolation(training, validation, self.workshop, sizes, self._settings("recommended"))
        self._note("extrapolation")
        self._print_ablations(contenders, training, validation, test)
        self._note("ablations")
        self._print_monotonicity(contenders[-1], test)
        if not print_contested(contenders, sizes, self.processes, _SEED):
            self.missed.append("placement of contested joins")
        self._note("contested queries")
        print_startup(contenders[-1], sizes, self.processes, _SEED)
        print(f"\nMissed targets: {'; '.join(self.missed) or 'none'}; {self._minutes():.1f} minutes in all")
        return not self.missed

    def _settings(self, form: str) -> FitSettings:
        from lab.training.fit import FitSettings

        return FitSettings(form=form, epochs=self.sizes.epochs)

    def _contenders(self, training: TraceSet, validation: TraceSet) -> list[Contender]:
        """Baselines, the shipped weights, the paper's network and the recommended one, which is last."""
        from engine.costream.prediction import shipped_ensemble
        from lab.benchmarks.costream_baselines import FLAT_KINDS
        from lab.benchmarks.costream_contenders import ensemble_contender, flat_contenders, network_contender
        from lab.training.costream import calibrated_scale

        contenders = flat_contenders(FLAT_KINDS, training)
        try:
            contenders.append(ensemble_contender("shipped weights", shipped_ensemble()))
        except WeightsError as error:
            print(f"  without the shipped weights: {error}")
        for form in ("plain", "recommended"):
            network = network_contender(
                f"network, {form}", training, validation, self._settings(form), self.sizes.seeds, self.processes
            )
            contenders.append(replace(network, scale=calibrated_scale(network.outputs(validation), validation)))
        return contenders

    def _print_accuracy(self, contenders: Sequence[Contender], test: TraceSet) -> None:
        from lab.benchmarks.costream_contenders import print_errors
        from lab.benchmarks.costream_traces import floor_outputs
        from lab.training.evaluation import QUERY_TYPES, cost_errors

        outputs, rerun = floor_outputs(test.subset(range(self.sizes.floor)), self.processes, _SEED)
        floor = cost_errors(outputs, rerun)
        errors = {contender.name: contender.errors(test) for contender in contenders}
        rows: list[tuple[str, Any]] = list(errors.items())
        floor_row = [(f"noise floor ({len(rerun)} traces)", floor)]
        print_errors(f"All {len(test)} test traces: q0.5/q0.95, balanced accuracy in %", rows + floor_row)
        print_errors("The hard of them (anchor off by more than 1.25)", rows + floor_row, hard=True)
        for name, result in rows:
            if "coverage" in result["T"]:
                shares = ", ".join(f"{cost} {100 * result[cost]['coverage']:.1f} %" for cost in COSTS)
                print(f"  80 % intervals hold, {name}: {shares}")
        kinds = np.minimum(test.joins, len(QUERY_TYPES) - 1)
        for i, name in enumerate(QUERY_TYPES):
            part = test.subset(kinds == i)
            rows = [(contender.name, contender.errors(part)) for contender in contenders]
            print_errors(f"By type, {name}: {len(part)} traces", rows)
        self._print_hardware(contenders[-1], test)
        self._judge_accuracy(errors, floor, contenders[-1].name)

    def _print_hardware(self, contender: Contender, test: TraceSet) -> None:
        """Errors by terciles of the mean of what the hosts of a trace have."""
        from lab.benchmarks.costream_contenders import print_errors

        rows = []
        for name, value in _HARDWARE.items():
            means = np.array([np.mean([value(t.hosts[j]) for j in set(t.placement)]) for t in test.traces])
            bounds = np.quantile(means, (0, 1 / 3, 2 / 3, 1))
            for low, high in pairwise(bounds):
                part = test.subset((means >= low) & (means <= high))
                rows.append((f"{name} {low:.4g} to {high:.4g}", contender.errors(part)))
        print_errors(f"By the mean of the hosts used, {contender.name}", rows)

    def _judge_accuracy(self, errors: dict[str, Any], floor: dict[str, Any], name: str) -> None:
        own, fair, flow = errors[name], errors["flat, fair"], errors["flat, flow"]
        for cost in COSTS:
            self._judge(f"q0.5 of {cost}", own[cost]["q50"], 1 + _FLOOR_FACTOR * (floor[cost]["q50"] - 1))
            self._judge(f"q0.95 of {cost} beside flat, fair", own[cost]["q95"], _FAIR_SHARE * fair[cost]["q95"])
            share = own[cost]["coverage"]
            self._judge(f"coverage of {cost}", abs(share - np.mean(_COVERAGE)), (_COVERAGE[1] - _COVERAGE[0]) / 2)
        for cost in ("Lp", "Le"):
            self._judge(f"q0.95 of {cost} beside flat, flow", own[cost]["q95"], flow[cost]["q95"])
        for quantile, most in _MAX_HARD.items():
            self._judge(f"{quantile} of Lp on hard traces", own["Lp"]["hard"][quantile], most)
        wrong = [1 - result["RO"]["balanced_accuracy"] for result in (own, flow)]
        self._judge("wrong votes on back-pressure beside flat, flow", wrong[0], wrong[1])

    def _print_ablations(
        self, contenders: Sequence[Contender], training: TraceSet, validation: TraceSet, test: TraceSet
    ) -> None:
        from lab.benchmarks.costream_contenders import members_contender, print_errors
        from lab.benchmarks.costream_variants import VARIANTS, twin_outputs, variant_settings
        from lab.training.costream import fit_members
        from lab.training.evaluation import cost_errors

        plain = self._settings("plain")
        settings = [variant_settings(name, plain) for name in VARIANTS]
        seed = self.sizes.seeds[0]
        fits = fit_members(training, validation, [(each, seed) for each in settings], processes=self.processes)
        rows = [
            (f"plain, {name}", cost_errors(twin_outputs(each, fit.parameters, test), test))
            for name, each, fit in zip(VARIANTS, settings, fits, strict=True)
        ]
        for form in ("plain", "recommended"):
            whole = next(contender for contender in contenders if contender.name == f"network, {form}")
            rows.append((f"{form}, one network", members_contender("", whole.members[:1], form).errors(test)))
        print_errors("Ablations, one network each", rows)

    def _print_monotonicity(self, contender: Contender, test: TraceSet) -> None:
        """Share of traces in which better hosts raise a predicted latency."""
        before = ensemble_bounds(contender.outputs(test))
        print(
            f"\nBetter hosts, {contender.name}: share of {len(test)} traces whose predicted latency rises by over 5 %"
        )
        for name, change in (
            ("twice the cpu", lambda host: replace(host, cpu_percent=2 * host.cpu_percent)),
            ("half the latency", lambda host: replace(host, latency_s=host.latency_s / 2)),
            ("twice the memory", lambda host: replace(host, ram_mb=2 * host.ram_mb)),
            ("twice the bandwidth", lambda host: replace(host, bandwidth_mbit_s=2 * host.bandwidth_mbit_s)),
        ):
            traces = [_changed(trace, change) for trace in test.traces]
            after = ensemble_bounds(contender.outputs(TraceSet.of_traces(test.origin, traces)))
            shares = {cost: float(np.mean(after[cost][0] > before[cost][0] + np.log(_HIGHER))) for cost in ("Lp", "Le")}
            print(f"  {name:22}" + ", ".join(f"{cost} {share:.1%}" for cost, share in shares.items()))
            for cost, share in shares.items():
                self._judge(f"higher {cost} with {name}", share, _MAX_HIGHER)

    def _judge(self, name: str, value: float | None, most: float) -> None:
        if value is None or value > most:
            self.missed.append(f"{name} {'unknown' if value is None else f'{value:.3g}'} (at most {most:.3g})")

    def _note(self, what: str) -> None:
        print(f"({what}: {self._minutes():.1f} minutes)", file=sys.stderr, flush=True)

    def _minutes(self) -> float:
        return (time.monotonic() - self.begin) / 60


def _changed(trace: CostTrace, change: Any) -> CostTrace:
    hosts: tuple[HostNode, ...] = tuple(map(change, trace.hosts))
    return replace(trace, hosts=hosts)
