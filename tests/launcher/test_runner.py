"""The runner over small real processes: order, health, restart, and nothing left behind."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launcher.output import RotatingLog, Terminal
from launcher.runner import ProcessRunner, RestartPolicy, StartFailed, Stopped
from tests.launcher.fake_services import ROOT, alive, events, fake, pids
from tests.servers import PATIENCE_S, wait_until

QUICK = RestartPolicy(first_pause_s=0.05, longest_pause_s=0.2, quick_s=3600.0, quick_crashes=3)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def screen() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def runner(tmp_path: Path, screen: io.StringIO) -> Iterator[ProcessRunner]:
    made = ProcessRunner(Terminal(screen), tmp_path / "log", QUICK)
    yield made
    made.stop()


def test_starts_in_order_and_stops_in_reverse(runner: ProcessRunner, journal: Path) -> None:
    runner.start(fake("first", journal, "--ready-after", "0.3"))
    runner.start(fake("second", journal))
    runner.stop()
    assert events(journal) == [
        "first started",
        "first ready",
        "second started",
        "second ready",
        "second stopped",
        "first stopped",
    ]
    assert alive(pids(journal)) == []


def test_waits_for_the_health_check_as_well(runner: ProcessRunner, journal: Path) -> None:
    looks = iter([False, False, True])
    began = time.monotonic()
    took_s = runner.start(fake("slow", journal, healthy=lambda: next(looks)))
    assert list(looks) == []
    assert 0 < took_s <= time.monotonic() - began


def test_service_that_ends_early_fails_with_its_last_output(runner: ProcessRunner, journal: Path) -> None:
    with pytest.raises(StartFailed) as failure:
        runner.start(fake("weak", journal, "--crash-when", "/", ready_line="never said"))
    said = str(failure.value)
    assert "weak ended with exit code 3 before it was ready" in said
    assert "this is why it crashed" in said
    assert "log/weak.log" in said


def test_optional_service_is_restarted_without_limit(runner: ProcessRunner, journal: Path, screen: io.StringIO) -> None:
    runner.launch(fake("extra", journal, "--crash-when", "/", vital=False))
    watching = threading.Thread(target=runner.watch)
    watching.start()
    wait_until(lambda: events(journal).count("extra started") > QUICK.quick_crashes + 1, what="several new starts")
    assert watching.is_alive()
    runner.stopping.set()
    watching.join()
    assert "giving up" not in screen.getvalue()


def test_the_pause_after_a_thousand_crashes_is_the_longest() -> None:
    assert QUICK.pause_s(5000) == QUICK.longest_pause_s


def test_a_command_that_does_not_exist_is_named(runner: ProcessRunner, journal: Path) -> None:
    with pytest.raises(StartFailed, match=r"absent could not be started: .*no-such-command"):
        runner.start(fake("absent", journal, command=["/no-such-command"]))


def test_crashed_service_is_restarted(runner: ProcessRunner, journal: Path, screen: io.StringIO) -> None:
    service = fake("fragile", journal)
    runner.start(service)
    watching = threading.Thread(target=runner.watch)
    watching.start()
    _kill(journal)
    wait_until(lambda: events(journal).count("fragile ready") == 2, what="the restart")
    runner.stopping.set()
    watching.join()
    runner.stop()
    assert "fragile ended with exit code -9; starting it again in 0.05 s" in screen.getvalue()
    assert events(journal)[-1] == "fragile stopped"
    assert alive(pids(journal)) == []


def _kill(journal: Path) -> None:
    os.kill(pids(journal)[-1], signal.SIGKILL)


def test_service_that_keeps_crashing_is_given_up(runner: ProcessRunner, journal: Path) -> None:
    now = journal.with_name("now")
    runner.start(fake("broken", journal, "--crash-when", str(now)))
    now.touch()
    with pytest.raises(StartFailed, match=r"broken crashed 3 times in a row; giving up") as failure:
        runner.watch()
    assert "this is why it crashed" in str(failure.value)
    assert events(journal).count("broken started") == 3


def test_the_pause_before_a_restart_doubles_up_to_a_limit() -> None:
    policy = RestartPolicy()
    assert [policy.pause_s(n) for n in (1, 2, 3, 4, 5, 6)] == [0.5, 1, 2, 4, 8, 8]


def test_children_of_a_crashed_process_are_ended(runner: ProcessRunner, journal: Path) -> None:
    runner.start(fake("parent", journal, "--with-child"))
    family = pids(journal)
    assert len(alive(family)) == 2
    runner.stop()
    assert alive(family) == []


def test_service_that_ignores_sigterm_is_killed(runner: ProcessRunner, journal: Path) -> None:
    runner.start(fake("deaf", journal, "--deaf", stop_steps=((signal.SIGTERM, 1.0),)))
    began = time.monotonic()
    runner.stop()
    assert time.monotonic() - began > 0.9
    assert alive(pids(journal)) == []


def test_a_request_to_stop_ends_the_waiting(runner: ProcessRunner, journal: Path) -> None:
    threading.Timer(0.3, runner.stopping.set).start()
    with pytest.raises(Stopped):
        runner.start(fake("slow", journal, "--ready-after", "30"))


def test_a_one_off_command_that_fails_says_so(runner: ProcessRunner, journal: Path) -> None:
    command = [sys.executable, "-c", "print('cannot migrate'); raise SystemExit(4)"]
    with pytest.raises(StartFailed, match=r"migrate failed with exit code 4") as failure:
        runner.run_to_end(fake("migrate", journal, command=command, one_off=True))
    assert "cannot migrate" in str(failure.value)


def test_lines_are_prefixed_and_kept(runner: ProcessRunner, journal: Path, screen: io.StringIO, tmp_path: Path) -> None:
    talk = "print('GET / 200', flush=True); print('warning: Grüße', flush=True)"
    command = [sys.executable, "-c", talk]
    runner.finish(runner.launch(fake("web", journal, command=command, quiet="^GET", one_off=True)))
    assert screen.getvalue() == "web        │ warning: Grüße\n"
    kept = (tmp_path / "log" / "web.log").read_text().splitlines()
    assert [line.split(" ", 1)[1] for line in kept] == ["GET / 200", "warning: Grüße"]


def test_regular_start_prints_no_warnings(runner: ProcessRunner, journal: Path, screen: io.StringIO) -> None:
    runner.start(fake("web", journal))
    assert screen.getvalue() == ""


def test_log_files_turn_over(tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "web.log", max_bytes=1000)
    for number in range(1000):
        log.write(f"line {number}")
    log.close()
    files = sorted(tmp_path.glob("web.log*"))
    assert [path.name for path in files] == ["web.log", "web.log.1", "web.log.2", "web.log.3"]
    assert all(path.stat().st_size <= 1000 for path in files)
    assert (tmp_path / "web.log").read_text().endswith("line 999\n")


# -- the runner as a process of its own


Driver = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def driver(tmp_path: Path, journal: Path) -> Iterator[Driver]:
    running: list[subprocess.Popen[str]] = []

    def start(*options: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.launcher.driver", str(journal), str(tmp_path / "log"), *options]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _wait_ready(journal: Path) -> None:
    wait_until(lambda: "third ready" in events(journal), what="three fakes")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_all_in_reverse(driver: Driver, journal: Path, number: signal.Signals) -> None:
    process = driver("--with-child")
    _wait_ready(journal)
    process.send_signal(number)
    assert process.wait(PATIENCE_S) == 0
    assert events(journal)[-3:] == ["third stopped", "second stopped", "first stopped"]
    assert alive(pids(journal)) == []


def test_kill_9_leaves_nothing_behind(driver: Driver, journal: Path) -> None:
    process = driver("--with-child")
    _wait_ready(journal)
    process.kill()
    process.wait()
    wait_until(lambda: not alive(pids(journal)), what="the end of what was left behind")
    polite = [event for event in events(journal) if event.endswith("stopped")]
    assert polite == ["third stopped", "second stopped", "first stopped"]


def test_a_signal_during_the_start_stops_what_runs(driver: Driver, journal: Path) -> None:
    process = driver("--ready-after", "30")
    wait_until(lambda: "third started" in events(journal), what="the third fake")
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0
    assert alive(pids(journal)) == []
