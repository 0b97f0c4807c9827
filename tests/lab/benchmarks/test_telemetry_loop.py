"""CPU time of a family of processes whose members come and go."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lab.benchmarks.telemetry_loop import family_cpu_ns

pytestmark = pytest.mark.process

BUSY_S = 0.3
WORKER = f"""
import time
while time.process_time() < {BUSY_S}:
    pass
print(flush=True)
input()
"""


def test_cpu_time_of_an_ended_worker_stays_counted() -> None:
    before_ns = family_cpu_ns()
    with subprocess.Popen([sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        busy_ns = family_cpu_ns()
        assert busy_ns - before_ns >= (BUSY_S - 0.05) * 1e9
        worker.communicate(b"\n")
    assert family_cpu_ns() >= busy_ns
