"""From forecasts to dates, probabilities and pool sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.arrays import statistic_of
from engine.document.deployment import Deployment
from engine.errors import InfeasibleError, OptionError
from engine.estimation.flow import flow
from engine.estimation.loads import loads_of
from engine.estimation.mace import mace
from engine.forecasts.forecast import SourceHistory
from engine.forecasts.outlook import outlook
from engine.forecasts.probability import probability, resample_statistics
from engine.forecasts.regret import least_regret
from engine.forecasts.scaled_latency import ScaledMace
from engine.forecasts.violations import FlowCalibration, violations
from tests.engine.forecasts.test_forecast import load


def deployment(**changes: Any) -> Deployment:
    """Two queries on two nodes; `a` fills its node to 0.9 at a factor of 1."""
    rng = np.random.default_rng(2)
    arrivals = rng.poisson(9.0, 400).astype(float)
    batches = [{"events": 1000, "outputs": 500 + d, "cycles": 10_000 + 40 * d} for d in (-9, -4, 0, 4, 9)]
    document: dict[str, Any] = {
        "subinterval_s": 0.25,
        "sources": [{"id": "s", "arrivals": arrivals}, {"id": "r", "arrivals": rng.poisson(3.0, 400).astype(float)}],
        "nodes": [
            {"id": "x", "capacity_cps": 400.0, "price_per_hour": 1.0, "pool": "p"},
            {"id": "y", "capacity_cps": 400.0, "price_per_hour": 1.0, "pool": "p"},
        ],
        "operators": [
            {
                "id": "a/work",
                "query": "a",
                "node": "x",
                "inputs": [{"from": "s", "selectivity": 0.5, "cycles_per_event": 10, "batches": batches}],
            },
            {
                "id": "b/work",
                "query": "b",
                "node": "y",
                "inputs": [{"from": "r", "selectivity": 1, "cycles_per_event": 5}],
            },
        ],
        "objectives": [
            {"query": "a", "statistic": "worst", "bound_s": 3.0},
            {"query": "b", "statistic": "q0.9", "bound_s": 1.0},
        ],
    }
    return Deployment.parse(document | changes)


def scaled(base: Deployment, factors: list[float]) -> Deployment:
    by = zip(base.sources, factors, strict=True)
    return base.with_arrivals({source.id: source.arrivals * factor for source, factor in by})


@pytest.mark.parametrize("statistic", ["worst", "mean", "q0.9"])
def test_scaled_latencies_are_those_of_mace(statistic: str) -> None:
    objectives = [{"query": name, "statistic": statistic, "bound_s": 1.0} for name in ("a", "b")]
    base = deployment(objectives=objectives)
    rows = [[1.0, 1.0], [1.2, 0.4], [0.3, 9.0], [0.0, 0.0], [1.5, 7.3]]
    result = ScaledMace(base).latencies(np.array(rows))
    for row, latencies in zip(rows, result, strict=True):
        single = scaled(base, row)
        seconds = mace(single).mace_s
        events = loads_of(single).outputs(np.eye(2))
        expected = [statistic_of(seconds[i], events[i], statistic) for i in (0, 1)]
        np.testing.assert_allclose(latencies, expected, rtol=1e-9, atol=1e-9)


def test_first_violation_is_confirmed_by_flow() -> None:
    base = deployment()
    growth = np.linspace(0.5, 1.4, 60)
    mean, high = (np.stack([growth * by, np.ones(60)], axis=1) for by in (1.0, 1.15))
    result = violations(base, mean, high)
    outlook_a, outlook_b = result.outlooks
    assert outlook_b.first_mean is None
    assert outlook_b.first_high is None
    assert outlook_a.first_mean is not None
    assert outlook_a.first_high is not None
    assert outlook_a.first_high.index < outlook_a.first_mean.index
    for first, rows in ((outlook_a.first_mean, mean), (outlook_a.first_high, high)):
        by_flow = [flow(scaled(base, list(row)), by_input=True).by_query["a"].max() for row in rows]
        assert first.confirmed
        assert first.index == int(np.flatnonzero(np.array(by_flow) > 3.0)[0])
        assert first.flow_s == pytest.approx(by_flow[first.index])


def test_violations_without_flow_runs_are_unconfirmed() -> None:
    mean = np.full((4, 2), 2.0)
    result = violations(deployment(), mean, mean, flow_runs=0)
    assert result.flow_runs == 0
    assert result.outlooks[0].first_mean is not None
    assert not result.outlooks[0].first_mean.confirmed


def test_calibration_rises_through_its_points_and_never_falls_below_mace() -> None:
    lines = FlowCalibration(("a",))
    for m, f in ((0.0, 0.5), (2.0, 2.4), (1.0, 2.6)):
        lines.add(np.array([m]), np.array([f]))
    result = lines(np.array([[0.0], [0.5], [1.0], [1.5], [2.0], [5.0]]))[:, 0]
    assert result.tolist() == pytest.approx([0.5, 1.55, 2.6, 2.6, 2.6, 5.6])
    assert (np.diff(result) >= 0).all()


def test_probabilities_follow_loads_and_statistics() -> None:
    base = deployment()
    bound_s = ScaledMace(base).bounds_s[0]
    limit = next(
        f for f in np.linspace(0.8, 1.5, 400) if ScaledMace(base).latencies(np.array([[f, 1]]))[0, 0] > bound_s
    )
    draws = {by: np.tile([limit * by, 1.0], (60, 3, 1)) for by in (0.9, 1.0, 1.1)}
    holds = {by: probability(base, draws[by]).holds[0] for by in draws}
    assert holds[0.9] == 1.0
    assert 0.05 < holds[1.0] < 0.95  # the statistics alone decide
    assert holds[1.1] == 0.0
    result = probability(base, draws[1.0])
    assert result.to_dict()["queries"]["a"]["error"] < 0.12
    assert np.array_equal(result.violated, probability(base, draws[1.0]).violated)


def test_resampled_statistics_scatter_around_the_sample() -> None:
    base = deployment()
    costs = np.array([graph.cycles[0, 1] for graph in resample_statistics(base, 64, 5)])
    assert costs.mean() == pytest.approx(10.0, rel=0.01)
    assert 0.0 < costs.std() < 0.3
    assert all(graph.cycles[1, 1] == 5.0 for graph in resample_statistics(base, 4, 5))  # no batches, nothing to draw


def test_models_that_are_not_linear_are_refused() -> None:
    base = deployment()
    document = base.to_document()
    document["operators"][0]["inputs"] = [{"from": "s", "model": {"output": [0, 1, 0], "cycles": [0, 1, 0.1]}}]
    with pytest.raises(InfeasibleError, match="linear"):
        ScaledMace(Deployment.parse(document))


def test_least_regret_weighs_nodes_against_violations() -> None:
    hours = np.array([[30.0, 0.0, 0.0, 0.0], [10.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    cheap = least_regret([1, 2, 3], [1.0, 2.0, 3.0], hours, cost_per_violation_hour=0.1, horizon_h=10.0)
    assert (cheap.expected, cheap.minimax, cheap.recommended) == (1, 1, 1)
    dear = least_regret([1, 2, 3], [1.0, 2.0, 3.0], hours, cost_per_violation_hour=100.0, horizon_h=10.0)
    assert (dear.expected, dear.minimax, dear.recommended) == (3, 3, 3)
    # By hand: 1 costs 10 + 2 * 30 in the first future and 10 otherwise; 3 costs 30 throughout.
    split = least_regret([1, 3], [1.0, 3.0], hours[[0, 2]], cost_per_violation_hour=2.5, horizon_h=10.0)
    assert split.sizes[0].expected_cost == pytest.approx((85 + 10 + 10 + 10) / 4)
    assert split.sizes[0].largest_regret == pytest.approx(55.0)
    assert split.sizes[1].largest_regret == pytest.approx(20.0)
    assert (split.expected, split.minimax, split.recommended) == (1, 3, 3)
    assert "never more than 20" in split.why


def test_least_regret_refuses_values_out_of_range() -> None:
    with pytest.raises(OptionError) as refused:
        least_regret([1], [1.0], np.zeros((1, 2)), cost_per_violation_hour=-1.0, horizon_h=0.0)
    assert {fault.path for fault in refused.value.faults} == {"cost_per_violation_hour", "horizon_h"}


def test_outlook_of_a_cluster_is_complete_and_repeatable() -> None:
    base = deployment()
    rate = 1e6 / 3600.0
    histories = {
        "s": SourceHistory(load(4, growth=0.05) * 1.9, 0.0, rate),
        "r": SourceHistory(load(4), 0.0, rate),
        "old": SourceHistory(load(2), -4 * 604_800.0, 1.0),
    }
    asked = {"bucket_s": 3600.0, "horizon": 14 * 24, "extra_nodes": (-1, 0, 1), "paths": 30, "seed": 4}
    first, two = (outlook(base, histories, **asked) for _ in range(2))
    assert first.to_dict() == two.to_dict()
    assert first.series() == two.series()
    assert set(first.sources) == {"s", "r"}
    assert "ends 42 days before the newest" in first.refused["old"]
    queries = {entry["query"]: entry for entry in first.to_dict()["queries"]}
    assert queries["a"]["first_high"]["confirmed"]
    assert queries["a"]["bottleneck"]["node"] == "x"
    assert queries["b"]["first_high"] is None
    assert [pool.size for pool in first.pools] == [1, 2, 3]
    curves = first.series()
    assert len(curves["total"]["mean"]) == 14 * 24
    assert np.shape(curves["pools"]["2"]) == (30, 14)
    chances = [pool.probability.all_hold for pool in first.pools if pool.probability]
    assert chances == sorted(chances)  # more nodes are never worse


def test_loads_are_forecast_without_running_queries() -> None:
    result = outlook(None, {"s": SourceHistory(load(3), 0.0, 0.0)}, bucket_s=3600.0, horizon=24)
    assert result.violations is None
    assert len(result.series()["sources"]["s"]["mean"]) == 24
