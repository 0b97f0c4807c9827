"""Horizon of a deployment as holds look it up: events over time, work of servers, micro-batches."""

from __future__ import annotations

import numpy as np

from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.estimation.loads import Loads
from engine.estimation.waits.batches import BatchSchedule, ServerWork, batch_schedule
from engine.estimation.waits.clocks import EventClock

__all__ = ["Horizon"]

_TINY = 1e-300  # in the place of a capacity of 0


class Horizon:
    """Series of a deployment and its loads; each is made when it is first asked for."""

    def __init__(self, deployment: Deployment, loads: Loads) -> None:
        self._deployment, self._loads = deployment, loads
        self._clocks: dict[tuple[str, int], EventClock] = {}
        self._work: dict[tuple[int, ...], ServerWork] = {}
        self._use: dict[int, FloatArray] = {}
        self._schedules: dict[tuple[tuple[int, ...], float, float, float], BatchSchedule] = {}

    def arrivals(self, source: int) -> EventClock:
        """Events of a source."""
        return self._clock("source", source)

    def taken(self, operator: int) -> EventClock:
        """Events that an operator reads."""
        return self._clock("taken", operator)

    def emitted(self, operator: int) -> EventClock:
        """Events that an operator puts out."""
        return self._clock("emitted", operator)

    def stream(self, number: int) -> EventClock:
        """Events of a stream: of a source, or of an operator, whose numbers follow."""
        sources = len(self._deployment.sources)
        return self.arrivals(number) if number < sources else self.emitted(number - sources)

    def work(self, servers: tuple[int, ...]) -> ServerWork:
        """Work of some servers."""
        if servers not in self._work:
            capacities, listed = self._deployment.capacities, list(servers)
            load = np.ascontiguousarray(self._loads.by_time[:, listed].T)
            room = np.ascontiguousarray(capacities[:, listed].T)
            self._work[servers] = ServerWork.of(load, room, self._deployment.subinterval_s)
        return self._work[servers]

    def use(self, operator: int, times_s: FloatArray) -> FloatArray:
        """Share of a server that an operator takes at each time, 1 at most; of its replicas, by their events."""
        if operator not in self._use:
            deployment, layout = self._deployment, self._deployment.layout
            load = self._loads.operator(np.array([operator])).load[0]
            replicas = slice(layout.rep_start[operator], layout.rep_start[operator + 1])
            fractions, servers = layout.rep_fraction[replicas], layout.rep_server[replicas]
            room = deployment.capacities[:, servers] * deployment.subinterval_s
            share = np.minimum(load[:, None] * fractions / np.maximum(room, _TINY), 1.0)
            self._use[operator] = np.broadcast_to(share @ fractions, len(load))
        steps = np.clip(times_s / self._deployment.subinterval_s, 0, len(self._use[operator]) - 1)
        return np.asarray(self._use[operator][steps.astype(np.int64)])

    def schedule(self, servers: tuple[int, ...], interval_s: float, overhead_s: float, phase_s: float) -> BatchSchedule:
        """Micro-batches on some servers, where the horizon begins `phase_s` after a multiple of the interval."""
        key = servers, interval_s, overhead_s, phase_s % interval_s
        if key not in self._schedules:
            self._schedules[key] = batch_schedule(self.work(servers), interval_s, overhead_s, key[3])
        return self._schedules[key]

    def _clock(self, kind: str, number: int) -> EventClock:
        key = kind, number
        if key not in self._clocks:
            deployment, graph = self._deployment, self._deployment.graph
            if kind == "source":
                events = deployment.arrivals[number]
            elif kind == "emitted":
                events = self._loads.operator(np.array([number])).output[0]
            else:
                streams = graph.in_stream[graph.in_start[number] : graph.in_start[number + 1]]
                read = [self.stream(int(s)) for s in streams]
                events = np.sum([clock.events for clock in read], axis=0)
            self._clocks[key] = EventClock(np.asarray(events, dtype=np.float64), deployment.subinterval_s)
        return self._clocks[key]
