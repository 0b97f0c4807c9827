"""Archives of backups: one tar file whose manifest says what is in it, what was left out, and the digest of each part.

Nothing of an archive is used before all of it has been verified.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import IO, Annotated, Any, Literal

from apps.core.errors import Malformed
from engine.errors import DocumentError
from engine.kinds import Number
from engine.records import Moment, Record

__all__ = [
    "DATABASE_MEMBER",
    "HISTORY",
    "ArchiveMember",
    "BackupManifest",
    "open_archive",
    "scratch_folder",
    "unpack",
    "write_archive",
]

FORMAT = 1
DATABASE_MEMBER = "database"
HISTORY = "history"
_MANIFEST, _SEAL = "manifest.json", "manifest.sha256"
_PIECE_BYTES = 1 << 20
_MANIFEST_MAX_BYTES = 64 << 20  # one line for each file of the history
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True)
class ArchiveMember(Record):
    """A file of an archive: its length, and the SHA-256 of its bytes."""

    size_bytes: Annotated[int, Number(least=0, whole=True)]
    sha256: str


@dataclass(frozen=True)
class BackupManifest(Record):
    """Contents of a backup, and what it is of.

    `rows` are the rows of each table at the moment of the backup, `migrations` those that were applied (`app.name`),
    `left_out` what was not saved and what becomes of it.
    """

    format: Annotated[int, Number(least=1, whole=True)]
    version: str
    made_at: Moment
    database: Literal["sqlite", "postgresql"]
    migrations: list[str]
    rows: dict[str, int]
    members: dict[str, ArchiveMember]
    left_out: dict[str, str]


def write_archive(target: Path, manifest: Mapping[str, Any], files: Mapping[str, Path]) -> BackupManifest:
    """Write an archive of files under the names of members; it is there whole or not at all.

    Parameters
    ----------
    manifest
        Fields of the manifest but for `format` and `members`.
    """
    members = {name: _member(path) for name, path in files.items()}
    sealed = BackupManifest(format=FORMAT, members=members, **manifest)
    text = json.dumps(sealed.to_dict(), indent=1, sort_keys=True).encode()
    partial = target.with_name(f".{target.name}.partial")
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
                _add(tar, _MANIFEST, text, sealed.made_at)
                _add(tar, _SEAL, hashlib.sha256(text).hexdigest().encode(), sealed.made_at)
                for name, path in files.items():
                    tar.add(path, arcname=name, recursive=False)
            out.flush()
            os.fsync(out.fileno())
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)
    return sealed


def _member(path: Path) -> ArchiveMember:
    with path.open("rb") as file:
        return ArchiveMember(path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


def _add(tar: tarfile.TarFile, name: str, content: bytes, at: datetime) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = len(content), int(at.timestamp()), 0o600
    tar.addfile(info, io.BytesIO(content))


@contextmanager
def open_archive(path: Path) -> Iterator[tuple[tarfile.TarFile, BackupManifest]]:
    """The archive and its manifest, which stands at its beginning.

    Raises
    ------
    Malformed
        It cannot be read, is no backup, or its manifest is not as it was written.
    """
    with _damage(path):
        tar = tarfile.open(path, mode="r:")  # noqa: SIM115 # closed by the caller of this generator
    with tar:
        yield tar, _manifest(path, tar)


def _manifest(path: Path, tar: tarfile.TarFile) -> BackupManifest:
    with _damage(path):
        text = _read(tar, _MANIFEST)
        if hashlib.sha256(text).hexdigest().encode() != _read(tar, _SEAL):
            raise _damaged(path, "its manifest is not as it was written")
        document = json.loads(text)
        if isinstance(document, dict) and document.get("format") != FORMAT:
            raise Malformed(
                f"{path} is of the format {document.get('format')!r}, which a later version of Sluice writes; this one "
                f"reads format {FORMAT}. Nothing was changed: restore it with that version."
            )
        try:
            manifest = BackupManifest.parse(document)
        except DocumentError as error:
            raise Malformed(f"{path}: the manifest of the backup cannot be read.", error.faults) from None
        for name, member in manifest.members.items():
            if not _is_plain(name) or not _DIGEST.match(member.sha256):
                raise _damaged(path, f"its manifest names {name!r}, which no backup holds")
        if DATABASE_MEMBER not in manifest.members:
            raise _damaged(path, "it holds no database")
        return manifest


def unpack(path: Path, tar: tarfile.TarFile, manifest: BackupManifest, folder: Path) -> None:
    """Write every part into a folder, and verify each.

    Raises
    ------
    Malformed
        A part is missing or is not as it was written: which.
    """
    for name, member in manifest.members.items():
        with _damage(path):
            source = _open(tar, name)
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        with source, target.open("xb") as out:
            while True:
                with _damage(path):
                    piece = source.read(_PIECE_BYTES)
                if not piece:
                    break
                digest.update(piece)
                out.write(piece)
        if digest.hexdigest() != member.sha256:
            raise _damaged(path, f"{name} is not as it was written")


def _read(tar: tarfile.TarFile, name: str) -> bytes:
    with _open(tar, name) as file:
        return file.read(_MANIFEST_MAX_BYTES)


def _open(tar: tarfile.TarFile, name: str) -> IO[bytes]:
    file = tar.extractfile(name)
    if file is None:
        raise KeyError(name)
    return file


def _is_plain(name: str) -> bool:
    """Whether a member is the database or a file of the history, and nothing that leads elsewhere."""
    parts = PurePosixPath(name).parts
    return name == DATABASE_MEMBER or (len(parts) > 1 and parts[0] == HISTORY and not {"..", "/"} & set(parts))


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Faults of reading an archive as one refusal."""
    try:
        yield
    except OSError as error:
        raise Malformed(f"{path} cannot be read: {error.strerror or error}.") from None
    except KeyError as error:
        raise _damaged(path, f"it lacks {error.args[0]}") from None
    except (tarfile.TarError, json.JSONDecodeError, UnicodeDecodeError, EOFError) as error:
        raise _damaged(path, str(error)) from None


def _damaged(path: Path, why: str) -> Malformed:
    return Malformed(f"{path} is damaged, or is no backup of Sluice: {why}. Nothing was changed.")


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """A folder for what is being made, on the file system of what it becomes; it is gone afterwards."""
    folder = parent / f".sluice-{os.getpid()}"
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)
