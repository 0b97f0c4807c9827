"""Waits of every query of a deployment, from events that are sent along its ways."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.document.elements import AT_CLOSE, SESSION, Operator
from engine.estimation.loads import Loads, loads_of
from engine.estimation.noise.summary import RealisedQuery
from engine.estimation.waits.clocks import closes, common_period, is_event_time
from engine.estimation.waits.holds import (
    BatchedHold,
    BatchHold,
    BufferHold,
    BurstHold,
    CheckpointHold,
    ClosingHold,
    CommitHold,
    CountHold,
    PauseHold,
    SessionHold,
    Travellers,
    WatermarkHold,
    WindowHold,
)
from engine.estimation.waits.horizon import Horizon
from engine.estimation.waits.summary import BatchVariation, PhaseWaits, QueryWaits, WaitMargins, WaitTerm
from engine.estimation.waits.ways import SourceGains, Way, WayFinder, gain_arrays
from engine.records import Fact

__all__ = ["has_holds", "query_waits", "with_waits"]

_SAMPLE = 8192  # events of a way, whose waits make its distribution
_WORLDS = 16  # phases of triggers that are looked at
_MAX_WORLDS = 64
_MAX_CRITICAL = 20_000  # times, in each of these, at which an event has just missed something
_ALIKE = 2.0  # standard deviations below the longest batch: what is shorter is not taken to become it
_NEGLIGIBLE_S = 1e-3  # what leaves at once and takes no longer is as good as spread out

#: Events, work or results decide when these let go, of which an estimate knows means alone.
_UNBOUNDED = (BatchedHold, BurstHold, CheckpointHold, ClosingHold, CountHold, SessionHold, WatermarkHold)


def has_holds(deployment: Deployment) -> bool:
    """Whether an operator states anything that events wait for beside servers."""
    return any(
        op.window or op.trigger or op.checkpoint or op.buffer_timeout_s or op.kind == "window"
        for op in deployment.operators
    )


def query_waits(
    deployment: Deployment, *, seed: int = 0, queries: Collection[str] | None = None
) -> dict[str, QueryWaits]:
    """Waits of the queries that have any, or of which something is left out.

    Parameters
    ----------
    deployment : Deployment
        d subintervals, every operator placed.
    seed : int
        Equal seeds give equal results.
    queries : collection of str, optional
        Queries to look at; all unless given.

    Returns
    -------
    dict
        By query; a query that is not in it waits for nothing but servers.

    Notes
    -----
    Where in its windows and triggers the horizon begins is not known: every phase is equally likely.
    docs/models/waits.md has the definitions.
    """
    if not has_holds(deployment):
        return {}
    estimator = _Estimator(deployment, loads_of(deployment), seed)
    chosen = [(i, query) for i, query in enumerate(deployment.queries) if queries is None or query in queries]
    found = ((query, estimator.waits(i)) for i, query in chosen)
    return {query: waits for query, waits in found if waits or waits.not_modelled}


def with_waits(waits: Mapping[str, QueryWaits], realised: Mapping[str, RealisedQuery]) -> dict[str, RealisedQuery]:
    """Realised figures of queues with the waits of queries added, statistic by statistic.

    For many scenarios of one deployment: a quantile of the sum is taken as the sum of the quantiles.
    """
    return {
        query: waits[query].widen(figures.delayed(waits[query].own_s, 0.0)) if query in waits else figures
        for query, figures in realised.items()
    }


@dataclass(frozen=True, eq=False)
class _SentWay:
    """Waits of the events of one way: a sample, the longest by subinterval, and each hold's part in them."""

    events: float
    waits_s: FloatArray
    worst_s: FloatArray
    terms: dict[tuple[int, str], tuple[float, float]]  # longest and mean, by operator and kind
    phases: PhaseWaits


class _Estimator:
    def __init__(self, deployment: Deployment, loads: Loads, seed: int) -> None:
        self._deployment, self._seed = deployment, seed
        self._horizon = Horizon(deployment, loads)
        self._finder = WayFinder(deployment, loads, self._horizon)
        self._sent: dict[tuple[Way, tuple[tuple[int, float], ...]], _SentWay] = {}

    def waits(self, query: int) -> QueryWaits:
        d = self._deployment.subintervals
        ways = [self._send(way, gains) for way, gains in self._finder.of(query).items()]
        ways = [way for way in ways if way.events > 0.0]
        operators = self._operators_above(query)
        terms = tuple(self._terms(ways))
        return QueryWaits(
            terms=terms,
            worst_s=np.max([way.worst_s for way in ways], axis=0) if terms else np.zeros(d),
            waits_s=np.concatenate([way.waits_s for way in ways]) if terms else np.zeros(1),
            weights=np.concatenate([np.full(len(w.waits_s), w.events / len(w.waits_s)) for w in ways])
            if terms
            else np.ones(1),
            margins=self._margins(query) if terms else WaitMargins(),
            is_bounded=not any(isinstance(hold, _UNBOUNDED) for way in self._finder.of(query) for hold in way),
            not_modelled=tuple(self._left_out(query, operators)),
        )

    def _margins(self, query: int) -> WaitMargins:
        ways = self._finder.of(query)
        sent = [self._send(way, gains).phases for way, gains in ways.items()]
        groups = {(h.interval_s, h.overhead_s, h.servers) for way in ways for h in way if isinstance(h, BatchHold)}
        batches = [self._batch_variation(*group) for group in sorted(groups)]
        largest = max(batches, key=lambda batch: math.hypot(batch.deviation_s, batch.error_s), default=None)
        return WaitMargins(tuple(way for way in sent if way.events > 0.0), largest)

    def _batch_variation(self, interval_s: float, overhead_s: float, servers: tuple[int, ...]) -> BatchVariation:
        """Of the longest batches on some servers, by the server whose work varies most."""
        schedule = self._horizon.schedule(servers, interval_s, overhead_s, 0.0)
        lengths_s = schedule.ends - schedule.starts - overhead_s
        longest_s = float(lengths_s.max())
        found = [self._finder.variation.of_server(server, longest_s) for server in servers]
        deviation_s, error_s = np.max(found, axis=0).tolist()
        longest = float((lengths_s >= longest_s - _ALIKE * deviation_s).sum())
        return BatchVariation(deviation_s, error_s, float(len(lengths_s)), longest)

    def _terms(self, ways: list[_SentWay]) -> Iterator[WaitTerm]:
        """Each hold's longest wait on any way, and its mean over the events that pass it."""
        for key in dict.fromkeys(key for way in ways for key in way.terms):
            passing = [way for way in ways if key in way.terms]
            events = sum(way.events for way in passing)
            yield WaitTerm(
                operator=self._deployment.operators[key[0]].id,
                kind=key[1],
                worst_s=max(way.terms[key][0] for way in passing),
                mean_s=sum(way.events * way.terms[key][1] for way in passing) / events,
            )

    def _send(self, way: Way, gains: SourceGains) -> _SentWay:
        """Send a sample of events along a way, and those that just miss what lets them go."""
        key = way, tuple(sorted(gains.items()))
        if key not in self._sent:
            self._sent[key] = self._sent_way(way, gains)
        return self._sent[key]

    def _sent_way(self, way: Way, gains: SourceGains) -> _SentWay:
        total = self._finder.total(gains)
        if not way or not total > 0.0:
            unheld = PhaseWaits(total, np.zeros((1, 1)), np.zeros(1))
            return _SentWay(total, np.zeros(1), np.zeros(self._deployment.subintervals), {}, unheld)
        sample, critical = self._sample(way, gains), self._critical(way)
        arrived_s = critical.since_s
        terms: dict[tuple[int, str], tuple[float, float]] = {}
        for hold in way:
            longest_s, mean_s = float(critical.waited_s.max()), float(sample.waited_s.mean())
            for events in (sample, critical):
                hold.pass_on(events, self._horizon)
            if isinstance(hold, WindowHold | CountHold | SessionHold) and hold.restarts:
                terms = {key: term for key, term in terms.items() if hold.keeps(key[1])}
                longest_s = sum(term[0] for term in terms.values())
                mean_s = sum(term[1] for term in terms.values())
            more = max(0.0, float(critical.waited_s.max()) - longest_s), float(sample.waited_s.mean()) - mean_s
            before = terms.get((hold.operator, hold.kind), (0.0, 0.0))
            terms[hold.operator, hold.kind] = before[0] + more[0], before[1] + more[1]
        worst_s = self._by_subinterval(arrived_s, critical)
        least = {BurstHold.kind: _NEGLIGIBLE_S, PauseHold.kind: _NEGLIGIBLE_S}
        terms = {key: term for key, term in terms.items() if term[0] > least.get(key[1], 0.0)}
        phases = self._phases(way, gains, total, critical, arrived_s)
        return _SentWay(total, np.minimum(sample.waited_s, worst_s.max()), worst_s, terms, phases)

    def _phases(
        self, way: Way, gains: SourceGains, total: float, critical: Travellers, arrived_s: FloatArray
    ) -> PhaseWaits:
        """Waits phase by phase: of the same sample, spread over the arrivals in each, and of those that just miss."""
        sample = self._sample(way, gains, by_phase=True)
        for hold in way:
            hold.pass_on(sample, self._horizon)
        number = int(sample.world.max()) + 1
        each = len(sample.world) // number
        ordered = sample.waited_s[: each * number].reshape(each, number).T
        worst_s, within = ordered.max(axis=1), arrived_s >= 0.0
        longest_s = float(critical.waited_s.max())
        # Whether a checkpoint comes soon behind the end of a window, and whether new keys come, is up to the run.
        if _commits_windows(way) or any(isinstance(h, BurstHold | ClosingHold) and h.growth for h in way):
            missed = self._critical(way, by_phase=True)
            arrived_s = missed.since_s
            for hold in way:
                hold.pass_on(missed, self._horizon)
            worst_s, within = np.zeros(number), arrived_s >= 0.0
            np.maximum.at(worst_s, missed.world[within], missed.waited_s[within])
            return PhaseWaits(total, ordered, worst_s, longest_s)
        if _has_second_buffer(way):  # what just misses every buffer is the longest wait there is, and of hardly any run
            return PhaseWaits(total, ordered, worst_s, longest_s)
        np.maximum.at(worst_s, critical.world[within], critical.waited_s[within])
        return PhaseWaits(total, ordered, worst_s)

    def _sample(self, way: Way, gains: SourceGains, *, by_phase: bool = False) -> Travellers:
        """Events spread over the arrivals of a way and over all phases; `by_phase` only over those of its worlds."""
        rng = np.random.default_rng(self._seed)
        even = _middles(_SAMPLE)
        times_s = self._arriving(gains, even)
        cycle_s = common_period([hold.period_s for hold in way if hold.period_s])
        number, phases_s = self._worlds(way, cycle_s)
        world = np.arange(_SAMPLE) % number
        phase_s = phases_s[world]
        if not by_phase and not any(isinstance(hold, BatchedHold) for hold in way) and cycle_s > 0.0:
            phase_s = rng.permutation(even) * cycle_s - times_s  # where in a cycle each falls is spread evenly
        each_world = _middles(number)
        common = (lambda: rng.permutation(each_world)[world]) if by_phase else None
        return Travellers.arriving(times_s, phase_s, world, lambda: rng.permutation(even), common)

    def _arriving(self, gains: SourceGains, shares: FloatArray) -> FloatArray:
        """Times by which these shares of a way's events have arrived."""
        read, factors = gain_arrays(gains)
        events = factors @ self._deployment.arrivals[read]
        edges = np.arange(len(events) + 1) * self._deployment.subinterval_s
        reached = np.concatenate([[0.0], np.cumsum(events)])
        return np.asarray(np.interp(shares * reached[-1], reached, edges))

    @staticmethod
    def _worlds(way: Way, cycle_s: float) -> tuple[int, FloatArray]:
        """Phases that are looked at: enough for the shortest of the periods to begin a cycle in each subinterval."""
        shortest = min((hold.period_s for hold in way if hold.period_s), default=0.0)
        number = _MAX_WORLDS if _has_second_buffer(way) else 1
        if shortest:
            number = int(min(_MAX_WORLDS, max(_WORLDS, round(cycle_s / shortest))))
        return number, _middles(number) * cycle_s

    def _critical(self, way: Way, *, by_phase: bool = False) -> Travellers:
        """Events that arrive just after something let go, in each world, and each held as long as it may be.

        `by_phase`: with checkpoints and keys as each world has them, instead of those that are the longest to wait for.
        """
        cycle_s = common_period([hold.period_s for hold in way if hold.period_s])
        number, phases_s = self._worlds(way, cycle_s)
        listed_s = [self._just_missed(way, float(phase_s)) for phase_s in phases_s]
        world = np.repeat(np.arange(number), [len(times_s) for times_s in listed_s])
        ones = np.ones(len(world))
        events = Travellers.arriving(np.concatenate(listed_s), phases_s[world], world, lambda: ones)
        if by_phase:
            rng = np.random.default_rng(self._seed)
            events.checkpoint, events.growth = (rng.permutation(_middles(number))[world] for _ in range(2))
        return events

    def _just_missed(self, way: Way, phase_s: float) -> FloatArray:
        horizon_s = self._deployment.subintervals * self._deployment.subinterval_s
        edges = np.asarray(np.arange(self._deployment.subintervals) * self._deployment.subinterval_s, dtype=np.float64)
        found: list[FloatArray] = []
        held_s = 0.0
        for hold in way:
            if isinstance(hold, BufferHold):
                held_s += hold.timeout_s
            if isinstance(hold, BatchedHold):
                found.append(self._horizon.schedule(hold.servers, hold.interval_s, hold.overhead_s, phase_s).starts)
            if isinstance(hold, CountHold):
                taken = self._horizon.taken(hold.operator)
                found += [edges, taken.time_of(taken.count(edges) - hold.size)]
            if hold.period_s:
                ends_s = np.arange(0.0, horizon_s + phase_s % hold.period_s, hold.period_s) - phase_s % hold.period_s
                found += [ends_s, ends_s[ends_s > held_s] - held_s]
        times_s = np.unique(np.concatenate(found or [edges]))
        times_s = times_s[times_s < horizon_s]
        return np.asarray(times_s[:: -(-len(times_s) // _MAX_CRITICAL)])

    def _by_subinterval(self, arrived_s: FloatArray, critical: Travellers) -> FloatArray:
        """Longest wait of each subinterval: of what just missed something in it, or before it and nothing since."""
        deployment = self._deployment
        waited_s, worst_s = critical.waited_s, np.zeros(deployment.subintervals)
        edges = np.arange(deployment.subintervals) * deployment.subinterval_s
        for world in np.unique(critical.world):
            chosen = np.flatnonzero(critical.world == world)
            times_s, values = arrived_s[chosen], waited_s[chosen]
            within = times_s >= 0.0
            inside = np.minimum((times_s[within] / deployment.subinterval_s + 1e-9).astype(np.int64), len(edges) - 1)
            np.maximum.at(worst_s, inside, values[within])
            before = np.searchsorted(times_s, edges, side="right") - 1
            worst_s = np.maximum(worst_s, np.where(before >= 0, values[np.maximum(before, 0)], 0.0))
        return worst_s

    def _operators_above(self, query: int) -> list[int]:
        """Operators on the ways to a query's sinks, in listing order."""
        graph, sources = self._deployment.graph, len(self._deployment.sources)
        todo = np.flatnonzero(graph.query_sink & (graph.query == query)).tolist()
        seen = set(todo)
        while todo:
            j = todo.pop()
            above = graph.in_stream[graph.in_start[j] : graph.in_start[j + 1]] - sources
            fresh = {u for u in above.tolist() if u >= 0} - seen
            seen |= fresh
            todo += fresh
        return sorted(seen)

    def _left_out(self, query: int, operators: list[int]) -> Iterator[Fact]:
        """Parts of a query's waits that are left out."""
        by_number = {j: self._deployment.operators[j] for j in operators}
        windows = {j: op for j, op in by_number.items() if closes(op)}
        unknown = [op.id for op in by_number.values() if op.kind == "window" and op.window is None]
        if unknown:
            yield Fact("estimation.windows_unknown", unknown)
        by_event = [op.id for op in windows.values() if op.window and op.window.work_at != AT_CLOSE]
        if by_event:
            yield Fact("estimation.windows_closing", by_event)
        sessions = [op.id for op in windows.values() if op.window and op.window.type == SESSION]
        if sessions:
            yield Fact("estimation.sessions_alike", sessions)
        counted = [op.id for op in windows.values() if op.window and op.window.policy == "count" and not _is_whole(op)]
        if counted:
            yield Fact("estimation.windows_counting", counted)
        silent = {
            self._deployment.sources[u].id: self._deployment.operators[j].id
            for j, op in windows.items()
            if is_event_time(op)
            for u in self._finder.above[j]
            if not self._deployment.arrivals[u].any()
        }
        for source, operator in silent.items():
            yield Fact("estimation.source_silent", source=source, operator=operator)
        unstated = [op.id for op in by_number.values() if op.trigger and op.trigger.overhead_s is None]
        if unstated:
            yield Fact("estimation.batches_unstated", unstated)
        for j, op in windows.items():
            if op.window and op.window.type != SESSION:
                yield from self._burst_elsewhere(query, j, op)

    def _burst_elsewhere(self, query: int, j: int, operator: Operator) -> Iterator[Fact]:
        """Other queries that wait behind results which a window puts out at once."""
        assert operator.window is not None
        layout, deployment = self._deployment.layout, self._deployment
        by_count, size = operator.window.policy == "count", operator.window.period
        edges = np.asarray(np.arange(deployment.subintervals + 1) * deployment.subinterval_s, dtype=np.float64)
        ends_s = edges if by_count else np.concatenate([edges, edges + size])
        most = float(BurstHold(j, size, by_count, 1.0).results(ends_s, self._horizon).max())
        for server, seconds in self._finder.seconds_per_result(j).items():
            others = {
                deployment.operators[o].query
                for o in layout.rep_operator[layout.rep_server == server].tolist()
                if deployment.operators[o].query != deployment.queries[query]
            } - {None}
            longest_s = seconds * most
            if others and longest_s > deployment.subinterval_s:
                name = deployment.servers[server].name
                yield Fact("estimation.burst_elsewhere", operator=operator.id, longest_s=longest_s, server=name)


def _middles(number: int) -> FloatArray:
    """Middles of so many even parts of 0 to 1."""
    return np.asarray((np.arange(number) + 0.5) / number)


def _commits_windows(way: Way) -> bool:
    """Whether results that leave at the ends of windows wait for a checkpoint."""
    return any(isinstance(hold, CommitHold) for hold in way) and any(isinstance(hold, WindowHold) for hold in way)


def _has_second_buffer(way: Way) -> bool:
    return any(isinstance(hold, BufferHold) and hold.is_second for hold in way)


def _is_whole(operator: Operator) -> bool:
    """Whether a window by count is one of all events: an aggregation that states that it groups by nothing."""
    return operator.aggregate is not None and operator.aggregate.group_by_type == "none"
