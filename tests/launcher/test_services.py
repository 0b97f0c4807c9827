"""Commands of services."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from launcher.children import spawn
from launcher.services import background

AUTOGROUP = Path("/proc/self/autogroup")


@pytest.mark.process
@pytest.mark.skipif(not AUTOGROUP.exists(), reason="Linux with sessions that share the machine")
def test_background_worker_gives_way_as_a_session_and_as_a_process() -> None:
    script, program = background({}).command[:3], ["sh", "-c", "cat /proc/self/autogroup; nice"]
    process = spawn([*script, *program], output=subprocess.PIPE)
    said, _ = process.communicate(timeout=30.0)
    group, nice = said.decode().split("\n")[:2]
    assert group.endswith(" nice 19")
    assert int(nice) == min(19, os.nice(0) + 19)
