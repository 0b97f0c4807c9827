"""Predicted and measured latencies on four unequal hosts: ``./sluice lab testbed mace``.

Two queries of eight operators run as real processes, one on each host, with CPU quotas and links of their own.
Statistics come from one calm run in turn over the hosts; latencies of each load and placement are predicted from them
and the schedule of arrivals, then measured. Placements are those that figure 13 of the Mace paper compares, by Mace_WC
alone there, and the search of the product.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.estimation.flow import flow
from engine.estimation.mace import mace
from engine.estimation.noise.realisation import realise
from engine.placement.proposal import place
from lab.benchmarks.machine import machine
from lab.benchmarks.workloads import on_off_times
from lab.placement.algorithms import PUBLISHED_ALGORITHMS
from lab.testbed.operators import EVENT_BYTES, STATISTICS, run_operators, slice_counts, with_learned_statistics
from lab.testbed.testbed import Host, Testbed

__all__ = ["HOSTS", "LOADS", "PLACEMENTS", "TestbedRun", "compare", "queries_in_turn", "report"]

HOSTS = (Host("host1", 0.30, 20.0), Host("host2", 0.20, 20.0), Host("host3", 0.15, 5.0), Host("host4", 0.40, 50.0))
LOADS = (0.5, 0.8, 0.95)
_IN_TURN = "in turn"
#: By the name that is shown: an algorithm; None for operators in turn over the hosts.
PLACEMENTS: Mapping[str, str | None] = {
    _IN_TURN: None,
    "Baseline": "baseline",
    "Random": "random",
    "Corr": "corr",
    "Mace-HC": "mace-hc",
    "search": "search",
}
_UNIT_S, _SLICE_S = 0.01, 0.25
_CALM_LOAD, _CALM_S = 0.3, 25.0
_ON_OFF_RATIO, _HIGH_PERIOD_S = 3.0, 3.0
_SHARES = {"s1": 0.6, "s2": 0.4}  # of all arrivals
#: Operator, query, what it reads, cost in units, selectivity.
_OPERATORS = (
    ("parse", "q1", ("s1",), 1.0, 1.0),
    ("filter", "q1", ("parse",), 1.5, 0.6),
    ("score", "q1", ("filter",), 2.0, 1.0),
    ("sample", "q1", ("parse",), 1.0, 0.5),
    ("merge", "q1", ("score", "sample"), 1.2, 1.0),
    ("store", "q1", ("merge",), 0.8, 1.0),
    ("clean", "q2", ("s2",), 1.0, 0.7),
    ("count", "q2", ("clean",), 1.5, 1.0),
)


@dataclass(frozen=True, slots=True)
class TestbedRun:
    """One run: predicted (estimate, low, high) and measured latencies by query and statistic, seconds."""

    load: float
    placement: str
    busiest: float  #: load of the busiest host
    predicted: Mapping[tuple[str, str], tuple[float, float, float]]
    measured: Mapping[tuple[str, str], float]
    machine_load: float  #: of the whole machine, over a minute


def queries_in_turn(times_s: Mapping[str, FloatArray], horizon_s: float) -> Deployment:
    """The two queries in turn over the hosts, with the costs that they are given, and arrivals of a schedule."""
    links = [
        # Of an event: through the bucket of the sender's link, then that of the reader's.
        {"from": a.name, "to": b.name, "delay_s": EVENT_BYTES * 8e-6 * (1 / (a.mbit_s or 1e5) + 1 / (b.mbit_s or 1e5))}
        for a in HOSTS
        for b in HOSTS
        if a is not b
    ]
    document: dict[str, Any] = {
        "subinterval_s": _SLICE_S,
        "sources": [
            {"id": name, "arrivals": slice_counts(times, horizon_s, _SLICE_S)} for name, times in times_s.items()
        ],
        "nodes": [{"id": host.name, "capacity_cps": host.cores} for host in HOSTS],
        "links": links,
        "operators": [
            {
                "id": name,
                "query": query,
                "node": HOSTS[number % len(HOSTS)].name,
                "inputs": [
                    {"from": read, "selectivity": selectivity, "cycles_per_event": cost * _UNIT_S} for read in reads
                ],
            }
            for number, (name, query, reads, cost, selectivity) in enumerate(_OPERATORS)
        ],
    }
    return Deployment.parse(document)


def _work_s() -> float:
    """CPU seconds that an arrival of either source takes on average."""
    flows, work_s = dict(_SHARES), 0.0
    for name, _, reads, cost, selectivity in _OPERATORS:
        events = sum(flows[read] for read in reads)
        flows[name] = events * selectivity
        work_s += events * cost * _UNIT_S
    return work_s


def _arrivals(load: float, horizon_s: float, seed: int) -> dict[str, FloatArray]:
    rate = load * sum(host.cores or 1.0 for host in HOSTS) / _work_s()
    return {
        name: on_off_times(
            mean_rate_eps=share * rate,
            horizon_s=horizon_s,
            ratio=_ON_OFF_RATIO,
            high_period_s=_HIGH_PERIOD_S,
            seed=seed + number,
        )
        for number, (name, share) in enumerate(_SHARES.items())
    }


def _placed(deployment: Deployment, name: str, seed: int) -> Deployment:
    algorithm = PLACEMENTS[name]
    if algorithm is None:
        return deployment
    assert algorithm == "search" or algorithm in PUBLISHED_ALGORITHMS  # which registers them
    return place(deployment, algorithm=algorithm, budget_s=2.0, rounds=40, seed=seed).placed()


def _predict(deployment: Deployment) -> dict[tuple[str, str], tuple[float, float, float]]:
    realised = realise(deployment, flow(deployment, by_input=True))
    return {
        (query, name): (row.estimate_s, row.low_s, row.high_s)
        for query, found in realised.items()
        for name, row in found.statistics.items()
        if name in STATISTICS
    }


def compare(*, seconds: float, loads: Sequence[float], placements: Sequence[str], seed: int) -> Iterator[TestbedRun]:
    """Run every load with every placement, each after its prediction."""
    with Testbed(HOSTS) as bed:
        times_s = _arrivals(_CALM_LOAD, _CALM_S, seed)
        (calm,) = run_operators(bed, queries_in_turn(times_s, _CALM_S), [times_s], seed=seed)
        for load in loads:
            times_s = _arrivals(load, seconds, seed + round(100 * load))
            given = queries_in_turn(times_s, seconds)
            learned = with_learned_statistics(given, calm)
            for name in placements:
                deployment = _placed(learned, name, seed)
                predicted = _predict(deployment)
                where = {operator.id: operator.replicas for operator in deployment.operators}
                (ran,) = run_operators(bed, given.with_placement(where), [times_s], seed=seed + 1000)
                measured = {
                    (query, statistic): value_s
                    for query in deployment.queries
                    for statistic, value_s in ran.measured(
                        [operator.id for operator in deployment.operators if operator.query == query]
                    ).items()
                }
                cycles_per_s = mace(deployment).load.mean(axis=1) / _SLICE_S
                busiest = float((cycles_per_s / deployment.capacities[0]).max())
                yield TestbedRun(load, name, busiest, predicted, measured, os.getloadavg()[0])


def report(*, seconds: float, loads: Sequence[float], placements: Sequence[str], seed: int) -> int:
    """Print the table as it comes; 0 once all is measured."""
    print(f"Machine: {machine()}")
    hosts = ", ".join(f"{host.name} {host.cores:g} cores {host.mbit_s:g} Mbit/s" for host in HOSTS)
    print(f"Hosts: {hosts}. {seconds:g} s a cell, seed {seed}; predicted / measured in seconds.\n")
    columns = ["load", "placement", "busiest host", "query", *STATISTICS, "90 % holds", "load of the machine"]
    print("| " + " | ".join(columns) + " |\n|" + " --- |" * len(columns))
    errors: dict[str, list[float]] = {name: [] for name in STATISTICS}
    worst: dict[str, list[str]] = {name: [] for name in placements}
    held = told = 0
    for cell in compare(seconds=seconds, loads=loads, placements=placements, seed=seed):
        for query in sorted({query for query, _ in cell.measured}):
            shown, holds = [], 0
            for name in STATISTICS:
                (estimate, low, high), measured = cell.predicted[query, name], cell.measured[query, name]
                shown.append(f"{estimate:.2f} / {measured:.2f}")
                errors[name].append(abs(estimate / measured - 1.0))
                holds += low <= measured <= high
            held, told = held + holds, told + len(STATISTICS)
            row = [f"{cell.load:g}", cell.placement, f"{cell.busiest:.2f}", query, *shown]
            row += [f"{holds} of {len(STATISTICS)}", f"{cell.machine_load:.1f}"]
            print("| " + " | ".join(row) + " |", flush=True)
        predicted_s = max(interval[0] for (_, name), interval in cell.predicted.items() if name == "worst")
        measured_s = max(value for (_, name), value in cell.measured.items() if name == "worst")
        worst[cell.placement].append(f"{predicted_s:.2f} / {measured_s:.2f}")
    medians = ", ".join(f"{name} {100 * float(np.median(rows)):.0f} %" for name, rows in errors.items() if rows)
    print(f"\nMedian errors: {medians}; {held} of {told} intervals hold.")
    print("\nWorst case of both queries by placement (figure 13), predicted / measured in seconds:\n")
    print("| placement | " + " | ".join(f"load {load:g}" for load in loads) + " |\n|" + " --- |" * (len(loads) + 1))
    for name, cells in worst.items():
        print(f"| {name} | " + " | ".join(cells) + " |")
    return 0
