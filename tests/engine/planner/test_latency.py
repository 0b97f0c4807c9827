"""Latency of a stage: worked values, what it must not do, and windows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.errors import DocumentError
from engine.order_statistics import gumbel_maximum, normal_maximum
from engine.planner.latency import LatencyOptions, StageLatency, evaluate_latency
from engine.planner.plan import StageSettings
from engine.planner.profile import NodeHardware, StageProfile, StageQuestion
from tests.engine.planner.stages import NODE, SESSIONS, WINDOWS, WORD

SETTINGS = StageSettings(10, 2, 3, 0.005, 0.2, 0.2)
Q99 = LatencyOptions(kind="normal", x=0.99)


def near(value: float) -> Any:
    return pytest.approx(value, rel=1e-8)


def test_worked_values_of_a_ratio_of_intervals_that_is_not_whole() -> None:
    latency = evaluate_latency(WORD, NODE, 1.1e6, StageSettings(10, 2, 2, 0.005, 0.2, 0.15), Q99)
    assert (latency.mean, latency.var, latency.metric) == (
        near(0.26583195115),
        near(0.00633940193009),
        near(0.441549253443),
    )
    assert latency.util["cpu"] == near(3.634266667 / 4)
    assert (latency.util["map"], latency.util["red"]) == (near(0.9008), near(0.9163333333))
    means = [0.0025, 0, 5.28661307e-4, 5.13909883e-4, 0.004504, 0.1, 0, 0.0117074203, 0.0784754673, 4.8778489e-4,
             0.0625330407, 0.00458166667]  # fmt: skip
    variances = [2.08333333e-6, 0, 1.44822894e-8, 1.00719965e-6, 8.16358462e-6, 0.00333333333, 0, 6.8547421e-6,
                 0.00187945631, 1.19507809e-8, 0.00141302508, 8.40302889e-6]  # fmt: skip
    assert latency.phase_mean == pytest.approx(means, rel=1e-8, abs=1e-15)
    assert latency.phase_var == pytest.approx(variances, rel=1e-8, abs=1e-15)


def test_worked_values_of_threads_that_outnumber_the_cores() -> None:
    latency = evaluate_latency(WINDOWS, NODE, 1e6, StageSettings(10, 4, 3, 0.08, 0.1, 0.15), Q99)
    assert (latency.mean, latency.var, latency.metric) == (
        near(0.953589169764),
        near(0.0787210414627),
        near(1.53307010448),
    )
    assert latency.util["map"] == near(0.41339077365)
    parts = {phase.name: phase for phase in latency.phases}
    assert parts["slowest mapper"].mean_s == near(0.3130675118)
    assert parts["slowest mapper"].sd_s ** 2 == near(3.123685003e-4)
    assert parts["last group"].mean_s == near(0.0868 * (1 + 1) / 2)
    assert parts["finalize"].mean_s == near((1 + 1 / 133333.3333) * 0.9543950103 / 2)


@pytest.mark.parametrize("variant", ["paper", "improved"])
@pytest.mark.parametrize("profile", [WORD, WINDOWS, SESSIONS], ids=["word", "windows", "sessions"])
def test_parts_add_up_to_the_mean(profile: StageProfile, variant: str) -> None:
    latency = evaluate_latency(profile, NODE, 8e5, SETTINGS, LatencyOptions(variant=variant))
    assert latency.mean == pytest.approx(sum(phase.mean_s for phase in latency.phases))


def drawn_stages(count: int) -> list[tuple[StageProfile, NodeHardware, StageSettings, LatencyOptions, float]]:
    """Stages, settings and options of all sorts, and a rate that their nodes could bear without overhead."""
    draw = np.random.default_rng(11)
    stages = []
    for number in range(count):
        base = (WORD, WINDOWS, SESSIONS)[number % 3]
        profile = replace(base, cv2_map=draw.exponential(0.5), cv2_red=draw.exponential(0.5))
        intervals = 10 ** draw.uniform((-3, -2, -2), (-1, 0.3, 0.3))
        settings = StageSettings(*draw.integers(1, (20, 7, 7)).tolist(), *intervals.tolist())
        options = LatencyOptions(
            variant=("paper", "improved")[number % 2], kind=("mean", "normal", "cantelli")[number // 2 % 3]
        )
        capacity = settings.nodes * NODE.n / (profile.c_map + profile.alpha * profile.c_red)
        stages.append((profile, NODE, settings, options, capacity))
    return stages


def test_mean_rises_with_the_rate_and_stability_ends_once() -> None:
    for profile, hardware, settings, options, capacity in drawn_stages(60):
        before: float | None = 0.0
        for share in np.linspace(0.05, 1.0, 20):
            mean = evaluate_latency(profile, hardware, share * capacity, settings, options).mean
            if mean is not None:
                assert before is not None, "stable again at a higher rate"
                assert mean >= before * (1 - 1e-9)
            before = mean


def test_more_capable_nodes_are_no_slower() -> None:
    for profile, hardware, settings, options, capacity in drawn_stages(30):
        latency = evaluate_latency(profile, hardware, 0.5 * capacity, settings, options)
        faster = replace(hardware, v_net=2 * hardware.v_net, v_disk=2 * hardware.v_disk, t_seek=0.0)
        if latency.mean is not None:
            assert evaluate_latency(profile, faster, 0.5 * capacity, settings, options).mean <= latency.mean


def test_bound_of_a_quantile_is_above_it_and_both_above_the_mean() -> None:
    for profile, hardware, settings, _, capacity in drawn_stages(30):
        metrics = [
            evaluate_latency(profile, hardware, 0.3 * capacity, settings, LatencyOptions(kind=kind)).metric
            for kind in ("mean", "normal", "cantelli")
        ]
        assert None in metrics or sorted(metrics) == metrics


@pytest.mark.parametrize(
    ("reason", "profile", "hardware", "settings"),
    [
        ("cpu of a node", replace(WORD, c_hb=0.05), NODE, replace(SETTINGS, b_ch_s=0.01)),
        ("mapper thread", WORD, NODE, replace(SETTINGS, mappers=1, nodes=6)),
        ("reducer thread", replace(WORD, c_red=5e-6), NODE, replace(SETTINGS, reducers=1)),
        ("network", WORD, replace(NODE, v_net=1e6), SETTINGS),
        ("disk", WORD, replace(NODE, v_disk=1e6), SETTINGS),
        ("map output buffer", WORD, replace(NODE, map_buf=1e5), SETTINGS),
        ("utilisation ceiling", WORD, replace(NODE, rho_max=0.5), SETTINGS),
    ],
)
def test_exceeded_limit_is_named(
    reason: str, profile: StageProfile, hardware: NodeHardware, settings: StageSettings
) -> None:
    latency = evaluate_latency(profile, hardware, 7e5, settings)
    assert (latency.stable, latency.reason) == (False, reason)
    assert latency.mean is latency.var is latency.metric is latency.phase_mean is None
    assert latency.phases == ()
    assert min(latency.util.values()) > 0


def test_slide_as_long_as_the_window_is_a_tumbling_window() -> None:
    tumbling = evaluate_latency(WINDOWS, NODE, 8e5, SETTINGS, Q99)
    assert evaluate_latency(replace(WINDOWS, slide=30.0), NODE, 8e5, SETTINGS, Q99) == tumbling


def test_shorter_slide_finalizes_its_keys_more_often() -> None:
    """Four times as many windows end: finalize asks for four times the cores, and each takes as long as before."""
    tumbling = evaluate_latency(WINDOWS, NODE, 8e5, SETTINGS)
    sliding = evaluate_latency(replace(WINDOWS, slide=7.5), NODE, 8e5, SETTINGS)
    finalize = WINDOWS.keys / 30 * WINDOWS.s_k / 30  # cores of a reducer
    assert sliding.util["red"] - tumbling.util["red"] == pytest.approx(3 * finalize)
    assert sliding.util["cpu"] - tumbling.util["cpu"] == pytest.approx(3 * finalize * 3 / 4)
    assert sliding.phases[-1].mean_s == pytest.approx(tumbling.phases[-1].mean_s, rel=0.05)
    as_often = evaluate_latency(replace(WINDOWS, window=7.5), NODE, 8e5, SETTINGS)
    assert sliding == as_often


def test_slide_too_short_for_finalize_is_not_stable() -> None:
    latency = evaluate_latency(replace(WINDOWS, slide=0.5), NODE, 8e5, SETTINGS)
    assert latency.reason in ("cpu of a node", "reducer thread")


def test_window_waits_for_the_slowest_of_all_mappers() -> None:
    few, many = (evaluate_latency(WINDOWS, NODE, 4e5 * nodes / 10, replace(SETTINGS, nodes=nodes)) for nodes in (5, 20))
    assert few.phases[0].mean_s < many.phases[0].mean_s


def test_asymptotic_maximum_is_used_where_there_is_one() -> None:
    def largest(nodes: int, mappers: int) -> tuple[float, float]:
        settings = replace(SETTINGS, nodes=nodes, mappers=mappers)
        return evaluate_latency(WINDOWS, NODE, 1e3, settings, LatencyOptions(order="asymptotic")).largest

    assert largest(10, 2) == gumbel_maximum(20)
    assert largest(1, 1) == normal_maximum(1) == (0.0, 1.0)


def test_count_of_tuples_varies_more_in_small_batches() -> None:
    """At a rate so low that a batch holds a tuple at most, its service time varies as a Poisson number does."""
    latency = evaluate_latency(WORD, NODE, 10.0, SETTINGS)
    assert latency.phase_mean is not None and latency.phase_var is not None
    assert latency.phase_var[2] == pytest.approx(1.05 * latency.phase_mean[2] ** 2)


def test_statistic_gives_the_kind_and_the_level() -> None:
    assert LatencyOptions.of_statistic("mean") == LatencyOptions()
    assert LatencyOptions.of_statistic("q0.9", is_bound=True) == LatencyOptions(kind="cantelli", x=0.9)
    assert LatencyOptions(kind="cantelli", x=0.9).width == pytest.approx(3.0)
    with pytest.raises(DocumentError, match="q1"):
        LatencyOptions.of_statistic("q1")


def test_paper_quantile_is_the_normal_one() -> None:
    latency: StageLatency = evaluate_latency(WORD, NODE, 8e5, SETTINGS, replace(Q99, variant="paper"))
    assert latency.mean is not None and latency.var is not None
    assert latency.metric == pytest.approx(latency.mean + 2.3263478740408408 * math.sqrt(latency.var))


def test_every_fault_of_a_profile_is_told() -> None:
    document = {"alpha": 0, "c_map": True, "window": -1, "keys": float("nan"), "speed": 3, "b_in": "100"}
    with pytest.raises(DocumentError) as caught:
        StageProfile.parse(document)
    assert sorted(fault.path for fault in caught.value.faults) == ["alpha", "b_in", "c_map", "keys", "speed", "window"]


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"c_map": 0, "c_red": 0}, "c_map"),
        ({"window": 10}, "keys"),
        ({"window": 10, "keys": 5, "slide": 11}, "slide"),
    ],
)
def test_fields_of_a_profile_that_do_not_fit_are_refused(document: dict[str, Any], path: str) -> None:
    with pytest.raises(DocumentError) as caught:
        StageProfile.parse(document)
    assert [fault.path for fault in caught.value.faults] == [path]


def test_fraction_of_a_core_is_refused() -> None:
    with pytest.raises(DocumentError, match="whole number"):
        NodeHardware.parse({"n": 2.5})


def test_faults_of_a_question_name_the_statistic_too() -> None:
    with pytest.raises(DocumentError) as caught:
        StageQuestion.parse({"rate": 0, "max_nodes": 1.5, "constraint_s": None, "statistic": "median"})
    assert sorted(fault.path for fault in caught.value.faults) == ["constraint_s", "max_nodes", "rate", "statistic"]
