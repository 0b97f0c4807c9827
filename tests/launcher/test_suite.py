"""Runs of the suite in a fresh copy of its plug-ins: nothing is compiled or rewritten yet, as in a new clone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from launcher import suite
from launcher.moments import MOMENTS
from tests.launcher.fake_services import ROOT

FAILING = '''
import ast
import gc
import threading
import time
import traceback

import pytest

SOURCE = "def f(x):\\n    return [x + 1, (x * 2 if x else {x: y for y in x})]\\n" * 100


class Held:
    """Lets other threads run whenever the collector of garbage finds one."""

    def __init__(self):
        self.me = self

    def __del__(self):
        time.sleep(0.0001)


def read_source(ended):
    while not ended.is_set():
        Held()
        ast.parse(SOURCE)
        try:
            raise ValueError("for a log")
        except ValueError:
            assert "for a log" in traceback.format_exc()


@pytest.fixture(scope="module", autouse=True)
def threads():
    ended = threading.Event()
    readers = [threading.Thread(target=read_source, args=(ended,)) for _ in range(2)]
    before = gc.get_threshold()
    gc.set_threshold(50)
    for reader in readers:
        reader.start()
    yield
    ended.set()
    for reader in readers:
        reader.join()
    gc.set_threshold(*before)


@pytest.mark.parametrize("number", range(15))
def test_fails(number):
    Held()
    assert [number, {"a": number}] == [number + 1, {"a": number}]


def test_passes():
    pass
'''
HOOKS = """
import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        raise SystemError("AST constructor recursion depth mismatch (before=102, after=37)")
    return report
"""
CLOCKED = """
import os
import time
from datetime import date


def test_day_and_zone():
    assert date.today() == date(2027, 10, 31)
    assert time.strftime("%Y-%m-%dT%H:%M%z") in ("2027-10-31T02:30+0100", "2027-10-31T02:31+0100")
    assert os.environ["TZ"] == "Europe/Berlin"


def test_clock_ticks_and_timers_do_not_jump():
    before, timer = time.time(), time.monotonic()
    time.sleep(0.01)
    assert time.time() - before >= 0.01
    assert 0.01 <= time.monotonic() - timer < 3600
"""
REAL = """
import os
import time

import pytest


@pytest.mark.process
def test_starts_a_process():
    assert abs(time.time() - os.stat(__file__).st_mtime) < 3600


def test_beside_it():
    assert abs(time.time() - os.stat(__file__).st_mtime) < 3600
"""
NUMBERED = """
import pytest


@pytest.mark.parametrize("number", range(30))
def test_numbered(number):
    print(f"<{number}>")
"""

_LIGHT = ("-p", "no:django", "-p", "no:schemathesis")  # what these runs do not need takes seconds to import


@dataclass
class Clone:
    """Plug-ins and launcher of this repository, without anything that a run leaves behind."""

    folder: Path

    def write(self, name: str, text: str) -> None:
        (self.folder / "tests" / name).write_text(text)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-m", "pytest", *_LIGHT, *arguments]
        foreign = ("PYTEST_", "SLUICE_TEST_", "PYTHONDONTWRITEBYTECODE")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        env = kept | {"PYTHONPATH": str(self.folder), "SLUICE_VAR_DIR": str(self.folder / "var")}
        return subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Clone]:
    folder = tmp_path / "clone"
    (folder / "tests").mkdir(parents=True)
    for path in [*(ROOT / "tests").glob("*.py"), *(ROOT / "tests").glob("*.txt")]:
        if not path.name.startswith("test_"):
            shutil.copy(path, folder / "tests")
    shutil.copytree(ROOT / "launcher", folder / "launcher", ignore=shutil.ignore_patterns("__pycache__"))
    settings = (ROOT / "pyproject.toml").read_text()
    (folder / "pyproject.toml").write_text(re.sub(r"^DJANGO_SETTINGS_MODULE.*\n", "", settings, flags=re.MULTILINE))
    yield Clone(folder)
    shutil.rmtree(folder)


def counts(output: str) -> dict[str, int]:
    """Outcomes by their number, from pytest's last line."""
    return {
        outcome: int(number) for number, outcome in re.findall(r"(\d+) (failed|passed|error)", output.splitlines()[-1])
    }


@pytest.mark.night
def test_failures_of_a_first_run_are_explained_while_other_threads_read_source(clone: Clone) -> None:
    clone.write("test_failing.py", FAILING)
    done = clone.run("-q", "tests/test_failing.py")
    assert counts(done.stdout) == {"failed": 15, "passed": 1}, done.stdout + done.stderr
    assert "INTERNALERROR" not in done.stdout + done.stderr
    assert "could not be explained" not in done.stdout
    assert done.stdout.count(">       assert [number, {") == 15, done.stdout
    assert (clone.folder / "tests" / "__pycache__").exists(), "it was a first run, which compiles and rewrites"


def test_failure_that_cannot_be_explained_does_not_end_the_run(clone: Clone) -> None:
    clone.write("test_failing.py", "def test_one():\n    assert 1 == 2\n\n\ndef test_two():\n    pass\n")
    clone.write("hooks.py", HOOKS)
    done = clone.run("-q", "-p", "tests.hooks", "tests/test_failing.py")
    assert counts(done.stdout) == {"failed": 1, "passed": 1}, done.stdout + done.stderr
    assert "assert 1 == 2" in done.stdout
    assert "It could not be explained: " in done.stdout and "SystemError: AST constructor" in done.stdout


def test_shift_sets_the_clock_and_zone_of_tests_without_processes(clone: Clone) -> None:
    clone.write("test_clocked.py", CLOCKED)
    clone.write("test_real.py", REAL)
    clone.write("test_failing.py", "def test_fails():\n    assert False\n")
    moment = "2027-10-31T02:30:00+01:00[Europe/Berlin]"
    done = clone.run("--shift", moment, "-p", "randomly", "--randomly-seed", "7", "tests")
    assert counts(done.stdout) == {"failed": 1, "passed": 4}, done.stdout + done.stderr
    assert f"clock: {moment}" in done.stdout
    again = f"./sluice test --shift '{moment}' -p randomly --randomly-seed 7 tests/test_failing.py"
    assert f"again: {again}" in done.stdout, done.stdout


def test_laboratory_runs_where_it_is_asked_for_alone(clone: Clone) -> None:
    clone.write("test_product.py", "def test_product():\n    pass\n")
    (clone.folder / "tests" / "lab").mkdir()
    clone.write("lab/test_benchmark.py", "def test_one():\n    pass\n\n\ndef test_two():\n    pass\n")
    ran = {
        arguments: counts(clone.run("-q", *arguments).stdout)["passed"]
        for arguments in (
            (),
            ("tests",),
            ("--quick",),
            ("--lab",),
            ("--with-lab", "-n", "1"),
            ("tests/lab",),
            ("--lab", "tests/lab/test_benchmark.py::test_one"),
            ("tests/test_product.py", "tests/lab/test_benchmark.py"),
        )
    }
    assert list(ran.values()) == [1, 1, 1, 2, 3, 2, 1, 3], ran


def test_unknown_moment_is_refused_with_what_is_allowed(clone: Clone) -> None:
    done = clone.run("--shift", "easter", "tests")
    assert (done.returncode, "'easter': allowed are tomorrow, " in done.stderr) == (4, True), done.stderr


def test_order_is_random_by_its_seed_alone(clone: Clone) -> None:
    clone.write("test_numbered.py", NUMBERED)

    def order(*options: str) -> list[str]:
        return re.findall(r"<(\d+)>", clone.run("-s", *options, "tests/test_numbered.py").stdout)

    first, plain = order("-p", "randomly", "--randomly-seed", "7"), list(map(str, range(30)))
    assert sorted(first, key=int) == plain != first
    assert order("-p", "randomly", "--randomly-seed", "7") == first


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Arguments that pytest was called with."""
    called: list[list[str]] = []
    monkeypatch.setattr(suite, "_pytest", lambda arguments, env: called.append(arguments) or len(called) == 3)
    monkeypatch.setattr(suite, "find_postgres", lambda: None)
    return called


def test_calendar_runs_the_quick_tier_under_each_moment(
    runs: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert suite.run_tests(["--calendar", "-n", "1", "-x"]) == 1
    assert len(runs) == len(MOMENTS)
    shifts = {run[run.index("--shift") + 1] for run in runs}
    assert len(shifts) == len(MOMENTS)
    assert all("--quick" in run and run[-3:] == ["-n", "1", "-x"] and "randomly" in run for run in runs)
    assert "--calendar" not in {argument for run in runs for argument in run}
    (failure,) = [line for line in capsys.readouterr().err.splitlines() if "failed" in line]
    assert failure.startswith("sluice: leap-day failed. Again: ./sluice test --quick --shift 2028-02-29T12:00:00+00:00")


def test_calendar_runs_chosen_moments_alone(runs: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert suite.run_tests(["--calendar=leap-day,2027-05-01"]) == 0
    assert [run[run.index("--shift") + 1] for run in runs] == ["2028-02-29T12:00:00+00:00", "2027-05-01T00:00:00+00:00"]
    assert suite.run_tests(["--calendar=easter"]) == 4
    assert "'easter': allowed are tomorrow, " in capsys.readouterr().err
    assert len(runs) == 2


def test_laboratory_needs_no_postgres(
    runs: list[list[str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "_start_postgres", lambda console: pytest.fail("started"))
    assert suite.run_tests(["--lab"]) == 0
    assert "--lab" in runs[0] and "NOT INSTALLED" not in capsys.readouterr().err


def test_drawn_shift_is_printed_and_handed_on_as_a_moment(
    runs: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    suite.run_tests(["--shift", "drawn", "tests/engine"])
    (run,) = runs
    moment = run[run.index("--shift") + 1]
    name = re.search(r"clock drawn: (\S+)\. Again: ./sluice test --shift ", capsys.readouterr().err)
    assert name is not None and name[1] in MOMENTS
    assert re.match(r"20\d\d-\d\d-\d\dT", moment)
