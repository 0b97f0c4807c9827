"""Upgrades of data that people have: of the present layout, and of the one before migrations were squashed.

`former.sql.xz` and `former-postgresql.sql.xz` were made by the code of commit bccc87e; `sample` makes `present.sql.xz`.
"""

from __future__ import annotations

import lzma
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Permission
from django.core.management import CommandError, call_command
from django.db import connection
from django.urls import URLResolver, get_resolver
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.core import upgrade
from apps.core.upgrade import BACKUP_SCHEMA, backup_path, is_former
from apps.planning.models import BacktestRun, Forecast, PlacementRun, PlanComparison, WhatIf
from tests.apps.core.upgrade.sample import FOLDER, read_dump
from tests.databases import copy_sqlite_template, django_on

FORMER, PRESENT = FOLDER / "former.sql.xz", FOLDER / "present.sql.xz"
_make_tables = upgrade._make_tables
#: Tables that grow with every new model, or by what is made for people who sign in.
GROWING = {"accounts_user", "auth_permission", "django_content_type"}
#: Tables of the squash that are no more: timings of a day, which micro-batches hold now.
DROPPED = {"measurements_batchtiming"}


@pytest.fixture(scope="module")
def former_made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return read_dump(FORMER, tmp_path_factory.mktemp("former") / "sluice.sqlite3")


@pytest.fixture
def former(former_made: Path, tmp_path: Path) -> Path:
    """A database of the layout before the squash, with rows in every table."""
    return Path(shutil.copyfile(former_made, tmp_path / "sluice.sqlite3"))


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """An empty database of the present layout. The first one in a clone is migrated by a process of its own."""
    copy_sqlite_template(tmp_path / "fresh.sqlite3")
    return tmp_path / "fresh.sqlite3"


@pytest.fixture
def present(tmp_path: Path) -> Path:
    """A database as the initial migrations make it, with rows in every table."""
    return read_dump(PRESENT, tmp_path / "sluice.sqlite3")


@pytest.fixture(scope="module")
def carried_over(
    former_made: Path, tmp_path_factory: pytest.TempPathFactory, django_db_blocker: Any, _redis_server: str
) -> Path:
    """The former database after `migrate`; its backup and the tables that its rows were copied to lie beside it."""
    path = tmp_path_factory.mktemp("carried") / former_made.name
    shutil.copyfile(former_made, path)

    def make_tables(connection: Any) -> None:
        _make_tables(connection)
        with connection.cursor() as cursor:
            cursor.execute("VACUUM INTO %s", [str(_empty(path))])

    with pytest.MonkeyPatch.context() as patch, django_db_blocker.unblock(), django_on(f"sqlite:///{path}"):
        patch.setattr(upgrade, "_make_tables", make_tables)
        assert "carried over" in migrate()
    return path


@pytest.fixture
def tables_made_before(carried_over: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables for the rows are a copy of those made before: the migrations take seconds."""

    def copy_tables(connection: Any) -> None:
        shutil.copyfile(_empty(carried_over), connection.settings_dict["NAME"])

    monkeypatch.setattr(upgrade, "_make_tables", copy_tables)


@pytest.fixture
def on(django_db_blocker: Any, redis_url: str) -> Any:
    """`with on(path):` Django is on that database."""

    @contextmanager
    def opened(path: Path | str) -> Iterator[None]:
        url = path if isinstance(path, str) else f"sqlite:///{path}"
        with django_db_blocker.unblock(), django_on(url):
            yield

    return opened


def migrate(**options: Any) -> str:
    text = StringIO()
    call_command("migrate", stdout=text, stderr=text, **options)
    return text.getvalue()


def _empty(path: Path) -> Path:
    return path.with_name("empty.sqlite3")


def counts(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            table: database.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]
            for table in tables
            if not table.startswith("sqlite_") and table != "django_migrations"
        }


def layout(path: Path) -> set[tuple[Any, ...]]:
    """(table, column, type, not null) of all columns, and the indexed columns."""
    with closing(sqlite3.connect(path)) as database:
        columns = "SELECT t.name, c.name, c.type, c.'notnull' FROM sqlite_master t, pragma_table_info(t.name) c"
        indexes = (
            "SELECT t.name, l.name, group_concat(c.name) FROM sqlite_master t, pragma_index_list(t.name) l, "
            "pragma_index_info(l.name) c GROUP BY t.name, l.name"
        )
        return {*database.execute(columns), *database.execute(indexes)}


def read_every_row() -> int:
    """All columns of all rows, as their models read them; returns how many rows."""
    rows = [row for model in apps.get_models(include_auto_created=True) for row in model._base_manager.all()]
    for row in rows:
        for field in row._meta.concrete_fields:
            getattr(row, field.attname)
    return len(rows)


def list_paths(patterns: list[Any], prefix: str = "") -> Iterator[str]:
    """Paths of all lists below these URL patterns."""
    for pattern in patterns:
        route = prefix + str(pattern.pattern).replace("^", "").replace("$", "").replace("\\Z", "")
        if isinstance(pattern, URLResolver):
            yield from list_paths(pattern.url_patterns, route)
        elif route.startswith("api/v1/") and str(pattern.name).endswith("-list") and not {"<", "("} & set(route):
            yield f"/{route}"


def check_lists() -> None:
    """Every list of the REST API answers."""
    client = APIClient(raise_request_exception=False)
    client.force_authenticate(User.objects.create_user("reader", password="x", role="admin"))
    paths = sorted(set(list_paths(get_resolver().url_patterns)))
    assert len(paths) > 15
    assert {path: code for path in paths if (code := client.get(path).status_code) != 200} == {}


# -- the layout before the squash


def test_every_row_of_a_former_database_is_carried_over(former: Path, fresh: Path, carried_over: Path, on: Any) -> None:
    before = counts(former)
    assert min(before.values()) > 0
    shutil.copyfile(carried_over, former)
    with on(former):
        assert migrate(check_unapplied=True).strip() == ""
        assert read_every_row() == sum(counts(former).values())
        check_lists()
        assert not Permission.objects.filter(content_type__app_label__in=["placements", "refinement"]).exists()
    after = counts(former)
    for table, count in before.items():
        app, _, model = table.partition("_")
        name = {"refinement": "rollouts"}.get(app, "planning" if app in upgrade._GONE else app)
        if table not in GROWING | DROPPED:
            assert after[f"{name}_{model}"] == count, table
    assert counts(backup_path(carried_over)) == before
    assert layout(former) == layout(fresh)


def test_results_and_states_of_former_runs_are_read_as_before(carried_over: Path, on: Any) -> None:
    with on(carried_over):
        for model in (BacktestRun, WhatIf):
            answered = model.objects.get(state="answered")
            assert answered.result
            assert answered.answered_at == answered.finished_at is not None
        assert set(WhatIf.objects.values_list("state", flat=True)) == {"answered", "asked"}
        assert set(PlacementRun.objects.values_list("state", flat=True)) == {"applied", "searching"}
        assert PlacementRun.objects.get(state="applied").result["moves"]
        assert PlanComparison.objects.get().result["finding"]
        forecast = Forecast.objects.get()
        assert (forecast.state, forecast.result["queries"][0]["query"]) == ("answered", "first")
        assert forecast.series


def test_migrate_check_reports_a_former_database_and_changes_nothing(former: Path, on: Any) -> None:
    whole = former.read_bytes()
    with on(former), pytest.raises(SystemExit):
        migrate(check_unapplied=True)
    assert former.read_bytes() == whole


@pytest.mark.usefixtures("tables_made_before")
@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("DELETE FROM django_migrations WHERE app = 'telemetry' AND name LIKE '0005%'", "telemetry has .*expected"),
        (
            "DELETE FROM django_migrations WHERE name NOT LIKE '0001%' OR app IN ('placements', 'plans', 'planning', "
            "'forecasts', 'backtests', 'refinement'); ALTER TABLE fleet_cluster DROP COLUMN currency",
            "fleet has 0001_initial; expected",
        ),
        ("CREATE TABLE notes (id integer PRIMARY KEY, text varchar(80))", "table notes"),
        ("ALTER TABLE plans_plancomparison ADD COLUMN remark varchar(80)", "column plans_plancomparison.remark"),
    ],
)
def test_unknown_former_database_is_refused_and_left_as_it_was(
    former: Path, on: Any, statement: str, message: str
) -> None:
    with closing(sqlite3.connect(former)) as database:
        database.executescript(statement)
    before = _dump(former)
    with on(former), pytest.raises(CommandError, match=f"{message}.*Nothing was changed"):
        migrate()
    assert _dump(former) == before
    assert [path.name for path in former.parent.iterdir()] == [former.name]


@pytest.mark.usefixtures("tables_made_before")
def test_failure_while_copying_leaves_the_former_database(
    former: Path, on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _dump(former)

    def fail(*_: Any) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(upgrade, "_pack", fail)
        with on(former), pytest.raises(OSError, match="the disk is full"):
            migrate()
    assert _dump(former) == before
    with on(former):
        migrate()
        assert not is_former(connection)


@pytest.mark.usefixtures("tables_made_before")
def test_upgrade_killed_before_the_swap_is_repeated(former: Path, on: Any) -> None:
    backup_path(former).hardlink_to(former)
    former.with_name(f"{former.name}.upgrade").write_bytes(b"half a copy")
    with on(former):
        migrate()
        assert not is_former(connection)
    assert counts(backup_path(former))["placements_placementrun"] == 2


def test_backup_of_an_earlier_upgrade_is_not_overwritten(former: Path, on: Any) -> None:
    backup_path(former).write_bytes(b"somebody's")
    with on(former), pytest.raises(CommandError, match="exists already; move it away"):
        migrate()
    assert backup_path(former).read_bytes() == b"somebody's"


def test_database_in_use_is_refused(former: Path, on: Any) -> None:
    with closing(sqlite3.connect(former)) as other:
        other.execute("PRAGMA journal_mode=WAL")
        other.execute("BEGIN IMMEDIATE")
        with on(former), pytest.raises(CommandError, match="in use"):
            migrate()
        other.rollback()
    with on(former):
        assert is_former(connection)


def _dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as database:
        return list(database.iterdump())


@pytest.mark.postgres
def test_former_database_on_postgresql_is_carried_over(postgres_url: str, on: Any) -> None:
    import psycopg

    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute(lzma.decompress((FOLDER / "former-postgresql.sql.xz").read_bytes()))  # type: ignore[arg-type]
    with on(postgres_url):
        assert BACKUP_SCHEMA in migrate()
        assert PlanComparison.objects.get().result["finding"]
        assert Forecast.objects.get().state == "answered"
        read_every_row()
        check_lists()  # makes a person: sequences go on after the rows that were copied


# -- the present layout


def test_present_database_is_upgraded_without_a_loss(present: Path, on: Any) -> None:
    before = counts(present)
    assert min(before.values()) > 0
    with on(present):
        migrate()
        read_every_row()
        check_lists()
    after = counts(present)
    kept = before.keys() - GROWING - DROPPED
    assert {table: after[table] for table in kept} == {table: before[table] for table in kept}
    assert all(after[table] >= before[table] for table in GROWING)


def test_later_migrations_do_not_make_a_database_a_former_one(present: Path, on: Any) -> None:
    with closing(sqlite3.connect(present)) as database:
        later = "INSERT INTO django_migrations (app, name, applied) VALUES ('planning', '0002_later', '2027-01-01')"
        database.execute(later)
        database.commit()
    with on(present):
        assert not is_former(connection)


def test_models_have_no_change_that_lacks_a_migration(present: Path, on: Any) -> None:
    with on(present):
        call_command("makemigrations", check_changes=True, dry_run=True, verbosity=0)
