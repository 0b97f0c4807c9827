"""Node types that could be bought, and their combinations by ascending cost with lower bounds."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np

from engine.document.cycles import NOMINAL
from engine.document.deployment import Deployment, Node
from engine.document.kinds import CAPACITY, CORES, CYCLE_UNIT, ID, MEMORY, NOT_NEGATIVE
from engine.errors import DocumentError, Fault
from engine.kinds import Number
from engine.provisioning.answers.pools import Refutation
from engine.provisioning.changes import MAX_NODES
from engine.provisioning.pool.bounds import FusedBound, late_alone, of_operator, refute_memory, remaining_of
from engine.provisioning.pool.problem import PoolProblem
from engine.provisioning.pool.proof import Prover
from engine.provisioning.pool.solver import Solver
from engine.provisioning.question import PoolQuestion, ProgressClock
from engine.records import ItemCount, Record, Words

__all__ = ["Counts", "MixCombinations", "NodeType", "node_of", "read_types"]

MAX_TYPES = 6

_MAX_COMBINATIONS = 200_000


@dataclass(frozen=True)
class LikeType(Record):
    """A type that new nodes are of."""

    TITLE: ClassVar[str] = "a type"

    name: Annotated[str | None, ID] = None
    capacity_cps: Annotated[float, CAPACITY, Words("cycles/s of one core")] = field(kw_only=True)
    cores: Annotated[int, CORES] = 1
    cycle_unit: Annotated[
        str | None, CYCLE_UNIT, Words("what the capacity counts; as the nodes there are unless given")
    ] = None
    memory_bytes: Annotated[float, MEMORY, Words("of a node; without it nobody knows whether state fits")] | None = None
    price_per_hour: Annotated[float, NOT_NEGATIVE] | None = None

    def node(self, name: str, unit: str = NOMINAL) -> Node:
        """A node of it."""
        return Node(
            name,
            self.capacity_cps,
            None,
            self.cores,
            self.name,
            self.price_per_hour,
            self.memory_bytes,
            cycle_unit=self.cycle_unit or unit,
        )


@dataclass(frozen=True)
class NodeType(LikeType):
    """A type with its price and how many may be had."""

    name: Annotated[str, ID] = field(kw_only=True)
    price_per_hour: Annotated[float, Number(above=0, most=1e12)] = field(kw_only=True)
    max: Annotated[int, Number(least=0, most=MAX_NODES, whole=True)] = 16


@dataclass(frozen=True)
class _Types(Record):
    TITLE: ClassVar[str] = "a question"

    types: Annotated[tuple[NodeType, ...], ItemCount(least=1, most=MAX_TYPES)]

    def find_faults(self) -> Iterator[Fault]:
        seen: set[str] = set()
        for i, entry in enumerate(self.types):
            if entry.name in seen:
                yield Fault(f"types[{i}].name", f"name {entry.name!r} is given twice; names must differ")
            seen.add(entry.name)


def node_of(document: Any, *, path: str = "like", unit: str = NOMINAL) -> Node:
    """A node from the description of its type.

    Raises
    ------
    DocumentError
        With every fault.
    """
    faults: list[Fault] = []
    like = LikeType.read(document, "", path, faults)
    if like is None:
        raise DocumentError(faults, "question")
    return like.node("", unit)


def read_types(items: Any, *, unit: str = NOMINAL) -> list[NodeType]:
    """Types with prices, strictly; what their capacities count is told by `unit` unless they do.

    Raises
    ------
    DocumentError
        With every fault: missing prices, names that repeat, too many types.
    """
    types = _Types.parse({"types": items}).types
    return [entry if entry.cycle_unit else replace(entry, cycle_unit=unit) for entry in types]


Counts = tuple[int, ...]


class MixCombinations:
    """Combinations of node types on top of the nodes of a deployment."""

    _enough = np.inf  # the least capacity known that the fused bound does not refute

    def __init__(
        self,
        base: Deployment,
        types: Sequence[NodeType],
        question: PoolQuestion,
        clock: ProgressClock | None = None,
        *,
        enough: bool = True,
    ) -> None:
        combinations = float(np.prod([entry.max + 1.0 for entry in types]))
        if combinations > _MAX_COMBINATIONS:
            message = f"the limits allow {combinations:.3g} combinations; allowed: at most {_MAX_COMBINATIONS}"
            raise DocumentError([Fault("types", message)], "question")
        self.types, self.present = tuple(types), len(base.nodes)
        taken = {node.id for node in base.nodes}
        new = [entry.node(_free(entry.name, k, taken)) for entry in types for k in range(entry.max)]
        whole = replace(base, nodes=(*base.nodes, *new))
        self._first = np.concatenate([[0], np.cumsum([entry.max for entry in types])]) + self.present
        kinds = [self._nodes((*(0,) * t, entry.max, *(0,) * (len(types) - t - 1))) for t, entry in enumerate(types)]
        self.prover = Prover(whole, question.on(base), clock, kinds=kinds, enough=enough)

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
        return self.prover.solver_of(self.problem(counts))

    def problem(self, counts: Counts) -> PoolProblem:
        """The problem on the present nodes and those of a combination."""
        return self.prover.problem.subset(self._nodes(counts))

    def _nodes(self, counts: Counts) -> list[int]:
        """The present nodes and those of a combination, as they stand among all."""
        chosen = [*range(self.present)]
        for t, count in enumerate(counts):
            chosen += range(self._first[t], self._first[t] + count)
        return chosen

    def refutation(self, counts: Counts) -> Refutation | None:
        """A proof against a combination. Kinds of nodes decide what an operator alone can do, sums all else."""
        full = refute_memory(self.prover.problem, self._nodes(counts), self.prover.lose)
        if full is not None:
            return full
        kinds = tuple(count > 0 for count in counts)
        if kinds not in self._alone:
            problem = self.prover.problem.subset(self._nodes(tuple(int(used) for used in kinds)))
            late = late_alone(problem, self.prover.solver.judge, len(problem.budget))
            self._alone[kinds] = of_operator(self.prover.problem, self.prover.solver.judge, late[0]) if late else None
        return self._alone[kinds] or self._too_small(counts)

    def _too_small(self, counts: Counts) -> Refutation | None:
        """The fused bound. More capacity never makes it worse, so most combinations need no look at the loads."""
        problem = self.prover.problem
        cores = np.flatnonzero(np.isin(problem.node, self._nodes(counts)))
        left = remaining_of(problem.budget[cores], problem.node[cores], self.prover.lose)
        if left.shape[1] > 1:
            return self._fused.refute(left, self.prover.lose)
        capacity = float(left.sum())
        if capacity >= self._enough:
            return None
        refutation = self._fused.refute(left, self.prover.lose)
        if refutation is None:
            self._enough = capacity
        return refutation

    @cached_property
    def _alone(self) -> dict[tuple[bool, ...], Refutation | None]:
        return {}

    @cached_property
    def _fused(self) -> FusedBound:
        return FusedBound(self.prover.problem, self.prover.solver.judge)


def _free(name: str, number: int, taken: set[str]) -> str:
    """``type-1``, ``type-2`` ... past the names that nodes have already."""
    k = number + 1
    while (free := f"{name}-{k}") in taken:
        k += 1
    taken.add(free)
    return free
