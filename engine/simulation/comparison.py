"""The estimate of a deployment held against simulations of it, query by query and seed by seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.estimation.estimate import Estimate, estimate
from engine.estimation.noise.dispersion import input_costs
from engine.estimation.reports import QueryReport
from engine.simulation.layout import work_of
from engine.simulation.results import Simulation, nearest_rank
from engine.simulation.run import SimulationSettings, simulate
from engine.solvers import solving

__all__ = ["MAX_COMPARED_EVENTS", "SimulatedRun", "SimulationComparison", "compare_with_simulations"]

MAX_COMPARED_EVENTS = 20_000_000  #: of all seeds together; a longer horizon is cut
_DAY_S = 86_400.0  # over which the phases of windows and triggers are drawn


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """A query in one simulation: the statistic of its objective over the horizon, and its work.

    `results` came out at its sinks; `work` is {operator: cycles/s}.
    """

    query: str
    seed: int
    observed_s: float
    results: int
    work: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class SimulationComparison:
    """Simulations of a deployment beside its estimate.

    `estimate` is of the first `horizon_s` alone where the whole has too many events (`is_cut`);
    `left_out` are queries with a window that does not close twice within it, so that no full one would be seen;
    `cost_cv` is the coefficient of variation that the costs of all events were drawn with.
    """

    estimate: Estimate
    runs: Sequence[SimulatedRun]
    horizon_s: float
    is_cut: bool
    left_out: Sequence[str]
    cost_cv: float


def compare_with_simulations(
    deployment: Deployment,
    seeds: Sequence[int],
    *,
    mace_every: int = 1,
    max_events: int = MAX_COMPARED_EVENTS,
    progress: Callable[[float, str], None] | None = None,
) -> SimulationComparison:
    """Estimate a deployment, and simulate it once for every seed.

    Parameters
    ----------
    deployment : Deployment
        Every operator placed.
    seeds : sequence of int
        Each draws its own arrivals, outputs, costs, and phases of windows and triggers.
    mace_every : int
        As of `estimate`.
    max_events : int
        Bound on what all simulations together pass through operators.
    progress : callable, optional
        Called with the share done and the step in words; an exception that it raises ends the comparison.

    Returns
    -------
    SimulationComparison
        A query without results in a simulation has no run of that seed.

    Raises
    ------
    UnplacedError, TooLargeError

    Notes
    -----
    Statistics are taken as true: what an estimate's interval adds for the errors of a sample never shows here. Costs
    vary by one coefficient, the root of the mean that their inputs have by work, as the estimate takes them; slow
    changes of costs are not drawn.
    """
    solving()
    report = progress or (lambda share, step: None)
    whole = deployment.subintervals
    deployment = _cut(deployment, max_events / max(1, len(seeds)), mace_every)
    cost_cv = _cost_cv(deployment)
    report(0.0, "Estimating")
    estimated = estimate(deployment, mace_every=mace_every)
    every = {source.id: np.zeros(1, np.int32) for source in deployment.sources}  # one group: all events
    horizon_s = deployment.subintervals * deployment.subinterval_s
    left_out = [query for query in estimated.queries if _longest_period_s(deployment, query) > horizon_s / 2.0]
    compared = {query: report for query, report in estimated.queries.items() if query not in left_out}
    runs: list[SimulatedRun] = []
    for i, seed in enumerate(seeds):
        report((i + 1) / (len(seeds) + 1), f"Simulating, {i + 1} of {len(seeds)}")
        phase_s = float(np.random.default_rng([seed, 1]).uniform(0.0, _DAY_S))
        settings = SimulationSettings(seed=seed, cost_cv=cost_cv, phase_s=phase_s)
        runs += _latencies(simulate(deployment, settings, groups=every), compared, seed)
    return SimulationComparison(estimated, runs, horizon_s, deployment.subintervals < whole, left_out, cost_cv)


def _latencies(simulation: Simulation, queries: Mapping[str, QueryReport], seed: int) -> Iterable[SimulatedRun]:
    work = _work(simulation) if simulation.source_events else {}
    operators = simulation.deployment.operators
    for query, report in queries.items():
        latency_s = np.sort(simulation.latency_s[simulation.chosen(query)])
        if len(latency_s):
            names = {operators[i].id for i in simulation.deployment.operators_of(query)}
            own = {name: work[name] for name in names}
            yield SimulatedRun(query, seed, _statistic(latency_s, report.statistic), len(latency_s), own)


def _longest_period_s(deployment: Deployment, query: str) -> float:
    """Longest time between two ends of a window by time."""
    windows = (deployment.operators[i].window for i in deployment.operators_of(query))
    return max((window.slide or window.size for window in windows if window and window.policy == "time"), default=0.0)


def _statistic(ordered_s: FloatArray, statistic: str) -> float:
    """The statistic of ascending latencies; quantiles by nearest rank."""
    if statistic == "mean":
        return float(ordered_s.mean())
    return nearest_rank(ordered_s, float(statistic[1:]) if statistic.startswith("q") else 1.0)


def _work(simulation: Simulation) -> dict[str, float]:
    """Cycles/s of every operator over the horizon."""
    deployment = simulation.deployment
    cycles = simulation.sampled[:, 0, 2] / (deployment.subintervals * deployment.subinterval_s)
    ends = np.cumsum([len(operator.inputs) for operator in deployment.operators])
    parts = np.split(cycles, ends[:-1])
    return {operator.id: float(part.sum()) for operator, part in zip(deployment.operators, parts, strict=True)}


def _cut(deployment: Deployment, max_events: float, every: int) -> Deployment:
    """The first subintervals, as many as have at most `max_events`; at least `every`."""
    work = work_of(deployment)
    expected = float((work.events + work.outputs).sum() + deployment.arrivals.sum())
    if expected <= max_events:
        return deployment
    deployment = deployment.settled()  # what waits came at the rates of the whole
    kept = max(every, int(deployment.subintervals * max_events / expected) // every * every)
    return replace(
        deployment,
        subintervals=kept,
        sources=tuple(replace(source, arrivals=source.arrivals[:kept]) for source in deployment.sources),
        nodes=tuple(
            node
            if node.capacity_series_cps is None
            else replace(node, capacity_series_cps=node.capacity_series_cps[:kept])
            for node in deployment.nodes
        ),
    )


def _cost_cv(deployment: Deployment) -> float:
    """Root of the mean squared variation of costs, by the work of inputs."""
    work = work_of(deployment)
    cycles = work.events * work.cycles.mean(axis=1)
    squares = np.array([noise.cv2 for noise in input_costs(deployment)])
    total = float(cycles.sum())
    return math.sqrt(float(cycles @ squares) / total) if total > 0.0 else 0.0
