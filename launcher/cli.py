"""The commands behind `./sluice`. `help` and unknown commands are dealt with by the script itself."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial

from launcher.places import ROOT, child_environment

__all__ = ["COMMANDS", "main"]


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; commands of other parts replace this process."""
    name, *rest = arguments
    return COMMANDS[name](rest)


def _become(*command: str) -> int:
    """Turn into another Python program: arguments, streams, signals and exit code pass through untouched."""
    os.execve(sys.executable, [sys.executable, "-P", *command], child_environment())


def _engine(rest: list[str]) -> int:
    return _become("-m", "engine", *rest)


def _ask(command: str, rest: list[str]) -> int:
    return _become("-m", "client", command, *rest)


def _agent(rest: list[str]) -> int:
    return _become("-m", "agent", *rest)


def _lab(rest: list[str]) -> int:
    if not (ROOT / "lab").is_dir():
        print("sluice: this installation comes without lab/; a checkout of the repository has it", file=sys.stderr)
        return 1
    return _become("-m", "lab", *rest)


def _history(rest: list[str]) -> int:
    from launcher.java import java_environment

    os.environ |= java_environment()
    return _become("-m", "spark_jobs.history", *rest)


def _manage(rest: list[str]) -> int:
    return _become(str(ROOT / "manage.py"), *rest)


def _port(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r}: allowed is a port from 1 to 65535")
    return int(text)


def _up(rest: list[str]) -> int:
    from launcher.up import up

    parser = argparse.ArgumentParser(
        prog="sluice up",
        description="Start the console on this machine; Ctrl-C stops it.",
        epilog="A part that is slow is waited for while it makes progress, and what serves goes on meanwhile. "
        "SLUICE_START_PATIENCE_S (default 120): seconds without CPU time or output after which it counts as standing "
        "still; that is told, and it is started again.",
    )
    parser.add_argument("--port", type=_port, default=8000, help="port of the console on 127.0.0.1 (default 8000)")
    parser.add_argument("--empty", action="store_true", help="no demo: an empty console with one administrator")
    parser.add_argument("--no-live", action="store_true", help="neither stream processor nor agents on this machine")
    options = parser.parse_args(rest)
    return up(port=options.port, empty=options.empty, live=not options.no_live)


def _engines(rest: list[str]) -> int:
    from launcher.engines.command import engines

    return engines(rest)


def _test(rest: list[str]) -> int:
    from launcher.suite import run_tests

    return run_tests(rest)


def _lint(rest: list[str]) -> int:
    from launcher.lint import lint

    parser = argparse.ArgumentParser(prog="sluice lint", description="ruff, mypy, the import law, names and templates.")
    parser.add_argument("--fast", action="store_true", help="neither types nor the import law, which take a minute")
    return lint(fast=parser.parse_args(rest).fast)


def _doctor(rest: list[str]) -> int:
    from launcher.doctor import doctor

    argparse.ArgumentParser(prog="sluice doctor", description="What is missing and how to mend it.").parse_args(rest)
    return doctor()


_CONSOLE_COMMANDS = (
    "admit",
    "estimate",
    "capacity",
    "parallelism",
    "remedies",
    "evacuate",
    "backlog",
    "policy",
    "connect",
)
COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "up": _up,
    "test": _test,
    **{name: partial(_ask, name) for name in _CONSOLE_COMMANDS},
    "engine": _engine,
    "agent": _agent,
    "history": _history,
    "manage": _manage,
    "engines": _engines,
    "lab": _lab,
    "lint": _lint,
    "doctor": _doctor,
}
