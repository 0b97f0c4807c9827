"""Secret key of an installation without a configured one."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from pathlib import Path

__all__ = ["kept_secret"]


def kept_secret(path: Path) -> str:
    """The key in a file, created when missing, so that sessions outlive a restart.

    It is written under another name, readable by its owner alone from the first moment, and appears whole: processes
    that start together all read the key of the first one.
    """
    if not path.exists():
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        try:
            with os.fdopen(handle, "w") as file:
                file.write(secrets.token_urlsafe(64))
            with contextlib.suppress(FileExistsError):
                os.link(temporary, path)
        finally:
            Path(temporary).unlink()
    return path.read_text().strip()
