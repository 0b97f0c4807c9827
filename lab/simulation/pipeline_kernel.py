"""The event loop of a mini-batch map-reduce stage: distributors, mappers, shuffle batches, polls and reducers."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from engine.compiler import compiled_uncounted, source_stamp, spliced
from engine.simulation.queues import heap_put, heap_top
from lab.simulation.pipeline_tables import (
    FETCH,
    MAP,
    RECEIVE,
    REDUCE,
    PipelineTotal,
    PipelineWorld,
    advance_work,
    begin_task,
    draw_binomial,
    draw_factor,
    draw_poisson,
    draw_uniform,
    end_task,
    reschedule,
)

__all__ = ["PIECES", "run_pipeline"]

PIECES = 16  # a finalize is split into so many tasks: each ends at its own time, however many threads share the cores
_IDLE, _OWED, _MAIN, _PROBE, _PIECE = range(5)  # what a thread is at
_NO_WORK = -1.0

_ARRIVED, _MAPPED, _EMITTED = PipelineTotal.ARRIVED, PipelineTotal.MAPPED, PipelineTotal.EMITTED
_WRITTEN, _FETCHED, _REDUCED = PipelineTotal.WRITTEN, PipelineTotal.FETCHED, PipelineTotal.REDUCED
_READY, _TUPLES, _WINDOWS = PipelineTotal.READY, PipelineTotal.TUPLES, PipelineTotal.WINDOWS
_WOKEN, _LEVELS, _STAMP = PipelineTotal.WOKEN, PipelineTotal.LEVELS, PipelineTotal.STAMP


@spliced
def _wake(world: PipelineWorld, slot: int) -> None:
    """Look whether the slot has something to do once this event is through."""
    world.woken[world.totals[_WOKEN]] = slot
    world.totals[_WOKEN] += 1


@spliced
def _opened(world: PipelineWorld, node: int, batch: int) -> float:
    """When a batch of a node's distributor opened."""
    return float(world.nodes[node]["phase"] + (batch - 1) * world.rates.b_in_s)


@spliced
def _close_batch(world: PipelineWorld, node: int, now: float) -> float:
    """A distributor closes a batch; when it closes the next one."""
    row = world.nodes[node]
    expected = world.rates.batch_inputs if now <= world.rates.horizon_s else 0.0
    inputs = draw_poisson(world.draws, expected)
    world.batches[node, row["closed"]]["inputs"] = inputs
    world.totals[_ARRIVED] += inputs
    row["closed"] += 1
    _wake(world, row["slot"])
    return float(row["phase"] + row["closed"] * world.rates.b_in_s)


@spliced
def _close_shuffle(world: PipelineWorld, mapper: int, now: float) -> float:
    """A mapper closes a shuffle batch with what it has emitted; when it closes the next one."""
    row = world.mappers[mapper]
    stimulus = _opened(world, row["node"], row["batch"])
    if row["task"] == _MAIN:
        resource = world.slots[row["slot"]]["resource"]
        advance_work(world.resources, resource, now)
        done = row["work"] - (world.slots[row["slot"]]["finish"] - world.resources[resource]["virtual"])
        tuples = row["work"] - row["before"]
        share = min(max((done - row["before"]) / tuples, 0.0), 1.0) if tuples > 0.0 else 0.0
        _emit(world, mapper, int(math.floor(share * row["inputs"])), now)  # noqa: RUF046 - a float when compiled
        stimulus += share * world.rates.b_in_s
    shuffle = world.shuffles[mapper, row["closed"]]
    shuffle["closed"] = now
    shuffle["first_chunk"] = row["open_chunk"]
    shuffle["last_chunk"] = row["chunk"]
    shuffle["outputs"] = row["outputs"]
    shuffle["mark"] = max(0.0, math.floor(stimulus / world.rates.period_s))
    row["open_chunk"] = row["chunk"]
    row["outputs"] = 0
    row["closed"] += 1
    row["owed"] += world.rates.c_sh * len(world.reducers)
    _wake(world, row["slot"])
    _wake(world, row["writer"])
    return float(row["phase"] + row["closed"] * world.rates.b_sh_s)


@compiled_uncounted
def _emit(world: PipelineWorld, mapper: int, upto: int, now: float) -> None:
    """The outputs of the batch's inputs up to a position go into the mapper's open shuffle batch."""
    row = world.mappers[mapper]
    inputs = upto - row["emitted"]
    if inputs <= 0:
        return
    whole = math.floor(world.rates.alpha)
    outputs = int(whole) * inputs
    if world.rates.alpha > whole:
        outputs += draw_binomial(world.draws, inputs, world.rates.alpha - whole)
    row["outputs"] += outputs
    row["held_bytes"] += outputs * world.rates.b_out
    chunk = world.chunks[mapper, row["chunk"]]
    chunk["batch"] = row["batch"]
    chunk["outputs"] = row["outputs"]
    chunk["low"] = row["emitted"] / row["inputs"]
    chunk["high"] = upto / row["inputs"]
    chunk["begun"] = row["emitted_at"]
    chunk["ended"] = now
    row["chunk"] += 1
    row["emitted"] = upto
    row["emitted_at"] = now
    world.totals[_MAPPED] += inputs
    world.totals[_EMITTED] += outputs


@spliced
def _poll(world: PipelineWorld, reducer: int) -> float:
    """A reducer asks for all shuffle batches that are written; when it asks again.

    It goes from mapper to mapper, from a drawn one on, and fetches what each has, oldest first; or oldest first of all.
    """
    row = world.reducers[reducer]
    mappers = len(world.mappers)
    world.counts[:] = 0
    start = int(draw_uniform(world.draws) * mappers)
    if world.rates.is_oldest_first == 0:
        for place in range(row["polled"], world.totals[_READY]):
            world.counts[(world.order[place, 0] + mappers - start) % mappers] += 1
        before = row["polled"]
        for turn in range(mappers):
            before += world.counts[turn]
            world.counts[turn] = before - world.counts[turn]
    for place in range(row["polled"], world.totals[_READY]):
        target = place
        if world.rates.is_oldest_first == 0:
            turn = (world.order[place, 0] + mappers - start) % mappers
            target = world.counts[turn]
            world.counts[turn] += 1
        world.partitions[reducer, target]["mapper"] = world.order[place, 0]
        world.partitions[reducer, target]["number"] = world.order[place, 1]
    row["polled"] = world.totals[_READY]
    row["polls"] += 1
    row["owed"] += world.rates.c_hb
    _wake(world, row["slot"])
    _wake(world, row["link_slot"])
    return float(row["phase"] + row["polls"] * world.rates.b_ch_s)


@spliced
def _next_work(world: PipelineWorld, slot: int, now: float) -> float:
    """The work that an idle slot takes up, in seconds of a core or bytes; below 0 for none."""
    kind, owner = world.slots[slot]["kind"], world.slots[slot]["owner"]
    if kind == MAP:
        return _next_map(world, owner, now)
    if kind == REDUCE:
        return _next_reduce(world, owner, now)
    if kind == RECEIVE:
        return _next_receive(world, owner, now)
    if kind == FETCH:
        return _next_fetch(world, owner, now)
    return _next_write(world, owner, now)


@spliced
def _next_receive(world: PipelineWorld, node: int, now: float) -> float:
    row = world.nodes[node]
    if row["received"] >= row["closed"]:
        return _NO_WORK
    batch = world.batches[node, row["received"]]
    batch["begun"] = now
    return float(batch["inputs"] * world.rates.b_in * draw_factor(world.draws, world.rates.cv2_net))


@spliced
def _next_map(world: PipelineWorld, mapper: int, now: float) -> float:
    """Work beside batches comes first, then the next batch that was received, if the buffer has room for outputs."""
    row = world.mappers[mapper]
    if row["owed"] > 0.0:
        work = row["owed"]
        row["owed"] = 0.0
        row["task"] = _OWED
        return float(work)
    row["task"] = _IDLE
    if row["batch"] >= world.nodes[row["node"]]["received"]:
        return _NO_WORK
    if row["held_bytes"] >= world.rates.buffer_bytes:
        row["blocked_since"] = min(row["blocked_since"], now)
        return _NO_WORK
    if row["blocked_since"] < math.inf:
        row["blocked"] += now - row["blocked_since"]
        row["blocked_since"] = math.inf
    batch = world.batches[row["node"], row["batch"]]
    batch["mapped"] = now
    factor = draw_factor(world.draws, world.rates.cv2_map)
    row["inputs"] = batch["inputs"]
    row["emitted"] = 0
    row["emitted_at"] = now
    row["before"] = world.rates.c_bat * factor
    row["work"] = row["before"] + batch["inputs"] * world.rates.c_map * factor
    row["task"] = _MAIN
    return float(row["work"])


@spliced
def _next_write(world: PipelineWorld, mapper: int, now: float) -> float:
    row = world.mappers[mapper]
    if row["written"] >= row["closed"]:
        return _NO_WORK
    shuffle = world.shuffles[mapper, row["written"]]
    shuffle["begun"] = now
    size = shuffle["outputs"] * world.rates.b_out + world.rates.seek_bytes
    return float(size * draw_factor(world.draws, world.rates.cv2_disk))


@spliced
def _next_fetch(world: PipelineWorld, reducer: int, now: float) -> float:
    """The next partition of what the poll has found; its share of the outputs that no reducer has fetched is drawn."""
    row = world.reducers[reducer]
    if row["fetched"] >= row["polled"]:
        return _NO_WORK
    partition = world.partitions[reducer, row["fetched"]]
    shuffle = world.shuffles[partition["mapper"], partition["number"]]
    outputs = draw_binomial(world.draws, shuffle["left"], 1.0 / shuffle["unfetched"])
    shuffle["left"] -= outputs
    shuffle["unfetched"] -= 1
    partition["begun"] = now
    partition["outputs"] = outputs
    return float(outputs * world.rates.b_out * draw_factor(world.draws, world.rates.cv2_net))


@spliced
def _next_reduce(world: PipelineWorld, reducer: int, now: float) -> float:
    """Polls come first, then windows that are complete, then the next partition."""
    row = world.reducers[reducer]
    row["begun"] = now
    if row["owed"] > 0.0:
        work = row["owed"]
        row["owed"] = 0.0
        row["task"] = _OWED
        return float(work)
    if row["pieces"] < PIECES * row["complete"]:
        row["task"] = _PIECE
        return world.rates.piece_work
    if row["processed"] >= row["fetched"]:
        row["task"] = _IDLE
        return _NO_WORK
    outputs = world.partitions[reducer, row["processed"]]["outputs"]
    factor = draw_factor(world.draws, world.rates.cv2_red)
    row["work"] = outputs * world.rates.c_red * factor
    row["share"] = 0.0
    row["probed"] = 0
    row["probes"] = 0
    if world.rates.warm_up_s <= now <= world.rates.horizon_s:
        row["probes"] = min(outputs, math.floor(world.rates.sampled + draw_uniform(world.draws)))
    return world.rates.c_part * factor + _next_part(world, reducer)


@compiled_uncounted
def _next_part(world: PipelineWorld, reducer: int) -> float:
    """Work up to the next tuple of the partition to look at, one in each of `probes` equal parts; then the rest."""
    row = world.reducers[reducer]
    share = 1.0
    row["task"] = _MAIN
    if row["probed"] < row["probes"]:
        outputs = world.partitions[reducer, row["processed"]]["outputs"]
        place = math.floor((row["probed"] + draw_uniform(world.draws)) / row["probes"] * outputs)
        row["position"] = (place + draw_uniform(world.draws)) / outputs
        share = (place + 1.0) / outputs
        row["task"] = _PROBE
    work = row["work"] * (share - row["share"])
    row["share"] = share
    return float(work)


@spliced
def _complete(world: PipelineWorld, resource: int, now: float) -> None:
    """A task of a resource is done; wakes all slots that may go on."""
    slot = end_task(world.resources, world.slots, resource, now)
    kind, owner = world.slots[slot]["kind"], world.slots[slot]["owner"]
    if kind == MAP:
        row = world.mappers[owner]
        if row["task"] == _MAIN:
            _emit(world, owner, row["inputs"], now)
            row["batch"] += world.rates.mappers
        row["task"] = _IDLE
    elif kind == REDUCE:
        if world.reducers[owner]["task"] == _PROBE:
            _sample_tuple(world, owner, now)
            world.reducers[owner]["probed"] += 1
            begin_task(world.resources, world.slots, slot, _next_part(world, owner), now)
            return
        _reduced(world, owner, now)
    elif kind == RECEIVE:
        row = world.nodes[owner]
        world.batches[owner, row["received"]]["received"] = now
        first = world.resources[3 * owner]["first_slot"]
        _wake(world, first + row["received"] % world.rates.mappers)
        row["received"] += 1
    elif kind == FETCH:
        row = world.reducers[owner]
        partition = world.partitions[owner, row["fetched"]]
        partition["fetched"] = now
        world.totals[_FETCHED] += partition["outputs"]
        mapper = partition["mapper"]
        shuffle = world.shuffles[mapper, partition["number"]]
        shuffle["kept"] -= 1
        if shuffle["kept"] == 0:
            world.mappers[mapper]["held_bytes"] -= shuffle["outputs"] * world.rates.b_out
            _wake(world, world.mappers[mapper]["slot"])
        row["fetched"] += 1
        _wake(world, row["slot"])
    else:
        row = world.mappers[owner]
        shuffle = world.shuffles[owner, row["written"]]
        shuffle["written"] = now
        shuffle["left"] = shuffle["outputs"]
        shuffle["unfetched"] = shuffle["kept"] = len(world.reducers)
        world.order[world.totals[_READY], 0] = owner
        world.order[world.totals[_READY], 1] = row["written"]
        world.totals[_READY] += 1
        world.totals[_WRITTEN] += shuffle["outputs"]
        row["written"] += 1
    _wake(world, slot)


@spliced
def _reduced(world: PipelineWorld, reducer: int, now: float) -> None:
    """A reducer's task is done: a partition, or a piece of a finalize."""
    row = world.reducers[reducer]
    if row["task"] == _PIECE:
        _sample_window(world, reducer, now)
        row["pieces"] += 1
    elif row["task"] == _MAIN:
        partition = world.partitions[reducer, row["processed"]]
        world.totals[_REDUCED] += partition["outputs"]
        mapper = partition["mapper"]
        mark = world.shuffles[mapper, partition["number"]]["mark"]
        while world.marks[reducer, mapper] < mark:
            window = world.marks[reducer, mapper]
            world.marks[reducer, mapper] = window + 1
            world.passed[window, reducer] += 1
            if world.passed[window, reducer] == len(world.mappers):
                world.completed[window, reducer] = now
                row["complete"] += 1
        row["processed"] += 1
    row["task"] = _IDLE


@spliced
def _sample_window(world: PipelineWorld, reducer: int, now: float) -> None:
    """Latency of one key of a piece of a finalize, and of the last tuple of its window."""
    row = world.reducers[reducer]
    window = row["pieces"] // PIECES
    end = (window + 1) * world.rates.period_s
    if world.rates.warm_up_s <= end and now <= world.rates.horizon_s:
        keys = max(world.rates.piece_keys, 1.0)
        share = min(math.ceil(draw_uniform(world.draws) * keys) / keys, 1.0)
        sample = world.windows[world.totals[_WINDOWS]]
        sample["latency"] = row["begun"] + share * (now - row["begun"]) - end
        sample["last_tuple"] = world.completed[window, reducer] - end
        world.totals[_WINDOWS] += 1


@spliced
def _sample_tuple(world: PipelineWorld, reducer: int, now: float) -> None:
    """Where the tuple that is reduced now has spent its time since it came to the distributor."""
    row = world.reducers[reducer]
    if world.totals[_TUPLES] == len(world.tuples):
        return
    partition = world.partitions[reducer, row["processed"]]
    mapper = partition["mapper"]
    shuffle = world.shuffles[mapper, partition["number"]]
    rank = row["position"] * shuffle["outputs"]
    low, high = shuffle["first_chunk"], shuffle["last_chunk"] - 1
    while low < high:
        middle = (low + high) // 2
        if world.chunks[mapper, middle]["outputs"] > rank:
            high = middle
        else:
            low = middle + 1
    chunk = world.chunks[mapper, low]
    before = world.chunks[mapper, low - 1]["outputs"] if low > shuffle["first_chunk"] else 0
    share = (rank - before) / (chunk["outputs"] - before)
    position = chunk["low"] + share * (chunk["high"] - chunk["low"])
    emitted = chunk["begun"] + share * (chunk["ended"] - chunk["begun"])
    node = world.mappers[mapper]["node"]
    batch = world.batches[node, chunk["batch"]]
    opened = _opened(world, node, chunk["batch"])
    sample = world.tuples[world.totals[_TUPLES]]
    world.totals[_TUPLES] += 1
    stimulus = opened + position * world.rates.b_in_s
    sample["latency"] = now - stimulus
    sample["weight"] = partition["outputs"] / row["probes"]
    phases = sample["phases"]
    phases[0] = opened + world.rates.b_in_s - stimulus
    phases[1] = batch["begun"] - opened - world.rates.b_in_s
    phases[2] = batch["received"] - batch["begun"]
    phases[3] = batch["mapped"] - batch["received"]
    phases[4] = emitted - batch["mapped"]
    phases[5] = shuffle["closed"] - emitted
    phases[6] = shuffle["begun"] - shuffle["closed"]
    phases[7] = shuffle["written"] - shuffle["begun"]
    phases[8] = partition["begun"] - shuffle["written"]
    phases[9] = partition["fetched"] - partition["begun"]
    phases[10] = row["begun"] - partition["fetched"]
    phases[11] = now - row["begun"]


@spliced
def _start_measurement(world: PipelineWorld) -> None:
    """Begin to measure: nothing was served or occupied before."""
    now = world.rates.warm_up_s
    for resource in range(len(world.resources)):
        advance_work(world.resources, resource, now)
        world.resources[resource]["served"] = 0.0
    for slot in range(len(world.slots)):
        world.slots[slot]["occupied"] = 0.0
        world.slots[slot]["since"] = now
    for mapper in range(len(world.mappers)):
        row = world.mappers[mapper]
        row["blocked"] = min(row["blocked_since"], now) - now  # what was before does not count


@spliced
def _step(world: PipelineWorld, item: int, now: float) -> int:
    """One event; the node whose resources it may have changed."""
    resources, nodes, mappers = len(world.resources), len(world.nodes), len(world.mappers)
    if item < resources:
        _complete(world, item, now)
        return item // 3
    item -= resources
    if item < nodes:
        heap_put(world.calendar, 0, resources + item, _close_batch(world, item, now))
        return item
    item -= nodes
    if item < mappers:
        heap_put(world.calendar, 0, resources + nodes + item, _close_shuffle(world, item, now))
        return int(world.mappers[item]["node"])
    item -= mappers
    heap_put(world.calendar, 0, resources + nodes + mappers + item, _poll(world, item))
    return int(world.slots[world.reducers[item]["slot"]]["resource"] // 3)


@spliced
def _record_levels(world: PipelineWorld, now: float) -> None:
    """Outputs on their way, and those to come of inputs on their way, at equal distances of time."""
    while world.totals[_LEVELS] < len(world.levels) and (world.totals[_LEVELS] + 1) * world.rates.level_s <= now:
        waiting = world.rates.alpha * (world.totals[_ARRIVED] - world.totals[_MAPPED])
        world.levels[world.totals[_LEVELS]] = waiting + world.totals[_EMITTED] - world.totals[_REDUCED]
        world.totals[_LEVELS] += 1


def _entry(stamp: int) -> Callable[[PipelineWorld], None]:
    """The loop, compiled once for this state of the package (`engine.simulation.kernel` says why)."""

    @compiled_uncounted
    def run_pipeline(world: PipelineWorld) -> None:
        """Run events until `end_s`; timers never end, so there always is a next one."""
        world.totals[_STAMP] = stamp
        is_warm = False
        while True:
            item = heap_top(world.calendar, 0)
            now = world.calendar.keys[item]
            _record_levels(world, now)
            if not is_warm and now >= world.rates.warm_up_s:
                _start_measurement(world)
                is_warm = True
            if now > world.rates.end_s:
                return
            node = _step(world, item, now)
            while world.totals[_WOKEN] > 0:
                world.totals[_WOKEN] -= 1
                slot = world.woken[world.totals[_WOKEN]]
                if world.slots[slot]["finish"] == math.inf:
                    work = _next_work(world, slot, now)
                    if work >= 0.0:
                        begin_task(world.resources, world.slots, slot, work, now)
                        other = world.slots[slot]["resource"]  # of another node, for a mapper that was blocked
                        if other // 3 != node:
                            reschedule(world.resources, world.slots, world.calendar, other)
            for resource in range(3 * node, 3 * node + 3):
                if world.resources[resource]["changed"] == 1:
                    reschedule(world.resources, world.slots, world.calendar, resource)

    return run_pipeline


run_pipeline = _entry(source_stamp(Path(__file__).parent))
