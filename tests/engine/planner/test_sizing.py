"""Resource plans of a stage: what they keep, and what they say where nothing fits."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from engine.errors import DocumentError
from engine.planner.latency import LatencyOptions, evaluate_latency
from engine.planner.plan import StageSizing
from engine.planner.profile import NodeHardware
from engine.planner.search import SearchLimits
from engine.planner.sizing import size_stage
from tests.engine.planner.stages import NODE, SESSIONS, WINDOWS, WORD

FEW = SearchLimits(max_m=4, max_r=4)


def sized(**more: Any) -> StageSizing:
    question = {"rate": 1e6, "max_nodes": 20, "constraint_s": 1.0, "limits": FEW, "with_curves": False} | more
    return size_stage(WORD, NODE, **question)


@pytest.mark.parametrize("statistic", ["mean", "q0.99"])
@pytest.mark.parametrize("profile", [WORD, WINDOWS, SESSIONS], ids=["word", "windows", "sessions"])
def test_plan_keeps_aim_ceiling_and_headroom(profile: Any, statistic: str) -> None:
    question = {"rate": 5e5, "max_nodes": 30, "constraint_s": 2.0, "statistic": statistic, "headroom": 0.1}
    sizing = size_stage(profile, NODE, limits=FEW, with_curves=False, **question)
    assert sizing.plan is not None
    for plan in (sizing.plan, sizing.ends.latency):
        assert plan is not None
        assert plan.max_rate * 0.9 >= 5e5 * (1 - 1e-9)
        for rate in (5e5, plan.max_rate):
            latency = evaluate_latency(
                profile, replace(NODE, rho_max=0.85), rate, plan.settings, LatencyOptions.of_statistic(statistic)
            )
            assert latency.metric is not None and latency.metric <= 0.93 * 2.0
            assert max(latency.util.values()) <= 0.85
    assert sizing.ends.latency is not None
    assert sizing.ends.latency.metric_s <= sizing.plan.metric_s
    assert sizing.plan.max_rate >= sizing.ends.latency.max_rate * 0.99


def test_one_node_less_is_not_enough() -> None:
    plan = sized().plan
    assert plan is not None
    assert sized(max_nodes=plan.nodes - 1).plan is None


def test_answer_has_the_agreed_layout() -> None:
    sizing = sized(with_curves=True)
    answer = json.loads(json.dumps(sizing.to_dict(), allow_nan=False))
    assert StageSizing.parse(answer) == sizing
    assert {"feasible", "constraint_s", "aim_s", "statistic", "rate", "plan", "ends", "curve", "infeasible", "model",
            "duration_s"} <= answer.keys()  # fmt: skip
    assert (answer["feasible"], answer["aim_s"], answer["infeasible"]) == (True, 0.93, None)
    assert answer["model"] == "12-phase improved"
    plan = answer["plan"]
    assert {"nodes", "mappers", "reducers", "b_in_s", "b_sh_s", "b_ch_s", "max_rate", "headroom", "mean_s", "metric_s",
            "util", "phases", "binding"} <= plan.keys()  # fmt: skip
    assert plan["headroom"] == pytest.approx(1 - 1e6 / plan["max_rate"])
    assert plan.keys() == answer["ends"]["throughput"].keys() == answer["ends"]["latency"].keys()
    assert [curve["nodes"] for curve in answer["curve"]] == [plan["nodes"] - 1, plan["nodes"], plan["nodes"] + 1]
    for curve in answer["curve"]:
        metrics = [metric for _, metric in curve["points"] if metric is not None]
        assert metrics == sorted(metrics)
        assert 1e6 in [rate for rate, _ in curve["points"]]
    rates = [curve["max_rate"] for curve in answer["curve"]]
    assert rates == sorted(rates)
    assert rates[0] < 1e6 <= rates[1]


def test_nodes_of_many_cores_run_as_many_threads() -> None:
    question = {"rate": 1e6, "max_nodes": 9, "constraint_s": 1.0, "with_curves": False}
    plan = size_stage(WORD, replace(NODE, n=16), **question).plan
    few = size_stage(WORD, replace(NODE, n=16), max_m=3, max_r=3, **question).plan
    assert plan is not None and few is not None
    assert plan.mappers + plan.reducers > 12
    assert plan.nodes < few.nodes


def test_first_node_has_no_curve_of_one_less() -> None:
    curves = sized(rate=1e3, with_curves=True).curve
    assert [curve.nodes for curve in curves] == [1, 2]


def test_intervals_are_round_numbers() -> None:
    plan = sized().plan
    assert plan is not None
    for seconds in (plan.b_in_s, plan.b_sh_s, plan.b_ch_s):
        assert float(f"{seconds:.4g}") == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "limit"),
    [({"rate": 5e6}, "cpu"), ({"constraint_s": 0.01}, "latency constraint")],
)
def test_question_without_a_plan_says_which_limit_is_in_the_way(changes: dict[str, Any], limit: str) -> None:
    sizing = sized(**changes)
    assert sizing.plan is None and sizing.infeasible is not None
    assert sizing.infeasible.limit == limit


def test_nearest_rate_and_nearest_constraint_have_plans() -> None:
    lack = sized(constraint_s=0.1, max_nodes=10).infeasible
    assert lack is not None and lack.nearest_rate is not None and lack.nearest_constraint_s is not None
    assert lack.nearest_rate < 1e6 and lack.nearest_constraint_s > 0.1
    assert sized(constraint_s=0.1, max_nodes=10, rate=lack.nearest_rate).plan is not None
    assert sized(constraint_s=lack.nearest_constraint_s, max_nodes=10).plan is not None
    assert sized(constraint_s=0.98 * lack.nearest_constraint_s, max_nodes=10).plan is None


def test_rate_that_is_met_from_below_alone_has_a_plan_and_its_fastest_keeps_the_aim() -> None:
    sizing = size_stage(WORD, NODE, rate=419e3, max_nodes=4, constraint_s=0.5, with_curves=False)
    assert sizing.plan is not None and sizing.ends.latency is not None
    assert sizing.plan.max_rate >= 419e3
    assert sizing.ends.latency.metric_s <= sizing.aim_s


def test_rate_beyond_all_nodes_has_no_nearest_constraint() -> None:
    lack = sized(rate=5e6).infeasible
    assert lack is not None
    assert lack.nearest_constraint_s is None
    assert lack.nearest_rate is not None and lack.nearest_rate > 1e6


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({"c_map": 1e-7, "c_red": 1e-8, "b_in": 5000}, "network"),
        ({"c_map": 1e-7, "c_red": 1e-8, "b_out": 5, "b_in": 5}, "disk"),
        ({"c_map": 1e-7, "c_red": 1e-7, "c_hb": 0.2}, "poll overhead"),
        ({"c_map": 1e-7, "c_red": 1e-7, "c_part": 0.2}, "partition overhead"),
        ({"c_red": 1e-7}, "mapper threads"),
        ({"c_map": 1e-7}, "reducer threads"),
    ],
)
def test_binding_limit_is_named(changes: dict[str, float], limit: str) -> None:
    hardware = replace(NODE, n=16, v_disk=2e6) if limit == "disk" else replace(NODE, n=16)
    profile = replace(WORD, **changes)
    question = {"rate": 1e4, "max_nodes": 3, "constraint_s": 0.4}
    plan = size_stage(profile, hardware, limits=SearchLimits(max_m=2, max_r=1), with_curves=False, **question).plan
    assert plan is not None
    assert plan.binding.limit == limit
    assert plan.binding.value == pytest.approx(0.85, rel=0.05)


def test_map_output_buffer_binds_where_it_is_small() -> None:
    free = replace(WORD, c_hb=0.0, c_part=0.0, c_sh=0.0, c_bat=0.0)
    node = replace(NODE, map_buf=2e3)
    plan = size_stage(free, node, rate=1e3, max_nodes=1, constraint_s=1.0, with_curves=False).plan
    assert plan is not None
    assert (plan.binding.limit, plan.binding.ceiling) == ("map output buffer", 2e3)


def test_every_fault_of_a_question_is_told() -> None:
    with pytest.raises(DocumentError) as caught:
        sized(rate=float("nan"), max_nodes=2.5, constraint_s=0, statistic="q1", headroom=1.0, aim=0)
    paths = sorted(fault.path for fault in caught.value.faults)
    assert paths == ["aim", "constraint_s", "headroom", "max_nodes", "rate", "statistic"]


def test_upper_bound_of_a_quantile_takes_more_nodes() -> None:
    quantile, bound = sized(statistic="q0.99"), sized(statistic="q0.99", is_bound=True)
    assert quantile.plan is not None and bound.plan is not None
    assert bound.plan.nodes >= quantile.plan.nodes
    assert bound.plan.metric_s > quantile.plan.metric_s * 0.9


def test_fault_of_a_ceiling_names_both_its_bounds() -> None:
    with pytest.raises(DocumentError) as caught:
        NodeHardware.parse({"rho_max": 1.5})
    assert caught.value.faults[0].message == "rho_max is 1.5; allowed: a finite number above 0 and up to 1"
