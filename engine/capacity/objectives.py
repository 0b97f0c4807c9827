"""Factors of a query's rate at which objectives break: its own, and the first of anybody's.

A factor is tried as a change of the kept estimate of what runs, by Flow with the noise of costs and arrivals and with
all waits. Latencies rise with the rate, so that one factor lies between those that keep an objective and those that do
not; few are tried, and the answer is the largest of those that keep it. What nobody knows is kept by no factor: such an
objective, the query's own or one beside it, has no rate but the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import log

from engine.capacity.answer import ObjectiveRate, QueryCapacity, UnknownObjective
from engine.capacity.utilisation import UtilisationModel
from engine.document.topology import servers_above
from engine.document.unknown_costs import unknown_grounds
from engine.estimation.base import EstimateBase
from engine.estimation.estimate import Estimate
from engine.estimation.reports import QueryReport
from engine.latency_state import UNKNOWN
from engine.provisioning.changes import MAX_LOAD, apply_changes
from engine.records import Sentence

__all__ = ["with_objectives"]

_NOT_KEPT = ("breached", "unknown")
_NARROW = 0.03  # of a factor
_MAX_TRIES = 7
_BEYOND = 1.02  # of the factor of saturation: there what has an objective breaks it in time
_NEAR = 0.9  # most objectives hold until near saturation: it is tried first
_LEAST = 0.02  # share of the load below which a broken objective is not looked at
_NEAREST = 2  # of others that keep theirs by the mean path, those nearest to their bounds are walked


def with_objectives(base: EstimateBase, query: str, capacity: QueryCapacity) -> QueryCapacity:
    """The capacity with the rates at which its own objective breaks, and the first of anybody."""
    if capacity.factor is None:
        return capacity
    search = _ObjectiveSearch(base, query, capacity)
    is_judged = base.estimate.deployment.objective_of(query) is not None and query not in search.unknown
    return replace(
        capacity,
        objective=search.rate_of(query) if is_judged else None,
        first_objective=search.find_first(),
        unknown_objectives=search.unknown_beside(),
        objectives_known=True,
    )


@dataclass(eq=False)
class _ObjectiveSearch:
    base: EstimateBase
    query: str
    capacity: QueryCapacity
    _estimates: dict[float, Estimate] = field(default_factory=dict)  # by factor, on the mean path
    _walked: dict[tuple[float, str], QueryReport] = field(default_factory=dict)

    @cached_property
    def unknown(self) -> dict[str, Sentence]:
        """Queries with an objective of whose latency nothing is known as it is, with the reason."""
        found: dict[str, Sentence] = {}
        for entry in self.base.estimate.deployment.objectives:
            report = self.base.estimate.queries.get(entry.query)
            if (grounds := unknown_grounds(self.base.estimate.deployment, entry.query)) is not None:
                found[entry.query] = grounds
            elif report is not None and report.standing.kind == UNKNOWN:
                found[entry.query] = report.standing.words
        return found

    def unknown_beside(self) -> tuple[UnknownObjective, ...]:
        """Unknown objectives of the query, and of those that wait for servers that its rate loads; its own first."""
        if not self.unknown:
            return ()
        deployment, found = self.base.estimate.deployment, []
        loaded = UtilisationModel(deployment, draws=False).of_query(self.query).servers
        start, members = deployment.closures
        for name in sorted(self.unknown, key=lambda name: (name != self.query, name)):
            i, objective = deployment.query_index[name], deployment.objective_of(name)
            waited = servers_above(deployment.layout, members[start[i] : start[i + 1]])
            if objective is not None and (name == self.query or not loaded.keys().isdisjoint(waited.tolist())):
                found.append(UnknownObjective(name, objective.statistic, objective.bound_s, self.unknown[name]))
        return tuple(found)

    @property
    def _full(self) -> float:
        """Factor at which a server is full: there nothing holds for good, be it that a horizon does not show it."""
        return self.capacity.factor or 0.0

    @property
    def _end(self) -> float:
        """Factor beyond which nothing is looked at."""
        return min(max(self._full, _LEAST) * _BEYOND, MAX_LOAD)

    def rate_of(self, query: str) -> ObjectiveRate:
        """Rate at which the objective of a query breaks."""
        breaks = self._factor(lambda factor: self._report(factor, query).state in _NOT_KEPT)
        breaks = None if breaks is None else min(breaks, self._full)
        low = None if breaks is None else self._safe_factor(query, breaks)
        objective = self.base.estimate.deployment.objective_of(query)
        assert objective is not None
        now = self.capacity.now_per_s
        return ObjectiveRate(
            query=query,
            statistic=objective.statistic,
            bound_s=objective.bound_s,
            factor=breaks,
            low_factor=low,
            rate_per_s=None if breaks is None else now * breaks,
            low_per_s=None if low is None else now * low,
        )

    def find_first(self) -> ObjectiveRate | None:
        """Rate at which the first objective breaks that is kept now; None where none does by saturation."""
        if self._end <= 1.0 or self._factor(lambda factor: bool(self._broken(factor))) is None:
            return None
        broken = next((names for factor in sorted(self._estimates) if (names := self._broken(factor))), None)
        return None if broken is None else self.rate_of(min(broken, key=lambda name: (name != self.query, name)))

    def _safe_factor(self, query: str, breaks: float) -> float | None:
        """Factor at which the upper end of the latency passes the bound.

        Between two factors that were tried it lies on the chord of the logarithm: latencies are convex in the rate, so
        that the chord is above them.
        """
        tried = sorted({1.0, *self._estimates})
        kept = [factor for factor in tried if factor <= breaks and _over(self._report(factor, query)) <= 0.0]
        if not kept:
            return None
        low = max(kept)
        above = [factor for factor in tried if factor > low and _over(self._report(factor, query)) > 0.0]
        if not above:
            return breaks
        high = min(above)
        below, over = _over(self._report(low, query)), _over(self._report(high, query))
        return min(breaks, low + (high - low) * -below / (over - below))

    def _broken(self, factor: float) -> set[str]:
        """Queries whose objective breaks there and not now; of those near their bounds by walks."""
        now = self.base.estimate.queries
        if factor == 1.0:
            return set()
        there = {
            name: report
            for name, report in self._estimate(factor).queries.items()
            if report.bound_s is not None and now[name].state not in _NOT_KEPT and name not in self.unknown
        }
        broken = {name for name, report in there.items() if report.state in _NOT_KEPT}
        if broken:
            return broken
        nearest = sorted(there, key=lambda name: -_over(there[name]))[:_NEAREST]
        return {name for name in nearest if self._report(factor, name).state in _NOT_KEPT}

    def _factor(self, fails: Callable[[float], bool]) -> float | None:
        """Largest factor tried that does not fail; None where the least one does."""
        low, high = 1.0, self._end
        if high <= 1.0 or fails(1.0):
            low, high = _LEAST, min(1.0, high)
            if fails(low):
                return None
        for tried in sorted(self._estimates):  # what is known already narrows the bracket
            if low < tried < high:
                if fails(tried):
                    high = tried
                    break
                low = tried
        guess = _NEAR * self._full
        while high - low > _NARROW * high and len(self._estimates) < _MAX_TRIES:
            middle = guess if low < guess < high else (low * high) ** 0.5
            guess = 0.0
            low, high = (low, middle) if fails(middle) else (middle, high)
        return low

    def _report(self, factor: float, query: str) -> QueryReport:
        """Report of a query at a factor, with random costs and arrivals."""
        now = self.base.estimate.queries[query]
        if factor == 1.0:
            return now
        if (factor, query) not in self._walked:
            found = self._estimate(factor)
            report = found.queries.get(query)
            if report is not None:
                report = replace(found, queries={query: report}).realised().queries[query]
            self._walked[factor, query] = report or now
        return self._walked[factor, query]

    def _estimate(self, factor: float) -> Estimate:
        if factor not in self._estimates:
            change = [{"scale_query": self.query, "by": factor}]
            after = apply_changes(self.base.estimate.deployment, change, path="capacity")
            self._estimates[factor] = self.base.changed(after, concerned={self.query})
        return self._estimates[factor]


def _over(report: QueryReport) -> float:
    """Logarithm of the upper end of a latency over its bound; infinite where it never catches up."""
    bound_s = report.bound_s
    if bound_s is None:
        return float("-inf")
    if not report.standing.is_known:
        return float("inf")
    high_s = report.estimate_s if report.high_s is None else max(report.high_s, report.estimate_s)
    return log(max(high_s, 1e-9) / bound_s)
