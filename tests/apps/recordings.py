"""Rows that many tests begin with: the services write them once, and later tests repeat the statements."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from django.db import connection
from django.db.models import Model

__all__ = ["recorded"]

Row = TypeVar("Row", bound=Model)


@dataclass
class _Recording:
    """Statements that write, and the primary keys given out before and after them."""

    sequences: dict[str, int]
    statements: list[tuple[str, Any, bool]] = field(default_factory=list)
    ended_s: float = 0.0  # by the clock of the test that wrote it
    written: set[str] = field(default_factory=set)
    model: type[Model] = Model
    key: Any = None  # of the row that was built; whoever gets the row itself may delete it

    def __call__(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith(("INSERT", "UPDATE", "DELETE")):
            self.statements.append((sql, params, many))
        return execute(sql, params, many, context)

    def fits(self) -> bool:
        """Whether rows written now would get the primary keys that the statements name, and are not of the future.

        Under a shifted clock each file of tests begins at the same moment: rows of another one may be still to come.
        """
        now = _sequences()
        return self.ended_s <= time.time() and all(
            now.get(table) == self.sequences.get(table) for table in self.written
        )

    def repeat(self) -> None:
        for sql, params, many in self.statements:
            with connection.cursor() as cursor:
                (cursor.executemany if many else cursor.execute)(sql, params)


_recordings: dict[tuple[Callable[..., Model], tuple[str, ...]], _Recording] = {}


def recorded(build: Callable[..., Row], *arguments: str) -> Row:
    """The row that `build(*arguments)` returns, with all rows that it writes; they keep the times of the first call."""
    if connection.vendor != "sqlite":
        return build(*arguments)
    recording = _recordings.get((build, arguments))
    if recording is not None and recording.fits():
        recording.repeat()
        return recording.model.objects.get(pk=recording.key)  # type: ignore[attr-defined,no-any-return]
    recording = _Recording(_sequences())
    with connection.execute_wrapper(recording):
        row = build(*arguments)
    recording.model, recording.key = type(row), row.pk
    recording.written = {name for name, last in _sequences().items() if recording.sequences.get(name) != last}
    recording.ended_s = time.time()
    _recordings[build, arguments] = recording
    return row


def _sequences() -> dict[str, int]:
    """The last primary key given out in each table."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, seq FROM sqlite_sequence")
        return dict(cursor.fetchall())
