"""Records of the engine in the description of the REST API."""

from __future__ import annotations

from typing import Any, Literal

from drf_spectacular.extensions import OpenApiSerializerExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent

__all__ = ["RecordSchema"]


class RecordSchema(OpenApiSerializerExtension):
    """A record as a component, with those of the records in it."""

    target_class = "engine.records.Record"
    match_subclasses = True

    def get_name(self, auto_schema: AutoSchema, direction: Literal["request", "response"]) -> str:
        return str(self.target.__name__)

    def map_serializer(self, auto_schema: AutoSchema, direction: Literal["request", "response"]) -> dict[str, Any]:
        is_answer = direction == "response"
        schema: dict[str, Any] = self.target.json_schema("#/components/schemas/{model}", of_answer=is_answer)
        for name, inner in schema.pop("$defs", {}).items():
            auto_schema.registry.register_on_missing(
                ResolvedComponent(name=name, type=ResolvedComponent.SCHEMA, object=name, schema=inner)
            )
        return schema
