"""Queries, loads and table of Nexmark; its runs need a Flink (`tests/e2e/test_flink.py` plans the queries)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.__main__ import main
from lab.benchmarks.nexmark.events import EventFeed, event_tables
from lab.benchmarks.nexmark.prediction import Interval, JobShape, NexmarkAnswer, busiest_factor, predict_query
from lab.benchmarks.nexmark.queries import QUERIES
from lab.benchmarks.nexmark.runs import LoadPhase, QueryRun, Timing, second_begins, slope
from lab.benchmarks.nexmark.scripts import query_script
from lab.benchmarks.nexmark.table import ScoredQuery, latency_table, missed_targets, rate_table, row_json, summary
from tests.engine.connectors.flink_answers import JOB, NOW_MS, cluster, job_answer, taskmanager, vertex

LIGHT = LoadPhase(1, 1, 100, 100.0, [i / 100 for i in range(101)], 1000, 0.5, 0.3)
FULL = LoadPhase(40, 1, 4000, 1000.0, [], 0, None, 0.3)
RUN = QueryRun(
    "q1", "park", 100, {"load 1": LIGHT, "saturated 1": FULL, "saturated 2": replace(FULL, rate_per_s=1900.0)}
)
SAID = NexmarkAnswer(
    shape=JobShape(3, 2),
    imported=JobShape(3, 2),
    busy={"source": (0.1, None), "join": (0.2, 0.21), "sink": (0.004, 0.0), "aggregate": (0.3, 0.2)},
    capacity=Interval(10.9, 9.0, 12.0),
    at_most=None,
    limit="join",
    ds2=12.0,
    autoscaler=8.4,
    latencies_s={1: {"q0.99": Interval(1.1, 0.9, 1.2), "mean": Interval(0.8, 0.7, 0.9)}},
    gain=Interval(2.0, 1.2, 2.0),
)
ROW = ScoredQuery("q1", RUN, SAID)


def waiting_load() -> LoadPhase:
    """A keyed operator that is busy for 0.4 of the time and hardly computes, on two slots and as many cores."""

    def answers(second: float) -> dict[str, Any]:
        vertices = (
            vertex("v1", "Source: clicks", written=100 * second, busy=10 * second, idle=990 * second),
            vertex(
                "v2", "count", ("v1", "HASH"), read=100 * second, written=100 * second,
                busy=400 * second, idle=600 * second,
            ),
            vertex("v3", "out: Writer", "v2", read=100 * second, busy=second, idle=999 * second),
        )  # fmt: skip
        cpu = [{"id": "Status.JVM.CPU.Time", "value": str(0.05 * second * 1e9)}]
        told = cluster(*vertices) | {"/taskmanagers": {"taskmanagers": [taskmanager(slots=2)]}}
        counted = job_answer(*vertices, now_ms=NOW_MS + second * 1000)
        told |= {f"/jobs/{JOB}": counted, f"/jobs/{JOB}/config": {}}
        return told | {"/taskmanagers/tm1/metrics?get=cpu": cpu}

    return replace(LIGHT, picture=answers(0.0), polls=[(5.0 * i, answers(5.0 * i)) for i in range(13)])


def test_gain_of_threads_that_wait_is_not_bounded_by_cores_and_keys_bound_it_from_below() -> None:
    gain = predict_query(waiting_load()).gain
    assert gain is not None and gain.low is not None
    assert gain.estimate == pytest.approx(2.0, rel=0.02) and gain.low == pytest.approx(1.0, rel=0.1)


def test_queries_are_those_of_the_benchmark() -> None:
    assert list(QUERIES) == [f"q{number}" for number in range(24)]


@pytest.mark.parametrize("name", QUERIES)
def test_script_of_a_query_has_its_load_work_and_stopwatch(name: str) -> None:
    query = QUERIES[name]
    feed = EventFeed(460, "park", 2000, query.column)
    script = query_script(query, feed, jar=Path("/jars/work.jar"), latencies=Path("/out"), parallelism=2)
    assert f"park({query.column}, 2000) AS {query.column}" in script
    assert "'rows-per-second' = '460'" in script and "SET 'parallelism.default' = '2'" in script
    assert "observe(moment, '/out')" in script
    assert ("AS work_done" in script) == bool(query.result_us)


def test_people_and_auctions_come_in_proportion_and_at_least_one_a_second() -> None:
    assert [EventFeed(4600).rate(name) for name in ("bid", "auction", "person")] == [4600, 300, 100]
    assert [EventFeed(5).rate(name) for name in ("bid", "auction", "person")] == [5, 1, 1]


def test_feed_without_work_calls_no_function() -> None:
    assert "park(" not in event_tables(EventFeed(100)) and "compute(" not in event_tables(EventFeed(100))


def test_rate_is_the_slope_of_counts_that_come_by_the_second() -> None:
    counted = [(0.7 + 1.3 * i, 200.0 * int(0.7 + 1.3 * i)) for i in range(24)]
    assert slope(counted) == pytest.approx(200.0, rel=0.02)


def test_second_begins_where_the_longest_gap_ends() -> None:
    assert second_begins(np.array([5_990, 6_020, 7_100, 8_995, 9_400])) == 990
    assert second_begins(np.array([1_250])) == 250


def test_phases_of_a_budget_fit_it() -> None:
    timing = Timing.within(300.0)
    phases_s = 2 * timing.calm_s + 4 * timing.load_s + 6 * timing.warm_s + 6 * 8.0
    assert phases_s == pytest.approx(300.0)
    assert Timing.within(0.0).load_s >= 7.0


def test_busiest_operator_sets_the_factor_of_ds2_and_unknown_ones_do_not() -> None:
    assert busiest_factor([None, 0.25, 0.1]) == 4.0
    assert busiest_factor([None, 0.0]) is None


def test_errors_of_each_rule_are_against_the_measured_rate() -> None:
    assert ROW.saturated_per_s() == 1000.0
    assert ROW.error("capacity") == pytest.approx(0.09)
    assert ROW.error("ds2") == pytest.approx(0.2)
    assert ROW.error("autoscaler") == pytest.approx(-0.16)
    assert ROW.gain == pytest.approx(1.9)


def test_query_that_kept_up_with_everything_has_no_largest_rate() -> None:
    run = replace(RUN, phases={**RUN.phases, "saturated 1": replace(FULL, rate_per_s=3990.0)})
    row = replace(ROW, run=run)
    assert row.saturated_per_s() is None and row.error("ds2") is None
    assert "over 3990" in rate_table([row])


def test_busy_share_is_right_within_a_tenth_or_half_a_percent_of_a_thread() -> None:
    assert ROW.works == [True, True, False]  # the source does not tell its own


def test_latency_is_compared_only_where_the_load_was_sustained() -> None:
    assert ROW.latency(1, "mean") == (Interval(0.8, 0.7, 0.9), 0.5)
    behind = replace(RUN, phases={"load 1": replace(LIGHT, rate_per_s=90.0)})
    assert replace(ROW, run=behind).latency(1, "mean") is None


def test_latency_that_the_console_would_not_tell_is_unknown_and_counted_apart() -> None:
    row = replace(ROW, prediction=replace(SAID, latency_grounds="latency.plan_unread"))
    assert row.latency(1, "mean") == (None, 0.5)
    assert "| q1 | mean | unknown / 0.50 | - | - | - |" in latency_table([row])
    said = summary([row])
    assert "intervals that hold: 1 of 1\n" in said  # that of the rate
    assert "latencies that are said to be unknown: 2 of 2\n" in said
    assert "latencies that are said to be unknown: 0 of 2\n" in summary([ROW])


def test_gain_is_predicted_beside_the_measured_one() -> None:
    assert ROW.gain_error == pytest.approx(2.0 / 1.9 - 1.0)
    assert "| 2.00 (1.20-2.00) / 1.90 times |" in rate_table([ROW])
    assert "median error 5%, worst 5%, within 10 % in 1 of 1, in the interval in 1, unknown in 0" in summary([ROW])
    far = replace(ROW, prediction=replace(SAID, gain=Interval(1.0, 1.0, 1.0)))
    assert "median error of the gain is 47%, 10% were aimed at" in missed_targets([far])
    untold = replace(ROW, prediction=replace(SAID, gain=None))
    assert untold.gain_error is None and "| unknown / 1.90 times |" in rate_table([untold])
    assert "gain of twice the subtasks: unknown of 1" in summary([untold])


def test_missed_targets_name_the_query_and_the_figure() -> None:
    assert missed_targets([ROW]) == ["2 of 3 intervals hold, 85% were aimed at"]
    far = replace(ROW, prediction=replace(SAID, capacity=Interval(15.0, 14.0, 16.0), imported=JobShape(3, 1)))
    missed = missed_targets([far])
    assert "q1: the shape is not that of the plan" in missed
    assert "q1: the largest rate is off by 50%, 20% were aimed at" in missed
    assert "q1: DS2's rule is closer, 20% against 50%" in missed


def test_unknown_capacity_is_said_and_counted_as_missing() -> None:
    row = replace(ROW, prediction=replace(SAID, capacity=None, at_most=30.0))
    assert "at most 3000" in rate_table([row])
    assert "q1: its largest rate is not known" in missed_targets([row])
    assert "| capacity | 0 | | | | | 1 |" in summary([row])


def test_query_that_was_refused_says_why() -> None:
    row = ScoredQuery("q6", QueryRun("q6", "park", 100), None, "TableException: not supported")
    assert "| q6 | TableException: not supported |" in rate_table([row])
    assert missed_targets([row]) == ["q6: TableException: not supported"]
    assert row_json(row)["failure"] == "TableException: not supported"


def test_kept_run_is_read_as_it_was(tmp_path: Path) -> None:
    RUN.write(tmp_path / "q1-park.json.gz")
    assert QueryRun.read(tmp_path / "q1-park.json.gz") == RUN
    assert [path.name for path in tmp_path.iterdir()] == ["q1-park.json.gz"]


def test_unknown_query_is_named_with_those_that_are_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nexmark", "--queries", "q1", "q99"]) == 2
    assert "queries are q99; allowed: q0, q1" in capsys.readouterr().err


def test_score_without_a_folder_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nexmark", "--score"]) == 2
    assert "--score needs --keep" in capsys.readouterr().err
