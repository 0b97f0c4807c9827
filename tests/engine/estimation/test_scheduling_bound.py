"""Nodes that are not scheduled by stimulus time: which upper bound an estimate has, says and keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jsonschema
import numpy as np
import pytest

from engine.command_options import EstimateOptions
from engine.document.deployment import Deployment, Replica, json_schema
from engine.errors import DocumentError
from engine.estimation.bounds import visit_bounds
from engine.estimation.estimate import command, estimate
from engine.estimation.mace import mace
from engine.measurement.microbatch import batch_upper_s
from engine.simulation import simulate
from tests.engine.estimation.test_theorem2 import random_single_source_system
from tests.engine.samples import figure3
from tests.engine.simulation.stories import deployment, exact, operator


def told(document: dict[str, Any], **nodes: str) -> dict[str, Any]:
    """The document with policies of some nodes."""
    given = [node | ({"scheduling": nodes[node["id"]]} if node["id"] in nodes else {}) for node in document["nodes"]]
    return document | {"nodes": given}


def answer(document: dict[str, Any]) -> dict[str, Any]:
    return command(document, EstimateOptions()).to_dict()


def queried() -> dict[str, Any]:
    """Figure 3 as two queries: O1 on N1 is "a", what is on N2 and N3 is "b"."""
    document = figure3()
    first, *others = document["operators"]
    return document | {"operators": [first | {"query": "a"}, *({**other, "query": "b"} for other in others)]}


@pytest.mark.parametrize("extra", [{}, {"scheduling": "stimulus-time"}, {"scheduling": None}])
def test_stimulus_time_keeps_the_usual_bound(extra):
    plain, result = answer(figure3()), answer(figure3() | extra)
    assert result == plain
    assert "scheduling" not in result


def test_other_policy_on_one_node_gives_another_bound_and_says_so():
    result = answer(told(figure3(), N2="fcfs"))
    bound_s = result["scheduling"]["upper_s"]
    assert result["upper"] == result["pd_upper"] == [bound_s] * len(result["mace"])
    assert bound_s >= result["mace_wc"]
    assert result["scheduling"]["nodes"] == {"N2": "fcfs"}
    assert result["scheduling"]["words"] == (
        "N2 runs fcfs, not stimulus time: the upper bound counts a wait for every visit of a server, and holds for "
        "mean costs."
    )
    same = ("mace", "flow", "loose_upper", "pd_lower", "epsilon", "queries")
    assert all(result[key] == answer(figure3())[key] for key in same)


@pytest.mark.parametrize("policy", ["klink", "round-robin"])
def test_policy_that_lets_later_events_go_first_has_no_bound(policy):
    result = answer(told(figure3(), N2=policy))
    assert result["upper"] is result["upper_wc"] is result["pd_upper"] is result["scheduling"]["upper_s"] is None
    assert result["scheduling"]["words"] == f"N2 runs {policy}, not stimulus time: no upper bound is proven."


def test_policy_of_a_node_overrides_that_of_the_deployment():
    document = figure3() | {"scheduling": "round-robin"}
    document["nodes"] = [*document["nodes"], {"id": "idle", "capacity_cps": 1.0, "scheduling": "fcfs"}]
    named = [node["id"] for node in figure3()["nodes"]]
    assert Deployment.parse(document).other_policies == dict.fromkeys(named, "round-robin")
    by_node = told(document, **dict.fromkeys(named, "stimulus-time"))
    assert Deployment.parse(by_node).other_policies == {}


def test_bound_of_a_query_is_that_of_its_own_servers():
    """Of O1 that of N1: the excess and the work of two subintervals that come together, and one event."""
    result = estimate(Deployment.parse(queried() | {"scheduling": "fcfs"}), intervals=False).answer().to_dict()
    first, other = (result["queries"][name]["scheduling"]["upper_s"] for name in "ab")
    server = result["servers"]["N1"]
    load, ce = server["load"], [0.0, 0.0, *server["ce"]]
    unfinished = max(ce[p] + before + load[p] for p, before in enumerate([0.0, *load[:-1]]))
    assert first == pytest.approx(unfinished / 1.0 + server["lambda"])
    assert first < other == result["upper_wc"]


def test_query_on_stimulus_time_nodes_has_no_scheduling_note():
    result = answer(told(queried(), N1="klink"))["queries"]
    assert result["a"]["scheduling"]["nodes"] == {"N1": "klink"}
    assert "scheduling" not in result["b"]


def test_document_keeps_its_policy_and_refuses_an_unknown_one():
    document = told(figure3(), N1="klink") | {"scheduling": "fcfs"}
    jsonschema.validate(document, json_schema())
    built = Deployment.parse(document)
    assert Deployment.parse(built.to_document()).digest == built.digest
    assert built.digest != Deployment.parse(figure3()).digest
    assert (built.scheduling, built.nodes[0].scheduling, built.nodes[1].scheduling) == ("fcfs", "klink", None)
    with pytest.raises(DocumentError) as refused:
        Deployment.parse(told(figure3(), N2="luck") | {"scheduling": 3})
    assert sorted(fault.path for fault in refused.value.faults) == ["nodes[1].scheduling", "scheduling"]


def test_bound_of_micro_batches_needs_stimulus_time_elsewhere():
    result = mace(Deployment.parse(told(figure3(), N1="klink")))
    assert np.isinf(batch_upper_s(result, {1: result.deployment.subinterval_s})).all()


def slow_chain(length: int, nodes: int) -> Deployment:
    """Operators in a row, their load 10 % above capacity for 40 s: a queue that is waited for at every operator."""
    per_node = length // nodes
    operators = [
        operator(f"o{i}", f"o{i - 1}" if i else "s", node=f"n{i // per_node}", query="q") for i in range(length)
    ]
    return deployment(
        operators,
        {"s": [110.0] * 40 + [100.0] * 40},
        nodes=[{"id": f"n{k}", "capacity_cps": 100.0 * per_node} for k in range(nodes)],
        scheduling="fcfs",
    )


@pytest.mark.parametrize("length", [4, 6])
def test_bound_of_section_vii_a_is_exceeded_where_events_queue_again(length):
    system = slow_chain(length, 1)
    bounds, worst_s = mace(system), simulate(system, exact("fifo")).worst_s
    assert bounds.loose_upper_s.max() < worst_s <= visit_bounds(bounds).max()


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("nodes", [1, 3])
def test_bound_by_visits_holds_first_in_first_out(seed, nodes):
    system = replace(random_single_source_system(seed, nodes), scheduling="fcfs")
    bound_s = visit_bounds(mace(system)).max()
    assert simulate(system, exact("fifo")).worst_s <= bound_s + 1e-9


def test_nodes_that_send_to_each_other_in_a_circle_have_no_bound():
    system = replace(slow_chain(4, 2), scheduling="fcfs")
    assert np.isfinite(visit_bounds(mace(system))).all()
    back = system.with_placement({"o3": (Replica("n0"),)})
    assert np.isinf(visit_bounds(mace(back))).all()


def test_bound_counts_delays_links_and_capacity_that_pauses():
    links = [{"from": "n0", "to": "n1", "bandwidth_bytes_s": 1000.0, "delay_s": 0.5}]
    operators = [
        operator("a", "s", node="n0", query="q", bytes_per_event=10.0),
        operator("b", "a", node="n1", query="q"),
    ]
    series = [0.0, 0.0, 100.0, 100.0]
    nodes = [{"id": "n0", "capacity_cps": 100.0}, {"id": "n1", "capacity_series_cps": series}]
    system = deployment(operators, {"s": [50.0, 0, 0, 0]}, nodes=nodes, links=links, scheduling="fcfs")
    begun_s, last_s = visit_bounds(mace(system))
    assert begun_s == pytest.approx(0.5 + 0.01)
    late_s = begun_s + (0.5 + 0.01 + begun_s) + 0.5  # the link takes 0.5 s for 50 events, and what comes late
    assert last_s == pytest.approx(late_s + 2.5 + 0.01 + late_s)
