"""Databases that this version did not make: refused in words, and left as they are."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from apps.core.layout import check_layout
from tests.databases import copy_sqlite_template, django_on


def _applied(app: str, name: str) -> str:
    return f"INSERT INTO django_migrations (app, name, applied) VALUES ('{app}', '{name}', '2026-11-24')"


@pytest.fixture
def database(tmp_path: Path, django_db_blocker: Any) -> Iterator[Path]:
    """Django is on a database of the present layout."""
    path = tmp_path / "sluice.sqlite3"
    copy_sqlite_template(path)
    with django_db_blocker.unblock(), django_on(f"sqlite:///{path}"):
        yield path


def _change(path: Path, *statements: str) -> list[str]:
    with closing(sqlite3.connect(path)) as changed:
        changed.executescript(";".join(statements))
        return list(changed.iterdump())


@pytest.mark.parametrize(
    ("statements", "evidence"),
    [
        (
            [_applied("fleet", "0002_help_texts"), _applied("fleet", "0003_coarse")],
            "it has the migration fleet.0002_help_texts.",
        ),
        ([_applied("backtests", "0001_initial")], "it has the migration backtests.0001_initial"),
        (["ALTER TABLE fleet_cluster DROP COLUMN currency"], "lacks fleet_cluster.currency"),
        (
            ["DROP TABLE exports_decisionnotice", "ALTER TABLE fleet_cluster DROP COLUMN currency"],
            "lacks the table exports_",
        ),
    ],
)
def test_database_of_before_the_first_release_is_refused_in_words(
    database: Path, statements: list[str], evidence: str
) -> None:
    before = _change(database, *statements)
    with pytest.raises(CommandError) as refusal:
        call_command("migrate", verbosity=0)
    words = str(refusal.value)
    assert f"{database} was made by a version of Sluice before 0.2.0" in words
    assert evidence in words
    assert "Nothing was changed. To begin anew, stop Sluice and move the folder" in words
    assert "\n" not in words  # `./sluice doctor` shows the last line
    assert _change(database) == before


def test_database_of_a_later_version_is_refused_in_words(database: Path) -> None:
    before = _change(database, *(_applied("fleet", f"{number:04}_later") for number in range(2, 9)))
    with pytest.raises(
        CommandError,
        match=r"made by a later version.* know the migrations fleet\.0002_later, .* and 3 more\. Nothing was",
    ):
        call_command("migrate", verbosity=0)
    assert _change(database) == before


@pytest.mark.parametrize("option", ["check_unapplied", "plan"])
def test_questions_about_waiting_migrations_are_refused_as_well(database: Path, option: str) -> None:
    _change(database, _applied("backtests", "0001_initial"))
    with pytest.raises(CommandError, match="before 0\\.2\\.0"):
        call_command("migrate", verbosity=0, **{option: True})


@pytest.mark.usefixtures("database")
def test_present_database_is_welcome() -> None:
    check_layout(connection)


def test_tables_and_migrations_of_others_are_nobodys_concern(database: Path) -> None:
    _change(database, _applied("notes", "0009_other"), "CREATE TABLE notes (id integer PRIMARY KEY)")
    check_layout(connection)


def test_database_with_migrations_that_wait_is_welcome(database: Path) -> None:
    _change(database, "DELETE FROM django_migrations WHERE app = 'kubernetes'")
    check_layout(connection)


def test_empty_database_is_welcome(tmp_path: Path, django_db_blocker: Any) -> None:
    with django_db_blocker.unblock(), django_on(f"sqlite:///{tmp_path / 'new.sqlite3'}"):
        check_layout(connection)
