"""Small files that are whole or not there, and the lock of a folder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

__all__ = ["FolderInUse", "lock_folder", "write_whole"]


class FolderInUse(Exception):
    """Another process holds the folder."""


def write_whole(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Replace a file at once: who reads sees all of the old one or all of the new one."""
    fresh = path.with_name(f".{path.name}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    fresh.rename(path)


def lock_folder(folder: Path) -> int:
    """Be the only agent of this state folder; the lock goes with the process, however it ends.

    Raises
    ------
    InUse
        Another agent runs on it; the message has its process number.
    """
    descriptor = os.open(folder / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(descriptor, 20).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise FolderInUse(f"state_dir is {str(folder)!r}: another agent (process {holder}) runs on it") from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor
