"""The event-level simulator: tiny stories asserted whole."""

import numpy as np
import pytest

from engine.document.deployment import Deployment
from engine.errors import OptionError, UnplacedError
from engine.simulation import POLICIES, SimulationSettings, TooLargeError, simulate
from tests.engine.simulation.stories import NODE, deployment, exact, operator, story

TWO_NODES = [{"id": "a", "capacity_cps": 1.0}, {"id": "b", "capacity_cps": 1.0}]


def test_events_queue_one_behind_the_other():
    system = deployment([operator("f", "s")], {"s": [2, 1, 0, 0]})
    assert story(system) == [("f", 0.0, 1.0), ("f", 0.5, 2.0), ("f", 1.0, 3.0)]


# Operator c reads a; a and b read sources of their own. Every event costs one second of the only core.
POLICY_STORIES = {
    "stimulus-time": [("c", 0.0, 2.0), ("c", 0.1, 4.0), ("b", 0.2, 5.0), ("b", 0.3, 6.0), ("b", 0.4, 7.0)],
    "fifo": [("b", 0.2, 3.0), ("b", 0.3, 4.0), ("b", 0.4, 5.0), ("c", 0.0, 6.0), ("c", 0.1, 7.0)],
    "round-robin": [("b", 0.2, 2.0), ("c", 0.0, 3.0), ("b", 0.3, 5.0), ("c", 0.1, 6.0), ("b", 0.4, 7.0)],
    "longest-queue": [("b", 0.2, 2.0), ("b", 0.3, 3.0), ("c", 0.0, 5.0), ("b", 0.4, 6.0), ("c", 0.1, 7.0)],
}


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_each_policy_serves_events_in_its_own_order(policy):
    system = deployment([operator("a", "s"), operator("b", "t"), operator("c", "a")], {"s": [2], "t": [3]})
    times_s = {"s": np.array([0.0, 0.1]), "t": np.array([0.2, 0.3, 0.4])}
    assert story(system, exact(policy), times_s) == POLICY_STORIES[policy]


def test_stimulus_time_takes_the_older_event_of_two_inputs():
    """The way over b is slower, so its events come late to the join, but they go first."""
    joined = [
        operator("slow", ("s", 1, 2), node="b"),
        operator("join", ("t", 1, 1), ("slow", 1, 1), node="a"),
    ]
    system = deployment(joined, {"s": [1], "t": [4]}, nodes=TWO_NODES)
    log = story(system)
    assert log == [("join", 0.0, 1.0), ("join", 0.25, 2.0), ("join", 0.0, 3.0), ("join", 0.5, 4.0), ("join", 0.75, 5.0)]


def test_cores_work_side_by_side():
    system = deployment(
        [operator("f", "s", core=0), operator("g", "s", core=1)],
        {"s": [2]},
        nodes=[{"id": "n", "capacity_cps": 1.0, "cores": 2}],
    )
    assert story(system) == [("f", 0.0, 1.0), ("g", 0.0, 1.0), ("f", 0.5, 2.0), ("g", 0.5, 2.0)]


def link_story(bandwidth_bytes_s, delay_s):
    link = {"from": "a", "to": "b", "bandwidth_bytes_s": bandwidth_bytes_s, "delay_s": delay_s}
    chain = [operator("f", ("s", 1, 0.1), node="a", bytes_per_event=10), operator("g", ("f", 1, 0.1), node="b")]
    return story(deployment(chain, {"s": [2]}, nodes=TWO_NODES, links=[link]))


def test_a_link_without_limits_costs_nothing():
    assert link_story(None, 0.0) == [("g", 0.0, 0.2), ("g", 0.5, 0.7)]


def test_a_link_delays_every_event():
    assert link_story(None, 0.7) == [("g", 0.0, 0.9), ("g", 0.5, 1.4)]


def test_a_link_with_a_bandwidth_is_a_server():
    assert link_story(10.0, 0.0) == [("g", 0.0, 1.2), ("g", 0.5, 2.2)]


def test_bandwidth_first_then_delay():
    assert link_story(10.0, 0.7) == [("g", 0.0, 1.9), ("g", 0.5, 2.9)]


def test_links_do_not_touch_data_that_stays_or_comes_from_a_source():
    link = {"from": "a", "to": "b", "bandwidth_bytes_s": 1.0, "delay_s": 9.0}
    chain = [operator("f", "s", node="b", bytes_per_event=10), operator("g", "f", node="b")]
    assert story(deployment(chain, {"s": [1]}, nodes=TWO_NODES, links=[link])) == [("g", 0.0, 2.0)]


def test_a_split_operator_shares_its_events():
    split = [{"node": "a", "fraction": 0.75}, {"node": "b", "fraction": 0.25}]
    system = deployment([operator("f", "s", split=split, stateless=True)], {"s": [8]}, nodes=TWO_NODES)
    run = simulate(system, exact())
    assert run.busy_s.sum(axis=1).tolist() == [1.0, 0.75] and run.services == 8
    assert sorted(run.records["egress"].tolist()) == [1.0, 1.25, 2.0, 2.25, 3.0, 4.0, 5.0, 6.0]


def test_capacity_may_pause_and_its_last_value_lasts():
    node = {"id": "n", "capacity_series_cps": [1.0, 0.0, 2.0]}
    system = deployment([operator("f", ("s", 1, 4))], {"s": [1, 0, 1]}, nodes=[node])
    assert story(system) == [("f", 0.0, 3.5), ("f", 2.0, 5.5)]


@pytest.mark.parametrize(("selectivity", "stimuli"), [(0.5, [0.25, 0.75]), (1.5, [0.0, 0.25, 0.25, 0.5, 0.75, 0.75])])
def test_fixed_outputs_add_up(selectivity, stimuli):
    system = deployment([operator("f", ("s", selectivity, 0.1))], {"s": [4]})
    assert [stimulus for _, stimulus, _ in story(system)] == stimuli


def test_one_source_read_twice_is_served_twice():
    system = deployment([operator("f", ("s", 1, 1), ("s", 1, 2))], {"s": [1]})
    assert story(system) == [("f", 0.0, 1.0), ("f", 0.0, 3.0)]


@pytest.mark.parametrize(
    ("combine", "egress"),
    [({"kind": "sum"}, 2.0), ({"kind": "max"}, 1.0), ({"kind": "interference", "alpha": 0.5}, 3.0)],
)
def test_loads_combine_as_the_deployment_says(combine, egress):
    system = deployment([operator("f", "s"), operator("g", "s")], {"s": [1]}, combine=combine)
    assert story(system)[-1] == ("g", 0.0, egress)


def test_a_model_sets_cost_and_outputs_by_the_events_of_a_subinterval():
    model = {"output": [0, 0, 0.5], "cycles": [0.2, 0, 0.1]}
    system = deployment([{"id": "f", "node": "n", "inputs": [{"from": "s", "model": model}]}], {"s": [2, 0, 0, 4]})
    run = simulate(system, exact())
    assert np.bincount(run.records["p"]).tolist() == [2, 0, 0, 8]
    assert run.busy_s.sum() == pytest.approx(0.6 + 1.0) and run.records["egress"][1] == pytest.approx(0.8)


def test_work_without_cost_takes_no_time():
    chain = [operator("f", ("s", 1, 0)), operator("g", ("f", 1, 0))]
    assert story(deployment(chain, {"s": [2]})) == [("g", 0.0, 0.0), ("g", 0.5, 0.5)]
    assert story(deployment(chain, {"s": [0, 0]})) == []
    assert story(deployment([operator("alone")], {"s": [3]})) == []


def test_latency_of_merged_paths_does_not_depend_on_their_storage(monkeypatch):
    """Seven diamonds in a row have 128 paths: one queue per input then, and nothing else changes."""
    operators = [operator("o0", ("s", 1, 0.1))]
    for i in range(7):
        operators += [operator(f"x{i}", (f"o{i}", 0.7, 0.2), node="b"), operator(f"y{i}", (f"o{i}", 0.4, 0.1))]
        operators.append(operator(f"o{i + 1}", (f"x{i}", 0.8, 0.1), (f"y{i}", 0.9, 0.2)))
    nodes = [{"id": "n", "capacity_cps": 60.0}, {"id": "b", "capacity_cps": 30.0}]
    system = deployment(operators, {"s": [20, 40, 0, 10]}, nodes=nodes)
    merged = story(system)
    monkeypatch.setattr("engine.simulation.layout.MAX_PATHS", 1000)
    assert merged == story(system) and len(merged) > 20


def random_system(seed, sources=2, nodes=3, count=12):
    rng = np.random.default_rng(seed)
    names = [f"s{i}" for i in range(sources)]
    operators = []
    for i in range(count):
        reads = rng.choice(names + [o["id"] for o in operators], size=min(2, 1 + i % 2), replace=False)
        ports = [(str(name), float(rng.uniform(0.3, 1.1)), float(rng.uniform(0.5, 2))) for name in reads]
        operators.append(operator(f"o{i}", *ports, node=f"n{rng.integers(nodes)}", query=f"q{i % 2}"))
    arrivals = {name: rng.poisson(60 * rng.integers(0, 2, 30)).astype(float) for name in names}
    machines = [{"id": f"n{i}", "capacity_cps": 500.0} for i in range(nodes)]
    return deployment(operators, arrivals, nodes=machines)


def test_equal_seeds_give_equal_records():
    system = random_system(1)
    first, again = (simulate(system, SimulationSettings(seed=5, cost_cv=0.7)) for _ in range(2))
    other = simulate(system, SimulationSettings(seed=6, cost_cv=0.7))
    assert np.array_equal(first.records, again.records) and np.array_equal(first.busy_s, again.busy_s)
    assert not np.array_equal(first.records, other.records)


@pytest.mark.parametrize("seed", range(5))
def test_policies_see_the_same_work(seed):
    """Costs and outputs belong to the event, so only the order differs."""
    system = random_system(seed)
    runs = [simulate(system, SimulationSettings(POLICIES[name], seed=seed, cost_cv=0.5)) for name in POLICIES]
    for run in runs[1:]:
        assert run.services == runs[0].services
        assert np.array_equal(np.sort(run.records["stimulus"]), np.sort(runs[0].records["stimulus"]))


def test_busy_time_of_one_node_is_the_same_under_every_policy():
    system = random_system(3, nodes=1)
    ends = {name: simulate(system, SimulationSettings(POLICIES[name], cost_cv=0.5)).busy_s.sum() for name in POLICIES}
    assert max(ends.values()) == pytest.approx(min(ends.values()), rel=1e-9)


@pytest.mark.parametrize("cost_cv", [0.0, 1.0])
def test_mean_wait_agrees_with_pollaczek_khinchine(cost_cv):
    """M/G/1 at load 0.8: mean wait = load * S * (1 + cv^2) / (2 * (1 - load))."""
    system = deployment([operator("f", "s")], {"s": [0]}, width_s=400_000.0)
    times_s = {"s": np.sort(np.random.default_rng(2).uniform(0, 400_000.0, 320_000))}
    run = simulate(system, SimulationSettings(POLICIES["fifo"], cost_cv=cost_cv), times_s=times_s)
    assert run.latency_s.mean() - 1.0 == pytest.approx(0.8 * (1 + cost_cv**2) / 0.4, rel=0.05)
    assert run.busy_s[0, 0] / 400_000 == pytest.approx(0.8, rel=0.01)


def test_random_costs_and_outputs_have_their_means():
    system = deployment([operator("f", ("s", 1.3, 0.001))], {"s": [100_000]})
    run = simulate(system, SimulationSettings(cost_cv=0.8), groups={"s": np.zeros(100_000, np.int32)})
    events, outputs, cycles = run.sampled[0, 0]
    assert events == 100_000 and outputs / events == pytest.approx(1.3, rel=0.01)
    assert cycles / events == pytest.approx(0.001, rel=0.02)


def test_samples_follow_the_descendants_of_their_events():
    system = deployment([operator("f", ("s", 2, 0.1)), operator("g", ("f", 1, 0.2))], {"s": [4]})
    groups = {"s": np.array([0, 1, 1, -1], np.int32)}
    sampled = simulate(system, exact(), groups=groups).sampled
    assert sampled.round(9).tolist() == [[[1, 2, 0.1], [2, 4, 0.2]], [[2, 2, 0.4], [4, 4, 0.8]]]


def test_series_and_utilisation_match_the_records():
    system = deployment([operator("f", "s", query="q"), operator("g", ("t", 1, 0.5))], {"s": [2, 0, 0], "t": [0, 0, 1]})
    run = simulate(system, exact())
    series = run.series("q")
    assert series.maximum_s.tolist()[0] == 1.5 and series.mean_s[0] == 1.25 and series.q99_s[0] == 1.5
    assert series.events.tolist() == [2, 0, 0] and np.isnan(series.maximum_s[1:]).all()
    assert run.series().events.tolist() == [2, 0, 1] and run.worst_s == 1.5
    assert run.utilisation()["n"].tolist() == [1.0, 1.0, 0.5]


def test_run_over_the_event_limit_is_refused():
    with pytest.raises(TooLargeError, match=r"About 3e\+09 events .* at most 5e\+07 may"):
        simulate(deployment([operator("f", "s")], {"s": [1e9]}))
    with pytest.raises(TooLargeError, match=r"About 1e\+09 events"):
        simulate(deployment([operator("f", "s")], {"s": [1], "unread": [1e9]}))
    with pytest.raises(TooLargeError, match=r"put out 2e\+05 events at once; at most 1e\+05 may"):
        simulate(deployment([operator("f", ("s", 2e5, 1))], {"s": [1]}))


def test_unplaced_operators_are_refused():
    document = deployment([operator("f", "s")], {"s": [1]}).to_document()
    for name in ("node", "core"):
        document["operators"][0].pop(name, None)
    with pytest.raises(UnplacedError, match="no node"):
        simulate(Deployment.parse(document, placed=False))


def test_progress_rises_and_an_exception_from_it_ends_the_run(monkeypatch):
    monkeypatch.setattr("engine.simulation.run.STEPS_PER_REPORT", 100)
    system = deployment([operator("f", ("s", 1, 0.001))], {"s": [500]}, nodes=[NODE])
    shares = []
    simulate(system, exact(), progress=shares.append)
    assert len(shares) >= 10 and shares == sorted(shares) and shares[-1] == 1.0

    def cancel(share):
        raise InterruptedError

    with pytest.raises(InterruptedError):
        simulate(system, exact(), progress=cancel)


def test_simulation_refuses_sessions_of_keys() -> None:
    document = {
        "subinterval_s": 1.0,
        "sources": [{"id": "s", "arrivals": [10.0]}],
        "nodes": [{"id": "n", "capacity_cps": 1e6}],
        "operators": [
            {
                "id": "visits",
                "query": "q",
                "node": "n",
                "window": {"policy": "time", "type": "session", "size": 10.0},
                "inputs": [{"from": "s", "selectivity": 0.5, "cycles_per_event": 1.0}],
            }
        ],
    }
    with pytest.raises(OptionError, match="visits are sessions"):
        simulate(Deployment.parse(document), SimulationSettings(seed=1))
