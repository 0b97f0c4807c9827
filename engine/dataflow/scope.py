"""What an operation of a document may refer to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.dataflow.operators import StaticTable, WindowSpec
from engine.dataflow.types import WINDOW_START, Columns, Type
from engine.errors import Fault
from engine.wording import join, suggest

__all__ = ["Scope", "check_free", "type_of"]


@dataclass(frozen=True)
class Scope:
    """What stands before an operation."""

    columns: Columns
    time: str
    tables: Mapping[str, StaticTable | None]  # None for a table that is faulty itself
    window: WindowSpec | None = None
    aggregate: str | None = None  #: id of the first aggregate
    stream_join: str | None = None  #: id of a join with another stream

    @property
    def kept(self) -> tuple[str, ...]:
        """The columns that a project keeps unasked."""
        return tuple(name for name in (WINDOW_START, self.time) if name in self.columns)


def type_of(name: str, columns: Columns, path: str, key: str, faults: list[Fault]) -> Type | None:
    """The type of a column, or None after noting that there is none of the name."""
    kind = columns.get(name)
    if kind is None:
        known = list(columns)
        text = f"{key} is {name!r}; allowed: {', '.join(known)}{suggest(name, known)}"
        faults.append(Fault(join(path, key), text))
    return kind


def check_free(name: str, scope: Scope, path: str, faults: list[Fault]) -> None:
    """An operation may neither set the window nor the event time: watermarks are told of both."""
    if name in (WINDOW_START, scope.time):
        faults.append(Fault(join(path, name), f"{name} is set; allowed: any column but window_start and the time"))
