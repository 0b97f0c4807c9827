"""Costs of old sources by looks at their threads: within an interval that tells how many there were, else unknown."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from engine.capacity.saturation import ClusterSaturation
from engine.connectors.document import import_picture
from engine.connectors.flink import read_flink
from engine.connectors.picture import CounterPoll, JobSample, ThreadLooks, VertexSample
from engine.connectors.statistics import sample_job
from engine.document.deployment import Deployment
from engine.document.unknown_costs import unknown_costs
from tests.engine.connectors.flink_answers import JOB, NOW_MS, cluster, poll, vertex

STEP_S, PER_STEP = 10.0, 40
TASK = "Source: bids[1] -> Calc[2] -> Calc[3]"


def row(read: float, parallelism: int = 1) -> dict[str, Any]:
    return vertex("v1", TASK, written=read, busy="NaN", idle=0, parallelism=parallelism)


def sampled(
    looks: Sequence[ThreadLooks], rates: Sequence[float], parallelism: int = 1, restart: int | None = None
) -> JobSample:
    """Statistics of stretches of ten seconds with these looks and rates; a poll begins each, one more ends the last."""
    polls: list[CounterPoll] = []
    read = 0.0
    for i in range(len(looks) + 1):
        rows = row(read, parallelism) | ({"start-time": 2} if restart is not None and i >= restart else {})
        made = poll(STEP_S * i, rows)
        if i < len(looks):
            polls.append(CounterPoll(made.job, made.at_s, made.attempt, made.vertices, threads={"v1": looks[i]}))
            read += rates[i] * STEP_S
        else:
            polls.append(made)
    return sample_job(read_flink(cluster(row(0.0, parallelism)), NOW_MS / 1000).jobs[0], polls)


def found(busy: float, seed: int = 1, threads: int = 1, count: int = PER_STEP) -> ThreadLooks:
    """Looks at random moments at threads that are at work for a part of the time."""
    chance = random.Random(seed)
    working = sum(chance.random() < busy for _ in range(count * threads))
    return ThreadLooks(working, count * threads - working, 0, 0, (0, 0, working))


def own(sample: JobSample) -> VertexSample:
    return sample.operators["v1"]


def ends_s(sample: JobSample) -> tuple[float, float]:
    """Interval of the mean of the batches: that of the cost."""
    costs = [batch.cycles / batch.events / 1e9 for batch in own(sample).batches]
    mean = sum(costs) / len(costs)
    error = (sum((cost - mean) ** 2 for cost in costs) / (len(costs) - 1) / len(costs)) ** 0.5
    return mean - 1.645 * error, mean + 1.645 * error


def codes(sample: JobSample) -> set[str]:
    return {finding.code for finding in (*sample.findings, *own(sample).findings)}


def test_cost_is_what_looks_found_at_work_over_what_came() -> None:
    """40 and 120 events/s of 2 ms: the thread works for 8 and for 24 % of the time."""
    rates = [40.0, 120.0] * 10
    sample = sampled([found(0.002 * rate, seed) for seed, rate in enumerate(rates)], rates)
    low, high = ends_s(sample)
    assert own(sample).cost_s == pytest.approx(0.002, rel=0.25) and low <= 0.002 <= high
    assert own(sample).busy_share == pytest.approx(0.16, rel=0.25)
    assert {"cost_by_threads", "chain_parts"} <= codes(sample) and "busy_time_missing" not in codes(sample)


def test_cost_by_looks_is_measured_and_gives_a_largest_rate() -> None:
    rates = [100.0] * 40
    sample = sampled([found(0.2, seed) for seed in range(40)], rates)
    pool = import_picture(read_flink(cluster(row(0.0)), NOW_MS / 1000), {JOB: sample})
    running = Deployment.parse(pool.to_deployment({"orders.bids": [100.0] * 10}, 1.0))
    assert unknown_costs(running, "orders") == ()
    assert running.operators[0].evidence is not None and running.operators[0].evidence.kind == "measured"
    capacity = ClusterSaturation(running).of_query("orders")
    assert capacity.rate_per_s == pytest.approx(500.0, rel=0.15)
    assert capacity.low_per_s is not None and capacity.high_per_s is not None
    assert capacity.low_per_s < 500.0 < capacity.high_per_s


def test_several_threads_share_what_comes() -> None:
    sample = sampled([found(0.1, seed, threads=4) for seed in range(10)], [400.0] * 10, parallelism=4)
    assert own(sample).cost_s == pytest.approx(0.001, rel=0.25)


def test_too_few_looks_leave_the_cost_unknown_and_say_how_many_there_were() -> None:
    sample = sampled([found(0.08, seed, count=8) for seed in range(6)], [40.0] * 6)
    assert own(sample).cost_s is None and {"thread_looks_few", "busy_time_missing"} <= codes(sample)
    assert any("48 looks" in str(finding.message) for finding in sample.findings)


def test_looks_that_resemble_each_other_tell_less() -> None:
    """As many looks at work, in turn and all within a fourth of the stretches."""
    steady = sampled([ThreadLooks(8, 32, 0, 0)] * 16, [100.0] * 16)
    clumped = sampled([ThreadLooks(32 * (i % 4 == 0), 40 - 32 * (i % 4 == 0), 0, 0) for i in range(16)], [100.0] * 16)
    assert own(steady).cost_s == pytest.approx(0.002, rel=0.01)
    (low, high), wide = ends_s(steady), own(clumped)
    assert wide.cost_s is None or ends_s(clumped)[1] - ends_s(clumped)[0] > 2.0 * (high - low)


def test_undecided_looks_make_the_cost_larger_and_leave_the_lower_end() -> None:
    sure = sampled([ThreadLooks(10, 30, 0, 0)] * 10, [100.0] * 10)
    unsure = sampled([ThreadLooks(8, 30, 0, 2)] * 10, [100.0] * 10)
    assert own(unsure).cost_s == pytest.approx(own(sure).cost_s)
    assert ends_s(unsure)[1] - ends_s(unsure)[0] > ends_s(sure)[1] - ends_s(sure)[0]


def test_output_that_is_full_is_no_work() -> None:
    sample = sampled([ThreadLooks(20, 0, 20, 0)] * 10, [100.0] * 10)
    assert own(sample).cost_s == pytest.approx(0.005, rel=0.01)


def test_looks_before_a_restart_count_only_where_their_stretch_is_whole() -> None:
    """The looks between the last poll of an attempt and the first of the next one belong to no stretch."""
    looks = [ThreadLooks(4, 36, 0, 0)] * 9 + [ThreadLooks(40, 0, 0, 0)] + [ThreadLooks(4, 36, 0, 0)] * 10
    sample = sampled(looks, [100.0] * 20, restart=10)
    assert own(sample).cost_s == pytest.approx(0.001, rel=0.01)


def test_interval_reaches_down_to_what_the_highest_rate_allows() -> None:
    """Under a light load an event took 4 ms on a host that others used; 500 events/s came through later."""
    rates = [50.0] * 20 + [500.0] * 4
    looks = [ThreadLooks(8, 32, 0, 0)] * 20 + [ThreadLooks(40, 0, 0, 0)] * 4
    assert ends_s(sampled(looks, rates))[0] <= 0.002


@pytest.mark.parametrize(("cpu_per_s", "least"), [(0.1, 0.5), (0.5, 1.0)])
def test_threads_that_want_the_cpu_and_have_half_of_it_are_of_a_contended_host(cpu_per_s: float, least: float) -> None:
    """A fifth of looks finds the thread running, and its process has half as much of a core, or more."""
    polls = []
    for i in range(31):
        made = poll(STEP_S * i, row(100.0 * STEP_S * i), cpu_s=cpu_per_s * STEP_S * i)
        polls.append(replace(made, threads={"v1": ThreadLooks(8, 32, 0, 0, running=8)}))
    sample = sample_job(read_flink(cluster(row(0.0)), NOW_MS / 1000).jobs[0], polls)
    assert own(sample).cost_s == pytest.approx(0.002, rel=0.01)
    assert own(sample).quiet_share == pytest.approx(least, rel=0.01)
    assert ("contended" in codes(sample)) == (least < 1.0)
