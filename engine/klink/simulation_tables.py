"""Tables of the simulation's loop, made of queries and what comes to them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.klink.simulation_input import Arrivals, Operator, Query, Setting
from engine.klink.simulation_world import CODES, CORE, NODE, STAGE, World

__all__ = ["SAMPLE_MS", "Stage", "stages_of", "world_of"]

Array = NDArray[np.float64]
SAMPLE_MS = 200.0
_ROOM = 200_000  # of spans
_Sums = tuple[list[float], list[float]]


@dataclass(frozen=True, slots=True)
class Stage:
    query: int
    node: int
    operators: tuple[Operator, ...]
    entry: float  #: events into it per event of the source
    last: bool


def stages_of(queries: Sequence[Query]) -> list[Stage]:
    """By node, then by id."""
    found = []
    for i, query in enumerate(queries):
        if len(query.nodes) == 1:
            found.append(Stage(i, query.nodes[0], query.operators, 1.0, last=True))
            continue
        before, after = query.operators[: query.split], query.operators[query.split :]
        found.append(Stage(i, query.nodes[0], before, 1.0, last=False))
        found.append(Stage(i, query.nodes[1], after, query.reaches[query.split], last=True))
    return sorted(found, key=lambda stage: (stage.node, queries[stage.query].id))


def world_of(
    stages: Sequence[Stage], queries: Sequence[Query], arrivals: Sequence[Arrivals], setting: Setting, story: bool
) -> World:
    count, horizon = len(stages), len(arrivals[0].events)
    bins = horizon + round(setting.drain_s * 1e3 / setting.tick_ms)
    windows = max(len(one.marks_ms) for one in arrivals)
    streams = max(max(one.marks_ms.shape[1] for one in arrivals), 1)
    chains = [_chain(stage.operators) for stage in stages]
    longest = max(len(cost) for cost, _ in chains)
    sample = round(SAMPLE_MS / setting.tick_ms)
    samples = math.ceil(horizon / sample)
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
        horizon=horizon,
    )
    _fill(world, stages, arrivals)
    return world


def _stage_rows(
    stages: Sequence[Stage],
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


def _node_rows(stages: Sequence[Stage], setting: Setting) -> NDArray[np.void]:
    rows = np.zeros(setting.nodes, NODE)
    bounds = np.searchsorted([stage.node for stage in stages], np.arange(setting.nodes + 1))
    rows["first_stage"], rows["end_stage"] = bounds[:-1], bounds[1:]
    rows["first_core"] = np.arange(setting.nodes) * setting.cores
    rows["end_core"] = rows["first_core"] + setting.cores
    rows["last"], rows["since"] = -1, -math.inf
    return rows


def _fed(stages: Sequence[Stage], stage: Stage) -> int:
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


def _fill(world: World, stages: Sequence[Stage], arrivals: Sequence[Arrivals]) -> None:
    """Put in what comes. A watermark that overtakes one before it passes that one's deadline, too."""
    for index, stage in enumerate(stages):
        one = arrivals[stage.query]
        windows, streams = one.marks_ms.shape
        world.mean[index, :windows, :streams] = one.mean_ms
        world.square[index, :windows, :streams] = one.square_ms2
        if not world.stages[index]["fed"]:
            world.arriving[index, : world.horizon] = one.events
            world.stimulus[index, : world.horizon] = one.stimulus_ms
            world.marks[index, :windows, :streams] = np.minimum.accumulate(one.marks_ms[::-1])[::-1]
