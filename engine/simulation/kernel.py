"""The event loop: arrivals, completions and deliveries in order of time."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from engine.compiler import compiled_uncounted, source_stamp, spliced
from engine.simulation.queues import heap_put, heap_remove, heap_top
from engine.simulation.rows import Counter, SimulationWorld
from engine.simulation.service import child_id, count_outputs, enqueue, start_woken, wake

__all__ = ["DONE", "FULL", "PAUSED", "advance"]

DONE, PAUSED, FULL = 0, 1, 2
NEXT_ARRIVAL, RECORDS, WOKEN = Counter.NEXT_ARRIVAL, Counter.RECORDS, Counter.WOKEN
FREE_HEAD, FREE, STAMP = Counter.FREE_HEAD, Counter.FREE, Counter.STAMP


@spliced
def _next_time(world: SimulationWorld) -> float:
    item = heap_top(world.calendar, 0)
    time = math.inf if item < 0 else world.calendar.keys[item]
    arrival = world.counters[NEXT_ARRIVAL]
    if arrival < len(world.arrivals):
        time = min(time, world.arrivals[arrival]["time"])
    return time


@spliced
def _step(world: SimulationWorld) -> None:
    """One arrival, completion or delivery of this instant; arrivals first."""
    arrival = world.counters[NEXT_ARRIVAL]
    if arrival < len(world.arrivals) and world.arrivals[arrival]["time"] <= world.clock[0]:
        world.counters[NEXT_ARRIVAL] += 1
        _arrive(world, arrival)
        return
    item = heap_top(world.calendar, 0)
    heap_remove(world.calendar, 0, item)
    if item < len(world.servers):
        _complete(world, item)
    else:
        _leave_pipe(world, item - len(world.servers))


@spliced
def _arrive(world: SimulationWorld, arrival: int) -> None:
    event = _allocate(world)
    row = world.arrivals[arrival]
    world.events[event]["id"] = row["id"]
    world.events[event]["seq"] = arrival
    world.events[event]["stimulus"] = row["time"]
    world.events[event]["p"] = row["p"]
    world.events[event]["group"] = row["group"]
    world.events[event]["slot"] = 0
    source = row["source"]
    _emit(world, event, world.source_edges[source, 0], world.source_edges[source, 1], 0)
    _free(world, event)


@spliced
def _complete(world: SimulationWorld, server: int) -> None:
    event, station = world.servers[server]["event"], world.servers[server]["station"]
    world.servers[server]["event"] = -1
    wake(world, server)
    row = world.stations[station]
    if row["link_bytes"] >= 0.0:
        _travel(world, event, row["pipe"])
        return
    outputs = count_outputs(world, event)
    _sample(world, event, outputs)
    for number in range(outputs):
        if row["first_edge"] == row["last_edge"]:
            _record(world, event, row["operator"])
        else:
            _emit(world, event, row["first_edge"], row["last_edge"], number)
    _free(world, event)


@spliced
def _emit(world: SimulationWorld, parent: int, first_edge: int, last_edge: int, number: int) -> None:
    """One output of `parent`, copied to every input that reads it."""
    for edge in range(first_edge, last_edge):
        row = world.edges[edge]
        target = _choose(world, row["first_target"], row["last_target"])
        event = _allocate(world)
        parent_event, child = world.events[parent], world.events[event]
        child["id"] = child_id(parent_event["id"], number * (last_edge - first_edge) + edge - first_edge)
        child["seq"] = parent_event["seq"]
        child["stimulus"] = parent_event["stimulus"]
        child["p"] = parent_event["p"]
        child["group"] = parent_event["group"]
        child["input"] = row["input"]
        child["slot"] = row["first_slot"] + parent_event["slot"] * row["keeps_slot"]
        child["target"] = world.targets[target]["station"]
        if world.targets[target]["via"] >= 0:
            enqueue(world, world.targets[target]["via"], event)
        else:
            _travel(world, event, world.targets[target]["pipe"])


@spliced
def _choose(world: SimulationWorld, first: int, last: int) -> int:
    """The replica that is furthest behind its share of the events of this edge."""
    if last - first == 1:
        return first
    total = 1
    for target in range(first, last):
        total += world.targets[target]["sent"]
    best, lag = first, -math.inf
    for target in range(first, last):
        behind = world.targets[target]["share"] * total - world.targets[target]["sent"]
        if behind > lag + 1e-9:
            best, lag = target, behind
    world.targets[best]["sent"] += 1
    return best


@spliced
def _travel(world: SimulationWorld, event: int, pipe: int) -> None:
    """Into the operator's queue, at once or after the link's delay (`pipe`)."""
    if pipe < 0:
        enqueue(world, world.events[event]["target"], event)
        return
    row = world.pipes[pipe]
    world.events[event]["due"] = world.clock[0] + row["delay_s"]
    world.events[event]["next"] = -1
    if row["head"] < 0:
        row["head"] = event
        heap_put(world.calendar, 0, len(world.servers) + pipe, world.events[event]["due"])
    else:
        world.events[row["tail"]]["next"] = event
    row["tail"] = event


@spliced
def _leave_pipe(world: SimulationWorld, pipe: int) -> None:
    row = world.pipes[pipe]
    event = row["head"]
    row["head"] = world.events[event]["next"]
    if row["head"] >= 0:
        heap_put(world.calendar, 0, len(world.servers) + pipe, world.events[row["head"]]["due"])
    enqueue(world, world.events[event]["target"], event)


@spliced
def _sample(world: SimulationWorld, event: int, outputs: int) -> None:
    """Count the event for the statistics of its sample group; its cycles were counted when it started."""
    row = world.events[event]
    if row["group"] >= 0:
        world.sampled[row["input"], row["group"], 0] += 1.0
        world.sampled[row["input"], row["group"], 1] += outputs


@spliced
def _record(world: SimulationWorld, event: int, operator: int) -> None:
    row = world.records[world.counters[RECORDS]]
    world.counters[RECORDS] += 1
    row["stimulus"] = world.events[event]["stimulus"]
    row["egress"] = world.clock[0]
    row["operator"] = operator
    row["p"] = world.events[event]["p"]


@spliced
def _allocate(world: SimulationWorld) -> int:
    event = world.counters[FREE_HEAD]
    world.counters[FREE_HEAD] = world.events[event]["next"]
    world.counters[FREE] -= 1
    return int(event)


@spliced
def _free(world: SimulationWorld, event: int) -> None:
    world.events[event]["next"] = world.counters[FREE_HEAD]
    world.counters[FREE_HEAD] = event
    world.counters[FREE] += 1


def _entry(stamp: int) -> Callable[[SimulationWorld, int], int]:
    """The loop, compiled once for this state of the package.

    numba's cache looks at the file of a function, not at files whose functions are compiled into it. The closure over
    `stamp` is part of its key, so that changed parts never run as they were.
    """

    @compiled_uncounted
    def advance(world: SimulationWorld, steps: int) -> int:
        """Run at most `steps` steps: DONE, PAUSED, or FULL (a table must grow before it goes on)."""
        world.counters[STAMP] = stamp
        for _ in range(steps):
            if world.counters[FREE] < world.fan_out + 1:
                return FULL
            if len(world.records) - world.counters[RECORDS] < world.fan_out:
                return FULL
            time = _next_time(world)
            if world.counters[WOKEN] > 0 and time > world.clock[0]:
                start_woken(world)
            elif math.isinf(time):
                return DONE
            else:
                world.clock[0] = time
                _step(world)
        return PAUSED

    return advance


advance = _entry(source_stamp(Path(__file__).parent))
