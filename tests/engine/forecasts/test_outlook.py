"""From forecasts to dates, probabilities and pool sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.arrays import FloatArray, statistic_or_worst
from engine.document.deployment import Deployment
from engine.errors import InfeasibleError, OptionError
from engine.estimation.flow import flow
from engine.estimation.loads import loads_of
from engine.estimation.mace import mace
from engine.estimation.noise.realisation import realise
from engine.estimation.noise.summary import RealisedStatistic
from engine.forecasts.answer import ForecastAnswer
from engine.forecasts.forecast import SourceHistory
from engine.forecasts.outlook import outlook
from engine.forecasts.probability import probability, resample_statistics
from engine.forecasts.realised_latency import LatencyTable, RealisedLatency, ScaledWalk, walk_scaled
from engine.forecasts.regret import least_regret
from engine.forecasts.scaled_latency import ScaledMace
from engine.forecasts.violations import violations
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
    result = ScaledMace(base).latencies(np.array(rows)).latency_s
    for row, latencies in zip(rows, result, strict=True):
        single = scaled(base, row)
        seconds = mace(single).mace_s
        events = loads_of(single).outputs(np.arange(2), 2)
        expected = [statistic_or_worst(seconds[i], events[i], statistic) for i in (0, 1)]
        np.testing.assert_allclose(latencies, expected, rtol=1e-9, atol=1e-9)


def test_first_hours_at_risk_and_violated_are_those_of_direct_walks() -> None:
    base = deployment()
    growth = np.linspace(0.5, 1.4, 60)
    mean, high = (np.stack([growth * by, np.ones(60)], axis=1) for by in (1.0, 1.15))
    result = violations(base, mean, high)
    outlook_a, outlook_b = (entry.facts for entry in result.outlooks)
    assert outlook_b.first_risk is None
    assert outlook_b.first_high is None
    assert result.walks < 30
    for first, rows, figure in (
        (outlook_a.first_risk, mean, "high_s"),
        (outlook_a.first_mean, mean, "estimate_s"),
        (outlook_a.first_high, high, "estimate_s"),
    ):
        walked = [walked_at(base, row) for row in rows]
        assert first is not None
        assert first.confirmed
        assert first.index == int(np.flatnonzero(np.array([getattr(entry, figure) for entry in walked]) > 3.0)[0])
        assert first.estimate_s == pytest.approx(walked[first.index].estimate_s)
        assert first.low_s < first.estimate_s < first.high_s
    assert outlook_a.first_risk.index < outlook_a.first_mean.index
    assert outlook_a.first_high.index < outlook_a.first_mean.index


def walked_at(base: Deployment, row: FloatArray) -> RealisedStatistic:
    """Realised worst case of query a with the factors of a row."""
    single = scaled(base, list(row))
    return realise(single, flow(single, by_input=True))["a"].statistics["worst"]


def test_violations_without_walks_are_unconfirmed() -> None:
    mean = np.full((4, 2), 2.0)
    result = violations(deployment(), mean, mean, walks=0)
    assert result.walks == 0
    first = result.outlooks[0].facts.first_mean
    assert first is not None
    assert not first.confirmed
    assert "by Mace alone" in " ".join(map(str, result.assumptions))


def walk(estimate_s: float, high_s: float) -> ScaledWalk:
    row = np.array([estimate_s])
    latency = RealisedLatency(row, row / 2.0, np.array([high_s]), np.array([0.1]), np.array([0.02]))
    return ScaledWalk(latency, (), gaps=(None,), waits_s=np.zeros(1))


def test_table_reads_the_excess_over_mace_along_the_load() -> None:
    table = LatencyTable(("a",))
    for load_share, mace_s, entry in (
        (0.5, 0.0, walk(1.0, 2.0)),
        (1.0, 4.0, walk(7.0, 7.0)),
        (0.5, 0.0, walk(0.9, 1.0)),
    ):
        table.add(np.array([load_share]), np.array([mace_s]), entry)
    result = table(np.array([[0.2], [0.5], [0.75], [1.0], [1.25]]), np.array([[0.0], [0.0], [1.0], [4.0], [9.0]]))
    assert result.estimate_s[:, 0].tolist() == pytest.approx([1.0, 1.0, 3.0, 7.0, 13.0])
    assert result.high_s[:, 0].tolist() == pytest.approx([2.0, 2.0, 3.0 * 2**0.5, 7.0, 13.0])
    assert (result.low_s <= result.estimate_s).all()


def test_table_of_another_placement_passes_through_its_walk() -> None:
    table = LatencyTable(("a",))
    table.add(np.array([0.5]), np.array([0.0]), walk(1.0, 2.0))
    table.add(np.array([0.9]), np.array([0.0]), walk(3.0, 6.0))
    other = table.like(np.array([0.7]), np.array([0.5]), walk(3.5, 5.0))
    read = other(np.array([[0.7], [0.5]]), np.array([[0.5], [0.0]]))
    assert read.estimate_s[:, 0].tolist() == pytest.approx([3.5, 1.5])


@pytest.mark.parametrize("queries", [1, 4])
def test_latencies_read_from_the_table_are_near_direct_walks(queries: int) -> None:
    """Within 6 % in the median and 20 % at nine buckets of ten, where every source moves by itself."""
    rng = np.random.default_rng(queries)
    base = random_queries(queries)
    rows = np.linspace(0.3, 1.15, 30)[:, None] * rng.uniform(0.85, 1.15, (30, queries))
    search = violations(base, rows, rows[:0], walks=8)
    model = ScaledMace(base)
    direct = [walk_scaled(scaled(base, list(row)), model.queries, model.statistics).latency for row in rows]
    for name, field in (("mean_s", "estimate_s"), ("upper_s", "high_s")):
        read = np.array([getattr(entry, name) for entry in search.outlooks]).T
        error = np.abs(np.log(read / np.array([getattr(entry, field) for entry in direct])))
        assert np.median(error) < 0.06
        assert np.quantile(error, 0.9) < 0.2


def random_queries(count: int, events_per_s: float = 20.0, load_share: float = 0.8, bound_s: float = 2.0) -> Deployment:
    """Queries of one operator with exponential costs, two to a node."""
    rng = np.random.default_rng(7)
    nodes = (count + 1) // 2
    cost = load_share / events_per_s / min(count, 2)
    return Deployment.parse(
        {
            "subinterval_s": 0.25,
            "sources": [
                {"id": f"s{i}", "arrivals": rng.poisson(events_per_s / 4, 480).astype(float)} for i in range(count)
            ],
            "nodes": [{"id": f"n{k}", "capacity_cps": 1.0} for k in range(nodes)],
            "operators": [
                {
                    "id": f"o{i}",
                    "query": f"q{i}",
                    "node": f"n{i % nodes}",
                    "inputs": [{"from": f"s{i}", "selectivity": 1, "cycles_per_event": cost, "cost_cv2": 1}],
                }
                for i in range(count)
            ],
            "objectives": [{"query": f"q{i}", "statistic": "worst", "bound_s": bound_s} for i in range(count)],
        }
    )


@pytest.mark.parametrize("load_share", [0.7, 0.8, 0.88])
def test_probability_of_one_hour_is_that_of_events_at_random(load_share: float) -> None:
    """Against Lindley's recursion with the same counts, costs and places of events inside a slice at random.

    Errors of the model count too, so that chances in the middle are nearer to a half than they are.
    """
    base = random_queries(1, load_share=load_share, bound_s=1.2)
    rng = np.random.default_rng(3)
    worst_s = [lindley_worst_s(base.sources[0].arrivals, load_share / 20.0, rng) for _ in range(400)]
    rows = np.ones((1, 1))
    table = violations(base, np.linspace(0.8, 1.2, 9)[:, None], rows[:0]).table
    chance = probability(base, np.tile(rows, (1000, 1, 1)), table=table).per_bucket[0, 0]
    assert chance == pytest.approx(float(np.mean(np.array(worst_s) > 1.2)), abs=0.15)


def lindley_worst_s(counts: FloatArray, mean_s: float, rng: np.random.Generator) -> float:
    """Worst latency of one queue with slices of 0.25 s."""
    times = np.concatenate([(p + np.sort(rng.random(n))) * 0.25 for p, n in enumerate(counts.astype(int))])
    worst, done = 0.0, 0.0
    for arrival, service in zip(times.tolist(), rng.exponential(mean_s, len(times)).tolist(), strict=True):
        done = max(done, arrival) + service
        worst = max(worst, done - arrival)
    return worst


def test_randomness_lowers_the_probability_that_an_objective_holds() -> None:
    base = random_queries(1, bound_s=1.0)
    rows = np.full((40, 24, 1), 0.9)
    table = violations(base, np.linspace(0.6, 1.1, 12)[:, None], rows[0]).table
    assert probability(base, rows).all_hold == 1.0
    assert probability(base, rows, table=table).all_hold < 0.9


def test_probabilities_follow_loads_and_statistics() -> None:
    base = deployment()
    bound_s = ScaledMace(base).bounds_s[0]
    limit = next(
        f
        for f in np.linspace(0.8, 1.5, 400)
        if ScaledMace(base).latencies(np.array([[f, 1]])).latency_s[0, 0] > bound_s
    )
    draws = {by: np.tile([limit * by, 1.0], (60, 3, 1)) for by in (0.9, 1.0, 1.1)}
    holds = {by: probability(base, draws[by]).holds[0] for by in draws}
    assert holds[0.9] == 1.0
    assert 0.05 < holds[1.0] < 0.95  # the statistics alone decide
    assert holds[1.1] == 0.0
    result = probability(base, draws[1.0])
    assert result.chances.queries["a"].error < 0.12
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
    assert "never more than 20" in str(split.why)


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
    assert first.answer == two.answer == ForecastAnswer.parse(first.answer.to_dict())
    assert first.series() == two.series()
    assert set(first.sources) == {"s", "r"}
    assert "ends 42 days before the newest" in str(first.refused["old"])
    queries = {entry.query: entry for entry in first.answer.queries}
    assert queries["a"].first_high.confirmed
    assert queries["a"].bottleneck.node == "x"
    assert queries["b"].first_high is None
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
