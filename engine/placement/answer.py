"""Answer to a search for a placement, as it is kept: figures, queries and servers before and after, moves, remarks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from engine.document.elements import Replica
from engine.document.memory import FleetMemory
from engine.document.policies import SchedulingGap
from engine.placement.separation import ApartOperator
from engine.records import Omitted, Record, Sentence

__all__ = [
    "AloneOperator",
    "AppliedLimits",
    "BestSoFar",
    "CoreChange",
    "LinkChange",
    "MoveAnswer",
    "OverMemory",
    "PlacementAnswer",
    "QueryChange",
    "ServerChange",
]


@dataclass(frozen=True)
class BestSoFar(Record):
    """Best so far of a search that runs; `cores_s` by the cores alone, while links are still to be counted."""

    value_s: float | None
    cores_s: float | None
    bound_s: float
    elapsed_s: float


@dataclass(frozen=True)
class QueryChange(Record):
    """A query before and after; latencies of its statistic in seconds. `moved` of its operators change places."""

    query: str
    statistic: str
    bound_s: float | None
    before_s: float | None
    after_s: float | None
    before_state: str
    low_s: float | None
    high_s: float | None
    after_state: str
    scheduling: SchedulingGap | None
    resolution_s: float | None
    mace_before_s: float | None
    mace_after_s: float | None
    moved: int


@dataclass(frozen=True)
class ServerChange(Record):
    """A server before and after: Mace, peak load as a share of its capacity, excess over time in seconds."""

    server: str
    before_mace_s: float
    after_mace_s: float
    before_peak: float
    after_peak: float
    excess_before: tuple[float, ...]
    excess_after: tuple[float, ...]


@dataclass(frozen=True)
class _OnNode(Record):
    node: str


@dataclass(frozen=True)
class CoreChange(ServerChange, _OnNode):
    """A core before and after, with its node."""


@dataclass(frozen=True)
class _OfLink(Record):
    source: Annotated[str, Field(alias="from")]
    target: Annotated[str, Field(alias="to")]


@dataclass(frozen=True)
class LinkChange(ServerChange, _OfLink):
    """A link before and after, with its ends."""


@dataclass(frozen=True)
class OverMemory(Record):
    """A node that holds more state than memory while an operator moves, and by how many bytes."""

    node: str
    bytes: float


@dataclass(frozen=True)
class MoveAnswer(Record):
    """A move in its order: how long its state travels, and by how much it delays the query that it hits most.

    `mace_s` is the longest delay of a core once it is made.
    """

    n: int
    operator: str
    query: str | None
    before: Annotated[tuple[Replica, ...], Field(alias="from")]
    after: Annotated[tuple[Replica, ...], Field(alias="to")]
    kind: str
    state_bytes: float | None
    over_memory: tuple[OverMemory, ...]
    duration_s: float
    bump_s: float | None
    bump_query: str | None
    mace_s: float
    why: Sentence


@dataclass(frozen=True)
class AloneOperator(Record):
    """An operator that even alone on its best core costs as much as the whole placement.

    `own_s` is its Mace there, `load_share` its mean load as a share of that core's capacity. `parts` and `split_value`
    say what splitting would gain, if it was tried. `keyed` says whether its state, if it has any, is by key.
    """

    operator: str
    query: str | None
    own_s: float
    load_share: float
    stateless: bool | None
    may_split: bool
    parts: int | None = None
    split_value: float | None = None
    keyed: Omitted[bool] = None


@dataclass(frozen=True)
class AppliedLimits(Record):
    """The constraints as applied."""

    pin: dict[str, str]
    forbid: dict[str, tuple[str, ...]]
    apart: tuple[tuple[str, ...], ...]
    max_moves: int | None
    may_split: tuple[str, ...]
    closed: tuple[str, ...]
    fixed: tuple[str, ...]


@dataclass(frozen=True)
class PlacementAnswer(Record):
    """A proposal: its value by the goal before and after, with bound and `gap` to it, and what follows from it.

    `trace` has (elapsed seconds, value) of each improvement.
    """

    TITLE: ClassVar[str] = "a proposal"

    algorithm: str
    objective: str
    seed: int
    transfer_s: float
    budget_s: float | None
    rounds: int
    stopped: str
    elapsed_s: float
    value_before: float | None
    value_after: float
    mace_before_s: float | None
    mace_after_s: float
    flow_before_s: float | None
    flow_after_s: float | None
    bound_s: float
    bound_kind: str
    gap: float | None
    placement: dict[str, tuple[Replica, ...]]
    queries: tuple[QueryChange, ...]
    nodes: tuple[CoreChange, ...]
    links: tuple[LinkChange, ...]
    moves: tuple[MoveAnswer, ...]
    apart: tuple[ApartOperator, ...]
    alone: tuple[AloneOperator, ...]
    memory: FleetMemory
    messages: tuple[Sentence, ...]
    trace: tuple[tuple[float, float], ...]
    constraints: AppliedLimits
