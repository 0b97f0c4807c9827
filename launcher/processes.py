"""What `up` starts, in which order, and how each part is known to be healthy."""

from __future__ import annotations

import http.client
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from launcher.places import ROOT
from launcher.ports import LOOPBACK
from launcher.redis import ping, server_command
from launcher.service import Service

__all__ = ["agent", "beat", "healthz", "manage", "redis_server", "stream", "web", "worker"]

# requests that went well, and sockets that open and close, fill the log file but not the screen
_QUIET_WEB = r'"[A-Z]+ \S+ HTTP/[\d.]+" [123]\d\d|"WebSocket \S+" \[accepted\]|connection (open|closed)'
_QUIET_REDIS = r"signal-handler|ready to exit"
# housekeeping that comes round every few seconds, and what Celery says while it stops
_QUIET_WORKER = (
    r"Task workers\.(sweep_jobs|review_queue|refresh_estimates|review_plans|run_due_reports|send_deliveries"
    r"|renew_forecasts|refine_measurements|observe_accuracy|purge)\[|^$|^worker: "
)
_QUIET_STREAM = r" (INFO|WARN) \w+: |^WARNING: |^Using Spark|^Setting default log level|^To adjust logging"
_QUIET_BEAT = r"Scheduler: Sending due task|DatabaseScheduler: Schedule changed"


def redis_server(binary: Path, port: int, folder: Path, env: Mapping[str, str]) -> Service:
    """The embedded Redis-protocol server; stopped last, so that it has written everything down."""
    folder.mkdir(parents=True, exist_ok=True)
    return Service(
        name="redis",
        command=server_command(binary, port, folder),
        env=env,
        cwd=ROOT,
        about=f"{LOOPBACK}:{port} ({binary.name})",
        healthy=lambda: ping(LOOPBACK, port),
        quiet=_QUIET_REDIS,
        ready_timeout_s=20,
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
    return Service(
        name="web",
        command=[*server, "--host", LOOPBACK, "--port", str(port), "--timeout-graceful-shutdown", "2"],
        env=env,
        cwd=ROOT,
        about=f"http://{LOOPBACK}:{port}",
        healthy=lambda: healthz(port),
        quiet=_QUIET_WEB,
        ready_timeout_s=60,
    )


def worker(env: Mapping[str, str]) -> Service:
    """Background work. Asked twice: the first signal lets tasks finish, the second hands them back to the broker."""
    command = [sys.executable, "-P", "-m", "celery", "-A", "console", "worker", "--loglevel", "INFO"]
    return Service(
        name="worker",
        command=[*command, "--without-gossip", "--without-mingle"],
        env=env,
        cwd=ROOT,
        about="takes tasks",
        ready_line=r"celery@\S+ ready",
        quiet=_QUIET_WORKER,
        ready_timeout_s=180,  # the very first start compiles the engine
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
        ready_timeout_s=60,
    )


def stream(env: Mapping[str, str]) -> Service:
    """The stream processor. It warms up for a while after it has started; the console says so."""
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
    return Service(name=name, command=command, env=env, cwd=ROOT)
