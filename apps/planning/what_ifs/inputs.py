"""Options of what-ifs, read strictly, and the bench's inputs as changes of a scenario."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from apps.core.errors import Fault, Malformed, fault_count
from apps.planning.choices import Find
from engine.document.deployment import Deployment, Node
from engine.document.elements import Objective as EngineObjective
from engine.document.tables import CAPACITY, CYCLE_UNIT, MEMORY, PRICE
from engine.fields import BAD, Field, FieldTable, Flag, ListOf, MapOf, Number, String

__all__ = [
    "FACTOR",
    "MAX_FACTOR",
    "MAX_NODES",
    "MAX_SIZES",
    "MIN_FACTOR",
    "Inputs",
    "read_options",
    "resized_pool",
    "sweep_sizes",
]

MAX_SIZES = 60  # sizes of one sweep
MAX_NODES = 2000  # nodes of one fleet
FACTOR = Number(least=0.01, most=100.0)

_NOT_NEGATIVE = Number(least=0.0)
_COUNT = Number(least=1, most=MAX_NODES, whole=True)
_TYPE = FieldTable(
    "a node type",
    Field("name", String(), required=True),
    Field("capacity_cps", CAPACITY, required=True, help="cycles/s of one core"),
    Field("cores", Number(least=1, most=1024, whole=True), required=True),
    Field("price_per_hour", PRICE, required=True),
    Field("memory_bytes", MEMORY, nullable=True, help="of a node, for state; without it nobody knows what fits"),
    Field("max", _COUNT, nullable=True, help="most nodes of this type"),
    Field("cycle_unit", CYCLE_UNIT, help="what its capacity counts; as the nodes there are unless given"),
)
_SEED = Field("seed", Number(least=0, whole=True))
_LOSE_ONE = Field("lose_one", Flag(), help="every objective is to hold with any one node lost")
_HEADROOM = Field("headroom_s", _NOT_NEGATIVE, help="seconds to keep below every objective")
_MAX = Field("max_nodes", _COUNT)
_KEEP = Field("keep_present", Flag(), help="new nodes join those there are (default) or take their place")
_MIX = (_SEED, _LOSE_ONE, _KEEP, Field("types", ListOf(_TYPE, least=1, most=6), required=True))

_TABLES = {
    Find.COMPARE: FieldTable("options", _SEED, _LOSE_ONE, Field("flow", Flag()), Field("intervals", Flag())),
    Find.SWEEP: FieldTable(
        "options",
        Field("factor", FACTOR, help="all sources times this"),
        Field("sources", MapOf(FACTOR), help="single sources times this, besides factor"),
        Field("pool", String(), nullable=True, help="whose nodes are added or taken"),
        Field("sizes", ListOf(_COUNT, least=1, most=MAX_SIZES), help="numbers of nodes of the whole cluster"),
        Field("bound_s", Number(above=0.0), nullable=True, help="one worst case for all, instead of their objectives"),
        Field("objective_factor", FACTOR, help="every objective times this"),
        _LOSE_ONE,
        _HEADROOM,
    ),
    Find.SMALLEST_POOL: FieldTable(
        "options",
        _SEED,
        _LOSE_ONE,
        _HEADROOM,
        _MAX,
        _KEEP,
        Field("pool", String(), nullable=True, help="what further nodes are like"),
    ),
    Find.CHEAPEST_MIX: FieldTable("options", *_MIX, _HEADROOM),
    Find.PARETO: FieldTable("options", *_MIX),
    Find.SURVIVAL: FieldTable("options", _SEED),
    Find.GROWTH: FieldTable("options", Field("most", Number(above=1.0, most=1000.0), help="largest factor looked at")),
}
MIN_FACTOR, MAX_FACTOR = 0.5, 2.0  # ends of the slider
_SIZES = 13
_NAMES = ("factor", "sources", "pool", "bound_s", "objective_factor", "headroom_s", "lose_one")


def read_options(find: str, document: Any) -> dict[str, Any]:
    """Options of a what-if, checked.

    Raises
    ------
    Malformed
        With every fault, each under ``options``.
    """
    faults: list[Fault] = []
    read = _TABLES[Find(find)].read(document, "", "options", faults)
    if faults or read is BAD:
        raise Malformed(f"The options have {fault_count(faults)}; first: {faults[0].message}", faults)
    assert isinstance(read, Mapping)
    return {name: value for name, value in read.items() if value is not None}


@dataclass(frozen=True)
class Inputs:
    """Inputs of the bench.

    Attributes
    ----------
    factor : float
        Every source times this.
    sources : mapping
        Single sources times this, besides `factor`.
    pool : str
        The pool whose nodes are added or taken; empty: that of most nodes.
    bound_s : float, optional
        One worst case for every query, instead of the objectives they have.
    objective_factor : float
        Every objective times this.
    headroom_s : float
        What to keep free below every objective.
    lose_one : bool
        Objectives are to hold with any one node lost.
    nodes : int, optional
        The number of nodes looked at; none: the smallest that holds.
    """

    factor: float = 1.0
    sources: Mapping[str, float] = field(default_factory=dict)
    pool: str = ""
    bound_s: float | None = None
    objective_factor: float = 1.0
    headroom_s: float = 0.0
    lose_one: bool = True
    nodes: int | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Inputs:
        """From the options of a sweep (`apps.planning.what_ifs.inputs`)."""
        return cls(**{name: options[name] for name in _NAMES if name in options})

    @property
    def options(self) -> dict[str, Any]:
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

    def load_changes(self) -> list[dict[str, Any]]:
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

    def objective_changes(self, deployment: Deployment) -> list[dict[str, Any]]:
        """Other objectives, as changes of a scenario."""
        if self.bound_s is None and self.objective_factor == 1.0:
            return []
        return [
            {"objective": objective.query, "statistic": objective.statistic, "bound_s": round(objective.bound_s, 6)}
            for objective in self.objectives(deployment)
        ]

    def changes(self, deployment: Deployment, nodes: int, model: Node | None = None) -> list[dict[str, Any]]:
        """Everything the bench says about a fleet of `nodes` nodes, as changes of a scenario.

        `model` is what further nodes are like, where the pool has none yet.
        """
        fleet = _fleet_changes(deployment, self.pool, nodes, model)
        return [*self.load_changes(), *fleet, *self.objective_changes(deployment)]


def _fleet_changes(deployment: Deployment, pool: str, nodes: int, model: Node | None) -> list[dict[str, Any]]:
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
