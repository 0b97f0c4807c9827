"""Files that are complete or absent, whenever a process or the power ends."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

__all__ = ["fresh_file", "replace_file"]


def replace_file(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Replace `path` by `data`; a reader sees all of the old content or all of the new.

    The data is on disk before the name is, and the folder, which holds the name, is synced last: after this call the
    new content survives a power cut. A write that fails leaves the old file as it was.

    Raises
    ------
    OSError
        The disk is full, or the folder cannot be written.
    """
    with fresh_file(path, mode=mode) as file:
        file.write(data)


@contextlib.contextmanager
def fresh_file(path: Path, *, mode: int = 0o600, suffix: str = ".new") -> Iterator[IO[bytes]]:
    """File that takes the place of `path` when all is written, as `replace_file` does; `suffix` tells writers apart."""
    fresh = path.with_name(f".{path.name}{suffix}")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
        fresh.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
