"""Confirmation of answers: Flow as a screen, then realised latencies, and where a placement breaks an objective."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from engine.document.deployment import Constraints, Deployment, Node, Replica
from engine.document.elements import Objective
from engine.document.policies import PolicyGap
from engine.estimation.base import EstimateBase
from engine.estimation.noise.realisation import realise
from engine.estimation.noise.summary import RealisedQuery, RealisedStatistic
from engine.estimation.query_flow import FlowedQueries, flow_queries
from engine.estimation.reports import QueryReport
from engine.estimation.waits.estimate import query_waits, with_waits
from engine.estimation.waits.summary import NO_WAITS
from engine.latency_state import LatencyStanding
from engine.placement.splits import MAX_PARTS
from engine.provisioning.answers.objectives import ObjectiveMiss, RealisedObjective
from engine.provisioning.nodes import lose_nodes
from engine.provisioning.pool.judge import Judge
from engine.provisioning.pool.problem import Placement, PoolProblem
from engine.words import bound_words, percent_words, server_words

__all__ = [
    "Confirmation",
    "alone_objective",
    "confirm_change",
    "confirm_estimate",
    "confirm_objectives",
    "objective_of_report",
    "on_nodes",
    "realised_objectives",
    "split_further",
]


_BUSY = 0.6  # share of the best core that an operator alone takes in the mean, from which on randomness may need parts


def split_further(fine: Deployment, problem: PoolProblem, judge: Judge, parts: Mapping[str, int]) -> dict[str, int]:
    """More parts, twice as many, for operators of queries that alone do not hold; empty where that would not help.

    Looked at are operators that may be split and are in parts already, or fill a core.

    Parameters
    ----------
    parts : mapping
        Parts that `problem` has them in.
    """
    more: dict[str, int] = {}
    best = np.where(problem.allowed, problem.budget.mean(axis=1)[None, :], 0.0).max(axis=1, initial=0.0)
    share = np.divide(problem.load.mean(axis=1), best, out=np.zeros(len(best)), where=best > 0.0)
    operators = problem.deployment.operators
    for i, query in enumerate(judge.queries):
        names = {
            operators[problem.operator[item]].id
            for item in np.flatnonzero(judge.members[i])
            if not problem.whole(operators[problem.operator[item]])
            and (operators[problem.operator[item]].id in parts or share[item] >= _BUSY)
        }
        open_ = {name for name in names if parts.get(name, 1) < MAX_PARTS}
        if open_ and np.isfinite(judge.bounds[i]):
            alone = alone_objective(fine, problem, judge, query)
            if alone is not None and alone.state != "holds":
                more |= {name: min(MAX_PARTS, 2 * parts.get(name, 1)) for name in open_}
    return more


def alone_objective(fine: Deployment, problem: PoolProblem, judge: Judge, query: str) -> RealisedObjective | None:
    """Realised figures of a query whose items have a core each, without links; None if one may have no core.

    Parameters
    ----------
    fine : Deployment
        At full resolution, with the operators of `problem`.
    """
    items = np.flatnonzero(judge.members[judge.queries.index(query)])
    nodes: list[Node] = []
    replicas: dict[str, list[Replica]] = {}
    for item in items.tolist():
        open_ = np.flatnonzero(problem.allowed[item])
        if not len(open_):
            return None
        best = int(problem.node[open_[problem.budget[open_].mean(axis=1).argmax()]])
        name = problem.deployment.nodes[best].id
        node = replace(fine.nodes[fine.node_index[name]], id=f"alone-{item}", cores=1)
        nodes.append(node)
        operator = fine.operators[problem.operator[item]].id
        replicas.setdefault(operator, []).append(Replica(node.id, 0, float(problem.fraction[item])))
    whole = replace(
        fine,
        nodes=tuple(nodes),
        links=(),
        operators=tuple(
            replace(operator, replicas=tuple(replicas[operator.id]))
            for operator in fine.operators
            if operator.id in replicas
        ),
        objectives=tuple(entry for entry in fine.objectives if entry.query == query),
        constraints=Constraints(),
        priorities={},
        plans={},
    )
    return realised_objectives(flow_queries(whole)).get(query)


_NAMED = 6  # queries in a list, the last of a longer one being the number of those left out


def realised_objectives(
    flowed: FlowedQueries,
    *,
    lost: str | None = None,
    queries: Collection[str] | None = None,
) -> dict[str, RealisedObjective]:
    """Realised figures of every query with an objective, or of those among `queries`."""
    deployment = flowed.deployment
    queues = realise(deployment, flowed.flow, queries=queries)
    waits = query_waits(deployment)
    known = with_waits(waits, queues)

    def realised(entry: Objective) -> RealisedObjective:
        own_s = known[entry.query].statistics[entry.statistic].estimate_s
        return _realised(
            entry,
            known[entry.query],
            flowed.standings[entry.query],
            lost,
            flowed.reporter.policy_gap(entry.query, entry.statistic, waits.get(entry.query, NO_WAITS).bound_s),
            own_s - queues[entry.query].statistics[entry.statistic].estimate_s,
        )

    return {entry.query: realised(entry) for entry in deployment.objectives if entry.query in known}


def objective_of_report(query: str, report: QueryReport, lost: str | None = None) -> RealisedObjective | None:
    """The realised figures that an estimate's report has of its objective; None without either."""
    if report.bound_s is None or report.noise is None:
        return None
    entry = Objective(query, report.statistic, report.bound_s)
    return _realised(entry, report.noise, report.standing, lost, report.gap, report.wait_s)


def _realised(
    entry: Objective,
    known: RealisedQuery,
    standing: LatencyStanding,
    lost: str | None,
    gap: PolicyGap | None,
    wait_s: float,
) -> RealisedObjective:
    figures: RealisedStatistic = known.statistics[entry.statistic]
    return RealisedObjective(
        query=entry.query,
        statistic=entry.statistic,
        bound_s=entry.bound_s,
        estimate_s=figures.estimate_s,
        low_s=figures.low_s,
        high_s=figures.high_s,
        lost=lost,
        standing=standing,
        gap=gap,
        wait_s=wait_s,
        assumed=(*known.assumed, *known.not_modelled),
        coarse_sources=known.assumed_sources,
    )


_Runs = list[int]


@dataclass(frozen=True, eq=False)
class Confirmation:
    """Realised figures of every objective, and the miss among them if there is one.

    Without figures Flow alone refused. Of several confirmations, as with nodes lost, each query has its worst figures.
    """

    objectives: Mapping[str, RealisedObjective]
    miss: ObjectiveMiss | None

    def with_worst_of(self, other: Confirmation) -> Confirmation:
        """Both: the worse figures of every query, the miss of either."""
        worst = dict(self.objectives)
        for query, entry in other.objectives.items():
            if query not in worst or entry.over > worst[query].over:
                worst[query] = entry
        return Confirmation(worst, self.miss or other.miss)


def on_nodes(deployment: Deployment, placement: Placement, names: Sequence[str], lost: str | None = None) -> Deployment:
    """`deployment` as `placement` has it, on the named nodes only, less one that is lost."""
    kept = set(names) - {lost}
    return lose_nodes(deployment.with_placement(placement), {node.id for node in deployment.nodes} - kept)


def confirm_objectives(
    deployment: Deployment,
    *,
    mace_every: int,
    lost: str | None = None,
    accepted: Collection[str] = (),
    in_full: bool = False,
    threatened: Collection[str] = (),
    runs: _Runs | None = None,
) -> Confirmation:
    """Confirm that every objective holds.

    Parameters
    ----------
    deployment : Deployment
        At the width that Flow runs on, everything in its place.
    mace_every : int
        Subintervals of it that make one of Mace's.
    lost : str, optional
        The node that it lacks, for the words.
    accepted : collection of str
        Queries that may be at risk: their median alone has to be within the bound.
    in_full : bool
        Whether to walk also where Flow alone refuses, for figures to show.
    threatened : collection of str
        Queries that are walked before all others; a miss among them ends it.
    runs : list of int, optional
        Its first number counts the runs of Flow.

    Returns
    -------
    Confirmation
        An objective holds where the upper end of its realised interval is within the bound. Flow is a screen: a mean
        path that is over the bound by more than a slice is refused without a walk, as is a query that never catches up.
        A query that puts nothing out is no miss as long as what one event would meet is within the bound: no placement
        makes its latency known, and the figures say that it is not. So is one that holds by stimulus time where nobody
        knows how much higher it ends under the policies of its nodes.
    """
    if runs is not None:
        runs[0] += 1
    run = flow_queries(deployment, mace_every=mace_every)
    judged = [entry for entry in deployment.objectives if entry.query in run.flow.by_query]
    flowed = {entry.query: run.value_s(entry.query, entry.statistic) for entry in judged}
    late = [
        entry
        for entry in judged
        if flowed[entry.query] > entry.bound_s + deployment.subinterval_s or run.standings[entry.query].is_endless
    ]
    if late and not in_full:
        over = {e.query: run.standings[e.query].times_over(flowed[e.query] / e.bound_s) for e in judged}
        return Confirmation({}, _miss(run.reporter.report, lost, late, over, {}, flowed))
    names = {entry.query for entry in judged}
    objectives: dict[str, RealisedObjective] = {}
    bad: list[Objective] = []
    for walked in _in_turn(names, () if in_full else threatened):
        objectives |= realised_objectives(run, lost=lost, queries=walked)
        bad = [entry for entry in judged if entry in late or _is_missed(objectives.get(entry.query), accepted)]
        if bad and not in_full:
            break
    if not bad:
        return Confirmation(objectives, None)
    over = {entry.query: max(flowed[entry.query] / entry.bound_s, objectives[entry.query].over) for entry in bad}
    return Confirmation(objectives, _miss(run.reporter.report, lost, bad, over, objectives, flowed))


def confirm_estimate(base: EstimateBase, *, accepted: Collection[str] = ()) -> Confirmation:
    """Confirmation by a kept estimate: figures of every objective, and the miss among them."""
    objectives = _objectives_of(base.estimate.queries)
    bad = [entry for entry in base.estimate.deployment.objectives if _is_missed(objectives.get(entry.query), accepted)]
    over = {entry.query: objectives[entry.query].over for entry in bad}
    flowed = {entry.query: base.estimate.queries[entry.query].flow_s or 0.0 for entry in bad}
    miss = _miss(base.estimate.queries.__getitem__, None, bad, over, objectives, flowed) if bad else None
    return Confirmation(objectives, miss)


def confirm_change(
    base: EstimateBase,
    after: Deployment,
    *,
    accepted: Collection[str] = (),
    threatened: Collection[str] = (),
    runs: _Runs | None = None,
) -> Confirmation:
    """The same as `confirm_objectives` of a change of what a kept estimate is of.

    Only queries that the change may touch are looked at: by Flow first, then by walks of those that are threatened or
    nearest to their bounds, then of the rest. All others have the figures that they had.
    """
    if runs is not None:
        runs[0] += 1
    found = base.changed(after)
    judged = [entry for entry in after.objectives if entry.query in found.queries]
    flowed = {entry.query: found.queries[entry.query].flow_s or 0.0 for entry in judged}
    standings = {entry.query: found.queries[entry.query].standing for entry in judged}
    late = [
        entry
        for entry in judged
        if flowed[entry.query] > entry.bound_s + after.subinterval_s or standings[entry.query].is_endless
    ]
    if late:
        over = {e.query: standings[e.query].times_over(flowed[e.query] / e.bound_s) for e in judged}
        return Confirmation({}, _miss(found.queries.__getitem__, None, late, over, {}, flowed))
    objectives: dict[str, RealisedObjective] = {}
    for walked in _in_turn({entry.query for entry in judged}, threatened):
        part = replace(found, queries={query: found.queries[query] for query in walked}).realised()
        objectives |= _objectives_of(part.queries)
        bad = [entry for entry in judged if _is_missed(objectives.get(entry.query), accepted)]
        if bad:
            over = {entry.query: objectives[entry.query].over for entry in bad}
            return Confirmation(objectives, _miss(found.queries.__getitem__, None, bad, over, objectives, flowed))
    return Confirmation(_objectives_of(base.estimate.queries) | objectives, None)


def _objectives_of(reports: Mapping[str, QueryReport]) -> dict[str, RealisedObjective]:
    """Figures of the objectives of realised reports."""
    found = ((query, objective_of_report(query, report)) for query, report in reports.items())
    return {query: entry for query, entry in found if entry is not None}


def _is_missed(found: RealisedObjective | None, accepted: Collection[str]) -> bool:
    """Whether an objective that was walked is one that is not kept, by what can be known."""
    if found is None or found.is_beyond_knowledge:
        return False
    return found.state not in ("holds", "unknown", "at_risk" if found.query in accepted else "")


def _in_turn(names: set[str], threatened: Collection[str]) -> list[set[str]]:
    """Names to be walked one set after the other: those that are threatened, then the rest."""
    first = names & set(threatened)
    return [turn for turn in (first, names - first) if turn] or [names]


def _miss(
    report_of: Callable[[str], QueryReport],
    lost: str | None,
    bad: Sequence[Objective],
    over: Mapping[str, float],
    objectives: Mapping[str, RealisedObjective],
    flowed: Mapping[str, float],
) -> ObjectiveMiss:
    """The miss of the query that is most over, with its bottleneck."""
    worst = max(bad, key=lambda entry: over[entry.query])
    realised = objectives.get(worst.query)
    report = report_of(worst.query)
    where, is_late = report.bottleneck, report.bottleneck is not None and report.bottleneck.excess_s > 0.0
    value_s = flowed[worst.query] if realised is None else realised.estimate_s
    at_risk = realised is not None and realised.state == "at_risk"
    high_s = max(realised.high_s, realised.policy_high_s or 0.0) if realised is not None and at_risk else value_s
    return ObjectiveMiss(
        query=worst.query,
        statistic=worst.statistic,
        bound_s=worst.bound_s,
        value_s=value_s,
        low_s=realised.low_s if realised else None,
        high_s=realised.high_s if realised else None,
        state="at_risk" if at_risk else "breached",
        over_s=high_s - worst.bound_s,
        by="flow" if realised is None else "walk",
        lost=lost,
        server=where.server if where else None,
        node=where.node if where else None,
        load_mean=where.load_mean if where else None,
        from_p=where.from_p if where and is_late else None,
        to_p=where.to_p if where and is_late else None,
        operators=where.operators[:5] if where else (),
        message=f"{_miss_words(worst, value_s, lost, realised)}{_where_words(report)}",
        realised=realised,
        over={entry.query: over[entry.query] for entry in bad},
        noisy=frozenset(entry.query for entry in bad if flowed[entry.query] <= entry.bound_s),
    )


def _miss_words(entry: Objective, value_s: float, lost: str | None, realised: RealisedObjective | None) -> str:
    if realised is None:
        text = f"query {entry.query} takes {bound_words(value_s, entry.bound_s)} with mean costs"
        return f"{text} and {lost} lost" if lost else text
    return f"query {entry.query} {'is at risk at' if realised.state == 'at_risk' else 'takes'} {realised.words}"


def _where_words(report: QueryReport) -> str:
    if report.standing.is_endless:
        return f"; {report.standing.sentence[0].lower()}{report.standing.sentence[1:].removesuffix('.')}"
    where = report.bottleneck
    if where is None:
        return ""
    if where.excess_s > 0.0:
        return f"; {server_words(where.server)} falls behind"
    return f"; {server_words(where.server)} is loaded {percent_words(where.load_mean)} in the mean"
