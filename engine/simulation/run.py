"""Prepare a simulation, run it to the end, hand back its records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.arrays import FloatArray
from engine.command_options import SimulateOptions
from engine.document.deployment import Deployment
from engine.document.elements import SESSION
from engine.errors import EngineError, Fault, OptionError
from engine.estimation.backlog import lead_of, lead_work
from engine.estimation.waits.clocks import sources_above
from engine.simulation.kernel import DONE, FULL, advance
from engine.simulation.layout import InputWork, SimulationLayout, capacities, lay_out, work_of
from engine.simulation.queues import POLICIES, STIMULUS, SimulationPolicy, heap_put
from engine.simulation.results import Simulation, summarise
from engine.simulation.rows import ARRIVAL, EVENT, RECORD, Counter, Heap, Rows, SimulationWorld
from engine.simulation.service import child_id
from engine.workload import event_times, whole_counts

__all__ = ["MAX_EVENTS", "SimulationSettings", "TooLargeError", "command", "simulate"]


MAX_EVENTS = 50_000_000
MAX_OUTPUTS = 100_000
STEPS_PER_REPORT = 2_000_000

MAX_REPEATS = 1000
MAX_SEED = 2**31 - 1
MAX_COST_CV = 10.0


class TooLargeError(EngineError):
    """A deployment with more events than a simulation runs through in reasonable time."""

    code = "too-large"


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """Settings of a simulation.

    `drawn_arrivals`: event times are uniform in their subinterval, not evenly spaced. `random_outputs`: the fractional
    part of a selectivity is a draw, not a running sum. `cost_cv`: coefficient of variation of an event's cycles.
    `phase_s`: how long after a multiple of all periods of windows and triggers the horizon begins.
    """

    policy: SimulationPolicy = POLICIES["stimulus-time"]
    seed: int = 0
    drawn_arrivals: bool = True
    random_outputs: bool = True
    cost_cv: float = 0.0
    phase_s: float = 0.0


def simulate(
    deployment: Deployment,
    settings: SimulationSettings | None = None,
    *,
    times_s: Mapping[str, FloatArray] | None = None,
    groups: Mapping[str, NDArray[np.int32]] | None = None,
    progress: Callable[[float], None] | None = None,
) -> Simulation:
    """Run every source event of a deployment through its operators until nothing is left.

    One server (core, or link with a bandwidth) serves one event at a time and never interrupts it. Scheduling itself
    costs nothing. An output carries the stimulus time of the event that triggered it.

    Parameters
    ----------
    deployment : Deployment
        Every operator placed.
    settings : Settings, optional
        Policy, seed and randomness. Equal settings give equal results.
    times_s : mapping of source id to ndarray, optional
        Event times, ascending, seconds within the horizon; they replace the source's arrivals.
    groups : mapping of source id to ndarray of int, optional
        Sample group (0, 1, ..) of each source event, -1 for none: `Simulation.sampled` counts, per input and group,
        events, outputs and cycles of everything that descends from the group's events.
    progress : callable, optional
        Called now and then with the share of source events that have arrived; may raise to cancel.

    Returns
    -------
    Simulation

    Raises
    ------
    UnplacedError
        An operator is on no node.
    TooLargeError
        More than `MAX_EVENTS` events are to be expected, or more than `MAX_OUTPUTS` outputs of one event.

    Notes
    -----
    With whole `arrivals` and neither draws nor variation, assumptions A-1 to A-3 of the paper's section V hold.
    """
    settings = settings or SimulationSettings()
    work = work_of(deployment)
    _refuse_unknown_holds(deployment)
    _refuse_too_many(deployment, work)
    by_path = settings.policy.order == STIMULUS
    layout = lay_out(deployment, by_path=by_path, phase_s=settings.phase_s, seed=settings.seed)
    arrivals = _arrivals(deployment, settings, times_s or {}, groups or {})
    world = _world(deployment, settings, layout, work, arrivals)
    world = _run(world, progress)
    count = int(world.counters[Counter.RECORDS])
    return Simulation(
        deployment=deployment,
        policy=settings.policy.name,
        records=world.records[:count].copy(),
        busy_s=world.busy_s,
        sampled=world.sampled,
        source_events=len(arrivals),
        services=int(world.counters[Counter.SERVED]),
    )


def _refuse_unknown_holds(deployment: Deployment) -> None:
    """Sessions are of single keys, which events of a deployment do not have; checkpoints stop nobody here."""
    sessions = [op.id for op in deployment.operators if op.window is not None and op.window.type == SESSION]
    if sessions:
        raise OptionError(f"Windows of {', '.join(sessions)} are sessions of keys, which are not simulated.")
    paused = [op.id for op in deployment.operators if op.checkpoint is not None]
    if paused:
        raise OptionError(f"{', '.join(paused)} take part in checkpoints, which are not simulated.")


def _refuse_too_many(deployment: Deployment, work: InputWork) -> None:
    expected = float((work.events + work.outputs).sum() + deployment.arrivals.sum())
    lead = lead_of(deployment)
    if lead is not None:
        expected += float(lead.events.sum() + lead_work(deployment, lead).output.sum())
    if expected > MAX_EVENTS:
        raise TooLargeError(
            f"About {expected:.3g} events would arrive and pass through the operators one by one; at most "
            f"{MAX_EVENTS:.3g} may. Simulate a shorter horizon or fewer queries."
        )
    if work.selectivity.max(initial=0.0) > MAX_OUTPUTS:
        raise TooLargeError(
            f"An event would put out {work.selectivity.max():.3g} events at once; at most {MAX_OUTPUTS:.3g} may."
        )


def _run(world: SimulationWorld, progress: Callable[[float], None] | None) -> SimulationWorld:
    while (state := advance(world, STEPS_PER_REPORT)) != DONE:
        if state == FULL:
            world = _grow_tables(world)
        if progress is not None:
            progress(float(world.counters[Counter.NEXT_ARRIVAL]) / max(1, len(world.arrivals)))
    return world


def _arrivals(
    deployment: Deployment,
    settings: SimulationSettings,
    times_s: Mapping[str, FloatArray],
    groups: Mapping[str, NDArray[np.int32]],
) -> Rows:
    """All source events in order of time; at one instant, those that wait first, then in order of the sources."""
    parts = _waiting(deployment, settings)
    width_s, last = deployment.subinterval_s, deployment.subintervals - 1
    for number, source in enumerate(deployment.sources):
        if source.id in times_s:
            times = np.asarray(times_s[source.id], np.float64)
            p = np.searchsorted(np.arange(1, last + 1) * width_s, times, side="right")
        else:
            rng = np.random.default_rng([settings.seed, number]) if settings.drawn_arrivals else None
            times = event_times(source.arrivals, width_s, rng)
            p = np.repeat(np.arange(last + 1), whole_counts(source.arrivals))
        rows = np.empty(len(times), ARRIVAL)
        rows["time"], rows["p"], rows["source"], rows["entry"] = times, p, number, number
        rows["stimulus"] = times
        rows["group"] = groups.get(source.id, -1)
        rows["id"] = _event_ids(settings.seed, number, len(times))
        parts.append(rows)
    rows = np.concatenate(parts) if parts else np.empty(0, ARRIVAL)
    return rows[np.lexsort((rows["stimulus"], rows["time"]))]


def _event_ids(seed: int, number: int, count: int) -> Rows:
    """Numbers of the events of one source or of one backlog."""
    root = child_id(np.uint64(seed), number)
    return np.asarray(root ^ (np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0xD1B54A32D192ED03)))


def _waiting(deployment: Deployment, settings: SimulationSettings) -> list[Rows]:
    """Events that wait where the horizon begins, input by input: all are there at 0, and came before."""
    above = sources_above(deployment)
    parts = []
    for number, found in enumerate((f for f in deployment.backlogs if f.is_used), len(deployment.sources)):
        count, behind_s = math.floor((found.events or 0.0) + 1e-6), found.behind_s or 0.0
        rows = np.zeros(count, ARRIVAL)
        if settings.drawn_arrivals:
            rng = np.random.default_rng([settings.seed, number])
            rows["stimulus"] = np.sort(rng.uniform(-behind_s, 0.0, count))
        else:
            rows["stimulus"] = (np.arange(count) / max(1, count) - 1.0) * behind_s
        rows["p"], rows["group"], rows["entry"] = -1, -1, number
        rows["source"] = min(above[deployment.operator_index[found.operator]], default=0)
        rows["id"] = _event_ids(settings.seed, number, count)
        parts.append(rows)
    return parts


def _world(
    deployment: Deployment, settings: SimulationSettings, layout: SimulationLayout, work: InputWork, arrivals: Rows
) -> SimulationWorld:
    stations, servers = len(layout.stations), len(layout.servers)
    items = servers + len(layout.pipes) + len(layout.holds.holds) + len(layout.holds.batches)
    counters = np.zeros(Counter.LENGTH, np.int64)
    sampled = int(arrivals["group"].max(initial=-1)) + 1
    active = Heap(*_heap_arrays(stations, layout.servers["last_station"] - layout.servers["first_station"], np.int64))
    world = SimulationWorld(
        clock=np.full(1, -math.inf),
        counters=counters,
        arrivals=arrivals,
        source_edges=layout.source_edges,
        events=np.empty(0, EVENT),
        records=np.empty(0, RECORD),
        stations=layout.stations,
        queues=layout.queues,
        servers=layout.servers,
        woken=np.empty(servers, np.int64),
        edges=layout.edges,
        targets=layout.targets,
        pipes=layout.pipes,
        holds=layout.holds.holds,
        batches=layout.holds.batches,
        members=layout.holds.members,
        marks=layout.holds.marks,
        cycles=work.cycles,
        selectivity=work.selectivity,
        accumulated=np.zeros(layout.inputs),
        capacity=capacities(deployment),
        factor=work.factor,
        busy_s=np.zeros((servers, deployment.subintervals)),
        sampled=np.zeros((layout.inputs, sampled, 3)),
        ready=Heap(*_heap_arrays(len(layout.queues), layout.queue_counts, np.int64)),
        active=active,
        calendar=Heap(*_heap_arrays(items, np.array([items]), np.float64)),
        width_s=float(deployment.subinterval_s),
        fan_out=_fan_out(layout, work),
        arrival_order=settings.policy.order,
        choice=settings.policy.choice,
        random_outputs=int(settings.random_outputs),
        cost_sigma=math.sqrt(math.log1p(settings.cost_cv**2)),
    )
    for number, batch in enumerate(world.batches):
        first_s = batch["interval_s"] - batch["phase_s"] % batch["interval_s"]
        heap_put(world.calendar, 0, items - len(world.batches) + number, first_s)
    return _grow_tables(world)


def _heap_arrays(items: int, sizes: Rows, key: type) -> tuple[Rows, Rows, Rows, Rows, Rows]:
    start = (np.cumsum(sizes) - sizes).astype(np.int64)
    places = np.full(items, -1, np.int64)
    return np.empty(items, np.int64), places, np.zeros(items, key), start, np.zeros(len(start), np.int64)


def _fan_out(layout: SimulationLayout, work: InputWork) -> int:
    """Most events or records that one step can make."""
    most_outputs = int(np.floor(work.selectivity.max(initial=0.0))) + 2
    most_edges = (layout.stations["last_edge"] - layout.stations["first_edge"]).max(initial=1)
    from_source = (layout.source_edges[:, 1] - layout.source_edges[:, 0]).max(initial=1)
    return int(max(most_outputs * most_edges, from_source))


def _grow_tables(world: SimulationWorld) -> SimulationWorld:
    """The same world with more than twice the room for the table that is full: events in flight, or records."""
    events, records, needed = world.events, world.records, world.fan_out + 1
    if world.counters[Counter.FREE] < needed:
        old, events = len(events), _extend_rows(events, len(events) + 4 * needed + 4096)
        events["next"][old:] = np.arange(old + 1, len(events) + 1)
        events["next"][-1] = world.counters[Counter.FREE_HEAD] if world.counters[Counter.FREE] else -1
        world.counters[Counter.FREE_HEAD] = old
        world.counters[Counter.FREE] += len(events) - old
    if len(records) - world.counters[Counter.RECORDS] < needed:
        records = _extend_rows(records, len(records) + 4 * needed + 4096)
    return world._replace(events=events, records=records)


def _extend_rows(rows: Rows, more: int) -> Rows:
    return np.concatenate((rows, np.zeros(more, rows.dtype)))


def command(document: Any, options: SimulateOptions) -> dict[str, object]:
    """Simulate a deployment, `repeats` times with seeds that follow each other.

    Returns
    -------
    dict
        Per query and over all: events (per run), worst, mean and 0.99 quantile of latency, the same per subinterval of
        the stimulus (null where nothing came out), and the busy share of nodes and links per subinterval.

    Raises
    ------
    DocumentError, OptionError, TooLargeError
    """
    if faults := list(_option_faults(options)):
        raise OptionError("; ".join(str(fault) for fault in faults), faults)
    settings = SimulationSettings(
        policy=POLICIES[options.policy],
        drawn_arrivals=options.arrivals == "drawn",
        random_outputs=options.outputs == "random",
        cost_cv=options.cost_cv,
    )
    deployment = Deployment.parse(document)
    seeds = range(options.seed, options.seed + options.repeats)
    runs = [simulate(deployment, replace(settings, seed=seed)) for seed in seeds]
    return {"options": {**vars(options), "phase_s": settings.phase_s}, **summarise(runs).to_dict()}


def _option_faults(options: SimulateOptions) -> Iterator[Fault]:
    """Values that only the simulation refuses."""
    if options.policy not in POLICIES:
        yield Fault("policy", f"{options.policy!r} is refused; allowed: {', '.join(POLICIES)}")
    bounds = (("seed", 0, MAX_SEED, "whole "), ("repeats", 1, MAX_REPEATS, "whole "), ("cost_cv", 0, MAX_COST_CV, ""))
    for name, low, high, kind in bounds:
        value = getattr(options, name)
        if not low <= value <= high:
            yield Fault(name, f"{value!r} is refused; allowed: a {kind}number from {low} to {high:.10g}")
