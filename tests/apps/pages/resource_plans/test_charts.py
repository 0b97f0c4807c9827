"""Curves of a resource plan: what is drawn of them, and what is said."""

from __future__ import annotations

from typing import Any

from apps.pages.resource_plans.charts import CurveChart, OperatingPoint


def answer(*curves: tuple[int, list[tuple[float, float | None]]]) -> dict[str, Any]:
    return {
        "rate": 100.0,
        "constraint_s": 1.0,
        "statistic": "mean",
        "plan": {"nodes": 2},
        "curve": [{"nodes": nodes, "max_rate": 120.0, "points": points} for nodes, points in curves],
    }


def test_curve_that_ends_where_a_resource_is_full_rises_upright() -> None:
    full = CurveChart(answer((2, [(50.0, 0.1), (120.0, 0.2), (126.0, None)])), "node", [])
    goes_on = CurveChart(answer((2, [(50.0, 0.1), (120.0, 0.2)])), "node", [])
    line = 'stroke="var(--c-estimate)"'
    assert any("V" in part.split("/>")[0] for part in full.svg.split("<path") if line in part)
    assert not any("V" in part.split("/>")[0] for part in goes_on.svg.split("<path") if line in part)


def test_chart_tells_sizes_apart_and_says_what_they_bear() -> None:
    points = [(50.0, 0.1), (100.0, 0.4)]
    chart = CurveChart(answer((1, points), (2, points), (3, points)), "node", [OperatingPoint(0.4, True)])
    assert [role for role, _ in chart.key] == ["alt", "estimate", "third", "objective-line"]
    assert chart.finding == (
        "Least mean latency by rate, constraint 1\u00a0s: 1 node up to 120\u00a0/s; "
        "2 nodes up to 120\u00a0/s; 3 nodes up to 120\u00a0/s."
    )


def test_latency_far_beyond_the_constraint_does_not_flatten_the_rest() -> None:
    chart = CurveChart(answer((2, [(50.0, 0.5), (100.0, 40.0)])), "node", [])
    assert chart.top < 2.0
