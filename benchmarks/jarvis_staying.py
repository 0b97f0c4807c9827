"""Whether load factors stay where they fit, whether searches for them end, and what deciding costs; simulated."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.jarvis_convergence import DEFAULT, METHODS, MOST_OVER_LEAST, PERCENT, run_under, verdict
from engine.jarvis.controllers import controller
from engine.jarvis.controlling import Controller, Decision
from engine.jarvis.observation import EpochObservation
from engine.jarvis.refined import Refined
from engine.jarvis.settings import Settings
from engine.jarvis.simulation import LAWS, QUERIES, Query, Run, Stretch, TrueOperator, simulate

__all__ = ["overhead", "staying", "termination"]

_MOST_OVERHEAD = 0.01  # of a core
_LENGTH, _WARM = 200, 40  # steady epochs, and those before them
_CYCLING, _CONGESTED = 0.10, 0.02  # of the last half of steady epochs: moves of load factors, epochs congested
_PLACES = (("s2s", 0.6), ("s2s", 0.9), ("t2t", 0.6), ("t2t", 1.0), ("log", 0.25), ("log", 0.4))
_LEVELS = (10, 20, 50, 100)
_OPERATORS = (1, 2, 4, 6, 8)


def staying(seeds: int) -> bool:
    """Print what happens where nothing changes; False where the default does not stay where it is."""
    missed: list[str] = []
    print(f"\n{_LENGTH} epochs in which nothing changes, simulated, {seeds} seeds (medians): moves of load factors, ")
    print("epochs congested, bytes over the least possible; dips: 30 % less budget in 5 % of epochs")
    for law, dips in ((LAWS[0], 0.0), (LAWS[1], 0.0), (LAWS[0], 0.05)):
        print(f"  {law} law{', dips' if dips else ''}")
        print(f"  {'':20}" + "".join(f"{method:>20}" for method in METHODS))
        for name, cores in _PLACES:
            runs = {method: _steady(name, cores, method, law, dips, seeds) for method in METHODS}
            print(f"  {name:4} {100 * cores:3.0f} %{'':11}" + "".join(f"{_said(runs[one]):>20}" for one in METHODS))
            if not dips:
                missed += [f"{law}, {name} {100 * cores:.0f} %: {what}" for what in _unsteady(runs[DEFAULT])]
    print(f"  {DEFAULT} without dips: no limit cycle (moves in ten of 100 epochs), {PERCENT}: {verdict(missed)}")
    return not missed


def _unsteady(runs: Sequence[Run]) -> list[str]:
    cycles, over = sum(map(_cycles, runs)), float(np.median([run.over_least(_WARM) for run in runs]))
    return ([f"{cycles} cycles"] if cycles else []) + ([f"x{over:.2f}"] if over > MOST_OVER_LEAST else [])


def _steady(name: str, cores: float, method: str, law: str, dips: float, seeds: int) -> list[Run]:
    schedule = (Stretch(_WARM + _LENGTH, cores),)
    return [run_under(QUERIES[name], schedule, Settings(method=method), seed, law, dips=dips) for seed in range(seeds)]


def _said(runs: Sequence[Run]) -> str:
    moves = np.median([run.moved[_WARM:].sum() for run in runs])
    congested = np.median([run.congested[_WARM:].sum() for run in runs])
    over = np.median([run.over_least(_WARM) for run in runs])
    return f"{moves:g}, {congested:g}, x{over:.2f}"


def _cycles(run: Run) -> bool:
    """Load factors go on moving, or records overflowing, in the last half."""
    last = slice(_WARM + _LENGTH // 2, None)
    return bool(run.moved[last].mean() > _CYCLING or run.congested[last].mean() > _CONGESTED)


class _Timed:
    """A controller whose decisions' CPU time is counted."""

    def __init__(self, controller: Controller) -> None:
        self._controller, self.spent_us = controller, list[float]()

    @property
    def load_factors(self) -> tuple[float, ...]:
        return self._controller.load_factors

    def decide(self, observation: EpochObservation) -> Decision:
        before_ns = time.thread_time_ns()
        decision = self._controller.decide(observation)
        self.spent_us.append((time.thread_time_ns() - before_ns) / 1e3)
        return decision

    def adopt(self, settings: Settings, prior: Refined | None) -> None:
        self._controller.adopt(settings, prior)

    def report(self) -> dict[str, Any]:
        return self._controller.report()


def overhead(pipelines: int) -> bool:
    """Print the CPU time of deciding; False where the default takes 1 % of a core at epochs of one second."""
    operators = _OPERATORS[-1]
    print(
        f"\nCPU time of a decision, {operators} operators, {pipelines} random pipelines of {_LENGTH // 2} epochs each"
    )
    share = 0.0
    for method in METHODS:
        spent_us: list[float] = []
        for query, cores in _pipelines(operators, pipelines):
            timed = _Timed(controller(Settings(method=method), query.source_operators(), None))
            simulate(query, timed, (Stretch(_LENGTH // 2, cores),), 1)
            spent_us += timed.spent_us
        mean_us, most_us = float(np.mean(spent_us)), float(np.quantile(spent_us, 0.99))
        print(
            f"  {method:12} {mean_us:6.0f} us in the mean, {most_us:6.0f} us at 99 %: {mean_us / 1e4:.3f} % of a core"
        )
        share = mean_us / 1e6 if method == DEFAULT else share
    met = share < _MOST_OVERHEAD
    print(f"  {DEFAULT}: {'meets' if met else 'MISSES'} less than 1 % of a core at epochs of one second")
    return met


def termination(pipelines: int) -> bool:
    """Print how often StepWise-Adapt never settles, by its levels, beside the default; False where that does not."""
    print(
        f"\nrandom pipelines, simulated without noise, {pipelines} of each length: settle never; epochs mean, maximum"
    )
    columns = [*((f"stepwise {levels}", Settings(method="stepwise", levels=levels)) for levels in _LEVELS)]
    columns.append((DEFAULT, Settings(method=DEFAULT)))
    print(f"  {'operators':10}" + "".join(f"{name:>22}" for name, _ in columns))
    met = True
    for operators in _OPERATORS:
        drawn = _pipelines(operators, pipelines)
        cells = []
        for name, settings in columns:
            epochs = [_settling(query, cores, settings) for query, cores in drawn]
            settled = [one for one in epochs if one is not None]
            never = 1 - len(settled) / len(epochs)
            met &= name != DEFAULT or not never
            cells.append(f"{100 * never:.0f} %; {np.mean(settled or [0]):.1f}, {max(settled, default=0)}")
        print(f"  {operators:<10}" + "".join(f"{cell:>22}" for cell in cells))
    print(f"  {DEFAULT}: {'settles every time' if met else 'does NOT always settle'}")
    return met


def _pipelines(operators: int, count: int) -> list[tuple[Query, float]]:
    """Chains of filters and maps with a budget for 10 to 90 % of the whole."""
    draw, made = np.random.default_rng(operators), []
    for _ in range(count):
        rows = [
            TrueOperator(f"op{k}", "map", float(draw.uniform(0.1, 1.0)) / 1e5, float(draw.uniform(0.3, 1.0)), 100.0)
            for k in range(operators)
        ]
        query = Query("random", tuple(rows), 100.0, 1e4)
        volume = np.cumprod([1.0, *(one.relay for one in rows[:-1])])
        whole = float(query.records_s * (volume * [one.cost_s for one in rows]).sum())
        made.append((query, whole * float(draw.uniform(0.1, 0.9))))
    return made


def _settling(query: Query, cores: float, settings: Settings) -> int | None:
    made = controller(settings, query.source_operators(), None)
    return simulate(query, made, (Stretch(_LENGTH // 2, cores),), 1, cost_noise=0.0).epochs_to_stable(0)
