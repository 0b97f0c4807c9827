"""Carry-over of databases from before migrations were squashed: every row is copied into tables of the present layout.

The present layout begins with one initial migration per app. A database that the former migrations made is recognised
by their names. Its rows go to fresh tables: on SQLite in a new file that takes the place of the old one in the end, on
PostgreSQL in one transaction. What is not exactly the last former layout is refused before anything is changed.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.apps import apps
from django.core.management.base import CommandError
from django.core.management.color import no_style
from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder

from apps.core.models import pack_json

__all__ = ["BACKUP_SCHEMA", "backup_path", "carry_over", "former_faults", "is_former"]

BACKUP_SCHEMA = "before_upgrade"
LAST_FORMER_COMMIT = "bccc87e"
# Migrations of the last former layout beside each app's 0001_initial
_FORMER: dict[str, tuple[str, ...]] = {
    "accounts": (),
    "admission": (),
    "backtests": (),
    "core": (),
    "estimates": ("0002_accuracy", "0003_disturbed_and_telemetry"),
    "fleet": ("0002_currency", "0003_planned_nodes"),
    "forecasts": (),
    "jobs": ("0002_alter_job_kind", "0003_alter_job_kind", "0004_replays"),
    "measurements": ("0002_batch_timing", "0003_stream_stretches", "0004_records_worked_on"),
    "placements": (),
    "planning": (),
    "plans": (),
    "queries": ("0002_import_run", "0003_telemetry_origin"),
    "refinement": ("0002_schedules",),
    "reports": (),
    "results": ("0002_early", "0003_notices", "0004_recovered"),
    "telemetry": (
        "0002_who_had_a_part",
        "0003_when_a_plan_was_used",
        "0004_how_load_factors_are_found",
        "0005_a_stream_that_is_joined",
    ),
}
_GONE = {"backtests", "forecasts", "placements", "plans", "refinement"}  # apps that other ones have taken in
_APP_OF = {
    "planning_backtestrun": "backtests",
    "planning_forecast": "forecasts",
    "planning_loadhistory": "forecasts",
    "planning_placementmove": "placements",
    "planning_placementrun": "placements",
    "planning_plancomparison": "plans",
}
_ANSWERED = {
    "message": "''",
    "started_at": "NULL",
    "finished_at": "answered_at",
    "updated_at": "COALESCE(answered_at, created_at)",
}
# By table and column: SQL over the former row, for columns whose former one has another name or is missing
_EXPRESSIONS: dict[str, dict[str, str]] = {
    "planning_whatif": _ANSWERED,
    "planning_backtestrun": {**_ANSWERED, "snapshot": "''", "snapshot_parts": "'{}'"},
    "planning_plancomparison": {
        "snapshot_parts": "'{}'",
        "started_at": "NULL",
        "updated_at": "COALESCE(finished_at, created_at)",
        "result": "NULL",
    },
    "planning_forecast": {
        "message": "''",
        "state": "'answered'",
        "requested_by_id": "NULL",
        "started_at": "NULL",
        "finished_at": "created_at",
        "updated_at": "created_at",
        "result": "NULL",
    },
    "django_content_type": {
        "app_label": "CASE WHEN app_label IN ('backtests', 'forecasts', 'placements', 'plans') THEN 'planning' "
        "WHEN app_label = 'refinement' THEN 'rollouts' ELSE app_label END",
    },
}
_RENAMED = {"planning_whatif": {"answered_at"}, "planning_backtestrun": {"answered_at"}}  # former columns used above
_PACKED = {"planning_plancomparison": "result", "planning_forecast": "result"}  # JSON before, compressed now
_INTERNAL = {"django_migrations"}

Columns = Mapping[str, list[str]]


def is_former(connection: BaseDatabaseWrapper) -> bool:
    """Whether the former migrations made this database, or some of them did."""
    applied = _applied(connection)
    if any(app in _GONE or name in _FORMER.get(app, ()) for app, name in applied):
        return True
    # the first versions had initial migrations alone, but no currencies
    return ("fleet", "0001_initial") in applied and "currency" not in _column_names(connection, "fleet_cluster")


def former_faults(connection: BaseDatabaseWrapper) -> list[str]:
    """Differences of a former database from the last former layout; empty if it can be carried over."""
    applied = _applied(connection)
    faults = []
    for app, later in _FORMER.items():
        expected = ["0001_initial", *later]
        present = sorted(name for label, name in applied if label == app)
        if present != expected:
            faults.append(f"{app} has {', '.join(present) or 'no migration'}; expected: up to {expected[-1]}")
    return faults


def carry_over(connection: BaseDatabaseWrapper) -> str:
    """Copy every row of a former database into the present layout; returns where the former one is kept.

    Raises
    ------
    CommandError
        It is not exactly the last former layout, something else uses it, or a table or column has no place in the
        present layout. The database is as it was.
    """
    if faults := former_faults(connection):
        raise CommandError(
            f"The database {_name(connection)} was made by a version of Sluice that is too old to be carried over: "
            f"{'; '.join(faults)}. Nothing was changed. Start it once with the last version before this layout "
            f"(git checkout {LAST_FORMER_COMMIT}; ./sluice up), stop that, and come back to this version."
        )
    if connection.vendor == "sqlite":
        return _carry_over_sqlite(connection)
    return _carry_over_postgresql(connection)


def backup_path(path: Path) -> Path:
    """Where the former file of a SQLite database is kept."""
    return path.with_name(f"{path.stem}-before-upgrade{path.suffix}")


def _name(connection: BaseDatabaseWrapper) -> str:
    return str(connection.settings_dict["NAME"])


def _column_names(connection: Any, table: str) -> set[str]:
    with connection.cursor() as cursor:
        return {column.name for column in connection.introspection.get_table_description(cursor, table)}


def _applied(connection: BaseDatabaseWrapper) -> set[tuple[str, str]]:
    """(app, name) of the migrations that a database has."""
    return set(MigrationRecorder(connection).applied_migrations())


# -- SQLite: a new file beside the old one


def _carry_over_sqlite(connection: Any) -> str:
    name = connection.settings_dict["NAME"]
    path = Path(name)
    fresh, backup = path.with_name(f"{path.name}.upgrade"), backup_path(path)
    if backup.exists() and backup.samefile(path):
        backup.unlink()  # the second name of an attempt that ended before the new file took the first one
    if backup.exists():
        raise CommandError(f"{backup} exists already; move it away first. Nothing was changed.")
    connection.close()
    _take_alone(path)
    _delete(fresh)
    connection.settings_dict["NAME"] = str(fresh)
    try:
        _make_tables(connection)
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA foreign_keys=OFF")
            cursor.execute("ATTACH DATABASE %s AS former", [str(path)])
            with transaction.atomic(using=connection.alias):
                _copy(connection, "former", "main")
                connection.check_constraints()
            cursor.execute("DETACH DATABASE former")
        connection.close()
        _take_alone(fresh)
        _keep(path, backup)
        fresh.replace(path)
    finally:
        connection.close()
        connection.settings_dict["NAME"] = name
        _delete(fresh)
    _sync_folder(path.parent)
    return str(backup)


def _take_alone(path: Path) -> None:
    """Bring everything into the one file; nobody else may have it open for that."""
    database = sqlite3.connect(path, timeout=5.0)
    try:
        database.execute("PRAGMA journal_mode=DELETE").fetchone()
    except sqlite3.OperationalError as error:
        raise CommandError(f"{path} is in use ({error}); stop what uses it first. Nothing was changed.") from None
    finally:
        database.close()


def _keep(path: Path, backup: Path) -> None:
    """The same file under a second name, so that there is a database at every moment."""
    try:
        os.link(path, backup)
    except OSError:  # a file system without hard links
        shutil.copy2(path, backup)


def _delete(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# -- PostgreSQL: one transaction, the old tables in a schema of their own


def _carry_over_postgresql(connection: Any) -> str:
    with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
        cursor.execute("SELECT current_schema()")
        (schema,) = cursor.fetchone()
        cursor.execute("SELECT count(*) FROM information_schema.schemata WHERE schema_name = %s", [BACKUP_SCHEMA])
        if cursor.fetchone()[0]:
            raise CommandError(f"The schema {BACKUP_SCHEMA} exists already; drop it first. Nothing was changed.")
        tables = sorted(_columns(connection, schema))
        cursor.execute(f"CREATE SCHEMA {BACKUP_SCHEMA}")
        for table in tables:
            cursor.execute(f'ALTER TABLE "{schema}"."{table}" SET SCHEMA {BACKUP_SCHEMA}')
        _make_tables(connection)
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")  # migrations leave some of them immediate
        _copy(connection, BACKUP_SCHEMA, schema)
        for statement in connection.ops.sequence_reset_sql(no_style(), _models(connection)):
            cursor.execute(statement)
    return f"the schema {BACKUP_SCHEMA} of {_name(connection)}"


def _models(connection: Any) -> list[Any]:
    present = set(connection.introspection.table_names())
    models = apps.get_models(include_auto_created=True)
    return [model for model in models if model._meta.managed and model._meta.db_table in present]


# -- both


def _make_tables(connection: BaseDatabaseWrapper) -> None:
    """Empty tables as the initial migrations make them; later migrations follow when the rows are there.

    Apps that the former layout did not have follow with those.
    """
    executor = MigrationExecutor(connection)
    own = {config.label for config in apps.get_app_configs() if config.name.startswith("apps.")}
    others = [node for node in executor.loader.graph.leaf_nodes() if node[0] not in own]
    former = own & executor.loader.migrated_apps & {*_FORMER, "rollouts"}
    executor.migrate([*others, *((app, "0001_initial") for app in sorted(former))])


def _columns(connection: Any, schema: str) -> dict[str, list[str]]:
    """Names of columns by table."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(
                f"SELECT t.name, c.name FROM {schema}.sqlite_master t, pragma_table_info(t.name, '{schema}') c "
                "WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite^_%%' ESCAPE '^' ORDER BY t.name, c.cid".replace(
                    "%%", "%"
                )
            )
        else:
            cursor.execute(
                "SELECT table_name, column_name FROM information_schema.columns JOIN information_schema.tables "
                "USING (table_schema, table_name) WHERE table_schema = %s AND table_type = 'BASE TABLE' "
                "ORDER BY table_name, ordinal_position",
                [schema],
            )
        columns: dict[str, list[str]] = {}
        for table, column in cursor.fetchall():
            columns.setdefault(table, []).append(column)
    return columns


def _former_table(table: str) -> str:
    app, _, model = table.partition("_")
    if table in _APP_OF:
        return f"{_APP_OF[table]}_{model}"
    return f"refinement_{model}" if app == "rollouts" else table


def _homeless(former: Columns, present: Columns) -> list[str]:
    """Tables and columns of either layout that the other has no place for."""
    sources = {_former_table(table): table for table in present if table not in _INTERNAL}
    faults = [f"table {table}" for table in former if table not in sources and table not in _INTERNAL]
    for source, table in sources.items():
        if source not in former:
            faults.append(f"new table {table}")
            continue
        expressions = _EXPRESSIONS.get(table, {})
        used = set(present[table]) | _RENAMED.get(table, set())
        faults += [f"column {source}.{column}" for column in former[source] if column not in used]
        columns = {*former[source], *expressions}
        faults += [f"new column {table}.{column}" for column in present[table] if column not in columns]
    return sorted(faults)


def _copy(connection: Any, former_schema: str, schema: str) -> None:
    """Fill the present tables with the rows of the former ones and count both."""
    former, present = _columns(connection, former_schema), _columns(connection, schema)
    if faults := _homeless(former, present):
        raise CommandError(f"These have no place in the present layout: {', '.join(faults)}. Nothing was changed.")
    tables = [table for table in present if table not in _INTERNAL]
    with connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f'DELETE FROM {schema}."{table}"')
        for table in tables:
            source = f'{former_schema}."{_former_table(table)}"'
            expressions = _EXPRESSIONS.get(table, {})
            names = ", ".join(f'"{column}"' for column in present[table])
            values = ", ".join(expressions.get(column, f'"{column}"') for column in present[table])
            cursor.execute(f'INSERT INTO {schema}."{table}" ({names}) SELECT {values} FROM {source}')
            if table in _PACKED:
                _pack(cursor, f'{schema}."{table}"', source, _PACKED[table])
            cursor.execute(f'SELECT (SELECT count(*) FROM {source}), (SELECT count(*) FROM {schema}."{table}")')
            before, after = cursor.fetchone()
            if before != after:
                raise CommandError(f"{table}: {after} of {before} rows were copied. Nothing was changed.")


def _pack(cursor: Any, table: str, source: str, column: str) -> None:
    """Compress what was a JSON column, row by row."""
    cursor.execute(f'SELECT id FROM {source} WHERE "{column}" IS NOT NULL')
    for (key,) in cursor.fetchall():
        cursor.execute(f'SELECT CAST("{column}" AS TEXT) FROM {source} WHERE id = %s', [key])
        value = pack_json(json.loads(cursor.fetchone()[0]))
        cursor.execute(f'UPDATE {table} SET "{column}" = %s WHERE id = %s', [value, key])
