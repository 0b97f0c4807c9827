"""Stock messages of Django and REST framework in Sluice's words: the value, and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from apps.core.errors import Fault

__all__ = ["MISSING", "reworded", "value_at"]

#: Stands for a value that was not given at all.
MISSING = object()

_STOCK = (
    (re.compile(r"Ensure this value is greater than or equal to (\S+)\."), "at least {}"),
    (re.compile(r"Ensure this value is less than or equal to (\S+)\."), "at most {}"),
    (
        re.compile(r"Ensure this (?:field|value) has (?:no more than|at most) (\d+) characters?.*"),
        "at most {} characters",
    ),
    (re.compile(r"A valid number is required\."), "a number"),
    (re.compile(r"A valid integer is required\."), "a whole number"),
    (re.compile(r"Must be a valid boolean\."), "true or false"),
)
_REQUIRED = {"This field is required.", "This field cannot be blank.", "This field may not be blank."}
_SHOWN = 60


def reworded(fault: Fault, value: Any = MISSING) -> Fault:
    """The fault with the value it is about and what is allowed, where its message is a stock one.

    Examples
    --------
    >>> reworded(Fault("cores", "Ensure this value is greater than or equal to 1."), 0).message
    'cores is 0; allowed: at least 1'
    """
    name = fault.path.rpartition(".")[2]
    if fault.message in _REQUIRED:
        return Fault(fault.path, f"{name} is missing")
    for pattern, allowed in _STOCK:
        if found := pattern.fullmatch(fault.message):
            told = "" if value is MISSING else f"{name} is {_shown(value)}; "
            return Fault(fault.path, f"{told}allowed: {allowed.format(*found.groups())}")
    return fault


def value_at(data: Any, path: str) -> Any:
    """What stands at a path such as `objective.bound_s` or `nodes[2].cores`; MISSING where there is nothing."""
    for step in re.findall(r"[^.\[\]]+", path):
        if isinstance(data, Mapping) and step in data:
            data = data[step]
        elif isinstance(data, Sequence) and not isinstance(data, str) and step.isdecimal() and int(step) < len(data):
            data = data[int(step)]
        else:
            return MISSING
    return data


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
