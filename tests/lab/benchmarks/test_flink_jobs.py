"""Jobs of other kinds and their table; their runs need a Flink (`tests/e2e/test_flink.py` plans the jobs)."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.__main__ import main
from lab.benchmarks.flink_jobs.command import ScoredJob
from lab.benchmarks.flink_jobs.jobs import JOBS
from lab.benchmarks.nexmark.runs import LoadPhase, QueryRun
from lab.benchmarks.nexmark.table import missed_targets


def test_arguments_have_the_schedule_of_every_source_under_the_load() -> None:
    arguments = JOBS["broadcast"].arguments(5, 2, work="compute", out=Path("/out"), start_s=12.5, seconds=3)
    assert {"kind=broadcast", "work=cpu", "start=12500", "parallelism=2"} <= set(arguments)
    assert "arrivals=125,125,125" in arguments and "arrivals2=10,10,10" in arguments
    assert not any(argument.startswith("arrivals3=") for argument in arguments)


def test_job_that_was_driven_and_not_predicted_misses_its_target() -> None:
    phase = LoadPhase(40, 1, 1000, 400.0, [], 0, None, 0.3)
    row = ScoredJob("timers", QueryRun("timers", "park", 25, {"saturated 1": phase}), None, "not imported: a fault")
    assert row.statistics == ("q0.99", "mean") and row.saturated_per_s() == 400.0
    assert missed_targets([row]) == ["timers: not imported: a fault", "timers: its largest rate is not known"]


def test_all_faults_of_the_command_are_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flink-jobs", "--jobs", "union", "iteration", "--score", "--rest", "http://127.0.0.1:1"]) == 2
    told = capsys.readouterr().err
    assert "--jobs has 'iteration'; allowed: side-outputs, async, union" in told
    assert "--score needs --keep" in told and "--rest and --gateway belong together" in told
