"""Simulated queries: tiny stories asserted whole, and what holds for every run."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from engine.klink.simulation.run import Arrivals, SimulatedOperator, SimulatedQuery, SimulationSetting, simulate
from engine.klink.simulation.world import CODES
from lab.klink.loads import DrawnLoad, delays_ms, draw_load

POLICIES = tuple(CODES)


def arrivals(events, marks=(), bins=40, known=()):
    """Events {bin: how many}; watermarks by windows, each a time or a tuple of the streams' times."""
    counts, stimulus = np.zeros(bins), np.full(bins, math.inf)
    for at, (many, made_ms) in events.items():
        counts[at], stimulus[at] = many, made_ms
    rows = np.array([mark if isinstance(mark, tuple) else (mark,) for mark in marks], float)
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
    result = []
    for begin, end, name, core in sorted(spans, key=lambda span: (span[3], span[0])):
        if result and result[-1][1:] == (begin, name, core):
            begin = result.pop()[0]
        result.append((begin, end, name, core))
    return sorted(result)


TWO = (
    [query("a", 1.0, 200.0, 200.0), query("b", 1.0, 200.0, 100.0)],
    [arrivals({1: (50, 0)}, [210.0]), arrivals({2: (40, 0)}, [110.0])],
)


def test_fcfs_processes_the_oldest_event_first():
    run, log = story(*TWO, "fcfs")
    assert log == [(10, 60, "a"), (60, 100, "b")]
    assert [list(entry) for entry in run.swept_ms] == [[210.0], [110.0]]


def test_round_robin_alternates_by_quantum():
    assert story(*TWO, "round-robin")[1] == [(10, 40, "a"), (40, 70, "b"), (70, 90, "a"), (90, 100, "b")]


def test_nearest_deadline_runs_first_after_the_quantum():
    assert story(*TWO, "nearest-deadline")[1] == [(10, 40, "a"), (40, 80, "b"), (80, 100, "a")]


def test_lowest_slack_counts_the_remaining_work():
    queries = [query("a", 1.0, 200.0, 200.0), query("b", 1.0, 200.0, 160.0)]
    coming = [arrivals({1: (100, 0)}, [200.0]), arrivals({1: (20, 0)}, [160.0])]
    assert story(queries, coming, "least-slack")[1] == [(10, 70, "a"), (70, 90, "b"), (90, 130, "a")]
    assert story(queries, coming, "nearest-deadline")[1] == [(10, 30, "b"), (30, 130, "a")]


def test_klink_finishes_the_short_due_window_first():
    queries = [query("a", 1.0, 400.0, 20.0), query("b", 1.0, 400.0, 20.0)]
    coming = [arrivals({3: (60, 0)}, [30.0]), arrivals({3: (10, 0)}, [30.0])]
    run, log = story(queries, coming, "klink")
    assert log == [(30, 40, "b"), (40, 100, "a")]
    assert run.latencies_ms().tolist() == [80.0, 20.0]


def test_join_is_swept_by_the_last_watermark_of_its_streams():
    run, _ = story([query("a", 1.0, 100.0, 20.0)], [arrivals({1: (5, 0)}, [(30.0, 70.0), (130.0, 120.0)])], "klink")
    assert [list(entry) for entry in run.swept_ms] == [[70.0, 130.0]]


def test_watermark_waits_only_for_earlier_events():
    coming = [arrivals({1: (10, 0), 4: (30, 30)}, [20.0])]
    run, _ = story([query("a", 2.0, 400.0, 10.0)], coming, "fcfs")
    assert run.swept_ms[0].tolist() == [30.0]


def test_later_watermark_sweeps_earlier_deadlines():
    run, _ = story([query("a", 1.0, 100.0, 20.0)], [arrivals({}, [math.inf, 150.0, 220.0, 320.0])], "klink")
    assert run.swept_ms[0].tolist() == [150.0, 150.0, 220.0, 320.0]


def test_two_cores_run_two_queries_but_never_one_query_twice():
    queries = [query("a", 1.0), query("b", 1.0), query("c", 1.0)]
    coming = [arrivals({1: (30, 0)}), arrivals({1: (30, 0)}), arrivals({})]
    assert story(queries, coming, "fcfs", cores=2)[1] == [(10, 40, "a"), (10, 40, "b")]
    assert story(queries[:1], coming[:1], "fcfs", cores=2)[1] == [(10, 40, "a")]


def test_query_over_two_nodes_forwards_events_and_watermarks():
    operators = (SimulatedOperator(1.0, 0.5), SimulatedOperator(4.0))
    spanning = SimulatedQuery("a", operators, 400.0, 20.0, nodes=(0, 1), split=1)
    run, log = story([spanning], [arrivals({1: (20, 0)}, [20.0])], "klink", nodes=2, link_ms=10.0)
    assert log == [(10, 30, "a"), (30, 70, "a")]
    assert run.swept_ms[0].tolist() == [70.0]
    assert (run.processed[0], run.waiting[0]) == (20.0, 0.0)


def test_events_above_the_intake_limit_are_refused():
    coming = [arrivals({1: (30, 0)}), arrivals({1: (90, 0)})]
    run, _ = story([query("a", 1.0), query("b", 1.0)], coming, "fcfs", intake_s=0.04)
    assert run.refused.tolist() == pytest.approx([20.0, 60.0])
    assert run.processed.tolist() == pytest.approx([10.0, 30.0])


def test_old_events_overflow_at_the_epochs_end_and_their_window_is_swept():
    queries = [query("a", 1.0), query("b", 1.0, 400.0, 20.0, waits_ms=50.0)]
    coming = [arrivals({1: (90, 0)}), arrivals({2: (10, 0), 9: (10, 0)}, [20.0])]
    run, log = story(queries, coming, "fcfs", epoch_ms=100.0)
    assert log == [(10, 100, "a"), (100, 110, "b")]
    assert (run.overflow[1], run.processed[1]) == (10.0, 10.0)
    assert run.swept_ms[1].tolist() == [100.0]


def test_starving_query_runs():
    queries = [query("a", 1.0, 400.0, 10.0), query("b", 1.0, 400.0, 390.0)]
    coming = [arrivals({1: (200, 0)}, [10.0]), arrivals({1: (10, 0)}, [390.0])]
    assert story(queries, coming, "nearest-deadline")[1][0] == (10, 210, "a")
    assert story(queries, coming, "nearest-deadline", starvation_ms=80.0)[1][:2] == [(10, 100, "a"), (100, 110, "b")]


def test_memory_mode_runs_the_query_that_frees_most():
    queries = [
        SimulatedQuery("a", (SimulatedOperator(1.0, 1.0),), 400.0, 20.0, event_bytes=10.0),
        SimulatedQuery("b", (SimulatedOperator(1.0, 0.1),), 400.0, 390.0, event_bytes=10.0),
    ]
    coming = [arrivals({1: (50, 0)}, [20.0]), arrivals({1: (50, 0)}, [390.0])]
    assert story(queries, coming, "klink")[1][0][2] == "a"
    log = story(queries, coming, "klink", memory_bytes=1_000.0, release_share=0.3)[1]
    assert log == [(10, 40, "b"), (40, 90, "a"), (90, 110, "b")]


def test_unswept_window_counts_its_wait_so_far():
    run, _ = story([query("a", 1.0, 400.0, 100.0)], [arrivals({}, [math.inf])], "klink")
    assert np.isnan(run.swept_ms[0]).all()
    assert run.latencies_ms().tolist() == [300.0]


def test_remaining_events_drain_with_their_own_latency():
    queries, coming = [query("a", 1.0, 400.0, 20.0)], [arrivals({1: (600, 0)}, [30.0])]
    assert np.isnan(story(queries, coming, "klink")[0].swept_ms[0]).all()
    run, log = story(queries, coming, "klink", drain_s=5.0)
    assert (log, run.swept_ms[0].tolist(), run.end_ms) == ([(10, 610, "a")], [610.0], 610.0)
    assert (run.processed[0], run.waiting[0], run.memory_bytes.shape) == (600.0, 0.0, (2, 1))
    cut, _ = story(queries, coming, "klink", drain_s=0.1)
    assert (np.isnan(cut.swept_ms[0]).all(), cut.end_ms, cut.latencies_ms().tolist()) == (True, 500.0, [480.0])


def test_draining_waits_for_watermarks_and_events_in_transit():
    late = story([query("a", 1.0, 400.0, 20.0)], [arrivals({1: (5, 0)}, [700.0])], "klink", drain_s=5.0)[0]
    assert late.swept_ms[0].tolist() == [700.0]
    operators = (SimulatedOperator(1.0), SimulatedOperator(4.0))
    spanning = SimulatedQuery("a", operators, 400.0, 20.0, nodes=(0, 1), split=1)
    run, _ = story([spanning], [arrivals({38: (20, 0)}, [380.0])], "klink", nodes=2, link_ms=100.0, drain_s=5.0)
    assert run.swept_ms[0].tolist() == [570.0]
    assert (run.processed[0], run.waiting[0]) == (20.0, 0.0)


@pytest.mark.parametrize("policy", ["highest-rate", "response-ratio", "klink", "random"])
def test_saturated_policies_admit_equally_and_sweep_every_window(policy):
    queries, coming = draw_load(DrawnLoad("ysb", 40, seed=2, horizon_s=20.0, bursty=True))
    setting = SimulationSetting(policy, cores=2, intake_s=4.0, drain_s=60.0)
    run, fcfs = (simulate(queries, coming, dataclasses.replace(setting, policy=entry)) for entry in (policy, "fcfs"))
    assert not any(np.isnan(entry).any() for entry in run.swept_ms)
    assert run.refused.sum() / run.came.sum() == pytest.approx(fcfs.refused.sum() / fcfs.came.sum(), abs=2e-3)
    assert run.refused.sum() > 0.1 * run.came.sum()


BURSTY = DrawnLoad("mixed", 12, seed=3, horizon_s=20.0, bursty=True)


def outcome(load, setting):
    run = simulate(*draw_load(load), setting)
    figures = [run.latencies_ms(), run.processed, run.refused, run.overflow, run.waiting, run.busy_ms, run.memory_bytes]
    return [figure.tolist() for figure in figures]


@pytest.mark.parametrize("policy", POLICIES)
def test_equal_load_gives_an_equal_run(policy):
    assert outcome(BURSTY, SimulationSetting(policy, cores=1)) == outcome(BURSTY, SimulationSetting(policy, cores=1))


def test_different_seed_gives_a_different_run():
    assert outcome(BURSTY, SimulationSetting("fcfs")) != outcome(
        dataclasses.replace(BURSTY, seed=4), SimulationSetting("fcfs")
    )


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", ["ysb", "lrb", "nyt", "mixed"])
def test_events_are_conserved_and_cores_never_exceed_their_time(kind, policy):
    load = DrawnLoad(kind, 14, seed=1, horizon_s=12.0, bursty=True, waits_periods=0.5)
    queries, coming = draw_load(load)
    run = simulate(queries, coming, SimulationSetting(policy, cores=1, intake_s=2.0), story=True)
    assert run.processed + run.overflow + run.refused + run.waiting == pytest.approx(run.came, rel=1e-9, abs=1e-6)
    costs = np.array([entry.cost_ms for entry in queries])
    assert float(run.processed @ costs) == pytest.approx(float(run.busy_ms.sum()), rel=1e-9)
    assert all(later[0] >= earlier[1] - 1e-9 for earlier, later in zip(run.spans, run.spans[1:], strict=False))


@pytest.mark.parametrize("policy", POLICIES)
def test_no_core_idles_while_events_wait(policy):
    """Every policy does the same work; the rest differs by work that one core cannot share."""
    queries, coming = draw_load(DrawnLoad("ysb", 14, seed=2, horizon_s=12.0, bursty=True))
    done = simulate(queries, coming, SimulationSetting(policy, cores=1)).busy_ms.sum()
    assert done == pytest.approx(simulate(queries, coming, SimulationSetting("fcfs", cores=1)).busy_ms.sum(), rel=1e-9)


def test_single_query_waits_for_the_work_before_it():
    """Each window against the unfinished work of a single server (Lindley's recursion), and so does what waits."""
    queries, coming = draw_load(DrawnLoad("nyt", 1, seed=4, horizon_s=60.0, bursty=True))
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


def test_query_never_runs_on_two_cores_at_once():
    queries, coming = draw_load(DrawnLoad("mixed", 10, seed=5, horizon_s=15.0, bursty=True))
    run = simulate(queries, coming, SimulationSetting("klink", cores=3), story=True)
    by_query = {}
    for begin, end, name, _ in sorted(run.spans):
        assert begin >= by_query.get(name, 0.0) - 1e-9
        by_query[name] = end


def test_drawn_delays_stay_within_a_second_and_zipf_prefers_short_ones():
    random = np.random.default_rng(1)
    uniform, zipf = delays_ms("uniform", 20_000, random), delays_ms("zipf", 20_000, random)
    assert uniform.mean() == pytest.approx(500, rel=0.02)
    assert (uniform.min() >= 0, zipf.min() >= 0, uniform.max() < 1_001, zipf.max() < 1_001) == (True,) * 4
    assert float(np.median(zipf)) < 50 < float(np.quantile(zipf, 0.9))


def test_bursty_load_keeps_the_mean_rate():
    steady, bursty = (draw_load(DrawnLoad("ysb", 30, 1, horizon_s=200.0, bursty=entry))[1] for entry in (False, True))
    assert sum(entry.events.sum() for entry in bursty) == pytest.approx(
        sum(entry.events.sum() for entry in steady), rel=0.1
    )
    assert max(entry.events.max() for entry in bursty) > 2 * max(entry.events.max() for entry in steady)
