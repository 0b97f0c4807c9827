"""The pipeline's simulation: conservation, queues of known theory, shared resources, windows, verdicts; its benchmarks.

The benchmarks stand here since all of it needs one compiled loop, and the tests of a file run in one process.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from engine.planner.latency import evaluate_latency
from engine.planner.plan import StageSettings
from engine.planner.profile import StageProfile
from engine.simulation.run import TooLargeError
from lab.benchmarks import planner_figures, planner_model, planner_plans
from lab.simulation.pipeline import PipelineSettings, simulate_pipeline
from tests.engine.planner.stages import NODE, WORD

pytestmark = pytest.mark.slow  # the first of them compiles the loop

STEADY = replace(WORD, cv2_map=0, cv2_red=0, cv2_net=0, cv2_disk=0)
SETTINGS = StageSettings(nodes=2, mappers=2, reducers=2, b_in_s=0.02, b_sh_s=0.2, b_ch_s=0.2)
RATE = 150_000.0
SHORT = PipelineSettings(duration_s=8, warm_up_s=2)


def simulated(profile=WORD, rate=RATE, settings=SETTINGS, run=SHORT, hardware=NODE, **changes):
    return simulate_pipeline(profile, hardware, rate, replace(settings, **changes), run)


def test_every_tuple_that_came_is_reduced_once_when_no_more_come():
    totals = simulated(replace(WORD, alpha=1), run=replace(SHORT, drain_s=3)).totals
    assert totals["arrived"] == pytest.approx(10 * RATE, rel=0.01)
    assert set(totals.values()) == {totals["arrived"]}


def test_fractional_outputs_average_to_alpha():
    totals = simulated(replace(WORD, alpha=0.3), run=replace(SHORT, drain_s=3)).totals
    assert totals["emitted"] == pytest.approx(0.3 * totals["arrived"], rel=0.01)
    assert totals["reduced"] == totals["emitted"]


def test_equal_seeds_repeat_and_others_differ():
    first, again, other = simulated(), simulated(), simulated(run=replace(SHORT, seed=1))
    assert np.array_equal(first.latency_s, again.latency_s)
    assert first.totals == again.totals
    assert first.mean_s != other.mean_s


def test_phases_of_a_lightly_loaded_pipeline_are_those_of_arithmetic():
    """One mapper and one reducer that never wait: each phase is an interval's half or a size over a speed."""
    rate = 20_000.0
    run = PipelineSettings(duration_s=20, warm_up_s=2)
    outcome = simulated(replace(STEADY, c_hb=0), rate, run=run, nodes=1, mappers=1, reducers=1, b_in_s=0.0197)
    batch, shuffle = rate * 0.0197, rate * 0.2 * 8
    expected = [0.0197 / 2, 0, batch * 110 / 125e6, 0, 2e-4 + batch * 1.6e-5 / 2, 0.1, 0, shuffle * 12 / 100e6 + 5e-4]
    expected += [0.1, shuffle * 12 / 125e6, 0, 3e-5 + shuffle * 2e-6 / 2]
    phases = np.delete(outcome.phase_mean_s, 8)
    assert phases == pytest.approx(np.delete(expected, 8), rel=0.03, abs=5e-5)
    assert 0 < outcome.phase_mean_s[8] < 0.2  # both timers keep their phases: any wait for the poll up to B_ch
    assert outcome.mean_s == pytest.approx(outcome.phase_mean_s.sum())


def test_wait_at_a_mapper_is_that_of_a_queue_with_even_arrivals_and_exponential_service():
    """D/M/1: sigma = exp(-(1 - sigma) / rho), and the mean wait is sigma / (1 - sigma) of a service."""
    settings = StageSettings(nodes=4, mappers=1, reducers=1, b_in_s=0.01, b_sh_s=0.5, b_ch_s=0.5)
    profile = StageProfile(c_map=0.8e-6, c_red=0, b_in=0, b_out=0, cv2_map=1)
    outcome = simulated(profile, 4e6, settings, PipelineSettings(duration_s=150, warm_up_s=5))
    sigma = 0.5
    for _ in range(200):
        sigma = math.exp(-(1 - sigma) / 0.8)
    assert outcome.phase_mean_s[3] == pytest.approx(0.008 * sigma / (1 - sigma), rel=0.06)
    assert outcome.utilisation["map"] == pytest.approx(0.8, rel=0.02)


def test_work_demanded_is_work_done():
    outcome = simulated(run=PipelineSettings(duration_s=20, warm_up_s=2))
    per_node, outputs = RATE / 2, 8 * RATE / 2
    map_cores = per_node * 1.6e-5 + 2 * 8e-6 * 4 / 0.2 + 2e-4 / 0.02
    reduce_cores = outputs * 2e-6 + 2 * (3e-5 * 4 + 5e-3) / 0.2
    assert outcome.utilisation["cpu"] == pytest.approx((map_cores + reduce_cores) / 4, rel=0.02)
    assert outcome.utilisation["net"] == pytest.approx((per_node * 110 + outputs * 12) / 125e6, rel=0.02)
    assert outcome.utilisation["disk"] == pytest.approx(outputs * 12 / 100e6 + 2 * 5e-4 / 0.2, rel=0.03)


def test_more_threads_than_cores_occupy_threads_longer_than_they_work():
    spare = simulated(mappers=4, reducers=4, hardware=replace(NODE, n=8))
    crowded = simulated(mappers=4, reducers=4, hardware=replace(NODE, n=3))
    assert spare.utilisation["map"] == pytest.approx(RATE / 8 * 1.6e-5 + 8e-6 * 8 / 0.2 + 5e-5 / 0.02, rel=0.02)
    assert crowded.utilisation["map"] > 1.05 * spare.utilisation["map"]
    assert crowded.mean_s > spare.mean_s


@pytest.mark.parametrize(("threads", "phase"), [("mappers", 3), ("reducers", 10)])
def test_overload_is_a_growing_backlog_before_the_thread(threads, phase):
    outcome = simulated(**{threads: 1})
    assert not outcome.stable
    assert outcome.reason == "backlog grows"
    assert outcome.growth > 0.05
    assert outcome.phase_mean_s.argmax() == phase


def test_heavy_load_below_capacity_is_stable():
    outcome = simulated(rate=210_000.0, run=PipelineSettings(duration_s=25, warm_up_s=5))
    assert max(outcome.utilisation.values()) > 0.85
    assert outcome.stable
    assert abs(outcome.growth) < 0.004


def test_mapper_without_room_for_outputs_waits_until_they_are_fetched():
    per_batch = RATE / 4 * 0.2 * 8 * 12
    roomy = simulated(hardware=replace(NODE, map_buf=3 * per_batch))
    tight = simulated(hardware=replace(NODE, map_buf=1.3 * per_batch))
    assert roomy.stable and roomy.blocked == 0
    assert tight.blocked > 0.1
    assert (tight.stable, tight.reason) == (False, "map output buffer")
    assert tight.phase_mean_s.argmax() == 3


def test_oldest_first_has_the_same_mean_and_a_shorter_tail():
    settings, run = replace(SETTINGS, b_sh_s=0.03, b_ch_s=0.8), PipelineSettings(duration_s=25, warm_up_s=5)
    in_turn = simulated(settings=settings, run=run)
    oldest = simulated(settings=settings, run=replace(run, is_oldest_first=True))
    assert oldest.mean_s == pytest.approx(in_turn.mean_s, rel=0.03)
    assert oldest.quantile_s(0.99) < 0.9 * in_turn.quantile_s(0.99)


def test_window_takes_longer_than_its_last_tuple_and_that_one_longer_than_others():
    windowed = replace(WORD, window=2, keys=40_000, s_k=6e-6)
    outcome = simulated(windowed, run=PipelineSettings(duration_s=20, warm_up_s=2))
    assert len(outcome.latency_s) == len(outcome.last_tuple_s) >= 8 * 4 * 16
    assert (outcome.latency_s > outcome.last_tuple_s).all()
    assert outcome.last_tuple_s.mean() > np.average(outcome.tuple_s, weights=outcome.tuple_weights)
    finalize_s = outcome.mean_s - outcome.last_tuple_s.mean()
    assert 0.03 <= finalize_s < 0.06  # 10,000 keys of 6 us each, one after the other; the middle one after half of it


def test_sliding_windows_end_once_per_slide():
    windowed = replace(WORD, window=2, slide=0.5, keys=4_000, s_k=6e-6)
    outcome = simulated(windowed, run=PipelineSettings(duration_s=10, warm_up_s=2))
    assert len(outcome.latency_s) == pytest.approx(20 * 4 * 16, rel=0.1)


def test_long_runs_of_tiny_batches_are_refused():
    with pytest.raises(TooLargeError, match="batches and partitions"):
        simulated(b_sh_s=1e-4, run=PipelineSettings(duration_s=1_000))


def test_random_settings_are_the_benchmarks_own_and_within_the_load():
    samples = list(planner_model.draw_samples(9, seed=3))
    assert [sample.name for sample in samples[::3]] == list(planner_model.WORKLOADS)
    assert [sample.profile.cv2_red for sample in samples[:3]] == [0.05, 0.5, 2.0]
    for sample in samples:
        latency = evaluate_latency(sample.profile, sample.hardware, sample.rate, sample.settings)
        assert 0.3 <= max(latency.util.values()) <= 0.95
        assert 0.03 <= sample.settings.b_sh_s <= 1


@pytest.mark.parametrize(
    ("benchmark", "judgement"),
    [
        (planner_model, "judged with 60 settings or more"),
        (planner_figures, "phases over 5 ms: at most"),
        (planner_plans, "fewest nodes as the grid's: 1 of 1: met"),
    ],
    ids=["model", "figures", "plans"],
)
def test_quick_benchmarks_print_what_full_ones_judge(benchmark, judgement, capsys, tmp_path):
    assert benchmark.main(["--quick", "--csv", str(tmp_path)]) == 0
    assert judgement in capsys.readouterr().out
