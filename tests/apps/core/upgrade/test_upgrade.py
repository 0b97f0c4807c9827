"""Upgrades of what releases made: each dump in `releases/` is loaded and migrated by the present code."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection
from django.urls import URLResolver, get_resolver
from rest_framework.test import APIClient

from agent import VERSION
from apps.planning.models import BacktestRun, Forecast, PlacementRun, PlanComparison, WhatIf
from tests.apps.core.upgrade.sample import list_releases, load_postgresql, load_sqlite
from tests.apps.people import person
from tests.databases import copy_sqlite_template, django_on, postgres_template, scratch_database

RELEASES = list_releases()
#: Tables that grow with every model and migration that a release adds.
GROWING = {"auth_permission", "django_content_type", "django_migrations"}

Layout = set[tuple[Any, ...]]


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def on_sqlite(release: str, tmp_path: Path, django_db_blocker: Any, redis_url: str) -> Iterator[None]:
    """Django is on the SQLite database of the release."""
    path = load_sqlite(release, tmp_path / "sluice.sqlite3")
    with django_db_blocker.unblock(), django_on(f"sqlite:///{path}"):
        yield


@pytest.fixture
def on_postgresql(release: str, postgres_url: str, django_db_blocker: Any, redis_url: str) -> Iterator[None]:
    """Django is on the PostgreSQL database of the release."""
    load_postgresql(release, postgres_url)
    with django_db_blocker.unblock(), django_on(postgres_url):
        yield


@pytest.fixture
def sqlite_layout(tmp_path: Path, django_db_blocker: Any) -> Layout:
    """Layout of a new installation on SQLite."""
    copy_sqlite_template(tmp_path / "fresh.sqlite3")
    with django_db_blocker.unblock(), django_on(f"sqlite:///{tmp_path / 'fresh.sqlite3'}"):
        return table_layout()


@pytest.fixture
def postgres_layout(postgres_url: str, django_db_blocker: Any) -> Layout:
    """Layout of a new installation on PostgreSQL."""
    template = postgres_template(postgres_url)
    with scratch_database(postgres_url, template) as url, django_db_blocker.unblock(), django_on(url):
        return table_layout()


def migrate(**options: Any) -> str:
    text = StringIO()
    call_command("migrate", stdout=text, stderr=text, **options)
    return text.getvalue()


def row_counts() -> dict[str, int]:
    with connection.cursor() as cursor:
        counts = {}
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT count(*) FROM "{table}"')
            counts[table] = cursor.fetchone()[0]
        return counts


def table_layout() -> Layout:
    """Columns with type and whether they are null, and the columns of indexes and constraints, of every table."""
    read = _sqlite_layout if connection.vendor == "sqlite" else _postgresql_layout
    with connection.cursor() as cursor:
        return read(cursor)


def _sqlite_layout(cursor: Any) -> Layout:
    tables = "SELECT t.name, {} FROM sqlite_master t, {} WHERE t.type = 'table'"
    cursor.execute(tables.format("c.name, c.type, c.'notnull'", "pragma_table_info(t.name) c"))
    layout = {*cursor.fetchall()}
    cursor.execute(tables.format('f."from", f."table", f."to"', "pragma_foreign_key_list(t.name) f"))
    layout |= {*cursor.fetchall()}
    indexed = "pragma_index_list(t.name) l, pragma_index_info(l.name) c"
    cursor.execute(tables.format("l.'unique', l.partial, group_concat(c.name)", indexed) + " GROUP BY t.name, l.name")
    return layout | {*cursor.fetchall()}


def _postgresql_layout(cursor: Any) -> Layout:
    layout: Layout = set()
    for table in connection.introspection.table_names(cursor):
        for column in connection.introspection.get_table_description(cursor, table):
            layout.add((table, column.name, column.type_code, column.display_size, column.null_ok))
        for facts in connection.introspection.get_constraints(cursor, table).values():
            layout.add((table, tuple(facts["columns"] or ()), facts["unique"], facts["index"], facts["foreign_key"]))
    return layout


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
    client.force_authenticate(person("reader", "admin"))
    paths = sorted(set(list_paths(get_resolver().url_patterns)))
    assert len(paths) > 15
    assert {path: code for path in paths if (code := client.get(path).status_code) != 200} == {}


def check_runs() -> None:
    """Results and states of runs are read as before."""
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


def check_upgrade() -> Layout:
    """Migrate the database that Django is on and read all of it; returns its layout."""
    before = row_counts()
    assert min(before.values()) > 0
    migrate()
    assert migrate(check_unapplied=True).strip() == ""
    after = row_counts()
    assert {table: after.get(table) for table in before.keys() - GROWING} == {
        table: before[table] for table in before.keys() - GROWING
    }
    read_every_row()
    check_runs()
    check_lists()  # makes a person: sequences go on after the rows that are there
    return table_layout()


@pytest.mark.usefixtures("on_sqlite")
def test_sqlite_database_of_a_release_is_upgraded_without_a_loss(sqlite_layout: Layout) -> None:
    assert check_upgrade() == sqlite_layout


@pytest.mark.postgres
@pytest.mark.usefixtures("on_postgresql")
def test_postgresql_database_of_a_release_is_upgraded_without_a_loss(postgres_layout: Layout) -> None:
    assert check_upgrade() == postgres_layout


def test_first_release_and_the_present_one_have_dumps() -> None:
    assert {"0.2.0", VERSION} <= set(RELEASES)


@pytest.mark.django_db
def test_models_have_no_change_that_lacks_a_migration() -> None:
    call_command("makemigrations", check_changes=True, dry_run=True, verbosity=0)
