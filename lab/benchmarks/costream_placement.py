"""First placements chosen by predictions: on contested queries, and beside a scheduler that monitors and moves.

A query is contested if its sources are pinned to weak hosts and some candidate is feasible and takes a sixth less
end-to-end latency than both trivial placements, or neither of those is feasible. The truth is the simulator without
noise. Everything is drawn before any model is asked.

Sources: Costream (ICDE 2024), experiments 2a and 2b; Aniello, Baldoni, Querzoni: Adaptive online scheduling in Storm
(DEBS 2013) for the moves of the monitoring scheduler.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.arrays import FloatArray, IntArray
from engine.costream.candidates import HEURISTICS, find_candidates
from engine.costream.residual import COSTS
from engine.query_graph.costs import operator_cost
from engine.query_graph.flow import flow_features, nominal_flow
from engine.query_graph.graph import REFERENCE_CORE_CPS, CostTrace, HostNode, OperatorNode, QueryGraph
from engine.simulation.cohort import CohortRun, simulate_cohorts
from engine.simulation.cohort_queries import PAPER_RANGES, HardwareRanges, draw_hosts, draw_query, keeps_rules
from lab.benchmarks.costream_contenders import Contender
from lab.benchmarks.costream_traces import in_processes
from lab.training.dataset import CorpusOrigin, TraceSet

__all__ = ["print_contested", "print_startup"]

BoolArray = npt.NDArray[np.bool_]

_ORIGIN = CorpusOrigin("candidates", "", "simulated", "", None, "")
_SHAPES = ("linear", "two-way", "three-way")
_MIN_RATE_EPS = {"linear": 1600.0, "two-way": 1000.0, "three-way": 900.0}
_CANDIDATES, _TASTE = 60, 20  # simulated per query; of which so many before it is given up as infeasible
_GAIN = 1.2  # by which a contested query's best candidate beats the trivial ones
_WEAK_HOSTS = HardwareRanges(
    cpu_percent=((50, 100, 200), (100, 200, 300), (200, 300, 400, 500)),
    ram_mb=PAPER_RANGES.ram_mb,
    bandwidth_mbit_s=PAPER_RANGES.bandwidth_mbit_s,
    latency_ms=PAPER_RANGES.latency_ms,
)

_MONITOR_S, _MOVE_S, _MAX_MOVES = 30.0, 10.0, 12  # statistics of a placement; pause of a move
_BUSY = 0.9  # share of a host's CPU from which it is overloaded
_COMPETITIVE = 1.05


@dataclass(frozen=True)
class ContestedQuery:
    """A query with k candidates and their true costs: feasible (k,), end-to-end latency in s (k,), inf without output.

    `heuristics` are the rows of the trivial placements.
    """

    shape: str
    graph: QueryGraph
    hosts: tuple[HostNode, ...]
    placements: IntArray
    heuristics: dict[str, int]
    feasible: BoolArray
    latency_s: FloatArray

    @property
    def best_s(self) -> float:
        """Latency of the best feasible candidate."""
        return float(self.latency_s[self.feasible].min())


def print_contested(contenders: Sequence[Contender], count: int, attempts: int, processes: int, seed: int) -> None:
    """Feasible picks and regret by type of query."""
    queries = [query for shape in _SHAPES for query in _contested(shape, count, attempts, processes, seed)]
    print(
        "\nFirst placement of contested queries, target Le: feasible picks, and regret (Le of the pick/best) q0.5/q0.9"
    )
    names = {shape: sum(query.shape == shape for query in queries) for shape in _SHAPES}
    print(f"  {'':34}" + "".join(f"{f'{shape} ({names[shape]})':>24}" for shape in _SHAPES))
    rng = random.Random(seed)
    rows: list[tuple[str, list[int]]] = [
        ("random candidate", [rng.randrange(len(query.feasible)) for query in queries])
    ]
    rows += [(name, [query.heuristics[name] for query in queries]) for name in HEURISTICS]
    rows += [(contender.name, [_pick(contender, query) for query in queries]) for contender in contenders]
    for name, picks in rows:
        cells = ""
        for shape in _SHAPES:
            chosen = [(query, pick) for query, pick in zip(queries, picks, strict=True) if query.shape == shape]
            cells += f"{_summary(chosen):>24}"
        print(f"  {name:34}{cells}", flush=True)


def _summary(chosen: Sequence[tuple[ContestedQuery, int]]) -> str:
    if not chosen:
        return "none"
    feasible = np.mean([query.feasible[pick] for query, pick in chosen])
    q50, q90 = np.quantile([_regret(query, pick) for query, pick in chosen], (0.5, 0.9), method="higher")
    return f"{feasible:.2f}  {q50:.2f}/{q90:.3g}"


def _regret(query: ContestedQuery, pick: int) -> float:
    return float(query.latency_s[pick]) / query.best_s


def _contested(shape: str, count: int, attempts: int, processes: int, seed: int) -> list[ContestedQuery]:
    """The first contested queries of a shape among those drawn."""
    kept: list[ContestedQuery] = []
    step = max(50, attempts // 10)
    for start in range(0, attempts, step):
        seeds = [f"{seed} {shape} {i}" for i in range(start, start + step)]
        kept += [query for query in in_processes(_draw_contested, seeds, processes, shape) if query is not None]
        if len(kept) >= count:
            break
    return kept[:count]


def _draw_contested(seed: str, shape: str) -> ContestedQuery | None:
    """The query of a seed with its simulated candidates; None if it is not contested."""
    source = random.Random(seed)
    graph = draw_query(source, shape)
    if sum(op.rate_eps for op in graph.operators) < _MIN_RATE_EPS[shape]:
        return None
    hosts = tuple(draw_hosts(source, _WEAK_HOSTS, source.randrange(4, 7)))
    weak = [j for j, host in enumerate(hosts) if host.strength == hosts[0].strength]
    pins = {i: weak[int(source.random() * len(weak))] for i, op in enumerate(graph.operators) if op.kind == "source"}
    found = find_candidates(graph, hosts, _CANDIDATES, pins, source.getrandbits(32))
    if len(found.heuristics) < len(HEURISTICS):
        return None
    placements = found.placements
    trivial = sorted(set(found.heuristics.values()))
    costs = {row: _true_cost(graph, hosts, placements[row]) for row in trivial}
    trivial_s = min((costs[row][1] for row in trivial if costs[row][0]), default=np.inf)
    nominal_s = np.exp(flow_features(graph, hosts, placements).anchor[:, 2])
    if trivial_s < 0.5 * nominal_s.min() * _GAIN:
        return None  # no candidate can be so much better
    for row in range(len(placements)):
        if row not in costs:
            costs[row] = _true_cost(graph, hosts, placements[row])
        if row == _TASTE and not any(feasible for feasible, _ in costs.values()):
            return None
    rows = range(len(placements))
    feasible = np.array([costs[row][0] for row in rows])
    latency_s = np.array([costs[row][1] for row in rows])
    if not feasible.any() or latency_s[feasible].min() * _GAIN > trivial_s:
        return None
    return ContestedQuery(shape, graph, hosts, placements, found.heuristics, feasible, latency_s)


def _true_cost(graph: QueryGraph, hosts: Sequence[HostNode], placement: Sequence[int]) -> tuple[bool, float]:
    """Whether a placement is feasible, and its end-to-end latency in s."""
    label = simulate_cohorts(graph, hosts, placement, seed=1, noise=False).label
    return label.success and not label.backpressure, label.end_to_end_latency_s or np.inf


def _pick(contender: Contender, query: ContestedQuery) -> int:
    """The candidate of least predicted latency among those that pass the votes; the likeliest where none does."""
    return choose_row(contender, query.graph, query.hosts, query.placements, "Le")


def choose_row(
    contender: Contender, graph: QueryGraph, hosts: tuple[HostNode, ...], placements: IntArray, cost: str
) -> int:
    """Row of the candidate that a contender chooses by a cost."""
    traces = [CostTrace(graph, hosts, tuple(placement.tolist()), None) for placement in placements]
    answers = contender.answers(TraceSet.of_traces(_ORIGIN, traces))
    passes = ~answers.backpressure & answers.success
    predicted = answers.centre[:, COSTS.index(cost)]
    return int(np.where(passes if passes.any() else True, predicted, np.inf).argmin())


def print_startup(contender: Contender, count: int, processes: int, seed: int) -> None:
    """Experiment 2b: filter queries that start where predictions say, beside a scheduler that monitors and moves."""
    queries = [_startup_query(f"{seed} startup {i}") for i in range(count)]
    tasks = []
    for graph, hosts, pins, begin in queries:
        placements = find_candidates(graph, hosts, 200, pins).placements
        tasks.append((graph, hosts, pins, begin, placements[choose_row(contender, graph, hosts, placements, "Lp")]))
    results = [result for result in in_processes(_monitor, tasks, processes) if result is not None]
    slow = np.array([result[0] for result in results])
    times = np.array([result[1] for result in results])
    ready = np.isfinite(times)
    print(f"\nStart-up of {len(results)} filter queries beside a monitoring scheduler, target Lp")
    print(
        f"  its first placement, slower by: q0.5 {np.median(slow):.2f}, q0.9 {np.quantile(slow, 0.9):.1f}, most "
        f"{slow.max():.0f}; faster in {np.mean(slow < 1 / _COMPETITIVE):.0%}"
    )
    late = times[ready & (times > 0)]
    print(
        f"  as good at once in {np.mean(times == 0):.0%}, after moves in {np.mean(ready & (times > 0)):.0%}"
        + (f" (s: q0.5 {np.median(late):.0f}, most {late.max():.0f})" if len(late) else "")
        + f", not within {_MAX_MOVES} moves in {np.mean(~ready):.0%}; each move takes {_MONITOR_S:g} s of statistics "
        f"and {_MOVE_S:g} s of pause"
    )


def _startup_query(seed: str) -> tuple[QueryGraph, tuple[HostNode, ...], dict[int, int], IntArray]:
    """Source, filter, sink; six hosts; the source on a weak one; and a placement that keeps the rules, at random."""
    source = random.Random(seed)
    rate = source.choice((400.0, 800.0, 1600.0, 3200.0))
    width = source.randrange(3, 11)
    operators = (
        OperatorNode("source", width, width, rate_eps=rate, n_int=width),
        OperatorNode("filter", width, width, function="<", value_type="int", selectivity=source.uniform(0.05, 1.0)),
        OperatorNode("sink", width, width),
    )
    graph, hosts = QueryGraph(operators, ((0, 1), (1, 2))), tuple(draw_hosts(source, count=6))
    pins = {0: source.choice([j for j, host in enumerate(hosts) if host.strength == hosts[0].strength])}
    placements = find_candidates(graph, hosts, 200, pins).placements
    return graph, hosts, pins, placements[source.randrange(len(placements))]


def _monitor(task: tuple[Any, ...]) -> tuple[float, float] | None:
    """Times that the first placement is slower, and seconds until it is as good as the predicted one (inf: never).

    None where the predicted one puts nothing out.
    """
    graph, hosts, pins, begin, predicted = task
    wanted_s = _run(graph, hosts, predicted).label.processing_latency_s
    if wanted_s is None:
        return None
    placement, slower, elapsed_s = list(begin), np.inf, 0.0
    for move in range(_MAX_MOVES + 1):
        run = _run(graph, hosts, placement)
        ratio = (run.label.processing_latency_s or np.inf) / wanted_s
        slower = ratio if move == 0 else slower
        if ratio <= _COMPETITIVE:
            return float(slower), elapsed_s
        better = _moved(graph, hosts, placement, pins, run)
        if better is None:
            break
        placement, elapsed_s = better, elapsed_s + _MONITOR_S + _MOVE_S
    return float(slower), np.inf


def _run(graph: QueryGraph, hosts: Sequence[HostNode], placement: Sequence[int]) -> CohortRun:
    return simulate_cohorts(graph, hosts, placement, seed=1, noise=False)


def _moved(
    graph: QueryGraph, hosts: Sequence[HostNode], placement: list[int], pins: dict[int, int], run: CohortRun
) -> list[int] | None:
    """The placement after the best move of one operator by measured use of CPU and traffic; None if none is better."""
    seconds = 240.0
    wire = nominal_flow(graph).out_bytes
    cycles, traffic = [], []
    for i, operator in enumerate(graph.operators):
        cost, tuples = operator_cost(operator), run.tuples[i]
        taken, emitted = tuples["taken_0"] + tuples["taken_1"], tuples["emitted"]
        cycles.append((taken * cost.take + emitted * cost.make) / seconds)
        traffic.append(emitted / seconds * wire[i])

    def price(places: list[int]) -> tuple[float, float]:
        overload = 0.0
        for j, host in enumerate(hosts):
            use = sum(cycles[i] for i, place in enumerate(places) if place == j)
            overload += max(0.0, use / (host.cpu_percent / 100 * REFERENCE_CORE_CPS) - _BUSY)
        return round(overload, 6), sum(traffic[a] for a, b in graph.edges if places[a] != places[b])

    candidates = []
    for i in range(len(placement)):
        for j in range(len(hosts)):
            places = [*placement[:i], j, *placement[i + 1 :]]
            if i not in pins and j != placement[i] and keeps_rules(graph, hosts, places):
                candidates.append(places)
    best = min(candidates, key=price, default=None)
    return best if best is not None and price(best) < price(placement) else None
