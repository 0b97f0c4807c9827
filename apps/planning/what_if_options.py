"""Options of what-ifs, read strictly, and the bench's inputs as changes of a scenario."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from pydantic import WrapValidator

from apps.core.errors import Fault, Malformed, fault_count
from apps.planning.choices import Find
from engine.document.cycles import NOMINAL
from engine.document.deployment import Deployment, Node
from engine.document.elements import Objective as EngineObjective
from engine.document.kinds import CAPACITY, CYCLE_UNIT, MEMORY, PRICE
from engine.kinds import ListOf, Number, String
from engine.records import Flag, ItemCount, Record, Words

__all__ = [
    "FACTOR",
    "MAX_FACTOR",
    "MAX_NODES",
    "MAX_SIZES",
    "MIN_FACTOR",
    "Inputs",
    "SweepOptions",
    "given_options",
    "read_options",
    "resized_pool",
    "sweep_sizes",
]

MAX_SIZES = 60  # sizes of one sweep
MAX_NODES = 2000  # nodes of one fleet
FACTOR = Number(least=0.01, most=100.0)
_COUNT = Number(least=1, most=MAX_NODES, whole=True)

_Count = Annotated[int, _COUNT]
_Factor = Annotated[float, FACTOR]
_Seed = Annotated[int, Number(least=0, whole=True)]
_LoseOne = Annotated[Flag, Words("Every objective is to hold with any one node lost.")]
_Keep = Annotated[Flag, Words("New nodes join those there are (default) or take their place.")]
_Headroom = Annotated[float, Number(least=0.0), Words("Seconds to keep below every objective.")]
_Pool = Annotated[str, String(), WrapValidator(lambda value, read: "" if value is None else read(value))]


@dataclass(frozen=True, kw_only=True)
class NodeTypeOption(Record):
    """A type of nodes that a mix may have."""

    TITLE: ClassVar[str] = "a node type"

    name: Annotated[str, String()]
    capacity_cps: Annotated[float, CAPACITY, Words("Cycles/s of one core.")]
    cores: Annotated[int, Number(least=1, most=1024, whole=True)]
    price_per_hour: Annotated[float, PRICE]
    memory_bytes: Annotated[
        Annotated[float, MEMORY] | None, Words("Of a node, for state; without it nobody knows what fits.")
    ] = None
    max: Annotated[_Count | None, Words("Most nodes of this type.")] = None
    cycle_unit: Annotated[str, CYCLE_UNIT, Words("What its capacity counts; as the nodes there are unless given.")] = (
        NOMINAL
    )


@dataclass(frozen=True, kw_only=True)
class WhatIfOptions(Record):
    """Options of one kind of what-if; those that a kind does not take are at what it goes by."""

    TITLE: ClassVar[str] = "options"

    seed = 0
    headroom_s = 0.0


@dataclass(frozen=True, kw_only=True)
class CompareOptions(WhatIfOptions):
    """Options of a comparison."""

    seed: _Seed = 0
    lose_one: _LoseOne = True
    flow: Flag = True
    intervals: Flag = True


@dataclass(frozen=True, kw_only=True)
class SweepOptions(WhatIfOptions):
    """Options of a sweep: loads, objectives, and numbers of nodes of the whole cluster."""

    factor: Annotated[_Factor, Words("Every source times this.")] = 1.0
    sources: Annotated[dict[str, _Factor], Words("Single sources times this, besides factor.")] = field(
        default_factory=dict
    )
    pool: Annotated[_Pool, Words("The pool whose nodes are added or taken; empty: that of most nodes.")] = ""
    sizes: Annotated[
        tuple[int, ...], ListOf(_COUNT, least=1, most=MAX_SIZES), Words("Numbers of nodes of the whole cluster.")
    ] = ()
    bound_s: Annotated[
        Annotated[float, Number(above=0.0)] | None, Words("One worst case for all, instead of their objectives.")
    ] = None
    objective_factor: Annotated[_Factor, Words("Every objective times this.")] = 1.0
    lose_one: _LoseOne = True
    headroom_s: _Headroom = 0.0


@dataclass(frozen=True, kw_only=True)
class SmallestPoolOptions(WhatIfOptions):
    """Options of a search for the smallest pool."""

    seed: _Seed = 0
    lose_one: _LoseOne = True
    headroom_s: _Headroom = 0.0
    max_nodes: Annotated[_Count, Words("Most nodes looked at; 64, or twice those there are, unless given.")] = 0
    keep_present: _Keep = True
    pool: Annotated[_Pool, Words("What further nodes are like.")] = ""


@dataclass(frozen=True, kw_only=True)
class ParetoOptions(WhatIfOptions):
    """Options of a front of cost against latency."""

    seed: _Seed = 0
    lose_one: _LoseOne = True
    keep_present: _Keep = True
    types: Annotated[tuple[NodeTypeOption, ...], ItemCount(1, 6)]


@dataclass(frozen=True, kw_only=True)
class CheapestMixOptions(ParetoOptions):
    """Options of a search for the cheapest mix."""

    headroom_s: _Headroom = 0.0


@dataclass(frozen=True, kw_only=True)
class SurvivalOptions(WhatIfOptions):
    """Options of the loss of each node, or of each failure domain."""

    seed: _Seed = 0
    domain: Annotated[
        Annotated[str, String()] | None, Words("Label of nodes that fail together, such as rack; else each alone.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class GrowthOptions(WhatIfOptions):
    """Options of a search for the room to grow."""

    most: Annotated[float, Number(above=1.0, most=1000.0), Words("Largest factor looked at.")] = 16.0


_RECORDS: dict[Find, type[WhatIfOptions]] = {
    Find.COMPARE: CompareOptions,
    Find.SWEEP: SweepOptions,
    Find.SMALLEST_POOL: SmallestPoolOptions,
    Find.CHEAPEST_MIX: CheapestMixOptions,
    Find.PARETO: ParetoOptions,
    Find.SURVIVAL: SurvivalOptions,
    Find.GROWTH: GrowthOptions,
}
MIN_FACTOR, MAX_FACTOR = 0.5, 10.0  # ends of the slider
_SIZES = 13
_NAMES = ("factor", "sources", "pool", "bound_s", "objective_factor", "headroom_s", "lose_one")


def read_options(find: str, document: Any) -> Any:
    """Options of a what-if: the record of its kind.

    Raises
    ------
    Malformed
        With every fault, each under ``options``.
    """
    faults: list[Fault] = []
    options = _RECORDS[Find(find)].read(document, "", "options", faults)
    if faults:
        raise Malformed(f"The options have {fault_count(faults)}; first: {faults[0].message}", faults)
    return options


def given_options(find: str, document: Any) -> dict[str, object]:
    """The options that are given, as they were read: defaults stay open for those who read the answer."""
    read = read_options(find, document).to_dict()
    given = {name: read[name] for name, value in document.items() if value is not None}
    if "types" in given:
        given["types"] = [
            {name: full[name] for name, value in asked.items() if value is not None}
            for asked, full in zip(document["types"], given["types"], strict=True)
        ]
    return given


@dataclass(frozen=True, kw_only=True)
class Inputs(SweepOptions):
    """Inputs of the bench: options of a sweep, and the number of nodes looked at (none: the smallest that holds)."""

    nodes: int | None = None

    @property
    def options(self) -> dict[str, object]:
        """As the options of a sweep; what stands at its default is left out."""
        blank = Inputs()
        return {name: getattr(self, name) for name in _NAMES if getattr(self, name) != getattr(blank, name)}

    @property
    def is_now(self) -> bool:
        """Whether loads and objectives are as they are now."""
        return not self.load_changes() and self.bound_s is None and self.objective_factor == 1.0

    def factors(self, deployment: Deployment) -> float | dict[str, float]:
        """The factor of every source, as `Bench.sweep` takes it."""
        if not self.sources:
            return self.factor
        return {source.id: self.factor * self.sources.get(source.id, 1.0) for source in deployment.sources}

    def load_changes(self) -> list[dict[str, object]]:
        """Other loads, as changes of a scenario."""
        every = [{"scale_source": "*", "by": self.factor}] if self.factor != 1.0 else []
        return [*every, *({"scale_source": name, "by": by} for name, by in sorted(self.sources.items()))]

    def objectives(self, deployment: Deployment) -> tuple[EngineObjective, ...]:
        """Objectives of all queries, before the headroom."""
        if self.bound_s is not None:
            bound = self.bound_s * self.objective_factor
            return tuple(EngineObjective(query, "worst", bound) for query in deployment.queries)
        return tuple(
            EngineObjective(objective.query, objective.statistic, objective.bound_s * self.objective_factor)
            for objective in deployment.objectives
        )

    def objective_changes(self, deployment: Deployment) -> list[dict[str, object]]:
        """Other objectives, as changes of a scenario."""
        if self.bound_s is None and self.objective_factor == 1.0:
            return []
        return [
            {"objective": objective.query, "statistic": objective.statistic, "bound_s": round(objective.bound_s, 6)}
            for objective in self.objectives(deployment)
        ]

    def changes(self, deployment: Deployment, nodes: int, model: Node | None = None) -> list[dict[str, object]]:
        """Everything the bench says about a fleet of `nodes` nodes, as changes of a scenario.

        `model` is what further nodes are like, where the pool has none yet.
        """
        fleet = _fleet_changes(deployment, self.pool, nodes, model)
        return [*self.load_changes(), *fleet, *self.objective_changes(deployment)]


def _fleet_changes(deployment: Deployment, pool: str, nodes: int, model: Node | None) -> list[dict[str, object]]:
    more = nodes - len(deployment.nodes)
    if not more:
        return []
    if model is not None and more > 0:
        price = {} if model.price_per_hour is None else {"price_per_hour": model.price_per_hour}
        memory = {} if model.memory_bytes is None else {"memory_bytes": model.memory_bytes}
        size = {"capacity_cps": model.capacity_cps, "cores": model.cores, "cycle_unit": model.cycle_unit}
        return [{"add_nodes": more, **size, **price, **memory}]
    chosen = resized_pool(deployment, pool)
    if chosen:
        own = sum(node.pool == chosen for node in deployment.nodes)
        return [{"resize_pool": chosen, "nodes": max(0, own + more)}]
    if more > 0:
        return [{"add_nodes": more, "like": deployment.nodes[-1].id}]
    return [{"lose_node": node.id} for node in deployment.nodes[more:]]


def resized_pool(deployment: Deployment, preferred: str) -> str:
    """The pool whose nodes are added or removed: the preferred one if it has nodes, else that of most nodes."""
    counts: dict[str, int] = {}
    for node in deployment.nodes:
        if node.pool:
            counts[node.pool] = counts.get(node.pool, 0) + 1
    return preferred if preferred in counts else max(counts, key=lambda name: counts[name], default="")


def sweep_sizes(deployment: Deployment, inputs: Inputs, count: int = _SIZES) -> Sequence[int]:
    """Numbers of nodes to evaluate, the present one among them.

    Around the present number where the load stays, further up the more of it there is: a fleet of twelve at 1.3 times
    its load is looked at from 9 to 22 nodes. Large fleets are looked at in steps.
    """
    now = len(deployment.nodes)
    pool = resized_pool(deployment, inputs.pool)
    fixed = sum(bool(pool) and node.pool != pool for node in deployment.nodes)
    load = inputs.factor * max([1.0, *inputs.sources.values()])
    step = max(1, round(now / 24))
    low = now - 3 * step if load >= 1.0 else min(now - 4 * step, math.floor(now * load) - 3 * step)
    first = max(low, fixed, 1)
    high = max(first + (count - 1) * step, math.ceil(now * load * 1.2) + 3 * step)
    step = max(step, math.ceil((high - first) / (1.5 * count)))
    sizes = {*range(first, high + 1, step), now}
    return sorted({*sizes, *({inputs.nodes} if inputs.nodes else ())})
