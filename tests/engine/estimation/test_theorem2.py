"""Theorem 2 of the paper against the simulator: where it holds, where it does not, and what Mace-Flow says there."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from engine.document.deployment import Deployment
from engine.estimation.flow import flow
from engine.estimation.mace import mace
from engine.simulation import POLICIES, SimulationSettings, simulate
from tests.engine.simulation.stories import deployment, exact, operator

ROUNDING = 1e-9
ROOT = Path(os.environ.get("SLUICE_CASES", Path(__file__).parents[4] / "shared" / "cases"))
CASES = sorted(path for path in (ROOT / "mace").glob("*.json") if "_bad_" not in path.name)


def random_single_source_system(seed, nodes=1):
    """A DAG of 3 to 14 operators with one source, bursts, whole selectivities of 0, 1 or 2 and fixed costs."""
    rng = np.random.default_rng(seed)
    count, names, operators = int(rng.integers(3, 15)), ["s"], []
    for i in range(count):
        reads = rng.choice(names, size=min(len(names), int(rng.integers(1, 3))), replace=False)
        ports = [(str(name), int(rng.choice([1, 1, 1, 2])), float(rng.uniform(0.1, 2))) for name in reads]
        operators.append(operator(f"o{i}", *ports, node=f"n{rng.integers(nodes)}"))
        names = [f"o{k}" for k in range(max(0, i - 2), i + 1)] + ["s"] * (i < 2)
    burst = rng.random(40) < 0.25
    arrivals = np.where(burst, rng.integers(60, 140, 40), rng.integers(0, 3, 40)).astype(float)
    unit = deployment(operators, {"s": arrivals}, nodes=[{"id": f"n{i}", "capacity_cps": 1.0} for i in range(nodes)])
    load = mace(unit).load.sum(axis=1).max()
    capacity_cps = float(load / 40 / rng.uniform(0.4, 0.95))
    machines = [{"id": f"n{i}", "capacity_cps": capacity_cps} for i in range(nodes)]
    return deployment(operators, {"s": arrivals}, nodes=machines)


@pytest.mark.parametrize("seed", range(60))
def test_theorem_2_holds_on_one_node_with_one_source(seed):
    """Even arrivals (A-2), fixed costs (A-3): Mace_WC <= Lat_WC <= Mace_WC + w + epsilon."""
    system = random_single_source_system(seed)
    estimate = mace(system)
    worst_s = simulate(system, exact()).worst_s
    assert estimate.worst - ROUNDING <= worst_s <= estimate.worst + system.subinterval_s + estimate.epsilon_s + ROUNDING


def bursts_in_turn(nodes, burst_s=10):
    """n sources burst in turn; source k is free on the nodes before k and costs twice the capacity of node k."""
    operators, arrivals = [], {}
    for k in range(nodes):
        above = f"s{k}"
        for before in range(k):
            operators.append(operator(f"relay{k}_{before}", (above, 1, 0.0), node=f"n{before}"))
            above = f"relay{k}_{before}"
        operators.append(operator(f"heavy{k}", (above, 1, 0.02), node=f"n{k}"))
        series = np.zeros(burst_s * nodes + 10)
        series[burst_s * k : burst_s * (k + 1)] = 100
        arrivals[f"s{k}"] = series
    return deployment(operators, arrivals, nodes=[{"id": f"n{k}", "capacity_cps": 1.0} for k in range(nodes)])


@pytest.mark.parametrize(("nodes", "measured_s"), [(1, 10.01), (2, 20.01), (3, 30.01), (4, 40.01)])
def test_theorem_2_fails_on_several_nodes_with_several_sources(nodes, measured_s):
    system = bursts_in_turn(nodes)
    estimate = mace(system)
    assert estimate.worst == pytest.approx(10.0)
    assert simulate(system, exact()).worst_s == pytest.approx(measured_s)
    assert flow(system).wc == pytest.approx(10.0 * nodes)
    upper_s = estimate.worst + 1.0 + estimate.epsilon_s
    assert (measured_s > upper_s) == (nodes > 1)


@pytest.mark.parametrize("seed", range(10))
def test_flow_is_close_to_the_simulator_on_several_nodes(seed):
    """With even arrivals narrow slices know all there is to know."""
    system = random_single_source_system(100 + seed, nodes=3)
    worst_s = simulate(system, exact()).worst_s
    assert flow(system, slices=16).wc == pytest.approx(worst_s, rel=0.02)


@pytest.mark.parametrize("seed", range(8))
def test_stimulus_time_is_best_for_the_worst_case_on_one_node(seed):
    """Theorem 1, up to the event in service that no policy interrupts."""
    system = random_single_source_system(200 + seed)
    longest_s = max(i.cycles_per_event for o in system.operators for i in o.inputs) / system.nodes[0].capacity_cps
    worst = {name: simulate(system, exact(name)).worst_s for name in POLICIES}
    assert all(worst["stimulus-time"] <= other + 2 * longest_s for other in worst.values())


def test_other_policies_are_worse_in_the_worst_case_and_round_robin_better_in_the_mean():
    """A long query and a short one on one node, their bursts half a burst apart."""
    long = [operator("a0", ("s", 1, 1))] + [operator(f"a{i}", (f"a{i - 1}", 1, 1)) for i in range(1, 10)]
    short = [operator("b0", ("t", 1, 1)), operator("b1", ("b0", 1, 1))]
    arrivals = {"s": [100.0] * 10 + [0.0] * 30, "t": [0.0] * 5 + [100.0] * 10 + [0.0] * 25}
    system = deployment(long + short, arrivals, nodes=[{"id": "n", "capacity_cps": 600.0}])
    runs = {name: simulate(system, SimulationSettings(POLICIES[name], cost_cv=0.5)) for name in POLICIES}
    worst = {name: run.worst_s / runs["stimulus-time"].worst_s for name, run in runs.items()}
    assert worst["fifo"] > 1.4 and worst["round-robin"] > 1.05 and worst["longest-queue"] > 1.2
    assert runs["round-robin"].latency_s.mean() < runs["stimulus-time"].latency_s.mean()


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_conformance_systems_are_simulated_close_to_flow(path):
    """Even arrivals, fixed costs: within a quarter of a subinterval and a source event's work (under 4 epsilon)."""
    system = Deployment.parse(json.loads(path.read_text())["input"])
    tolerance_s = system.subinterval_s / 4 + 4 * mace(system).epsilon_s
    assert simulate(system, exact()).worst_s == pytest.approx(flow(system, slices=4).wc, abs=tolerance_s)
