"""Parts of the answer to a question for a first placement: predicted costs, hosts, candidates, heuristics."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BeforeValidator, WrapSerializer

from engine.query_graph.graph import HostNode
from engine.records import Record

__all__ = [
    "EMPTY",
    "CandidatePlacements",
    "CostFigures",
    "HeuristicPlacement",
    "HostsLeft",
    "ModelName",
    "PlacementPoint",
    "PredictedCosts",
    "PredictedVote",
]

#: Note on a part that an answer may lack: it is then written as an empty object.
EMPTY = (
    BeforeValidator(lambda value: value or None),
    WrapSerializer(lambda value, write: {} if value is None else write(value)),
)


@dataclass(frozen=True)
class CostFigures(Record):
    """A predicted cost: its mean, and the ends of its interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class PredictedVote(Record):
    """A vote: the members that say yes, and whether they are the majority."""

    votes: int
    holds: bool


@dataclass(frozen=True)
class PredictedCosts(Record):
    """Costs of a placement as an ensemble predicts them; `level` is that of the intervals.

    `use` is the largest use of a host, a thread or an uplink that the fluid tells; None: the answer does not say.
    """

    throughput_eps: CostFigures
    processing_latency_s: CostFigures
    end_to_end_latency_s: CostFigures
    success: PredictedVote
    backpressure: PredictedVote
    members: int
    level: float
    use: float | None = None

    @property
    def dissent(self) -> int:
        """Members that predict back-pressure or failure, counted by the vote that more of them have."""
        return max(self.backpressure.votes, self.members - self.success.votes)

    def interval(self, field: str) -> CostFigures:
        """A cost by its name."""
        interval: CostFigures = getattr(self, field)
        return interval


@dataclass(frozen=True)
class ModelName(Record):
    """The model that answered: version of its weights, line of its card, number of members, hash of the weights."""

    version: str
    line: str
    members: int
    sha256: str


@dataclass(frozen=True)
class HostsLeft(Record):
    """Capacity that each host has left, and nodes that are full."""

    free: tuple[HostNode, ...]
    full: tuple[str, ...]


@dataclass(frozen=True)
class PlacementPoint(Record):
    """A candidate in a plot: mean costs, the interval of the target, votes, and the host of each operator."""

    T: float
    Lp: float
    Le: float
    low: float
    high: float
    success: bool
    backpressure: bool
    outside: bool
    hosts: tuple[int, ...]

    @property
    def passes(self) -> bool:
        """Whether it passes the votes."""
        return self.success and not self.backpressure

    def mean(self, metric: str) -> float:
        """Mean of a metric: T, Lp or Le."""
        return float(getattr(self, metric))


@dataclass(frozen=True)
class CandidatePlacements(Record):
    """Number of candidates, whether they are all, how many pass; points for a plot, and which of them was chosen."""

    count: int
    exhaustive: bool
    survivors: int
    inside: int
    backpressured: int
    failing: int
    points: tuple[PlacementPoint, ...]
    chosen: int | None


@dataclass(frozen=True)
class HeuristicPlacement(Record):
    """A trivial placement; the chosen one is `gain` times better, `point` is its place in the plot."""

    point: int
    value: float
    feasible: bool
    gain: float | None
    placement: dict[str, str]
