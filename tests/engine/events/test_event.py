"""Events on six queries of one operator each, two to a node: factors, what breaks, what to delay, and the staircase."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.document.deployment import Deployment
from engine.errors import DocumentError
from engine.estimation.estimate import Progress
from engine.events.answer import EventAnswer
from engine.events.event import answer_event
from engine.events.question import EventLoads, EventQuestion

TYPE = {"name": "std", "capacity_cps": 10_000.0, "cores": 1, "price_per_hour": 1.0}
HOURS = 6


def deployment(share: float = 0.3, **more: Any) -> Deployment:
    """Six queries that take `share` of a node of 10,000 cycles/s each, at 100 events/s."""
    cycles = share * 100.0
    return Deployment.parse(
        {
            "subinterval_s": 1.0,
            "sources": [{"id": f"s{i}", "arrivals": [100.0] * 60} for i in range(6)],
            "nodes": [{"id": f"n{i}", "capacity_cps": 1e4, "price_per_hour": 1.0} for i in range(3)],
            "operators": [
                {
                    "id": f"f{i}",
                    "query": f"q{i}",
                    "node": f"n{i % 3}",
                    "inputs": [{"from": f"s{i}", "selectivity": 1, "cycles_per_event": cycles}],
                }
                for i in range(6)
            ],
            "objectives": [{"query": f"q{i}", "statistic": "worst", "bound_s": 1.0} for i in range(6)],
            **more,
        }
    )


def answer(base: Deployment, tell: Progress | None = None, steps_budget_s: float = 600.0, **loads: Any) -> EventAnswer:
    given = EventLoads(0.0, 3600.0, HOURS, **loads)
    question = EventQuestion({"std": TYPE}, base.objectives, lose_one=False, ends_s=HOURS * 3600.0, lead_time_s=60.0)
    return answer_event(base, given, replace(question, steps_budget_s=steps_budget_s), tell)


def test_a_query_has_its_own_load_and_the_larger_of_two_factors_counts() -> None:
    found = answer(deployment(), sources={"s0": 1.5, "s1": 2.0}, queries={"q0": 1.2, "q1": 2.5}, rest=1.1)
    factors = {entry.source: (entry.factor_mean, entry.factor_of) for entry in found.sources}
    assert factors["s0@q0"] == (1.5, "given")
    assert factors["s1@q1"] == (2.5, "given")
    assert factors["s2"] == (pytest.approx(1.1), "rest")


def test_what_breaks_is_stopped_for_by_the_lowest_priorities_alone() -> None:
    priorities = {f"q{i}": 5 - i for i in range(6)}
    found = answer(deployment(0.4, priorities=priorities), sources={"s0": 1.7})  # 0.68 and 0.4 on n0
    assert [entry.forecast.query for entry in found.breaking] == ["q0", "q3"]
    assert (found.delay.queries, found.delay.is_enough) == (("q3",), True)
    assert found.breaking[0].hours == HOURS


def test_queries_of_one_priority_are_not_delayed_for_each_other() -> None:
    found = answer(deployment(0.4), sources={"s0": 1.7})
    assert (found.delay.queries, found.delay.is_enough, found.delay.left) == ((), False, ("q0", "q3"))


def test_steps_never_need_fewer_nodes_for_more_load_or_a_lost_node() -> None:
    found = answer(deployment(), rest=2.0)  # 3.6 nodes of work
    now, lost, load, _ = (step.nodes or 0 for step in found.steps)
    assert (now, now <= lost <= load) == (2, True)
    purchase = found.purchase
    assert purchase is not None and purchase.nodes is not None and purchase.nodes >= 4
    assert purchase.cost == HOURS * (purchase.nodes - 3)
    assert purchase.order_by_s == -60.0


def test_steps_without_time_say_that_they_were_cut() -> None:
    *steps, bought = answer(deployment(), steps_budget_s=0.0, rest=2.0).steps
    assert [(step.nodes, step.is_cut, step.at_least, step.enough) for step in steps] == [(None, True, 1, None)] * 3
    assert bought.nodes is not None and not bought.is_cut


def test_more_than_planned_never_needs_fewer_nodes() -> None:
    found = answer(deployment(), rest=1.6)
    needed = [future.nodes or 99 for future in found.futures]
    assert [future.times for future in found.futures] == [0.7, 1.0, 1.3]
    assert needed == sorted(needed)
    assert found.regret is not None and found.regret.recommended in {size.size for size in found.regret.sizes}


def test_an_unknown_source_or_query_is_named() -> None:
    with pytest.raises(DocumentError, match="s9"):
        answer(deployment(), sources={"s9": 2.0})
    with pytest.raises(DocumentError, match="q9"):
        answer(deployment(), queries={"q9": 2.0})


@pytest.mark.parametrize("stretch", ["Steps between the answers: ", "What to delay: "])
def test_a_run_that_is_cancelled_ends_within_its_long_stretches(stretch: str) -> None:
    def cancelled(share: float, step: str) -> None:
        if step.startswith(stretch):
            raise InterruptedError(step)

    priorities = {f"q{i}": 5 - i for i in range(6)}
    with pytest.raises(InterruptedError):
        answer(deployment(0.4, priorities=priorities), cancelled, sources={"s0": 1.7})
