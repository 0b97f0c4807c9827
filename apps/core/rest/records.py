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

    def map_serializer_field(self, auto_schema: AutoSchema, direction: Direction) -> dict[str, Any]:
        refs = [dict(auto_schema.resolve_serializer(record, direction).ref) for record in self.target.records]
        return {"oneOf": refs} if len(refs) > 1 else refs[0]


class RecordSchema(OpenApiSerializerExtension):
    """A record as a component, with those of the records in it."""

    target_class = Record
    match_subclasses = True

    def get_name(self, auto_schema: AutoSchema, direction: Direction) -> str:
        return str(self.target.__name__)

    def map_serializer(self, auto_schema: AutoSchema, direction: Direction) -> dict[str, Any]:
        of_answer = direction == "response"
        schema: dict[str, Any] = self.target.json_schema("#/components/schemas/{model}", of_answer=of_answer)
        schema = _typed(_without_defaults(schema) if of_answer else schema)
        for name, inner in schema.pop("$defs", {}).items():
            auto_schema.registry.register_on_missing(
                ResolvedComponent(name=name, type=ResolvedComponent.SCHEMA, object=_record_named(name), schema=inner)
            )
        return schema


def _record_named(name: str) -> type[Record] | str:
    """The record of a component's name; the name itself of what is none."""
    kinds: list[type[Record]] = [Record]
    while kinds:
        kind = kinds.pop()
        if kind.__name__ == name:
            return kind
        kinds += kind.__subclasses__()
    return name


def _without_defaults(schema: Any) -> Any:
    """The schema of an answer without defaults: it has all its fields, and generators refuse those of objects."""
    if isinstance(schema, Mapping):
        return {
            name: {field: _without_defaults(inner) for field, inner in item.items()}
            if name == "properties"
            else _without_defaults(item)
            for name, item in schema.items()
            if name != "default"
        }
    return [_without_defaults(item) for item in schema] if isinstance(schema, list) else schema


def _typed(schema: Any) -> Any:
    """The schema with the type of each enumeration, which the names of enumerations are made by."""
    if isinstance(schema, Mapping):
        typed = {name: _typed(item) for name, item in schema.items()}
        values = typed.get("enum")
        if isinstance(values, list) and "type" not in typed:
            typed["type"] = "string" if all(isinstance(value, str) for value in values) else "integer"
        return typed
    return [_typed(item) for item in schema] if isinstance(schema, list) else schema
