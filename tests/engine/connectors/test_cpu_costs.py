"""Costs of operators that tell no busy time: by CPU time over several loads, and by a step of load; else unknown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from engine.connectors.document import import_picture
from engine.connectors.flink import read_flink
from engine.connectors.picture import CounterPoll, EnginePicture, JobSample
from engine.connectors.statistics import sample_job
from engine.document.deployment import Deployment
from engine.document.unknown_costs import unknown_costs
from tests.engine.connectors.flink_answers import JOB, NOW_MS, cluster, poll, vertex

STEP_S = 10.0
STEPS = (50.0, 100.0, 150.0, 200.0) * 8
OWN_CORES = 0.08


def rows(read: float, second: float, *, reader_ms: float | None = None) -> list[dict[str, Any]]:
    """A chain with a source of the old interface, and one more operator where it has a cost."""
    found = [vertex("v1", "Source: bids -> Calc -> Sink", written=read, busy="NaN", idle=0)]
    if reader_ms is not None:
        busy = reader_ms * read
        found.append(vertex("v2", "count", ("v1", "HASH"), read=read, busy=busy, idle=1000 * second - busy))
    return found


def picture(**kinds: Any) -> EnginePicture:
    return read_flink(cluster(*rows(0.0, 0.0, **kinds)), NOW_MS / 1000)


def sampled(
    cpu_ms: float, rates: Sequence[float] = STEPS, *, is_alone: bool = True, noise: float = 0.002, **kinds: Any
) -> JobSample:
    """Statistics of a job whose events take so much CPU all together, at these rates one after the other."""
    polls: list[CounterPoll] = []
    read, cpu_s = 0.0, 0.0
    for i in range(len(rates) + 1):
        polls.append(poll(STEP_S * i, *rows(read, STEP_S * i, **kinds), cpu_s=cpu_s))
        if i < len(rates):
            read += rates[i] * STEP_S
            cpu_s += (OWN_CORES + cpu_ms / 1000 * rates[i] + noise * (-1) ** (i // 2)) * STEP_S
    return sample_job(picture(**kinds).jobs[0], polls, is_alone=is_alone)


def codes(sample: JobSample) -> set[str]:
    return {f.code for f in (*sample.findings, *(f for o in sample.operators.values() for f in o.findings))}


def deployment(sample: JobSample) -> Deployment:
    pool = import_picture(picture(), {JOB: sample})
    return Deployment.parse(pool.to_deployment({"orders.bids": [100.0] * 10}, 1.0))


def test_cpu_time_over_several_loads_tells_the_least_that_an_event_costs() -> None:
    """The process takes something by itself, which is no cost of events; waits are not seen."""
    sample = sampled(1.0)
    assert sample.operators["v1"].cost_s == pytest.approx(0.001, rel=0.05)
    assert sample.operators["v1"].cost_by == "cpu_time" and "cost_by_cpu_time" in codes(sample)
    running = deployment(sample)
    assert running.operators[0].inputs[0].cycles_per_event == pytest.approx(1e6, rel=0.05)
    assert unknown_costs(running, "orders") == (running.operators[0].id,)


def test_step_of_load_that_takes_the_thread_far_tells_the_cost_within_an_interval() -> None:
    """At 200 events/s of 4 ms the thread computes for 80 % of the time: an event takes 4 to 5 ms, waits included."""
    sample = sampled(4.0)
    own = sample.operators["v1"]
    assert own.cost_by == "load_step" and "cost_by_load_step" in codes(sample)
    assert own.cost_s is not None and own.cost_s * 1.02 >= 0.004 and own.cost_s <= 0.005
    mean = sum(batch.cycles for batch in own.batches) / sum(batch.events for batch in own.batches)
    assert mean == pytest.approx(own.cost_s * 1e9)
    running = deployment(sample)
    assert unknown_costs(running, "orders") == ()
    assert running.operators[0].evidence is not None and running.operators[0].evidence.kind == "predicted"


def test_one_load_alone_tells_no_cost() -> None:
    sample = sampled(4.0, (100.0,) * 32)
    assert sample.operators["v1"].cost_s is None and "cpu_load_alike" in codes(sample)


def test_cpu_time_that_other_jobs_share_tells_no_cost() -> None:
    sample = sampled(4.0, is_alone=False)
    assert sample.operators["v1"].cost_s is None and "cpu_of_several" in codes(sample)


def test_few_stretches_tell_no_cost() -> None:
    sample = sampled(4.0, STEPS[:5])
    assert sample.operators["v1"].cost_s is None and "cpu_windows_few" in codes(sample)


def test_busy_time_of_others_widens_the_interval_by_what_of_it_may_be_cpu() -> None:
    """Another operator is busy for 0.2 ms an event: it may wait or compute, so that the source has 3.8 to 4 ms."""
    own = sampled(4.0, reader_ms=0.2).operators["v1"]
    costs = [batch.cycles / batch.events / 1e6 for batch in own.batches]
    assert own.cost_s is not None and 3.8e-3 * 0.98 <= own.cost_s <= 5e-3 and min(costs) < 3.9


def test_busy_time_of_others_that_may_be_all_of_the_cpu_leaves_it_unknown() -> None:
    sample = sampled(4.0, reader_ms=3.0)
    assert sample.operators["v1"].cost_s is None and "cpu_load_alike" in codes(sample)


def test_two_sources_whose_rates_move_together_are_not_told_apart() -> None:
    def both(read: float) -> list[dict[str, Any]]:
        return [vertex(name, f"Source: {name}", written=read, busy="NaN", idle=0) for name in ("v1", "v2")]

    read, polls = 0.0, []
    for i, rate in enumerate(STEPS):
        polls.append(poll(STEP_S * i, *both(read), cpu_s=0.004 * read))
        read += rate * STEP_S
    job = read_flink(cluster(*both(0.0)), NOW_MS / 1000).jobs[0]
    sample = sample_job(job, polls)
    assert {own.cost_s for own in sample.operators.values()} == {None} and "cpu_rates_together" in codes(sample)


def test_two_sources_whose_rates_differ_are_told_apart() -> None:
    def both(first: float, second: float) -> list[dict[str, Any]]:
        reads = {"v1": first, "v2": second}
        return [vertex(name, f"Source: {name}", written=n, busy="NaN", idle=0) for name, n in reads.items()]

    first, second, polls = 0.0, 0.0, []
    for i, rate in enumerate(STEPS):
        polls.append(poll(STEP_S * i, *both(first, second), cpu_s=0.004 * first + 0.002 * second))
        first, second = first + rate * STEP_S, second + STEPS[i // 4] * 1.5 * STEP_S
    job = read_flink(cluster(*both(0.0, 0.0)), NOW_MS / 1000).jobs[0]
    sample = sample_job(job, polls)
    assert [own.cost_by for own in sample.operators.values()] == ["load_step", "load_step"]
    assert sample.operators["v1"].cost_s == pytest.approx(0.0045, rel=0.02)
