"""Words of changes: fields and values as readers know them, for pages, exports and the REST API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import FieldDoesNotExist
from django.db.models import DateTimeField
from django.utils.dateparse import parse_datetime

from apps.ledger.choices import ChangeAction
from apps.ledger.entries import DECIDED_MODELS
from apps.ledger.models import ObjectChange
from apps.ledger.recorder import tracked_models
from apps.ledger.selectors import changes_of, shown_fields
from apps.ui.numbers import MISSING, bytes_size, cps, percent, rate, seconds
from apps.ui.times import exact
from engine.words import counted

__all__ = [
    "CHANGES_OF_FIELDS",
    "FieldWords",
    "ObjectNames",
    "change_words",
    "differing_entries",
    "field_label",
    "kind_words",
]

CHANGES_OF_FIELDS = frozenset({ChangeAction.CHANGED, ChangeAction.DECIDED})  #: whose fields have both values
_LENGTH = 60  # characters of a value


def kind_words(kind: str) -> str:
    """`alert rule` of the kind `alert-rule`."""
    return kind.replace("-", " ")


@dataclass(frozen=True)
class FieldWords:
    """A field that has changed: its name, its label, and both values in words."""

    field: str
    label: str
    before: str
    after: str


def change_words(change: ObjectChange, names: ObjectNames, *, may_change: bool) -> list[FieldWords]:
    """Fields of a change in words; empty of one that makes, deletes or refuses."""
    if change.action not in CHANGES_OF_FIELDS:
        return []
    before = shown_fields(change, change.before, may_change=may_change) or {}
    after = shown_fields(change, change.after, may_change=may_change) or {}
    lines = []
    for name, value in after.items():
        sides = differing_entries(before.get(name), value)
        lines.append(
            FieldWords(name, field_label(change.kind, name), *(names.text(change.kind, name, side) for side in sides))
        )
    return lines


def differing_entries(before: Any, after: Any) -> tuple[Any, Any]:
    """Two values, of maps the entries alone that differ: of a placement, the operators that moved."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return before, after
    same = {name for name in before.keys() & after.keys() if before[name] == after[name]}
    was, now = ({name: entry for name, entry in side.items() if name not in same} for side in (before, after))
    return was, now


#: Of fields by the last part of their names, which is their unit.
_QUANTITIES: Mapping[str, Callable[[Any], object]] = {
    "s": seconds,
    "share": percent,
    "bytes": bytes_size,
    "cps": cps,
    "eps": rate,
}


def _column(kind: str, field: str) -> Any:
    """The field of a model; None where a change has one that no model has."""
    model = tracked_models().get(kind) or DECIDED_MODELS.get(kind)
    try:
        return None if model is None else model._meta.get_field(field)
    except FieldDoesNotExist:
        return None


def field_label(kind: str, field: str) -> str:
    """`Running version` of the field `running_version`, without the unit that its value has."""
    column = _column(kind, field)
    name = field.rpartition("_")[0] if field.rpartition("_")[2] in _QUANTITIES and "_" in field else ""
    words = name or str(getattr(column, "verbose_name", "") or field)
    return words.replace("_", " ").capitalize()


class ObjectNames:
    """Names of the objects that changes refer to by key; each is looked up once, one that is gone in the ledger."""

    def __init__(self) -> None:
        self._names: dict[tuple[Any, Any], str] = {}

    def text(self, kind: str, field: str, value: Any) -> str:
        """A value of a field as a reader knows it: the name for a key, the label of a choice, a number in its unit."""
        if field == "placement":
            return _places(value)
        if value is None or isinstance(value, bool):
            return MISSING if value is None else "yes" if value else "no"
        column = _column(kind, field)
        if column is not None and column.related_model is not None:
            keys = value if isinstance(value, list) else [value]
            return _value(", ".join(self._name(column.related_model, key) for key in keys))
        if isinstance(value, str):
            model = tracked_models().get(kind)
            labels = (model.ledger_labels.get(field) if model else None) or dict(
                getattr(column, "flatchoices", ()) or ()
            )
            moment = parse_datetime(value) if isinstance(column, DateTimeField) else None
            return exact(moment) if moment is not None else _value(labels.get(value, value))
        if isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
            return counted(len(value), "entry", "entries")
        if isinstance(value, dict):  # labels, as their form takes them
            return _value(" ".join(f"{name}={text}" for name, text in value.items()))
        quantity = _QUANTITIES.get(field.rpartition("_")[2]) if isinstance(value, int | float) else None
        return _value(value) if quantity is None else str(quantity(value))

    def _name(self, model: Any, key: Any) -> str:
        if (model, key) not in self._names:
            row = model._base_manager.filter(pk=key).first()
            self._names[model, key] = self._gone(model, key) if row is None else str(row)
        return self._names[model, key]

    def _gone(self, model: Any, key: Any) -> str:
        kind = getattr(model, "ledger_kind", "")
        newest = changes_of(kind, key).order_by("-pk").first() if kind else None
        return f"{newest.name if newest else key} (deleted)"


def _places(placement: Any) -> str:
    """`score on n03#1`: operators and their cores."""
    places = [
        f"{operator} on " + " and ".join(f"{part['node']}#{part['core']}" for part in parts)
        for operator, parts in (placement or {}).items()
    ]
    return _value(", ".join(places))


def _value(value: Any) -> str:
    text = MISSING if value is None or value in ("", [], {}) else str(value)
    return text if len(text) <= _LENGTH else f"{text[: _LENGTH - 1]}…"
