"""Form fields of settings that are records: label, help, range and unit are those of the record's field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from django import forms

from apps.ui.forms import range_field
from engine.kinds import Number
from engine.records import Record, RecordField, record_fields

__all__ = ["SettingsForm", "field_at", "setting_words", "shown_kind"]

_MAX_DIGITS = 12
_LOW = 0.001  # least that is offered where a number has to be above 0


class SettingsForm(forms.Form):
    """Settings of the record `RECORD`; `current` is what differs from the defaults.

    Its numbers are made here, those with a label and a range; fields of choices are declared by each form.
    """

    RECORD: ClassVar[type[Record]]

    def __init__(self, *args: Any, current: Mapping[str, object] | None = None, **kwargs: Any) -> None:
        self.record_fields = record_fields(self.RECORD)
        self.numbers = [
            field for field in self.record_fields.values() if field.words.label and hasattr(field.kind, "most")
        ]
        settings = {name: field.default for name, field in self.record_fields.items()} | dict(current or {})
        shown = {field.name: _shown(field, settings[field.name]) for field in self.numbers}
        kwargs["initial"] = {**settings, **shown, **(kwargs.get("initial") or {})}
        super().__init__(*args, **kwargs)
        for field in self.numbers:
            self.fields[field.name] = _number_field(field)

    @property
    def parameters(self) -> list[tuple[forms.BoundField, str]]:
        """(field, unit) of the numbers."""
        return [(self[field.name], field.words.unit) for field in self.numbers]

    @property
    def has_own_parameters(self) -> bool:
        """Whether one of the numbers is no default, or wrong: they are shown then."""
        return any(
            self[field.name].errors or _differs(self[field.name].value(), _shown(field, field.default))
            for field in self.numbers
        )

    @property
    def settings(self) -> dict[str, object]:
        """Settings that differ from the defaults, as the services take them."""
        kept = {name: self.cleaned_data[name] for name in self.base_fields if name in self.record_fields}
        kept |= {field.name: _kept(field, self.cleaned_data[field.name]) for field in self.numbers}
        return {name: value for name, value in kept.items() if value != self.record_fields[name].default}


def _number_field(field: RecordField) -> forms.Field:
    """A field for a number, in the unit that people read."""
    kind, words = shown_kind(field), field.words
    low, high = round(_LOW * words.scale, _MAX_DIGITS) if kind.least is None else kind.least, kind.most
    said = f"More than 0, up to {high:,g}." if kind.least is None else f"{low:g} to {high:,g}."
    whole = bool(kind.whole) and words.scale == 1
    return range_field(words.label, f"{words.help} {said}", low, high, words.unit, whole=whole)


def _shown(field: RecordField, value: Any) -> str:
    return f"{round(float(value) * field.words.scale, 6):.12g}"


def _kept(field: RecordField, value: float) -> float | int:
    kept = value / field.words.scale
    return round(kept) if field.kind.whole else round(kept, 9)


def _differs(value: Any, default: str) -> bool:
    try:
        return abs(float(value) - float(default)) > 1e-9
    except (TypeError, ValueError):
        return True


def field_at(record: type[Record], path: str) -> RecordField:
    """Field of a record, or of one that it holds, by its path."""
    first, _, rest = path.partition(".")
    field = record_fields(record)[first]
    if not rest:
        return field
    assert field.record is not None, f"{first} holds no record"
    return field_at(field.record, rest)


def shown_kind(field: RecordField) -> Number:
    """Bounds of a number in the unit that people read it in."""
    edges = {name: getattr(field.kind, name) for name in ("above", "least", "most")}
    shown = {
        name: None if edge is None else round(edge * field.words.scale, _MAX_DIGITS) for name, edge in edges.items()
    }
    return replace(field.kind, **shown)


def setting_words(record: type[Record], name: str, value: Any) -> tuple[str, str]:
    """A setting's label and its value, both as people read them; what no field has stays as it is."""
    field = record_fields(record).get(name)
    if field is None:
        return name, str(value)
    words = field.words
    if words.choices is not None:
        return words.label, words.choices.get(str(value), str(value))
    try:
        shown = _shown(field, value)
    except (TypeError, ValueError):
        return words.label, str(value)
    apart = "" if words.unit in ("", "%") else "\N{NO-BREAK SPACE}"
    return words.label, f"{shown}{apart}{words.unit}"
