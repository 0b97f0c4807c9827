"""The CPU budget of the runtime: kept, shared between queries, used for runs that are worth it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from agent.runtime import Runtime, Spool
from engine.klink.settings import ScheduleSettings
from tests.agent.reference import rows_of
from tests.agent.runtime.configs import query_config
from tests.agent.runtime.doubles import ManualClock, TableSource
from tests.agent.runtime.epochs import (
    ALL,
    LIMIT,
    PIPELINE,
    QUERY,
    config,
    expected_of,
    processed_by,
    run_to_the_end,
    runtime_of,
    unlimited,
)
from tests.agent.runtime.pipelines import probe_records, probes_pipeline


@pytest.mark.parametrize("backlog_periods", [0, 0.33])
def test_no_budget_means_everything_overflows_to_the_stream_processor(tmp_path, backlog_periods):
    records = probe_records(PIPELINE, 500)
    source, clock = TableSource(records, [50]), ManualClock(cpu_step_ns=1000)
    settings = config(budget_cores=0.0, schedule=ScheduleSettings(backlog_periods=backlog_periods))
    runtime, spool = runtime_of(tmp_path, source, settings, clock)
    run_to_the_end(runtime, source, clock)
    for _ in range(4):
        assert runtime.run_epoch()
        clock.pass_s(1)
    reference = processed_by(spool)
    assert reference.total("records_overflow") == reference.total("records_in") == 500
    assert rows_of(reference.result(QUERY, PIPELINE)) == expected_of(records)
    assert runtime.state()["queries"][0]["state"] == "steady"  # the last epoch had nothing to do


def test_the_budget_is_kept_and_plans_are_granted_their_shares_by_weight_whoever_runs_first(tmp_path):
    others = [probes_pipeline(where=f"rtt_us > {i}") for i in range(3)]
    queries = tuple(
        query_config(f"here/q{i}", pipeline, ALL, weight=weight)
        for i, (pipeline, weight) in enumerate(zip(others, (1.0, 1.0, 2.0), strict=True))
    )
    records = pa.concat_tables([probe_records(PIPELINE, 20_000)] * 30)
    source = TableSource(records, [20_000])  # so many that every sub-epoch's records are worth a run
    clock = ManualClock(cpu_step_ns=5_000_000)
    runtime, spool = runtime_of(tmp_path, source, config(queries=queries, budget_cores=0.7), clock, limit=4 * LIMIT)
    while not source.done:
        assert runtime.run_epoch()
        clock.pass_s(1)
    seen = processed_by(spool, *others)
    assert clock.cpu_ns / (len(seen.epochs) * 1e9) < 1.1
    told = runtime.unreported()
    could_have = [sum(row["b"] for row in told[query.query][:-1]) for query in queries]  # the last had half the records
    assert could_have[0] == pytest.approx(could_have[1], rel=0.2)
    assert could_have[2] > 1.5 * could_have[0]


def test_cheap_records_of_small_polls_wait_for_one_run_in_an_epoch(tmp_path):
    records, step_ns = probe_records(PIPELINE, 3000), 1000
    source = TableSource(records, [100])
    runtime, spool = runtime_of(tmp_path, source, clock=ManualClock(cpu_step_ns=step_ns))
    for _ in range(3):  # ten polls in each
        assert runtime.run_epoch()
    reference = processed_by(spool)
    # each run looks at the clock once; the first is to learn what it costs
    assert reference.total("cpu_ns") == (1 + 3) * 4 * step_ns
    assert reference.total("records_overflow") == 0
    assert source.done


@pytest.mark.parametrize(("late_s", "queued"), [(0.2, 0), (0.7, 1000)])
def test_records_that_waited_for_the_last_run_are_processed_where_the_host_lets_it_run_late(tmp_path, late_s, queued):
    source = TableSource(probe_records(PIPELINE, 3000), [100])
    clock = ManualClock(cpu_step_ns=1000)
    runtime, spool = runtime_of(tmp_path, source, clock=clock)
    assert runtime.run_epoch()  # what operators cost is known now
    clock.pass_s(1)
    for _ in range(9):
        runtime.tick()
        clock.pass_s(0.1)
    clock.pass_s(late_s)
    runtime.tick()
    last = [row for row in processed_by(spool).counters if row["epoch_us"] > min(processed_by(spool).epochs)]
    assert sum(row["records_queued"] for row in last) == queued


def test_unused_budget_goes_to_the_other_query(tmp_path):
    idle = probes_pipeline(source="idle")
    queries = (query_config(QUERY, PIPELINE, ALL), query_config("here/idle", idle, ALL))
    records = probe_records(PIPELINE, 5000)
    source, quiet = TableSource(records, [500]), TableSource(records.slice(0, 0), [1])
    spool = Spool(tmp_path / "spool", LIMIT, sync=False)
    clock = ManualClock(cpu_step_ns=100_000)
    settings = config(queries=queries, budget_cores=0.5)
    runtime = Runtime(settings, {"probes": source, "idle": quiet}, spool, clock, quota=unlimited)
    run_to_the_end(runtime, source, clock)
    reference = processed_by(spool, PIPELINE, idle)
    assert reference.total("records_overflow") == 0
    busy = next(row for row in reference.counters if row["query"] == QUERY)
    assert busy["granted_cpu_ns"] > 0.4e9
    assert 0 < busy["idle_ns"] < 1e9
