"""Mace while one load grows: loads are linear, so the load of a server is what it is now plus a share of one series.

Only servers that the query's events reach change. What the other servers cost is known from the load as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from engine.arrays import FloatArray, IntArray, statistic_or_worst
from engine.document.deployment import Deployment, Objective
from engine.document.topology import servers_above
from engine.document.unknown_costs import unknown_grounds
from engine.errors import DocumentError
from engine.estimation.base import EstimateBase
from engine.estimation.estimate import Progress
from engine.estimation.linear_loads import QueryLoads, is_linear
from engine.estimation.loads import sink_events
from engine.estimation.mace import drain_times, mace
from engine.estimation.overload import lasting_overloads, lasting_penalty_s
from engine.estimation.probes import probe_deployment
from engine.latency_state import ENDLESS_S, UNKNOWN
from engine.placement.problem import BoolArray, excess_of
from engine.provisioning.answers.objectives import ObjectiveFigures, RealisedObjective
from engine.provisioning.answers.scenarios import Growth, Headroom
from engine.provisioning.changes import apply_changes
from engine.provisioning.confirmation import Confirmation, confirm_change, confirm_estimate
from engine.provisioning.pool.proof import need_objectives
from engine.provisioning.question import ProgressClock
from engine.provisioning.what_if import mace_by_query, mace_reports
from engine.solvers import solving
from engine.words import listed

__all__ = ["LoadGrowth", "headroom_by_query"]

_STEP = 0.01  # factors are found to a hundredth of themselves by Mace
_NARROW = 0.03  # and to this share by walks
_RUN = 60  # a confirmation by walks, in units of a bisection, for the progress told
_MIN_THREATENED, _THREATENED = 3, 4  # so many queries, and one in so many, are walked before the others
_INSIDE = 0.15  # of a bracket, on a logarithmic scale, that a guess leaves on either side


@dataclass(frozen=True, eq=False)
class _Added:
    """Addition of one more times a query's load: to servers, and to the events that each query emits."""

    servers: IntArray
    load: FloatArray  # (servers, d)
    emitted: dict[str, FloatArray]


class LoadGrowth:
    """Growth of loads on one deployment at Mace's width: which factors keep the objectives."""

    def __init__(self, coarse: Deployment) -> None:
        self.deployment = coarse = probe_deployment(coarse).deployment
        result = mace(coarse)
        self.load = np.ascontiguousarray(result.load)
        self.mace_s = result.mace_s
        budget = np.ascontiguousarray(coarse.capacities.T) * coarse.subinterval_s
        self.worst_s = result.worst_s + lasting_penalty_s(self.load, budget, result.ce)
        self.emitted = sink_events(coarse)
        self.objectives = [entry for entry in coarse.objectives if entry.query in coarse.queries]
        self.used = _servers_used(coarse)
        at = {query: i for i, query in enumerate(coarse.queries)}
        self.uses = [self.used[at[entry.query]] for entry in self.objectives]

    @cached_property
    def limit_s(self) -> FloatArray:
        """Tightest bound on the worst case of any query that uses a server, shape (servers,)."""
        limit = np.full(len(self.load), np.inf)
        for entry, used in zip(self.objectives, self.uses, strict=True):
            if entry.statistic == "worst":
                limit[used] = np.minimum(limit[used], entry.bound_s)
        return limit

    @cached_property
    def _is_used(self) -> BoolArray:
        """Servers that a query with an objective uses, shape (servers,)."""
        return np.any([np.zeros(len(self.load), dtype=bool), *self.uses], axis=0)

    @cached_property
    def kept_now(self) -> bool:
        """Whether every objective is kept as it is."""
        every = np.arange(len(self.load))
        return self._kept(every, self.worst_s, self.mace_s, self.emitted)

    def keeps(self, query: str | None) -> Callable[[float], bool]:
        """Whether every objective is kept by Mace at a factor of one query's load, or of all."""
        added = self._everything() if query is None else self._of(query)
        d, rows = self.deployment, self.deployment.capacities
        rates = np.ascontiguousarray(rows[:, added.servers])
        budget = np.ascontiguousarray(rates.T) * d.subinterval_s
        now = self.load[added.servers]

        def kept(factor: float) -> bool:
            load = now + (factor - 1.0) * added.load
            excess = excess_of(load, budget)
            seconds = drain_times(np.ascontiguousarray(excess.T), rates, d.subinterval_s).T
            seconds = np.where(excess > 0.0, seconds, 0.0)
            emitted = {q: self.emitted[q] + (factor - 1.0) * more for q, more in added.emitted.items()}
            worst_s = seconds.max(axis=1, initial=0.0) + lasting_penalty_s(load, budget, excess)
            return self._kept(added.servers, worst_s, seconds, emitted)

        return kept if self.kept_now else lambda factor: False

    def _kept(self, servers: IntArray, worst_s: FloatArray, mace_s: FloatArray, emitted: dict[str, FloatArray]) -> bool:
        """Whether all objectives are kept with other figures of some servers, and other weights of some queries."""
        if (worst_s > self.limit_s[servers]).any():
            return False
        if (worst_s[self._is_used[servers]] >= ENDLESS_S).any():
            return False
        changed = np.zeros(len(self.load), dtype=bool)
        changed[servers] = True
        return all(
            self._statistic(entry, used, servers, changed, mace_s, emitted) <= entry.bound_s
            for entry, used in zip(self.objectives, self.uses, strict=True)
            if entry.statistic != "worst" and ((used & changed).any() or entry.query in emitted)
        )

    def _statistic(
        self,
        entry: Objective,
        used: BoolArray,
        servers: IntArray,
        changed: BoolArray,
        mace_s: FloatArray,
        emitted: dict[str, FloatArray],
    ) -> float:
        series = mace_s[used[servers]].max(axis=0, initial=0.0)
        series = np.maximum(series, self.mace_s[used & ~changed].max(axis=0, initial=0.0))
        worst = float(series.max(initial=0.0))
        if worst <= entry.bound_s:
            return worst
        return statistic_or_worst(series, emitted.get(entry.query, self.emitted[entry.query]), entry.statistic)

    def _everything(self) -> _Added:
        return _Added(np.arange(len(self.load)), self.load, dict(self.emitted))

    def _of(self, query: str) -> _Added:
        """Follow the query's own sources through its operators, and through those of others that read them."""
        deployment, found = self.deployment, self._linear.of_query(query)
        indices = np.array(sorted(found.servers), dtype=np.int64)
        rows = np.array([found.servers[server] for server in indices.tolist()]).reshape(-1, deployment.subintervals)
        emitted: dict[str, FloatArray] = {}
        for j in sorted(found.operators):
            if deployment.graph.query_sink[j]:
                name = deployment.queries[deployment.graph.query[j]]
                emitted[name] = emitted.get(name, 0.0) + found.output[j]
        return _Added(indices, rows, emitted)

    @cached_property
    def _linear(self) -> QueryLoads:
        graph = self.deployment.graph
        return QueryLoads(self.deployment, self.deployment.arrivals, graph.output[:, 1:2], graph.cycles[:, 1:2])


def _servers_used(deployment: Deployment) -> BoolArray:
    """Servers that each query waits for, shape (queries, servers)."""
    start, members = deployment.closures
    used = np.zeros((len(deployment.queries), len(deployment.servers)), dtype=bool)
    for i in range(len(deployment.queries)):
        used[i, servers_above(deployment.layout, members[start[i] : start[i + 1]])] = True
    return used


def headroom_by_query(
    deployment: Deployment,
    *,
    queries: Sequence[str] | None = None,
    most: float = 16.0,
    confirm: int = 5,
    tightest: int = 8,
    mace_every: int = 1,
    flow: bool = True,
    budget_s: float | None = None,
    progress: Progress | None = None,
) -> Growth:
    """Bisect the factor of each load by Mace and confirm it by realised latencies.

    Parameters
    ----------
    queries : sequence of str, optional
        Queries to grow one at a time; all unless given.
    most : float
        The largest factor looked at.
    confirm : int
        Walks that narrow a factor, to 3 %; the largest that is confirmed is the answer.
    tightest : int
        Queries, those that break first by Mace, whose factor is confirmed; the others have `confirmed` false.
    flow : bool
        False leaves out the confirmation.
    budget_s : float, optional
        Seconds after which nothing more is confirmed.

    Raises
    ------
    DocumentError
        If there is no objective.
    UnplacedError
        If an operator has no node.

    Notes
    -----
    Mace never falls with the load, so there is one factor at which an objective breaks by Mace; no larger one can be
    confirmed. Realised latencies are not quite monotone: a smaller factor may break what a larger one keeps, which the
    confirmation does not look for. An objective that is at risk as it is has to keep its median alone. Loads grow by
    and by: what waits now is left out.
    """
    solving()
    deployment = deployment.without_backlogs()
    need_objectives(deployment)
    names = list(deployment.queries if queries is None else queries)
    clock = ProgressClock(progress, budget_s)
    search = _GrowthSearch(deployment, most, confirm, mace_every, flow, clock)
    clock.tell(0.0, "Growing everything together")
    together = search.confirmed(search.by_mace(None))
    headrooms = {}
    steps = len(names) + (1 + _RUN * min(tightest, len(names)) if flow else 1)
    for i, query in enumerate(names):
        clock.tell((i + 1) / steps, f"Growing {query}, {i + 1} of {len(names)}")
        headrooms[query] = search.by_mace(query)
    if flow:
        open_ = sorted((q for q in names if headrooms[q].factor is not None), key=lambda q: headrooms[q].factor or 0.0)
        for k, query in enumerate(open_[:tightest]):
            clock.tell(
                (len(names) + 1 + _RUN * k) / steps, f"Confirming {query}, {k + 1} of {min(tightest, len(open_))}"
            )
            headrooms[query] = search.confirmed(headrooms[query])
        for query in open_[tightest:]:
            headrooms[query] = headrooms[query].with_note(f"by Mace alone: {tightest} queries break sooner")
    clock.tell(1.0, "Done")
    return Growth(together=together, queries=headrooms, flows=search.flows[0], figures=search.figures)


class _GrowthSearch:
    """Factors of loads, by Mace first and confirmed as changes of one kept estimate."""

    def __init__(
        self, deployment: Deployment, most: float, confirm: int, mace_every: int, flow: bool, clock: ProgressClock
    ) -> None:
        self.deployment, self.most, self.confirm = deployment, most, confirm
        self.mace_every, self.flow, self.clock = mace_every, flow, clock
        self.flows = [0]
        self.unknown = _unknown_queries(deployment, mace_every)
        self.dark = {
            query: grounds
            for query in sorted(self.unknown)
            if (grounds := unknown_grounds(deployment, query)) is not None
        }
        self.at_risk: frozenset[str] = frozenset()
        self.found = self._as_it_is() if flow else Confirmation({}, None)
        self.now = self.found.miss
        self.figures = ObjectiveFigures.of(deployment, self.found.objectives.values())
        self.linear = is_linear(deployment)

    @cached_property
    def base(self) -> EstimateBase:
        """Estimate of the load as it is, from which all others are estimated."""
        self.flows[0] += 1
        step = "Estimating the load as it is"
        return self.clock.during(step, lambda: EstimateBase.of(self.deployment, self.mace_every))

    def _as_it_is(self) -> Confirmation:
        """Figures of the load as it is; what is at risk is to keep its median from now on."""
        found = confirm_estimate(self.base)
        self.at_risk = frozenset(
            query
            for query, entry in found.objectives.items()
            if entry.state == "at_risk" and not entry.is_beyond_knowledge
        )
        return confirm_estimate(self.base, accepted=self.at_risk) if self.at_risk else found

    def by_mace(self, query: str | None) -> Headroom:
        """The factor of one load by Mace; none where nobody knows a cost or a part of a plan of what would grow."""
        if query in self.unknown:
            return Headroom(query, None, False, False, None, note=self.unknown[query])
        if query is None and self.dark:
            why = "; ".join(str(grounds).rstrip(".") for grounds in dict.fromkeys(self.dark.values()))
            return Headroom(query, None, False, False, None, note=f"nothing is known of {listed([*self.dark])}: {why}")
        try:
            keeps = self._keeps(query)
        except DocumentError as error:
            return Headroom(query, None, False, False, None, note=error.faults[0].message)
        if self.now is not None or not keeps(1.0):
            return Headroom(query, None, False, self.flow, self.now, note="an objective is broken as it is")
        factor = self._bisected(keeps)
        note = f"nothing is known of {listed(sorted(self.unknown))}" if self.unknown else ""
        return Headroom(query, factor, factor >= self.most, False, None, note=note)

    def _bisected(self, keeps: Callable[[float], bool]) -> float:
        if keeps(self.most):
            return self.most
        low, high = 1.0, self.most
        while high - low > _STEP * low:
            middle = (low * high) ** 0.5
            low, high = (middle, high) if keeps(middle) else (low, middle)
        return low

    def confirmed(self, headroom: Headroom) -> Headroom:
        """The same by realised latencies, which may lower the factor."""
        query, top = headroom.query, headroom.factor
        if not self.flow or top is None:
            return headroom
        if self.clock.is_over:
            return headroom.with_note("by Mace alone: the time for an answer was over")
        threatened = self._threatened(query)
        found = self._confirm(query, top, threatened)
        if found.miss is None:
            miss = None if headroom.unlimited else self._confirm(query, top * (1.0 + 2 * _STEP), threatened).miss
            return replace(headroom, confirmed=True, miss=miss, nearest=self._nearest(found))
        kept, low, high, miss = self.found, 1.0, top, found.miss
        for _ in range(self.confirm):
            if high <= low * (1.0 + _NARROW) or self.clock.is_over:
                break
            factor = _guess(low, high, self._over(kept), miss.worst)
            found = self._confirm(query, factor, threatened)
            if found.miss is None:
                kept, low = found, factor
            else:
                miss, high = found.miss, factor
        return replace(headroom, factor=low, unlimited=False, confirmed=True, miss=miss, nearest=self._nearest(kept))

    def _threatened(self, query: str | None) -> set[str]:
        """Queries that are likely to break first: those nearest to their bounds as it is, and what grows."""
        nearest = sorted(self.found.objectives.values(), key=lambda entry: -entry.over)
        count = max(_MIN_THREATENED, len(nearest) // _THREATENED)
        return {entry.query for entry in nearest[:count]} | ({query} if query else set())

    def _over(self, found: Confirmation) -> float:
        """Share of its bound that the nearest objective takes."""
        values = [
            entry.estimate_s / entry.bound_s if query in self.at_risk else entry.over
            for query, entry in found.objectives.items()
        ]
        return max(values, default=0.0)

    def _nearest(self, found: Confirmation) -> RealisedObjective | None:
        return max(found.objectives.values(), key=lambda entry: entry.over, default=None)

    def _confirm(self, query: str | None, factor: float, threatened: Collection[str]) -> Confirmation:
        grown, of_whom = self._grown(query, factor), query or "everything"
        return self.clock.during(
            f"Confirming {factor:.3g} times the load of {of_whom}",
            lambda: confirm_change(self.base, grown, accepted=self.at_risk, threatened=threatened, runs=self.flows),
        )

    def _grown(self, query: str | None, factor: float) -> Deployment:
        change = {"scale_source": "*"} if query is None else {"scale_query": query}
        return apply_changes(self.deployment, [change | {"by": factor}], path="growth")

    def _keeps(self, query: str | None) -> Callable[[float], bool]:
        """Whether every objective is kept by Mace at a factor."""
        self._grown(query, 1.0)  # a query without a source of its own is refused
        return self._by_difference.keeps(query) if self.linear else self._in_full(query)

    @cached_property
    def _by_difference(self) -> LoadGrowth:
        return LoadGrowth(self.deployment.coarsened(self.mace_every))

    def _in_full(self, query: str | None) -> Callable[[float], bool]:
        """Compute everything anew, for loads that are not linear."""

        def keeps(factor: float) -> bool:
            coarse = probe_deployment(self._grown(query, factor).coarsened(self.mace_every)).deployment
            result = mace(coarse)
            series = mace_by_query(result)
            used = _servers_used(coarse)
            endless = list(lasting_overloads(result))
            judged = [coarse.queries.index(entry.query) for entry in coarse.objectives if entry.query in series]
            if used[judged][:, endless].any():
                return False
            return all(
                self._value(coarse, series[entry.query], entry) <= entry.bound_s
                for entry in coarse.objectives
                if entry.query in series
            )

        return keeps

    @staticmethod
    def _value(coarse: Deployment, series: FloatArray, entry: Objective) -> float:
        worst = float(series.max(initial=0.0))
        if entry.statistic == "worst" or worst <= entry.bound_s:
            return worst
        return statistic_or_worst(series, sink_events(coarse)[entry.query], entry.statistic)


def _unknown_queries(deployment: Deployment, mace_every: int) -> dict[str, str]:
    """Queries with an objective of whose latency nothing is known as it is, with the reason."""
    _, reporter = mace_reports(deployment, mace_every)
    found = {entry.query: reporter.standing(entry.query) for entry in deployment.objectives}
    return {query: standing.sentence for query, standing in found.items() if standing.kind == UNKNOWN}


def _guess(low: float, high: float, below: float, above: float) -> float:
    """Where the nearest objective would meet its bound, on a line in logarithms between two factors; well inside."""
    span = math.log(max(above, 1.0)) - math.log(min(max(below, 1e-9), 1.0))
    share = -math.log(min(max(below, 1e-9), 1.0)) / span if span > 0.0 else 0.5
    return float(low * (high / low) ** min(1.0 - _INSIDE, max(_INSIDE, share)))
