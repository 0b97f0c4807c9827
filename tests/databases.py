"""PostgreSQL databases for single tests, and Django on them in place of SQLite."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["django_on", "scratch_database"]


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
