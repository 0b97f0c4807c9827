"""Memory of nodes against state: what is held, what fits, what is over, and what nobody knows."""

from __future__ import annotations

from typing import Any

import pytest

from engine.document.deployment import Deployment
from engine.document.memory import memory_by_node, state_need_bytes, unstated_memory

GB = 1e9


def deployment(operators: list[dict[str, Any]], nodes: dict[str, float | None]) -> Deployment:
    read = {"inputs": [{"from": "s", "selectivity": 1, "cycles_per_event": 1}]}
    return Deployment.parse(
        {
            "subinterval_s": 1.0,
            "sources": [{"id": "s", "arrivals": [1.0]}],
            "nodes": [{"id": name, "capacity_cps": 100.0, "memory_bytes": size} for name, size in nodes.items()],
            "operators": [{"id": f"o{i}"} | read | more for i, more in enumerate(operators)],
        },
        placed=False,
    )


@pytest.mark.parametrize(
    ("fields", "need"),
    [
        ({"state_bytes": 5 * GB}, 5 * GB),
        ({"state_bytes": 5 * GB, "stateless": True}, 5 * GB),  # what is stated counts
        ({"state_bytes": 5 * GB, "state_on_disk": True}, 0.0),
        ({"stateless": True}, 0.0),
        ({"kind": "filter"}, 0.0),
        ({"kind": "map", "stateless": False}, None),
        ({"kind": "aggregate"}, None),
        ({"stateless": False}, None),
        ({}, None),
    ],
)
def test_need_is_what_is_stated_none_without_state_and_unknown_otherwise(
    fields: dict[str, Any], need: float | None
) -> None:
    assert state_need_bytes(deployment([fields], {"n": None}).operators[0]) == need


def test_replicas_share_state_by_their_fractions() -> None:
    split = {"split": [{"node": "a", "fraction": 0.25}, {"node": "b", "fraction": 0.75}], "state_bytes": 8 * GB}
    nodes = memory_by_node(deployment([split], {"a": 2 * GB, "b": 5 * GB}))
    assert [(entry.held_bytes, entry.state) for entry in nodes.values()] == [(2 * GB, "fits"), (6 * GB, "over")]
    assert nodes["b"].over_bytes == GB


def test_node_is_over_by_its_known_state_whatever_is_unknown() -> None:
    held = deployment([{"node": "n", "state_bytes": 9 * GB}, {"node": "n"}], {"n": 8 * GB})
    entry = memory_by_node(held)["n"]
    assert (entry.state, entry.over_bytes, entry.unknown) == ("over", GB, ("o1",))


def test_node_is_unknown_where_either_number_is_missing() -> None:
    nodes = memory_by_node(
        deployment(
            [{"node": "a"}, {"node": "b", "state_bytes": GB}, {"node": "c", "stateless": True}],
            {"a": GB, "b": None, "c": None},
        )
    )
    assert [entry.state for entry in nodes.values()] == ["unknown", "unknown", "fits"]


def test_unknown_names_operators_and_only_nodes_that_matter() -> None:
    known = deployment([{"node": "a", "state_bytes": GB}, {"node": "b", "kind": "filter"}], {"a": GB, "b": None})
    assert unstated_memory(known) is None
    assert unstated_memory(known, everywhere=True) == "b does not state its memory"
    both = deployment([{"node": "a"}, {"node": "b", "stateless": False}], {"a": None, "b": GB})
    assert unstated_memory(both) == "o0 and o1 do not state bytes of state; a does not state its memory"


def test_document_keeps_where_state_lies() -> None:
    document = deployment([{"node": "n", "state_bytes": GB, "state_on_disk": True}], {"n": GB}).to_document()
    assert document["operators"][0]["state_on_disk"] is True
    assert Deployment.parse(document).operators[0].state_on_disk is True
