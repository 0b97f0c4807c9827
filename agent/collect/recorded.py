"""Recorded files read batch by batch: CSV, TSV, Arrow and lines of text, packed or not."""

from __future__ import annotations

import gzip
import lzma
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from agent.collect.stamps import UNITS_US, LineTimes, reader_of
from agent.readable import Outside, Readable

__all__ = ["Chunk", "RecordingError", "format_of", "read_recording"]

_BLOCK_BYTES = 2**20
_LINES = 4096
_PACKED = {".gz": gzip.open, ".xz": lzma.open}
_FORMATS = {".csv": "csv", ".tsv": "tsv", ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow"}


class RecordingError(ValueError):
    """A file that cannot be replayed, and why."""


@dataclass(frozen=True)
class Chunk:
    """Records without their event times, and the times of the file in microseconds since 1970, if it has any."""

    batch: pa.RecordBatch
    times_us: npt.NDArray[np.int64] | None


def format_of(path: str) -> str:
    """The format that a file's name says; lines of text for names that say none."""
    suffixes = [suffix for suffix in Path(path).suffixes if suffix not in _PACKED]
    return _FORMATS.get(suffixes[-1] if suffixes else "", "lines")


def read_recording(
    schema: pa.Schema, options: Mapping[str, Any], readable: Readable, skipped: Callable[[int], None]
) -> Iterator[Chunk]:
    """The file's records under `schema`, which has no event time. `skipped` hears of each row with too few or too many
    columns, by its number where the reader knows it.

    Raises
    ------
    RecordingError
        The file is not there, not `readable`, lacks a column, or holds what its format or a column's type does not
        allow.
    """
    path = options["path"]
    how = options.get("format") or format_of(path)
    reader: Callable[..., Iterator[Chunk]] = {
        "csv": _from_csv,
        "tsv": _from_csv,
        "arrow": _from_arrow,
        "lines": _from_lines,
    }[how]
    try:
        with _opened(path, readable) as file:
            yield from reader(file, schema, options, skipped, "\t" if how == "tsv" else ",")
    except Outside as error:
        raise RecordingError(str(error)) from error
    except OSError as error:
        raise RecordingError(f"path is {path!r}: {error.strerror or error}") from error
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError, EOFError, lzma.LZMAError) as error:
        raise RecordingError(f"{path} cannot be read as {how}: {error}") from error


@contextmanager
def _opened(path: str, readable: Readable) -> Iterator[IO[bytes]]:
    unpack: Any = _PACKED.get(Path(path).suffix)
    with os.fdopen(readable.open(path), "rb") as file:
        if unpack is None:
            yield file
            return
        with unpack(file, "rb") as unpacked:
            yield unpacked


def _from_csv(
    file: IO[bytes], schema: pa.Schema, options: Mapping[str, Any], skipped: Callable[[int], None], delimiter: str
) -> Iterator[Chunk]:
    def skip(row: csv.InvalidRow) -> str:
        skipped(row.number or 0)
        return "skip"

    time = options.get("time_column")
    types = {field.name: field.type for field in schema}
    if time and time not in types:
        types[time] = pa.string()
    reader = csv.open_csv(
        pa.PythonFile(file, mode="r"),
        read_options=csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
        parse_options=csv.ParseOptions(delimiter=delimiter, invalid_row_handler=skip),
        convert_options=csv.ConvertOptions(
            column_types=types, include_columns=list(types), strings_can_be_null=True, null_values=[""]
        ),
    )
    for batch in reader:
        yield Chunk(batch.select(schema.names), _times(batch.column(time), options) if time else None)


def _from_arrow(file: IO[bytes], schema: pa.Schema, options: Mapping[str, Any], *_: Any) -> Iterator[Chunk]:
    time = options.get("time_column")
    for batch in _arrow_batches(file):
        columns = [batch.column(field.name).cast(field.type) for field in schema]
        times = _times(batch.column(time), options) if time else None
        for at in range(0, batch.num_rows, _LINES * 16):
            part = pa.RecordBatch.from_arrays(columns, schema=schema).slice(at, _LINES * 16)
            yield Chunk(part, None if times is None else times[at : at + _LINES * 16])


def _arrow_batches(file: IO[bytes]) -> Iterator[pa.RecordBatch]:
    beginning = file.read(6)
    file.seek(0)
    if beginning != b"ARROW1":
        yield from pa.ipc.open_stream(pa.PythonFile(file, mode="r"))
        return
    opened = pa.ipc.open_file(pa.PythonFile(file, mode="r"))
    for i in range(opened.num_record_batches):
        yield opened.get_batch(i)


def _from_lines(file: IO[bytes], schema: pa.Schema, options: Mapping[str, Any], *_: Any) -> Iterator[Chunk]:
    pattern = options.get("time_pattern")
    times = LineTimes(pattern, options.get("time_format")) if pattern else None
    before_us = 0
    while lines := [line for line, _ in zip(file, range(_LINES), strict=False)]:
        texts = [line.rstrip(b"\r\n").decode(errors="replace") for line in lines]
        at_us: npt.NDArray[np.int64] | None = None
        if times is not None:
            read, without = times.read(texts, before_us)
            if not before_us and without:  # lines before the first time: they are of that time
                first = next((at for at in read if at), 0)
                read = [at or first for at in read]
            at_us, before_us = np.array(read, dtype=np.int64), read[-1]
        columns = {"line": pa.array(texts), "file": pa.repeat(options["path"], len(texts))}
        yield Chunk(pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema), at_us)


def _times(column: pa.Array, options: Mapping[str, Any]) -> npt.NDArray[np.int64]:
    """A time column in microseconds."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    elif pa.types.is_string(column.type) and not _is_number(column, options):
        read = reader_of(options.get("time_format"))
        column = pa.array([None if text is None else read(text) for text in column.to_pylist()], pa.int64())
    else:
        factor = UNITS_US[options.get("time_unit", "s")]
        column = pc.round(pc.multiply(column.cast(pa.float64()), factor)).cast(pa.int64())
    if column.null_count:
        at = column.is_null().index(True).as_py()
        raise RecordingError(f"{options['time_column']} has no time that can be read in record {at} of a block")
    return np.asarray(column)


def _is_number(column: pa.Array, options: Mapping[str, Any]) -> bool:
    if "time_format" in options or not len(column):
        return False
    try:
        float(column[0].as_py() or "")
    except ValueError:
        return False
    return True
