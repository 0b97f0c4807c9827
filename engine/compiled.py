"""The one place that touches numba's decorator, so that compiled functions keep their types."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

__all__ = ["compiled", "inner"]

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` with numba at its first call; the machine code is kept on disk.

    Division follows numpy (no exception on zero): callers exclude zero capacities, and loops stay vectorisable.
    """
    return cast(Callable[P, R], numba.njit(cache=True, nogil=True, error_model="numpy")(function))


def inner(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` for calls from compiled functions only.

    Without an entry for Python it compiles in half the time or less, most of all where it takes many arrays.
    """
    options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(Callable[P, R], numba.njit(cache=True, nogil=True, error_model="numpy", **options)(function))
