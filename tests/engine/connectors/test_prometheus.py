"""Range answers of Prometheus become polls, arrivals and latencies; gaps, NaN and errors are said."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from engine.connectors.answers import Answers
from engine.connectors.flink import read_flink
from engine.connectors.prometheus import (
    MAX_POINTS,
    MappedOperator,
    RangeWindow,
    flink_paths,
    mapped_paths,
    read_counts,
    read_flink_series,
    read_latency,
    read_mapped,
    read_range,
)
from engine.connectors.statistics import sample_job
from engine.errors import DocumentError
from tests.engine.connectors.flink_answers import JOB, cluster, vertex
from tests.engine.connectors.recordings import DATA

WINDOW = RangeWindow(1000.0, 1060.0, 5.0)
TIMES = [1000.0 + 5.0 * i for i in range(13)]


def matrix(*series: tuple[dict[str, str], list[tuple[float, Any]]], **more: Any) -> dict[str, Any]:
    rows = [{"metric": labels, "values": [[t, str(v)] for t, v in samples]} for labels, samples in series]
    return {"status": "success", "data": {"resultType": "matrix", "result": rows}} | more


def query_of(path: str) -> str:
    return parse_qs(urlsplit(path).query)["query"][0]


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
    for path in flink_paths(WINDOW).paths:
        query = query_of(path)
        metric = query.removeprefix("flink_taskmanager_job_task_")
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
            answers[path] = matrix(({"tm_id": "tm1", "host": "127_0_0_1"}, [(t, 1e8 * (t - 1000)) for t in TIMES]))
        elif query == "flink_taskmanager_Status_JVM_CPU_Load":
            answers[path] = matrix(({"tm_id": "tm1"}, [(t, 0.05) for t in TIMES]))
        else:
            answers[path] = matrix(({"instance": "127.0.0.1:9100"}, [(t, 0.95) for t in TIMES]))
    return answers


def job() -> Any:
    vertices = (
        vertex("v1", "Source: src"),
        vertex("v2", "enrich", "v1", parallelism=2),
        vertex("v3", "Sink: out", "v2"),
    )
    return read_flink(cluster(*vertices), 0.0).jobs[0]


def test_polls_of_series_give_the_statistics_of_polls_of_rest() -> None:
    reading = read_flink_series(flink_answers(), WINDOW)
    polls = reading.polls[JOB]
    assert len(polls) == 13 and polls[0].at_s == 1000.0
    assert polls[1].vertices["v2"].busy_s == pytest.approx(2.0)
    assert polls[1].vertices["v2"].records_in_by_subtask == (250.0, 250.0)
    sampled = sample_job(job(), polls, step_s=5.0)
    assert sampled.operators["v2"].cost_s == pytest.approx(0.004)
    assert sampled.operators["v2"].selectivity == pytest.approx(0.5)
    assert sampled.operators["v1"].bytes_per_event == pytest.approx(50.0)
    assert sampled.arrivals["v1"].counts == pytest.approx((500.0,) * 12)
    assert sampled.cpu_cores == {"tm1": pytest.approx(0.1)}


def test_a_host_watched_by_node_exporter_is_contended_by_its_own_account() -> None:
    sampled = sample_job(job(), read_flink_series(flink_answers(), WINDOW).polls[JOB])
    assert sampled.operators["v2"].contended_s == pytest.approx(60.0)


def test_a_restart_is_another_attempt() -> None:
    polls = read_flink_series(flink_answers(restart_at=1030.0), WINDOW).polls[JOB]
    assert len({poll.attempt for poll in polls}) == 2
    assert sample_job(job(), polls).operators["v2"].cost_s == pytest.approx(0.004)


def test_missing_steps_are_said_and_not_interpolated() -> None:
    reading = read_flink_series(flink_answers(drop=(1020.0, 1025.0)), WINDOW)
    assert len(reading.polls[JOB]) == 11
    assert "gaps" in {finding.code for finding in reading.findings}


def test_busy_time_of_nan_is_missing() -> None:
    reading = read_flink_series(flink_answers(busy=False), WINDOW)
    assert reading.polls[JOB][3].vertices["v1"].busy_s is None
    assert "values_unreadable" in {finding.code for finding in reading.findings}


def test_only_wanted_jobs_are_asked_for() -> None:
    assert all(f'job_id=~"{JOB}"' in query_of(path) for path in flink_paths(WINDOW, [JOB]).paths[:6])


def test_a_stretch_of_too_many_points_has_a_larger_step() -> None:
    window = RangeWindow.of(0.0, 86_400.0, 1.0)
    assert window.step_s == 10.0
    assert 86_400.0 / window.step_s + 1 <= MAX_POINTS


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"status": "error", "errorType": "bad_data", "error": "1:9: parse error"}, r"bad_data: 1:9: parse error"),
        ("<html>", "no JSON of Prometheus"),
        ({"jobs": []}, "no JSON of Prometheus"),
        ({"status": "success", "data": {"resultType": "scalar", "result": [1, "2"]}}, "allowed: matrix or vector"),
        (
            {"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}, "histograms": []}]}},
            "native histogram",
        ),
    ],
)
def test_what_is_no_range_of_numbers_is_refused_in_clear_words(answer: Any, words: str) -> None:
    answers = flink_answers()
    answers[next(iter(answers))] = answer
    with pytest.raises(DocumentError, match=words):
        read_flink_series(answers, WINDOW)


def test_no_answer_at_all_is_refused_and_none_of_flink_is_said() -> None:
    with pytest.raises(DocumentError, match="no answer to a query"):
        read_flink_series({}, WINDOW)
    empty = {path: matrix() for path in flink_paths(WINDOW).paths}
    assert {f.code for f in read_flink_series(empty, WINDOW).findings} == {"metrics_missing"}


def test_warnings_of_the_server_are_shown() -> None:
    answers = flink_answers()
    path = next(iter(answers))
    answers[path] |= {"warnings": ["exceeded sample limit"]}
    findings = read_flink_series(answers, WINDOW).findings
    assert any("exceeded sample limit" in finding.message for finding in findings)


def test_an_engine_that_is_neither_is_mapped_by_rates_and_costs() -> None:
    operators = [
        MappedOperator("work", 'rate(x_total{stage="a b"}[1m])', reads=("in",), cost="cost", outputs="out", place="w1"),
        MappedOperator("in", "rate(in_total[1m])"),
    ]
    values = {operators[0].rate: 20.0, "cost": 0.01, "out": 5.0, operators[1].rate: 20.0}
    paths = mapped_paths(operators, WINDOW).paths
    answers = {path: matrix(({}, [(t, values[query_of(path)]) for t in TIMES])) for path in paths}
    picture, polls = read_mapped("shop", operators, answers, WINDOW)
    assert [v.id for v in picture.jobs[0].vertices] == ["in", "work"]
    sampled = sample_job(picture.jobs[0], polls, step_s=5.0)
    assert sampled.operators["work"].cost_s == pytest.approx(0.01)
    assert sampled.operators["work"].selectivity == pytest.approx(1.0)  # nobody reads it
    assert sampled.operators["in"].cost_s is None
    assert sampled.arrivals["in"].counts == pytest.approx((100.0,) * 12)


def test_a_mapped_step_without_a_rate_breaks_the_polls_in_two() -> None:
    operators = [MappedOperator("in", "r", cost="c")]
    answers = {
        path: matrix(({}, [(t, 0.01 if query_of(path) == "c" else 20.0) for t in TIMES if t != 1030.0]))
        for path in mapped_paths(operators, WINDOW).paths
    }
    picture, polls = read_mapped("shop", operators, answers, WINDOW)
    assert len({poll.attempt for poll in polls}) == 2
    assert sample_job(picture.jobs[0], polls).operators["in"].cost_s == pytest.approx(0.01)


def test_a_mapping_that_reads_what_is_not_there_is_refused() -> None:
    with pytest.raises(DocumentError, match="reads 'x'"):
        read_mapped("shop", [MappedOperator("a", "r", reads=("x",))], {}, WINDOW)


def test_offsets_of_a_topic_are_arrivals_whatever_the_job_does() -> None:
    path = WINDOW.path("kafka_topic_partition_current_offset")
    first = ({"partition": "0"}, [(t, 10.0 * (t - 1000)) for t in TIMES])
    recreated = ({"partition": "1"}, [(t, 500.0 if t < 1030 else t - 1030) for t in TIMES])
    counts, findings = read_counts({path: matrix(first, recreated)}, path, "v1", step_s=5.0)
    assert counts is not None and counts.origin == "offsets" and findings == ()
    assert counts.counts[:3] == pytest.approx((50.0,) * 3)
    assert counts.counts[-1] == pytest.approx(55.0)


def test_a_users_query_is_the_latency_measured_of_each_stretch() -> None:
    path = WINDOW.path("histogram_quantile(0.99, sum by (le) (rate(latency_bucket[1m])))")
    samples = [(t, "+Inf" if t == 1010.0 else 0.5 * (1 + (t >= 1030))) for t in TIMES]
    latencies, findings = read_latency({path: matrix(({}, samples))}, path, stretch_s=30.0)
    assert [(one.mean_s, one.largest_s, one.samples) for one in latencies] == [
        (0.5, 0.5, 3),
        (pytest.approx(5 / 6), 1.0, 6),
        (1.0, 1.0, 3),
    ]
    assert {finding.code for finding in findings} == {"values_unreadable"}
    with pytest.raises(DocumentError, match="not asked"):
        read_latency({}, path, stretch_s=30.0)


RECORDED = sorted((DATA / "prometheus").glob("*.json"))


@pytest.mark.skipif(not RECORDED, reason="no recorded answers (SLUICE_CASES)")
@pytest.mark.parametrize(
    "file", [f for f in RECORDED if f.stem.split("_")[0] in ("range", "instant", "error")], ids=lambda f: f.stem
)
def test_recorded_answers_are_read_or_refused_in_prometheus_words(file: Any) -> None:
    known = Answers({"/q": json.loads(file.read_text())}, "set of Prometheus answers")
    answer = read_range(known, "/q", "busy")
    if file.stem.startswith("error"):
        with pytest.raises(DocumentError, match="Prometheus refused the query"):
            known.check()
        return
    known.check()
    assert answer is not None
    if file.stem in ("range_nan", "instant_inf", "instant_div0"):
        assert any(series.unreadable for series in answer.series)
    elif file.stem.startswith("range"):
        assert any(series.samples for series in answer.series)


@pytest.mark.skipif(not RECORDED, reason="no recorded answers (SLUICE_CASES)")
def test_every_metric_that_is_asked_for_is_in_a_recorded_exposition() -> None:
    exposition = "".join(file.read_text() for file in sorted((DATA / "prometheus").glob("exposition_*.txt")))
    names = {line.split("{")[0] for line in exposition.splitlines() if not line.startswith("#")}
    asked = {query_of(path) for path in flink_paths(WINDOW).paths}
    assert {query for query in asked if query.startswith("flink_")} <= names
