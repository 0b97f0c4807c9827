"""Of two figures of one thing that contradict each other the worse counts, and both are told."""

from __future__ import annotations

from typing import Any

import pytest

from engine.connectors.document import import_picture
from engine.connectors.flink import read_flink
from engine.connectors.picture import ArrivalCounts, CounterPoll, JobSample
from engine.connectors.statistics import sample_job
from tests.engine.connectors.flink_answers import JOB, NOW_MS, cluster, poll, vertex

STEP_S, POLLS = 5.0, 13
START_S = NOW_MS / 1000


def row(id_: str, name: str, *inputs: Any, second: float, rate: float, ms: float, **more: Any) -> dict[str, Any]:
    """A vertex that takes `rate` events/s, of `ms` each; `held` is the share of time that it is held back."""
    events, held = rate * second, 1000 * second * more.pop("held", 0.0)
    written = more.pop("written", rate) * second
    threads = more.get("parallelism", 1)
    idle = max(0.0, 1000 * second * threads * more.pop("told", 1.0) - events * ms - held)
    counters = {"read": events if inputs else 0, "written": written, "busy": events * ms, "idle": idle, "held": held}
    return vertex(id_, name, *inputs, **counters, **more)


def sampled(
    rows: Any, offsets: dict[str, ArrivalCounts] | None = None, cpu_per_s: float = 0.1, count: int = POLLS
) -> JobSample:
    picture = read_flink(cluster(*rows(0.0)), START_S)
    polls: list[CounterPoll] = [
        poll(STEP_S * i, *rows(STEP_S * i), load=0.1, cpu_s=cpu_per_s * STEP_S * i) for i in range(count)
    ]
    return sample_job(picture.jobs[0], polls, places=picture.places, offsets=offsets)


def codes(sample: JobSample) -> set[str]:
    return {finding.code for finding in sample.findings if finding.level == "warning"}


def came(rate: float, *, start_s: float = START_S - 60.0, steps: int = 130) -> dict[str, ArrivalCounts]:
    return {"v1": ArrivalCounts("v1", start_s, 1.0, (rate,) * steps, 1.0, "offsets")}


def chain(second: float, *, rate: float = 100.0, source_ms: float = 2.0, **more: Any) -> tuple[dict[str, Any], ...]:
    return (
        row("v1", "Source: in", second=second, rate=rate, ms=source_ms, **more),
        row("v2", "Sink: out", "v1", second=second, rate=rate, ms=2.0),
    )


def test_source_that_reads_less_than_comes_costs_the_rate_that_it_did() -> None:
    sample = sampled(chain, came(200.0))
    assert codes(sample) == {"source_behind"}
    assert sample.operators["v1"].cost_s == pytest.approx(0.01, rel=0.02)
    assert sample.operators["v1"].batches[0].cycles / sample.operators["v1"].batches[0].events == pytest.approx(1e7)
    assert sample.operators["v2"].cost_s == pytest.approx(0.002)
    assert sample.arrivals["v1"].origin == "offsets"


def test_source_that_reads_what_comes_is_left_as_it_is() -> None:
    sample = sampled(chain, came(101.0))
    assert codes(sample) == set() and sample.operators["v1"].cost_s == pytest.approx(0.002)


def test_source_that_its_readers_hold_back_has_no_cost_of_that() -> None:
    sample = sampled(lambda second: chain(second, held=0.5), came(200.0))
    assert "source_behind" not in codes(sample)
    assert sample.operators["v1"].cost_s == pytest.approx(0.002) and sample.arrivals["v1"].origin == "offsets"


def test_offsets_of_another_time_contradict_nothing() -> None:
    assert codes(sampled(chain, came(200.0, start_s=START_S - 900.0, steps=60))) == set()


def test_source_that_reads_more_than_came_counts_by_what_it_reads() -> None:
    sample = sampled(chain, came(50.0))
    assert codes(sample) == {"offsets_below_read"}
    assert sample.arrivals["v1"].origin == "written"
    assert sum(count or 0.0 for count in sample.arrivals["v1"].counts) == pytest.approx(6000.0, rel=0.05)


def test_source_of_several_threads_costs_what_the_hottest_of_them_did() -> None:
    sample = sampled(lambda second: chain(second, parallelism=2), came(200.0))
    assert sample.operators["v1"].cost_s == pytest.approx(0.02, rel=0.02)  # 50 events/s a thread


def test_reader_that_holds_others_back_and_is_idle_costs_the_rate_that_it_did() -> None:
    def waiting(second: float) -> tuple[dict[str, Any], ...]:
        return (
            row("v1", "Source: in", second=second, rate=100.0, ms=1.0, held=0.8),
            row("v2", "lookup", "v1", second=second, rate=100.0, ms=1.0),
            row("v3", "Sink: out", "v2", second=second, rate=100.0, ms=1.0),
        )

    sample = sampled(waiting)
    assert "held_back_unbusy" in codes(sample)
    assert sample.operators["v2"].cost_s == pytest.approx(0.01, rel=0.02)
    assert sample.operators["v3"].cost_s == pytest.approx(0.001)


def test_reader_that_is_full_explains_back_pressure() -> None:
    def full(second: float) -> tuple[dict[str, Any], ...]:
        return (
            row("v1", "Source: in", second=second, rate=100.0, ms=1.0, held=0.8),
            row("v2", "Sink: out", "v1", second=second, rate=100.0, ms=9.0),
        )

    assert "held_back_unbusy" not in codes(sampled(full))


def test_reader_that_counts_more_than_was_written_is_given_that() -> None:
    def uncounted(second: float) -> tuple[dict[str, Any], ...]:
        return (
            row("v1", "Source: in", second=second, rate=100.0, ms=1.0),
            row("v2", "Sink: out", "v1", second=second, rate=150.0, ms=1.0),
        )

    sample = sampled(uncounted)
    assert "counts_differ" in codes(sample)
    pool = import_picture(read_flink(cluster(*uncounted(0.0)), START_S), {JOB: sample})
    source, _ = pool.queries[0].body["operators"]
    assert source["inputs"][0]["selectivity"] == pytest.approx(1.5, rel=0.02)


def test_time_that_threads_do_not_account_for_is_taken_for_busy() -> None:
    sample = sampled(lambda second: chain(second, told=0.5), count=49)
    assert "time_unaccounted" in codes(sample)
    assert sample.operators["v1"].cost_s == pytest.approx(0.0064, rel=0.05)  # 2 ms, and 105 s for 24,000 events


@pytest.mark.parametrize(("told_ms", "cost_s"), [(50.0, 0.05), (500.0, 0.0125)])
def test_busy_time_beyond_what_has_passed_is_told_and_counts_unless_it_is_broken(told_ms: float, cost_s: float) -> None:
    sample = sampled(lambda second: chain(second, source_ms=told_ms))
    assert "busy_beyond_time" in codes(sample)
    assert sample.operators["v1"].cost_s == pytest.approx(cost_s, rel=0.05)  # 75 s at the most, for 6,000 events


def test_process_that_computes_beside_its_threads_is_told_and_changes_no_cost() -> None:
    sample = sampled(chain, cpu_per_s=2.0)
    assert "cpu_beside" in {finding.code for finding in sample.findings}
    assert sample.operators["v1"].cost_s == pytest.approx(0.002)
