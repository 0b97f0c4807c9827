"""Combinations of node types: by ascending cost, each with its board and what a lower bound says against it."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from engine.deployment import Deployment
from engine.errors import DocumentError, Fault
from engine.estimation import Progress
from engine.provisioning.bounds import Fused, Refutation, late_alone, of_operator, remaining_of
from engine.provisioning.clock import Clock
from engine.provisioning.node_types import NodeType
from engine.provisioning.proving import Prover
from engine.provisioning.solver import Solver

__all__ = ["Counts", "Mixes"]

Counts = tuple[int, ...]

_MOST_COMBINATIONS = 200_000


class Mixes:
    """Combinations of node types on top of the nodes of a deployment."""

    _enough = np.inf  # the least capacity known that the fused bound does not refute

    def __init__(
        self,
        base: Deployment,
        types: Sequence[NodeType],
        mace_every: int,
        lose: int,
        rounds: int,
        seed: int,
        closed: Sequence[str] = (),
        progress: Progress | None = None,
        clock: Clock | None = None,
        split: bool = False,
        leave_out: bool = False,
        enough: bool = True,
    ) -> None:
        combinations = float(np.prod([entry.max + 1.0 for entry in types]))
        if combinations > _MOST_COMBINATIONS:
            message = f"the limits allow {combinations:.3g} combinations; allowed: at most {_MOST_COMBINATIONS}"
            raise DocumentError([Fault("types", message)], "question")
        self.types, self.present = tuple(types), len(base.nodes)
        taken = {node.id for node in base.nodes}
        new = [entry.node(_free(entry.name, k, taken)) for entry in types for k in range(entry.max)]
        whole = replace(base, nodes=(*base.nodes, *new))
        self._first = np.concatenate([[0], np.cumsum([entry.max for entry in types])]) + self.present
        self.prover = Prover(
            whole,
            mace_every=mace_every,
            lose=lose,
            rounds=rounds,
            seed=seed,
            closed=[name for name in closed if name in base.node_index],
            progress=progress,
            clock=clock,
            split=split,
            leave_out=leave_out,
            enough=enough,
            kinds=[self._nodes((*(0,) * t, entry.max, *(0,) * (len(types) - t - 1))) for t, entry in enumerate(types)],
        )

    def by_cost(self) -> Iterator[tuple[float, Counts]]:
        """Every combination once, by ascending cost; fewer nodes first among equals."""
        start: Counts = (0,) * len(self.types)
        heap: list[tuple[float, int, Counts]] = [(0.0, 0, start)]
        while heap:
            cost, nodes, counts = heapq.heappop(heap)
            yield cost, counts
            # Only from the last type in use onwards, so that every combination has one way to it.
            last = max((t for t, count in enumerate(counts) if count), default=0)
            for t in range(last, len(counts)):
                if counts[t] < self.types[t].max:
                    more = (*counts[:t], counts[t] + 1, *counts[t + 1 :])
                    heapq.heappush(heap, (self.cost(more), nodes + 1, more))

    def cost(self, counts: Counts) -> float:
        return float(sum(count * entry.price_per_hour for count, entry in zip(counts, self.types, strict=True)))

    def words(self, counts: Counts) -> dict[str, int]:
        return {entry.name: count for entry, count in zip(self.types, counts, strict=True)}

    def solver(self, counts: Counts) -> Solver:
        """Placements on the present nodes and those of a combination."""
        return self.prover.solver_of(self.prover.board.subset(self._nodes(counts)))

    def _nodes(self, counts: Counts) -> list[int]:
        """The present nodes and those of a combination, as they stand among all."""
        chosen = [*range(self.present)]
        for t, count in enumerate(counts):
            chosen += range(self._first[t], self._first[t] + count)
        return chosen

    def refutation(self, counts: Counts) -> Refutation | None:
        """A proof against a combination. Kinds of nodes decide what an operator alone can do, sums all else."""
        kinds = tuple(count > 0 for count in counts)
        if kinds not in self._alone:
            board = self.prover.board.subset(self._nodes(tuple(int(used) for used in kinds)))
            late = late_alone(board, self.prover.solver.judge, len(board.budget))
            self._alone[kinds] = of_operator(self.prover.board, self.prover.solver.judge, late[0]) if late else None
        return self._alone[kinds] or self._too_small(counts)

    def _too_small(self, counts: Counts) -> Refutation | None:
        """The fused bound. More capacity never makes it worse, so most combinations need no look at the loads."""
        board = self.prover.board
        cores = np.flatnonzero(np.isin(board.node, self._nodes(counts)))
        left = remaining_of(board.budget[cores], board.node[cores], self.prover.lose)
        if left.shape[1] > 1:
            return self._fused.refute(left, self.prover.lose)
        capacity = float(left.sum())
        if capacity >= self._enough:
            return None
        found = self._fused.refute(left, self.prover.lose)
        if found is None:
            self._enough = capacity
        return found

    @cached_property
    def _alone(self) -> dict[tuple[bool, ...], Refutation | None]:
        return {}

    @cached_property
    def _fused(self) -> Fused:
        return Fused(self.prover.board, self.prover.solver.judge)


def _free(name: str, number: int, taken: set[str]) -> str:
    """``type-1``, ``type-2`` ... past the names that nodes have already."""
    k = number + 1
    while (found := f"{name}-{k}") in taken:
        k += 1
    taken.add(found)
    return found
