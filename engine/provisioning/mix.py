"""The cheapest mix of node types that keeps every objective: combinations by ascending cost, pruned by lower bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from engine.document.cycles import common_unit
from engine.document.deployment import Deployment
from engine.estimation.estimate import Progress
from engine.provisioning.answers.pools import (
    MixAnswer,
    ParetoFront,
    ParetoPoint,
    PoolAnswer,
    PoolSize,
    Proof,
    front_message,
)
from engine.provisioning.combinations import Counts, MixCombinations, NodeType, read_types
from engine.provisioning.confirmation import Confirmation
from engine.provisioning.nodes import pool_of
from engine.provisioning.pool.bounds import fused_s, splits_of
from engine.provisioning.pool.proof import Prover, need_objectives
from engine.provisioning.pool.search import smallest_of
from engine.provisioning.pool.solver import Solver
from engine.provisioning.question import PoolQuestion, ProgressClock
from engine.solvers import solving

__all__ = ["cheapest_mix", "of_pool", "pareto_front"]


_CONFIRM = 6  # sizes by which walks may move the pool of one type, unless the question says otherwise
_PLACEMENTS = 4  # of a mix, with more or less room for what is random, before the next one is looked at


def cheapest_mix(
    deployment: Deployment,
    types: Any,
    question: PoolQuestion | None = None,
    *,
    most_tried: int = 100,
    progress: Progress | None = None,
) -> MixAnswer:
    """Cheapest new nodes, of several types, with which every objective is kept.

    Parameters
    ----------
    deployment : Deployment
        The running deployment.
    types : list of dict
        Each with ``name``, ``capacity_cps``, ``cores`` (1), ``price_per_hour`` and ``max`` (16).
    question : PoolQuestion, optional
        Load, losses and effort.
    most_tried : int
        Combinations that are placed before the search gives up; those refuted by a bound cost next to nothing.
    progress : callable, optional
        Listener of progress.

    Returns
    -------
    MixAnswer

    Raises
    ------
    DocumentError
        If a type has no price, or there is no objective.

    Notes
    -----
    The smallest pool of every type comes first, by the search of `smallest_pool`; the cheapest of these is the answer
    unless a mix costs less. One that is not confirmed, or leaves
    objectives at risk, is the answer only where no mix does better. With one type the answers of both are the same.

    Cheaper combinations are looked at by ascending cost, so the first that holds is the cheapest that the placement
    search can fill; where all cheaper ones are refuted by a lower bound, it is the cheapest there is (by Mace). Of a
    large deployment those in question are bisected by cost, which may pass over a cheaper mix. What waits now is left
    out, as in `smallest_pool`.
    """
    solving()
    question, deployment = question or PoolQuestion(), deployment.without_backlogs()
    need_objectives(deployment)
    read = read_types(types, unit=common_unit(deployment.nodes))
    clock = question.clock(progress)
    clock.tell(0.0, "Laying out the mixes")
    base = question.base(deployment)
    question = question.on(base)
    pools = [of_pool(_pool_of_type(base, entry, question, clock), read, t) for t, entry in enumerate(read)]
    best = min(pools, key=_rank)
    if len(read) == 1 or (best.is_sufficient and best.cost_per_hour == 0.0):
        return best
    return _MixSearch(MixCombinations(base, read, question, clock), most_tried, best).answer()


def _rank(answer: MixAnswer) -> tuple[bool, bool, float]:
    """Order of answers, the best first: an objective at risk counts more than what is not confirmed, that more than
    money.
    """
    return not answer.is_sufficient, not answer.confirmed, _cost_of(answer)


def _cost_of(answer: MixAnswer) -> float:
    return np.inf if answer.cost_per_hour is None else answer.cost_per_hour


def _pool_of_type(base: Deployment, entry: NodeType, question: PoolQuestion, clock: ProgressClock) -> PoolAnswer:
    """The smallest pool of one type; as `smallest_pool` finds it."""
    model = replace(entry.node(""), pool=None)
    most = len(base.nodes) + entry.max
    pool = pool_of(base, most, model)
    confirm = _CONFIRM if question.confirm is None else question.confirm
    return smallest_of(pool, most, Prover(pool.deployment, question, clock), confirm)


class _MixSearch:
    """The cheapest combination that holds and costs less than the best pool of one type."""

    def __init__(self, mixes: MixCombinations, most_tried: int, pool: MixAnswer) -> None:
        self.mixes, self.most_tried, self.pool = mixes, most_tried, pool
        self.refuted: list[Counts] = []
        self.open: list[Counts] = []
        self.tried: dict[Counts, Proof] = {}
        self.over: dict[Counts, float] = {}
        self.found = Confirmation({}, None)
        self.complete = True

    def answer(self) -> MixAnswer:
        for cost, counts in self.mixes.by_cost():
            if self.pool.is_sufficient and cost >= _cost_of(self.pool) * (1.0 - 1e-9):
                break
            (self.open if self.mixes.refutation(counts) is None else self.refuted).append(counts)
        held = self._bisected() if self.mixes.prover.is_large else self._first()
        made = None if held is None else self._made(*held)
        return self._none_better() if made is None or _rank(self.pool) <= _rank(made) else made

    @property
    def _least_cost(self) -> float | None:
        """No mix that costs less can do."""
        return self.mixes.cost(self.open[0]) if self.open else self.pool.cost_per_hour

    def _first(self) -> tuple[Counts, PoolSize, Solver] | None:
        """The first by cost that holds."""
        for counts in self.open:
            if self._is_over():
                return None
            held = self._held(counts)
            if held is not None:
                return counts, *held
        return None

    def _bisected(self) -> tuple[Counts, PoolSize, Solver] | None:
        """One that holds, next to one that was not found to hold, in the order of cost."""
        best, low, high = None, 0, len(self.open)
        while low < high and not self._is_over():
            middle = (low + high) // 2
            held = self._held(self.open[middle])
            if held is None:
                low = middle + 1
            else:
                best, high = (self.open[middle], *held), middle
        return best

    def _is_over(self) -> bool:
        self.complete = len(self.tried) < self.most_tried and not self.mixes.prover.clock.is_over
        return not self.complete or self.mixes.prover.hopeless is not None

    def _held(self, counts: Counts) -> tuple[PoolSize, Solver] | None:
        """The placement that keeps every objective on a mix; None, and what it misses, if none was found."""
        prover, cost = self.mixes.prover, self.mixes.cost(counts)
        step = f"Placing mix {len(self.tried) + 1}"
        prover.tell(0.7 + 0.25 * len(self.tried) / self.most_tried, step)
        miss = None
        for _ in range(_PLACEMENTS):
            solver = self.mixes.solver(counts)
            entry = prover.during(step, partial(solver.solve_jointly, len(solver.problem.deployment.nodes)))
            if not prover.keeps(entry):
                if entry.stuck is None and prover.ease():
                    continue
                break
            found = prover.confirm(entry, solver)
            if found.miss is None:
                self.found = found
                return entry, solver
            miss = found.miss
            if prover.hopeless is not None or not prover.make_room(found, entry):
                break
        self.tried[counts] = Proof(
            entry.nodes, self.mixes.words(counts), cost, counterexample=miss, stuck=_stuck(entry)
        )
        self.over[counts] = miss.worst if miss else max(entry.over_bound, entry.lost.over_bound if entry.lost else 0.0)
        return None

    def _plain(self, entry: PoolSize, counts: Counts) -> PoolSize:
        """The figures of a placement on a mix with the objectives and loads as they are."""
        return self.mixes.prover.plain(entry, self.mixes.problem(counts))

    def _none_better(self) -> MixAnswer:
        """The best pool of one type, with what is known about cheaper mixes."""
        counts = self.pool.counts
        known = None if counts is None else tuple(counts[entry.name] for entry in self.mixes.types)
        hopeless = self.mixes.prover.hopeless
        never = [] if hopeless is None else [Proof(self.mixes.present, refutation=hopeless)]
        proofs = [*never, *self.pool.proofs, *self._proofs(known)]
        kept = {tuple((proof.pool or {}).items()): proof for proof in reversed(proofs)}
        return replace(
            self.pool,
            least_cost_per_hour=self._least_cost,
            refuted=len(self.refuted),
            tried=len(self.tried),
            proofs=tuple(reversed(kept.values())),
            complete=self.complete and self.pool.complete,
            flows=self.pool.flows + self.mixes.prover.flows[0],
        )

    def _made(self, counts: Counts, entry: PoolSize, solver: Solver) -> MixAnswer:
        mixes = self.mixes
        placement = solver.problem.placement(entry.assignment)
        return MixAnswer(
            present=mixes.present,
            counts=mixes.words(counts),
            cost_per_hour=mixes.cost(counts),
            least_cost_per_hour=self._least_cost,
            best=self._plain(entry, counts),
            placement=placement,
            refuted=len(self.refuted),
            tried=len(self.tried),
            proofs=tuple(self._proofs(counts)),
            complete=self.complete,
            flows=mixes.prover.flows[0],
            figures=mixes.prover.figures_of(self.found),
            splits=splits_of(mixes.prover.fine, placement),
            beyond=mixes.prover.beyond,
            confirmation=mixes.prover.confirmation,
        )

    def _proofs(self, counts: Counts | None) -> Iterator[Proof]:
        """The case against the nearest cheaper mixes, and against one node less of each type."""
        most = np.inf if counts is None else self.mixes.cost(counts)
        cheaper = [other for other in self.tried if self.mixes.cost(other) < most]
        nearest = sorted(cheaper, key=lambda other: self.over[other])[:3]
        small = not self.mixes.prover.is_large
        less = (
            []
            if counts is None or not small
            else [(*counts[:t], counts[t] - 1, *counts[t + 1 :]) for t in range(len(counts)) if counts[t]]
        )
        last = self.refuted[-1:] if counts is None else []
        for other in dict.fromkeys((*less, *nearest, *last)):
            yield self._with_miss(other)

    def _with_miss(self, counts: Counts) -> Proof:
        """One case in full: with a counterexample where the bounds are silent."""
        prover = self.mixes.prover
        cost, words = self.mixes.cost(counts), self.mixes.words(counts)
        refutation = self.mixes.refutation(counts)
        nodes = self.mixes.present + sum(counts)
        if refutation is not None:
            return Proof(nodes, words, cost, refutation=refutation)
        known = self.tried.get(counts)
        if known is not None and (known.counterexample is not None or known.stuck is not None):
            return known
        if self.mixes.prover.clock.is_over:
            return known or Proof(nodes, words, cost)
        solver = self.mixes.solver(counts)
        entry = prover.during("Looking at cheaper mixes", lambda: solver.solve_jointly(nodes))
        stuck = _stuck(entry)
        miss = None if stuck else prover.confirm(entry, solver, in_full=True).miss
        return Proof(nodes, words, cost, counterexample=miss, stuck=stuck)


def _stuck(entry: PoolSize) -> str | None:
    """An operator that fits no node, with all of them or after a loss."""
    return entry.stuck or (entry.lost.stuck.operator if entry.lost and entry.lost.stuck else None)


def of_pool(answer: PoolAnswer, types: Sequence[NodeType], t: int) -> MixAnswer:
    """The answer for one type as a mix: new nodes have the names they would have in one."""
    entry = types[t]
    added = answer.added
    taken = {replica.node for held in answer.placement.values() for replica in held}
    new = {
        name: f"{entry.name}-{k + 1}"
        for k, name in enumerate(_names_of_new(answer))
        if f"{entry.name}-{k + 1}" not in taken
    }
    placement = {
        name: tuple(replace(replica, node=new.get(replica.node, replica.node)) for replica in held)
        for name, held in answer.placement.items()
    }
    never = answer.nodes is None and answer.proof is not None and answer.proof.refutation is not None
    proofs = () if answer.proof is None else (_priced(answer.proof, answer.present, entry, types),)
    return MixAnswer(
        present=answer.present,
        counts=None if added is None else {type_.name: added if k == t else 0 for k, type_ in enumerate(types)},
        cost_per_hour=None if added is None else added * entry.price_per_hour,
        least_cost_per_hour=None if never else _least(answer) * entry.price_per_hour,
        best=answer.best,
        placement=placement,
        refuted=max(0, (answer.most + 1 if never else _proven_least(answer)) - answer.present),
        tried=sum(1 for size in answer.sizes if answer.nodes is None or size.nodes < answer.nodes),
        proofs=proofs,
        complete=answer.complete,
        flows=answer.flows,
        figures=answer.figures,
        confirmed=answer.confirmed,
        splits=answer.splits,
        beyond=answer.beyond,
        confirmation=answer.confirmation,
    )


def _proven_least(answer: PoolAnswer) -> int:
    """Fewest nodes of the pool that are not refuted."""
    if answer.proof is not None and answer.proof.refutation is not None and answer.nodes is not None:
        return answer.nodes
    return min(answer.least, answer.nodes or answer.least)


def _least(answer: PoolAnswer) -> int:
    return max(0, _proven_least(answer) - answer.present)


def _names_of_new(answer: PoolAnswer) -> list[str]:
    """Names of the nodes that were added, in their order."""
    names = {replica.node for held in answer.placement.values() for replica in held}
    return sorted((name for name in names if name.startswith("new-")), key=lambda name: (len(name), name))


def _priced(proof: Proof, present: int, entry: NodeType, types: Sequence[NodeType]) -> Proof:
    """The case against one node less, in the words of mixes: with what was bought."""
    added = proof.nodes - present
    words = {type_.name: added if type_ is entry else 0 for type_ in types}
    return replace(proof, pool=words, cost_per_hour=added * entry.price_per_hour)


_BETTER = 1e-6  # a mix must gain this share of the latency to be worth a point
_WALKED = 6  # points whose realised latencies are looked at


def pareto_front(
    deployment: Deployment,
    types: Any,
    question: PoolQuestion | None = None,
    *,
    most_tried: int = 200,
    progress: Progress | None = None,
) -> ParetoFront:
    """The Pareto front of cost and worst-case latency (Mace_WC; with `lose` 1, that with any one node lost).

    Parameters
    ----------
    deployment : Deployment
        The running deployment.
    types : list of dict
        As in `cheapest_mix`.
    question : PoolQuestion, optional
        Load, losses and effort; a front knows no headroom and leaves no objective out.
    most_tried : int
        Mixes that are placed before the search stops.
    progress : callable, optional
        Listener of progress.

    Raises
    ------
    DocumentError
        If a type has no price.

    Notes
    -----
    Mixes are looked at by ascending cost; one whose lower bound is no better than the best latency so far is skipped.
    Latencies are of placements found, so the true front lies on or below this one. Points that keep every objective by
    Mace are walked, the cheapest first, until one holds; after six of them the others stay open. What waits now is left
    out, as in `smallest_pool`.
    """
    question, deployment = question or PoolQuestion(), deployment.without_backlogs()
    question = replace(question, rounds=question.rounds or 0, headroom_s=0.0, headroom_share=0.0, leave_out=False)
    mixes = MixCombinations(
        question.base(deployment),
        read_types(types, unit=common_unit(deployment.nodes)),
        question,
        question.clock(progress),
        enough=False,
    )
    points: list[ParetoPoint] = []
    tried = skipped = 0
    best = np.inf
    load = mixes.prover.problem.load.sum(axis=0)
    for cost, counts in mixes.by_cost():
        if tried >= most_tried or mixes.prover.clock.is_over:
            return _front(mixes, points, tried, skipped, complete=False)
        solver = mixes.solver(counts)
        budget = solver.problem.budget
        if points and fused_s(load, budget, solver.problem.deployment.subinterval_s) >= best:
            skipped += 1
            continue
        step = f"Placing mix {tried + 1}"
        mixes.prover.tell(tried / most_tried, step)
        size = mixes.prover.during(step, partial(solver.solve_jointly, len(solver.problem.deployment.nodes)))
        tried += 1
        latency = size.joint[1]
        if latency < best * (1.0 - _BETTER):
            best = latency
            points.append(ParetoPoint.of(mixes.words(counts), cost, size, solver))
        if best <= 0.0:
            break
    return _front(mixes, points, tried, skipped, complete=True)


def _front(
    mixes: MixCombinations, points: list[ParetoPoint], tried: int, skipped: int, *, complete: bool
) -> ParetoFront:
    walked = _walked(mixes, points)
    return ParetoFront(walked, front_message(walked), tried, skipped, complete)


def _walked(mixes: MixCombinations, points: list[ParetoPoint]) -> tuple[ParetoPoint, ...]:
    """The points with the realised figures of the cheapest that might keep every objective."""
    prover, walked = mixes.prover, 0
    if not prover.fine.objectives:
        return tuple(points)
    for k, point in enumerate(points):
        if point.state != "open" or point.size is None or point.solver is None:
            continue
        if walked == _WALKED or prover.clock.is_over:
            break
        walked += 1
        found = prover.confirm(point.size, point.solver, in_full=True)
        points[k] = replace(point, found=found, figures=prover.figures_of(found))
        if found.miss is None:
            break
    return tuple(points)
