"""Simulated queries: tiny stories asserted whole, and what holds for every run."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from engine.klink.simulation.loads import DrawnLoad, delays_ms, draw
from engine.klink.simulation.run import Arrivals, SimulatedOperator, SimulatedQuery, SimulationSetting, simulate
from engine.klink.simulation.world import CODES

POLICIES = tuple(CODES)


def arrivals(events, marks=(), bins=40, known=()):
    """Events {bin: how many}; watermarks by windows, each a time or a tuple of the streams' times."""
    counts, stimulus = np.zeros(bins), np.full(bins, math.inf)
    for at, (many, made_ms) in events.items():
        counts[at], stimulus[at] = many, made_ms
    rows = np.array([one if isinstance(one, tuple) else (one,) for one in marks], float)
    rows = rows if len(marks) else np.empty((0, 1))
    mean = np.array(known, float).reshape(rows.shape) if len(known) else np.zeros_like(rows)
    return Arrivals(counts, stimulus, rows, mean, mean**2)


def query(name, cost_ms, period_ms=100.0, first_ms=100.0, **more):
    return SimulatedQuery(name, (SimulatedOperator(cost_ms),), period_ms, first_ms, **more)


def story(queries, coming, policy, **more):
    run = simulate(
        queries, coming, SimulationSetting(policy, cores=more.pop("cores", 1), cycle_ms=30.0, **more), story=True
    )
    return run, [(begin, end, name) for begin, end, name, _ in merged(run.spans)]


def merged(spans):
    """Spans of a core that follow each other without a pause, as one."""
    found = []
    for begin, end, name, core in sorted(spans, key=lambda span: (span[3], span[0])):
        if found and found[-1][1:] == (begin, name, core):
            begin = found.pop()[0]
        found.append((begin, end, name, core))
    return sorted(found)


TWO = (
    [query("a", 1.0, 200.0, 200.0), query("b", 1.0, 200.0, 100.0)],
    [arrivals({1: (50, 0)}, [210.0]), arrivals({2: (40, 0)}, [110.0])],
)


def test_first_come_first_served_works_off_what_came_first():
    run, log = story(*TWO, "fcfs")
    assert log == [(10, 60, "a"), (60, 100, "b")]
    assert [list(one) for one in run.swept_ms] == [[210.0], [110.0]]


def test_round_robin_takes_turns_of_a_cycle():
    assert story(*TWO, "round-robin")[1] == [(10, 40, "a"), (40, 70, "b"), (70, 90, "a"), (90, 100, "b")]


def test_the_nearest_deadline_goes_first_once_a_cycle_is_over():
    assert story(*TWO, "nearest-deadline")[1] == [(10, 40, "a"), (40, 80, "b"), (80, 100, "a")]


def test_the_least_slack_counts_the_work_that_is_left():
    queries = [query("a", 1.0, 200.0, 200.0), query("b", 1.0, 200.0, 160.0)]
    coming = [arrivals({1: (100, 0)}, [200.0]), arrivals({1: (20, 0)}, [160.0])]
    assert story(queries, coming, "least-slack")[1] == [(10, 70, "a"), (70, 90, "b"), (90, 130, "a")]
    assert story(queries, coming, "nearest-deadline")[1] == [(10, 30, "b"), (30, 130, "a")]


def test_klink_finishes_the_short_window_first_whose_watermark_is_here():
    queries = [query("a", 1.0, 400.0, 20.0), query("b", 1.0, 400.0, 20.0)]
    coming = [arrivals({3: (60, 0)}, [30.0]), arrivals({3: (10, 0)}, [30.0])]
    run, log = story(queries, coming, "klink")
    assert log == [(30, 40, "b"), (40, 100, "a")]
    assert run.latencies_ms().tolist() == [80.0, 20.0]


def test_a_join_is_swept_by_the_last_of_its_streams():
    run, _ = story([query("a", 1.0, 100.0, 20.0)], [arrivals({1: (5, 0)}, [(30.0, 70.0), (130.0, 120.0)])], "klink")
    assert [list(one) for one in run.swept_ms] == [[70.0, 130.0]]


def test_a_watermark_waits_for_what_came_before_it_and_not_for_what_came_after():
    coming = [arrivals({1: (10, 0), 4: (30, 30)}, [20.0])]
    run, _ = story([query("a", 2.0, 400.0, 10.0)], coming, "fcfs")
    assert run.swept_ms[0].tolist() == [30.0]


def test_a_later_watermark_passes_the_deadlines_before_it():
    run, _ = story([query("a", 1.0, 100.0, 20.0)], [arrivals({}, [math.inf, 150.0, 220.0, 320.0])], "klink")
    assert run.swept_ms[0].tolist() == [150.0, 150.0, 220.0, 320.0]


def test_two_cores_run_two_queries_and_never_one_query_twice_at_once():
    queries = [query("a", 1.0), query("b", 1.0), query("c", 1.0)]
    coming = [arrivals({1: (30, 0)}), arrivals({1: (30, 0)}), arrivals({})]
    assert story(queries, coming, "fcfs", cores=2)[1] == [(10, 40, "a"), (10, 40, "b")]
    assert story(queries[:1], coming[:1], "fcfs", cores=2)[1] == [(10, 40, "a")]


def test_a_query_over_two_nodes_hands_events_and_watermarks_on():
    chain = (SimulatedOperator(1.0, 0.5), SimulatedOperator(4.0))
    spanning = SimulatedQuery("a", chain, 400.0, 20.0, nodes=(0, 1), split=1)
    run, log = story([spanning], [arrivals({1: (20, 0)}, [20.0])], "klink", nodes=2, link_ms=10.0)
    assert log == [(10, 30, "a"), (30, 70, "a")]
    assert run.swept_ms[0].tolist() == [70.0]
    assert (run.processed[0], run.waiting[0]) == (20.0, 0.0)


def test_what_is_above_the_limit_of_the_intake_is_refused():
    coming = [arrivals({1: (30, 0)}), arrivals({1: (90, 0)})]
    run, _ = story([query("a", 1.0), query("b", 1.0)], coming, "fcfs", intake_s=0.04)
    assert run.refused.tolist() == pytest.approx([20.0, 60.0])
    assert run.processed.tolist() == pytest.approx([10.0, 30.0])


def test_what_waits_too_long_overflows_at_the_end_of_an_epoch_and_its_watermark_is_swept():
    queries = [query("a", 1.0), query("b", 1.0, 400.0, 20.0, waits_ms=50.0)]
    coming = [arrivals({1: (90, 0)}), arrivals({2: (10, 0), 9: (10, 0)}, [20.0])]
    run, log = story(queries, coming, "fcfs", epoch_ms=100.0)
    assert log == [(10, 100, "a"), (100, 110, "b")]
    assert (run.overflow[1], run.processed[1]) == (10.0, 10.0)
    assert run.swept_ms[1].tolist() == [100.0]


def test_a_starving_query_has_its_turn():
    queries = [query("a", 1.0, 400.0, 10.0), query("b", 1.0, 400.0, 390.0)]
    coming = [arrivals({1: (200, 0)}, [10.0]), arrivals({1: (10, 0)}, [390.0])]
    assert story(queries, coming, "nearest-deadline")[1][0] == (10, 210, "a")
    assert story(queries, coming, "nearest-deadline", starvation_ms=80.0)[1][:2] == [(10, 100, "a"), (100, 110, "b")]


def test_above_the_bound_of_memory_the_query_goes_first_that_frees_most():
    queries = [
        SimulatedQuery("a", (SimulatedOperator(1.0, 1.0),), 400.0, 20.0, event_bytes=10.0),
        SimulatedQuery("b", (SimulatedOperator(1.0, 0.1),), 400.0, 390.0, event_bytes=10.0),
    ]
    coming = [arrivals({1: (50, 0)}, [20.0]), arrivals({1: (50, 0)}, [390.0])]
    assert story(queries, coming, "klink")[1][0][2] == "a"
    log = story(queries, coming, "klink", memory_bytes=1_000.0, release_share=0.3)[1]
    assert log == [(10, 40, "b"), (40, 90, "a"), (90, 110, "b")]


def test_a_window_that_is_never_swept_counts_with_what_it_has_waited():
    run, _ = story([query("a", 1.0, 400.0, 100.0)], [arrivals({}, [math.inf])], "klink")
    assert np.isnan(run.swept_ms[0]).all()
    assert run.latencies_ms().tolist() == [300.0]


def test_what_is_left_drains_without_new_records_and_counts_with_its_own_latency():
    queries, coming = [query("a", 1.0, 400.0, 20.0)], [arrivals({1: (600, 0)}, [30.0])]
    assert np.isnan(story(queries, coming, "klink")[0].swept_ms[0]).all()
    run, log = story(queries, coming, "klink", drain_s=5.0)
    assert (log, run.swept_ms[0].tolist(), run.end_ms) == ([(10, 610, "a")], [610.0], 610.0)
    assert (run.processed[0], run.waiting[0], run.memory_bytes.shape) == (600.0, 0.0, (2, 1))
    cut, _ = story(queries, coming, "klink", drain_s=0.1)
    assert (np.isnan(cut.swept_ms[0]).all(), cut.end_ms, cut.latencies_ms().tolist()) == (True, 500.0, [480.0])


def test_draining_waits_for_watermarks_and_for_what_is_between_nodes():
    late = story([query("a", 1.0, 400.0, 20.0)], [arrivals({1: (5, 0)}, [700.0])], "klink", drain_s=5.0)[0]
    assert late.swept_ms[0].tolist() == [700.0]
    chain = (SimulatedOperator(1.0), SimulatedOperator(4.0))
    spanning = SimulatedQuery("a", chain, 400.0, 20.0, nodes=(0, 1), split=1)
    run, _ = story([spanning], [arrivals({38: (20, 0)}, [380.0])], "klink", nodes=2, link_ms=100.0, drain_s=5.0)
    assert run.swept_ms[0].tolist() == [570.0]
    assert (run.processed[0], run.waiting[0]) == (20.0, 0.0)


@pytest.mark.parametrize("policy", ["highest-rate", "response-ratio", "klink", "random"])
def test_above_saturation_every_policy_takes_in_as_much_and_leaves_no_window_behind(policy):
    queries, coming = draw(DrawnLoad("ysb", 40, seed=2, horizon_s=20.0, bursty=True))
    setting = SimulationSetting(policy, cores=2, intake_s=4.0, drain_s=60.0)
    run, fcfs = (simulate(queries, coming, dataclasses.replace(setting, policy=one)) for one in (policy, "fcfs"))
    assert not any(np.isnan(one).any() for one in run.swept_ms)
    assert run.refused.sum() / run.came.sum() == pytest.approx(fcfs.refused.sum() / fcfs.came.sum(), abs=2e-3)
    assert run.refused.sum() > 0.1 * run.came.sum()


BURSTY = DrawnLoad("mixed", 12, seed=3, horizon_s=20.0, bursty=True)


def outcome(load, setting):
    run = simulate(*draw(load), setting)
    figures = [run.latencies_ms(), run.processed, run.refused, run.overflow, run.waiting, run.busy_ms, run.memory_bytes]
    return [one.tolist() for one in figures]


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_load_gives_the_same_run(policy):
    assert outcome(BURSTY, SimulationSetting(policy, cores=1)) == outcome(BURSTY, SimulationSetting(policy, cores=1))


def test_another_seed_gives_another_run():
    assert outcome(BURSTY, SimulationSetting("fcfs")) != outcome(
        dataclasses.replace(BURSTY, seed=4), SimulationSetting("fcfs")
    )


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", ["ysb", "lrb", "nyt", "mixed"])
def test_every_event_is_accounted_for_and_no_core_works_more_than_there_is(kind, policy):
    load = DrawnLoad(kind, 14, seed=1, horizon_s=12.0, bursty=True, waits_periods=0.5)
    queries, coming = draw(load)
    run = simulate(queries, coming, SimulationSetting(policy, cores=1, intake_s=2.0), story=True)
    assert run.processed + run.overflow + run.refused + run.waiting == pytest.approx(run.came, rel=1e-9, abs=1e-6)
    costs = np.array([one.cost_ms for one in queries])
    assert float(run.processed @ costs) == pytest.approx(float(run.busy_ms.sum()), rel=1e-9)
    assert all(later[0] >= earlier[1] - 1e-9 for earlier, later in zip(run.spans, run.spans[1:], strict=False))


@pytest.mark.parametrize("policy", POLICIES)
def test_no_core_idles_while_something_waits(policy):
    """As much work is done under every policy; what is left differs by what one core cannot share."""
    queries, coming = draw(DrawnLoad("ysb", 14, seed=2, horizon_s=12.0, bursty=True))
    done = simulate(queries, coming, SimulationSetting(policy, cores=1)).busy_ms.sum()
    assert done == pytest.approx(simulate(queries, coming, SimulationSetting("fcfs", cores=1)).busy_ms.sum(), rel=1e-9)


def test_one_query_waits_as_the_work_before_it_says():
    """Each window against the unfinished work of a single server (Lindley's recursion), and so does what waits."""
    queries, coming = draw(DrawnLoad("nyt", 1, seed=4, horizon_s=60.0, bursty=True))
    cost_ms = 12.0 * queries[0].cost_ms  # 1.2 cores wanted of one
    slow = dataclasses.replace(queries[0], operators=(SimulatedOperator(cost_ms),))
    run = simulate([slow], coming, SimulationSetting("fcfs", cores=1, drain_s=60.0))
    left_ms = np.zeros(12_000)
    for at in range(12_000):
        came = coming[0].events[at] if at < 6_000 else 0.0
        left_ms[at] = (max(0.0, left_ms[at - 1] - 10.0) if at else 0.0) + came * cost_ms
    marks = np.ceil(np.minimum.accumulate(coming[0].marks_ms[::-1, 0])[::-1] / 10.0).astype(int)
    assert run.swept_ms[0] == pytest.approx(marks * 10.0 + left_ms[marks], abs=1e-6)
    assert run.memory_bytes[:, 0] / slow.event_bytes * cost_ms == pytest.approx(left_ms[:6_000:20], abs=1e-6)
    assert run.latencies_ms().max() > 3_000.0


def test_a_query_never_runs_on_two_cores_at_once():
    queries, coming = draw(DrawnLoad("mixed", 10, seed=5, horizon_s=15.0, bursty=True))
    run = simulate(queries, coming, SimulationSetting("klink", cores=3), story=True)
    by_query = {}
    for begin, end, name, _ in sorted(run.spans):
        assert begin >= by_query.get(name, 0.0) - 1e-9
        by_query[name] = end


def test_delays_are_within_a_second_and_zipf_prefers_short_ones():
    random = np.random.default_rng(1)
    uniform, zipf = delays_ms("uniform", 20_000, random), delays_ms("zipf", 20_000, random)
    assert uniform.mean() == pytest.approx(500, rel=0.02)
    assert (uniform.min() >= 0, zipf.min() >= 0, uniform.max() < 1_001, zipf.max() < 1_001) == (True,) * 4
    assert float(np.median(zipf)) < 50 < float(np.quantile(zipf, 0.9))


def test_bursts_keep_the_mean_rate():
    steady, bursty = (draw(DrawnLoad("ysb", 30, 1, horizon_s=200.0, bursty=one))[1] for one in (False, True))
    assert sum(one.events.sum() for one in bursty) == pytest.approx(sum(one.events.sum() for one in steady), rel=0.1)
    assert max(one.events.max() for one in bursty) > 2 * max(one.events.max() for one in steady)
