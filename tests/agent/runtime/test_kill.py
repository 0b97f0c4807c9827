"""A real process under kill -9."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent.wire import WireError, decode_frames
from engine.dataflow.arrow.kernels import whole
from tests.agent.reference import ReferenceProcessor, rows_of
from tests.agent.runtime.pipelines import probe_records, probes_pipeline
from tests.servers import PATIENCE_S

pytestmark = pytest.mark.process

ROWS = 6_000
KILLS = 3


def test_counts_are_exact_after_kill_9(tmp_path):
    draw, pipeline = random.Random(7), probes_pipeline()
    root = Path(__file__).parents[3]
    files = [tmp_path / f"sent-{number}" for number in range(KILLS + 1)]
    for number, file in enumerate(files):
        module = "tests.agent.runtime.killed_process"
        command = [sys.executable, "-m", module, tmp_path / "spool", file, str(ROWS)]
        command += ["endless"] * (number < KILLS) + ["broke"] * (number == 1)
        with subprocess.Popen([*map(str, command)], cwd=root) as process:
            if number < KILLS:
                _wait_for(file, process)
                try:
                    process.wait(draw.uniform(0.05, 0.5))
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGKILL)
                assert process.wait() == -signal.SIGKILL
            else:
                assert process.wait(PATIENCE_S) == 0
    reference = ReferenceProcessor((pipeline,))
    for file in files:
        for piece in _whole_frames(file.read_bytes()):
            reference.take(piece)
    assert reference.total("records_in", entry=0) == ROWS
    assert reference.total("records_queued") > 0, "something waited where the process was killed"
    assert rows_of(reference.result("here/probes", pipeline)) == rows_of(whole(pipeline, probe_records(pipeline, ROWS)))


def _wait_for(file: Path, process: subprocess.Popen[bytes]) -> None:
    """Until the process has sent something."""
    while process.poll() is None and not (file.exists() and file.stat().st_size):
        try:
            process.wait(0.01)
        except subprocess.TimeoutExpired:
            continue


def _whole_frames(data: bytes):
    """The last frame of a killed process may be cut off; the next one sends it again."""
    frames = decode_frames(data)
    while True:
        try:
            _, piece = next(frames)
        except (StopIteration, WireError):
            return
        yield bytes(piece)
