"""Decorators of compiled functions: the one place that touches numba's own, so that functions keep their types."""

from __future__ import annotations

import fcntl
import hashlib
import time
from collections.abc import Callable
from io import FileIO
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

# A process that has not ended a function's compilation after so long is stuck: whoever waits for it compiles, too.
_MAX_WAIT_S = 600.0
_LOOK_EVERY_S = 0.05

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
        has_failed = tuple(event.data["args"]) not in dispatcher.overloads
        if has_failed and isinstance(dispatcher._cache, caching.FunctionCache):
            _TURNS.end(dispatcher._cache)  # nothing will be saved
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


class _Turns:
    """Turns at compiling: of processes that need a function at once one makes it, and the others load what it kept.

    A lock on a file beside the kept code is held from the look for it that found nothing until it is saved. A thread
    that compiles holds numba's own lock, and a function needs those that it calls and never itself by another way, so
    that processes wait for one another in the order of calls.
    """

    def __init__(self) -> None:
        self._held: dict[str, list[FileIO]] = {}  # by the lock's path; a signature more takes the same turn

    def begin(self, cache: Any) -> bool:
        """Wait for the turn of a function; false where there is none to wait for, as in a folder that is read only."""
        path = self._path(cache)
        held = self._held.setdefault(path, [])
        try:
            cache._impl.locator.ensure_cache_path()
            lock = FileIO(path, "a")
        except OSError:
            return False
        until = time.monotonic() + _MAX_WAIT_S
        while not held and time.monotonic() < until:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                time.sleep(_LOOK_EVERY_S)
        held.append(lock)
        return True

    def end(self, cache: Any) -> None:
        """Let others go on; nothing where no turn began. The first lock that was taken is given back last."""
        if held := self._held.get(self._path(cache)):
            held.pop().close()

    @staticmethod
    def _path(cache: Any) -> str:
        return f"{cache._cache_file._index_path}.lock"


_TURNS = _Turns()


def _once(load: Callable[..., Any]) -> Callable[..., Any]:
    def load_or_wait(self: Any, *arguments: Any) -> Any:
        kept = load(self, *arguments)
        if kept is None and _TURNS.begin(self):
            kept = load(self, *arguments)
            if kept is not None:
                _TURNS.end(self)
        return kept

    return load_or_wait


def _ending_turn(save: Callable[..., Any]) -> Callable[..., Any]:
    def save_and_end(self: Any, *arguments: Any) -> Any:
        try:
            return save(self, *arguments)
        finally:
            _TURNS.end(self)

    return save_and_end


_FILE = caching.IndexDataCacheFile
_FILE._load_index = _or_anew(_FILE._load_index, dict)
_FILE.load = _or_anew(_FILE.load, lambda: None)
_CACHE = caching.FunctionCache
_CACHE.load_overload = _once(_CACHE.load_overload)
_CACHE.save_overload = _ending_turn(_CACHE.save_overload)


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
