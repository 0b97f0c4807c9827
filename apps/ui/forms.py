"""Forms: refusals of a service shown at the fields they name, and number fields with a range."""

from __future__ import annotations

import json
import re
from decimal import Decimal, InvalidOperation
from typing import Any, Protocol, cast

from django import forms
from django.core.validators import MaxValueValidator, MinValueValidator

__all__ = ["JsonField", "MemoryField", "choice_field", "range_field", "row_field", "set_range", "show_faults"]


_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}
_SIZE = re.compile(r"([\d.,]+)\s*([kmgt])?(i)?b?", re.IGNORECASE)
_MIN_PLAIN_BYTES = 2**20  # a smaller number without a unit was hardly meant in bytes
_MAX_BYTES = 2**60


class JsonField(forms.CharField):
    """An object or, with `of=list`, a list as JSON; where nothing is typed it is empty."""

    widget = forms.Textarea(attrs={"spellcheck": "false", "rows": 6})

    def __init__(self, *, of: type[dict[str, object]] | type[list[Any]] = dict, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.of = of

    def prepare_value(self, value: Any) -> Any:
        """The document as it would be typed; empty for an empty one."""
        return (json.dumps(value, indent=2) if value else "") if isinstance(value, (dict, list)) else value

    def clean(self, value: Any) -> Any:
        """The document that was typed."""
        text = super().clean(value)
        if not text.strip():
            return self.of()
        try:
            document = json.loads(text)
        except ValueError as error:
            raise forms.ValidationError(f"It is no JSON: {error}.") from None
        if not isinstance(document, self.of):
            allowed = "a list, such as []" if self.of is list else "an object, such as {}"
            raise forms.ValidationError(f"It is {type(document).__name__}; allowed: {allowed}.")
        return document


class MemoryField(forms.CharField):
    """Bytes, typed with a unit: 32 GiB, 32 GB; a large number without one counts bytes."""

    default_error_messages = {
        "size": "“%(value)s” is no size: enter a number and its unit, such as 32 GiB.",
        "unit": "“%(value)s” has no unit: enter it with one, such as %(value)s GiB.",
        "range": "“%(value)s” is out of range: enter a size above 0 and up to 1 EiB.",
    }

    def clean(self, value: Any) -> int | None:
        """The size in bytes; None where nothing was typed."""
        text = super().clean(value).strip()
        if not text:
            return None
        found = _SIZE.fullmatch(text)
        try:
            number = Decimal(found[1].replace(",", "")) if found else None
        except InvalidOperation:
            number = None
        if found is None or number is None:
            raise forms.ValidationError(self.error_messages["size"], "size", {"value": text[:40]})
        _, prefix, binary = found.groups()
        if prefix is None and not text.lower().endswith("b") and number < _MIN_PLAIN_BYTES:
            raise forms.ValidationError(self.error_messages["unit"], "unit", {"value": text[:40]})
        size = number * (1024 if binary else 1000) ** _POWERS.get((prefix or "").lower(), 0)
        if not 1 <= size <= _MAX_BYTES:
            raise forms.ValidationError(self.error_messages["range"], "range", {"value": text[:40]})
        return round(size)

    def prepare_value(self, value: Any) -> Any:
        """The size as it would be typed, exactly."""
        if not isinstance(value, int):
            return value
        for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
            if value and value % 1024**power == 0:
                return f"{value // 1024**power} {unit}"
        return f"{value} B"


def choice_field(form: forms.BaseForm, name: str) -> forms.ChoiceField:
    """A form's field of choices, to set them for one request."""
    return cast(forms.ChoiceField, form.fields[name])


def row_field(form: forms.BaseForm, name: str) -> forms.ModelChoiceField:
    """A form's field of rows, to set them for one request."""
    return cast(forms.ModelChoiceField, form.fields[name])


class _Fault(Protocol):
    path: str
    message: str


def show_faults(form: forms.BaseForm, error: Any, names: dict[str, str] | None = None) -> None:
    """Put each fault of a refusal at the field its path begins with; the rest leads the form.

    `names` translates paths into fields where they differ: {"document.operators": "document"}.
    """
    faults = list(getattr(error, "faults", ()))
    if not faults:
        form.add_error(None, error.message)
    for fault in faults:
        name = _field(form, fault.path, names or {})
        if name is None:
            form.add_error(None, f"{fault.path}: {fault.message}" if fault.path else fault.message)
        else:
            rest = "" if fault.path == name or fault.path in (names or {}) else f"{fault.path}: "
            form.add_error(name, f"{rest}{fault.message}" if rest else _at_its_field(fault))


def _at_its_field(fault: _Fault) -> str:
    """The field is named by its label: "It is -3.0; allowed: …", not "bound_s is …"."""
    said = f"{fault.path.rpartition('.')[2]} is "
    return f"It is {fault.message.removeprefix(said)}" if fault.message.startswith(said) else fault.message


def _field(form: forms.BaseForm, path: str, names: dict[str, str]) -> str | None:
    for prefix, name in sorted(names.items(), key=lambda item: -len(item[0])):
        if path.startswith(prefix):
            return name
    first = path.replace("[", ".").split(".")[0]
    return first if first in form.fields else None


def range_field(
    label: str, help_text: str, low: float, high: float, unit: str = "", *, whole: bool = False
) -> forms.Field:
    """A number from `low` to `high`."""
    field = (forms.IntegerField if whole else forms.FloatField)(label=label, help_text=help_text)
    set_range(field, low, high, unit)
    return field


def set_range(field: forms.Field, low: float, high: float, unit: str = "") -> None:
    """Give a number field its range."""
    apart = "" if unit in ("", "%") else " "
    said = f"It has to be {low:g} to {high:,g}{apart}{unit}."
    field.error_messages.update(required=said, invalid=said)
    within = said.replace("%", "%%")  # validators fill in what was typed
    field.validators = [MinValueValidator(low, within), MaxValueValidator(high, within)]
    field.widget.attrs["step"] = "any"  # browsers would count whole steps from whatever was typed first
