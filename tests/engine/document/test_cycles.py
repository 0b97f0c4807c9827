"""Units of cycles: kept by nodes and costs, converted where both sides are known, refused elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from engine.admission.decision import decide
from engine.costream.first_placement import PlacementPredictor, PlacementQuestion, find_first_placement
from engine.costream.hosts import free_hosts
from engine.document.candidate import read_candidate
from engine.document.cycles import REFERENCE_CYCLES_PER_NS
from engine.document.deployment import Deployment
from engine.errors import DocumentError
from engine.placement.extension import extend_placement
from engine.provisioning.changes import apply_changes, read_changes
from engine.provisioning.nodes import add_nodes
from tests.engine.costream.anchors import anchor_ensemble
from tests.engine.costream.test_first_placement import candidate, running


def document(node: dict[str, Any], evidence: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    operator: dict[str, Any] = {
        "id": "a",
        "node": "n",
        "inputs": [
            {
                "from": "s",
                "selectivity": 1.0,
                "cycles_per_event": 6000.0,
                "batches": [{"events": 10.0, "outputs": 10.0, "cycles": 60000.0}] * 2,
            }
        ],
    }
    if evidence is not None:
        operator["evidence"] = {"kind": "measured", **evidence}
    return {
        "subinterval_s": 1.0,
        "sources": [{"id": "s", "arrivals": [10.0, 10.0]}],
        "nodes": [{"id": "n", "capacity_cps": 3e9, **node}],
        "operators": [operator],
        **more,
    }


NS = {"cycle_unit": "cpu_ns"}


def refusal(content: dict[str, Any]) -> str:
    with pytest.raises(DocumentError) as caught:
        Deployment.parse(content)
    (fault,) = caught.value.faults
    assert fault.path == "operators[0].evidence.cycle_unit"
    return fault.message


def test_document_that_names_no_unit_is_in_nominal_cycles() -> None:
    parsed = Deployment.parse(document({}))
    assert parsed.nodes[0].cycle_unit == "nominal" and parsed.operators[0].inputs[0].cycles_per_event == 6000.0
    assert "cycle_unit" not in str(parsed.to_document())


def test_costs_in_another_unit_than_the_node_counts_are_refused() -> None:
    assert "n counts nanoseconds of CPU" in refusal(document(NS))
    assert "n counts nominal cycles" in refusal(document({}, NS))


def test_unit_of_a_document_holds_for_what_names_none() -> None:
    parsed = Deployment.parse(document({}, {}, cycle_unit="cpu_ns"))
    assert parsed.nodes[0].cycle_unit == "cpu_ns"
    assert parsed.operators[0].evidence is not None and parsed.operators[0].evidence.cycle_unit == "cpu_ns"
    assert Deployment.parse(parsed.to_document()).digest == parsed.digest
    assert "n counts nominal cycles" in refusal(document({"cycle_unit": "nominal"}, {}, cycle_unit="cpu_ns"))


@pytest.mark.parametrize(
    ("node", "evidence", "cost"),
    [
        ({"cycle_unit": "calibrated"}, NS, 18_000.0),  # 3 cycles in a nanosecond of CPU
        ({"cycle_unit": "cpu_ns", "capacity_cps": 1e9, "cycles_per_ns": 3.0}, {}, 2_000.0),
        ({"cycle_unit": "calibrated"}, {"cycle_unit": "nominal"}, 6_000.0),
        ({"cycles_per_ns": 2.0}, NS, 12_000.0),
    ],
)
def test_cost_is_converted_where_the_factor_of_the_node_is_known(
    node: dict[str, Any], evidence: dict[str, Any], cost: float
) -> None:
    parsed = Deployment.parse(document(node, evidence))
    entry = parsed.operators[0].inputs[0]
    assert entry.cycles_per_event == pytest.approx(cost)
    assert entry.batches[0].cycles == pytest.approx(10.0 * cost)


def test_nodes_of_other_units_are_closed_to_an_operator() -> None:
    content = document({"id": "n", "capacity_cps": 1e6, "cycle_unit": "cpu_ns"}, {"cycle_unit": "nominal"})
    content["nodes"].append({"id": "m", "capacity_cps": 1e6})
    del content["operators"][0]["node"]
    parsed = Deployment.parse(content, placed=False)
    assert parsed.constraints.forbid == {"a": ("n",)}
    assert extend_placement(parsed).placement["a"][0].node == "m"


def test_new_nodes_of_a_what_if_count_as_those_there_are() -> None:
    base = Deployment.parse(document({"capacity_cps": 1e9, **NS}, NS))
    grown = add_nodes(base, 1, capacity_cps=1e9)
    assert grown.nodes[1].cycle_unit == "cpu_ns" and not grown.constraints.forbid
    (change,) = read_changes([{"add_nodes": 1, "capacity_cps": 2e9, "cycle_unit": "nominal"}], base)
    other = apply_changes(base, [change])
    assert other.constraints.forbid == {"a": ("new-1",)}


def test_candidate_in_another_unit_than_every_node_is_refused() -> None:
    base = Deployment.parse(document({"capacity_cps": 1e9, **NS}, NS))
    asked: dict[str, Any] = {
        "query": "q",
        "operators": [{"id": "b", "inputs": [{"from": "s", "selectivity": 1, "cycles_per_event": 21_000}]}],
    }
    with pytest.raises(DocumentError) as caught:
        read_candidate(asked, base)
    assert [fault.path for fault in caught.value.faults] == ["candidate.operators[0].evidence.cycle_unit"]
    assert read_candidate({**asked, "cycle_unit": "cpu_ns"}, base).operators[0].inputs[0].cycles_per_event == 21_000


def in_nanoseconds(**factor: float) -> Deployment:
    """The strong and the weak node as an engine tells of them: a second of a server is 1e9 nanoseconds."""
    plain = running().to_document()
    for node in plain["nodes"]:
        node |= {"capacity_cps": 1e9, **NS, **factor}
    for operator in plain["operators"]:
        operator["evidence"] = {"kind": "measured", **NS}
        for entry in operator["inputs"]:
            entry["cycles_per_event"] /= REFERENCE_CYCLES_PER_NS
    return Deployment.parse(plain)


def test_hosts_are_as_fast_as_their_factor_says_and_no_hosts_without_one() -> None:
    cycles, nanoseconds = free_hosts(running()), free_hosts(in_nanoseconds(cycles_per_ns=REFERENCE_CYCLES_PER_NS))
    assert [host.cpu_percent for host in nanoseconds.hosts] == pytest.approx([h.cpu_percent for h in cycles.hosts])
    unknown = free_hosts(in_nanoseconds())
    assert unknown.hosts == () and unknown.other_unit == ("strong", "weak")


def test_prediction_onto_nodes_that_count_nanoseconds_is_refused_and_a_person_decides() -> None:
    base = in_nanoseconds()
    read = read_candidate(candidate(), base)
    ensemble = anchor_ensemble()
    answer = find_first_placement(PlacementQuestion(base, read.operators), ensemble)
    assert answer.state == "incomplete" and [fault.path for fault in answer.faults] == ["nodes"]
    assert "count nanoseconds of CPU, and the model counts cycles" in str(answer.reason)
    decision = decide(base, candidate(), prediction=answer, predictor=PlacementPredictor(ensemble))
    assert decision.verdict == "review" and "nanoseconds of CPU" in decision.headline


def test_prediction_is_the_same_in_either_unit_where_the_factor_is_known() -> None:
    base = in_nanoseconds(cycles_per_ns=REFERENCE_CYCLES_PER_NS)
    read, other = read_candidate(candidate(), base), read_candidate(candidate(), running())
    costs = [[e.cycles_per_event for op in c.operators for e in op.inputs] for c in (read, other)]
    assert costs[0] == pytest.approx([cost / REFERENCE_CYCLES_PER_NS for cost in costs[1]])
    one = find_first_placement(PlacementQuestion(base, read.operators), anchor_ensemble())
    two = find_first_placement(PlacementQuestion(running(), other.operators), anchor_ensemble())
    assert one.placement == two.placement and one.costs == two.costs
