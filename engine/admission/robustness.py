"""Robustness of a passing verdict: how far load and costs may rise, which node may be lost, what it rests on most.

Rises and costs are judged by realised figures, as the verdict is; losses of nodes in `engine.admission.losses`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from engine.admission.answer import LostNode, Robustness, WeakestAssumption
from engine.admission.evaluation import Evaluation
from engine.admission.grounds import MAX_RISE
from engine.admission.losses import scenario_losses
from engine.admission.reasons import passes, reasons_of
from engine.admission.scenario import AdmissionScenario, party_of
from engine.admission.search import AdmissionSearch
from engine.document.deployment import Deployment
from engine.document.elements import Input, Operator
from engine.document.topology import servers_above
from engine.estimation.loads import loads_of
from engine.estimation.waits.clocks import sources_above

__all__ = ["robustness_of"]

# Shares by which load and costs are raised.
_RISES = (0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, MAX_RISE)
_FACTORS = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0)  # by which the cost of one operator is raised
# Shares by which a cost of an origin may well be off.
_DOUBT = {"unknown": math.inf, "assumed": 1.0, "predicted": 0.5, "measured": 0.1}
_OPERATORS = 4  # operators of the candidate that are looked at, those with the most work first
# Steps after the losses of nodes, by what is raised: the share done by then, and words.
_STEPS = {"load": (0.5, "How much more load it would stand"), "costs": (0.7, "How much higher costs it would stand")}
_LAST_STEP = 0.9, "Which cost it rests on most"


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
    Load: all arrivals of the sources that queries read which share a server with the candidate or with what its changes
    move, whatever else reads these. Costs: those of the candidate. Losses: of all nodes in use, where operators of a
    lost node are placed anew on what is left.
    """
    assert search.base is not None
    return _Stress(search, search.base, progress).robustness()


@dataclass(frozen=True, eq=False)
class _Stress:
    """A scenario that passes, made harder."""

    search: AdmissionSearch
    base: AdmissionScenario
    tell: Callable[[float, str], None]

    def robustness(self) -> Robustness:
        deployment, running = self.base.deployment, self.search.question.running
        lost, nodes = self._lost_nodes()
        read = _sources_beside(deployment, self.base.touched) | _sources_beside(running, self.base.touched)

        def raised(by: float) -> bool:
            # What it does to a neighbour by itself is not the candidate's doing: it takes nothing from the verdict.
            return self._passes(_with_load(deployment, read, by), _with_load(running, read, by))

        return Robustness(
            load=self._largest_rise("load", raised),
            costs=self._largest_rise("costs", lambda by: self._passes(_with_costs(deployment, self._own, by))),
            lost_nodes=lost,
            nodes=nodes,
            weakest=self._weakest(),
        )

    @property
    def _own(self) -> frozenset[str]:
        return frozenset(operator.id for operator in self.search.question.candidate.operators)

    def _largest_rise(self, what: str, does_pass: Callable[[float], bool]) -> float:
        """The largest rise that passes, within the budget; 0 where none does."""

        def looked_at(i: int) -> bool:
            self.tell(*_STEPS[what])
            return does_pass(1.0 + _RISES[i])

        kept = _largest_kept(len(_RISES), looked_at, self.search.budget)
        return _RISES[kept] if kept >= 0 else 0.0

    def _passes(self, deployment: Deployment, running: Deployment | None = None) -> bool:
        """Whether the scenario passes with another deployment, realised; beside what runs under a stress, if given."""
        search, scenario = self.search, replace(self.base, deployment=deployment)

        def holds(before: Evaluation, after: Evaluation) -> bool:
            return passes(reasons_of(search.question, scenario, before, after))

        if running is not None:
            return search.evaluator.holds_under(running, scenario, holds)
        before = search.evaluator.before_from(scenario.start_p)
        return holds(before, search.evaluator.full(scenario, partial(holds, before)))

    def _lost_nodes(self) -> tuple[tuple[LostNode, ...], int]:
        """Nodes that may not be lost, and how many were looked at."""
        search = self.search
        assert search.after is not None
        losses = scenario_losses(
            search.evaluator, self.base, search.after, lambda share, step: self.tell(0.5 * share, step)
        )
        return tuple(LostNode(node, loss.breaks) for node, loss in losses.items() if loss.is_harmful), len(losses)

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
        """Largest rise of one operator's cost that passes; None if all of them do."""

        def does_pass(i: int) -> bool:
            self.tell(*_LAST_STEP)
            return self._passes(_with_costs(self.base.deployment, frozenset({name}), _FACTORS[i]))

        kept = _largest_kept(len(_FACTORS), does_pass, len(_FACTORS))
        return None if kept == len(_FACTORS) - 1 else (1.0, *_FACTORS)[kept + 1] - 1.0


def _largest_kept(count: int, does_pass: Callable[[int], bool], budget: int) -> int:
    """The largest number below `count` that passes, if passing ends at one point, in `budget` looks; -1 for none.

    The largest is looked at first: what has room has it mostly.
    """
    kept, refuted, at = -1, count, count - 1
    for _ in range(budget):
        if does_pass(at):
            kept = at
        else:
            refuted = at
        if refuted - kept <= 1:
            break
        at = (kept + refuted) // 2
    return kept


def _sources_beside(deployment: Deployment, parties: Collection[str]) -> frozenset[str]:
    """Sources that are read, by whatever way, by queries which share a server or a link with some parties."""
    layout, names = deployment.layout, [party_of(operator) for operator in deployment.operators]
    own = np.flatnonzero([names[j] in parties for j in layout.rep_operator])
    servers = servers_above(layout, own)
    over = np.isin(layout.hop_server, servers)
    passing = np.repeat(np.arange(len(layout.rep_server)), np.diff(layout.hop_start))[over]
    beside = np.concatenate([np.flatnonzero(np.isin(layout.rep_server, servers)), passing])
    sharing = {names[j] for j in layout.rep_operator[beside]} | {*parties}
    above = sources_above(deployment)
    read = set[int]().union(*(above[j] for j, name in enumerate(names) if name in sharing))
    return frozenset(deployment.sources[u].id for u in read)


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
