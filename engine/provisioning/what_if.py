"""What-if: named scenarios side by side, each estimated as a running deployment is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.document.memory import memory_by_node, memory_findings
from engine.document.topology import servers_above
from engine.errors import EngineError, InfeasibleError
from engine.estimation.answer import CoreLoad, combine_cores
from engine.estimation.estimate import Progress, estimate
from engine.estimation.flow import Flow
from engine.estimation.loads import UnkeptLoads
from engine.estimation.mace import Mace, mace
from engine.estimation.probes import probe_deployment
from engine.estimation.reports import BY_MACE, QueryReport, QueryReporter
from engine.latency_state import UNKNOWN
from engine.provisioning.answers.scenarios import Refusal, ScenarioAnswer, ScenarioMove, ScenarioNode
from engine.provisioning.nodes import cost_per_hour
from engine.provisioning.scenario import WhatIfScenario, place_unplaced, read_scenarios
from engine.records import Fact
from engine.solvers import solving

__all__ = ["ScenarioOutcome", "by_mace", "mace_by_query", "mace_reports", "moves_between", "what_if"]


@dataclass(frozen=True, eq=False)
class ScenarioOutcome:
    """Outcome of a scenario: its estimate beside the present one."""

    scenario: WhatIfScenario
    deployment: Deployment | None  #: the changed deployment with everything in its place; None if that cannot be
    refusal: EngineError | None = None  #: why it cannot be
    mace: Mace | None = None  #: at Mace's width
    flow_s: float | None = None  #: worst case of the mean path; None where Mace alone was asked for
    alarm: Fact | str = ""
    #: as realised or on the mean path; by Mace where that alone was asked for
    queries: dict[str, QueryReport] | None = None
    moves: tuple[ScenarioMove, ...] = ()  #: operators that are elsewhere than now, or new
    #: loads of the nodes, where the series they come from are not kept (`brief`)
    node_rows: tuple[ScenarioNode, ...] | None = None

    def brief(self) -> ScenarioOutcome:
        """The same without series over time, which take 20 MB at 4,000 operators; `answer` is unchanged."""
        if self.mace is None or self.deployment is None:
            return self
        bare = np.zeros((len(self.mace.worst_s), 0))
        whole = replace(self.deployment)  # without what it has worked out
        slim = replace(self.mace, deployment=whole, loads=UnkeptLoads(), load=bare, ce=bare, series=None)
        return replace(self, deployment=whole, mace=slim, node_rows=tuple(_nodes(self.mace)))

    @property
    def answer(self) -> ScenarioAnswer:
        """The outcome as it is shown and kept."""
        changed = self.deployment or self.scenario.applied.deployment
        return ScenarioAnswer(
            name=self.scenario.name,
            place=self.scenario.place,
            changes=tuple(applied.change.to_dict() for applied in self.scenario.applied.changes),
            words=tuple(applied.words for applied in self.scenario.applied.changes),
            infeasible=None if self.refusal is None else Refusal.parse(self.refusal.to_dict()),
            node_count=len(changed.nodes),
            cost_per_hour=cost_per_hour(changed.nodes),
            unpriced_nodes=tuple(node.id for node in changed.nodes if node.price_per_hour is None),
            **self._estimated(changed),
        )

    def _estimated(self, changed: Deployment) -> dict[str, Any]:
        """Fields of an answer that are estimates."""
        if self.mace is None or self.queries is None:
            return {}
        states = {query: report.state for query, report in self.queries.items()}
        names = {"kept": "holds", "at_risk": "at_risk", "unknown": "unknown", "broken": "breached"}
        return {
            **{name: tuple(q for q, state in states.items() if state == wanted) for name, wanted in names.items()},
            "by": "mace" if self.flow_s is None else "flow",
            "mace_s": self.mace.worst,
            "flow_s": self.flow_s,
            "worst_s": max((report.worst_s for report in self.queries.values()), default=self.mace.worst),
            "alarm": self.alarm,
            "queries": {
                query: report.answer(detail=False).to_dict() | {"probability": _probability(report)}
                for query, report in self.queries.items()
            },
            "nodes": tuple(_nodes(self.mace)) if self.node_rows is None else self.node_rows,
            "moves": self.moves,
            "memory": tuple(memory_findings(changed)),
        }


def what_if(
    deployment: Deployment,
    scenarios: Any,
    *,
    seed: int = 0,
    mace_every: int = 1,
    flow: bool = True,
    intervals: bool = True,
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
        Of the placement search, the same for every scenario.
    mace_every : int
        Subintervals of `deployment` that make one of Mace's.
    flow : bool
        False estimates by Mace alone, which is some hundred times faster.
    intervals : bool
        Whether to add what random costs and arrivals do; False leaves the mean path.
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
    solving()
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
            outcomes.append(_by_flow(scenario, whole, moves, mace_every, intervals, told))
        else:
            outcomes.append(by_mace(scenario, whole, moves, mace_every))
    tell(1.0, "Done")
    return outcomes


def _by_flow(
    scenario: WhatIfScenario,
    whole: Deployment,
    moves: tuple[ScenarioMove, ...],
    mace_every: int,
    intervals: bool,
    progress: Progress,
) -> ScenarioOutcome:
    result = estimate(whole, mace_every=mace_every, intervals=intervals, progress=progress)
    alarm = result.alarm.message
    return ScenarioOutcome(scenario, whole, None, result.mace, result.flow.wc, alarm, result.queries, moves)


def _probability(report: QueryReport) -> dict[str, float] | None:
    """Share of realisations that keep the objective; None without one, by mean costs alone, or where none is known.

    None of what never catches up keeps it in time. Under other policies than stimulus time it is theirs; where nobody
    knows how much higher latencies end, nobody knows the share.
    """
    if report.bound_s is None or report.noise is None or report.standing.kind == UNKNOWN:
        return None
    if report.standing.is_endless:
        return {"share": 0.0}
    bound_s: float | None = report.bound_s
    if report.gap is not None:
        bound_s = report.gap.as_stimulus_s(report.bound_s, report.wait_s)
    return None if bound_s is None else {"share": report.noise.statistics[report.statistic].share_within(bound_s)}


def by_mace(
    scenario: WhatIfScenario,
    whole: Deployment,
    moves: tuple[ScenarioMove, ...],
    mace_every: int,
    known: Mapping[str, QueryReport] | None = None,
) -> ScenarioOutcome:
    """An outcome by Mace alone; `known` are reports of queries that are not affected by what moved."""
    result, reporter = mace_reports(whole, mace_every)
    coarse = result.deployment
    estimates = known or {}
    reports = {query: estimates[query] if query in estimates else reporter.report(query) for query in coarse.queries}
    return ScenarioOutcome(scenario, whole, None, result, None, "", reports, moves)


def mace_reports(whole: Deployment, mace_every: int) -> tuple[Mace, QueryReporter]:
    """Mace, and reports by it alone: over time in Flow's place, as they are made of any latency over time."""
    probed = probe_deployment(whole.coarsened(mace_every))
    result = mace(probed.deployment)
    stand_in = Flow(result.total_s, mace_by_query(result), 1, {})
    return result, QueryReporter(probed, result, stand_in, probed.deployment.subinterval_s, BY_MACE)


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


def moves_between(before: Deployment, after: Deployment) -> tuple[ScenarioMove, ...]:
    """Operators whose replicas differ."""
    was = {operator.id: operator.replicas for operator in before.operators}
    return tuple(
        ScenarioMove(operator.id, operator.query, was.get(operator.id, ()), operator.replicas)
        for operator in after.operators
        if operator.replicas != was.get(operator.id, ())
    )


def _nodes(result: Mace) -> list[ScenarioNode]:
    """Loads of every node by its busiest core."""
    deployment = result.deployment
    shares = result.load_share
    held = result.deployment.layout.rep_server
    memory = memory_by_node(deployment)
    rows = []
    for i, node in enumerate(deployment.nodes):
        mine = [k for k, server in enumerate(deployment.servers) if server.node == i]
        load = combine_cores(CoreLoad(float(shares[k].mean()), float(shares[k].max())) for k in mine)
        rows.append(
            ScenarioNode(
                node.id,
                node.pool,
                node.price_per_hour,
                load.mean,
                load.peak,
                mace_s=float(result.worst_s[mine].max()),
                operators=int(sum((held == k).sum() for k in mine)),
                memory_bytes=memory[node.id].memory_bytes,
                state_bytes=memory[node.id].held_bytes,
                memory_state=memory[node.id].state,
            )
        )
    return rows
