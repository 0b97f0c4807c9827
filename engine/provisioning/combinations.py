"""Node types that could be bought, and their combinations by ascending cost with lower bounds."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from engine.document.cycles import NOMINAL
from engine.document.deployment import Deployment, Node
from engine.document.tables import CAPACITY, CORES, CYCLE_UNIT, ID, MEMORY, NOT_NEGATIVE
from engine.errors import DocumentError, Fault
from engine.fields import BAD, Field, FieldTable, ListOf, Number
from engine.provisioning.answers.pools import Refutation
from engine.provisioning.changes import MAX_NODES
from engine.provisioning.pool.bounds import FusedBound, late_alone, of_operator, refute_memory, remaining_of
from engine.provisioning.pool.problem import PoolProblem
from engine.provisioning.pool.proof import Prover
from engine.provisioning.pool.solver import Solver
from engine.provisioning.question import PoolQuestion, ProgressClock

__all__ = ["Counts", "MixCombinations", "NodeType", "node_of", "read_types"]

_FIELDS = (
    Field("name", ID),
    Field("capacity_cps", CAPACITY, required=True, help="cycles/s of one core"),
    Field("cores", CORES),
    Field("cycle_unit", CYCLE_UNIT, help="what the capacity counts; as the nodes there are unless given"),
    Field("memory_bytes", MEMORY, nullable=True, help="of a node; without it nobody knows whether state fits"),
)
_LIKE = FieldTable("a type", *_FIELDS, Field("price_per_hour", NOT_NEGATIVE, nullable=True))
_PRICED = FieldTable(
    "a type",
    Field("name", ID, required=True),
    *_FIELDS[1:],
    Field("price_per_hour", Number(above=0, most=1e12), required=True),
    Field("max", Number(least=0, most=MAX_NODES, whole=True)),
)
_TYPES = ListOf(_PRICED, least=1)
MAX_TYPES = 6

_MAX_COMBINATIONS = 200_000


@dataclass(frozen=True)
class NodeType:
    """A type with its price and how many may be had."""

    name: str
    capacity_cps: float
    price_per_hour: float
    cores: int = 1
    max: int = 16
    memory_bytes: float | None = None
    cycle_unit: str = NOMINAL

    def node(self, name: str) -> Node:
        return Node(
            name,
            self.capacity_cps,
            None,
            self.cores,
            self.name,
            self.price_per_hour,
            self.memory_bytes,
            cycle_unit=self.cycle_unit,
        )


def node_of(document: Mapping[str, Any], *, path: str = "like", unit: str = NOMINAL) -> Node:
    """A node from the description of its type.

    Raises
    ------
    DocumentError
        With every fault.
    """
    faults: list[Fault] = []
    record: Any = _LIKE.read(document, "", path, faults)
    if faults or record is BAD:
        raise DocumentError(faults, "question")
    price = record.get("price_per_hour")
    cores, memory = record.get("cores", 1), record.get("memory_bytes")
    unit = record.get("cycle_unit", unit)
    return Node("", record["capacity_cps"], None, cores, record.get("name"), price, memory, cycle_unit=unit)


def read_types(items: Any, *, path: str = "types", unit: str = NOMINAL) -> list[NodeType]:
    """Types with prices, strictly.

    Raises
    ------
    DocumentError
        With every fault: missing prices, names that repeat, too many types.
    """
    faults: list[Fault] = []
    read: Any = _TYPES.read(items, "", path, faults)
    records = [] if read is BAD else [record for record in read if record is not BAD]
    if len(records) > MAX_TYPES:
        faults.append(Fault(path, f"{path} has {len(records)} items; allowed: at most {MAX_TYPES}"))
    seen: set[str] = set()
    for i, record in enumerate(records):
        if record.get("name") in seen:
            faults.append(Fault(f"{path}[{i}].name", f"name {record['name']!r} is given twice; names must differ"))
        seen.add(record.get("name"))
    if faults:
        raise DocumentError(faults, "question")
    return [NodeType(**{"cycle_unit": unit, **record}) for record in records]


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
