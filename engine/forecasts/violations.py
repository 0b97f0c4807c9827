"""From forecasts of the sources to latencies of the queries: when each objective is first at risk and first violated.

Every future bucket scales the deployment's arrivals: a source keeps its shape within the horizon and gets the
forecast's rate over the rate of its own arrivals as a factor. Mace answers for every bucket
(`engine.forecasts.scaled_latency`). A few buckets are walked with random costs and arrivals, as estimates are, so that
Mace's numbers can be read as realised ones (`engine.forecasts.realised_latency`); walks confirm each date that is
reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from math import inf

import numpy as np

from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.document.policies import PolicyGap
from engine.estimation.noise.summary import RealisedQuery
from engine.estimation.query_flow import flow_queries
from engine.forecasts.answer import ObjectiveViolation, QueryForecast
from engine.forecasts.realised_latency import LatencyTable, RealisedLatency, ScaledWalk, walk_scaled
from engine.forecasts.scaled_latency import ScaledMace
from engine.placement.problem import BoolArray
from engine.records import Fact

__all__ = ["WALKS", "QueryOutlook", "Violations", "scaled_deployment", "violations"]

WALKS = 12
_WALK_CELLS = 4e6  # replicas times slices that all walks before the confirmations may cost
_MIN_WALKS = 4
_TRIES = 6
_DOUBT = 0.9  # of a bound: an earlier bucket read above it is walked before a later one is called the first
_SPREAD = 0.6  # of the walks stand evenly between the least and the largest load, the others near objectives

_NEAR = 3.0  # times a bound, or a third of it, within which a load is worth a walk

Progress = Callable[[float, str], None]


@dataclass(frozen=True, eq=False)
class QueryOutlook:
    """One query over the coming buckets; curves of its objective's statistic, in seconds, (h,) each.

    Attributes
    ----------
    facts : QueryForecast
        Everything but the curves.
    mean_s, low_s, upper_s : arrays
        Median and 90 % interval of the realised statistic at the expected loads.
    high_s : array
        Its median with every source at the upper end of its band.
    endless : array
        Buckets at the expected loads in which it never catches up.
    """

    facts: QueryForecast
    mean_s: FloatArray
    low_s: FloatArray
    upper_s: FloatArray
    high_s: FloatArray
    endless: BoolArray


@dataclass(frozen=True, eq=False)
class Violations:
    """The outlook of every query with an objective, and how Mace is read as realised latencies.

    `assumed` are sentences about what the walks rest on, `coarse_sources` sources whose counts hide bursts.
    """

    outlooks: tuple[QueryOutlook, ...]
    table: LatencyTable
    walks: int
    assumptions: tuple[Fact, ...]
    assumed: tuple[str, ...] = ()
    coarse_sources: tuple[str, ...] = ()


def violations(
    deployment: Deployment,
    mean: FloatArray,
    high: FloatArray,
    *,
    mace_every: int = 1,
    walks: int = WALKS,
    progress: Progress | None = None,
) -> Violations:
    """Find the first violation of each objective.

    Parameters
    ----------
    deployment : Deployment
        At the width that Flow runs on; `mace_every` of its subintervals make one of Mace's.
    mean, high : array, shape (h, sources)
        Factor of every source in every bucket: forecast rate over the rate of the source's arrivals, at the expected
        load and at the upper end of the band.
    walks : int
        At most so many walks before dates are confirmed (fewer for large deployments); 0 leaves them out.

    Raises
    ------
    InfeasibleError
        Loads that are not linear in the sources, or capacities that change.
    UnplacedError
        If an operator has no node.
    """
    tell = progress or (lambda share, step: None)
    search = _ViolationSearch(deployment, ScaledMace(deployment.coarsened(mace_every)), mean, high, walks, tell)
    search.spread()
    outlooks = [search.outlook(q, len(mean)) for q in range(len(search.model.queries))]
    tell(1.0, "Dates confirmed")
    realised = [entry for walk in search.known.values() for entry in walk.realised]
    return Violations(
        tuple(outlooks),
        search.table,
        len(search.known),
        _assumptions(search),
        _distinct(realised, "assumed"),
        _distinct(realised, "assumed_sources"),
    )


def _distinct(realised: Sequence[RealisedQuery], name: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for entry in realised for text in getattr(entry, name)))


class _ViolationSearch:
    """Rows of factors with Mace's answers, and walks of some of them."""

    def __init__(
        self,
        deployment: Deployment,
        model: ScaledMace,
        mean: FloatArray,
        high: FloatArray,
        walks: int,
        tell: Progress,
    ) -> None:
        cost = len(deployment.layout.rep_operator) * deployment.subintervals
        self.deployment, self.model, self.tell = deployment, model, tell
        self.rows = np.vstack([mean, high])
        scanned = model.latencies(self.rows)
        self.mace_s, self.endless, self.loads = scanned.latency_s, scanned.growth > 0.0, model.loads(self.rows)
        self.runs = min(walks, max(_MIN_WALKS, int(_WALK_CELLS / max(cost, 1)))) if walks else 0
        self.table = LatencyTable(model.queries)
        self.known: dict[int, ScaledWalk] = {}
        self._read: RealisedLatency | None = None

    def walk_at(self, row: int) -> ScaledWalk:
        """The walk with the factors of a row; known from then on."""
        if row not in self.known:
            scaled = scaled_deployment(self.deployment, self.rows[row])
            self.known[row] = walk_scaled(scaled, self.model.queries, self.model.statistics)
            self.table.add(self.loads[row], self.mace_s[row], self.known[row])
            self._read = None
            self.tell(min(0.95, len(self.known) / (self.runs + 2 * _TRIES)), f"Estimating load {len(self.known)}")
        return self.known[row]

    def spread(self) -> None:
        """Walk loads between the least and the largest, then those that come nearest to objectives."""
        if not self.runs or not len(self.rows) or not self.model.queries:
            return
        busiest = self.loads.max(axis=1, initial=0.0)
        for at in np.linspace(busiest.max(), busiest.min(), max(2, round(_SPREAD * self.runs))):
            self.walk_at(int(np.abs(busiest - at).argmin()))
        while len(self.known) < self.runs:
            near = self._nearest()
            if near is None:
                return
            self.walk_at(near)

    def _nearest(self) -> int | None:
        """The row, not walked yet, at which an objective is nearest to the upper end of its interval."""
        distance = np.abs(np.log(np.maximum(self.latency.high_s, 1e-9) / self.model.bounds_s)).min(axis=1)
        distance[list(self.known)] = np.inf
        row = int(distance.argmin())
        return row if distance[row] < np.log(_NEAR) else None

    def outlook(self, q: int, horizon: int) -> QueryOutlook:
        ahead, above = range(horizon), range(horizon, 2 * horizon)
        first = (
            self._first(q, ahead, "high_s"),
            self._first(q, ahead, "estimate_s"),
            self._first(q, above, "estimate_s"),
        )
        estimate, low, upper = (getattr(self.latency, name)[:, q] for name in ("estimate_s", "low_s", "high_s"))
        mean, high, endless = estimate[:horizon], estimate[horizon:], self.endless[:horizon, q]
        query = self.model.queries[q]
        facts = QueryForecast(
            query,
            self.model.statistics[q],
            float(self.model.bounds_s[q]),
            float(mean.max(initial=0.0)),
            float(upper[:horizon].max(initial=0.0)),
            float(high.max(initial=0.0)),
            *first,
            int(endless.sum()),
            self.model.unknown.get(query, ""),
            *self._lacking(q),
        )
        return QueryOutlook(facts, mean, low[:horizon], upper[:horizon], high, endless)

    def _lacking(self, q: int) -> tuple[Fact | str, bool]:
        """Lack of the figures of a query under the policies in force, and whether nobody knows how much."""
        gaps = self._gaps[q]
        unknown = next((gap for gap in gaps if gap.factor is None and gap.upper_s is None), None)
        if unknown is not None:
            return unknown.words(None), True
        return (gaps[0].words(None), not self.known) if gaps else ("", False)

    @cached_property
    def _gaps(self) -> list[list[PolicyGap]]:
        """Gaps of every query in the walks; without a walk those under present arrivals."""
        walks = [walk.gaps for walk in self.known.values()]
        if not walks:
            reporter = flow_queries(self.deployment).reporter
            asked = zip(self.model.queries, self.model.statistics, strict=True)
            walks = [tuple(reporter.policy_gap(query, statistic, inf) for query, statistic in asked)]
        return [[gap for gap in (walk[q] for walk in walks) if gap] for q in range(len(self.model.queries))]

    @property
    def latency(self) -> RealisedLatency:
        """Realised latencies of every row, (rows, q): walked where it is, else read from the table."""
        if self._read is None:
            self._read = self.table(self.loads, self.mace_s)
            for row, walk in self.known.items():
                for entry in fields(RealisedLatency):
                    getattr(self._read, entry.name)[row] = getattr(walk.latency, entry.name)
        return self._read

    def _first(self, q: int, rows: range, name: str) -> ObjectiveViolation | None:
        """First row over the objective that a walk confirms, with no earlier one nearly over that was not walked.

        What a walk clears, or finds over, is one more point of the table, and the search goes on from there; after a
        few of them the answer is given as it stands, unconfirmed.
        """
        bound_s = float(self.model.bounds_s[q])
        for attempt in range(_TRIES + 1):
            read = getattr(self.latency, name)[rows.start : rows.stop, q]
            over = np.flatnonzero((read > bound_s) | self.endless[rows.start : rows.stop, q])
            if not len(over):
                return None
            index = int(over[0])
            is_last = not self.runs or attempt == _TRIES
            if rows[index] not in self.known:
                if is_last:
                    return self._violation(q, rows[index], index, False)
                self.walk_at(rows[index])
                continue
            doubtful = [i for i in np.flatnonzero(read[:index] > _DOUBT * bound_s) if rows[i] not in self.known]
            if is_last or not doubtful:
                return self._violation(q, rows[index], index, True)
            self.walk_at(rows[max(doubtful, key=lambda i: read[i])])
        return None

    def _violation(self, q: int, row: int, index: int, confirmed: bool) -> ObjectiveViolation:
        estimate, low, high = (float(getattr(self.latency, name)[row, q]) for name in ("estimate_s", "low_s", "high_s"))
        is_endless = bool(self.endless[row, q])
        return ObjectiveViolation(index, estimate, low, high, float(self.mace_s[row, q]), confirmed, is_endless)


def scaled_deployment(deployment: Deployment, factors: Sequence[float] | FloatArray) -> Deployment:
    """The deployment with every source's arrivals times its factor."""
    return deployment.with_arrivals(
        {s.id: s.arrivals * float(f) for s, f in zip(deployment.sources, factors, strict=True)}
    )


def _assumptions(search: _ViolationSearch) -> tuple[Fact, ...]:
    length_s = search.deployment.subintervals * search.deployment.subinterval_s
    how = Fact("forecasts.by_walks", walks=len(search.known)) if search.runs else Fact("forecasts.by_mace")
    shape = Fact("forecasts.shape", length_s=length_s)
    return (shape, Fact("forecasts.upper_end"), Fact("forecasts.else_as_is"), how)
