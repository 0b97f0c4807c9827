"""Report of an estimate about one query: numbers, interval, state, bottleneck, path of the worst slice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from engine.arrays import FloatArray, IntArray, event_mean, event_quantile, finite_max, statistic_of
from engine.document.deployment import Deployment
from engine.document.elements import objective_state, scheduling_document
from engine.document.topology import servers_above
from engine.estimation.bounds import visit_bounds
from engine.estimation.flow import Flow, Hop
from engine.estimation.intervals import LEVEL, Jackknife, Z, standard_error
from engine.estimation.loads import loads_of, sink_outputs
from engine.estimation.mace import Mace
from engine.noise.summary import Realisation, RealisedQuery

__all__ = ["Bottleneck", "QueryReport", "QueryReporter"]

_QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True)
class Bottleneck:
    """The server that holds a query up, and the subintervals (counted from 1) in which its excess builds up."""

    server: str
    node: str | None
    load_peak: float
    load_mean: float
    excess_s: float
    from_p: int
    to_p: int
    at_p: int
    operators: tuple[dict[str, Any], ...]


@dataclass(frozen=True, eq=False)
class QueryReport:
    """Latency of one query; `estimate_s` is the objective's statistic of Flow by input. Times in seconds."""

    statistic: str
    bound_s: float | None
    estimate_s: float
    worst_s: float
    mean_s: float
    quantiles: dict[str, float]
    low_s: float | None
    high_s: float | None
    level: float
    under_resolution: bool
    resolution_s: float
    mace_s: float
    state: str
    headroom_s: float | None
    headroom_share: float | None
    worst_p: int
    bottleneck: Bottleneck | None
    hops: tuple[Hop, ...]
    uncovered: tuple[dict[str, Any], ...]
    scheduling: dict[str, Any] | None
    series: dict[str, FloatArray | None]
    noise: RealisedQuery | None = None  #: with random costs and arrivals, where it was asked for

    def to_dict(self, *, detail: bool = True) -> dict[str, Any]:
        """As JSON; without `detail` the series are left out."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.bottleneck:
            plain["bottleneck"] = asdict(self.bottleneck) | {"operators": list(self.bottleneck.operators)}
        plain["hops"] = [asdict(hop) for hop in self.hops]
        plain["uncovered"] = list(self.uncovered)
        if self.scheduling is None:
            del plain["scheduling"]
        series, noise = plain.pop("series"), plain.pop("noise")
        if noise is not None:
            plain |= noise.to_dict()
        if detail:
            plain["series"] = {name: None if s is None else s.tolist() for name, s in series.items()}
        return plain


class QueryReporter:
    """Makes the report of every query of one estimate."""

    def __init__(
        self,
        deployment: Deployment,
        coarse: Deployment,
        mace: Mace,
        flow: Flow,
        jackknife: Jackknife,
        resolution_s: float,
        noise: Realisation | None = None,
    ) -> None:
        self._deployment = deployment
        self._mace = mace
        self._flow = flow
        self._jackknife = jackknife
        self._resolution_s = resolution_s
        self._noise = noise or Realisation()
        self._group = flow.slices * round(coarse.subinterval_s / deployment.subinterval_s)
        self._closures = deployment.closures
        self._weights = self._sink_events()
        self._shares = mace.load_share

    def reports(self) -> dict[str, QueryReport]:
        """The report of every query."""
        return {query: self.report(query) for query in self._deployment.queries}

    def _sink_events(self) -> FloatArray:
        """Events at each query's sinks, slice by slice, (queries, d * K)."""
        deployment = self._deployment
        loads = self._mace.loads if self._mace.deployment is deployment else loads_of(deployment)
        events = sink_outputs(loads, deployment.graph, len(deployment.queries))
        return np.repeat(events, self._flow.slices, axis=1) / self._flow.slices

    def report(self, query: str) -> QueryReport:
        """The report of one query."""
        i = self._deployment.queries.index(query)
        latency, weights = self._flow.by_query[query], self._weights[i]
        objective = self._deployment.objective_of(query)
        statistic = objective.statistic if objective else "worst"
        estimate = statistic_of(latency, weights, statistic)
        replicas = self._closures[1][self._closures[0][i] : self._closures[0][i + 1]]
        uncovered, covered = self._uncovered(replicas)
        margin = self._margin(query, weights, statistic) if covered else None
        high = None if margin is None else estimate + margin
        worst_p = int(latency.argmax()) // self._group
        servers = servers_above(self._deployment.layout, replicas)
        resolution_s = self._resolution_of(servers)
        return QueryReport(
            statistic=statistic,
            bound_s=objective.bound_s if objective else None,
            estimate_s=estimate,
            worst_s=float(latency.max()),
            mean_s=event_mean(latency, weights) or 0.0,
            quantiles={f"{level:g}": event_quantile(latency, weights, level) or 0.0 for level in _QUANTILES},
            low_s=None if margin is None else max(0.0, estimate - margin),
            high_s=high,
            level=LEVEL,
            under_resolution=estimate < resolution_s,
            resolution_s=resolution_s,
            mace_s=float(self._mace.worst_s[servers].max(initial=0.0)),
            **objective_state(objective, estimate, high),
            worst_p=worst_p + 1,
            bottleneck=self._bottleneck(servers, worst_p),
            hops=self._flow.hops.get(query, ()),
            uncovered=uncovered,
            scheduling=self._scheduling(servers, replicas),
            series=self._series(query, covered),
            noise=self._noise.queries.get(query),
        )

    @cached_property
    def _steps_s(self) -> FloatArray:
        """Widest step at which what comes to each operator is counted, (m,): that of the sources it descends from."""
        deployment, graph = self._deployment, self._deployment.graph
        sources = len(deployment.sources)
        steps = np.zeros(sources + len(deployment.operators))
        steps[:sources] = [
            (source.arrivals_step_s or 0.0) if source.arrivals.any() else 0.0 for source in deployment.sources
        ]
        for j in graph.order:
            streams = graph.in_stream[graph.in_start[j] : graph.in_start[j + 1]]
            steps[sources + j] = steps[streams].max(initial=0.0)
        return steps[sources:]

    def _resolution_of(self, servers: IntArray) -> float:
        """Width below which nothing is known of a query: Flow's, or that of counts of what shares its servers."""
        layout = self._deployment.layout
        beside = layout.rep_operator[np.isin(layout.rep_server, servers)]
        return max(self._resolution_s, float(self._steps_s[beside].max(initial=0.0)))

    @cached_property
    def _visit_bounds(self) -> FloatArray:
        return visit_bounds(self._mace)

    def _scheduling(self, servers: IntArray, replicas: IntArray) -> dict[str, Any] | None:
        """Upper bound of a query, where a node of it runs another policy than stimulus time."""
        others = self._deployment.other_policies
        names = [
            self._deployment.nodes[node].id for i in servers if (node := self._deployment.servers[i].node) is not None
        ]
        own = {name: others[name] for name in names if name in others}
        return scheduling_document(own, finite_max(self._visit_bounds[replicas])) if own else None

    def _uncovered(self, replicas: IntArray) -> tuple[tuple[dict[str, Any], ...], bool]:
        """Inputs that the interval leaves out for lack of batches, and whether any input is covered."""
        missing = []
        any_covered = False
        for j in dict.fromkeys(self._deployment.layout.rep_operator[replicas].tolist()):
            operator = self._deployment.operators[j]
            evidence = operator.evidence.kind if operator.evidence else None
            for k, entry in enumerate(operator.inputs, int(self._deployment.graph.in_start[j])):
                if self._jackknife.flows and self._jackknife.covered[k]:
                    any_covered = True
                else:
                    missing.append({"operator": operator.id, "input": entry.source, "evidence": evidence})
        return tuple(missing), any_covered

    def _margin(self, query: str, weights: FloatArray, statistic: str) -> float:
        merged = self._jackknife.merged
        weights = np.pad(weights, (0, -len(weights) % merged)).reshape(-1, merged).sum(axis=1)
        replicates = [statistic_of(flow.by_query[query], weights, statistic) for flow in self._jackknife.flows]
        return Z * float(standard_error(replicates)) + self._deployment.subinterval_s

    def _series(self, query: str, covered: bool) -> dict[str, FloatArray | None]:
        """Largest latency of each reported subinterval, with its interval."""
        estimate = _group_maxima(self._flow.by_query[query], self._group)
        if not covered:
            return {"estimate": estimate, "low": None, "high": None}
        group = self._group // self._jackknife.merged
        replicates = np.array([_group_maxima(flow.by_query[query], group) for flow in self._jackknife.flows])
        margin = Z * standard_error(replicates) + self._deployment.subinterval_s
        return {"estimate": estimate, "low": np.maximum(0.0, estimate - margin), "high": estimate + margin}

    def _bottleneck(self, servers: IntArray, worst_p: int) -> Bottleneck | None:
        """The query's server with the largest Mace at its worst subinterval; failing that, ever; then the busiest."""
        if not len(servers):
            return None
        mace = self._mace
        now, ever = mace.mace_s[servers, worst_p], mace.worst_s[servers]
        means = self._shares[servers].mean(axis=1)
        chosen = int(servers[(now if now.any() else ever if ever.any() else means).argmax()])
        first, peak = self._build_up(chosen, worst_p)
        node = self._deployment.servers[chosen].node
        return Bottleneck(
            server=self._deployment.servers[chosen].name,
            node=None if node is None else self._deployment.nodes[node].id,
            load_peak=float(self._shares[chosen].max()),
            load_mean=float(self._shares[chosen].mean()),
            excess_s=float(mace.mace_s[chosen, peak]),
            from_p=first + 1,
            to_p=peak + 1,
            at_p=peak + 1,
            operators=tuple(self._contributors(chosen, first, peak)),
        )

    def _build_up(self, server: int, worst_p: int) -> tuple[int, int]:
        """First subinterval with excess and the one with the most, of the busy period around `worst_p`."""
        ce = self._mace.ce[server]
        if not ce.any():
            busiest = int(self._shares[server].argmax())
            return busiest, busiest
        at = worst_p if ce[worst_p] > 0.0 else int(ce.argmax())
        idle = np.flatnonzero(ce <= 0.0)
        first = int(idle[idle < at].max(initial=-1)) + 1
        end = int(idle[idle > at].min(initial=len(ce)))
        return first, first + int(ce[first:end].argmax())

    def _contributors(self, server: int, first: int, last: int) -> Iterator[dict[str, Any]]:
        """Operators by their share of what reached `server` in the subintervals from `first` to `last`."""
        layout = self._deployment.layout
        replicas = np.flatnonzero(layout.rep_server == server)
        hops = np.flatnonzero(layout.hop_server == server)
        operators = layout.rep_operator[np.concatenate([replicas, layout.hop_origin[hops]])]
        series = self._mace.loads.operator(operators)
        kind = series.load[: len(replicas)], series.output[len(replicas) :]
        amounts = np.concatenate([part[:, first : last + 1].sum(axis=1) for part in kind])
        amounts *= np.concatenate([layout.rep_fraction[replicas], layout.hop_bytes[hops]])
        shares = np.bincount(operators, amounts, 0) if len(operators) else np.zeros(0)
        total = shares.sum()
        for j in np.argsort(-shares, kind="stable"):
            if shares[j] > 0.0:
                yield {"operator": self._deployment.operators[j].id, "share": float(shares[j] / total)}


def _group_maxima(latency: FloatArray, group: int) -> FloatArray:
    """Largest value of every `group` slices."""
    padded = np.concatenate([latency, np.zeros(-len(latency) % group)])
    return np.asarray(padded.reshape(-1, group).max(axis=1))
