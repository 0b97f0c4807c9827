"""State of a Flink job by its newest checkpoint, and what of a TaskManager's memory is there for state.

``GET /jobs/:jid/checkpoints`` names the newest completed checkpoint, ``…/checkpoints/details/:id`` has sizes by vertex.
`state_size` is the full state where the answer has `checkpointed_size` beside it; without (before Flink 1.15) it is
what one checkpoint wrote: of an incremental one that is not the state. Sizes are of bytes as they are written; objects
on the heap take more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine.connectors.answers import AnswerObject, Answers, number_of
from engine.connectors.chains import duration_s

__all__ = [
    "BACKEND",
    "PlaceMemory",
    "VertexStates",
    "describe_growth",
    "is_state_on_disk",
    "is_stopped",
    "place_memory",
    "read_state",
    "state_paths",
]

#: Setting by which a job keeps its state on the heap, or on disk.
BACKEND = "state.backend.type"

_INCREMENTAL = ("execution.checkpointing.incremental", "state.backend.incremental")
_TTL = "table.exec.state.ttl"
_MIN_CHECKPOINTS, _MIN_SPAN_S = 4, 15.0  # that tell a growth
_MEGABYTE = 2**20  # totalResource has memory in MB, all else in bytes
_ON_DISK, _ON_HEAP = ("rocksdb", "forst"), ("hashmap", "heap", "memory", "filesystem", "fsstate", "jobmanager")


@dataclass(frozen=True, slots=True)
class VertexStates:
    """Bytes of state by vertex, as far as they are told, and whether they lie on disk; None where nothing tells."""

    by_vertex: Mapping[str, float] = field(default_factory=dict)
    on_disk: bool | None = None


@dataclass(frozen=True, slots=True)
class PlaceMemory:
    """Bytes of a TaskManager: of its process, of its task heap, and managed for state backends; None: not told."""

    process_bytes: float | None
    heap_bytes: float | None
    managed_bytes: float | None


def state_paths(known: Answers, job: str) -> list[tuple[str, int]]:
    """Paths that tell a job's state, with bytes of their answers: the details once the newest checkpoint is known."""
    base = f"/jobs/{job}/checkpoints"
    newest = _newest(known, job)
    number = None if newest is None else number_of(newest.get("id"))
    return [(base, 4_000)] + ([] if number is None else [(f"{base}/details/{number:.0f}", 2_000)])


def read_state(
    known: Answers, job: str, name: str, settings: Mapping[str, str], cluster: Mapping[str, str]
) -> VertexStates:
    """State of a job's vertices; what is not told, and what the sizes are of, become findings."""
    on_disk = is_state_on_disk(settings.get(BACKEND, ""))
    newest = _newest(known, job)
    if newest is None:
        known.find("missing", "state_unknown", name, "checkpoint_missing", job=name)
        return VertexStates({}, on_disk)
    number, total = number_of(newest.get("id")) or 0.0, number_of(newest.get("state_size"))
    told = {"job": name, "checkpoint": number, "total": total}
    details = known.raw(f"/jobs/{job}/checkpoints/details/{number:.0f}")
    tasks = details.get("tasks") if isinstance(details, Mapping) else None
    if not isinstance(tasks, Mapping) or not tasks:
        known.find("missing", "state_unknown", name, "checkpoint_whole", **told)
        return VertexStates({}, on_disk)
    if "checkpointed_size" not in newest and _may_be_incremental(on_disk, cluster):
        known.find("missing", "state_incremental", name, **told)
        return VertexStates({}, on_disk)
    sizes = {
        str(vertex): size
        for vertex, row in tasks.items()
        if isinstance(row, Mapping) and (size := number_of(row.get("state_size"))) is not None and size >= 0.0
    }
    where = {True: "on disk", False: "on the heap", None: "in memory or on disk, which is not told"}[on_disk]
    known.find("found", "state_measured", name, where=where, **told)
    return VertexStates(sizes, on_disk)


def describe_growth(known: Answers, job: str, name: str, keepers: Sequence[str], cluster: Mapping[str, str]) -> None:
    """Tell of vertices that keep every row for good, with the growth of the job's state by its newest checkpoints.

    Nothing is told where a setting gives rows a time to live.
    """
    if not keepers or (duration_s(cluster.get(_TTL, "0")) or 0.0) > 0.0:
        return
    growth = _growth(known, job)
    if growth is None:
        known.find("warning", "state_unbounded", name, "state_unbounded_unmeasured", job=name, keepers=list(keepers))
        return
    sizes = {"newest": growth.newest, "hour": max(0.0, growth.per_hour)}
    sizes["day"] = growth.newest + 24.0 * sizes["hour"]
    counts = {"checkpoints": growth.checkpoints, "span_s": growth.span_s}
    known.find("warning", "state_unbounded", name, job=name, keepers=list(keepers), **sizes, **counts)


@dataclass(frozen=True, slots=True)
class _Growth:
    """Bytes of state by the newest checkpoint, and bytes an hour over so many of them."""

    newest: float
    per_hour: float
    checkpoints: int
    span_s: float


def _growth(known: Answers, job: str) -> _Growth | None:
    """Growth of full sizes over the checkpoints that are listed; None with fewer than four, or a short while."""
    answer = known.raw(f"/jobs/{job}/checkpoints")
    listed = answer.get("history") if isinstance(answer, Mapping) else None
    sizes: dict[float, float] = {}
    for row in listed if isinstance(listed, list) else ():
        if isinstance(row, Mapping) and row.get("status") == "COMPLETED" and "checkpointed_size" in row:
            at_ms, size = number_of(row.get("trigger_timestamp")), number_of(row.get("state_size"))
            if at_ms is not None and size is not None and size >= 0.0:
                sizes[at_ms / 1000] = size
    times = sorted(sizes)
    if len(times) < _MIN_CHECKPOINTS or times[-1] - times[0] < _MIN_SPAN_S:
        return None
    mean_s, mean = math.fsum(times) / len(times), math.fsum(sizes.values()) / len(times)
    spread = math.fsum((at_s - mean_s) ** 2 for at_s in times)
    slope = math.fsum((at_s - mean_s) * (sizes[at_s] - mean) for at_s in times) / spread  # least squares, bytes/s
    return _Growth(sizes[times[-1]], 3600.0 * slope, len(times), times[-1] - times[0])


def is_state_on_disk(backend: str) -> bool | None:
    """Whether a state backend keeps state on disk, by its name; None for one that is not known.

    Examples
    --------
    >>> [is_state_on_disk(name) for name in ("EmbeddedRocksDBStateBackend", "HashMapStateBackend", "")]
    [True, False, None]
    """
    name = backend.lower()
    if any(word in name for word in _ON_DISK):
        return True
    return False if any(word in name for word in _ON_HEAP) else None


def place_memory(row: AnswerObject) -> PlaceMemory:
    """Memory of a TaskManager from its row: `totalResource` in MB, `memoryConfiguration` and `hardware` in bytes."""
    own = row.record("totalResource", required=False)
    config = row.record("memoryConfiguration", required=False)
    machine = row.record("hardware", required=False)
    heap, managed = (_in_bytes(own.optional(name)) for name in ("taskHeapMemory", "managedMemory"))
    heap = config.optional("taskHeap") if heap is None else heap
    managed = config.optional("managedMemory") if managed is None else managed
    managed = machine.optional("managedMemory") if managed is None else managed
    process = config.optional("totalProcessMemory")
    if process is None:
        parts = ("taskHeapMemory", "taskOffHeapMemory", "managedMemory", "networkMemory")
        process = _in_bytes(sum(own.optional(part) or 0.0 for part in parts)) or machine.optional("physicalMemory")
    return PlaceMemory(process, heap, managed)


def _in_bytes(megabytes: float | None) -> float | None:
    return None if megabytes is None else megabytes * _MEGABYTE


def _newest(known: Answers, job: str) -> Mapping[str, object] | None:
    """The newest completed checkpoint as the list of checkpoints has it; None without one."""
    answer = known.raw(f"/jobs/{job}/checkpoints")
    latest = answer.get("latest") if isinstance(answer, Mapping) else None
    newest = latest.get("completed") if isinstance(latest, Mapping) else None
    return newest if isinstance(newest, Mapping) else None


def _may_be_incremental(on_disk: bool | None, cluster: Mapping[str, str]) -> bool:
    """Whether a checkpoint may have written a part of the state alone."""
    if on_disk is False:
        return False
    told = next((cluster[name].lower() for name in _INCREMENTAL if name in cluster), None)
    return told != "false"


def is_stopped(checkpoints: object) -> bool:
    """Whether the answer about a job's checkpoints tells that it was stopped with a savepoint: Flink says *finished*.

    Such a savepoint is synchronous, the last that the job took; one that was taken while it ran on is not.
    """
    told = checkpoints if isinstance(checkpoints, Mapping) else {}
    latest, history = told.get("latest"), told.get("history")
    rows = [latest.get("savepoint")] if isinstance(latest, Mapping) else []
    rows += history if isinstance(history, list) else []
    return any(
        isinstance(row, Mapping)
        and str(row.get("checkpoint_type")).upper() == "SYNC_SAVEPOINT"
        and str(row.get("status")).upper() == "COMPLETED"
        for row in rows
    )
