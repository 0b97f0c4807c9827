"""``pick`` of the command line: the query with the least slack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.errors import DocumentError, Fault
from engine.fields import BAD, Field, Mapped, Number, Table

__all__ = ["command"]

_PROBLEM = Table("pick problem", Field("slacks", Mapped(Number()), required=True, help="of each query, ms"))


def command(document: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """The query that runs next: least slack, above 0 too; ties by id."""
    faults: list[Fault] = []
    read = _PROBLEM.read(document, "", "", faults)
    if read is not BAD and read["slacks"] is not BAD and not read["slacks"]:
        faults.append(Fault("slacks", "slacks is empty; allowed: at least one query"))
    if faults:
        raise DocumentError(faults, "pick problem")
    slacks: dict[str, float] = read["slacks"]
    return {"picked": min(slacks, key=lambda name: (slacks[name], name))}
