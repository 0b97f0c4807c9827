"""An event: a stretch of hours at other loads, what breaks in it, what to buy for it, and what to delay instead.

Each source has an ordinary load by bucket and a factor over it; a query may have a factor of its own. Buckets are
judged as those of a forecast (`engine.forecasts.violations`), nodes by `engine.provisioning.pool`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.errors import DocumentError, Fault, suggestion
from engine.estimation.estimate import Progress
from engine.events.answer import (
    AS_IT_IS,
    GIVEN,
    REST,
    TRACE,
    EventAnswer,
    EventDelay,
    EventFuture,
    EventPurchase,
    EventQuery,
    EventSource,
    EventStep,
    best_purchase,
)
from engine.events.question import EventLoads, EventQuestion
from engine.forecasts.regret import LeastRegret, least_regret
from engine.forecasts.scaled_latency import ScaledMace
from engine.forecasts.violations import scaled_deployment, violations
from engine.placement.problem import BoolArray
from engine.provisioning.answers.pools import PoolAnswer, PoolSize
from engine.provisioning.changes import apply_changes
from engine.provisioning.combinations import node_of
from engine.provisioning.nodes import grow_nodes
from engine.provisioning.pool.curve import PoolCurve
from engine.provisioning.pool.search import smallest_pool
from engine.provisioning.question import PoolQuestion
from engine.records import Fact
from engine.solvers import solving
from engine.words import counted

__all__ = ["FUTURES", "answer_event", "with_own_loads"]

FUTURES = (0.7, 1.0, 1.3)  # of the planned factors
_HOUR_S = 3600.0
_ROUNDS = 4  # of the placement search for a step, as many as a pool is searched with


def with_own_loads(deployment: Deployment, queries: Mapping[str, float]) -> Deployment:
    """The deployment with private copies of the sources of some queries, so that each may have a load of its own.

    Raises
    ------
    DocumentError
        A query does not run, or reads no source of its own.
    """
    known = list(deployment.queries)
    faults = [
        Fault(f"queries.{name}", f"{name!r} is no query that runs{suggestion(name, known)}")
        for name in queries
        if name not in known
    ]
    if faults:
        raise DocumentError(faults, "event")
    changes = [{"scale_query": name, "by": 1.0} for name in queries]
    return apply_changes(deployment, changes, path="queries") if changes else deployment


def answer_event(
    deployment: Deployment, loads: EventLoads, question: EventQuestion, progress: Progress | None = None
) -> EventAnswer:
    """Answer what an event breaks, what to buy for it, and what to delay.

    Parameters
    ----------
    deployment : Deployment
        What runs, at the width that Flow runs on; what waits now is left out: it is gone by then.
    loads : EventLoads
        Its hours.
    question : EventQuestion
        What is to be kept, and what may be bought.

    Raises
    ------
    DocumentError
        An unknown query or source, or no objective.
    InfeasibleError
        Loads that are not linear in the sources, or capacities that change.

    Notes
    -----
    Nodes are bought for every source at its own peak at once, which no bucket has more of: loads are monotone, so that
    what holds then holds in every bucket.
    """
    solving()
    tell = progress or (lambda share, step: None)
    return _EventAnswer(deployment.without_backlogs(), loads, question, tell).answer()


class _EventAnswer:
    """The answer in its parts, each computed once."""

    def __init__(self, present: Deployment, loads: EventLoads, question: EventQuestion, tell: Progress) -> None:
        known = [source.id.partition("@")[0] for source in present.sources]
        faults = [
            Fault(f"sources.{name}", f"{name!r} is no source that is read{suggestion(name, known)}")
            for name in loads.sources
            if name not in known
        ]
        if faults:
            raise DocumentError(faults, "event")
        self.present, self.loads, self.question, self.tell = present, loads, question, tell
        self.deployment = with_own_loads(present, loads.queries)
        self.origins = [source.id.partition("@")[0] for source in self.deployment.sources]
        self.factors, self.factor_of = self._factors()
        ones = np.ones(loads.buckets)
        self.ordinary = np.stack([loads.ordinary.get(name, ones) for name in self.origins], axis=1)
        self.upper = np.stack([loads.high.get(name, loads.ordinary.get(name, ones)) for name in self.origins], axis=1)
        self.expected = self.ordinary * self.factors

    def _factors(self) -> tuple[FloatArray, list[str]]:
        """Factor of every source in every bucket over its ordinary load, (h, sources), and what each rests on."""
        readers: dict[str, set[str]] = {}
        for operator in self.deployment.operators:
            for entry in operator.inputs:
                readers.setdefault(entry.source, set()).add(operator.query or "")
        columns, rests = [], []
        for source, origin in zip(self.deployment.sources, self.origins, strict=True):
            of_queries = [self.loads.queries.get(query) for query in readers.get(source.id, ())]
            own = [by for by in of_queries if by is not None] if None not in of_queries else []
            given = [*own, *([self.loads.sources[origin]] if origin in self.loads.sources else [])]
            if given:
                columns.append(np.full(self.loads.buckets, max(given)))
                rests.append(GIVEN)
            elif origin in self.loads.traces:
                columns.append(np.asarray(self.loads.traces[origin], dtype=np.float64))
                rests.append(TRACE)
            else:
                columns.append(np.full(self.loads.buckets, self.loads.rest))
                rests.append(REST)
        return np.stack(columns, axis=1), rests

    @cached_property
    def peak(self) -> FloatArray:
        """Every source at its own peak, as a multiple of its arrivals."""
        return np.asarray(self.expected.max(axis=0))

    def answer(self) -> EventAnswer:
        queries, assumptions = self._queries()
        purchases, pools = self._purchases()
        chosen = best_purchase(purchases)
        pool = None if chosen is None else pools[chosen.name]
        futures, regret, no_regret = self._futures(chosen, pool)
        self.tell(0.9, "Steps between the answers")
        steps = self._steps(chosen)
        self.tell(0.97, "What to delay")
        delay = self._delay(queries)
        self.tell(1.0, "Done")
        return EventAnswer(
            starts_s=self.loads.starts_s,
            ends_s=self.question.ends_s or self.loads.ends_s,
            bucket_s=self.loads.bucket_s,
            buckets=self.loads.buckets,
            nodes=len(self.present.nodes),
            lose_one=self.question.lose_one,
            lead_time_s=self.question.lead_time_s,
            sources=self._sources(),
            queries=queries,
            purchases=purchases,
            steps=steps,
            futures=futures,
            regret=regret,
            no_regret=no_regret,
            delay=delay,
            assumptions=(*assumptions, *self._own_assumptions()),
        )

    def _sources(self) -> tuple[EventSource, ...]:
        seconds = self.deployment.subinterval_s * self.deployment.subintervals
        return tuple(
            EventSource(
                source.id,
                float(self.factors[:, i].mean()),
                float(self.factors[:, i].max()),
                (rate := float(source.arrivals.sum()) / seconds) * float(self.ordinary[:, i].mean()),
                rate * float(self.peak[i]),
                self.loads.rests_on.get(self.origins[i], AS_IT_IS),
                self.factor_of[i],
            )
            for i, source in enumerate(self.deployment.sources)
        )

    def _queries(self) -> tuple[tuple[EventQuery, ...], tuple[Any, ...]]:
        """Every objective over the event, with nodes and placement as they are."""
        seen = violations(
            self.deployment,
            self.expected,
            self.upper * self.factors,
            mace_every=self.question.mace_every,
            progress=lambda share, step: self.tell(0.3 * share, step),
        )
        hours = self.loads.bucket_s / _HOUR_S
        priorities = self.deployment.priorities
        entries = tuple(
            EventQuery(
                entry.facts,
                priorities.get(entry.facts.query, 0),
                float(((entry.mean_s > entry.facts.bound_s) | entry.endless).sum()) * hours,
            )
            for entry in seen.outlooks
        )
        return entries, (*seen.assumptions, *seen.assumed)

    # -- what to buy

    def _pool(self, type_name: str, times: float, share: tuple[float, float]) -> PoolAnswer:
        """The smallest pool of a type for `times` the planned factors."""
        question = self.question
        loaded = scaled_deployment(self.deployment, self._peak_at(times))
        asked = PoolQuestion(
            lose=int(question.lose_one),
            mace_every=question.mace_every,
            closed=question.closed,
            leave_out=True,
            budget_s=question.budget_s,
        )
        low, high = share
        return smallest_pool(
            loaded,
            asked,
            like=question.types[type_name],
            most=question.most,
            progress=lambda done, step: self.tell(low + (high - low) * done, f"{type_name}: {step}"),
        )

    def _peak_at(self, times: float) -> FloatArray:
        """The peak if the event comes at `times` its factors; below the ordinary load no event takes a source."""
        factors = np.maximum(self.factors * times, np.minimum(self.factors, 1.0))
        return np.asarray((self.ordinary * factors).max(axis=0))

    def _purchases(self) -> tuple[tuple[EventPurchase, ...], dict[str, PoolAnswer]]:
        names = list(self.question.types)
        width = 0.3 / max(len(names), 1)
        pools = {name: self._pool(name, 1.0, (0.3 + i * width, 0.3 + (i + 1) * width)) for i, name in enumerate(names)}
        return tuple(self._purchase(name, pool) for name, pool in pools.items()), pools

    def _purchase(self, name: str, pool: PoolAnswer) -> EventPurchase:
        price = pool.type.price_per_hour
        added = pool.added
        per_hour = 0.0 if added == 0 else None if added is None or price is None else added * price
        ends_s = self.question.ends_s or self.loads.ends_s
        return EventPurchase(
            name=name,
            type=pool.type,
            nodes=pool.nodes,
            added=added,
            cost_per_hour=per_hour,
            cost=None if per_hour is None else per_hour * (ends_s - self.loads.starts_s) / _HOUR_S,
            confirmed=pool.confirmed,
            beyond=len(pool.beyond),
            order_by_s=self.loads.starts_s - self.question.lead_time_s,
            message=pool.message,
        )

    def _futures(
        self, chosen: EventPurchase | None, pool: PoolAnswer | None
    ) -> tuple[tuple[EventFuture, ...], LeastRegret | None, str]:
        """The event at less and more than planned, and the sizes that are right for each compared by what they cost."""
        if chosen is None or pool is None:
            return (), None, "No number of nodes of the types looked at is enough as planned."
        pools = {1.0: pool}
        for i, times in enumerate(FUTURES):
            if times != 1.0:
                pools[times] = self._pool(chosen.name, times, (0.6 + 0.1 * i, 0.7 + 0.1 * i))
        fleets: dict[int, Deployment] = {len(self.present.nodes): self.deployment}
        for answer in pools.values():
            if answer.nodes is not None:
                fleets.setdefault(answer.nodes, self._fleet(chosen.name, answer))
        late = {size: self._late(fleet) for size, fleet in fleets.items()}
        price = chosen.type.price_per_hour
        length_h = ((self.question.ends_s or self.loads.ends_s) - self.loads.starts_s) / _HOUR_S
        planned = chosen.nodes or 0
        futures = []
        for i, times in enumerate(FUTURES):
            needed = pools[times].nodes
            over = None if needed is None else planned - needed
            cost = 0.0 if over is not None and over <= 0 else None
            if over is not None and over > 0 and price is not None:
                cost = over * price * length_h
            names, hours = late[planned][i]
            futures.append(EventFuture(times, needed, planned, over, cost, names, hours))
        regret, why = self._regret(late, price, length_h)
        return tuple(futures), regret, why

    def _regret(
        self, late: Mapping[int, list[tuple[tuple[str, ...], float]]], price: float | None, length_h: float
    ) -> tuple[LeastRegret | None, str]:
        if price is None:
            return None, "The type has no price per hour: costs are not compared."
        sizes = sorted(late)
        hours = np.array([[hours for _, hours in late[size]] for size in sizes])
        prices = [(size - len(self.present.nodes)) * price for size in sizes]
        cost = self.question.cost_per_violation_hour
        options = {"cost_per_violation_hour": cost, "horizon_h": length_h, "currency": self.question.currency}
        return least_regret(sizes, prices, hours, **options), ""  # type: ignore[arg-type]

    def _fleet(self, type_name: str, answer: PoolAnswer) -> Deployment:
        """The deployment with the added nodes and the placement of an answer, at present arrivals."""
        model = replace(node_of(self.question.types[type_name]), pool=None)
        grown = grow_nodes(self.deployment, replace(model, labels={}), answer.added or 0, None)
        return grown.with_placement(answer.placement)

    def _late(self, fleet: Deployment) -> list[tuple[tuple[str, ...], float]]:
        """Queries over their objective in each future, and the hours of all of them, by Mace with all nodes up."""
        model = ScaledMace(fleet.coarsened(self.question.mace_every))
        found = []
        for times in FUTURES:
            factors = np.maximum(self.factors * times, np.minimum(self.factors, 1.0))
            over = model.latencies(self.ordinary * factors).violated(model.bounds_s)
            found.append((_late_queries(model, over), float(over.sum()) * self.loads.bucket_s / _HOUR_S))
        return found

    # -- the staircase from the bench's number to the event's

    def _steps(self, chosen: EventPurchase | None) -> tuple[EventStep, ...]:
        """Fewest nodes by mean costs now, with one node lost, and at the event's load; then what to buy."""
        now = replace(self.present, objectives=tuple(self.question.limits))
        peak = scaled_deployment(replace(self.deployment, objectives=tuple(self.question.limits)), self.peak)
        most = self.question.most
        curves = {"now": (now, False), "lost": (now, True)}
        curves["load"] = (peak, self.question.lose_one)
        until = time.monotonic() + self.question.steps_budget_s
        steps = [self._fewest(kind, base, lose, until) for kind, (base, lose) in curves.items()]
        return (*steps, EventStep("random", None if chosen is None else chosen.nodes, most))

    def _fewest(self, kind: str, base: Deployment, lose_one: bool, until: float) -> EventStep:
        """Fewest nodes that keep every objective by mean costs alone; sizes are monotone, so they are bisected."""
        curve, most = PoolCurve(base, self.question.mace_every, closed=self.question.closed), self.question.most

        def keeps(size: int) -> bool:
            self.tell(0.9, f"Steps between the answers: {size} nodes")  # where a run that was cancelled ends
            (found,) = curve.sweep(1.0, [size], like=self.question.like, lose_one=lose_one, rounds=_ROUNDS)
            return _keeps(found, lose_one)

        low, size = 1, most
        enough: int | None = None
        while enough is None or low < enough:
            if time.monotonic() >= until:
                return EventStep(kind, None, most, is_cut=True, at_least=low, enough=enough)
            if keeps(size):
                enough = size
            elif enough is None:
                return EventStep(kind, None, most)
            else:
                low = size + 1
            size = (low + enough) // 2
        return EventStep(kind, enough, most)

    # -- what to delay

    def _delay(self, queries: Sequence[EventQuery]) -> EventDelay:
        """Fewest queries of the lowest priorities without which the others hold, by Mace in every bucket."""
        broken = [entry for entry in queries if entry.breaks]
        if not broken:
            return EventDelay((), True, (), ())
        priorities = self.deployment.priorities
        highest = max(entry.priority for entry in broken)
        read = {entry.source for op in self.deployment.operators for entry in op.inputs}
        lower = [name for name in self.deployment.queries if priorities.get(name, 0) < highest]
        kept = tuple(name for name in lower if self._is_read_by_others(name, read))
        heavy = self._loads()
        free = sorted(
            (name for name in lower if name not in kept),
            key=lambda name: (priorities.get(name, 0), -heavy.get(name, 0.0), name),
        )
        left = self._late_without(free)
        if not free or left:
            return EventDelay((), False, left or tuple(entry.forecast.query for entry in broken), kept)
        low, high = 0, len(free)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if not self._late_without(free[:middle]) else (middle + 1, high)
        chosen = free[:high]
        for name in reversed(chosen[:-1]):  # what need not stop, goes on: the highest priorities first
            fewer = [other for other in chosen if other != name]
            if not self._late_without(fewer):
                chosen = fewer
        return EventDelay(tuple(chosen), True, (), kept)

    def _is_read_by_others(self, query: str, read: set[str]) -> bool:
        own = {self.deployment.operators[i].id for i in self.deployment.operators_of(query)}
        return (
            any(
                entry.source in own
                for operator in self.deployment.operators
                if operator.query != query
                for entry in operator.inputs
            )
            if own & read
            else False
        )

    def _loads(self) -> dict[str, float]:
        """Events per second that each query reads at the peak, which orders those of one priority."""
        at = {
            source.id: float(source.arrivals.sum()) * self.peak[i] for i, source in enumerate(self.deployment.sources)
        }
        loads: dict[str, float] = {}
        for operator in self.deployment.operators:
            for entry in operator.inputs:
                loads[operator.query or ""] = loads.get(operator.query or "", 0.0) + at.get(entry.source, 0.0)
        return loads

    def _late_without(self, stopped: Sequence[str]) -> tuple[str, ...]:
        """Queries that are over their objective in some bucket without those that are stopped."""
        self.tell(0.97, f"What to delay: without {counted(len(stopped), 'query', 'queries')}")
        left = self.deployment
        for name in stopped:
            left = left.without_query(name)
        if not left.operators:
            return ()
        model = ScaledMace(left.coarsened(self.question.mace_every))
        at = self.deployment.source_index
        columns = [at[source.id] for source in left.sources]
        over = model.latencies(np.ascontiguousarray(self.expected[:, columns])).violated(model.bounds_s)
        return _late_queries(model, over)

    def _own_assumptions(self) -> list[Fact]:
        by_rest: dict[str, list[str]] = {}
        for origin in dict.fromkeys(self.origins):
            by_rest.setdefault(self.loads.rests_on.get(origin, AS_IT_IS), []).append(origin)
        found = [Fact(f"event.{rests}", names=tuple(names)) for rests, names in by_rest.items()]
        return [*found, Fact("event.own_peaks"), Fact("event.delay_by_mace")]


def _late_queries(model: ScaledMace, over: BoolArray) -> tuple[str, ...]:
    """Queries that are over their objective in some bucket."""
    return tuple(query for q, query in enumerate(model.queries) if over[:, q].any())


def _keeps(size: PoolSize, lose_one: bool) -> bool:
    """Whether a size keeps every objective by mean costs, with any one node lost where that is asked."""
    if size.stuck is not None or size.late:
        return False
    return not lose_one or size.lost is None or not (size.lost.stuck or size.lost.late)
