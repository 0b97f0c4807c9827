"""The benchmark of realised latencies: latencies it holds to be true, its figures, and the claims it compares."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.estimation.estimate import estimate
from engine.simulation import SimulationSettings, simulate
from lab.benchmarks import honesty
from lab.benchmarks.honesty import Claim, Result, Row, figures_of, measure, missed, old_claims
from lab.benchmarks.honesty_systems import CLASSES, GRIDS, Grid, build, fifo_latency, single

SHORT = Grid("1 s", 1.0, 1.0, 60.0)


@pytest.fixture(scope="module")
def short() -> Any:
    rng = np.random.default_rng(1)
    times = np.sort(rng.uniform(0.0, 60.0, 600))
    return times, single("M/D/1", SHORT, times, np.full(600, 0.08), 0.0)


def test_latencies_of_a_single_queue_are_those_of_the_simulator(short: Any) -> None:
    times, system = short
    simulation = simulate(system.deployments["exact"], SimulationSettings(), times_s={"s0": times})
    assert system.realised_s["worst"] == pytest.approx(simulation.worst_s)
    assert system.realised_s["mean"] == pytest.approx(simulation.latency_s.mean())
    assert fifo_latency(np.array([0.0, 1.0, 9.0]), np.array([3.0, 1.0, 2.0])).tolist() == [3.0, 3.0, 2.0]


def test_new_claims_are_those_of_an_estimate_and_old_ones_of_its_mean_path(short: Any) -> None:
    deployment = short[1].deployments["sampled"]
    result = measure(short[1], "sampled")
    assert isinstance(result, Result)
    report, claim = estimate(deployment).queries["q"], result.new["worst"]
    assert (claim.estimate_s, claim.low_s, claim.high_s) == (report.estimate_s, report.low_s, report.high_s)
    assert claim.under_s == report.under_s
    path, old = estimate(deployment, flow_slices=4, intervals=False).queries["q"], old_claims(deployment)["worst"]
    assert old.estimate_s == path.flow_s
    assert old.low_s == max(0.0, old.estimate_s - 1.0) or old.low_s < old.estimate_s - 1.0
    assert old.high_s >= old.estimate_s + 1.0


def test_statistics_of_a_sample_are_of_the_first_events_alone() -> None:
    times = np.linspace(0.0, 59.0, 1000)
    costs = np.where(np.arange(1000) < 80, 0.01, 0.02)
    deployments = single("M/M/1", SHORT, times, costs, 0.3).deployments
    (exact,), (sampled,) = (deployments[kind].operators[0].inputs for kind in ("exact", "sampled"))
    assert (exact.cycles_per_event, sampled.cycles_per_event) == pytest.approx((costs.mean(), 0.01))
    assert (exact.cost_cv2, sampled.cost_cv2) == (0.3, None)
    assert [deployments[kind].statistics_of for kind in ("exact", "sampled")] == ["these", "sample"]
    assert [sum(batch.events for batch in entry.batches) for entry in (exact, sampled)] == [1000.0, 80.0]


def test_counts_of_five_minutes_say_nothing_of_what_is_inside() -> None:
    system = build("M/M/1", 3, seed=1)
    source = system.deployments["exact"].sources[0]
    assert system.grid is GRIDS[3] and source.arrivals_step_s == 300.0
    assert (np.ptp(source.arrivals.reshape(-1, 300), axis=1) == 0.0).all()


def test_figures_are_those_of_the_claims() -> None:
    claims = [
        Claim(1.1, 1.0, 1.2, 1.5),
        Claim(1.0, 0.9, 1.1, 1.5),
        Claim(3.0, 2.0, 4.0, None),
        Claim(1.0, 0.5, 1.5, 1.8),
    ]
    figures = figures_of([1.0, 1.0, 4.0, 2.0], claims)
    assert figures.error == pytest.approx(0.175)
    assert figures.bias == pytest.approx(-0.125)
    assert figures.coverage == 0.75
    assert figures.half_width == pytest.approx((0.1 + 0.25) / 2.0)
    assert (figures.false_under, figures.under) == (1, 3)


def test_missed_targets_are_named() -> None:
    def row(factor: float, covered: int) -> Row:
        claims = [Claim(factor, 0.5, 2.0 if i < covered else 0.6, 2.0) for i in range(100)]
        same = [dict.fromkeys(honesty.LATENCIES, claim) for claim in claims]
        return Row([Result(dict.fromkeys(honesty.LATENCIES, 1.0), c, c, 1.0, 2.0, False) for c in same])

    assert missed(row(1.04, 90), steady=True) == []
    assert missed(row(1.08, 90), steady=False) == []
    assert missed(row(1.08, 90), steady=True) == ["median error of worst 8.0 % over 5 %"]
    assert missed(row(0.92, 90), steady=False) == [f"bias of {name} -8.0 %" for name in honesty.LATENCIES]
    assert missed(row(1.0, 80), steady=False) == [f"coverage of {name} 80.0 %" for name in honesty.LATENCIES]
    assert missed(row(1.0, 100), steady=False) == [f"coverage of {name} 100.0 %" for name in honesty.LATENCIES]


@pytest.mark.parametrize("name", ["chain", "merge"])
def test_networks_are_measured_with_both_kinds_of_statistics(name: str) -> None:
    system = build(name, 1, seed=1)
    for kind in ("exact", "sampled"):
        result = measure(system, kind)
        assert isinstance(result, Result)
        assert set(result.new) >= set(honesty.LATENCIES) == set(result.old)


def test_quick_benchmark_runs(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("lab.benchmarks.honesty._QUICK", 4)  # every grid once
    assert honesty.main(["--quick"]) == 0
    printed = capsys.readouterr().out
    assert all(f"| {name}, {kind} | 3 |" in printed for name in CLASSES for kind in ("exact", "sampled"))
    assert f"| 5 min, sampled | {len(CLASSES)} |" in printed
    assert printed.count("too few to judge") == 1
    assert printed.endswith("Targets missed: not judged\n")
