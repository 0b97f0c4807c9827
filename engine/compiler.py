"""Decorators of compiled functions: the one place that touches numba's own, so that functions keep their types."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba
from numba.core import caching, event

from engine.compilation import CompileNotice, current_notice

__all__ = ["compiled", "compiled_uncounted", "inner", "linked", "source_stamp", "spliced"]

P = ParamSpec("P")
R = TypeVar("R")
Function = TypeVar("Function", bound=Callable[..., Any])

# Without reference counts (`_nrt`, numba's own name for the switch), for functions that make no array: counting every
# access to a table of `SimulationWorld` made the simulator's loop twelve times slower, and Mace-Flow's twice. A test
# holds the simulator's speed that depends on it.
_UNCOUNTED: dict[str, object] = {"cache": True, "nogil": True, "error_model": "numpy", "_nrt": False}

# The engine's own functions: numba's events tell of its library's as well.
_DISPATCHERS: set[Any] = set()


def _noted(dispatcher: Any) -> Any:
    _DISPATCHERS.add(dispatcher)
    return dispatcher


class _CompileListener(event.Listener):  # type: ignore[misc]  # numba has no types
    """Passes on what numba compiles to the notice of the process; what it loads from disk makes no event."""

    def on_start(self, event: Any) -> None:
        dispatcher = event.data["dispatcher"]
        if (notice := self._notice(dispatcher)) is not None:
            function = dispatcher.py_func
            name = f"{function.__module__}.{function.__qualname__}".removeprefix("engine.")
            notice.begin(name, total=notice.done + sum(not other.overloads for other in _DISPATCHERS))

    def on_end(self, event: Any) -> None:
        dispatcher = event.data["dispatcher"]
        if (notice := self._notice(dispatcher)) is not None:
            notice.end(compiled=bool(dispatcher.overloads))

    @staticmethod
    def _notice(dispatcher: Any) -> CompileNotice | None:
        return current_notice() if dispatcher in _DISPATCHERS else None


event.register("numba:compile", _CompileListener())


def _or_anew(load: Callable[..., Any], nothing: Callable[[], Any]) -> Callable[..., Any]:
    """Reader of machine code kept on disk: nothing where it names modules that are no longer there.

    numba raises the error of their import: after code has moved nothing could be called until the cache is emptied.
    """

    def load_present(self: Any, *arguments: Any) -> Any:
        try:
            return load(self, *arguments)
        except (ImportError, AttributeError):
            return nothing()

    return load_present


_FILE = caching.IndexDataCacheFile
_FILE._load_index = _or_anew(_FILE._load_index, dict)
_FILE.load = _or_anew(_FILE.load, lambda: None)


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` with numba at its first call; the machine code is kept on disk.

    Division follows numpy (no exception on zero): callers exclude zero capacities, and loops stay vectorisable.
    """
    return cast(Callable[P, R], _noted(numba.njit(cache=True, nogil=True, error_model="numpy")(function)))


def inner(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` for calls from compiled functions only.

    Without an entry for Python it compiles in half the time or less, most of all where it takes many arrays.
    """
    options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(Callable[P, R], _noted(numba.njit(cache=True, nogil=True, error_model="numpy", **options)(function)))


def compiled_uncounted(function: Function) -> Function:
    """Compile `function` without reference counts; other compiled functions call it."""
    return cast(Function, _noted(numba.njit(**_UNCOUNTED)(function)))


def linked(function: Function) -> Function:
    """Compile `function` without reference counts into the machine code of callers in any file, who keep it."""
    return cast(Function, _noted(numba.njit(**{**_UNCOUNTED, "cache": False})(function)))


def spliced(function: Function) -> Function:
    """Compile `function` into each caller: passing a table costs more than the few lines that use it."""
    return cast(Function, numba.njit(**_UNCOUNTED, inline="always")(function))


def source_stamp(folder: Path) -> int:
    """A number that changes with any source file of `folder`."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        digest.update(path.read_bytes())
    return int.from_bytes(digest.digest()[:7], "big")
