"""The simulation's loop: bins of time in order; within a bin every core runs what the policy picks."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from pathlib import Path

from engine.compiler import compiled_uncounted
from engine.klink.simulation.policies import pick
from engine.klink.simulation.stage import compiled_part, front, has_work, is_sweepable, pending_at
from engine.klink.simulation.world import KlinkWorld

__all__ = ["run"]

_SPANS = 1
_MIN_WORK = 1e-9


@compiled_part
def admit_arrivals(world: KlinkWorld, n: int, b: int) -> None:
    """Take in the arrivals of a node until the bin begins; above its intake limit a share is refused."""
    room, wanted = world.intake * (world.nodes[n]["end_core"] - world.nodes[n]["first_core"]), 0.0
    for s in range(world.nodes[n]["first_stage"], world.nodes[n]["end_stage"]):
        room -= world.stages[s]["waiting"] * (world.stages[s]["cost"] + world.stages[s]["further"])
        if world.stages[s]["fed"] == 0:
            wanted += world.arriving[s, b] * (world.stages[s]["cost"] + world.stages[s]["further"])
    share = 1.0 if wanted <= room else max(0.0, room) / wanted
    for s in range(world.nodes[n]["first_stage"], world.nodes[n]["end_stage"]):
        events = world.arriving[s, b]
        if world.stages[s]["fed"] == 0 and share < 1.0:
            world.stages[s]["refused"] += (1.0 - share) * events
            events *= share
            world.arriving[s, b] = events
        world.stages[s]["waiting"] += events
        world.stages[s]["came"] += events
        world.stages[s]["peak"] = max(world.stages[s]["peak"], world.stages[s]["waiting"])
        if (
            events > 0.0
            and world.stages[s]["oldest"] >= world.stages[s]["head"]
            and world.stimulus[s, b] < world.stimulus[s, world.stages[s]["oldest"]]
        ):
            world.stages[s]["oldest"] = b
        for j in range(world.stages[s]["streams"]):
            ingest_watermarks(world, s, j, b * world.tick)


@compiled_part
def ingest_watermarks(world: KlinkWorld, s: int, j: int, now: float) -> None:
    """Take in the watermarks of a stream; each finishes an epoch of the history."""
    row = world.stages[s]
    w = world.ingested[s, j]
    while w < row["windows"] and world.marks[s, w, j] <= now:
        world.ingested[s, j] = w + 1
        add_epoch(world, s, j, w, 1.0)
        if w >= world.history:
            add_epoch(world, s, j, w - world.history, -1.0)
        world.position[s, w] = row["came"]
        w += 1


@compiled_part
def add_epoch(world: KlinkWorld, s: int, j: int, w: int, sign: float) -> None:
    """Add an epoch to the sums, or take it out of them."""
    mean = world.mean[s, w, j]
    world.sums[s, j, 0] += sign * mean
    world.sums[s, j, 1] += sign * mean * mean
    world.sums[s, j, 2] += sign * world.square[s, w, j]


@compiled_part
def shed_old_events(world: KlinkWorld, s: int, b: int) -> None:
    """Send on events that have waited too long."""
    row = world.stages[s]
    h, before = row["head"], b * world.tick - row["age"]
    while h <= b and h * world.tick < before:
        remove_events(world, s, h, world.arriving[s, h])
        row["overflow"] += world.arriving[s, h]
        world.arriving[s, h] = 0.0
        h += 1
    row["head"] = h


@compiled_part
def remove_events(world: KlinkWorld, s: int, h: int, events: float) -> None:
    """Remove events of a bin from the queue."""
    row = world.stages[s]
    row["waiting"] -= events
    row["gone"] += events
    if row["waiting"] < _MIN_WORK:
        row["waiting"] = 0.0


@compiled_part
def update_memory_mode(world: KlinkWorld, n: int, now: float) -> None:
    """Update the memory mode of a node; like `engine.klink.policies.MemoryMode`."""
    held = 0.0
    for s in range(world.nodes[n]["first_stage"], world.nodes[n]["end_stage"]):
        held += world.stages[s]["waiting"] * world.stages[s]["event_bytes"]
    mode = world.nodes[n]
    over = now - mode["since"] >= world.relief
    if mode["relieving"] > 0.0 and held <= world.memory_bound * (1.0 - world.release):
        mode["relieving"], mode["since"] = 0.0, -math.inf
    elif over and (mode["relieving"] > 0.0 or held >= world.memory_bound):
        mode["relieving"], mode["since"] = 1.0 - mode["relieving"], now


@compiled_part
def sweep_windows(world: KlinkWorld, s: int, now: float, b: int) -> None:
    """Sweep the windows whose watermarks have no events before them."""
    row = world.stages[s]
    while is_sweepable(world, s):
        w = row["swept"]
        if row["waiting"] > 0.0 and world.position[s, w] - row["gone"] > _MIN_WORK * (1.0 + row["came"]):
            return
        world.swept_at[s, w] = now
        row["swept"] = w + 1
        if row["feeds"] >= 0:
            forward_watermark(world, s, w, now)


@compiled_part
def forward_watermark(world: KlinkWorld, s: int, w: int, now: float) -> None:
    """A watermark goes on to the next node; what it tells of delays is known there where they are forwarded."""
    target = world.stages[s]["feeds"]
    world.marks[target, w, 0] = now + world.link


@compiled_part
def emit_events(world: KlinkWorld, s: int, h: int, events: float, now: float, b: int) -> None:
    """Send processed events of a stage to the stage it feeds."""
    row = world.stages[s]
    target = row["feeds"]
    if target < 0:
        return
    at = max(b + 1, math.ceil((now + world.link) / world.tick))
    if at < world.arriving.shape[1]:
        if world.arriving[target, at] <= 0.0 or world.stimulus[s, h] < world.stimulus[target, at]:
            world.stimulus[target, at] = world.stimulus[s, h]
        world.arriving[target, at] += events * row["out"]


@compiled_part
def process_stage(world: KlinkWorld, s: int, now: float, end: float, b: int) -> float:
    """Run a stage from `now` until `end` or until nothing waits; returns when it stopped."""
    row = world.stages[s]
    sweep_windows(world, s, now, b)
    while row["waiting"] > 0.0 and now < end:
        h = front(world, s, b)
        row["head"] = h
        if h > b:  # what is left is the rounding of sums
            row["waiting"] = 0.0
            break
        cost, events = row["cost"], world.arriving[s, h]
        done = events
        if cost * events > end - now:
            done = (end - now) / cost
        if is_sweepable(world, s):  # its watermark may lie within the bin
            before = world.position[s, row["swept"]] - row["gone"]
            if _MIN_WORK * (1.0 + row["came"]) < before < done:
                done = before
        now = end if cost * events > end - now and done == (end - now) / cost else now + done * cost
        world.arriving[s, h] = 0.0 if done >= events else events - done
        row["processed"] += done
        remove_events(world, s, h, done)
        emit_events(world, s, h, done, now, b)
        sweep_windows(world, s, now, b)
    if row["waiting"] <= 0.0:
        sweep_windows(world, s, now, b)
    return now


@compiled_part
def record_span(world: KlinkWorld, s: int, c: int, begin: float, end: float) -> None:
    """Record a span of the trace; extend the last one of this core if it continues there."""
    count = world.counters[_SPANS]
    if count < len(world.spans) and end > begin:
        world.spans[count, 0], world.spans[count, 1] = begin, end
        world.spans[count, 2], world.spans[count, 3] = s, c
        world.counters[_SPANS] = count + 1


@compiled_part
def next_free(world: KlinkWorld, n: int, now: float, end: float) -> float:
    """Time when a stage with work that another core runs in this bin is free again; `end` if there is none."""
    soonest = end
    for s in range(world.nodes[n]["first_stage"], world.nodes[n]["end_stage"]):
        if world.stages[s]["taken"] == 0 and now < world.stages[s]["free_at"] < soonest and has_work(world, s):
            soonest = world.stages[s]["free_at"]
    return soonest


@compiled_part
def run_core(world: KlinkWorld, n: int, c: int, b: int) -> None:
    """Run one core for the length of a bin."""
    now, end = b * world.tick, (b + 1) * world.tick
    while now < end:
        s = world.cores[c]["running"]
        if s >= 0 and (world.cores[c]["until"] <= now or not has_work(world, s)):
            world.stages[s]["taken"], world.stages[s]["free_at"] = 0, now
            world.cores[c]["running"] = s = -1
        if s < 0:
            s = pick(world, n, now, b)
            if s < 0:
                later = next_free(world, n, now, end)
                world.nodes[n]["idled"] = later
                now = later
                continue
            world.cores[c]["running"], world.stages[s]["taken"], world.cores[c]["until"] = s, 1, now + world.cycle
        begin, now = now, process_stage(world, s, now, min(end, world.cores[c]["until"]), b)
        world.cores[c]["busy"] += now - begin
        record_span(world, s, c, begin, now)
    s = world.cores[c]["running"]
    if s >= 0 and not has_work(world, s):
        world.stages[s]["taken"], world.stages[s]["free_at"], world.cores[c]["running"] = 0, now, -1


@compiled_part
def sample_queues(world: KlinkWorld, n: int, b: int) -> None:
    """Sample queues and used time."""
    row = b // world.sample
    if b % world.sample == 0 and row < len(world.memory):
        held, used = 0.0, 0.0
        for s in range(world.nodes[n]["first_stage"], world.nodes[n]["end_stage"]):
            held += world.stages[s]["waiting"] * world.stages[s]["event_bytes"]
        for c in range(world.nodes[n]["first_core"], world.nodes[n]["end_core"]):
            used += world.cores[c]["busy"]
        world.memory[row, n], world.used[row, n] = held, used


@compiled_part
def is_drained(world: KlinkWorld, b: int) -> bool:
    """Whether nothing waits, nothing travels between nodes, and no further window can be swept."""
    soon = min(world.arriving.shape[1], b + 2 + math.ceil(world.link / world.tick))
    for s in range(len(world.stages)):
        row = world.stages[s]
        if has_work(world, s) or (row["swept"] < row["windows"] and pending_at(world, s) < math.inf):
            return False
        for h in range(b, soon):
            if world.arriving[s, h] > 0.0:
                return False
    return True


def _stamp() -> int:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return int.from_bytes(digest.digest()[:7], "big")


def _entry(stamp: int) -> Callable[[KlinkWorld], int]:
    """The loop, compiled for these sources: `stamp` is part of its key, so changed parts never run as they were."""

    @compiled_uncounted
    def run(world: KlinkWorld) -> int:
        """Run all bins of a world, those that drain until all is swept; how many were run."""
        bins, nodes, epochs = world.arriving.shape[1], len(world.nodes), 0
        for b in range(bins):
            if b >= world.horizon and is_drained(world, b):
                return b
            now = b * world.tick
            overdue = now >= (epochs + 1) * world.epoch
            epochs += 1 if overdue else 0
            for n in range(nodes):
                if overdue:
                    for s in range(world.nodes[n]["first_stage"], world.nodes[n]["end_stage"]):
                        if world.stages[s]["age"] < math.inf:
                            shed_old_events(world, s, b - 1)
                admit_arrivals(world, n, b)
                if world.memory_bound < math.inf:
                    update_memory_mode(world, n, now)
                sample_queues(world, n, b)
                for c in range(world.nodes[n]["first_core"], world.nodes[n]["end_core"]):
                    run_core(world, n, c, b)
        return bins if stamp else 0

    return run


run = _entry(_stamp())
