"""One pool tried for all objectives: placed and judged by Mace, confirmed by Flow, refuted by lower bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.deployment import Deployment
from engine.errors import DocumentError, Fault
from engine.estimation import Progress
from engine.provisioning.board import Board, board_of
from engine.provisioning.bounds import Refutation, refuted
from engine.provisioning.confirming import Miss, flow_miss, on_nodes
from engine.provisioning.judge import Judge, operator_weights
from engine.provisioning.solver import PoolSize, Solver, losses

__all__ = ["Proof", "Prover", "need_objectives"]


@dataclass(frozen=True, eq=False)
class Proof:
    """Why a smaller or cheaper pool is not the answer.

    `refutation` proves it for every placement (by Mace); without one, the best placement found misses an objective.
    """

    nodes: int
    cost_per_hour: float | None
    refutation: Refutation | None
    miss: Miss | None
    stuck: str | None = None
    pool: dict[str, int] | None = None

    @property
    def message(self) -> str:
        if self.refutation is not None:
            return self.refutation.message
        if self.stuck is not None:
            return f"operator {self.stuck} fits no node"
        found = self.miss.message if self.miss else "it breaks an objective by Mace"
        return f"no placement was found that keeps every objective; in the best one {found}"

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
    """Raises `DocumentError` if there is no objective that a pool could keep."""
    if not deployment.objectives:
        message = "there is no objective; give at least one query a statistic and a bound"
        raise DocumentError([Fault("objectives", message)], "question")


class Prover:
    """Tries pools made of the nodes of one deployment at full resolution, which has more of them than needed."""

    def __init__(
        self,
        fine: Deployment,
        *,
        mace_every: int,
        lose: int,
        rounds: int,
        seed: int,
        closed: Sequence[str] = (),
        progress: Progress | None = None,
    ) -> None:
        if lose not in (0, 1):
            raise DocumentError([Fault("lose", f"lose is {lose}; allowed: 0 or 1")], "question")
        self.fine, self.mace_every, self.lose, self.rounds, self.seed = fine, mace_every, lose, rounds, seed
        coarse = fine.coarsened(mace_every)
        self.board = board_of(coarse, operator_weights(coarse), closed)
        self.solver = self.solver_of(self.board)
        self.flows = [0]
        self.solved = 0
        self._tell = progress or (lambda share, step: None)
        self._share = 0.0

    def tell(self, share: float, step: str) -> None:
        """Report progress, which never goes back; whoever listens may raise to end the search."""
        self._share = max(self._share, min(share, 1.0))
        self._tell(self._share, step)

    def solver_of(self, board: Board) -> Solver:
        return Solver(board, lose_one=bool(self.lose), rounds=self.rounds, seed=self.seed)

    def keeps(self, entry: PoolSize) -> bool:
        """Whether every objective is kept by Mace."""
        lost_kept = entry.lost is None or entry.lost.over_bound <= 1.0
        return entry.stuck is None and entry.over_bound <= 1.0 and lost_kept

    def refutation(self, nodes: int) -> Refutation | None:
        """A proof against the first `nodes` nodes."""
        return refuted(self.board, self.solver.judge, nodes, lose=self.lose)

    def confirm(self, entry: PoolSize, solver: Solver | None = None) -> Miss | None:
        """What Flow finds wrong with a placement, with all nodes and with each of them lost; None if nothing."""
        solver = solver or self.solver
        board = solver.board
        names = [node.id for node in board.deployment.nodes[: entry.nodes]]
        self.tell(self._share, f"Confirming {len(names)} nodes by Flow")
        whole = on_nodes(self.fine, board.placement(entry.assignment), names)
        miss = flow_miss(whole, mace_every=self.mace_every, runs=self.flows)
        if miss is not None or not self.lose:
            return miss
        return self._confirm_losses(board, solver.judge, entry, names)

    def _confirm_losses(self, board: Board, judge: Judge, entry: PoolSize, names: list[str]) -> Miss | None:
        """Lose every node that holds something, the most harmful by Mace first."""
        used = np.unique(board.node[entry.assignment])
        places, after_s, stuck = losses(board, judge, entry.nodes, entry.assignment, used)
        values = np.array(
            [
                (judge.worst_by_query(place, core_s, judge.edge_s(place)) / judge.bounds).max(initial=0.0)
                for place, core_s, k in zip(places, after_s, stuck, strict=True)
                if k < 0
            ]
        )
        for done, k in enumerate(np.argsort(-values, kind="stable")):
            lost = names[used[k]]
            self.tell(self._share, f"Confirming the loss of {lost} by Flow, {done + 1} of {len(used)}")
            left = on_nodes(self.fine, board.placement(places[k]), names, lost)
            miss = flow_miss(left, mace_every=self.mace_every, lost=lost, runs=self.flows)
            if miss is not None:
                return miss
        return None

    def proof(self, entry: PoolSize, miss: Miss | None, solver: Solver | None = None) -> Proof:
        """The case against a pool whose best placement `entry` misses an objective."""
        board = (solver or self.solver).board
        judge = (solver or self.solver).judge
        refutation = refuted(board, judge, entry.nodes, lose=self.lose)
        return Proof(entry.nodes, entry.cost_per_hour, refutation, miss, entry.stuck)
