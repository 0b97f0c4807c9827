"""The event loop: arrivals, completions and deliveries in order of time."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from engine.compiler import compiled_uncounted, linked, source_stamp, spliced
from engine.simulation.holds import begin_batch, end_batch, leave_batch, note_event
from engine.simulation.passage import (
    allocate_event,
    emit_event,
    emit_held,
    free_event,
    hold_result,
    leave_pipe,
    let_go,
    put_out,
    record_event,
    travel,
)
from engine.simulation.queues import heap_remove, heap_top
from engine.simulation.rows import Counter, SimulationWorld
from engine.simulation.service import count_outputs, start_woken, wake

__all__ = ["DONE", "FULL", "PAUSED", "advance"]

DONE, PAUSED, FULL = 0, 1, 2
NEXT_ARRIVAL, RECORDS, WOKEN = Counter.NEXT_ARRIVAL, Counter.RECORDS, Counter.WOKEN
FREE, STAMP = Counter.FREE, Counter.STAMP
MARKER = 3_000_000  # number of a marker among the descendants of an event


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
    """One arrival, completion, delivery or release of this instant; arrivals first."""
    arrival = world.counters[NEXT_ARRIVAL]
    if arrival < len(world.arrivals) and world.arrivals[arrival]["time"] <= world.clock[0]:
        world.counters[NEXT_ARRIVAL] += 1
        _arrive(world, arrival)
        return
    item = heap_top(world.calendar, 0)
    heap_remove(world.calendar, 0, item)
    if item < len(world.servers):
        _complete(world, item)
    elif item < len(world.servers) + len(world.pipes):
        leave_pipe(world, item - len(world.servers))
    else:
        _let_go(world, item - len(world.servers) - len(world.pipes))


@linked
def _let_go(world: SimulationWorld, item: int) -> None:
    """An event of a hold, or the beginning or end of a batch."""
    batch = item - len(world.holds)
    if batch < 0:
        let_go(world, item)
    elif world.batches[batch]["state"] == 0:
        begin_batch(world, batch)
    else:
        end_batch(world, batch)


@spliced
def _arrive(world: SimulationWorld, arrival: int) -> None:
    event = allocate_event(world)
    row = world.arrivals[arrival]
    world.events[event]["id"] = row["id"]
    world.events[event]["seq"] = arrival
    world.events[event]["stimulus"] = row["stimulus"]
    world.events[event]["since"] = row["stimulus"]
    world.events[event]["stamp"] = row["stimulus"]
    world.events[event]["p"] = row["p"]
    world.events[event]["group"] = row["group"]
    world.events[event]["slot"] = 0
    world.events[event]["marker"] = 0
    entry = row["entry"]
    world.events[event]["source"] = row["source"]
    first, last = world.source_edges[entry, 0], world.source_edges[entry, 1]
    if len(world.holds) > 0:
        emit_held(world, event, first, last, 0, -1)
    else:
        emit_event(world, event, first, last, 0)
    free_event(world, event)


@spliced
def _complete(world: SimulationWorld, server: int) -> None:
    event, station = world.servers[server]["event"], world.servers[server]["station"]
    world.servers[server]["event"] = -1
    wake(world, server)
    row = world.stations[station]
    if row["link_bytes"] >= 0.0:
        travel(world, event, row["pipe"])
        return
    outputs = 0
    if world.events[event]["marker"] == 0:
        outputs = count_outputs(world, event)
        _sample(world, event, outputs)
    if len(world.holds) > 0:
        _complete_held(world, station, event, outputs)
        return
    for number in range(outputs):
        if row["first_edge"] == row["last_edge"]:
            record_event(world, event, row["operator"])
        else:
            emit_event(world, event, row["first_edge"], row["last_edge"], number)
    free_event(world, event)


@linked
def _complete_held(world: SimulationWorld, station: int, event: int, outputs: int) -> None:
    """Outputs of an event where something holds events up: into its window, or on; a marker where there are none."""
    row = world.stations[station]
    if row["window"] >= 0:
        for number in range(outputs):
            hold_result(world, event, station, number)
        note_event(world, row["window"], event)
    else:
        for number in range(outputs):
            put_out(world, event, station, number)
    if row["tells"] == 1 and (outputs == 0 or row["window"] >= 0):
        world.events[event]["marker"] = 1
        put_out(world, event, station, MARKER)
    free_event(world, event)
    if row["batch"] >= 0:
        leave_batch(world, row["batch"])


@spliced
def _sample(world: SimulationWorld, event: int, outputs: int) -> None:
    """Count the event for the statistics of its sample group; its cycles were counted when it started."""
    row = world.events[event]
    if row["group"] >= 0:
        world.sampled[row["input"], row["group"], 0] += 1.0
        world.sampled[row["input"], row["group"], 1] += outputs


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
