"""First placement: free capacity errs on the safe side; the answer chooses, compares and says why, or why not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.costream import hosts
from engine.costream.documents import read_trace
from engine.costream.first_placement import (
    FirstPlacement,
    PlacementQuestion,
    find_first_placement,
    pins_of,
    predict_placement,
)
from engine.costream.hosts import busiest_rates, free_hosts
from engine.document.candidate import read_candidate
from engine.document.deployment import Deployment
from engine.document.elements import Source
from tests.engine.costream.anchors import anchor_ensemble

CORE = 2.4e9


def running(**changes: Any) -> Deployment:
    return Deployment.parse(running_document(**changes))


def running_document(**changes: Any) -> dict[str, Any]:
    """Source s of 100 events/s, a strong and a weak node, and a query that takes a quarter of the strong one."""
    links = [
        {"from": "weak", "to": "strong", "bandwidth_bytes_s": 12.5e6, "delay_s": 0.02},
        {"from": "strong", "to": "weak", "bandwidth_bytes_s": 125e6, "delay_s": 0.002},
    ]
    old = {"from": "s", "selectivity": 1.0, "cycles_per_event": 4 * CORE / 400}
    document = {
        "subinterval_s": 1.0,
        "sources": [{"id": "s", "arrivals": [100.0] * 8, "event_fields": {"ints": 2, "strings": 2}}],
        "nodes": [
            {"id": "strong", "capacity_cps": CORE, "cores": 4, "memory_bytes": 16e9},
            {"id": "weak", "capacity_cps": CORE, "memory_bytes": 2e9},
        ],
        "links": links,
        "operators": [{"id": "old/op", "query": "old", "node": "strong", "state_bytes": 1e9, "inputs": [old]}],
    }
    return document | changes


def candidate(**changes: Any) -> dict[str, Any]:
    keep = {"id": "new/keep", "kind": "filter", "filter": {"function": "<", "literal_type": "int"}}
    mean = {"id": "new/mean", "kind": "aggregate", "window": {"policy": "time", "type": "tumbling", "size": 4}}
    mean["aggregate"] = {"function": "mean", "argument_type": "int", "group_by_type": "string"}
    operators = [
        {**keep, "inputs": [{"from": "s", "selectivity": 0.5}]},
        {**mean, "inputs": [{"from": "new/keep", "selectivity": 0.1}]},
    ]
    return {"query": "new", "operators": operators} | changes


def question(deployment: Deployment | None = None, **changes: Any) -> PlacementQuestion:
    base = deployment or running()
    read = read_candidate(candidate(), base)
    return replace(PlacementQuestion(base, read.operators, read.sources, pins=pins_of(read.operators)), **changes)


def test_hosts_have_what_running_queries_leave_in_their_busiest_minutes() -> None:
    free = free_hosts(running())
    strong, weak = free.hosts
    assert free.names == ("strong", "weak")
    assert (strong.cpu_percent, weak.cpu_percent) == pytest.approx((300.0, 100.0))
    assert (strong.ram_mb, weak.ram_mb) == (15_000.0, 2_000.0)
    assert (weak.bandwidth_mbit_s, weak.latency_s) == pytest.approx((100.0, 0.02))
    assert free_hosts(running(), closed=["weak"]).names == ("strong",)


def test_busiest_rate_is_the_largest_mean_of_four_minutes() -> None:
    arrivals = np.zeros(1000)
    arrivals[300:420] = 20.0  # two minutes
    assert busiest_rates([Source("s", arrivals)], [], 1.0)["s"] == pytest.approx(10.0)


def test_busiest_rate_of_a_polynomial_counts_whole_subintervals() -> None:
    squared = {"output": [1.0, 0.0, 0.1], "cycles": [0.0, 0.0, 0.0]}
    base = running(
        sources=[{"id": "s", "arrivals": [0.0, 100.0] * 200}],
        operators=[
            {"id": "o/pairs", "query": "o", "node": "strong", "inputs": [{"from": "s", "model": squared}]},
            {
                "id": "o/half",
                "query": "o",
                "node": "strong",
                "inputs": [{"from": "o/pairs", "selectivity": 0.5, "cycles_per_event": 1.0}],
            },
        ],
    )
    rates = busiest_rates(base.sources, base.operators, base.subinterval_s)
    assert rates == pytest.approx({"s": 50.0, "o/pairs": 1001.0 / 2, "o/half": 1001.0 / 4})


@pytest.mark.parametrize("width_s", [0.01, 1.0, 40.0])
def test_long_horizon_leaves_no_more_than_its_subintervals_do(width_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    arrivals = np.random.default_rng(4).uniform(0.0, 100.0 * width_s, 3000)
    base = running(subinterval_s=width_s, sources=[{"id": "s", "arrivals": arrivals.tolist()}])
    fine = free_hosts(base).hosts[0]
    monkeypatch.setattr(hosts, "_MAX_SUBINTERVALS", 50)
    coarse = free_hosts(base).hosts[0]
    assert 0.9 * fine.cpu_percent <= coarse.cpu_percent <= fine.cpu_percent


def test_state_that_nobody_states_is_that_of_the_window_or_an_assumption() -> None:
    read = {"from": "s", "selectivity": 1.0, "cycles_per_event": 1.0}
    window = {"policy": "time", "type": "tumbling", "size": 30}
    base = running(
        operators=[
            {
                "id": "old/sum",
                "query": "old",
                "node": "strong",
                "kind": "aggregate",
                "window": window,
                "inputs": [read],
            },
            {"id": "old/keep", "query": "old", "node": "strong", "kind": "filter", "inputs": [read]},
            {"id": "old/any", "query": "old", "node": "strong", "inputs": [read]},
        ]
    )
    free = free_hosts(base)
    assert free.hosts[0].ram_mb == pytest.approx(16_000.0 - 30 * 100 * 1e-3)
    assert free.gaps == {"state_unstated": ["old/any"]}


def test_host_without_capacity_is_full_and_memory_nobody_states_is_an_assumption() -> None:
    nodes = [{"id": "strong", "capacity_cps": CORE / 4}, {"id": "weak", "capacity_cps": CORE}]
    free = free_hosts(running(nodes=nodes))
    assert (free.names, free.full) == (("weak",), ("strong",))
    assert free.hosts[0].ram_mb == 1000.0 and free.gaps["memory_unstated"] == ["weak"]


def test_answer_chooses_the_best_candidate_and_compares_it() -> None:
    answer = find_first_placement(question(), anchor_ensemble())
    assert answer.state == "predicted" and answer.placement == {"new/keep": "strong", "new/mean": "strong"}
    assert answer.fill_s == 4.0 and answer.costs.end_to_end_latency_s.mean == pytest.approx(4.00418)
    assert answer.costs.throughput_eps.mean == pytest.approx(5.0)
    assert answer.candidates.exhaustive and answer.candidates.count == 3  # weak-weak, weak-strong, strong-strong
    assert answer.heuristics["strongest"].gain == 1.0
    point = answer.candidates.points[answer.candidates.chosen]
    assert point.hosts == (0, 0) and point.Le == pytest.approx(4.00418)
    trace = read_trace({**(answer.trace or {}), "label": {"T": 5, "Lp": 1, "Le": 1, "R": 0, "RO": 0, "S": 1}})
    assert [op.kind for op in trace.graph.operators] == ["source", "filter", "agg", "sink"]
    stored = json.loads(json.dumps(answer.to_dict(), allow_nan=False))
    assert FirstPlacement.parse(stored).to_dict() == stored and "trace" not in stored


def test_pins_are_kept() -> None:
    pinned = find_first_placement(question(pins={"new/keep": "weak"}), anchor_ensemble())
    assert pinned.placement["new/keep"] == "weak"


def test_pins_that_cannot_be_kept_say_why_per_node() -> None:
    full = running(nodes=[{"id": "strong", "capacity_cps": CORE / 4}, {"id": "weak", "capacity_cps": CORE}])
    pins = {"new/keep": "strong", "new/mean": "weak", "new/third": "gone", "new/fourth": "strong"}
    answer = find_first_placement(question(full, pins=pins, closed=("weak",)), anchor_ensemble())
    assert (answer.state, answer.outside) == ("infeasible", ())
    assert answer.reason == (
        "No candidate is feasible: new/keep and new/fourth must run on strong, which has nothing left; new/mean must "
        "run on weak, which is closed to new operators (draining); new/third must run on gone, which is unknown"
    )


def test_cluster_that_takes_nothing_says_why() -> None:
    full = running(nodes=[{"id": "strong", "capacity_cps": CORE / 4}, {"id": "weak", "capacity_cps": 1.0}])

    def reason(**changes: Any) -> str:
        answer = find_first_placement(question(**changes), anchor_ensemble())
        assert answer.state == "infeasible"
        return str(answer.reason).removeprefix("No candidate is feasible: ")

    assert reason(deployment=full) == "no node has anything left"
    assert reason(closed=("strong", "weak")) == "every node is closed to new operators (draining)"
    words = "weak is closed to new operators (draining), and no other node has anything left"
    assert reason(deployment=full, closed=("weak",)) == words


def test_no_feasible_candidate_is_an_answer_with_its_reason() -> None:
    answer = find_first_placement(question(), anchor_ensemble(failing=True))
    assert (answer.state, answer.placement, answer.candidates.chosen) == ("infeasible", {}, None)
    assert answer.candidates.failing == 3 and "failure" in str(answer.reason)
    assert len(answer.candidates.points) == 3


def test_candidates_that_all_fail_outside_the_domain_say_what_is_outside() -> None:
    answer = find_first_placement(question(), anchor_ensemble(failing=True, outside=True))
    assert answer.state == "infeasible" and str(answer.reason).endswith(
        "; all of them lie outside the training domain."
    )
    assert [text.partition(":")[0] for text in answer.outside] == ["host strong", "host weak"]
    known = find_first_placement(question(), anchor_ensemble(failing=True, outside=200.0))
    assert known.outside == () and "outside" not in str(known.reason)


def test_query_that_does_not_say_enough_is_not_guessed_at() -> None:
    sources = [{"id": "s", "arrivals": [100.0] * 8}]
    answer = find_first_placement(question(running(sources=sources)), anchor_ensemble())
    assert answer.state == "incomplete" and answer.placement == {}
    assert [fault.path for fault in answer.faults] == ["operators[0].inputs[0].from"]


def test_query_of_too_many_operators_is_incomplete_with_their_number() -> None:
    def answer(filters: int) -> FirstPlacement:
        first, keep = candidate()["operators"][0], {"selectivity": 1.0}
        chain = [first | {"id": f"new/{i}", "inputs": [keep | {"from": f"new/{i - 1}"}]} for i in range(filters)]
        chain[0]["inputs"] = [keep | {"from": "s"}]
        base = running()
        read = read_candidate(candidate(operators=chain), base)
        return find_first_placement(PlacementQuestion(base, read.operators, count=20), anchor_ensemble())

    assert answer(62).state == "predicted"  # with a source and a sink 64
    more = answer(63)
    assert more.state == "incomplete" and [fault.path for fault in more.faults] == ["operators"]
    assert str(more.reason).endswith("The query has 65 operators; allowed: up to 64, sources and sinks counted")


@pytest.mark.parametrize("predict", [find_first_placement, predict_placement])
def test_model_whose_numbers_are_not_finite_has_no_answer(predict: Any) -> None:
    where = {"new/keep": "strong", "new/mean": "strong"}
    answer = predict(question(pins=where), anchor_ensemble(extreme=True))
    assert (answer.state, answer.costs, answer.candidates) == ("incomplete", None, None)
    assert [fault.path for fault in answer.faults] == ["model"]
    assert "anchor-1 predicts numbers that are not finite for 1 of 1 placement" in str(answer.reason)


def test_query_of_one_operator_is_placed() -> None:
    base = running()
    read = read_candidate(candidate(operators=candidate()["operators"][:1]), base)
    answer = find_first_placement(PlacementQuestion(base, read.operators), anchor_ensemble())
    assert answer.state == "predicted" and answer.candidates.count == 2


def test_placement_that_runs_is_predicted_as_it_is() -> None:
    where = {"new/keep": "strong", "new/mean": "weak"}  # against the rules: data go to a weaker host
    answer = predict_placement(question(pins=where), anchor_ensemble())
    assert answer.state == "predicted" and answer.placement == where
    assert predict_placement(question(), anchor_ensemble()).state == "infeasible"


def stateful(bytes_of_mean: float, bytes_of_keep: float = 0.0) -> dict[str, Any]:
    document = candidate()
    keep, mean = document["operators"]
    return document | {
        "operators": [keep | {"state_bytes": bytes_of_keep, "stateless": False}, mean | {"state_bytes": bytes_of_mean}]
    }


def places(document: dict[str, Any], **changes: Any) -> tuple[FirstPlacement, set[tuple[str, ...]]]:
    base = running()
    read = read_candidate(document, base)
    asked = PlacementQuestion(base, read.operators, read.sources, pins=pins_of(read.operators), **changes)
    answer = find_first_placement(asked, anchor_ensemble())
    names = ("strong", "weak")
    points = answer.candidates.points if answer.candidates else ()
    return answer, {tuple(names[host] for host in point.hosts) for point in points}


@pytest.mark.parametrize("count", [1000, 2])
def test_candidates_leave_out_nodes_that_state_does_not_fit(count: int) -> None:
    """15 GB are left on the strong node and 2 GB on the weak one."""
    free, every = places(candidate(), count=count)
    assert free.memory == () and any("weak" in nodes for nodes in every)
    answer, fitting = places(stateful(9e9), count=count)
    assert {nodes[1] for nodes in fitting} == {"strong"}
    assert str(answer.memory[0]).startswith("new/mean keeps ") and "weak has no memory left" in str(answer.memory[0])
    assert answer.to_dict()["memory"] == list(answer.memory)


def test_candidates_leave_out_nodes_that_state_together_does_not_fit() -> None:
    answer, fitting = places(stateful(1.5e9, 1.5e9))
    assert fitting and ("weak", "weak") not in fitting
    assert "All state together takes" in str(answer.memory[-1]) and "weak has no memory left" in str(answer.memory[-1])


def test_state_that_fits_no_node_leaves_no_candidate_and_says_so() -> None:
    answer, fitting = places(stateful(90e9))
    assert (answer.state, answer.blocked, fitting) == ("infeasible", True, set())
    assert "the state has no room where the operators may be. new/mean keeps" in str(answer.reason)
    assert "strong and weak have no memory left" in str(answer.reason)


def test_unknown_state_and_unknown_memory_leave_every_candidate() -> None:
    base = running()
    nodes = [{"id": "strong", "capacity_cps": CORE, "cores": 4}, {"id": "weak", "capacity_cps": CORE}]
    unknown = running(nodes=nodes)
    assert find_first_placement(question(base), anchor_ensemble()).memory == ()
    read = read_candidate(stateful(90e9), unknown)
    answer = find_first_placement(PlacementQuestion(unknown, read.operators, read.sources), anchor_ensemble())
    assert answer.state == "predicted" and answer.memory == ()
