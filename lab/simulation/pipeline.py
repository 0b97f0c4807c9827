"""Simulation of a mini-batch map-reduce stage: what the latency model of `engine.planner` is measured against.

Topology of Li, Diao, Shenoy, Supporting Scalable Analytics with Latency Constraints (VLDB 2015), section 2:
docs/models/simulation.md says what happens to a batch on its way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from engine.arrays import FloatArray, event_mean, event_quantile
from engine.planner.plan import StageSettings
from engine.planner.profile import NodeHardware, StageProfile
from engine.simulation.rows import Heap
from engine.simulation.run import TooLargeError
from lab.simulation.pipeline_kernel import PIECES, run_pipeline
from lab.simulation.pipeline_tables import (
    BATCH,
    CHUNK,
    FETCH,
    MAP,
    MAPPER,
    NODE,
    PARTITION,
    RECEIVE,
    REDUCE,
    REDUCER,
    RESOURCE,
    SHUFFLE,
    SLOT,
    TUPLE,
    WINDOW,
    WRITE,
    PipelineRates,
    PipelineTotal,
    PipelineWorld,
    Table,
)

__all__ = ["MAX_ROWS", "PipelineOutcome", "PipelineSettings", "simulate_pipeline"]

MAX_ROWS = 30_000_000  # of batches, parts of them and partitions
_LEVELS = 400
_GROWTH, _RISE, _FULL, _BLOCKED = 0.004, 0.25, 0.98, 0.02
_MAX_PROBES = 16  # tuples of a partition that are looked at
_RESOURCES = 3  # of a node: cores, inbound link, disk


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """Length and seed of a run, seconds; `drain_s` goes on without new tuples, unmeasured.

    `samples` is about how many tuples are looked at. A reducer fetches from mapper to mapper, or the oldest first.
    """

    duration_s: float = 40.0
    warm_up_s: float = 10.0
    drain_s: float = 0.0
    seed: int = 0
    samples: int = 40_000
    is_oldest_first: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class PipelineOutcome:
    """Latencies, utilisations and verdict of a run, once warm.

    `latency_s` are those of sampled keyed windows, or of sampled map outputs where the stage has no windows, each for
    `weights` of them. `tuple_s` and `tuple_weights` are those of map outputs in any case, `last_tuple_s` is the part of
    a window's latency until its last tuple was reduced. `phase_mean_s` are the paper's twelve phases. `utilisation` has
    cpu, map, red, net, disk. `growth` is by how many seconds of input the backlog grows in a second, `blocked` the
    share of the time in which mappers waited for room in their buffers; `reason` says why a run is not `stable`.
    `totals` counts tuples: arrived, mapped, and outputs emitted, written, fetched, reduced, by the end of the run.
    """

    latency_s: FloatArray
    weights: FloatArray
    tuple_s: FloatArray
    tuple_weights: FloatArray
    last_tuple_s: FloatArray
    phase_mean_s: FloatArray
    utilisation: dict[str, float]
    growth: float
    stable: bool
    reason: str
    blocked: float
    totals: dict[str, int]

    @property
    def mean_s(self) -> float:
        """Mean of `latency_s`; NaN where nothing came out."""
        mean = event_mean(self.latency_s, self.weights)
        return math.nan if mean is None else mean

    def quantile_s(self, x: float) -> float:
        """The `x`-quantile of `latency_s`; NaN where nothing came out."""
        quantile = event_quantile(self.latency_s, self.weights, x)
        return math.nan if quantile is None else quantile


def simulate_pipeline(
    profile: StageProfile,
    hardware: NodeHardware,
    rate: float,
    settings: StageSettings,
    run: PipelineSettings | None = None,
) -> PipelineOutcome:
    """Run a stage for a while; equal settings and seeds give equal results.

    Parameters
    ----------
    profile, hardware : StageProfile, NodeHardware
        Work and sizes per tuple, batch, partition and poll; cores, network and disk of each node.
    rate : float
        Tuples per second that come to the whole cluster.
    settings : StageSettings
        Nodes, threads and intervals.
    run : PipelineSettings, optional
        Length and seed.

    Returns
    -------
    PipelineOutcome

    Raises
    ------
    TooLargeError
        More than `MAX_ROWS` batches and partitions are to be expected.

    Notes
    -----
    The phases of the timers are drawn once per run and stay: a mean moves by several percent from seed to seed where
    B_ch is not above B_sh. A run is not stable when the backlog grows by more than 0.4 % of the input and by a quarter
    of itself while it is measured, and something is used for more than 98 % or mappers lack room for more than 2 % of
    the time: a queue that is only heavily loaded grows for a while, too. Windows need two of them while it is measured.
    """
    run = run or PipelineSettings()
    world = _world(profile, hardware, rate, settings, run)
    run_pipeline(world)
    return _outcome(world, profile, hardware, rate, run)


def _world(
    profile: StageProfile, hardware: NodeHardware, rate: float, settings: StageSettings, run: PipelineSettings
) -> PipelineWorld:
    nodes, mappers, reducers = settings.nodes, settings.mappers, settings.reducers
    all_mappers, all_reducers = nodes * mappers, nodes * reducers
    end_s = run.warm_up_s + run.duration_s + run.drain_s
    batches = int(end_s / settings.b_in_s) + 3
    shuffles = int(end_s / settings.b_sh_s) + 3
    partitions = all_mappers * shuffles
    chunks = batches // mappers + 2 + shuffles
    rows = nodes * batches + all_mappers * (chunks + shuffles) + all_reducers * partitions
    if rows > MAX_ROWS:
        raise TooLargeError(f"About {rows:.3g} batches and partitions would come; at most {MAX_ROWS:.3g} may.")
    windows = int(end_s / profile.period_s) + 3 if profile.window > 0.0 else 1
    random = np.random.default_rng([run.seed, 20150])
    node_rows, mapper_rows = np.zeros(nodes, NODE), np.zeros(all_mappers, MAPPER)
    reducer_rows = np.zeros(all_reducers, REDUCER)
    resources, slots = _resources(hardware, settings, node_rows, mapper_rows, reducer_rows)
    for table, interval_s in (
        (node_rows, settings.b_in_s),
        (mapper_rows, settings.b_sh_s),
        (reducer_rows, settings.b_ch_s),
    ):
        table["phase"] = interval_s * random.uniform(1e-9, 1.0, len(table))
    mapper_rows["blocked_since"] = math.inf
    mapper_rows["batch"] = np.tile(np.arange(mappers), nodes)
    return PipelineWorld(
        rates=_rates(profile, hardware, rate, settings, run),
        draws=np.array([random.integers(2**63), 0], np.uint64),
        totals=np.zeros(PipelineTotal.LENGTH, np.int64),
        resources=resources,
        slots=slots,
        nodes=node_rows,
        mappers=mapper_rows,
        reducers=reducer_rows,
        batches=np.empty((nodes, batches), BATCH),
        chunks=np.empty((all_mappers, chunks), CHUNK),
        shuffles=np.empty((all_mappers, shuffles), SHUFFLE),
        order=np.empty((partitions, 2), np.int64),
        partitions=np.empty((all_reducers, partitions), PARTITION),
        passed=np.zeros((windows, all_reducers), np.int64),
        completed=np.zeros((windows, all_reducers)),
        marks=np.zeros((all_reducers, all_mappers), np.int64),
        counts=np.zeros(all_mappers, np.int64),
        tuples=np.empty(2 * run.samples + 100, TUPLE),
        windows=np.empty(windows * all_reducers * PIECES, WINDOW),
        levels=np.empty(int((run.warm_up_s + run.duration_s) / run.duration_s * _LEVELS + 1e-9)),
        woken=np.empty(8, np.int64),
        calendar=_calendar(len(resources), node_rows, mapper_rows, reducer_rows),
    )


def _rates(
    profile: StageProfile, hardware: NodeHardware, rate: float, settings: StageSettings, run: PipelineSettings
) -> PipelineRates:
    """The scalars, floats but for the last two: another type would compile the loop anew."""
    reducers = settings.nodes * settings.reducers
    keys = profile.keys / reducers if profile.window > 0.0 else 0.0
    partitions = reducers * settings.nodes * settings.mappers * run.duration_s / settings.b_sh_s
    own = {name: float(value) for name, value in profile.to_dict().items() if name in PipelineRates._fields}
    return PipelineRates(
        **own,
        b_in_s=float(settings.b_in_s),
        b_sh_s=float(settings.b_sh_s),
        b_ch_s=float(settings.b_ch_s),
        batch_inputs=float(rate / settings.nodes * settings.b_in_s),
        seek_bytes=float(hardware.t_seek * hardware.v_disk),
        buffer_bytes=float(hardware.map_buf) or math.inf,
        piece_work=float(keys * profile.s_k / PIECES),
        piece_keys=float(keys / PIECES),
        period_s=float(profile.period_s) if profile.window > 0.0 else math.inf,
        warm_up_s=float(run.warm_up_s),
        horizon_s=float(run.warm_up_s + run.duration_s),
        end_s=float(run.warm_up_s + run.duration_s + run.drain_s),
        level_s=float(run.duration_s / _LEVELS),
        sampled=float(min(run.samples / partitions, _MAX_PROBES)),
        mappers=settings.mappers,
        is_oldest_first=int(run.is_oldest_first),
    )


def _resources(
    hardware: NodeHardware, settings: StageSettings, nodes: Table, mappers: Table, reducers: Table
) -> tuple[Table, Table]:
    """Cores, link and disk of each node, and their slots; the threads learn which are theirs."""
    m, r = settings.mappers, settings.reducers
    kinds = ([MAP] * m + [REDUCE] * r, [RECEIVE] + [FETCH] * r, [WRITE] * m)
    speeds = ((float(hardware.n), 1.0), (hardware.v_net, hardware.v_net), (hardware.v_disk, hardware.v_disk))
    resources = np.zeros(_RESOURCES * settings.nodes, RESOURCE)
    slots = np.zeros(settings.nodes * sum(map(len, kinds)), SLOT)
    slots["finish"] = math.inf
    slot = 0
    owners = {MAP: 0, REDUCE: 0, RECEIVE: 0, FETCH: 0, WRITE: 0}
    places = {
        MAP: (mappers, "slot"),
        REDUCE: (reducers, "slot"),
        RECEIVE: (nodes, "slot"),
        FETCH: (reducers, "link_slot"),
        WRITE: (mappers, "writer"),
    }
    for resource in range(len(resources)):
        part = resource % _RESOURCES
        resources[resource]["capacity"], resources[resource]["single"] = speeds[part]
        resources[resource]["first_slot"] = slot
        for kind in kinds[part]:
            table, column = places[kind]
            table[owners[kind]][column] = slot
            slots[slot]["resource"], slots[slot]["kind"], slots[slot]["owner"] = resource, kind, owners[kind]
            owners[kind] += 1
            slot += 1
        resources[resource]["last_slot"] = slot
    mappers["node"] = np.repeat(np.arange(settings.nodes), m)
    return resources, slots


def _calendar(resources: int, *timers: Table) -> Heap:
    """All timers by their first times; resources come in once they have something to do."""
    phases = np.concatenate([table["phase"] for table in timers])
    items = resources + len(phases)
    order = np.argsort(phases, kind="stable") + resources
    place = np.full(items, -1, np.int64)
    place[order] = np.arange(len(order))
    return Heap(
        items=np.concatenate((order, np.zeros(resources, np.int64))),
        place=place,
        keys=np.concatenate((np.zeros(resources), phases)),
        start=np.zeros(1, np.int64),
        size=np.array([len(order)]),
    )


def _outcome(
    world: PipelineWorld, profile: StageProfile, hardware: NodeHardware, rate: float, run: PipelineSettings
) -> PipelineOutcome:
    tuples = world.tuples[: world.totals[PipelineTotal.TUPLES]]
    windows = world.windows[: world.totals[PipelineTotal.WINDOWS]]
    tuple_s, tuple_weights = tuples["latency"].copy(), tuples["weight"].copy()
    is_windowed = profile.window > 0.0
    phases = np.average(tuples["phases"], axis=0, weights=tuple_weights) if len(tuples) else np.full(12, math.nan)
    levels_s = world.levels[-_LEVELS:] / (rate * profile.alpha)
    growth, rise = _growth(levels_s, run.duration_s, profile.period_s)
    utilisation = _utilisation(world, run.duration_s + run.drain_s)
    blocked = _blocked(world, run)
    reason = ""
    if growth > _GROWTH and rise > _RISE and (max(utilisation.values()) > _FULL or blocked > _BLOCKED):
        reason = "map output buffer" if blocked > _BLOCKED else "backlog grows"
    names = ("arrived", "mapped", "emitted", "written", "fetched", "reduced")
    return PipelineOutcome(
        latency_s=windows["latency"].copy() if is_windowed else tuple_s,
        weights=np.ones(len(windows)) if is_windowed else tuple_weights,
        tuple_s=tuple_s,
        tuple_weights=tuple_weights,
        last_tuple_s=windows["last_tuple"].copy(),
        phase_mean_s=phases,
        utilisation=utilisation,
        growth=growth,
        stable=not reason,
        reason=reason,
        blocked=blocked,
        totals={name: int(world.totals[place]) for place, name in enumerate(names)},
    )


def _growth(levels_s: FloatArray, duration_s: float, period_s: float) -> tuple[float, float]:
    """Slope of the backlog, smoothed from one window end to the next, and its rise as a share of it."""
    width = round(period_s / duration_s * len(levels_s)) if 0.0 < 2.0 * period_s <= duration_s else 1
    smooth_s = np.convolve(levels_s, np.full(width, 1.0 / width), "valid")
    growth, first_s = np.polyfit(np.arange(len(smooth_s)) * duration_s / len(levels_s), smooth_s, 1)
    return float(growth), float(growth * duration_s / max(first_s, 1e-9))


def _blocked(world: PipelineWorld, run: PipelineSettings) -> float:
    """Share of the time in which mappers had no room in their buffers for more outputs."""
    waits_s = np.maximum(world.rates.end_s - world.mappers["blocked_since"], 0.0)
    return float(np.mean(world.mappers["blocked"] + waits_s) / (run.duration_s + run.drain_s))


def _utilisation(world: PipelineWorld, measured_s: float) -> dict[str, float]:
    """Mean utilisations of resources (work done over work possible) and of threads (time occupied)."""
    resources, slots = world.resources, world.slots
    served = resources["served"] / resources["capacity"] / measured_s
    occupied = slots["occupied"] / measured_s
    return {
        "cpu": float(served[0::_RESOURCES].mean()),
        "map": float(occupied[slots["kind"] == MAP].mean()),
        "red": float(occupied[slots["kind"] == REDUCE].mean()),
        "net": float(served[1::_RESOURCES].mean()),
        "disk": float(served[2::_RESOURCES].mean()),
    }
