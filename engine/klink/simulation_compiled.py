"""How the parts of the simulation's loop are compiled: kept on disk only as parts of the whole.

A part that were kept by itself would go on calling other parts as they were before a change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

__all__ = ["part"]

Function = TypeVar("Function", bound=Callable[..., Any])


def part(function: Function) -> Function:
    """Compile `function` for other compiled functions; without reference counts, as `engine.simulation.compiled`."""
    return cast(Function, njit(nogil=True, _nrt=False)(function))
