"""Archive of the stream processor: the statistics and results of each step, as Parquet files by UTC day.

Statistics lie by the day of their subinterval, results by the day on which they were issued: windows may be of
recordings as old as they like. pyarrow writes the files, since a Spark job for each batch would cost more than the
batch. Bodies of results are left out: the console has them, and what is computed over days are latencies and counts.

    history/statistics/day=2026-11-24/batch-000000-000000000012.parquet

A swap replaces files by others that hold the same rows. Its intent, written first, says which file stands for which:
whoever reads the folder then takes each row once, in the midst of a swap or after one that was cut off.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from agent.wire import STATISTICS, Frame, FrameKind, decode_frames, table_of
from engine.files import replace_file
from spark_jobs.session import WrongOptions

__all__ = [
    "KINDS",
    "MERGE_FOLDER",
    "RESULTS",
    "STATISTICS_ROWS",
    "Archive",
    "batch_numbers",
    "day_files",
    "day_folder",
    "drop_day",
    "drop_old_days",
    "file_bytes",
    "history_folder",
    "kept_days",
    "retention_of",
    "settle_days",
    "swap_files",
]

KINDS = ("statistics", "results", "runs")  #: runs are scored runs, which the console exports
MERGE_FOLDER = ".merge"  #: in a day's folder: files that are to take the place of others
_INTENT = ".swap.json"
_DROPPED = ".dropped-"
_PREFIX = "day="


def utc_day(at_us: float) -> date:
    """The UTC day of a moment, microseconds since 1970."""
    return datetime.fromtimestamp(at_us / 1e6, UTC).date()


def day_folder(folder: Path, kind: str, day: date) -> Path:
    """Folder of a kind's files of one day; it need not be there."""
    return folder / kind / f"{_PREFIX}{day.isoformat()}"


def kept_days(folder: Path, kind: str) -> list[date]:
    """Days of which the history has a folder, oldest first."""
    return sorted(date.fromisoformat(path.name.removeprefix(_PREFIX)) for path in _day_folders(folder, kind))


def day_files(folder: Path) -> list[Path]:
    """Files that hold a day's rows, each row in one of them."""
    intent = _intent(folder)
    files = {path.name: path for path in folder.glob("*.parquet")}
    for name in intent.get("replaced", ()):
        files.pop(name, None)
    for name in intent.get("parts", ()):
        files.setdefault(name, folder / MERGE_FOLDER / name)
    return [files[name] for name in sorted(files)]


def swap_files(folder: Path, parts: Mapping[str, Path], replaced: Iterable[str]) -> None:
    """Put files of the merge folder, by their new names, in the place of others of the day's folder.

    Raises
    ------
    OSError
        The disk is full, say. The day holds what it held, and `settle_days` clears away the rest.
    """
    for name, path in parts.items():
        path.replace(folder / MERGE_FOLDER / name)
    intent = {"parts": sorted(parts), "replaced": sorted(replaced)}
    replace_file(folder / _INTENT, json.dumps(intent).encode())
    _complete_swap(folder, intent)


def settle_days(folder: Path) -> None:
    """Complete swaps and removals that were cut off, and clear away merges that came to no swap."""
    for kind in KINDS:
        for left in (folder / kind).glob(f"{_DROPPED}*"):
            shutil.rmtree(left, ignore_errors=True)
        for day in _day_folders(folder, kind):
            if intent := _intent(day):
                _complete_swap(day, intent)
            else:
                shutil.rmtree(day / MERGE_FOLDER, ignore_errors=True)


def drop_day(folder: Path, kind: str, day: date) -> None:
    """Remove a day, if it is there; nobody who lists the history sees half of it."""
    dropped = folder / kind / f"{_DROPPED}{day.isoformat()}"
    shutil.rmtree(dropped, ignore_errors=True)
    with suppress(FileNotFoundError):
        day_folder(folder, kind, day).rename(dropped)
    shutil.rmtree(dropped, ignore_errors=True)


def file_bytes(path: Path) -> int:
    """Size of a file; 0 where it has just been replaced or dropped."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def oldest_kept(today: date, retention_days: int) -> date:
    """The oldest day that is kept on `today`, which counts as the first."""
    return today - timedelta(days=retention_days - 1)


def _day_folders(folder: Path, kind: str) -> list[Path]:
    return [path for path in (folder / kind).glob(f"{_PREFIX}*") if path.is_dir()]


def _intent(folder: Path) -> dict[str, Any]:
    """The swap under way; empty where there is none."""
    try:
        intent: dict[str, Any] = json.loads((folder / _INTENT).read_bytes())
    except FileNotFoundError:
        return {}
    return intent


def _complete_swap(folder: Path, intent: Mapping[str, Any]) -> None:
    for name in intent["parts"]:
        part = folder / MERGE_FOLDER / name
        if part.exists():
            part.replace(folder / name)
    for name in intent["replaced"]:
        (folder / name).unlink(missing_ok=True)
    (folder / _INTENT).unlink(missing_ok=True)
    shutil.rmtree(folder / MERGE_FOLDER, ignore_errors=True)


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
    document = frame.extra
    own = {
        "query": frame.query,
        "plan": frame.plan,
        "recovered": sum(document.get("recovered", {}).values()),
        "left_out": document.get("left_out", 0),
        "era": era,
    }
    return {name: document.get(name) for name in RESULTS.names} | own
