"""Co-location: pipelines stay together unless being apart gains something, and what is apart says why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.document.deployment import Deployment
from engine.placement.colocation import TRANSFER_S
from engine.placement.extension import extend_placement
from engine.placement.proposal import place
from tests.engine.placement.stories import broken, drawn, fleet, goal, node, operator

SEARCHED: dict[str, Any] = {"budget_s": None, "rounds": 4, "flow": False}


def crossings(deployment: Deployment, places: dict[str, Any]) -> int:
    """Edges between operators on different nodes."""
    nodes = {name: {part.node for part in parts} for name, parts in places.items()}
    edges = ((op.id, entry.source) for op in deployment.operators for entry in op.inputs if entry.source in nodes)
    return sum(nodes[a] != nodes[b] for a, b in edges)


def pipeline(cycles: tuple[float, ...], **more: Any) -> list[dict[str, Any]]:
    names = [f"p/{letter}" for letter in "abcdef"[: len(cycles)]]
    above = ["s", *names]
    return [operator(name, c, source, **more) for name, c, source in zip(names, cycles, above, strict=False)]


def test_pipeline_that_fits_one_node_is_placed_on_one() -> None:
    nodes = [node(name) for name in "nmkj"]
    deployment = fleet(pipeline((1.0, 1.0, 1.0)), nodes)
    together = extend_placement(deployment)
    scattered = extend_placement(deployment, transfer_s=0.0)
    assert crossings(deployment, together.placement) == 0
    assert together.apart == ()
    assert crossings(deployment, scattered.placement) == 2


def test_operator_that_would_fill_the_node_is_apart_and_says_so() -> None:
    deployment = fleet(pipeline((3.0, 3.0, 5.0)), [node("n"), node("m")])
    extension = extend_placement(deployment)
    (apart,) = extension.apart
    assert apart.why == "load"
    assert apart.peak is not None
    assert apart.peak > 0.8
    assert {apart.operator, apart.other} <= {"p/a", "p/b", "p/c"}
    assert f"at {apart.peak:.2f} of its capacity" in apart.sentence


def test_pinned_operator_is_apart_for_it_may_not_move() -> None:
    deployment = fleet(pipeline((1.0, 1.0)), [node("n"), node("m")])
    limits = replace(deployment.constraints, pin={"p/a": "n"}, forbid={"p/b": ("n",)})
    (apart,) = extend_placement(replace(deployment, constraints=limits)).apart
    assert (apart.why, apart.server, apart.at_s) == ("not_allowed", None, None)


def test_company_alone_fills_no_core_above_four_fifths_however_dear_the_way() -> None:
    """Together they would wait 0.6 s at most, apart they do not."""
    deployment = fleet(pipeline((8.0, 8.0)), [node("n"), node("m")])
    cheap, dear = (place(deployment, transfer_s=way_s, **SEARCHED).report.to_dict() for way_s in (TRANSFER_S, 0.7))
    assert len({parts[0]["node"] for parts in cheap["placement"].values()}) == 2
    (apart,) = cheap["apart"]
    assert apart["why"] == "load"
    assert len({parts[0]["node"] for parts in dear["placement"].values()}) == 2


@pytest.mark.parametrize("links", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_colocation_never_makes_the_goal_worse_or_adds_crossings(seed: int, links: bool) -> None:
    deployment = drawn(seed + 900, links=links)
    free = replace(deployment, operators=tuple(replace(op, replicas=()) for op in deployment.operators))
    together = place(free, **SEARCHED)
    scattered = place(free, transfer_s=0.0, **SEARCHED)
    assert not broken(free, together.placement)
    assert goal(free, together.placement) <= goal(free, scattered.placement) * (1 + 1e-9) + 1e-9
    assert crossings(free, together.placement) <= crossings(free, scattered.placement)


def test_running_operators_are_not_moved_for_company() -> None:
    chain = [operator("p/a", 1.0, node="n"), operator("p/b", 1.0, "p/a", node="m")]
    report = place(fleet(chain, [node("n"), node("m")]), **SEARCHED).report.to_dict()
    assert report["moves"] == []
    assert report["apart"] == []


def test_transfer_below_zero_is_refused_by_name() -> None:
    with pytest.raises(Exception, match=r"transfer_s is -1\.0; allowed: a number of at least 0"):
        place(fleet(pipeline((1.0,)), [node("n")]), transfer_s=-1.0, **SEARCHED)
