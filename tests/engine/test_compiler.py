"""Compiled functions whose machine code is kept on disk."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

_GONE = b"cno.such.module\nname\n."  # a pickle of something whose module is gone
_CALL = "from work import twice; print(twice(21))"
_WORK = """
from engine.compiler import compiled
from helper import one

@compiled
def twice(x):
    return one(x) * 2
"""
_HELPER = """
from engine.compiler import compiled

@compiled
def one(x):
    return x
"""


def call(folder: Path) -> str:
    root = Path(__file__).resolve().parents[2]
    env = {"PYTHONPATH": f"{folder}:{root}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", _CALL], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or done.stderr


@pytest.mark.process
def test_machine_code_that_names_a_module_which_moved_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text(_HELPER)
    work = tmp_path / "work.py"
    work.write_text(_WORK)
    assert call(tmp_path) == "42"
    (index,) = (tmp_path / "__pycache__").glob("work.twice-*.nbi")
    version = pickle.loads(index.read_bytes())
    index.write_bytes(pickle.dumps(version) + _GONE)
    assert call(tmp_path) == "42"
    (data,) = (tmp_path / "__pycache__").glob("work.twice-*.nbc")
    data.write_bytes(_GONE)
    assert call(tmp_path) == "42"
