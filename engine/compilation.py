"""Notice of compilation: says on a stream which compiled functions are being made, how many are left and since when.

The first command in a clone compiles for a minute and more; later ones load what is kept on disk and say nothing.
Nothing of numba is imported here, so that a command without compiled functions does not load it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import TextIO

__all__ = ["CompileNotice", "current_notice", "show_compilation"]

_PLAIN_EVERY_S = 10.0
_TERMINAL_EVERY_S = 1.0


class CompileNotice:
    """Progress of compiling: one line that is rewritten on a terminal, a plain line now and then elsewhere.

    Calls come from under numba's compiler lock, one at a time and properly nested; a thread beside them only keeps the
    elapsed time moving while a function takes long.
    """

    def __init__(self, stream: TextIO, *, rewrites: bool | None = None) -> None:
        self._stream = stream
        self._rewrites = stream.isatty() if rewrites is None else rewrites
        self._every_s = _TERMINAL_EVERY_S if self._rewrites else _PLAIN_EVERY_S
        self._lock = threading.Lock()
        self._functions: list[str] = []  # being compiled: each needs the one after it
        self.done = self._total = 0
        self._spent_s = 0.0  # in compilations that have ended
        self._began = 0.0
        self._said_at: float | None = None
        self._over = threading.Event()
        self._ticker: threading.Thread | None = None

    def begin(self, function: str, total: int) -> None:
        """`function` is being compiled; at most `total` functions will have been at the end."""
        with self._lock:
            self._functions.append(function)
            self._total = total
            if len(self._functions) == 1:
                self._began = time.monotonic()
                self._over.clear()
                self._ticker = threading.Thread(target=self._tick, name="compile-notice", daemon=True)
                self._ticker.start()
            self._say_when_due()

    def end(self, *, compiled: bool) -> None:
        """The function that began last has ended; `compiled` unless it failed or begins again."""
        with self._lock:
            self._functions.pop()
            self.done += compiled
            if self._functions:
                self._say_when_due()
                return
            self._spent_s += time.monotonic() - self._began
            self._over.set()
            if self._rewrites:
                self._write("\r\033[K")  # answers may follow on the same terminal
        if self._ticker is not None:
            self._ticker.join()

    def close(self) -> None:
        """Say what was compiled, if anything was."""
        if self.done:
            functions = "function" if self.done == 1 else "functions"
            what = f"{self.done} {functions} of the engine in {self._spent_s:.0f} s"
            self._write(f"compiled {what}; kept for next time\n")

    def _tick(self) -> None:
        while not self._over.wait(_TERMINAL_EVERY_S):
            with self._lock:
                if self._functions:
                    self._say_when_due()

    def _say_when_due(self) -> None:
        now = time.monotonic()
        if not self._rewrites and self._said_at is not None and now - self._said_at < self._every_s:
            return
        self._said_at = now
        elapsed_s = self._spent_s + now - self._began
        text = (
            f"compiling the engine, {self.done} of at most {self._total} functions, {elapsed_s:.0f} s; "
            f"now {self._functions[-1]}"
        )
        self._write(f"\r\033[K{text[:100]}" if self._rewrites else f"{text}\n")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more; the answer matters
            self._stream.write(text)
            self._stream.flush()


# One for the process, as numba's events are; set while a command runs or a worker starts.
_notice: CompileNotice | None = None


def current_notice() -> CompileNotice | None:
    """The notice of this process, if it shows one."""
    return _notice


@contextlib.contextmanager
def show_compilation(stream: TextIO, *, rewrites: bool | None = None) -> Iterator[None]:
    """Show on `stream` what is compiled meanwhile; `rewrites`: one line over and over, by default on a terminal."""
    global _notice
    _notice = CompileNotice(stream, rewrites=rewrites)
    try:
        yield
    finally:
        _notice.close()
        _notice = None
