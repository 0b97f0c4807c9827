"""Replay of a recorded file (CSV, TSV, Arrow, lines of text): at its own pace or another, once or repeatedly."""

from __future__ import annotations

import gzip
import lzma
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from agent.collect import TIMESTAMP, Collector, digest_of
from agent.collect.log_file import UNITS_US, LineTimes, reader_of
from agent.collect.options import ReplayOptions
from agent.settings import OutsideFolders, ReadableFolders

__all__ = ["ReplayCollector"]


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
    """The format by a file's name; lines of text where the name has no known ending."""
    suffixes = [suffix for suffix in Path(path).suffixes if suffix not in _PACKED]
    return _FORMATS.get(suffixes[-1] if suffixes else "", "lines")


def read_recording(
    schema: pa.Schema, options: ReplayOptions, readable: ReadableFolders, skipped: Callable[[int], None]
) -> Iterator[Chunk]:
    """The file's records under `schema`, which has no event time. `skipped` is called for each row with too few or too
    many columns, with its number where the reader knows it.

    Raises
    ------
    RecordingError
        The file is not there, not `readable`, lacks a column, or holds what its format or a column's type does not
        allow.
    """
    path = options.path
    how = options.format or format_of(path)
    reader: Callable[..., Iterator[Chunk]] = {
        "csv": _from_csv,
        "tsv": _from_csv,
        "arrow": _from_arrow,
        "lines": _from_lines,
    }[how]
    try:
        with _opened(path, readable) as file:
            yield from reader(file, schema, options, skipped, "\t" if how == "tsv" else ",")
    except OutsideFolders as error:
        raise RecordingError(str(error)) from error
    except OSError as error:
        raise RecordingError(f"path is {path!r}: {error.strerror or error}") from error
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError, EOFError, lzma.LZMAError) as error:
        raise RecordingError(f"{path} cannot be read as {how}: {error}") from error


@contextmanager
def _opened(path: str, readable: ReadableFolders) -> Iterator[IO[bytes]]:
    unpack: Any = _PACKED.get(Path(path).suffix)
    with os.fdopen(readable.open(path), "rb") as file:
        if unpack is None:
            yield file
            return
        with unpack(file, "rb") as unpacked:
            yield unpacked


def _from_csv(
    file: IO[bytes], schema: pa.Schema, options: ReplayOptions, skipped: Callable[[int], None], delimiter: str
) -> Iterator[Chunk]:
    def skip(row: csv.InvalidRow) -> str:
        skipped(row.number or 0)
        return "skip"

    time = options.time_column
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


def _from_arrow(file: IO[bytes], schema: pa.Schema, options: ReplayOptions, *_: Any) -> Iterator[Chunk]:
    time = options.time_column
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


def _from_lines(file: IO[bytes], schema: pa.Schema, options: ReplayOptions, *_: Any) -> Iterator[Chunk]:
    pattern = options.time_pattern
    times = LineTimes(pattern, options.time_format) if pattern else None
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
        columns = {"line": pa.array(texts), "file": pa.repeat(options.path, len(texts))}
        yield Chunk(pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema), at_us)


def _times(column: pa.Array, options: ReplayOptions) -> npt.NDArray[np.int64]:
    """A time column in microseconds."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    elif pa.types.is_string(column.type) and not _is_number(column, options):
        read = reader_of(options.time_format)
        column = pa.array([None if text is None else read(text) for text in column.to_pylist()], pa.int64())
    else:
        factor = UNITS_US[options.time_unit]
        column = pc.round(pc.multiply(column.cast(pa.float64()), factor)).cast(pa.int64())
    if column.null_count:
        at = column.is_null().index(True).as_py()
        raise RecordingError(f"{options.time_column} has no time that can be read in record {at} of a block")
    return np.asarray(column)


def _is_number(column: pa.Array, options: ReplayOptions) -> bool:
    if options.time_format is not None or not len(column):
        return False
    try:
        float(column[0].as_py() or "")
    except ValueError:
        return False
    return True


@dataclass
class _Place:
    """Position of the replay: everything that the next record's time depends on."""

    of: list[Any]  # options, size and time of change of the file: under others, a position is void
    round_us: int | None = None  # when the present round through the file began
    shift_us: int = 0  # what the rounds before add to the file's own times
    record: int = 0  # within the round
    first_us: int | None = None  # of the file
    peak_us: int = 0  # how far into the round records have come


class ReplayCollector(Collector):
    """Records of a file, each when its time has come.

    With `rebase` (the default) the first record's event time is when the replay began and the others follow at the
    file's distances divided by `speed`; without, event times are the file's. A file without times, or with
    `rate_per_s`, goes at an even rate. Records that stand out of order in the file come in the file's order: late.
    """

    kind = "replay"
    replayable = True

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        time: str,
        options: ReplayOptions,
        lateness_s: float,
        readable: ReadableFolders,
    ) -> None:
        super().__init__(name, schema)
        self._readable = readable
        self._time = time
        self._options = options
        self._bare = pa.schema([field for field in schema if field.name != time])
        self._speed = options.speed
        self._rate = options.rate_per_s
        self._rebase = options.rebase
        self._loop = options.loop
        self._lateness_us = int(lateness_s * 1e6)
        self._place = _Place(self._stamp())
        self._chunks: Iterator[Chunk] | None = None
        self._due_us: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._ready: pa.RecordBatch | None = None
        self._at = 0  # in `_ready`
        self._bad_rows = 0
        self._now_us = 0
        self._file_us: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def poll(self, now_us: int, most: int) -> Sequence[pa.RecordBatch]:
        batches: list[pa.RecordBatch] = []
        self._now_us = now_us
        if self._place.round_us is None:
            self._place.round_us = now_us
        while most > 0 and self.state not in ("ended", "failed") and (batch := self._next(now_us, most)) is not None:
            batches += self.given(batch)
            most -= batch.num_rows
        return batches

    def watermark_us(self) -> int:
        if self.state == "ended" or (self.state == "failed" and self._rebase):
            return self._now_us  # nothing more comes; a restart would not begin before now
        if self._ready is None or self._at >= len(self._due_us):
            return 0
        next_us = int(self._due_us[self._at]) if self._rebase else int(self._file_us[self._at])
        return max(next_us - self._lateness_us, 0)

    def position(self) -> Any:
        return asdict(self._place) | {"ended": self.state == "ended"}

    def seek(self, position: Any) -> None:
        if position is None:
            return
        ended, place = position["ended"], _Place(**{key: position[key] for key in asdict(self._place)})
        if place.of != self._stamp():
            raise ValueError(f"{self._options.path} or how it is replayed has changed: it begins anew")
        self._place, self._chunks, self._ready = place, None, None
        self.state = "ended" if ended else "starting"

    def close(self) -> None:
        self._chunks = None

    def _stamp(self) -> list[Any]:
        try:
            status = Path(self._options.path).stat()
        except OSError:
            return [digest_of(self._options), 0, 0]
        return [digest_of(self._options), status.st_size, status.st_mtime_ns]

    def _next(self, now_us: int, most: int) -> pa.RecordBatch | None:
        """Records that are due, of one chunk; None when there are none now."""
        if (self._ready is None or self._at >= self._ready.num_rows) and not self._load():
            return None
        assert self._ready is not None
        until = min(int(np.searchsorted(self._due_us, now_us, side="right")), self._at + most)
        if until <= self._at:
            return None
        batch = self._ready.slice(self._at, until - self._at)
        self._place.record += batch.num_rows
        assert self._place.round_us is not None
        self._place.peak_us = int(self._due_us[until - 1]) - self._place.round_us
        self._at = until
        if until == self._ready.num_rows:
            self._load()  # so that the watermark knows what comes next
        return batch

    def _load(self) -> bool:
        """Load the next chunk, or begin the next round; False at the end."""
        try:
            chunk = self._chunk()
        except RecordingError as error:
            self.state = "failed"
            self.fault("file", str(error))
            return False
        self.state = "ended" if chunk is None else "collecting"
        if chunk is None:
            return False
        self._time_of(chunk)
        return True

    def _chunk(self) -> Chunk | None:
        for _ in range(2):
            if self._chunks is None:
                self._chunks = self._skipped(self._place.record)
            if (chunk := next(self._chunks, None)) is not None:
                return chunk
            if not self._loop or not self._place.record:
                return None
            self._next_round()
        return None

    def _skipped(self, records: int) -> Iterator[Chunk]:
        for chunk in read_recording(self._bare, self._options, self._readable, self._skip_row):
            rows = chunk.batch.num_rows
            if records < rows:
                times = chunk.times_us
                yield Chunk(chunk.batch.slice(records), None if times is None else times[records:])
            records = max(records - rows, 0)

    def _skip_row(self, number: int) -> None:
        self._bad_rows += 1
        self.fault("rows", f"{self._bad_rows} rows with too few or too many columns are left out")

    def _next_round(self) -> None:
        """The file's beginning follows its end at the mean distance of its records."""
        place = self._place
        took_us = place.peak_us + max(place.peak_us // max(place.record - 1, 1), 1)
        assert place.round_us is not None
        place.round_us += took_us
        place.shift_us += round(took_us * self._speed)
        place.record = place.peak_us = 0
        self._chunks = None

    def _time_of(self, chunk: Chunk) -> None:
        place, rows = self._place, chunk.batch.num_rows
        if self._rate or chunk.times_us is None:
            into_us = ((place.record + np.arange(rows)) * (1e6 / (self._rate or 1.0))).astype(np.int64)
        else:
            if place.first_us is None:
                place.first_us = int(chunk.times_us[0])
            into_us = ((chunk.times_us - place.first_us) / self._speed).astype(np.int64)
        assert place.round_us is not None
        peak_us = np.maximum(np.maximum.accumulate(into_us), place.peak_us)
        self._due_us = place.round_us + peak_us
        events_us = place.round_us + into_us
        if not self._rebase and chunk.times_us is not None:
            events_us = chunk.times_us + place.shift_us
        # a watermark below which nothing follows: of what is still to come, the earliest that is in order
        self._file_us = np.maximum.accumulate(events_us)
        self._ready = self._with_times(chunk.batch, events_us)
        self._at = 0

    def _with_times(self, batch: pa.RecordBatch, events_us: npt.NDArray[np.int64]) -> pa.RecordBatch:
        stamps = pa.array(events_us).cast(TIMESTAMP)
        arrays = [stamps if field.name == self._time else batch.column(field.name) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
