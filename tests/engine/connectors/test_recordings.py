"""Conformance: what a real Flink answered is read without faults, and its calm run predicts the others."""

from __future__ import annotations

import json

import pytest

from engine.connectors.flink import next_paths, read_flink
from engine.connectors.flink_metrics import has_markers, read_markers
from engine.connectors.flink_polls import poll_flink
from tests.engine.connectors.recordings import (
    DATA,
    RUNS,
    answers_of,
    job_of,
    latencies_of,
    meta_of,
    picture_of,
    pool_of,
    predict,
    sample_of,
)

pytestmark = pytest.mark.skipif(not RUNS, reason="no recorded runs (SLUICE_CASES)")


@pytest.mark.parametrize(("calm", "run"), [("calm", "over"), ("calm", "twoburst"), ("overcpu", "overcpu")])
def test_a_calm_run_predicts_what_a_burst_was_measured_to_do(calm: str, run: str) -> None:
    if not {calm, run} <= set(RUNS):
        pytest.skip(f"runs {calm} and {run} are not there")
    pool, latencies = pool_of(calm), latencies_of(run)
    worst, mean = (predict(pool, meta_of(run)["arrivals"], statistic) for statistic in ("worst", "mean"))
    assert worst["estimate_s"] == pytest.approx(max(latencies), rel=0.05)
    assert mean["estimate_s"] == pytest.approx(sum(latencies) / len(latencies), rel=0.1)
    assert worst["low_s"] <= max(latencies) <= worst["high_s"]


def test_a_contended_run_is_recognised_and_a_parked_one_is_not() -> None:
    contended = {run: max(sample.contended_s for sample in sample_of(run).operators.values()) for run in RUNS}
    assert contended["overcpu"] > 60.0
    assert {run: seconds for run, seconds in contended.items() if run != "overcpu" and seconds > 0.0} == {}


def test_arrivals_are_those_that_the_source_was_given() -> None:
    counts = sample_of("over").arrivals[job_of("over").vertices[0].id]
    assert counts.events == pytest.approx(sum(meta_of("over")["arrivals"]), rel=0.02)
    assert max(count or 0.0 for count in counts.counts) == pytest.approx(max(meta_of("over")["arrivals"]), rel=0.15)


@pytest.mark.parametrize("folder", ["steady", "first_minute"])
def test_recorded_answers_are_read_without_a_fault(folder: str) -> None:
    picture = picture_of(folder)
    assert {job.name: len(job.vertices) for job in picture.jobs} == {
        "chain": 2,
        "windowed-counts": 2,
        "orders-payments": 3,
    }
    assert all(subtask.place for job in picture.jobs for vertex in job.vertices for subtask in vertex.subtasks)
    windowed = next(job for job in picture.jobs if job.name == "windowed-counts")
    expected = {"policy": "time", "type": "tumbling", "size": 5.0, "work_at": "close", "watermark_delay_s": 1.0}
    assert windowed.vertices[1].window == expected
    assert [vertex.kind for vertex in windowed.vertices] == ["source", "window"]


def test_the_same_job_has_the_same_shape_in_both_recordings() -> None:
    shapes = [{job.name: job.shape for job in picture_of(folder).jobs} for folder in ("steady", "first_minute")]
    assert shapes[0] == shapes[1]


def test_two_recordings_of_a_job_are_polls_of_two_attempts() -> None:
    answers = [answers_of(folder) for folder in ("steady", "first_minute")]
    jobs = [next(job for job in read_flink(a, 0.0).jobs if job.name == "chain") for a in answers]
    polls = [poll_flink(a, job.id, 0.0) for a, job in zip(answers, jobs, strict=True)]
    assert polls[0].attempt != polls[1].attempt
    assert polls[0].vertices[jobs[0].vertices[0].id].busy_s is None


def test_markers_of_a_real_flink_are_read() -> None:
    answers = answers_of("first_minute")
    chain = next(job for job in read_flink(answers, 0.0).jobs if job.name == "chain")
    assert has_markers(chain.settings)
    markers = read_markers(answers, chain.id)
    assert markers is not None and (markers.mean_s, markers.p99_s) == pytest.approx((0.0494, 0.1816), abs=1e-4)


def test_nothing_but_what_was_not_recorded_is_asked_for() -> None:
    missing = next_paths(answers_of("steady")).paths
    assert all("/metrics?get=Status.JVM.CPU" in path or "/checkpoints/details/" in path for path in missing)


def test_state_of_a_recorded_job_is_unknown_by_operator_and_told_in_all() -> None:
    pictures = [picture_of(folder) for folder in ("steady", "first_minute")]
    assert all(vertex.state_bytes is None for picture in pictures for job in picture.jobs for vertex in job.vertices)
    steady, first = ([str(f.message) for f in picture.findings if f.code == "state_unknown"] for picture in pictures)
    assert any("18.2" in message and "is not told by operator" in message for message in steady)
    assert all("No completed checkpoint" in message for message in first)
    assert pictures[0].jobs[0].vertices[0].state_on_disk is False
    assert [place.heap_bytes for place in pictures[1].places] == [256 * 2**20]
    assert [place.managed_bytes for place in pictures[1].places] == [64 * 2**20]


def test_a_file_source_that_counts_what_it_reads_is_read() -> None:

    answer = json.loads((DATA / "file_source.job.json").read_text())
    counters = poll_flink({f"/jobs/{answer['jid']}": answer}, answer["jid"], 0.0)
    job = read_flink({f"/jobs/{answer['jid']}": answer}, 0.0).jobs[0]
    assert counters.vertices[job.vertices[0].id].records_in == 297.0
    assert [vertex.kind for vertex in job.vertices] == ["source", "aggregate", "aggregate"]
