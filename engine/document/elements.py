"""Elements of a deployment: frozen values, tuples and read-only arrays.

Symbols of the paper stand beside the plain names: selectivity (sigma), cycles per event (omega), capacity (C).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from engine.arrays import FloatArray, frozen_array
from engine.document.cycles import NOMINAL
from engine.document.kinds import (
    AGGREGATE_FUNCTIONS,
    ALPHA,
    BYTES,
    CAPACITY,
    CORES,
    COST_SHARE,
    CYCLE_UNIT,
    CYCLES_PER_NS,
    DISPERSION,
    FIELD_COUNT,
    FILTER_FUNCTIONS,
    ID,
    INDEX,
    INTERVAL,
    MEMORY,
    NOT_NEGATIVE,
    OPERATOR_KINDS,
    POSITIVE,
    PRICE,
    SCHEDULING,
    SPAN,
    STATISTIC,
    VALUE_TYPES,
    WAIT,
    WIDTH,
)
from engine.errors import Fault
from engine.kinds import Anything, Enumeration, Number, NumberSeries, String
from engine.query_graph.graph import NOMINAL_PROCESSOR
from engine.records import BAD, Flag, ItemCount, Record, Words

__all__ = [
    "AT_CLOSE",
    "AT_EVENT",
    "EVENT",
    "MAX_BACKLOG_AGE_S",
    "MEASURED",
    "ON_CLOSE",
    "ON_UPDATE",
    "SAMPLE",
    "SESSION",
    "STATED",
    "STIMULUS_TIME",
    "THESE",
    "WINDOW_END",
    "AggregateFeatures",
    "Backlog",
    "Batch",
    "BehindS",
    "Combine",
    "Constraints",
    "DeploymentContent",
    "EventFields",
    "Events",
    "Evidence",
    "FilterFeatures",
    "Input",
    "InputModel",
    "JoinFeatures",
    "Link",
    "MarginalCost",
    "MicroBatchTrigger",
    "Node",
    "Objective",
    "Operator",
    "OperatorCheckpoint",
    "OperatorFeatures",
    "Replica",
    "Server",
    "Source",
    "Window",
    "backlog_faults",
    "coarsen_node",
    "coarsen_operator",
    "cost_noise_faults",
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

#: A window that lasts as long as events of a key come, one at least every `size` seconds.
SESSION = "session"

#: A window works on its events as each comes, or on all of them when it closes.
AT_EVENT, AT_CLOSE = "event", "close"

#: Latency of a window's results counts from each event's arrival, or from the window's end.
EVENT, WINDOW_END = "event", "window_end"


_Id = Annotated[str, ID]
_NotNegative = Annotated[float, NOT_NEGATIVE]
_Bytes = Annotated[float, BYTES]
_Width = Annotated[float, WIDTH]
_Wait = Annotated[float, WAIT]
_FieldCount = Annotated[int, FIELD_COUNT]
_ValueType = Annotated[str, Enumeration(VALUE_TYPES)]
_Coefficients = Annotated[tuple[Annotated[float, Number()], ...], ItemCount(3, 3)]
_Spread = Annotated[tuple[_Wait, ...], ItemCount(3, 3)]
Events = Annotated[float, Number(least=0, most=1e15), Words("events that wait; at the known rate unless given")]
BehindS = Annotated[_Wait, Words("age of the oldest of them; at the known rate unless given")]


def backlog_faults(events: float | None, behind_s: float | None) -> Iterator[Fault]:
    """Fault of a backlog that says neither how many events wait nor for how long."""
    if events is None and behind_s is None:
        yield Fault("", "backlog has neither events nor behind_s; allowed: one of them, or both")


def cost_noise_faults(dispersion: float | None, dispersion_events: float | None) -> Iterator[Fault]:
    """Fault of a dispersion of costs without the number of events that it is of, or the other way round."""
    given = {"cost_dispersion": dispersion, "cost_dispersion_events": dispersion_events}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == 1:
        (other,) = given.keys() - missing
        yield Fault(missing[0], f"{missing[0]} is missing; {other} needs it")


@dataclass(frozen=True)
class EventFields(Record):
    """Number of fields of an event by the type of their values."""

    TITLE: ClassVar[str] = "the fields of an event"

    ints: _FieldCount = 0
    strings: _FieldCount = 0
    doubles: _FieldCount = 0

    @property
    def count(self) -> int:
        """All fields of an event."""
        return self.ints + self.strings + self.doubles


@dataclass(frozen=True)
class Backlog(Record):
    """Events that wait where the horizon begins: their number, how far behind their readers are, or both.

    `behind_s` is the age of the oldest of them. A reading that is `age_s` old tells of that moment; one that is older
    than `MAX_BACKLOG_AGE_S` tells nothing of now and is not used. `origin` is ``stated`` or ``measured``.
    """

    TITLE: ClassVar[str] = "a backlog"
    JUDGES_PARTS: ClassVar[bool] = True

    events: Events | None = None
    behind_s: BehindS | None = None
    age_s: Annotated[
        _NotNegative | None, Words(f"seconds since it was read; not used beyond {MAX_BACKLOG_AGE_S:g}")
    ] = None
    origin: Annotated[str, Enumeration((STATED, MEASURED)), Words(f"{STATED} unless given")] = STATED

    def find_faults(self) -> Iterator[Fault]:
        """Neither how many events wait nor for how long."""
        yield from backlog_faults(self.events, self.behind_s)

    @property
    def is_stale(self) -> bool:
        """Whether it was read too long ago to begin a horizon with."""
        return self.age_s is not None and self.age_s > MAX_BACKLOG_AGE_S

    @property
    def is_empty(self) -> bool:
        """Whether it says that nothing waits."""
        return self.events == 0.0 or (self.events is None and not self.behind_s)


@dataclass(frozen=True, eq=False)
class Source(Record):
    """A source and its arrivals: events in every subinterval, shape (d,). What is not stated is None.

    Counts are known at a width of `arrivals_step_s`, that of a subinterval unless stated, however finely they are
    spread. `dispersion` is their index of dispersion (variance over mean) at a width of `dispersion_step_s`. `backlog`
    waits for every reader whose input states none of its own.
    """

    TITLE: ClassVar[str] = "a source"
    JUDGES_PARTS: ClassVar[bool] = True

    id: _Id
    arrivals: Annotated[FloatArray, NumberSeries(), Words("events in every subinterval")]
    event_fields: Annotated[EventFields | None, Words("fields of an event by type")] = None
    arrivals_step_s: Annotated[
        _Width | None, Words("width at which counts are really known, a multiple of the subinterval")
    ] = None
    dispersion: Annotated[Annotated[float, DISPERSION] | None, Words("index of dispersion of the counts")] = None
    dispersion_step_s: Annotated[_Width | None, Words("width of the counts that it was measured on")] = None
    backlog: Annotated[
        Backlog | None, Words("events that wait for its readers where the horizon begins; left out: none")
    ] = None


@dataclass(frozen=True, eq=False)
class Node(Record):
    """A machine. Capacities are cycles/s of ONE core; exactly one of the two forms is set."""

    TITLE: ClassVar[str] = "a node"
    JUDGES_PARTS: ClassVar[bool] = True

    id: _Id
    capacity_cps: Annotated[float | None, CAPACITY, Words("cycles/s of one core")] = None
    capacity_series_cps: Annotated[
        FloatArray | None,
        NumberSeries(),
        Words("cycles/s of one core, per subinterval; the last also holds afterwards"),
    ] = None
    cores: Annotated[int, CORES] = 1
    pool: _Id | None = None
    price_per_hour: Annotated[float, PRICE] | None = None
    memory_bytes: Annotated[Annotated[float, MEMORY] | None, Words("what the state of its operators may take")] = None
    labels: Mapping[str, Annotated[str, String()]] = field(default_factory=dict)
    scheduling: Annotated[Annotated[str, SCHEDULING] | None, Words("its policy; the deployment's unless given")] = (
        None  #: which of its operators' events go first
    )
    cycle_unit: Annotated[str, CYCLE_UNIT, Words("what its capacity counts; the deployment's unless given")] = NOMINAL
    cycles_per_ns: Annotated[
        Annotated[float, CYCLES_PER_NS] | None,
        Words("cycles of a clock that one core does in a nanosecond of CPU, where it was measured"),
    ] = None

    def find_faults(self) -> Iterator[Fault]:
        """Both forms of its capacity or none of them, and a last capacity that would stop it for ever."""
        series = self.capacity_series_cps
        if (self.capacity_cps is None) == (series is None):
            state = "are both missing" if series is None else "are both given"
            yield Fault("capacity_cps", f"capacity_cps and capacity_series_cps {state}; allowed: exactly one")
        if series is not None and series is not BAD and series[-1] <= 0:
            message = "the last item of capacity_series_cps is 0 and would hold for ever; allowed: a number above 0"
            yield Fault(f"capacity_series_cps[{len(series) - 1}]", message)


@dataclass(frozen=True)
class Batch(Record):
    """One batch of the sample behind an input: events seen, events put out, cycles spent."""

    TITLE: ClassVar[str] = "a batch"

    events: _NotNegative
    outputs: _NotNegative
    cycles: _NotNegative


@dataclass(frozen=True)
class InputModel(Record):
    """Non-linear operator (paper, section VI-C): polynomials c0 + c1 x + c2 x^2 in the events x of a subinterval."""

    TITLE: ClassVar[str] = "a model"

    output: Annotated[_Coefficients, Words("c0, c1, c2: events put out")]
    cycles: Annotated[_Coefficients, Words("c0, c1, c2: cycles")]


@dataclass(frozen=True, slots=True)
class Input:
    """One input queue of an operator: selectivity (sigma) and cycles per event (omega), or a model in their place.

    An input that `never_ran` came without a cost; its `cycles_per_event` is the nominal one
    (`engine.query_graph.costs`), which no document keeps, by so many `relatives` that ran (0: the table's alone).
    `cost_cv2` is the variance of one event's cost over its squared mean; `cost_dispersion` that of means over
    `cost_dispersion_events` consecutive events, times their number.
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
    relatives: int = 0

    @property
    def is_sampled(self) -> bool:
        """Whether there are the two batches that an error of the sample can be told from."""
        return len(self.batches) >= 2

    @property
    def takes_nothing(self) -> bool:
        """Whether by its statistics events cost nothing and lead to nothing: measured, that has no error."""
        return not (self.never_ran or self.model or self.selectivity or self.cycles_per_event)


@dataclass(frozen=True)
class Evidence(Record):
    """Origin of an operator's statistics; `unknown` is that of one that runs, of whose cost nobody knows anything."""

    TITLE: ClassVar[str] = "evidence"

    kind: Annotated[str, Enumeration(("assumed", "predicted", "measured", "unknown"))]
    events: _NotNegative = 0.0
    age_s: _NotNegative | None = None
    cycle_unit: Annotated[
        Annotated[str, CYCLE_UNIT] | None, Words("what its costs count; the deployment's unless given")
    ] = None  #: None: nominal


@dataclass(frozen=True)
class Window(Record):
    """A window: by time (seconds) or by count (events), tumbling or sliding; by time also a session of each key, whose
    `size` is the gap without events that ends it.

    With a `watermark_delay_s` it is of event time: it closes when an event that is so much later than its end has come,
    and `allowed_lateness_s` after that. Without, it is of processing time and closes by the clock.
    """

    TITLE: ClassVar[str] = "a window"
    JUDGES_PARTS: ClassVar[bool] = True

    policy: Annotated[str, Enumeration(("time", "count"))]
    type: Annotated[str, Enumeration(("tumbling", "sliding", SESSION))]
    size: Annotated[float, SPAN, Words("seconds or events; of a session the gap that ends it")]
    slide: Annotated[Annotated[float, SPAN] | None, Words("needed for a sliding window")] = None
    watermark_delay_s: Annotated[
        _Wait | None,
        Words("event time: it closes when an event so much later than its end has come; left out: by the clock"),
    ] = None
    allowed_lateness_s: Annotated[_Wait | None, Words("results are held so long after the watermark; event time")] = (
        None
    )
    emit: Annotated[Annotated[str, Enumeration((ON_CLOSE, ON_UPDATE))] | None, Words("on_close unless given")] = None
    measured_from: Annotated[
        Annotated[str, Enumeration((EVENT, WINDOW_END))] | None,
        Words("what the latency of its results counts from: each event (unless given), or the window's end"),
    ] = None

    work_at: Annotated[
        Annotated[str, Enumeration((AT_EVENT, AT_CLOSE))] | None,
        Words("when its events are worked on: as each comes (unless given), or all of them when it closes"),
    ] = None
    measured_events: Annotated[
        Annotated[float, POSITIVE] | None,
        Words("events of one window as its statistics were measured: of more, keys may bound its results"),
    ] = None

    def find_faults(self) -> Iterator[Fault]:
        """Fields that a window needs, or that go with another kind of window only."""
        if self.type == SESSION and self.policy == "count":
            yield Fault("policy", "policy is 'count' for a session; allowed: 'time'")
        if self.work_at == AT_CLOSE and (self.policy == "count" or self.type == SESSION or self.emit == ON_UPDATE):
            message = f"work_at is {AT_CLOSE!r}; allowed: for windows by time that close, and are no sessions"
            yield Fault("work_at", message)
        if self.measured_events is not None and (self.policy == "count" or self.type == SESSION):
            message = f"measured_events is {self.measured_events:g}; allowed: for windows by time that are no sessions"
            yield Fault("measured_events", message)
        if self.type == "sliding" and self.slide is None:
            yield Fault("slide", "slide is missing; a sliding window needs it")
        event_time = {"watermark_delay_s": self.watermark_delay_s, "allowed_lateness_s": self.allowed_lateness_s}
        for name, value in event_time.items():
            if self.policy == "count" and value is not None:
                yield Fault(name, f"{name} is given for a window by count; allowed: by time")
        if self.policy == "time" and self.allowed_lateness_s is not None and self.watermark_delay_s is None:
            yield Fault("watermark_delay_s", "watermark_delay_s is missing; allowed_lateness_s needs it")
        if self.emit == ON_UPDATE and self.measured_from == WINDOW_END:
            message = f"measured_from is {WINDOW_END} for a window that emits {ON_UPDATE}; allowed: event"
            yield Fault("measured_from", message)

    @property
    def period(self) -> float:
        """Longest stretch, in seconds or events, from what it takes in to the first close that holds it."""
        return min(self.size, self.slide or self.size) if self.type == "sliding" else self.size


@dataclass(frozen=True)
class MicroBatchTrigger(Record):
    """A micro-batch trigger: every `interval_s` a batch takes what has come; a late one is followed at once.

    A batch takes `overhead_s` beyond the work of its events (planning, commits); None: not stated.
    """

    TITLE: ClassVar[str] = "a trigger"

    interval_s: Annotated[float, INTERVAL, Words("seconds from one batch to the next")]
    overhead_s: Annotated[_Wait | None, Words("seconds of a batch beyond the work of its events")] = None


@dataclass(frozen=True)
class OperatorCheckpoint(Record):
    """Checkpoints that an operator takes part in, one every `interval_s`.

    At each it works on nothing for `pause_s`. With `commits` its results are seen once a checkpoint is complete that
    began after them, `duration_s` from its beginning; without, they are seen when they leave. Both are the least, the
    mean and the most of those that were measured; None: not measured, or too short to count.
    """

    TITLE: ClassVar[str] = "a checkpoint"

    interval_s: Annotated[float, INTERVAL, Words("seconds from one checkpoint to the next")]
    pause_s: Annotated[
        _Spread | None, Words("least, mean, most: seconds of each in which the operator works on nothing")
    ] = None
    commits: Annotated[Flag | None, Words("whether results are seen once a checkpoint is complete")] = None
    duration_s: Annotated[
        _Spread | None, Words("least, mean, most: seconds until a checkpoint is complete; needed where results wait")
    ] = None

    def find_faults(self) -> Iterator[Fault]:
        """Spreads out of their order, and results that wait for what nobody knows how long it takes."""
        for name, spread in (("pause_s", self.pause_s), ("duration_s", self.duration_s)):
            if spread is not None and list(spread) != sorted(spread):
                told = ", ".join(f"{value:g}" for value in spread)
                yield Fault(name, f"{name} is [{told}]; allowed: the least, the mean and the most, in this order")
        if self.commits and self.duration_s is None:
            yield Fault("duration_s", "duration_s is missing; an operator that commits needs it")


@dataclass(frozen=True)
class MarginalCost(Record):
    """Part of an operator's cost that one more event costs, with its 90 % interval, and the loads it was told from.

    The rest of its work does not grow with the rate: at g times it an event costs ``share + (1 - share) / g`` of now.
    Under one load nothing was measured of it: then the interval is what costs have been seen to fall elsewhere.
    """

    TITLE: ClassVar[str] = "a marginal cost"

    share: Annotated[float, COST_SHARE, Words("part of the cost that one more event costs")]
    low: Annotated[float, COST_SHARE, Words("lower end of its 90 % interval")]
    high: Annotated[float, COST_SHARE, Words("upper end of its 90 % interval")]
    loads: Annotated[int, Number(least=1, whole=True), Words("distinct loads that it was measured under")]

    def find_faults(self) -> Iterator[Fault]:
        """A share outside its interval."""
        if not self.low <= self.share <= self.high:
            message = f"share is {self.share:g}; allowed: from low ({self.low:g}) to high ({self.high:g})"
            yield Fault("share", message)

    @property
    def is_measured(self) -> bool:
        """Whether several loads told it, so that estimates may rest on it."""
        return self.loads > 1

    def cost_at(self, growth: float) -> float:
        """Part of the cost of now that an event costs at so many times the rate; nobody knows of lighter loads.

        Examples
        --------
        >>> MarginalCost(0.5, 0.4, 0.6, 2).cost_at(5.0)
        0.6
        """
        return self.share + (1.0 - self.share) / max(1.0, growth)  # m + (1 - m) / g


@dataclass(frozen=True)
class FilterFeatures(Record):
    """The comparison of a filter, and the type of the literal it compares with."""

    TITLE: ClassVar[str] = "a filter"

    function: Annotated[str, Enumeration(FILTER_FUNCTIONS)]
    literal_type: _ValueType


@dataclass(frozen=True)
class JoinFeatures(Record):
    """The type of a join's key."""

    TITLE: ClassVar[str] = "a join"

    key_type: _ValueType


@dataclass(frozen=True)
class AggregateFeatures(Record):
    """The function of an aggregation, the type of its argument, and that of what it groups by (``none``: nothing)."""

    TITLE: ClassVar[str] = "an aggregation"

    function: Annotated[str, Enumeration(AGGREGATE_FUNCTIONS)]
    argument_type: _ValueType
    group_by_type: Annotated[str, Enumeration(("none", *VALUE_TYPES)), Words("none unless given")] = "none"


@dataclass(frozen=True, slots=True)
class Replica:
    """A share of an operator on one core of a node (named by its id)."""

    node: str
    core: int = 0
    fraction: float = 1.0


@dataclass(frozen=True)
class OperatorFeatures(Record):
    """Features of an operator: its work and what is known of it, wherever it runs.

    `reads` and `writes` are names of fields of an event; None: not stated. What it puts out leaves in buffers, each
    when it is full or `buffer_timeout_s` old. `unread` is what of its plan nobody understood, with reasons: what that
    makes results wait for is in no estimate. What `waits_outside` occupies no thread meanwhile, so that its work bounds
    its rate from above alone.
    """

    TITLE: ClassVar[str] = "an operator"
    JUDGES_PARTS: ClassVar[bool] = True

    bytes_per_event: _Bytes = 0.0
    stateless: Flag | None = None
    keyed: Annotated[
        Flag | None,
        Words("whether its state is by a key that its input is spread by; false: all events have to meet in one place"),
    ] = None
    query: _Id | None = None
    kind: Annotated[str, Enumeration(OPERATOR_KINDS)] | None = None
    filter: Annotated[FilterFeatures | None, Words("of a filter")] = None
    join: Annotated[JoinFeatures | None, Words("of a join")] = None
    aggregate: Annotated[AggregateFeatures | None, Words("of an aggregation")] = None
    window: Window | None = None
    trigger: Annotated[MicroBatchTrigger | None, Words("it runs in micro-batches")] = None
    checkpoint: Annotated[OperatorCheckpoint | None, Words("checkpoints that it takes part in")] = None
    buffer_timeout_s: Annotated[_Wait | None, Words("what it puts out leaves in buffers, full or so old")] = None
    state_bytes: Annotated[_Bytes | None, Words("of all replicas together")] = None
    state_on_disk: Annotated[Flag | None, Words("the state lies on disk: no node's memory bounds it")] = (
        None  #: None: not stated
    )
    tuple_values_in: _NotNegative | None = None
    tuple_values_out: _NotNegative | None = None
    evidence: Evidence | None = None
    reads: Annotated[tuple[_Id, ...] | None, Words("fields of an event that it looks at; for a join, its keys")] = None
    writes: Annotated[tuple[_Id, ...] | None, Words("fields that it adds or changes; all others pass unchanged")] = None
    expression: Annotated[Any, Anything()] = None
    unread: Annotated[
        tuple[_Id, ...] | None, Words("what of its plan nobody understood, so that no estimate holds its wait")
    ] = None
    waits_outside: Annotated[
        Flag | None,
        Words(
            "whether its events wait for answers from outside: how many may wait at once bounds its rate, not its work"
        ),
    ] = None
    cost_by: Annotated[
        Annotated[str, Enumeration(("cpu_time", "load_step"))] | None,
        Words("by what its cost was told, where not by the busy time of its threads"),
    ] = None
    quiet_share: Annotated[
        Annotated[float, COST_SHARE] | None,
        Words("least part of its cost that remains where nobody else uses the hosts that it was measured on"),
    ] = None  #: None: they were quiet
    marginal_cost: Annotated[MarginalCost | None, Words("part of its cost that one more event costs")] = None
    measured_s: Annotated[
        _NotNegative | None, Words("seconds that its statistics cover, where that is too few to decide by")
    ] = None


@dataclass(frozen=True)
class _OperatorPlace:
    id: str
    replicas: tuple[Replica, ...]
    inputs: tuple[Input, ...]


@dataclass(frozen=True)
class Operator(OperatorFeatures, _OperatorPlace):
    """An operator of the dataflow. Without replicas it is not placed yet."""

    @property
    def is_divisible(self) -> bool | None:
        """Whether its events may be spread over replicas: without state, or with state by key; None: nobody knows."""
        return True if self.stateless else self.keyed if self.keyed is not None else self.stateless

    @property
    def never_ran(self) -> bool:
        """Whether the cost of one of its inputs is nominal: nobody has measured or assumed it."""
        return any(entry.never_ran for entry in self.inputs)

    @property
    def is_cost_unknown(self) -> bool:
        """Whether it runs and nobody knows what an event costs it, or CPU time alone tells the least of it.

        Nothing stands in for what is missing.
        """
        is_untold = self.never_ran and self.evidence is not None and self.evidence.kind == "unknown"
        return is_untold or self.cost_by == "cpu_time"


@dataclass(frozen=True)
class Link(Record):
    """A directed link between two nodes. Without a bandwidth it has no limit and is no server."""

    TITLE: ClassVar[str] = "a link"
    JUDGES_PARTS: ClassVar[bool] = True

    source: Annotated[_Id, Field(alias="from")]
    target: Annotated[_Id, Field(alias="to")]
    bandwidth_bytes_s: Annotated[Annotated[float, CAPACITY] | None, Words("null: no limit")] = None
    delay_s: _Wait = 0.0


@dataclass(frozen=True)
class Combine(Record):
    """Combination of the loads on one server: ``sum``, ``max`` or ``interference``."""

    TITLE: ClassVar[str] = "combine"

    kind: Annotated[str, Enumeration(("sum", "max", "interference"))]
    alpha: Annotated[float | None, ALPHA, Words("for interference only")] = None

    def find_faults(self) -> Iterator[Fault]:
        """A factor of interference without it, and the other way round."""
        is_interference = self.kind == "interference"
        if is_interference and self.alpha is None:
            yield Fault("alpha", "alpha is missing; interference needs a number of at least 0")
        if not is_interference and self.alpha is not None:
            yield Fault("alpha", f"alpha is given for {self.kind}; allowed: with interference only")


@dataclass(frozen=True)
class Objective(Record):
    """A query's latency objective: statistic ``worst``, ``mean`` or ``q0.99`` and the like, at most `bound_s`."""

    TITLE: ClassVar[str] = "an objective"

    query: _Id
    statistic: Annotated[str, STATISTIC]
    bound_s: Annotated[float, POSITIVE]


@dataclass(frozen=True)
class Constraints(Record):
    """Limits on a placement search."""

    TITLE: ClassVar[str] = "constraints"

    pin: Annotated[Mapping[str, _Id], Words("operator: the node it must stay on")] = field(default_factory=dict)
    forbid: Annotated[Mapping[str, tuple[_Id, ...]], Words("operator: nodes it must not be on")] = field(
        default_factory=dict
    )
    apart: Annotated[
        tuple[Annotated[tuple[_Id, ...], ItemCount(least=2)], ...], Words("operators that must not share a node")
    ] = ()
    max_moves: Annotated[int, INDEX] | None = None
    may_split: tuple[_Id, ...] | None = None


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
    combine: Combine = field(default_factory=lambda: Combine("sum"))
    objectives: tuple[Objective, ...] = ()
    priorities: Mapping[str, int] = field(default_factory=dict)
    constraints: Constraints = field(default_factory=Constraints)
    plans: Mapping[str, tuple[tuple[Operator, ...], ...]] = field(default_factory=dict)
    scheduling: str | None = None
    statistics_of: str = SAMPLE
    stream_processor: str = NOMINAL_PROCESSOR


def sum_groups(values: FloatArray, factor: int) -> FloatArray:
    padded = np.concatenate([values, np.zeros(-len(values) % factor)])
    return frozen_array(padded.reshape(-1, factor).sum(axis=1))


def coarsen_source(source: Source, factor: int) -> Source:
    """The source with `factor` subintervals as one; made once, since deployments share their sources."""
    made: dict[int, Source] = vars(source).setdefault("_coarse", {})
    if factor not in made:
        made[factor] = replace(source, arrivals=sum_groups(source.arrivals, factor))
    return made[factor]


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
