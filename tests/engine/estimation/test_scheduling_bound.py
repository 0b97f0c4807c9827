"""Nodes that are not scheduled by stimulus time: which upper bound an estimate has, says and keeps."""

from __future__ import annotations

from typing import Any

import jsonschema
import numpy as np
import pytest

from engine.document.deployment import Deployment, json_schema
from engine.errors import DocumentError
from engine.estimation.estimate import command, estimate
from engine.estimation.mace import mace
from engine.measurement.microbatch import batch_upper_s
from engine.simulation import simulate
from tests.engine.estimation.test_theorem2 import random_single_source_system
from tests.engine.samples import figure3
from tests.engine.simulation.stories import exact


def told(document: dict[str, Any], **nodes: str) -> dict[str, Any]:
    """The document with policies of some nodes."""
    given = [node | ({"scheduling": nodes[node["id"]]} if node["id"] in nodes else {}) for node in document["nodes"]]
    return document | {"nodes": given}


def queried() -> dict[str, Any]:
    """Figure 3 as two queries: O1 on N1 is "a", what is on N2 and N3 is "b"."""
    document = figure3()
    first, *others = document["operators"]
    return document | {"operators": [first | {"query": "a"}, *({**other, "query": "b"} for other in others)]}


@pytest.mark.parametrize("extra", [{}, {"scheduling": "stimulus-time"}, {"scheduling": None}])
def test_stimulus_time_keeps_the_usual_bound(extra):
    plain, result = command(figure3(), {}), command(figure3() | extra, {})
    assert result == plain
    assert "scheduling" not in result


def test_other_policy_on_one_node_gives_the_looser_bound_and_says_so():
    result = command(told(figure3(), N2="klink"), {})
    assert result["upper"] == result["loose_upper"]
    assert result["upper"] != command(figure3(), {})["upper"]
    assert np.subtract(result["pd_upper"], result["upper"]) == pytest.approx(0)
    assert result["scheduling"]["nodes"] == {"N2": "klink"}
    assert result["scheduling"]["words"] == (
        "N2 runs klink, not stimulus time: the upper bound is the looser one, for any order within a subinterval."
    )
    same = ("mace", "flow", "loose_upper", "pd_lower", "epsilon", "queries")
    assert all(result[key] == command(figure3(), {})[key] for key in same)


def test_policy_of_a_node_overrides_that_of_the_deployment():
    document = figure3() | {"scheduling": "round-robin"}
    document["nodes"] = [*document["nodes"], {"id": "idle", "capacity_cps": 1.0, "scheduling": "fcfs"}]
    named = [node["id"] for node in figure3()["nodes"]]
    assert Deployment.parse(document).other_policies == dict.fromkeys(named, "round-robin")
    by_node = told(document, **dict.fromkeys(named, "stimulus-time"))
    assert Deployment.parse(by_node).other_policies == {}


def test_bound_of_a_query_is_that_of_its_own_servers():
    """Of O1 that of N1: its excess, a subinterval, and all work of one."""
    result = estimate(Deployment.parse(queried() | {"scheduling": "klink"}), intervals=False).to_dict()
    one, other = (result["queries"][name]["scheduling"]["upper_s"] for name in "ab")
    servers = result["servers"]["N1"]
    assert one == max(mace_s + 2.0 + load for mace_s, load in zip(servers["mace"], servers["load"], strict=True))
    assert one < other < result["upper_wc"]


def test_query_on_stimulus_time_nodes_has_no_scheduling_note():
    result = command(told(queried(), N1="klink"), {})["queries"]
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


def test_bound_covers_micro_batches_beside_another_policy():
    result = mace(Deployment.parse(told(figure3(), N1="klink")))
    w = result.deployment.subinterval_s
    assert batch_upper_s(result, {}) == pytest.approx(result.loose_upper_s)
    assert batch_upper_s(result, {1: w}) == pytest.approx(result.loose_upper_s)
    assert (batch_upper_s(result, {1: 3 * w}) >= result.loose_upper_s - 1e-12).all()


@pytest.mark.parametrize("policy", ["fifo", "longest-queue"])
def test_looser_bound_holds_where_that_of_stimulus_time_fails(policy):
    """One node, one source, even arrivals and fixed costs, where theorem 2 holds by stimulus time."""
    strict = 0
    for seed in range(20):
        system = random_single_source_system(seed)
        bounds, worst_s = mace(system), simulate(system, exact(policy)).worst_s
        assert worst_s <= bounds.loose_upper_s.max() + 1e-9
        strict += worst_s > bounds.upper_s.max() + 1e-9
    assert strict > 0
