"""Robustness of a passing verdict: how far load and costs may rise, which node may be lost, what it rests on most.

Rises are sought by the mean path (`engine.admission.screen`), and one is told only where realised figures confirm it.
Losses of nodes are judged by Mace, those nearest to an objective by realised figures. The weakest assumption rests on
the mean path alone: it ranks what to measure first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

import numpy as np

from engine.admission.answer import LostNode, Robustness, WeakestAssumption
from engine.admission.evaluation import Evaluation, related_queries, restrict_to_queries
from engine.admission.grounds import MAX_RISE
from engine.admission.reasons import reasons_of
from engine.admission.scenario import AdmissionScenario
from engine.admission.screen import Screen
from engine.admission.search import AdmissionSearch, largest, passes
from engine.document.deployment import Deployment
from engine.document.elements import Input, Operator
from engine.estimation.loads import loads_of
from engine.provisioning.survival import lose_each

__all__ = ["robustness_of"]

# Shares by which load and costs are raised.
_RISES = (0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, MAX_RISE)
_FACTORS = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0)  # by which the cost of one operator is raised
_DOUBT = {"assumed": 1.0, "predicted": 0.5, "measured": 0.1}  # share by which a cost of that origin may well be off
_OPERATORS = 4  # operators of the candidate that are looked at, those with the most work first
# Steps after the losses of nodes, by what is raised: the share done by then, and words.
_STEPS = {"load": (0.5, "How much more load it would stand"), "costs": (0.7, "How much higher costs it would stand")}
_LAST_STEP = 0.9, "Which cost it rests on most"
_CONFIRMED_LOSSES = 2  # losses that are estimated in full, those nearest to an objective


def robustness_of(search: AdmissionSearch, progress: Callable[[float, str], None]) -> Robustness:
    """Robustness of the scenario a search starts from, which must pass.

    Parameters
    ----------
    search : AdmissionSearch
        With a placed base, its full evaluation and a screen.
    progress : callable
        Told the share done and the step, before each estimate; an exception it raises ends the search.

    Notes
    -----
    Load: all arrivals of the sources that queries tied to the candidate read. Costs: those of the candidate. Losses:
    operators of a lost node are placed anew where they wait least; Mace chooses, and the nearest to an objective are
    estimated in full (`engine.provisioning.survival`).
    """
    assert search.base is not None
    assert search.screen is not None
    return _Stress(search, search.base, search.screen, progress).robustness()


@dataclass(frozen=True, eq=False)
class _Stress:
    """A scenario that passes, made harder."""

    search: AdmissionSearch
    base: AdmissionScenario
    screen: Screen
    tell: Callable[[float, str], None]

    def robustness(self) -> Robustness:
        deployment = self.base.deployment
        related = related_queries(deployment, self.search.question.running, self.base.touched)
        lost, nodes = self._lost_nodes(restrict_to_queries(deployment, related))
        running = self.search.question.running
        read = {entry.source for op in deployment.operators if op.query in related for entry in op.inputs}
        return Robustness(
            load=self._largest_rise(
                "load", lambda by: _with_load(deployment, read, by), lambda by: _with_load(running, read, by)
            ),
            costs=self._largest_rise("costs", lambda by: _with_costs(deployment, self._own, by)),
            lost_nodes=lost,
            nodes=nodes,
            weakest=self._weakest(),
        )

    @property
    def _own(self) -> frozenset[str]:
        return frozenset(operator.id for operator in self.search.question.candidate.operators)

    def _stressed(self, what: str, by: float, deployment: Deployment) -> AdmissionScenario:
        self.tell(*_STEPS.get(what, _LAST_STEP))
        return replace(self.base, deployment=deployment, stress=(what, by))

    def _largest_rise(
        self,
        what: str,
        stressed: Callable[[float], Deployment],
        running: Callable[[float], Deployment] | None = None,
    ) -> float:
        """The largest rise that is confirmed in full, within the budget; 0 where none is.

        `running` puts what runs under the same stress: what it does to a neighbour by itself is not the candidate's
        doing, and so takes nothing from the verdict.
        """

        def scenario(i: int) -> AdmissionScenario:
            return self._stressed(what, _RISES[i], stressed(1.0 + _RISES[i]))

        def alone(i: int) -> Deployment | None:
            return running(1.0 + _RISES[i]) if running else None

        at = largest(0, len(_RISES) - 1, lambda i: self.screen.flow_s(scenario(i), alone(i)) <= 1.0)
        kept, refuted = -1, len(_RISES)
        for _ in range(self.search.budget):
            if at is None or refuted - kept <= 1:
                break
            if self._passes_in_full(scenario(at), alone(at)):
                kept = at
            else:
                refuted = at
            at = (kept + refuted) // 2 if refuted < len(_RISES) else None
        return _RISES[kept] if kept >= 0 else 0.0

    def _passes_in_full(self, scenario: AdmissionScenario, alone: Deployment | None) -> bool:
        search = self.search
        evaluator = search.evaluator if alone is None else search.evaluator.under_stress(alone)
        before = evaluator.before_from(scenario.start_p)

        def holds(evaluation: Evaluation) -> bool:
            return passes(reasons_of(search.question, scenario, before, evaluation))

        return holds(evaluator.full(scenario, holds))

    def _lost_nodes(self, deployment: Deployment) -> tuple[tuple[LostNode, ...], int]:
        """Nodes of the queries concerned that may not be lost, and how many were looked at."""
        question = self.search.question
        used = {replica.node for operator in deployment.operators for replica in operator.replicas}
        nodes = [node.id for node in deployment.nodes if node.id in used]
        survival = lose_each(
            deployment,
            nodes=nodes,
            mace_every=question.mace_every,
            closed=question.policy.closed_nodes,
            flows=_CONFIRMED_LOSSES,
            progress=lambda share, step: self.tell(0.5 * share, step),
        )
        lost = tuple(
            LostNode(node, survival.breaks(node))
            for node, outcome in survival.losses.items()
            if outcome.refusal is not None or survival.breaks(node)
        )
        return lost, len(nodes)

    def _weakest(self) -> WeakestAssumption | None:
        """The operator of the candidate whose cost leaves the least room for how far it may be off."""
        operators = {op.id: op for op in self.base.deployment.operators if op.id in self._own}
        work = _work(self.base.deployment.coarsened(self.search.question.mace_every), operators)
        ranked = sorted(operators, key=lambda name: -work[name])[:_OPERATORS]
        rows = [(name, self._factor_kept(name)) for name in ranked if work[name] > 0.0]
        if not rows:
            return None

        def room(row: tuple[str, float | None]) -> float:
            kept = _FACTORS[-1] if row[1] is None else row[1]
            return kept / _DOUBT[_origin(operators[row[0]])]

        name, kept = min(rows, key=room)
        return WeakestAssumption(name, _origin(operators[name]), kept)

    def _factor_kept(self, name: str) -> float | None:
        """Largest rise of one operator's cost that the mean path keeps; None if all of them."""

        def kept(i: int) -> bool:
            deployment = _with_costs(self.base.deployment, frozenset({name}), _FACTORS[i])
            return self.screen.flow_s(self._stressed(name, _FACTORS[i], deployment)) <= 1.0

        found = largest(0, len(_FACTORS) - 1, kept)
        if found is None:
            return 0.0
        return None if found == len(_FACTORS) - 1 else _FACTORS[found] - 1.0


def _with_load(deployment: Deployment, read: Collection[str], by: float) -> Deployment:
    """The deployment with more events from some sources."""
    scaled = {source.id: source.arrivals * by for source in deployment.sources if source.id in read}
    return deployment.with_arrivals(scaled) if scaled else deployment


def _with_costs(deployment: Deployment, names: frozenset[str], by: float) -> Deployment:
    """The deployment with dearer operators."""
    dearer = (_dearer(op, by) if op.id in names else op for op in deployment.operators)
    return replace(deployment, operators=tuple(dearer))


def _dearer(operator: Operator, by: float) -> Operator:
    def raised(entry: Input) -> Input:
        model = entry.model
        if model is not None:
            constant, linear, square = (c * by for c in model.cycles)
            model = replace(model, cycles=(constant, linear, square))
        return replace(entry, cycles_per_event=entry.cycles_per_event * by, model=model)

    return replace(operator, inputs=tuple(raised(entry) for entry in operator.inputs))


def _work(deployment: Deployment, names: Iterable[str]) -> dict[str, float]:
    """Cycles of some operators over the horizon."""
    chosen = list(names)
    rows = np.array([deployment.operator_index[name] for name in chosen], dtype=np.int64)
    return dict(zip(chosen, loads_of(deployment).operator(rows).load.sum(axis=1).tolist(), strict=True))


def _origin(operator: Operator) -> str:
    return operator.evidence.kind if operator.evidence else "assumed"
