"""An export of a decision: the decided job, settings with their reverse, notes, and their text."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml
from pydantic import JsonValue, SerializeAsAny

from engine.connectors.picture import Place
from engine.document.elements import Replica
from engine.document.memory import MEMORY_SLACK
from engine.records import Fact, Record, Sentence

__all__ = [
    "FORMATS",
    "DecidedJob",
    "DecidedOperator",
    "EngineExport",
    "EngineSettings",
    "ExportNote",
    "ExportedJob",
    "ExportedOperator",
    "KubernetesTarget",
    "NoteLevel",
    "ProgramSettings",
    "RestCall",
    "common_notes",
    "export_text",
    "is_uneven",
    "kubernetes_metadata",
    "uneven_note",
]

FORMATS = ("yaml", "json")
NoteLevel = Literal["lost", "program", "assumed", "info"]
ProgramSettings = dict[str, str | int | None]
_EVEN = 0.01  # shares that differ by less are even
_NO_NAME = re.compile(r"[^a-z0-9]+")
_MAX_KUBERNETES_NAME = 45  # of a FlinkDeployment, whose name becomes part of others


@dataclass(frozen=True)
class ExportNote(Record):
    """Something that a reader of an export has to know.

    `level` is ``lost`` (the engine cannot express it), ``program`` (only the program can set it), ``assumed`` or
    ``info``; `code` is stable.
    """

    level: NoteLevel
    code: str
    subject: str
    message: Sentence

    @classmethod
    def of(cls, level: NoteLevel, code: str, subject: str, kind: str = "", /, **values: object) -> ExportNote:
        """A note by names and numbers, of its sentence's `kind` where that is not its code."""
        return cls(level, code, subject, Fact(f"exports.{kind or code}", **values))


@dataclass(frozen=True, slots=True)
class DecidedOperator:
    """An operator of a decision, and what it is on the engine.

    Attributes
    ----------
    vertex : str, optional
        The engine's own id; None where the operator was not found there.
    before : tuple of Replica
        Where it ran when it was imported; empty: not known.
    after : tuple of Replica
        Where the decision puts it.
    slot_group : str, optional
        Id or name of the group of operators whose subtasks share slots; None: not told.
    parallelism : int, optional
        Subtasks that it is to have; None: as many as replicas, or as now where it stays.
    need_bytes : float, optional
        Memory that its state takes, over all replicas; None: not known.
    """

    name: str
    vertex: str | None
    before: tuple[Replica, ...]
    after: tuple[Replica, ...]
    is_source: bool = False
    slot_group: str | None = None
    parallelism: int | None = None
    need_bytes: float | None = 0.0


@dataclass(frozen=True, slots=True)
class KubernetesTarget:
    """Object that a patch is for. A name that is `assumed` was made of the job's."""

    name: str
    namespace: str = ""
    kind: str = ""
    assumed: bool = False


@dataclass(frozen=True, slots=True)
class DecidedJob:
    """A job of an engine with the placement that was decided for it.

    Attributes
    ----------
    id : str
        Of the job on the engine.
    parallelism_now : mapping of str to int
        Parallelism of its vertices by their ids, as the engine told it; those that no operator stands for as well.
    places : mapping of str to Place
        Processes of the engine by name of the node that stands for them.
    settings : mapping of str to str
        Settings of the job as the engine told them.
    rate_share : float
        Share of the sources' events that the decision lets in.
    rate_eps : float, optional
        Events/s of all sources, for limits per trigger.
    trigger_s : float, optional
        Interval of Spark's trigger.
    start_s : float
        Seconds into the decision's horizon before which it reads nothing.
    notes : tuple of ExportNote
        Notes of whoever made it, which go first.
    memory_left : mapping of str to float
        Bytes of memory that other queries leave to its state, by node; a node without an entry does not state its own.
    """

    id: str
    name: str
    operators: tuple[DecidedOperator, ...]
    parallelism_now: Mapping[str, int] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    rate_share: float = 1.0
    rate_eps: float | None = None
    trigger_s: float | None = None
    start_s: float = 0.0
    target: KubernetesTarget | None = None
    notes: tuple[ExportNote, ...] = ()
    memory_left: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RestCall(Record):
    """A request to the engine's own REST API; `path` begins after its address."""

    method: str
    path: str
    body: Mapping[str, JsonValue]


@dataclass(frozen=True)
class EngineSettings(Record):
    """One direction of an export: what applies a decision, or what takes it back.

    A setting of None removes its key. `program` is what only the program can set, by operator. `patch` is a JSON merge
    patch (RFC 7396) of the Kubernetes object; null removes a key.
    """

    settings: Mapping[str, str | None]
    program: Mapping[str, ProgramSettings]
    calls: tuple[RestCall, ...]
    patch: Mapping[str, JsonValue]


@dataclass(frozen=True)
class ExportedJob(Record):
    """The job on the engine."""

    id: str
    name: str


@dataclass(frozen=True)
class ExportedOperator(Record):
    """An operator of an export: its vertex, parallelism before and after, its nodes after."""

    operator: str
    vertex: str | None
    parallelism_before: int | None
    parallelism: int | None
    nodes: tuple[Replica, ...]


@dataclass(frozen=True)
class EngineExport(Record):
    """A decision in an engine's own terms: `apply` it, `reverse` it, and what to know about both."""

    engine: str
    job: ExportedJob
    operators: tuple[SerializeAsAny[ExportedOperator], ...]
    apply: EngineSettings
    reverse: EngineSettings
    notes: tuple[ExportNote, ...]


def export_text(value: JsonValue, form: str) -> str:
    """A part of an export as text of one of `FORMATS`; reading it again gives the same value.

    >>> export_text({"name": "yes", "a: b": None}, "yaml")
    "name: 'yes'\\n'a: b': null\\n"
    """
    if form == "json":
        return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    return yaml.dump(value, Dumper=_PlainDumper, sort_keys=False, allow_unicode=True, width=1000)


class _PlainDumper(yaml.SafeDumper):
    """Writes repeated values out, for people read this: no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def kubernetes_metadata(job: DecidedJob, notes: list[ExportNote]) -> dict[str, str]:
    """Name and namespace of the object to patch; a name that nobody said is made of the job's, with a note."""
    target = job.target
    if target is None:
        name = _NO_NAME.sub("-", job.name.lower()).strip("-")[:_MAX_KUBERNETES_NAME].rstrip("-") or "job"
        target = KubernetesTarget(name, assumed=True)
    if target.assumed:
        notes.append(ExportNote.of("assumed", "object_name", job.name, name=target.name))
    return {"name": target.name, **({"namespace": target.namespace} if target.namespace else {})}


def is_uneven(replicas: Collection[Replica]) -> bool:
    """Whether replicas have different shares.

    >>> is_uneven([Replica("a", 0, 0.5), Replica("b", 0, 0.5)]), is_uneven([Replica("a", 0, 0.7), Replica("b", 0, 0.3)])
    (False, True)
    """
    shares = [replica.fraction for replica in replicas]
    return bool(shares) and max(shares) - min(shares) > _EVEN


def uneven_note(operator: DecidedOperator, engine: str) -> ExportNote:
    """Shares that differ, of which the engine makes even ones, with what that puts on the weakest replica."""
    least = min(operator.after, key=lambda replica: replica.fraction)
    return ExportNote.of(
        "lost",
        "fractions",
        operator.name,
        engine=engine,
        operator=operator.name,
        shares=[Fact("exports.share_on", share=replica.fraction, node=replica.node) for replica in operator.after],
        node=least.node,
        even=1 / len(operator.after),
        least=least.fraction,
    )


def common_notes(job: DecidedJob, decided: Sequence[DecidedOperator]) -> list[ExportNote]:
    """Notes that do not depend on the engine: operators that it does not know, a later start, a share of events."""
    notes = [*job.notes]
    known = [operator for operator in decided if operator.vertex is not None]
    foreign = [operator.name for operator in decided if operator.vertex is None]
    if foreign:
        notes.append(ExportNote.of("lost", "no_vertex", job.name, names=foreign))
    left = [operator.name for operator in known if not operator.after]
    if left:
        notes.append(ExportNote.of("lost", "not_placed", job.name, names=left))
    new = [row.name for row in known if not row.before and row.vertex not in job.parallelism_now]
    if new:
        notes.append(ExportNote.of("assumed", "before_unknown", job.name, names=new))
    if job.start_s > 0:
        notes.append(ExportNote.of("lost", "start", job.name, start_s=job.start_s))
    return [*notes, *_memory_notes(job, known)]


def _memory_notes(job: DecidedJob, operators: Sequence[DecidedOperator]) -> Iterator[ExportNote]:
    """Memory that the decision needs for state on each node and has there, and what of it nobody knows."""
    needed: dict[str, float] = {}
    for operator in operators:
        for replica in operator.after:
            needed[replica.node] = needed.get(replica.node, 0.0) + (operator.need_bytes or 0.0) * replica.fraction
    needed = {node: size for node, size in needed.items() if size > 0.0}
    left = job.memory_left
    over = {node: size for node, size in needed.items() if size > left.get(node, math.inf) * (1.0 + MEMORY_SLACK)}
    known = [
        Fact("exports.memory_of", node=node, size=size, left=left[node])
        for node, size in needed.items()
        if node in left
    ]
    if over:
        yield ExportNote.of("lost", "memory", job.name, "memory_short", nodes=known)
    elif known:
        yield ExportNote.of("info", "memory", job.name, nodes=known)
    unknown = [operator.name for operator in operators if operator.need_bytes is None]
    nodes = [node for node in needed if node not in left]
    if unknown or nodes:
        what = [Fact("exports.state_of", names=unknown)] if unknown else []
        what += [Fact("exports.memory_of_nodes", names=nodes)] if nodes else []
        yield ExportNote.of("assumed", "memory_unknown", job.name, what=what)
