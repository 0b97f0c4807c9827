"""A passing PostgreSQL server for the tests."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from launcher.children import end_family, spawn
from launcher.ports import answers, free_port

__all__ = ["PostgresError", "PostgresServer", "find_tools"]

# a server that lives for one test run has nothing to lose
_FAST = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_connections": "60",
}


class PostgresError(RuntimeError):
    """PostgreSQL is there but would not start; the message holds what it said."""


def find_tools() -> Path | None:
    """The folder with initdb and postgres, or None. Debian keeps it off PATH."""
    folders = [
        str(Path(os.path.realpath(found)).parent) for name in ("postgres", "initdb") if (found := shutil.which(name))
    ]
    folders += [str(path) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    return next(
        (Path(f) for f in folders if os.access(f"{f}/initdb", os.X_OK) and os.access(f"{f}/postgres", os.X_OK)), None
    )


def _as_other_user() -> list[str] | None:
    """What runs a command as `postgres`, for the server refuses root; [] when not root, None if there is no way."""
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
    """A cluster in a temporary folder on a free loopback port; `start` returns at once, `wait` says when it answers."""

    def __init__(self, tools: Path) -> None:
        self.port = free_port()
        self.url = f"postgres://sluice@127.0.0.1:{self.port}/postgres"
        self._tools = tools
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = False

    def start(self) -> None:
        prefix = _as_other_user()
        if prefix is None:
            raise PostgresError("as root PostgreSQL needs a user `postgres` and setpriv or runuser")
        self._folder = Path(tempfile.mkdtemp(prefix="sluice-postgres-", dir="/tmp"))
        if prefix:
            shutil.chown(self._folder, "postgres", "postgres")
        log = (self._folder / "log").open("wb")
        data = self._folder / "data"
        options = " ".join(f"-c {key}={value}" for key, value in _FAST.items())
        # one shell, so that the server can come up while the tests are still being collected
        script = (
            f'"{self._tools}/initdb" -D "{data}" -U sluice -A trust -E UTF8 --locale=C --no-sync -N >/dev/null && '
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
        while not self._stopping and not answers(self.port):
            if self._process is None or self._process.poll() is not None or time.monotonic() > until:
                raise PostgresError(f"PostgreSQL did not start:\n{self._log()}")
            time.sleep(0.05)

    def stop(self) -> None:
        self._stopping = True
        if self._process is not None:
            end_family(self._process, ((signal.SIGQUIT, 3.0),))  # "immediate" shutdown
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _log(self) -> str:
        path = (self._folder or Path()) / "log"
        return path.read_text(errors="replace")[-2000:] if path.exists() else ""
