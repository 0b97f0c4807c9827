"""Queries with windows that share cores under a simulated clock, by any policy: what a policy is worth, before it runs.

A query's events wait in one queue, in the order in which they came, and its watermarks among them. A window is *swept*
once the watermark that passes its deadline has nothing before it any more; its latency is that time less its deadline.
The same input gives the same answer. Model and limits: docs/models/klink-scheduling.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.klink.simulation_kernel import run
from engine.klink.simulation_world import CODES, CORE, NODE, STAGE, World

__all__ = ["Arrivals", "Operator", "Query", "Run", "Setting", "simulate"]

Array = NDArray[np.float64]
_SAMPLE_MS = 200.0
_ROOM = 200_000  # of spans
_Sums = tuple[list[float], list[float]]


@dataclass(frozen=True, slots=True)
class Operator:
    """One step of a query's chain."""

    cost_ms: float  #: CPU time of an event into it
    selectivity: float = 1.0  #: events out per event in


@dataclass(frozen=True)
class Query:
    """What is to run; windows have their deadlines at `first_ms` and every `period_ms` from then on."""

    id: str
    operators: tuple[Operator, ...]
    period_ms: float | None = None  #: None: it has no windows
    first_ms: float = 0.0
    nodes: tuple[int, ...] = (0,)  #: one, or two: operators before `split` on the first, the others on the second
    split: int = 0
    event_bytes: float = 100.0
    waits_ms: float = math.inf  #: that an event may wait before it overflows

    @property
    def cost_ms(self) -> float:
        """CPU time of an event through the whole chain."""
        return float(sum(reach * one.cost_ms for reach, one in zip(self.reaches, self.operators, strict=True)))

    @property
    def reaches(self) -> list[float]:
        """Events that come to each operator, per event of the source."""
        return list(itertools.accumulate([1.0, *(one.selectivity for one in self.operators[:-1])], lambda x, y: x * y))


@dataclass(frozen=True)
class Arrivals:
    """What comes to a query: events by bins, watermarks by windows (rows) and streams (columns)."""

    events: Array  #: (bins,), that come until the bin begins
    stimulus_ms: Array  #: (bins,), the earliest event time of these
    marks_ms: Array  #: (windows, streams), when the watermark comes; infinite where none does
    mean_ms: Array  #: (windows, streams), mean delay that the window's epoch has shown
    square_ms2: Array  #: (windows, streams), mean of squared delays


@dataclass(frozen=True)
class Setting:
    """How queries run."""

    policy: str
    tick_ms: float = 10.0
    cycle_ms: float = 120.0
    cores: int = 4  #: of each node
    nodes: int = 1
    intake_s: float = math.inf  #: of work that may wait for each core; what comes above is refused
    link_ms: float = 0.0  #: from one node to another
    forwarding: bool = True  #: nodes tell each other of delays and costs
    starvation_ms: float = math.inf
    saturated_ms: float = 2_000.0
    memory_bytes: float = math.inf
    release_share: float = 0.5
    release_s: float = 3.0
    history: int = 400
    epoch_ms: float = 1_000.0
    seed: int = 0


@dataclass(frozen=True)
class Run:
    """What became of the queries, in the order in which they were given."""

    deadlines_ms: tuple[Array, ...]  #: of each query's windows
    swept_ms: tuple[Array, ...]  #: NaN where a window was not swept until the end
    came: Array  #: events that wanted in
    refused: Array  #: of these, not taken in for what waited
    overflow: Array  #: of these, waited too long
    processed: Array  #: of these, through the whole chain
    waiting: Array  #: of these, still there
    peak: Array  #: most events that waited at once
    busy_ms: Array  #: of each core
    memory_bytes: Array  #: (samples, nodes) that wait, every 200 ms
    used_ms: Array  #: (samples, nodes), CPU time until then
    picks: int
    spans: tuple[tuple[float, float, str, int], ...]  #: start, end, query, core; only where they were asked for
    end_ms: float

    def latencies_ms(self, since_ms: float = 0.0, index: int | None = None) -> Array:
        """Latencies of windows due from `since_ms` on, of one query or all; one that is not swept has that so far."""
        chosen = range(len(self.deadlines_ms)) if index is None else (index,)
        found = [np.empty(0)]
        for i in chosen:
            due, swept = self.deadlines_ms[i], self.swept_ms[i]
            seen = due >= since_ms
            found.append(np.where(np.isnan(swept[seen]), self.end_ms, swept[seen]) - due[seen])
        return np.concatenate(found)


def simulate(queries: Sequence[Query], arrivals: Sequence[Arrivals], setting: Setting, *, story: bool = False) -> Run:
    """Run queries on what comes to them until the last bin ends; `story` keeps who ran when.

    Raises
    ------
    KeyError
        There is no policy of this name (`CODES`).
    """
    stages = _stages(queries)
    world = _world(stages, queries, arrivals, setting, story)
    offered = np.array([one.events.sum() for one in arrivals])
    run(world)
    return _result(stages, queries, setting, world, offered)


@dataclass(frozen=True, slots=True)
class _Stage:
    query: int
    node: int
    operators: tuple[Operator, ...]
    entry: float  #: events into it per event of the source
    last: bool


def _stages(queries: Sequence[Query]) -> list[_Stage]:
    """By node, then by id."""
    found = []
    for i, query in enumerate(queries):
        if len(query.nodes) == 1:
            found.append(_Stage(i, query.nodes[0], query.operators, 1.0, last=True))
            continue
        before, after = query.operators[: query.split], query.operators[query.split :]
        found.append(_Stage(i, query.nodes[0], before, 1.0, last=False))
        found.append(_Stage(i, query.nodes[1], after, query.reaches[query.split], last=True))
    return sorted(found, key=lambda stage: (stage.node, queries[stage.query].id))


def _world(
    stages: Sequence[_Stage], queries: Sequence[Query], arrivals: Sequence[Arrivals], setting: Setting, story: bool
) -> World:
    count, bins = len(stages), len(arrivals[0].events)
    windows = max(len(one.marks_ms) for one in arrivals)
    streams = max(max(one.marks_ms.shape[1] for one in arrivals), 1)
    chains = [_chain(stage.operators) for stage in stages]
    longest = max(len(cost) for cost, _ in chains)
    sample = round(_SAMPLE_MS / setting.tick_ms)
    samples = math.ceil(bins / sample)
    shape = (count, windows, streams)
    world = World(
        stages=_stage_rows(stages, chains, queries, arrivals, setting),
        cores=_core_rows(setting),
        nodes=_node_rows(stages, setting),
        prefix=_padded([cost for cost, _ in chains], longest),
        keeps=_padded([keeps for _, keeps in chains], longest),
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
    )
    _fill(world, stages, arrivals)
    return world


def _stage_rows(
    stages: Sequence[_Stage],
    chains: Sequence[_Sums],
    queries: Sequence[Query],
    arrivals: Sequence[Arrivals],
    setting: Setting,
) -> NDArray[np.void]:
    rows = np.zeros(len(stages), STAGE)
    for index, (stage, (costs, keeps)) in enumerate(zip(stages, chains, strict=True)):
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


def _core_rows(setting: Setting) -> NDArray[np.void]:
    rows = np.zeros(setting.cores * setting.nodes, CORE)
    rows["running"] = -1
    return rows


def _node_rows(stages: Sequence[_Stage], setting: Setting) -> NDArray[np.void]:
    rows = np.zeros(setting.nodes, NODE)
    bounds = np.searchsorted([stage.node for stage in stages], np.arange(setting.nodes + 1))
    rows["first_stage"], rows["end_stage"] = bounds[:-1], bounds[1:]
    rows["first_core"] = np.arange(setting.nodes) * setting.cores
    rows["end_core"] = rows["first_core"] + setting.cores
    rows["last"], rows["since"] = -1, -math.inf
    return rows


def _fed(stages: Sequence[_Stage], stage: _Stage) -> int:
    """Index of the stage that takes what this one puts out; -1 where that is the result."""
    if stage.last:
        return -1
    return next(index for index, other in enumerate(stages) if other.query == stage.query and other.last)


def _chain(operators: Sequence[Operator]) -> _Sums:
    """Of an event, for each k: CPU time of its first k operators, and events out of them."""
    costs, keeps, cost, kept = [], [], 0.0, 1.0
    for one in operators:
        cost += kept * one.cost_ms
        kept *= one.selectivity
        costs.append(cost)
        keeps.append(kept)
    return costs, keeps


def _rate(query: Query) -> float:
    """Events out per millisecond of CPU time."""
    costs, keeps = _chain(query.operators)
    return keeps[-1] / max(costs[-1], 1e-3)


def _padded(rows: Sequence[Sequence[float]], length: int) -> Array:
    return np.array([[*row, *[row[-1]] * (length - len(row))] for row in rows])


def _fill(world: World, stages: Sequence[_Stage], arrivals: Sequence[Arrivals]) -> None:
    """Put in what comes. A watermark that overtakes one before it passes that one's deadline, too."""
    for index, stage in enumerate(stages):
        one = arrivals[stage.query]
        windows, streams = one.marks_ms.shape
        world.mean[index, :windows, :streams] = one.mean_ms
        world.square[index, :windows, :streams] = one.square_ms2
        if not world.stages[index]["fed"]:
            world.arriving[index] = one.events
            world.stimulus[index] = one.stimulus_ms
            world.marks[index, :windows, :streams] = np.minimum.accumulate(one.marks_ms[::-1])[::-1]


def _result(stages: Sequence[_Stage], queries: Sequence[Query], setting: Setting, world: World, offered: Array) -> Run:
    first, last = [0] * len(queries), [0] * len(queries)
    for index, stage in enumerate(stages):
        if stage.last:
            last[stage.query] = index
        if not stage.last or len(queries[stage.query].nodes) == 1:
            first[stage.query] = index
    entry = np.array([stages[index].entry for index in last])
    end_ms = world.arriving.shape[1] * setting.tick_ms
    deadlines = [
        query.first_ms + np.arange(world.stages[index]["windows"]) * (query.period_ms or 0.0)
        for query, index in zip(queries, last, strict=True)
    ]
    names = [queries[stage.query].id for stage in stages]
    spans = world.spans[: world.counters[1]]
    return Run(
        deadlines_ms=tuple(due[due < end_ms] for due in deadlines),
        swept_ms=tuple(
            world.swept_at[index, : len(due)][due < end_ms] for index, due in zip(last, deadlines, strict=True)
        ),
        came=offered,
        refused=world.stages["refused"][first],
        overflow=_by_query(stages, world.stages["overflow"]),
        processed=world.stages["processed"][last] / entry,
        waiting=_by_query(stages, world.stages["waiting"]),
        peak=_by_query(stages, world.stages["peak"]),
        busy_ms=world.cores["busy"],
        memory_bytes=world.memory,
        used_ms=world.used,
        picks=int(world.counters[0]),
        spans=tuple((float(row[0]), float(row[1]), names[int(row[2])], int(row[3])) for row in spans),
        end_ms=end_ms,
    )


def _by_query(stages: Sequence[_Stage], values: Array) -> Array:
    """Sums over a query's stages, as events of the source."""
    found = np.zeros(max(stage.query for stage in stages) + 1)
    for stage, value in zip(stages, values, strict=True):
        found[stage.query] += value / stage.entry
    return found
