"""Checks of rows before services store them."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable
from typing import Any
from zoneinfo import ZoneInfo

from django.core.exceptions import ValidationError
from django.db import models

from apps.core.errors import Conflict, Fault, Malformed, field_faults
from apps.core.rest.problems import MISSING, reword_message
from apps.fleet.models import Cluster

__all__ = ["MAX_SLICES", "check_free", "check_row", "cluster_faults"]

# A day in slices of half a second. An estimate's time and memory grow with slices times operators.
MAX_SLICES = 200_000
_BREAKS = frozenset({"Cc", "Zl", "Zp"})  # control characters, line and paragraph separators


def check_row(row: models.Model, faults: Iterable[Fault] = ()) -> None:
    """Refuse a row whose fields break the model's validators, hold NaN or infinity, or that has other `faults`.

    Raises
    ------
    Malformed
        With every fault; uniqueness is `check_free`'s.
    """
    all_faults = [*faults, *_line_faults(row)]
    infinite = [name for name, value in _numbers(row) if not math.isfinite(value)]
    all_faults += [Fault(name, f"{name} is {getattr(row, name)}; allowed: a finite number") for name in infinite]
    try:
        row.clean_fields(exclude={*infinite, *(fault.path for fault in all_faults), *_rows_in_hand(row)})
    except ValidationError as error:
        all_faults += [reword_message(fault, getattr(row, fault.path, MISSING)) for fault in field_faults(error)]
    if all_faults:
        raise Malformed(_summary(row._meta.verbose_name, all_faults), all_faults)


def _rows_in_hand(row: models.Model) -> set[str]:
    """Fields with the row itself that they refer to: asking the database whether it exists tells nothing new."""
    keys = [field for field in row._meta.concrete_fields if isinstance(field, models.ForeignKey)]
    return {field.name for field in keys if field.is_cached(row) and getattr(row, field.attname) is not None}


def _line_faults(row: models.Model) -> list[Fault]:
    """Faults of names with line breaks: names appear in subjects of mails, titles and tables."""
    name = getattr(row, "name", "")
    if not isinstance(name, str) or not any(unicodedata.category(letter) in _BREAKS for letter in name):
        return []
    return [Fault("name", f"name is {name!r}; allowed: one line without control characters")]


def _numbers(row: models.Model) -> list[tuple[str, float]]:
    floats = [field.attname for field in row._meta.concrete_fields if isinstance(field, models.FloatField)]
    values = [(name, getattr(row, name)) for name in floats]
    return [(name, value) for name, value in values if isinstance(value, (int, float))]


def _summary(what: Any, faults: list[Fault]) -> str:
    first = f"{faults[0].path}: {faults[0].message}" if faults[0].path else faults[0].message
    return f"The {what} is not right: {first}" if len(faults) == 1 else f"The {what} has {len(faults)} faults: {first}"


def check_free(rows: models.QuerySet, row: models.Model, **identity: Any) -> None:
    """Refuse a second row of the same identity.

    Raises
    ------
    Conflict
        Naming the field and value that are taken.
    """
    if rows.filter(**identity).exclude(pk=row.pk).exists():
        field, value = list(identity.items())[-1]
        message = f"{value!r} is taken by another {row._meta.verbose_name}"
        raise Conflict(f"{field}: {message}.", [(field, message)])


def cluster_faults(cluster: Cluster) -> list[Fault]:
    """Faults of a cluster beyond the fields' validators, which check types and ranges."""
    faults = []
    if not _is_zone(cluster.time_zone):
        message = f"{cluster.time_zone!r} is not a time zone; allowed are IANA names such as Europe/Berlin or UTC"
        faults.append(Fault("time_zone", message))
    subinterval_s, horizon_s = cluster.subinterval_s, cluster.horizon_s
    if not all(isinstance(value, (int, float)) and 0 < value < 1e9 for value in (subinterval_s, horizon_s)):
        return faults
    count = horizon_s / subinterval_s
    if round(count) < 1 or abs(count - round(count)) > 1e-9 * count:
        message = f"horizon_s is {horizon_s:g}; allowed: a whole number of subintervals of {subinterval_s:g} s"
        faults.append(Fault("horizon_s", message))
    elif 4 * round(count) > MAX_SLICES:
        slices = f"{4 * round(count):,} slices of {subinterval_s / 4:g} s"
        message = f"horizon_s is {horizon_s:g}, which are {slices}; allowed: {MAX_SLICES:,} slices"
        faults.append(Fault("horizon_s", message))
    return faults


def _is_zone(name: Any) -> bool:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError):
        return False
    return True
