"""Secret keys of an installation without configured ones."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from pathlib import Path

__all__ = ["kept_secrets"]


def kept_secrets(path: Path) -> list[str]:
    """The keys in a file, one a line: the one in force first, then those of before that are still accepted.

    The file is created with one when missing, so that sessions outlive a restart.

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
    return path.read_text().split()
