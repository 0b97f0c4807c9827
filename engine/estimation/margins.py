"""Half widths of intervals by a cheap jackknife that follows only the busy periods."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.arrays import FloatArray, statistic_of
from engine.document.deployment import Deployment
from engine.estimation.estimate import Estimate, is_large
from engine.estimation.intervals import Z, jackknife, standard_error
from engine.estimation.loads import loads_of, sink_outputs
from engine.estimation.reports import QueryReport

__all__ = ["BoolArray", "Margins", "busy_periods", "restrict_arrivals", "sink_events"]

BoolArray = npt.NDArray[np.bool_]

# How near a busy period must come to the statistic: below that, a left-out batch does not make it decide. The first is
# taken that leaves few of them, or the last.
_NEAR = (0.6, 0.75, 0.85)
_FEW = 0.25
_LEAD = 2  # subintervals before a busy period, in case a left-out batch lengthens it
_OF_MEAN = 0.99  # share of all lateness that the busy periods of a mean must hold


class Margins:
    """Three standard errors of each query's estimate, in seconds."""

    def __init__(self, estimated: Estimate) -> None:
        deployment = estimated.deployment
        weights = sink_events(deployment)
        decisive = _few_busy_periods(estimated, weights)
        if is_large(deployment):  # as for its estimates, errors are those at Mace's width
            deployment = estimated.coarse
            weights = sink_events(deployment)
        factor = round(estimated.coarse.subinterval_s / deployment.subinterval_s)
        kept = np.repeat(decisive, factor)[: deployment.subintervals]
        runs = jackknife(restrict_arrivals(deployment, kept), slices=1).flows
        sampled = {op.id for op in deployment.operators if any(len(entry.batches) >= 2 for entry in op.inputs)}
        self._margins = {
            name: Z
            * float(standard_error([statistic_of(run.by_query[name], weights[name], report.statistic) for run in runs]))
            for name, report in estimated.queries.items()
            # Without a jackknife every input above the query's sinks is listed as left out of its interval.
            if any(item["operator"] in sampled for item in report.uncovered)
        }

    def of(self, query: str) -> float | None:
        """The margin; None where no input of the query has batches."""
        return self._margins.get(query)


def _few_busy_periods(estimated: Estimate, weights: dict[str, FloatArray]) -> BoolArray:
    for near in _NEAR:
        kept = busy_periods(estimated, weights, near)
        if kept.mean() <= _FEW:
            break
    return kept


def busy_periods(estimated: Estimate, weights: dict[str, FloatArray], near: float) -> BoolArray:
    """Subintervals (at Mace's width) that decide the estimate of a query, each busy period from where all was idle."""
    coarse, d = estimated.coarse, estimated.coarse.subintervals
    hot, late = np.zeros(d, dtype=bool), np.zeros(d)
    for query, latency in estimated.flow.by_query.items():
        least = _min_deciding_latency(estimated.queries[query], latency, weights[query], near)
        grouped = _group_maxima(latency, d)
        hot |= (grouped >= least) & (grouped > 0.0)
        late = np.maximum(late, grouped)
    idle = (estimated.mace.ce.max(axis=0, initial=0.0) <= 0.0) & (late <= coarse.subinterval_s)
    begins = np.maximum.accumulate(np.where(idle, np.arange(d), 0))
    kept = np.zeros(d, dtype=bool)
    for p in np.flatnonzero(hot):
        kept[max(0, begins[p] - _LEAD) : p + 1] = True
    return kept


def _min_deciding_latency(report: QueryReport, latency: FloatArray, weights: FloatArray, near: float) -> float:
    """Least latency at which a slice takes part in deciding a query's statistic."""
    if report.statistic != "mean":
        return near * report.estimate_s
    order = np.argsort(-latency, kind="stable")
    held = np.cumsum((latency * weights)[order])
    if held[-1] <= 0.0:
        return 0.0
    return float(latency[order[int(np.searchsorted(held, _OF_MEAN * held[-1]))]])


def _group_maxima(values: FloatArray, d: int) -> FloatArray:
    factor = -(-len(values) // d)
    padded = np.concatenate([values, np.zeros(d * factor - len(values))])
    return np.asarray(padded.reshape(d, factor).max(axis=1))


def restrict_arrivals(deployment: Deployment, kept: BoolArray) -> Deployment:
    """The same deployment without the arrivals of other subintervals."""
    return deployment.with_arrivals({source.id: source.arrivals * kept for source in deployment.sources})


def sink_events(deployment: Deployment) -> dict[str, FloatArray]:
    """Events at each query's sinks, per subinterval."""
    events = sink_outputs(loads_of(deployment), deployment.graph, len(deployment.queries))
    return dict(zip(deployment.queries, events, strict=True))
