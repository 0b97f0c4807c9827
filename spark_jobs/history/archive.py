"""Archive of the stream processor: the statistics and results of each step, as Parquet files by UTC day.

Statistics lie by the day of their subinterval, results by the day on which they were issued: windows may be of
recordings as old as they like. pyarrow writes the files, since a Spark job for each batch would cost more than the
batch. Bodies of results are left out: the console has them, and what is computed over days are latencies and counts.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from agent.wire import STATISTICS, Frame, FrameKind, decode_frames, table_of
from engine.files import replace_file
from spark_jobs.history.days import (
    KINDS,
    day_folder,
    drop_day,
    file_bytes,
    kept_days,
    oldest_kept,
    utc_day,
)
from spark_jobs.session import WrongOptions

__all__ = [
    "DEFAULT_RETENTION_DAYS",
    "ERA",
    "RESULTS",
    "STATISTICS_ROWS",
    "Archive",
    "batch_name",
    "batch_numbers",
    "drop_old_days",
    "history_folder",
    "parquet_bytes",
    "retention_of",
]

#: Numbers of batches begin anew when the stream processor has lost its state; that is another era.
ERA = pa.field("era", pa.int64())
#: Rows of statistics: those of the wire. Of one key (query, plan, operator, place, window_us) the row of the latest
#: (era, batch) counts.
STATISTICS_ROWS = pa.schema([*STATISTICS, ERA])
#: Rows of results: the header of each RESULT frame. Of one (query, plan, window_us, revision) the latest counts.
RESULTS = pa.schema(
    [
        ("query", pa.string()),
        ("plan", pa.string()),
        ("window_us", pa.int64()),  # beginning of the window
        ("width_us", pa.int64()),
        ("revision", pa.int64()),
        ("batch", pa.int64()),
        ("complete", pa.bool_()),
        ("missing", pa.list_(pa.string())),  # agents without which it was closed
        ("late", pa.int64()),  # records of the query that came too late, so far
        ("early", pa.int64()),
        ("rows", pa.int64()),
        ("records", pa.int64()),
        ("recovered", pa.int64()),  # of these, from checkpoints of silent agents
        ("left_out", pa.int64()),  # rows that found no room in the frame
        ("closing_epoch_us", pa.int64()),  # null where no agent's epoch closed it
        ("emitted_us", pa.int64()),
        ERA,
    ]
)
MAX_RETENTION_DAYS = 3650
DEFAULT_RETENTION_DAYS = 30
MAX_BYTES = 2 * 2**30  #: of all files; from there on the oldest day goes
_TEXTS = ["query", "plan", "operator", "fingerprint", "place"]
_NUMBERS = re.compile(r"\w+-(\d{6})-(\d{12})\b")
_DAY_US = {"statistics": "window_us", "results": "emitted_us"}  # the column whose day a row lies by


def history_folder(env: Mapping[str, str]) -> Path:
    """The history's folder in an installation's data."""
    return Path(env.get("SLUICE_VAR_DIR") or Path(__file__).resolve().parents[2] / "var") / "history"


def batch_name(era: int, batch: int) -> str:
    """Name of the file of a batch."""
    return f"batch-{era:06d}-{batch:012d}.parquet"


def batch_numbers(name: str) -> tuple[int, int]:
    """Era and number of the last batch in a file; (0, -1) where its name says none.

    Examples
    --------
    >>> batch_numbers(batch_name(1, 12))
    (1, 12)
    """
    numbers = _NUMBERS.match(name)
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, -1)


def parquet_bytes(table: pa.Table) -> bytes:
    """The rows as a small Parquet file: without what only large ones gain by."""
    sink = pa.BufferOutputStream()
    texts = [name for name in _TEXTS if name in table.column_names]
    pq.write_table(table, sink, compression="zstd", use_dictionary=texts, write_statistics=False, store_schema=False)
    return bytes(sink.getvalue().to_pybytes())


class HistoryFull(OSError):
    """The files of one day alone have reached the limit of all."""


class Archive:
    """The history's files, of which it writes those of each batch and drops those past their retention.

    Attributes
    ----------
    fault : str or None
        Why the last batch is not in the history.
    left_out : int
        Rows of days outside of the retention, or more than a day ahead, since the start.
    """

    def __init__(
        self,
        folder: Path,
        retention_days: int = DEFAULT_RETENTION_DAYS,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`retention_days` of 0 keeps nothing."""
        self._folder, self._retention_days, self._max_bytes, self._clock = folder, retention_days, max_bytes, clock
        self._bytes, self._era, self._last = 0, 0, -1
        self._today = date.min
        self.fault: str | None = None
        self.left_out = 0
        self._is_open = False

    @classmethod
    def of(cls, env: Mapping[str, str]) -> Archive:
        """The archive of an environment: `SLUICE_HISTORY_DAYS`, below `SLUICE_VAR_DIR`.

        Raises
        ------
        WrongOptions
        """
        return cls(history_folder(env), retention_of(env))

    def put(self, batch: int, frames: Iterable[bytes]) -> None:
        """Keep the STATISTICS and RESULT frames of a step; others are left alone.

        `batch` is the number of the step, which grows over restarts, and not Spark's. A step that runs again replaces
        its own files. Whatever goes wrong, as on a full disk, is a `fault` and ends nothing.
        """
        if not self._retention_days:
            return
        try:
            self._put(batch, frames)
        except Exception as error:
            self.fault = f"the history lacks batch {batch}: {error}"
        else:
            self.fault = None

    def _put(self, batch: int, frames: Iterable[bytes]) -> None:
        if not self._is_open:
            self._open()
        if batch < self._last:
            self._era, self._last = self._era + 1, -1
        name = batch_name(self._era, batch)
        self._begin_day(utc_day(self._clock() * 1e6))
        files = {
            day_folder(self._folder, kind, day) / name: parquet_bytes(rows)
            for kind, table in _tables(frames, self._era)
            for day, rows in self._by_day(table, _DAY_US[kind])
        }
        if batch == self._last:
            self._remove(path for path in self._folder.glob(f"*/*/{name}") if path not in files)
        self._make_room(sum(map(len, files.values())))
        try:
            for path, data in files.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                replace_file(path, data)
                self._bytes += len(data)
        except OSError:
            self._remove(files)
            raise
        self._last = batch

    def _open(self) -> None:
        """Find out how large the history is, and the number of its last batch."""
        self._measure()
        for kind in KINDS:
            for path in (self._folder / kind).glob("*/*.parquet"):
                self._era, self._last = max((self._era, self._last), batch_numbers(path.name))
        self._is_open = True

    def _by_day(self, table: pa.Table, column: str) -> Iterator[tuple[date, pa.Table]]:
        days = np.floor_divide(table[column].to_numpy(), 86_400_000_000)
        oldest, newest = oldest_kept(self._today, self._retention_days), self._today + timedelta(days=1)
        for number in np.unique(days).tolist():
            rows = table.filter(pa.array(days == number))
            day = _day_of(number)
            if oldest <= day <= newest:
                yield day, rows
            else:
                self.left_out += rows.num_rows

    def _begin_day(self, today: date) -> None:
        """Drop days past their retention, once a day."""
        if today == self._today:
            return
        self._today = today
        drop_old_days(self._folder, today, self._retention_days)
        self._measure()

    def _make_room(self, more_bytes: int) -> None:
        """Drop the oldest days until there is room."""
        if self._bytes + more_bytes <= self._max_bytes:
            return
        self._measure()  # jobs make many files few
        while self._bytes + more_bytes > self._max_bytes:
            days = sorted((day, kind) for kind in KINDS for day in kept_days(self._folder, kind) if day < self._today)
            if not days:
                raise HistoryFull(f"its files have {self._bytes} bytes; allowed: {self._max_bytes}")
            drop_day(self._folder, days[0][1], days[0][0])
            self._measure()

    def _measure(self) -> None:
        self._bytes = sum(file_bytes(path) for kind in KINDS for path in (self._folder / kind).glob("*/*.parquet"))

    def _remove(self, paths: Iterable[Path]) -> None:
        for path in paths:
            path.unlink(missing_ok=True)


def retention_of(env: Mapping[str, str]) -> int:
    """Days that the history keeps.

    Raises
    ------
    WrongOptions
    """
    text = env.get("SLUICE_HISTORY_DAYS") or str(DEFAULT_RETENTION_DAYS)
    if not text.isdecimal() or int(text) > MAX_RETENTION_DAYS:
        raise WrongOptions(f"SLUICE_HISTORY_DAYS is {text!r}; allowed: a whole number from 0 to {MAX_RETENTION_DAYS}")
    return int(text)


def drop_old_days(folder: Path, today: date, retention_days: int) -> int:
    """Drop days past their retention; returns how many."""
    oldest = oldest_kept(today, retention_days)
    old = [(kind, day) for kind in KINDS for day in kept_days(folder, kind) if day < oldest]
    for kind, day in old:
        drop_day(folder, kind, day)
    return len(old)


def _day_of(number: int) -> date:
    """The day so many days after 1970-01-01; the last one for what no calendar has."""
    try:
        return date(1970, 1, 1) + timedelta(days=number)
    except OverflowError:
        return date.max


def _tables(frames: Iterable[bytes], era: int) -> Iterator[tuple[str, pa.Table]]:
    """Rows of each kind; none of a kind of which no frame came."""
    kinds: dict[FrameKind, list[Frame]] = {FrameKind.STATISTICS: [], FrameKind.RESULT: []}
    for data in frames:
        for frame, _ in decode_frames(data):
            kinds.get(frame.kind, []).append(frame)
    if statistics := kinds[FrameKind.STATISTICS]:
        rows = pa.concat_tables(table_of(frame.body) for frame in statistics)
        yield "statistics", rows.append_column(ERA, pa.repeat(pa.scalar(era, pa.int64()), rows.num_rows))
    if results := kinds[FrameKind.RESULT]:
        yield "results", pa.Table.from_pylist([_result_row(frame, era) for frame in results], RESULTS)


def _result_row(frame: Frame, era: int) -> dict[str, Any]:
    says = frame.extra
    own = {
        "query": frame.query,
        "plan": frame.plan,
        "recovered": sum(says.get("recovered", {}).values()),
        "left_out": says.get("left_out", 0),
        "era": era,
    }
    return {name: says.get(name) for name in RESULTS.names} | own
