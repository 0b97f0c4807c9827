"""Records of the answer about an event: loads, what breaks when, what to buy, cost and regret, what to delay."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from engine.forecasts.answer import QueryForecast
from engine.forecasts.regret import LeastRegret
from engine.provisioning.answers.pools import PoolNodeType
from engine.records import Flag, Record, Sentence

__all__ = [
    "AS_IT_IS",
    "FORECAST",
    "GIVEN",
    "REST",
    "TRACE",
    "TYPICAL_WEEK",
    "EventAnswer",
    "EventDelay",
    "EventFuture",
    "EventPurchase",
    "EventQuery",
    "EventSource",
    "EventStep",
    "best_purchase",
]

#: What a source's ordinary load rests on: the newest forecast, the median of its last weeks, or its arrivals as they
#: are, which know neither day nor week.
FORECAST, TYPICAL_WEEK, AS_IT_IS = "forecast", "typical_week", "as_it_is"
#: What its factor rests on: it was given, it follows the trace of the last time, or it is one of the rest.
GIVEN, TRACE, REST = "given", "trace", "rest"


@dataclass(frozen=True)
class EventSource(Record):
    """Load of a source during the event; `factor_mean` and `factor_peak` are of its ordinary load at the same hour.

    A private copy, named ``source@query``, is what one query reads of a source.
    """

    source: str
    factor_mean: float
    factor_peak: float
    ordinary_eps: float  #: mean of its ordinary load over the same hours
    peak_eps: float  #: expected load in its busiest bucket
    rests_on: str  #: `FORECAST`, `TYPICAL_WEEK` or `AS_IT_IS`
    factor_of: str  #: `GIVEN`, `TRACE` or `REST`


@dataclass(frozen=True)
class EventQuery(Record):
    """An objective over the event, with the nodes and the placement there are; `hours` are those over it as expected.

    `forecast` has its first moments as indexes of buckets: at the expected load, at risk, at the upper end of loads.
    """

    forecast: QueryForecast
    priority: int
    hours: float

    @property
    def first_index(self) -> int | None:
        """The first bucket in which it is over its objective or at risk."""
        found = self.forecast.violations
        return min((entry.index for entry in found.values()), default=None)

    @property
    def breaks(self) -> bool:
        """Whether it is over its objective at the expected load."""
        return self.forecast.first_mean is not None


@dataclass(frozen=True)
class EventPurchase(Record):
    """Nodes of one type with which every objective holds at the peak of the event; `nodes` is None where none do.

    `cost` is of the added nodes from the event's beginning to its end. `beyond` counts the objectives that no number of
    such nodes keeps, which are left out.
    """

    name: str
    type: PoolNodeType
    nodes: int | None
    added: int | None
    cost_per_hour: float | None
    cost: float | None
    confirmed: bool
    beyond: int
    order_by_s: float
    message: str

    @property
    def rank(self) -> tuple[bool, int, bool, float, int]:
        """The better purchase has the lower one: money counts after what it keeps."""
        cost = math.inf if self.cost is None else self.cost
        return self.nodes is None, self.beyond, not self.confirmed, cost, self.added or 0


@dataclass(frozen=True)
class EventStep(Record):
    """Fewest nodes for one question of a staircase, in which each step changes one thing.

    `kind` is ``now`` (present load, all nodes up, mean costs), ``lost`` (any one node lost besides: what the bench
    says), ``load`` (the event's load besides) or ``random`` (random costs and arrivals besides: what to buy). `nodes`
    is None where no number up to `most` is enough, and where the time for the steps was over first (`is_cut`): fewer
    than `at_least` are not enough then, and `enough` are, if that many are known.
    """

    kind: str
    nodes: int | None
    most: int
    is_cut: Flag = False
    at_least: int = 1
    enough: int | None = None


@dataclass(frozen=True)
class EventFuture(Record):
    """The event at a multiple of what was planned: the nodes it then needs, and what breaks with those planned.

    `hours` sums the hours over an objective of all queries, and `late` names them, with `planned` nodes all up.
    """

    times: float
    nodes: int | None
    planned: int | None
    over: int | None  #: nodes planned and not needed; below 0: nodes that are missing
    over_cost: float | None  #: of those too many, over the event
    late: tuple[str, ...]
    hours: float


@dataclass(frozen=True)
class EventDelay(Record):
    """Queries to stop for the event, of a lower priority than one that breaks, so that the others hold on the nodes
    there are; by Mace.

    `is_enough` is False where others break all the same (`left`). `kept` are candidates that others read.
    """

    queries: tuple[str, ...]
    is_enough: bool
    left: tuple[str, ...]
    kept: tuple[str, ...]


@dataclass(frozen=True)
class EventAnswer(Record):
    """Answer about an event. Its buckets begin at `starts_s` (unix seconds) and last `bucket_s`."""

    TITLE: ClassVar[str] = "an event's answer"

    starts_s: float
    ends_s: float
    bucket_s: float
    buckets: int
    nodes: int  #: those there are
    lose_one: bool
    lead_time_s: float
    sources: tuple[EventSource, ...]
    queries: tuple[EventQuery, ...]
    purchases: tuple[EventPurchase, ...]
    steps: tuple[EventStep, ...]
    futures: tuple[EventFuture, ...]
    regret: LeastRegret | None
    no_regret: str  #: why costs are not compared
    delay: EventDelay
    assumptions: tuple[Sentence, ...]

    @property
    def purchase(self) -> EventPurchase | None:
        """The purchase to make, the cheapest that does most."""
        return best_purchase(self.purchases)

    @property
    def breaking(self) -> list[EventQuery]:
        """Objectives that break at the expected load, the earliest first."""
        broken = [(entry.forecast.first_mean.index, entry) for entry in self.queries if entry.forecast.first_mean]
        return [entry for _, entry in sorted(broken, key=lambda pair: (pair[0], pair[1].forecast.query))]

    def at_s(self, index: int) -> float:
        """Where a bucket begins, unix seconds."""
        return self.starts_s + index * self.bucket_s


def best_purchase(purchases: Iterable[EventPurchase]) -> EventPurchase | None:
    """The purchase that keeps most objectives, of those the cheapest; None where none does."""
    enough = [purchase for purchase in purchases if purchase.nodes is not None]
    return min(enough, key=lambda purchase: purchase.rank, default=None)
