"""Picture of an engine, as its own answers show it: places, jobs, operators and their counters.

Every reader (Flink, Spark, Prometheus, Kafka) turns answers into these values, so that whatever follows does not ask
which engine it was. Times are seconds since 1970 (`at_s`), durations seconds, memory bytes, rates events/s.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict

from engine.document.elements import Batch, MarginalCost
from engine.records import Fact, Record, Sentence, Words

__all__ = [
    "ArrivalCounts",
    "CostOrigin",
    "CounterPoll",
    "EngineJob",
    "EnginePicture",
    "Exchange",
    "ExchangeFlow",
    "Finding",
    "FindingLevel",
    "FlameLooks",
    "JobSample",
    "Place",
    "Subtask",
    "ThreadLooks",
    "Vertex",
    "VertexCounters",
    "VertexSample",
]

CostOrigin = Literal["cpu_time", "load_step", "thread_stacks"]
FindingLevel = Literal["found", "assumed", "missing", "warning"]
#: Of what is kept: fields of later versions are left out.
_LATER = ConfigDict(extra="ignore", arbitrary_types_allowed=True)
_MIN_SILENT_S = 60.0


@dataclass(frozen=True, slots=True)
class Finding(Record):
    """Result of reading answers: something found, missing, assumed in its place, or worth a warning."""

    TITLE: ClassVar[str] = "a finding of answers"

    level: FindingLevel
    code: Annotated[str, Words("Stable name, such as busy_time_missing.")]
    subject: Annotated[str, Words("What it is about: empty, a job's name, or job/operator.")]
    message: Annotated[Sentence, Words("A whole sentence for people.")]

    @classmethod
    def of(cls, level: FindingLevel, code: str, subject: str, kind: str = "", /, **values: object) -> Finding:
        """A finding by names and numbers, of its sentence's `kind` where that is not its code."""
        return cls(level, code, subject, Fact(f"connectors.{kind or code}", **values))

    @property
    def job(self) -> str:
        """Job or node that it is about; empty for the engine itself."""
        return self.subject.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Place(Record):
    """Process of an engine that runs operators: a TaskManager, an executor."""

    TITLE: ClassVar[str] = "a place"

    id: str
    name: str
    cores: float  #: of the CPU, that it may use
    slots: int  #: of tasks; of Spark, tasks at a time
    memory_bytes: float | None = None  #: of its whole process
    cpu_load: float | None = None  #: share of all cores of its host that its process used last, 0 to 1
    host: str = ""  #: address of the machine, which several places may share; empty where it is not known
    heap_bytes: float | None = None  #: of its memory, what is there for objects of tasks
    managed_bytes: float | None = None  #: of its memory, what the engine sets aside for state


@dataclass(frozen=True, slots=True)
class Exchange(Record):
    """Input of a vertex from another one, with the engine's own way of sending."""

    TITLE: ClassVar[str] = "an exchange"

    upstream: str  #: id of a vertex
    strategy: str = "forward"  #: forward, hash, rebalance, rescale, broadcast, or the engine's word in lower case


@dataclass(frozen=True, slots=True)
class Subtask:
    """One parallel instance of a vertex, and the id of the place that runs it, where that is known."""

    index: int
    place: str | None = None


@dataclass(frozen=True, slots=True)
class Vertex:
    """Operator as an engine schedules it: one or several chained ones in one thread."""

    id: str  #: the engine's own, which statistics, placements and exports are joined on
    label: str  #: name as people gave it, of the chain's last operator with one
    kind: str  #: as in a deployment document
    parallelism: int
    inputs: tuple[Exchange, ...] = ()
    subtasks: tuple[Subtask, ...] = ()
    slot_group: str | None = None
    #: longest time that output waits in a network buffer; None where nothing crosses the network or it is not known
    buffer_timeout_s: float | None = None
    watermark_delay_s: float | None = None
    window: Mapping[str, object] | None = None  #: as in a deployment document
    stream: str = ""  #: of a source, the name of what it reads
    trigger: Mapping[str, object] | None = None  #: as in a deployment document
    checkpoint: Mapping[str, object] | None = None  #: as in a deployment document
    doubts: tuple[str, ...] = ()  #: what is not known of its waits as yet; no part of its shape
    commit_metrics: tuple[str, ...] = ()  #: by which its committers count, where its results wait for checkpoints
    #: what of its plan the reader does not understand, each with the reason; an estimate rests on none of it
    unread: tuple[str, ...] = ()
    waits_outside: bool = False  #: whether its events wait for answers from outside, with no thread busy
    state_bytes: float | None = None  #: of all its subtasks, measured by the engine; None where it does not tell
    state_on_disk: bool | None = None  #: whether state lies on disk; None where nothing tells
    keeps_rows: bool = False  #: whether its state grows with every row, as far as its plan tells
    result_metrics: tuple[str, ...] = ()  #: by which its sinks count what they take, where nobody reads it
    task_name: str = ""  #: by which the engine names its threads; empty where it has none, or none any more
    max_parallelism: int | None = None  #: its key groups, as the engine tells; 1: by its plan it has one subtask
    event_metrics: tuple[str, ...] = ()  #: by which its source counts its events, where more is chained to it
    has_ended: bool = False  #: whether all its subtasks are done for good: nothing comes to it or of it any more

    @property
    def is_source(self) -> bool:
        return not self.inputs

    @property
    def chained(self) -> tuple[str, ...]:
        """Names of its operators where they are several in a row; empty of one alone, and of a chain that branches."""
        names = tuple(self.task_name.split(" -> "))
        return names if len(names) > 1 and "(" not in self.task_name else ()

    @property
    def is_keyed(self) -> bool | None:
        """Whether its input is spread by a key; False where one subtask gets all of it, None where neither is told."""
        strategies = {exchange.strategy for exchange in self.inputs}
        if self.max_parallelism == 1 or "global" in strategies:
            return False
        return True if "hash" in strategies else None

    @property
    def silence_s(self) -> float:
        """Seconds without a result that tell that it puts out none: a minute, or two of its windows."""
        window = self.window or {}
        size = window.get("size") if window.get("policy") == "time" else None
        return max(_MIN_SILENT_S, 2.0 * size if isinstance(size, (int, float)) else 0.0)


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
    def sinks(self) -> list[Vertex]:
        """Vertices that no other one reads."""
        read = {exchange.upstream for vertex in self.vertices for exchange in vertex.inputs}
        return [vertex for vertex in self.vertices if vertex.id not in read]

    @property
    def shape(self) -> str:
        """Digest of what makes a version: vertices with names and parallelism, their windows, and how they are joined.

        A restart or a redeploy of the same program keeps it; a rescale or another program does not.
        """
        position = {vertex.id: i for i, vertex in enumerate(self.vertices)}
        rows = [
            [
                vertex.label,
                vertex.parallelism,
                [[position[e.upstream], e.strategy] for e in vertex.inputs],
                *([sorted(vertex.window.items())] if vertex.window else []),
                *([list(vertex.unread)] if vertex.unread else []),
            ]
            for vertex in self.vertices
        ]
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class EnginePicture:
    """Everything that one round of answers showed.

    `left_out` are names by id of jobs that are there and not among `jobs`: they wait for resources, or cannot be read.
    """

    engine: str  #: flink, spark, prometheus
    version: str  #: empty where the engine does not say
    at_s: float  #: by the engine's clock where it tells it, otherwise the time of asking
    places: tuple[Place, ...]
    jobs: tuple[EngineJob, ...]
    findings: tuple[Finding, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VertexCounters(Record):
    """Counters of a vertex since its attempt began, summed over its subtasks; None where the engine did not say.

    `busy_s`, `idle_s` and `backpressured_s` are wall time of threads, so a vertex of parallelism p adds p seconds a
    second to their sum.
    """

    TITLE: ClassVar[str] = "counters of a vertex"
    __pydantic_config__: ClassVar[ConfigDict] = _LATER

    records_in: float | None
    records_out: float | None
    busy_s: float | None
    idle_s: float | None = None
    backpressured_s: float | None = None
    records_in_by_subtask: tuple[float, ...] = ()
    bytes_out: float | None = None
    results: float | None = None  #: that its sinks took, where they tell

    @property
    def clock_s(self) -> float | None:
        """Seconds that the vertex's threads have lived through by their own account; None where they do not tell."""
        if self.busy_s is None or self.idle_s is None or self.backpressured_s is None:
            return None
        return self.busy_s + self.idle_s + self.backpressured_s


@dataclass(frozen=True, slots=True)
class ThreadLooks(Record):
    """Looks at the threads of a vertex: how many of them found a thread at what."""

    TITLE: ClassVar[str] = "looks at the threads of a vertex"
    __pydantic_config__: ClassVar[ConfigDict] = _LATER

    working: int  #: on events
    waiting: int  #: for events
    blocked: int  #: by what they put out
    undecided: int  #: nobody can tell
    by_operator: tuple[int, ...] = ()  #: those at work, by the operator's position in the chain
    running: int = 0  #: of those at work, that had the CPU or wanted it, and nothing else

    @property
    def count(self) -> int:
        return self.working + self.waiting + self.blocked + self.undecided


@dataclass(frozen=True, slots=True)
class FlameLooks(Record):
    """Looks at the threads of a vertex that the engine took by itself, and when it had taken the last of them."""

    TITLE: ClassVar[str] = "a flame graph of a vertex"
    __pydantic_config__: ClassVar[ConfigDict] = _LATER

    end_s: float
    looks: ThreadLooks


@dataclass(frozen=True, slots=True)
class CounterPoll(Record):
    """Counters of a job at one moment. Differences of two polls of one `attempt` are statistics.

    `attempt` is a digest that changes whenever counters may have begun anew: job id, start times of the vertices,
    attempts. Loads and seconds of the CPU are by id of a place.
    """

    TITLE: ClassVar[str] = "a poll of counters"
    __pydantic_config__: ClassVar[ConfigDict] = _LATER

    job: str
    at_s: float
    attempt: str
    vertices: Mapping[str, VertexCounters]
    cpu_loads: Mapping[str, float] = field(default_factory=dict)  #: share of its host that its process used last
    cpu_s: Mapping[str, float] = field(default_factory=dict)  #: of its process since that began
    host_loads: Mapping[str, float] = field(default_factory=dict)  #: share that everybody used, where that is watched
    #: looks at threads between this poll and the next one, by vertex: of those that tell no busy time
    threads: Mapping[str, ThreadLooks] = field(default_factory=dict)
    #: flame graphs that the engine had of chains about this time, by vertex: of those that tell their busy time
    flames: Mapping[str, FlameLooks] = field(default_factory=dict)

    @property
    def untold(self) -> frozenset[str]:
        """Vertices that count records and tell no busy time."""
        counted = {id_ for id_, own in self.vertices.items() if own.records_in or own.records_out}
        return frozenset(id_ for id_ in counted if self.vertices[id_].busy_s is None)


@dataclass(frozen=True, slots=True)
class VertexSample:
    """Statistics of a vertex from differences of counters over many polls."""

    vertex: str
    events: float
    cost_s: float | None  #: sums over sums; None where no poll tells it
    selectivity: float | None
    #: one for each pair of polls with events; `cycles` are nanoseconds of one server, 1e9 a second
    batches: tuple[Batch, ...]
    span_s: float  #: seconds that the pairs cover
    contended_s: float = 0.0  #: seconds of these in which the host was so busy that wall time is longer than work
    findings: tuple[Finding, ...] = ()
    bytes_per_event: float | None = None  #: mean size of an event that it puts out
    #: part of the events that each subtask took, adding up to 1; empty where subtasks do not tell
    shares: tuple[float, ...] = ()
    cost_dispersion: float | None = None  #: variation of the cost, as an input of a deployment document has it
    cost_dispersion_events: float | None = None
    busy_share: float | None = None  #: of the time of its threads, 0 to 1, over the whole span
    backpressured_share: float | None = None
    #: events that the only reader took for each that is counted as put out, where these are more than one
    taken: float = 1.0
    cost_by: CostOrigin | None = None  #: by what the cost was told, where not by the busy time of its threads
    quiet_share: float = 1.0  #: least part of its cost that remains on hosts that nobody else uses, above 0
    marginal: MarginalCost | None = None  #: part of its cost that one more event costs; None: nobody knows of any fall


@dataclass(frozen=True, slots=True)
class ArrivalCounts:
    """Events that came to a source, step by step."""

    vertex: str
    start_s: float
    step_s: float
    #: events of the steps from `start_s` on, each of `step_s`; None where nobody counted (a gap)
    counts: tuple[float | None, ...]
    #: width at which they were really counted, a multiple of `step_s`: below it they are spread evenly. A deployment
    #: document has to say it (`arrivals_step_s`), or an estimate takes bursts for smooth.
    known_step_s: float
    #: ``offsets`` of the broker, which come whatever the job does; ``read`` or ``written`` by the source's thread
    origin: Literal["offsets", "read", "written"]
    #: whether they are of every partition that the source reads and no other: one that reads more catches up then
    is_whole: bool = False

    @property
    def events(self) -> float:
        return sum(count for count in self.counts if count is not None)

    def spread(self, start_s: float, step_s: float, steps: int) -> list[float]:
        """Events of other steps, spread evenly; none where nobody counted.

        Examples
        --------
        >>> ArrivalCounts("v", 10.0, 4.0, (8.0, None), 4.0, "read").spread(8.0, 2.0, 4)
        [0.0, 4.0, 4.0, 0.0]
        """
        counts = [0.0] * steps
        for i, count in enumerate(self.counts):
            begin_s = self.start_s + i * self.step_s
            for k in range(
                math.floor((begin_s - start_s) / step_s), math.ceil((begin_s + self.step_s - start_s) / step_s)
            ):
                overlap_s = min(begin_s + self.step_s, start_s + (k + 1) * step_s) - max(begin_s, start_s + k * step_s)
                if count and 0 <= k < steps and overlap_s > 0.0:
                    counts[k] += count * overlap_s / self.step_s
        return counts


@dataclass(frozen=True, slots=True)
class ExchangeFlow:
    """Records a second over an exchange, between what counters leave possible; the larger one counts.

    `written` is what its vertex counts as put out, over all exchanges or once for all of them.
    """

    upstream: str
    reader: str
    least: float
    most: float
    written: float


@dataclass(frozen=True, slots=True)
class JobSample:
    """Statistics of a job's operators, arrivals at its sources, both by id of the vertex, and what its threads did."""

    job: str
    operators: Mapping[str, VertexSample]
    arrivals: Mapping[str, ArrivalCounts]
    #: by id of a place, how many of the job's threads there were busy at a time, on average; None where one of them
    #: does not tell
    busy_threads: Mapping[str, float | None] = field(default_factory=dict)
    #: by id of a place, CPU cores that its process used on average, for this job and all others. Far below the busy
    #: threads, these wait: for what they call, or for the CPU.
    cpu_cores: Mapping[str, float] = field(default_factory=dict)
    span_s: float = 0.0  #: seconds that polls cover
    measured_s: float | None = None  #: that counters were watched for; None where statistics are no differences of them
    newest_s: float | None = None  #: time of the newest poll; None without any
    findings: tuple[Finding, ...] = ()
    #: events that waited before sources at `newest_s`, by vertex, where they tell
    waiting: Mapping[str, float] = field(default_factory=dict)
    flows: tuple[ExchangeFlow, ...] = ()  #: where a vertex has several readers, or several inputs

    def written_factor(self, vertex: str) -> float:
        """By what to multiply a vertex's selectivity so that it is that of its exchange which carries most.

        Flink counts what leaves a vertex over all its exchanges together, or once whatever their number, by version;
        and a broadcast once though each subtask takes it. What an exchange carries is what its reader counts.
        """
        own = [flow for flow in self.flows if flow.upstream == vertex]
        if own:
            return max(flow.most for flow in own) / own[0].written
        return self.operators[vertex].taken if vertex in self.operators else 1.0

    def part_read(self, upstream: str, reader: str) -> float:
        """Part that a reader takes of what goes over the exchange of a vertex that carries most."""
        own = [flow for flow in self.flows if flow.upstream == upstream]
        most = max((flow.most for flow in own), default=0.0)
        return next((flow.most / most for flow in own if flow.reader == reader and flow.most > 0.0), 1.0)
