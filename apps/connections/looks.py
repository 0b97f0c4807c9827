"""Looks: what an engine showed last, kept in its connection, so that a page can show it without asking again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from engine.connectors.flink_metrics import MarkerLatency
from engine.connectors.picture import EngineJob, EnginePicture, Exchange, Place, Vertex, VertexSample
from engine.connectors.topics import Partition
from engine.document.elements import MarginalCost
from engine.records import Record

__all__ = ["KeptJob", "KeptLook", "KeptOperator", "RoundCost", "look_of"]


_STATISTICS = ("events", "cost_s", "selectivity", "span_s", "contended_s", "cost_by", "marginal")


@dataclass(frozen=True)
class KeptOperator(Record):
    """An operator with its statistics so far; its inputs and places go by their names."""

    TITLE: ClassVar[str] = "an operator of a look"

    id: str
    label: str
    kind: str
    parallelism: int
    slot_group: str | None
    inputs: tuple[Exchange, ...]
    places: tuple[str, ...]
    events: float = 0.0
    cost_s: float | None = None
    selectivity: float | None = None
    span_s: float = 0.0  #: 0: not sampled
    contended_s: float = 0.0
    max_parallelism: int | None = None
    cost_by: str | None = None  #: by what its cost was told, where not by the busy time of its threads
    marginal: MarginalCost | None = None  #: part of its cost that one more event costs
    partitions: int | None = None  #: of Kafka that a source reads; None: it tells none


@dataclass(frozen=True)
class KeptJob(Record):
    """A job with its operators, how many polls of its counters there were, and the latency of its markers."""

    TITLE: ClassVar[str] = "a job of a look"

    id: str
    name: str
    state: str
    started_at_s: float
    operators: tuple[KeptOperator, ...]
    polls: int
    markers: MarkerLatency | None


@dataclass(frozen=True)
class KeptLook(Record):
    """Places and jobs of an engine, as it showed them last."""

    TITLE: ClassVar[str] = "a look"

    at_s: float
    version: str
    places: tuple[Place, ...]
    jobs: tuple[KeptJob, ...]


@dataclass(frozen=True)
class RoundCost(Record):
    """Questions of one round, and their cost to the engine."""

    TITLE: ClassVar[str] = "the cost of a round"

    requests: int
    bytes: int
    seconds: float

    def since(self, before: RoundCost) -> RoundCost:
        """The difference to a cost of before."""
        seconds = round(self.seconds - before.seconds, 3)
        return RoundCost(self.requests - before.requests, self.bytes - before.bytes, seconds)


def look_of(
    picture: EnginePicture,
    samples: Mapping[str, Iterable[VertexSample]] | None = None,
    polls: Mapping[str, int] | None = None,
    markers: Mapping[str, MarkerLatency] | None = None,
    partitions: Mapping[str, Mapping[str, Collection[Partition]]] | None = None,
) -> KeptLook:
    """A picture with what is known so far by id of a job: samples of its vertices, number of polls, markers.

    `partitions` are those of Kafka that its vertices read.
    """
    names = {place.id: place.name for place in picture.places}
    jobs = tuple(
        KeptJob(
            job.id,
            job.name,
            job.state,
            job.started_at_s,
            _operators(
                job,
                names,
                {sample.vertex: sample for sample in (samples or {}).get(job.id, ())},
                (partitions or {}).get(job.id, {}),
            ),
            (polls or {}).get(job.id, 0),
            (markers or {}).get(job.id),
        )
        for job in picture.jobs
    )
    return KeptLook(picture.at_s, picture.version, picture.places, jobs)


def _operators(
    job: EngineJob,
    places: Mapping[str, str],
    samples: Mapping[str, VertexSample],
    partitions: Mapping[str, Collection[Partition]],
) -> tuple[KeptOperator, ...]:
    labels = {vertex.id: vertex.label for vertex in job.vertices}
    return tuple(
        replace(
            _operator(vertex, labels, places, samples.get(vertex.id)),
            partitions=len(partitions.get(vertex.id, ())) or None,
        )
        for vertex in job.vertices
    )


def _operator(
    vertex: Vertex, labels: Mapping[str, str], places: Mapping[str, str], sample: VertexSample | None
) -> KeptOperator:
    used = dict.fromkeys(places.get(subtask.place or "", "") for subtask in vertex.subtasks)
    statistics = _STATISTICS if sample is not None else ()
    return KeptOperator(
        vertex.id,
        vertex.label,
        vertex.kind,
        vertex.parallelism,
        vertex.slot_group,
        tuple(Exchange(labels.get(entry.upstream, ""), entry.strategy) for entry in vertex.inputs),
        tuple(name for name in used if name),
        max_parallelism=vertex.max_parallelism,
        **{name: getattr(sample, name) for name in statistics},
    )
