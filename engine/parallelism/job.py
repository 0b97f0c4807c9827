"""Facts of a job that decide what other parallelisms it can have: exchanges, key groups, slots, hosts, restarts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from engine.document.deployment import Deployment
from engine.document.elements import Operator
from engine.parallelism.key_groups import default_groups
from engine.records import Fact

__all__ = [
    "ASSUMED",
    "BROADCAST",
    "FORWARD",
    "GLOBAL",
    "KEYED",
    "MEASURED",
    "RESTART_S",
    "RESTORE_BYTES_S",
    "SOURCE",
    "SPREAD",
    "STATED",
    "UNKNOWN_INPUT",
    "JobOperator",
    "JobPlace",
    "RestartTime",
    "ScalableJob",
    "document_job",
    "feed_of",
    "limit_grounds",
]

#: How events come to an operator's subtasks.
SOURCE, KEYED, SPREAD, FORWARD, GLOBAL, BROADCAST = "source", "keyed", "spread", "forward", "global", "broadcast"
UNKNOWN_INPUT = "unknown"
STATED, MEASURED, ASSUMED = "stated", "measured", "assumed"

#: Seconds from stopping to running of a job whose restarts nobody measured, and bytes of state restored a second.
RESTART_S, RESTORE_BYTES_S = (5.0, 60.0), (20e6, 200e6)

_FEEDS = {"hash": KEYED, "rebalance": SPREAD, "rescale": SPREAD, "shuffle": SPREAD, "global": GLOBAL}
_STATELESS_KINDS = {"filter", "map", "sink"}


@dataclass(frozen=True)
class JobOperator:
    """An operator of a job as its engine runs it.

    Attributes
    ----------
    feed : str
        ``source``, ``keyed`` (by a hash of a key), ``spread``, ``forward``, ``global``, ``broadcast`` or ``unknown``.
    parallelism : int
        Subtasks now.
    max_parallelism : int, optional
        Key groups, as the engine told; None: by its default.
    partitions : int, optional
        Partitions that a source reads; None: not known.
    shares : tuple of float
        Share of the events that each subtask took, measured; empty: not known.
    slot_group : str
        Operators of one group share slots.
    """

    feed: str
    parallelism: int
    max_parallelism: int | None = None
    partitions: int | None = None
    shares: tuple[float, ...] = ()
    slot_group: str = ""

    @property
    def groups(self) -> int:
        """Key groups, G."""
        return self.max_parallelism or default_groups(self.parallelism)

    @property
    def most(self) -> int:
        """Largest parallelism that it can have: its key groups, or the partitions that it reads."""
        return self.groups if self.partitions is None else min(self.groups, max(1, self.partitions))


@dataclass(frozen=True)
class JobPlace:
    """A node on which the engine runs subtasks.

    Attributes
    ----------
    slots : int
        Of the node; each holds one subtask of every operator of a slot sharing group.
    free : int
        Of these, in use by nobody.
    host, host_cores : str, float
        Its machine, which others may share, and the cores that all of them have there together.
    waits : bool
        Whether threads there mostly wait, so that they do not need a core each.
    """

    slots: int
    free: int
    host: str
    host_cores: float
    waits: bool = False


@dataclass(frozen=True)
class RestartTime:
    """Seconds from stopping a job to its running again, restore of state included, and where they are from."""

    low_s: float
    high_s: float
    basis: str

    @property
    def middle_s(self) -> float:
        """Their geometric mean; the arithmetic one where the lower end is 0."""
        return (self.low_s * self.high_s) ** 0.5 if self.low_s > 0.0 else (self.low_s + self.high_s) / 2.0


@dataclass(frozen=True)
class ScalableJob:
    """A query with what its engine says of it.

    Attributes
    ----------
    operators : mapping of str to JobOperator
        By their ids in the deployment.
    places : mapping of str to JobPlace
        By the node's id.
    restart_s : (float, float), optional
        Measured or stated seconds of a restart.
    is_engine_known : bool
        Whether an engine told, or the document alone.
    """

    query: str
    operators: Mapping[str, JobOperator]
    places: Mapping[str, JobPlace]
    state_bytes: float | None = None
    restart_s: tuple[float, float] | None = None
    restart_basis: str = ASSUMED
    is_engine_known: bool = True
    streams: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  #: by operator those of the query it reads

    @property
    def now(self) -> int:
        """Parallelism of the job: that of its widest operator."""
        return max((operator.parallelism for operator in self.operators.values()), default=1)

    @property
    def slots_there(self) -> int:
        """Slots that it has or could have."""
        return self.slots_of({name: row.parallelism for name, row in self.operators.items()}) + sum(
            place.free for place in self.places.values()
        )

    def slots_of(self, parallelism: Mapping[str, int]) -> int:
        """Slots that so many subtasks need: of each sharing group its widest operator."""
        widest: dict[str, int] = {}
        for name, count in parallelism.items():
            group = self.operators[name].slot_group
            widest[group] = max(widest.get(group, 0), count)
        return sum(widest.values())

    def restart_at(self, parallelism: int) -> RestartTime:
        """Restart time at a parallelism: as measured or stated, else a range that is assumed, by bytes of state."""
        if self.restart_s is not None:
            return RestartTime(*self.restart_s, self.restart_basis)
        hosts = max(1, min(parallelism, len({place.host for place in self.places.values()})))
        slow, fast = ((self.state_bytes or 0.0) / (hosts * rate) for rate in RESTORE_BYTES_S)
        return RestartTime(RESTART_S[0] + fast, RESTART_S[1] + slow, ASSUMED)

    def grounds(self, name: str) -> Fact | None:
        """Reason for which an operator keeps its parallelism; None where it can have another one."""
        return limit_grounds(name, self)

    def stated(self, seconds: float) -> ScalableJob:
        """The same with a restart time that somebody states."""
        return replace(self, restart_s=(seconds, seconds), restart_basis=STATED)


def limit_grounds(name: str, job: ScalableJob) -> Fact | None:
    """Reason for which an operator keeps its parallelism: all its events go to one subtask, or nobody knows."""
    operator = job.operators[name]
    if operator.max_parallelism == 1:
        return Fact("parallelism.one_by_plan")
    if operator.feed == GLOBAL:
        return Fact("parallelism.global_input")
    if operator.feed == BROADCAST:
        return Fact("parallelism.broadcast_input")
    if operator.feed == UNKNOWN_INPUT:
        return Fact("parallelism.key_unknown")
    if operator.feed == FORWARD:
        above = [other for other in job.streams.get(name, ()) if other in job.operators]
        stuck = next((other for other in above if limit_grounds(other, job) is not None), None)
        return None if stuck is None else Fact("parallelism.follows", operator=stuck)
    if operator.partitions is not None and operator.partitions <= operator.parallelism == 1:
        return Fact("parallelism.one_partition")
    return None


def feed_of(strategies: Iterable[str], operator: Operator) -> str:
    """Way in which events come to an operator, by the words of its engine for its exchanges; of none it is a source.

    Examples
    --------
    >>> plain = Operator("f", (), (), kind="map")
    >>> feed_of(["hash", "broadcast"], plain), feed_of([], plain), feed_of(["forward"], plain)
    ('keyed', 'source', 'spread')
    """
    words = [word.lower() for word in strategies]
    if not words:
        return SOURCE
    told = [word for word in words if word != "broadcast"] or words  # a broadcast beside them reaches every subtask
    feeds = {_FEEDS.get(word, word) for word in told}
    if GLOBAL in feeds:
        return GLOBAL
    if KEYED in feeds:
        return KEYED
    if feeds == {BROADCAST}:
        return BROADCAST
    if feeds <= {SPREAD}:
        return SPREAD
    if feeds <= {SPREAD, FORWARD}:
        return SPREAD if _is_stateless(operator) else FORWARD
    return UNKNOWN_INPUT


def _is_stateless(operator: Operator) -> bool:
    return bool(operator.stateless) or (operator.stateless is None and operator.kind in _STATELESS_KINDS)


def document_job(deployment: Deployment, query: str) -> ScalableJob:
    """A job by its document alone: replicas are subtasks, cores are slots, and keys are those of joins and groups.

    A core that others use is free for it, too: what they do there counts as load.
    """
    operators, streams = {}, {}
    own = {deployment.operators[j].id for j in deployment.operators_of(query)}
    for j in deployment.operators_of(query):
        operator = deployment.operators[j]
        streams[operator.id] = tuple(entry.source for entry in operator.inputs)
        operators[operator.id] = JobOperator(_document_feed(operator, own), max(1, len(operator.replicas)))
    used = {(r.node, r.core) for j in deployment.operators_of(query) for r in deployment.operators[j].replicas}
    near = {node for node, _ in used}
    pools = {node.pool for node in deployment.nodes if node.id in near}
    places = {
        node.id: JobPlace(
            slots=node.cores,
            free=sum((node.id, core) not in used for core in range(node.cores)),
            host=node.id,
            host_cores=float(node.cores),
        )
        for node in deployment.nodes
        if node.pool in pools
    }
    state = [deployment.operators[j].state_bytes for j in deployment.operators_of(query)]
    total = sum(size for size in state if size is not None) if any(size is not None for size in state) else None
    return ScalableJob(query, operators, places, total, is_engine_known=False, streams=streams)


def _document_feed(operator: Operator, own: set[str]) -> str:
    if operator.kind == "source" or not any(entry.source in own for entry in operator.inputs):
        return SOURCE if _is_stateless(operator) or operator.kind == "source" else UNKNOWN_INPUT
    if _is_stateless(operator):
        return SPREAD
    if operator.keyed is not None:
        return KEYED if operator.keyed else GLOBAL
    if operator.kind == "join" or operator.join is not None:
        return KEYED
    if operator.aggregate is not None:
        return GLOBAL if operator.aggregate.group_by_type == "none" else KEYED
    return UNKNOWN_INPUT
