"""What-if: named scenarios side by side, each estimated as a running deployment is."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from engine.arrays import FloatArray, statistic_of
from engine.document.deployment import Deployment
from engine.document.elements import Batch
from engine.document.topology import DataflowGraph, servers_above
from engine.errors import EngineError, InfeasibleError
from engine.estimation.estimate import Progress, estimate
from engine.estimation.flow import Flow, flow
from engine.estimation.loads import Loads, loads_of, sink_outputs
from engine.estimation.mace import Mace, mace
from engine.estimation.reports import BY_MACE, QueryReport, QueryReporter
from engine.noise.summary import LEVEL
from engine.provisioning.nodes import cost_per_hour
from engine.provisioning.scenario import WhatIfScenario, place_unplaced, read_scenarios

__all__ = [
    "ObjectiveProbability",
    "ScenarioOutcome",
    "by_mace",
    "drawn_graphs",
    "mace_by_query",
    "moves_between",
    "probabilities",
    "what_if",
]

_Z = 1.6449  # of the normal distribution, two-sided at `LEVEL`


@dataclass(frozen=True)
class ObjectiveProbability:
    """Share of the draws in which an objective held, with the interval of that share (Wilson, 90 %)."""

    held: int
    draws: int

    @property
    def share(self) -> float:
        return self.held / self.draws

    def interval(self) -> tuple[float, float]:
        n, share, z2 = self.draws, self.share, _Z * _Z
        middle = (share + z2 / (2 * n)) / (1 + z2 / n)
        half = _Z * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
        return max(0.0, middle - half), min(1.0, middle + half)

    def to_dict(self) -> dict[str, float | int]:
        low, high = self.interval()
        return {"share": self.share, "low": low, "high": high, "level": LEVEL, "draws": self.draws}


def probabilities(
    deployment: Deployment, *, draws: int, seed: int, step: Callable[[int, int], None] | None = None
) -> dict[str, ObjectiveProbability]:
    """Share of draws in which every objective holds, by query.

    Queries without an objective are left out, and all of them if no input has two batches to draw from.

    Parameters
    ----------
    draws : int
        Runs of Flow.
    step : callable, optional
        Told how many runs are done, and of how many.
    """
    judged = {objective.query: objective for objective in deployment.objectives}
    sampled = any(entry.is_sampled for operator in deployment.operators for entry in operator.inputs)
    if not judged or not draws or not sampled:
        return {}
    held = dict.fromkeys(judged, 0)
    for k, graph in enumerate(drawn_graphs(deployment, draws, seed)):
        run = flow(deployment, graph=graph, by_input=True)
        weights = _sink_events(deployment, graph)
        for query, objective in judged.items():
            value = statistic_of(run.by_query[query], weights[query], objective.statistic)
            held[query] += value <= objective.bound_s
        if step:
            step(k + 1, draws)
    return {query: ObjectiveProbability(count, draws) for query, count in held.items()}


def drawn_graphs(deployment: Deployment, draws: int, seed: int) -> list[DataflowGraph]:
    """The dataflow with the statistics of each draw."""
    graph = deployment.graph
    scales = np.ones((draws, 2, len(graph.in_stream)))
    k = 0
    for operator in deployment.operators:
        for number, entry in enumerate(operator.inputs):
            if entry.is_sampled:
                name = zlib.crc32(f"{operator.id}\0{number}".encode())
                scales[:, :, k] = _scales(entry.batches, draws, np.random.default_rng([seed, name]))
            k += 1
    return [
        replace(graph, output=graph.output * scale[0][:, None], cycles=graph.cycles * scale[1][:, None])
        for scale in scales
    ]


def _scales(batches: tuple[Batch, ...], draws: int, rng: np.random.Generator) -> FloatArray:
    """Selectivity and cost of each draw over those of all batches, shape (draws, 2); 1 where a sample says nothing."""
    rows = np.array([(batch.events, batch.outputs, batch.cycles) for batch in batches])
    chosen = rng.integers(0, len(rows), (draws, len(rows)))
    sums, total = rows[chosen].sum(axis=1), rows.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        scales = (sums[:, 1:] / total[1:]) / (sums[:, :1] / total[0])
    return np.asarray(np.where(np.isfinite(scales), scales, 1.0))


def _sink_events(deployment: Deployment, graph: DataflowGraph) -> Mapping[str, FloatArray]:
    events = sink_outputs(loads_of(deployment, graph=graph), graph, len(deployment.queries))
    return dict(zip(deployment.queries, events, strict=True))


class _Bare(Loads):
    """Loads without a cache."""

    def __init__(self) -> None:
        self.by_time, self.excess_room = np.zeros((2, 0, 0))


@dataclass(frozen=True, eq=False)
class ScenarioOutcome:
    """Outcome of a scenario: its estimate beside the present one.

    Attributes
    ----------
    deployment : Deployment or None
        The changed deployment with everything in its place; None if that cannot be.
    refusal : EngineError or None
        Why it cannot be.
    mace : Mace or None
        At Mace's width.
    flow_s : float or None
        Worst case by Flow; None where Mace alone was asked for.
    queries : mapping
        By Flow, or by Mace where Flow was not asked for.
    moves : tuple of dict
        Operators that are elsewhere than now, or new.
    node_rows : tuple of dict or None
        Loads of the nodes, where the series they come from are not kept (`brief`).
    """

    scenario: WhatIfScenario
    deployment: Deployment | None
    refusal: EngineError | None = None
    mace: Mace | None = None
    flow_s: float | None = None
    alarm: str = ""
    queries: dict[str, QueryReport] | None = None
    probability: dict[str, ObjectiveProbability] | None = None
    moves: tuple[dict[str, Any], ...] = ()
    node_rows: tuple[dict[str, Any], ...] | None = None

    def brief(self) -> ScenarioOutcome:
        """The same without series over time, which take 20 MB at 4,000 operators; `to_dict` is unchanged."""
        if self.mace is None or self.deployment is None:
            return self
        bare = np.zeros((len(self.mace.worst_s), 0))
        whole = replace(self.deployment)  # without what it has worked out
        slim = replace(self.mace, deployment=whole, loads=_Bare(), load=bare, ce=bare, series=None)
        return replace(self, deployment=whole, mace=slim, node_rows=tuple(_nodes(self.mace)))

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        document: dict[str, Any] = {
            "name": self.scenario.name,
            "place": self.scenario.place,
            "changes": [_plain(change) for change in self.scenario.applied.changes],
            "words": list(self.scenario.applied.words),
            "infeasible": None if self.refusal is None else self.refusal.to_dict(),
        }
        changed = self.deployment or self.scenario.applied.deployment
        document |= {
            "node_count": len(changed.nodes),
            "cost_per_hour": cost_per_hour(changed.nodes),
            "unpriced_nodes": [node.id for node in changed.nodes if node.price_per_hour is None],
        }
        if self.mace is None or self.queries is None:
            return document
        states = {query: report.state for query, report in self.queries.items()}
        probability = self.probability or {}
        return document | {
            "by": "mace" if self.flow_s is None else "flow",
            "mace_s": self.mace.worst,
            "flow_s": self.flow_s,
            "alarm": self.alarm,
            "kept": [query for query, state in states.items() if state == "holds"],
            "at_risk": [query for query, state in states.items() if state == "at_risk"],
            "broken": [query for query, state in states.items() if state == "breached"],
            "queries": {
                query: report.to_dict(detail=False)
                | {"probability": probability[query].to_dict() if query in probability else None}
                for query, report in self.queries.items()
            },
            "nodes": _nodes(self.mace) if self.node_rows is None else list(self.node_rows),
            "moves": list(self.moves),
        }


def what_if(
    deployment: Deployment,
    scenarios: Any,
    *,
    seed: int = 0,
    mace_every: int = 1,
    flow: bool = True,
    intervals: bool = True,
    draws: int = 0,
    rounds: int = 8,
    closed: Sequence[str] = (),
    progress: Progress | None = None,
) -> list[ScenarioOutcome]:
    """Estimate scenarios side by side.

    Parameters
    ----------
    deployment : Deployment
        What runs.
    scenarios : list of dict
        Each with ``name``, ``changes``, ``place`` (keep, fill or search; fill unless given) and ``max_moves``.
    seed : int
        Of the placement search and of all draws, the same for every scenario.
    mace_every : int
        Subintervals of `deployment` that make one of Mace's.
    flow : bool
        False estimates by Mace alone, which is some hundred times faster.
    intervals : bool
        Whether to add what random costs and arrivals do; False leaves the mean path.
    draws : int
        Runs of Flow for the probability that each objective holds; 0 for none.
    rounds : int
        Rounds of the placement search.
    closed : sequence of str
        Nodes that take nothing new.
    progress : callable, optional
        Told the share done and the step in words; an exception it raises ends the question.

    Returns
    -------
    list of Outcome
        In the order of the scenarios. The same question gives the same answer.

    Raises
    ------
    DocumentError
        With every fault of all scenarios. A scenario that cannot be placed is no fault: its outcome says why.
    """
    read = read_scenarios(scenarios, deployment)
    tell = progress or (lambda share, step: None)
    outcomes = []
    for i, scenario in enumerate(read):
        name = scenario.name

        def told(share: float, step: str, i: int = i, name: str = name) -> None:
            tell((i + share) / len(read), f"{name}: {step}")

        told(0.0, "Placing")
        try:
            whole = place_unplaced(
                scenario.applied.deployment,
                scenario.place,
                mace_every=mace_every,
                seed=seed,
                rounds=rounds,
                max_moves=scenario.max_moves,
                closed=[node for node in closed if node in scenario.applied.deployment.node_index],
            )
        except InfeasibleError as error:
            outcomes.append(ScenarioOutcome(scenario, None, error))
            continue
        moves = moves_between(deployment, whole)
        if flow:
            outcomes.append(_by_flow(scenario, whole, moves, mace_every, intervals, draws, seed, told))
        else:
            outcomes.append(by_mace(scenario, whole, moves, mace_every))
    tell(1.0, "Done")
    return outcomes


def _by_flow(
    scenario: WhatIfScenario,
    whole: Deployment,
    moves: tuple[dict[str, Any], ...],
    mace_every: int,
    intervals: bool,
    draws: int,
    seed: int,
    progress: Progress,
) -> ScenarioOutcome:
    part = 0.5 if draws else 1.0
    result = estimate(
        whole, mace_every=mace_every, intervals=intervals, progress=lambda share, step: progress(part * share, step)
    )
    chances = probabilities(
        whole, draws=draws, seed=seed, step=lambda k, of: progress(0.5 + 0.5 * k / of, f"Draw {k} of {of}")
    )
    return ScenarioOutcome(
        scenario, whole, None, result.mace, result.flow.wc, result.alarm.message, result.queries, chances, moves
    )


def by_mace(
    scenario: WhatIfScenario,
    whole: Deployment,
    moves: tuple[dict[str, Any], ...],
    mace_every: int,
    known: Mapping[str, QueryReport] | None = None,
) -> ScenarioOutcome:
    """An outcome by Mace alone; `known` are reports of queries that are not affected by what moved."""
    coarse = whole.coarsened(mace_every)
    result = mace(coarse)
    # Mace over time in Flow's place: the reports are made of any latency over time.
    stand_in = Flow(result.total_s, mace_by_query(result), 1, {})
    reporter = QueryReporter(coarse, coarse, result, stand_in, coarse.subinterval_s, BY_MACE)
    estimates = known or {}
    reports = {query: estimates[query] if query in estimates else reporter.report(query) for query in coarse.queries}
    return ScenarioOutcome(scenario, whole, None, result, None, "", reports, None, moves)


def mace_by_query(result: Mace) -> dict[str, FloatArray]:
    """Largest Mace of each query's servers over time, shape (d,) each."""
    deployment = result.deployment
    start, members = deployment.closures
    return {
        query: result.mace_s[servers_above(deployment.layout, members[start[i] : start[i + 1]])].max(
            axis=0, initial=0.0
        )
        for i, query in enumerate(deployment.queries)
    }


def moves_between(before: Deployment, after: Deployment) -> tuple[dict[str, Any], ...]:
    """Operators whose replicas differ."""
    was = {operator.id: operator.replicas for operator in before.operators}
    return tuple(
        {
            "operator": operator.id,
            "query": operator.query,
            "from": [_place(replica) for replica in was.get(operator.id, ())],
            "to": [_place(replica) for replica in operator.replicas],
        }
        for operator in after.operators
        if operator.replicas != was.get(operator.id, ())
    )


def _place(replica: Any) -> dict[str, Any]:
    return {"node": replica.node, "core": replica.core, "fraction": replica.fraction}


def _nodes(result: Mace) -> list[dict[str, Any]]:
    """Loads of every node: means and peaks of its cores."""
    deployment = result.deployment
    shares = result.load_share
    held = result.deployment.layout.rep_server
    rows = []
    for i, node in enumerate(deployment.nodes):
        mine = [k for k, server in enumerate(deployment.servers) if server.node == i]
        rows.append(
            {
                "node": node.id,
                "pool": node.pool,
                "price_per_hour": node.price_per_hour,
                "load_mean": float(shares[mine].mean()),
                "load_peak": float(shares[mine].max()),
                "mace_s": float(result.worst_s[mine].max()),
                "operators": int(sum((held == k).sum() for k in mine)),
            }
        )
    return rows


def _plain(change: dict[str, Any]) -> dict[str, Any]:
    """A change as JSON: series as lists."""
    return {name: value.tolist() if hasattr(value, "tolist") else value for name, value in change.items()}
