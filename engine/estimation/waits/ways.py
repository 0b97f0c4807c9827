"""Ways of events through a dataflow, as far as holds tell them apart."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.document.deployment import Deployment
from engine.document.elements import AT_CLOSE, SESSION, WINDOW_END, Operator, Window
from engine.estimation.loads import Loads
from engine.estimation.noise.dispersion import input_costs, thinning_variance
from engine.estimation.noise.network import linear_statistics
from engine.estimation.waits.clocks import closes, sources_above, watermark_delays
from engine.estimation.waits.holds import (
    BatchHold,
    BufferHold,
    BurstHold,
    ClosingHold,
    CommitHold,
    CountHold,
    Hold,
    KeyedGrowth,
    LatenessHold,
    PauseHold,
    SessionHold,
    TriggerHold,
    WatermarkHold,
    WindowHold,
)
from engine.estimation.waits.horizon import Horizon

__all__ = ["SourceGains", "Way", "WayFinder", "gain_arrays"]

_GROWN = 1.05  # of the load that statistics were measured at: below that is no growth
MAX_WAYS = 16  #: of one operator
_ENDS = 1.0 / 3.0  # of a subinterval's events: the variance of how many of them fall into a batch, at both its ends
Way = tuple[Hold, ...]


SourceGains = dict[int, float]  # events that come by a way per event of a source, by its number


class WayFinder:
    """Finds the ways by which events come to the sinks of queries."""

    def __init__(self, deployment: Deployment, loads: Loads, horizon: Horizon) -> None:
        self._deployment, self._graph, self._layout = deployment, deployment.graph, deployment.layout
        self._horizon = horizon
        self._sources = len(deployment.sources)
        self._totals = deployment.arrivals.sum(axis=1)
        self.selectivity, self._cycles = linear_statistics(deployment, loads)
        self.variation = WorkVariation(deployment, self.selectivity, self._cycles, self._speeds)
        self.above = sources_above(deployment)
        self._delays_s = watermark_delays(deployment)
        self._ways = self._find()

    def of(self, query: int) -> dict[Way, SourceGains]:
        """Ways to the sinks of a query, and the events that come by each per event of every source that it has."""
        graph, found = self._graph, dict[Way, SourceGains]()
        for j in np.flatnonzero(graph.query_sink & (graph.query == query)).tolist():
            operator = self._deployment.operators[j]
            for way, gains in self._ways[j].items():
                end = way if operator.trigger is None else (*way, BatchHold(j, *self._group(operator)))
                _add(found, end, gains)
        return found

    def seconds_per_result(self, operator: int) -> dict[int, float]:
        """Seconds of work at each server that one result of a window makes, as far as the next window."""
        deployment, graph, layout = self._deployment, self._graph, self._layout
        results = np.zeros(len(deployment.operators))
        results[operator] = 1.0
        seconds: dict[int, float] = {}
        for j in self._behind_operator(operator):
            for k in range(graph.in_start[j], graph.in_start[j + 1]):
                above = graph.in_stream[k] - self._sources
                read = results[above] if above >= 0 else 0.0
                if not read > 0.0:
                    continue
                if not closes(deployment.operators[j]):
                    results[j] += read * self.selectivity[k]
                for r in range(layout.rep_start[j], layout.rep_start[j + 1]):
                    work = read * layout.rep_fraction[r] * self._cycles[k]
                    _add_to(seconds, int(layout.rep_server[r]), work / self._speeds[layout.rep_server[r]])
                    for h in range(layout.hop_start[r], layout.hop_start[r + 1]):
                        link = int(layout.hop_server[h])
                        if layout.hop_input[h] == k and link >= 0:
                            _add_to(seconds, link, read * layout.hop_bytes[h] / self._speeds[link])
        return {server: amount for server, amount in seconds.items() if amount > 0.0}

    def _behind_operator(self, operator: int) -> list[int]:
        """Operators behind one, in their order."""
        behind, todo = set[int](), [operator]
        while todo:
            fresh = {*self._readers.get(self._sources + todo.pop(), ())} - behind
            behind |= fresh
            todo += fresh
        return sorted(behind, key=self._rank.__getitem__)

    @cached_property
    def _readers(self) -> dict[int, list[int]]:
        graph, readers = self._graph, dict[int, list[int]]()
        for j in graph.order.tolist():
            for stream in graph.in_stream[graph.in_start[j] : graph.in_start[j + 1]].tolist():
                readers.setdefault(stream, []).append(j)
        return readers

    @cached_property
    def _rank(self) -> dict[int, int]:
        return {j: i for i, j in enumerate(self._graph.order.tolist())}

    @property
    def _speeds(self) -> FloatArray:
        rows = self._deployment.capacities
        return np.asarray(rows.sum(axis=0) / np.maximum((rows > 0.0).sum(axis=0), 1))

    def _find(self) -> list[dict[Way, SourceGains]]:
        deployment, graph = self._deployment, self._graph
        ways: list[dict[Way, SourceGains]] = [{} for _ in deployment.operators]
        for j in graph.order:
            found: dict[Way, SourceGains] = {}
            read: list[tuple[float, dict[Way, SourceGains]]] = []
            for k in range(graph.in_start[j], graph.in_start[j + 1]):
                stream = int(graph.in_stream[k])
                coming: dict[Way, SourceGains] = {(): {stream: 1.0}}
                if stream >= self._sources:
                    coming = ways[stream - self._sources]
                passage = tuple(self._passage(stream - self._sources, j))
                passed = {(*way, *_behind(way, passage)): gains for way, gains in coming.items()}
                read.append((float(self.selectivity[k]), passed))
            partner = self._windowed_partner(j, [way for _, passed in read for way in passed])
            for share, passed in read:
                for way, gains in passed.items():
                    scaled = {u: gain * share for u, gain in gains.items()}
                    joined = way if _window_at(way) is not None else (*way, *partner)
                    _add(found, self._through(j, joined), scaled)
            ways[j] = self._fewest(found)
        return ways

    def _windowed_partner(self, j: int, ways: list[Way]) -> Way:
        """Holds of the results of windows that a join reads beside events which passed none; the longest way's.

        An event is joined with the results of the window that it falls into, and waits for them. A join that closes
        windows itself holds both sides.
        """
        operator = self._deployment.operators[j]
        if operator.kind != "join" or closes(operator):
            return ()
        held = [way[at:] for way in ways if (at := _window_at(way)) is not None]
        return max(held, key=lambda way: (sum(hold.period_s or 0.0 for hold in way), len(way)), default=())

    def _passage(self, above: int, j: int) -> Iterator[Hold]:
        """Holds between an operator (below 0: a source) and one that reads it."""
        operator = self._deployment.operators[j]
        if above >= 0:
            before = self._deployment.operators[above]
            if before.trigger:
                if (before.query, before.trigger) == (operator.query, operator.trigger):
                    return  # the same batch goes on
                yield BatchHold(above, *self._group(before))
            if before.buffer_timeout_s:
                channels = len(before.replicas) * len(operator.replicas)
                first, end = self._layout.rep_start[j : j + 2]
                servers = tuple(sorted(set(self._layout.rep_server[first:end].tolist())))
                yield BufferHold(above, before.buffer_timeout_s, before.bytes_per_event / channels, j, servers)
        if operator.trigger:
            yield TriggerHold(j, *self._group(operator))

    def _through(self, j: int, way: Way) -> Way:
        """The way with the holds of an operator's pauses, of its window, and of what it commits."""
        operator = self._deployment.operators[j]
        checkpoint, window = operator.checkpoint, operator.window
        if checkpoint is not None and checkpoint.pause_s is not None:
            way = (*way, PauseHold(j, checkpoint.interval_s, _spread(checkpoint.pause_s)))
        if window is not None and closes(operator):
            way = self._through_window(j, operator, window, way)
        if checkpoint is not None and checkpoint.commits and checkpoint.duration_s is not None:
            way = (*way, CommitHold(j, checkpoint.interval_s, _spread(checkpoint.duration_s)))
        return way

    def _through_window(self, j: int, operator: Operator, window: Window, way: Way) -> Way:
        restarts = window.measured_from == WINDOW_END
        batched: list[Hold] = []
        if operator.trigger:  # a window's results are of the batch that closes it, whenever its events were taken
            last = max(i for i, hold in enumerate(way) if isinstance(hold, TriggerHold))
            way = (*way[:last], *way[last + 1 :])
            behind = 0 if window.watermark_delay_s is None else 1
            batched = [TriggerHold(j, *self._group(operator), behind)]
        return (*way, *self._closing(j, window, restarts), *batched, *self._burst(j, window))

    def _closing(self, j: int, window: Window, restarts: bool) -> Iterator[Hold]:
        if window.policy == "count":
            yield CountHold(j, window.period, restarts)
            return
        by_event_time = window.watermark_delay_s is not None
        if window.type == SESSION:
            yield SessionHold(j, window.size, self._results_per_event(j), by_event_time, restarts)
        else:
            yield WindowHold(j, window.period, by_event_time, restarts)
        if window.watermark_delay_s is not None:
            live = tuple(sorted(source for source in self.above[j] if self._totals[source] > 0.0))
            windows = self._deployment.subintervals * self._deployment.subinterval_s / window.period
            yield WatermarkHold(j, float(self._delays_s[j]), live, max(1.0, windows))
        if window.allowed_lateness_s:
            yield LatenessHold(j, window.allowed_lateness_s)

    def _results_per_event(self, j: int) -> float:
        """Results of an operator for each event that it reads, over the horizon."""
        taken, emitted = (clock(j).events.sum() for clock in (self._horizon.taken, self._horizon.emitted))
        return float(emitted / taken) if taken > 0.0 else 0.0

    def _seconds_per_event(self, j: int) -> float:
        """Seconds of an event at the server that takes most of an operator's work."""
        graph, layout = self._graph, self._layout
        first, end = graph.in_start[j : j + 2]
        read = [self._horizon.stream(int(stream)).events.sum() for stream in graph.in_stream[first:end]]
        total = float(np.sum(read))
        if not total > 0.0:
            return 0.0
        cycles = float(np.dot(read, self._cycles[first:end])) / total
        replicas = range(layout.rep_start[j], layout.rep_start[j + 1])
        return max(layout.rep_fraction[r] * cycles / self._speeds[layout.rep_server[r]] for r in replicas)

    def _growth(self, j: int, window: Window) -> KeyedGrowth | None:
        """Growth of a window's results where it takes more than its statistics were measured at, on average."""
        taken = self._horizon.taken(j)
        mean = taken.total / taken.horizon_s * window.size
        if window.measured_events is None or mean <= _GROWN * window.measured_events:
            return None
        return KeyedGrowth.of(
            window.size, window.measured_events, self._results_per_event(j) * window.period / window.size
        )

    def _burst(self, j: int, window: Window) -> Iterator[Hold]:
        growth = self._growth(j, window)
        if window.work_at == AT_CLOSE:
            yield ClosingHold(j, window.period, self._seconds_per_event(j), growth)
        if window.type == SESSION:  # they end one by one
            return
        seconds = max(self.seconds_per_result(j).values(), default=0.0)
        if seconds > 0.0:
            yield BurstHold(j, window.period, window.policy == "count", seconds, growth)

    def _group(self, operator: Operator) -> tuple[float, float, tuple[int, ...]]:
        """Interval, fixed time and servers of the batches that an operator runs in."""
        trigger, layout = operator.trigger, self._layout
        assert trigger is not None
        alike = [
            i
            for i, other in enumerate(self._deployment.operators)
            if (other.query, other.trigger) == (operator.query, trigger)
        ]
        servers = {int(s) for i in alike for s in layout.rep_server[layout.rep_start[i] : layout.rep_start[i + 1]]}
        return trigger.interval_s, trigger.overhead_s or 0.0, tuple(sorted(servers))

    def total(self, gains: SourceGains) -> float:
        """Events of a way."""
        read, factors = gain_arrays(gains)
        return float(factors @ self._totals[read])

    def _fewest(self, ways: dict[Way, SourceGains]) -> dict[Way, SourceGains]:
        """At most so many ways: events of those with the fewest holds are held as long as the largest."""
        if len(ways) <= MAX_WAYS:
            return ways
        listed = sorted(ways, key=lambda way: (len(way), self.total(ways[way])), reverse=True)
        kept = {way: ways[way] for way in listed[:MAX_WAYS]}
        for way in listed[MAX_WAYS:]:
            _add(kept, listed[0], ways[way])
        return kept


def _window_at(way: Way) -> int | None:
    """Position of the first hold of a window in a way."""
    return next((i for i, hold in enumerate(way) if isinstance(hold, (WindowHold, CountHold, SessionHold))), None)


def _behind(way: Way, passage: Way) -> Way:
    """The passage after a way: what was let go at one time reaches its buffers at one time."""
    is_let_go = any(not isinstance(hold, PauseHold) for hold in way)
    return tuple(
        replace(hold, is_second=True) if isinstance(hold, BufferHold) and (is_let_go or i) else hold
        for i, hold in enumerate(passage)
    )


def _spread(values: tuple[float, ...]) -> tuple[float, float, float]:
    least, mean, most = values
    return least, mean, most


def gain_arrays(gains: SourceGains) -> tuple[IntArray, FloatArray]:
    """Sources that have a part in a way, in their order, and events per event of each."""
    read = sorted(u for u, gain in gains.items() if gain != 0.0)
    return np.array(read, dtype=np.int64), np.array([gains[u] for u in read], dtype=np.float64)


def _add(ways: dict[Way, SourceGains], way: Way, gains: SourceGains) -> None:
    known = ways.get(way, {})
    ways[way] = {**known, **{u: known.get(u, 0.0) + gain for u, gain in gains.items()}}


def _add_to(amounts: dict[int, float], key: int, amount: float) -> None:
    amounts[key] = amounts.get(key, 0.0) + float(amount)


class WorkVariation:
    """Random work of a deployment's servers: costs, events that are filtered out, and statistics of a sample."""

    def __init__(self, deployment: Deployment, selectivity: FloatArray, cycles: FloatArray, speeds: FloatArray) -> None:
        self._deployment, self._cycles, self._speeds = deployment, cycles, speeds
        self._noises = input_costs(deployment)
        self._totals = deployment.arrivals.sum(axis=1)
        graph, sources = deployment.graph, len(deployment.sources)
        self._gains: list[dict[int, float]] = [{u: 1.0} for u in range(sources)]  # of every stream, by source
        self._gains += [{} for _ in deployment.operators]
        for j in graph.order:
            own = self._gains[sources + j]
            for k in range(graph.in_start[j], graph.in_start[j + 1]):
                for u, gain in self._gains[graph.in_stream[k]].items():
                    own[u] = own.get(u, 0.0) + gain * float(selectivity[k])

    def of_server(self, server: int, seconds: float) -> tuple[float, float]:
        """Standard deviation of a batch's work of so many seconds, and the error that all batches share, in seconds."""
        inputs, shares = self._inputs(server)
        amounts = self._cycles[inputs] / self._speeds[server]
        gains = [self._gains[stream] for stream in self._deployment.graph.in_stream[inputs]]
        read = sorted({u for row in gains for u in row})
        totals = self._totals[read]
        events = np.array([[row.get(u, 0.0) for u in read] for row in gains]) * shares[:, None]
        work = (events * totals) * amounts[:, None]  # (inputs, sources that are read)
        total = float(work.sum())
        if not total > 0.0:
            return 0.0, 0.0
        noises = [self._noises[k] for k in inputs]
        parts = work.sum(axis=1) / total
        variance = float((work.sum(axis=1) * amounts * np.array([noise.cv2 for noise in noises])).sum())
        variance += sum(float(count) * thinning_variance(events[:, u], amounts) for u, count in enumerate(totals))
        slow = float((parts**2 * np.array([noise.slow for noise in noises])).sum())
        ends = _ENDS * float((totals * (events * amounts[:, None]).sum(axis=0) ** 2).sum())
        ends /= self._deployment.subintervals
        errors = parts * np.array([math.hypot(noise.cost_error, noise.output_error) for noise in noises])
        deviation = math.sqrt(variance / total * seconds + slow * seconds**2 + ends)
        return deviation, seconds * math.hypot(*errors.tolist())

    def _inputs(self, server: int) -> tuple[list[int], FloatArray]:
        """Inputs of the operators on a server, and the share of their events that comes to it."""
        layout, graph = self._deployment.layout, self._deployment.graph
        found = [
            (k, float(layout.rep_fraction[r]))
            for r in np.flatnonzero(layout.rep_server == server)
            for k in range(graph.in_start[layout.rep_operator[r]], graph.in_start[layout.rep_operator[r] + 1])
        ]
        return [k for k, _ in found], np.array([share for _, share in found])
