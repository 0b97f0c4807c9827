"""Records of a backtest's result: a policy and the recorded decisions, replayed side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from engine.backtest.policy import ReplayPolicy
from engine.records import Record, Sentence

__all__ = [
    "BacktestResult",
    "MeasuredReplay",
    "MovedOperator",
    "ReplayResult",
    "ReplayRisk",
    "ReplayViolation",
    "ReplayedLatency",
    "ReplayedLoad",
    "ReplayedRequest",
    "SourceSegments",
]


@dataclass(frozen=True)
class ReplayViolation(Record):
    """A query over its objective, and the segments in which it was; in those counted by `endless_segments` for good."""

    query: str
    statistic: str
    bound_s: float
    segments: list[int]
    seconds_over: float
    first_at_s: float
    worst_s: float
    worst_at_s: float
    endless_segments: int


@dataclass(frozen=True)
class ReplayRisk(Record):
    """A query that may have been over its objective where its median is not."""

    query: str
    segments: list[int]
    seconds_at_risk: float
    worst_high_s: float


@dataclass(frozen=True)
class MovedOperator(Record):
    """An operator that the policy moved, to relieve a query."""

    at_s: float
    operator: str
    before: list[str]
    after: list[str]
    why: str


@dataclass(frozen=True)
class ReplayedLoad(Record):
    """Load of a node's busiest core: mean, and the largest between two events."""

    mean: float
    peak: float


@dataclass(frozen=True)
class ReplayedLatency(Record):
    """Median and upper end of a query's statistic by segment; None where it did not run."""

    statistic: str
    bound_s: float
    latency_s: list[float | None]
    high_s: list[float | None]


@dataclass(frozen=True)
class ReplayResult(Record):
    """A replay: requests by outcome, violations and risks (the longest first), moves, loads by node, latencies."""

    policy: ReplayPolicy
    asked: int
    admitted: int
    queued: int
    review: int
    rejected: int
    left: int
    violations: list[ReplayViolation]
    seconds_over: float
    queries_over: int
    at_risk: list[ReplayRisk]
    moves: int
    moved: list[MovedOperator]
    loads: dict[str, ReplayedLoad]
    queries: dict[str, ReplayedLatency]

    @property
    def seconds_at_risk(self) -> float:
        """Over all queries."""
        return sum(row.seconds_at_risk for row in self.at_risk)


@dataclass(frozen=True)
class ReplayedRequest(Record):
    """A request under both policies."""

    id: str
    query: str
    at_s: float
    outcome: str
    verdict: str
    reason: Sentence
    started_s: float | None
    recorded: str
    recorded_reason: Sentence
    recorded_started_s: float | None
    differs: bool


@dataclass(frozen=True)
class MeasuredReplay(Record):
    """Measured latency of a query beside the replayed one; `within` counts segments that measured no more."""

    query: str
    segments: int
    measured_s: float
    replayed_s: float
    within: int
    series_s: list[float | None]


@dataclass(frozen=True)
class SourceSegments(Record):
    """Segments of a source by where its rate is from."""

    measured: int
    history: int
    filled: int


@dataclass(frozen=True)
class BacktestResult(Record):
    """A period under a policy, beside the decisions that were recorded."""

    TITLE: ClassVar[str] = "a backtest"

    since_s: float
    until_s: float
    width_s: float
    segments: int
    policy: ReplayPolicy
    headline: str
    tested: ReplayResult
    recorded: ReplayResult
    requests: list[ReplayedRequest]
    measured: list[MeasuredReplay]
    sources: dict[str, SourceSegments]
    notes: list[Sentence]
