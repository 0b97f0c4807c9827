"""Unknown latencies and lasting overload in what-ifs, losses of nodes, headroom and pools."""

from __future__ import annotations

from typing import Any

import pytest

from engine.document.deployment import Deployment
from engine.forecasts.scaled_latency import ScaledMace
from engine.provisioning.confirmation import confirm_objectives
from engine.provisioning.growth import headroom_by_query
from engine.provisioning.pool.search import smallest_pool
from engine.provisioning.survival import lose_each
from engine.provisioning.what_if import what_if


def deployment(
    rate: float, selectivity: float = 1.0, statistic: str = "worst", bound_s: float = 60.0, nodes: int = 2
) -> Deployment:
    """Two queries on the first node of some; the second is at rest."""
    entry = {"from": "s", "selectivity": selectivity, "cycles_per_event": 1, "cost_cv2": 0.1}
    document: dict[str, Any] = {
        "subinterval_s": 1,
        "sources": [{"id": "s", "arrivals": [rate] * 60}, {"id": "t", "arrivals": [1.0] * 60}],
        "nodes": [{"id": f"n{i}", "capacity_cps": 100} for i in range(nodes)],
        "operators": [
            {"id": "a", "query": "a", "node": "n0", "inputs": [entry]},
            {"id": "b", "query": "b", "node": "n0", "inputs": [entry | {"from": "t", "selectivity": 1}]},
        ],
        "objectives": [{"query": name, "statistic": statistic, "bound_s": bound_s} for name in ("a", "b")],
    }
    return Deployment.parse(document)


@pytest.mark.parametrize("flow", [True, False])
@pytest.mark.parametrize("statistic", ["worst", "mean"])
def test_what_if_tells_what_never_catches_up_and_what_is_unknown(flow: bool, statistic: str) -> None:
    scenarios = [{"name": "twice", "changes": [{"scale_source": "s", "by": 2}]}]
    (outcome,) = what_if(deployment(60.0, statistic=statistic), scenarios, flow=flow)
    assert outcome.answer.to_dict()["broken"] == ["a", "b"]
    (outcome,) = what_if(deployment(60.0, 0.0, statistic=statistic), [{"name": "now", "changes": []}], flow=flow)
    told = outcome.answer.to_dict()
    assert (told["unknown"], told["kept"]) == (["a"], ["b"])
    assert told["queries"]["a"]["probability"] is None


def test_confirmation_refuses_what_never_catches_up_and_names_what_is_unknown() -> None:
    found = confirm_objectives(deployment(120.0), mace_every=1)
    assert found.miss is not None
    assert found.miss.state == "breached"
    assert "never catches up" in found.miss.message
    assert found.miss.worst > 1.0
    unknown = confirm_objectives(deployment(50.0, 0.0), mace_every=1)
    assert unknown.miss is None
    assert unknown.objectives["a"].state == "unknown"


def test_loss_of_a_node_that_is_never_made_up_for_breaks_objectives() -> None:
    placed = deployment(80.0, nodes=2).to_document()
    placed["operators"][1] |= {"node": "n1"}
    placed["operators"][1]["inputs"][0] |= {"from": "s"}
    for flow in (True, False):
        survival = lose_each(Deployment.parse(placed), flow=flow)
        assert survival.breaks("n0") == ("a", "b")  # 160 on the one that is left, 36 s late within the horizon


def test_headroom_ends_where_something_never_catches_up() -> None:
    growth = headroom_by_query(deployment(50.0), flow=False)
    assert growth.together.factor == pytest.approx(1.96, abs=0.04)  # 100 of 100 cycles, though 60 s would be kept
    assert growth.queries["a"].factor == pytest.approx(1.98, abs=0.04)


def test_headroom_of_a_mean_without_events_is_not_endless() -> None:
    growth = headroom_by_query(deployment(50.0, 0.0, "mean"), flow=False)
    assert not growth.queries["a"].unlimited


def test_pool_is_as_large_as_it_takes_to_catch_up() -> None:
    """160 cycles a second in two operators: on one node they are 36 s late within the horizon, on two never."""
    document = deployment(80.0, nodes=1).to_document()
    document["operators"][1]["inputs"][0] |= {"from": "s"}
    answer = smallest_pool(Deployment.parse(document)).to_dict()
    assert answer["nodes"] == 2


def silent(document: dict[str, Any]) -> dict[str, Any]:
    document["sources"][0]["arrivals"] = [0.0] * 60
    return document


def costless(document: dict[str, Any]) -> dict[str, Any]:
    operator = document["operators"][0]
    operator["evidence"] = {"kind": "unknown", "events": 5000}
    del operator["inputs"][0]["cycles_per_event"], operator["inputs"][0]["cost_cv2"]
    return document


def dark(document: dict[str, Any]) -> dict[str, Any]:
    document["operators"][0]["unread"] = ["Ponder(by=[k])"]
    return document


@pytest.mark.parametrize("flow", [True, False])
@pytest.mark.parametrize("made", [silent, dark])
def test_query_of_which_nothing_is_known_has_no_headroom(made: Any, flow: bool) -> None:
    unknown = Deployment.parse(made(deployment(50.0).to_document()))
    growth = headroom_by_query(unknown, flow=flow, most=4.0)
    own = growth.queries["a"]
    assert (own.factor, own.unlimited, own.confirmed) == (None, False, False) and own.note
    beside, together = growth.queries["b"], growth.together
    assert beside.factor is not None and "nothing is known of a" in beside.note
    assert (together.factor is None) is (made is not silent) and "nothing is known of a" in together.note
    assert made is silent or not (together.unlimited or together.confirmed)


def test_everything_together_has_no_headroom_beside_an_unknown_cost() -> None:
    growth = headroom_by_query(Deployment.parse(costless(deployment(50.0).to_document())), most=4.0)
    for headroom in (growth.together, *growth.queries.values()):  # b waits for the same server
        assert (headroom.factor, headroom.unlimited, headroom.confirmed) == (None, False, False)
        assert "an event costs at a is not known" in headroom.note


@pytest.mark.parametrize("made", [silent, dark])
def test_what_nobody_knows_survives_no_loss(made: Any) -> None:
    survival = lose_each(Deployment.parse(made(deployment(20.0).to_document())))
    assert not survival.survives and survival.unknown == ("a",)
    assert "nothing is known of a" in survival.message
    assert lose_each(deployment(20.0)).survives


@pytest.mark.parametrize("made", [silent, dark])
def test_forecast_of_what_nobody_knows_is_unknown(made: Any) -> None:
    assert set(ScaledMace(Deployment.parse(made(deployment(20.0).to_document()))).unknown) == {"a"}
