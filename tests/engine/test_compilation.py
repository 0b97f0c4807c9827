"""The notice of compilation: shown while functions are compiled, silent when they are loaded, never in the answer."""

from __future__ import annotations

import fcntl
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from engine.compilation import CompileNotice, current_notice, show_compilation
from engine.compiler import compiled

ROOT = Path(__file__).resolve().parent.parent.parent
_KERNELS = """
from engine.compiler import compiled, inner

@inner
def double(x):
    return 2 * x

@compiled
def quadruple(x):
    return double(double(x))

@compiled
def unused(x):
    return x
"""
_MAIN = """
import sys
from engine.compilation import show_compilation
with show_compilation(sys.stderr):
    from kernels import quadruple
    print(quadruple(3))
"""


class _Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.process
def test_compiling_is_told_on_stderr_once_and_not_when_it_is_kept(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(_KERNELS)
    path = os.pathsep.join([str(ROOT), str(tmp_path)])
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": path}
    command = [sys.executable, "-c", _MAIN]
    first, second = (
        subprocess.run(command, env=env, capture_output=True, text=True, check=True, cwd=tmp_path) for _ in range(2)
    )
    assert (first.stdout, second.stdout) == ("12\n", "12\n")
    began, *_, ended = first.stderr.splitlines()
    assert began == "compiling the engine, 0 of at most 3 functions, 0 s; now kernels.quadruple"
    assert re.fullmatch(r"compiled 2 functions of the engine in \d+ s; kept for next time", ended)
    assert second.stderr == ""


@pytest.mark.process
def test_processes_that_need_a_function_at_once_compile_it_once(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(_KERNELS)
    path = os.pathsep.join([str(ROOT), str(tmp_path)])
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": path}
    command = [sys.executable, "-c", _MAIN]
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen(command, env=env, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True) for _ in range(3)
    ]
    answers = [process.communicate() for process in processes]
    assert [answer for answer, _ in answers] == ["12\n"] * 3
    compiled = [int(count) for _, said in answers for count in re.findall(r"compiled (\d+) functions?", said)]
    assert sum(compiled) == 2  # each of the two by whoever came first


def test_function_that_fails_to_compile_keeps_nobody_waiting() -> None:
    @compiled
    def fault(value: object) -> object:
        return value.nothing_of_that_name  # type: ignore[attr-defined]

    with pytest.raises(numba.TypingError):
        fault(1)
    (lock,) = Path(__file__).parent.glob("__pycache__/*.fault-*.lock")
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.process
def test_command_with_kept_functions_writes_its_answer_alone() -> None:
    command = [sys.executable, "-m", "engine", "estimate", "docs/examples/deployment.json"]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)  # compiles, where nobody has
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert again.stderr == ""
    assert "result" in json.loads(again.stdout)


def test_line_on_a_terminal_is_rewritten_and_gone_before_the_answer() -> None:
    screen = _Screen()
    notice = CompileNotice(screen)
    notice.begin("mace.delay", total=2)
    notice.begin("mace.excess", total=2)
    notice.end(compiled=True)
    notice.end(compiled=True)
    text = screen.getvalue()
    assert "compiling the engine, 0 of at most 2 functions, 0 s; now mace.excess" in text
    assert "\n" not in text
    assert text.endswith("\r\033[K")
    notice.close()
    assert screen.getvalue().endswith("kept for next time\n")


def test_function_that_fails_to_compile_is_not_counted() -> None:
    stream = io.StringIO()
    notice = CompileNotice(stream)
    notice.begin("mace.delay", total=1)
    notice.end(compiled=False)
    notice.close()
    assert "compiled" not in stream.getvalue()


def test_reader_that_went_away_does_not_end_the_command() -> None:
    stream = io.StringIO()
    notice = CompileNotice(stream)
    stream.close()
    notice.begin("mace.delay", total=1)
    notice.end(compiled=True)
    notice.close()


def test_nothing_is_shown_outside_the_command() -> None:
    stream = io.StringIO()
    with show_compilation(stream):
        assert current_notice() is not None
    assert current_notice() is None
    assert stream.getvalue() == ""
