"""Tables of a pipeline's simulation, draws, and resources whose slots share them equally.

Batches move, not tuples: a batch has a count of tuples, and a tuple is a position in it. A thread, a connection or a
writer is a *slot* of a shared resource (the cores, the inbound link or the disk of a node); what is busy on a resource
shares it equally, no slot faster than `single`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.compiler import compiled_uncounted
from engine.simulation.queues import heap_put, heap_remove
from engine.simulation.rows import Heap
from engine.simulation.service import uniform

__all__ = [
    "BATCH",
    "CHUNK",
    "FETCH",
    "MAP",
    "MAPPER",
    "NODE",
    "PARTITION",
    "RECEIVE",
    "REDUCE",
    "REDUCER",
    "RESOURCE",
    "SHUFFLE",
    "SLOT",
    "TUPLE",
    "WINDOW",
    "WRITE",
    "PipelineRates",
    "PipelineTotal",
    "PipelineWorld",
    "Table",
    "advance_work",
    "begin_task",
    "draw_binomial",
    "draw_factor",
    "draw_poisson",
    "draw_uniform",
    "end_task",
    "reschedule",
]

Table = NDArray[Any]

MAP, REDUCE, RECEIVE, FETCH, WRITE = range(5)  # what a slot is for
_LARGE = 30.0  # expected count from which on a count is drawn as a rounded normal

# `virtual` is the work that a slot busy all the time would have got by `at`; `served` is the work done for all slots.
RESOURCE = np.dtype(
    [
        ("virtual", "f8"),
        ("at", "f8"),
        ("capacity", "f8"),
        ("single", "f8"),
        ("served", "f8"),
        ("active", "i4"),
        ("first_slot", "i4"),
        ("last_slot", "i4"),
        ("changed", "i4"),
    ],
    align=True,
)
# `finish` is in the resource's virtual work (infinite while idle); `owner` is a mapper, reducer or node by `kind`.
SLOT = np.dtype(
    [("finish", "f8"), ("since", "f8"), ("occupied", "f8"), ("resource", "i4"), ("kind", "i4"), ("owner", "i4")],
    align=True,
)
NODE = np.dtype([("phase", "f8"), ("closed", "i8"), ("received", "i8"), ("slot", "i4")], align=True)
# `inputs` of the batch that is mapped, of which `emitted` are in the open shuffle batch or in earlier ones; `work` of
# the batch, of which `before` comes before its first tuple; `owed` is work beside batches. `batch` is a row of BATCH.
# `blocked` is the time without room for outputs, `blocked_since` when that began (infinite while there is room).
MAPPER = np.dtype(
    [
        ("phase", "f8"),
        ("work", "f8"),
        ("before", "f8"),
        ("owed", "f8"),
        ("emitted_at", "f8"),
        ("held_bytes", "f8"),
        ("blocked", "f8"),
        ("blocked_since", "f8"),
        ("batch", "i8"),
        ("chunk", "i8"),
        ("open_chunk", "i8"),
        ("closed", "i8"),
        ("written", "i8"),
        ("outputs", "i8"),
        ("inputs", "i4"),
        ("emitted", "i4"),
        ("node", "i4"),
        ("task", "i4"),
        ("slot", "i4"),
        ("writer", "i4"),
    ],
    align=True,
)
# `polled`, `fetched` and `processed` count the reducer's partitions. Of the one it is at, `work` is that of all tuples
# and `share` the part up to the tuple that is looked at next, the `probed`-th of `probes`; `position` is its place.
REDUCER = np.dtype(
    [
        ("phase", "f8"),
        ("owed", "f8"),
        ("begun", "f8"),
        ("work", "f8"),
        ("share", "f8"),
        ("position", "f8"),
        ("polls", "i8"),
        ("polled", "i8"),
        ("fetched", "i8"),
        ("processed", "i8"),
        ("complete", "i8"),
        ("pieces", "i8"),
        ("probes", "i4"),
        ("probed", "i4"),
        ("task", "i4"),
        ("slot", "i4"),
        ("link_slot", "i4"),
    ],
    align=True,
)
BATCH = np.dtype([("begun", "f8"), ("received", "f8"), ("mapped", "f8"), ("inputs", "i8")], align=True)
# What one input batch gave to one shuffle batch: tuples between two positions of the batch, emitted between two times;
# `outputs` counts the shuffle batch's up to and with this chunk.
CHUNK = np.dtype(
    [("batch", "i8"), ("outputs", "i8"), ("low", "f8"), ("high", "f8"), ("begun", "f8"), ("ended", "f8")], align=True
)
# `left` outputs for `unfetched` partitions; `kept` partitions have not been transferred, for them the buffer is kept;
# `mark` counts the window ends that no tuple yet to come is before.
SHUFFLE = np.dtype(
    [
        ("closed", "f8"),
        ("begun", "f8"),
        ("written", "f8"),
        ("first_chunk", "i8"),
        ("last_chunk", "i8"),
        ("outputs", "i8"),
        ("left", "i8"),
        ("mark", "i8"),
        ("unfetched", "i4"),
        ("kept", "i4"),
    ],
    align=True,
)
# In the order in which its reducer fetches: of shuffle batch `number` of `mapper`.
PARTITION = np.dtype(
    [("begun", "f8"), ("fetched", "f8"), ("outputs", "i8"), ("mapper", "i4"), ("number", "i4")], align=True
)
TUPLE = np.dtype([("latency", "f8"), ("weight", "f8"), ("phases", "f8", (12,))], align=True)
WINDOW = np.dtype([("latency", "f8"), ("last_tuple", "f8")], align=True)


class PipelineTotal:
    """Places in `PipelineWorld.totals`: tuples that have come so far, and rows in use."""

    ARRIVED = 0
    MAPPED = 1
    EMITTED = 2
    WRITTEN = 3
    FETCHED = 4
    REDUCED = 5
    READY = 6
    TUPLES = 7
    WINDOWS = 8
    WOKEN = 9
    LEVELS = 10
    STAMP = 11
    LENGTH = 12


class PipelineRates(NamedTuple):
    """Scalars of a run: seconds, bytes, core-seconds; `batch_inputs` are expected in a batch of a distributor."""

    batch_inputs: float
    alpha: float
    c_map: float
    c_red: float
    b_in: float
    b_out: float
    cv2_map: float
    cv2_red: float
    cv2_net: float
    cv2_disk: float
    c_part: float
    c_sh: float
    c_hb: float
    c_bat: float
    seek_bytes: float
    buffer_bytes: float
    piece_work: float
    piece_keys: float
    period_s: float
    b_in_s: float
    b_sh_s: float
    b_ch_s: float
    warm_up_s: float
    horizon_s: float
    end_s: float
    level_s: float
    sampled: float
    mappers: int
    is_oldest_first: int


class PipelineWorld(NamedTuple):
    """Everything that the loop reads and writes; rows in order of nodes, then of threads.

    `batches`, `chunks`, `shuffles` and `partitions` have shape (owners, rows of one owner); `order` lists mapper and
    number of the shuffle batches as they were written; `counts` is a poll's own. `passed` counts mappers by window and
    reducer, `completed` is when the last one passed; `marks` counts the window ends seen, by reducer and mapper.
    """

    rates: PipelineRates
    draws: Table
    totals: Table
    resources: Table
    slots: Table
    nodes: Table
    mappers: Table
    reducers: Table
    batches: Table
    chunks: Table
    shuffles: Table
    order: Table
    partitions: Table
    passed: Table
    completed: Table
    marks: Table
    counts: Table
    tuples: Table
    windows: Table
    levels: Table
    woken: Table
    calendar: Heap


@compiled_uncounted
def draw_uniform(draws: Table) -> float:
    draws[1] += np.uint64(1)
    return uniform(draws[0], draws[1])


@compiled_uncounted
def _draw_normal(draws: Table) -> float:
    return math.sqrt(-2.0 * math.log(draw_uniform(draws))) * math.cos(2.0 * math.pi * draw_uniform(draws))


@compiled_uncounted
def draw_factor(draws: Table, cv2: float) -> float:
    """A gamma factor of mean 1 (Marsaglia, Tsang 2000)."""
    if cv2 <= 0.0:
        return 1.0
    shape = 1.0 / cv2
    boost = 1.0
    if shape < 1.0:
        boost = draw_uniform(draws) ** cv2
        shape += 1.0
    d = shape - 1.0 / 3.0
    while True:
        z = _draw_normal(draws)
        v = (1.0 + z / math.sqrt(9.0 * d)) ** 3
        if v > 0.0 and math.log(draw_uniform(draws)) < 0.5 * z * z + d * (1.0 - v + math.log(v)):
            return boost * d * v * cv2


@compiled_uncounted
def draw_poisson(draws: Table, mean: float) -> int:
    if mean >= _LARGE:
        return max(0, int(math.floor(mean + math.sqrt(mean) * _draw_normal(draws) + 0.5)))  # noqa: RUF046 - when compiled
    count, product, least = 0, draw_uniform(draws), math.exp(-mean)
    while product > least:
        count += 1
        product *= draw_uniform(draws)
    return count


@compiled_uncounted
def draw_binomial(draws: Table, count: int, p: float) -> int:
    if p >= 1.0:
        return count
    mean = count * p
    if mean >= _LARGE and count - mean >= _LARGE:
        drawn = math.floor(mean + math.sqrt(mean * (1.0 - p)) * _draw_normal(draws) + 0.5)
        return int(min(max(drawn, 0.0), count))
    hits, position, scale = 0, 0, math.log1p(-p)
    while True:  # the gaps between hits are geometric
        position += 1 + int(min(math.log(draw_uniform(draws)) / scale, 1e15))
        if position > count:
            return hits
        hits += 1


@compiled_uncounted
def advance_work(resources: Table, resource: int, now: float) -> None:
    """Do the work of a resource up to now."""
    row = resources[resource]
    if row["active"] > 0:
        done = (now - row["at"]) * min(row["single"], row["capacity"] / row["active"])
        row["virtual"] += done
        row["served"] += done * row["active"]
    row["at"] = now


@compiled_uncounted
def begin_task(resources: Table, slots: Table, slot: int, work: float, now: float) -> None:
    resource = slots[slot]["resource"]
    advance_work(resources, resource, now)
    slots[slot]["finish"] = resources[resource]["virtual"] + work
    slots[slot]["since"] = now
    resources[resource]["active"] += 1
    resources[resource]["changed"] = 1


@compiled_uncounted
def end_task(resources: Table, slots: Table, resource: int, now: float) -> int:
    """End the task that is done first; its slot."""
    advance_work(resources, resource, now)
    row = resources[resource]
    slot = row["first_slot"]
    for other in range(slot + 1, row["last_slot"]):
        if slots[other]["finish"] < slots[slot]["finish"]:
            slot = other
    row["virtual"] = slots[slot]["finish"]
    slots[slot]["finish"] = math.inf
    slots[slot]["occupied"] += now - slots[slot]["since"]
    row["active"] -= 1
    if row["active"] == 0:
        row["virtual"] = 0.0
    row["changed"] = 1
    return int(slot)


@compiled_uncounted
def reschedule(resources: Table, slots: Table, calendar: Heap, resource: int) -> None:
    """When the first task of a resource is done, as things are now."""
    row = resources[resource]
    row["changed"] = 0
    if row["active"] == 0:
        if calendar.place[resource] >= 0:
            heap_remove(calendar, 0, resource)
        return
    finish = math.inf
    for slot in range(row["first_slot"], row["last_slot"]):
        finish = min(finish, slots[slot]["finish"])
    speed = min(row["single"], row["capacity"] / row["active"])
    heap_put(calendar, 0, resource, row["at"] + max(0.0, finish - row["virtual"]) / speed)
