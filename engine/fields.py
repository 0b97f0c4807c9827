"""Field tables: one description of a document from which both the reader and the JSON Schema are made.

A `Kind` reads one value: it returns what the engine keeps, or `BAD` after noting why. A `Table` is an object with named
fields. Reading goes on after a fault, so that one pass finds everything that is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.errors import Fault
from engine.kinds import BAD, Anything, Choice, Flag, Kind, Number, Series, Text
from engine.wording import join, key_name, show, suggest

__all__ = [
    "BAD",
    "Anything",
    "Choice",
    "Field",
    "Flag",
    "Kind",
    "Listed",
    "Mapped",
    "Number",
    "Series",
    "Table",
    "Text",
]


@dataclass(frozen=True)
class Listed(Kind):
    """A list of one kind. Faulty items are kept as `BAD`, so that indices stay those of the document."""

    item: Kind
    length: int | None = None
    least: int = 0
    most: int | None = None

    def read(self, value: Any, parent: str, key: str | int, faults: list[Fault]) -> Any:
        path = join(parent, key)
        if not isinstance(value, (list, tuple)):
            faults.append(Fault(path, f"{key_name(key)} is {show(value)}; allowed: a list"))
            return BAD
        if len(value) < self.least or (self.most is not None and len(value) > self.most):
            allowed = f"exactly {self.least}" if self.least == self.most else f"at least {self.least}"
            faults.append(Fault(path, f"{key_name(key)} has {len(value)} items; allowed: {allowed}"))
            return BAD
        read = self.item.read
        return [read(item, path, i, faults) for i, item in enumerate(value)]

    def schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "array", "items": self.item.schema()}
        if self.least:
            schema["minItems"] = self.least
        if self.most is not None:
            schema["maxItems"] = self.most
        return schema


@dataclass(frozen=True)
class Mapped(Kind):
    """An object whose keys are names given by the user."""

    item: Kind

    def read(self, value: Any, parent: str, key: str | int, faults: list[Fault]) -> Any:
        path = join(parent, key)
        if not isinstance(value, Mapping):
            faults.append(Fault(path, f"{key_name(key)} is {show(value)}; allowed: an object"))
            return BAD
        return {name: self.item.read(item, path, name, faults) for name, item in value.items()}

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": self.item.schema()}


@dataclass(frozen=True)
class Field:
    """A named field of a table."""

    name: str
    kind: Kind
    required: bool = False
    nullable: bool = False
    help: str = ""


class Table(Kind):
    """An object with the given fields; every other field is a fault. Read into a dict without the faulty fields."""

    def __init__(self, name: str, *fields: Field) -> None:
        self.name = name
        self.fields = fields
        self._by_name = {field.name: field for field in fields}
        self._required = [field.name for field in fields if field.required]

    def read(self, value: Any, parent: str, key: str | int, faults: list[Fault]) -> Any:
        path = join(parent, key)
        if not isinstance(value, Mapping):
            faults.append(Fault(path, f"{self.name} is {show(value)}; allowed: an object"))
            return BAD
        kept: dict[str, Any] = {}
        for name, item in value.items():
            field = self._by_name.get(name)
            if field is None:
                self._unknown(name, path, faults)
            elif item is not None or not field.nullable:
                kept[name] = field.kind.read(item, path, name, faults)
        for name in self._required:
            if name not in kept:
                faults.append(Fault(join(path, name), f"{name} is missing; {self.name} needs it"))
                kept[name] = BAD
        return kept

    def _unknown(self, name: Any, path: str, faults: list[Fault]) -> None:
        allowed = suggest(str(name), list(self._by_name)) or f"; allowed: {', '.join(self._by_name)}"
        faults.append(Fault(join(path, str(name)), f"{name} is not a field of {self.name}{allowed}"))

    def schema(self) -> dict[str, Any]:
        properties = {}
        for field in self.fields:
            schema = field.kind.schema()
            if field.nullable and schema:
                schema = {"anyOf": [schema, {"type": "null"}]}
            properties[field.name] = ({"description": field.help} if field.help else {}) | schema
        schema = {"type": "object", "properties": properties, "additionalProperties": False}
        return schema | ({"required": self._required} if self._required else {})
