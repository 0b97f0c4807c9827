"""Row layouts of the simulator's tables: structured arrays keep an event together in memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ARRIVAL",
    "BATCH",
    "BATCHED",
    "BUFFER",
    "CLOCK",
    "COUNT",
    "EDGE",
    "EVENT",
    "HOLD",
    "PIPE",
    "QUEUE",
    "RECORD",
    "SERVER",
    "STATION",
    "TARGET",
    "WATERMARK",
    "Counter",
    "Heap",
    "SimulationWorld",
]

Rows = NDArray[Any]

# `order` ranks the event in its present queue, `seq` is its stimulus rank, `id` seeds its draws, `due` is the end of
# its way through a pipe or of what holds it, `p` its subinterval, `slot` its source path, `target` the operator station
# it goes to by `leg` (a row of targets; -1: a result). `stamp` is its event time, `since` what its latency counts from.
# A marker stands for an event that was filtered out: it carries time to windows behind and costs nothing.
EVENT = np.dtype(
    [
        ("order", "i8"),
        ("seq", "i8"),
        ("id", "u8"),
        ("due", "f8"),
        ("stimulus", "f8"),
        ("since", "f8"),
        ("stamp", "f8"),
        ("source", "i4"),
        ("leg", "i4"),
        ("marker", "i4"),
        ("p", "i4"),
        ("group", "i4"),
        ("input", "i4"),
        ("slot", "i4"),
        ("target", "i4"),
        ("next", "i4"),
        ("prev", "i4"),
    ],
    align=True,
)
# A station is what waits for one server: an operator replica (`link_bytes` < 0) or one data flow's way over a link.
STATION = np.dtype(
    [
        ("link_bytes", "f8"),
        ("server", "i4"),
        ("operator", "i4"),
        ("first_edge", "i4"),
        ("last_edge", "i4"),
        ("first_queue", "i4"),
        ("pipe", "i4"),
        ("length", "i4"),
        ("window", "i4"),
        ("buffer", "i4"),
        ("batch", "i4"),
        ("listens", "i4"),
        ("tells", "i4"),
    ],
    align=True,
)
# A hold keeps events in a queue of their own until `opened` of them may leave, or until their time has come: a window,
# a buffer, what waits for a batch, what a batch puts out. `filled` are events or bytes towards `size`, `full` the
# events of windows that reached it. `batch` is -1 unless it opens with one.
HOLD = np.dtype(
    [
        ("period_s", "f8"),
        ("phase_s", "f8"),
        ("delay_s", "f8"),
        ("watermark", "f8"),
        ("size", "f8"),
        ("filled", "f8"),
        ("opened", "i8"),
        ("held", "i8"),
        ("full", "i8"),
        ("kind", "i4"),
        ("queue", "i4"),
        ("batch", "i4"),
        ("restarts", "i4"),
    ],
    align=True,
)
# Micro-batches of one query: what waits for the next, what the present one put out, events inside it, its windows.
BATCH = np.dtype(
    [
        ("interval_s", "f8"),
        ("phase_s", "f8"),
        ("overhead_s", "f8"),
        ("begun_s", "f8"),
        ("inside", "i8"),
        ("state", "i4"),
        ("gate", "i4"),
        ("exit", "i4"),
        ("first_window", "i4"),
        ("last_window", "i4"),
    ],
    align=True,
)
QUEUE = np.dtype([("head", "i4"), ("tail", "i4")])
SERVER = np.dtype(
    [
        ("event", "i4"),
        ("station", "i4"),
        ("first_station", "i4"),
        ("last_station", "i4"),
        ("cursor", "i4"),
        ("woken", "i4"),
    ]
)
# An edge leads from a source or replica to one input of an operator; its targets are that operator's replicas.
EDGE = np.dtype(
    [("input", "i4"), ("first_slot", "i4"), ("keeps_slot", "i4"), ("first_target", "i4"), ("last_target", "i4")]
)
TARGET = np.dtype([("share", "f8"), ("sent", "i8"), ("station", "i4"), ("via", "i4"), ("pipe", "i4")], align=True)
PIPE = np.dtype([("delay_s", "f8"), ("head", "i4"), ("tail", "i4")], align=True)
#: How a hold lets go: by the clock, by the watermark, by count, by the clock or when full, with a batch.
CLOCK, WATERMARK, COUNT, BUFFER, BATCHED = 0, 1, 2, 3, 4
# `entry` is the row of `source_edges` by which an event comes in, `source` the one whose time it tells. What waits
# where the horizon begins comes at 0, with a `stimulus` before that and a `p` of -1.
ARRIVAL = np.dtype(
    [
        ("time", "f8"),
        ("stimulus", "f8"),
        ("id", "u8"),
        ("entry", "i4"),
        ("source", "i4"),
        ("p", "i4"),
        ("group", "i4"),
    ],
    align=True,
)
RECORD = np.dtype([("stimulus", "f8"), ("egress", "f8"), ("operator", "i4"), ("p", "i4")], align=True)


class Counter:
    """Places in `World.counters`."""

    NEXT_ARRIVAL = 0
    RECORDS = 1
    FREE_HEAD = 2
    FREE = 3
    WOKEN = 4
    ENQUEUED = 5
    SERVED = 6
    STAMP = 7
    LENGTH = 8


class Heap(NamedTuple):
    """Many min-heaps in shared arrays, one per owner; each item knows its place (-1: not in a heap)."""

    items: Rows
    place: Rows
    keys: Rows
    start: Rows
    size: Rows


class SimulationWorld(NamedTuple):
    """Everything the event loop reads and writes. All of it is arrays, so a run can stop, grow them and go on."""

    clock: Rows
    counters: Rows
    arrivals: Rows
    source_edges: Rows
    events: Rows
    records: Rows
    stations: Rows
    queues: Rows
    servers: Rows
    woken: Rows
    edges: Rows
    targets: Rows
    pipes: Rows
    holds: Rows
    batches: Rows
    members: Rows
    marks: Rows
    cycles: Rows
    selectivity: Rows
    accumulated: Rows
    capacity: Rows
    factor: Rows
    busy_s: Rows
    sampled: Rows
    ready: Heap
    active: Heap
    calendar: Heap
    width_s: float
    fan_out: int
    arrival_order: int
    choice: int
    random_outputs: int
    cost_sigma: float
