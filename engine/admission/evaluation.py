"""Estimates for admission, with what random costs and arrivals do, and their effects on every query and node.

Queries that share no server and no stream with anything that changed keep the estimate they had: a server without a
change gives every slice the same capacity as before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from engine.admission.answer import NodeEffect, QueryEffect, Widening
from engine.admission.scenario import AdmissionScenario, CandidateQuestion
from engine.arrays import FloatArray, IntArray, step_maxima
from engine.document.deployment import Deployment, Source
from engine.document.policies import PolicyGap
from engine.document.topology import servers_above
from engine.estimation.answer import Alarm, Bottleneck, CoreLoad, combine_cores
from engine.estimation.base import EstimateBase
from engine.estimation.estimate import Estimate
from engine.estimation.mace import Mace
from engine.estimation.noise.dispersion import MEASURED_FINELY
from engine.estimation.overload import lasting_overloads, still_growing
from engine.estimation.reports import REALISED, QueryReport
from engine.estimation.waits.summary import WaitTerm
from engine.latency_state import KNOWN, CatchUp, LatencyStanding, bound_state
from engine.measurement.calibration import IntervalFactors, scale_interval
from engine.placement.ground import RunningGround

__all__ = [
    "CURVE_POINTS",
    "Evaluation",
    "Evaluator",
    "QueryOutcome",
    "coarse_sources",
    "list_effects",
    "list_effects_without",
    "node_effects",
    "servers_of_query",
]

CURVE_POINTS = 120  # steps at most in which paths are kept


@dataclass(frozen=True)
class QueryOutcome:
    """Estimate of one query by the statistic of its objective (the worst case without one). Seconds.

    Realised figures: the median, and the 90 % interval. An outcome without an interval is of the mean path alone, which
    a search looks at first; nothing is admitted on it.
    """

    query: str
    statistic: str
    bound_s: float | None
    estimate_s: float
    low_s: float | None
    high_s: float | None
    flow_s: float | None  #: by mean costs alone
    resolution_s: float
    bottleneck: Bottleneck | None
    mean_s: float | None = None
    is_predicted: bool = False  #: by a model that never saw the query run
    assumed_sources: tuple[str, ...] = ()  #: whose arrivals inside a step wider than a subinterval are a model
    assumed_costs: tuple[str, ...] = ()  #: inputs whose variation of costs was not given
    wait_s: float = 0.0  #: part of the estimate that no queue makes
    mean_wait_s: float = 0.0  #: of the mean
    waits: tuple[WaitTerm, ...] = ()
    widening: Widening | None = None  #: by scored runs
    standing: LatencyStanding = KNOWN  #: whether the figures are known
    gap: PolicyGap | None = None  #: what it lacks where servers run other policies than stimulus time
    catch_up: CatchUp | None = None  #: with what waits where the horizon begins; None where nothing holds it up
    oldest_s: float = 0.0  #: age of the oldest of its events that wait there: no placement makes its latency less

    @cached_property
    def state(self) -> str:
        """holds, at_risk (only the upper end is over), breached, unknown, or none without an objective.

        A predicted outcome is at risk as long as a part of its interval is within the objective.
        """
        if self.bound_s is None:
            return "none"
        value_s = self.low_s if self.is_predicted and self.low_s is not None else self.estimate_s
        state = bound_state(self.bound_s, value_s, self.high_s, self.standing)
        return "at_risk" if state == "holds" and self.lacks_policy else state

    @property
    def policy_high_s(self) -> float | None:
        """Upper end under the policies in force; None where there is no gap, or nobody knows one."""
        if self.gap is None:
            return None
        return self.gap.high_s(self.estimate_s if self.high_s is None else self.high_s, self.wait_s)

    @property
    def lacks_policy(self) -> bool:
        """Whether the objective would hold by stimulus time, and nobody can say so of the policies in force."""
        if self.gap is None or self.bound_s is None or not self.standing.is_known:
            return False
        return self.gap.lacks(self.bound_s, self.high_s or self.estimate_s, self.wait_s)

    @property
    def is_certain(self) -> bool:
        """Whether a breach is one: not where arrivals are a model by which the objective may hold as well."""
        if self.standing.is_endless or not self.assumed_sources or self.low_s is None or self.bound_s is None:
            return True
        return self.low_s > self.bound_s

    @property
    def upper_s(self) -> float:
        """Upper end of the interval, or the estimate where there is none; under the policies in force where known."""
        return max(self.estimate_s if self.high_s is None else self.high_s, self.policy_high_s or 0.0)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Outcomes of all queries of a deployment, and the load of its servers.

    `paths` are the mean paths of the queries in at most `CURVE_POINTS` steps of the horizon, the largest of each.
    `mace` is that of the deployment at Mace's width, of a change as far as it may differ from `before`, of which all
    else is; `begin` is the first of its subintervals (from 0) that counts: the one in which the candidate starts.
    """

    outcomes: Mapping[str, QueryOutcome]
    paths: Mapping[str, FloatArray]
    mace: Mace
    alarm: Alarm
    begin: int = 0
    before: Evaluation | None = None
    concerned: frozenset[str] = frozenset()

    @cached_property
    def peaks(self) -> Mapping[str, float]:
        """Largest load of every server, as a share of its capacity."""
        return self._joined("peaks", self.mace.load_share.max(axis=1))

    @cached_property
    def means(self) -> Mapping[str, float]:
        """Mean load of every server over the part of the horizon that counts, as a share of its capacity."""
        return self._joined("means", self.mace.load_share[:, self.begin :].mean(axis=1))

    @cached_property
    def node_loads(self) -> dict[str, FloatArray]:
        """Load of the busiest core of every node of `mace`, in at most `CURVE_POINTS` steps of the horizon."""
        deployment, loads = self.mace.deployment, dict[str, FloatArray]()
        shares = step_maxima(self.mace.load_share, CURVE_POINTS)
        for i, server in enumerate(deployment.servers):
            if server.node is not None:
                name = deployment.nodes[server.node].id
                loads[name] = np.maximum(loads[name], shares[i]) if name in loads else shares[i]
        return loads

    @cached_property
    def effects_of_nothing(self) -> Mapping[str, QueryEffect]:
        """Effects on queries of which nothing changes."""
        width_s = self.mace.deployment.subinterval_s
        return {query: _effect(outcome, outcome, (), width_s) for query, outcome in self.outcomes.items()}

    @cached_property
    def quiet(self) -> frozenset[str]:
        """Queries of which there is nothing to say as long as their outcome stays."""
        return frozenset(query for query, outcome in self.outcomes.items() if outcome.state in ("holds", "none"))

    def _joined(self, name: str, values: FloatArray) -> Mapping[str, float]:
        """A figure of every server: as found, or as before where nothing was looked for."""
        known = {} if self.before is None else getattr(self.before, name)
        found = zip(self.mace.deployment.servers, values.tolist(), strict=True)
        return {**known, **{server.name: value for server, value in found}}

    @cached_property
    def growing(self) -> frozenset[str]:
        """Servers whose backlog still grows at the end of the horizon, for good or by a burst."""
        servers = self.mace.deployment.servers
        found = {servers[i].name for i in still_growing(self.mace, self.begin).tolist()}
        return frozenset(found if self.before is None else found | (self.before.growing - {s.name for s in servers}))

    @cached_property
    def endless(self) -> frozenset[str]:
        """Servers that never catch up."""
        found = {overload.server for overload in lasting_overloads(self.mace, self.begin).values()}
        if self.before is None:
            return frozenset(found)
        return frozenset(found | (self.before.endless - {server.name for server in self.mace.deployment.servers}))

    @cached_property
    def node_peaks(self) -> Mapping[str, float]:
        """Largest load of the busiest core of every node."""
        deployment = self.mace.deployment
        cores: dict[str, list[CoreLoad]] = {node.id: [] for node in deployment.nodes}
        for server in deployment.servers:
            if server.node is not None:
                load = CoreLoad(self.means[server.name], self.peaks[server.name])
                cores[deployment.nodes[server.node].id].append(load)
        known = {} if self.before is None else self.before.node_peaks
        return {**known, **{node: combine_cores(loads).peak for node, loads in cores.items()}}


# What runs is the same for consecutive requests, and for the alternatives of a decision that are looked at next.
# A process keeps the evaluations of the last few, by their digest and the subinterval from which events count, and
# of the last what changes are estimated from.
_KEPT = 4
_STEP_TOLERANCE = 1e-6
_before: dict[tuple[Any, ...], Evaluation] = {}
_bases: dict[tuple[str, int], EstimateBase] = {}
_grounds: WeakKeyDictionary[EstimateBase, RunningGround] = WeakKeyDictionary()


class Evaluator:
    """Runs the models for one question, and remembers what runs now."""

    def __init__(self, question: CandidateQuestion, base: EstimateBase | None = None) -> None:
        self.question, self._kept = question, base

    @cached_property
    def base(self) -> EstimateBase:
        """Estimate of what runs now, from which changes are estimated."""
        if self._kept is not None:
            return self._kept
        running, every = self.question.running, self.question.mace_every
        key = running.digest, every
        found = _bases.get(key)
        if found is None:
            found = EstimateBase.of(running, every)
            _bases.clear()
            _bases[key] = found
        return found

    @property
    def ground(self) -> RunningGround:
        """All that runs now, as placements see it."""
        base = self.base
        if base not in _grounds:
            _grounds[base] = RunningGround(base.estimate.deployment, base.estimate.judged)
        return _grounds[base]

    @cached_property
    def before(self) -> Evaluation:
        """Evaluation of what runs now."""
        return self._before_from(1)

    def before_from(self, start_p: int) -> Evaluation:
        """Evaluation of what runs now, of the events from a subinterval (from 1) on: as a later start is judged."""
        return self.before if start_p == 1 else self._before_from(start_p)

    def _before_from(self, start_p: int) -> Evaluation:
        running = self.question.running
        key = (running.digest, self.question.mace_every, self.widening, start_p)
        evaluation = _before.pop(key, None)
        if evaluation is None:
            known = self.base.estimate
            evaluation = self._evaluation(running, known if start_p == 1 else known.counted(start_p - 1).realised())
        _before[key] = evaluation  # the newest last
        for old in list(_before)[:-_KEPT]:
            _before.pop(old, None)
        return evaluation

    @property
    def widening(self) -> tuple[tuple[str, tuple[float, int]], ...]:
        """The factors by which scored runs widen intervals of what runs."""
        return tuple(sorted(self._factors.items()))

    @cached_property
    def _factors(self) -> dict[str, tuple[float, int]]:
        """Factor of the upper side, and its scored runs, of every running query whose interval was found too narrow."""
        found = {query: known.factors for query, known in self.question.calibrations.items()}
        return {query: (factors.upper, factors.runs) for query, factors in found.items() if factors.upper > 1.0}

    @cached_property
    def without_backlogs(self) -> Evaluator:
        """Evaluator of the same question with nothing waiting where the horizon begins."""
        running = self.question.running
        if running.oldest_backlog_s is None:
            return self
        return Evaluator(replace(self.question, running=running.without_backlogs()))

    def full(self, scenario: AdmissionScenario, goes_on: Callable[[Evaluation], bool] | None = None) -> Evaluation:
        """Evaluate a scenario with random costs and arrivals; by mean costs alone if `goes_on` declines on these."""
        deployment, start_p = scenario.deployment, scenario.start_p
        found = self.base.changed(deployment, counted_from=start_p - 1, concerned=self._judged_anew(scenario))
        before = self.before_from(start_p)
        if goes_on is not None:
            evaluation = self._evaluation(deployment, found, before)
            if not goes_on(evaluation):
                return evaluation
        return self._evaluation(deployment, found.realised(), before)

    def holds_under(
        self, running: Deployment, scenario: AdmissionScenario, holds: Callable[[Evaluation, Evaluation], bool]
    ) -> bool:
        """Whether a scenario holds beside what runs under the same stress: `holds` is told of both, realised.

        Both are estimated of the queries that the scenario concerns under that stress. What others are is the same in
        both, so that they are taken as they are without it.
        """
        stressed, begin = self.base.shifted(running), scenario.start_p - 1
        found = stressed.changed(scenario.deployment, counted_from=begin, concerned=self._judged_anew(scenario))
        alone = stressed.changed(running, counted_from=begin, concerned=found.queries.keys() & {*running.queries})
        stress = replace(alone.realised(), judged=stressed.estimate.judged)  # what it does to servers is nobody's doing
        before = self._evaluation(running, stress, self.before_from(scenario.start_p))
        return holds(before, self._evaluation(scenario.deployment, found, before)) and holds(
            before, self._evaluation(scenario.deployment, found.realised(), before)
        )

    def _judged_anew(self, scenario: AdmissionScenario) -> list[str]:
        """Queries with another objective than now."""
        was = {objective.query: objective for objective in self.question.running.objectives}
        return [found.query for found in scenario.deployment.objectives if was.get(found.query) != found]

    def _evaluation(self, deployment: Deployment, estimated: Estimate, before: Evaluation | None = None) -> Evaluation:
        """Evaluation of the queries that were estimated; of the others it is that of `before`."""
        every = self.question.mace_every
        known, paths = (before.outcomes, before.paths) if before else ({}, {})
        coarse = {source.id for source in deployment.sources if _is_coarse(source, deployment.subinterval_s * every)}
        outcomes = _outcomes(deployment, estimated, known, coarse)
        if estimated.basis == REALISED:
            outcomes |= {q: _widened(outcomes[q], *self._factors[q]) for q in estimated.queries if q in self._factors}
        paths = {**paths, **{q: step_maxima(r.series["flow"], CURVE_POINTS) for q, r in estimated.queries.items()}}
        return Evaluation(
            outcomes,
            paths,
            estimated.judged,
            estimated.alarm,
            estimated.counted_from // every,
            before,
            frozenset(estimated.queries),
        )


def _outcomes(
    deployment: Deployment, estimated: Estimate, known: Mapping[str, QueryOutcome], coarse: Collection[str]
) -> dict[str, QueryOutcome]:
    """Outcomes of all queries in their order: as estimated, or as known where they were not."""
    outcomes = {**known, **{query: _outcome(query, report, coarse) for query, report in estimated.queries.items()}}
    return {query: outcomes[query] for query in deployment.queries}


def _outcome(query: str, report: QueryReport, coarse: Collection[str]) -> QueryOutcome:
    modelled = report.noise.assumed_sources if report.noise else ()
    return QueryOutcome(
        query=query,
        statistic=report.statistic,
        bound_s=report.bound_s,
        estimate_s=report.estimate_s,
        low_s=report.low_s,
        high_s=report.high_s,
        flow_s=report.flow_s,
        resolution_s=report.resolution_s,
        bottleneck=report.bottleneck,
        mean_s=report.mean_s,
        assumed_sources=tuple(name for name in modelled if name in coarse),
        assumed_costs=report.noise.assumed_costs if report.noise else (),
        wait_s=report.wait_s,
        mean_wait_s=report.waits.mean_s,
        waits=report.waits.terms,
        standing=report.standing,
        gap=report.gap,
        catch_up=report.catch_up,
        oldest_s=report.oldest_s,
    )


def _widened(outcome: QueryOutcome, factor: float, runs: int) -> QueryOutcome:
    """The outcome with its upper end as far off as scored runs ask for.

    The lower end stays: it is what makes a miss certain, and widening it would admit what was rejected. Nothing is
    narrowed: runs are of latencies with the waits of epochs and batches, which an outcome does not have.
    """
    if outcome.low_s is None or outcome.high_s is None:
        return outcome
    factors = IntervalFactors(1.0, factor, runs, True)
    _, high_s = scale_interval(outcome.estimate_s, outcome.low_s, outcome.high_s, factors)
    return replace(outcome, high_s=high_s, widening=Widening(factor, runs, outcome.high_s))


def coarse_sources(deployment: Deployment, queries: Collection[str], width_s: float) -> tuple[Source, ...]:
    """Sources that some queries read, by whatever way, and of which only counts over more than `width_s` are known.

    A dispersion that was measured at an eighth of their step or less tells of the bursts within.
    """
    own = (deployment.operators[i].id for query in queries for i in deployment.operators_of(query))
    return tuple(
        source
        for source in deployment.with_above(own)[0]
        if _is_coarse(source, width_s)
        and (source.dispersion_step_s or np.inf) > (source.arrivals_step_s or 0.0) * MEASURED_FINELY
        and source.arrivals.any()
    )


def _is_coarse(source: Source, width_s: float) -> bool:
    return (source.arrivals_step_s or 0.0) > width_s * (1.0 + _STEP_TOLERANCE)


def list_effects(
    question: CandidateQuestion, scenario: AdmissionScenario, before: Evaluation, after: Evaluation
) -> tuple[QueryEffect, ...]:
    """One entry per running query, in their order, and one for the candidate."""
    running, width_s = question.running, question.mace_width_s
    nodes = scenario.nodes_of(question.candidate.query)
    near = {*scenario.touched, *(query for query, was in before.outcomes.items() if after.outcomes[query] is not was)}
    near.update(*(running.queries_by_node.get(node, ()) for node in nodes))
    effects = dict(before.effects_of_nothing)
    for query in near & effects.keys():
        shares = [node for node in scenario.nodes_of(query) if node in nodes]
        effects[query] = _effect(before.outcomes[query], after.outcomes[query], shares, width_s)
    return *effects.values(), _effect(None, after.outcomes[question.candidate.query], nodes, width_s)


def list_effects_without(question: CandidateQuestion, before: Evaluation) -> tuple[QueryEffect, ...]:
    """The effects of a candidate that can be placed nowhere: none; of itself nothing is known."""
    candidate, objective = question.candidate, question.candidate.objective
    statistic, bound_s = (objective.statistic, objective.bound_s) if objective else ("worst", None)
    return (
        *before.effects_of_nothing.values(),
        QueryEffect(query=candidate.query, statistic=statistic, bound_s=bound_s, is_candidate=True, standing=None),
    )


def _effect(was: QueryOutcome | None, now: QueryOutcome, shares: Sequence[str], width_s: float) -> QueryEffect:
    gap = now.gap.answer(now.policy_high_s) if now.gap else None
    return QueryEffect(
        query=now.query,
        statistic=now.statistic,
        bound_s=now.bound_s,
        before_s=was.estimate_s if was else None,
        after_s=now.estimate_s,
        flow_s=now.flow_s,
        low_s=now.low_s,
        high_s=now.high_s,
        change_s=now.estimate_s - was.estimate_s if was else None,
        before_state=was.state if was else "none",
        after_state=now.state,
        resolution_s=now.resolution_s,
        shares=tuple(shares),
        bottleneck=now.bottleneck.server if now.bottleneck else None,
        when_s=(now.bottleneck.at_p - 1) * width_s if now.bottleneck else None,
        is_candidate=was is None,
        is_predicted=now.is_predicted,
        scheduling=gap,
        widening=now.widening,
        standing=now.standing,
        catch_up_before=was.catch_up if was else None,
        catch_up_after=now.catch_up,
    )


def node_effects(before: Evaluation, after: Evaluation) -> tuple[NodeEffect, ...]:
    """Peak load of the busiest core of every node, before and after; a new node has no before."""
    was = before.node_peaks
    return tuple(NodeEffect(name, was.get(name), peak) for name, peak in after.node_peaks.items())


def servers_of_query(deployment: Deployment, query: str) -> IntArray:
    """Servers that the operators of `query` are on, and the links into them."""
    layout = deployment.layout
    first = layout.rep_start
    replicas = [r for j in deployment.operators_of(query) for r in range(first[j], first[j + 1])]
    return servers_above(layout, np.array(replicas, dtype=np.int64))
