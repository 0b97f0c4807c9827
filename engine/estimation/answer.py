"""Answer of an estimate, of the whole deployment and of each query, as records: what is printed, stored and shown.

Nothing here computes, and nothing loads a compiler: processes that only read answers do without.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import zip_longest
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from engine.arrays import FloatArray, FloatSeries
from engine.document.backlog import InputBacklog
from engine.document.memory import FleetMemory
from engine.document.policies import SchedulingBound
from engine.estimation.noise.summary import RealisedStatistic
from engine.estimation.waits.summary import WaitTerm
from engine.latency_state import CatchUp, LatencyStanding
from engine.records import Flag, Omitted, Record, Sentence

__all__ = [
    "Alarm",
    "Bottleneck",
    "Bounds",
    "CoreLoad",
    "EstimateAnswer",
    "Hop",
    "OperatorAnswer",
    "OperatorShare",
    "QueryAnswer",
    "QueryFigures",
    "ServerAnswer",
    "UncoveredInput",
    "combine_cores",
]


@dataclass(frozen=True)
class OperatorShare(Record):
    """Share of an operator in what reached a server."""

    operator: str
    share: float


@dataclass(frozen=True)
class Bottleneck(Record):
    """The server that holds a query up, and the subintervals (counted from 1) in which its excess builds up."""

    server: str
    node: str | None
    load_peak: float
    load_mean: float
    excess_s: float
    from_p: int
    to_p: int
    at_p: int
    operators: tuple[OperatorShare, ...]


@dataclass(frozen=True)
class Hop(Record):
    """One step of a slice's critical path, with the seconds spent there, waiting included."""

    operator: str
    server: str
    wait_s: float


@dataclass(frozen=True)
class UncoveredInput(Record):
    """An input whose means may be off by an error that the interval leaves out, for lack of batches."""

    operator: str
    input: str
    evidence: str | None


@dataclass(frozen=True, eq=False, kw_only=True)
class QueryFigures:
    """Latency of one query, in seconds.

    `basis` says what the numbers are. ``realised``: medians with random costs and arrivals, the interval that of the
    realised value. ``mean_path``: Flow, which knows mean costs alone, without an interval. ``mace``: Mace over time,
    for searches. A mean or quantile of the mean path below the resolution is None: nothing is known of it.
    """

    statistic: str
    bound_s: float | None
    basis: str
    estimate_s: float  #: the statistic of the objective, the worst case without one
    low_s: float | None
    high_s: float | None
    level: float
    worst_s: float
    mean_s: float | None
    quantiles: Mapping[str, float | None]
    flow_s: float | None  #: the same statistic of the mean path; None by Mace
    under_s: float | None  #: latencies stay under this (95 %), and are said to be under nothing else
    resolution_s: float  #: width of the slices, or of the counts where these are coarser
    mace_s: float
    worst_p: int
    bottleneck: Bottleneck | None
    hops: tuple[Hop, ...]
    uncovered: tuple[UncoveredInput, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class QueryAnswer(QueryFigures, Record):
    """Estimate of a query: its figures, what they lack and rest on, and the state of its objective."""

    TITLE: ClassVar[str] = "an estimate of a query"

    scheduling: Omitted[SchedulingBound] = None
    waits: tuple[WaitTerm, ...]
    standing: LatencyStanding
    catch_up: Omitted[CatchUp] = None
    state: str
    headroom_s: float | None
    headroom_share: float | None
    realised: Omitted[Mapping[str, RealisedStatistic]] = None
    assumed: Omitted[tuple[Sentence, ...]] = None
    not_modelled: Omitted[tuple[Sentence, ...]] = None
    series: Omitted[Mapping[str, FloatSeries]] = None


@dataclass(frozen=True)
class Bounds(Record):
    """Whether the upper ends of theorems 2 and 3 hold, and the bound that is proven; None: none is."""

    theorems_hold: Flag
    proven_s: float | None
    words: Sentence


@dataclass(frozen=True)
class Alarm(Record):
    """Whether the bounds of theorems 2 and 3 are not to be trusted for this deployment."""

    untrusted: Flag
    flow_over_mace: float | None
    message: Sentence


@dataclass(frozen=True, eq=False)
class OperatorAnswer(Record):
    """Load and output of an operator in each subinterval, in cycles and in events."""

    load: FloatSeries
    output: FloatSeries


@dataclass(frozen=True, eq=False)
class ServerAnswer(Record):
    """Load of a core or a link as a share of its capacity, its excess in seconds, and series in detail."""

    kind: str
    node: str | None
    load_mean: float
    load_peak: float
    mace_wc: float
    lambda_s: Annotated[float, Field(alias="lambda")]
    p_min: float
    p_max: float
    load: Omitted[FloatSeries] = None
    ce: Omitted[FloatSeries] = None
    mace: Omitted[FloatSeries] = None


def _no_series() -> FloatArray:
    """In the place of a series that is left out."""
    return np.zeros(0)


_Series = Annotated[FloatSeries, Field(exclude_if=lambda values: not len(values))]
_BoundSeries = Annotated[FloatSeries | None, Field(exclude_if=lambda values: values is not None and not len(values))]


@dataclass(frozen=True, eq=False, kw_only=True)
class EstimateAnswer(Record):
    """Estimate of a deployment: latencies by subinterval and their largest values, in seconds, and its parts.

    An upper end is None where none is proven.
    """

    TITLE: ClassVar[str] = "an estimate"

    subintervals: int
    subinterval_s: float
    mace: _Series = field(default_factory=_no_series)
    lower: _Series = field(default_factory=_no_series)
    upper: _BoundSeries = field(default_factory=_no_series)
    loose_upper: _Series = field(default_factory=_no_series)
    pd_lower: _Series = field(default_factory=_no_series)
    pd_upper: _BoundSeries = field(default_factory=_no_series)
    flow: _Series = field(default_factory=_no_series)
    flow_by_input: _Series = field(default_factory=_no_series)
    mace_wc: float
    lower_wc: float
    upper_wc: float | None
    loose_upper_wc: float
    pd_lower_wc: float
    pd_upper_wc: float | None
    flow_wc: float | None  #: of Flow's plain definition; None where that was not computed
    flow_by_input_wc: float
    epsilon: float
    loose_epsilon: _Series = field(default_factory=_no_series)
    bottleneck: str | None
    bottleneck_p: int | None
    mean: float
    quantiles: Mapping[str, float]
    sink_events: _Series = field(default_factory=_no_series)
    event_mean: float | None
    event_quantiles: Mapping[str, float | None] | None
    scheduling: Omitted[SchedulingBound] = None
    bounds: Bounds
    basis: str
    resolution_s: float
    alarm: Alarm
    memory: FleetMemory
    servers: Omitted[Mapping[str, ServerAnswer]] = None
    queries: Omitted[Mapping[str, QueryAnswer]] = None
    backlogs: Omitted[tuple[InputBacklog, ...]] = None
    operators: Omitted[Mapping[str, OperatorAnswer]] = None

    @property
    def facts(self) -> EstimateAnswer:
        """Facts of the deployment as a whole, without series and parts."""
        kept = {item.name: getattr(self, item.name) for item in fields(self)}
        series: Any = {name: _no_series() for name, value in kept.items() if isinstance(value, np.ndarray)}
        return replace(self, **series, servers=None, queries=None, operators=None)


@dataclass(frozen=True, slots=True)
class CoreLoad:
    """Load of a core, or of a node by the rule.

    Attributes
    ----------
    mean, peak : float
        Shares of capacity.
    excess_s : tuple of float
        Seconds to work off what waits, over time; empty where it is not known.
    """

    mean: float
    peak: float
    excess_s: tuple[float, ...] = ()


def combine_cores(cores: Iterable[CoreLoad]) -> CoreLoad:
    """Load of the node that has these cores; 0 without any.

    Examples
    --------
    >>> combine_cores([CoreLoad(0.64, 0.7, (0.0, 2.0)), CoreLoad(0.42, 1.2, (1.0, 0.0))])
    CoreLoad(mean=0.64, peak=1.2, excess_s=(1.0, 2.0))
    """
    known = list(cores)
    return CoreLoad(
        mean=max((core.mean for core in known), default=0.0),
        peak=max((core.peak for core in known), default=0.0),
        excess_s=tuple(max(values) for values in zip_longest(*(core.excess_s for core in known), fillvalue=0.0)),
    )
