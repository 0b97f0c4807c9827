"""The replay: from segment to segment, what runs under a policy, and how late it is."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np

from engine.arrays import FloatArray, statistic_of
from engine.backtest.answers import PolicyAnswer, answer_request, join_request
from engine.backtest.period import RecordedPeriod, RecordedRequest, RecordedStop, period_factors
from engine.backtest.policy import ReplayPolicy
from engine.document.deployment import Deployment
from engine.errors import EngineError, InfeasibleError
from engine.estimation.flow import flow
from engine.estimation.mace import mace
from engine.estimation.margins import sink_events
from engine.forecasts.violations import scaled_deployment, violations
from engine.placement.proposal import place

__all__ = ["PolicyReplay", "ReplayedMove", "RequestOutcome", "node_loads", "replay", "segment_latencies"]

MAX_SEARCHES = 8
_ROUNDS = 2
_FLOW_RUNS = 24
_MIN_FLOW_RUNS = 4

Progress = Callable[[float, str], None]


def segment_latencies(
    deployment: Deployment, factors: FloatArray, *, mace_every: int, flow_runs: int, added_s: Mapping[str, float]
) -> dict[str, FloatArray]:
    """Statistic of every objective in every segment, seconds, shape (n,) each; queries without one are left out.

    Every segment scales the stretch of arrivals, as in forecasts: Mace for all of them, read as Flow's by some runs of
    Flow. Where loads are not linear in the arrivals, Flow runs for every segment, at Mace's width.
    """
    if not deployment.operators or not deployment.objectives:
        return {}
    try:
        seen = violations(deployment, factors, factors[:0], mace_every=mace_every, flow_runs=flow_runs)
    except InfeasibleError:
        latencies = _flow_latencies(deployment.coarsened(mace_every), factors)
    else:
        latencies = {outlook.query: outlook.mean_s for outlook in seen.outlooks}
    return {query: values + added_s.get(query, 0.0) for query, values in latencies.items()}


def _flow_latencies(coarse: Deployment, factors: FloatArray) -> dict[str, FloatArray]:
    statistics = {objective.query: objective.statistic for objective in coarse.objectives}
    latencies = {query: np.zeros(len(factors)) for query in coarse.queries if query in statistics}
    for i, row in enumerate(factors):
        scaled = scaled_deployment(coarse, row)
        run, weights = flow(scaled, by_input=True), sink_events(scaled)
        for query, values in latencies.items():
            values[i] = statistic_of(run.by_query[query], weights[query], statistics[query])
    return latencies


def node_loads(deployment: Deployment, factors: FloatArray, mace_every: int) -> dict[str, tuple[float, float]]:
    """Mean load of every node's busiest core over the segments, and over the segment in which most arrives."""
    coarse = deployment.coarsened(mace_every)
    busiest = factors[int((factors * deployment.arrivals.sum(axis=1)).sum(axis=1).argmax())]
    shares = [mace(scaled_deployment(coarse, row)).load_share.mean(axis=1) for row in (factors.mean(axis=0), busiest)]
    loads = {node.id: (0.0, 0.0) for node in deployment.nodes}
    for i, server in enumerate(deployment.servers):
        if server.node is not None:
            name = deployment.nodes[server.node].id
            mean, peak = loads[name]
            loads[name] = (max(mean, float(shares[0][i])), max(peak, float(shares[1][i])))
    return loads


@dataclass
class RequestOutcome:
    """Outcome of a request under a policy. `started_s` is when it began to run."""

    request: RecordedRequest
    outcome: str
    reason: str
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
    """A story under a policy.

    Attributes
    ----------
    latency_s : dict
        By query with an objective, (segments,); NaN where it did not run.
    bounds : dict
        By query, (statistic, bound_s).
    loads : dict
        By node, mean load of the busiest core over the period, and the largest of any stretch.
    """

    story: RecordedPeriod
    rules: ReplayPolicy
    outcomes: list[RequestOutcome] = field(default_factory=list)
    moves: list[ReplayedMove] = field(default_factory=list)
    latency_s: dict[str, FloatArray] = field(default_factory=dict)
    bounds: dict[str, tuple[str, float]] = field(default_factory=dict)
    loads: dict[str, tuple[float, float]] = field(default_factory=dict)
    searches: int = 0
    searches_left_out: int = 0


def replay(story: RecordedPeriod, rules: ReplayPolicy, progress: Progress | None = None) -> PolicyReplay:
    """Replay a story under a policy; the same input always gives the same answer."""
    run = _Run(story, rules, progress or (lambda share, step: None))
    run.all()
    return run.found


class _Run:
    """State of a replay: what runs at the present segment, and what is still to come."""

    def __init__(self, story: RecordedPeriod, rules: ReplayPolicy, tell: Progress) -> None:
        self.story, self.rules, self.tell = story, rules, tell
        self.found = PolicyReplay(story, rules)
        self.running = story.deployment
        self._number = count()
        self._agenda: list[tuple[int, float, int, Any]] = []
        for request in story.requests:
            self._plan_request(request)
        for stop in story.stops:
            self._plan(stop.at_s, stop)
        stretches = len({segment for segment, *_ in self._agenda} | {0})
        self._flow_runs = max(_MIN_FLOW_RUNS, _FLOW_RUNS // stretches)

    def _plan_request(self, request: RecordedRequest) -> None:
        if self.rules.admission != "recorded":
            self._plan(request.at_s, request)
            return
        decided = request.decided
        outcome = RequestOutcome(request, decided.outcome, decided.reason)
        self.found.outcomes.append(outcome)
        if decided.at_s is not None:
            answer = PolicyAnswer("admitted", decided.reason, "", decided.placement)
            self._plan(decided.at_s, _Start(request, answer, outcome))

    def _plan(self, at_s: float, what: Any) -> None:
        heapq.heappush(self._agenda, (self.story.segment_of(at_s), at_s, next(self._number), what))

    def all(self) -> None:
        """From the first segment to the last."""
        segment = 0
        while segment < self.story.segments:
            while self._agenda and self._agenda[0][0] <= segment:
                self._happens(segment, heapq.heappop(self._agenda)[-1])
            until = min(self._agenda[0][0] if self._agenda else self.story.segments, self.story.segments)
            self._stretch(segment, until)
            segment = until

    # -- events

    def _happens(self, segment: int, what: Any) -> None:
        if isinstance(what, RecordedStop):
            if what.query in self.running.queries:
                self.running = self.running.without_query(what.query)
            return
        if isinstance(what, _Start):
            self._start(segment, what)
            return
        self.tell(segment / self.story.segments, f"Deciding on {what.query}")
        answer = answer_request(self.story, self.rules, what, self._scaled(segment))
        outcome = RequestOutcome(what, answer.outcome, answer.reason, answer.verdict)
        self.found.outcomes.append(outcome)
        if answer.outcome == "admitted":
            self._start(segment, _Start(what, answer, outcome))
        elif answer.outcome == "queued":
            self._plan(what.at_s + answer.wait_s, _Start(what, answer, outcome, queued=True))

    def _start(self, segment: int, start: _Start) -> None:
        """Let it run; one that waited is decided once more, as the queue of a live cluster does."""
        answer, outcome = start.answer, start.outcome
        if start.queued:
            answer = answer_request(self.story, self.rules, start.request, self._scaled(segment))
            if answer.outcome != "admitted":
                outcome.outcome, outcome.reason = "rejected", f"It waited, and then: {answer.reason}"
                return
        try:
            self.running = join_request(self.story, start.request, self.running, answer.placement or {})
        except EngineError as error:
            why = error.faults[0].message if error.faults else error.message
            if self.rules.admission == "recorded":
                outcome.reason = f"It was admitted and cannot be replayed: {why}"
            else:
                outcome.outcome, outcome.reason = "rejected", why
            return
        outcome.started_s = max(start.request.at_s, self.story.starts_s(segment))

    def _scaled(self, segment: int) -> Deployment:
        factors = period_factors(self.story, self.running)
        return scaled_deployment(self.running, factors[min(segment, self.story.segments - 1)])

    # -- time

    def _stretch(self, first: int, until: int) -> None:
        """Judge segments in which nothing is asked; place anew where an objective is threatened."""
        tried = -1
        while first < until:
            self.tell(first / self.story.segments, f"Segment {first + 1} of {self.story.segments}")
            factors = period_factors(self.story, self.running)[first:until]
            late_s = segment_latencies(
                self.running,
                factors,
                mace_every=self.story.mace_every,
                flow_runs=self._flow_runs,
                added_s=self.story.added_s,
            )
            at = self._threatened(late_s, first, tried)
            if at is None:
                self._keep(first, until, late_s, factors)
                return
            if at > first:
                self._keep(first, at, {query: values[: at - first] for query, values in late_s.items()}, factors)
            tried = at
            if not self._placed_anew(at, late_s, at - first):
                # Nothing better is known for what runs: the rest of the stretch stays where it is.
                rest = {query: values[at - first :] for query, values in late_s.items()}
                self._keep(at, until, rest, factors[at - first :])
                return
            first = at

    def _threatened(self, late_s: Mapping[str, FloatArray], first: int, tried: int) -> int | None:
        """First segment after the one tried last in which an objective has not the headroom it needs."""
        if self.rules.placement == "keep" or self._moves_left == 0:
            return None
        share = 1.0 - self.rules.headroom
        over = [
            first + int(i)
            for query, values in late_s.items()
            for i in np.flatnonzero(values > share * self._bound_s(query))[:2]
            if first + int(i) > tried
        ]
        if not over:
            return None
        if self.found.searches >= MAX_SEARCHES:
            self.found.searches_left_out += 1
            return None
        return min(over)

    @property
    def _moves_left(self) -> int | None:
        most = self.rules.max_moves
        return None if most is None else most - len(self.found.moves)

    def _bound_s(self, query: str) -> float:
        objective = self.running.objective_of(query)
        assert objective is not None
        return objective.bound_s

    def _placed_anew(self, segment: int, late_s: Mapping[str, FloatArray], column: int) -> bool:
        """Search a placement for the load of a segment; whether it is better there."""
        self.found.searches += 1
        self.tell(segment / self.story.segments, "Placing anew")
        limits = replace(self.running.constraints, max_moves=self._moves_left)
        now = self._scaled(segment)
        try:
            proposal = place(
                replace(self.rules.tightened(now), constraints=limits),
                algorithm=self.rules.placement,
                budget_s=None,
                rounds=_ROUNDS,
                closed=self.story.closed_nodes,
                objective="objectives",
                mace_every=self.story.mace_every,
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
        row = period_factors(self.story, better)[segment : segment + 1]
        after_s = segment_latencies(
            better, row, mace_every=self.story.mace_every, flow_runs=1, added_s=self.story.added_s
        )
        worst = {query: float(values[column]) / self._bound_s(query) for query, values in late_s.items()}
        then = {query: float(values[0]) / self._bound_s(query) for query, values in after_s.items()}
        if max(then.values()) >= max(worst.values()):
            return False
        query = max(worst, key=lambda name: worst[name])
        self.running = better
        self.found.moves += [
            ReplayedMove(segment, name, _servers(before[name]), _servers(moved[name]), f"for {query}") for name in moved
        ]
        return True

    def _keep(self, first: int, until: int, late_s: Mapping[str, FloatArray], factors: FloatArray) -> None:
        """Note segments as they were: latencies, and loads weighted by time."""
        found, n = self.found, self.story.segments
        for query, values in late_s.items():
            objective = self.running.objective_of(query)
            assert objective is not None
            found.bounds[query] = (objective.statistic, objective.bound_s)
            found.latency_s.setdefault(query, np.full(n, np.nan))[first:until] = values[: until - first]
        loads = node_loads(self.running, factors[: until - first], self.story.mace_every)
        for node, (mean, peak) in loads.items():
            known = found.loads.get(node, (0.0, 0.0))
            found.loads[node] = (known[0] + mean * (until - first) / n, max(known[1], peak))


@dataclass
class _Start:
    """A request that begins to run, at once or after it was queued."""

    request: RecordedRequest
    answer: PolicyAnswer
    outcome: RequestOutcome
    queued: bool = False


def _servers(replicas: Any) -> tuple[str, ...]:
    return tuple(f"{part.node}#{part.core}" if part.core else part.node for part in replicas)
