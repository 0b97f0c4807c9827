"""Exceptions of the engine, one tree, each with a code and its faults as data; and the words of their messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.words import counted

__all__ = [
    "DocumentError",
    "EngineError",
    "Fault",
    "InfeasibleError",
    "OptionError",
    "UnplacedError",
    "join_path",
    "key_name",
    "suggestion",
    "value_words",
]

_MAX_SHOWN = 60  # characters of a value in a message


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with a document.

    `path` is a JSON path such as ``operators[2].inputs[0].selectivity`` (empty for the document itself); `message`
    names the field, its value and what is allowed.
    """

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class EngineError(Exception):
    """Base of everything the engine raises on purpose."""

    code = "engine"

    def __init__(self, message: str, faults: Iterable[Fault] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.faults = tuple(faults)

    def to_dict(self) -> dict[str, Any]:
        """The error as the command line and the REST API print it."""
        faults = [{"path": fault.path, "message": fault.message} for fault in self.faults]
        return {"code": self.code, "message": self.message, "faults": faults}


class DocumentError(EngineError):
    """A malformed document, with every fault found, not only the first."""

    code = "malformed"

    def __init__(self, faults: Iterable[Fault], what: str = "deployment document") -> None:
        listed = tuple(faults)
        count = counted(len(listed), "fault")
        message = f"The {what} has {count}; first: {listed[0]}" if listed else f"The {what} has {count}"
        super().__init__(message, listed)


class OptionError(EngineError):
    """An option of a command that does not exist or has a value it does not take."""

    code = "wrong-option"


class UnplacedError(EngineError):
    """Operators that are on no node yet, where a model needs a placement."""

    code = "unplaced"


class InfeasibleError(EngineError):
    """A well-formed question that has no answer."""

    code = "infeasible"


def value_words(value: Any) -> str:
    """Name of a value in a message: short, in JSON's words."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, (list, tuple)) or getattr(value, "shape", None):  # an array; agents load this without numpy
        return f"a list of {len(value)}"
    text = repr(value) if isinstance(value, (str, int)) else str(value)
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"


def join_path(parent: str, key: str | int) -> str:
    """The path of `key` in `parent`."""
    if isinstance(key, int):
        return f"{parent}[{key}]"
    return f"{parent}.{key}" if parent else key


def suggestion(name: str, known: Sequence[str]) -> str:
    """Hint at the nearest known name, empty where none is near."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def key_name(key: str | int) -> str:
    """Name of the value under `key` in a message."""
    return f"item {key}" if isinstance(key, int) else key
