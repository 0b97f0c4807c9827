"""Arithmetic from the costs of one unit of each kind of work to a fleet of any size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.wire.broker import PARTITIONS

__all__ = ["Demand", "UnitCosts", "demands", "first_to_break"]

HEARTBEATS_PER_S, POSTS_PER_S = 0.5, 1.0  #: of an agent


@dataclass(frozen=True)
class UnitCosts:
    """CPU seconds by process of a heartbeat, and of a post with its frames until their results are there."""

    heartbeat_s: Mapping[str, float]
    post_s: Mapping[str, float]
    frames_per_post: float


@dataclass(frozen=True)
class Demand:
    """Cores that a process needs for a number of agents, and how many of it can share the work.

    `most` is how far it can be spread: processes of one kind, or tasks of one batch.
    """

    process: str
    cores: float
    most: float
    more: str  #: what spreads it, and what does not

    @property
    def utilisation(self) -> float:
        """Of the cores that it can use at all."""
        return self.cores / self.most


#: Of each process how many cores it can use at all, and what another one buys.
SPREADS: Mapping[str, tuple[float, str]] = {
    "web": (math.inf, "another machine or process takes its share: nothing is kept between requests"),
    "redis": (1.0, "one thread: a second broker with half of the agents, which the console does not know how to use"),
    "driver": (1.0, "one process: plans batches and posts results, whatever Spark has of workers"),
    "jvm": (math.inf, "the part of the tasks goes to other workers; planning stays with the driver's JVM"),
    "spark workers": (
        float(PARTITIONS),
        f"another Spark worker takes its share up to {PARTITIONS} tasks, one for each partition of the broker; "
        "more need more partitions",
    ),
}


def demands(costs: UnitCosts, agents: int) -> Sequence[Demand]:
    """Cores by process for so many agents, most of what it can use first."""
    found = []
    for process, (most, more) in SPREADS.items():
        beats = HEARTBEATS_PER_S * costs.heartbeat_s.get(process, 0.0)
        posts = POSTS_PER_S * costs.post_s.get(process, 0.0)
        found.append(Demand(process, agents * (beats + posts), most, more))
    return sorted(found, key=lambda demand: (-demand.utilisation, -demand.cores))


def first_to_break(costs: UnitCosts) -> tuple[Demand, int]:
    """The process that cannot be spread any further first, and the number of agents at which it is full."""
    bounded = [demand for demand in demands(costs, 1) if math.isfinite(demand.most) and demand.cores > 0]
    first = max(bounded, key=lambda demand: demand.utilisation)
    return first, math.floor(first.most / first.cores)
