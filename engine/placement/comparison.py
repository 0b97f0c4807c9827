"""Comparison of the last candidates by Flow, and of queries and servers before and after."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from engine.arrays import FloatArray
from engine.document.deployment import Constraints, Deployment
from engine.estimation.estimate import Estimate, estimate
from engine.estimation.mace import Mace, mace
from engine.placement.answer import CoreChange, LinkChange, QueryChange, ServerChange
from engine.placement.goal import Goal
from engine.placement.items import PlacementCandidate

__all__ = ["RankedCandidate", "best_by_flow", "mace_at", "query_rows", "running_part", "server_rows"]

_MAX_CANDIDATES = 4  # candidates that are compared by Flow
_TIE = 1e-9
_POINTS = 96  # of a series of excess


@dataclass(frozen=True, eq=False)
class RankedCandidate:
    """A candidate, and its estimate where Flow was run."""

    candidate: PlacementCandidate
    deployment: Deployment
    estimate: Estimate | None


def best_by_flow(
    deployment: Deployment,
    goal: Goal,
    candidates: list[PlacementCandidate],
    start: PlacementCandidate | None,
    *,
    within: float,
    every: int,
    flow: bool,
    step: Callable[[int, int], None],
    budget_s: float | None = None,
) -> RankedCandidate:
    """Choose the candidate to propose: the best by Flow among those within `within` of the best by the goal.

    Where the start is as good as the best, it is proposed: nothing is moved for nothing. With a budget only as many
    are compared as Flow can be run on in that time, at least one. None is compared with one on which fewer queries
    never catch up.
    """
    best = candidates[0]
    equals = [candidate for candidate in candidates if candidate.measured.lasting <= best.measured.lasting]
    rival = start if start is not None and start.measured.lasting <= best.measured.lasting else None
    limit = best.measured.value * (1.0 + _TIE) + 1e-12
    if rival is not None and rival.measured.value <= limit:
        near = [rival]
    else:
        near = _near(equals, rival, best.measured.value * (1.0 + max(within, _TIE)) + 1e-12)
    placed = [(candidate, deployment.with_placement(candidate.placement)) for candidate in near]
    if not flow:
        return RankedCandidate(*placed[0], None)
    scored: list[tuple[float, int, RankedCandidate]] = []
    began = time.perf_counter()
    for k, (candidate, whole) in enumerate(placed):
        spent_s = time.perf_counter() - began
        if k and budget_s is not None and spent_s * (k + 1) / k > budget_s:
            break
        step(k, len(placed))
        result = estimate(whole, mace_every=every, intervals=False)
        scored.append((flow_value(goal, result), k, RankedCandidate(candidate, whole, result)))
    return min(scored, key=lambda item: item[:2])[2]


def _near(
    candidates: list[PlacementCandidate], start: PlacementCandidate | None, limit: float
) -> list[PlacementCandidate]:
    """Different placements up to a limit, at most a few; never one that is worse than the start."""
    if start is not None:
        limit = min(limit, start.measured.value)
    near, seen = [], set()
    for candidate in candidates:
        key = tuple(sorted(candidate.placement.items()))
        if candidate.measured.value <= limit and key not in seen:
            seen.add(key)
            near.append(candidate)
    return near[:_MAX_CANDIDATES]


def flow_value(goal: Goal, result: Estimate) -> float:
    """The goal by Flow: the worst latency of the deployment, or the largest weighted estimate of a query."""
    if goal.kind == "worst":
        return result.flow.wc
    return max(
        (float(goal.weight[i]) * result.queries[name].estimate_s for i, name in enumerate(goal.parties) if name),
        default=result.flow.wc,
    )


def running_part(deployment: Deployment) -> Deployment:
    """The deployment's running part: queries whose operators all have a place and read only from such."""
    gone = {op.query or op.id for op in deployment.operators if not op.replicas}
    owner = {op.id: op.query or op.id for op in deployment.operators}
    while True:
        more = {
            owner[op.id]
            for op in deployment.operators
            if owner[op.id] not in gone and any(owner.get(entry.source) in gone for entry in op.inputs)
        }
        if not more:
            break
        gone |= more
    if not gone:
        return deployment
    return replace(
        deployment,
        operators=tuple(op for op in deployment.operators if owner[op.id] not in gone),
        objectives=tuple(objective for objective in deployment.objectives if objective.query not in gone),
        priorities={},
        constraints=Constraints(),
        plans={},
    )


def query_rows(
    deployment: Deployment, before: Estimate | None, after: Estimate | None, was: Mace, now: Mace, changed: set[str]
) -> tuple[QueryChange, ...]:
    """Every query before and after, by the statistic of its objective (the worst case without one).

    With random costs and arrivals, the same ones on both sides; the interval is that of after.
    """
    was_s, now_s = _mace_by_query(was), _mace_by_query(now)
    rows = []
    for query in deployment.queries:
        objective = deployment.objective_of(query)
        old = before.queries.get(query) if before else None
        new = after.queries.get(query) if after else None
        members = {deployment.operators[i].id for i in deployment.operators_of(query)}
        rows.append(
            QueryChange(
                query,
                objective.statistic if objective else "worst",
                objective.bound_s if objective else None,
                old.estimate_s if old else None,
                new.estimate_s if new else None,
                old.state if old else "none",
                new.low_s if new else None,
                new.high_s if new else None,
                new.state if new else "none",
                new.gap_answer if new else None,
                new.resolution_s if new else None,
                was_s.get(query),
                now_s.get(query),
                len(members & changed),
            )
        )
    return tuple(rows)


def _mace_by_query(result: Mace) -> dict[str, float]:
    """Largest Mace of the servers that each query's own operators use."""
    layout, graph = result.deployment.layout, result.deployment.graph
    worst = np.zeros(len(result.deployment.queries) + 1)  # the last is for operators without a query
    party = graph.query[layout.rep_operator]
    np.maximum.at(worst, party, result.worst_s[layout.rep_server])
    reader = np.repeat(party, np.diff(layout.hop_start))
    on_link = layout.hop_server >= 0
    np.maximum.at(worst, reader[on_link], result.worst_s[layout.hop_server[on_link]])
    return {query: float(worst[i]) for i, query in enumerate(result.deployment.queries)}


def server_rows(was: Mace, now: Mace) -> tuple[tuple[CoreChange, ...], tuple[LinkChange, ...]]:
    """Cores and links before and after."""
    cores, links = [], []
    deployment = now.deployment
    before_peak, after_peak = was.load_share.max(axis=1), now.load_share.max(axis=1)
    before, after = _thinned(was.mace_s), _thinned(now.mace_s)
    for i, server in enumerate(deployment.servers):
        change = ServerChange(
            server.name,
            float(was.worst_s[i]),
            float(now.worst_s[i]),
            float(before_peak[i]),
            float(after_peak[i]),
            tuple(before[i].tolist()),
            tuple(after[i].tolist()),
        )
        if server.node is not None:
            cores.append(CoreChange(node=deployment.nodes[server.node].id, **vars(change)))
        elif server.link is not None:
            entry = deployment.links[server.link]
            links.append(LinkChange(source=entry.source, target=entry.target, **vars(change)))
    return tuple(cores), tuple(links)


def _thinned(series: FloatArray) -> FloatArray:
    """The largest of every stretch, at most so many points, to a tenth of a millisecond."""
    step = -(-series.shape[1] // _POINTS)
    padded = np.pad(series, ((0, 0), (0, -series.shape[1] % step)))
    return np.round(padded.reshape(len(series), -1, step).max(axis=2), 4)


def mace_at(deployment: Deployment, every: int) -> Mace:
    """Compute Mace at its own width."""
    return mace(deployment.coarsened(every))
