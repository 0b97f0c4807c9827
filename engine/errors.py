"""The engine's exceptions: one tree, each with a code and its faults as data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["DocumentError", "EngineError", "Fault", "InfeasibleError", "OptionError", "UnplacedError"]


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
    """A document that describes no deployment. Carries every fault found, not only the first."""

    code = "malformed"

    def __init__(self, faults: Iterable[Fault], what: str = "deployment document") -> None:
        listed = tuple(faults)
        count = "1 fault" if len(listed) == 1 else f"{len(listed)} faults"
        first = f"; first: {listed[0]}" if listed else ""
        super().__init__(f"The {what} has {count}{first}", listed)


class OptionError(EngineError):
    """An option of a command that does not exist or has a value it does not take."""

    code = "wrong-option"


class UnplacedError(EngineError):
    """A model was asked about operators that are on no node yet."""

    code = "unplaced"


class InfeasibleError(EngineError):
    """A well-formed question that has no answer."""

    code = "infeasible"
