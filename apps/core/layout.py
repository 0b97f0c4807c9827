"""Layout of a database: the tables and columns that its migrations make, and nothing else.

Upgrades begin at 0.2.0, the first release. What an unreleased version or a later one made is refused, with nothing
changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.management.base import CommandError
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ModelState, ProjectState

__all__ = ["TableAutodetector", "check_layout"]

# Every layout between the first one and 0.2.0 has a migration of such an app or name; the first one lacks columns.
_UNRELEASED_APPS = {"backtests", "forecasts", "placements", "plans", "refinement"}
_UNRELEASED_NAME = "0002_help_texts"
_MAX_NAMED = 4


def check_layout(connection: BaseDatabaseWrapper) -> None:
    """Refuse a database that no release up to this one made; an empty one is welcome.

    Raises
    ------
    CommandError
        A version before 0.2.0 made it, or a later release: how that is known, and what to do.
    """
    loader = MigrationLoader(connection)
    own = {config.label for config in apps.get_app_configs() if config.name.startswith("apps.")} | _UNRELEASED_APPS
    applied = {key for key in loader.applied_migrations or () if key[0] in own}
    unreleased = [key for key in applied if key[0] in _UNRELEASED_APPS or key[1] == _UNRELEASED_NAME]
    unknown = [key for key in applied if key not in loader.disk_migrations]
    if unreleased:
        raise CommandError(_unreleased_words(connection, f"it has {_named(unreleased)}"))
    if unknown:
        raise CommandError(
            f"The database {_name(connection)} was made by a later version of Sluice: this one does not know "
            f"{_named(unknown)}. Nothing was changed. Run that version, or restore the backup from before the upgrade "
            "to it."
        )
    if missing := list(_missing_columns(connection, loader, applied)):
        raise CommandError(_unreleased_words(connection, f"it lacks {_listed(missing)}"))


def _unreleased_words(connection: BaseDatabaseWrapper, evidence: str) -> str:
    anew = f"stop Sluice and move the folder {settings.VAR_DIR} away"
    if connection.vendor != "sqlite":
        anew += ", and set DATABASE_URL to an empty database"
    return (
        f"The database {_name(connection)} was made by a version of Sluice before 0.2.0, the first release: {evidence}."
        f" Such data are not carried over. Nothing was changed. To begin anew, {anew}. To go on with these data, "
        "run the version that made them."
    )


def _missing_columns(
    connection: BaseDatabaseWrapper, loader: MigrationLoader, applied: set[tuple[str, str]]
) -> Iterator[str]:
    """Tables and columns that the applied migrations make and the database lacks."""
    state = loader.project_state(sorted(applied)) if applied else None
    with connection.cursor() as cursor:
        present = set(connection.introspection.table_names(cursor))
        for (app, _), model in sorted(state.models.items()) if state else ():
            if app not in {label for label, _ in applied}:
                continue
            table = str(model.options.get("db_table") or f"{app}_{model.name_lower}")
            if table not in present:
                yield f"the table {table}"
                continue
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)} LIMIT 0")  # as fast on every database
            columns = {column[0] for column in cursor.description}
            yield from (f"{table}.{column}" for column in _columns(model) if column not in columns)


def _columns(model: ModelState) -> Iterator[str]:
    for name, field in model.fields.items():
        if not field.many_to_many:
            column = field.clone()
            column.set_attributes_from_name(name)
            yield column.column


def _name(connection: BaseDatabaseWrapper) -> str:
    return str(connection.settings_dict["NAME"])


def _named(keys: list[tuple[str, str]]) -> str:
    """`the migrations fleet.0002_later, planning.0003_later`."""
    return f"the migration{'s' if len(keys) > 1 else ''} {_listed([f'{app}.{name}' for app, name in sorted(keys)])}"


def _listed(names: list[str]) -> str:
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


class TableAutodetector(MigrationAutodetector):
    """Autodetector of migrations that leaves out what only people and forms read.

    A help text, a label, a choice or a bound is no part of a table: Django's own writes them into migrations, so that
    a new wording makes a migration that does nothing.
    """

    def __init__(self, from_state: ProjectState, to_state: ProjectState, questioner: Any = None) -> None:
        for state in (from_state, to_state):
            for model in state.models.values():
                _strip_words(model)
        super().__init__(from_state, to_state, questioner)


def _strip_words(model: ModelState) -> None:
    """Take the words and bounds out of a model's state, whose fields are clones of the model's own."""
    for option in ("verbose_name", "verbose_name_plural"):
        model.options.pop(option, None)
    for field in model.fields.values():
        _strip_field(field)


def _strip_field(field: models.Field[Any, Any]) -> None:
    field.help_text = ""
    field.choices = None
    field._verbose_name = None
    field._validators = []
    field._error_messages = None
