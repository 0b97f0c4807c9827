"""`./sluice test`: pytest with the servers it needs."""

from __future__ import annotations

import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from itertools import pairwise
from types import FrameType

from launcher.moments import MOMENTS, Moment, MomentError, parse_moment
from launcher.output import Terminal
from launcher.places import ROOT, child_environment
from launcher.servers import PostgresError, PostgresServer, find_postgres

__all__ = ["CHROMIUM_NAMES", "run_tests"]

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")
_MAX_WORKERS = 4  # each holds its own Redis, SQLite file and perhaps a browser
_QUICK, _LAB, _SHIFT = "--quick", "--lab", "--shift"  # options of tests/tiers.py and tests/clock.py
_CALENDAR, _DRAWN = "--calendar", "drawn"
_INTERRUPTED = 2  # pytest's exit code
_OWN_CHOICE = ("-n", "--numprocesses", "--dist", "--pdb", "--collect-only", "--co", "--version", "--help", "-h")


def _parallel(arguments: Sequence[str], is_quick: bool) -> list[str]:
    """Options for several processes, unless the caller chose something about it or names a single test."""
    if any(a.startswith(_OWN_CHOICE) or "no:xdist" in a or "::" in a for a in arguments):
        return []
    cores = os.cpu_count() or 1
    # tests with processes of their own wait more than they compute; the quick ones only compute
    workers = cores if is_quick else cores + 2
    return ["-n", str(min(workers, _MAX_WORKERS)), "--dist", "loadgroup", "--no-loadscope-reorder"]


def _start_postgres(console: Terminal) -> PostgresServer | None:
    tools = find_postgres()
    if tools is None:
        return None
    server = PostgresServer(tools)
    try:
        server.start()
    except (PostgresError, OSError) as error:
        console.failure(f"PostgreSQL is installed but does not start: {error}")
        server.stop()
        return None
    # it comes up while the tests are collected; tests that need it wait for it, and a failure is printed here
    threading.Thread(target=_watch_start, args=(server, console), daemon=True).start()
    return server


def _watch_start(server: PostgresServer, console: Terminal) -> None:
    try:
        server.wait()
    except PostgresError as error:
        console.failure(str(error))


def _announce_lacking(console: Terminal, postgres: bool) -> None:
    lacking = []
    if not any(map(shutil.which, CHROMIUM_NAMES)):
        lacking.append("Chromium")
    if not postgres:
        lacking.append("PostgreSQL")
    if lacking:
        console.failure(
            f"!!! NOT INSTALLED: {' and '.join(lacking)}. The tests that need it are SKIPPED; see ./sluice doctor"
        )


def _environment() -> dict[str, str]:
    """The environment of the tests. They start many processes, which are not to compile every module anew."""
    env = child_environment()
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    return env


def _pytest(arguments: list[str], env: dict[str, str]) -> int:
    process = subprocess.Popen([sys.executable, "-P", "-m", "pytest", *arguments], cwd=ROOT, env=env)

    def pass_on(number: int, frame: FrameType | None) -> None:
        process.send_signal(signal.SIGINT)  # pytest takes it for Ctrl-C and cleans up

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGHUP, pass_on)
    signal.signal(signal.SIGINT, lambda number, frame: None)  # the terminal signals pytest itself
    return process.wait()


def _random_order(seed: int) -> list[str]:
    """Options of pytest-randomly, which pyproject.toml switches off."""
    return ["-p", "randomly", "--randomly-seed", str(seed)]


def _draw_moment(arguments: Sequence[str], console: Terminal) -> list[str]:
    """`--shift drawn` as the moment of one name by chance, which is printed."""
    drawn = list(arguments)
    for place, pair in enumerate(pairwise(arguments)):
        if pair == (_SHIFT, _DRAWN):
            name = random.choice(list(MOMENTS))
            drawn[place + 1] = str(parse_moment(name))
            console.note(f"clock drawn: {name}. Again: ./sluice test {shlex.join(drawn[place : place + 2])}")
    return drawn


def _moments(argument: str) -> dict[str, Moment]:
    """The moments that `--calendar` names; all of them where it names none."""
    names = argument.partition("=")[2]
    return {name: parse_moment(name) for name in (names.split(",") if names else MOMENTS)}


def _run_calendar(moments: dict[str, Moment], arguments: list[str], console: Terminal) -> int:
    """The quick tier under each of these moments, one after the other, each in an order of its own."""
    env, outcomes = _environment(), {}
    for number, (name, moment) in enumerate(moments.items(), start=1):
        again = [_QUICK, _SHIFT, str(moment), *_random_order(random.getrandbits(32)), *arguments]
        console.note(f"{name} ({number} of {len(moments)}): ./sluice test {shlex.join(again)}")
        outcomes[name] = _pytest([*_parallel(arguments, is_quick=True), *again], env), again
        if outcomes[name][0] == _INTERRUPTED:
            break
    for name, (code, again) in outcomes.items():
        if code:
            console.failure(f"{name} failed. Again: ./sluice test {shlex.join(again)}")
    return max(code for code, _ in outcomes.values())


def run_tests(arguments: list[str]) -> int:
    """Run pytest with these arguments beside a passing PostgreSQL server; its exit code.

    `--quick` leaves out what needs a browser, Spark, PostgreSQL or a process of its own. `--calendar` runs that tier
    under each moment of `launcher.moments`, `--calendar=leap-day` under one; `--shift drawn` draws one for any run.
    `--lab` runs the tests of the laboratory and no others, `--with-lab` those beside the others.
    """
    console = Terminal(sys.stderr)
    for argument in arguments:
        if argument.partition("=")[0] == _CALENDAR:
            try:
                moments = _moments(argument)
            except MomentError as error:
                console.failure(f"{_CALENDAR} {error}")
                return 4  # pytest's code for wrong usage
            return _run_calendar(moments, [other for other in arguments if other not in (argument, _QUICK)], console)
    arguments = _draw_moment(arguments, console)
    env = _environment()
    server = None
    is_quick = _QUICK in arguments
    if not is_quick and _LAB not in arguments:
        if "SLUICE_TEST_POSTGRES_URL" not in env and (server := _start_postgres(console)) is not None:
            env["SLUICE_TEST_POSTGRES_URL"] = server.url
        _announce_lacking(console, "SLUICE_TEST_POSTGRES_URL" in env)
    try:
        return _pytest([*_parallel(arguments, is_quick), *arguments], env)
    finally:
        if server is not None:
            server.stop()
