"""Realised latencies: exact formulas, the network's parts, determinism and documents of next to nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from engine.document.deployment import Deployment
from engine.estimation.flow import flow
from engine.estimation.noise.realisation import realise
from engine.estimation.noise.summary import RealisedQuery
from tests.engine.samples import deployment, entry, operator

WIDTH, SLICES = 0.25, 4800


def poisson(rate: float, seed: int = 1, slices: int = SLICES) -> list[float]:
    return np.random.default_rng(seed).poisson(rate * WIDTH, slices).astype(float).tolist()


def station(load: float, cv2: float, slices: int = SLICES, **changes: Any) -> dict[str, Any]:
    """One operator of 40 events/s on a node of 1,000 cycles/s, loaded so."""
    arrivals = poisson(40.0, slices=slices)
    cycles = load * 1000.0 * slices * WIDTH / sum(arrivals)
    return {
        "subinterval_s": WIDTH,
        "sources": [{"id": "s", "arrivals": arrivals}],
        "nodes": [{"id": "A", "capacity_cps": 1000.0}],
        "operators": [operator("f", "A", entry("s", 1.0, cycles, cost_cv2=cv2), query="q")],
        **changes,
    }


def realised(document: dict[str, Any], query: str = "q", **options: Any) -> RealisedQuery:
    parsed = Deployment.parse(document)
    return realise(parsed, flow(parsed, by_input=True), **options)[query]


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
@pytest.mark.parametrize("cv2", [0.0, 1.0])
def test_mean_is_that_of_pollaczek_and_khinchine(load: float, cv2: float) -> None:
    service = load / 40.0
    exact = service + load * service * (1.0 + cv2) / (2.0 * (1.0 - load))
    assert realised(station(load, cv2)).statistics["mean"].estimate_s == pytest.approx(exact, rel=0.15)


@pytest.mark.parametrize(("load", "cv2"), [(0.6, 0.0), (0.6, 1.0), (0.9, 0.0)])
def test_mean_of_slices_with_few_events_is_that_of_the_events(load: float, cv2: float) -> None:
    rng = np.random.default_rng(2)
    times = np.sort(rng.uniform(0.0, 300.0, 9000))
    costs = load / 30.0 * (rng.standard_exponential(9000) if cv2 else np.ones(9000))
    counts = np.bincount((times * 100).astype(int), minlength=30_000).astype(float)
    done = np.cumsum(costs)
    latencies = done + np.maximum.accumulate(times - done + costs) - times  # Lindley
    document = {
        "subinterval_s": 0.01,
        "sources": [{"id": "s", "arrivals": counts}],
        "nodes": [{"id": "A", "capacity_cps": 1.0}],
        "operators": [operator("f", "A", entry("s", 1.0, costs.mean(), cost_cv2=cv2), query="q")],
        "statistics_of": "these",
    }
    assert (counts == 0.0).mean() > 0.7
    assert realised(document).statistics["mean"].estimate_s == pytest.approx(latencies.mean(), rel=0.12)


def test_worst_of_a_single_station_with_exponential_costs_is_that_of_its_busy_periods() -> None:
    # Of a busy period, of which there are rate x (1 - load) a second, it is above x with (1 - load) exp(-x / scale).
    load, scale = 0.4, (0.4 / 40.0) / 0.6
    periods = 40.0 * 0.6 * SLICES * WIDTH
    exact = scale * math.log(periods * 0.6 / math.log(2.0))
    assert realised(station(load, 1.0)).statistics["worst"].estimate_s == pytest.approx(exact, rel=0.15)


def test_variation_from_few_batches_is_uncertain() -> None:
    batches = [{"events": 100, "outputs": 100, "cycles": 15e2 + step} for step in (150.0, -150.0) * 4]
    document = station(0.6, 0.0)
    entry_ = document["operators"][0]["inputs"][0]
    entry_ |= {"batches": batches}
    given = realised(document | {"statistics_of": "sample"}).statistics["worst"]
    del entry_["cost_cv2"]
    drawn = realised(document).statistics["worst"]
    assert drawn.high_s / drawn.low_s > 2.0 * given.high_s / given.low_s


def test_tail_of_a_single_station_with_exponential_costs_is_exponential() -> None:
    exact = -math.log(0.01) * (0.6 / 40.0) / (1.0 - 0.6)
    assert realised(station(0.6, 1.0)).statistics["q0.99"].estimate_s == pytest.approx(exact, rel=0.2)


def test_latencies_of_a_chain_of_exponential_stations_add_up() -> None:
    document = station(0.6, 1.0)
    document["nodes"].append({"id": "B", "capacity_cps": 1000.0})
    cost = document["operators"][0]["inputs"][0]["cycles_per_event"]
    document["operators"].append(operator("g", "B", entry("f", 1.0, cost, cost_cv2=1.0), query="q"))
    exact = 2.0 * (0.6 / 40.0) / (1.0 - 0.6)
    assert realised(document).statistics["mean"].estimate_s == pytest.approx(exact, rel=0.15)


def test_statistics_are_in_order_and_inside_their_intervals() -> None:
    statistics = realised(station(0.8, 1.0)).statistics
    assert statistics["mean"].estimate_s < statistics["q0.99"].estimate_s < statistics["worst"].estimate_s
    assert all(s.low_s < s.estimate_s < s.high_s for s in statistics.values())


def test_equal_seeds_give_equal_results() -> None:
    document = station(0.8, 1.0, slices=200)
    assert realised(document, seed=3) == realised(document, seed=3)
    assert realised(document, seed=3) != realised(document, seed=4)


def test_the_objectives_quantile_is_reported_too() -> None:
    document = station(0.6, 1.0, objectives=[{"query": "q", "statistic": "q0.5", "bound_s": 1.0}])
    statistics = realised(document).statistics
    exact = math.log(2) * (0.6 / 40.0) / (1.0 - 0.6)
    assert statistics["q0.5"].estimate_s == pytest.approx(exact, rel=0.3)
    assert statistics["q0.5"].estimate_s < statistics["q0.99"].estimate_s


def test_an_uncertain_sample_widens_the_interval() -> None:
    batches = [{"events": 10, "outputs": 10, "cycles": cycles} for cycles in (150.0, 250.0, 180.0, 220.0)]
    exact, sampled = station(0.9, 1.0), station(0.9, 1.0)
    sampled["operators"][0]["inputs"][0]["batches"] = batches
    these = sampled | {"statistics_of": "these"}
    widths = [realised(document).statistics["worst"] for document in (exact, sampled, these)]
    known, wide, counted = (statistic.high_s / statistic.low_s for statistic in widths)
    assert wide > 2.0 * known
    assert counted < 1.5 * known


def test_statistics_of_these_arrivals_fix_the_total_work() -> None:
    sampled, these = station(1.2, 1.0, slices=480), station(1.2, 1.0, slices=480, statistics_of="these")
    free, fixed = (realised(document).statistics["worst"] for document in (sampled, these))
    assert math.log(fixed.high_s / fixed.low_s) < 0.5 * math.log(free.high_s / free.low_s)


def test_replicas_of_half_the_speed_each_are_slower_than_one_machine() -> None:
    whole = station(0.6, 1.0)
    halves = whole | {
        "nodes": [{"id": name, "capacity_cps": 500.0} for name in "AB"],
        "operators": [
            {
                "id": "f",
                "query": "q",
                "stateless": True,
                "split": [{"node": name, "fraction": 0.5} for name in "AB"],
                "inputs": whole["operators"][0]["inputs"],
            }
        ],
    }
    split = realised(halves)
    assert split.statistics["mean"].estimate_s == pytest.approx(
        2.0 * realised(whole).statistics["mean"].estimate_s, rel=0.2
    )
    assert any("at random" in str(sentence) for sentence in split.assumed)


def linked(bandwidth: float | None, delay: float) -> dict[str, Any]:
    document = station(0.3, 0.0)
    document["nodes"].append({"id": "B", "capacity_cps": 1000.0})
    document["operators"][0]["bytes_per_event"] = 10.0
    document["operators"].append(operator("g", "B", entry("f", 1.0, 0.0, cost_cv2=0.0), query="q"))
    document["links"] = [{"from": "A", "to": "B", "bandwidth_bytes_s": bandwidth, "delay_s": delay}]
    return document


@pytest.mark.parametrize("delay", [0.1, 2.0])
def test_a_links_delay_adds_to_every_latency(delay: float) -> None:
    near, far = (realised(linked(None, seconds)).statistics for seconds in (0.0, delay))
    for name in ("mean", "worst", "q0.99"):
        assert far[name].estimate_s == pytest.approx(near[name].estimate_s + delay, rel=0.05)


def test_a_link_with_a_bandwidth_is_a_server() -> None:
    # 400 bytes/s over 500: an M/D/1 queue at load 0.8 whose arrivals the node before has smoothed but little.
    free, narrow = realised(linked(None, 0.0)), realised(linked(500.0, 0.0))
    added = narrow.statistics["mean"].estimate_s - free.statistics["mean"].estimate_s
    assert added == pytest.approx(0.02 + 0.8 * 0.02 / (2 * 0.2), rel=0.3)
    assert any("A->B" in str(sentence) for sentence in narrow.assumed)


def test_a_pause_in_capacity_holds_the_walk() -> None:
    series = np.full(SLICES, 1000.0)
    series[2000:2040] = 0.0  # ten seconds
    document = station(0.5, 1.0, nodes=[{"id": "A", "capacity_series_cps": series.tolist()}])
    statistics = realised(document).statistics
    assert statistics["worst"].estimate_s == pytest.approx(10.0, rel=0.1)
    # Of 1,200 s of arrivals, 20 s meet a queue that falls from 10 s to nothing.
    service = 0.5 / 40.0
    assert statistics["mean"].estimate_s == pytest.approx(20.0 / 1200.0 * 5.0 + 2.0 * service, rel=0.25)


def test_a_varying_capacity_that_does_not_vary_changes_nothing() -> None:
    constant = station(0.7, 1.0)
    level = [{"id": "A", "capacity_series_cps": [1000.0] * SLICES}]
    for name, statistic in realised(constant | {"nodes": level}).statistics.items():
        assert statistic.estimate_s == pytest.approx(realised(constant).statistics[name].estimate_s, rel=1e-9)


def test_interference_lengthens_waits() -> None:
    document = station(0.6, 1.0)
    document["operators"].append(operator("idle", "A", entry("s", 0.0, 1e-3, cost_cv2=0.0), query="other"))
    combined = document | {"combine": {"kind": "interference", "alpha": 0.3}}
    plain, loaded = (realised(each).statistics["mean"].estimate_s for each in (document, combined))
    assert loaded > 1.3 * plain


def test_a_model_of_costs_weighs_as_its_loads_do() -> None:
    document = station(0.6, 1.0)
    item = document["operators"][0]["inputs"][0]
    cycles = item["cycles_per_event"]
    model = {"output": [0, 1, 0], "cycles": [0, cycles, 0]}
    modelled = {key: value for key, value in item.items() if key not in ("selectivity", "cycles_per_event")}
    linear = realised(document).statistics["worst"]
    document["operators"][0]["inputs"] = [modelled | {"model": model}]
    assert realised(document).statistics["worst"].estimate_s == pytest.approx(linear.estimate_s, rel=0.02)


def test_other_policies_are_said_to_be_left_out() -> None:
    document = station(0.5, 1.0, slices=100)
    document["nodes"][0]["scheduling"] = "fcfs"
    (policy,) = realised(document).not_modelled
    assert "fcfs" in str(policy)


def test_coarse_counts_are_named_and_nothing_is_under_their_step() -> None:
    document = station(0.5, 1.0)
    document["sources"][0] |= {"arrivals": [10.0] * SLICES, "arrivals_step_s": 60.0}
    query = realised(document)
    assert query.under_s == 60.0
    assert query.assumed_sources == ("s",)
    assert str(query.assumed[0]).startswith("Arrivals of s inside 60\u00a0s")


def test_what_another_server_assumes_is_no_query_of_its_own() -> None:
    document = station(0.5, 1.0, slices=100)
    document["nodes"].append({"id": "B", "capacity_cps": 1000.0})
    document["operators"].append(operator("g", "B", entry("s"), query="other"))
    assert realised(document).assumed_costs == ()
    assert realised(document, "other").assumed_costs == ("g<-s",)


def assert_finite(query: RealisedQuery) -> None:
    for statistic in query.statistics.values():
        assert 0.0 <= statistic.low_s <= statistic.estimate_s <= statistic.high_s < math.inf


@pytest.mark.parametrize(
    "changes",
    [
        {"sources": [{"id": "s", "arrivals": [7]}]},
        {"sources": [{"id": "s", "arrivals": [0, 0, 1e-9, 0]}]},
        {"sources": [{"id": "s", "arrivals": [0, 1e9, 0, 0]}]},
        {"sources": [{"id": "s", "arrivals": [0, 0.2, 0.1, 0], "arrivals_step_s": 4.0}]},
        {"sources": [{"id": "s", "arrivals": [3, 0, 5, 0], "dispersion": 0.0, "dispersion_step_s": 1.0}]},
        {"nodes": [{"id": "A", "capacity_series_cps": [0, 0, 0, 1e-3]}, {"id": "B", "capacity_cps": 1e12}]},
        {"operators": [operator("f", "A", entry("s", 1.0, 0.0), query="q"), operator("g", "B", entry("f"), query="q")]},
        {"operators": [operator("f", "A", entry("s", 1e6, 0.0), query="q"), operator("g", "B", entry("f"), query="q")]},
        {"operators": [operator("f", "A", entry("s", 1.0, 5.0, cost_cv2=0.0), query="q")]},
        {"operators": [operator("f", "A", entry("s", 1.0, 5.0, cost_cv2=100.0), query="q")]},
        {"operators": [operator("f", "A", entry("s"), entry("s"), query="q")]},
    ],
)
@pytest.mark.parametrize("origin", ["sample", "these"])
def test_documents_of_next_to_nothing_give_finite_numbers(changes: dict[str, Any], origin: str) -> None:
    base = deployment(operators=[operator("f", "A", entry("s"), query="q")], statistics_of=origin)
    assert_finite(realised(base | changes, paths=2))


@pytest.mark.parametrize(
    "changes",
    [
        {"sources": [{"id": "s", "arrivals": [0, 0, 0, 0]}]},
        {"operators": [operator("f", "A", query="q")]},
        {"operators": [operator("f", "A", entry("s", 0.0, 0.0), query="q")]},
    ],
)
def test_query_without_events_has_no_figures(changes: dict[str, Any]) -> None:
    parsed = Deployment.parse(deployment(operators=[operator("f", "A", entry("s"), query="q")]) | changes)
    assert realise(parsed, flow(parsed, by_input=True), paths=2) == {}


def test_a_deployment_without_queries_has_no_result() -> None:
    parsed = Deployment.parse(deployment())
    assert realise(parsed, flow(parsed, by_input=True)) == {}


def test_a_single_path_is_refused() -> None:
    with pytest.raises(ValueError, match="paths is 1; allowed"):
        realised(station(0.5, 1.0, slices=4), paths=1)


def shared(*more: tuple[str, float]) -> dict[str, Any]:
    """`station`, and queries of these names and loads listed before it on its node; with load 0 on another one."""
    document = station(0.6, 1.0)
    document["nodes"].insert(0, {"id": "0", "capacity_cps": 1000.0})
    for name, load in more:
        document["sources"].insert(0, {"id": f"{name}/s", "arrivals": poisson(40.0, seed=2)})
        reads = entry(f"{name}/s", 1.0, (load or 0.5) * 25.0, cost_cv2=1.0)
        document["operators"].insert(0, operator(f"{name}/f", "A" if load else "0", reads, query=name))
    return document


def test_what_runs_beside_a_query_on_other_servers_changes_none_of_its_numbers() -> None:
    assert realised(shared(("p", 0.0), ("r", 0.0))).statistics == realised(shared()).statistics


def test_a_little_more_load_makes_a_little_more_latency() -> None:
    alone, little, more = (realised(shared(*others)).statistics for others in ((), [("p", 1e-4)], [("p", 0.02)]))
    for name, statistic in alone.items():
        assert statistic.estimate_s < little[name].estimate_s < 1.01 * statistic.estimate_s, name
        assert 1.005 * statistic.estimate_s < more[name].estimate_s < 1.25 * statistic.estimate_s, name


def test_figures_of_some_queries_are_those_of_all() -> None:
    """A walk of fewer queries has fewer stages, and draws the same for each."""
    operators = [operator(f"f{i}", "AB"[i % 2], entry("s"), query=f"q{i}") for i in range(5)]
    operators += [operator(f"g{i}", "B", entry(f"f{i}"), query=f"q{i}") for i in range(5)]
    nodes = [{"id": name, "capacity_cps": 1000.0} for name in "AB"]
    deployment = Deployment.parse(station(0.1, 1.0, slices=480) | {"nodes": nodes, "operators": operators})
    run = flow(deployment, by_input=True)
    whole = realise(deployment, run)
    for names in (deployment.queries[:1], deployment.queries[1::2], ()):
        some = realise(deployment, run, queries=names)
        assert some == {query: whole[query] for query in names}
