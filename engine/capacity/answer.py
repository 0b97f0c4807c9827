"""Answers about capacity, of a query and of a cluster, as records: what is kept, shown and printed."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from math import inf
from typing import ClassVar, Self

from pydantic import computed_field

from engine.document.unknown_costs import FULL_SPAN_S
from engine.records import Fact, Omitted, Record, Sentence

__all__ = [
    "KNOWN",
    "NOTHING_ARRIVES",
    "NO_LOAD",
    "NO_SOURCE",
    "UNKNOWN",
    "CapacityLimit",
    "ClusterCapacity",
    "ObjectiveRate",
    "QueryCapacity",
    "SaturationForecast",
    "UnknownObjective",
    "UnmeasuredOperator",
]

#: States of a capacity: a number with all costs measured; unknown, so at most a number; no rate to grow.
KNOWN, UNKNOWN, NOTHING_ARRIVES, NO_SOURCE, NO_LOAD = "known", "unknown", "nothing_arrives", "no_source", "no_load"


@dataclass(frozen=True)
class UnmeasuredOperator(Record):
    """An operator whose cost nobody measured, and where the cost that stands there is from."""

    operator: str
    query: str | None
    evidence: str


@dataclass(frozen=True)
class CapacityLimit(Record):
    """The server that is full first, and what fills it.

    Attributes
    ----------
    server, resource, node : str
        Its name; ``cpu`` or ``bandwidth``; the node of a core.
    operator, query : str or None
        What takes most of it there once it is full; of a link what sends most over it.
    share : float
        Share of that operator in the server's load once it is full.
    load : float
        Load of the server now, as a share of its capacity, on the mean of the horizon.
    own_load : float
        The part of it that grows with the rate.
    """

    server: str
    resource: str
    node: str | None
    operator: str | None
    query: str | None
    share: float
    load: float
    own_load: float


@dataclass(frozen=True)
class ObjectiveRate(Record):
    """Rate at which an objective breaks, of the query itself or of another that shares its servers.

    `low_factor` is where the upper end of the interval of the latency passes the bound. A factor is None where the
    objective is broken however little of the query's own events come. `server` is where its events wait longest then.
    """

    query: str
    statistic: str
    bound_s: float
    factor: float | None
    low_factor: float | None
    rate_per_s: float | None
    low_per_s: float | None
    server: Omitted[str] = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def words(self) -> str:
        """A sentence about it."""
        return str(Fact("capacity.objective", **asdict(self)))


@dataclass(frozen=True)
class UnknownObjective(Record):
    """An objective of which nobody knows up to which rate it is kept, its own or that of one beside it, and why."""

    query: str
    statistic: str
    bound_s: float
    why: Sentence
    is_own: bool = False

    @computed_field  # type: ignore[prop-decorator]
    @property
    def words(self) -> str:
        """A sentence about it."""
        return str(Fact("capacity.objective_unknown", self.query, self.statistic, self.bound_s, self.why))


@dataclass(frozen=True)
class SaturationForecast(Record):
    """When the forecast load first fills a server of a query, or of the cluster, in seconds from `starts_at_s` (epoch).

    `at_s` is by the mean of the forecast, `earliest_at_s` by its upper end, `latest_at_s` by its lower end; None: not
    within `horizon_s`. `unforecast` are sources without a forecast, which stay at the rate they have.
    """

    starts_at_s: float
    horizon_s: float
    at_s: float | None
    earliest_at_s: float | None
    server: str | None
    unforecast: tuple[str, ...] = ()
    latest_at_s: Omitted[float] = None

    def words_at(self, now: datetime) -> str:
        """A sentence about it: how long it is from a moment until then."""
        since_s = now.timestamp() - self.starts_at_s

        def left_s(at_s: float | None) -> float | None:
            return None if at_s is None else max(0.0, at_s - since_s)

        return str(
            Fact(
                "capacity.forecast",
                at_s=left_s(self.at_s),
                earliest_s=left_s(self.earliest_at_s),
                latest_s=left_s(self.latest_at_s),
                end_s=max(0.0, self.horizon_s - since_s),
                server=self.server,
                unforecast=list(self.unforecast),
            )
        )

    @property
    def at(self) -> datetime | None:
        """When that is by the mean of the forecast."""
        return self._moment(self.at_s)

    @property
    def earliest_at(self) -> datetime | None:
        """When that is by its upper end."""
        return self._moment(self.earliest_at_s)

    @property
    def latest_at(self) -> datetime | None:
        """When that is by its lower end."""
        return self._moment(self.latest_at_s)

    @property
    def ends_at(self) -> datetime:
        """Where the forecast ends."""
        return datetime.fromtimestamp(self.starts_at_s + self.horizon_s, UTC)

    def _moment(self, after_s: float | None) -> datetime | None:
        return None if after_s is None else datetime.fromtimestamp(self.starts_at_s + after_s, UTC)


@dataclass(frozen=True, kw_only=True)
class _Capacity(Record):
    """Largest rate that is sustained: at which the busiest server has no time left, all else as it is.

    Rates are events/s of the sources that grow, all by one factor. Without `rate_per_s` only `at_most_per_s` is sure:
    the rate by measured costs alone, as if all other operators cost and put out nothing; `assumed_per_s` counts what
    was assumed of them, and there is no `limit`. `low_per_s` and `high_per_s` are the 90 % interval of what the samples
    of costs leave open; None where an input has no sample (`unsampled`). Events of the operators named in `outside`
    wait for answers from outside: the rate is not known either, and at most what work allows. What comes now and leaves
    nothing waiting is above no upper end. `assumed_per_s` is None where a cost is unknown: then nobody assumed any. An
    objective in `unknown_objectives` has no rate, and is not among the first. `measured_s` is what the shortest
    statistics cover, where that is too little for the figures to be more than rough. `forecast` is the time to
    saturation, or `no_forecast` why there is none; estimates are kept without either.
    """

    state: str
    now_per_s: float
    rate_per_s: float | None
    low_per_s: float | None
    high_per_s: float | None
    at_most_per_s: float | None
    assumed_per_s: float | None
    factor: float | None
    headroom_per_s: float | None
    headroom_share: float | None
    limit: CapacityLimit | None
    unmeasured: tuple[UnmeasuredOperator, ...] = ()
    outside: tuple[str, ...] = ()
    unsampled: int = 0
    objective: Omitted[ObjectiveRate] = None
    first_objective: Omitted[ObjectiveRate] = None
    unknown_objectives: tuple[UnknownObjective, ...] = ()
    objectives_known: bool = False
    measured_s: Omitted[float] = None
    forecast: Omitted[SaturationForecast] = None
    no_forecast: Omitted[Sentence] = None

    def dated(self, forecast: SaturationForecast | None, *, is_load_forecast: bool) -> Self:
        """This capacity with its time to saturation, or with the reason for which nobody knows it."""
        if self.state != KNOWN or self.measured_s is not None:
            return replace(self, no_forecast=Fact("capacity.no_forecast_capacity"))
        if not is_load_forecast:
            return replace(self, no_forecast=Fact("capacity.no_forecast_kept"))
        if forecast is None:
            return replace(self, no_forecast=Fact("capacity.no_forecast_load"))
        return replace(self, forecast=forecast)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def tightest_factor(self) -> float | None:
        """Factor at which a server is full or an objective breaks, whichever is first; None where it is not known.

        Nor is it while statistics are those of seconds, or where nobody knows when the objective breaks, or has looked.
        """
        is_open = not self.objectives_known or self._is_objective_unknown
        if self.factor is None or self.measured_s is not None or is_open:
            return None
        return min(self.factor, self._objective_factor)

    @property
    def _is_objective_unknown(self) -> bool:
        raise NotImplementedError

    @property
    def _objective_factor(self) -> float:
        """Factor at which the objective breaks that counts; infinite without one."""
        raise NotImplementedError

    @computed_field  # type: ignore[prop-decorator]
    @property
    def words(self) -> str:
        """A sentence about it."""
        limit = self.limit
        told = str(
            Fact(
                f"capacity.{self.state}",
                subject=self.SUBJECT,
                now_per_s=self.now_per_s,
                rate_per_s=self.rate_per_s,
                low_per_s=self.low_per_s,
                high_per_s=self.high_per_s,
                at_most_per_s=self.at_most_per_s,
                assumed_per_s=self.assumed_per_s,
                limit=None if limit is None else asdict(limit),
                names=[entry.operator for entry in self.unmeasured],
                outside=self.outside,
            )
        )
        if self.measured_s is None:
            return told
        still = Fact("latency.still_measuring", span_s=self.measured_s, rest_s=FULL_SPAN_S - self.measured_s)
        return f"{told} {still}"

    SUBJECT: ClassVar[str] = ""


@dataclass(frozen=True, kw_only=True)
class QueryCapacity(_Capacity):
    """Capacity of a query. `busiest_share_per_s` is the rule of DS2: the rate over the busiest operator's busy share.

    That rule knows nothing of others on the same server, nor of operators of the query that share one.
    """

    TITLE: ClassVar[str] = "a capacity of a query"
    SUBJECT: ClassVar[str] = "query"

    busiest_share_per_s: float | None = None
    sources: tuple[str, ...] = ()

    @property
    def _is_objective_unknown(self) -> bool:
        return any(entry.is_own for entry in self.unknown_objectives)

    @property
    def _objective_factor(self) -> float:
        return inf if self.objective is None else self.objective.factor or 0.0


@dataclass(frozen=True, kw_only=True)
class ClusterCapacity(_Capacity):
    """Capacity of a cluster: all sources grow by one factor, and `rate_per_s` is the sum of their rates.

    `first_objective` is the first that breaks of those that are kept now, `broken_objectives` are those that are not.
    Of unknown objectives some are named, and `more_unknown` says how many are not.
    """

    TITLE: ClassVar[str] = "a capacity of a cluster"
    SUBJECT: ClassVar[str] = "cluster"

    broken_objectives: tuple[str, ...] = ()
    more_unknown: int = 0

    @property
    def _is_objective_unknown(self) -> bool:
        return bool(self.unknown_objectives)

    @property
    def _objective_factor(self) -> float:
        broken = 1.0 if self.broken_objectives else inf
        return broken if self.first_objective is None else min(broken, self.first_objective.factor or 0.0)
