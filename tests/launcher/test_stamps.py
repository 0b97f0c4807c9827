"""Steps of the start are skipped only when they have nothing to do."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from launcher.up import MigrationStamp, StaticStamp


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for folder in ("static/css", "apps/fleet/static", "apps/fleet/migrations"):
        (root / folder).mkdir(parents=True)
    (root / "requirements.txt").write_text("django\n")
    (root / "static/css/ui.css").write_text("a {}")
    (root / "apps/fleet/migrations/0001_initial.py").write_text("")
    return root


@pytest.fixture
def var_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    (tmp_path / "var").mkdir()
    return tmp_path / "var"


def _migrate(var_dir: Path, *names: str) -> None:
    with closing(sqlite3.connect(var_dir / "sluice.sqlite3")) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS django_migrations (id INTEGER PRIMARY KEY, name, applied)")
        connection.executemany("INSERT INTO django_migrations (name, applied) VALUES (?, 'now')", [(n,) for n in names])
        connection.commit()


def test_static_files_are_collected_again_when_one_changes(root: Path, var_dir: Path) -> None:
    stamp = StaticStamp(root, var_dir)
    assert not stamp.current
    stamp.write()
    assert StaticStamp(root, var_dir).current
    os.utime(root / "static/css/ui.css", (1, 1))
    assert not stamp.current
    stamp.write()
    (root / "apps/fleet/static/new.js").write_text("")
    assert not stamp.current


def test_collected_files_that_were_removed_are_collected_again(root: Path, var_dir: Path) -> None:
    StaticStamp(root, var_dir).write()
    shutil.rmtree(var_dir / "static")
    assert not StaticStamp(root, var_dir).current


def test_migrations_are_left_out_only_when_all_are_applied(root: Path, var_dir: Path) -> None:
    stamp = MigrationStamp(root, var_dir)
    assert not stamp.current  # no database yet
    _migrate(var_dir, "0001")
    stamp.write()
    assert stamp.current
    (root / "apps/fleet/migrations/0002_more.py").write_text("")
    assert not stamp.current
    _migrate(var_dir, "0002")
    stamp.write()
    assert stamp.current
    (root / "requirements.txt").write_text("django==6\n")  # packages have migrations, too
    assert not stamp.current


def test_a_restored_backup_is_migrated_again(root: Path, var_dir: Path) -> None:
    _migrate(var_dir, "0001")
    shutil.copy(var_dir / "sluice.sqlite3", var_dir / "backup")
    _migrate(var_dir, "0002")
    stamp = MigrationStamp(root, var_dir)
    stamp.write()
    assert stamp.current
    shutil.copy(var_dir / "backup", var_dir / "sluice.sqlite3")
    assert not stamp.current


def test_a_database_elsewhere_is_always_asked(root: Path, var_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _migrate(var_dir, "0001")
    stamp = MigrationStamp(root, var_dir)
    stamp.write()
    monkeypatch.setenv("DATABASE_URL", "postgres://x/y")
    assert not stamp.current
