"""`up` as a whole, with the real processes, and the commands that pass everything through."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from launcher.places import free_port
from tests.databases import copy_sqlite_template
from tests.launcher.fake_services import ROOT
from tests.servers import PATIENCE_S, wait_until


def _environment(var_dir: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in {"REDIS_URL", "DATABASE_URL"}}
    return kept | {"SLUICE_VAR_DIR": str(var_dir), "SLUICE_LOG_LEVEL": "INFO"} | more


def _launcher(*arguments: str, var_dir: Path, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "launcher", *arguments]
    env = _environment(var_dir, PYTHONPATH=str(ROOT), **more)
    return subprocess.run(
        command, cwd=var_dir, env=env, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )


class Up:
    """A running `up --empty` whose output goes to a file."""

    def __init__(self, var_dir: Path) -> None:
        self.var_dir, self.port = var_dir, free_port()
        self._output = var_dir / "screen"
        copy_sqlite_template(var_dir / "sluice.sqlite3")
        with self._output.open("wb") as screen:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "launcher", "up", "--empty", "--no-live", "--port", str(self.port)],
                cwd=ROOT,
                env=_environment(var_dir),
                stdout=screen,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def screen(self) -> str:
        return self._output.read_text()

    def wait_ready(self) -> None:
        wait_until(lambda: "ready in" in self.screen or self.process.poll() is not None, timeout_s=3600, what="ready")
        assert self.process.poll() is None, self.screen

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Callable[[], Up]]:
    started: list[Up] = []

    def start() -> Up:
        started.append(Up(tmp_path))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.terminate()
            each.process.wait(PATIENCE_S)


def _health(port: int) -> dict[str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request("GET", "/healthz?full=1")
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


@pytest.mark.slow
def test_up_serves_refuses_a_second_one_mends_a_crash_and_leaves_nothing(up: Callable[[], Up], tmp_path: Path) -> None:
    running = up()
    running.wait_ready()
    assert f"http://127.0.0.1:{running.port}" in running.screen
    assert "Password (shown only now): " in running.screen
    assert running.screen.index(f"The console serves:  http://127.0.0.1:{running.port}") < running.screen.index(
        "✓ worker"
    )
    wait_until(lambda: _health(running.port)["status"] == "ok", what="health")

    second = _launcher("up", "--port", str(free_port()), var_dir=tmp_path)
    assert second.returncode == 1
    assert (
        f"runs already in this folder at http://127.0.0.1:{running.port} (process {running.process.pid})"
        in second.stdout
    )

    beat = next(child for child in running.family() if "beat" in child.cmdline())
    beat.kill()
    wait_until(lambda: "beat ended with exit code -9; starting it again" in running.screen, what="the restart")

    family = running.family()
    assert len(family) >= 5
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(PATIENCE_S) == 0
    assert [child for child in family if child.is_running()] == []
    assert running.screen.rstrip().endswith("Stopped.")


def test_a_taken_port_is_named_with_another_to_take(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = _launcher("up", "--port", str(port), var_dir=tmp_path)
    assert found.returncode == 1
    assert f"port {port} is taken by " in found.stdout
    assert "./sluice up --port " in found.stdout


def test_a_redis_that_is_not_there_is_named(tmp_path: Path) -> None:
    found = _launcher("up", "--port", str(free_port()), var_dir=tmp_path, REDIS_URL="redis://127.0.0.1:1/0")
    assert found.returncode == 1
    assert "no Redis answers at REDIS_URL=redis://127.0.0.1:1/0" in found.stdout
    assert "Traceback" not in found.stdout + found.stderr


def test_an_impossible_patience_is_refused(tmp_path: Path) -> None:
    found = _launcher("up", "--port", str(free_port()), var_dir=tmp_path, SLUICE_START_PATIENCE_S="soon")
    assert found.returncode == 1
    assert "SLUICE_START_PATIENCE_S=soon: allowed are seconds from 1 to 86400" in found.stdout


def test_help_of_up_names_the_patience(tmp_path: Path) -> None:
    assert "SLUICE_START_PATIENCE_S" in _launcher("up", "--help", var_dir=tmp_path).stdout


@pytest.mark.parametrize("port", ["0", "65536", "http"])
def test_an_impossible_port_is_refused(tmp_path: Path, port: str) -> None:
    found = _launcher("up", "--port", port, var_dir=tmp_path)
    assert found.returncode == 2
    assert f"{port!r}: allowed is a port from 1 to 65535" in found.stderr


def test_manage_passes_arguments_and_exit_code_through(tmp_path: Path) -> None:
    found = _launcher(
        "manage", "shell", "--no-imports", "--command", "import sys; print('a b'); sys.exit(5)", var_dir=tmp_path
    )
    assert (found.returncode, found.stdout) == (5, "a b\n")


def test_engine_passes_arguments_and_exit_code_through(tmp_path: Path) -> None:
    found = _launcher("engine", "no such command", var_dir=tmp_path)
    assert found.returncode == 2
    assert "no such command" in found.stderr
