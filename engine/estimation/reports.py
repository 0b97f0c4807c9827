"""Report of an estimate about one query: numbers, interval, state, bottleneck, path of the worst slice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from math import inf

import numpy as np

from engine.arrays import FloatArray, IntArray, event_mean, event_quantile, finite_max, statistic_or_worst
from engine.document.elements import THESE, Objective
from engine.document.policies import PolicyGap, SchedulingBound, SchedulingGap, policy_gap, scheduling_bound
from engine.document.topology import servers_above
from engine.document.unknown_costs import unknown_costs, unknown_grounds
from engine.estimation.answer import Bottleneck, OperatorShare, QueryAnswer, QueryFigures, UncoveredInput
from engine.estimation.bounds import visit_bounds
from engine.estimation.flow import Flow
from engine.estimation.loads import loads_of, sink_outputs
from engine.estimation.mace import Mace
from engine.estimation.noise.summary import LEVEL, LatencySample, RealisedQuery
from engine.estimation.overload import LastingOverload, catch_up_of, lasting_overloads, standing_within
from engine.estimation.probes import ProbedDeployment
from engine.estimation.waits.summary import NO_WAITS, QueryWaits
from engine.latency_state import (
    KNOWN,
    NEVER,
    UNKNOWN,
    CatchUp,
    LatencyStanding,
    ObjectiveStanding,
    objective_state,
)
from engine.records import Fact

__all__ = ["BY_MACE", "MEAN_PATH", "REALISED", "QueryReport", "QueryReporter"]

REALISED, MEAN_PATH, BY_MACE = "realised", "mean_path", "mace"

_QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True, eq=False, kw_only=True)
class QueryReport(QueryFigures):
    """Figures of a query beside what they were made of.

    `series` has ``flow``: the mean path, largest of each reported subinterval. `noise` has all realised statistics, and
    what they assume. `waits` is what its events wait for beside servers: windows, watermarks, triggers, buffers; it is
    part of every number but `flow_s`. `path` has Flow's latencies slice by slice, which the waits were added to.
    `standing` says whether the figures are known: not where nothing comes out, nor where a server never catches up.
    `catch_up` says when it has caught up with what waits where the horizon begins; None where nothing holds it up.
    `gap` is what it lacks where servers run other policies than stimulus time.
    """

    scheduling: SchedulingBound | None
    series: dict[str, FloatArray]
    noise: RealisedQuery | None = None
    waits: QueryWaits = NO_WAITS
    path: MeanPath | None = None
    standing: LatencyStanding = KNOWN
    catch_up: CatchUp | None = None
    gap: PolicyGap | None = None

    @property
    def policy_high_s(self) -> float | None:
        """Upper end under the policies in force; None where there is no gap, or nobody knows one."""
        if self.gap is None:
            return None
        return self.gap.high_s(self.estimate_s if self.high_s is None else self.high_s, self.wait_s)

    @property
    def gap_answer(self) -> SchedulingGap | None:
        """Lack of the estimate under the policies in force; None where it lacks nothing."""
        return None if self.gap is None else self.gap.answer(self.policy_high_s)

    @property
    def wait_s(self) -> float:
        """Part of the estimate that is no queue."""
        sample = None if self.noise is None else self.noise.latencies
        return 0.0 if self.path is None else self.path.wait_s(self.waits, self.statistic, sample)

    @property
    def oldest_s(self) -> float:
        """Least latency that an event has that waits for this query where the horizon begins: its age."""
        if self.path is None or not self.path.lead_weights.any():
            return 0.0
        return self.path.lead_age_s

    @property
    def state(self) -> str:
        """State against the objective: none, holds, at_risk (only the upper end is over), breached or unknown."""
        return self._state.state

    @property
    def headroom_s(self) -> float | None:
        """Bound of the objective less the estimate; None without one, and where the latency is not known."""
        return self._state.headroom_s

    @property
    def _state(self) -> ObjectiveStanding:
        objective = None if self.bound_s is None else Objective("", self.statistic, self.bound_s)
        return objective_state(objective, self.estimate_s, self._state_high_s, self.standing)

    @property
    def lacks_policy(self) -> bool:
        """Whether the objective would hold by stimulus time, and nobody can say so of the policies in force."""
        if self.gap is None or self.bound_s is None or not self.standing.is_known:
            return False
        return self.gap.lacks(self.bound_s, self.high_s or self.estimate_s, self.wait_s)

    @property
    def _state_high_s(self) -> float | None:
        """Upper end that the state goes by; infinite where nobody knows one."""
        if self.gap is None:
            return self.high_s
        policy_high_s = self.policy_high_s
        return inf if policy_high_s is None else max(policy_high_s, self.high_s or 0.0)

    def realised(self, noise: RealisedQuery) -> QueryReport:
        """The same with random costs and arrivals."""
        own, statistics = noise.statistics[self.statistic], noise.statistics
        return replace(
            self,
            basis=REALISED,
            estimate_s=own.estimate_s,
            low_s=own.low_s,
            high_s=own.high_s,
            worst_s=statistics["worst"].estimate_s,
            mean_s=statistics["mean"].estimate_s or None,  # without events there is no mean
            quantiles={f"{level:g}": statistics[f"q{level:g}"].estimate_s or None for level in _QUANTILES},
            under_s=noise.under_s,
            noise=noise,
            catch_up=self.catch_up.between(*noise.catch_up_s) if self.catch_up and noise.catch_up_s else self.catch_up,
        )

    def waiting(self, noise: RealisedQuery) -> RealisedQuery:
        """Realised latencies of queues with what events wait for beside servers."""
        path = self.path
        if self.standing.words:
            noise = replace(noise, not_modelled=(*noise.not_modelled, self.standing.sentence))
        if path is None or not self.waits:
            return replace(noise, not_modelled=(*noise.not_modelled, *self.waits.not_modelled))
        least_s = self.waits.least_worst_s(path.events)
        waiting = self.waits.widen(
            noise.delayed(lambda statistic: path.wait_s(self.waits, statistic, noise.latencies), 0.0)
        )
        worst, queued = waiting.statistics["worst"], noise.statistics["worst"]
        # What waits longest need not be what queues longest: of its queue only the usual is sure.
        least_s = max(queued.low_s, least_s + noise.statistics["q0.5"].low_s)
        worst = replace(worst, low_s=min(worst.low_s, least_s))
        return replace(
            waiting,
            statistics={**waiting.statistics, "worst": worst},
            assumed=(*noise.assumed, *self.waits.assumed),
            not_modelled=(*noise.not_modelled, *self.waits.not_modelled),
        )

    def delayed(self, wait_s: Callable[[str], float], margin_s: float = 0.0) -> QueryReport:
        """The same where results wait beyond queueing and processing: the one place at which such waits enter.

        Parameters
        ----------
        wait_s : callable
            Seconds of a statistic (``worst``, ``mean``, ``q0.9``).
        margin_s : float
            By which the interval grows on either side.

        Notes
        -----
        `flow_s` stays Flow's own number; its series gets the wait of the objective's statistic.
        """
        own = wait_s(self.statistic)
        delayed = replace(
            self,
            estimate_s=self.estimate_s + own,
            worst_s=self.worst_s + wait_s("worst"),
            mean_s=None if self.mean_s is None else self.mean_s + wait_s("mean"),
            quantiles={
                level: None if value is None else value + wait_s(f"q{level}") for level, value in self.quantiles.items()
            },
            series={name: values + own for name, values in self.series.items()},
        )
        return delayed if self.noise is None else delayed.realised(self.noise.delayed(wait_s, margin_s))

    def delayed_by(self, more: QueryWaits, margin_s: float = 0.0) -> QueryReport:
        """The same where results wait for more, whatever the queues are; `margin_s` as in `delayed`."""
        path, sample = self.path, None if self.noise is None else self.noise.latencies
        if path is None or not path.has_events:
            return replace(self.delayed(more.own_s, margin_s), waits=self.waits.and_then(more))
        waits = self.waits.and_then(more)

        def added_s(statistic: str) -> float:
            return path.wait_s(waits, statistic, sample) - path.wait_s(self.waits, statistic, sample)

        return replace(self.delayed(added_s, margin_s), waits=waits)

    def answer(self, *, detail: bool = True) -> QueryAnswer:
        """The report as it is written; without `detail` the series are left out."""
        noise = self.noise
        return QueryAnswer(
            **{field.name: getattr(self, field.name) for field in fields(QueryFigures)},
            scheduling=self.scheduling and self.scheduling.with_gap(self.gap_answer),
            waits=self.waits.terms,
            standing=self.standing,
            catch_up=self.catch_up,
            **self._state._asdict(),
            realised=None if noise is None else noise.statistics,
            assumed=None if noise is None else noise.assumed,
            not_modelled=None if noise is None else noise.not_modelled,
            series=self.series if detail else None,
        )


@dataclass(frozen=True, slots=True, eq=False)
class MeanPath:
    """Flow of one query: largest latency of each slice and the events at its sinks, shape (d * K,) each.

    `lead_s` and `lead_weights` are those of the slices before the horizon, (n,) each: of what waits where it begins;
    `lead_age_s` is the age of the oldest that reaches a sink.
    """

    latency_s: FloatArray
    weights: FloatArray
    lead_s: FloatArray
    lead_weights: FloatArray
    lead_age_s: float = 0.0

    @property
    def has_events(self) -> bool:
        """Whether any event comes to its end."""
        return bool(self.weights.any() or self.lead_weights.any())

    @property
    def events(self) -> float:
        """Events that come to their end."""
        return float(self.weights.sum() + self.lead_weights.sum())

    @property
    def whole(self) -> tuple[FloatArray, FloatArray]:
        """Latencies and events of all slices, those before the horizon first."""
        if not len(self.lead_s):
            return self.latency_s, self.weights
        return np.concatenate([self.lead_s, self.latency_s]), np.concatenate([self.lead_weights, self.weights])

    def wait_s(self, waits: QueryWaits, statistic: str, sample: LatencySample | None = None) -> float:
        """Seconds that waits add to a statistic; to quantiles of a sample of realised latencies, where there is one."""
        if statistic == "worst" and self.lead_weights.any() and waits:
            # An event that waits already may wait as long as any beside servers.
            latest_s = float(self.lead_s.max()) + waits.longest_s
            if self.weights.any():
                latest_s = max(latest_s, float(waits.series(self.latency_s)[self.weights > 0.0].max()))
            return latest_s - statistic_or_worst(*self.whole, statistic)
        if statistic == "worst":  # slices of the horizon alone: none of its own events waits before
            return waits.added_s(self.latency_s, self.weights, statistic, sample)
        return waits.added_s(*self.whole, statistic, sample)


class QueryReporter:
    """Makes the report of every query of one estimate, on the mean path.

    `mace` and `flow` are those of `probed`. `basis` is ``mace`` where a series of Mace stands in for Flow. `waits` are
    those of queries that have any. Events count from the slice `counted_from` (from 0) on. `unburdened` is Flow with
    nothing waiting where the horizon begins, needed where something does.
    """

    def __init__(
        self,
        probed: ProbedDeployment,
        mace: Mace,
        flow: Flow,
        resolution_s: float,
        basis: str = MEAN_PATH,
        waits: Mapping[str, QueryWaits] | None = None,
        counted_from: int = 0,
        unburdened: Flow | None = None,
    ) -> None:
        self._unburdened = unburdened
        self._probed, deployment = probed, probed.deployment
        self._deployment = deployment
        self._waits = waits or {}
        self._mace = mace
        self._flow = flow
        self._resolution_s = resolution_s
        self._basis = basis
        self._group = flow.slices * round(mace.deployment.subinterval_s / deployment.subinterval_s)
        self._closures = deployment.closures
        self._begin = counted_from
        self._weights = self._sink_events()
        self._weights[:, :counted_from] = 0.0
        self._shares = mace.load_share

    def _sink_events(self) -> FloatArray:
        """Events at each query's sinks, slice by slice, (queries, d * K)."""
        deployment = self._deployment
        loads = self._mace.loads if self._mace.deployment is deployment else loads_of(deployment)
        events = sink_outputs(loads, deployment.graph, len(deployment.queries))
        return np.repeat(events, self._flow.slices, axis=1) / self._flow.slices

    def report(self, query: str) -> QueryReport:
        """The report of one query."""
        i = self._deployment.query_index[query]
        latency, weights = self._flow.by_query[query], self._weights[i]
        path = self._path(query, weights)
        whole = path.whole
        objective = self._deployment.objective_of(query)
        statistic = objective.statistic if objective else "worst"
        estimate = statistic_or_worst(*whole, statistic)
        replicas = self._closures[1][self._closures[0][i] : self._closures[0][i + 1]]
        waited_longest = len(path.lead_s) and path.lead_s.max() > latency.max()
        worst_p = 0 if waited_longest else int(latency.argmax()) // self._group
        servers = servers_above(self._deployment.layout, replicas)
        resolution_s = self._resolution_of(servers)

        def known(value: float | None) -> float | None:
            return None if value is None or value < resolution_s else value

        waits = self._waits.get(query, NO_WAITS)
        scheduling = self._scheduling(servers, replicas, waits.bound_s)
        report = QueryReport(
            statistic=statistic,
            bound_s=objective.bound_s if objective else None,
            basis=self._basis,
            estimate_s=estimate,
            low_s=None,
            high_s=None,
            level=LEVEL,
            worst_s=float(whole[0].max()),
            mean_s=known(event_mean(*whole)),
            quantiles={f"{level:g}": known(event_quantile(*whole, level)) for level in _QUANTILES},
            flow_s=estimate if self._basis == MEAN_PATH else None,
            under_s=None,
            resolution_s=resolution_s,
            mace_s=float(self._mace.worst_s[servers].max(initial=0.0)),
            worst_p=worst_p + 1,
            bottleneck=self._bottleneck(servers, worst_p),
            hops=self._flow.hops.get(query, ()),
            uncovered=self._uncovered(replicas),
            scheduling=scheduling,
            gap=self._gap(scheduling, servers, statistic),
            series={"flow": _group_maxima(latency, self._group)},
            waits=waits,
            path=path,
            standing=self.standing(query),
            catch_up=self._catch_up(query, servers),
        )
        if not waits:
            return report
        late = report.delayed(lambda statistic: path.wait_s(waits, statistic))
        return replace(late, series={"flow": _group_maxima(waits.series(latency), self._group)})

    def standing(self, query: str) -> LatencyStanding:
        """Standing of a latency: unknown without events, and without an end on a server that never catches up."""
        i, objective = self._deployment.query_index[query], self._deployment.objective_of(query)
        latency_s, weights = self._flow.by_query[query][self._begin :], self._weights[i, self._begin :]
        if not weights.any() and not self._path(query, weights).lead_weights.any():
            return LatencyStanding(UNKNOWN, Fact("latency.no_events"))
        servers = servers_above(
            self._deployment.layout, self._closures[1][self._closures[0][i] : self._closures[0][i + 1]]
        )
        width_s = self._mace.deployment.subinterval_s / self._group
        statistic, bound_s = ("worst", None) if objective is None else (objective.statistic, objective.bound_s)
        endless = standing_within(self._overloads, servers, statistic, bound_s, latency_s, weights, width_s)
        known = self._probed.standing(query) if endless.is_known else endless
        return self._plan_standing(query, known) if known.is_known else known

    def _plan_standing(self, query: str, known: LatencyStanding) -> LatencyStanding:
        """A known latency as it stands, unless nobody knows a part of the plan or a cost: results may wait longer."""
        grounds = unknown_grounds(self._deployment, query)
        return known if grounds is None else LatencyStanding(UNKNOWN, grounds)

    @cached_property
    def _overloads(self) -> dict[int, LastingOverload]:
        return lasting_overloads(self._mace, self._begin // self._group)

    def _path(self, query: str, weights: FloatArray) -> MeanPath:
        flowed = self._flow
        if flowed.lead is None:
            return MeanPath(flowed.by_query[query], weights, np.zeros(0), np.zeros(0))
        events = flowed.lead_events[query]
        ages_s = flowed.lead.ages_s[events > 0.0]
        oldest_s = float(ages_s.max()) + flowed.lead.width_s if len(ages_s) else 0.0
        return MeanPath(flowed.by_query[query], weights, flowed.lead_by_query[query], events, oldest_s)

    def _catch_up(self, query: str, servers: IntArray) -> CatchUp | None:
        """When it has caught up: with a cost or answers that nobody knows, never is sure, for these only add."""
        if self._unburdened is None:
            return None
        found = catch_up_of(query, self._flow, self._unburdened, self._mace, servers)
        if (found is not None and found.state == NEVER) or not self._is_rate_unknown(query):
            return found
        if found is None and not self._is_held_up(servers):
            return None
        horizon_s = self._deployment.subintervals * self._deployment.subinterval_s
        return CatchUp(UNKNOWN, None, None, None, horizon_s)

    def _is_rate_unknown(self, query: str) -> bool:
        """Whether something else than work that was measured may bound what the query takes."""
        own = (self._deployment.operators[j] for j in self._deployment.operators_of(query))
        return bool(unknown_costs(self._deployment, query)) or any(operator.waits_outside for operator in own)

    def _is_held_up(self, servers: IntArray) -> bool:
        """Whether something waits on servers, be it that what it costs is not known."""
        layout, operators = self._deployment.layout, self._deployment.operators
        here = {operators[j].id for j in layout.rep_operator[np.isin(layout.rep_server, servers)].tolist()}
        return any(backlog.is_used and backlog.operator in here for backlog in self._deployment.backlogs)

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

    def policy_gap(self, query: str, statistic: str, waits_bound_s: float) -> PolicyGap | None:
        """Gap of a statistic of a query, of whose waits beside servers this is the bound."""
        if not self._deployment.other_policies:
            return None
        i = self._deployment.query_index[query]
        replicas = self._closures[1][self._closures[0][i] : self._closures[0][i + 1]]
        servers = servers_above(self._deployment.layout, replicas)
        return self._gap(self._scheduling(servers, replicas, waits_bound_s), servers, statistic)

    def _scheduling(self, servers: IntArray, replicas: IntArray, waits_bound_s: float) -> SchedulingBound | None:
        """Upper bound of a query, where a node of it runs another policy than stimulus time."""
        others = self._deployment.other_policies
        names = [
            self._deployment.nodes[node].id for i in servers if (node := self._deployment.servers[i].node) is not None
        ]
        own = {name: others[name] for name in names if name in others}
        return scheduling_bound(own, finite_max(self._visit_bounds[replicas] + waits_bound_s)) if own else None

    def _gap(self, scheduling: SchedulingBound | None, servers: IntArray, statistic: str) -> PolicyGap | None:
        """Gap of the estimate where another policy chooses between operators of a server."""
        if scheduling is None:
            return None
        used = [self._deployment.servers[i] for i in servers]
        nodes = {self._deployment.nodes[server.node].id for server in used if server.node is not None}
        layout, shared = self._deployment.layout, set[str]()
        for i, server in zip(servers.tolist(), used, strict=True):
            if server.node is None:
                continue
            node = self._deployment.nodes[server.node].id
            here = set(layout.rep_operator[layout.rep_server == i].tolist())
            queries = {self._deployment.operators[j].query for j in here}
            # Klink chooses between queries, and runs the operators of one as a pipeline.
            if len(queries if scheduling.nodes.get(node) == "klink" else here) > 1:
                shared.add(node)
        return policy_gap(scheduling.nodes, shared, statistic, len(nodes) > 1, scheduling.upper_s)

    def _uncovered(self, replicas: IntArray) -> tuple[UncoveredInput, ...]:
        if self._deployment.statistics_of == THESE:
            return ()
        missing = []
        for j in dict.fromkeys(self._deployment.layout.rep_operator[replicas].tolist()):
            operator = self._deployment.operators[j]
            evidence = operator.evidence.kind if operator.evidence else None
            missing += [
                UncoveredInput(operator.id, entry.source, evidence)
                for entry in operator.inputs
                if not (entry.is_sampled or (entry.takes_nothing and evidence == "measured"))
            ]
        return tuple(missing)

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

    @cached_property
    def _replicas_on(self) -> list[IntArray]:
        return _by_server(self._deployment.layout.rep_server, len(self._deployment.servers))

    @cached_property
    def _hops_over(self) -> list[IntArray]:
        return _by_server(self._deployment.layout.hop_server, len(self._deployment.servers))

    def _contributors(self, server: int, first: int, last: int) -> Iterator[OperatorShare]:
        """Operators by their share of what reached `server` in the subintervals from `first` to `last`."""
        layout = self._deployment.layout
        replicas, hops = self._replicas_on[server], self._hops_over[server]
        operators = layout.rep_operator[np.concatenate([replicas, layout.hop_origin[hops]])]
        series = self._mace.loads.operator(operators)
        kind = series.load[: len(replicas)], series.output[len(replicas) :]
        amounts = np.concatenate([part[:, first : last + 1].sum(axis=1) for part in kind])
        amounts *= np.concatenate([layout.rep_fraction[replicas], layout.hop_bytes[hops]])
        present, which = np.unique(operators, return_inverse=True)
        shares = np.bincount(which, amounts, len(present))
        total = shares[shares > 0.0].sum()  # without the others: their number would move the last digit
        for j in np.argsort(-shares, kind="stable"):
            if shares[j] > 0.0:
                yield OperatorShare(self._deployment.operators[present[j]].id, float(shares[j] / total))


def _by_server(servers: IntArray, count: int) -> list[IntArray]:
    """Of every server the places in which it stands, rising."""
    order = np.argsort(servers, kind="stable")
    starts = np.searchsorted(servers[order], np.arange(count + 1))
    return [order[start:end] for start, end in pairwise(starts)]


def _group_maxima(latency: FloatArray, group: int) -> FloatArray:
    """Largest value of every `group` slices."""
    padded = np.concatenate([latency, np.zeros(-len(latency) % group)])
    return np.asarray(padded.reshape(-1, group).max(axis=1))
