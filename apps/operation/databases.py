"""Copies of a running database, and their return: into a new database, which takes the old one's place by its name.

The old database is kept beside it until somebody removes it.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

from django.db import Error, connection, connections
from django.db.migrations.recorder import MigrationRecorder

from apps.core.errors import Conflict, Impossible, SluiceError

__all__ = ["Copies", "copies_of_default", "default_named", "is_empty", "row_counts"]

_USED = ("accounts_user", "fleet_cluster")  # rows of these tell a database that somebody uses from a new one
_BUSY_S = 20.0


class Copies(Protocol):
    """Copies of the default database, by the means of its kind."""

    kind: str

    def save(self, target: Path) -> tuple[dict[str, int], list[str]]:
        """Write a copy there, as it is at one moment while others write; rows of each table, and migrations."""

    def load(self, source: Path, stamp: str) -> str:
        """Make a new database of a copy beside the present one; its name."""

    def discard(self, name: str) -> None:
        """Remove a database that `load` made."""

    def swap(self, name: str, stamp: str) -> str:
        """Put it in the place of the present one; the name under which that is kept, empty if there was none.

        Raises
        ------
        Conflict
            Somebody is connected to the present one.
        """


def copies_of_default() -> Copies:
    return _SqliteCopies() if connection.vendor == "sqlite" else _PostgresCopies()


def row_counts() -> dict[str, int]:
    """Rows of each table of the default database."""
    with connection.cursor() as cursor:
        counts = {}
        for table in sorted(connection.introspection.table_names(cursor)):
            cursor.execute(f"SELECT count(*) FROM {connection.ops.quote_name(table)}")
            counts[table] = int(cursor.fetchone()[0])
    return counts


def is_empty() -> bool:
    """Whether nobody has used the default database yet: it has neither people nor clusters."""
    with connection.cursor() as cursor:
        present = {*connection.introspection.table_names(cursor)} & {*_USED}
        for table in sorted(present):
            cursor.execute(f"SELECT 1 FROM {connection.ops.quote_name(table)} LIMIT 1")
            if cursor.fetchone():
                return False
    return True


@contextmanager
def default_named(name: str) -> Iterator[None]:
    """Let Django's default database be the one of that name for a while; this process has one thread."""
    before = connections.settings["default"]
    connections["default"].close()
    del connections["default"]
    # without a pool: it would hold connections to what is about to be renamed
    options = {key: value for key, value in before.get("OPTIONS", {}).items() if key != "pool"}
    connections.settings["default"] = {**before, "NAME": name, "OPTIONS": options}
    try:
        yield
    finally:
        connections["default"].close()
        del connections["default"]
        connections.settings["default"] = before


def _facts() -> tuple[dict[str, int], list[str]]:
    applied = MigrationRecorder(connection).applied_migrations()
    return row_counts(), sorted(f"{app}.{name}" for app, name in applied)


class _SqliteCopies:
    kind = "sqlite"

    @property
    def _path(self) -> Path:
        return Path(str(connection.settings_dict["NAME"]))

    def save(self, target: Path) -> tuple[dict[str, int], list[str]]:
        connection.ensure_connection()
        url = f"{self._path.absolute().as_uri()}?mode=ro"
        with (
            closing(sqlite3.connect(url, uri=True, timeout=_BUSY_S)) as source,
            closing(sqlite3.connect(target)) as copy,
        ):
            source.backup(copy)  # all pages in one step: one snapshot of the write-ahead log, writers go on
            copy.execute("PRAGMA journal_mode=DELETE")
            fault = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
        if fault != "ok":
            raise Impossible(f"The database {self._path} is damaged: {fault}. No backup was written.")
        with default_named(str(target)):
            return _facts()

    def load(self, source: Path, stamp: str) -> str:
        return str(source.rename(self._path.with_name(f".{self._path.name}-{stamp}")))

    def discard(self, name: str) -> None:
        for path in (Path(name), Path(f"{name}-wal"), Path(f"{name}-shm")):
            path.unlink(missing_ok=True)

    def swap(self, name: str, stamp: str) -> str:
        fresh, kept = Path(name), self._path.with_name(f"{self._path.name}-replaced-{stamp}")
        _fold(fresh)
        if not self._path.exists():
            fresh.rename(self._path)
            return ""
        connections["default"].close()
        _fold(self._path)
        self._path.rename(kept)
        try:
            fresh.rename(self._path)
        except OSError:
            kept.rename(self._path)
            raise
        return str(kept)


def _fold(path: Path) -> None:
    """Bring what is in the write-ahead log into the file, which no other process may have open."""
    with closing(sqlite3.connect(path, timeout=1.0)) as database:
        try:
            mode = database.execute("PRAGMA journal_mode=DELETE").fetchone()[0]
        except sqlite3.OperationalError:
            mode = ""
    if mode != "delete":
        raise Conflict(f"{path} is in use by another process. Nothing was changed. Stop Sluice, then restore again.")


class _PostgresCopies:
    kind = "postgresql"

    def save(self, target: Path) -> tuple[dict[str, int], list[str]]:
        tool = _tool("pg_dump")
        with connection.cursor() as cursor:
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                cursor.execute("SELECT pg_export_snapshot()")
                snapshot = str(cursor.fetchone()[0])
                facts = _facts()  # of the same moment as the dump
                where = connection.settings_dict["NAME"]
                _run(tool, "--format=custom", f"--snapshot={snapshot}", f"--file={target}", f"--dbname={where}")
            finally:
                cursor.execute("ROLLBACK")
        return facts

    def load(self, source: Path, stamp: str) -> str:
        tool = _tool("pg_restore")
        name = f"{connection.settings_dict['NAME']}_restored_{stamp}"
        with _server() as cursor:
            cursor.execute(f"CREATE DATABASE {_quoted(name)} TEMPLATE template0")
        try:
            _run(tool, "--no-owner", "--no-privileges", "--exit-on-error", f"--dbname={name}", str(source))
        except SluiceError:
            self.discard(name)
            raise
        return name

    def discard(self, name: str) -> None:
        with _server() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS {_quoted(name)} WITH (FORCE)")

    def swap(self, name: str, stamp: str) -> str:
        present = str(connection.settings_dict["NAME"])
        kept = f"{present}_replaced_{stamp}"
        connection.close()
        with _server() as cursor:
            cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = %s", [present])
            if others := cursor.fetchone()[0]:
                raise Conflict(
                    f"The database {present} has {others} connections of other processes. Nothing was changed. "
                    "Stop web, workers and beat, then restore again."
                )
            cursor.execute("BEGIN")  # both names change, or none
            cursor.execute(f"ALTER DATABASE {_quoted(present)} RENAME TO {_quoted(kept)}")
            cursor.execute(f"ALTER DATABASE {_quoted(name)} RENAME TO {_quoted(present)}")
            cursor.execute("COMMIT")
        return kept


def _quoted(name: str) -> str:
    return connection.ops.quote_name(name.replace('"', '""'))


@contextmanager
def _server() -> Iterator[Any]:
    """A cursor on the server's own database, outside of transactions."""
    try:
        with default_named("postgres"), connection.cursor() as cursor:
            yield cursor
    except Error as error:
        raise Impossible(
            f"PostgreSQL refused: {str(error).strip()}. Nothing was changed. The role of DATABASE_URL has to be "
            "allowed to create databases (ALTER ROLE … CREATEDB), to own the present one, and to connect to postgres."
        ) from None


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Impossible(
            f"{name} is not on PATH. It comes with PostgreSQL's client programs (Debian: postgresql-client), of the "
            "server's version or later. Nothing was changed."
        )
    return found


def _run(tool: str, *arguments: str) -> None:
    """Run a program of PostgreSQL's on the server of the default database; its password is in no argument."""
    settings = connection.settings_dict
    known = {"PGHOST": "HOST", "PGPORT": "PORT", "PGUSER": "USER", "PGPASSWORD": "PASSWORD"}
    env = os.environ | {name: str(settings[key]) for name, key in known.items() if settings[key]}
    options: Mapping[str, Any] = settings.get("OPTIONS", {})
    env |= {f"PG{name.upper()}": str(options[name]) for name in ("sslmode", "sslrootcert") if name in options}
    done = subprocess.run([tool, *arguments], env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Impossible(f"{Path(tool).name} failed: {done.stderr.strip()[-2000:]}")
