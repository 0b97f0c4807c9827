"""How the simulator's loops are compiled."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit

__all__ = ["compiled", "source_stamp", "spliced"]

Function = TypeVar("Function", bound=Callable[..., Any])

# Without reference counts (`_nrt`, numba's own name for the switch): no compiled function makes an array, and counting
# every access to a table of `World` made the loop twelve times slower. A test holds the speed that depends on it.
_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "_nrt": False}


def compiled(function: Function) -> Function:
    """Compile `function`; other compiled functions call it."""
    return cast(Function, njit(**_OPTIONS)(function))


def spliced(function: Function) -> Function:
    """Compile `function` into each caller: passing `World` costs more than the few lines that use it."""
    return cast(Function, njit(**_OPTIONS, inline="always")(function))


def source_stamp() -> int:
    """A number that changes with any source file of this package."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return int.from_bytes(digest.digest()[:7], "big")
