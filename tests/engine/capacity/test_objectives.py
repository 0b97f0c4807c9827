"""Rates at which objectives break: before saturation, and whose is the first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.capacity.answer import QueryCapacity
from engine.capacity.objectives import with_first_objective, with_objectives
from engine.capacity.saturation import ClusterSaturation
from engine.document.deployment import Deployment
from engine.document.elements import Objective
from engine.estimation.base import EstimateBase
from engine.estimation.estimate import estimate
from engine.provisioning.changes import apply_changes
from tests.engine.capacity.test_saturation import measured, with_steady_rates
from tests.engine.samples import deployment as document
from tests.engine.samples import entry


def bursts(bound_s: float, other_bound_s: float | None = None) -> Deployment:
    """q's bursts of 60 events in a second of every ten, one cycle each; `other` behind it on the same node."""
    objectives: list[dict[str, Any]] = [{"query": "q", "statistic": "worst", "bound_s": bound_s}]
    if other_bound_s is not None:
        objectives.append({"query": "other", "statistic": "worst", "bound_s": other_bound_s})
    return Deployment.parse(
        document(
            sources=[{"id": "s", "arrivals": [60.0, *[0.0] * 9] * 12}, {"id": "t", "arrivals": [2.0] * 120}],
            operators=[
                measured("f", "A", entry("s", 1.0, 1.0, cost_cv2=0.0)),
                measured("h", "A", entry("t", 1.0, 1.0, cost_cv2=0.0), query="other"),
            ],
            objectives=objectives,
        )
    )


def capacity_of(deployment: Deployment) -> QueryCapacity:
    return with_objectives(EstimateBase.of(deployment), "q", ClusterSaturation(deployment).of_query("q"))


def test_objective_breaks_at_a_lower_rate_than_saturation() -> None:
    deployment = bursts(3.0)
    capacity = capacity_of(deployment)
    own = capacity.objective
    assert capacity.factor is not None and capacity.factor == pytest.approx((1000.0 - 20.0) / 60.0)
    assert own is not None and own.factor is not None and own.low_factor is not None
    assert own.low_factor <= own.factor < 0.5 * capacity.factor
    kept, broken = (
        estimate(apply_changes(deployment, [{"scale_query": "q", "by": factor}])).queries["q"].state
        for factor in (own.factor, 1.2 * own.factor)
    )
    assert kept in ("holds", "at_risk") and broken == "breached"
    assert capacity.first_objective is not None and capacity.first_objective.query == "q"
    assert capacity.objectives_known


def test_objective_that_is_kept_now_breaks_between_two_factors_that_were_tried() -> None:
    """A burst that fills its server leaves so much more to be done by each per cent that its objective is close."""
    deployment = bursts(20.0).to_document() | {
        "sources": [{"id": "s", "arrivals": [99.0] * 60 + [0.0] * 60}, {"id": "t", "arrivals": [2.0] * 120}],
        "objectives": [{"query": "q", "statistic": "worst", "bound_s": 1.3}],
    }
    own = capacity_of(Deployment.parse(deployment)).objective
    assert own is not None and own.factor is not None and 1.0 < own.factor < 1.03
    state = estimate(apply_changes(Deployment.parse(deployment), [{"scale_query": "q", "by": own.factor}])).queries["q"]
    assert state.state in ("holds", "at_risk")


def test_headroom_is_not_known_before_objectives_were_looked_at() -> None:
    deployment = bursts(3.0)
    capacity = ClusterSaturation(deployment).of_query("q")
    assert capacity.factor is not None and capacity.tightest_factor is None
    assert capacity_of(deployment).tightest_factor is not None


def test_first_objective_may_be_that_of_another() -> None:
    capacity = capacity_of(bursts(5.0, 2.0))
    own, first = capacity.objective, capacity.first_objective
    assert own is not None and own.factor is not None
    assert first is not None and first.query == "other" and first.factor is not None and first.factor < own.factor


def test_objective_that_breaks_first_of_all_sources_together_is_named() -> None:
    deployment = bursts(5.0, 2.0)
    whole = with_first_objective(EstimateBase.of(deployment), ClusterSaturation(deployment).of_cluster())
    first = whole.first_objective
    assert first is not None and first.query == "other" and first.factor is not None and first.server == "A"
    kept, broken = (
        estimate(apply_changes(deployment, [{"scale_source": "*", "by": factor}])).queries["other"].state
        for factor in (first.factor, 1.2 * first.factor)
    )
    assert kept in ("holds", "at_risk") and broken == "breached"
    assert whole.tightest_factor == first.factor and whole.broken_objectives == ()
    now = bursts(0.3, 2.0)
    broken_now = with_first_objective(EstimateBase.of(now), ClusterSaturation(now).of_cluster())
    assert broken_now.broken_objectives == ("q",) and broken_now.first_objective is not None
    assert broken_now.tightest_factor is not None and broken_now.tightest_factor <= 1.0


@pytest.mark.parametrize("seed", [2, 5, 9])
def test_vicinity_of_a_query_tells_what_the_whole_does(seed: int) -> None:
    """On random clusters with joins, shared sources and links, at a load that grows."""
    drawn = with_steady_rates(np.random.default_rng(seed), 0.5)
    deployment = replace(drawn, objectives=tuple(Objective(query, "worst", 5.0) for query in drawn.queries))
    base = EstimateBase.of(deployment)
    for query in deployment.queries:
        capacity = ClusterSaturation(deployment).of_query(query)
        if capacity.factor is None:
            continue
        found = with_objectives(base, query, capacity).objective
        assert found is not None
        if found.factor is None:  # what it waits for beside servers alone is over its bound
            assert base.estimate.queries[query].state == "breached"
            continue
        below, above = (
            estimate(apply_changes(deployment, [{"scale_query": query, "by": factor}])).queries[query].state
            for factor in (0.97 * found.factor, 1.1 * found.factor)
        )
        assert below in ("holds", "at_risk")
        assert above == "breached" or found.factor >= 0.95 * capacity.factor


def test_objective_that_is_broken_now_is_kept_at_a_lower_rate() -> None:
    own = capacity_of(bursts(0.3)).objective
    assert own is not None and own.factor is not None and own.factor < 1.0


def test_objective_that_no_rate_keeps_has_none() -> None:
    own = capacity_of(bursts(1e-4)).objective
    assert own is not None and own.factor is None and own.rate_per_s is None


def test_objective_is_not_told_where_costs_are_unknown() -> None:
    deployment = bursts(3.0)
    unsure = Deployment.parse({**document(), "sources": [{"id": "s", "arrivals": [1.0] * 9}]} | {
        "operators": [{"id": "f", "node": "A", "query": "q", "inputs": [entry("s")]}]
    })  # fmt: skip
    capacity = ClusterSaturation(unsure).of_query("q")
    assert with_objectives(EstimateBase.of(deployment), "q", capacity) is capacity


def dark(deployment: Deployment, operator: str) -> Deployment:
    """The same with a part of an operator's plan that nobody understood."""
    written: dict[str, Any] = deployment.to_document()
    next(row for row in written["operators"] if row["id"] == operator)["unread"] = ["Ponder(by=[k])"]
    return Deployment.parse(written)


@pytest.mark.parametrize("bound_s", [3.0, 0.3])  # kept by what is known, and broken by it
def test_objective_of_a_plan_that_is_not_understood_has_no_rate_but_a_reason(bound_s: float) -> None:
    capacity = capacity_of(dark(bursts(bound_s), "f"))
    assert capacity.state == "known" and capacity.objectives_known
    assert capacity.objective is None and capacity.first_objective is None
    (unknown,) = capacity.unknown_objectives
    assert unknown.query == "q" and "Ponder" in str(unknown.why) and "is not known" in unknown.words
    assert QueryCapacity.parse(capacity.to_dict()).unknown_objectives[0].words == unknown.words


def test_unknown_objective_of_a_neighbour_is_named_and_never_counted_as_kept() -> None:
    capacity = capacity_of(dark(bursts(5.0, 2.0), "h"))
    assert [entry.query for entry in capacity.unknown_objectives] == ["other"]
    assert capacity.objective is not None and capacity.first_objective is not None
    assert capacity.first_objective.query == "q"


def test_unknown_objective_on_servers_that_the_rate_does_not_load_is_not_named() -> None:
    far: dict[str, Any] = dark(bursts(5.0, 2.0), "h").to_document()
    far["operators"][1]["node"] = "B"
    assert capacity_of(Deployment.parse(far)).unknown_objectives == ()
    assert capacity_of(bursts(5.0, 2.0)).unknown_objectives == ()


def test_nothing_holds_by_statistics_of_seconds() -> None:
    """Nor is what is sustained told without the time that is to go."""
    written: dict[str, Any] = bursts(5.0).to_document()
    written["operators"][0]["measured_s"] = 15.0
    deployment = Deployment.parse(written)
    report, capacity = estimate(deployment).queries["q"], capacity_of(deployment)
    assert report.state == "unknown" and "measuring" in report.standing.sentence
    assert capacity.measured_s == 15.0 and "measuring" in capacity.words and "to go" in capacity.words
    assert capacity.objective is None and [entry.query for entry in capacity.unknown_objectives] == ["q"]
    assert capacity_of(bursts(5.0)).measured_s is None
