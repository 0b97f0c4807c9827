"""Imported jobs as the console keeps them: nodes of a pool, bodies of queries, where each operator runs.

A node is a place of the engine (a TaskManager, an executor), a server of it a thread or a slot, and a cycle is a
nanosecond of busy time: every server has a capacity of `SERVER_CPS`. How threads become servers is ADR 0068.
"""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypedDict

from engine.connectors.picture import (
    ArrivalCounts,
    EngineJob,
    EnginePicture,
    Finding,
    JobSample,
    Place,
    Vertex,
    VertexSample,
)
from engine.connectors.statistics import CONTENDED_LOAD
from engine.document.cycles import CPU_NS
from engine.document.elements import MarginalCost
from engine.document.kinds import MAX_DISPERSION
from engine.document.unknown_costs import FULL_SPAN_S

__all__ = [
    "MAX_NAME",
    "SERVER_CPS",
    "UNCOUNTED",
    "WAITING_SHARE",
    "BodyDocument",
    "ImportedNode",
    "ImportedPool",
    "ImportedQuery",
    "InputDocument",
    "OperatorDocument",
    "ReplicaDocument",
    "distinct_names",
    "import_picture",
    "slug",
]


#: The most that a name of the console has: it stands in addresses.
MAX_NAME = 64
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_ILLEGAL = re.compile(r"[^a-z0-9._-]+")
_DIGEST = 6


def slug(text: str, *, dots: bool = True, longest: int = MAX_NAME) -> str:
    """A text as a name: a-z, 0-9, dash, underscore and dots; what is too long ends in a digest of the whole.

    Examples
    --------
    >>> slug("Global WindowAggregate"), slug("Zürich / 10.0.0.1:41"), slug("Größe.x", dots=False), slug("任务")[:4]
    ('global-window-aggregate', 'zurich-10.0.0.1-41', 'groe-x', 'job-')
    """
    plain = unicodedata.normalize("NFKD", _WORDS.sub("-", text)).encode("ascii", "ignore").decode().lower()
    name = _ILLEGAL.sub("-", plain if dots else plain.replace(".", "-"))
    name = re.sub(r"-{2,}", "-", name).strip("-._")
    digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]
    if not name:
        return f"job-{digest}"
    return name if len(name) <= longest else f"{name[: longest - _DIGEST - 1].rstrip('-._')}-{digest}"


def distinct_names(wanted: Iterable[tuple[str, str]], taken: Iterable[str] = ()) -> Mapping[str, str]:
    """Names by key, numbered from 2 on where several keys want the same, in order.

    Examples
    --------
    >>> dict(distinct_names([("v1", "map"), ("v2", "map"), ("v3", "sink")]))
    {'v1': 'map', 'v2': 'map-2', 'v3': 'sink'}
    """
    used = set(taken)
    names: dict[str, str] = {}
    for key, name in wanted:
        number, chosen = 1, name
        while chosen in used:
            number += 1
            chosen = f"{name[: MAX_NAME - len(str(number)) - 1]}-{number}"
        used.add(chosen)
        names[key] = chosen
    return names


#: Cycles per second of one server of an imported pool: a cycle is a nanosecond of its busy time.
SERVER_CPS = 1e9
#: Threads mostly wait where their place's process uses less than so much of a core for each that is busy.
WAITING_SHARE = 0.5

MAX_SERVERS = 1024
_MAX_STREAM = 120
_MAX_EVENTS = 1e15
_MIN_FRACTION = 1e-6
_INFERRED = ("cpu_time", "load_step")  #: costs by something else than what threads did
_SHARE_STEPS = 20  #: of the part of a cost that a quiet host or more load leaves, since each is another document
_MAX_LOADS = 9  #: that are told apart
#: Seconds that statistics cover, as far as that is too little: in steps, since each is another document.
_SPANS = (0.0, 15.0, 30.0, 60.0, 120.0, 180.0, 240.0)
#: Doubt of an operator whose results are not counted yet; it goes as soon as one is, or after `Vertex.silence_s`.
UNCOUNTED = "its results are not counted yet, so how many it puts out is unknown"


#: An input with its statistics, as a deployment document has it.
InputDocument = TypedDict(
    "InputDocument",
    {
        "from": str,
        "selectivity": float,
        "cycles_per_event": float,
        "batches": list[dict[str, float]],
        "cost_dispersion": float,
        "cost_dispersion_events": float,
    },
    total=False,
)


class OperatorDocument(TypedDict, total=False):
    """An operator, as a deployment document has it."""

    id: str
    kind: str
    inputs: list[InputDocument]
    bytes_per_event: float
    evidence: dict[str, object]
    window: Mapping[str, object]
    trigger: Mapping[str, object]
    checkpoint: Mapping[str, object]
    buffer_timeout_s: float
    keyed: bool
    waits_outside: bool
    state_bytes: float
    state_on_disk: bool
    unread: list[str]
    measured_s: float
    quiet_share: float
    marginal_cost: dict[str, float]
    cost_by: str


class ReplicaDocument(TypedDict):
    """Share of an operator on a server."""

    node: str
    core: int
    fraction: float


class BodyDocument(TypedDict):
    """Operators of a query as `query_create` takes them, without nodes."""

    operators: list[OperatorDocument]


@dataclass(frozen=True, slots=True)
class ImportedNode:
    """A place as a node: `cores` servers of `capacity_cps` each, less than a core's where its quota is."""

    name: str
    place: str  #: the engine's own id
    cores: int
    memory_bytes: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    capacity_cps: float = SERVER_CPS
    quota_cps: float | None = None  #: of the whole place, where it may use less than a core


@dataclass(frozen=True, slots=True)
class ImportedQuery:
    """A job as a query."""

    job: str  #: the engine's own id
    name: str
    body: BodyDocument
    placement: Mapping[str, list[ReplicaDocument]]  #: by operator; empty where its place is not known
    vertices: Mapping[str, str]  #: id of the vertex by the operator's name
    sources: Mapping[str, str]  #: id of the vertex by the name of the source (stream) that it reads
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportedPool:
    """Everything of an engine as nodes and queries."""

    nodes: tuple[ImportedNode, ...]
    queries: tuple[ImportedQuery, ...]
    findings: tuple[Finding, ...] = ()

    def to_deployment(
        self,
        arrivals: Mapping[str, ArrivalCounts | Sequence[float]],
        subinterval_s: float,
        objectives: Sequence[Mapping[str, object]] = (),
        *,
        quiet_s: float = 0.0,
    ) -> dict[str, object]:
        """A deployment document of all queries whose operators are placed, for `engine.estimation`.

        `arrivals`: by the name of the source: counts as they were sampled, or events of each subinterval where they are
        known exactly. A source without any is silent. `quiet_s`: seconds without arrivals at the end, in which what
        waits is done.
        """
        names = [name for query in self.queries for name in query.sources]
        counted_ones = [counts for counts in arrivals.values() if isinstance(counts, ArrivalCounts)]
        start_s = min((counts.start_s for counts in counted_ones), default=0.0)
        ends_s = [counts.start_s + counts.step_s * len(counts.counts) - start_s for counts in counted_ones]
        given = [len(counts) for counts in arrivals.values() if not isinstance(counts, ArrivalCounts)]
        steps = max([1, *given, *(math.ceil(end_s / subinterval_s - 1e-9) for end_s in ends_s)])
        steps += math.ceil(quiet_s / subinterval_s)
        placed = [query for query in self.queries if all(query.placement[op["id"]] for op in query.body["operators"])]
        return {
            "subinterval_s": subinterval_s,
            "cycle_unit": CPU_NS,
            "sources": [_source(name, arrivals.get(name, ()), start_s, subinterval_s, steps) for name in names],
            "nodes": [{"id": node.name, "capacity_cps": node.capacity_cps, "cores": node.cores} for node in self.nodes],
            "operators": [
                operator | {"query": query.name, "split": query.placement[operator["id"]]}
                for query in placed
                for operator in query.body["operators"]
            ],
            "objectives": list(objectives),
        }


def _source(
    name: str, counts: ArrivalCounts | Sequence[float], start_s: float, subinterval_s: float, steps: int
) -> dict[str, object]:
    if not isinstance(counts, ArrivalCounts):
        return {"id": name, "arrivals": [*counts, *[0.0] * (steps - len(counts))]}
    source: dict[str, object] = {"id": name, "arrivals": counts.spread(start_s, subinterval_s, steps)}
    known_steps = math.ceil(counts.known_step_s / subinterval_s - 1e-9)
    return source | ({"arrivals_step_s": min(known_steps, steps) * subinterval_s} if known_steps > 1 else {})


def import_picture(
    picture: EnginePicture,
    samples: Mapping[str, JobSample],
    *,
    names: Mapping[str, str] | None = None,
    nodes: Mapping[str, str] | None = None,
    taken_nodes: Collection[str] = (),
) -> ImportedPool:
    """Nodes and queries of what runs on an engine.

    `samples`: statistics by the id of the job; a job without any has operators that never ran. `names`: names of
    queries by the id of the job, where they have one already; made from the job's name otherwise. `nodes`: names of
    nodes by the id of the place, where they have one already; made from the place's name otherwise. `taken_nodes`:
    names that other nodes have: places of two engines may be called alike.
    """
    given = dict(names or {})
    jobs = sorted(picture.jobs, key=lambda job: (job.started_at_s, job.id))
    fresh = [(job.id, slug(job.name)) for job in jobs if job.id not in given]
    query_names = {**given, **distinct_names(fresh, given.values())}
    known_nodes = {place.id: nodes[place.id] for place in picture.places if nodes and place.id in nodes}
    fresh_nodes = [(place.id, slug(place.name)) for place in picture.places if place.id not in known_nodes]
    node_names = {**known_nodes, **distinct_names(fresh_nodes, {*known_nodes.values(), *taken_nodes})}
    layouts = [
        _by_slot(place, jobs) if picture.engine == "spark" else _layout(place, picture.places, jobs, samples)
        for place in picture.places
    ]
    imported = tuple(
        ImportedNode(
            node_names[layout.place.id],
            layout.place.id,
            layout.servers,
            _memory(picture, layout.place),
            _labels(layout.place),
            SERVER_CPS * layout.core,
            SERVER_CPS * layout.place.cores if layout.place.cores < 1.0 else None,
        )
        for layout in layouts
    )
    by_place = {layout.place.id: layout for layout in layouts}
    queries = tuple(
        _query(job, query_names[job.id], samples.get(job.id), picture.at_s, by_place, node_names) for job in jobs
    )
    findings = [layout.finding for layout in layouts if layout.finding is not None]
    return ImportedPool(imported, queries, (*findings, *_memory_finding(picture)))


def _memory(picture: EnginePicture, place: Place) -> float | None:
    """Bytes that state may take on a place: its task heap where a job on it keeps state there, else managed memory.

    Managed memory of 0, as deployments with state on the heap set it, is none that is meant for state.
    """
    here = [
        vertex
        for job in picture.jobs
        for vertex in job.vertices
        if any(subtask.place == place.id for subtask in vertex.subtasks)
    ]
    is_on_heap = any(vertex.state_on_disk is False for vertex in here)
    return place.heap_bytes if is_on_heap or not place.managed_bytes else place.managed_bytes


def _memory_finding(picture: EnginePicture) -> list[Finding]:
    """The finding on what counts as the memory of nodes, said once; none without places."""
    told = [place for place in picture.places if place.heap_bytes is not None or place.managed_bytes is not None]
    if not told:
        if not picture.places:
            return []
        return [Finding.of("missing", "memory_unknown", "")]
    if picture.engine == "spark":
        return [Finding.of("assumed", "memory_of_state", "", "memory_of_executors")]
    return [Finding.of("found", "memory_of_state", "", "memory_of_managers")]


def _labels(place: Place) -> dict[str, str]:
    labels = {"place": place.id, "slots": str(place.slots)}
    return {**labels, "host": place.host} if place.host else labels


_Thread = tuple[str, str, int]  # job, vertex, subtask


@dataclass(frozen=True, slots=True)
class _Layout:
    """Servers of a place, and which each thread runs on."""

    place: Place
    servers: int
    of_thread: Mapping[_Thread, int]
    finding: Finding | None = None
    core: float = 1.0  #: that each server has: less than one where all of them together may use less


def _layout(
    place: Place, places: Sequence[Place], jobs: Sequence[EngineJob], samples: Mapping[str, JobSample]
) -> _Layout:
    """Threads as servers of their own, or slots as servers (ADR 0068).

    Busy time is told by thread. Where threads mostly wait they do not stand in one another's way, and each is a server;
    so it is where there are cores for all that have not ended. Where the cores are in use, what they wait for is a
    core. Then, and where nothing tells, the threads of a slot share a server: that may say no too often, never yes.
    """
    slots = _slots(place, jobs)
    ended = {(job.id, vertex.id) for job in jobs for vertex in job.vertices if vertex.has_ended}
    over = [thread for thread in slots if thread[:2] in ended]
    threads = [thread for thread in slots if thread[:2] not in ended]
    used_slots = len(set(slots.values()))
    whole_cores = max(1, math.floor(place.cores))
    free_slots = min(max(0, place.slots - used_slots), whole_cores)  # what will run there may compute
    if len(threads) <= math.floor(place.cores):  # free slots have the cores that are left, and no more
        free_slots = min(free_slots, whole_cores - len(threads))
        return replace(_own(place, threads, free_slots, over=over), core=min(1.0, place.cores))
    share, name = _cpu_share(place, jobs, samples), place.name
    fullness = _fullness(place, places, samples)
    told = {"place": name, "threads": len(threads), "cores": place.cores, "share": share, "used": fullness}
    if share is not None and share < WAITING_SHARE and fullness < CONTENDED_LOAD:
        finding = Finding.of("found", "threads_are_servers", name, **told)
        return _own(place, threads, free_slots, finding, over=over)
    layout = _by_slot(place, jobs)
    told["servers"] = layout.servers
    if share is None:
        return replace(layout, finding=Finding.of("assumed", "slots_are_servers", name, "slots_assumed", **told))
    kind = "slots_contended" if share < WAITING_SHARE else ""
    return replace(layout, finding=Finding.of("found", "slots_are_servers", name, kind, **told))


def _by_slot(place: Place, jobs: Sequence[EngineJob]) -> _Layout:
    """Slots as servers, no more than there are cores: one of Spark holds one task at a time."""
    slots = _slots(place, jobs)
    servers = max(1, min(place.slots or len(set(slots.values())), max(1, math.floor(place.cores)), MAX_SERVERS))
    of_thread = {thread: slot % servers for thread, slot in slots.items()}
    return _Layout(place, servers, of_thread, core=min(1.0, place.cores))


def _own(
    place: Place,
    threads: Sequence[_Thread],
    free_slots: int,
    finding: Finding | None = None,
    *,
    over: Sequence[_Thread] = (),
) -> _Layout:
    """A server for each thread, and one beside them for each free slot; those that are `over` need none."""
    servers = min(MAX_SERVERS, max(1, len(threads) + free_slots))
    of_thread = {thread: i % servers for i, thread in enumerate(threads)} | dict.fromkeys(over, 0)
    return _Layout(place, servers, of_thread, finding)


def _slots(place: Place, jobs: Sequence[EngineJob]) -> dict[_Thread, int]:
    """Slot of each thread of a place: one holds a subtask of each vertex of its sharing group, so the k-th of them."""
    slots: dict[_Thread, int] = {}
    numbers: dict[tuple[str, str, int], int] = {}
    for job in jobs:
        for vertex in job.vertices:
            here = [subtask for subtask in vertex.subtasks if subtask.place == place.id]
            for k, subtask in enumerate(here):
                key = job.id, vertex.slot_group or "", k
                slots[job.id, vertex.id, subtask.index] = numbers.setdefault(key, len(numbers))
    return slots


def _cpu_share(place: Place, jobs: Sequence[EngineJob], samples: Mapping[str, JobSample]) -> float | None:
    """Cores that a place's process used for each thread that was busy; None where one of the two is not known."""
    here = [job for job in jobs if any(s.place == place.id for vertex in job.vertices for s in vertex.subtasks)]
    known = [samples[job.id] for job in here if job.id in samples]
    cores = [sample.cpu_cores[place.id] for sample in known if place.id in sample.cpu_cores]
    threads = [sample.busy_threads.get(place.id) for sample in known]
    told = [busy for busy in threads if busy is not None]
    if len(told) < len(here) or not cores or sum(told) <= 0.0:
        return None
    return max(cores) / sum(told)


def _fullness(place: Place, places: Sequence[Place], samples: Mapping[str, JobSample]) -> float:
    """Share of the cores of a place's host that the places there used on average."""
    here = [other for other in places if other.id == place.id or (place.host and other.host == place.host)]
    used = [max((sample.cpu_cores.get(other.id, 0.0) for sample in samples.values()), default=0.0) for other in here]
    return math.fsum(used) / math.fsum(other.cores for other in here)


def _query(
    job: EngineJob,
    name: str,
    sample: JobSample | None,
    at_s: float,
    layouts: Mapping[str, _Layout],
    node_names: Mapping[str, str],
) -> ImportedQuery:
    operators = distinct_names([(vertex.id, slug(vertex.label, dots=False)) for vertex in job.vertices])
    streams = {vertex.id: vertex.stream or vertex.label for vertex in job.vertices if vertex.is_source}
    sources = distinct_names(
        [(id_, f"{name}.{slug(stream, dots=False)}"[:_MAX_STREAM]) for id_, stream in streams.items()]
    )
    findings: list[Finding] = []
    rows = []
    for vertex in job.vertices:
        own = sample.operators.get(vertex.id) if sample else None
        inputs = [(e.upstream, operators[e.upstream]) for e in vertex.inputs] or [("", sources[vertex.id])]
        rows.append(_operator(job, vertex, operators[vertex.id], inputs, own, sample, at_s, findings))
    return ImportedQuery(
        job=job.id,
        name=name,
        body={"operators": rows},
        placement={
            operators[vertex.id]: _replicas(job, vertex, sample, layouts, node_names) for vertex in job.vertices
        },
        vertices={operators[vertex.id]: vertex.id for vertex in job.vertices},
        sources={sources[id_]: id_ for id_ in streams},
        findings=tuple(findings),
    )


def _operator(
    job: EngineJob,
    vertex: Vertex,
    name: str,
    inputs: Sequence[tuple[str, str]],
    own: VertexSample | None,
    sample: JobSample | None,
    at_s: float,
    findings: list[Finding],
) -> OperatorDocument:
    """An operator that reads `inputs`: ids of vertices, of a source empty, with the names of what they are here."""
    subject = f"{job.name}/{vertex.label}"
    entry = _statistics(vertex, own, sample.written_factor(vertex.id) if sample else 1.0, subject, findings)
    parts = [sample.part_read(upstream, vertex.id) if sample else 1.0 for upstream, _ in inputs]
    if len(inputs) > 1 and own is not None and own.events > 0.0:
        findings.append(Finding.of("assumed", "inputs_alike", subject, vertex=vertex.label, count=len(inputs)))
    read = [
        InputDocument({"from": above, **_of_part(entry, part)}) for (_, above), part in zip(inputs, parts, strict=True)
    ]
    row = OperatorDocument(id=name, kind=vertex.kind, inputs=read)
    if own is not None and own.bytes_per_event:
        row["bytes_per_event"] = own.bytes_per_event
    if vertex.is_keyed is not None:
        row["keyed"] = vertex.is_keyed
    if vertex.window:
        row["window"] = _window_of_parts(vertex.window, max(parts)) | _measured_window(vertex, own, max(parts))
    if vertex.trigger:
        row["trigger"] = dict(vertex.trigger)
    if vertex.checkpoint:
        row["checkpoint"] = dict(vertex.checkpoint)
    if vertex.buffer_timeout_s is not None:
        row["buffer_timeout_s"] = vertex.buffer_timeout_s
    if vertex.state_bytes is not None:
        row["state_bytes"] = vertex.state_bytes
    if vertex.state_on_disk is not None:
        row["state_on_disk"] = vertex.state_on_disk
    doubts = [*vertex.unread, *vertex.doubts, *([UNCOUNTED] if _is_uncounted(job, vertex, own) else [])]
    if doubts:
        row["unread"] = doubts
    if vertex.waits_outside:
        row["waits_outside"] = True
    row["evidence"] = _evidence(own, sample, at_s)
    if own is not None and own.cost_by in _INFERRED:
        row["cost_by"] = own.cost_by
    if own is not None and own.quiet_share < 1.0:
        row["quiet_share"] = max(1, math.floor(own.quiet_share * _SHARE_STEPS)) / _SHARE_STEPS
    if own is not None and own.marginal is not None:
        row["marginal_cost"] = _marginal_document(own.marginal)
    if sample is not None and sample.measured_s is not None and sample.measured_s < FULL_SPAN_S:
        row["measured_s"] = max(step for step in _SPANS if step <= sample.measured_s)
    return row


def _statistics(
    vertex: Vertex, own: VertexSample | None, factor: float, subject: str, findings: list[Finding]
) -> InputDocument:
    """Fields of an input: selectivity, cost in nanoseconds, batches, variation. Without a cost it is unknown."""
    if own is None or own.selectivity is None:
        findings.append(Finding.of("missing", "selectivity_unknown", subject, vertex=vertex.label))
        return {"selectivity": 1.0}
    entry: InputDocument = {"selectivity": own.selectivity * factor}
    if own.cost_s is None:
        return entry
    entry["cycles_per_event"] = own.cost_s * 1e9
    entry["batches"] = [
        {"events": batch.events, "outputs": batch.outputs * factor, "cycles": batch.cycles} for batch in own.batches
    ]
    if own.cost_dispersion is not None and own.cost_dispersion_events is not None:
        entry["cost_dispersion"] = own.cost_dispersion
        entry["cost_dispersion_events"] = max(1.0, own.cost_dispersion_events)
    return entry


def _is_uncounted(job: EngineJob, vertex: Vertex, own: VertexSample | None) -> bool:
    """Whether nothing tells yet how many results a vertex that others read puts out for each event."""
    if vertex.has_ended or not any(
        exchange.upstream == vertex.id for reader in job.vertices for exchange in reader.inputs
    ):
        return False
    if own is None or own.selectivity is None:
        return True
    return own.selectivity == 0.0 and own.span_s < vertex.silence_s


def _evidence(own: VertexSample | None, sample: JobSample | None, at_s: float) -> dict[str, object]:
    unit = {"cycle_unit": CPU_NS}
    if own is None or own.cost_s is None:
        return {"kind": "unknown", "events": min(own.events if own else 0.0, _MAX_EVENTS), **unit}
    newest_s = sample.newest_s if sample and sample.newest_s is not None else at_s
    age_s = max(0.0, at_s - newest_s)
    kind = "predicted" if own.cost_by in _INFERRED else "measured"
    return {"kind": kind, "events": min(own.events, _MAX_EVENTS), "age_s": age_s, **unit}


def _marginal_document(marginal: MarginalCost) -> dict[str, float]:
    """A marginal cost in steps, the interval rather too wide."""
    least, steps = 1.0 / _SHARE_STEPS, _SHARE_STEPS
    return {
        "share": max(least, round(marginal.share * steps) / steps),
        "low": max(least, math.floor(marginal.low * steps) / steps),
        "high": max(least, math.ceil(marginal.high * steps) / steps),
        "loads": min(_MAX_LOADS, marginal.loads),
    }


def _of_part(entry: InputDocument, part: float) -> InputDocument:
    """Statistics by event of a stream of which an operator takes a part: an event of the rest costs it nothing."""
    if part >= 1.0:
        return entry
    scaled: InputDocument = {**entry, "selectivity": entry["selectivity"] * part}
    if "cycles_per_event" in entry:
        scaled["cycles_per_event"] = entry["cycles_per_event"] * part
    if "batches" in entry:
        scaled["batches"] = [{**batch, "events": batch["events"] / part} for batch in entry["batches"]]
    if "cost_dispersion" in entry:  # events of a mean times its relative variance
        scaled["cost_dispersion"] = min(MAX_DISPERSION, entry["cost_dispersion"] / part)
        scaled["cost_dispersion_events"] = entry["cost_dispersion_events"] / part
    return scaled


def _window_of_parts(window: Mapping[str, object], part: float) -> dict[str, object]:
    """A window by count, counting the events of which it takes a part."""
    size = window.get("size")
    return (
        {**window, "size": size / part} if window.get("policy") == "count" and isinstance(size, float) else dict(window)
    )


def _measured_window(vertex: Vertex, own: VertexSample | None, part: float) -> dict[str, float]:
    """Events of one of a vertex's windows while it was measured, where keys may bound their results: of no join."""
    window = vertex.window or {}
    size = window.get("size")
    is_timed = window.get("policy") == "time" and window.get("type") != "session" and window.get("emit") != "on_update"
    if not is_timed or not isinstance(size, float) or vertex.kind == "join" or own is None or own.span_s <= 0.0:
        return {}
    events = own.events / own.span_s * size / part
    return {"measured_events": float(f"{events:.2g}")} if events > 0.0 else {}


def _replicas(
    job: EngineJob,
    vertex: Vertex,
    sample: JobSample | None,
    layouts: Mapping[str, _Layout],
    node_names: Mapping[str, str],
) -> list[ReplicaDocument]:
    """Shares of a vertex on servers; none where one of its subtasks has no place."""
    own = sample.operators.get(vertex.id) if sample else None
    count = len(vertex.subtasks)
    shares = own.shares if own and len(own.shares) == count else (1.0 / count,) * count
    parts: dict[tuple[str, int], float] = {}
    for subtask, share in zip(vertex.subtasks, shares, strict=True):
        layout = layouts.get(subtask.place or "")
        if layout is None:
            return []
        key = node_names[layout.place.id], layout.of_thread[job.id, vertex.id, subtask.index]
        parts[key] = parts.get(key, 0.0) + max(share, _MIN_FRACTION)
    total = math.fsum(parts.values())
    return [{"node": node, "core": core, "fraction": part / total} for (node, core), part in parts.items()]
