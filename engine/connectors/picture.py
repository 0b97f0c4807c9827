"""What runs on an engine, as its own answers show it: places, jobs, operators and their counters.

Every reader (Flink, Spark, Prometheus, Kafka) turns answers into these values, so that whatever follows does not ask
which engine it was. Times are seconds since 1970 (`at_s`), durations seconds, memory bytes, rates events/s.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from engine.document.elements import Batch

__all__ = [
    "CounterPoll",
    "EngineJob",
    "EnginePicture",
    "Exchange",
    "Finding",
    "FindingLevel",
    "OperatorSample",
    "Place",
    "Subtask",
    "Vertex",
    "VertexCounters",
]

FindingLevel = Literal["found", "assumed", "missing", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What reading the answers brought up: something found, missing, assumed in its place, or worth a warning.

    Attributes
    ----------
    code : str
        Stable name such as `busy_time_missing`, by which programs and tests know it.
    subject : str
        What it is about: empty, a job's name, or `job/operator`.
    message : str
        A whole sentence for people.
    """

    level: FindingLevel
    code: str
    subject: str
    message: str


@dataclass(frozen=True, slots=True)
class Place:
    """Process of an engine that runs operators: a TaskManager, an executor.

    Attributes
    ----------
    cores : float
        CPU cores that it may use.
    slots : int
        Task slots; of Spark, tasks at a time.
    cpu_load : float, optional
        Share of all cores of its host that its process used last, 0 to 1.
    """

    id: str
    name: str
    cores: float
    slots: int
    memory_bytes: float | None = None
    cpu_load: float | None = None


@dataclass(frozen=True, slots=True)
class Exchange:
    """Input of a vertex from another one, with the engine's own way of sending."""

    upstream: str  #: id of a vertex
    strategy: str = "forward"  #: forward, hash, rebalance, rescale, broadcast, or the engine's word in lower case


@dataclass(frozen=True, slots=True)
class Subtask:
    """One parallel instance of a vertex, and the id of the place that runs it, where that is known."""

    index: int
    place: str | None = None


@dataclass(frozen=True, slots=True)
class Vertex:
    """Operator as an engine schedules it: one or several chained ones in one thread.

    Attributes
    ----------
    id : str
        The engine's own, which statistics, placements and exports are joined on.
    label : str
        Name as people gave it, of the chain's last operator with one.
    kind : str
        As in a deployment document.
    buffer_timeout_s : float, optional
        Longest time that output waits in a network buffer; None where nothing crosses the network or it is not known.
    """

    id: str
    label: str
    kind: str
    parallelism: int
    inputs: tuple[Exchange, ...] = ()
    subtasks: tuple[Subtask, ...] = ()
    slot_group: str | None = None
    buffer_timeout_s: float | None = None
    watermark_delay_s: float | None = None
    window: Mapping[str, object] | None = None  #: as in a deployment document

    @property
    def is_source(self) -> bool:
        return not self.inputs


@dataclass(frozen=True, slots=True)
class EngineJob:
    """A streaming job, its vertices in topological order."""

    id: str
    name: str
    state: str  #: of the engine, in lower case: running, restarting, failed, …
    started_at_s: float
    vertices: tuple[Vertex, ...]
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def shape(self) -> str:
        """Digest of what makes a version: vertices with names and parallelism, and how they are joined.

        A restart or a redeploy of the same program keeps it; a rescale or another program does not.
        """
        position = {vertex.id: i for i, vertex in enumerate(self.vertices)}
        rows = [
            [vertex.label, vertex.parallelism, [[position[e.upstream], e.strategy] for e in vertex.inputs]]
            for vertex in self.vertices
        ]
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class EnginePicture:
    """Everything that one round of answers showed."""

    engine: str  #: flink, spark, prometheus
    version: str  #: empty where the engine does not say
    at_s: float  #: by the engine's clock where it tells it, otherwise the time of asking
    places: tuple[Place, ...]
    jobs: tuple[EngineJob, ...]
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class VertexCounters:
    """Counters of a vertex since its attempt began, summed over its subtasks; None where the engine did not say.

    `busy_s`, `idle_s` and `backpressured_s` are wall time of threads, so a vertex of parallelism p adds p seconds a
    second to their sum.
    """

    records_in: float | None
    records_out: float | None
    busy_s: float | None
    idle_s: float | None = None
    backpressured_s: float | None = None
    records_in_by_subtask: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class CounterPoll:
    """Counters of a job at one moment. Differences of two polls of one `attempt` are statistics.

    Attributes
    ----------
    attempt : str
        Changes whenever counters may have begun anew: job id, start times of the vertices.
    cpu_loads : mapping of str to float
        By id of a place, 0 to 1, of the whole host.
    """

    job: str
    at_s: float
    attempt: str
    vertices: Mapping[str, VertexCounters]
    cpu_loads: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OperatorSample:
    """Statistics of a vertex from differences of counters over many polls.

    Attributes
    ----------
    batches : tuple of Batch
        One for each pair of polls with events; `cycles` are nanoseconds of one server, 1e9 a second.
    cost_s, selectivity : float, optional
        Sums over sums; None where no poll tells it.
    span_s : float
        Seconds that the pairs cover.
    contended_s : float
        Seconds of these in which the host was so busy that wall time is longer than work.
    """

    vertex: str
    events: float
    cost_s: float | None
    selectivity: float | None
    batches: tuple[Batch, ...]
    span_s: float
    contended_s: float = 0.0
    findings: tuple[Finding, ...] = ()
