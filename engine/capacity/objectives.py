"""Factors of a load at which objectives break: a query's own, and the first of anybody's; for a query and for all.

A factor is tried in the vicinity of the queries in question (`engine.estimation.vicinity`), by Flow with the noise of
costs and arrivals and with all waits. Latencies rise with the rate, so that one factor lies between those that keep an
objective and those that do not. Which of many objectives are nearest to break is read off Mace; those few are tried.
What nobody knows is kept by no factor: such an objective has no rate but the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import exp, inf, log

import numpy as np

from engine.capacity.answer import ClusterCapacity, ObjectiveRate, QueryCapacity, UnknownObjective
from engine.document.deployment import Deployment
from engine.document.unknown_costs import unknown_grounds
from engine.estimation.base import EstimateBase
from engine.estimation.mace import mace
from engine.estimation.reports import QueryReport
from engine.estimation.vicinity import Vicinity
from engine.latency_state import UNKNOWN
from engine.provisioning.changes import MAX_LOAD, apply_changes
from engine.records import Sentence
from engine.solvers import solving

__all__ = ["with_first_objective", "with_objectives"]

_NOT_KEPT = ("breached", "unknown")
_NARROW = 0.03  # of a factor
_MAX_TRIES = 10
_NEAR = 0.1  # logarithm of a latency over its bound: from there on a guess is good
_BEYOND = 1.02  # of the factor of saturation: there what has an objective breaks it in time
_POLE = 1.05  # of the same: where latencies as those of a single server would have no end
_LEAST = 0.02  # share of the load below which a broken objective is not looked at
_NEAREST = 3  # objectives that Mace says are nearest to break are tried
_MAX_ROUNDS = 3  # and those that it says are nearer than what was found
_MIN_IDLE = 0.02  # share of a server's time, below which a guess of what queues there means nothing
_MAX_UNKNOWN = 20  # unknown objectives that are named of a cluster


def with_objectives(base: EstimateBase, query: str, capacity: QueryCapacity) -> QueryCapacity:
    """The capacity with the rates at which its own objective breaks, and the first of anybody."""
    solving()
    if capacity.factor is None:
        return capacity
    search = _ObjectiveSearch(base, query, capacity)
    own = search.rate_of(query) if query in search.known else None
    return replace(
        capacity,
        objective=own,
        first_objective=search.find_first(own),
        unknown_objectives=search.unknown_beside(),
        objectives_known=True,
    )


def with_first_objective(base: EstimateBase, capacity: ClusterCapacity) -> ClusterCapacity:
    """The capacity with the rate of all sources at which the first objective breaks that is kept now."""
    solving()
    if capacity.factor is None:
        return capacity
    search = _ObjectiveSearch(base, None, capacity)
    unknown = search.unknown_beside()
    return replace(
        capacity,
        first_objective=search.find_first(None),
        broken_objectives=tuple(sorted(search.known - search.kept_now)),
        unknown_objectives=unknown[:_MAX_UNKNOWN],
        more_unknown=max(0, len(unknown) - _MAX_UNKNOWN),
        objectives_known=True,
    )


class _Tries:
    """Reports of some queries at factors of a load, in their vicinity."""

    def __init__(self, search: _ObjectiveSearch, queries: Collection[str]) -> None:
        self._search = search
        self.queries = frozenset(queries)
        self._vicinity = Vicinity(search.base, self.queries | ({search.query} if search.query else set()))
        self.by_factor: dict[float, Mapping[str, QueryReport]] = {}

    def at(self, factor: float) -> Mapping[str, QueryReport]:
        if factor not in self.by_factor:
            if factor == 1.0 and self._search.base.estimate.unburdened is None:
                self.by_factor[factor] = self._search.base.estimate.queries
            else:
                self.by_factor[factor] = self._vicinity.reports(self._search.grown(self._vicinity.deployment, factor))
        return self.by_factor[factor]

    def is_kept(self, factor: float) -> bool:
        return all(self.at(factor)[query].state not in _NOT_KEPT for query in self.queries)

    def over(self, factor: float) -> float:
        return max(_over(self.at(factor)[query].estimate_s, self.at(factor)[query]) for query in self.queries)

    def first_met(self, low: float, high: float) -> float:
        """Factor at which the first latency meets its bound, between one that keeps all of them and one that does not.

        It lies on the chord: latencies are convex in the rate, so that the chord is above them.
        """
        before, after = self.at(low), self.at(high)
        late = [query for query in self.queries if after[query].state in _NOT_KEPT]
        shares = [[exp(_over(row[query].estimate_s, row[query])) for row in (before, after)] for query in late]
        return min((_on_chord(low, high, *ends) for ends in shares), default=low)

    def nearest(self, factor: float) -> str:
        """The query of which most is over its bound."""
        reports = self.at(factor)

        def place(query: str) -> tuple[bool, float, bool, str]:
            report = reports[query]
            is_own = query == self._search.query
            return report.state not in _NOT_KEPT, -_over(report.estimate_s, report), not is_own, query

        return min(self.queries, key=place)


class _ObjectiveSearch:
    """Search for the factors of the load of one query, or of all sources, at which objectives break."""

    def __init__(self, base: EstimateBase, query: str | None, capacity: QueryCapacity | ClusterCapacity) -> None:
        self.base, self.query, self.capacity = base, query, capacity
        self._deployment = base.estimate.deployment

    def grown(self, deployment: Deployment, factor: float) -> Deployment:
        """A deployment with the load in question at a factor."""
        form = {"scale_source": "*"} if self.query is None else {"scale_query": self.query}
        return apply_changes(deployment, [form | {"by": factor}], path="capacity")

    @cached_property
    def loaded(self) -> frozenset[str]:
        """Servers and links that the load comes to."""
        if self.query is None:
            return frozenset(server.name for server in self._deployment.servers)
        return self.base.surroundings.servers_loaded_by(self.query)

    @cached_property
    def beside(self) -> frozenset[str]:
        """Queries with an objective that wait for one of these."""
        judged = {entry.query for entry in self._deployment.objectives} & self.base.estimate.queries.keys()
        return frozenset(judged if self.query is None else judged & self.base.surroundings.queries_on(self.loaded))

    @cached_property
    def unknown(self) -> Mapping[str, Sentence]:
        """Those of whose latency nothing is known as it is, with the reason."""
        found: dict[str, Sentence] = {}
        for query in self.beside:
            standing = self.base.estimate.queries[query].standing
            if (grounds := unknown_grounds(self._deployment, query)) is not None:
                found[query] = grounds
            elif standing.kind == UNKNOWN:
                found[query] = standing.words
        return found

    @cached_property
    def known(self) -> frozenset[str]:
        return self.beside - self.unknown.keys()

    @cached_property
    def kept_now(self) -> frozenset[str]:
        reports = self.base.estimate.queries
        return frozenset(query for query in self.known if reports[query].state not in _NOT_KEPT)

    def unknown_beside(self) -> tuple[UnknownObjective, ...]:
        """The unknown ones, its own first."""
        found = []
        for query in sorted(self.unknown, key=lambda query: (query != self.query, query)):
            objective = self._deployment.objective_of(query)
            if objective is not None:
                why, is_own = self.unknown[query], query == self.query
                found.append(UnknownObjective(query, objective.statistic, objective.bound_s, why, is_own))
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
        tries = _Tries(self, [query])
        return self._rate(tries, query, self._largest_kept(tries, self._end))

    def find_first(self, own: ObjectiveRate | None) -> ObjectiveRate | None:
        """Rate at which the first objective breaks that is kept now; None where none does by saturation.

        `own` is that of the query whose load grows: others are looked at up to there.
        """
        if self._end <= 1.0:
            return None
        first = own if own is not None and own.factor is not None and own.query in self.kept_now else None
        tried = frozenset[str]() if first is None else frozenset({first.query})
        for _ in range(_MAX_ROUNDS):
            top = self._end if first is None or first.factor is None else min(self._end, first.factor)
            nearest = self._nearest(top, tried, None if first is None else first.query)
            if not nearest:
                break
            tried |= {*nearest}
            tries = _Tries(self, nearest)
            if tries.is_kept(top):
                continue
            factor = self._largest_kept(tries, top)
            broken = min(other for other in tries.by_factor if factor is None or other > factor)
            query = tries.nearest(broken)
            found = self._rate(_narrowed(tries, query), query, factor)
            if first is None or (found.factor or 0.0) < (first.factor or 0.0):
                first = found
        return first

    def _nearest(self, factor: float, tried: Collection[str], first: str | None) -> Sequence[str]:
        """Objectives kept now that Mace says are nearest to break; of those nearer than the first that was found."""
        open_ = self.kept_now - {*tried}
        if not open_:
            return ()
        guesses = self._guesses(factor, open_ | ({first} if first else set()))
        least = log(0.5) if first is None else guesses[first] - log(2.0)  # a guess is right to a factor of two
        nearest = sorted(open_, key=lambda query: (-guesses[query], query))[:_NEAREST]
        return [query for query in nearest if guesses[query] >= least]

    def _guesses(self, factor: float, queries: Collection[str]) -> Mapping[str, float]:
        """Logarithm of what the upper end of each latency may be at a factor over its bound.

        Latencies rise by as much as Mace does, and what is above Mace now as 1 / (1 - u) of the servers.
        """
        (worst_s, idle), (grown_s, grown_idle) = self._mace_now, self._mace_at(factor)
        reports, surroundings = self.base.estimate.queries, self.base.surroundings
        found = {}
        for query in queries:
            servers = [name for name in surroundings.servers_of(query) if name in worst_s]
            before_s = max((worst_s[name] for name in servers), default=0.0)
            after_s = max((grown_s[name] for name in servers), default=0.0)
            rise = max((idle[name] / grown_idle[name] for name in servers), default=1.0)
            high_s = _high_s(reports[query])
            noise_s = max(high_s - before_s, 0.0)
            found[query] = _over(high_s + max(after_s - before_s, 0.0) + noise_s * max(rise - 1.0, 0.0), reports[query])
        return found

    @cached_property
    def _part(self) -> Deployment:
        """All that is on the servers that the load comes to."""
        if self.query is None:
            return self._deployment.without_backlogs()
        names = self.base.surroundings.operators_on(self.loaded)
        return self._deployment.restricted(names, with_sources=False).without_backlogs()

    @cached_property
    def _mace_now(self) -> tuple[Mapping[str, float], Mapping[str, float]]:
        return self._mace_at(1.0)

    def _mace_at(self, factor: float) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """Largest Mace and idle share of every server that the load comes to."""
        after = self._part if factor == 1.0 else self.grown(self._part, factor)
        found = mace(after.coarsened(self.base.mace_every))
        names = [server.name for server in found.deployment.servers]
        idle = np.maximum(1.0 - found.load_share.mean(axis=1), _MIN_IDLE)
        here = [i for i, name in enumerate(names) if name in self.loaded]
        return {names[i]: float(found.worst_s[i]) for i in here}, {names[i]: float(idle[i]) for i in here}

    def _largest_kept(self, tries: _Tries, end: float) -> float | None:
        """Largest factor known to keep the objectives; None where the least one does not."""
        low, high = 1.0, end
        if high <= 1.0 or not tries.is_kept(1.0):
            low, high = _LEAST, min(1.0, high)
            if not tries.is_kept(low):
                return None
        widths = [log(high / low)]
        while widths[-1] > _NARROW and len(widths) <= _MAX_TRIES:
            is_far = min(abs(tries.over(end)) for end in (low, high) if end in tries.by_factor) > _NEAR
            is_slow = is_far and len(widths) > 2 and widths[-1] > 0.5 * widths[-3]
            factor = (low * high) ** 0.5 if is_slow else self._guessed_factor(tries, low, high, len(widths) % 2 == 1)
            low, high = (factor, high) if tries.is_kept(factor) else (low, factor)
            widths.append(log(high / low))
        return tries.first_met(low, high) if high in tries.by_factor else low

    def _guessed_factor(self, tries: _Tries, low: float, high: float, is_queue: bool) -> float:
        """Where the latency would meet its bound, and a little to the side of the farther end.

        That of a single server's queue is c / (1 - f / F): its logarithm is a line in x = -log(1 - f / F). That of what
        a burst leaves to be done is a power of f. Either is taken in turn.
        """
        pole = _POLE * max(self._end, high)

        def place(factor: float) -> float:
            return -log(1.0 - factor / pole) if is_queue else log(factor)

        below = tries.over(low)
        above = tries.over(high) if high in tries.by_factor else inf
        slope = (above - below) / (place(high) - place(low)) if above < inf and below > -inf else 1.0
        x = place(low) - below / slope if slope > 0.0 and below > -inf else place(high)
        x = min(max(x, place(low)), place(high))
        meets = pole * (1.0 - exp(-x)) if is_queue else exp(x)
        side = 1.0 - 0.4 * _NARROW if meets - low > high - meets else 1.0 + 0.4 * _NARROW
        inside = 0.1 * (high - low)
        return min(max(meets * side, low + inside), high - inside)

    def _rate(self, tries: _Tries, query: str, breaks: float | None) -> ObjectiveRate:
        breaks = None if breaks is None else min(breaks, self._full)
        low = None if breaks is None else _safe_factor(tries, query, breaks)
        objective = self._deployment.objective_of(query)
        assert objective is not None
        now = self.capacity.now_per_s
        over = min((factor for factor in tries.by_factor if breaks is None or factor > breaks), default=breaks)
        bottleneck = None if over is None else tries.at(over)[query].bottleneck
        return ObjectiveRate(
            query=query,
            statistic=objective.statistic,
            bound_s=objective.bound_s,
            factor=breaks,
            low_factor=low,
            rate_per_s=None if breaks is None else now * breaks,
            low_per_s=None if low is None else now * low,
            server=None if bottleneck is None else bottleneck.server,
        )


def _narrowed(tries: _Tries, query: str) -> _Tries:
    """The same of one of the queries."""
    tries.queries = frozenset({query})
    return tries


def _safe_factor(tries: _Tries, query: str, breaks: float) -> float | None:
    """Factor at which the upper end of the latency passes the bound: between two that were tried on the chord."""

    def over(factor: float) -> float:
        report = tries.at(factor)[query]
        return _over(_high_s(report), report)

    tried = sorted(tries.by_factor)
    kept = [factor for factor in tried if factor <= breaks and over(factor) <= 0.0]
    if not kept:
        return None
    low = max(kept)
    above = [factor for factor in tried if factor > low and over(factor) > 0.0]
    if not above:
        return breaks
    high = min(above)
    return min(breaks, _on_chord(low, high, exp(over(low)), exp(over(high))))


def _on_chord(low: float, high: float, below: float, above: float) -> float:
    """Factor at which the chord of two shares of a bound is 1: f + (F - f) (1 - a) / (b - a); f where b is unknown."""
    return low + (high - low) * (1.0 - below) / (above - below) if below <= 1.0 < above < inf else low


def _high_s(report: QueryReport) -> float:
    return report.estimate_s if report.high_s is None else max(report.high_s, report.estimate_s)


def _over(latency_s: float, report: QueryReport) -> float:
    """Logarithm of a latency over the bound of its query; infinite where it never catches up."""
    if report.bound_s is None:
        return -inf
    return log(max(latency_s, 1e-9) / max(report.bound_s, 1e-9)) if report.standing.is_known else inf
