"""The rate at which a query saturates: Flow keeps up below and falls behind above, whatever shares its servers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.capacity.saturation import ClusterSaturation
from engine.document.deployment import Deployment
from engine.estimation.flow import flow
from engine.provisioning.changes import apply_changes
from tests.engine.estimation.clusters import random_cluster
from tests.engine.samples import deployment as document
from tests.engine.samples import entry
from tests.thoroughness import examples

MEASURED = {"kind": "measured"}
_STEPS = 600


def measured(name: str, node: str, *inputs: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A placed operator with measured costs."""
    return {"id": name, "node": node, "query": "q", "evidence": MEASURED, "inputs": list(inputs), **more}


def steady(**changes: Any) -> Deployment:
    """20 events/s through f (0.5 put out, 1 cycle) on A and g (4 cycles) on B; 100 cycles/s each."""
    return Deployment.parse(
        document(
            sources=[{"id": "s", "arrivals": [20.0] * 50}],
            operators=[measured("f", "A", entry("s", 0.5)), measured("g", "B", entry("f", 1.0, 4.0))],
        )
        | changes
    )


def with_steady_rates(rng: np.random.Generator, seed_load: float) -> Deployment:
    """A random cluster with steady arrivals and linear loads that keeps up as it is."""
    found = random_cluster(rng, queries=4, nodes=4, load=0.3)
    found.pop("combine", None)
    for source in found["sources"]:
        source.pop("backlog", None)
        source["arrivals"] = [max(1.0, float(np.mean(source["arrivals"])))] * _STEPS
    for node in found["nodes"]:
        if "capacity_series_cps" in node:
            node.pop("capacity_series_cps")
            node["capacity_cps"] = 100.0
    for operator in found["operators"]:
        operator["evidence"] = MEASURED
        operator.pop("window", None)
        for item in operator["inputs"]:
            if item.pop("model", None):
                item |= {"selectivity": 0.8, "cycles_per_event": 0.2}
    deployment = Deployment.parse(found)
    factor = ClusterSaturation(deployment).of_cluster().factor
    assert factor is not None
    return apply_changes(deployment, [{"scale_source": "*", "by": seed_load * factor}])


def test_what_comes_through_is_no_more_than_is_sustained_at_most() -> None:
    """Costs of a light load, or of another host's contention, may say less than was seen."""
    costly = [
        measured("f", "A", entry("s", 0.5, 8.0)),
        {"id": "g", "node": "B", "query": "q", "inputs": [entry("f", 1.0, 4.0)]},
    ]
    found = ClusterSaturation(steady(operators=costly)).of_query("q")
    assert (found.state, found.at_most_per_s) == ("unknown", 20.0)  # by the cost of f alone 12.5
    waiting = [{"id": "s", "arrivals": [20.0] * 50, "backlog": {"events": 100.0}}]
    assert ClusterSaturation(steady(operators=costly, sources=waiting)).of_query("q").at_most_per_s == 12.5


def test_bias_of_a_kind_of_operator_widens_the_interval_on_its_side() -> None:
    batches = [{"events": 500.0, "outputs": 500.0, "cycles": 2000.0 * share} for share in (0.99, 1.01, 1.0, 1.0)]
    costly = {**entry("f", 1.0, 4.0), "batches": batches}
    running = steady(operators=[measured("g", "B", {**costly, "from": "s"}, kind="filter")])
    plain, biased = (
        ClusterSaturation(running, biases=biases).of_query("q") for biases in (None, {"filter": (1.2, 1.4)})
    )
    assert plain.low_per_s is not None and biased.low_per_s is not None and biased.high_per_s is not None
    assert biased.rate_per_s == plain.rate_per_s == pytest.approx(25.0)
    assert biased.low_per_s < 25.0 / 1.3 < 24.0 < plain.low_per_s and biased.high_per_s < 25.5


def latency_s(deployment: Deployment) -> np.ndarray[Any, Any]:
    return flow(deployment, slices=1, by_input=True).latency_s


def check_saturation(seed: int, query: str, seed_load: float) -> None:
    deployment = with_steady_rates(np.random.default_rng(seed), seed_load)
    capacity = ClusterSaturation(deployment).of_query(query)
    if capacity.factor is None:
        assert capacity.state in ("no_source", "no_load")
        return
    limit = capacity.limit
    assert limit is not None and 1.0 < capacity.factor < np.inf
    below = latency_s(apply_changes(deployment, [{"scale_query": query, "by": 0.98 * capacity.factor}]))
    quarter = _STEPS // 4
    assert below[-quarter:].max() <= 1.01 * below[quarter : 2 * quarter].max() + deployment.subinterval_s
    above = latency_s(apply_changes(deployment, [{"scale_query": query, "by": 1.05 * capacity.factor}]))
    behind_s = 0.05 * capacity.factor * limit.own_load * _STEPS * deployment.subinterval_s
    assert above[-quarter:].max() >= 0.6 * behind_s


@settings(max_examples=12, derandomize=True)
@given(st.integers(0, 500), st.sampled_from(["q0", "q1", "q2", "q3"]), st.sampled_from([0.2, 0.6, 0.9]))
def test_flow_keeps_up_below_saturation_and_falls_behind_above(seed: int, query: str, load: float) -> None:
    check_saturation(seed, query, load)


@pytest.mark.slow
@settings(max_examples=examples(150), derandomize=True)
@given(st.integers(0, 5000), st.sampled_from(["q0", "q1", "q2", "q3"]), st.sampled_from([0.1, 0.5, 0.95]))
def test_flow_keeps_up_below_any_saturation(seed: int, query: str, load: float) -> None:
    check_saturation(seed, query, load)


def test_busiest_server_limits_the_rate() -> None:
    capacity = ClusterSaturation(steady()).of_query("q")
    # g costs 0.5 x 4 cycles an event of s: 100 / 2 = 50 events/s; f alone would sustain 100
    assert capacity.state == "known"
    assert capacity.rate_per_s == pytest.approx(50.0)
    assert capacity.limit is not None
    assert (capacity.limit.server, capacity.limit.operator, capacity.limit.resource) == ("B", "g", "cpu")
    assert capacity.headroom_per_s == pytest.approx(30.0)
    assert capacity.busiest_share_per_s == pytest.approx(50.0)


def test_others_on_the_server_take_their_share_where_the_busiest_share_knows_none() -> None:
    other = measured("h", "B", entry("t", 1.0, 3.0), query="other")
    sources = [{"id": "s", "arrivals": [20.0] * 50}, {"id": "t", "arrivals": [10.0] * 50}]
    deployment = Deployment.parse(
        document(
            sources=sources,
            operators=[measured("f", "A", entry("s", 0.5)), measured("g", "B", entry("f", 1.0, 4.0)), other],
        )
    )
    capacity = ClusterSaturation(deployment).of_query("q")
    assert capacity.rate_per_s == pytest.approx((100.0 - 30.0) / 2.0)
    assert capacity.busiest_share_per_s == ClusterSaturation(steady()).of_query("q").busiest_share_per_s


def test_shared_source_grows_for_the_query_alone() -> None:
    deployment = Deployment.parse(
        document(
            sources=[{"id": "s", "arrivals": [20.0] * 50}],
            operators=[measured("f", "A", entry("s", 1.0, 2.0)), measured("h", "A", entry("s", 1.0, 1.0), query="r")],
        )
    )
    assert ClusterSaturation(deployment).of_query("q").rate_per_s == pytest.approx((100.0 - 20.0) / 2.0)
    assert ClusterSaturation(deployment).of_cluster().rate_per_s == pytest.approx(100.0 / 3.0)


def test_link_limits_the_rate_by_what_is_sent() -> None:
    deployment = Deployment.parse(
        document(
            sources=[{"id": "s", "arrivals": [20.0] * 50}],
            links=[{"from": "A", "to": "B", "bandwidth_bytes_s": 100.0}],
            operators=[
                measured("f", "A", entry("s", 0.5), bytes_per_event=10.0),
                measured("g", "B", entry("f", 1.0, 4.0)),
            ],
        )
    )
    capacity = ClusterSaturation(deployment).of_query("q")
    assert capacity.rate_per_s == pytest.approx(20.0)
    assert capacity.limit is not None and capacity.limit.resource == "bandwidth" and capacity.limit.operator == "f"


def test_replicas_share_the_work() -> None:
    two = [{"node": "A", "fraction": 0.5}, {"node": "B", "fraction": 0.5}]
    split = {
        "id": "f",
        "query": "q",
        "evidence": MEASURED,
        "stateless": True,
        "split": two,
        "inputs": [entry("s", 1.0, 2.0)],
    }
    deployment = Deployment.parse(document(sources=[{"id": "s", "arrivals": [20.0] * 50}], operators=[split]))
    assert ClusterSaturation(deployment).of_query("q").rate_per_s == pytest.approx(100.0)


def test_interval_is_that_of_the_samples() -> None:
    batches = [{"events": 100.0, "outputs": 100.0, "cycles": 100.0 * cost} for cost in (1.8, 2.2, 1.9, 2.1, 2.0, 2.0)]
    deployment = steady(operators=[measured("f", "A", entry("s", 1.0, 2.0, batches=batches))])
    capacity = ClusterSaturation(deployment).of_query("q")
    assert capacity.rate_per_s == pytest.approx(50.0)
    assert capacity.low_per_s is not None and capacity.high_per_s is not None
    # standard error of the cost: 0.141 / sqrt(6) = 2.9 %; Student's t of 5 degrees at 95 %: 2.02
    assert capacity.low_per_s == pytest.approx(50.0 / 1.059, rel=0.02)
    assert capacity.high_per_s == pytest.approx(50.0 * 1.059, rel=0.02)


def test_input_without_a_sample_leaves_no_interval() -> None:
    capacity = ClusterSaturation(steady()).of_query("q")
    assert (capacity.low_per_s, capacity.high_per_s, capacity.unsampled) == (None, None, 2)


@pytest.mark.parametrize("evidence", [None, {"kind": "assumed"}, {"kind": "predicted"}])
def test_cost_that_nobody_measured_leaves_an_upper_end(evidence: dict[str, Any] | None) -> None:
    unsure = measured("g", "B", entry("f", 1.0, 4.0)) | {"evidence": evidence}
    if evidence is None:
        unsure.pop("evidence")
    capacity = ClusterSaturation(steady(operators=[measured("f", "A", entry("s", 0.5)), unsure])).of_query("q")
    assert (capacity.state, capacity.rate_per_s, capacity.factor, capacity.headroom_share) == ("unknown", *[None] * 3)
    assert capacity.at_most_per_s == pytest.approx(100.0)
    assert capacity.assumed_per_s == pytest.approx(50.0)
    assert [entry.operator for entry in capacity.unmeasured] == ["g"]
    assert capacity.words.startswith("Not known, at most 100/s")


def test_cost_of_another_on_the_same_server_counts_as_unknown_too() -> None:
    other = {"id": "h", "node": "B", "query": "r", "inputs": [entry("s")]}
    operators = [measured("f", "A", entry("s", 0.5)), measured("g", "B", entry("f", 1.0, 4.0)), other]
    capacity = ClusterSaturation(steady(operators=operators)).of_query("q")
    assert capacity.state == "unknown" and capacity.at_most_per_s == pytest.approx(50.0)


def test_silent_source_has_no_rate_to_grow() -> None:
    capacity = ClusterSaturation(steady(sources=[{"id": "s", "arrivals": [0.0] * 50}])).of_query("q")
    assert (capacity.state, capacity.rate_per_s) == ("nothing_arrives", None)


def test_query_beside_a_full_server_sustains_nothing() -> None:
    other = measured("h", "B", entry("t", 1.0, 11.0), query="other")
    sources = [{"id": "s", "arrivals": [20.0] * 50}, {"id": "t", "arrivals": [10.0] * 50}]
    operators = [measured("f", "A", entry("s", 0.5)), measured("g", "B", entry("f", 1.0, 4.0)), other]
    capacity = ClusterSaturation(Deployment.parse(document(sources=sources, operators=operators))).of_query("q")
    assert capacity.rate_per_s == 0.0 and capacity.headroom_per_s == -20.0


def test_work_that_is_no_sum_is_bisected() -> None:
    model = {"output": [0.0, 0.5, 0.0], "cycles": [0.0, 0.0, 0.0025]}  # 0.0025 x^2 cycles: full at 200 events
    grown = Deployment.parse(
        document(
            sources=[{"id": "s", "arrivals": [20.0] * 50}],
            operators=[measured("f", "A", {"from": "s", "model": model}), measured("g", "B", entry("f", 1.0, 0.1))],
        )
    )
    capacity = ClusterSaturation(grown).of_query("q")
    assert capacity.rate_per_s == pytest.approx(200.0, rel=1e-3)


def test_unknown_cost_keeps_what_was_counted_of_its_results() -> None:
    """g's 2 cycles an event of s stay sure where f's cost is unknown, for f's results were counted."""
    source = {"from": "s", "selectivity": 0.5}
    unknown = measured("f", "A", source) | {"evidence": {"kind": "unknown", "events": 5000}}
    capacity = ClusterSaturation(steady(operators=[unknown, measured("g", "B", entry("f", 1.0, 4.0))])).of_query("q")
    assert (capacity.state, capacity.rate_per_s, capacity.limit) == ("unknown", None, None)
    assert capacity.at_most_per_s == pytest.approx(50.0)
    assert [(entry.operator, entry.evidence) for entry in capacity.unmeasured] == [("f", "unknown")]
    assert capacity.assumed_per_s is None and "by the costs assumed" not in capacity.words


def test_unknown_cost_without_an_event_counts_none_of_its_results() -> None:
    """Its selectivity stands in for what nobody counted, so that nothing sure comes to g."""
    unknown = measured("f", "A", {"from": "s", "selectivity": 1.0}) | {"evidence": {"kind": "unknown", "events": 0}}
    capacity = ClusterSaturation(steady(operators=[unknown, measured("g", "B", entry("f", 1.0, 4.0))])).of_query("q")
    assert (capacity.state, capacity.at_most_per_s, capacity.assumed_per_s) == ("unknown", None, None)


def test_cost_that_cpu_time_tells_the_least_of_is_none_that_was_assumed() -> None:
    least = measured("f", "A", entry("s", 0.5), cost_by="cpu_time")
    capacity = ClusterSaturation(steady(operators=[least, measured("g", "B", entry("f", 1.0, 4.0))])).of_query("q")
    assert (capacity.state, capacity.rate_per_s, capacity.assumed_per_s) == ("unknown", None, None)


def test_answers_from_outside_bound_a_rate_that_no_work_tells() -> None:
    """Ten lookups of 20 ms at once let 500/s pass, however idle the thread is."""
    asking = measured("g", "B", entry("f", 1.0, 4.0), waits_outside=True)
    deployment = steady(operators=[measured("f", "A", entry("s", 0.5)), asking])
    query, whole = ClusterSaturation(deployment).of_query("q"), ClusterSaturation(deployment).of_cluster()
    for found in (query, whole):
        assert (found.state, found.outside, found.rate_per_s, found.assumed_per_s) == ("unknown", ("g",), None, None)
        assert found.at_most_per_s == pytest.approx(50.0) and found.tightest_factor is None
        assert "answers from outside" in found.words and "nobody measured" not in found.words
    idle = measured("g", "B", entry("f", 1.0, 0.0), waits_outside=True)
    free = steady(operators=[measured("f", "A", entry("s", 0.5, 0.0)), idle])
    assert ClusterSaturation(free).of_query("q").state == "unknown"  # no work at all is no endless rate


def test_answers_from_outside_of_a_neighbour_bound_nobody_else() -> None:
    neighbour = measured("h", "B", entry("t", 1.0, 3.0), query="other", waits_outside=True)
    sources = [{"id": "s", "arrivals": [20.0] * 50}, {"id": "t", "arrivals": [10.0] * 50}]
    own = [measured("f", "A", entry("s", 0.5)), measured("g", "B", entry("f", 1.0, 4.0))]
    found = ClusterSaturation(steady(sources=sources, operators=[*own, neighbour]))
    assert (found.of_query("q").state, found.of_query("other").state) == ("known", "unknown")


def test_costs_of_contended_hosts_raise_the_upper_end_alone() -> None:
    """g is full at 50 events/s, and at up to 200 on a quiet host, where f is full at 100."""
    batches = [{"events": 100.0, "outputs": 100.0, "cycles": 400.0 + 40.0 * (-1) ** k} for k in range(12)]
    calm, contended = (
        ClusterSaturation(
            steady(
                operators=[
                    measured("f", "A", {**entry("s", 0.5), "batches": batches}),
                    measured("g", "B", {**entry("f", 1.0, 4.0), "batches": batches}, **more),
                ]
            )
        ).of_query("q")
        for more in ({}, {"quiet_share": 0.25})
    )
    assert (contended.rate_per_s, contended.low_per_s) == (calm.rate_per_s, calm.low_per_s)
    assert calm.high_per_s is not None and contended.high_per_s is not None
    assert 1.8 * calm.high_per_s < contended.high_per_s < 120.0


def falling(loads: int) -> Deployment:
    """g works for 40 % of the time, and half of that grows with the rate."""
    batches = [{"events": 100.0, "outputs": 100.0, "cycles": 400.0 + 4.0 * (-1) ** k} for k in range(12)]
    marginal = {"share": 0.5, "low": 0.4, "high": 0.6, "loads": loads}
    cheap = {**entry("s", 0.5, 0.1), "batches": [{**batch, "cycles": 10.0} for batch in batches]}
    return steady(
        operators=[
            measured("f", "A", cheap),
            measured("g", "B", {**entry("f", 1.0, 4.0), "batches": batches}, marginal_cost=marginal),
        ]
    )


def test_largest_rate_counts_what_one_more_event_costs() -> None:
    """f = 1 + (1 - 0.4) / (0.4 x 0.5) = 4; between 3.5 and 4.75 by the ends of the share."""
    found = ClusterSaturation(falling(2)).of_query("q")
    assert found.rate_per_s == pytest.approx(80.0) and found.busiest_share_per_s == pytest.approx(50.0)
    assert found.low_per_s is not None and found.high_per_s is not None
    assert 68.0 < found.low_per_s < 74.0 < 86.0 < found.high_per_s < 97.0


@pytest.mark.parametrize(("loads", "work"), [(2, 80.0 * (0.5 + 0.5 / 2.0)), (1, 80.0)])
def test_what_if_at_twice_the_rate_counts_a_fall_that_was_measured(loads: int, work: float) -> None:
    more = apply_changes(falling(loads), [{"scale_query": "q", "by": 2.0}])
    cost = more.operators[1].inputs[0].cycles_per_event
    assert 20.0 * cost == pytest.approx(work)
    if loads > 1:
        found = ClusterSaturation(more).of_query("q")
        assert found.rate_per_s == pytest.approx(80.0)


def test_at_most_is_what_the_least_plausible_costs_allow() -> None:
    """f is unknown, so that there is no capacity; g was measured while others used its host."""
    batches = [{"events": 100.0, "outputs": 100.0, "cycles": 400.0 + 40.0 * (-1) ** k} for k in range(12)]
    read = {**entry("f", 1.0, 4.0), "batches": batches}
    unknown = {**measured("f", "A", {"from": "s", "selectivity": 0.5}), "evidence": {"kind": "unknown", "events": 9.0}}
    most = []
    for more in ({}, {"quiet_share": 0.25}):
        capacity = ClusterSaturation(steady(operators=[unknown, measured("g", "B", read, **more)])).of_query("q")
        assert capacity.rate_per_s is None and capacity.at_most_per_s is not None
        most.append(capacity.at_most_per_s)
    assert 50.0 < most[0] < 60.0 and most[1] > 2.0 * most[0]
