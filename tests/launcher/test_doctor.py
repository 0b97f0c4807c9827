"""The doctor names what is missing and how to mend it."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from launcher import doctor as module
from launcher.doctor import DoctorFinding, doctor
from launcher.output import Terminal
from tests.launcher.fake_services import ROOT


def _report(*findings: DoctorFinding) -> tuple[int, str]:
    screen = io.StringIO()
    code = doctor(tuple(lambda finding=finding: finding for finding in findings), Terminal(screen))
    return code, screen.getvalue()


def test_missing_requirement_fails_with_its_remedy() -> None:
    code, said = _report(
        DoctorFinding("redis", False, "none found", "install redis-server"), DoctorFinding("disk", True, "9 GB free")
    )
    assert code == 1
    assert "✗ redis       none found\n" in said
    assert "-> install redis-server\n" in said
    assert "✓ disk        9 GB free\n" in said
    assert "Needs mending: redis" in said


def test_missing_test_requirement_does_not_fail() -> None:
    code, said = _report(DoctorFinding("Chromium", False, "not found", "apt install chromium", needed=False))
    assert code == 0
    assert "! Chromium    not found\n" in said
    assert "-> apt install chromium\n" in said


def _find(name: str) -> DoctorFinding:
    check = {check.__name__: check for check in module.CHECKS}[name]
    return check()


def test_a_redis_that_does_not_answer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1/0")
    finding = _find("_redis")
    assert not finding.fine
    assert "redis://127.0.0.1:1/0" in finding.says


def test_the_redis_of_the_tests_is_fine(monkeypatch: pytest.MonkeyPatch, redis_url: str) -> None:
    monkeypatch.setenv("REDIS_URL", redis_url)
    assert _find("_redis").fine


def test_a_taken_port_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr(module, "_WEB_PORT", taken.getsockname()[1])
        finding = _find("_port")
    assert not finding.fine
    assert f"(process {os.getpid()})" in finding.says
    assert "--port" in finding.mend


def test_packages_that_differ_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert not _find("_environment").fine
    (tmp_path / "sluice-requirements.txt").write_bytes((ROOT / "requirements.txt").read_bytes())
    assert _find("_environment").fine


def test_a_database_without_its_tables_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.setenv("SLUICE_VAR_DIR", str(tmp_path))
    assert "made at the first" in _find("_database").says
    (tmp_path / "sluice.sqlite3").touch()
    finding = _find("_database")
    assert not finding.fine
    assert "./sluice manage migrate" in finding.mend


def test_doctor_command_runs_every_check(tmp_path: Path) -> None:
    env = os.environ | {"SLUICE_VAR_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "launcher", "doctor"]
    found = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    for name in ("Python", "packages", "disk", "memory", "port", "redis", "database", "Java", "Chromium", "PostgreSQL"):
        assert f" {name} " in found.stdout
    assert found.stderr == ""
