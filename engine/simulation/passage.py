"""Ways of events in the simulator: from operator to operator, over links, into holds and out of them."""

from __future__ import annotations

import math

from engine.compiler import linked, spliced
from engine.simulation.holds import await_batch, hold_event, leave_batch, may_leave, schedule_hold
from engine.simulation.queues import heap_put, queue_pop
from engine.simulation.rows import BUFFER, CLOCK, COUNT, WATERMARK, Counter, SimulationWorld
from engine.simulation.service import child_id, enqueue

__all__ = [
    "allocate_event",
    "emit_event",
    "emit_held",
    "free_event",
    "hold_result",
    "leave_pipe",
    "let_go",
    "put_out",
    "record_event",
    "travel",
]

RECORDS, FREE_HEAD, FREE = Counter.RECORDS, Counter.FREE_HEAD, Counter.FREE
RESULT = 2_000_000  # number of the first result that a hold keeps, apart from those that readers get


@spliced
def allocate_event(world: SimulationWorld) -> int:
    event = world.counters[FREE_HEAD]
    world.counters[FREE_HEAD] = world.events[event]["next"]
    world.counters[FREE] -= 1
    return int(event)


@spliced
def free_event(world: SimulationWorld, event: int) -> None:
    world.events[event]["next"] = world.counters[FREE_HEAD]
    world.counters[FREE_HEAD] = event
    world.counters[FREE] += 1


@spliced
def _descend(world: SimulationWorld, parent: int, number: int) -> int:
    """A new event that descends from another."""
    event = allocate_event(world)
    parent_event, child = world.events[parent], world.events[event]
    child["id"] = child_id(parent_event["id"], number)
    child["seq"] = parent_event["seq"]
    child["stimulus"] = parent_event["stimulus"]
    child["since"] = parent_event["since"]
    child["stamp"] = parent_event["stamp"]
    child["source"] = parent_event["source"]
    child["marker"] = parent_event["marker"]
    child["p"] = parent_event["p"]
    child["group"] = parent_event["group"]
    child["slot"] = parent_event["slot"]
    return event


@spliced
def emit_event(world: SimulationWorld, parent: int, first_edge: int, last_edge: int, number: int) -> None:
    """One output of `parent`, copied to every input that reads it."""
    for edge in range(first_edge, last_edge):
        row = world.edges[edge]
        target = _choose(world, row["first_target"], row["last_target"])
        _depart(world, _read_by(world, parent, edge, target, number * (last_edge - first_edge) + edge - first_edge))


@linked
def emit_held(world: SimulationWorld, parent: int, first_edge: int, last_edge: int, number: int, batch: int) -> None:
    """The same where something holds events up, from a batch or none (-1).

    Of a marker, copies go to those only that have windows behind them.
    """
    for edge in range(first_edge, last_edge):
        row = world.edges[edge]
        target = row["first_target"]
        if world.events[parent]["marker"] == 1:
            if world.stations[world.targets[target]["station"]]["listens"] == 0:
                continue
        else:
            target = _choose(world, row["first_target"], row["last_target"])
        event = _read_by(world, parent, edge, target, number * (last_edge - first_edge) + edge - first_edge)
        _cross(world, event, batch)


@spliced
def _read_by(world: SimulationWorld, parent: int, edge: int, target: int, number: int) -> int:
    """A new event that descends from another, on its way over an edge."""
    row = world.edges[edge]
    event = _descend(world, parent, number)
    child = world.events[event]
    child["input"] = row["input"]
    child["slot"] = row["first_slot"] + world.events[parent]["slot"] * row["keeps_slot"]
    child["target"] = world.targets[target]["station"]
    child["leg"] = target
    return event


@linked
def _cross(world: SimulationWorld, event: int, batch: int) -> None:
    """From a batch, or none (-1), to the target: within it at once, out when it ends, into another when that begins."""
    into = world.stations[world.events[event]["target"]]["batch"]
    if batch >= 0 and into != batch:
        hold_event(world, world.batches[batch]["exit"], event)
    elif batch < 0 and into >= 0:
        hold_event(world, world.batches[into]["gate"], event)
        await_batch(world, into, world.clock[0])
    else:
        if batch >= 0:
            world.batches[batch]["inside"] += 1
        _depart_held(world, event)


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
def _depart(world: SimulationWorld, event: int) -> None:
    """By its leg: into the queue of a link with a bandwidth, or on its way to the operator."""
    leg = world.events[event]["leg"]
    if world.targets[leg]["via"] >= 0:
        enqueue(world, world.targets[leg]["via"], event)
    else:
        travel(world, event, world.targets[leg]["pipe"])


@linked
def _depart_held(world: SimulationWorld, event: int) -> None:
    _depart(world, event)


@spliced
def travel(world: SimulationWorld, event: int, pipe: int) -> None:
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
def leave_pipe(world: SimulationWorld, pipe: int) -> None:
    row = world.pipes[pipe]
    event = row["head"]
    row["head"] = world.events[event]["next"]
    if row["head"] >= 0:
        heap_put(world.calendar, 0, len(world.servers) + pipe, world.events[row["head"]]["due"])
    enqueue(world, world.events[event]["target"], event)


@linked
def put_out(world: SimulationWorld, event: int, station: int, number: int) -> None:
    """One output of an event at a station that has a buffer, is of a batch, or has windows behind it."""
    row = world.stations[station]
    if row["buffer"] >= 0:
        _fill_buffer(world, event, station, number)
    else:
        _send(world, event, station, number)


@linked
def _send(world: SimulationWorld, event: int, station: int, number: int) -> None:
    """An output on its way to those who read it, or to the end of its query."""
    row = world.stations[station]
    if row["first_edge"] < row["last_edge"]:
        emit_held(world, event, row["first_edge"], row["last_edge"], number, row["batch"])
    elif world.events[event]["marker"] == 0:
        if row["batch"] >= 0:
            _finish_with_batch(world, event, station, number)
        else:
            record_event(world, event, row["operator"])


@linked
def _finish_with_batch(world: SimulationWorld, event: int, station: int, number: int) -> None:
    result = _descend(world, event, RESULT + number)
    world.events[result]["target"], world.events[result]["leg"] = station, -1
    hold_event(world, world.batches[world.stations[station]["batch"]]["exit"], result)


@linked
def _fill_buffer(world: SimulationWorld, event: int, station: int, number: int) -> None:
    hold = world.stations[station]["buffer"]
    result = _descend(world, event, RESULT + number)
    world.events[result]["target"] = station
    hold_event(world, hold, result)
    row = world.holds[hold]
    if world.events[result]["marker"] == 0:
        row["filled"] += row["delay_s"]  # of a buffer: the bytes of an event
    if row["size"] > 0.0 and row["filled"] >= row["size"]:
        row["filled"], row["opened"] = 0.0, row["held"]
        schedule_hold(world, hold)


@linked
def hold_result(world: SimulationWorld, event: int, station: int, number: int) -> None:
    """Keep one output of an event until its window closes."""
    hold = world.stations[station]["window"]
    result = _descend(world, event, RESULT + number)
    world.events[result]["target"] = station
    hold_event(world, hold, result)


@linked
def let_go(world: SimulationWorld, hold: int) -> None:
    """Let the first event of a hold go on, if it may."""
    row = world.holds[hold]
    if not may_leave(world, hold):
        schedule_hold(world, hold)
        return
    event = queue_pop(world.queues, world.events, row["queue"])
    row["held"] -= 1
    if row["opened"] > 0:
        row["opened"] -= 1
    schedule_hold(world, hold)
    if row["kind"] == BUFFER:
        station = world.events[event]["target"]
        _send(world, event, station, 0)
        free_event(world, event)
    elif row["kind"] == CLOCK or row["kind"] == WATERMARK or row["kind"] == COUNT:
        station = world.events[event]["target"]
        if row["kind"] != WATERMARK:
            world.events[event]["stamp"] = world.clock[0]
        if row["restarts"] == 1:
            world.events[event]["since"] = world.events[event]["stamp"]
        put_out(world, event, station, 0)
        free_event(world, event)
        if row["batch"] >= 0:
            leave_batch(world, row["batch"])
    elif world.events[event]["leg"] < 0:
        record_event(world, event, world.stations[world.events[event]["target"]]["operator"])
        free_event(world, event)
    elif world.batches[row["batch"]]["gate"] == hold:
        _depart_held(world, event)
    else:
        _cross(world, event, -1)


@spliced
def record_event(world: SimulationWorld, event: int, operator: int) -> None:
    row = world.records[world.counters[RECORDS]]
    world.counters[RECORDS] += 1
    row["stimulus"] = world.events[event]["since"]
    row["egress"] = world.clock[0]
    row["operator"] = operator
    row["p"] = world.events[event]["p"]
