"""Holds of the simulator: windows, buffers of exchanges, and micro-batches with what waits for them and leaves them.

A hold keeps events in a queue of its own. On the calendar it stands at the time at which its next event may leave; of
those that may leave at one instant, each step lets one go.
"""

from __future__ import annotations

import math

from engine.compiler import linked
from engine.simulation.queues import heap_put, heap_remove, queue_push
from engine.simulation.rows import BUFFER, CLOCK, COUNT, WATERMARK, Counter, SimulationWorld

__all__ = [
    "await_batch",
    "begin_batch",
    "end_batch",
    "hold_event",
    "leave_batch",
    "may_leave",
    "note_event",
    "schedule_hold",
]

IDLE, RUNNING, ENDING = 0, 1, 2
TOLERANCE = 1e-9  # of a period
NEXT_ARRIVAL = Counter.NEXT_ARRIVAL


@linked
def _boundary_after(time: float, period_s: float, phase_s: float) -> float:
    return float((math.floor((time + phase_s) / period_s + TOLERANCE) + 1.0) * period_s - phase_s)


@linked
def hold_event(world: SimulationWorld, hold: int, event: int) -> None:
    """Put an event into a hold's queue, in order of the time at which it is due."""
    row, now = world.holds[hold], world.clock[0]
    due = now
    if row["kind"] == CLOCK or row["kind"] == BUFFER:
        due = _boundary_after(now, row["period_s"], row["phase_s"])
    elif row["kind"] == WATERMARK:
        due = _window_end(world, hold, event)
        world.events[event]["stamp"] = due
    elif row["kind"] == COUNT:
        world.events[event]["stamp"] = now
    world.events[event]["due"] = due
    world.events[event]["order"] = world.events[event]["seq"]
    if row["kind"] == WATERMARK:  # windows close in order, also where events of several sources come in none
        world.events[event]["order"] = math.floor((due + row["phase_s"]) / row["period_s"] + 0.5)
    elif row["kind"] != COUNT:
        world.events[event]["order"] = 0
    queue_push(world.queues, world.events, row["queue"], event)
    row["held"] += 1
    if row["kind"] == WATERMARK and row["batch"] >= 0 and due <= row["watermark"] + TOLERANCE * row["period_s"]:
        row["opened"] += 1  # closed when its batch began: it leaves within it
        world.batches[row["batch"]]["inside"] += 1
    schedule_hold(world, hold)


@linked
def _window_end(world: SimulationWorld, hold: int, event: int) -> float:
    """End of the first window that holds an event; a result belongs to the windows that end no sooner than its own."""
    row, stamp = world.holds[hold], world.events[event]["stamp"]
    if stamp == world.events[event]["stimulus"]:
        return _boundary_after(stamp, row["period_s"], row["phase_s"])
    turns = math.ceil((stamp + row["phase_s"]) / row["period_s"] - TOLERANCE)
    return float(turns * row["period_s"] - row["phase_s"])


@linked
def may_leave(world: SimulationWorld, hold: int) -> bool:
    """Whether the first event of a hold may leave now."""
    row = world.holds[hold]
    head = world.queues[row["queue"]]["head"]
    if head < 0:
        return False
    if row["batch"] >= 0 or row["kind"] == COUNT or row["opened"] > 0:
        return bool(row["opened"] > 0)
    if row["kind"] == WATERMARK:
        return bool(world.events[head]["due"] <= row["watermark"] + TOLERANCE * row["period_s"])
    return bool(world.events[head]["due"] <= world.clock[0])


@linked
def schedule_hold(world: SimulationWorld, hold: int) -> None:
    """Put a hold on the calendar for the next event that it lets go, or take it off."""
    row = world.holds[hold]
    item = len(world.servers) + len(world.pipes) + hold
    if may_leave(world, hold):
        heap_put(world.calendar, 0, item, world.clock[0])
        return
    head = world.queues[row["queue"]]["head"]
    if head >= 0 and row["batch"] < 0 and (row["kind"] == CLOCK or row["kind"] == BUFFER):
        heap_put(world.calendar, 0, item, world.events[head]["due"])
    elif world.calendar.place[item] >= 0:
        heap_remove(world.calendar, 0, item)


@linked
def note_event(world: SimulationWorld, hold: int, event: int) -> None:
    """Take note of an event that an operator has processed: its window may be full, or its watermark move."""
    row, seen = world.holds[hold], world.events[event]
    if row["kind"] == COUNT:
        if seen["marker"] == 0:
            row["filled"] += 1.0
            if row["filled"] >= row["size"]:
                row["filled"], row["full"] = 0.0, row["held"]
                if row["batch"] < 0:
                    row["opened"] = row["full"]
                    schedule_hold(world, hold)
    elif row["kind"] == WATERMARK:
        marks = world.marks[hold]
        if seen["stimulus"] > marks[seen["source"]]:
            marks[seen["source"]] = seen["stimulus"]
        if row["batch"] < 0:
            _move_watermark(world, hold)
            schedule_hold(world, hold)


@linked
def _move_watermark(world: SimulationWorld, hold: int) -> None:
    latest = math.inf
    for source in range(world.marks.shape[1]):
        latest = min(latest, world.marks[hold, source])
    world.holds[hold]["watermark"] = latest - world.holds[hold]["delay_s"]


@linked
def begin_batch(world: SimulationWorld, batch: int) -> None:
    """Open what waits for a batch, and the windows that were closed when the last one ended."""
    row = world.batches[batch]
    gate = world.holds[row["gate"]]
    gate["opened"] = gate["held"]
    row["begun_s"], row["inside"] = world.clock[0], gate["held"]
    for member in range(row["first_window"], row["last_window"]):
        hold = world.members[member]
        world.holds[hold]["opened"] = _due(world, hold)
        world.holds[hold]["full"] = 0
        row["inside"] += world.holds[hold]["opened"]
    if row["inside"] == 0:
        row["state"] = IDLE
        await_batch(world, batch, world.clock[0])
        return
    row["state"] = RUNNING
    schedule_hold(world, row["gate"])
    for member in range(row["first_window"], row["last_window"]):
        schedule_hold(world, world.members[member])


@linked
def _due(world: SimulationWorld, hold: int) -> int:
    """Events of a window within a batch that its watermark, or the clock, has passed."""
    row, count = world.holds[hold], 0
    if row["kind"] == COUNT:
        return int(row["full"])
    until = row["watermark"] if row["kind"] == WATERMARK else world.clock[0]
    event = world.queues[row["queue"]]["head"]
    while event >= 0 and world.events[event]["due"] <= until + TOLERANCE * row["period_s"]:
        count += 1
        event = world.events[event]["next"]
    return count


@linked
def leave_batch(world: SimulationWorld, batch: int) -> None:
    """Count an event out of its batch; with the last one the batch ends, after its fixed time."""
    row = world.batches[batch]
    row["inside"] -= 1
    if row["inside"] == 0 and row["state"] == RUNNING:
        row["state"] = ENDING
        item = len(world.servers) + len(world.pipes) + len(world.holds) + batch
        heap_put(world.calendar, 0, item, world.clock[0] + row["overhead_s"])


@linked
def end_batch(world: SimulationWorld, batch: int) -> None:
    """Let out what the batch has made, move the watermarks, and wait for the next trigger."""
    row = world.batches[batch]
    row["state"] = IDLE
    world.holds[row["exit"]]["opened"] = world.holds[row["exit"]]["held"]
    schedule_hold(world, row["exit"])
    for member in range(row["first_window"], row["last_window"]):
        if world.holds[world.members[member]]["kind"] == WATERMARK:
            _move_watermark(world, world.members[member])
    await_batch(world, batch, row["begun_s"])


@linked
def await_batch(world: SimulationWorld, batch: int, since: float) -> None:
    """Put the trigger after `since` on the calendar, while there is or will be something to take; a late one is now."""
    row = world.batches[batch]
    goes_on = world.counters[NEXT_ARRIVAL] < len(world.arrivals) or world.holds[row["gate"]]["held"] > 0
    for member in range(row["first_window"], row["last_window"]):
        hold = world.members[member]
        by_clock = world.holds[hold]["kind"] == CLOCK and world.holds[hold]["held"] > 0
        goes_on = goes_on or by_clock or _due(world, hold) > 0
    item = len(world.servers) + len(world.pipes) + len(world.holds) + batch
    if goes_on and row["state"] == IDLE and world.calendar.place[item] < 0:
        due = _boundary_after(since, row["interval_s"], row["phase_s"])
        heap_put(world.calendar, 0, item, max(due, world.clock[0]))
