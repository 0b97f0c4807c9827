"""Operators that run at a cost nobody knows: nothing stands in, and what rests on them is known to be a lower bound."""

from __future__ import annotations

from typing import Any

import pytest

from engine.document.deployment import Deployment
from engine.document.unknown_costs import unknown_costs
from engine.errors import DocumentError
from engine.estimation.estimate import estimate
from engine.forecasts.scaled_latency import ScaledMace

KNOWN = {"kind": "measured", "events": 5000}
UNKNOWN = {"kind": "unknown", "events": 5000}


def operator(name: str, source: str, core: int, cost: float | None = 1e6, **more: Any) -> dict[str, Any]:
    entry = {"from": source, "selectivity": more.pop("selectivity", 1.0)}
    entry |= {} if cost is None else {"cycles_per_event": cost}
    evidence = KNOWN if cost is not None else UNKNOWN
    return {"id": name, "node": "n", "core": core, "inputs": [entry], "evidence": evidence, **more}


def deployment(*operators: dict[str, Any]) -> Deployment:
    queries = dict.fromkeys(row["query"] for row in operators)
    return Deployment.parse(
        {
            "subinterval_s": 1.0,
            "sources": [{"id": "s", "arrivals": [100.0] * 20}],
            "nodes": [{"id": "n", "capacity_cps": 1e9, "cores": 3}],
            "operators": list(operators),
            "objectives": [{"query": query, "statistic": "worst", "bound_s": 5.0} for query in queries],
        }
    )


def test_running_operator_without_a_cost_takes_next_to_nothing_and_leaves_its_query_unknown() -> None:
    running = deployment(operator("read", "s", 0, None, query="q"), operator("work", "read", 1, query="q"))
    assert running.operators[0].is_cost_unknown and running.operators[0].inputs[0].cycles_per_event < 1.0
    assert unknown_costs(running, "q") == ("read",)
    report = estimate(running).queries["q"]
    assert report.standing.kind == "unknown" and "read" in report.standing.sentence
    assert report.bound_s is not None and report.estimate_s < report.bound_s


def test_query_beside_an_unknown_cost_is_unknown_on_the_same_server_only() -> None:
    unknown = operator("read", "s", 0, None, query="q")
    beside = deployment(unknown, operator("work", "s", 0, query="r"), operator("far", "s", 2, query="t"))
    assert unknown_costs(beside, "r") == ("read",) and unknown_costs(beside, "t") == ()
    reports = estimate(beside).queries
    assert reports["r"].standing.kind == "unknown" and reports["t"].standing.is_known


def test_known_costs_that_break_an_objective_alone_break_it_beside_an_unknown_one() -> None:
    running = deployment(operator("read", "s", 0, None, query="q"), operator("work", "read", 1, 2e7, query="q"))
    assert estimate(running).queries["q"].standing.is_endless


def test_operator_that_nothing_reaches_costs_nothing_whatever_its_cost() -> None:
    dropped = operator("drop", "s", 0, query="q", selectivity=0.0)
    late = operator("late", "drop", 1, None, query="q")
    assert unknown_costs(deployment(dropped, late, operator("work", "s", 2, query="q")), "q") == ()
    few = dropped | {"evidence": {"kind": "measured", "events": 10}}
    assert unknown_costs(deployment(few, late, operator("work", "s", 2, query="q")), "q") == ("late",)
    windowed = dropped | {"window": {"policy": "time", "type": "tumbling", "size": 60.0}}
    assert unknown_costs(deployment(windowed, late, operator("work", "s", 2, query="q")), "q") == ("late",)


def test_forecast_of_a_query_with_an_unknown_cost_says_so() -> None:
    running = deployment(operator("read", "s", 0, None, query="q"), operator("work", "read", 1, query="q"))
    assert "read" in ScaledMace(running).unknown["q"]


def test_unknown_evidence_beside_a_cost_is_a_fault() -> None:
    with pytest.raises(DocumentError, match="every input has a cost"):
        deployment(operator("read", "s", 0, query="q") | {"evidence": UNKNOWN})
