"""Queries with windows that share cores under a simulated clock, by any policy: what a policy is worth, before it runs.

A query's events wait in one queue, in the order in which they came, and its watermarks among them. A window is *swept*
once the watermark that passes its deadline has nothing before it any more; its latency is that time less its deadline.
The same input gives the same answer. Model and limits: docs/models/klink-scheduling.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.klink.simulation.loads import Arrivals, SimulatedOperator, SimulatedQuery, SimulationSetting
from engine.klink.simulation.loop import run
from engine.klink.simulation.world import KlinkWorld, QueryStage, stages_of, world_of

__all__ = ["Arrivals", "KlinkRun", "SimulatedOperator", "SimulatedQuery", "SimulationSetting", "simulate"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class KlinkRun:
    """Results of a simulation, by query in the order given."""

    deadlines_ms: tuple[Array, ...]  #: of each query's windows
    swept_ms: tuple[Array, ...]  #: NaN where a window was not swept until the end
    came: Array  #: events that wanted in
    refused: Array  #: of these, not taken in for what waited
    overflow: Array  #: of these, waited too long
    processed: Array  #: of these, through the whole pipeline
    waiting: Array  #: of these, still there
    peak: Array  #: most events that waited at once
    busy_ms: Array  #: of each core
    memory_bytes: Array  #: (samples, nodes) that wait, every 200 ms until the last bin ends
    used_ms: Array  #: (samples, nodes), CPU time until then
    picks: int
    spans: tuple[tuple[float, float, str, int], ...]  #: start, end, query, core; only where they were asked for
    end_ms: float  #: of the run, draining included

    def latencies_ms(self, since_ms: float = 0.0, index: int | None = None) -> Array:
        """Latencies of windows due from `since_ms` on, of one query or all; one that is not swept has that so far."""
        chosen = range(len(self.deadlines_ms)) if index is None else (index,)
        latencies = [np.empty(0)]
        for i in chosen:
            due, swept = self.deadlines_ms[i], self.swept_ms[i]
            seen = due >= since_ms
            latencies.append(np.where(np.isnan(swept[seen]), self.end_ms, swept[seen]) - due[seen])
        return np.concatenate(latencies)


def simulate(
    queries: Sequence[SimulatedQuery], arrivals: Sequence[Arrivals], setting: SimulationSetting, *, story: bool = False
) -> KlinkRun:
    """Run queries on what comes to them until the last bin ends and all is drained; `story` keeps who ran when.

    Raises
    ------
    KeyError
        There is no policy of this name (`CODES`).
    """
    stages = stages_of(queries)
    world = world_of(stages, queries, arrivals, setting, story)
    offered = np.array([entry.events.sum() for entry in arrivals])
    ended = run(world)
    return _result(stages, queries, setting, world, offered, ended)


def _result(
    stages: Sequence[QueryStage],
    queries: Sequence[SimulatedQuery],
    setting: SimulationSetting,
    world: KlinkWorld,
    offered: Array,
    ended: int,
) -> KlinkRun:
    first, last = [0] * len(queries), [0] * len(queries)
    for index, stage in enumerate(stages):
        if stage.last:
            last[stage.query] = index
        if not stage.last or len(queries[stage.query].nodes) == 1:
            first[stage.query] = index
    entry = np.array([stages[index].entry for index in last])
    horizon_ms = world.horizon * setting.tick_ms
    deadlines = [
        query.first_ms + np.arange(world.stages[index]["windows"]) * (query.period_ms or 0.0)
        for query, index in zip(queries, last, strict=True)
    ]
    names = [queries[stage.query].id for stage in stages]
    spans = world.spans[: world.counters[1]]
    return KlinkRun(
        deadlines_ms=tuple(due[due < horizon_ms] for due in deadlines),
        swept_ms=tuple(
            world.swept_at[index, : len(due)][due < horizon_ms] for index, due in zip(last, deadlines, strict=True)
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
        end_ms=ended * setting.tick_ms,
    )


def _by_query(stages: Sequence[QueryStage], values: Array) -> Array:
    """Sums over a query's stages, as events of the source."""
    sums = np.zeros(max(stage.query for stage in stages) + 1)
    for stage, value in zip(stages, values, strict=True):
        sums[stage.query] += value / stage.entry
    return sums
