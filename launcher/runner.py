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
from launcher.services import Service, ServiceRun

__all__ = ["ProcessRunner", "RestartPolicy", "StartFailed", "Stopped"]

_POLL_S = 0.05


class Stopped(Exception):
    """Someone asked the runner to stop while it was starting."""


class StartFailed(Exception):
    """A part did not become healthy, or would not stay up; the message holds its last words and where the rest is."""


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

    def __init__(self, console: Terminal, log_dir: Path, policy: RestartPolicy | None = None) -> None:
        self.console = console
        self.stopping = threading.Event()
        self._log_dir = log_dir
        self._policy = policy or RestartPolicy()
        self._guard = ReaperPipe()
        self._logs: dict[str, RotatingLog] = {}
        self._runs: dict[str, ServiceRun] = {}  # in order of start
        self._crashes: dict[str, int] = {}
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
            It ended, or was not healthy in time.
        Stopped
            A signal came in.
        """
        return self.await_ready(self.launch(service, loud=False))  # its last output is shown on failure only

    def await_ready(self, run: ServiceRun) -> float:
        """Wait until a launched service is healthy; see `start`."""
        service = run.service
        while not run.ready:
            waited = time.monotonic() - run.started_at
            if run.exit_code is not None:
                run.drain()
                raise StartFailed(self._last_words(run, f"ended with exit code {run.exit_code} before it was ready"))
            if waited > service.ready_timeout_s:
                raise StartFailed(self._last_words(run, f"was not healthy within {service.ready_timeout_s:g} s"))
            self.pause(_POLL_S)
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
        self._guard.add(run.process.pid)
        self._runs[service.name] = run
        return run

    def run_to_end(self, service: Service, timeout_s: float = 600.0) -> ServiceRun:
        """Run a one-off command (a migration, say) to its end, without a word if all goes well.

        Raises
        ------
        StartFailed
            Its exit code is not 0, or it took too long.
        """
        run = self.launch(service, loud=False)
        self.finish(run, timeout_s)
        return run

    def finish(self, run: ServiceRun, timeout_s: float = 600.0) -> None:
        """Wait for a launched one-off command; see `run_to_end`."""
        while run.exit_code is None:
            if time.monotonic() - run.started_at > timeout_s:
                raise StartFailed(self._last_words(run, f"did not end within {timeout_s:g} s"))
            self.pause(_POLL_S)
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
        while not self.stopping.wait(_POLL_S * 4):
            for name, run in list(self._runs.items()):
                if name in self._due:
                    if time.monotonic() >= self._due[name]:
                        self._restart(run.service)
                elif run.exit_code is not None:
                    self._on_crash(run)

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

    def _on_crash(self, run: ServiceRun) -> None:
        name = run.service.name
        run.stop()  # its children may have outlived it
        self._guard.remove(run.process.pid)
        lived_s = time.monotonic() - run.started_at
        crashes = self._crashes[name] = self._crashes.get(name, 0) + 1 if lived_s < self._policy.quick_s else 1
        if run.service.vital and crashes >= self._policy.quick_crashes:
            raise StartFailed(self._last_words(run, f"crashed {crashes} times in a row; giving up"))
        pause_s = self._policy.pause_s(crashes)
        self._due[name] = time.monotonic() + pause_s
        self.console.failure(f"{name} ended with exit code {run.exit_code}; starting it again in {pause_s:g} s")

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
