"""World of a scheduling simulation: tables of stages, cores and nodes, and arrays by bins of time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.klink.simulation.loads import Arrivals, SimulatedOperator, SimulatedQuery, SimulationSetting

__all__ = ["CODES", "SAMPLE_MS", "KlinkWorld", "QueryStage", "stages_of", "world_of"]

Rows = NDArray[Any]

#: What a policy's name is in compiled code.
CODES = {
    "klink": 0,
    "stimulus-time": 1,
    "fcfs": 2,
    "round-robin": 3,
    "least-slack": 4,
    "highest-rate": 5,
    "nearest-deadline": 6,
    "response-ratio": 7,
    "random": 8,
    "algorithm-1": 9,
    "algorithm-1-repaired": 10,
}

# `feeds`: stage that takes what this one puts out, -1 where that is the result; `fed`: 1 where another feeds it.
# `cost`: CPU time of an event through the stage, `further`: through what it feeds, as far as this node knows of it;
# `out`: events out per event in; `rate`: events out of the whole pipeline per millisecond of CPU time; `known`: 1 where
# delays of its watermarks are known, 0 where the period alone is; `age`: that an event may wait before it overflows.
# `head`: first bin whose events are not all gone; `came`, `gone`: events taken in, and of these those that have left;
# `swept`: first window that is not; `oldest`: bin of the earliest event time that waits, -1 where that is not known;
# `taken`: 1 while a core runs it; `free_at`: when one last let go of it; `ran`: when it was last picked;
# `sized`: next window when its work was last looked at; `counted`, `usual`, `varies`: how many, mean, variance.
STAGE = np.dtype(
    [(name, "i8") for name in ("node", "feeds", "fed", "operators", "streams", "windows", "known")]
    + [(name, "f8") for name in ("cost", "further", "out", "rate", "event_bytes", "first", "period", "age")]
    + [(name, "i8") for name in ("head", "swept", "oldest", "taken", "sized", "counted")]
    + [(name, "f8") for name in ("waiting", "came", "gone", "free_at", "ran", "usual", "varies")]
    + [(name, "f8") for name in ("refused", "overflow", "processed", "peak")]
)
# `running`: stage, -1 while idle; `until`: when it chooses anew; `busy`: time it has worked.
CORE = np.dtype([("running", "i8"), ("until", "f8"), ("busy", "f8")])
# `last`: stage picked last; `idled`: when a core last had nothing to do; `relieving`: 1 in memory mode, `since` when.
NODE = np.dtype(
    [(name, "i8") for name in ("first_stage", "end_stage", "first_core", "end_core", "last")]
    + [(name, "f8") for name in ("idled", "relieving", "since")]
)

SAMPLE_MS = 200.0
_ROOM = 200_000  # of spans


class KlinkWorld(NamedTuple):
    """Shapes: S stages, B bins, W windows, J streams, K operators, N nodes, C cores."""

    stages: Rows  #: (S,) of STAGE
    cores: Rows  #: (C,) of CORE
    nodes: Rows  #: (N,) of NODE
    prefix: Rows  #: (S, K) CPU time of an event through its first k operators
    keeps: Rows  #: (S, K) events out of the first k operators per event in
    arriving: Rows  #: (S, B) events that come until the bin begins and are not gone
    stimulus: Rows  #: (S, B) earliest event time of these
    marks: Rows  #: (S, W, J) when the watermark that passes the window's deadline comes
    mean: Rows  #: (S, W, J) mean delay that the window's epoch has shown
    square: Rows  #: (S, W, J) mean of squared delays
    position: Rows  #: (S, W) events taken in when the last stream's watermark came
    ingested: Rows  #: (S, J) watermarks that have come
    sums: Rows  #: (S, J, 3) over the history: of means, of their squares, of mean squares
    swept_at: Rows  #: (S, W) NaN while it is not
    memory: Rows  #: (samples, N) bytes that wait
    used: Rows  #: (samples, N) core-milliseconds until then
    spans: Rows  #: (room, 4) start, end, stage, core
    counters: Rows  #: picks, spans, state of the draws
    tick: float  #: width of a bin
    cycle: float  #: that a choice holds
    link: float  #: that an event or mark takes from one node to the next
    policy: int
    history: int  #: windows remembered
    intake: float  #: work in milliseconds that may wait for each core
    epoch: float  #: how often it is looked what has waited too long
    starvation: float  #: that a stage may wait for its turn
    saturated: float  #: without an idle core, after which a node counts as saturated
    memory_bound: float  #: bytes on a node from which on memory counts
    release: float  #: share of that which is to be freed
    relief: float  #: after which slack counts again
    sample: int  #: bins between two samples
    horizon: int  #: bins in which events come; what is still there after them drains


Array = NDArray[np.float64]
_Sums = tuple[list[float], list[float]]


@dataclass(frozen=True, slots=True)
class QueryStage:
    query: int
    node: int
    operators: tuple[SimulatedOperator, ...]
    entry: float  #: events into it per event of the source
    last: bool


def stages_of(queries: Sequence[SimulatedQuery]) -> list[QueryStage]:
    """Stages of the queries, by node, then by id."""
    stages = []
    for i, query in enumerate(queries):
        if len(query.nodes) == 1:
            stages.append(QueryStage(i, query.nodes[0], query.operators, 1.0, last=True))
            continue
        before, after = query.operators[: query.split], query.operators[query.split :]
        stages.append(QueryStage(i, query.nodes[0], before, 1.0, last=False))
        stages.append(QueryStage(i, query.nodes[1], after, query.reaches[query.split], last=True))
    return sorted(stages, key=lambda stage: (stage.node, queries[stage.query].id))


def world_of(
    stages: Sequence[QueryStage],
    queries: Sequence[SimulatedQuery],
    arrivals: Sequence[Arrivals],
    setting: SimulationSetting,
    story: bool,
) -> KlinkWorld:
    count, horizon = len(stages), len(arrivals[0].events)
    bins = horizon + round(setting.drain_s * 1e3 / setting.tick_ms)
    windows = max(len(coming.marks_ms) for coming in arrivals)
    streams = max(max(coming.marks_ms.shape[1] for coming in arrivals), 1)
    sums = [_sums(stage.operators) for stage in stages]
    longest = max(len(cost) for cost, _ in sums)
    sample = round(SAMPLE_MS / setting.tick_ms)
    samples = math.ceil(horizon / sample)
    shape = (count, windows, streams)
    world = KlinkWorld(
        stages=_stage_rows(stages, sums, queries, arrivals, setting),
        cores=_core_rows(setting),
        nodes=_node_rows(stages, setting),
        prefix=_padded([cost for cost, _ in sums], longest),
        keeps=_padded([keeps for _, keeps in sums], longest),
        arriving=np.zeros((count, bins)),
        stimulus=np.full((count, bins), math.inf),
        marks=np.full(shape, math.inf),
        mean=np.zeros(shape),
        square=np.zeros(shape),
        position=np.zeros((count, windows)),
        ingested=np.zeros((count, streams), np.int64),
        sums=np.zeros((count, streams, 3)),
        swept_at=np.full((count, windows), math.nan),
        memory=np.zeros((samples, setting.nodes)),
        used=np.zeros((samples, setting.nodes)),
        spans=np.zeros((_ROOM if story else 0, 4)),
        counters=np.array([0, 0, setting.seed]),
        tick=setting.tick_ms,
        cycle=setting.cycle_ms,
        link=setting.link_ms,
        policy=CODES[setting.policy],
        history=setting.history,
        intake=setting.intake_s * 1e3,
        epoch=setting.epoch_ms,
        starvation=setting.starvation_ms,
        saturated=setting.saturated_ms,
        memory_bound=setting.memory_bytes,
        release=setting.release_share,
        relief=setting.release_s * 1e3,
        sample=sample,
        horizon=horizon,
    )
    _fill(world, stages, arrivals)
    return world


def _stage_rows(
    stages: Sequence[QueryStage],
    sums: Sequence[_Sums],
    queries: Sequence[SimulatedQuery],
    arrivals: Sequence[Arrivals],
    setting: SimulationSetting,
) -> NDArray[np.void]:
    rows = np.zeros(len(stages), STAGE)
    for index, (stage, (costs, keeps)) in enumerate(zip(stages, sums, strict=True)):
        query, row = queries[stage.query], rows[index]
        row["node"], row["feeds"], row["operators"] = stage.node, _fed(stages, stage), len(stage.operators)
        row["windows"], row["streams"] = arrivals[stage.query].marks_ms.shape
        row["cost"], row["out"], row["rate"] = costs[-1], keeps[-1], _rate(query)
        row["first"], row["period"], row["age"] = query.first_ms, query.period_ms or 0.0, query.waits_ms
        row["event_bytes"], row["oldest"], row["known"], row["sized"] = query.event_bytes, -1, 1, -1
        row["free_at"] = row["ran"] = -math.inf
    for row in rows[rows["feeds"] >= 0]:
        fed = rows[row["feeds"]]
        fed["fed"], fed["streams"], fed["known"] = 1, 1, int(setting.forwarding)
    if setting.forwarding:
        feeding = rows["feeds"] >= 0
        rows["further"][feeding] = rows["cost"][rows["feeds"][feeding]] * rows["out"][feeding]
    return rows


def _core_rows(setting: SimulationSetting) -> NDArray[np.void]:
    rows = np.zeros(setting.cores * setting.nodes, CORE)
    rows["running"] = -1
    return rows


def _node_rows(stages: Sequence[QueryStage], setting: SimulationSetting) -> NDArray[np.void]:
    rows = np.zeros(setting.nodes, NODE)
    bounds = np.searchsorted([stage.node for stage in stages], np.arange(setting.nodes + 1))
    rows["first_stage"], rows["end_stage"] = bounds[:-1], bounds[1:]
    rows["first_core"] = np.arange(setting.nodes) * setting.cores
    rows["end_core"] = rows["first_core"] + setting.cores
    rows["last"], rows["since"] = -1, -math.inf
    return rows


def _fed(stages: Sequence[QueryStage], stage: QueryStage) -> int:
    """Index of the stage that takes what this one puts out; -1 where that is the result."""
    if stage.last:
        return -1
    return next(index for index, other in enumerate(stages) if other.query == stage.query and other.last)


def _sums(operators: Sequence[SimulatedOperator]) -> _Sums:
    """Sums over the first k operators for each k: CPU time of an event, and events out of them."""
    costs, keeps, cost, kept = [], [], 0.0, 1.0
    for operator in operators:
        cost += kept * operator.cost_ms
        kept *= operator.selectivity
        costs.append(cost)
        keeps.append(kept)
    return costs, keeps


def _rate(query: SimulatedQuery) -> float:
    """Events out per millisecond of CPU time."""
    costs, keeps = _sums(query.operators)
    return keeps[-1] / max(costs[-1], 1e-3)


def _padded(rows: Sequence[Sequence[float]], length: int) -> Array:
    return np.array([[*row, *[row[-1]] * (length - len(row))] for row in rows])


def _fill(world: KlinkWorld, stages: Sequence[QueryStage], arrivals: Sequence[Arrivals]) -> None:
    """Put in what comes. A watermark that overtakes one before it passes that one's deadline, too."""
    for index, stage in enumerate(stages):
        coming = arrivals[stage.query]
        windows, streams = coming.marks_ms.shape
        world.mean[index, :windows, :streams] = coming.mean_ms
        world.square[index, :windows, :streams] = coming.square_ms2
        if not world.stages[index]["fed"]:
            world.arriving[index, : world.horizon] = coming.events
            world.stimulus[index, : world.horizon] = coming.stimulus_ms
            world.marks[index, :windows, :streams] = np.minimum.accumulate(coming.marks_ms[::-1])[::-1]
