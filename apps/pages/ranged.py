"""Number fields that say their range, whatever is wrong with what was typed."""

from __future__ import annotations

from django import forms
from django.core.validators import MaxValueValidator, MinValueValidator

__all__ = ["range_set", "ranged"]


def ranged(label: str, help_text: str, low: float, high: float, unit: str = "", *, whole: bool = False) -> forms.Field:
    """A number from `low` to `high`."""
    field = (forms.IntegerField if whole else forms.FloatField)(label=label, help_text=help_text)
    range_set(field, low, high, unit)
    return field


def range_set(field: forms.Field, low: float, high: float, unit: str = "") -> None:
    """Give a number field its range."""
    apart = "" if unit in ("", "%") else " "
    said = f"It has to be {low:g} to {high:,g}{apart}{unit}."
    field.error_messages.update(required=said, invalid=said)
    within = said.replace("%", "%%")  # validators fill in what was typed
    field.validators = [MinValueValidator(low, within), MaxValueValidator(high, within)]
    field.widget.attrs["step"] = "any"  # browsers would count whole steps from whatever was typed first
