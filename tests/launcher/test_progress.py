"""Waiting by progress: what is slow is waited for, what stands still is told, and nothing that serves is stopped."""

from __future__ import annotations

import io
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from engine.compilation import CompileNotice
from launcher.output import Terminal
from launcher.progress import PATIENCE_VARIABLE, FamilyWork, IdleClock, PatienceError, read_patience_s
from launcher.runner import ProcessRunner, RestartPolicy, StartFailed, StoodStill
from launcher.services import Service, worker
from tests.launcher.fake_services import alive, events, fake, pids
from tests.servers import wait_until

_SHORT_S = 1.0
QUICK = RestartPolicy(first_pause_s=0.05, longest_pause_s=0.2, quick_s=3600.0, quick_crashes=3)
IDLE = FamilyWork()


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def screen() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def runner(tmp_path: Path, screen: io.StringIO) -> Iterator[ProcessRunner]:
    made = ProcessRunner(Terminal(screen), tmp_path / "log", QUICK, patience_s=_SHORT_S, tell_every_s=0.2)
    yield made
    made.stop()


@contextmanager
def _in_background(work: Callable[[], object]) -> Iterator[list[object]]:
    """Run `work` in a thread; what it returned or raised is in the list at the end."""
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(work())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    yield outcome
    thread.join()


# -- the clock


def test_process_that_does_nothing_stands_still_since_it_was_last_seen_to_work() -> None:
    clock = IdleClock(100.0, now=0.0)
    assert clock.look(30.0, FamilyWork(5.0), lines=0) == 0
    assert clock.look(130.0, FamilyWork(5.0), lines=0) == 100.0


def test_a_line_of_output_is_progress() -> None:
    clock = IdleClock(100.0, now=0.0)
    assert [clock.look(at, IDLE, lines=lines) for at, lines in [(40, 0), (80, 1), (120, 1), (160, 2)]] == [40, 0, 40, 0]


def test_cpu_time_is_progress_however_slowly_it_grows() -> None:
    clock = IdleClock(100.0, now=0.0)
    idle_s = [clock.look(at, FamilyWork(cpu_s=0.05 * at), lines=0) for at in range(0, 1000, 10)]
    assert max(idle_s) <= 40


def test_a_loop_that_only_looks_is_no_progress() -> None:
    clock = IdleClock(100.0, now=0.0)
    idle_s = [clock.look(at, FamilyWork(cpu_s=0.001 * at), lines=0) for at in range(0, 200, 10)]
    assert max(idle_s) == 190


def test_process_that_waits_for_a_core_makes_progress() -> None:
    clock = IdleClock(100.0, now=0.0)
    assert clock.look(5000.0, FamilyWork(0.0, is_runnable=True), lines=0) == 0


def test_cpu_time_of_a_child_that_was_lost_does_not_hide_later_progress() -> None:
    clock = IdleClock(100.0, now=0.0)
    clock.look(10.0, FamilyWork(50.0), lines=0)
    assert clock.look(20.0, FamilyWork(3.0), lines=0) == 10
    assert clock.look(30.0, FamilyWork(8.0), lines=0) == 0


def test_work_of_a_family_includes_its_children() -> None:
    child = "sum(range(30_000_000)); print('done', flush=True); input()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with psutil.Popen([sys.executable, "-c", parent], stdin=-1, stdout=-1, text=True) as process:
        process.stdout.readline()
        assert FamilyWork.read(process.pid).cpu_s > sum(psutil.Process(process.pid).cpu_times()[:2])
        process.communicate("\n")


def test_work_of_a_process_that_is_gone_is_none() -> None:
    with psutil.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert FamilyWork.read(process.pid) == FamilyWork()


# -- the setting


def test_patience_is_two_minutes_unless_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PATIENCE_VARIABLE, raising=False)
    assert read_patience_s() == 120
    monkeypatch.setenv(PATIENCE_VARIABLE, "7.5")
    assert read_patience_s() == 7.5


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf", "86401"])
def test_impossible_patience_is_refused_with_what_is_allowed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(PATIENCE_VARIABLE, text)
    with pytest.raises(PatienceError, match=rf"{PATIENCE_VARIABLE}={text}: allowed are seconds from 1 to 86400"):
        read_patience_s()


def test_patience_of_the_environment_is_the_runners(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, screen: io.StringIO, journal: Path
) -> None:
    monkeypatch.setenv(PATIENCE_VARIABLE, "1")
    runner = ProcessRunner(Terminal(screen), tmp_path / "log")
    try:
        with pytest.raises(StoodStill, match=rf"no sign of work for 1 s \({PATIENCE_VARIABLE}\)"):
            runner.start(fake("mute", journal, "--still-until", "/never"))
    finally:
        runner.stop()


# -- the runner


def test_slow_service_is_waited_for_while_it_computes(runner: ProcessRunner, journal: Path) -> None:
    done = journal.with_name("done")
    with _in_background(lambda: runner.start(fake("slow", journal, "--busy-until", str(done)))) as outcome:
        time.sleep(3 * _SHORT_S)
        assert outcome == []
        done.touch()
    assert isinstance(outcome[0], float)
    assert outcome[0] > 3 * _SHORT_S
    assert events(journal).count("slow started") == 1


def test_slow_command_is_waited_for_while_it_computes(runner: ProcessRunner, journal: Path) -> None:
    done = journal.with_name("done")
    work = f"import pathlib\nwhile not pathlib.Path({str(done)!r}).exists(): sum(range(100_000))"
    command = fake("migrate", journal, command=[sys.executable, "-c", work], one_off=True)
    with _in_background(lambda: runner.run_to_end(command)) as outcome:
        time.sleep(3 * _SHORT_S)
        assert outcome == []
        done.touch()
    assert not isinstance(outcome[0], Exception)


def test_waiting_tells_step_time_and_machine(runner: ProcessRunner, journal: Path, screen: io.StringIO) -> None:
    talk = "print('compiling 3 of 40'); print('other words', flush=True); import time; time.sleep(600)"
    service = fake("worker", journal, command=[sys.executable, "-c", talk], step=r"compiling .*")
    with pytest.raises(StoodStill, match="other words"):
        runner.start(service)
    lines = [line for line in screen.getvalue().splitlines() if "compiling 3 of 40" in line]
    told = r"  … worker     not ready after \d+ s: compiling 3 of 40 \(\d+ s of CPU time.*; load [\d.]+ on \d+ cores?\)"
    assert lines
    assert [line for line in lines if not re.fullmatch(told, line)] == []
    assert "no sign of work for" in lines[-1]


def test_step_of_a_worker_is_the_notice_of_the_engine() -> None:
    stream = io.StringIO()
    notice = CompileNotice(stream)
    notice.begin("estimation.mace.delay", total=3)
    notice.end(compiled=True)
    step = re.search(worker({}).step or "", f"[WARNING/MainProcess] {stream.getvalue().strip()}")
    assert step is not None
    assert step[0].startswith("compiling the engine, 0 of at most 3 functions")


def test_service_that_stands_still_is_started_again_while_others_serve(
    runner: ProcessRunner, journal: Path, screen: io.StringIO
) -> None:
    go = journal.with_name("go")
    runner.start(fake("web", journal))
    (web,) = pids(journal)
    assert runner.start_beside(fake("worker", journal, "--still-until", str(go), about="takes the rest")) is None
    assert alive([web]) == [web]
    assert "worker has shown no sign of work for 1 s" in screen.getvalue()
    assert "Starting it again; what serves goes on." in screen.getvalue()
    go.touch()
    with _in_background(runner.watch) as outcome:
        wait_until(lambda: "✓ worker     takes the rest" in screen.getvalue(), what="the second start")
        runner.stopping.set()
    assert outcome == [None]
    assert alive([web]) == [web]
    assert events(journal).count("worker started") == 2


def test_service_that_stands_still_again_gets_twice_the_time(
    runner: ProcessRunner, journal: Path, screen: io.StringIO
) -> None:
    assert runner.start_beside(fake("worker", journal, "--still-until", "/never")) is None
    with _in_background(runner.watch) as outcome:
        wait_until(
            lambda: "worker has shown no sign of work for 2 s" in screen.getvalue(), what="the second standstill"
        )
        runner.stopping.set()
    assert outcome == [None]


def test_service_that_ends_while_it_starts_does_not_stop_what_serves(
    runner: ProcessRunner, journal: Path, screen: io.StringIO
) -> None:
    runner.start(fake("web", journal))
    web = pids(journal)
    weak = fake("worker", journal, "--crash-when", str(journal), ready_line="never said")
    assert runner.start_beside(weak) is None
    assert alive(web) == web
    assert "worker ended with exit code 3 before it was ready" in screen.getvalue()
    assert "this is why it crashed" in screen.getvalue()


def test_service_that_never_gets_ready_and_crashes_is_given_up(runner: ProcessRunner, journal: Path) -> None:
    assert runner.start_beside(fake("worker", journal, "--crash-when", "/", ready_line="never said")) is None
    with pytest.raises(StartFailed, match=r"worker crashed 3 times in a row; giving up"):
        runner.watch()


def test_crash_of_what_serves_is_mended_while_another_starts(runner: ProcessRunner, journal: Path) -> None:
    go = journal.with_name("go")
    runner.start(fake("web", journal))
    (web,) = pids(journal)
    with _in_background(lambda: runner.start(fake("worker", journal, "--busy-until", str(go)))) as outcome:
        psutil.Process(web).kill()
        wait_until(lambda: events(journal).count("web ready") == 2, what="the restart of web")
        go.touch()
    assert isinstance(outcome[0], float)


def test_command_that_stands_still_is_told_and_left_alone(
    runner: ProcessRunner, journal: Path, screen: io.StringIO
) -> None:
    go = journal.with_name("go")
    wait = f"import pathlib, time\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(1)\nprint('migrated')"
    command: Service = fake("migrate", journal, command=[sys.executable, "-c", wait], one_off=True)
    with _in_background(lambda: runner.run_to_end(command)) as outcome:
        wait_until(lambda: "migrate has shown no sign of work for 1 s" in screen.getvalue(), what="the notice")
        assert "Waiting on; Ctrl-C stops." in screen.getvalue()
        go.touch()
    assert list(getattr(outcome[0], "recent", ())) == ["migrated"]
