"""Queues of the simulator: indexed heaps, the operators' FIFO queues, and the policies that pick from them."""

from __future__ import annotations

from dataclasses import dataclass

from engine.compiler import compiled_uncounted, spliced
from engine.simulation.rows import Heap, Rows, SimulationWorld

__all__ = [
    "POLICIES",
    "SimulationPolicy",
    "heap_put",
    "heap_remove",
    "heap_top",
    "pick",
    "queue_pop",
    "queue_push",
    "rank",
]


@compiled_uncounted
def heap_top(heap: Heap, owner: int) -> int:
    """The item of least key (lowest number among equals); -1 when the heap is empty."""
    if heap.size[owner] == 0:
        return -1
    return int(heap.items[heap.start[owner]])


@compiled_uncounted
def heap_put(heap: Heap, owner: int, item: int, key: float) -> None:
    """Insert `item`, or give it a new key."""
    place = heap.place[item]
    if place < 0:
        place = heap.size[owner]
        heap.size[owner] += 1
    heap.keys[item] = key
    _sift_down(heap, owner, _sift_up(heap, owner, place, item), item)


@compiled_uncounted
def heap_remove(heap: Heap, owner: int, item: int) -> None:
    place = heap.place[item]
    heap.place[item] = -1
    heap.size[owner] -= 1
    last = heap.items[heap.start[owner] + heap.size[owner]]
    if last != item:
        _sift_down(heap, owner, _sift_up(heap, owner, place, last), last)


@compiled_uncounted
def _before(heap: Heap, one: int, other: int) -> bool:
    if heap.keys[one] != heap.keys[other]:
        return bool(heap.keys[one] < heap.keys[other])
    return one < other


@compiled_uncounted
def _sift_up(heap: Heap, owner: int, place: int, item: int) -> int:
    base = heap.start[owner]
    while place > 0:
        parent = heap.items[base + (place - 1) // 2]
        if not _before(heap, item, parent):
            break
        heap.items[base + place] = parent
        heap.place[parent] = place
        place = (place - 1) // 2
    return place


@compiled_uncounted
def _sift_down(heap: Heap, owner: int, place: int, item: int) -> None:
    base, size = heap.start[owner], heap.size[owner]
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and _before(heap, heap.items[base + child + 1], heap.items[base + child]):
            child += 1
        smallest = heap.items[base + child]
        if not _before(heap, smallest, item):
            break
        heap.items[base + place] = smallest
        heap.place[smallest] = place
        place = child
    heap.items[base + place] = item
    heap.place[item] = place


@compiled_uncounted
def queue_push(queues: Rows, events: Rows, queue: int, event: int) -> None:
    """Append `event`. It walks forward only past events of later order.

    On one source path events come in order, so it stays at the tail. Only where paths share a queue (too many of them,
    or split operators upstream) does it ever walk.
    """
    before = queues[queue]["tail"]
    after = -1
    while before >= 0 and events[before]["order"] > events[event]["order"]:
        after = before
        before = events[before]["prev"]
    events[event]["prev"] = before
    events[event]["next"] = after
    if before >= 0:
        events[before]["next"] = event
    else:
        queues[queue]["head"] = event
    if after >= 0:
        events[after]["prev"] = event
    else:
        queues[queue]["tail"] = event


@compiled_uncounted
def queue_pop(queues: Rows, events: Rows, queue: int) -> int:
    event = queues[queue]["head"]
    after = events[event]["next"]
    queues[queue]["head"] = after
    if after >= 0:
        events[after]["prev"] = -1
    else:
        queues[queue]["tail"] = -1
    return int(event)


STIMULUS, ARRIVAL = 0, 1
EARLIEST, ROTATE, LONGEST = 0, 1, 2


@dataclass(frozen=True, slots=True)
class SimulationPolicy:
    """A policy by name, its queue order and its choice of operator."""

    name: str
    label: str
    order: int
    choice: int


POLICIES = {
    policy.name: policy
    for policy in (
        SimulationPolicy(
            "stimulus-time", "Stimulus time: the operator holding the event of earliest stimulus", STIMULUS, EARLIEST
        ),
        SimulationPolicy("fifo", "FIFO: the event that has waited longest", ARRIVAL, EARLIEST),
        SimulationPolicy("round-robin", "Round robin: operators in turn, one event each", ARRIVAL, ROTATE),
        SimulationPolicy("longest-queue", "Longest queue: the operator with most events waiting", ARRIVAL, LONGEST),
    )
}


@spliced
def rank(world: SimulationWorld, station: int) -> int:
    """Priority of a station with waiting events; the lowest number is served first."""
    if world.choice == LONGEST:
        return int(-world.stations[station]["length"])
    return int(world.ready.keys[heap_top(world.ready, station)])


@spliced
def pick(world: SimulationWorld, server: int) -> int:
    """The station to serve next; -1 when nothing waits."""
    if world.choice != ROTATE:
        return heap_top(world.active, server)
    row = world.servers[server]
    count = row["last_station"] - row["first_station"]
    for step in range(count):
        turn = (row["cursor"] + step) % count
        if world.stations[row["first_station"] + turn]["length"] > 0:
            row["cursor"] = (turn + 1) % count
            return int(row["first_station"] + turn)
    return -1
