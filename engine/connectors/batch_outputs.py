"""Events that each batch of a vertex put out, where counters do not tell it of all of them."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from engine.connectors.counter_changes import CounterChange, VertexChanges
from engine.connectors.picture import Vertex

__all__ = ["batch_outputs"]


def batch_outputs(
    vertex: Vertex, changes: VertexChanges, batches: Sequence[CounterChange], *, is_read: bool
) -> list[float]:
    """Events that each batch put out: of a vertex that nobody reads what its sinks took, at their mean where some of
    the polls do not tell, and one per event where none does.

    Nor does a stretch tell whose windows are still open.
    """
    counts = [batch.outputs if is_read else batch.results for batch in batches]
    if vertex.window and any(counts):
        for i in _open_batches(vertex, changes, batches, counts):
            counts[i] = None
    told = [(count, batch.events) for count, batch in zip(counts, batches, strict=True) if count is not None]
    events = math.fsum(events for _, events in told)
    mean = math.fsum(count for count, _ in told) / events if events > 0.0 else 1.0
    return [batch.events * mean if count is None else count for count, batch in zip(counts, batches, strict=True)]


def _open_batches(
    vertex: Vertex, changes: VertexChanges, batches: Sequence[CounterChange], counts: Sequence[float | None]
) -> Iterator[int]:
    """Positions of the batches after the last result of each run, unless they are so long that there was none."""
    starts = [run[0].start_s for run in changes.runs]
    runs = [bisect_right(starts, 0.5 * (batch.start_s + batch.end_s)) for batch in batches]
    for _, own in itertools.groupby(range(len(batches)), key=runs.__getitem__):
        silent = list(itertools.takewhile(lambda i: not counts[i], reversed(list(own))))
        if math.fsum(batches[i].span_s for i in silent) < vertex.silence_s:
            yield from silent
