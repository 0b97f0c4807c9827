"""Curves of a resource plan: what is drawn of them, and what is said."""

from __future__ import annotations

from apps.pages.resource_plans.charts import CurveChart, OperatingPoint
from engine.planner.plan import BindingLimit, StageAtRate, StageCurve, StageEnds, StagePlan, StageSizing


def answer(*curves: tuple[int, list[tuple[float, float | None]]]) -> StageSizing:
    plan = StagePlan(
        2, 1, 1, 0.01, 0.1, 0.1, max_rate=120.0, headroom=0.2, mean_s=0.2, metric_s=0.2, util={}, phases=(),
        binding=BindingLimit("cpu", 0.85, 0.85), at_max_rate=StageAtRate(0.3, 0.3, {}),
    )  # fmt: skip
    return StageSizing(
        feasible=True, constraint_s=1.0, aim_s=0.93, statistic="mean", is_bound=False, rate=100.0, plan=plan,
        ends=StageEnds(plan, None), curve=tuple(StageCurve(nodes, 120.0, tuple(points)) for nodes, points in curves),
        infeasible=None, model="12-phase improved", plan_s=0.0, duration_s=0.0,
    )  # fmt: skip


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
