"""Uploaded tables as text: unpacked with a limit, decoded, with their delimiter and header found."""

from __future__ import annotations

import csv
import gzip
import io
import lzma
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, cast

import zstandard

from apps.core.errors import Malformed, TooLarge
from apps.queries.arrivals.numerals import is_number
from apps.queries.arrivals.times import format_of, is_time
from engine.words import counted

__all__ = ["TableLayout", "find_layout", "is_comment", "open_text", "read_text", "rows_of"]

_DELIMITERS = (",", "\t", ";", "|")
_SAMPLE_LINES = 50
_MAX_JOINED_LINES = 2
_MAX_COLUMNS = 2000
_DAMAGED = (
    *(EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstandard.ZstdError),
    # What a zip raises besides for bytes that are not as they should be, or a packing that is not known.
    *(zipfile.BadZipFile, struct.error, NotImplementedError, RuntimeError, ValueError, LookupError, OverflowError),
    *(OSError, MemoryError),
)
_BESIDE = re.compile(r"(^|/)(__MACOSX/|\.)")
_STATED_DELIMITER = re.compile(r"\ufeff?\"?sep=(.)\"?\s*\Z", re.IGNORECASE)


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
    """Text of a plain, gzip, xz, zstd or zip file (told by its first bytes), UTF-8 or UTF-16 with a byte order mark.

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
    inner = _zip_member(file) if head.startswith(b"PK\x03\x04") else _unpacked(file, head)
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


def _zip_member(file: BinaryIO) -> BinaryIO:
    """The one file in a zip; folders and what macOS puts beside files do not count."""
    try:
        archive = zipfile.ZipFile(file)
        members = [entry for entry in archive.infolist() if not entry.is_dir() and not _BESIDE.search(entry.filename)]
        if len(members) == 1 and not members[0].flag_bits & 1:
            return cast(BinaryIO, archive.open(members[0]))
    except _DAMAGED as error:
        raise Malformed(f"The compressed file is damaged or cut off: {error}.", [("file", str(error))]) from None
    found = "a locked file" if len(members) == 1 else counted(len(members), "file")
    message = f"the zip holds {found}; allowed: one table that is not locked"
    raise Malformed(f"file: {message}.", [("file", message)])


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
    """Layout of a table: column separator, header, column names, and what is told of lines that are no data.

    `lead_rows` are rows with content before the data: titles, comments and the header.
    """

    delimiter: str
    has_header: bool
    columns: tuple[str, ...]
    lead_rows: int = 0
    notes: tuple[str, ...] = ()


def find_layout(text: io.TextIOWrapper) -> TableLayout:
    """Find out from the first lines.

    The delimiter is the one that a line `sep=;` names, or that leaves a column of times and cuts most lines into the
    same number of columns, more than one if possible. Data begins with the first row that has a time where the others
    have one; the rows before it with as many cells are the header.

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
    stated = next((found for line in lines[:1] if (found := _STATED_DELIMITER.match(line))), None)
    candidates = (stated[1],) if stated else _DELIMITERS
    tables = {delimiter: _rows(lines, delimiter) for delimiter in candidates}
    delimiter = max(candidates, key=lambda candidate: _agreement(tables[candidate]))
    if not tables[delimiter]:
        raise Malformed("The file is empty.", [("file", "holds no line with content")])
    return _layout(tables[delimiter], delimiter)


def _layout(rows: list[list[str]], delimiter: str) -> TableLayout:
    content = [row for row in rows if not is_comment(row)]
    if not content:
        raise Malformed("The file holds comments alone.", [("file", "holds no line with content")])
    width = _common_width(content)
    if width > _MAX_COLUMNS:
        message = f"a line has {width:,} columns; allowed: {_MAX_COLUMNS:,}"
        raise Malformed(f"file: {message}.", [("file", message)])
    first = _first_data(content, width)
    header = [row for row in content[:first] if len(_trimmed(row, width)) == width]
    titles = first - len(header)
    lead_rows = next((i for i, row in enumerate(rows) if content[first:] and row is content[first]), len(rows))
    comments = [row for row in rows[:lead_rows] if is_comment(row)]
    notes = []
    if not header and comments:  # names behind the sign of a comment
        header = [named for row in comments[-1:] if len(named := [row[0].lstrip("#/ "), *row[1:]]) == width]
    if len(header) > _MAX_JOINED_LINES:  # descriptions of each column rather than parts of its name
        header = [next((row for row in header if len({*row}) == width and all(map(str.strip, row))), header[0])]
        notes.append(
            f"The header has more than {_MAX_JOINED_LINES} lines; columns are called by the first that names all."
        )
    elif len(header) > 1:
        notes.append(f"The header has {len(header)} lines; each column is called by the words of all of them.")
    if titles:
        notes.append(f"{counted(titles, 'line')} before the table {'is' if titles == 1 else 'are'} left out.")
    names = [_joined(row[place] for row in header) for place in range(width)]
    return TableLayout(delimiter, bool(header), _distinct(names), lead_rows, tuple(notes))


def is_comment(row: list[str]) -> bool:
    """Whether a row is a comment, or the line in which Excel names the delimiter."""
    text = row[0].lstrip()
    return text.startswith(("#", "//")) or bool(_STATED_DELIMITER.match(text)) or (text == "sep=" and len(row) <= 2)


def rows_of(text: io.TextIOWrapper, layout: TableLayout) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of every line with content, without the lines before the data and comments."""
    reader = csv.reader(text, delimiter=layout.delimiter, strict=False)
    lead, width = layout.lead_rows, len(layout.columns)
    try:
        for row in reader:
            if not any(cell.strip() for cell in row):
                continue
            if lead:
                lead -= 1
            elif not is_comment(row):
                yield reader.line_num, _trimmed(row, width)
    except csv.Error as error:
        where = f"line {reader.line_num}"
        raise Malformed(f"The table cannot be read at {where}: {error}.", [("file", f"{where}: {error}")]) from None
    except UnicodeError as error:
        raise _not_text(error) from None


def _rows(lines: list[str], delimiter: str) -> list[list[str]]:
    try:
        return [row for row in csv.reader(lines, delimiter=delimiter) if any(cell.strip() for cell in row)]
    except csv.Error:
        return []


def _trimmed(row: list[str], width: int) -> list[str]:
    """Without cells that a delimiter at the end of a line leaves empty."""
    while len(row) > width and not row[-1].strip():
        row = row[:-1]
    return row


def _agreement(rows: list[list[str]]) -> tuple[bool, bool, int, int]:
    rows = [row for row in rows if not is_comment(row)]
    widths = [len(row) for row in rows]
    common = _common_width(rows)
    has_times = common <= _MAX_COLUMNS and any(_time_columns([row for row in rows if len(row) == common], common))
    return has_times and common > 1, common > 1, widths.count(common), common


def _common_width(rows: list[list[str]]) -> int:
    widths = [len(row) for row in rows]
    return max(set(widths), key=lambda width: (widths.count(width), width), default=0)


def _time_columns(rows: list[list[str]], width: int) -> list[str | None]:
    """The format of times in each column, told by the later half of the rows, which no header reaches."""
    later = rows[len(rows) // 2 :]
    return [format_of([row[place] for row in later if row[place].strip()]) for place in range(width)]


def _first_data(rows: list[list[str]], width: int) -> int:
    """Index of the first row of data: the first with a time in a column of times.

    Where no column has times, or one row stands before them that has a number and begins like a time, it is the first
    row with a number or a time in it.
    """
    full = [row for row in rows if len(_trimmed(row, width)) == width]
    formats = _time_columns(full, width)
    for i, row in enumerate(rows):
        if len(row) >= width and any(kind and is_time(row[place], kind) for place, kind in enumerate(formats)):
            damaged = i == 1 and any(is_number(cell) and not formats[n] for n, cell in enumerate(rows[0][:width]))
            return 0 if damaged and rows[0][0].strip()[:1].isdigit() else i
    table = next((i for i, row in enumerate(rows) if len(row) >= width), 0)
    return table if any(is_number(cell) or format_of([cell]) for cell in rows[table]) else table + 1


def _joined(parts: Iterable[str]) -> str:
    words: list[str] = []
    for part in parts:
        if part.strip() and part.strip() not in words:
            words.append(part.strip())
    return " ".join(words)


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
