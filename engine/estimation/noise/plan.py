"""Tables of servers, stages and parts of a deployment for its walk, from its network and statistics."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.document.deployment import Deployment
from engine.document.elements import THESE
from engine.estimation.backlog import lead_work
from engine.estimation.flow import Flow
from engine.estimation.loads import Loads, loads_of
from engine.estimation.noise.dispersion import ArrivalNoise, CostNoise, arrival_noise, input_costs, thinning_variance
from engine.estimation.noise.netputs import drawn_work
from engine.estimation.noise.network import Work, input_draws, network_of
from engine.estimation.noise.path_kernel import run_walk, stage_shapes
from engine.estimation.noise.streams import name_key, named_rng, spread_normals
from engine.estimation.noise.tables import (
    KNOTS,
    POOL,
    CoarseArrivals,
    PartTable,
    RandomPools,
    ServerTable,
    SingleArray,
    StageTable,
    WalkFigures,
    WalkStart,
)

__all__ = ["WalkPlan"]

_SMOOTHED_S, _MIN_WINDOW = 10.0, 20  # a server's load is taken over so many seconds, and at least so many slices
_LIGHT = 1.2  # largest variation of costs that is drawn as a gamma
_SAMPLES = 512  # slices that usual values are taken from
_BLOCK = 16  # slices whose latencies stay in the processor's cache
_MAX_HOLD = 8  # slices for which what rests on smoothed loads is left as it is
_MIN_SERVICE_S = 1e-6
_BINS_BELOW = 6  # octaves of the histogram below an event's own service


@dataclass(frozen=True, eq=False)
class _Entry:
    """Work of one event of a source at a server, in cycles or bytes, and its variance."""

    mean: float
    cost: float
    thinning: float
    gain: FloatArray  # (K,)


class WalkPlan:
    """A deployment as the compiled walk takes it, and its walk; of the queries in `only`, or of all.

    Latencies of events count from the slice `counted_from` (from 0) on.
    """

    def __init__(
        self,
        deployment: Deployment,
        flowed: Flow,
        paths: int,
        seed: int,
        only: Collection[int] | None = None,
        counted_from: int = 0,
    ) -> None:
        self.deployment, self.paths = deployment, paths
        self.seed = seed
        self.lead = flowed.lead
        self.started = np.zeros((0, paths + 1))  # latency of every stage where paths begin, the last without noise
        self.w, self.d = deployment.subinterval_s, deployment.subintervals
        self.window = max(_MIN_WINDOW, int(_SMOOTHED_S / self.w))
        self.hold = max(1, min(self.window // 5, _MAX_HOLD))
        self.arrivals = np.ascontiguousarray(deployment.arrivals)
        self.counted = self.arrivals.copy()
        self.counted[:, :counted_from] = 0.0
        self.totals = self.arrivals.sum(axis=1)
        rows = [by_query.reshape(self.d, -1).max(axis=1) for by_query in flowed.by_query.values()]
        self.latency = np.ascontiguousarray(np.array(rows).reshape(len(rows), self.d))
        self.sources = [arrival_noise(source, self.w) for source in deployment.sources]
        self.costs = input_costs(deployment)
        self.inputs = ["<-".join((op.id, entry.source)) for op in deployment.operators for entry in op.inputs]
        loads = loads_of(deployment)
        self.speeds = _usual_capacities(deployment)
        draws = input_draws(self.costs, self.inputs, paths, seed)
        self.variation = draws.cv2
        self.network = network_of(deployment, loads, draws, self.speeds)
        if only is not None:
            self.network = self.network.only(only)
        self.servers = list(self.network.work)
        self.index = {server: i for i, server in enumerate(self.servers)}
        self.entries = {s: {u: self._entry(parts) for u, parts in self.network.work[s].items()} for s in self.servers}
        self.scale = self._scale(loads)
        self.pools = _pools(paths, seed)
        self.coarse = self._coarse()

    @cached_property
    def split(self) -> list[tuple[str, frozenset[int]]]:
        """Operators of several replicas, each with the servers of these."""
        layout = self.deployment.layout
        return [
            (operator.id, frozenset(layout.rep_server[layout.rep_start[j] : layout.rep_start[j + 1]].tolist()))
            for j, operator in enumerate(self.deployment.operators)
            if len(operator.replicas) > 1
        ]

    def walk(self) -> tuple[PartTable, WalkFigures]:
        """Parts of queries, and the figures of all paths."""
        servers = self._server_plan()
        stages, shift, keep = self._stage_plan(servers)
        parts = self._part_plan(shift, keep)
        block = self._block
        if self.deployment.statistics_of == THESE:
            servers = servers._replace(total=self._total_scales(servers, block))
        figures = run_walk(
            servers,
            stages,
            parts,
            self.coarse,
            self.pools,
            self.arrivals,
            self.counted,
            self.latency,
            self.w,
            self.window,
            self.hold,
            block,
            self._start(servers),
        )
        return parts, figures

    def _start(self, servers: ServerTable) -> WalkStart:
        """State of every stage at the horizon's beginning: what waits is work that each path draws for itself."""
        stages, paths = self.network.stages, self.paths
        if self.lead is None:
            nothing = np.zeros((0, paths), dtype=np.float32)
            return WalkStart(nothing, nothing, np.zeros((0, 2)), nothing)
        load = lead_work(self.deployment, self.lead).load
        count = paths + 1  # the last is without noise
        last, held, out = (np.zeros((len(stages), count)) for _ in range(3))
        for at, stage in enumerate(stages):
            server, before = self.index[stage.server], stage.before
            work_s = load[stage.server] / self.speeds[stage.server]
            drawn = self._drawn_backlog(stage.server, float(work_s.sum()))
            row = int(servers.series[server])
            clock = _WorkClock(servers.done[row], float(servers.ahead[row]), self.w) if row >= 0 else _PLAIN_CLOCK
            came = out[before] + stage.delay_s if before >= 0 else np.zeros(count)
            held[at] = clock.work_s(came)
            # Done when all of it is, and no sooner than the last of it after it has come.
            last[at] = np.maximum(drawn, np.where(came > 0.0, held[at] + work_s[-1], 0.0)) if drawn.any() else held[at]
            out[at] = np.maximum(clock.time_s(last[at]), came)
        self.started = out
        return WalkStart(
            last[:, :paths].astype(np.float32),
            held[:, :paths].astype(np.float32),
            np.stack([last[:, paths], held[:, paths]], axis=1),
            out[:, :paths].astype(np.float32),
        )

    def _drawn_backlog(self, server: int, work_s: float) -> FloatArray:
        """Seconds of a server's waiting work in every path, and on the mean, (K + 1,)."""
        entries = self.entries[server]
        weights = {u: self.totals[u] for u in entries} if any(self.totals[u] > 0.0 for u in entries) else {}
        mean = sum((weights.get(u, 1.0) * entry.mean for u, entry in entries.items()), 0.0)
        if not (work_s > 0.0 and mean > 0.0):
            return np.full(self.paths + 1, work_s)
        gain = sum((weights.get(u, 1.0) * entry.gain for u, entry in entries.items()), np.zeros(self.paths))
        varied = sum(weights.get(u, 1.0) * (entry.cost + entry.thinning) for u, entry in entries.items())
        deviation_s = math.sqrt(work_s * varied / mean / self.speeds[server])
        name = f"backlog {self.deployment.servers[server].name}"
        drawn = work_s * gain / mean + deviation_s * spread_normals(self.paths, named_rng(self.seed, name))
        return np.append(np.maximum(drawn, 0.0), work_s)

    def _entry(self, parts: Sequence[Work]) -> _Entry:
        events = np.array([work.events[-1] for work in parts])
        amounts = np.array([work.amount[-1] for work in parts])
        cv2 = np.array([self.costs[work.entry].cv2 if work.entry >= 0 else 0.0 for work in parts])
        gain = np.sum([work.events * work.amount for work in parts], axis=0)
        return _Entry(
            mean=float(gain[-1]),
            cost=float((events * amounts**2 * cv2).sum()),
            thinning=thinning_variance(events, amounts),
            gain=gain[:-1],
        )

    def _scale(self, loads: Loads) -> FloatArray:
        """Seconds of work per unit, (1 or d, n): Mace's loads hold what is not linear in the events."""
        constant = 1.0 / self.speeds[self.servers][None, :]
        if not self.deployment.graph.models and self.deployment.combine.kind == "sum":
            return constant
        linear = np.zeros((self.d, len(self.servers)))
        for i, s in enumerate(self.servers):
            for u, entry in self.entries[s].items():
                linear[:, i] += self.arrivals[u] * entry.mean
        found = loads.by_time[:, self.servers]
        return np.asarray(constant * np.divide(found, linear, out=np.ones_like(linear), where=linear > 0.0))

    def _server_plan(self) -> ServerTable:
        n, paths = len(self.servers), self.paths
        pairs = [(s, u, entry) for s in self.servers for u, entry in self.entries[s].items()]
        series, done, ahead = self._capacity_series()
        slow = [self._slow_component(s) for s in self.servers]
        names = [self.deployment.servers[s].name for s in self.servers]
        mean = np.array([entry.mean for _, _, entry in pairs])
        inside = np.array([self.sources[u].inside for _, u, _ in pairs])
        return ServerTable(
            key=_keys(names),
            start=_starts([len(self.entries[s]) for s in self.servers]),
            source=np.array([u for _, u, _ in pairs], dtype=np.int64),
            mean=mean,
            cost=np.array([entry.cost for _, _, entry in pairs]),
            thinning=np.array([entry.thinning for _, _, entry in pairs]),
            inside=inside * mean**2,
            gain=np.array([entry.gain for _, _, entry in pairs], dtype=np.float32).reshape(len(pairs), paths),
            scale=self.scale,
            light=np.array([self._is_light(s) for s in self.servers], dtype=np.int64),
            unsure=np.array([self._unsure(s) for s in self.servers], dtype=np.float32).reshape(n, paths),
            slow_keep=np.array([math.exp(-self.w / length) if length else 0.0 for _, length in slow]),
            slow_sd=np.sqrt(np.array([variance for variance, _ in slow])),
            total=np.ones((n, paths), dtype=np.float32),
            series=series,
            done=done,
            ahead=ahead,
        )

    def _capacity_series(self) -> tuple[IntArray, FloatArray, FloatArray]:
        """Servers whose capacity varies: row of each, seconds of work done before every slice, capacity after all."""
        rows = self.deployment.capacities
        series = np.full(len(self.servers), -1, dtype=np.int64)
        done: list[FloatArray] = []
        ahead: list[float] = []
        for i, s in enumerate(self.servers):
            share = rows[:, s] / self.speeds[s]
            if len(rows) > 1 and (share != share[0]).any():
                series[i] = len(done)
                done.append(np.concatenate([[0.0], np.cumsum(share * self.w)]))
                ahead.append(share[-1])
        return series, np.array(done).reshape(len(done), self.d + 1), np.array(ahead)

    def _is_light(self, server: int) -> bool:
        cost = sum(self.totals[u] * entry.cost for u, entry in self.entries[server].items())
        fixed = sum(
            self.totals[u] * work.events[-1] * work.amount[-1] ** 2
            for u, parts in self.network.work[server].items()
            for work in parts
        )
        return bool(cost <= _LIGHT * fixed)

    def _unsure(self, server: int) -> FloatArray:
        """Factor on the deviation of a server's work by costs of every path, (K,)."""
        drawn, usual = np.zeros(self.paths), 0.0
        for u, parts in self.network.work[server].items():
            for part in parts:
                if part.entry >= 0:
                    weight = self.totals[u] * part.events[-1] * part.amount[-1] ** 2
                    drawn += weight * self.variation[part.entry, :-1]
                    usual += weight * self.variation[part.entry, -1]
        return np.sqrt(drawn / usual) if usual > 0.0 else np.ones(self.paths)

    def _slow_component(self, server: int) -> tuple[float, float]:
        """Relative variance of a server's slow cost component and its correlation time in seconds."""
        work: dict[int, float] = {}
        rate: dict[int, float] = {}
        for u, parts in self.network.work[server].items():
            for part in parts:
                events = float(self.totals[u] * part.events[-1])
                work[part.entry] = work.get(part.entry, 0.0) + events * part.amount[-1]
                rate[part.entry] = rate.get(part.entry, 0.0) + events / (self.w * self.d)
        total, variance, weighted = sum(work.values()), 0.0, 0.0
        for k in work:
            noise = self.costs[k] if k >= 0 else CostNoise()
            if noise.slow > 0.0 and rate[k] > 0.0 and total > 0.0:
                share = (work[k] / total) ** 2 * noise.slow
                variance += share
                weighted += share * noise.length / rate[k]
        return variance, weighted / variance if variance > 0.0 else 0.0

    def _stage_plan(self, servers: ServerTable) -> tuple[StageTable, FloatArray, FloatArray]:
        """Stages, with the usual correction of waits and the usual share of a slice's count that shows at its end."""
        stages = self.network.stages
        sampled = _SampledSlices(self, servers)
        seen: list[dict[int, float]] = []  # dispersion of each source's events as they leave a stage
        depth: list[int] = []
        delta: list[FloatArray] = []
        keep: list[FloatArray] = []
        rows: dict[str, list[float]] = {name: [] for name in ("source", "mean", "direct", "seen", "spread")}
        kappas, past, shared = [], [], []
        wider: list[FloatArray] = []
        wider_delta: list[FloatArray] = []
        usual: list[float] = []  # corrections
        for stage in stages:
            entries, before = self.entries[stage.server], stage.before
            inside = sum(self.totals[u] * entry.mean**2 for u, entry in entries.items())
            cv2 = self._variation(stage.server, inside)
            kappas.append(min(1.0, (2.0 + cv2) / 3.0))
            arriving = {u: self.sources[u].inside for u in entries}
            if before >= 0:
                arriving |= {u: index for u, index in seen[before].items() if u in entries}
            spread = {u: arriving[u] * e.mean**2 + e.cost + e.thinning for u, e in entries.items()}
            by_costs = sum(self.totals[u] * e.cost for u, e in entries.items())
            whole = sum(self.totals[u] * spread[u] for u in entries)
            share = by_costs / whole if whole > 0.0 else 0.0
            wider.append(1.0 + share * (servers.unsure[self.index[stage.server]].astype(np.float64) ** 2 - 1.0))
            for u, entry in entries.items():
                rows["source"].append(u)
                rows["mean"].append(entry.mean)
                rows["direct"].append(0.0 if before < 0 or u in seen[before] else entry.mean)
                rows["seen"].append(arriving[u] * entry.mean**2)
                rows["spread"].append(spread[u])
            load, shown, correction = sampled.shape(self.index[stage.server], spread, kappas[-1])
            delta.append(correction + (delta[before] if before >= 0 else 0.0))
            own = _median(correction)
            earlier = usual[before] if before >= 0 else 0.0
            usual.append(_median(delta[-1]) if before >= 0 else own)
            above = wider_delta[before] if before >= 0 else np.ones(self.paths)
            both = own + earlier
            wider_delta.append((own * wider[-1] + earlier * above) / both if both > 0.0 else wider[-1])
            keep.append(np.maximum(shown, keep[before]) if before >= 0 else shown)
            square = load * load
            seen.append({u: (1.0 - square) * arriving[u] + square * cv2 for u in entries})
            depth.append(1 + (depth[before] if before >= 0 else 0))
            passed = self.network.passed(len(depth) - 1)
            past.append([self.index[s] for s in passed])
            shared.append([self._shared(stage.server, other) for other in passed])
        common = [pairs for stage_shared in shared for pairs in stage_shared]
        self.stage_keys = self._stage_keys()
        plan = StageTable(
            key=np.array(self.stage_keys, dtype=np.int64),
            server=np.array([self.index[stage.server] for stage in stages], dtype=np.int64),
            before=np.array([stage.before for stage in stages], dtype=np.int64),
            delay=np.array([stage.delay_s for stage in stages], dtype=np.float64),
            depth=np.array(depth, dtype=np.int64),
            start=_starts([len(self.entries[stage.server]) for stage in stages]),
            source=np.array(rows["source"], dtype=np.int64),
            mean=np.array(rows["mean"], dtype=np.float64),
            direct=np.array(rows["direct"], dtype=np.float64),
            seen=np.array(rows["seen"], dtype=np.float64),
            spread=np.array(rows["spread"], dtype=np.float64),
            kappa=np.array(kappas, dtype=np.float64),
            wider=np.array(wider, dtype=np.float32).reshape(len(stages), self.paths),
            wider_delta=np.array(wider_delta, dtype=np.float32).reshape(len(stages), self.paths),
            past_start=_starts([len(passed) for passed in past]),
            past_server=np.array([s for passed in past for s in passed], dtype=np.int64),
            shared_start=_starts([len(pairs) for pairs in common]),
            shared_source=np.array([u for pairs in common for u in pairs], dtype=np.int64),
            shared=np.array([amount for pairs in common for amount in pairs.values()], dtype=np.float64),
        )
        return plan, np.array(usual, dtype=np.float64), np.array([_median(row) for row in keep], dtype=np.float64)

    def _stage_keys(self) -> list[int]:
        """Key of every stage: of its server under that of the stage before."""
        keys: list[int] = []
        for stage in self.network.stages:
            name = self.deployment.servers[stage.server].name
            keys.append(name_key(name, keys[stage.before] if stage.before >= 0 else 0))
        return keys

    def _variation(self, server: int, inside: float) -> float:
        """Variance of a server's work by costs and filtered events over that by the number of events."""
        total = sum(self.totals[u] * (entry.cost + entry.thinning) for u, entry in self.entries[server].items())
        return float(total / inside) if inside > 0.0 else 0.0

    def _shared(self, server: int, other: int) -> dict[int, float]:
        """Covariance inside a slice, per event of each source, of what two servers get of the same events."""
        own, others = self.entries[server], self.entries[other]
        return {u: self.sources[u].inside * own[u].mean * others[u].mean for u in own if u in others}

    def _part_plan(self, shift: FloatArray, keep: FloatArray) -> PartTable:
        queries = range(len(self.deployment.queries))
        found = [(q, route) for q in queries for route in self.network.routes[q]]
        stage = np.array([route.stage for _, route in found], dtype=np.int64)
        query = np.array([q for q, _ in found], dtype=np.int64)
        service = np.array([self.network.services[q][0] for q in queries], dtype=np.float64)
        variation = np.array([self.service_cv2(q) for q in queries], dtype=np.float64).reshape(-1, self.paths)
        names = self.deployment.queries
        keys = [name_key(names[q], self.stage_keys[route.stage]) for q, route in found]
        return PartTable(
            key=np.array(keys, dtype=np.int64),
            query=query,
            stage=stage,
            start=_starts([len(route.events) for _, route in found]),
            source=np.array([u for _, route in found for u in route.events], dtype=np.int64),
            events=np.array([x[-1] for _, route in found for x in route.events.values()], dtype=np.float64),
            shift=shift[stage],
            full=service[query] * (1.0 - keep[stage]),
            service=service,
            deviation=np.sqrt(np.log1p(variation)).astype(np.float32),
            least=np.maximum(service, _MIN_SERVICE_S) / 2.0**_BINS_BELOW,
        )

    def service_cv2(self, query: int) -> FloatArray:
        """Variation of one event's service in every path, (K,)."""
        seconds, variance = self.network.services[query]
        return np.asarray(variance[:-1] / seconds**2) if seconds > 0.0 else np.zeros(self.paths)

    @property
    def _block(self) -> int:
        """Slices of a block: as many for every deployment, since sums are rounded where blocks end.

        A whole number of the stretches that `hold` counts.
        """
        return int(min(max(1, _BLOCK // self.hold) * self.hold, self.d))

    def _coarse(self) -> CoarseArrivals:
        coarse = [u for u, noise in enumerate(self.sources) if noise.step_s > self.w]
        noises: list[ArrivalNoise] = [self.sources[u] for u in coarse]
        row = np.full(len(self.sources), -1, dtype=np.int64)
        row[coarse] = np.arange(len(coarse))
        names = [self.deployment.sources[u].id for u in coarse]
        slices = np.array([round(noise.step_s / self.w) for noise in noises], dtype=np.int64)
        knots = np.minimum(slices, KNOTS)
        drawn = [x.draw_rates(self.paths, named_rng(self.seed, n)) for n, x in zip(names, noises, strict=True)]
        variance, length = np.array(drawn).reshape(-1, 2, self.paths).transpose(1, 0, 2)
        apart = (slices / knots * self.w)[:, None]
        return CoarseArrivals(
            key=_keys(names),
            row=row,
            source=np.array(coarse, dtype=np.int64),
            slices=slices,
            knots=knots,
            deviation=np.sqrt(np.log1p(variance)).astype(np.float32),
            keep=np.exp(-apart / length).astype(np.float32),
        )

    def _total_scales(self, servers: ServerTable, block: int) -> SingleArray:
        """Factors that make each path's work of the horizon the known one: only its order in time is random."""
        drawn = drawn_work(servers, self.coarse, self.pools, self.arrivals, self.w, block)
        known = np.zeros_like(drawn)
        for i, s in enumerate(self.servers):
            for u, entry in self.entries[s].items():
                known[i] += (self.arrivals[u] * self.scale[:, i]).sum() * entry.gain
        return np.divide(known, drawn, out=np.ones_like(drawn), where=drawn > 0.0).astype(np.float32)


@dataclass(frozen=True, eq=False)
class _WorkClock:
    """From seconds after the horizon's beginning to seconds of work at the usual capacity, and back."""

    done: FloatArray  # (d + 1,) work before every slice
    ahead: float
    w: float

    def work_s(self, times_s: FloatArray) -> FloatArray:
        end_s = (len(self.done) - 1) * self.w
        within = np.interp(times_s, np.arange(len(self.done)) * self.w, self.done)
        return np.asarray(within + np.maximum(times_s - end_s, 0.0) * self.ahead)

    def time_s(self, work_s: FloatArray) -> FloatArray:
        """The first instant at which so much is done."""
        d = len(self.done) - 1
        q = np.clip(np.searchsorted(self.done, work_s, side="left"), 1, d)
        rate = (self.done[q] - self.done[q - 1]) / self.w
        inside = (q - 1) * self.w + np.divide(
            work_s - self.done[q - 1], rate, out=np.zeros_like(work_s), where=rate > 0.0
        )
        beyond = work_s > self.done[d]
        return np.where(work_s <= 0.0, 0.0, np.where(beyond, d * self.w + (work_s - self.done[d]) / self.ahead, inside))


class _PlainClock:
    """The clock of a server of constant capacity: both are the same."""

    def work_s(self, times_s: FloatArray) -> FloatArray:
        return times_s

    def time_s(self, work_s: FloatArray) -> FloatArray:
        return work_s


_PLAIN_CLOCK = _PlainClock()


class _SampledSlices:
    """Smoothed loads of up to `_SAMPLES` slices, from which usual values are taken."""

    def __init__(self, plan: WalkPlan, servers: ServerTable) -> None:
        at = np.unique(np.linspace(0, plan.d - 1, min(plan.d, _SAMPLES)).astype(np.int64))
        first = np.maximum(at - plan.window, 0)
        self._plan, self._servers, self._at, self._first = plan, servers, at, first
        self._smooth = np.empty((len(plan.sources), len(at)))
        for u, counts in enumerate(plan.arrivals):
            running = np.concatenate([[0.0], np.cumsum(counts)])
            self._smooth[u] = (running[at + 1] - running[first]) / (at + 1 - first)
        self._of_server: dict[int, _SampledServer] = {}

    def shape(self, i: int, spread: dict[int, float], kappa: float) -> tuple[float, FloatArray, FloatArray]:
        """Mean load of server i, share of a count that shows at its slice's end, correction of waits, (samples,)."""
        if i not in self._of_server:
            self._of_server[i] = self._sampled(i)
        server = self._of_server[i]
        variance = np.array(list(spread.values())) @ server.events
        keep, delta = stage_shapes(server.load, variance, kappa, server.room)
        return server.mean_load, keep, delta

    def _sampled(self, i: int) -> _SampledServer:
        plan, row = self._plan, self._servers.series[i]
        entries = plan.entries[plan.servers[i]]
        scale = plan.scale[self._at if len(plan.scale) > 1 else 0, i]
        room = np.full(len(self._at), plan.w)
        if row >= 0:
            done = self._servers.done[row]
            room = (done[self._at + 1] - done[self._first]) / (self._at + 1 - self._first)
        smooth = self._smooth[list(entries)]
        load = np.array([entry.mean for entry in entries.values()]) @ smooth * scale
        rho = np.clip(np.divide(load, room, out=np.ones_like(load), where=room > 0.0), 0.3, 1.0)
        return _SampledServer(rho, float(rho.mean()), smooth * scale**2, room)


class _SampledServer(NamedTuple):
    """A server in sampled slices: its load, events of each of its sources in squared seconds of work, and room."""

    load: FloatArray
    mean_load: float
    events: FloatArray  # (sources of the server, samples)
    room: FloatArray


def _usual_capacities(deployment: Deployment) -> FloatArray:
    """Capacity of every server, (n,); of a series, its mean where it is above 0."""
    rows = deployment.capacities
    running = (rows > 0.0).sum(axis=0)
    return np.asarray(rows.sum(axis=0) / np.maximum(running, 1))


@lru_cache(maxsize=4)
def _pools(paths: int, seed: int) -> RandomPools:
    """Pools of random numbers; estimates that are compared share them."""
    count, rng = POOL + paths, named_rng(seed, "pools")
    exponential = rng.standard_exponential(count)
    return RandomPools(
        seed=int(np.random.SeedSequence(seed).generate_state(1, np.uint32)[0]),
        normal=rng.standard_normal(count).astype(np.float32),
        expo=(2.0 * exponential).astype(np.float32),
        log_expo=np.log(np.maximum(-np.log1p(-np.exp(-exponential)), 1e-12)).astype(np.float32),
        uniform=rng.random(count).astype(np.float32),
    )


def _starts(counts: Sequence[int]) -> IntArray:
    return np.concatenate([[0], np.cumsum(np.array(counts, dtype=np.int64))]).astype(np.int64)


def _keys(names: Sequence[str]) -> IntArray:
    return np.array([name_key(name) for name in names], dtype=np.int64)


def _median(values: FloatArray) -> float:
    """The middle of an uneven number of values, else the greater of two."""
    middle = len(values) // 2
    return float(np.partition(values, middle)[middle])
