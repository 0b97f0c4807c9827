"""Databases for tests: templates that are migrated once a run and copied, and Django on a database of a test's own."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import django

from tests.environment import RUN_DIR, VAR_DIR

__all__ = ["copy_sqlite_template", "django_on", "drop_postgres_template", "postgres_template", "scratch_database"]

_ROOT = Path(__file__).resolve().parent.parent
_TEMPLATES = _ROOT / "var" / "test-templates"
_POSTGRES = RUN_DIR / "template.postgres"


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """One process at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _migrate(database_url: str) -> None:
    env = os.environ | {"SLUICE_VAR_DIR": str(VAR_DIR), "DATABASE_URL": database_url}
    command = [sys.executable, "manage.py", "migrate", "--verbosity=0"]
    done = subprocess.run(command, cwd=_ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _migrations_digest() -> str:
    """Names the template of these migrations, so that later runs find it."""
    digest = hashlib.sha256(django.get_version().encode())
    triggers = _ROOT / "apps/queries/snapshots/row_changes.py"
    for path in [*sorted(_ROOT.glob("apps/*/migrations/*.py")), triggers]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def copy_sqlite_template(target: Path) -> None:
    """Put a migrated SQLite database there. Its template is migrated once, and again when migrations change."""
    template = _TEMPLATES / f"{_migrations_digest()}.sqlite3"
    with _lock(_TEMPLATES.with_suffix(".lock")):
        if not template.exists():
            shutil.rmtree(_TEMPLATES, ignore_errors=True)
            _TEMPLATES.mkdir(parents=True)
            fresh = template.with_suffix(f".{os.getpid()}")
            _migrate(f"sqlite:///{fresh}")
            fresh.rename(template)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(template, target)


def postgres_template(server_url: str) -> str:
    """Name of a migrated database on that server; the first call of a run migrates it."""
    with _lock(_POSTGRES.with_suffix(".lock")):
        if not _POSTGRES.exists():
            name = f"template_{uuid.uuid4().hex[:12]}"
            with _connected(server_url) as connection:
                connection.execute(f'CREATE DATABASE "{name}"')
            _migrate(f"{server_url.rsplit('/', 1)[0]}/{name}")
            _POSTGRES.write_text(name)
    return _POSTGRES.read_text()


def drop_postgres_template(server_url: str) -> None:
    """Leave nothing on the server at the end of the run."""
    if _POSTGRES.exists():
        with _connected(server_url) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{_POSTGRES.read_text()}" WITH (FORCE)')


def _connected(server_url: str, patience_s: float = 60.0) -> Any:
    """A connection to a server that may still be coming up beside the first tests."""
    import psycopg

    until = time.monotonic() + patience_s
    while True:
        try:
            return psycopg.connect(server_url, autocommit=True)
        except psycopg.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


@contextmanager
def scratch_database(server_url: str, template: str = "template0") -> Iterator[str]:
    """A database on that server, made from a template and dropped in the end; yields its URL."""
    name = f"scratch_{uuid.uuid4().hex[:12]}"
    with _connected(server_url) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        try:
            yield f"{server_url.rsplit('/', 1)[0]}/{name}"
        finally:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@contextmanager
def django_on(url: str) -> Iterator[None]:
    """Point Django's default connection of every thread to this database for a while."""
    import dj_database_url
    from django.db import connections

    before = connections.settings["default"]
    connections["default"].close()
    del connections["default"]
    connections.settings["default"] = connections.configure_settings({"default": dj_database_url.parse(url)})["default"]
    try:
        yield
    finally:
        connections["default"].close()
        del connections["default"]
        connections.settings["default"] = before
