"""Statistics are differences of counters; what is stale, negative, reset or contended never becomes a cheaper cost."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest

from engine.capacity.answer import QueryCapacity
from engine.capacity.saturation import ClusterSaturation
from engine.connectors.arrivals import spread_counts
from engine.connectors.document import import_picture
from engine.connectors.flink import next_paths, read_flink
from engine.connectors.flink_polls import poll_flink, poll_paths
from engine.connectors.picture import ArrivalCounts, CounterPoll, EngineJob, JobSample
from engine.connectors.statistics import sample_job
from engine.document.deployment import Deployment
from tests.engine.connectors.flink_answers import JOB, NOW_MS, cluster, job_answer, poll, vertex

STEP_S = 5.0


def vertices(second: float, *, cost_ms: float = 4.0, rate: float = 100.0, **enrich: Any) -> tuple[dict[str, Any], ...]:
    """A source of 100 events/s and an operator of 4 ms an event with a selectivity of 0.9, so long after the start."""
    events = rate * second
    busy = events * cost_ms
    counters = {"read": events, "written": 0.9 * events, "busy": busy, "idle": 1000 * second - busy} | enrich
    return (
        vertex("v1", "Source: clicks", written=events, busy=0.1 * events, idle=1000 * second - 0.1 * events),
        vertex("v2", "enrich", "v1", **counters),
        vertex("v3", "Sink: out", "v2", read=0.9 * events, busy=0, idle=1000 * second),
    )


def job() -> EngineJob:
    return read_flink(cluster(*vertices(0.0)), NOW_MS / 1000).jobs[0]


def steady(count: int = 13, of: Callable[[float], Any] = vertices) -> list[CounterPoll]:
    return [poll(STEP_S * i, *of(STEP_S * i), load=0.1, cpu_s=0.1 * STEP_S * i) for i in range(count)]


def sample(polls: Iterable[CounterPoll]) -> JobSample:
    return sample_job(job(), polls)


def codes(sampled: JobSample) -> set[str]:
    return {f.code for f in (*sampled.findings, *(f for o in sampled.operators.values() for f in o.findings))}


def test_cost_is_busy_time_over_records_read_and_selectivity_what_leaves_over_what_comes() -> None:
    sampled = sample(steady())
    enrich = sampled.operators["v2"]
    assert enrich.cost_s == pytest.approx(0.004)
    assert enrich.selectivity == pytest.approx(0.9)
    assert len(enrich.batches) == 12
    assert enrich.batches[0].cycles / enrich.batches[0].events == pytest.approx(4e6)
    assert enrich.busy_share == pytest.approx(0.4)
    assert sampled.operators["v1"].cost_s == pytest.approx(0.0001)
    assert not {"contended", "counters_reset", "few_polls"} & codes(sampled)


def test_a_sink_puts_out_one_result_per_event_and_says_that_it_is_assumed() -> None:
    sampled = sample(steady())
    assert sampled.operators["v3"].selectivity == 1.0
    assert "sink_selectivity" in codes(sampled)


def test_order_and_repetition_of_polls_do_not_matter() -> None:
    polls = steady()
    assert sample([*reversed(polls), *polls[3:6]]) == sample(polls)


def test_a_stale_answer_is_no_stretch_without_cost() -> None:
    """Metrics are refreshed at intervals: polls between have the same counters at a later time."""
    polls = [poll(i, *vertices(STEP_S * (i // 5))) for i in range(61)]
    enrich = sample(polls).operators["v2"]
    assert all(batch.cycles > 0.0 for batch in enrich.batches)
    assert enrich.cost_s == pytest.approx(0.004)
    assert enrich.span_s == pytest.approx(60.0)


def test_records_that_move_while_the_clock_stands_still_wait_for_the_next_answer() -> None:
    half = vertices(10.0, read=1100.0, written=990.0)
    polls = [*steady(3), poll(11.0, *half), *[poll(STEP_S * i, *vertices(STEP_S * i)) for i in range(3, 13)]]
    assert sample(polls).operators["v2"].cost_s == pytest.approx(0.004)


def test_busy_time_that_decreases_is_merged_and_not_cut_off() -> None:
    """Idle time is told late; summing only the increases would make the operator dearer than it is."""

    def wavering(second: float) -> tuple[dict[str, Any], ...]:
        late_ms = 1500.0 if round(second / STEP_S) % 2 else 0.0
        busy = 400 * second + late_ms
        return vertices(second, busy=busy, idle=1000 * second - busy)

    enrich = sample(steady(of=wavering)).operators["v2"]
    assert enrich.cost_s == pytest.approx(0.004, rel=0.1)
    assert all(batch.cycles >= 0.0 for batch in enrich.batches)


def test_idle_time_told_late_makes_no_light_operator_dear() -> None:
    """Of a thread that is idle for seconds on end, what is told late is far more than it is busy."""

    def cost_s(seed: int) -> float:
        late_ms = random.Random(seed).choices((0.0, 200.0, 900.0, 1400.0), k=49)

        def light(second: float) -> tuple[dict[str, Any], ...]:
            step = round(second / STEP_S)
            events = 100.0 * STEP_S * (step - step % 2)  # they come in every other stretch
            busy = 0.3 * events + late_ms[step]
            return vertices(second, read=events, written=events, busy=busy, idle=1000 * second - busy)

        return sample(steady(49, of=light)).operators["v2"].cost_s or 0.0

    assert fmean(cost_s(seed) for seed in range(10)) == pytest.approx(0.0003, rel=0.15)


def test_what_the_first_events_correct_of_the_idle_time_before_them_is_no_cost() -> None:
    def young(second: float) -> tuple[dict[str, Any], ...]:
        events = max(0.0, 100.0 * (second - 10.0))
        busy = 900.0 if second <= 10.0 else 4.0 * events
        return vertices(second, read=events, written=0.9 * events, busy=busy, idle=1000 * second - busy)

    assert sample(steady(of=young)).operators["v2"].cost_s == pytest.approx(0.004)


def test_busy_time_of_a_stretch_without_events_is_no_cost() -> None:
    def pausing(second: float) -> tuple[dict[str, Any], ...]:
        events, busy = (1000.0, 4000.0 + 0.02 * (second - 10) * 1000) if second > 10 else (100 * second, 400 * second)
        return vertices(second, read=events, written=0.9 * events, busy=busy, idle=1000 * second - busy)

    assert sample(steady(of=pausing)).operators["v2"].cost_s == pytest.approx(0.004)


def test_outputs_without_events_belong_to_the_events_before_them() -> None:
    """A window puts out its results when it closes, be there events or not."""

    def closing(second: float) -> tuple[dict[str, Any], ...]:
        number = round(second / STEP_S)
        events, outputs = 500.0 * ((number + 1) // 2), 10.0 * (number // 2)
        return vertices(second, read=events, written=outputs, busy=4 * events, idle=1000 * second - 4 * events)

    assert sample(steady(of=closing)).operators["v2"].selectivity == pytest.approx(10 / 500)


def test_a_restart_is_not_counted_across() -> None:
    again = [poll(100.0 + STEP_S * i, *_restarted(STEP_S * i)) for i in range(13)]
    sampled = sample([*steady(), *again])
    assert sampled.operators["v2"].cost_s == pytest.approx(0.004)
    assert sampled.operators["v2"].events == pytest.approx(2 * 6000)
    assert "counters_reset" in codes(sampled)


def _restarted(second: float) -> tuple[dict[str, Any], ...]:
    return tuple(row | {"start-time": 2} for row in vertices(second))


def test_counters_that_fall_without_a_restart_begin_anew() -> None:
    """A region failed over: its subtasks count from nothing, the job goes on."""
    polls = [*steady(7), *[poll(100.0 + STEP_S * i, *vertices(STEP_S * i)) for i in range(7)]]
    sampled = sample(polls)
    assert sampled.operators["v2"].cost_s == pytest.approx(0.004)
    assert sampled.operators["v2"].selectivity == pytest.approx(0.9)
    assert "counters_reset" in codes(sampled)


def test_busy_time_of_nan_leaves_the_cost_missing_and_says_so() -> None:
    def legacy(second: float) -> tuple[dict[str, Any], ...]:
        source = vertex("v1", "Source: clicks", written=100 * second, busy="NaN")
        return source, *vertices(second)[1:]

    sampled = sample(steady(of=legacy))
    assert sampled.operators["v1"].cost_s is None and sampled.operators["v1"].batches == ()
    assert sampled.operators["v1"].events == pytest.approx(6000)
    assert "busy_time_missing" in codes(sampled)
    assert sampled.busy_threads == {"tm1": None}
    assert sampled.arrivals["v1"].events == pytest.approx(6000)


def test_a_source_that_counts_what_it_reads_is_measured_by_that() -> None:
    def reading(second: float) -> tuple[dict[str, Any], ...]:
        events = 100 * second
        source = vertex("v1", "Source: clicks", read=events, written=0.5 * events, busy=events, idle=900 * second)
        return source, *vertices(second)[1:]

    sampled = sample(steady(of=reading))
    assert sampled.operators["v1"].selectivity == pytest.approx(0.5)
    assert sampled.operators["v1"].cost_s == pytest.approx(0.001)
    assert sampled.arrivals["v1"].origin == "read"
    assert "source_counts_written" not in codes(sampled)


def test_a_vertex_whose_counters_vanish_has_no_statistics_and_says_why() -> None:
    polls = [poll(STEP_S * i, *vertices(STEP_S * i)[:1], vertices(STEP_S * i)[2]) for i in range(4)]
    sampled = sample(polls)
    assert sampled.operators["v2"].cost_s is None and sampled.operators["v2"].events == 0.0
    assert "no_statistics" in codes(sampled)


def test_one_poll_is_no_statistic() -> None:
    sampled = sample(steady(1))
    assert sampled.operators["v2"].selectivity is None
    assert sampled.arrivals == {} and "arrivals_missing" in codes(sampled)


def test_a_host_whose_cores_are_in_use_is_contended_and_its_cost_is_kept() -> None:
    polls = [poll(STEP_S * i, *vertices(STEP_S * i), load=0.9, cpu_s=1.8 * STEP_S * i) for i in range(13)]
    sampled = sample(polls)
    assert sampled.operators["v2"].contended_s == pytest.approx(60.0)
    assert sampled.operators["v2"].cost_s == pytest.approx(0.004)
    assert "contended" in codes(sampled)


def test_what_a_quiet_host_may_leave_of_a_cost_is_by_cpu_or_by_the_calmest_tenth() -> None:
    """Threads are busy for 41 % of the time, and their process has half as much of the CPU."""

    def shares(loads: Sequence[float], of: Callable[[float], Any] = vertices) -> JobSample:
        polls = [poll(STEP_S * i, *of(STEP_S * i), load=0.1, cpu_s=0.205 * STEP_S * i) for i in range(13)]
        return sample([replace(p, host_loads={"tm1": load}) for p, load in zip(polls, loads, strict=True)])

    full = shares([1.0] * 13)
    assert full.operators["v2"].quiet_share == pytest.approx(0.5) == full.operators["v1"].quiet_share
    assert "50" in next(str(f.message) for f in full.findings if f.code == "contended")
    assert shares([0.1] * 13).operators["v2"].quiet_share == 1.0
    grown = shares([0.1] * 6 + [1.0] * 7, _growing).operators["v2"]  # 4 ms for half of the time, then 8
    assert grown.cost_s == pytest.approx(0.006) and grown.quiet_share == pytest.approx(2 / 3)


def _growing(second: float) -> tuple[dict[str, Any], ...]:
    busy = 400 * second + max(0.0, second - 30.0) * 400
    return vertices(second, busy=busy, idle=1000 * second - busy)


def test_an_event_that_takes_twice_as_long_without_more_cpu_is_of_a_contended_host() -> None:
    sampled = sample(steady(of=_growing))
    assert sampled.operators["v2"].contended_s == pytest.approx(30.0)


def test_an_event_that_takes_twice_as_long_and_twice_the_cpu_is_not() -> None:
    polls = [poll(s, *_growing(s), load=0.3, cpu_s=0.4 * s + max(0.0, s - 30) * 0.4) for s in range(0, 65, 5)]
    assert sample(polls).operators["v2"].contended_s == 0.0


def test_a_back_pressured_source_shows_what_the_job_could_take_and_says_so() -> None:
    def held(second: float) -> tuple[dict[str, Any], ...]:
        source = vertex(
            "v1", "Source: clicks", written=100 * second, busy=10 * second, idle=190 * second, held=800 * second
        )
        return source, *vertices(second)[1:]

    sampled = sample(steady(of=held))
    assert sampled.operators["v1"].backpressured_share == pytest.approx(0.8)
    assert "source_backpressured" in codes(sampled)
    offsets = ArrivalCounts("topic", 0.0, 1.0, (150.0,) * 60, 1.0, "offsets")
    told = sample_job(job(), steady(of=held), offsets={"v1": offsets})
    assert told.arrivals["v1"].events == 9000.0 and told.arrivals["v1"].origin == "offsets"
    assert "source_backpressured" not in codes(told)


def test_an_operator_that_is_busy_all_the_time_is_saturated() -> None:
    sampled = sample(steady(of=lambda second: vertices(second, cost_ms=10.0)))
    assert "saturated" in codes(sampled)


def test_shares_of_subtasks_are_those_of_their_differences() -> None:
    def split(i: int) -> CounterPoll:
        whole = poll(STEP_S * i, *vertices(STEP_S * i))
        counters = whole.vertices["v2"]
        shares = (1000.0 + 100.0 * i, 300.0 * i)
        return replace(whole, vertices={**whole.vertices, "v2": replace(counters, records_in_by_subtask=shares)})

    assert sample([split(i) for i in range(4)]).operators["v2"].shares == pytest.approx((0.25, 0.75))


def test_arrivals_are_known_by_the_interval_of_polls_and_gaps_are_marked() -> None:
    polls = steady(7) + [poll(s, *vertices(s)) for s in (230.0, 235.0, 240.0)]
    counts = sample(polls).arrivals["v1"]
    assert (counts.step_s, counts.known_step_s) == (1.0, 5.0)
    assert counts.counts[:30] == pytest.approx((100.0,) * 30)
    assert set(counts.counts[30:-10]) == {None}
    assert counts.counts[-10:] == pytest.approx((100.0,) * 10)


def test_arrivals_known_by_long_steps_are_said_to_hide_bursts() -> None:
    polls = [poll(15.0 * i, *vertices(15.0 * i)) for i in range(13)]
    assert "arrivals_coarse" in codes(sample(polls))
    assert "arrivals_coarse" not in codes(sample(steady()))


def test_a_burst_that_begins_between_two_polls_keeps_its_edge_and_its_events() -> None:
    stretches = [(0.0, 5.0, 500.0), (5.0, 10.0, 900.0), (10.0, 15.0, 1500.0)]
    counts = spread_counts("v", stretches, "written")
    assert counts is not None
    assert counts.counts[5:10] == pytest.approx((100.0, 100.0, 100.0, 300.0, 300.0))
    assert counts.events == pytest.approx(2900.0)


def test_a_rate_that_varies_by_chance_has_no_edges() -> None:
    counts = spread_counts("v", [(0.0, 5.0, 500.0), (5.0, 10.0, 550.0), (10.0, 15.0, 600.0)], "written")
    assert counts is not None and counts.counts[5:10] == pytest.approx((110.0,) * 5)


def test_counts_are_never_known_below_the_interval_of_polls() -> None:
    counts = sample_job(job(), steady(), step_s=1.0).arrivals["v1"]
    assert counts.step_s == 1.0 and counts.known_step_s == pytest.approx(5.0)
    assert counts.counts == pytest.approx((100.0,) * 60)


def test_a_stretch_shorter_than_a_step_makes_one_count() -> None:
    counts = spread_counts("v", [(10.2, 10.6, 8.0)], "written", step_s=1.0)
    assert counts is not None and counts.events == pytest.approx(8.0)


def test_work_of_a_starting_task_is_not_taken_off_its_first_events() -> None:
    """Before its first event a task was busy for 0.4 s, which Flink takes back as idle time once there are some."""

    def starting(second: float) -> tuple[dict[str, Any], ...]:
        begun = vertices(second)
        return begun if second else (begun[0], vertex("v2", "enrich", "v1", busy=400.0), begun[2])

    assert sample(steady(of=starting)).operators["v2"].cost_s == pytest.approx(0.004)


def ranked(second: float, *, told: bool = True) -> tuple[dict[str, Any], dict[str, Any]]:
    """A source and a top-n chained to its sink, which takes three updates for ten events."""
    events = 100 * second
    rank = vertex(
        "v2", "Rank[5] -> out[7]: Writer", "v1", read=events, busy=2 * events, idle=1000 * second - 2 * events
    )
    return vertex("v1", "Source: bids", written=events, busy=events, idle=900 * second), rank


def test_sink_chained_to_an_aggregate_puts_out_what_the_sink_counts() -> None:
    names = [{"id": name} for name in ("Rank[5].numRecordsIn", "out[7]__Writer.numRecordsIn", "numRecordsIn")]
    listing = {f"/jobs/{JOB}/vertices/v2/subtasks/metrics": names}
    picture = read_flink(cluster(*ranked(0.0)) | listing, NOW_MS / 1000)
    job = picture.jobs[0]
    assert job.vertices[1].result_metrics == ("out[7]__Writer.numRecordsIn",)
    (path,) = [path for path in poll_paths(picture).paths if "/subtasks/metrics?" in path]

    def poll_at(second: float, *, told: bool) -> CounterPoll:
        answers: dict[str, Any] = {f"/jobs/{JOB}": job_answer(*ranked(second), now_ms=NOW_MS + second * 1000)}
        if told:
            answers[path] = [{"id": "out[7]__Writer.numRecordsIn", "sum": 30.0 * second, "max": 30.0 * second}]
        return poll_flink(answers, JOB, 0.0)

    # The first polls were before the names were known: they count no result, and break none of what follows.
    polls = [poll_at(5.0 * i, told=i > 2) for i in range(13)]
    sample = sample_job(job, polls)
    assert sample.operators["v2"].selectivity == pytest.approx(0.3)
    assert sum(batch.outputs for batch in sample.operators["v2"].batches) == pytest.approx(
        0.3 * sum(batch.events for batch in sample.operators["v2"].batches)
    )
    assert "sink_selectivity" not in {finding.code for finding in sample.findings}
    silent = sample_job(job, [poll_at(5.0 * i, told=False) for i in range(13)])
    assert silent.operators["v2"].selectivity == 1.0
    assert "sink_selectivity" in {finding.code for finding in silent.findings}


def test_job_of_one_vertex_counts_the_events_of_its_source() -> None:
    """Flink counts nothing as read by it, and nothing as put out where its sink is of the user's own."""
    names = [
        {"id": name} for name in ("Source__clicks.numRecordsOut", "parse.numRecordsOut", "out__Writer.numRecordsIn")
    ]

    def whole(second: float) -> dict[str, Any]:
        return vertex("v1", "Source: clicks -> parse -> out: Writer", busy=100 * second, idle=900 * second)

    picture = read_flink(cluster(whole(0.0)) | {f"/jobs/{JOB}/vertices/v1/subtasks/metrics": names}, NOW_MS / 1000)
    (path,) = [path for path in poll_paths(picture).paths if "/subtasks/metrics?" in path]

    def poll_at(second: float) -> CounterPoll:
        answers: dict[str, Any] = {f"/jobs/{JOB}": job_answer(whole(second), now_ms=NOW_MS + second * 1000)}
        counts = {"Source__clicks.numRecordsOut": 50.0 * second, "out__Writer.numRecordsIn": 40.0 * second}
        answers[path] = [{"id": name, "sum": count} for name, count in counts.items()]
        return poll_flink(answers, JOB, 0.0)

    polls = [poll_at(60.0 + 5.0 * i) for i in range(13)]
    sample = sample_job(picture.jobs[0], polls)
    own = sample.operators["v1"]
    assert own.cost_s == pytest.approx(0.002) and own.selectivity == pytest.approx(0.8)
    assert sample.arrivals["v1"].events == pytest.approx(own.events) == pytest.approx(3000.0)
    # Its metric was not asked at first, or not answered: what came since the job began is no event of one stretch.
    first = poll_flink({f"/jobs/{JOB}": job_answer(whole(55.0), now_ms=NOW_MS + 55_000)}, JOB, 0.0)
    silent = poll_flink({f"/jobs/{JOB}": job_answer(whole(50.0), now_ms=NOW_MS + 50_000), path: []}, JOB, 0.0)
    assert (first.vertices["v1"].records_in, silent.vertices["v1"].records_in) == (0.0, None)
    assert sample_job(picture.jobs[0], [silent, first, *polls]).operators["v1"].events == pytest.approx(3000.0)
    assert "no_events" not in {finding.code for finding in (*sample.findings, *own.findings)}


def test_source_before_a_chained_filter_counts_what_it_reads() -> None:
    """The vertex counts only what its filter and local aggregate leave, be it nothing."""

    def rows(second: float, left: float) -> list[dict[str, Any]]:
        chain = "Source: clicks -> Calc -> LocalWindowAggregate"
        source = vertex("v1", chain, written=left * second, busy=100.0 * second, idle=900.0 * second)
        return [source, vertex("v2", "Window", "v1", read=left * second, busy=second, idle=999.0 * second)]

    for left in (0.0, 0.5):
        opened: dict[str, Any] = cluster(*rows(60.0, left))
        names_path = f"/jobs/{JOB}/vertices/v1/subtasks/metrics"
        assert names_path in next_paths({path: answer for path, answer in opened.items() if path != names_path}).paths
        picture = read_flink(opened | {names_path: [{"id": "Source__clicks.numRecordsOut"}]}, NOW_MS / 1000)
        (path,) = [path for path in poll_paths(picture).paths if "/subtasks/metrics?" in path]
        polls = [
            poll_flink(
                {
                    f"/jobs/{JOB}": job_answer(*rows(60.0 + second, left), now_ms=NOW_MS + second * 1000),
                    path: [{"id": "Source__clicks.numRecordsOut", "sum": 50.0 * (60.0 + second)}],
                },
                JOB,
                0.0,
            )
            for second in (5.0 * i for i in range(13))
        ]
        sample = sample_job(picture.jobs[0], polls)
        own = sample.operators["v1"]
        assert own.cost_s == pytest.approx(0.002) and own.selectivity == pytest.approx(left / 50.0)
        assert sample.arrivals["v1"].events == pytest.approx(3000.0)
        assert "source_counts_written" not in {finding.code for finding in sample.findings}


@pytest.mark.parametrize("end_s", [0.0, 30.0])
def test_source_that_has_ended_takes_nothing_and_hides_no_capacity(end_s: float) -> None:
    """A bounded table of the old interface, which tells no busy time, was read before a join, or while it was watched.

    One that is quiet and may go on stays unknown.
    """

    def rows(second: float, status: str) -> list[dict[str, Any]]:
        read = 100.0 * second
        side = vertex("v2", "Source: side", written=10.0 * min(second, end_s), busy="NaN") | {"status": status}
        join = vertex("v3", "Join", "v1", "v2", read=read, written=read, busy=2.0 * read, idle=800.0 * second)
        return [vertex("v1", "Source: clicks", written=read, busy=0.1 * read, idle=990.0 * second), side, join]

    def capacity_of(status: str) -> tuple[JobSample, QueryCapacity]:
        picture = read_flink(cluster(*rows(60.0, status)), NOW_MS / 1000)
        own = sample_job(picture.jobs[0], [poll(STEP_S * i, *rows(STEP_S * i, status)) for i in range(13)])
        arrivals = {"orders.clicks": [100.0] * 10, "orders.side": [own.arrivals["v2"].counts[-1] or 0.0] * 10}
        document = import_picture(picture, {JOB: own}).to_deployment(arrivals, 1.0)
        return own, ClusterSaturation(Deployment.parse(document)).of_query("orders")

    ended, known = capacity_of("FINISHED")
    assert "vertex_ended" in codes(ended) and not {"busy_time_missing", "no_events"} & codes(ended)
    assert ended.arrivals["v2"].events == 0.0 and ended.busy_threads["tm1"] is not None
    assert known.unmeasured == () and known.unsampled == 0 and known.rate_per_s == pytest.approx(500.0, rel=0.1)
    assert known.limit is not None and known.limit.share == 1.0  # two cores are enough for the threads that are left
    assert capacity_of("RUNNING")[1].rate_per_s is None


def test_results_of_a_window_chained_to_its_sink_belong_to_the_events_before_them() -> None:
    names = [{"id": "Sink__out.numRecordsIn"}]
    rows = ranked(0.0)
    picture = read_flink(cluster(*rows) | {f"/jobs/{JOB}/vertices/v2/subtasks/metrics": names}, NOW_MS / 1000)
    (path,) = [path for path in poll_paths(picture).paths if "/subtasks/metrics?" in path]

    def poll_at(second: float) -> CounterPoll:
        """Events come in the first half of each 20 s, and their 100 results at its end."""
        read = 100.0 * (10 * (second // 20) + min(10.0, second % 20))
        row = vertex("v2", "Window(T) -> Sink: out", "v1", read=read, busy=read, idle=1000 * second - read)
        answers: dict[str, Any] = {f"/jobs/{JOB}": job_answer(rows[0], row, now_ms=NOW_MS + second * 1000)}
        answers[path] = [{"id": "Sink__out.numRecordsIn", "sum": 100.0 * (second // 20)}]
        return poll_flink(answers, JOB, 0.0)

    sample = sample_job(picture.jobs[0], [poll_at(5.0 * i) for i in range(25)])
    assert sample.operators["v2"].selectivity == pytest.approx(0.1, rel=0.15)


def attempts(*rates: tuple[float, float]) -> list[CounterPoll]:
    """Polls of attempts one after the other, each of so many seconds at a rate."""
    polls, at_s = [], 0.0
    for number, (span_s, rate) in enumerate(rates):
        for i in range(int(span_s / STEP_S) + 1):
            made = poll(at_s + STEP_S * i, *vertices(STEP_S * i, rate=rate))
            polls.append(replace(made, attempt=str(number)))
        at_s += span_s + 2 * STEP_S
    return polls


def rates_of(polls: Iterable[CounterPoll]) -> list[float]:
    counts = sample(polls).arrivals["v1"]
    return [count / counts.step_s for count in counts.counts if count is not None]


def test_attempt_with_a_lower_rate_than_the_newest_does_not_count() -> None:
    told = attempts((120.0, 100.0), (120.0, 1000.0))
    assert min(rates_of(told)) == pytest.approx(1000.0, rel=0.05)
    assert "attempts_apart" in codes(sample(told))


@pytest.mark.parametrize("between", [(), ((120.0, 100.0),), ((0.0, 0.0),), ((10.0, 100.0), (0.0, 0.0))])
def test_peak_of_an_attempt_before_counts_after_a_restart_at_a_lower_rate(
    between: tuple[tuple[float, float], ...],
) -> None:
    """A quiet minute after a restart tells nothing of a peak that may come again."""
    told = attempts((600.0, 1000.0), *between, (70.0, 200.0))
    assert sum(rate > 950.0 for rate in rates_of(told)) > 500
    above = [finding for finding in sample(told).findings if finding.code == "attempts_apart"]
    assert "had a higher rate, the last 1,000.0 events/s" in str(above[-1].message)


def test_attempts_with_one_rate_are_one_series_across_a_restart() -> None:
    told = attempts((120.0, 100.0), (120.0, 110.0))
    assert len(rates_of(told)) > 200 and "attempts_apart" not in codes(sample(told))


def test_attempt_that_has_just_begun_drops_none_before_it() -> None:
    told = attempts((120.0, 100.0), (20.0, 400.0))
    rates = rates_of(told)
    assert max(rates) == pytest.approx(400.0, rel=0.05) and sum(rate < 150 for rate in rates) > 90


def windowed(*attempts: tuple[float, float], size_s: int) -> JobSample:
    """A window of 100 events/s that puts out 0.5 for each as it closes, in attempts of so many seconds and so long."""
    name = f"Window(TumblingEventTimeWindows({size_s * 1000}), EventTimeTrigger, Sum)"

    def rows(second: float) -> tuple[dict[str, Any], ...]:
        read = 100.0 * second
        told: Any = {
            "read": read,
            "written": 50.0 * size_s * (second // size_s),
            "busy": read,
            "idle": 1000 * second - read,
        }
        return (
            vertex("v1", "Source: clicks", written=read),
            vertex("v2", name, "v1", **told),
            vertex("v3", "Sink: out", "v2", read=told["written"], busy=0, idle=1000 * second),
        )

    polls = []
    for number, (at_s, span_s) in enumerate(attempts):
        made = [poll(at_s + STEP_S * i, *rows(STEP_S * i)) for i in range(int(span_s / STEP_S) + 1)]
        polls += [replace(one, attempt=str(number)) for one in made]
    return sample_job(read_flink(cluster(*rows(0.0)), NOW_MS / 1000).jobs[0], polls)


@pytest.mark.parametrize("open_s", [10.0, 60.0, 115.0])
def test_events_of_a_window_that_is_open_do_not_wear_its_selectivity_away(open_s: float) -> None:
    told = windowed((0.0, 250.0), (300.0, open_s), size_s=120)
    assert told.operators["v2"].selectivity == pytest.approx(0.5, rel=0.05)
    own = told.operators["v2"].batches
    assert sum(batch.outputs for batch in own) / sum(batch.events for batch in own) == pytest.approx(0.5, rel=0.05)


def test_window_that_never_closed_puts_out_nothing_yet() -> None:
    assert windowed((0.0, 110.0), size_s=120).operators["v2"].selectivity == 0.0


def test_window_that_is_silent_for_longer_than_two_of_its_own_puts_out_less() -> None:
    assert windowed((0.0, 60.0), size_s=20).operators["v2"].selectivity == pytest.approx(0.5, rel=0.1)
    name = "Window(TumblingEventTimeWindows(20000), EventTimeTrigger, Sum)"

    def rows(second: float) -> tuple[dict[str, Any], ...]:
        read = 100.0 * second
        told: Any = {"read": read, "written": 1000.0 * min(3, second // 20), "busy": read, "idle": 1000 * second - read}
        return (vertex("v1", "Source: clicks", written=read), vertex("v2", name, "v1", **told), vertex("v3", "o", "v2"))

    polls = [poll(STEP_S * i, *rows(STEP_S * i)) for i in range(37)]
    silent = sample_job(read_flink(cluster(*rows(0.0)), NOW_MS / 1000).jobs[0], polls).operators["v2"]
    assert silent.selectivity == pytest.approx(3000.0 / 18_000.0, rel=0.1)


def test_time_that_statistics_were_measured_over_is_of_the_newest_attempt() -> None:
    told = sample(attempts((600.0, 100.0), (70.0, 100.0)))
    assert told.measured_s == pytest.approx(70.0) and told.span_s == pytest.approx(670.0)
    assert "still_measuring" in codes(told)


def test_counter_of_bytes_that_falls_tells_no_size() -> None:
    def size_of(*written: float) -> float | None:
        polls = [
            replace(one, vertices={**one.vertices, "v2": replace(one.vertices["v2"], bytes_out=size)})
            for one, size in zip(steady(len(written)), written, strict=True)
        ]
        return sample(polls).operators["v2"].bytes_per_event

    assert size_of(*(-1e5 * i for i in range(13))) is None
    rising = [45.0 * 100.0 * STEP_S * i for i in range(13)]
    assert size_of(*rising) == pytest.approx(50.0)
    assert size_of(*rising[:6], *(size - 1e5 for size in rising[6:])) == pytest.approx(50.0)


def test_count_of_results_that_falls_makes_no_negative_selectivity() -> None:
    results = [0.3 * 90.0 * STEP_S * i for i in range(13)]
    results[7:] = [count - 500.0 for count in results[7:]]
    polls = [
        replace(one, vertices={**one.vertices, "v3": replace(one.vertices["v3"], results=count)})
        for one, count in zip(steady(13), results, strict=True)
    ]
    own = sample(polls).operators["v3"]
    assert own.selectivity == pytest.approx(0.3) and min(batch.outputs for batch in own.batches) > 0.0
