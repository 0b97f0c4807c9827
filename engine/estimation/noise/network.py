"""The network as a walk sees it: work of source events on servers, stages, and the routes by which events come.

A stage is one server after one way to it. Events that came by different servers stay apart, because each stage holds up
what arrives behind it. Numbers per path are arrays (K + 1,): K paths within the errors of the statistics, then the
statistics as given.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.estimation.loads import Loads
from engine.estimation.noise.dispersion import CostNoise
from engine.estimation.noise.streams import SAMPLE, named_rng, spread_draws, spread_normals

__all__ = ["InputDraws", "Network", "Route", "Stage", "Work", "input_draws", "network_of"]

_MAX_ROUTES = 4  # of one operator's replica
_USUAL_CV2, _USUAL_SPREAD, _USUAL_FREEDOM = 2.0, 1.0, 3.0  # of costs before anything is measured
_MIN_SCALE = 0.05  # a sample's error cannot make a cost negative
Gains = dict[int, FloatArray]  # events per event of each source
Service = tuple[float, FloatArray]  # seconds of one event, and their variance (K + 1,)


class InputDraws(NamedTuple):
    """Inputs' factors of cost and of output, and variations of costs, (e, K + 1) each."""

    cost: FloatArray
    output: FloatArray
    cv2: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """Work that events of one source bring to a server at one input: events, and cycles (bytes) each."""

    events: FloatArray
    amount: FloatArray
    entry: int  # number of the input, -1 for the bytes of a link


@dataclass(frozen=True, slots=True)
class Stage:
    """A server after another stage (-1: sources), `delay_s` from it."""

    server: int
    before: int
    delay_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """Events that leave by one stage."""

    stage: int
    events: Gains


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """Work by server and source, stages in an order in which each follows the one before, routes of every query."""

    work: dict[int, dict[int, list[Work]]]
    stages: list[Stage]
    routes: dict[int, list[Route]] = field(default_factory=dict)
    services: dict[int, Service] = field(default_factory=dict)

    def passed(self, stage: int) -> list[int]:
        """Servers of the stages before one, in order."""
        servers: list[int] = []
        before = self.stages[stage].before
        while before >= 0:
            servers.append(self.stages[before].server)
            before = self.stages[before].before
        return servers[::-1]

    def only(self, queries: Collection[int]) -> Network:
        """The same with the routes of these queries alone, the stages on them, and the servers of these."""
        kept = {q: routes for q, routes in self.routes.items() if q in queries}
        needed: set[int] = set()
        for stage in {route.stage for routes in kept.values() for route in routes}:
            while stage >= 0 and stage not in needed:
                needed.add(stage)
                stage = self.stages[stage].before
        place = {stage: i for i, stage in enumerate(sorted(needed))} | {-1: -1}
        stages = [replace(self.stages[stage], before=place[self.stages[stage].before]) for stage in sorted(needed)]
        routes = {q: [Route(place[route.stage], route.events) for route in kept.get(q, [])] for q in self.routes}
        servers = {stage.server for stage in stages}
        work = {server: parts for server, parts in self.work.items() if server in servers}
        return replace(self, work=work, stages=stages, routes=routes)


def input_draws(noises: Sequence[CostNoise], names: Sequence[str], paths: int, seed: int) -> InputDraws:
    """Every input's statistics of so many paths within their sampling errors, then those given.

    Of a sample of batches the variation is that of the batches over a chi-square variable, and the means have its
    standard error: together Student's t. For a name all draws are the same in every deployment.
    """
    usual = np.array([noise.cv2 for noise in noises], dtype=np.float64)
    cost, output = np.ones((2, len(noises), paths + 1))
    draws = InputDraws(cost, output, np.tile(usual[:, None], paths + 1))
    for k, (noise, name) in enumerate(zip(noises, names, strict=True)):
        if not (noise.freedom > 0.0 or noise.unsure > 0.0):
            continue
        draws.cost[k, :paths], draws.output[k, :paths], factors = _input_draw(noise, name, paths, seed)
        draws.cv2[k, :paths] *= factors
    return draws


@lru_cache(maxsize=8192)  # walks of one cluster after the other draw the same
def _input_draw(noise: CostNoise, name: str, paths: int, seed: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """An input's factors of cost, of output and of the variation of its cost, (K,) each."""
    cost, output, cv2 = np.ones((3, paths))
    rng = named_rng(seed, name)
    if noise.unsure > 0.0 and not noise.from_batches:
        cv2 = np.exp(noise.unsure * spread_normals(paths, rng))
    if noise.freedom > 0.0:
        found = noise.freedom / rng.chisquare(noise.freedom, SAMPLE)
        believed = _belief(noise.cv2 * found) if noise.from_batches and noise.cv2 > 0.0 else None
        squares = spread_draws(found, paths, rng, believed)  # of the true variance over the sample's
        cost, output = (
            np.maximum(_MIN_SCALE, 1.0 + error * np.sqrt(squares) * spread_normals(paths, rng))
            for error in (noise.cost_error, noise.output_error)
        )
        if noise.from_batches:
            cv2 = squares
    return cost, output, cv2


def _belief(cv2: FloatArray) -> FloatArray:
    """Weight of variations of costs before their batches are seen: of their logarithms, as a t variable."""
    apart = np.log(cv2 / _USUAL_CV2) / _USUAL_SPREAD
    return np.asarray((1.0 + apart * apart / _USUAL_FREEDOM) ** (-0.5 * (_USUAL_FREEDOM + 1.0)))


def linear_statistics(deployment: Deployment, loads: Loads) -> tuple[FloatArray, FloatArray]:
    """Selectivity and cycles per event of every input, (e,); of a model, their means over the horizon's events."""
    graph = deployment.graph
    selectivity, cycles = graph.output[:, 1].copy(), graph.cycles[:, 1].copy()
    if graph.models:
        streams = np.vstack([deployment.arrivals, loads.operators().output])
        for k in range(len(selectivity)):
            events = streams[graph.in_stream[k]]
            events = events[events > 0.0]
            total = events.sum()
            for mean, model in ((selectivity, graph.output[k]), (cycles, graph.cycles[k])):
                amounts = np.maximum(np.polynomial.polynomial.polyval(events, model), 0.0)
                mean[k] = amounts.sum() / total if total > 0.0 else 0.0
    return selectivity, cycles


def network_of(
    deployment: Deployment,
    loads: Loads,
    draws: InputDraws,
    speeds: FloatArray,
) -> Network:
    """The network of a placed deployment; `speeds` are the servers' usual capacities."""
    selectivity, cycles = linear_statistics(deployment, loads)
    cost, output = cycles[:, None] * draws.cost, selectivity[:, None] * draws.output
    gains = _gains(deployment, output)
    network = Network(_work(deployment, gains, cost), [])
    routes = _RouteFinder(deployment, network, output).find()
    graph, layout = deployment.graph, deployment.layout
    services = _services(deployment, draws.cv2, cycles, speeds)
    for query in range(len(deployment.queries)):
        sinks = np.flatnonzero(graph.query_sink & (graph.query == query))
        replicas = [r for j in sinks for r in range(layout.rep_start[j], layout.rep_start[j + 1])]
        network.routes[query] = _merged([route for r in replicas for route in routes[r]])
        network.services[query] = max((services[r] for r in replicas), key=_seconds, default=(0.0, np.zeros(1)))
    return network


def _gains(deployment: Deployment, output: FloatArray) -> list[Gains]:
    """Events of every stream per event of each source."""
    graph, sources = deployment.graph, len(deployment.sources)
    gains: list[Gains] = [{u: np.ones(output.shape[1])} for u in range(sources)]
    gains += [{} for _ in deployment.operators]
    for j in graph.order:
        for k in range(graph.in_start[j], graph.in_start[j + 1]):
            _add(gains[sources + j], gains[graph.in_stream[k]], output[k])
    return gains


def _add(gains: Gains, more: Mapping[int, FloatArray], factor: FloatArray) -> None:
    for source, events in more.items():
        gains[source] = gains[source] + events * factor if source in gains else events * factor


def _work(deployment: Deployment, gains: list[Gains], cost: FloatArray) -> dict[int, dict[int, list[Work]]]:
    graph, layout, sources = deployment.graph, deployment.layout, len(deployment.sources)
    work: dict[int, dict[int, list[Work]]] = {}
    for j in graph.order:
        for r in range(layout.rep_start[j], layout.rep_start[j + 1]):
            by_source = work.setdefault(int(layout.rep_server[r]), {})
            for k in range(graph.in_start[j], graph.in_start[j + 1]):
                for source, events in gains[graph.in_stream[k]].items():
                    by_source.setdefault(source, []).append(Work(events * layout.rep_fraction[r], cost[k], k))
    for h in np.flatnonzero((layout.hop_server >= 0) & (layout.hop_event_bytes > 0.0)):
        by_source = work.setdefault(int(layout.hop_server[h]), {})
        size = layout.hop_event_bytes[h]
        for source, events in gains[sources + layout.rep_operator[layout.hop_origin[h]]].items():
            sent = events * (layout.hop_bytes[h] / size)
            by_source.setdefault(source, []).append(Work(sent, np.full(len(events), size), -1))
    return {s: work[s] for s in sorted(work)}


class _RouteFinder:
    """Finds the routes by which events leave every replica, and makes the stages on the way."""

    def __init__(self, deployment: Deployment, network: Network, output: FloatArray) -> None:
        self._deployment, self._network, self._output = deployment, network, output
        self._totals = deployment.arrivals.sum(axis=1)
        self._stages: dict[Stage, int] = {}

    def find(self) -> list[list[Route]]:
        """Routes of each replica."""
        graph, layout = self._deployment.graph, self._deployment.layout
        routes: list[list[Route]] = [[] for _ in layout.rep_server]
        for j in graph.order:
            for r in range(layout.rep_start[j], layout.rep_start[j + 1]):
                leaving: list[Route] = []
                for h in range(layout.hop_start[r], layout.hop_start[r + 1]):
                    leaving += self._come(r, h, routes)
                routes[r] = self._fewest(_merged(leaving))
        return routes

    def _come(self, r: int, h: int, routes: list[list[Route]]) -> list[Route]:
        """Routes that come to a replica by one hop, through the link and the server."""
        layout = self._deployment.layout
        server, origin, link = int(layout.rep_server[r]), int(layout.hop_origin[h]), int(layout.hop_server[h])
        k = layout.hop_input[h]
        factor = self._output[k] * layout.rep_fraction[r]
        stream = int(self._deployment.graph.in_stream[k])
        coming = routes[origin] if origin >= 0 else [Route(-1, {stream: np.ones(self._output.shape[1])})]
        found = []
        for route in coming:
            stage = route.stage
            if link in self._network.work:
                stage = self._stage(Stage(link, stage, 0.0))
            if origin < 0 or layout.rep_server[origin] != server:
                stage = self._stage(Stage(server, stage, float(layout.hop_delay_s[h])))
            found.append(Route(stage, {source: events * factor for source, events in route.events.items()}))
        return found

    def _stage(self, stage: Stage) -> int:
        if stage not in self._stages:
            self._stages[stage] = len(self._network.stages)
            self._network.stages.append(stage)
        return self._stages[stage]

    def _fewest(self, routes: list[Route]) -> list[Route]:
        """At most so many routes: those with the fewest events go with the largest."""
        if len(routes) <= _MAX_ROUTES:
            return routes
        routes.sort(key=lambda route: sum(self._totals[u] * x[-1] for u, x in route.events.items()), reverse=True)
        for route in routes[_MAX_ROUTES:]:
            _add(routes[0].events, route.events, np.ones(1))
        return routes[:_MAX_ROUTES]


def _merged(routes: Sequence[Route]) -> list[Route]:
    """Routes by stage; what leaves by the same one is added up."""
    by_stage: dict[int, Gains] = {}
    for route in routes:
        _add(by_stage.setdefault(route.stage, {}), route.events, np.ones(1))
    return [Route(stage, events) for stage, events in by_stage.items()]


def _services(deployment: Deployment, cv2: FloatArray, cycles: FloatArray, speeds: FloatArray) -> list[Service]:
    """One event's service along the longest path to the end of each replica."""
    graph, layout = deployment.graph, deployment.layout
    services: list[Service] = [(0.0, np.zeros(cv2.shape[1]))] * len(layout.rep_server)
    for j in graph.order:
        for r in range(layout.rep_start[j], layout.rep_start[j + 1]):
            for h in range(layout.hop_start[r], layout.hop_start[r + 1]):
                k, origin, link = layout.hop_input[h], layout.hop_origin[h], layout.hop_server[h]
                seconds = float(cycles[k] / speeds[layout.rep_server[r]])
                above = services[origin] if origin >= 0 else (0.0, np.zeros(1))
                sent = float(layout.hop_event_bytes[h] / speeds[link]) if link >= 0 else 0.0
                total = above[0] + sent + seconds
                if total > services[r][0]:
                    services[r] = total, above[1] + seconds * seconds * cv2[k]
    return services


def _seconds(service: Service) -> float:
    return service[0]
