"""Uploads of an engine's answers: a zip, JSON or text is read into rounds of answers by the path that was asked."""

from __future__ import annotations

import io
import json
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, Any

from django.conf import settings
from django.core.files.base import File
from django.db import transaction

from apps.connections.choices import ConnectionOrigin
from apps.connections.models import Connection, KeptAnswers
from apps.connections.services import connection_announce
from apps.core.errors import Conflict, Malformed, TooLarge
from apps.queries.arrivals.text import read_text
from apps.queries.arrivals.uploads import TEXT_FACTOR, check_size, text_limit_bytes
from engine.errors import DocumentError
from engine.microbatch.progress_text import read_progress_text

__all__ = ["LINES", "MAX_ROUNDS", "UploadOutcome", "read_rounds", "upload_store"]

MAX_ROUNDS = 1_000
MAX_FILES = 20_000  # of a zip
#: Path under which text that is no JSON object stands in its round: progress of Spark, tables of lag, expositions.
LINES = "/lines"
_INDEX = "INDEX.tsv"

Round = dict[str, object]  # answers by path


@dataclass(frozen=True)
class UploadOutcome:
    """Rounds of an upload, answers in all of them, bytes unpacked."""

    rounds: int
    answers: int
    bytes: int


@transaction.atomic
def upload_store(*, connection: Connection, file: File[Any]) -> UploadOutcome:
    """Keep the answers of an uploaded file in place of those before. Nothing is imported by it.

    Raises
    ------
    Conflict
        The connection is asked by URL.
    Malformed, TooLarge
        The file is damaged, holds no answers, or more than is taken.
    """
    if connection.origin != ConnectionOrigin.UPLOAD:
        message = f"{connection.name!r} is asked by URL; allowed: a connection without one"
        raise Conflict(f"file: {message}.", [("file", message)])
    check_size(file)
    file.seek(0)
    rounds, unpacked = read_rounds(file.read(), file.name or "upload")
    outcome = UploadOutcome(len(rounds), sum(map(len, rounds)), unpacked)
    facts = {"name": PurePosixPath(file.name or "upload").name[:200], "rounds": outcome.rounds, "size": unpacked}
    KeptAnswers.objects.update_or_create(connection=connection, defaults={**facts, "answers": rounds})
    connection_announce(connection)
    return outcome


def read_rounds(data: bytes, name: str) -> tuple[list[Round], int]:
    """Rounds of answers in an uploaded file, oldest first, and how many bytes it has unpacked.

    Taken are: an object ``{path: answer}``, a list of such objects, text such as lines of progress, and a zip of these:
    a round for each file, or for each folder with an ``INDEX.tsv`` of file, status and path, as it is recorded.

    Raises
    ------
    Malformed, TooLarge
    """
    if not data.strip():
        raise _malformed("the file is empty; allowed: a zip, JSON or text of the engine's answers")
    if data[:2] == b"PK":
        rounds, unpacked = _zip_rounds(data)
    else:
        rounds, unpacked = _file_rounds(data, name, _TextReader()), len(data)
    if not rounds:
        raise _malformed("there are no answers in the file; allowed: {path: answer} as JSON, or a zip of these")
    if len(rounds) > MAX_ROUNDS:
        raise TooLarge(f"It holds {len(rounds):,} rounds; allowed: {MAX_ROUNDS:,} at once.", [("file", "too many")])
    return rounds, unpacked


def _file_rounds(data: bytes, name: str, texts: _TextReader) -> list[Round]:
    """Rounds of one file that is no zip."""
    text = texts.read(data, name)
    if not text.strip():
        raise _malformed(f"{name} holds no text; allowed: JSON or text of the engine's answers")
    try:
        document = json.loads(text, parse_constant=str)
    except (ValueError, RecursionError) as error:
        if text.lstrip()[:1] in {"{", "["} and not _is_lines(text) and not _is_progress(text):
            reason = str(error) if isinstance(error, ValueError) else "it nests too deeply"
            raise _malformed(f"{name}: the JSON is broken or ends too early: {reason}") from None
        if text.lstrip()[:9].lower().startswith(("<!doctype", "<html")):
            raise _malformed(f"{name} is HTML: the web page of a proxy or of a login, and no answer") from None
        return [{LINES: text}]
    return list(_document_rounds(document, text, name))


def _is_lines(text: str) -> bool:
    """Whether the first line is a JSON value by itself, as in lines of progress."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        return False
    return True


def _is_progress(text: str) -> bool:
    """Whether the text holds progress of Spark in another arrangement than JSON, such as printed objects."""
    try:
        return bool(read_progress_text(text).documents)
    except (DocumentError, RecursionError):
        return False


def _document_rounds(document: Any, text: str, name: str) -> Iterator[Round]:
    if _is_round(document):
        yield dict(document)
    elif isinstance(document, list) and document and all(map(_is_round, document)):
        yield from map(dict, document)
    elif isinstance(document, (Mapping, list)) and document:
        yield {LINES: text}  # an answer by itself, such as one progress object
    else:
        raise _malformed(f"{name} is {type(document).__name__}; allowed: an object of answers by the path asked")


def _is_round(document: Any) -> bool:
    """Whether an object is `{path: answer}`: its keys are paths."""
    return isinstance(document, Mapping) and bool(document) and all("/" in str(key)[:200] for key in document)


# All that Python's reader and its four ways of packing raise for bytes that are not as they should be; a member may
# also ask for more memory than there is.
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError),
    *(NotImplementedError, RuntimeError, ValueError, LookupError, OverflowError, MemoryError),
)


def _zip_rounds(data: bytes) -> tuple[list[Round], int]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            contents = _archive_contents(archive)
    except _DAMAGED as error:
        reason = str(error) or type(error).__name__
        raise _malformed(f"the zip is damaged, or packed in a way that is not read: {reason}") from None
    folders = {str(PurePosixPath(name).parent) for name in contents if PurePosixPath(name).name == _INDEX}
    texts = _TextReader()
    rounds = [_indexed_round(folder, contents, texts) for folder in sorted(folders)]
    for name, content in contents.items():
        if str(PurePosixPath(name).parent) not in folders and content.strip():
            rounds += _file_rounds(content, name, texts)
    return rounds, sum(map(len, contents.values()))


def _archive_contents(archive: zipfile.ZipFile) -> dict[str, bytes]:
    entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    if len(entries) > MAX_FILES:
        raise TooLarge(f"The zip has {len(entries):,} files; allowed: {MAX_FILES:,}.", [("file", "too many files")])
    if any(entry.flag_bits & 1 for entry in entries):
        raise _malformed("the zip is encrypted; allowed: one that is not")
    left = TEXT_FACTOR * settings.UPLOAD_MAX_BYTES
    contents: dict[str, bytes] = {}
    for entry in sorted(entries, key=lambda entry: entry.filename):
        with archive.open(entry) as member:
            contents[entry.filename] = _read_limited(member, left)
        left -= len(contents[entry.filename])
    return contents


def _read_limited(member: IO[bytes], limit: int) -> bytes:
    """The bytes of a member; what its header says of its size is not believed."""
    content = member.read(limit + 1)
    if len(content) > limit:
        allowed = f"{TEXT_FACTOR * settings.UPLOAD_MAX_BYTES / 1e6:g} MB"
        raise TooLarge(f"The zip unpacks to more than {allowed} (SLUICE_UPLOAD_MAX_MB).", [("file", "too large")])
    return content


def _indexed_round(folder: str, contents: Mapping[str, bytes], texts: _TextReader) -> Round:
    """Round of a recorded folder: `INDEX.tsv` names each file, the status and the path that was asked."""
    answers: Round = {}
    base = PurePosixPath(folder)
    for line in texts.read(contents[str(base / _INDEX)], _INDEX).splitlines():
        name, _, rest = line.partition("\t")
        _, _, path = rest.partition("\t")
        content = next(
            (
                contents[str(base / f"{name}{end}")]
                for end in ("", ".json", ".txt")
                if str(base / f"{name}{end}") in contents
            ),
            None,
        )
        if content is None or not path.strip():
            continue
        text = texts.read(content, name)
        try:
            answers[path.strip()] = json.loads(text, parse_constant=str)
        except (ValueError, RecursionError):
            answers[path.strip()] = text
    return answers


class _TextReader:
    """Reader of an upload's files, packed by gzip, xz or zstd or not: together they unpack up to the limit."""

    def __init__(self) -> None:
        self._left = text_limit_bytes()

    def read(self, data: bytes, name: str) -> str:
        try:
            text = read_text(data, limit_bytes=self._left)
        except Malformed as error:
            raise _malformed(
                f"{name}: {error.message[0].lower()}{error.message[1:].rstrip('.')}; a zip is taken, too"
            ) from None
        self._left -= len(text)
        return text


def _malformed(message: str) -> Malformed:
    return Malformed(f"The answers cannot be read: {message}.", [("file", message)])
