"""The document: faults with their paths, all at once; round trips; derived deployments; the JSON Schema."""

from __future__ import annotations

import copy
import time
from typing import Any

import jsonschema
import numpy as np
import pytest

from engine.document.candidate import parse_candidate
from engine.document.deployment import Deployment, Replica, json_schema
from engine.document.kinds import MAX_LINKS, MAX_NODES, MAX_OPERATORS, MAX_SOURCES
from engine.errors import DocumentError
from tests.engine.samples import chain, deployment, entry, figure3, operator


def whole() -> dict[str, Any]:
    """A document with every optional part."""
    batches = [{"events": 100, "outputs": 50, "cycles": 100}, {"events": 100, "outputs": 52, "cycles": 98}]
    document = deployment(
        format="sluice/deployment",
        version=1,
        subintervals=4,
        combine={"kind": "interference", "alpha": 0.1},
        links=[{"from": "A", "to": "B", "bandwidth_bytes_s": None, "delay_s": 0.1}],
        objectives=[{"query": "q", "statistic": "q0.99", "bound_s": 10.0}],
        priorities={"q": -1},
        constraints={
            "pin": {"f": "A"},
            "forbid": {"g": ["A"]},
            "apart": [["f", "g"]],
            "max_moves": 5,
            "may_split": ["f"],
        },
    )
    document["sources"][0]["event_fields"] = {"ints": 1, "strings": 2, "doubles": 0}
    document["nodes"][0] |= {
        "cores": 2,
        "pool": "p",
        "price_per_hour": 0.2,
        "memory_bytes": 1e9,
        "labels": {"zone": "a"},
    }
    first, second = document["operators"]
    first |= {
        "query": "q",
        "kind": "window",
        "window": {"policy": "time", "type": "sliding", "size": 10, "slide": 5},
        "state_bytes": 1e6,
        "tuple_values_in": 3,
        "tuple_values_out": 2,
        "evidence": {"kind": "measured", "events": 200, "age_s": 60},
        "expression": {"filter": "x > 1"},
        "reads": ["x"],
        "writes": [],
        "stateless": True,
        "bytes_per_event": 10,
    }
    first["inputs"][0]["batches"] = batches
    second["inputs"][0]["model"] = {"output": [0, 1, 0], "cycles": [0, 1, 0.1]}
    second["query"] = "q"
    del second["node"]
    second["split"] = [{"node": "A", "core": 1, "fraction": 0.25}, {"node": "B", "fraction": 0.75}]
    document["plans"] = {"q": [[{"id": "f2", "inputs": [entry("s")]}]]}
    return document


def faults_of(document: Any) -> dict[str, str]:
    with pytest.raises(DocumentError) as caught:
        Deployment.parse(document)
    return {fault.path: fault.message for fault in caught.value.faults}


def test_every_fault_of_a_document_is_reported_at_once() -> None:
    document = deployment(subinterval_s=0, colour="red", objectives=[{"query": "z", "statistic": "q2", "bound_s": 1}])
    document["sources"][0]["arrivals"] = [1, True, -2, "NaN"]
    document["nodes"][0]["coress"] = 2
    document["nodes"][1] |= {"capacity_series_cps": [1, 1, 1, 1]}
    document["operators"][0]["inputs"][0]["selectivity"] = float("nan")
    document["operators"][1]["node"] = "C"
    result = faults_of(document)
    assert set(result) == {
        "subinterval_s",
        "colour",
        "sources[0].arrivals[1]",
        "sources[0].arrivals[2]",
        "sources[0].arrivals[3]",
        "nodes[0].coress",
        "nodes[1].capacity_cps",
        "operators[0].inputs[0].selectivity",
        "operators[1].node",
        "objectives[0].statistic",
    }
    assert "did you mean 'cores'" in result["nodes[0].coress"]
    assert result["sources[0].arrivals[2]"] == "item 2 is -2; allowed: a finite number of at least 0"


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("operators[0].core", lambda d: d["operators"][0].update(core=1)),
        ("operators[1].id", lambda d: d["operators"][1].update(id="s")),
        ("operators[0].inputs[0].from", lambda d: d["operators"][0]["inputs"][0].update({"from": "x"})),
        ("operators[1].inputs", lambda d: d["operators"][0]["inputs"].append(entry("g"))),
        ("operators[0].node", lambda d: d["operators"][0].update(split=[{"node": "A", "fraction": 1}])),
        ("operators[0].node", lambda d: d["operators"][0].pop("node")),
        ("operators[0].inputs[0].selectivity", lambda d: d["operators"][0]["inputs"][0].pop("selectivity")),
        ("operators[0].join", lambda d: d["operators"][0].update(kind="filter", join={"key_type": "int"})),
        ("operators[0].filter.function", lambda d: d["operators"][0].update(filter={"literal_type": "int"})),
        ("sources[0].event_fields.ints", lambda d: d["sources"][0].update(event_fields={"ints": 1.5})),
        ("nodes[1].capacity_cps", lambda d: d["nodes"][1].pop("capacity_cps")),
        ("nodes[1].id", lambda d: d["nodes"][1].update(id="A")),
        ("nodes[0].cores", lambda d: d["nodes"][0].update(cores=1.5)),
        ("links[0].to", lambda d: d.update(links=[{"from": "A", "to": "A"}])),
        ("links[1]", lambda d: d.update(links=[{"from": "A", "to": "B"}, {"from": "A", "to": "B"}])),
        ("combine.alpha", lambda d: d.update(combine={"kind": "interference"})),
        ("sources[0].arrivals", lambda d: d.update(subintervals=3)),
        ("priorities.z", lambda d: d.update(priorities={"z": 1})),
        ("constraints.pin.z", lambda d: d.update(constraints={"pin": {"z": "A"}})),
        ("version", lambda d: d.update(version=2)),
        ("sources", lambda d: d.update(sources={})),
        ("operators[0]", lambda d: d["operators"].insert(0, 7)),
        ("sources[0].arrivals[0]", lambda d: d["sources"][0]["arrivals"].__setitem__(0, 10**400)),
    ],
)
def test_fault_names_its_path(path: str, change: Any) -> None:
    document = deployment()
    change(document)
    assert path in faults_of(document)


def test_input_without_a_cost_never_ran_and_is_written_without_one() -> None:
    document = deployment()
    del document["operators"][0]["inputs"][0]["cycles_per_event"]
    document["operators"][0] |= {"kind": "filter", "filter": {"function": "<", "literal_type": "int"}}
    parsed = Deployment.parse(document)
    first, second = parsed.operators
    assert first.never_ran and not second.never_ran
    assert first.inputs[0].cycles_per_event > 0 and first.evidence is not None and first.evidence.kind == "predicted"
    written = parsed.to_document()
    assert "cycles_per_event" not in written["operators"][0]["inputs"][0]
    assert Deployment.parse(written).digest == parsed.digest


def test_cost_that_is_missing_cannot_be_measured() -> None:
    document = deployment()
    del document["operators"][0]["inputs"][0]["cycles_per_event"]
    document["operators"][0]["evidence"] = {"kind": "measured", "events": 10}
    assert "no cycles_per_event" in faults_of(document)["operators[0].inputs[0].cycles_per_event"]


def test_split_needs_shares_that_add_up_and_no_state() -> None:
    document = deployment()
    del document["operators"][0]["node"]
    document["operators"][0]["split"] = [{"node": "A", "fraction": 0.5}, {"node": "B", "fraction": 0.4}]
    assert "add up to 0.9" in faults_of(document)["operators[0].split"]
    document["operators"][0] |= {"stateless": False}
    assert "state" in faults_of(document)["operators[0].split"]


def test_faulty_element_is_not_reported_as_unknown() -> None:
    document = deployment()
    document["nodes"][0]["capacity_cps"] = -1
    assert list(faults_of(document)) == ["nodes[0].capacity_cps"]


def test_references_of_a_faulty_element_are_checked() -> None:
    document = deployment(links=[{"from": "A", "to": "Z", "delay_s": -1}])
    document["operators"] = [
        {"id": "f", "query": "q", "node": "Y", "inputs": [entry("x") | {"selectivity": -1}, entry("g")]},
        {"id": "g", "split": [{"node": "X", "fraction": -1}], "inputs": [entry("f")]},
    ]
    document["objectives"] = [
        {"query": "q", "statistic": "worst", "bound_s": 1},
        {"query": "r", "statistic": "worst", "bound_s": 1},
    ]
    result = faults_of(document)
    assert set(result) == {
        "links[0].delay_s",
        "links[0].to",
        "operators[0].inputs[0].selectivity",
        "operators[0].inputs[0].from",
        "operators[0].node",
        "operators[1].split[0].fraction",
        "operators[1].split[0].node",
        "operators[1].inputs",
        "objectives[1].query",
    }
    assert "g -> f -> g" in result["operators[1].inputs"] or "f -> g -> f" in result["operators[1].inputs"]


def test_cycle_is_reported_with_its_operators() -> None:
    operators = [operator("f", "A", entry("h")), operator("g", "A", entry("f")), operator("h", "B", entry("g"))]
    (message,) = faults_of(deployment(operators=operators)).values()
    assert "f -> g -> h -> f" in message or "g -> h -> f -> g" in message or "h -> f -> g -> h" in message


@pytest.mark.parametrize(
    "document", [deployment(), whole(), figure3(), chain(2, 2)], ids=["base", "whole", "fig3", "chain"]
)
def test_accepted_document_round_trips_and_fits_the_schema(document: dict[str, Any]) -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    built = Deployment.parse(document)
    jsonschema.validate(document, schema)
    jsonschema.validate(built.to_document(), schema)
    again = Deployment.parse(built.to_document())
    assert again.digest == built.digest
    assert again.to_document() == built.to_document()


@pytest.mark.parametrize("value", [True, "3", -1, None, float("inf")])
def test_value_that_the_schema_refuses_is_refused(value: Any) -> None:
    document = deployment()
    document["operators"][0]["inputs"][0]["selectivity"] = value
    assert "operators[0].inputs[0].selectivity" in faults_of(document)
    if value != float("inf"):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(document, json_schema())


def test_digest_changes_with_the_content() -> None:
    document = deployment()
    base = Deployment.parse(document).digest
    changed = copy.deepcopy(document)
    changed["sources"][0]["arrivals"][2] = 1
    assert Deployment.parse(changed).digest != base
    assert (
        Deployment.parse(document | {"sources": [{"id": "s", "arrivals": np.array([100, 300, 0, 0])}]}).digest == base
    )


def test_arrays_are_read_only_and_not_shared_with_the_caller() -> None:
    mine = np.array([100.0, 300.0, 0.0, 0.0])
    built = Deployment.parse(deployment(sources=[{"id": "s", "arrivals": mine}]))
    mine[0] = 5
    assert built.sources[0].arrivals[0] == 100
    with pytest.raises(ValueError, match="read-only"):
        built.sources[0].arrivals[0] = 1


def test_derived_deployment_changes_only_the_named_parts() -> None:
    built = Deployment.parse(whole())
    coarse = built.coarsened(3)
    assert (coarse.subinterval_s, coarse.subintervals) == (3.0, 2)
    assert coarse.sources[0].arrivals.tolist() == [400, 0]
    moved = built.with_placement({"f": [Replica("B")]})
    assert moved.operators[0].replicas == (Replica("B"),)
    assert moved.layout.rep_server[0] != built.layout.rep_server[0]
    assert built.with_arrivals({"s": [1, 1, 1, 1]}).arrivals.tolist() == [[1, 1, 1, 1]]
    assert built.without_query("q").queries == ()
    with pytest.raises(DocumentError, match="no node"):
        built.with_placement({"f": [Replica("Z")]})
    with pytest.raises(DocumentError, match="allowed: 4"):
        built.with_arrivals({"s": [1]})


def test_candidate_is_read_by_the_rules_of_a_document() -> None:
    running = Deployment.parse(deployment())
    operators = [{"id": "h", "inputs": [entry("f"), entry("t")]}]
    document = {"query": "new", "operators": operators, "sources": [{"id": "t", "arrivals": [1, 2, 3, 4]}]}
    candidate = parse_candidate(document, running)
    assert candidate.operators[0].query == "new"
    assert running.extended(candidate.operators, candidate.sources).queries == ("new",)
    document["operators"] = [{"id": "f", "node": "Z", "inputs": [entry("u")]}]
    with pytest.raises(DocumentError) as caught:
        parse_candidate(document, running)
    paths = {fault.path for fault in caught.value.faults}
    assert paths == {
        "candidate.operators[0].id",
        "candidate.operators[0].node",
        "candidate.operators[0].inputs[0].from",
    }


def parse_s(count: int) -> float:
    """CPU seconds to parse so many operators."""
    operators = [operator(f"o{i}", "AB"[i % 2], entry(f"o{i - 1}" if i % 10 else "s")) for i in range(count)]
    document = deployment(operators=operators)
    start = time.process_time()
    Deployment.parse(document)
    return time.process_time() - start


def test_time_to_read_is_linear_in_the_operators() -> None:
    """32 times the operators take about 32 times as long; by the square, it would be a thousand times."""
    few_s = min(parse_s(500) for _ in range(5))
    assert min(parse_s(16_000) for _ in range(2)) < 200 * few_s


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"nodes": [{"id": "n", "capacity_cps": 1.0, "cores": 10**9}], "subintervals": 1}, "nodes[0].cores"),
        ({"nodes": [{"id": "n", "capacity_cps": 1.0}], "subintervals": 10**11}, "subintervals"),
    ],
)
def test_huge_number_of_subintervals_is_refused(document: dict[str, Any], path: str) -> None:
    with pytest.raises(DocumentError) as error:
        Deployment.parse({"subinterval_s": 1.0, "operators": [], **document})
    assert path in [fault.path for fault in error.value.faults]


def test_more_operators_than_a_document_may_have_are_refused_by_name_and_limit() -> None:
    document = deployment()
    document["operators"] = document["operators"][:1] * (MAX_OPERATORS + 1)
    with pytest.raises(DocumentError) as refused:
        Deployment.parse(document)
    assert [str(fault) for fault in refused.value.faults] == [
        "operators: operators has 100,001 items; allowed: at most 100,000"
    ]
    running = Deployment.parse(deployment())
    with pytest.raises(DocumentError, match="100,001 items; allowed: 1 to 100,000"):
        parse_candidate({"query": "many", "operators": document["operators"]}, running)


@pytest.mark.parametrize(("name", "limit"), [("sources", MAX_SOURCES), ("nodes", MAX_NODES), ("links", MAX_LINKS)])
def test_more_elements_of_any_kind_than_a_document_may_have_are_refused(name: str, limit: int) -> None:
    document = deployment(links=[{"from": "A", "to": "B"}])
    document[name] = document[name][:1] * (limit + 1)
    with pytest.raises(DocumentError) as refused:
        Deployment.parse(document)
    assert f"{name}: {name} has {limit + 1:,} items; allowed: at most {limit:,}" in map(str, refused.value.faults)
    assert json_schema()["properties"][name]["maxItems"] == limit
