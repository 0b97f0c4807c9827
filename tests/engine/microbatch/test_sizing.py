"""Sizes of a Spark query: against a search over settings, both ends of the curve, what does not fit, and effects."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.errors import DocumentError
from engine.microbatch.model import BatchModel
from engine.microbatch.settings import (
    MicroBatchProfile,
    SparkSettings,
    predict_latency,
    profile_of_fit,
    setting_effects,
)
from engine.microbatch.sizing import MicroBatchQuestion, MicroBatchSizing, size_microbatch

PROFILE = MicroBatchProfile(f0_s=0.25, c_in_s=2e-5, c_sh_s=1e-5, alpha=3.0, cv=0.1)


def question(**changed: Any) -> MicroBatchQuestion:
    return MicroBatchQuestion.parse({"rate": 200_000, "constraint_s": 3.0} | changed)


def searched(profile: MicroBatchProfile, asked: MicroBatchQuestion) -> tuple[int, float] | None:
    """Fewest executors and their highest rate, by trying triggers and rates one after the other."""
    for executors in range(1, asked.max_executors + 1):
        cores = executors * asked.cores_per_executor
        best = 0.0
        for trigger_s in (0.01 * n for n in range(1, 400)):
            settings = SparkSettings(
                executors, asked.cores_per_executor, asked.input_partitions or cores, cores, trigger_s
            )
            low, high = 0.0, 1e7
            for _ in range(40):
                rate = (low + high) / 2
                latency = predict_latency(profile, settings, rate, asked.statistic) if rate else None
                good = (
                    latency is not None
                    and latency.utilisation <= asked.utilisation_ceiling
                    and latency.statistic_s <= asked.target_s
                )
                low, high = (rate, high) if good else (low, rate)
            best = max(best, low)
        if best >= asked.target_rate:
            return executors, best
    return None


@pytest.mark.parametrize(
    "changed",
    [{}, {"statistic": "q0.95", "max_executors": 8}, {"watermark_delay_s": 0.5, "headroom": 0.2}],
)
def test_plan_agrees_with_a_search_over_triggers(changed: dict[str, Any]):
    asked = question(**changed)
    wanted = searched(PROFILE, asked)
    sizing = size_microbatch(PROFILE, asked)
    assert wanted is not None
    assert sizing.plan is not None
    assert sizing.plan.executors == wanted[0]
    highest = next(line.max_rate for line in sizing.curve if line.executors == wanted[0])
    assert highest == pytest.approx(wanted[1], rel=0.005)


def test_both_ends_keep_the_constraint_and_the_fastest_is_faster():
    sizing = size_microbatch(PROFILE, question(statistic="q0.95"))
    assert MicroBatchSizing.parse(sizing.to_dict()) == sizing
    plan, fastest = sizing.plan, sizing.ends.latency
    assert plan is not None
    assert fastest is not None
    assert fastest.metric_s < plan.metric_s <= 0.93 * 3.0
    assert fastest.util["batch"] <= 0.85 + 1e-9
    assert plan.max_rate > fastest.max_rate >= 200_000


def test_varying_batches_cost_rate():
    steady = size_microbatch(PROFILE, question(statistic="q0.99")).to_dict()["plan"]["max_rate"]
    varying = MicroBatchProfile(f0_s=0.25, c_in_s=2e-5, c_sh_s=1e-5, alpha=3.0, cv=0.1, sd_s=0.3)
    plan = size_microbatch(varying, question(statistic="q0.99")).plan
    assert plan is not None
    assert plan.metric_s <= 0.93 * 3.0
    assert plan.executors >= 5
    assert plan.trigger_s < 1.5 or plan.max_rate < steady


def test_nearest_constraint_and_nearest_rate_are_feasible_and_less_is_not():
    tight = question(constraint_s=0.3)
    answer = size_microbatch(PROFILE, tight).infeasible
    assert answer is not None
    assert answer.limit == "fixed time of a batch"
    nearest = answer.nearest_constraint_s
    assert nearest is not None
    assert size_microbatch(PROFILE, question(constraint_s=nearest * 1.0001)).plan is not None
    assert size_microbatch(PROFILE, question(constraint_s=nearest * 0.999)).plan is None

    busy = question(rate=1e7, max_executors=4)
    answer = size_microbatch(PROFILE, busy).infeasible
    assert answer is not None
    assert (answer.limit, answer.nearest_constraint_s) == ("cores", None)
    assert answer.nearest_rate is not None
    assert size_microbatch(PROFILE, question(rate=answer.nearest_rate * 0.9999, max_executors=4)).plan is not None
    assert size_microbatch(PROFILE, question(rate=answer.nearest_rate * 1.001, max_executors=4)).plan is None


def test_watermark_delay_longer_than_the_constraint_is_the_limit():
    answer = size_microbatch(PROFILE, question(watermark_delay_s=10.0)).infeasible
    assert answer is not None
    assert answer.limit == "watermark delay"
    assert answer.nearest_rate is None
    assert answer.nearest_constraint_s is not None
    assert answer.nearest_constraint_s > 10.0


def test_few_input_partitions_are_the_limit_whatever_the_executors():
    answer = size_microbatch(PROFILE, question(rate=300_000, input_partitions=4)).infeasible
    assert answer is not None
    assert answer.limit == "input partitions"


def test_profile_of_a_fit_gives_the_fit_again_at_its_settings():
    fit, settings = BatchModel(0.3, 5e-6, 0.02, 40, 1e3, 1e5), SparkSettings(2, 4, 12, 20, 1.0)
    latency = predict_latency(profile_of_fit(fit, settings, cv=0.3), settings, 50_000, "q0.95")
    expected = fit.latency(50_000, 1.0, "q0.95")
    assert latency is not None
    assert expected is not None
    assert latency.statistic_s == pytest.approx(expected.statistic_s)


def test_checkpoint_fixes_the_shuffle_partitions_of_a_stateful_query_alone():
    for stateful, wanted in ((True, "new checkpoint"), (False, "restart")):
        settings = SparkSettings(2, 4, 8, 8, 1.0, stateful=stateful)
        effects = setting_effects(PROFILE, settings, 50_000)
        kinds = {effect.setting: effect.takes_effect for effect in effects}
        assert kinds.pop("shuffle_partitions") == wanted
        assert set(kinds.values()) == {"restart"}


def test_effects_change_one_setting_and_say_where_batches_would_not_keep_up():
    effects = setting_effects(PROFILE, SparkSettings(2, 4, 8, 8, 1.0), 130_000)
    by_change = {(effect.setting, effect.after): effect.latency for effect in effects}
    assert by_change["executors", 1] is None
    faster = by_change["executors", 3]
    assert faster is not None
    assert by_change["trigger_s", 2.0] is not None
    assert ("executors", 2) not in by_change


def test_most_rows_of_a_trigger_bound_the_rate():
    settings = SparkSettings(2, 4, 8, 8, 1.0, max_rows_per_trigger=10_000)
    assert predict_latency(PROFILE, settings, 9_999) is not None
    assert predict_latency(PROFILE, settings, 10_001) is None


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"rate": 0}, "rate"),
        ({"rate": float("nan")}, "rate"),
        ({"rate": "fast"}, "rate"),
        ({"constraint_s": -1}, "constraint_s"),
        ({"headroom": 1}, "headroom"),
        ({"max_executors": 2.5}, "max_executors"),
        ({"statistic": "q1"}, "statistic"),
        ({"shuffle_partitions": 0}, "shuffle_partitions"),
    ],
)
def test_question_names_what_is_wrong(changed: dict[str, Any], path: str):
    with pytest.raises(DocumentError) as caught:
        question(**changed)
    assert [fault.path for fault in caught.value.faults] == [path]


def test_fewer_waves_do_not_make_the_fixed_time_vanish():
    """200 shuffle partitions on one core: taken for waves alone, half a second would be 5 ms on four cores."""
    profile = profile_of_fit(BatchModel(0.5, 1e-5, 0.0, 60, 100, 10_000), SparkSettings(1, 1, 1, 200, 5.0))
    assert size_microbatch(profile, question(rate=1_000, constraint_s=0.3)).plan is None
    plan = size_microbatch(profile, question(rate=1_000, constraint_s=2.0)).plan
    assert plan is not None
    assert plan.batch_s > 0.25


def test_rows_that_cost_next_to_nothing_leave_every_figure_finite():
    plan = size_microbatch(MicroBatchProfile(f0_s=0.1, c_in_s=1e-320), question()).plan
    assert plan is not None
    json.dumps(plan.to_dict(), allow_nan=False)
    assert plan.max_rows_per_trigger is None


def test_a_thousand_executors_are_tried_within_a_request():
    profile = MicroBatchProfile(f0_s=0.3, c_in_s=1e-5, c_sh_s=1e-5, sd_s=0.2)
    sizing = size_microbatch(profile, question(rate=1e12, statistic="q0.95", max_executors=1000))
    assert sizing.plan is None
    assert sizing.duration_s < 5  # a search for the trigger by each of them would take 30


def test_partitions_are_the_limit_where_more_cores_would_not_help():
    sizing = size_microbatch(PROFILE, question(rate=1e7, input_partitions=1, cores_per_executor=1))
    assert sizing.infeasible is not None
    assert sizing.infeasible.limit == "input partitions"


@pytest.mark.parametrize(("slope_s", "sd_s"), [(0.0, 0.05), (0.0, 0.0), (1e-9, 0.05)])
def test_fit_without_time_per_row_is_sized_with_the_most_that_a_row_can_take(slope_s: float, sd_s: float):
    fit, settings = BatchModel(0.55, slope_s, sd_s, 40, 1e5, 5e5), SparkSettings(2, 4, 8, 8, 1.0)
    assert not fit.is_told_apart
    profile = profile_of_fit(fit, settings)
    assert profile.c_in_s > 0.0 and profile.c_sh_s > 0.0
    sized = size_microbatch(profile, question(rate=50_000, constraint_s=5.0))
    assert sized.plan is not None and sized.plan.max_rate < 1e15
    assert sized.plan.per_row_s * 5e5 <= (fit.duration_s(5e5) + 2 * max(sd_s, 1e-3)) * settings.cores / sized.plan.cores


def test_largest_time_per_row_is_no_more_than_all_time_of_a_batch():
    alike = BatchModel(0.5, 0.0, 0.1, 20, 1_000, 1_010)
    assert alike.largest_per_row_s == pytest.approx((0.5 + 1.645 * 0.1) / 1_010)
    assert BatchModel(0.5, 0.0, 0.1, 20, 1_000, 1_000).largest_per_row_s == pytest.approx(0.6645 / 1_000)
    assert BatchModel(0.5, 0.0, 0.1, 20, 1_000, 101_000).largest_per_row_s == pytest.approx(1.645 * 0.1 * 2**0.5 / 1e5)
