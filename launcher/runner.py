"""The process runner: starts services in order, waits for their health, restarts what crashes, stops in reverse."""

from __future__ import annotations

import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from launcher.children import ReaperPipe
from launcher.output import RotatingLog, Terminal
from launcher.progress import PATIENCE_VARIABLE, Wait, read_patience_s
from launcher.services import Service, ServiceRun

__all__ = ["ProcessRunner", "RestartPolicy", "StartFailed", "StoodStill", "Stopped"]

_POLL_S = 0.2
_TELL_EVERY_S = 10.0
_MAX_DOUBLINGS = 6


class Stopped(Exception):
    """Someone asked the runner to stop while it was starting."""


class StartFailed(Exception):
    """A part did not become healthy, or would not stay up; the message holds its last words and where the rest is."""


class StoodStill(StartFailed):
    """A process lives but made no progress for long."""


class _EndedEarly(StartFailed):
    """A service ended before it was healthy."""


@dataclass(frozen=True)
class RestartPolicy:
    """A process that crashes is started again after a pause that doubles with every quick crash in a row."""

    first_pause_s: float = 0.5
    longest_pause_s: float = 8.0
    quick_s: float = 15.0
    quick_crashes: int = 5

    def pause_s(self, crashes: int) -> float:
        doublings = min(crashes - 1, 30)  # what is not vital may crash for days
        return min(self.first_pause_s * 2.0**doublings, self.longest_pause_s)


class ProcessRunner:
    """Owns the running services: `start` them one by one, `watch` until asked to stop, `stop` in any case."""

    def __init__(
        self,
        console: Terminal,
        log_dir: Path,
        policy: RestartPolicy | None = None,
        *,
        patience_s: float | None = None,
        tell_every_s: float = _TELL_EVERY_S,
    ) -> None:
        self.console = console
        self.stopping = threading.Event()
        self._log_dir = log_dir
        self._policy = policy or RestartPolicy()
        self._patience_s = read_patience_s() if patience_s is None else patience_s
        self._tell_every_s = tell_every_s
        self._guard = ReaperPipe()
        self._logs: dict[str, RotatingLog] = {}
        self._runs: dict[str, ServiceRun] = {}  # in order of start
        self._crashes: dict[str, int] = {}
        self._standstills: dict[str, int] = {}
        self._waits: dict[str, Wait] = {}  # for services that were started again
        self._due: dict[str, float] = {}  # crashed services and when they start again

    def catch_signals(self) -> None:
        """Ctrl-C, SIGTERM and a closed terminal ask for a stop; what the caller ignores (nohup) stays ignored."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._on_signal)

    def start(self, service: Service) -> float:
        """Start a service and return the seconds until it was healthy.

        Raises
        ------
        StartFailed
            It ended, or stood still (`StoodStill`). However slow it is, it is waited for while it makes progress.
        Stopped
            A signal came in.
        """
        return self.await_ready(self.launch(service, loud=False))  # its last output is shown on failure only

    def start_beside(self, service: Service) -> float | None:
        """Start a service that the others serve without; returns the seconds until it was healthy.

        None: it ended or stood still. That was told, and it is started again while the others go on.
        """
        run = self.launch(service, loud=False)
        try:
            return self.await_ready(run)
        except StoodStill as failure:
            self._on_standstill(run, failure)
        except _EndedEarly:
            self._on_crash(run)
        return None

    def await_ready(self, run: ServiceRun) -> float:
        """Wait until a launched service is healthy, and tend those that were before; see `start`."""
        wait = self._wait(run)
        while not run.is_ready():
            if run.exit_code is not None:
                run.drain()
                raise _EndedEarly(self._last_words(run, f"ended with exit code {run.exit_code} before it was ready"))
            self._look(run, wait)
            self.pause(wait.poll_s)
            self._tend()
        run.loud = True
        return time.monotonic() - run.started_at

    def launch(self, service: Service, *, loud: bool = True) -> ServiceRun:
        """Start a process without waiting for it; `stop` ends it with the others."""
        if self.stopping.is_set():
            raise Stopped
        if service.name not in self._logs:
            self._logs[service.name] = RotatingLog(self._log_dir / f"{service.name}.log")
        try:
            run = ServiceRun(service, self.console, self._logs[service.name], loud=loud)
        except OSError as error:
            raise StartFailed(f"{service.name} could not be started: {error}") from error
        run.was_ready = loud  # nobody waits for it
        self._guard.add(run.process.pid)
        self._runs[service.name] = run
        return run

    def run_to_end(self, service: Service) -> ServiceRun:
        """Run a one-off command (a migration, say) to its end, without a word if all goes well.

        One that stands still may wait for another program's lock, or for a server elsewhere that works: that is told,
        and it is left alone.

        Raises
        ------
        StartFailed
            Its exit code is not 0.
        """
        run = self.launch(service, loud=False)
        self.finish_patiently(run)
        return run

    def finish_patiently(self, run: ServiceRun) -> None:
        """Wait for a launched one-off command, also while it stands still; see `run_to_end`."""
        while True:
            try:
                return self.finish(run)
            except StoodStill as failure:
                self.console.failure(f"{failure}\n  Waiting on; Ctrl-C stops.")

    def finish(self, run: ServiceRun) -> None:
        """Wait for a launched one-off command.

        Raises
        ------
        StartFailed
            Its exit code is not 0; or it stands still (`StoodStill`), and still runs.
        """
        wait = self._wait(run)
        while run.exit_code is None:
            self._look(run, wait)
            self.pause(wait.poll_s)
            self._tend()
        run.stop()
        self._forget(run)
        if run.exit_code:
            raise StartFailed(self._last_words(run, f"failed with exit code {run.exit_code}"))

    def pause(self, seconds: float) -> None:
        """Sleep, but not past a request to stop."""
        if self.stopping.wait(seconds):
            raise Stopped

    def watch(self) -> None:
        """Restart what crashes, until asked to stop.

        Raises
        ------
        StartFailed
            A vital service crashed quickly too many times in a row.
        """
        while not self.stopping.wait(_POLL_S):
            self._tend()

    def stop(self) -> None:
        """Stop everything, last started first. Each stop is bounded in time, so a second signal changes nothing."""
        self.stopping.set()
        for run in reversed(list(self._runs.values())):
            run.stop()
            self._forget(run)
        self._guard.close()
        for log in self._logs.values():
            log.close()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.stopping.set()

    def _tend(self) -> None:
        """Look once after all whose start is over: restart what crashed, or stood still when it was started again."""
        for name, run in list(self._runs.items()):
            if not run.loud or run.service.one_off:
                continue  # somebody waits for it
            if name in self._due:
                if time.monotonic() >= self._due[name]:
                    self._restart(run.service)
            elif run.exit_code is not None:
                self._on_crash(run)
            elif not run.was_ready:
                self._tend_start(run)

    def _tend_start(self, run: ServiceRun) -> None:
        """Look after a service that was started again and has not become healthy yet."""
        service = run.service
        if run.is_ready():
            self._waits.pop(service.name, None)
            if service.about:
                self.console.done(service.name, service.about, time.monotonic() - run.started_at)
            return
        try:
            self._look(run, self._waits.setdefault(service.name, self._wait(run)))
        except StoodStill as failure:
            self._on_standstill(run, failure)

    def _wait(self, run: ServiceRun) -> Wait:
        """A wait that takes twice as long with every standstill: a disk or a lock may need more than one patience."""
        doublings = min(self._standstills.get(run.service.name, 0), _MAX_DOUBLINGS)
        patience_s = self._patience_s * 2.0**doublings
        return Wait(run, self.console, patience_s=patience_s, tell_every_s=self._tell_every_s)

    def _look(self, run: ServiceRun, wait: Wait) -> None:
        if wait.has_stood_still():
            what = f"has shown no sign of work for {wait.patience_s:g} s ({PATIENCE_VARIABLE})"
            raise StoodStill(self._last_words(run, what))

    def _on_standstill(self, run: ServiceRun, failure: StoodStill) -> None:
        """Have it started again with more time; the others go on."""
        name = run.service.name
        self.console.failure(f"{failure}\n  Starting it again; what serves goes on.")
        self._standstills[name] = self._standstills.get(name, 0) + 1
        self._take_down(run)
        self._due[name] = time.monotonic()

    def _on_crash(self, run: ServiceRun) -> None:
        name, was_loud = run.service.name, run.loud
        self._take_down(run)
        is_quick = not run.was_ready or time.monotonic() - run.started_at < self._policy.quick_s
        crashes = self._crashes[name] = self._crashes.get(name, 0) + 1 if is_quick else 1
        if run.service.vital and crashes >= self._policy.quick_crashes:
            raise StartFailed(self._last_words(run, f"crashed {crashes} times in a row; giving up"))
        pause_s = self._policy.pause_s(crashes)
        self._due[name] = time.monotonic() + pause_s
        again = f"starting it again in {pause_s:g} s"
        if was_loud:
            self.console.failure(f"{name} ended with exit code {run.exit_code}; {again}")
        else:
            ended = self._last_words(run, f"ended with exit code {run.exit_code} before it was ready")
            self.console.failure(f"{ended}\n  {again.capitalize()}; what serves goes on.")

    def _take_down(self, run: ServiceRun) -> None:
        """End what is left of it, its children above all; `_tend` has it from now on."""
        run.stop()
        self._guard.remove(run.process.pid)
        self._waits.pop(run.service.name, None)
        run.loud = True

    def _restart(self, service: Service) -> None:
        del self._due[service.name]
        again = ServiceRun(service, self.console, self._logs[service.name])
        self._guard.add(again.process.pid)
        self._runs[service.name] = again  # keeps its place in the order

    def _forget(self, run: ServiceRun) -> None:
        self._guard.remove(run.process.pid)
        self._runs.pop(run.service.name, None)

    def _last_words(self, run: ServiceRun, what: str) -> str:
        said = "\n".join(f"    {line}" for line in run.recent) or "    (it said nothing)"
        log = self._logs[run.service.name].path
        return f"{run.service.name} {what}. Its last lines:\n{said}\n  The whole log: {log}"
