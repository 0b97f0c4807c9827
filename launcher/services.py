"""Services of `up`: how each is started, known to be healthy and stopped, and one run of it."""

from __future__ import annotations

import http.client
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from launcher.children import end_family, spawn
from launcher.output import RotatingLog, Terminal
from launcher.places import LOOPBACK, ROOT
from launcher.servers import redis_answers, redis_command

__all__ = [
    "Service",
    "ServiceRun",
    "agent",
    "background",
    "beat",
    "healthz",
    "manage",
    "redis_server",
    "stream",
    "web",
    "worker",
]


_RECENT_LINES = 15
# requests that went well, and sockets that open and close, fill the log file but not the screen
_QUIET_WEB = (
    r'"[A-Z]+ \S+ HTTP/[\d.]+" [123]\d\d|"status": [123]\d\d|"WebSocket \S+" \[accepted\]|connection (open|closed)'
)
_QUIET_REDIS = r"signal-handler|ready to exit"
# housekeeping that comes round every few seconds, and Celery's messages while it stops
_QUIET_WORKER = (
    r"Task workers\.(sweep_jobs|review_queue|refresh_estimates|review_plans|run_due_reports|send_deliveries"
    r"|renew_forecasts|refine_measurements|refresh_objectives|run_due_history|observe_accuracy|poll_connections?"
    r"|advance_evacuations|advance_rollouts|advance_trials|purge)\[|^$|^worker: "
)
# with Spark's messages, those of every Python worker that starts
_QUIET_STREAM = (
    r" (INFO|WARN) \w+: |^WARNING: |^Using Spark|^Setting default log level|^To adjust logging"
    r"|^Starting Streaming |^Streaming TransformWithState|^$"
)
# as engine/compilation.py words it
_STEP_WORKER = r"compiling the engine\b.*"
_QUIET_BEAT = r"Scheduler: Sending due task|DatabaseScheduler: Schedule changed"


@dataclass(frozen=True)
class Service:
    """A service: its command, health check and stop signals.

    A service is healthy when `healthy()` is true and, with a `ready_line`, a line of its output matched that pattern.
    `quiet` is a pattern of lines that go to the log file only, `step` one of what the process is at while it starts.
    `stop_steps` are signals with the seconds each is given; what is left then is killed. A service that is not `vital`
    may crash for ever: it is always started again. A `one_off` command ends by itself.
    """

    name: str
    command: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    about: str = ""
    healthy: Callable[[], bool] = field(default=lambda: True)
    ready_line: str | None = None
    quiet: str | None = None
    step: str | None = None
    stop_steps: Sequence[tuple[signal.Signals, float]] = ((signal.SIGTERM, 4.0),)
    vital: bool = True
    one_off: bool = False


class ServiceRun:
    """A started service: pumps its output to the log file and, while `loud`, to the console; keeps the last lines."""

    def __init__(self, service: Service, console: Terminal, log: RotatingLog, *, loud: bool = True) -> None:
        self.service = service
        self.loud = loud
        self.recent: deque[str] = deque(maxlen=_RECENT_LINES)
        self.lines = 0
        self.step = ""
        self.was_ready = False
        self.started_at = time.monotonic()
        self._console, self._log = console, log
        self._line_seen = service.ready_line is None
        self.process = spawn(service.command, env=service.env, cwd=service.cwd, output=subprocess.PIPE)
        self._pump = threading.Thread(target=self._read, name=f"pump-{service.name}", daemon=True)
        self._pump.start()

    def is_ready(self) -> bool:
        """Whether it has become healthy; it is not asked again afterwards."""
        self.was_ready = self.was_ready or (self._line_seen and self.service.healthy())
        return self.was_ready

    @property
    def exit_code(self) -> int | None:
        return self.process.poll()

    def stop(self) -> None:
        """End it and its children, and read their last output."""
        end_family(self.process, self.service.stop_steps)
        self.drain()

    def drain(self) -> None:
        """Wait a moment for the last lines of an ended process."""
        self._pump.join(0.5)

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for raw in output:
                self._take(raw.decode(errors="replace").rstrip())

    def _take(self, text: str) -> None:
        service = self.service
        self.recent.append(text)
        self.lines += 1
        if service.step is not None and (step := re.search(service.step, text)):
            self.step = step[0]
        self._log.write(text if text.startswith('{"time"') else f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text}")
        if self.loud and (service.quiet is None or not re.search(service.quiet, text)):
            self._console.line(service.name, text)
        if service.ready_line is not None and re.search(service.ready_line, text):
            self._line_seen = True


def redis_server(binary: Path, port: int, folder: Path, env: Mapping[str, str]) -> Service:
    """The embedded Redis-protocol server; stopped last, so that it has written everything down."""
    folder.mkdir(parents=True, exist_ok=True)
    return Service(
        name="redis",
        command=redis_command(binary, port, folder),
        env=env,
        cwd=ROOT,
        about=f"{LOOPBACK}:{port} ({binary.name})",
        healthy=lambda: redis_answers(LOOPBACK, port),
        quiet=_QUIET_REDIS,
    )


def healthz(port: int, timeout_s: float = 2.0) -> bool:
    """Whether the console answers there and finds its database and Redis well."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=timeout_s)
    try:
        connection.request("GET", "/healthz")
        return (
            connection.getresponse().status < 500
        )  # 400: a host name other than loopback is configured, yet it serves
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def web(port: int, env: Mapping[str, str]) -> Service:
    """Pages, REST and WebSockets."""
    server = [sys.executable, "-P", "-m", "uvicorn", "console.asgi:application", "--lifespan", "off"]
    server.append("--no-proxy-headers")  # the console reads them, of SLUICE_TRUSTED_PROXIES
    return Service(
        name="web",
        command=[*server, "--host", LOOPBACK, "--port", str(port), "--timeout-graceful-shutdown", "2"],
        env=env,
        cwd=ROOT,
        about=f"http://{LOOPBACK}:{port}",
        healthy=lambda: healthz(port, timeout_s=5.0),  # refused at once while nobody listens; then a busy one is slow
        quiet=_QUIET_WEB,
    )


def worker(env: Mapping[str, str]) -> Service:
    """The worker of what people wait for."""
    return _worker("worker", "interactive", "takes what people wait for", env)


# Each service is a session of its own, and Linux shares a busy machine out by sessions before it looks at who is nice.
_GIVE_WAY = '{ echo 19 > /proc/self/autogroup; } 2>/dev/null; exec nice -n 19 "$0" "$@"'


def background(env: Mapping[str, str]) -> Service:
    """The worker of what runs by itself or takes long. It gives way to all other processes."""
    service = _worker("background", "background", "takes the rest", env)
    return replace(service, command=["sh", "-c", _GIVE_WAY, *service.command])


def _worker(name: str, queue: str, about: str, env: Mapping[str, str]) -> Service:
    """Asked twice to stop: the first signal lets tasks finish, the second hands them back to the broker."""
    command = [sys.executable, "-P", "-m", "celery", "-A", "console", "worker", "--loglevel", "INFO"]
    return Service(
        name=name,
        command=[*command, "--without-gossip", "--without-mingle", "-Q", queue, "-n", f"{name}@%h"],
        env=env,
        cwd=ROOT,
        about=about,
        ready_line=rf"{name}@\S+ ready",
        quiet=_QUIET_WORKER,
        step=_STEP_WORKER,
        stop_steps=((signal.SIGTERM, 3.0), (signal.SIGQUIT, 3.0)),
    )


def beat(env: Mapping[str, str]) -> Service:
    """Schedules, kept in the database."""
    command = [sys.executable, "-P", "-m", "celery", "-A", "console", "beat", "--loglevel", "INFO", "--pidfile="]
    return Service(
        name="beat",
        command=command,
        env=env,
        cwd=ROOT,
        about="keeps the schedules",
        ready_line=r"beat: Starting",
        quiet=_QUIET_BEAT,
    )


def stream(env: Mapping[str, str]) -> Service:
    """The stream processor. It warms up for a while after its start; the console shows that."""
    return Service(
        name="stream",
        command=[sys.executable, "-P", "-m", "spark_jobs"],
        env=env,
        cwd=ROOT,
        quiet=_QUIET_STREAM,
        stop_steps=((signal.SIGTERM, 10.0),),  # the driver alone: it stops its JVM in order
        vital=False,
    )


def agent(config: Path, env: Mapping[str, str]) -> Service:
    """A source agent of this machine, as its file says."""
    name = config.parent.name
    return Service(
        name=name,
        command=[sys.executable, "-P", "-m", "agent", "run", "--config", str(config)],
        env=env,
        cwd=ROOT,
        vital=False,
    )


def manage(name: str, *arguments: str, env: Mapping[str, str]) -> Service:
    """A management command that runs once during the start."""
    command = [sys.executable, "-P", str(ROOT / "manage.py"), *arguments]
    return Service(name=name, command=command, env=env, cwd=ROOT, one_off=True)
