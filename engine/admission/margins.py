"""Half widths of intervals for admission, by the jackknife of `engine.intervals` at a fraction of its cost.

A worst case is decided in the busy stretches that come near it. Arrivals outside of these are left out, which leaves
the worst case as it was: a stretch begins where every server was idle. Other statistics need the whole horizon and are
followed at Mace's width.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.deployment import Deployment
from engine.elements import FloatArray
from engine.estimation import Estimate
from engine.intervals import Z, jackknife, standard_error
from engine.loads import loads_of
from engine.quantiles import statistic_of

__all__ = ["Margins", "busy_stretches", "only_in", "sink_events"]

BoolArray = npt.NDArray[np.bool_]

_NEAR = 0.6  # of its worst case: below that, a left-out batch does not make another stretch the worst
_LEAD = 2  # subintervals before a stretch, in case a left-out batch lengthens it
_FEW = 0.25  # share of the horizon up to which stretches are followed at w/4


class Margins:
    """Three standard errors of each query's estimate, in seconds.

    `decisive` are the subintervals (at Mace's width) that decide the estimates.
    """

    def __init__(self, estimated: Estimate) -> None:
        queries = estimated.queries
        statistics = {query: report.statistic for query, report in queries.items()}
        worst_only = all(name == "worst" for name in statistics.values())
        self.decisive = busy_stretches(estimated) if worst_only else np.ones(estimated.coarse.subintervals, dtype=bool)
        deployment = _deployment_for(estimated, self.decisive)
        runs = jackknife(deployment, slices=1).flows
        weights = sink_events(deployment) if runs else {}
        covered = {
            op.query for op in deployment.operators if any(len(entry.batches) >= 2 for entry in op.inputs)
        }
        self._margins = {
            query: Z * float(standard_error([statistic_of(run.by_query[query], weights[query], name) for run in runs]))
            for query, name in statistics.items()
            if query in covered
        }

    def of(self, query: str) -> float | None:
        """The margin; None where no input of the query has batches."""
        return self._margins.get(query)


def _deployment_for(estimated: Estimate, decisive: BoolArray) -> Deployment:
    """What the jackknife runs on."""
    if decisive.mean() > _FEW:
        return only_in(estimated.coarse, decisive)
    factor = round(estimated.coarse.subinterval_s / estimated.deployment.subinterval_s)
    return only_in(estimated.deployment, np.repeat(decisive, factor)[: estimated.deployment.subintervals])


def busy_stretches(estimated: Estimate) -> BoolArray:
    """Subintervals (at Mace's width) that decide the worst case of some query."""
    coarse, d = estimated.coarse, estimated.coarse.subintervals
    latencies = [_grouped(values, d) for values in estimated.flow.by_query.values()]
    hot = np.zeros(d, dtype=bool)
    late = np.zeros(d)
    for latency in latencies:
        hot |= latency >= max(_NEAR * latency.max(), estimated.resolution_s)
        late = np.maximum(late, latency)
    idle = (estimated.mace.ce.max(axis=0, initial=0.0) <= 0.0) & (late <= coarse.subinterval_s)
    begins = np.maximum.accumulate(np.where(idle, np.arange(d), 0))
    kept = np.zeros(d, dtype=bool)
    for p in np.flatnonzero(hot):
        kept[max(0, begins[p] - _LEAD) : p + 1] = True
    return kept


def _grouped(values: FloatArray, d: int) -> FloatArray:
    factor = -(-len(values) // d)
    padded = np.concatenate([values, np.zeros(d * factor - len(values))])
    return np.asarray(padded.reshape(d, factor).max(axis=1))


def only_in(deployment: Deployment, kept: BoolArray) -> Deployment:
    """The same deployment without the arrivals of other subintervals."""
    return deployment.with_arrivals({source.id: source.arrivals * kept for source in deployment.sources})


def sink_events(deployment: Deployment) -> dict[str, FloatArray]:
    """Events at each query's sinks, per subinterval."""
    graph = deployment.graph
    sinks = np.zeros((len(deployment.queries), len(deployment.operators)))
    chosen = np.flatnonzero(graph.query_sink)
    sinks[graph.query[chosen], chosen] = 1.0
    return dict(zip(deployment.queries, loads_of(deployment).outputs(sinks), strict=True))
