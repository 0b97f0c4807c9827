"""Inputs of the bench: what its sliders and fields say, and the same as changes of a scenario."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.deployment import Deployment, Node
from engine.elements import Objective as EngineObjective

__all__ = ["LEAST_FACTOR", "MOST_FACTOR", "Inputs", "pool_of", "sizes_of"]

LEAST_FACTOR, MOST_FACTOR = 0.5, 2.0  # ends of the slider
_SIZES = 13
_NAMES = ("factor", "sources", "pool", "bound_s", "objective_factor", "headroom_s", "lose_one")


@dataclass(frozen=True)
class Inputs:
    """What is asked of the bench.

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
    def of(cls, given: Mapping[str, Any]) -> Inputs:
        """From the options of a sweep (`apps.planning.options`)."""
        return cls(**{name: given[name] for name in _NAMES if name in given})

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
        """What every query is to keep, before the headroom."""
        if self.bound_s is not None:
            bound = self.bound_s * self.objective_factor
            return tuple(EngineObjective(query, "worst", bound) for query in deployment.queries)
        return tuple(
            EngineObjective(one.query, one.statistic, one.bound_s * self.objective_factor)
            for one in deployment.objectives
        )

    def objective_changes(self, deployment: Deployment) -> list[dict[str, Any]]:
        """Other objectives, as changes of a scenario."""
        if self.bound_s is None and self.objective_factor == 1.0:
            return []
        return [
            {"objective": one.query, "statistic": one.statistic, "bound_s": round(one.bound_s, 6)}
            for one in self.objectives(deployment)
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
        return [{"add_nodes": more, "capacity_cps": model.capacity_cps, "cores": model.cores, **price}]
    chosen = pool_of(deployment, pool)
    if chosen:
        own = sum(node.pool == chosen for node in deployment.nodes)
        return [{"resize_pool": chosen, "nodes": max(0, own + more)}]
    if more > 0:
        return [{"add_nodes": more, "like": deployment.nodes[-1].id}]
    return [{"lose_node": node.id} for node in deployment.nodes[more:]]


def pool_of(deployment: Deployment, wanted: str) -> str:
    """The pool whose nodes are added or taken: the wanted one if it has nodes, else that of most nodes."""
    counts: dict[str, int] = {}
    for node in deployment.nodes:
        if node.pool:
            counts[node.pool] = counts.get(node.pool, 0) + 1
    return wanted if wanted in counts else max(counts, key=lambda name: counts[name], default="")


def sizes_of(deployment: Deployment, inputs: Inputs, most: int = _SIZES) -> Sequence[int]:
    """Numbers of nodes worth looking at, the present one among them.

    Around the present number where the load stays, further up the more of it there is: a fleet of twelve at 1.3 times
    its load is looked at from 9 to 22 nodes. Large fleets are looked at in steps.
    """
    now = len(deployment.nodes)
    pool = pool_of(deployment, inputs.pool)
    fixed = sum(bool(pool) and node.pool != pool for node in deployment.nodes)
    load = inputs.factor * max([1.0, *inputs.sources.values()])
    step = max(1, round(now / 24))
    low = now - 3 * step if load >= 1.0 else min(now - 4 * step, math.floor(now * load) - 3 * step)
    first = max(low, fixed, 1)
    high = max(first + (most - 1) * step, math.ceil(now * load * 1.2) + 3 * step)
    step = max(step, math.ceil((high - first) / (1.5 * most)))
    sizes = {*range(first, high + 1, step), now}
    return sorted({*sizes, *({inputs.nodes} if inputs.nodes else ())})
