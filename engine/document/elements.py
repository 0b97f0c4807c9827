"""Elements of a deployment: frozen values, tuples and read-only arrays.

Symbols of the paper stand beside the plain names: selectivity (sigma), cycles per event (omega), capacity (C).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from engine.arrays import FloatArray, frozen_array
from engine.document.cycles import NOMINAL

__all__ = [
    "EVENT",
    "MAX_BACKLOG_AGE_S",
    "MEASURED",
    "ON_CLOSE",
    "ON_UPDATE",
    "SAMPLE",
    "STATED",
    "STIMULUS_TIME",
    "THESE",
    "WINDOW_END",
    "AggregateFeatures",
    "Backlog",
    "Batch",
    "Combine",
    "Constraints",
    "DeploymentContent",
    "EventFields",
    "Evidence",
    "FilterFeatures",
    "Input",
    "InputModel",
    "JoinFeatures",
    "Link",
    "MicroBatchTrigger",
    "Node",
    "Objective",
    "Operator",
    "Replica",
    "Server",
    "Source",
    "Window",
    "coarsen_node",
    "coarsen_operator",
    "sum_groups",
]

#: The policy that the bounds of theorems 2 and 3 are proven for; every node's unless it says otherwise.
STIMULUS_TIME = "stimulus-time"

#: Statistics of a sample err by its size; those of ``these`` were counted on the very arrivals that are estimated.
SAMPLE, THESE = "sample", "these"

#: Where a backlog is from.
STATED, MEASURED = "stated", "measured"

#: A backlog read longer ago is not used: a consumer makes up for minutes, or falls further behind, in less.
MAX_BACKLOG_AGE_S = 900.0

#: A window emits its result once, when it closes, or after every event that changes it.
ON_CLOSE, ON_UPDATE = "on_close", "on_update"

#: Latency of a window's results counts from each event's arrival, or from the window's end.
EVENT, WINDOW_END = "event", "window_end"


@dataclass(frozen=True, slots=True)
class EventFields:
    """Number of fields of an event by the type of their values."""

    ints: int = 0
    strings: int = 0
    doubles: int = 0

    @property
    def count(self) -> int:
        """All fields of an event."""
        return self.ints + self.strings + self.doubles


@dataclass(frozen=True, slots=True)
class Backlog:
    """Events that wait where the horizon begins: their number, how far behind their readers are, or both.

    `behind_s` is the age of the oldest of them. A reading that is `age_s` old tells of that moment; one that is older
    than `MAX_BACKLOG_AGE_S` tells nothing of now and is not used. `origin` is ``stated`` or ``measured``.
    """

    events: float | None = None
    behind_s: float | None = None
    age_s: float | None = None
    origin: str = STATED

    @property
    def is_stale(self) -> bool:
        """Whether it was read too long ago to begin a horizon with."""
        return self.age_s is not None and self.age_s > MAX_BACKLOG_AGE_S

    @property
    def is_empty(self) -> bool:
        """Whether it says that nothing waits."""
        return self.events == 0.0 or (self.events is None and not self.behind_s)


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A source and its arrivals: events in every subinterval, shape (d,). What is not stated is None.

    Counts are known at a width of `arrivals_step_s`, that of a subinterval unless stated, however finely they are
    spread. `dispersion` is their index of dispersion (variance over mean) at a width of `dispersion_step_s`. `backlog`
    waits for every reader whose input states none of its own.
    """

    id: str
    arrivals: FloatArray
    event_fields: EventFields | None = None
    arrivals_step_s: float | None = None
    dispersion: float | None = None
    dispersion_step_s: float | None = None
    backlog: Backlog | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A machine. Capacities are cycles/s of ONE core; exactly one of the two forms is set."""

    id: str
    capacity_cps: float | None = None
    capacity_series_cps: FloatArray | None = None
    cores: int = 1
    pool: str | None = None
    price_per_hour: float | None = None
    memory_bytes: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    scheduling: str | None = None  #: which of its operators' events go first; None: the deployment's
    cycle_unit: str = NOMINAL  #: what its capacity counts
    cycles_per_ns: float | None = None  #: cycles of a clock that a core does in a nanosecond of CPU, where known


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of the sample behind an input: events seen, events put out, cycles spent."""

    events: float
    outputs: float
    cycles: float


@dataclass(frozen=True, slots=True)
class InputModel:
    """Non-linear operator (paper, section VI-C): polynomials c0 + c1 x + c2 x^2 in the events x of a subinterval."""

    output: tuple[float, float, float]
    cycles: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Input:
    """One input queue of an operator: selectivity (sigma) and cycles per event (omega), or a model in their place.

    An input that `never_ran` came without a cost; its `cycles_per_event` is the nominal one
    (`engine.query_graph.costs`), which no document keeps. `cost_cv2` is the variance of one event's cost over its
    squared mean; `cost_dispersion` that of means over `cost_dispersion_events` consecutive events, times their number.
    """

    source: str
    selectivity: float = 0.0
    cycles_per_event: float = 0.0
    model: InputModel | None = None
    batches: tuple[Batch, ...] = ()
    never_ran: bool = False
    cost_cv2: float | None = None
    cost_dispersion: float | None = None
    cost_dispersion_events: float | None = None
    backlog: Backlog | None = None

    @property
    def is_sampled(self) -> bool:
        """Whether there are the two batches that an error of the sample can be told from."""
        return len(self.batches) >= 2


@dataclass(frozen=True, slots=True)
class Evidence:
    """Origin of an operator's statistics."""

    kind: str
    events: float = 0.0
    age_s: float | None = None
    cycle_unit: str | None = None  #: of its costs; None: nominal


@dataclass(frozen=True, slots=True)
class Window:
    """A window: by time (seconds) or by count (events), tumbling or sliding.

    With a `watermark_delay_s` it is of event time: it closes when an event that is so much later than its end has come,
    and `allowed_lateness_s` after that. Without, it is of processing time and closes by the clock.
    """

    policy: str
    type: str
    size: float
    slide: float | None = None
    watermark_delay_s: float | None = None
    allowed_lateness_s: float | None = None
    emit: str | None = None
    measured_from: str | None = None

    @property
    def period(self) -> float:
        """Longest stretch, in seconds or events, from what it takes in to the first close that holds it."""
        return min(self.size, self.slide or self.size) if self.type == "sliding" else self.size


@dataclass(frozen=True, slots=True)
class MicroBatchTrigger:
    """A micro-batch trigger: every `interval_s` a batch takes what has come; a late one is followed at once.

    A batch takes `overhead_s` beyond the work of its events (planning, commits); None: not stated.
    """

    interval_s: float
    overhead_s: float | None = None


@dataclass(frozen=True, slots=True)
class FilterFeatures:
    """The comparison of a filter, and the type of the literal it compares with."""

    function: str
    literal_type: str


@dataclass(frozen=True, slots=True)
class JoinFeatures:
    """The type of a join's key."""

    key_type: str


@dataclass(frozen=True, slots=True)
class AggregateFeatures:
    """The function of an aggregation, the type of its argument, and that of what it groups by (``none``: nothing)."""

    function: str
    argument_type: str
    group_by_type: str = "none"


@dataclass(frozen=True, slots=True)
class Replica:
    """A share of an operator on one core of a node (named by its id)."""

    node: str
    core: int = 0
    fraction: float = 1.0


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of the dataflow. Without replicas it is not placed yet.

    `reads` and `writes` are names of fields of an event; None: not stated. What it puts out leaves in buffers, each
    when it is full or `buffer_timeout_s` old. `unread` is what of its plan nobody understood, with reasons: what that
    makes results wait for is in no estimate.
    """

    id: str
    replicas: tuple[Replica, ...]
    inputs: tuple[Input, ...]
    bytes_per_event: float = 0.0
    stateless: bool | None = None
    query: str | None = None
    kind: str | None = None
    filter: FilterFeatures | None = None
    join: JoinFeatures | None = None
    aggregate: AggregateFeatures | None = None
    window: Window | None = None
    trigger: MicroBatchTrigger | None = None
    buffer_timeout_s: float | None = None
    state_bytes: float | None = None
    state_on_disk: bool | None = None  #: whether the state lies on disk, where no memory bounds it; None: not stated
    tuple_values_in: float | None = None
    tuple_values_out: float | None = None
    evidence: Evidence | None = None
    reads: tuple[str, ...] | None = None
    writes: tuple[str, ...] | None = None
    expression: Any = None
    unread: tuple[str, ...] | None = None

    @property
    def never_ran(self) -> bool:
        """Whether the cost of one of its inputs is nominal: nobody has measured or assumed it."""
        return any(entry.never_ran for entry in self.inputs)


@dataclass(frozen=True, slots=True)
class Link:
    """A directed link between two nodes. Without a bandwidth it has no limit and is no server."""

    source: str
    target: str
    bandwidth_bytes_s: float | None = None
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Combine:
    """Combination of the loads on one server: ``sum``, ``max`` or ``interference``."""

    kind: str = "sum"
    alpha: float = 0.0


@dataclass(frozen=True, slots=True)
class Objective:
    """A query's latency objective: statistic ``worst``, ``mean`` or ``q0.99`` and the like, at most `bound_s`."""

    query: str
    statistic: str
    bound_s: float


@dataclass(frozen=True, slots=True)
class Constraints:
    """Limits on a placement search."""

    pin: Mapping[str, str] = field(default_factory=dict)
    forbid: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    apart: tuple[tuple[str, ...], ...] = ()
    max_moves: int | None = None
    may_split: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Server:
    """A server at which queues form: one core of a node, or a link with a bandwidth. Indices into nodes and links."""

    name: str
    kind: str
    node: int | None = None
    core: int = 0
    link: int | None = None


@dataclass(frozen=True, eq=False)
class DeploymentContent:
    """Content of a deployment document as values; `subinterval_s` is w, `subintervals` is d."""

    subinterval_s: float
    subintervals: int
    sources: tuple[Source, ...] = ()
    nodes: tuple[Node, ...] = ()
    operators: tuple[Operator, ...] = ()
    links: tuple[Link, ...] = ()
    combine: Combine = field(default_factory=Combine)
    objectives: tuple[Objective, ...] = ()
    priorities: Mapping[str, int] = field(default_factory=dict)
    constraints: Constraints = field(default_factory=Constraints)
    plans: Mapping[str, tuple[tuple[Operator, ...], ...]] = field(default_factory=dict)
    scheduling: str | None = None
    statistics_of: str = SAMPLE


def sum_groups(values: FloatArray, factor: int) -> FloatArray:
    padded = np.concatenate([values, np.zeros(-len(values) % factor)])
    return frozen_array(padded.reshape(-1, factor).sum(axis=1))


def coarsen_node(node: Node, factor: int) -> Node:
    series = node.capacity_series_cps
    if series is None:
        return node
    # The last capacity holds for ever, so it also fills an incomplete last subinterval.
    padded = np.concatenate([series, np.full(-len(series) % factor, series[-1])])
    return replace(node, capacity_series_cps=frozen_array(padded.reshape(-1, factor).mean(axis=1)))


def coarsen_operator(operator: Operator, factor: int) -> Operator:
    if all(entry.model is None for entry in operator.inputs):
        return operator
    return replace(operator, inputs=tuple(_coarsen_input(entry, factor) for entry in operator.inputs))


def _coarsen_input(entry: Input, factor: int) -> Input:
    if entry.model is None:
        return entry
    output, cycles = ((c0 * factor, c1, c2 / factor) for c0, c1, c2 in (entry.model.output, entry.model.cycles))
    return replace(entry, model=InputModel(output, cycles))
