"""Uploaded tables as text: unpacked with a limit, decoded, with their delimiter and header found."""

from __future__ import annotations

import csv
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, cast

import zstandard

from apps.core.errors import Malformed, TooLarge

__all__ = ["TableLayout", "find_layout", "open_text", "read_text", "rows_of"]

_DELIMITERS = (",", "\t", ";", "|")
_SAMPLE_LINES = 50
_DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstandard.ZstdError)
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*\Z")


class _Capped(io.RawIOBase):
    """A stream that refuses to give more than `limit` bytes, whatever a small compressed file unpacks to."""

    def __init__(self, inner: BinaryIO, limit: int) -> None:
        self._inner, self._limit, self._given = inner, limit, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        try:
            data = self._inner.read(len(buffer))
        except _DAMAGED as error:
            raise Malformed(f"The compressed file is damaged or cut off: {error}.", [("file", str(error))]) from None
        self._given += len(data)
        if self._given > self._limit:
            message = f"unpacks to more than {self._limit / 1e6:g} MB"
            raise TooLarge(f"The file {message}, which is the limit.", [("file", message)])
        buffer[: len(data)] = data
        return len(data)


def open_text(file: BinaryIO, *, limit_bytes: int) -> io.TextIOWrapper:
    """The text of a plain, gzip, xz or zstd file (told by its first bytes), UTF-8 or UTF-16 with a byte order mark.

    Raises
    ------
    Malformed
        While reading: it is damaged or cut off.
    TooLarge
        While reading: its text is longer than `limit_bytes`.
    """
    file.seek(0)
    head = file.read(6)
    file.seek(0)
    inner = _unpacked(file, head)
    stream = io.BufferedReader(cast(io.RawIOBase, _Capped(inner, limit_bytes)), 1 << 16)
    mark = stream.peek(2)[:2]
    encoding = "utf-16" if mark in {b"\xff\xfe", b"\xfe\xff"} else "utf-8-sig"
    return io.TextIOWrapper(stream, encoding=encoding, newline="")


def read_text(data: bytes, *, limit_bytes: int) -> str:
    """The whole text of a file's bytes, packed or not; raises as `open_text`, and where it is no text."""
    try:
        return open_text(io.BytesIO(data), limit_bytes=limit_bytes).read()
    except UnicodeError as error:
        raise _not_text(error) from None


def _unpacked(file: BinaryIO, head: bytes) -> BinaryIO:
    if head.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=file)  # type: ignore[return-value]
    if head.startswith(b"\xfd7zXZ"):
        return lzma.LZMAFile(file)  # type: ignore[return-value]
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return _Zstd(file)  # type: ignore[return-value]
    return file


class _Zstd:
    """Frames of zstd one after the other. The library's own reader takes a file that is cut off for a whole one."""

    # A block of 4 bytes can unpack to 128 kB, so this much input gives at most 32 MB at once.
    _CHUNK = 1024

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._ready, self._rest = file, b"", b""
        self._frame: zstandard.ZstdDecompressionObj | None = None

    def read(self, size: int) -> bytes:
        while not self._ready:
            data = self._rest or self._file.read(self._CHUNK)
            if not data:
                if self._frame is not None:
                    raise EOFError("it ends in the middle of a frame")
                return b""
            frame = self._frame = self._frame or zstandard.ZstdDecompressor().decompressobj()
            self._ready, self._rest = frame.decompress(data), b""
            if frame.eof:
                self._rest, self._frame = frame.unused_data, None
        chunk, self._ready = self._ready[:size], self._ready[size:]
        return chunk


@dataclass(frozen=True)
class TableLayout:
    """Layout of a table: column separator, header line, column names."""

    delimiter: str
    has_header: bool
    columns: tuple[str, ...]


def find_layout(text: io.TextIOWrapper) -> TableLayout:
    """Find out from the first lines.

    The delimiter is the one that cuts most lines into the same number of columns, more than one if possible.

    Raises
    ------
    Malformed
        The file is empty or is not text.
    """
    lines = []
    try:
        for line in text:
            lines.append(line)
            if len(lines) >= _SAMPLE_LINES:
                break
    except UnicodeError as error:
        raise _not_text(error) from None
    if "\0" in "".join(lines):
        raise Malformed("The file is not text: it holds zero bytes.", [("file", "not text")])
    tables = {delimiter: _cut(lines, delimiter) for delimiter in _DELIMITERS}
    delimiter = max(_DELIMITERS, key=lambda candidate: _agreement(tables[candidate]))
    rows = tables[delimiter]
    if not rows:
        raise Malformed("The file is empty.", [("file", "holds no line with content")])
    has_header = not any(_is_value(cell) for cell in rows[0])
    names = [cell.strip() for cell in rows[0]] if has_header else [""] * len(rows[0])
    return TableLayout(delimiter, has_header, _distinct(names))


def rows_of(text: io.TextIOWrapper, layout: TableLayout) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of every line with content, without the header."""
    reader = csv.reader(text, delimiter=layout.delimiter, strict=False)
    skip = layout.has_header
    try:
        for row in reader:
            if not row or (len(row) == 1 and not row[0].strip()):
                continue
            if skip:
                skip = False
                continue
            yield reader.line_num, row
    except csv.Error as error:
        where = f"line {reader.line_num}"
        raise Malformed(f"The table cannot be read at {where}: {error}.", [("file", f"{where}: {error}")]) from None
    except UnicodeError as error:
        raise _not_text(error) from None


def _cut(lines: list[str], delimiter: str) -> list[list[str]]:
    try:
        return [row for row in csv.reader(lines, delimiter=delimiter) if any(cell.strip() for cell in row)]
    except csv.Error:
        return []


def _agreement(rows: list[list[str]]) -> tuple[bool, int, int]:
    widths = [len(row) for row in rows]
    common = max(set(widths), key=widths.count, default=0)
    return common > 1, widths.count(common), common


def _is_value(cell: str) -> bool:
    """Names do not look like numbers and do not begin with a digit, as times do."""
    return bool(_NUMBER.match(cell)) or cell.strip()[:1].isdigit()


def _distinct(names: list[str]) -> tuple[str, ...]:
    """Columns without a name are called by their place; a name that comes again gets its place added."""
    named: list[str] = []
    for place, name in enumerate(names, 1):
        name = name or f"column {place}"
        named.append(name if name not in named else f"{name} ({place})")
    return tuple(named)


def _not_text(error: UnicodeError) -> Malformed:
    place = f"byte {error.start} " if isinstance(error, UnicodeDecodeError) else ""
    message = f"{place}is not UTF-8"
    return Malformed(f"The file is not text: {message}. Save it as UTF-8.", [("file", message)])
