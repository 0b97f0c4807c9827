"""Records of the engine in the REST API: stored answers as they are, and how they are described."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from drf_spectacular.extensions import OpenApiSerializerExtension, OpenApiSerializerFieldExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent
from rest_framework import serializers

from engine.records import Record

__all__ = ["StoredRecordField"]

Direction = Literal["request", "response"]
_JSON_TYPES: dict[type, str] = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}


class StoredRecordField(serializers.JSONField):
    """An answer, as it is stored or as a record, described by its record, or by one of a few."""

    def __init__(self, *records: type[Record], **options: Any) -> None:
        super().__init__(**options)
        self.records = records

    def to_representation(self, value: Any) -> Any:
        return value.to_dict() if isinstance(value, Record) else super().to_representation(value)


class StoredRecordSchema(OpenApiSerializerFieldExtension):
    """A field with an answer refers to the component of its record."""

    target_class = StoredRecordField

    def map_serializer_field(self, auto_schema: AutoSchema, direction: Direction) -> dict[str, object]:
        # As an answer in any direction: a list that is read only is looked into for requests, too.
        refs = [dict(auto_schema.resolve_serializer(record, "response").ref) for record in self.target.records]
        return {"oneOf": refs} if len(refs) > 1 else refs[0]


class RecordSchema(OpenApiSerializerExtension):
    """A record as a component, with those of the records in it."""

    target_class = Record
    match_subclasses = True

    def get_name(self, auto_schema: AutoSchema, direction: Direction) -> str:
        return str(self.target.__name__)

    def map_serializer(self, auto_schema: AutoSchema, direction: Direction) -> dict[str, object]:
        of_answer = direction == "response"
        suffix = "" if of_answer else "Request"  # as drf-spectacular names what is asked apart from what is answered
        schema = self.target.json_schema(f"#/components/schemas/{{model}}{suffix}", of_answer=of_answer)
        for name, part in schema.pop("$defs", {}).items():
            component = ResolvedComponent(
                name=f"{name}{suffix}",
                type=ResolvedComponent.SCHEMA,
                object=_record_named(name),
                schema=_component_schema(part, of_answer),
            )
            auto_schema.registry.register_on_missing(component)
        return _component_schema(schema, of_answer)


def _component_schema(schema: dict[str, object], of_answer: bool) -> dict[str, object]:
    """The schema as that of a component, whose name is its only one: of two with one title, generators refuse one."""
    described: dict[str, object] = _typed(_without_defaults(schema, of_answer))
    described.pop("title", None)
    return described


def _record_named(name: str) -> type[Record] | str:
    """The record of a component's name; the name itself of what is none."""
    kinds: list[type[Record]] = [Record]
    while kinds:
        kind = kinds.pop()
        if kind.__name__ == name:
            return kind
        kinds += kind.__subclasses__()
    return name


def _without_defaults(schema: Any, of_answer: bool) -> Any:
    """The schema without defaults that say nothing, and that generators refuse where they are of another type.

    An answer has all its fields; null as a question's default is a field left out, and refused when sent.
    """
    if isinstance(schema, Mapping):
        return {
            name: {field: _without_defaults(inner, of_answer) for field, inner in item.items()}
            if name == "properties"
            else _without_defaults(item, of_answer)
            for name, item in schema.items()
            if name != "default" or not (of_answer or item is None)
        }
    return [_without_defaults(item, of_answer) for item in schema] if isinstance(schema, list) else schema


def _typed(schema: Any) -> Any:
    """The schema with the type of each enumeration, which the names of enumerations are made by."""
    if isinstance(schema, Mapping):
        typed = {name: _typed(item) for name, item in schema.items()}
        values = typed.get("enum")
        if isinstance(values, list) and "type" not in typed:
            kinds = {_JSON_TYPES[type(value)] for value in values}
            if len(kinds) == 1:
                typed["type"] = kinds.pop()
        return typed
    return [_typed(item) for item in schema] if isinstance(schema, list) else schema
