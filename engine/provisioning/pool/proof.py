"""Proof of one pool for all objectives: placed and judged by Mace, confirmed by Flow, refuted by lower bounds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from engine.document.deployment import Deployment
from engine.errors import DocumentError, Fault
from engine.provisioning.confirmation import ObjectiveMiss, flow_miss, on_nodes
from engine.provisioning.pool.bounds import (
    FusedBound,
    Refutation,
    alone_s,
    late_alone,
    of_operator,
    parts_needed,
    remaining,
)
from engine.provisioning.pool.judge import Judge, operator_weights
from engine.provisioning.pool.large import is_large, solver_for
from engine.provisioning.pool.problem import Placement, PoolProblem, pool_problem
from engine.provisioning.pool.solver import PoolSize, Solver
from engine.provisioning.question import PoolQuestion, ProgressClock

__all__ = ["Proof", "Prover", "need_objectives"]

_MARGIN, _STRICTEST, _ROOM = 0.7, 0.02, 1.1  # of a tightened bound
_ON_A_PATH = 0.4  # of its bound a query of a large deployment may wait for one server, to begin with
_ROUNDS = 4  # of the placement search, unless the question says otherwise
_FEW_LOSSES = 3  # of a large pool that Flow looks at
Found = TypeVar("Found")


@dataclass(frozen=True, eq=False)
class Proof:
    """Proof that a smaller or cheaper pool is not the answer.

    `refutation` proves it for every placement (by Mace); without one, the best placement found misses an objective.
    """

    nodes: int
    cost_per_hour: float | None
    refutation: Refutation | None
    miss: ObjectiveMiss | None
    stuck: str | None = None
    pool: dict[str, int] | None = None

    @property
    def message(self) -> str:
        if self.refutation is not None:
            return self.refutation.message
        if self.stuck is not None:
            return f"operator {self.stuck} fits no node"
        reason = self.miss.message if self.miss else "it breaks an objective by Mace"
        return f"no placement was found that keeps every objective; in the best one {reason}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "nodes": self.nodes,
            "pool": self.pool,
            "cost_per_hour": self.cost_per_hour,
            "proven": self.refutation is not None,
            "refutation": None if self.refutation is None else self.refutation.to_dict(),
            "counterexample": None if self.miss is None else self.miss.to_dict(),
            "stuck": self.stuck,
            "message": self.message,
        }


def need_objectives(deployment: Deployment) -> None:
    """Raise `DocumentError` if there is no objective that a pool could keep."""
    if not deployment.objectives:
        message = "there is no objective; give at least one query a statistic and a bound"
        raise DocumentError([Fault("objectives", message)], "question")


class Prover:
    """Tries pools made of the nodes of one deployment at full resolution, which has more of them than needed.

    Parameters
    ----------
    fine : Deployment
        Nodes to choose from, at full resolution and under the load of the question.
    question : PoolQuestion
        Without `leave_out`, objectives that no number of nodes keeps stay; with it they are in `beyond`.
    clock : ProgressClock, optional
        Clock shared with the whole answer.
    kinds : sequence of sequences of int, optional
        Sets of nodes for each of which operators are cut far enough; all nodes together unless given.
    enough : bool
        Whether placements on a large problem need be no better than to keep every objective.
    """

    def __init__(
        self,
        fine: Deployment,
        question: PoolQuestion,
        clock: ProgressClock | None = None,
        *,
        kinds: Sequence[Sequence[int]] | None = None,
        enough: bool = True,
    ) -> None:
        self.lose, self.seed, self.mace_every = question.lose, question.seed, question.mace_every
        if self.lose not in (0, 1):
            raise DocumentError([Fault("lose", f"lose is {self.lose}; allowed: 0 or 1")], "question")
        self.fine, self.rounds = fine, _ROUNDS if question.rounds is None else question.rounds
        self.clock, self._enough = clock or ProgressClock(), enough
        self._strict: dict[str, float] = {}
        self.coarse = fine.coarsened(self.mace_every)
        self.beyond: tuple[Refutation, ...] = ()
        self.problem = self._problem(question, kinds)
        if question.leave_out:
            self._leave_out()
        self.is_large = is_large(self.problem)
        self.solver = self.solver_of(self.problem)
        self.flows = [0]
        self.losses_by_flow = 0
        self._judge, self._weight = self.solver.judge, self.problem.weight
        self._fused = FusedBound(self.problem, self._judge)
        if self.is_large and self._enough:
            # Packed up to their bounds, nearly all queries are late by Flow: waits of several servers add up.
            self.tighten(dict.fromkeys(self._alone_share, _MARGIN / _ON_A_PATH))

    def _problem(self, question: PoolQuestion, kinds: Sequence[Sequence[int]] | None) -> PoolProblem:
        weights, closed = operator_weights(self.coarse), question.closed
        problem = replace(pool_problem(self.coarse, weights, closed), split=question.split)
        if not question.split:
            return problem
        parts: dict[str, int] = {}
        for nodes in kinds or [range(len(self.coarse.nodes))]:
            part = problem.subset(nodes) if kinds else problem
            for name, count in parts_needed(part, Judge(part), len(part.budget)).items():
                parts[name] = max(count, parts.get(name, 1))
        if not parts:
            return problem
        return replace(pool_problem(self.coarse, weights, closed, parts), split=True)

    def _leave_out(self) -> None:
        """Take away the objectives that an operator alone breaks on the best core there is."""
        problem, judge = self.problem, Judge(self.problem)
        refutations: dict[str, Refutation] = {}
        for late in late_alone(problem, judge, len(problem.budget)):
            if np.isfinite(late.least_s):
                proof = of_operator(problem, judge, late)
                refutations.setdefault(proof.query, proof)
        if not refutations or len(refutations) == len(self.fine.objectives):
            return
        self.beyond = tuple(refutations.values())
        self.fine, self.coarse = (_without(deployment, refutations) for deployment in (self.fine, self.coarse))
        # Twice what is least possible, so that the search does not wait for what cannot be.
        stand_in = {query: 2.0 * proof.least_s for query, proof in refutations.items()}
        weight = operator_weights(self.coarse, stand_in)[problem.operator]
        self.problem = replace(problem, deployment=_without(problem.deployment, refutations), weight=weight)

    def tell(self, share: float | None, step: str) -> None:
        """Report progress, which never goes back; the listener may raise to end the search."""
        self.clock.tell(share, step)

    def during(self, step: str, work: Callable[[], Found]) -> Found:
        """Do `work`; on a large problem with signs of life every second."""
        if self.is_large:
            return self.clock.during(step, work)
        self.clock.tell(None, step)
        return work()

    def solver_of(self, problem: PoolProblem) -> Solver:
        judge = Judge(problem)
        judge.bounds = judge.bounds * [self._strict.get(query, 1.0) for query in judge.queries]
        return solver_for(
            problem,
            judge=judge,
            lose_one=bool(self.lose),
            rounds=self.rounds,
            seed=self.seed,
            clock=self.clock,
            enough=self._enough,
        )

    @cached_property
    def _alone_share(self) -> dict[str, float]:
        """Share of each query's bound that its operators take alone, with a little room: no bound can be tighter."""
        judge, alone = self._judge, alone_s(self.problem, len(self.problem.budget))
        worst = np.where(judge.members, np.where(np.isfinite(alone), alone, 0.0), 0.0).max(axis=1, initial=0.0)
        return dict(zip(judge.queries, map(float, _ROOM * worst / judge.bounds), strict=True))

    def tighten(self, over: Mapping[str, float]) -> None:
        """Place with tighter bounds for the queries that Flow finds so many times over theirs: waits add up on a path.

        Proofs by bounds stay those of the objectives as they are.
        """
        for query, times in over.items():
            least = max(_STRICTEST, self._alone_share.get(query, 0.0))
            self._strict[query] = min(1.0, max(least, self._strict.get(query, 1.0) * _MARGIN / times))
        self._weigh()

    def relax(self) -> bool:
        """Go back to the bounds of the objectives as they are; False if they were never left."""
        tightened = bool(self._strict)
        self._strict = {}
        self._weigh()
        return tightened

    def _weigh(self) -> None:
        """Weights of the items and a solver for the bounds as they are now."""
        judge = Judge(self.problem)
        strict = judge.bounds * [self._strict.get(query, 1.0) for query in judge.queries]
        tightest = float(strict.min())
        heaviest = np.where(judge.members, (tightest / strict)[:, None], 0.0).max(axis=0, initial=0.0)
        before = self._weight * (tightest / float(self._judge.bounds.min()))
        self.problem = replace(self.problem, weight=np.maximum(heaviest, before))
        self.solver = self.solver_of(self.problem)

    def keeps(self, entry: PoolSize) -> bool:
        """Whether every objective is kept by Mace."""
        lost_kept = entry.lost is None or entry.lost.over_bound <= 1.0
        return entry.stuck is None and entry.over_bound <= 1.0 and lost_kept

    def refutation(self, nodes: int) -> Refutation | None:
        """A proof against the first `nodes` nodes."""
        cores = self.problem.cores_of(nodes)
        late = late_alone(self.problem, self._judge, cores)
        if late:
            return of_operator(self.problem, self._judge, late[0])
        return self._fused.refute(remaining(self.problem, cores, self.lose), self.lose)

    @property
    def confirmation(self) -> str:
        """Description of Flow's confirmation: at which width, and for which losses."""
        width_s = self.problem.deployment.subinterval_s if self.is_large else self.fine.subinterval_s
        said = f"Flow in steps of {width_s:g} s"
        if not self.lose:
            return said
        if not self.is_large:
            return f"{said}, with every node lost in turn"
        return f"{said}, with the {_FEW_LOSSES} worst losses by Mace; all losses by Mace"

    def confirm(self, entry: PoolSize, solver: Solver | None = None) -> ObjectiveMiss | None:
        """Objective that a placement misses by Flow, with all nodes or with nodes lost; None if it keeps all.

        Of a large deployment Flow runs at Mace's width, and for the losses that are worst by Mace alone.
        """
        solver = solver or self.solver
        problem = solver.problem
        names = [node.id for node in problem.deployment.nodes[: entry.nodes]]
        placement = problem.placement(entry.assignment)
        miss = self._flow(f"Confirming {len(names)} nodes by Flow", placement, names)
        if miss is not None or not self.lose:
            return miss
        return self._confirm_losses(solver, entry, names)

    def _flow(self, step: str, placement: Placement, names: list[str], lost: str | None = None) -> ObjectiveMiss | None:
        deployment, every = (self.coarse, 1) if self.is_large else (self.fine, self.mace_every)

        def work() -> ObjectiveMiss | None:
            left = on_nodes(deployment, placement, names, lost)
            return flow_miss(left, mace_every=every, lost=lost, runs=self.flows)

        return self.during(step, work)

    def _confirm_losses(self, solver: Solver, entry: PoolSize, names: list[str]) -> ObjectiveMiss | None:
        """Lose every node that holds something, or the few of a large pool that are worst by Mace; worst first."""
        problem, judge = solver.problem, solver.judge
        used = np.unique(problem.node[entry.assignment])
        places, after_s, stuck = self.during(
            "Losing every node", lambda: solver.losses(entry.nodes, entry.assignment, used)
        )
        core_s = judge.core_s(entry.assignment, problem.cores_of(entry.nodes))
        own = np.array([core_s[problem.node[: len(core_s)] == k].max(initial=0.0) for k in used])
        values = np.array(
            [
                (judge.worst_by_query(place, after, judge.edge_s(place)) / judge.bounds).max(initial=0.0)
                for place, after, k in zip(places, after_s, stuck, strict=True)
                if k < 0
            ]
        )
        order = np.lexsort((-own[stuck < 0], -values))
        ranked = np.flatnonzero(stuck < 0)[order]
        chosen = ranked[:_FEW_LOSSES] if self.is_large else ranked
        for done, k in enumerate(chosen):
            lost = names[used[k]]
            step = f"Confirming the loss of {lost} by Flow, {done + 1} of {len(chosen)}"
            miss = self._flow(step, problem.placement(places[k]), names, lost)
            if miss is not None:
                return miss
        return None

    def proof(self, entry: PoolSize, miss: ObjectiveMiss | None) -> Proof:
        """The case against a pool whose best placement `entry` misses an objective."""
        return Proof(entry.nodes, entry.cost_per_hour, self.refutation(entry.nodes), miss, entry.stuck)


def _without(deployment: Deployment, queries: Collection[str]) -> Deployment:
    """The deployment without the objectives of some queries, which keep running."""
    return replace(
        deployment, objectives=tuple(objective for objective in deployment.objectives if objective.query not in queries)
    )
