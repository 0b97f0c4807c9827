"""Replay of a recorded period under a policy, segment by segment: running queries, placement, latencies."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np

from engine.arrays import FloatArray
from engine.backtest.answers import PolicyAnswer, answer_request, join_request
from engine.backtest.period import RecordedPeriod, RecordedRequest, RecordedStop, period_factors
from engine.backtest.policy import ReplayPolicy
from engine.document.deployment import Deployment
from engine.errors import EngineError, InfeasibleError
from engine.estimation.answer import CoreLoad, combine_cores
from engine.estimation.mace import mace
from engine.estimation.query_flow import flow_queries
from engine.forecasts.realised_latency import LatencyTable, walk_scaled
from engine.forecasts.violations import scaled_deployment, violations
from engine.placement.problem import BoolArray
from engine.placement.proposal import place
from engine.records import Fact

__all__ = ["PolicyReplay", "RequestOutcome", "replay"]

MAX_SEARCHES = 8
_ROUNDS = 2
_WALKS = 12
_MIN_WALKS = 3

Progress = Callable[[float, str], None]


@dataclass(frozen=True, eq=False)
class SegmentLatency:
    """Realised statistic of one query's objective in n segments: median and upper end (95 %), seconds, (n,) each.

    `endless` are segments with a load under which it never catches up.
    """

    estimate_s: FloatArray
    high_s: FloatArray
    endless: BoolArray

    def part(self, first: int, until: int | None = None) -> SegmentLatency:
        """The same of some segments."""
        return SegmentLatency(self.estimate_s[first:until], self.high_s[first:until], self.endless[first:until])

    def later(self, seconds: float) -> SegmentLatency:
        """The same with so much more in every segment."""
        return replace(self, estimate_s=self.estimate_s + seconds, high_s=self.high_s + seconds)

    def shares(self, bound_s: float) -> FloatArray:
        """Share of a bound that each segment takes: more than all of it where it never catches up."""
        share = self.estimate_s / bound_s
        return np.asarray(np.where(self.endless, np.maximum(share, 1.0) + 1.0, share))


def segment_latencies(
    deployment: Deployment, factors: FloatArray, *, mace_every: int, walks: int, added_s: Mapping[str, float]
) -> dict[str, SegmentLatency]:
    """Latency of every query with an objective in every segment.

    Every segment scales the arrivals, as in forecasts: Mace for all of them, read as realised latencies by some walks.
    Where loads are not linear in the arrivals, Flow runs for every segment in Mace's place, at its width.
    `added_s` is the same in every segment.
    """
    if not deployment.operators or not deployment.objectives:
        return {}
    try:
        seen = violations(deployment, factors, factors[:0], mace_every=mace_every, walks=walks)
    except InfeasibleError:
        latencies = _nonlinear_latencies(deployment.coarsened(mace_every), factors, walks)
    else:
        latencies = {
            outlook.facts.query: SegmentLatency(outlook.mean_s, outlook.upper_s, outlook.endless)
            for outlook in seen.outlooks
        }
    return {query: entry.later(added_s.get(query, 0.0)) for query, entry in latencies.items()}


def _nonlinear_latencies(coarse: Deployment, factors: FloatArray, walks: int) -> dict[str, SegmentLatency]:
    """Flow of every segment, with what walks of some of them add by how much arrives."""
    judged = [entry for entry in coarse.objectives if entry.query in coarse.queries]
    queries, statistics = tuple(entry.query for entry in judged), tuple(entry.statistic for entry in judged)
    flowed = np.zeros((len(factors), len(judged)))
    endless = np.zeros(flowed.shape, dtype=bool)
    for i, row in enumerate(factors):
        run = flow_queries(scaled_deployment(coarse, row))
        flowed[i] = [run.value_s(query, name) for query, name in zip(queries, statistics, strict=True)]
        endless[i] = [run.standings[query].is_endless for query in queries]
    events = (factors * coarse.arrivals.sum(axis=1)).sum(axis=1)
    loads = np.repeat(events[:, None], len(judged), axis=1)
    table = LatencyTable(queries)
    for at in np.linspace(events.max(), events.min(), max(2, walks)):
        row = int(np.abs(events - at).argmin())
        walk = walk_scaled(scaled_deployment(coarse, factors[row]), queries, statistics)
        table.add(loads[row], flowed[row], walk)
    read = table(loads, flowed)
    return {
        query: SegmentLatency(read.estimate_s[:, q], read.high_s[:, q], endless[:, q])
        for q, query in enumerate(queries)
    }


def node_loads(deployment: Deployment, factors: FloatArray, mace_every: int) -> dict[str, tuple[float, float]]:
    """Mean load of every node's busiest core over the segments, and over the segment in which most arrives."""
    coarse = deployment.coarsened(mace_every)
    busiest = factors[int((factors * deployment.arrivals.sum(axis=1)).sum(axis=1).argmax())]
    shares = [mace(scaled_deployment(coarse, row)).load_share.mean(axis=1) for row in (factors.mean(axis=0), busiest)]
    cores: dict[str, list[CoreLoad]] = {node.id: [] for node in deployment.nodes}
    for i, server in enumerate(deployment.servers):
        if server.node is not None:
            cores[deployment.nodes[server.node].id].append(CoreLoad(float(shares[0][i]), float(shares[1][i])))
    nodes = {name: combine_cores(members) for name, members in cores.items()}
    return {name: (load.mean, load.peak) for name, load in nodes.items()}


@dataclass
class RequestOutcome:
    """Outcome of a request under a policy. `started_s` is when it began to run."""

    request: RecordedRequest
    outcome: str
    reason: Fact | str
    verdict: str = ""
    started_s: float | None = None


@dataclass(frozen=True)
class ReplayedMove:
    """An operator that a policy moved in a segment, to relieve a query."""

    segment: int
    operator: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    why: str


@dataclass(eq=False)
class PolicyReplay:
    """A period under a policy.

    Attributes
    ----------
    latency_s, high_s : dict
        By query with an objective, median and upper end of the realised statistic, (segments,) each; NaN where it did
        not run.
    endless : dict
        By query, segments with a load under which it never catches up, (segments,).
    bounds : dict
        By query, (statistic, bound_s).
    loads : dict
        By node, mean load of the busiest core over the period, and the largest between two events.
    """

    period: RecordedPeriod
    policy: ReplayPolicy
    outcomes: list[RequestOutcome] = field(default_factory=list)
    moves: list[ReplayedMove] = field(default_factory=list)
    latency_s: dict[str, FloatArray] = field(default_factory=dict)
    high_s: dict[str, FloatArray] = field(default_factory=dict)
    endless: dict[str, BoolArray] = field(default_factory=dict)
    bounds: dict[str, tuple[str, float]] = field(default_factory=dict)
    loads: dict[str, tuple[float, float]] = field(default_factory=dict)
    searches: int = 0
    searches_left_out: int = 0


def replay(period: RecordedPeriod, policy: ReplayPolicy, progress: Progress | None = None) -> PolicyReplay:
    """Replay a period under a policy; the same input always gives the same answer."""
    run = _ReplayRun(period, policy, progress or (lambda share, step: None))
    run.process_all()
    return run.result


class _ReplayRun:
    """State of a replay: what runs at the present segment, and what is still to come."""

    def __init__(self, period: RecordedPeriod, policy: ReplayPolicy, tell: Progress) -> None:
        self.period, self.policy, self.tell = period, policy, tell
        self.result = PolicyReplay(period, policy)
        self.running = period.deployment
        self._number = count()
        self._agenda: list[tuple[int, float, int, Any]] = []
        for request in period.requests:
            self._plan_request(request)
        for stop in period.stops:
            self._plan(stop.at_s, stop)
        intervals = len({segment for segment, *_ in self._agenda} | {0})
        self._walks = max(_MIN_WALKS, _WALKS // intervals)

    def _plan_request(self, request: RecordedRequest) -> None:
        if self.policy.admission != "recorded":
            self._plan(request.at_s, request)
            return
        decided = request.decided
        outcome = RequestOutcome(request, decided.outcome, decided.reason)
        self.result.outcomes.append(outcome)
        if decided.at_s is not None:
            answer = PolicyAnswer("admitted", decided.reason, "", decided.placement)
            self._plan(decided.at_s, _Start(request, answer, outcome))

    def _plan(self, at_s: float, event: Any) -> None:
        heapq.heappush(self._agenda, (self.period.segment_of(at_s), at_s, next(self._number), event))

    def process_all(self) -> None:
        """Process all segments, from the first to the last."""
        segment = 0
        while segment < self.period.segments:
            while self._agenda and self._agenda[0][0] <= segment:
                self._process(segment, heapq.heappop(self._agenda)[-1])
            until = min(self._agenda[0][0] if self._agenda else self.period.segments, self.period.segments)
            self._judge_segments(segment, until)
            segment = until

    def _process(self, segment: int, event: Any) -> None:
        if isinstance(event, RecordedStop):
            if event.query in self.running.queries:
                self.running = self.running.without_query(event.query)
            return
        if isinstance(event, _Start):
            self._start(segment, event)
            return
        self.tell(segment / self.period.segments, f"Deciding on {event.query}")
        answer = answer_request(self.period, self.policy, event, self._scaled(segment))
        outcome = RequestOutcome(event, answer.outcome, answer.reason, answer.verdict)
        self.result.outcomes.append(outcome)
        if answer.outcome == "admitted":
            self._start(segment, _Start(event, answer, outcome))
        elif answer.outcome == "queued":
            self._plan(event.at_s + answer.wait_s, _Start(event, answer, outcome, queued=True))

    def _start(self, segment: int, start: _Start) -> None:
        """Start a query; one that waited is decided once more, as the queue of a live cluster does."""
        answer, outcome = start.answer, start.outcome
        if start.queued:
            answer = answer_request(self.period, self.policy, start.request, self._scaled(segment))
            if answer.outcome != "admitted":
                outcome.outcome, outcome.reason = "rejected", Fact("backtests.waited", why=answer.reason)
                return
        try:
            self.running = join_request(self.period, start.request, self.running, answer.placement or {})
        except EngineError as error:
            why = error.faults[0].message if error.faults else error.message
            if self.policy.admission == "recorded":
                outcome.reason = Fact("backtests.not_replayed", why=why)
            else:
                outcome.outcome, outcome.reason = "rejected", why
            return
        outcome.started_s = max(start.request.at_s, self.period.starts_s(segment))

    def _scaled(self, segment: int) -> Deployment:
        factors = period_factors(self.period, self.running)
        return scaled_deployment(self.running, factors[min(segment, self.period.segments - 1)])

    def _judge_segments(self, first: int, until: int) -> None:
        """Judge segments without requests; search a placement where an objective is threatened."""
        tried = -1
        while first < until:
            self.tell(first / self.period.segments, f"Segment {first + 1} of {self.period.segments}")
            factors = period_factors(self.period, self.running)[first:until]
            late_s = segment_latencies(
                self.running,
                factors,
                mace_every=self.period.mace_every,
                walks=self._walks,
                added_s=self.period.added_s,
            )
            at = self._threatened(late_s, first, tried)
            if at is None:
                self._record(first, until, late_s, factors)
                return
            if at > first:
                self._record(first, at, {query: entry.part(0, at - first) for query, entry in late_s.items()}, factors)
            tried = at
            if not self._improve_placement(at, late_s, at - first):
                # Nothing better is known for what runs: the remaining segments keep their placement.
                rest = {query: entry.part(at - first) for query, entry in late_s.items()}
                self._record(at, until, rest, factors[at - first :])
                return
            first = at

    def _threatened(self, late_s: Mapping[str, SegmentLatency], first: int, tried: int) -> int | None:
        """First segment after the last one tried in which an objective lacks its headroom."""
        if self.policy.placement == "keep" or self._moves_left == 0:
            return None
        share = 1.0 - self.policy.headroom
        over = [
            first + int(i)
            for query, entry in late_s.items()
            for i in np.flatnonzero(entry.shares(self._bound_s(query)) > share)[:2]
            if first + int(i) > tried
        ]
        if not over:
            return None
        if self.result.searches >= MAX_SEARCHES:
            self.result.searches_left_out += 1
            return None
        return min(over)

    @property
    def _moves_left(self) -> int | None:
        most = self.policy.max_moves
        return None if most is None else most - len(self.result.moves)

    def _bound_s(self, query: str) -> float:
        objective = self.running.objective_of(query)
        assert objective is not None
        return objective.bound_s

    def _improve_placement(self, segment: int, late_s: Mapping[str, SegmentLatency], column: int) -> bool:
        """Search a placement for the load of a segment; False unless it is better there."""
        self.result.searches += 1
        self.tell(segment / self.period.segments, "Searching a placement")
        limits = replace(self.running.constraints, max_moves=self._moves_left)
        now = self._scaled(segment)
        try:
            proposal = place(
                replace(self.policy.tightened(now), constraints=limits),
                algorithm=self.policy.placement,
                budget_s=None,
                rounds=_ROUNDS,
                closed=self.period.closed_nodes,
                objective="objectives",
                mace_every=self.period.mace_every,
                tolerance=0.02,
                flow=False,
            )
        except EngineError:
            return False
        moved = {name: proposal.placement[name] for name in sorted(proposal.changed)}
        left = self._moves_left
        if not moved or (left is not None and len(moved) > left):
            return False
        before = {name: self.running.operators[self.running.operator_index[name]].replicas for name in moved}
        better = self.running.with_placement(moved)
        row = period_factors(self.period, better)[segment : segment + 1]
        after_s = segment_latencies(
            better, row, mace_every=self.period.mace_every, walks=1, added_s=self.period.added_s
        )
        worst = {query: float(entry.shares(self._bound_s(query))[column]) for query, entry in late_s.items()}
        then = {query: float(entry.shares(self._bound_s(query))[0]) for query, entry in after_s.items()}
        if max(then.values()) >= max(worst.values()):
            return False
        query = max(worst, key=lambda name: worst[name])
        self.running = better
        self.result.moves += [
            ReplayedMove(segment, name, _servers(before[name]), _servers(moved[name]), f"for {query}") for name in moved
        ]
        return True

    def _record(self, first: int, until: int, late_s: Mapping[str, SegmentLatency], factors: FloatArray) -> None:
        """Record segments: latencies, and loads weighted by time."""
        result, n = self.result, self.period.segments
        for query, entry in late_s.items():
            objective = self.running.objective_of(query)
            assert objective is not None
            result.bounds[query] = (objective.statistic, objective.bound_s)
            for kept, values in ((result.latency_s, entry.estimate_s), (result.high_s, entry.high_s)):
                kept.setdefault(query, np.full(n, np.nan))[first:until] = values[: until - first]
            result.endless.setdefault(query, np.zeros(n, dtype=bool))[first:until] = entry.endless[: until - first]
        loads = node_loads(self.running, factors[: until - first], self.period.mace_every)
        for node, (mean, peak) in loads.items():
            known = result.loads.get(node, (0.0, 0.0))
            result.loads[node] = (known[0] + mean * (until - first) / n, max(known[1], peak))


@dataclass
class _Start:
    """A request that begins to run, at once or after it was queued."""

    request: RecordedRequest
    answer: PolicyAnswer
    outcome: RequestOutcome
    queued: bool = False


def _servers(replicas: Any) -> tuple[str, ...]:
    return tuple(f"{part.node}#{part.core}" if part.core else part.node for part in replicas)
