"""Cheap answers to "would this scenario pass?", for searches: by Mace, and by Flow at Mace's width.

Both follow mean costs. They are calibrated on the scenario the search starts from, where the full estimate with its
interval is known: the mean path is scaled to the one it had there, and what randomness adds on top shrinks as queues do
with the load of their servers. A search trusts neither; it confirms in full, and what was estimated in full is one more
point to scale by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from engine.admission.evaluation import Evaluation, Evaluator, QueryOutcome, servers_of_query
from engine.admission.reasons import tolerance_s
from engine.admission.scenario import AdmissionScenario, CandidateQuestion
from engine.arrays import FloatArray, statistic_or_worst
from engine.document.deployment import Deployment
from engine.estimation.loads import sink_events
from engine.estimation.mace import Mace, mace
from engine.estimation.overload import lasting_overloads, still_growing
from engine.estimation.probes import probe_deployment
from engine.estimation.propagation import FlowBase, changed_flow
from engine.policies.rules import ADMIT

__all__ = ["Screen"]


_WINDOW_S, _MIN_WINDOW = 10.0, 20  # loads are smoothed over so many seconds, and at least so many subintervals
_OVER = 1.01  # of a limit: what a server that never catches up counts at least
_FULL = 0.98  # load above which a queue is not said to grow further


@dataclass(frozen=True)
class _Screened:
    """A screen's value of a query: seconds of the mean path, and what one event's queue at its servers takes."""

    path_s: float
    queue_s: float


@dataclass(frozen=True)
class _Known:
    """One query in a scenario that was estimated in full: what was screened, and what its upper end consists of.

    That is the mean path, waits that no queue makes, and what randomness adds.
    """

    screened: _Screened
    path_s: float
    wait_s: float
    random_s: float

    @property
    def upper_s(self) -> float:
        return self.path_s + self.wait_s + self.random_s

    def above(self, value: _Screened) -> float:
        """Seconds above the mean path with queues that shrink; whether they grow, the full estimate tells."""
        queue_s = self.screened.queue_s
        return self.wait_s + self.random_s * (min(1.0, value.queue_s / queue_s) if queue_s > 0.0 else 1.0)


@dataclass(frozen=True)
class _Scale:
    """From a screen's value to the upper end of the full estimate.

    `start` is the scenario the search starts from, `now` what runs (None for the candidate). `learned` holds
    (expected, full) upper ends of scenarios that were estimated since.
    """

    start: _Known
    now: _Known | None
    width_s: float
    learned: tuple[tuple[float, float], ...] = ()

    def upper(self, value: _Screened) -> float:
        """The upper end expected, in proportion to the nearest of what was learned if that is nearer than the start."""
        expected = self.expected(value)
        nearest = min(self.learned, key=lambda point: abs(point[0] - expected), default=None)
        if nearest is None or abs(nearest[0] - expected) > abs(self.start.upper_s - expected):
            return expected
        return expected * nearest[1] / nearest[0] if nearest[0] > 0.0 else nearest[1]

    def expected(self, value: _Screened) -> float:
        """The upper end by what is known: between what runs and the start in proportion to the mean path."""
        start_s = self.start.screened.path_s
        if self.now is None:
            return self._path(self.start, value) + self.start.above(value)
        was_s = self.now.screened.path_s
        if start_s - was_s <= self.width_s:
            is_now = abs(value.path_s - was_s) < abs(value.path_s - start_s)
            return self._path(self.now if is_now else self.start, value) + self.start.above(value)
        share = min(1.0, max(0.0, (value.path_s - was_s) / (start_s - was_s)))
        path_s = self.now.path_s + (self.start.path_s - self.now.path_s) * share
        if not 0.0 < share < 1.0:
            path_s = self._path(self.start if share else self.now, value)
        return path_s + (1.0 - share) * self.now.above(value) + share * self.start.above(value)

    def _path(self, known: _Known, value: _Screened) -> float:
        # Below the width of a subinterval a ratio says nothing; there the difference is kept.
        if known.screened.path_s > self.width_s:
            return value.path_s * known.path_s / known.screened.path_s
        return value.path_s + known.path_s - known.screened.path_s


class Screen:
    """Screens scenarios of one question."""

    def __init__(
        self,
        question: CandidateQuestion,
        evaluator: Evaluator,
        base: AdmissionScenario,
        after: Evaluation,
    ) -> None:
        before = evaluator.before_from(base.start_p)
        self._question, self._before, self._base, self._after = question, before, base, after
        self._evaluator = evaluator
        self._every = question.mace_every
        self._width_s = question.mace_width_s
        self._judged = [query for query, outcome in after.outcomes.items() if outcome.bound_s is not None]
        self._own = question.candidate.query
        self._neighbours = [query for query in self._judged if query in before.outcomes and query != self._own]
        self._screened: dict[tuple[Any, ...], dict[str, _Screened]] = {}

    @cached_property
    def _running(self) -> Mace:
        return self._mace(self._question.running)

    @cached_property
    def _now(self) -> Mace:
        """Of the scenario that a search starts from."""
        return self._mace(self._base.deployment)

    @cached_property
    def _mace_scale(self) -> dict[str, _Scale]:
        begin = self._begin(self._base)
        now = _mace_values(self._now, self._judged, begin)
        return self._scales(now, _mace_values(self._running, self._neighbours, begin))

    @cached_property
    def _flow_scale(self) -> dict[str, _Scale]:
        begin = self._begin(self._base)
        flowed = self._flow_values(self._now, begin)
        known = [query for query in self._neighbours if query in flowed]
        return self._scales(flowed, self._values(self._evaluator.base.coarse_flow, known, self._running, begin))

    def _mace(self, deployment: Deployment) -> Mace:
        """Mace of a deployment in which every query puts something out."""
        return mace(probe_deployment(deployment).deployment.coarsened(self._every))

    def _begin(self, scenario: AdmissionScenario) -> int:
        """First of Mace's subintervals (from 0) that counts: the one in which the candidate starts."""
        return (scenario.start_p - 1) // self._every

    def mace_s(self, scenario: AdmissionScenario) -> float:
        """Largest predicted upper end over its limit, of all queries and servers; the scenario passes up to 1."""
        result, begin = self._mace(scenario.deployment), self._begin(scenario)
        return max(
            self._overshoot(scenario, _mace_values(result, self._judged, begin), self._mace_scale),
            self._overload(result, self._running, begin),
        )

    def flow_s(self, scenario: AdmissionScenario) -> float:
        """As `mace_s`, by Flow at Mace's width."""
        result = self._mace(scenario.deployment)
        return max(
            self._overshoot(scenario, self._values_of(scenario, result), self._flow_scale),
            self._overload(result, self._running, self._begin(scenario)),
        )

    def learn(self, scenario: AdmissionScenario, estimated: Evaluation) -> None:
        """Learn from the full estimate of a scenario, for later screens by Flow."""
        for query, value in self._values_of(scenario, None).items():
            scale, now = self._flow_scale.get(query), estimated.outcomes[query]
            if scale is not None:
                upper_s = self._upper_s(now)
                if now.high_s is None:
                    # It failed by its mean path alone: what randomness adds is as where it is known.
                    upper_s += scale.expected(value) - scale.expected(replace(value, queue_s=0.0))
                self._flow_scale[query] = replace(scale, learned=(*scale.learned, (scale.expected(value), upper_s)))

    def _values_of(self, scenario: AdmissionScenario, result: Mace | None) -> dict[str, _Screened]:
        """Flow's values of a scenario, which are asked for again once it is estimated; `result` is its Mace."""
        key = scenario.changes
        if key not in self._screened:
            found = result or self._mace(scenario.deployment)
            begin = self._begin(scenario)
            self._screened[key] = self._flow_values(found, begin)
        return self._screened[key]

    def limit_s(self, query: str, bound_s: float) -> float:
        """Limit of the upper end of `query`: its bound, or its value before where that is already over."""
        was = self._before.outcomes.get(query)
        is_own = query == self._own
        if was is None or is_own or was.state in ("holds", "unknown") or was.standing.is_endless:
            return bound_s * (1.0 - self._question.policy.margin)
        now = self._after.outcomes[query]
        ratio = self._upper_s(now) / now.estimate_s if now.estimate_s > 0.0 else 1.0
        if was.state == "breached":
            return max(bound_s, (was.estimate_s + tolerance_s(was)) * ratio)
        return max(bound_s, was.upper_s + tolerance_s(was))

    def _upper_s(self, outcome: QueryOutcome) -> float:
        return outcome.upper_s if self._question.policy.evidence.at_risk != ADMIT else outcome.estimate_s

    def _scales(self, values: dict[str, _Screened], values_before: dict[str, _Screened]) -> dict[str, _Scale]:
        scales = {}
        for query, value in values.items():
            was = values_before.get(query)
            now = None if was is None else self._known(was, self._before.outcomes[query])
            scales[query] = _Scale(self._known(value, self._after.outcomes[query]), now, self._width_s)
        return scales

    def _known(self, value: _Screened, outcome: QueryOutcome) -> _Known:
        random_s = max(0.0, self._upper_s(outcome) - outcome.wait_s - _path_s(outcome))
        return _Known(value, _path_s(outcome), outcome.wait_s, random_s)

    def _overshoot(self, scenario: AdmissionScenario, values: dict[str, _Screened], scales: dict[str, _Scale]) -> float:
        """Largest upper end over its limit."""
        worst = 0.0
        for query, value in values.items():
            objective = scenario.deployment.objective_of(query)
            if objective is not None:
                limit_s = self.limit_s(query, objective.bound_s)
                scale = scales.get(query)
                worst = max(worst, (scale.upper(value) if scale else value.path_s) / limit_s)
        return worst

    def _overload(self, result: Mace, before: Mace, begin: int) -> float:
        """Largest mean load over what the policy allows, of servers that get more than they have `before`.

        One that never catches up is over, and with a later start also one whose backlog still grows at the end.
        """
        was = _mean_loads(before, begin)
        endless = {overload.server: overload.growth for overload in lasting_overloads(result, begin).values()}
        if begin:
            servers = result.deployment.servers
            endless = {servers[i].name: 0.0 for i in still_growing(result, begin).tolist()} | endless
        worst = 0.0
        for server, mean in _mean_loads(result, begin).items():
            if mean > was.get(server, 0.0) * 1.01:
                worst = max(worst, mean / self._question.policy.max_mean_load)
                worst = max(worst, _OVER + endless[server]) if server in endless else worst
        return worst

    def _flow_values(self, result: Mace, begin: int) -> dict[str, _Screened]:
        """Values of the queries that a change concerns."""
        flowed = changed_flow(self._evaluator.base.coarse_flow, result.deployment)
        found = FlowBase(flowed.deployment, flowed.flow)
        return self._values(found, [query for query in self._judged if query in flowed.queries], result, begin)

    def _values(self, found: FlowBase, queries: Sequence[str], result: Mace, begin: int) -> dict[str, _Screened]:
        """Values of some queries by Flow at Mace's width, of the events from a subinterval on."""
        events = sink_events(found.deployment)
        queues = _queues_s(result)
        values = {}
        for query in queries:
            weights = np.array(events[query])
            weights[:begin] = 0.0
            path_s = found.flow.statistic_of(query, weights, _statistic(found.deployment, query))
            servers = servers_of_query(result.deployment, query)
            values[query] = _Screened(path_s, float(queues[servers].sum()))
        return values


def _mean_loads(result: Mace, begin: int) -> dict[str, float]:
    """Mean load of every server from a subinterval (from 0) on, as a share of its capacity."""
    means = result.load_share[:, begin:].mean(axis=1)
    return {server.name: float(means[i]) for i, server in enumerate(result.deployment.servers)}


def _path_s(outcome: QueryOutcome) -> float:
    """The mean path of an outcome."""
    return outcome.estimate_s - outcome.wait_s if outcome.flow_s is None else outcome.flow_s


def _queues_s(result: Mace) -> FloatArray:
    """Wait of an event at each server at its highest load, as queues of single events grow: rho / (1 - rho)."""
    share = result.load_share
    window = min(share.shape[1], max(_MIN_WINDOW, round(_WINDOW_S / result.deployment.subinterval_s)))
    sums = np.cumsum(np.pad(share, ((0, 0), (1, 0))), axis=1)
    load = np.minimum((sums[:, window:] - sums[:, :-window]).max(axis=1) / window, _FULL)
    return np.asarray(result.lambda_s * load / (1.0 - load))


def _statistic(deployment: Deployment, query: str) -> str:
    objective = deployment.objective_of(query)
    return objective.statistic if objective else "worst"


def _mace_values(result: Mace, queries: list[str], begin: int) -> dict[str, _Screened]:
    """The statistic of each query's objective, of the largest Mace over its servers, from a subinterval on."""
    coarse = result.deployment
    weights: dict[str, FloatArray] = {}
    values = {}
    queues = _queues_s(result)
    for query in queries:
        servers = servers_of_query(coarse, query)
        statistic = _statistic(coarse, query)
        if statistic == "worst":
            path_s = float(result.worst_s[servers].max(initial=0.0))
        else:
            weights = weights or sink_events(coarse)
            series = result.mace_s[servers].max(axis=0, initial=0.0)
            counted = np.array(weights[query])
            counted[:begin] = 0.0
            path_s = statistic_or_worst(series, counted, statistic)
        values[query] = _Screened(path_s, float(queues[servers].sum()))
    return values
