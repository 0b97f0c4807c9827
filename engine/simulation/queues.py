"""Indexed heaps and the operators' FIFO queues (paper, section VI-A)."""

from __future__ import annotations

from engine.simulation.compiled import compiled
from engine.simulation.rows import Heap, Rows

__all__ = ["heap_put", "heap_remove", "heap_top", "queue_pop", "queue_push"]


@compiled
def heap_top(heap: Heap, owner: int) -> int:
    """The item of least key (lowest number among equals); -1 when the heap is empty."""
    if heap.size[owner] == 0:
        return -1
    return int(heap.items[heap.start[owner]])


@compiled
def heap_put(heap: Heap, owner: int, item: int, key: float) -> None:
    """Insert `item`, or give it a new key."""
    place = heap.place[item]
    if place < 0:
        place = heap.size[owner]
        heap.size[owner] += 1
    heap.keys[item] = key
    _sift_down(heap, owner, _sift_up(heap, owner, place, item), item)


@compiled
def heap_remove(heap: Heap, owner: int, item: int) -> None:
    place = heap.place[item]
    heap.place[item] = -1
    heap.size[owner] -= 1
    last = heap.items[heap.start[owner] + heap.size[owner]]
    if last != item:
        _sift_down(heap, owner, _sift_up(heap, owner, place, last), last)


@compiled
def _before(heap: Heap, one: int, other: int) -> bool:
    if heap.keys[one] != heap.keys[other]:
        return bool(heap.keys[one] < heap.keys[other])
    return one < other


@compiled
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


@compiled
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


@compiled
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


@compiled
def queue_pop(queues: Rows, events: Rows, queue: int) -> int:
    event = queues[queue]["head"]
    after = events[event]["next"]
    queues[queue]["head"] = after
    if after >= 0:
        events[after]["prev"] = -1
    else:
        queues[queue]["tail"] = -1
    return int(event)
