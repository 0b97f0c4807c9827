"""Serializers that refuse unknown fields."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any, cast

from django.db.models import Model, QuerySet
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request

from apps.core.errors import Forbidden, Missing
from apps.core.reach import check_row, visible

__all__ = [
    "NoticeDeliverySerializer",
    "RowField",
    "StrictModelSerializer",
    "StrictSerializer",
    "field_type",
    "read_body",
    "show_row",
    "unknown_message",
]

_MAX_CHOICES_SHOWN = 24  # named in a refusal


class RowField(serializers.PrimaryKeyRelatedField):
    """A row by its key: one that the caller sees, and where they may do what they ask for."""

    def get_queryset(self) -> Any:
        return visible(super().get_queryset())

    def to_internal_value(self, data: Any) -> Any:
        row = super().to_internal_value(data)
        check_row(row)
        return row


def field_type(annotation: Any) -> Any:
    """Decorator of a method field: the type of its value for the API's description; types of Python are enough."""
    return extend_schema_field(annotation)


class _Strict:
    """Unknown fields are an error naming the nearest known one; read-only fields may only repeat their value.

    The latter lets a client send back what it has read, and tells it when it tries to change what it cannot.
    """

    def get_fields(self) -> dict[str, serializers.Field]:
        fields: dict[str, serializers.Field] = super().get_fields()  # type: ignore[misc]
        for field in fields.values():
            inner = getattr(field, "child", field)
            if isinstance(inner, serializers.ChoiceField):
                inner.error_messages["invalid_choice"] = _choice_message(inner.choices)
        return fields

    def to_internal_value(self, data: Any) -> Any:
        problems: dict[str, Any] = self._unknown(data) if isinstance(data, Mapping) else {}
        try:
            values = super().to_internal_value(data)  # type: ignore[misc]
        except serializers.ValidationError as error:
            raise serializers.ValidationError({**cast(dict[str, Any], error.detail), **problems}) from None
        if problems:
            raise serializers.ValidationError(problems)
        return values

    def _unknown(self, data: Mapping[str, Any]) -> dict[str, list[str]]:
        writable = [name for name, field in self.fields.items() if not field.read_only]  # type: ignore[attr-defined]
        problems = {}
        for name in data:
            if name not in self.fields:  # type: ignore[attr-defined]
                problems[name] = [unknown_message(name, writable)]
            elif name not in writable and not self._repeats(name, data[name]):
                problems[name] = ["this field cannot be set"]
        return problems

    def _repeats(self, name: str, value: Any) -> bool:
        instance = getattr(self, "instance", None)
        return instance is not None and self.to_representation(instance).get(name) == value  # type: ignore[attr-defined]


def _choice_message(choices: Mapping[Any, Any]) -> str:
    """Message of a field of choices for another value; the framework fills in ``{input}``."""
    names = [str(name) for name in choices if name not in ("", None)]
    allowed = ", ".join(names[:_MAX_CHOICES_SHOWN]) + (" and others" if len(names) > _MAX_CHOICES_SHOWN else "")
    return "it is {input}; allowed: " + allowed.replace("{", "{{").replace("}", "}}")


def unknown_message(name: str, allowed: list[str], what: str = "field") -> str:
    """Why `name` is refused: the nearest allowed one if there is one, else all of them."""
    near = difflib.get_close_matches(name, allowed, 1)
    return f"unknown {what}; did you mean {near[0]}?" if near else f"unknown {what}; allowed are {', '.join(allowed)}"


class StrictSerializer(_Strict, serializers.Serializer):
    """`serializers.Serializer` that refuses unknown fields."""


class StrictModelSerializer(_Strict, serializers.ModelSerializer):
    """`serializers.ModelSerializer` that refuses unknown fields."""


def read_body(kind: type[serializers.Serializer], request: Request) -> dict[str, Any]:
    """The values of a request's body, checked by a serializer; a missing body is an empty one."""
    serializer = kind(data=request.data or {})
    serializer.is_valid(raise_exception=True)
    return dict(serializer.validated_data)


def show_row(row: Model, rows: QuerySet[Any], serializer: Callable[[Any], Any]) -> Any:
    """A row that was written as a GET shows it: read again, since `rows` carry what a saved row does not.

    Raises
    ------
    Forbidden
        The change took the row out of what the caller sees. A PATCH is undone by that.
    Missing
        Somebody else deleted it since.
    """
    shown = visible(rows).filter(pk=row.pk).first()
    if shown is not None:
        return serializer(shown).data
    noun = row._meta.verbose_name
    if type(row)._base_manager.filter(pk=row.pk).exists():
        message = f"You would no longer see the {noun} after this. It takes somebody with a role on both places."
        raise Forbidden(message, code="out_of_sight")
    raise Missing(f"The {noun} {row.pk} was deleted meanwhile.")


class NoticeDeliverySerializer(serializers.ModelSerializer):
    """Delivery of a notice to one recipient. Of a webhook only the host is shown."""

    event = serializers.CharField(source="notice.event")
    target = serializers.CharField(source="shown_target")

    class Meta:
        fields = ["event", "channel", "target", "state", "attempts", "next_try_at", "last_error", "sent_at"]
