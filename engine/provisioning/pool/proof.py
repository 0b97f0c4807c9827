"""Proof of one pool for all objectives: placed and judged by Mace, confirmed by a walk, refuted by lower bounds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.errors import DocumentError, Fault
from engine.placement.problem import BoolArray
from engine.provisioning.answers.objectives import ObjectiveFigures, ObjectiveMiss, RealisedObjective
from engine.provisioning.answers.pools import PoolSize, Refutation
from engine.provisioning.confirmation import Confirmation, alone_objective, confirm_objectives, on_nodes, split_further
from engine.provisioning.pool.bounds import (
    FusedBound,
    alone_s,
    late_alone,
    of_operator,
    parts_needed,
    refute_memory,
    remaining,
)
from engine.provisioning.pool.judge import Judge, operator_weights
from engine.provisioning.pool.large import is_large, solver_for
from engine.provisioning.pool.problem import Placement, PoolProblem, pool_problem
from engine.provisioning.pool.solver import Solver
from engine.provisioning.question import PoolQuestion, ProgressClock
from engine.words import counted

__all__ = ["Prover", "need_objectives"]

_MARGIN, _STRICTEST, _ROOM = 0.7, 0.02, 1.1  # of a tightened bound
_ON_A_PATH = 0.4  # of its bound a query of a large deployment may wait for one server, to begin with
_ROUNDS = 4  # of the placement search, unless the question says otherwise
_FEW_LOSSES = 3  # of a large pool that are walked
_MIN_ROOM_STEP, _MAX_ROOM_STEP = 1.05, 1.4  # times the load that is placed, after a walk found it too tight
_MAX_ROOM = 64.0
_ROOM_HALVINGS = 7
Found = TypeVar("Found")


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
        self._leaves_out = question.leave_out
        self._alone: dict[str, RealisedObjective | None] = {}
        self.accepted: dict[str, RealisedObjective] = {}
        self.hopeless: Refutation | None = None
        self.coarse = fine.coarsened(self.mace_every)
        self.beyond: tuple[Refutation, ...] = ()
        self.problem = self._problem(question, kinds)
        self._room, self.rooms = np.ones(len(self.problem.load)), 0
        self._asked: dict[str, int] = {}  # how often room was made for a query
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
        while True:
            split = replace(pool_problem(self.coarse, weights, closed, parts), split=True) if parts else problem
            more = split_further(self.fine, split, Judge(split), parts)
            if not more:
                return split
            parts |= more

    def _leave_out(self) -> None:
        """Take away the objectives that an operator alone breaks on the best core there is."""
        problem, judge = self.problem, Judge(self.problem)
        refutations: dict[str, Refutation] = {}
        for late in late_alone(problem, judge, len(problem.budget)):
            if np.isfinite(late.least_s):
                proof = of_operator(problem, judge, late)
                refutations.setdefault(proof.query, proof)
        if refutations and len(refutations) < len(self.fine.objectives):
            self._drop(refutations)

    def _drop(self, refutations: Mapping[str, Refutation]) -> None:
        """Leave out the objectives of some queries from now on."""
        self.beyond = (*self.beyond, *refutations.values())
        self.fine, self.coarse = (_without(deployment, refutations) for deployment in (self.fine, self.coarse))
        # Twice what is least possible, so that the search does not wait for what cannot be.
        stand_in = {proof.query: 2.0 * proof.least_s for proof in self.beyond}
        weight = operator_weights(self.coarse, stand_in)[self.problem.operator]
        without = _without(self.problem.deployment, refutations)
        self.problem = replace(self.problem, deployment=without, weight=weight)

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
        """Solver of a problem with this one's items: with the tightened bounds, and room for what is random."""
        if (self._room > 1.0).any():
            problem = replace(problem, load=problem.load * self._room[:, None])
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

    def make_room(self, found: Confirmation, entry: PoolSize) -> bool:
        """Place so that a miss is answered: tighter bounds where mean costs miss, more room where only randomness does.

        Random costs and arrivals delay by how much of a core is taken, which Mace does not see below its capacity. So
        loads count for more: those of the queries at risk, and of all that shares their cores in `entry`. A query that
        is at risk where there is as much room as can be is accepted as it is. False if there is nothing to change.
        """
        assert found.miss is not None
        miss = found.miss
        late = {query: times for query, times in miss.over.items() if query not in miss.noisy}
        grown = self._room.copy()
        accepted = len(self.accepted)
        for query in sorted(miss.noisy):
            own = self._judge.members[self._judge.queries.index(query)]
            crowded = np.isin(entry.assignment, np.unique(entry.assignment[own]))
            most = np.ones(len(own))
            most[crowded] = np.maximum(1.0, self._max_room(crowded))
            if (self._room[own] >= most[own]).all():
                at_risk = query in found.objectives and found.objectives[query].state == "at_risk"
                if at_risk and self.keeps(entry):
                    self.accepted[query] = self._alone.get(query) or found.objectives[query]
                continue
            self._asked[query] = self._asked.get(query, 0) + 1
            step = min(_MAX_ROOM_STEP, max(_MIN_ROOM_STEP, miss.over[query] ** 0.5) ** self._asked[query])
            grown = np.maximum(grown, np.where(crowded, np.minimum(self._room * step, most), 1.0))
        if not late and (grown <= self._room).all():
            return len(self.accepted) > accepted
        self._room = grown
        self.rooms += 1
        self.tighten(late)
        return True

    def ease(self) -> bool:
        """Ask for half of the room and tightness, on logarithmic scales; False if next to nothing is asked for."""
        if self._room.max(initial=1.0) < _MIN_ROOM_STEP and min(self._strict.values(), default=1.0) > _MARGIN:
            return False
        self._room = np.sqrt(self._room)
        self._strict = {query: share**0.5 for query, share in self._strict.items()}
        self._asked = {}
        self.rooms += 1
        self._weigh()
        return True

    def _max_room(self, items: BoolArray) -> FloatArray:
        """Times its load with which each of some items alone still keeps the tightest bound of its queries."""
        judge, cores = self._judge, len(self.problem.budget)
        limit = np.where(judge.members, judge.bounds[:, None], np.inf).min(axis=0, initial=np.inf)
        low, high = np.ones(len(items)), np.full(len(items), _MAX_ROOM)
        for _ in range(_ROOM_HALVINGS):
            middle = np.sqrt(low * high)
            fits = alone_s(self.problem, cores, np.where(items, middle, 0.0)) <= limit
            low, high = np.where(fits, middle, low), np.where(fits, high, middle)
        return low[items]

    def relax(self) -> bool:
        """Go back to the bounds of the objectives as they are; False if they were never left."""
        tightened = bool(self._strict) or bool((self._room > 1.0).any())
        self._strict, self._room = {}, np.ones(len(self.problem.load))
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
        full = refute_memory(self.problem, range(nodes), self.lose)
        if full is not None:
            return full
        cores = self.problem.cores_of(nodes)
        late = late_alone(self.problem, self._judge, cores)
        if late:
            return of_operator(self.problem, self._judge, late[0])
        return self._fused.refute(remaining(self.problem, cores, self.lose), self.lose)

    def plain(self, entry: PoolSize, problem: PoolProblem | None = None) -> PoolSize:
        """The figures of a placement, on all nodes or those of `problem`, with objectives and loads as they are."""
        if not self._strict and not (self._room > 1.0).any():
            return entry
        solver = solver_for(
            problem or self.problem, lose_one=bool(self.lose), rounds=0, seed=self.seed, clock=self.clock
        )
        return solver.judged(entry)

    @property
    def confirmation(self) -> str:
        """Description of the confirmation: at which width, and for which losses."""
        width_s = self.problem.deployment.subinterval_s if self.is_large else self.fine.subinterval_s
        said = f"realised latencies in steps of {width_s:g} s"
        if not self.lose:
            return said
        if not self.is_large:
            return f"{said}, with every node lost in turn"
        return f"{said}, with the {_FEW_LOSSES} worst losses by Mace; all losses by Mace"

    def confirm(self, entry: PoolSize, solver: Solver | None = None, *, in_full: bool = False) -> Confirmation:
        """Realised figures of a placement, with all nodes and with nodes lost, up to the first miss.

        Of a large deployment walks are at Mace's width, and for the losses that are worst by Mace alone. With `in_full`
        a miss has its realised figures also where Flow alone refuses.
        """
        solver = solver or self.solver
        problem = solver.problem
        names = [node.id for node in problem.deployment.nodes[: entry.nodes]]
        placement = problem.placement(entry.assignment)
        found = self._walk(f"Confirming {counted(len(names), 'node')}", placement, names, in_full=in_full)
        if found.miss is not None or not self.lose:
            return found
        return self._confirm_losses(solver, entry, names, found, in_full)

    def _walk(
        self, step: str, placement: Placement, names: list[str], lost: str | None = None, *, in_full: bool = False
    ) -> Confirmation:
        def work() -> Confirmation:
            deployment, every = (self.coarse, 1) if self.is_large else (self.fine, self.mace_every)
            return confirm_objectives(
                on_nodes(deployment, placement, names, lost),
                mace_every=every,
                lost=lost,
                accepted=self.accepted,
                in_full=in_full,
                runs=self.flows,
            )

        found = self.during(step, work)
        while found.miss is not None and self._learns(found.miss):
            found = self.during(step, work)
        return found

    def _learns(self, miss: ObjectiveMiss) -> bool:
        """Whether queries that randomness takes over their bounds turn out to be so even alone; each is tried once.

        Those that only may break theirs are accepted as they are; those that do are left out, or end the search.
        """
        learned = False
        for query in sorted(miss.noisy - set(self._alone)):
            alone = alone_objective(self.fine, self.problem, self._judge, query)
            self.flows[0] += 1
            self._alone[query] = alone
            if alone is None or alone.state == "holds":
                continue
            learned = True
            if alone.state == "at_risk":
                self.accepted[query] = alone
                continue
            refutation = Refutation("alone", query, None, alone.bound_s, alone.estimate_s, alone=alone.words)
            if self._leaves_out and len(self.fine.objectives) > 1:
                self._drop({query: refutation})
                self._judge = Judge(self.problem)
                self._fused = FusedBound(self.problem, self._judge)
                self._weigh()
            else:
                self.hopeless = self.hopeless or refutation
                return False
        return learned

    def _confirm_losses(
        self, solver: Solver, entry: PoolSize, names: list[str], found: Confirmation, in_full: bool
    ) -> Confirmation:
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
            step = f"Confirming the loss of {lost}, {done + 1} of {len(chosen)}"
            after = self._walk(step, problem.placement(places[k]), names, lost, in_full=in_full)
            found = found.with_worst_of(after)
            if found.miss is not None:
                break
        return found

    def figures_of(self, found: Confirmation) -> ObjectiveFigures:
        """The realised figures of an answer."""
        return ObjectiveFigures.of(self.fine, found.objectives.values(), self.accepted)


def _without(deployment: Deployment, queries: Collection[str]) -> Deployment:
    """The deployment without the objectives of some queries, which keep running."""
    return replace(
        deployment, objectives=tuple(objective for objective in deployment.objectives if objective.query not in queries)
    )
