"""Words for the messages of faults: a value, a path, a name that may have been meant."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["join", "key_name", "show", "suggest"]

_SHOWN = 60


def show(value: Any) -> str:
    """A value as a message names it: short, in JSON's words."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, (list, tuple, np.ndarray)):
        return f"a list of {len(value)}"
    text = repr(value) if isinstance(value, (str, int)) else str(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def join(parent: str, key: str | int) -> str:
    """The path of `key` in `parent`."""
    if isinstance(key, int):
        return f"{parent}[{key}]"
    return f"{parent}.{key}" if parent else key


def suggest(name: str, known: Sequence[str]) -> str:
    """Words that point to the nearest known name, or nothing."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def key_name(key: str | int) -> str:
    """How a message calls the value under `key`."""
    return f"item {key}" if isinstance(key, int) else key
