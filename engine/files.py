"""Files that are complete or absent, whenever a process or the power ends."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

__all__ = ["replace_file"]


def replace_file(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Replace `path` by `data`; a reader sees all of the old content or all of the new.

    The data is on disk before the name is, and the folder, which holds the name, is synced last: after this call the
    new content survives a power cut. A write that fails leaves the old file as it was.

    Raises
    ------
    OSError
        The disk is full, or the folder cannot be written.
    """
    fresh = path.with_name(f".{path.name}.new")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        fresh.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
