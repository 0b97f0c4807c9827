"""``latency``, ``gg1``, ``order``, ``bridge``, ``plan`` and ``split`` of the command line."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from engine.errors import Fault
from engine.kinds import Enumeration, ListOf, Number, String
from engine.order_statistics import gumbel_maximum, normal_maximum
from engine.planner.kernel import bridge_wait, queue_wait
from engine.planner.latency import (
    MEANS,
    VARIANCES,
    VARIANTS,
    LatencyOptions,
    ModelOptions,
    evaluate_latency,
)
from engine.planner.plan import StageSettings
from engine.planner.profile import MAX_NODES, NodeHardware, StageProfile, StageQuestion
from engine.planner.rounds import StageRound, size_rounds, split_constraint
from engine.planner.search import SearchLimits, StageSearch
from engine.planner.sizing import size_stage
from engine.records import ItemCount, Omitted, Record, Unbounded, Words

__all__ = [
    "bridge_command",
    "gg1_command",
    "latency_command",
    "order_command",
    "plan_command",
    "split_command",
]

_Positive = Annotated[float, Number(above=0)]
_Amount = Annotated[float, Number(least=0)]
_Count = Annotated[int, Number(least=1, whole=True)]
_Threads = Annotated[int, Number(least=1, most=1000, whole=True)]
_NODE = NodeHardware()
_Nodes = Annotated[int, Number(least=1, most=MAX_NODES, whole=True)]


@dataclass(frozen=True, kw_only=True)
class _Stage(Record):
    profile: Annotated[StageProfile, Words("statistics of the stage")]
    hardware: Annotated[NodeHardware, Words("one node")] = _NODE


@dataclass(frozen=True, kw_only=True)
class _SettledStage(_Stage):
    rate: Annotated[_Positive, Words("input rate of the whole cluster, tuples/s")]
    S: Annotated[_Count, Words("nodes")]
    M: Annotated[_Threads, Words("mapper threads per node")]
    R: Annotated[_Threads, Words("reducer threads per node")]
    B_in: Annotated[_Positive, Words("interval of input batches, s")]
    B_sh: Annotated[_Positive, Words("interval of shuffle batches, s")]
    B_ch: Annotated[_Positive, Words("interval of polls, s")]


@dataclass(frozen=True, kw_only=True)
class _LatencyQuestion(LatencyOptions, _SettledStage):
    TITLE: ClassVar[str] = "latency question"

    variant: Annotated[str, Enumeration(VARIANTS)] = "paper"


@dataclass(frozen=True)
class _LatencyAnswer(Record):
    stable: bool
    reason: str | None
    metric: float | None
    mean: float | None
    var: float | None
    phase_mean: tuple[float, ...] | None
    phase_var: tuple[float, ...] | None
    util: Mapping[str, Unbounded]
    a: float
    a_sd: float


def latency_command(document: Any) -> _LatencyAnswer:
    """Latency of a stage under given settings: metric, mean, variance, phases and utilisations; the paper's form."""
    asked = _LatencyQuestion.parse(document)
    settings = StageSettings(asked.S, asked.M, asked.R, asked.B_in, asked.B_sh, asked.B_ch)
    latency = evaluate_latency(asked.profile, asked.hardware, asked.rate, settings, asked)
    return _LatencyAnswer(
        stable=latency.stable,
        reason=latency.reason,
        metric=latency.metric,
        mean=latency.mean,
        var=latency.var,
        phase_mean=latency.phase_mean,
        phase_var=latency.phase_var,
        util=latency.util,
        a=latency.largest[0],
        a_sd=latency.largest[1],
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


@dataclass(frozen=True)
class _Queue(Record):
    TITLE: ClassVar[str] = "queue"

    ta: Annotated[_Positive, Words("mean time between two arrivals")]
    ca2: Annotated[_Amount, Words("its squared coefficient of variation")]
    ts: Annotated[_Amount, Words("mean service time")]
    cs2: Annotated[_Amount, Words("its squared coefficient of variation")]
    ds3: Annotated[float, Number(), Words("E[S^3] / E[S]^3; not above 0: that of a gamma law")] = -1.0


def gg1_command(document: Any) -> dict[str, list[float | None]]:
    """Mean and variance of the wait in a G/G/1 queue by every pair of approximations; null where it is infinite."""
    queue = _Queue.parse(document)
    waits = {
        f"{MEANS[mean]}/{VARIANCES[var]}": queue_wait(queue.ta, queue.ca2, queue.ts, queue.cs2, queue.ds3, mean, var)
        for mean in range(len(MEANS))
        for var in range(len(VARIANCES))
    }
    return {pair: [_finite(value) for value in wait] for pair, wait in waits.items()}


@dataclass(frozen=True)
class _Draws(Record):
    TITLE: ClassVar[str] = "order statistic"

    n: Annotated[_Count, Words("draws")]


def order_command(document: Any) -> dict[str, list[float] | None]:
    """Mean and deviation of the largest of n standard normal draws, exact and by Gumbel's limit."""
    draws = _Draws.parse(document).n
    gumbel = gumbel_maximum(draws)
    return {"exact": list(normal_maximum(draws)), "asymptotic": None if gumbel is None else list(gumbel)}


@dataclass(frozen=True)
class _Bridge(Record):
    TITLE: ClassVar[str] = "bridge"

    N: Annotated[float, Number(least=1), Words("periodic sources with random phases")]
    rho: Annotated[_Amount, Words("utilisation of their server")]


def bridge_command(document: Any) -> list[float | None]:
    """First and second moment of the wait behind periodic sources, in service times."""
    bridge = _Bridge.parse(document)
    return [_finite(value) for value in bridge_wait(bridge.N, bridge.rho)]


@dataclass(frozen=True, kw_only=True)
class _Spec(SearchLimits, ModelOptions):
    TITLE: ClassVar[str] = "spec"

    L: Annotated[_Positive, Words("latency constraint, s")]


@dataclass(frozen=True, kw_only=True)
class _PlanQuestion(_Stage):
    TITLE: ClassVar[str] = "plan question"

    rate: Annotated[_Positive, Words("input rate of the whole cluster, tuples/s")]
    s_max: Annotated[_Nodes, Words("nodes at most")]
    headroom: Annotated[_Amount, Words("share of the largest rate to keep free, below 1")] = 0.0
    spec: Annotated[_Spec, Words("constraint, model and ranges of the search")]

    def find_faults(self) -> Iterator[Fault]:
        """Headroom that leaves nothing."""
        if self.headroom >= 1.0:
            yield Fault("headroom", f"headroom is {self.headroom:g}; allowed: a number from 0 to below 1")


@dataclass(frozen=True, kw_only=True)
class _StageSizing(_Stage):
    TITLE: ClassVar[str] = "sizing"

    question: Annotated[StageQuestion, Words("rate, constraint, nodes at most")]


@dataclass(frozen=True)
class _Round(Record):
    TITLE: ClassVar[str] = "a round"

    name: Annotated[str, String()]
    profile: Annotated[StageProfile, Words("statistics of the stage")]
    emitted: Annotated[_Positive, Words("outputs of its reducers per map output")] = 1.0
    after: Annotated[tuple[Annotated[str, String()], ...], Words("rounds it reads from; none: the source")] = ()


@dataclass(frozen=True)
class _RoundsSizing(Record):
    TITLE: ClassVar[str] = "sizing of rounds"

    rounds: Annotated[tuple[_Round, ...], ItemCount(1, 100), Words("rounds, each after those it reads from")]
    question: Annotated[StageQuestion, Words("rate, constraint, nodes of all rounds at most")]
    hardware: Annotated[NodeHardware, Words("one node")] = _NODE

    def find_faults(self) -> Iterator[Fault]:
        """Names that are no round before, or the same."""
        before: set[str] = set()
        for number, item in enumerate(self.rounds):
            for place, name in enumerate(item.after):
                if name not in before:
                    message = f"item {place} is {name!r}; allowed: a round that stands before"
                    yield Fault(f"rounds[{number}].after[{place}]", message)
            if item.name in before:
                yield Fault(f"rounds[{number}].name", f"name is {item.name!r}; allowed: names that differ")
            before.add(item.name)


@dataclass(frozen=True)
class _Plan(Record):
    feasible: bool
    S: Omitted[int] = None
    Lambda: Omitted[float] = None
    M: Omitted[int] = None
    R: Omitted[int] = None
    B_in: Omitted[float] = None
    B_sh: Omitted[float] = None
    B_ch: Omitted[float] = None


def plan_command(document: Any) -> Record:
    """Fewest nodes, the largest rate they bear and the settings that bear it.

    With ``question`` in the place of ``rate``, ``s_max`` and ``spec`` the whole answer of `size_stage`; with ``rounds``
    as well, a plan for each of several rounds.
    """
    if isinstance(document, Mapping) and "rounds" in document:
        return _size_rounds(document)
    if isinstance(document, Mapping) and "question" in document:
        stage = _StageSizing.parse(document)
        return size_stage(stage.profile, stage.hardware, **vars(stage.question))
    asked = _PlanQuestion.parse(document)
    spec = asked.spec
    search = StageSearch(asked.profile, asked.hardware, spec, spec, spec.L)
    target = asked.rate / (1.0 - asked.headroom)
    nodes = search.fewest_nodes(target, asked.s_max)
    if nodes is None:
        return _Plan(feasible=False)
    max_rate, settings = search.largest_above(target, nodes)
    assert settings is not None, "the number of nodes was chosen because it reaches the rate"
    return _Plan(
        feasible=True,
        S=nodes,
        Lambda=max_rate,
        M=settings.mappers,
        R=settings.reducers,
        B_in=settings.b_in_s,
        B_sh=settings.b_sh_s,
        B_ch=settings.b_ch_s,
    )


def _size_rounds(document: Any) -> Record:
    asked = _RoundsSizing.parse(document)
    numbers = {item.name: number for number, item in enumerate(asked.rounds)}
    rounds = [
        StageRound(item.name, item.profile, item.emitted, tuple(dict.fromkeys(numbers[name] for name in item.after)))
        for item in asked.rounds
    ]
    return size_rounds(rounds, asked.hardware, **vars(asked.question))


_Amounts = Annotated[list[float] | None, ListOf(Number(least=0), least=1)]
_Edges = Annotated[list[list[int]] | None, ListOf(ListOf(Number(least=0, whole=True), least=2, most=2))]


@dataclass(frozen=True)
class _Split(Record):
    TITLE: ClassVar[str] = "split"

    total: Annotated[_Positive, Words("constraint of all rounds, s")]
    weights: Annotated[_Amounts, Words("what each round needs, for a constraint on the mean")] = None
    means: Annotated[_Amounts, Words("mean of each round, for a constraint on a quantile")] = None
    variances: Annotated[_Amounts, Words("variance of each round")] = None
    z: Annotated[float | None, Number(), Words("deviations between mean and quantile")] = None
    edges: Annotated[_Edges, Words("pairs of rounds; a chain")] = None

    def find_faults(self) -> Iterator[Fault]:
        """Neither or both ways of splitting, weights of nothing."""
        for name in ("means", "variances", "z"):
            is_given = getattr(self, name) is not None
            if self.weights and is_given:
                yield Fault(name, f"{name} does not stand beside weights; allowed: one way of splitting")
            elif not self.weights and not is_given:
                yield Fault(name, f"{name} is missing; a split needs weights, or means, variances and z")
        if self.weights and sum(self.weights) <= 0.0:
            yield Fault("weights", "weights add up to 0; allowed: a sum above 0")


def split_command(document: Any) -> list[float]:
    """Each round's part of a latency constraint."""
    asked = _Split.parse(document)
    edges = None if asked.edges is None else [(begin, end) for begin, end in asked.edges]
    if asked.weights:
        return split_constraint(asked.total, asked.weights, edges=edges)
    return split_constraint(asked.total, asked.means or [], asked.variances, asked.z or 0.0, edges)
