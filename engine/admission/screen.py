"""Cheap answers to "would this scenario pass?", for searches: by Mace, and by Flow at Mace's width.

Both are calibrated on the scenario the search starts from, where the full estimate with its interval is known: what the
screen says of a query is scaled to the upper end it had there. A search trusts neither; it confirms in full, and what
fails in full is one more point to scale by.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from engine.admission.evaluation import Evaluation, QueryOutcome, related_queries, restrict_to_queries
from engine.admission.reasons import tolerance_s
from engine.admission.scenario import AdmissionScenario, CandidateQuestion
from engine.arrays import FloatArray, IntArray, statistic_of
from engine.document.deployment import Deployment
from engine.estimation.flow import flow
from engine.estimation.mace import Mace, mace
from engine.estimation.margins import sink_events

__all__ = ["Screen", "servers_of_query"]


@dataclass(frozen=True)
class _Scale:
    """From a screen's value to the upper end of the full estimate, through the points where both are known.

    `known` holds (screened, upper) for the scenario the search starts from, and for what runs now; `learned` those of
    scenarios that failed in full.
    """

    known: tuple[tuple[float, float], ...]
    width_s: float
    learned: tuple[tuple[float, float], ...] = ()

    def upper(self, value_s: float) -> float:
        """The upper end expected: as known, or in proportion to the nearest of what was learned if that is nearer."""
        if self.learned:
            nearest = min(self.learned, key=lambda point: abs(point[0] - value_s))
            distance = abs(nearest[0] - value_s)
            if distance <= min(abs(screened - value_s) for screened, _ in self.known):
                expected = self._by_known(nearest[0])
                return self._by_known(value_s) * nearest[1] / expected if expected > 0.0 else nearest[1]
        return self._by_known(value_s)

    def _by_known(self, value_s: float) -> float:
        (screened_s, upper_s), *others = self.known
        if others:
            was_s, was_upper_s = others[0]
            if screened_s - was_s > self.width_s and was_s <= value_s <= screened_s:
                return was_upper_s + (upper_s - was_upper_s) * (value_s - was_s) / (screened_s - was_s)
            if abs(value_s - was_s) < abs(value_s - screened_s):
                screened_s, upper_s = was_s, was_upper_s
        # Below the width of a subinterval a ratio says nothing; there the difference is kept.
        if screened_s > self.width_s:
            return value_s * upper_s / screened_s
        return value_s + upper_s - screened_s


class Screen:
    """Screens scenarios of one question."""

    def __init__(
        self, question: CandidateQuestion, before: Evaluation, base: AdmissionScenario, after: Evaluation
    ) -> None:
        self._question, self._before, self._after = question, before, after
        self._every = question.mace_every
        self._width_s = question.running.subinterval_s * self._every
        self._judged = [query for query, outcome in after.outcomes.items() if outcome.bound_s is not None]
        coarse, running = (whole.coarsened(self._every) for whole in (base.deployment, question.running))
        neighbours = [query for query in self._judged if query in before.outcomes]
        self._mace_scale = self._scales(
            _mace_values(coarse, mace(coarse), self._judged), _mace_values(running, mace(running), neighbours)
        )
        self._flow_scale = self._scales(
            self._flow_values(base.deployment, base.touched), self._flow_values(question.running, neighbours)
        )
        self._screened: dict[tuple[str, ...], dict[str, float]] = {}

    def mace_s(self, scenario: AdmissionScenario) -> float:
        """Largest predicted upper end over its limit, of all queries and servers; the scenario passes up to 1."""
        coarse = scenario.deployment.coarsened(self._every)
        result = mace(coarse)
        return max(
            self._overshoot(scenario, _mace_values(coarse, result, self._judged), self._mace_scale),
            self._overload(result),
        )

    def flow_s(self, scenario: AdmissionScenario) -> float:
        """As `mace_s`, by Flow at Mace's width."""
        overload = self._overload(mace(scenario.deployment.coarsened(self._every)))
        return max(self._overshoot(scenario, self._values_of(scenario), self._flow_scale), overload)

    def learn(self, scenario: AdmissionScenario, failed: Evaluation) -> None:
        """Learn from the full estimate of a scenario that failed, for later screens by Flow."""
        for query, value in self._values_of(scenario).items():
            scale, now = self._flow_scale.get(query), failed.outcomes[query]
            if scale is not None:
                # A scenario that failed by its estimate alone has no interval: it is as wide as where it is known.
                base = self._after.outcomes[query]
                wider = self._upper_s(base) / base.estimate_s if now.high_s is None and base.estimate_s > 0.0 else 1.0
                self._flow_scale[query] = replace(scale, learned=(*scale.learned, (value, self._upper_s(now) * wider)))

    def _values_of(self, scenario: AdmissionScenario) -> dict[str, float]:
        """Flow's values of a scenario, which are asked for again when it fails in full."""
        key = tuple(repr(sorted(change.items())) for change in scenario.changes)
        if key not in self._screened:
            self._screened[key] = self._flow_values(scenario.deployment, scenario.touched)
        return self._screened[key]

    def limit_s(self, query: str, bound_s: float) -> float:
        """Limit of the upper end of `query`: its bound, or its value before where that is already over."""
        was = self._before.outcomes.get(query)
        if was is None or was.state == "holds":
            return bound_s
        now = self._after.outcomes[query]
        ratio = self._upper_s(now) / now.estimate_s if now.estimate_s > 0.0 else 1.0
        if was.state == "breached":
            return max(bound_s, (was.estimate_s + tolerance_s(was)) * ratio)
        return max(bound_s, was.upper_s + tolerance_s(was))

    def _upper_s(self, outcome: QueryOutcome) -> float:
        return outcome.upper_s if self._question.policy.review_at_risk else outcome.estimate_s

    def _scales(self, values: dict[str, float], values_before: dict[str, float]) -> dict[str, _Scale]:
        scales = {}
        for query, value in values.items():
            known = [(value, self._upper_s(self._after.outcomes[query]))]
            if query in values_before:
                known.append((values_before[query], self._upper_s(self._before.outcomes[query])))
            scales[query] = _Scale(tuple(known), self._width_s)
        return scales

    def _overshoot(self, scenario: AdmissionScenario, values: dict[str, float], scales: dict[str, _Scale]) -> float:
        worst = 0.0
        for query, value in values.items():
            objective = scenario.deployment.objective_of(query)
            if objective is not None:
                limit_s = self.limit_s(query, objective.bound_s)
                scale = scales.get(query)
                worst = max(worst, (scale.upper(value) if scale else value) / limit_s)
        return worst

    def _overload(self, result: Mace) -> float:
        """Largest mean load over what the policy allows, of servers that get more than they have now."""
        means = result.load_share.mean(axis=1)
        worst = 0.0
        for i, server in enumerate(result.deployment.servers):
            if means[i] > self._before.means.get(server.name, 0.0) * 1.01:
                worst = max(worst, float(means[i]) / self._question.policy.max_mean_load)
        return worst

    def _flow_values(self, deployment: Deployment, touched: Collection[str]) -> dict[str, float]:
        related = set(related_queries(deployment, self._question.running, touched))
        coarse = restrict_to_queries(deployment, related).coarsened(self._every)
        run = flow(coarse, by_input=True)
        weights = sink_events(coarse)
        values = {}
        for query in self._judged:
            if query in related:
                values[query] = statistic_of(run.by_query[query], weights[query], _statistic(coarse, query))
        return values


def _statistic(deployment: Deployment, query: str) -> str:
    objective = deployment.objective_of(query)
    return objective.statistic if objective else "worst"


def _mace_values(coarse: Deployment, result: Mace, queries: list[str]) -> dict[str, float]:
    """The statistic of each query's objective, of the largest Mace over its servers."""
    weights: dict[str, FloatArray] = {}
    values = {}
    for query in queries:
        servers = servers_of_query(coarse, query)
        statistic = _statistic(coarse, query)
        if statistic == "worst":
            values[query] = float(result.worst_s[servers].max(initial=0.0))
            continue
        weights = weights or sink_events(coarse)
        series = result.mace_s[servers].max(axis=0, initial=0.0)
        values[query] = statistic_of(series, weights[query], statistic)
    return values


def servers_of_query(deployment: Deployment, query: str) -> IntArray:
    """Servers that the operators of `query` are on, and the links into them."""
    layout = deployment.layout
    replicas = np.flatnonzero(np.isin(layout.rep_operator, deployment.operators_of(query)))
    hops = np.flatnonzero(np.isin(np.repeat(np.arange(len(layout.rep_server)), np.diff(layout.hop_start)), replicas))
    links = layout.hop_server[hops]
    return np.unique(np.concatenate([layout.rep_server[replicas], links[links >= 0]]))
