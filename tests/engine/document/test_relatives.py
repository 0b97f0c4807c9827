"""Costs of operators that never ran: by relatives that did, and how far few of them move the table's."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from engine.document.candidate import read_candidate
from engine.document.deployment import Deployment
from engine.errors import DocumentError

KEEP = {"kind": "filter", "filter": {"function": "<", "literal_type": "int"}}
MEASURED = {"kind": "measured", "events": 5000}


def running(cost: float, count: int = 1, **more: Any) -> Deployment:
    ran = {**KEEP, "evidence": MEASURED, "query": "old", "node": "n", **more}
    entry = {"from": "s", "selectivity": 0.5, "cycles_per_event": cost}
    return Deployment.parse(
        {
            "subinterval_s": 1.0,
            "sources": [{"id": "s", "arrivals": [100.0] * 4}],
            "nodes": [{"id": "n", "capacity_cps": 1e12}],
            "operators": [{**ran, "id": f"old/{i}", "inputs": [entry]} for i in range(count)],
        }
    )


def cost_of(deployment: Deployment, **more: Any) -> tuple[float, int]:
    new = {**deepcopy(KEEP), "id": "new/f", "inputs": [{"from": "s", "selectivity": 0.5}], **more}
    (filled,) = read_candidate({"query": "new", "operators": [new]}, deployment).operators
    assert filled.never_ran and filled.evidence is not None and filled.evidence.kind == "predicted"
    return filled.inputs[0].cycles_per_event, filled.inputs[0].relatives


def test_relatives_move_the_cost_of_the_table_by_their_weight() -> None:
    table, none = cost_of(running(1.0, evidence={"kind": "assumed"}))
    assert none == 0
    # half the weight of one that has the same expression, beside the table's 1: 8^(0.5/1.5)
    assert cost_of(running(8.0 * table)) == (pytest.approx(2.0 * table), 1)
    assert cost_of(running(8.0 * table, expression="x < 3"), expression="x < 3") == (pytest.approx(8**0.5 * table), 1)
    assert cost_of(running(8.0 * table, count=4)) == (pytest.approx(4.0 * table), 4)


def test_relative_that_runs_no_more_has_half_its_weight() -> None:
    nobody = running(1.0, evidence={"kind": "assumed"})
    table, _ = cost_of(nobody)
    stopped = {**KEEP, "id": "gone/keep", "ratio": 8.0, "events": 5000}
    new = {**deepcopy(KEEP), "id": "new/f", "inputs": [{"from": "s", "selectivity": 0.5}]}
    (filled,) = read_candidate({"query": "new", "operators": [new], "relatives": [stopped]}, nobody).operators
    assert filled.inputs[0].cycles_per_event == pytest.approx(8.0 ** (0.25 / 1.25) * table)
    assert filled.inputs[0].relatives == 1
    with pytest.raises(DocumentError) as caught:
        read_candidate({"query": "new", "operators": [new], "relatives": [stopped | {"ratio": 0}]}, nobody)
    assert [fault.path for fault in caught.value.faults] == ["candidate.relatives[0].ratio"]


@pytest.mark.parametrize(
    "other",
    [
        {"filter": {"function": "<", "literal_type": "string"}},
        {"evidence": {"kind": "measured", "events": 10}},
        {"cost_by": "load_step"},
        {"measured_s": 20.0},
    ],
)
def test_operators_of_another_make_or_barely_measured_are_no_relatives(other: dict[str, Any]) -> None:
    assert cost_of(running(1e9, **other))[1] == 0
