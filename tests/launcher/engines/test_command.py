"""`./sluice engines` says in words what is missing, and stops only what it started."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from launcher.engines.command import engines
from launcher.engines.record import EngineRecord, stop_engine
from tests.servers import wait_until


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SLUICE_VAR_DIR", str(tmp_path / "var"))
    monkeypatch.setenv("SLUICE_ENGINES_DIR", str(tmp_path / "engines"))


def test_status_says_that_it_is_not_fetched_and_how_to(capsys: pytest.CaptureFixture[str]) -> None:
    assert engines(["flink", "status"]) == 3
    said = capsys.readouterr().out
    assert "not fetched; ./sluice engines flink fetch gets it" in said
    assert "it does not run" in said


def test_fetch_without_a_network_says_so_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    assert engines(["flink", "fetch"]) == 1
    assert "Without a network connection, point pip to a mirror (PIP_INDEX_URL)" in capfd.readouterr().out
    assert list((tmp_path / "engines").iterdir()) == []


def test_sql_without_a_cluster_names_the_command_that_starts_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert engines(["flink", "sql", str(tmp_path / "script.sql")]) == 1
    assert "./sluice engines flink start" in capsys.readouterr().out


def test_taken_port_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert engines(["flink", "start", "--port", str(port)]) == 1
    assert f"port {port} is taken by" in capsys.readouterr().out


def test_stop_ends_the_recorded_process(tmp_path: Path) -> None:
    path = tmp_path / "flink.json"
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        EngineRecord("flink", process.pid, psutil.Process(process.pid).create_time(), "http://127.0.0.1:1").write(path)
        wait_until(lambda: EngineRecord.read(path) is not None, what="the record")
        process.poll()
        assert _stop_beside(process, path) is True
    assert EngineRecord.read(path) is None


def _stop_beside(process: subprocess.Popen[bytes], path: Path) -> bool | None:
    """Stop it while somebody reaps it, as init does for a process in the background."""
    threading.Thread(target=process.wait, daemon=True).start()
    return stop_engine(path)


def test_process_that_only_has_the_recorded_number_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "flink.json"
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        EngineRecord("flink", process.pid, 1.0, "http://127.0.0.1:1").write(path)
        assert stop_engine(path) is None
        assert process.poll() is None
        process.communicate(b"\n")


@pytest.mark.parametrize("text", ["", "{}", json.dumps({"engine": "flink"})])
def test_record_that_cannot_be_read_is_no_engine(tmp_path: Path, text: str) -> None:
    path = tmp_path / "flink.json"
    path.write_text(text)
    assert EngineRecord.read(path) is None
