"""`./sluice lint`: every checker in turn, then one summary."""

from __future__ import annotations

import subprocess
import sys
import time

from launcher.output import Terminal
from launcher.places import ROOT, child_environment

__all__ = ["lint"]

_CHECKS = {
    "ruff check": ["-m", "ruff", "check", "."],
    "ruff format": ["-m", "ruff", "format", "--check", "."],
    "mypy": ["-m", "mypy"],
    "imports": ["-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"],
    "names": ["-m", "launcher.names"],
    "templates": ["-m", "djlint", "--check", "templates", "apps"],
}
_SLOW = {"mypy", "imports"}  # left out by --fast


def lint(*, fast: bool = False) -> int:
    """Run all checks, also after a failed one; 1 when any found something. `fast` leaves out those of a minute."""
    console = Terminal()
    checks = {name: command for name, command in _CHECKS.items() if not (fast and name in _SLOW)}
    failed = [name for name, command in checks.items() if not _passes(console, name, command)]
    if failed:
        console.failure(f"lint found something in: {', '.join(failed)}")
        return 1
    console.strong("Nothing to mend.")
    return 0


def _passes(console: Terminal, name: str, command: list[str]) -> bool:
    began = time.monotonic()
    process = subprocess.run(
        [sys.executable, "-P", *command], cwd=ROOT, env=child_environment(), capture_output=True, text=True, check=False
    )
    if process.returncode == 0:
        console.done(name, "", time.monotonic() - began)
        return True
    console.note(f"{process.stdout}{process.stderr}".rstrip())
    console.failure(f"{name} found something")
    return False
