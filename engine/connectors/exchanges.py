"""Records over each exchange of a job, from the counters of both ends, and where these leave it open within what.

Engines count what a vertex takes over all its inputs together, and what it puts out over all its exchanges together or
once for all of them, by version. An exchange's records are those that its reader counts in: known where a reader has
one input, or where all it reads otherwise is known. What is still open lies within bounds, of which the larger counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.connectors.counter_changes import CounterChange, VertexChanges
from engine.connectors.picture import EngineJob, ExchangeFlow, Finding, Vertex

__all__ = ["bound_flows", "describe_flows"]

_ROUNDS = 20  # of bounds that tighten one another; each of them is valid
_NEAR = 0.05  # of a count: by so much may counters of two vertices differ that are read apart
_OPEN = 0.05  # of the larger bound, from which records of an exchange are said to be open

_Pair = tuple[str, str]  # a vertex and one that reads it, over however many exchanges


@dataclass(frozen=True, slots=True)
class _Bounds:
    least: float
    most: float

    def within(self, least: float, most: float) -> _Bounds:
        """The part that both allow; noise of counters that contradict each other ends at the nearer bound."""
        low, high = max(self.least, min(least, self.most)), min(self.most, max(most, self.least))
        return _Bounds(low, max(low, high))

    @property
    def is_told(self) -> bool:
        return self.most - self.least <= _NEAR * self.most


def bound_flows(job: EngineJob, changes: Mapping[str, VertexChanges]) -> tuple[ExchangeFlow, ...]:
    """Bounds of the records a second over an exchange of each vertex with each of its readers, alike where the two have
    several.

    A vertex that nobody counted, or that put out nothing yet, has no row; neither has a pair of which the writer has
    one reader and the reader one writer, whose counts are compared elsewhere (`engine.connectors.contradictions`).
    """
    readers = {vertex.id: vertex for vertex in job.vertices}
    units = {id_: changes[id_].units for id_ in readers}
    written = {id_: rate for id_ in readers if (rate := _rate(units[id_], [unit.outputs for unit in units[id_]]))}
    taken = {id_: rate for id_ in readers if (rate := _rate(units[id_], [unit.events for unit in units[id_]]))}
    exchanges = _exchanges(job)
    bounds = {pair: _Bounds(0.0, written[pair[0]] * copies) for pair, copies in exchanges.items() if pair[0] in written}
    by_reader = _grouped(bounds, 1, readers)
    by_writer = _grouped(bounds, 0, readers)
    whole = {id_: pairs for id_, pairs in by_reader.items() if id_ in taken and _is_whole(readers[id_], pairs)}
    only = {
        pairs[0]: written[id_]
        for id_, pairs in by_writer.items()
        if len(pairs) == 1 and exchanges[pairs[0]] == 1 and len(readers[pairs[0][1]].inputs) > 1
    }
    bounds |= {pair: _Bounds(rate, rate) for pair, rate in only.items()}
    _tighten(bounds, [(pairs, taken[id_]) for id_, pairs in whole.items()])
    if _adds_up(by_writer, written, bounds):
        sums = [(pairs, written[id_]) for id_, pairs in by_writer.items() if not _is_broadcast(job, id_)]
        _tighten(bounds, [*((pairs, taken[id_]) for id_, pairs in whole.items()), *sums])
    edges = {pair: sum(exchange.upstream == pair[0] for exchange in readers[pair[1]].inputs) for pair in bounds}
    return tuple(
        ExchangeFlow(*pair, bound.least / edges[pair], bound.most / edges[pair], written[pair[0]])
        for pair, bound in bounds.items()
        if len(by_writer[pair[0]]) > 1 or len(readers[pair[1]].inputs) > 1 or exchanges[pair] > 1
    )


def describe_flows(job: EngineJob, flows: Iterable[ExchangeFlow]) -> tuple[Finding, ...]:
    """Vertices whose readers take different records, and those that exchanges leave open."""
    labels = {vertex.id: vertex.label for vertex in job.vertices}
    listed = list(flows)
    findings = []
    for upstream in dict.fromkeys(flow.upstream for flow in listed):
        rates = [flow.most for flow in listed if flow.upstream == upstream]
        if len(rates) > 1 and max(rates) > (1.0 + _NEAR) * min(rates):
            subject = f"{job.name}/{labels[upstream]}"
            findings.append(Finding.of("found", "side_outputs", subject, vertex=labels[upstream]))
    for flow in listed:
        if flow.most - flow.least > _OPEN * flow.most:
            bounds = {"least": flow.least, "most": flow.most}
            reader, above = labels[flow.reader], labels[flow.upstream]
            subject = f"{job.name}/{reader}"
            findings.append(Finding.of("assumed", "exchange_open", subject, vertex=reader, above=above, **bounds))
    return tuple(findings)


def _exchanges(job: EngineJob) -> dict[_Pair, int]:
    """Copies of a record that go from a vertex to another: one for each exchange, of a broadcast for each subtask."""
    copies: dict[_Pair, int] = {}
    for reader in job.vertices:
        for exchange in reader.inputs:
            sent = reader.parallelism if exchange.strategy == "broadcast" else 1
            copies[exchange.upstream, reader.id] = copies.get((exchange.upstream, reader.id), 0) + sent
    return copies


def _is_broadcast(job: EngineJob, upstream: str) -> bool:
    return any(
        exchange.strategy == "broadcast" and reader.parallelism > 1
        for reader in job.vertices
        for exchange in reader.inputs
        if exchange.upstream == upstream
    )


def _grouped(pairs: Iterable[_Pair], end: int, ids: Iterable[str]) -> dict[str, list[_Pair]]:
    listed = list(pairs)
    grouped = {id_: [pair for pair in listed if pair[end] == id_] for id_ in ids}
    return {id_: own for id_, own in grouped.items() if own}


def _is_whole(reader: Vertex, pairs: Sequence[_Pair]) -> bool:
    """Whether all that a reader takes comes over these pairs, so that they add up to what it counts."""
    return {exchange.upstream for exchange in reader.inputs} == {upstream for upstream, _ in pairs}


def _tighten(bounds: dict[_Pair, _Bounds], sums: Sequence[tuple[Sequence[_Pair], float]]) -> None:
    """Bounds by sums that are known: each is at least what the others leave at their most, and the other way round."""
    for _ in range(_ROUNDS):
        before = dict(bounds)
        for pairs, total in sums:
            for pair in pairs:
                others = [bounds[other] for other in pairs if other != pair]
                least = total - math.fsum(other.most for other in others)
                most = total - math.fsum(other.least for other in others)
                bounds[pair] = bounds[pair].within(max(0.0, least), max(0.0, most))
        if bounds == before:
            return


def _adds_up(
    by_writer: Mapping[str, Sequence[_Pair]], written: Mapping[str, float], bounds: Mapping[_Pair, _Bounds]
) -> bool:
    """Whether what a vertex writes is counted over all its exchanges together, as those show that are told in full."""
    votes = []
    for id_, pairs in by_writer.items():
        if len(pairs) > 1 and all(bounds[pair].is_told for pair in pairs):
            together = math.fsum(bounds[pair].most for pair in pairs)
            votes.append(abs(together - written[id_]) <= _NEAR * together)
    return bool(votes) and all(votes)


def _rate(units: Sequence[CounterChange], counts: Iterable[float]) -> float | None:
    """Records a second over all units, those without any too; None where nothing was counted."""
    span_s, total = math.fsum(unit.span_s for unit in units), math.fsum(counts)
    return total / span_s if span_s > 0.0 and total > 0.0 else None
