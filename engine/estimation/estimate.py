"""Estimate of a deployment: the paper's Mace with its bounds, Flow, and a report for every query."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from engine.arrays import LEVELS, FloatArray, event_mean, event_quantile, finite_max, nearest_rank
from engine.command_options import EstimateOptions
from engine.document.deployment import Deployment
from engine.document.memory import fleet_memory
from engine.document.policies import scheduling_bound
from engine.estimation.answer import Alarm, EstimateAnswer, OperatorAnswer, ServerAnswer
from engine.estimation.bounds import describe_bounds, visit_bounds
from engine.estimation.flow import Flow, flow
from engine.estimation.loads import UnkeptLoads, loads_of
from engine.estimation.mace import Mace, mace
from engine.estimation.noise.realisation import realise
from engine.estimation.probes import ProbedDeployment, probe_deployment
from engine.estimation.reports import MEAN_PATH, REALISED, QueryReport, QueryReporter
from engine.estimation.waits.estimate import query_waits
from engine.records import Fact
from engine.solvers import solving

__all__ = ["Estimate", "Progress", "alarm_of", "command", "estimate", "own_mace"]

_TRUSTED = 0.05  # Flow may exceed Mace by this share before the theorem is called into question
Progress = Callable[[float, str], None]


@dataclass(frozen=True, eq=False)
class Estimate:
    """Estimate of a deployment.

    `deployment` is at the resolution Flow ran on; `mace` and everything reported per subinterval is on `coarse`. `flow`
    is Flow by input, the mean path of every query, on `probed`, in which every query puts something out; `judged` is
    Mace there, and `unburdened` the same Flow with nothing waiting where the horizon begins, where something does.
    `basis` says what the numbers of queries are, as their reports do.
    """

    deployment: Deployment
    probed: ProbedDeployment
    coarse: Deployment
    mace: Mace
    flow: Flow
    resolution_s: float
    alarm: Alarm
    queries: dict[str, QueryReport]
    judged: Mace
    unburdened: Flow | None = None
    basis: str = MEAN_PATH
    counted_from: int = 0

    def realised(self) -> Estimate:
        """The same with random costs and arrivals: of all that was computed, only the walk is added."""
        noise = realise(self.probed.deployment, self.flow, queries=self.queries.keys(), counted_from=self.counted_from)
        queries = {
            query: report.realised(report.waiting(noise[query])) if query in noise else report
            for query, report in self.queries.items()
        }
        return replace(self, queries=queries, basis=REALISED)

    def reports(self, queries: Collection[str]) -> dict[str, QueryReport]:
        """Reports of some queries, on the mean path."""
        judged = self.judged
        if isinstance(judged.loads, UnkeptLoads):
            judged = replace(judged, loads=loads_of(judged.deployment))
        reporter = QueryReporter(
            self.probed,
            judged,
            self.flow,
            self.resolution_s,
            waits=query_waits(self.probed.deployment, queries=queries),
            counted_from=self.counted_from * self.flow.slices,
            unburdened=self.unburdened,
        )
        return {query: reporter.report(query) for query in self.probed.deployment.queries if query in queries}

    def counted(self, counted_from: int) -> Estimate:
        """The same on the mean path, of events from another subinterval on."""
        counted = replace(self, counted_from=counted_from, basis=MEAN_PATH)
        return replace(counted, queries=counted.reports(self.queries))

    @cached_property
    def plain_flow(self) -> Flow:
        """Flow by its plain definition, which starts all work of an operator with the first of its inputs."""
        return flow(self.deployment, slices=self.flow.slices)

    def _reported(self, latency_s: FloatArray) -> FloatArray:
        """Largest of the slices of every reported subinterval."""
        factor = round(self.coarse.subinterval_s / self.deployment.subinterval_s)
        padded = np.concatenate([latency_s, np.zeros(-len(latency_s) % factor)])
        return np.asarray(padded.reshape(-1, factor).max(axis=1))

    def answer(self, *, detail: bool = True, plain: bool = True) -> EstimateAnswer:
        """The estimate as it is written.

        Without `detail` the series of operators, servers and queries are left out, and without `plain` Flow by its
        plain definition, which takes a pass over everything.
        """
        m, others = self.mace, self.coarse.other_policies
        bottleneck = m.bottleneck
        series = self._series(plain)
        largest = {name: None if values is None else float(values.max()) for name, values in series.items()}
        if self.flow.lead is not None:  # what waits where the horizon begins came before any subinterval
            largest |= {"mace": m.worst, "flow_by_input": self.flow.wc}
            largest |= {"flow": self.plain_flow.wc} if plain else {}
        if not plain:
            series, largest = series | {"flow": np.zeros(0)}, largest | {"flow": None}
        largest_by_name: Any = {f"{name}_wc": value for name, value in largest.items()}
        series_by_name: Any = series
        events = m.loads.outputs(np.where(self.coarse.graph.sink, 0, -1), 1)[0]
        event_mean_s = event_mean(m.total_s, events)
        return EstimateAnswer(
            subintervals=self.coarse.subintervals,
            subinterval_s=self.coarse.subinterval_s,
            **series_by_name,
            **largest_by_name,
            epsilon=m.epsilon_s,
            loose_epsilon=m.loose_epsilon_s,
            bottleneck=None if bottleneck is None else self.coarse.servers[bottleneck[0]].name,
            bottleneck_p=None if bottleneck is None else bottleneck[1] + 1,
            mean=float(m.total_s.mean()),
            quantiles={str(level): nearest_rank(m.total_s, level) for level in LEVELS},
            sink_events=events,
            event_mean=event_mean_s,
            event_quantiles=None
            if event_mean_s is None
            else {str(level): event_quantile(m.total_s, events, level) for level in LEVELS},
            scheduling=scheduling_bound(others, self._bound_s) if others else None,
            bounds=describe_bounds(m, self._bound_s),
            basis=self.basis,
            resolution_s=self.resolution_s,
            alarm=self.alarm,
            memory=fleet_memory(m.deployment),
            servers=self._servers(detail),
            queries={query: report.answer(detail=detail) for query, report in self.queries.items()},
            backlogs=self.deployment.backlogs or None,
            operators=self._operators() if detail else None,
        )

    def _series(self, plain: bool) -> dict[str, FloatArray | None]:
        """Latencies by subinterval; an upper end that is not proven is None, and so is Flow that is left out."""
        m = self.mace
        low, high = m.delayed_s
        upper: FloatArray | None = m.upper_s + self._waited_s
        delayed_upper: FloatArray | None = high + self._waited_s
        if self.coarse.other_policies:
            upper = delayed_upper = None if self._bound_s is None else np.full(len(m.total_s), self._bound_s)
        return {
            "mace": m.total_s,
            "lower": m.total_s,
            "upper": upper,
            "loose_upper": m.loose_upper_s + self._waited_s,
            "pd_lower": low,
            "pd_upper": delayed_upper,
            "flow": self._reported(self.plain_flow.latency_s) if plain else None,
            "flow_by_input": self._reported(self.flow.latency_s),
        }

    @cached_property
    def _bound_s(self) -> float | None:
        """Upper bound of every event for mean costs; None where none is proven."""
        longest_s = max((report.waits.bound_s for report in self.queries.values()), default=0.0)
        return finite_max(visit_bounds(self.mace) + longest_s)

    @property
    def _waited_s(self) -> float:
        """Longest that an event of any query waits beside servers, which bounds of queues know nothing of."""
        return max((report.waits.longest_s for report in self.queries.values()), default=0.0)

    def _servers(self, detail: bool) -> dict[str, ServerAnswer]:
        m = self.mace
        shortest, longest = m.delays_s
        shares = m.load_share
        return {
            server.name: ServerAnswer(
                kind=server.kind,
                node=None if server.node is None else self.coarse.nodes[server.node].id,
                load_mean=float(shares[i].mean()),
                load_peak=float(shares[i].max()),
                mace_wc=float(m.worst_s[i]),
                lambda_s=float(m.lambda_s[i]),
                p_min=float(shortest[i]),
                p_max=float(longest[i]),
                load=m.load[i] if detail else None,
                ce=m.ce[i] if detail else None,
                mace=m.mace_s[i] if detail else None,
            )
            for i, server in enumerate(self.coarse.servers)
        }

    def _operators(self) -> dict[str, OperatorAnswer]:
        series = self.mace.series or self.mace.loads.operators()
        return {
            operator.id: OperatorAnswer(series.load[j], series.output[j])
            for j, operator in enumerate(self.coarse.operators)
        }


def estimate(
    deployment: Deployment,
    *,
    flow_slices: int = 1,
    mace_every: int = 1,
    intervals: bool = True,
    counted_from: int = 0,
    keep_times: bool = False,
    progress: Progress | None = None,
) -> Estimate:
    """Estimate the latencies of a deployment.

    Parameters
    ----------
    deployment : Deployment
        At w, or at w / `mace_every` when arrivals are known that finely (4 is recommended).
    flow_slices : int
        Slices per subinterval of `deployment` for Flow.
    mace_every : int
        Subintervals of `deployment` that make one of Mace's.
    intervals : bool
        Whether to add what random costs and arrivals do, which takes two to four times as long as Flow. False leaves
        the mean path, for searches.
    counted_from : int
        First subinterval of `deployment` (from 0) whose events count in the figures of queries: what a later start left
        empty would lower every mean.
    keep_times : bool
        Whether to keep what changes are estimated from (`engine.estimation.base`).
    progress : callable, optional
        Told the share done (0 to 1) and the step in words; an exception it raises ends the estimate.

    Returns
    -------
    Estimate

    Raises
    ------
    UnplacedError
        If an operator has no node.

    Notes
    -----
    A query's numbers are medians of the realised values, with an interval for that of its objective's statistic; its
    `flow_s`, its series and the alarm are those of Flow by input, the mean path. The keys `flow` and `flow_wc` of the
    document are Flow's plain definition. A query's mean and quantiles are weighted by the events at its sinks.
    `resolution_s` is the width that Flow ran on; a query's is no less than the width at which the counts of its sources
    are known. Of a query that puts nothing out the report is of what one event would meet, or of the upper end of the
    rate that a sample of nothing leaves (`engine.estimation.probes`); its `standing` says so. Latencies are "under" a
    query's `under_s`, and under nothing else.
    """
    solving()
    tell = progress or (lambda share, step: None)
    tell(0.0, "Mace")
    _ = deployment.layout  # made once here; the coarser deployment inherits it
    coarse = deployment.coarsened(mace_every)
    coarse_mace = mace(coarse)
    tell(0.1, "Flow")
    probed = probe_deployment(deployment)
    flowed = flow(probed.deployment, slices=flow_slices, trace=True, by_input=True, keep_times=keep_times)
    alarm = alarm_of(deployment, float(flowed.latency_s.max()), float(own_mace(deployment, coarse_mace).total_s.max()))
    tell(0.4, "Reports")
    judged = coarse_mace if probed.deployment is deployment else mace(probed.deployment.coarsened(mace_every))
    unburdened = None
    if flowed.lead is not None:
        bare = probed.deployment.without_backlogs()
        unburdened = flow(bare, slices=flow_slices, by_input=True, keep_times=keep_times)
    estimated = Estimate(
        deployment,
        probed,
        coarse,
        coarse_mace,
        flowed,
        deployment.subinterval_s / flow_slices,
        alarm,
        {},
        judged,
        unburdened,
        counted_from=counted_from,
    )
    estimated = replace(estimated, queries=estimated.reports(probed.deployment.queries))
    if intervals:
        tell(0.5, "Randomness of costs and arrivals")
        estimated = estimated.realised()
    tell(1.0, "Done")
    return estimated


def own_mace(deployment: Deployment, found: Mace) -> Mace:
    """Mace on the deployment's own subintervals, where `found` may be wider: a finer grid alone raises Flow over it."""
    return found if found.deployment is deployment else mace(deployment)


def alarm_of(deployment: Deployment, flow_s: float, mace_s: float) -> Alarm:
    """Alarm of the largest Flow against the largest Mace, both on the same subintervals."""
    over = flow_s / mace_s - 1.0 if mace_s > 0.0 else None
    if not (over > _TRUSTED if over is not None else flow_s > deployment.subinterval_s):
        return Alarm(False, over, "")
    busy = sum(bool(source.arrivals.any()) for source in deployment.sources)
    nodes = {replica.node for operator in deployment.operators for replica in operator.replicas}
    if busy < 2 or len(nodes) < 2:
        return Alarm(False, over, "")
    kind = "estimation.alarm_alone" if over is None else "estimation.alarm"
    return Alarm(True, over, Fact(kind, percent=100 * (over or 0.0), sources=busy, nodes=len(nodes)))


def command(document: Any, options: EstimateOptions) -> EstimateAnswer:
    """``estimate`` of the command line, of a deployment document."""
    return estimate(Deployment.parse(document), **vars(options)).answer()
