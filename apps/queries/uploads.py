"""Uploaded files kept for a day between looking at them and storing what they say."""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from django.conf import settings
from django.core import signing
from django.core.files.base import File

from apps.core.errors import Malformed, Missing, TooLarge

__all__ = ["KEPT_S", "TEXT_FACTOR", "Upload", "text_limit_bytes", "upload_keep", "upload_open", "uploads_purge"]

KEPT_S = 86_400
# Compressed files may unpack to this many times the limit of an upload.
TEXT_FACTOR = 10
_SALT = "sluice.upload"


class Upload:
    """A kept file: its bytes and the name it had. Use it as a context manager."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.file, self.name = file, name

    def __enter__(self) -> Upload:
        return self

    def __exit__(self, *exception: object) -> None:
        self.file.close()


def upload_keep(file: File[Any]) -> str:
    """Keep an uploaded file and return its key: random, signed, good for a day.

    Raises
    ------
    TooLarge
        The file is larger than `SLUICE_UPLOAD_MAX_MB`.
    """
    check_size(file)
    uploads_purge()
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    token = secrets.token_urlsafe(24)
    file.seek(0)
    with (folder / token).open("xb") as kept:
        for chunk in file.chunks():
            kept.write(chunk)
    return signing.dumps({"file": token, "name": Path(file.name or "upload").name[:120]}, salt=_SALT)


def upload_open(key: str) -> Upload:
    """Open a kept file.

    Raises
    ------
    Malformed
        The key is not one of ours.
    Missing
        The file has been purged, or was uploaded more than a day ago.
    """
    try:
        held = signing.loads(key, salt=_SALT, max_age=KEPT_S)
        return Upload((_folder() / held["file"]).open("rb"), held["name"])
    except (signing.SignatureExpired, FileNotFoundError):
        raise Missing("The upload has expired. Upload the file again.", [("key", "has expired")]) from None
    except signing.BadSignature:
        raise Malformed("key: not the key of an upload.", [("key", "not the key of an upload")]) from None


def uploads_purge() -> int:
    """Remove files kept for longer than a day; returns how many."""
    removed, oldest = 0, time.time() - KEPT_S
    with suppress(FileNotFoundError):
        for path in _folder().iterdir():
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < oldest:
                    path.unlink()
                    removed += 1
    return removed


def check_size(file: File[Any]) -> None:
    """Refuse a file above the limit, naming it."""
    limit = settings.UPLOAD_MAX_BYTES
    if file.size > limit:
        message = f"the file has {file.size / 1e6:.1f} MB; at most {limit / 1e6:g} MB are taken (SLUICE_UPLOAD_MAX_MB)"
        raise TooLarge(f"file: {message}.", [("file", message)])


def text_limit_bytes() -> int:
    """How much text an uploaded file may unpack to."""
    return TEXT_FACTOR * int(settings.UPLOAD_MAX_BYTES)


def _folder() -> Path:
    return Path(settings.VAR_DIR) / "uploads"
