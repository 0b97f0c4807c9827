"""Flink's counters in Prometheus become the polls that its own answers give; gaps and restarts are said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.connectors.flink import read_flink
from engine.connectors.flink_polls import FlinkSeries, continue_attempt, flink_series_paths, read_flink_series
from engine.connectors.picture import Place
from engine.connectors.statistics import sample_job
from engine.errors import DocumentError
from tests.engine.connectors.flink_answers import JOB, cluster, vertex
from tests.engine.connectors.recordings import DATA
from tests.engine.connectors.test_prometheus import TIMES, WINDOW, matrix, query_of

PLACES, MANGLED = [Place("127.0.0.1:41-tm", "tm", 2.0, 2)], "127_0_0_1:41_tm"


FLINK_JOB = read_flink(
    cluster(
        vertex("v1", "Source: src"),
        vertex("v2", "enrich", "v1", parallelism=2),
        vertex("v3", "Sink: out", "v2"),
        place="127.0.0.1:41-tm",
    ),
    0.0,
).jobs[0]


def read(answers: dict[str, Any]) -> FlinkSeries:
    return read_flink_series(answers, WINDOW, FLINK_JOB, PLACES)


def labels(task: str, subtask: str = "0", attempt: str = "0") -> dict[str, str]:
    """Labels of Flink's reporter: names are mangled, ids are not."""
    names = {"job_name": "windowed_counts", "task_name": "Source:_src_1_____Calc_2_", "host": "127_0_0_1"}
    return names | {"job_id": JOB, "task_id": task, "subtask_index": subtask, "task_attempt_id": f"{task}_{attempt}"}


def flink_answers(*, drop: tuple[float, ...] = (), restart_at: float = 1e12, busy: bool = True) -> dict[str, Any]:
    """100 events/s through a source and an operator of two subtasks with 4 ms an event."""
    per_s = {
        "numRecordsIn": {"v1": 0.0, "v2": 100.0},
        "numRecordsOut": {"v1": 100.0, "v2": 50.0},
        "numBytesOut": {"v1": 5000.0, "v2": 100.0},
        "accumulateBusyTimeMs": {"v1": 10.0, "v2": 400.0},
        "accumulateIdleTimeMs": {"v1": 990.0, "v2": 1600.0},
        "accumulateBackPressuredTimeMs": {"v1": 0.0, "v2": 0.0},
    }
    answers: dict[str, Any] = {}
    for path in flink_series_paths(WINDOW, FLINK_JOB).paths:
        query = query_of(path)
        metric = query.removeprefix("flink_taskmanager_job_task_").partition("{")[0]
        if metric in per_s:
            rows = []
            for task, parts in (("v1", 1), ("v2", 2)):
                for subtask in range(parts):
                    for attempt, since in (("0", 1000.0), ("1", restart_at)):
                        times = [t for t in TIMES if (t >= restart_at) == (attempt == "1") and t not in drop]
                        value = per_s[metric][task] / parts
                        hidden = metric == "accumulateBusyTimeMs" and task == "v1" and not busy
                        points = [(t, "NaN" if hidden else value * (t - min(since, t))) for t in times]
                        rows.append((labels(task, str(subtask), attempt), points))
            answers[path] = matrix(*rows)
        elif query == "flink_taskmanager_Status_JVM_CPU_Time":
            answers[path] = matrix(({"tm_id": MANGLED}, [(t, 1e8 * (t - 1000)) for t in TIMES]))
        elif query == "flink_taskmanager_Status_JVM_CPU_Load":
            answers[path] = matrix(({"tm_id": MANGLED}, [(t, 0.05) for t in TIMES]))
        else:
            answers[path] = matrix(({"instance": "127.0.0.1:9100"}, [(t, 0.95) for t in TIMES]))
    return answers


def test_polls_of_series_give_the_statistics_of_polls_of_rest() -> None:
    reading = read(flink_answers())
    polls = reading.polls
    assert len(polls) == 13 and polls[0].at_s == 1000.0
    assert polls[1].vertices["v2"].busy_s == pytest.approx(2.0)
    assert polls[1].vertices["v2"].records_in_by_subtask == (250.0, 250.0)
    sampled = sample_job(FLINK_JOB, polls, step_s=5.0)
    assert sampled.operators["v2"].cost_s == pytest.approx(0.004)
    assert sampled.operators["v2"].selectivity == pytest.approx(0.5)
    assert sampled.operators["v1"].bytes_per_event == pytest.approx(50.0)
    assert sampled.arrivals["v1"].counts == pytest.approx((500.0,) * 12)
    assert sampled.cpu_cores == {PLACES[0].id: pytest.approx(0.1)}


def test_a_host_watched_by_node_exporter_is_contended_by_its_own_account() -> None:
    sampled = sample_job(FLINK_JOB, read(flink_answers()).polls)
    assert sampled.operators["v2"].contended_s == pytest.approx(60.0)


def test_a_restart_is_another_attempt() -> None:
    polls = read(flink_answers(restart_at=1030.0)).polls
    assert len({poll.attempt for poll in polls}) == 2
    assert sample_job(FLINK_JOB, polls).operators["v2"].cost_s == pytest.approx(0.004)


def test_a_poll_of_flink_goes_on_where_prometheus_ended_unless_counters_fell() -> None:
    polls = read(flink_answers()).polls
    stale = replace(polls[-2], at_s=1065.0, attempt="of flink")  # its counters are those of ten seconds before
    before = continue_attempt(polls, stale)
    assert [poll.at_s for poll in before] == [poll.at_s for poll in polls[:-1]]
    assert {poll.attempt for poll in before} == {"of flink"}
    restarted = replace(polls[0], at_s=1130.0, attempt="of flink")
    assert continue_attempt(polls, restarted) == polls


def test_missing_steps_are_said_and_not_interpolated() -> None:
    reading = read(flink_answers(drop=(1020.0, 1025.0)))
    assert len(reading.polls) == 11
    assert "gaps" in {finding.code for finding in reading.findings}


def test_busy_time_of_nan_is_missing() -> None:
    reading = read(flink_answers(busy=False))
    assert reading.polls[3].vertices["v1"].busy_s is None and reading.findings == ()


def test_no_answer_at_all_is_refused_and_a_counter_without_series_is_said() -> None:
    with pytest.raises(DocumentError, match="no answer to a query"):
        read({})
    nothing = read({path: matrix() for path in flink_series_paths(WINDOW, FLINK_JOB).paths})
    assert (nothing.polls, nothing.findings) == ((), ())
    partly = {path: matrix() if "BusyTime" in path else answer for path, answer in flink_answers().items()}
    assert {finding.code for finding in read(partly).findings} == {"metrics_missing"}


RECORDED = sorted((DATA / "prometheus").glob("exposition_*.txt"))


@pytest.mark.skipif(not RECORDED, reason="no recorded answers (SLUICE_CASES)")
def test_every_metric_that_is_asked_for_is_in_a_recorded_exposition() -> None:
    exposition = "".join(file.read_text() for file in sorted((DATA / "prometheus").glob("exposition_*.txt")))
    names = {line.split("{")[0] for line in exposition.splitlines() if not line.startswith("#")}
    asked = {query_of(path).partition("{")[0] for path in flink_series_paths(WINDOW, FLINK_JOB).paths}
    assert {query for query in asked if query.startswith("flink_")} <= names
