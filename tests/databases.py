"""PostgreSQL databases for single tests, and Django on them in place of SQLite."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["django_on", "scratch_database"]


@contextmanager
def scratch_database(server_url: str, template: str = "template0") -> Iterator[str]:
    """A database on that server, made from a template and dropped in the end; yields its URL."""
    import psycopg

    name = f"scratch_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server_url, autocommit=True) as connection:
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
