"""A simulation's records and what they add up to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import PlainSerializer, WithJsonSchema

from engine.arrays import FloatArray, FloatSeries
from engine.document.deployment import Deployment
from engine.records import Record
from engine.simulation.rows import Rows

__all__ = ["QuerySeries", "SimulatedFigures", "Simulation", "SimulationAnswer", "nearest_rank", "summarise"]

HIGH_QUANTILE = 0.99


#: Seconds over time, NaN where nothing came out, which is null in JSON.
_Seconds = Annotated[
    FloatArray,
    PlainSerializer(lambda values: [None if math.isnan(value) else value for value in values.tolist()]),
    WithJsonSchema({"type": "array", "items": {"type": ["number", "null"]}}),
]


@dataclass(frozen=True, eq=False)
class QuerySeries(Record):
    """One query's latencies by the subinterval of the stimulus; NaN where nothing came out."""

    maximum_s: _Seconds
    mean_s: _Seconds
    q99_s: _Seconds
    events: FloatSeries


@dataclass(frozen=True, eq=False)
class SimulatedFigures(Record):
    """Latency of the events of some sinks in all runs together; None without any. `events` are those of a run."""

    events: float
    worst_s: float | None
    mean_s: float | None
    q99_s: float | None
    worst_by_run_s: tuple[float, ...]
    series: QuerySeries


@dataclass(frozen=True, eq=False)
class SimulationAnswer(Record):
    """Runs of one deployment in all: largest latency, means and pooled quantiles over all of them."""

    policy: str
    runs: int
    subinterval_s: float
    subintervals: int
    source_events: float
    services: float
    overall: SimulatedFigures
    queries: Mapping[str, SimulatedFigures]
    utilisation: Mapping[str, FloatSeries]


@dataclass(frozen=True, slots=True, eq=False)
class Simulation:
    """Records of a simulation.

    `records` is a structured array with one row per sink event: `stimulus` and `egress` (seconds), `operator` (index of
    the sink), `p` (subinterval of the stimulus; -1 before the horizon), in order of egress. `busy_s` has shape
    (servers, d). `sampled` has shape (inputs, groups, 3): events, outputs and cycles per sample group, inputs numbered
    operator by operator.
    """

    deployment: Deployment
    policy: str
    records: Rows
    busy_s: FloatArray
    sampled: FloatArray
    source_events: int
    services: int

    @property
    def latency_s(self) -> FloatArray:
        """Latency of every record (egress - stimulus), seconds, shape (records,)."""
        return np.asarray(self.records["egress"] - self.records["stimulus"])

    @property
    def worst_s(self) -> float:
        """Lat_WC: the largest latency of any sink event; 0 when there is none."""
        return float(self.latency_s.max(initial=0.0))

    def chosen(self, query: str) -> NDArray[np.bool_]:
        """Mask of the records that belong to a query, shape (records,)."""
        sinks = np.zeros(len(self.deployment.operators), np.bool_)
        sinks[list(self.deployment.operators_of(query))] = True
        return np.asarray(sinks[self.records["operator"]])

    def series(self, query: str | None = None) -> QuerySeries:
        """Latencies per subinterval of one query, or of all sinks."""
        latency_s, p = self.latency_s, self.records["p"]
        if query is not None:
            latency_s, p = latency_s[self.chosen(query)], p[self.chosen(query)]
        return _by_subinterval(latency_s, p, self.deployment.subintervals)

    def utilisation(self) -> dict[str, FloatArray]:
        """Busy share of every node (mean over its cores) and link with a bandwidth, per subinterval, shape (d,)."""
        shares = self.busy_s / self.deployment.subinterval_s
        by_server: dict[str, list[FloatArray]] = {}
        for server, share in zip(self.deployment.servers, shares, strict=True):
            name = server.name if server.node is None else self.deployment.nodes[server.node].id
            by_server.setdefault(name, []).append(share)
        return {name: np.mean(rows, axis=0) for name, rows in by_server.items()}


def summarise(runs: list[Simulation]) -> SimulationAnswer:
    """The runs of one deployment in all."""
    deployment = runs[0].deployment
    latency_s = np.concatenate([run.latency_s for run in runs])
    p = np.concatenate([run.records["p"] for run in runs])
    queries = {}
    for query in deployment.queries:
        own = np.concatenate([run.chosen(query) for run in runs])
        worst = [float(run.latency_s[run.chosen(query)].max(initial=0.0)) for run in runs]
        queries[query] = _summary(latency_s[own], p[own], deployment.subintervals, worst)
    shares = [run.utilisation() for run in runs]
    return SimulationAnswer(
        policy=runs[0].policy,
        runs=len(runs),
        subinterval_s=deployment.subinterval_s,
        subintervals=deployment.subintervals,
        source_events=sum(run.source_events for run in runs) / len(runs),
        services=sum(run.services for run in runs) / len(runs),
        overall=_summary(latency_s, p, deployment.subintervals, [run.worst_s for run in runs]),
        queries=queries,
        utilisation={name: np.mean([share[name] for share in shares], axis=0) for name in shares[0]},
    )


def nearest_rank(ordered: FloatArray, q: float) -> float:
    """The ceil(q*n)-th smallest of ascending values."""
    return float(ordered[max(0, math.ceil(q * len(ordered) - 1e-9) - 1)])


def _summary(latency_s: FloatArray, p: Rows, subintervals: int, worst_s: list[float]) -> SimulatedFigures:
    series = _by_subinterval(latency_s, p, subintervals)
    ordered = np.sort(latency_s)
    some = len(ordered) > 0
    return SimulatedFigures(
        events=len(ordered) / len(worst_s),
        worst_s=max(worst_s) if some else None,
        mean_s=float(ordered.mean()) if some else None,
        q99_s=nearest_rank(ordered, HIGH_QUANTILE) if some else None,
        worst_by_run_s=tuple(worst_s),
        series=replace(series, events=series.events / len(worst_s)),
    )


def _by_subinterval(latency_s: FloatArray, p: Rows, subintervals: int) -> QuerySeries:
    within = p >= 0  # what waited where the horizon begins came in no subinterval
    latency_s, p = latency_s[within], p[within]
    order = np.lexsort((latency_s, p))
    ordered, events = latency_s[order], np.bincount(p, minlength=subintervals)
    last = np.cumsum(events)
    present = events > 0
    maximum_s, mean_s, q99_s = (np.full(subintervals, np.nan) for _ in range(3))
    maximum_s[present] = ordered[last[present] - 1]
    rank = np.maximum(1, np.ceil(HIGH_QUANTILE * events - 1e-9)).astype(np.int64)
    q99_s[present] = ordered[(last - events + rank - 1)[present]]
    sums = np.bincount(p, weights=latency_s, minlength=subintervals)
    mean_s[present] = sums[present] / events[present]
    return QuerySeries(maximum_s, mean_s, q99_s, events.astype(np.float64))
