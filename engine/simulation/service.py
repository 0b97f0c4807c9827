"""One event at one server: waiting, service, its drawn cost and its outputs."""

from __future__ import annotations

import math

import numpy as np

from engine.compiler import compiled_uncounted, spliced
from engine.simulation.queues import ARRIVAL, ROTATE, heap_put, heap_remove, heap_top, pick, queue_pop, queue_push, rank
from engine.simulation.rows import Counter, SimulationWorld

__all__ = ["child_id", "cost_factor", "count_outputs", "enqueue", "start_woken", "uniform", "wake"]


# Constants of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)
ONE, S11, S27, S30, S31 = np.uint64(1), np.uint64(11), np.uint64(27), np.uint64(30), np.uint64(31)

NEXT_COUNT, WOKEN, SERVED = Counter.ENQUEUED, Counter.WOKEN, Counter.SERVED
ROUNDING = 1e-9  # ten times a selectivity of 0.1 is one output


@compiled_uncounted
def child_id(parent: np.uint64, number: int) -> np.uint64:
    """Id of the `number`-th descendant of an event, well mixed."""
    z = parent + GOLDEN * (np.uint64(number) + ONE)
    z = (z ^ (z >> S30)) * FIRST
    z = (z ^ (z >> S27)) * SECOND
    return z ^ (z >> S31)


@compiled_uncounted
def uniform(event: np.uint64, purpose: int) -> float:
    """A number in (0, 1) for one purpose of one event."""
    return (float(child_id(event, purpose) >> S11) + 0.5) * 2.0**-53


@compiled_uncounted
def cost_factor(event: np.uint64, sigma: float) -> float:
    """A lognormal factor of mean 1; `sigma` is the standard deviation of its logarithm."""
    radius = math.sqrt(-2.0 * math.log(uniform(event, 1_000_001)))
    normal = radius * math.cos(2.0 * math.pi * uniform(event, 1_000_002))
    return math.exp(sigma * normal - 0.5 * sigma * sigma)


@spliced
def wake(world: SimulationWorld, server: int) -> None:
    """Remember that the server may have something to start once everything of this instant has happened."""
    row = world.servers[server]
    if row["woken"] == 0 and row["event"] < 0:
        row["woken"] = 1
        world.woken[world.counters[WOKEN]] = server
        world.counters[WOKEN] += 1


@spliced
def enqueue(world: SimulationWorld, station: int, event: int) -> None:
    """Put an event into its queue at a station: one FIFO per source path, or a single one by arrival."""
    row = world.stations[station]
    world.counters[NEXT_COUNT] += 1
    if world.arrival_order == ARRIVAL:
        queue = row["first_queue"]
        world.events[event]["order"] = world.counters[NEXT_COUNT]
    else:
        queue = row["first_queue"] + world.events[event]["slot"]
        world.events[event]["order"] = world.events[event]["seq"]
    queue_push(world.queues, world.events, queue, event)
    row["length"] += 1
    _rerank(world, station, queue)
    wake(world, row["server"])


@spliced
def start_woken(world: SimulationWorld) -> None:
    """Every woken server takes the event its policy picks."""
    while world.counters[WOKEN] > 0:
        world.counters[WOKEN] -= 1
        server = world.woken[world.counters[WOKEN]]
        world.servers[server]["woken"] = 0
        station = pick(world, server)
        if station >= 0:
            _start(world, server, station, _dequeue(world, station))


@spliced
def count_outputs(world: SimulationWorld, event: int) -> int:
    """Outputs of an event at its operator: whole ones, and the part as a draw or by a running sum."""
    port, p = world.events[event]["input"], world.events[event]["p"]
    selectivity = world.selectivity[port, p % world.selectivity.shape[1]]
    if world.random_outputs:
        whole = math.floor(selectivity)
        return int(whole) + int(uniform(world.events[event]["id"], 1_000_003) < selectivity - whole)
    reached = world.accumulated[port] + selectivity
    outputs = int(math.floor(reached + ROUNDING))  # noqa: RUF046 - a float when compiled
    world.accumulated[port] = reached - outputs
    return outputs


@spliced
def _dequeue(world: SimulationWorld, station: int) -> int:
    queue = heap_top(world.ready, station)
    event = queue_pop(world.queues, world.events, queue)
    world.stations[station]["length"] -= 1
    _rerank(world, station, queue)
    return event


@spliced
def _rerank(world: SimulationWorld, station: int, queue: int) -> None:
    """Bring the station's heap of queues and the server's heap of stations up to date after a change of one queue."""
    head = world.queues[queue]["head"]
    if head >= 0:
        heap_put(world.ready, station, queue, world.events[head]["order"])
    else:
        heap_remove(world.ready, station, queue)
    if world.choice == ROTATE:
        return
    server = world.stations[station]["server"]
    if world.stations[station]["length"] > 0:
        heap_put(world.active, server, station, rank(world, station))
    else:
        heap_remove(world.active, server, station)


@spliced
def _start(world: SimulationWorld, server: int, station: int, event: int) -> None:
    world.servers[server]["event"] = event
    world.servers[server]["station"] = station
    world.counters[SERVED] += 1
    begin = world.clock[0]
    end = _finish(world, server, begin, _work(world, server, station, event))
    _occupy(world, server, begin, end)
    heap_put(world.calendar, 0, server, end)


@spliced
def _work(world: SimulationWorld, server: int, station: int, event: int) -> float:
    """Cycles (bytes on a link) the event needs."""
    row = world.events[event]
    if row["marker"] == 1:
        return 0.0
    link_bytes = world.stations[station]["link_bytes"]
    if link_bytes >= 0.0:
        return float(link_bytes)
    cycles = world.cycles[row["input"], row["p"] % world.cycles.shape[1]]
    if world.cost_sigma > 0.0:
        cycles *= cost_factor(row["id"], world.cost_sigma)
    if row["group"] >= 0:
        world.sampled[row["input"], row["group"], 2] += cycles
    return float(cycles * world.factor[server, row["p"] % world.factor.shape[1]])


@spliced
def _finish(world: SimulationWorld, server: int, begin: float, work: float) -> float:
    """Instant at which `work` begun at `begin` is done, by the server's capacity over time; its last capacity lasts
    for ever.
    """
    last = world.capacity.shape[1] - 1
    p = min(int(begin / world.width_s), last)
    now = begin
    while p < last:
        until = (p + 1) * world.width_s
        possible = world.capacity[server, p] * (until - now)
        if work <= possible and world.capacity[server, p] > 0.0:
            break
        work -= possible
        now = until
        p += 1
    return float(now + work / world.capacity[server, p])


@spliced
def _occupy(world: SimulationWorld, server: int, begin: float, end: float) -> None:
    """Book the time of a service on its subintervals; what lies after the horizon is not counted."""
    p = int(begin / world.width_s)
    while p < world.busy_s.shape[1] and begin < end:
        until = min(end, (p + 1) * world.width_s)
        world.busy_s[server, p] += max(0.0, until - begin)
        begin = max(begin, until)
        p += 1
