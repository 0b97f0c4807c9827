"""Parts of documents read on their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.errors import DocumentError, Fault


def read(reader: Callable[[Any, str, list[Fault]], Any], document: Any) -> Any:
    """Part of a document as a reader takes it; DocumentError with every fault."""
    faults: list[Fault] = []
    part = reader(document, "", faults)
    if faults:
        raise DocumentError(faults, "document")
    return part
