"""Plan of a stage as it is written and read: its settings, what they give, the curves around it.

Nothing here needs numba, so that pages and REST can read what a worker computed; docs/models/planner.md has the layout.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, ClassVar

from engine.microbatch.sizing import Infeasibility
from engine.records import Record, Words

__all__ = [
    "BindingLimit",
    "StageAtRate",
    "StageCurve",
    "StageEnds",
    "StagePhase",
    "StagePlan",
    "StageSettings",
    "StageSizing",
]


@dataclass(frozen=True)
class StageSettings(Record):
    """The settings a plan chooses: nodes, threads per node and the three intervals (s)."""

    nodes: Annotated[int, Words(label="Nodes")]
    mappers: Annotated[int, Words(label="Mappers of a node")]
    reducers: Annotated[int, Words(label="Reducers of a node")]
    b_in_s: Annotated[float, Words(label="Input batch (B_in)")]
    b_sh_s: Annotated[float, Words(label="Shuffle batch (B_sh)")]
    b_ch_s: Annotated[float, Words(label="Poll (B_ch)")]


@dataclass(frozen=True)
class StagePhase(Record):
    """A part of the latency."""

    name: str
    mean_s: float
    sd_s: float


@dataclass(frozen=True)
class BindingLimit(Record):
    """The limit that keeps the rate from being higher: `value` of what `ceiling` allows, at the largest rate.

    `limit` is cpu, mapper threads, reducer threads, network, disk, map output buffer or latency constraint; batch,
    partition or poll overhead where that makes up most of the work of the cores or threads that are full.
    """

    limit: str
    value: float
    ceiling: float


@dataclass(frozen=True)
class StageAtRate(Record):
    """Latency (s) and utilisations at some rate."""

    mean_s: float | None
    metric_s: float | None
    util: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class StagePlan(StageSettings):
    """Settings with what they give at the question's rate, and the largest rate they bear."""

    max_rate: float
    headroom: float
    mean_s: float | None
    metric_s: float | None
    util: dict[str, float]
    phases: tuple[StagePhase, ...]
    binding: BindingLimit
    at_max_rate: StageAtRate

    @property
    def settings(self) -> StageSettings:
        """The settings alone."""
        return StageSettings(*(getattr(self, field.name) for field in fields(StageSettings)))

    @property
    def size(self) -> int:
        return self.nodes

    @property
    def limit(self) -> str:
        """Name of what keeps the rate from being higher."""
        return self.binding.limit


@dataclass(frozen=True)
class StageEnds(Record):
    """Both ends of the curve: most throughput, least latency."""

    throughput: StagePlan | None
    latency: StagePlan | None


@dataclass(frozen=True)
class StageCurve(Record):
    """Least latency by rate with so many nodes; None where nothing is stable under the ceiling."""

    nodes: int
    max_rate: float
    points: tuple[tuple[float, float | None], ...]

    @property
    def size(self) -> int:
        return self.nodes


@dataclass(frozen=True)
class StageSizing(Record):
    """Answer of `size_stage`: the plan, the least latency that as many nodes give, and the curves around it."""

    TITLE: ClassVar[str] = "a plan of a stage"

    feasible: bool
    constraint_s: float
    aim_s: float
    statistic: str
    is_bound: bool
    rate: float
    plan: StagePlan | None
    ends: StageEnds
    curve: tuple[StageCurve, ...]
    infeasible: Infeasibility | None
    model: str
    plan_s: float
    duration_s: float
