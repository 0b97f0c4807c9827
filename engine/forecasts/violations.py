"""From forecasts of the sources to latencies of the queries: when each objective will first be violated.

Every future bucket scales the deployment's arrivals: a source keeps its shape within the horizon and gets the
forecast's rate over the rate of its own arrivals as a factor. Mace answers for every bucket
(`engine.forecasts.scaled_latency`); Flow, which estimates are made of, is run for a few of them, so that Mace's
numbers can be read as Flow's, and confirms each date that is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.arrays import FloatArray, statistic_of
from engine.document.deployment import Deployment
from engine.estimation.flow import flow
from engine.estimation.loads import loads_of
from engine.forecasts.scaled_latency import ScaledMace

__all__ = ["FlowCalibration", "ObjectiveViolation", "QueryOutlook", "Violations", "scaled_deployment", "violations"]

FLOW_RUNS = 24
_FLOW_CELLS = 8e6  # replicas times slices that all of Flow's runs may cost
_TRIES = 5
_KNOTS = (1.0, 0.6, 1.6)  # of the objective: where Flow is asked beforehand

Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class ObjectiveViolation:
    """A first violation: index of the bucket, latency there by Flow and Mace, and whether Flow is over the bound."""

    index: int
    flow_s: float
    mace_s: float
    confirmed: bool


@dataclass(frozen=True, eq=False)
class QueryOutlook:
    """One query over the coming buckets; latencies are of its objective's statistic, in seconds.

    `mean_s` and `high_s` (h,) are at the expected loads and with every source at the upper end of its band.
    """

    query: str
    statistic: str
    bound_s: float
    mean_s: FloatArray
    high_s: FloatArray
    first_mean: ObjectiveViolation | None
    first_high: ObjectiveViolation | None

    def to_dict(self) -> dict[str, Any]:
        """As JSON, without the curves."""

        def found(first: ObjectiveViolation | None) -> dict[str, Any] | None:
            return None if first is None else dict(vars(first))

        return {
            "query": self.query,
            "statistic": self.statistic,
            "bound_s": self.bound_s,
            "worst_mean_s": float(self.mean_s.max(initial=0.0)),
            "worst_high_s": float(self.high_s.max(initial=0.0)),
            "first_mean": found(self.first_mean),
            "first_high": found(self.first_high),
        }


@dataclass(eq=False)
class FlowCalibration:
    """Flow's answer as a rising function of Mace's, per query, through the points at which both were computed."""

    queries: tuple[str, ...]
    mace_s: list[FloatArray] = field(default_factory=list)
    flow_s: list[FloatArray] = field(default_factory=list)

    def add(self, mace_s: FloatArray, flow_s: FloatArray) -> None:
        """One more point of every query, (q,) each."""
        self.mace_s.append(mace_s)
        self.flow_s.append(flow_s)

    def __call__(self, mace_s: FloatArray) -> FloatArray:
        """Flow's latencies for Mace's, both (n, q): between points a straight line, beyond them parallel to Mace."""
        if not self.mace_s:
            return mace_s
        flow_s = np.empty_like(mace_s)
        for q in range(mace_s.shape[1]):
            x = np.array([row[q] for row in self.mace_s])
            y = np.array([row[q] for row in self.flow_s])
            order = np.lexsort((y, x))
            x, y = x[order], np.maximum.accumulate(y[order])
            m = mace_s[:, q]
            # Where several runs had the same Mace, the largest of their answers counts.
            line = np.interp(m, x, y) + np.maximum(m - x[-1], 0.0) - np.maximum(x[0] - m, 0.0)
            flow_s[:, q] = np.maximum(line, m)
        return flow_s


@dataclass(frozen=True, eq=False)
class Violations:
    """The outlook of every query with an objective, and how Mace was calibrated."""

    outlooks: tuple[QueryOutlook, ...]
    calibration: FlowCalibration
    flow_runs: int
    assumptions: tuple[str, ...]


def violations(
    deployment: Deployment,
    mean: FloatArray,
    high: FloatArray,
    *,
    mace_every: int = 1,
    flow_runs: int = FLOW_RUNS,
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
    flow_runs : int
        At most so many runs of Flow before dates are confirmed (fewer for large deployments); 0 leaves Flow out.

    Raises
    ------
    InfeasibleError
        Loads that are not linear in the sources, or capacities that change.
    UnplacedError
        If an operator has no node.
    """
    tell = progress or (lambda share, step: None)
    coarse = deployment.coarsened(mace_every)
    model = ScaledMace(coarse)
    rows = np.vstack([mean, high])
    raw = model.latencies(rows)
    search = _ViolationSearch(deployment, model, rows, raw, flow_runs, tell)
    search.spread()
    outlooks = [search.outlook(q, len(mean)) for q in range(len(model.queries))]
    tell(1.0, "Dates confirmed")
    return Violations(tuple(outlooks), search.calibration, len(search.known), _assumptions(search))


class _ViolationSearch:
    """Rows of factors with Mace's answers, and Flow's for some of them."""

    def __init__(
        self, deployment: Deployment, model: ScaledMace, rows: FloatArray, raw: FloatArray, runs: int, tell: Progress
    ) -> None:
        cost = len(deployment.layout.rep_operator) * deployment.subintervals
        self.deployment, self.model, self.rows, self.raw, self.tell = deployment, model, rows, raw, tell
        self.runs = min(runs, max(4, int(_FLOW_CELLS / max(cost, 1)))) if runs else 0
        self.calibration = FlowCalibration(model.queries)
        self.known: dict[int, FloatArray] = {}

    def flow_at(self, row: int) -> FloatArray:
        """Flow's latencies with the factors of a row, (q,); known from then on."""
        if row not in self.known:
            scaled = scaled_deployment(self.deployment, self.rows[row])
            self.known[row] = _flow_statistics(scaled, self.model.queries, self.model.statistics)
            self.calibration.add(self.raw[row], self.known[row])
            self.tell(min(0.95, len(self.known) / (self.runs + 2 * _TRIES)), f"Flow, run {len(self.known)}")
        return self.known[row]

    def spread(self) -> None:
        """Ask Flow near every query's objective first, then below and above it, as far as the runs go."""
        for share in _KNOTS:
            for q, bound_s in enumerate(self.model.bounds_s):
                if len(self.known) >= self.runs:
                    return
                if self.raw[:, q].any():
                    self.flow_at(int(np.abs(self.raw[:, q] - share * bound_s).argmin()))
        if self.runs and not self.known and len(self.rows):
            self.flow_at(int(self.rows.sum(axis=1).argmax()))

    def outlook(self, q: int, horizon: int) -> QueryOutlook:
        first = [self._first(q, range(horizon)), self._first(q, range(horizon, 2 * horizon))]
        latency = self.calibration(self.raw)[:, q]
        return QueryOutlook(
            self.model.queries[q],
            self.model.statistics[q],
            float(self.model.bounds_s[q]),
            latency[:horizon],
            latency[horizon:],
            *first,
        )

    def _first(self, q: int, rows: range) -> ObjectiveViolation | None:
        """First row over the objective by the calibrated Mace that Flow confirms.

        A row that Flow clears moves the calibration, and the search goes on from there; after a few of them the
        answer is given as it stands, unconfirmed.
        """
        bound_s = float(self.model.bounds_s[q])
        for attempt in range(_TRIES + 1):
            said = self.calibration(self.raw[rows.start : rows.stop])[:, q]
            over = [i for i in np.flatnonzero(said > bound_s).tolist() if not self._cleared(rows[i], q)]
            if not over:
                return None
            row = rows[over[0]]
            mace_s = float(self.raw[row, q])
            if not self.runs or (attempt == _TRIES and row not in self.known):
                return ObjectiveViolation(over[0], float(said[over[0]]), mace_s, False)
            if self.flow_at(row)[q] > bound_s:
                return ObjectiveViolation(over[0], float(self.known[row][q]), mace_s, True)
        return None

    def _cleared(self, row: int, q: int) -> bool:
        return row in self.known and self.known[row][q] <= self.model.bounds_s[q]


def scaled_deployment(deployment: Deployment, factors: Sequence[float] | FloatArray) -> Deployment:
    """The deployment with every source's arrivals times its factor."""
    return deployment.with_arrivals(
        {s.id: s.arrivals * float(f) for s, f in zip(deployment.sources, factors, strict=True)}
    )


def _flow_statistics(deployment: Deployment, queries: tuple[str, ...], statistics: tuple[str, ...]) -> FloatArray:
    run = flow(deployment, by_input=True)
    graph = deployment.graph
    sinks = np.zeros((len(queries), len(deployment.operators)))
    for q, query in enumerate(queries):
        sinks[q, graph.query_sink & (graph.query == deployment.queries.index(query))] = 1.0
    events = loads_of(deployment).outputs(sinks)
    return np.array([statistic_of(run.by_query[query], events[q], statistics[q]) for q, query in enumerate(queries)])


def _assumptions(search: _ViolationSearch) -> tuple[str, ...]:
    runs = len(search.known)
    how = (
        f"Latency of every bucket by Mace, read as Flow's by {runs} runs of Flow."
        if runs
        else "Latency by Mace alone: it tends to be lower than Flow's."
    )
    return (
        "Every bucket has the shape of the present arrivals, scaled source by source to the forecast rate.",
        "The upper end takes every source at the upper end of its own band at once; probabilities draw them jointly.",
        "Placement, plans, statistics and nodes stay as they are.",
        how,
    )
