"""Records of answers about pools: sizes, proofs, the smallest pool, the cheapest mix, and cost against latency."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from engine.arrays import IntArray
from engine.document.cycles import NOMINAL
from engine.document.elements import Node, Replica
from engine.latency_state import KnownSeconds, lasting_load
from engine.provisioning.answers.objectives import ObjectiveAnswer, ObjectiveMiss
from engine.records import Record, Unbounded, Unwritten
from engine.words import bound_words, counted, listed, load_words, mix_text, seconds_words

__all__ = [
    "MixAnswer",
    "NodeLoss",
    "ParetoFront",
    "ParetoPoint",
    "PlacedFigures",
    "Placement",
    "PoolAnswer",
    "PoolNodeType",
    "PoolSize",
    "Proof",
    "Refutation",
    "StuckOperator",
    "front_message",
]

Placement = dict[str, tuple[Replica, ...]]

_NAMED = 6  # operators in a list, the last of a longer one being the number of those left out


@dataclass(frozen=True)
class StuckOperator(Record):
    """An operator that fits nowhere once a node is lost."""

    node: str
    operator: str


def _without_rank(figures: NodeLoss | PlacedFigures | PoolSize, plain: dict[str, object]) -> dict[str, object]:
    """The JSON of figures: without the share of a bound that a query over it never catches up with."""
    return plain if not set(figures.endless) & set(figures.late) else plain | {"over_bound": None}


@dataclass(frozen=True, eq=False)
class NodeLoss(Record):
    """The worst of losing any one node, everything else staying where it is."""

    TITLE: ClassVar[str] = "a lost node"

    worst_s: KnownSeconds  #: as in `PoolSize`; infinite where something then fits nowhere (`stuck`)
    over_bound: Unbounded
    #: Mace_WC of the same placement with all nodes. It is that of the pool unless another placement, such as one with
    #: a spare node, survives a loss better.
    all_up_s: KnownSeconds
    node: str | None  #: the node whose loss is worst
    late: tuple[str, ...]  #: queries over their bound after some loss
    endless: tuple[str, ...] = ()
    stuck: StuckOperator | None = None
    assignment: Unwritten[IntArray | None] = None  #: that placement, where it is known to be another one

    @model_serializer(mode="wrap")
    def _written(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        return _without_rank(self, handler(self))

    @property
    def rank(self) -> tuple[float, float]:
        return self.over_bound, self.worst_s


@dataclass(frozen=True)
class PlacedFigures(Record):
    """Figures of a pool with every operator where it is now."""

    worst_s: KnownSeconds
    over_bound: Unbounded
    queries: dict[str, KnownSeconds]
    late: tuple[str, ...]
    endless: tuple[str, ...] = ()

    @model_serializer(mode="wrap")
    def _written(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        return _without_rank(self, handler(self))


@dataclass(frozen=True, eq=False)
class PoolSize(Record):
    """A pool of one size with the best placement found for it."""

    TITLE: ClassVar[str] = "a pool of one size"

    nodes: int
    cost_per_hour: float | None
    worst_s: KnownSeconds  #: Mace_WC; infinite if the operators cannot be placed
    over_bound: Unbounded  #: largest latency over its bound, 0 without objectives
    queries: dict[str, KnownSeconds]  #: seconds by query: the statistic of its objective, or the worst case
    late: tuple[str, ...]  #: queries over their bound, those that never catch up among them
    #: queries that never catch up, with or without an objective. Their seconds, `worst_s` and `over_bound` are ranks
    #: by which less overload is better; as JSON they are null.
    endless: tuple[str, ...]
    lost: NodeLoss | None  #: none where it was not asked for
    stuck: str | None  #: an operator that fits no node
    #: operators that may be in several parts, and in how many at most
    splits: dict[str, int] = field(default_factory=dict)
    #: for the number of nodes there is now: the same figures with every operator where it is
    as_placed: PlacedFigures | None = None
    assignment: Unwritten[IntArray] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @model_serializer(mode="wrap")
    def _written(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        return _without_rank(self, handler(self))

    @property
    def rank(self) -> tuple[float, float]:
        """Figures that a larger pool must not worsen, the most important first."""
        return self.over_bound, self.worst_s

    @property
    def joint(self) -> tuple[float, float]:
        """The same, with the worst loss of this placement counted in."""
        lost = self.lost or NodeLoss(0.0, 0.0, 0.0, None, ())
        return max(self.over_bound, lost.over_bound), max(self.worst_s, lost.worst_s)


@dataclass(frozen=True)
class Refutation(Record):
    """Refutation of a pool: the reason that no placement on it keeps every objective.

    `least_s` is infinite where nothing can run at all, and a rank where the operator alone never catches up. `parts`
    are those the operator was cut into already, `whole` is why it is not cut (any further). `alone` are the words for
    the realised latency of a query whose operators have a core each, `memory` those for state that has no room.
    """

    TITLE: ClassVar[str] = "a refutation"

    kind: str  # "fused", "largest operator", "alone" or "memory"
    query: str
    operator: str | None
    bound_s: float
    least_s: KnownSeconds
    parts: int = 1
    whole: str = ""
    message: str = ""
    lose: Unwritten[int] = 0
    alone: Unwritten[str] = ""
    memory: Unwritten[str] = ""

    def __post_init__(self) -> None:
        if not self.message:
            object.__setattr__(self, "message", self._message)

    @property
    def _message(self) -> str:
        if self.memory:
            return self.memory
        if self.alone:
            return (
                f"query {self.query} takes {self.alone} with each of its operators alone on the best core it may have: "
                "no number of such nodes helps"
            )
        if self.operator is None:
            return self._of_pool
        if not math.isfinite(self.least_s):
            return f"operator {self.operator} of query {self.query} fits no node: no number of such nodes helps"
        return f"{self._of_operator}; {self.whole}" if self.whole else self._of_operator

    @property
    def _of_operator(self) -> str:
        load = lasting_load(self.least_s)
        if load is not None:
            parts = f", in {self.parts} equal parts, each" if self.parts > 1 else ""
            return (
                f"operator {self.operator}{parts} alone on the best core it may have gets {load_words(load, 1.0)[0]} "
                f"times its capacity, so query {self.query} never catches up: no number of such nodes helps"
            )
        if self.parts > 1:
            return (
                f"operator {self.operator}, in {self.parts} equal parts, each alone on the best core it may have takes "
                f"query {self.query} to {bound_words(self.least_s, self.bound_s)}: "
                "no number of such nodes helps"
            )
        return (
            f"operator {self.operator} alone on the best core it may have takes query {self.query} to "
            f"{bound_words(self.least_s, self.bound_s)}: no number of such nodes helps"
        )

    @property
    def _of_pool(self) -> str:
        if not math.isfinite(self.least_s):
            lost = "with its largest node lost there is no core to run on"
            return lost if self.lose else "there is no core to run on"
        least, bound = seconds_words(self.least_s, self.bound_s)
        if self.lose:
            return (
                f"all that may wait {bound} at most, on one server as large as the whole pool with its "
                f"largest node lost, takes {least}: some query among {self.query} is late wherever the "
                "operators are"
            )
        return (
            f"all that may wait {bound} at most, on one server as large as the whole pool, takes "
            f"{least}: some query among {self.query} is late wherever the operators are"
        )


@dataclass(frozen=True, eq=False)
class Proof(Record):
    """Proof that a smaller or cheaper pool is not the answer.

    `refutation` proves it for every placement (by Mace); without one, the best placement found misses an objective.
    """

    TITLE: ClassVar[str] = "a proof"

    nodes: int
    pool: dict[str, int] | None = None
    cost_per_hour: float | None = None
    proven: bool = False
    refutation: Refutation | None = None
    counterexample: ObjectiveMiss | None = None
    stuck: str | None = None
    message: str = ""

    def __post_init__(self) -> None:
        if not self.message:
            object.__setattr__(self, "proven", self.refutation is not None)
            object.__setattr__(self, "message", self._message)

    @property
    def _message(self) -> str:
        if self.refutation is not None:
            return self.refutation.message
        if self.stuck is not None:
            return f"operator {self.stuck} fits no node"
        reason = self.counterexample.message if self.counterexample else "it breaks an objective by Mace"
        return f"no placement was found that keeps every objective; in the best one {reason}"


@dataclass(frozen=True)
class PoolNodeType(Record):
    """Kind of the nodes of a pool: like which node, or of what size."""

    TITLE: ClassVar[str] = "the nodes of a pool"

    like: str | None
    capacity_cps: float | None
    cores: int
    price_per_hour: float | None
    memory_bytes: float | None
    cycle_unit: Annotated[str, Field(exclude_if=lambda unit: unit == NOMINAL)] = NOMINAL

    @classmethod
    def of(cls, node: Node) -> PoolNodeType:
        return cls(
            node.id or None, node.capacity_cps, node.cores, node.price_per_hour, node.memory_bytes, node.cycle_unit
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class PoolAnswer(ObjectiveAnswer):
    """Answer of a pool search: the number of nodes and its proof."""

    TITLE: ClassVar[str] = "a smallest pool"

    nodes: int | None  #: of the whole pool, and on top of those present; None if no pool up to `most` was found
    present: int
    added: int | None = None
    type: PoolNodeType
    most: int
    #: whether every objective holds by its realised interval, up to its upper end, but for those in `figures` that no
    #: number of nodes takes out of risk; False where the steps allowed for that were used up
    confirmed: bool
    cost_per_hour: float | None = None
    best: PoolSize | None
    placement: Placement = field(default_factory=dict)
    #: why one node less is too few, or why no number of nodes is enough. None where the pool cannot be smaller.
    proof: Proof | None
    miss: ObjectiveMiss | None  #: where not confirmed, what is still wrong
    sizes: tuple[PoolSize, ...]  #: every size that was placed on the way
    flows: int
    least: int = 0  #: no pool with fewer nodes can keep the objectives (by Mace): a lower bound refutes it
    #: operators that the placement has in more parts than they are in now, and in how many
    splits: dict[str, int] = field(default_factory=dict)
    #: objectives left out because no number of nodes keeps them, and why; the answer is about the others
    beyond: tuple[Refutation, ...] = ()
    complete: bool = True  #: false if the time was over before the search had ended: fewer than `nodes` may do
    confirmation: str = ""  #: how it was looked at
    message: str = ""

    def _worked_out(self) -> dict[str, object]:
        return {
            "added": None if self.nodes is None else self.nodes - self.present,
            "cost_per_hour": None if self.best is None else self.best.cost_per_hour,
            "message": " ".join(self._none_found() if self.nodes is None else self._found(self.nodes)),
        }

    def _none_found(self) -> Iterator[str]:
        if self.beyond:
            yield _beyond_sentence(self.beyond)
        if self.beyond:
            yield f"No pool of up to {self.most} nodes was found that keeps the other objectives."
        else:
            yield f"No pool of up to {self.most} nodes was found that keeps every objective."
        if self.proof:
            yield f"With {counted(self.proof.nodes, 'node')}, {self.proof.message}."
        if self.least > max(self.present, 1):
            yield f"At least {self.least} are needed by bound."
        if not self.complete:
            yield "The time was over before all pools had been tried."

    def _found(self, nodes: int) -> Iterator[str]:
        keep = "1 node keeps" if nodes == 1 else f"{nodes} nodes keep"
        if self.beyond:
            yield _beyond_sentence(self.beyond)
        yield f"{keep} {'the others' if self.beyond else 'every objective'}{self.figures.reservation}."
        if self.confirmed:
            yield f"Found by Mace and confirmed by {self.confirmation}."
        elif self.miss:
            yield f"Found by Mace and not confirmed: {self.miss.message}."
        else:
            yield "Found by Mace and not confirmed."
        yield from self.figures.sentences
        if self.splits:
            yield _split_sentence(self.splits)
        if self.proof:
            yield f"With one less, {self.proof.message}."
        is_proven = self.proof is None or self.proof.refutation is not None
        if not is_proven and self.least > max(self.present, 1):
            yield f"At least {self.least} are needed by bound."
        if not self.complete:
            yield "The time was over before smaller pools had all been tried."


@dataclass(frozen=True, eq=False, kw_only=True)
class MixAnswer(ObjectiveAnswer):
    """The cheapest mix found."""

    TITLE: ClassVar[str] = "a cheapest mix"

    counts: dict[str, int] | None  #: new nodes by type; None if no mix within the limits was found
    present: int
    cost_per_hour: float | None  #: of the new nodes
    #: no mix that costs less can keep every objective (by Mace): every one is refuted by a lower bound. Equal to the
    #: cost where the answer is proven to be the cheapest. None if all mixes are refuted.
    least_cost_per_hour: float | None
    proven: bool = False  #: whether nothing cheaper can do (by Mace)
    complete: bool  #: false if the search gave up before it had looked at every combination that could be cheaper
    refuted: int  #: cheaper combinations that a bound refutes, and those that were placed without success
    tried: int
    best: PoolSize | None
    placement: Placement = field(default_factory=dict)
    #: the cheaper mixes that came nearest, and why they are not enough; for each type in use, one node less of it
    proofs: tuple[Proof, ...]
    flows: int
    #: as in `PoolAnswer`; without it a pool of one type is the answer only where no mix was confirmed
    confirmed: bool = True
    splits: dict[str, int] = field(default_factory=dict)  #: as in `PoolAnswer`
    beyond: tuple[Refutation, ...] = ()
    confirmation: str = ""
    message: str = ""

    def _worked_out(self) -> dict[str, object]:
        words = self._none_found() if self.counts is None else self._found(self.counts)
        return {"proven": self._is_proven, "message": " ".join(words)}

    @property
    def is_sufficient(self) -> bool:
        """Whether it is confirmed and leaves no objective at risk."""
        return self.counts is not None and self.confirmed and not self.figures.at_risk

    @property
    def _is_proven(self) -> bool:
        least, cost = self.least_cost_per_hour, self.cost_per_hour
        return self.counts is not None and least is not None and cost is not None and cost <= least * (1.0 + 1e-9)

    def _none_found(self) -> Iterator[str]:
        if self.beyond:
            yield _beyond_sentence(self.beyond)
        which = (bool(self.beyond), self.complete)
        yield {
            (False, True): "No mix within the limits keeps every objective.",
            (False, False): "No mix among those looked at keeps every objective.",
            (True, True): "No mix within the limits keeps the others.",
            (True, False): "No mix among those looked at keeps the others.",
        }[which]
        if self.proofs:
            yield f"The nearest does not do: {self.proofs[0].message}."

    def _found(self, counts: Mapping[str, int]) -> Iterator[str]:
        if self.beyond:
            yield _beyond_sentence(self.beyond)
        if any(counts.values()):
            yield f"{mix_text(counts)} at {self.cost_per_hour:g} per hour."
        else:
            yield "No new node is needed."
        if self._is_proven:
            yield "Every cheaper mix is proven too small."
        elif self._is_bounded:
            yield f"No cheaper mix was found; by bound it is at least {self.least_cost_per_hour:g} per hour."
        else:
            yield "No cheaper mix was found."
        if not self.confirmed:
            yield "It is not confirmed."
        yield from self.figures.sentences
        if self.splits:
            yield _split_sentence(self.splits)

    @property
    def _is_bounded(self) -> bool:
        least, cost = self.least_cost_per_hour, self.cost_per_hour
        return least is not None and cost is not None and least < cost


@dataclass(frozen=True, eq=False, kw_only=True)
class ParetoPoint(ObjectiveAnswer):
    """A mix, what its new nodes cost, and the latency of the best placement found on it.

    `state` is holds, unknown, at_risk or breached by realised figures; else breached or open by Mace. `found` are its
    realised figures, None where Mace alone was asked.
    """

    TITLE: ClassVar[str] = "a point of the front"

    counts: dict[str, int]
    cost_per_hour: float
    nodes: int
    worst_s: KnownSeconds
    over_bound: Unbounded
    queries: dict[str, KnownSeconds]
    late: tuple[str, ...]
    endless: tuple[str, ...] = ()
    lost: NodeLoss | None
    stuck: str | None
    splits: dict[str, int]
    as_placed: PlacedFigures | None
    state: str = "open"
    miss: ObjectiveMiss | None = None
    size: Unwritten[PoolSize | None] = None
    solver: Unwritten[Any] = None
    found: Unwritten[Any] = None

    @classmethod
    def of(cls, counts: dict[str, int], cost: float, size: PoolSize, solver: Any) -> ParetoPoint:
        """A point as Mace has it."""
        figures = {name: value for name, value in vars(size).items() if name not in ("cost_per_hour", "assignment")}
        if set(size.endless) & set(size.late):
            figures["over_bound"] = math.inf
        state = "breached" if size.joint[0] > 1.0 else "open"
        return cls(counts=counts, cost_per_hour=cost, **figures, state=state, size=size, solver=solver)

    def _worked_out(self) -> dict[str, object]:
        if self.found is not None and self.found.miss is not None:
            return {"miss": self.found.miss, "state": self.found.miss.state}
        return {"state": "at_risk" if self.at_risk else "unknown" if self.unknown else "holds"}


@dataclass(frozen=True, eq=False)
class ParetoFront(Record):
    """Points by ascending cost and descending latency.

    `skipped` mixes cannot beat a cheaper one by the lower bound; `complete` is False if some were not looked at.
    """

    TITLE: ClassVar[str] = "a front"

    points: tuple[ParetoPoint, ...]
    message: str
    tried: int
    skipped: int
    complete: bool

    @property
    def holding(self) -> ParetoPoint | None:
        """The cheapest point that was walked and found to hold, but for objectives that no mix takes out of risk."""
        return holding_point(self.points)


def holding_point(points: Sequence[ParetoPoint]) -> ParetoPoint | None:
    return next((point for point in points if point.found is not None and point.found.miss is None), None)


def front_message(points: Sequence[ParetoPoint]) -> str:
    point = holding_point(points)
    if point is None:
        return "No point was confirmed to keep every objective." if any(p.found for p in points) else ""
    said = f"The cheapest point that keeps every objective{point.reservation} is {mix_text(point.counts)}"
    return " ".join([f"{said} at {point.cost_per_hour:g} per hour.", *point.notes])


def _split_sentence(splits: Mapping[str, int]) -> str:
    """The sentence that names the operators in several parts, in how many."""
    return f"Split: {listed([f'{name} in {parts} parts' for name, parts in splits.items()], _NAMED)}."


def _beyond_sentence(beyond: Sequence[Refutation]) -> str:
    """The sentence on objectives that are left out because no number of nodes keeps them."""
    if len(beyond) == 1:
        return f"1 objective is kept by no number of such nodes and left out: {beyond[0].message}."
    return f"{len(beyond)} objectives are kept by no number of such nodes and left out; first: {beyond[0].message}."
