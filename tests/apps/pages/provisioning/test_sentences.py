"""Findings of what-ifs: each case is a sentence that agrees with its numbers."""

from __future__ import annotations

from typing import Any

import pytest

from apps.fleet.models import Cluster
from apps.pages.provisioning.results import RESULTS
from apps.planning.choices import Find
from apps.planning.models import WhatIf
from apps.planning.what_ifs import stored_answer


def text(find: Find, answer: dict[str, Any]) -> str:
    row = WhatIf(cluster=Cluster(currency="EUR"), options={}, find=find, result=answer)
    found = RESULTS[find](row, stored_answer(row)).sentence
    return found.replace("\u00a0", " ").replace("<b>", "").replace("</b>", "")


_KIND = {"like": "n0", "capacity_cps": 1.0, "cores": 1, "price_per_hour": 2.82, "memory_bytes": None}
_POOL: dict[str, Any] = {
    "present": 2,
    "added": 1,
    "type": _KIND,
    "most": 8,
    "confirmed": True,
    "cost_per_hour": 2.82,
    "best": None,
    "proof": None,
    "miss": None,
    "sizes": [],
    "flows": 1,
    "least": 2,
}
_BEYOND = {"kind": "alone", "query": "q", "operator": None, "bound_s": 1.0, "least_s": 2.0, "message": "q is too slow"}
_MIX: dict[str, Any] = {
    "present": 2,
    "cost_per_hour": None,
    "least_cost_per_hour": None,
    "complete": True,
    "refuted": 0,
    "tried": 0,
    "best": None,
    "proofs": [],
    "flows": 1,
}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"nodes": 3}, "3 nodes keep every objective with any one lost, for € 2.82 per hour; 1 more than now."),
        (
            {"nodes": 1, "added": -2, "cost_per_hour": None},
            "1 node keeps every objective with any one lost; 2 fewer than now.",
        ),
        (
            {"nodes": 3, "added": 0, "beyond": [_BEYOND]},
            "3 nodes keep all but 1 objective with any one lost, for € 2.82 per hour; they are there already. "
            "It cannot be kept: q is too slow.",
        ),
        ({"nodes": None}, "No pool of up to 8 nodes keeps every objective."),
        (
            {
                "nodes": 3,
                "reservation": ", 1 in the median only",
                "notes": ["At risk is q: 5.2 s [4.1, 6.9] of its 6 s.", "Arrivals of s are known as counts per 5 min."],
            },
            "3 nodes keep every objective with any one lost, 1 in the median only, for € 2.82 per hour; "
            "1 more than now. At risk is q: 5.2 s [4.1, 6.9] of its 6 s. Arrivals of s are known as counts per 5 min.",
        ),
        (
            {"nodes": 3, "splits": {"a": 2, "b": 3}, "complete": False},
            "3 nodes keep every objective with any one lost, for € 2.82 per hour; 1 more than now. "
            "Split: a in 2 parts and b in 3 parts. "
            "The time was over before smaller numbers had all been tried; at least 2 by bound.",
        ),
    ],
)
def test_smallest_pool_says_what_it_keeps(answer: dict[str, Any], expected: str) -> None:
    assert text(Find.SMALLEST_POOL, {**_POOL, **answer}) == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            {"counts": {"small": 2, "large": 1}, "cost_per_hour": 1.5, "proven": True},
            "With 2 small and 1 large for € 1.50 per hour every objective holds; "
            "every cheaper mix is proven too small.",
        ),
        (
            {"counts": {"small": 0}, "cost_per_hour": 0.0, "proven": True},
            "No new node is needed to keep every objective.",
        ),
        (
            {"counts": None, "complete": True, "proofs": [{"nodes": 3, "message": "q is late"}]},
            "No mix within the limits keeps every objective. The nearest does not do: q is late.",
        ),
        ({"counts": None, "complete": False}, "No mix among those looked at keeps every objective."),
    ],
)
def test_cheapest_mix_says_what_to_buy(answer: dict[str, Any], expected: str) -> None:
    assert text(Find.CHEAPEST_MIX, {**_MIX, **answer}) == expected


def scenario(name: str, *, holds: bool, price: float | None = None) -> dict[str, Any]:
    kept = {"kept": ["q"]} if holds else {"broken": ["q"]}
    return {"name": name, "place": "fill", "node_count": 2, "cost_per_hour": price, **kept}


@pytest.mark.parametrize(
    ("scenarios", "expected"),
    [
        ([scenario("a", holds=False)], "The scenario does not keep every objective."),
        ([scenario("a", holds=False), scenario("b", holds=False)], "None of 2 scenarios keeps every objective."),
        ([scenario("a", holds=True)], "a keeps every objective."),
        ([scenario("a", holds=True), scenario("b", holds=True)], "a and b keep every objective."),
        (
            [scenario("a", holds=True, price=2.0), scenario("b", holds=False)],
            "Only a keeps every objective, for € 2.00 per hour.",
        ),
        (
            [scenario("a", holds=True, price=2.0), scenario("b", holds=True, price=1.0)],
            "2 of 2 keep every objective; b is the cheapest of them, at € 1.00 per hour.",
        ),
    ],
)
def test_scenarios_say_which_of_them_hold(scenarios: list[dict[str, Any]], expected: str) -> None:
    assert text(Find.COMPARE, {"scenarios": scenarios}) == expected


def loss(node: str, *breaks: str, infeasible: bool = False) -> dict[str, Any]:
    refusal = {"code": "infeasible", "message": "no place"} if infeasible else None
    return scenario(node, holds=True) | {"node": node, "breaks": list(breaks), "infeasible": refusal}


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([loss("a"), loss("b")], "The loss of any one of 2 nodes breaks no objective."),
        ([loss("a", "q"), loss("b")], "1 of 2 nodes breaks an objective when lost: a, and with it q."),
        (
            [loss("a", "q"), loss("b", "q", "r")],
            "2 of 2 nodes break an objective when lost; b does most harm, to q and r.",
        ),
        (
            [loss("a") | {"risks": ["q"]}, loss("b")],
            "The loss of any one of 2 nodes breaks no objective in the median. Losing a puts q at risk.",
        ),
        (
            [loss("a", "q") | {"risks": ["r"]}, loss("b") | {"risks": ["r", "s"]}],
            "1 of 2 nodes breaks an objective when lost: a, and with it q. Losing one of 2 puts r and s at risk.",
        ),
        ([loss("a", infeasible=True)], "1 of 1 node cannot be lost: what runs on a would have no place."),
    ],
)
def test_survival_names_the_loss_that_does_most_harm(losses: list[dict[str, Any]], expected: str) -> None:
    now = scenario("now", holds=True)
    assert text(Find.SURVIVAL, {"survives": False, "now": now, "losses": losses, "message": ""}) == expected


def test_front_names_its_two_ends() -> None:
    placed = {"nodes": 3, "over_bound": 0.5, "queries": {}, "late": [], "lost": None, "stuck": None, "splits": {}}
    points = [
        {**placed, "worst_s": 4.0, "cost_per_hour": 1.0, "counts": {"small": 1}, "as_placed": None},
        {**placed, "worst_s": 2.0, "cost_per_hour": 3.0, "counts": {"small": 3}, "as_placed": None},
    ]

    def front(points: list[dict[str, Any]]) -> str:
        return text(
            Find.PARETO, {"points": points, "message": "", "tried": len(points), "skipped": 0, "complete": True}
        )

    assert front([]) == "No mix of these types can be placed."
    assert front(points[:1]).startswith("One mix is worth having: 4 s for € 1.00 of new nodes")
    assert front(points) == "From 4 s for € 1.00 of new nodes per hour to 2 s for € 3.00: 2 mixes worth having."
