"""The drill: a console is saved while others write, and comes back whole elsewhere, or not at all."""

from __future__ import annotations

import json
import sqlite3
import tarfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections
from django.test import Client
from django.urls import reverse

from apps.accounts.choices import Role
from apps.accounts.models import User
from apps.core.errors import Conflict, Impossible, Malformed, SluiceError
from apps.fleet.models import Cluster
from apps.operation.archives import DATABASE_MEMBER, open_archive, write_archive
from apps.operation.backups import backup_restore, backup_write
from apps.operation.databases import row_counts
from tests.apps import small_cluster as small
from tests.databases import copy_sqlite_template, django_on

MARKS = "queries_rowchange"

pytestmark = pytest.mark.process  # migrations and writers beside the test's own connection


@pytest.fixture
def console(tmp_path: Path, settings: Any, redis_url: str, django_db_blocker: Any) -> Any:
    """`with console("name") as folder`: Django on an installation of its own, with a new SQLite database."""

    @contextmanager
    def installed(name: str) -> Iterator[Path]:
        folder = tmp_path / name
        if not folder.exists():
            copy_sqlite_template(folder / "sluice.sqlite3")
        settings.VAR_DIR = folder
        with django_db_blocker.unblock(), django_on(f"sqlite:///{folder / 'sluice.sqlite3'}"):
            yield folder

    return installed


@pytest.fixture
def backup(console: Any, tmp_path: Path) -> Path:
    """A backup of a small console with a file of history."""
    with console("first") as folder:
        _seed(folder)
        backup_write(tmp_path / "backup.sluice")
    return tmp_path / "backup.sluice"


def _seed(folder: Path) -> None:
    small.user(Role.ADMITTER)
    small.start_query(small.small_cluster(), "first", 0.3, "a")
    day = folder / "history" / "results" / "2026-11-01"
    day.mkdir(parents=True)
    (day / "batch-000001-000000000001.parquet").write_bytes(b"rows")


def _content(path: Path) -> list[str]:
    """Rows of all tables but marks of changes, of which migrations leave one that tells that anything may have."""
    with closing(sqlite3.connect(path)) as database:
        return [line for line in database.iterdump() if _is_row(line)]


def _is_row(line: str) -> bool:
    return line.startswith("INSERT") and MARKS not in line and "sqlite_sequence" not in line


def _kept_rows(rows: dict[str, int]) -> dict[str, int]:
    return {table: number for table, number in rows.items() if table != MARKS}


def _write_until(done: threading.Event, path: Path, wrote: threading.Event) -> None:
    """Rows in pairs, each pair in a transaction: half of one must never be saved."""
    with closing(sqlite3.connect(path, timeout=20, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE pairs (number INTEGER)")
        while not done.is_set():
            database.execute("BEGIN IMMEDIATE")
            database.execute("INSERT INTO pairs VALUES (1)")
            database.execute("INSERT INTO pairs VALUES (2)")
            database.execute("COMMIT")
            wrote.set()


def test_backup_of_a_written_console_is_restored_elsewhere(console: Any, tmp_path: Path) -> None:
    target, done, wrote = tmp_path / "backup.sluice", threading.Event(), threading.Event()
    with console("first") as folder:
        _seed(folder)
        writer = threading.Thread(target=_write_until, args=(done, folder / "sluice.sqlite3", wrote))
        writer.start()
        wrote.wait()
        try:
            manifest = backup_write(target)
        finally:
            done.set()
            writer.join()
    assert manifest.rows["pairs"] > 0 and manifest.rows["pairs"] % 2 == 0
    assert "stream" in manifest.left_out
    with tarfile.open(target) as tar:
        tar.extract(DATABASE_MEMBER, tmp_path, filter="data")
    with console("second") as folder:
        restored, kept = backup_restore(target)
        assert restored == manifest
        assert _kept_rows(row_counts()) == _kept_rows(manifest.rows)
        assert kept == [f"{folder / 'sluice.sqlite3'}-replaced-{kept[0][-14:]}"]
        assert (folder / "history/results/2026-11-01/batch-000001-000000000001.parquet").read_bytes() == b"rows"
        connections.close_all()
        assert _content(folder / "sluice.sqlite3") == _content(tmp_path / DATABASE_MEMBER)
        client = Client()
        client.force_login(User.objects.get())
        page = client.get(reverse("pages:queries", args=[Cluster.objects.get().slug]))
        assert page.status_code == 200 and b"first" in page.content


def test_what_was_made_of_the_replaced_database_is_put_aside(console: Any, backup: Path) -> None:
    with console("second") as folder:
        small.small_cluster()
        (folder / "bases").mkdir()
        with pytest.raises(Conflict, match="--replace"):
            backup_restore(backup)
        assert Cluster.objects.count() == 1 and (folder / "bases").exists()
        _, kept = backup_restore(backup, replace=True)
        assert not (folder / "bases").exists()
        assert [Path(name).exists() for name in kept] == [True, True]


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _flip_manifest(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"version": "0', b'"version": "1', 1))


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _rewritten(path: Path, **changes: Any) -> None:
    """A whole backup whose manifest says something else."""
    with open_archive(path) as (tar, manifest):
        tar.extract(DATABASE_MEMBER, path.parent, filter="data")
        facts = {**vars(manifest), **changes}
    del facts["format"], facts["members"]
    write_archive(path, facts, {DATABASE_MEMBER: path.parent / DATABASE_MEMBER})


def _newer(path: Path) -> None:
    _rewritten(path, version="99.0.0")


def _unknown_migration(path: Path) -> None:
    _rewritten(path, migrations=["fleet.9999_later"])


def _other_kind(path: Path) -> None:
    _rewritten(path, database="postgresql" if connection.vendor == "sqlite" else "sqlite")


def _other_rows(path: Path) -> None:
    _rewritten(path, rows={"accounts_user": 7})


@pytest.mark.parametrize(
    ("spoil", "error", "says"),
    [
        (_cut, Malformed, "damaged"),
        (_flip, Malformed, "database is not as it was written"),
        (_flip_manifest, Malformed, "manifest is not as it was written"),
        (_empty, Malformed, "damaged"),
        (_newer, Impossible, "99.0.0"),
        (_unknown_migration, Impossible, "fleet.9999_later"),
        (_other_kind, Impossible, "postgresql"),
        (_other_rows, Malformed, "does not hold what its manifest says"),
        (Path.unlink, Malformed, "No such file"),
    ],
)
def test_backup_that_cannot_be_trusted_changes_nothing(
    console: Any, backup: Path, spoil: Any, error: type[SluiceError], says: str
) -> None:
    with console("second") as folder:
        small.small_cluster()
        spoil(backup)
        before = sorted(path.name for path in folder.iterdir())
        with pytest.raises(error, match=says):
            backup_restore(backup, replace=True)
        assert Cluster.objects.count() == 1
        assert sorted({path.name for path in folder.iterdir()} - {"run"}) == sorted({*before} - {"run"})


def test_database_in_use_is_not_replaced(console: Any, backup: Path) -> None:
    with console("second") as folder, closing(sqlite3.connect(folder / "sluice.sqlite3")) as other:
        (folder / "bases").mkdir()
        other.execute("PRAGMA journal_mode=WAL")
        other.execute("SELECT count(*) FROM accounts_user").fetchone()
        with pytest.raises(Conflict, match="in use"):
            backup_restore(backup, replace=True)
        assert (folder / "bases").exists()
        assert not [path.name for path in folder.iterdir() if "replaced" in path.name]


def test_backup_does_not_write_over_a_file(console: Any, backup: Path) -> None:
    content = backup.read_bytes()
    with console("first"), pytest.raises(Conflict, match="exists already"):
        backup_write(backup)
    assert backup.read_bytes() == content
    assert json.dumps(sorted(path.name for path in backup.parent.iterdir())).count("sluice-") == 0


@pytest.mark.postgres
def test_postgresql_is_saved_and_restored(postgres_db: str, tmp_path: Path, settings: Any) -> None:
    settings.VAR_DIR = tmp_path
    small.small_cluster()
    manifest = backup_write(tmp_path / "backup.sluice")
    small.user(Role.ADMITTER)
    connections.close_all()
    with pytest.raises(Conflict, match="--replace"):
        backup_restore(tmp_path / "backup.sluice")
    connections.close_all()
    _, kept = backup_restore(tmp_path / "backup.sluice", replace=True)
    assert _kept_rows(row_counts()) == _kept_rows(manifest.rows) and Cluster.objects.count() == 1
    connections.close_all()
    with django_on(f"{postgres_db.rsplit('/', 1)[0]}/postgres"), connection.cursor() as cursor:
        cursor.execute(f'DROP DATABASE "{kept[0]}"')
