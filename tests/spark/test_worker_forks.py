"""Spark's Python processes as forks of one that has imported what they need."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from launcher.places import ROOT
from spark_jobs.worker_forks import SOCKET, forking
from tests.servers import PATIENCE_S, wait_until

pytestmark = pytest.mark.process

TOLD = """
import os, sys
sys.stdout.write("|".join([" ".join(sys.argv[1:]), os.environ["GREETING"], os.getcwd(), sys.stdin.read()]))
sys.stderr.write(str("pyspark.worker" in sys.modules))
sys.exit(7)
"""


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("forks")
    (folder / "told.py").write_text(TOLD)
    (folder / "sleeps.py").write_text("import time\ntime.sleep(600)\n")
    path = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])}
    with forking(folder, sys.executable, os.environ | path) as found:
        yield os.environ | path | found | {"SPARK_WORKER_INTERPRETER": sys.executable, "GREETING": "hello"}


def started(variables: dict[str, str], folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [str(ROOT / "spark_jobs" / "worker_python"), *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=variables, cwd=folder)


def forks() -> list[psutil.Process]:
    server = [each for each in psutil.Process().children() if "spark_jobs.worker_forks" in each.cmdline()]
    return [fork for each in server for fork in each.children(recursive=True)]


def test_fork_has_the_arguments_files_folder_variables_and_exit_code_of_the_process(
    variables: dict[str, str], tmp_path: Path
) -> None:
    process = started(variables, tmp_path, "-m", "told", "a", "b")
    said, imported = process.communicate("typed", timeout=PATIENCE_S)
    assert (said, imported, process.returncode) == (f"a b|hello|{tmp_path}|typed", "True", 7)


def test_fork_ends_with_the_process_that_spark_knows(variables: dict[str, str], tmp_path: Path) -> None:
    process = started(variables, tmp_path, "-m", "sleeps")
    wait_until(lambda: bool(forks()), what="a fork")
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=PATIENCE_S)
    wait_until(lambda: not forks(), what="the end of the fork")


def test_interpreter_starts_by_itself_where_nobody_forks(variables: dict[str, str], tmp_path: Path) -> None:
    gone = variables | {SOCKET: str(tmp_path / "nobody")}
    said, imported = started(gone, tmp_path, "-m", "told", "a").communicate("", timeout=PATIENCE_S)
    assert (said.split("|")[0], imported) == ("a", "False")


def test_all_forks_end_with_the_process_that_forks(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text("import time\ntime.sleep(600)\n")
    path = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    with forking(tmp_path, sys.executable, os.environ | path) as found:
        given = os.environ | path | found | {"SPARK_WORKER_INTERPRETER": sys.executable}
        process = started(given, tmp_path, "-m", "sleeps")
        wait_until(lambda: bool(forks()), what="a fork")
        found_forks = forks()
    process.communicate(timeout=PATIENCE_S)
    until = time.monotonic() + PATIENCE_S
    assert psutil.wait_procs(found_forks, timeout=max(0.0, until - time.monotonic()))[1] == []
