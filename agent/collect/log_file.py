"""Lines of log files, followed across rotation, each once."""

from __future__ import annotations

import codecs
import glob
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import pyarrow as pa

from agent.collect import Collector, batch_of
from agent.collect.options import LogFileOptions
from agent.collect.rotation import FollowedFile, LogFileSet
from agent.settings import ReadableFolders
from agent.wire import MAX_AHEAD_US, MAX_NUMBER

__all__ = ["UNITS_US", "LineTimes", "LogFileCollector", "reader_of"]

#: Microseconds in the unit that a number counts since 1970.
UNITS_US = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}
_CACHED = 4096  # lines of a log come many to a second


def reader_of(time_format: str | None) -> Callable[[str], int | None]:
    """Reader of a time format: text to microseconds, None for other text. Times without a zone are UTC.

    `time_format` is one of `UNITS_US`, a format of strptime, or None for ISO 8601. A format without a year, as in
    syslog, means the latest such day that is not in the future.
    """
    if time_format in UNITS_US:
        factor = UNITS_US[time_format]
        return lru_cache(_CACHED)(lambda text: _number(text, factor))
    if time_format is None:
        return lru_cache(_CACHED)(_iso)
    if re.search("%[YyGcxs]", time_format) is None:
        return lru_cache(_CACHED)(lambda text: _without_year(text, time_format))
    return lru_cache(_CACHED)(lambda text: _formatted(text, time_format))


def _number(text: str, factor: float) -> int | None:
    try:
        return round(float(text) * factor)
    except (ValueError, OverflowError):
        return None


def _iso(text: str) -> int | None:
    try:
        return _us(datetime.fromisoformat(text))
    except ValueError:
        return None


def _formatted(text: str, time_format: str) -> int | None:
    try:
        return _us(datetime.strptime(text, time_format))  # noqa: DTZ007 - the zone follows in `_us`
    except ValueError:
        return None


def _without_year(text: str, time_format: str) -> int | None:
    now = datetime.now(UTC)
    for year in (now.year, now.year - 1):
        at_us = _formatted(f"{year} {text}", f"%Y {time_format}")
        if at_us is not None and at_us <= _us(now) + 86_400_000_000:
            return at_us
    return None


def _us(moment: datetime) -> int:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


class LineTimes:
    """Event times of lines of text: the first group of a pattern, read by a format."""

    def __init__(self, pattern: str, time_format: str | None) -> None:
        self._pattern = re.compile(pattern)
        self._read = reader_of(time_format)

    def read(self, lines: Sequence[str], before_us: int, latest_us: int = MAX_NUMBER) -> tuple[list[int], int]:
        """One time per line, and how many lines have none: those get the time of the line before.

        A time after `latest_us` is none.
        """
        times: list[int] = []
        without = 0
        for line in lines:
            match = self._pattern.search(line)
            at_us = self._read(match.group(1)) if match and match.group(1) is not None else None
            if at_us is None or at_us > latest_us:
                without += 1
            else:
                before_us = at_us
            times.append(before_us)
        return times, without


_LIVE_US = 120_000_000  # a log whose lines are read within two minutes of their time is one being written


class LogFileCollector(Collector):
    """A record per line: its time, the line, the file.

    Event time is the time of reading, or what `time_pattern` finds in the line; a line without one, or with one more
    than a day ahead, gets the time of the line before it. While all files are read to their ends, the watermark of a
    log that is being written follows the clock at the distance that its lines last had, so that windows close although
    nothing is logged.
    """

    kind = "log_file"
    replayable = True

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        time: str,
        options: LogFileOptions,
        lateness_s: float,
        readable: ReadableFolders,
    ) -> None:
        super().__init__(name, schema)
        self._time = time
        self._path = options.path
        self._encoding = codecs.lookup(options.encoding).name
        self._from_end = options.begin == "end"
        pattern = options.time_pattern
        self._times = LineTimes(pattern, options.time_format) if pattern else None
        self._lateness_us = int(lateness_s * 1e6)
        self._watched = LogFileSet(self._path, options.max_line_bytes, self.fault, readable)
        self._first = True
        self._counts = {"cut": 0, "undecodable": 0, "without_time": 0}
        self._newest_us = 0
        self._delay_us: int | None = None
        self._watermark_us = 0

    def poll(self, now_us: int, most: int) -> Sequence[pa.RecordBatch]:
        self._watched.scan(first=self._first, from_end=self._from_end)
        self._first = False
        batches: list[pa.RecordBatch] = []
        for file in self._watched.files:
            if most <= 0:
                break
            batches += (read := self._read(file, now_us, most))
            most -= sum(batch.num_rows for batch in read)
        self._advance(now_us, caught_up=most > 0)
        nothing = "not allowed" if self._watched.outside else "no file yet"
        self.state = "collecting" if self._watched.files else nothing
        return batches

    def watermark_us(self) -> int:
        return self._watermark_us

    def position(self) -> Any:
        return {
            "path": self._path,
            "files": self._watched.position(),
            "newest_us": self._newest_us,
            "counts": dict(self._counts),
        }

    def seek(self, position: Any) -> None:
        if position is None:
            return
        if position["path"] != self._path:
            raise ValueError(f"path is {self._path!r} and was {position['path']!r}: it begins anew")
        self._watched.close()
        self._watched.resume(position["files"])
        self._first = False
        self._newest_us, self._counts = position["newest_us"], dict(position["counts"])

    def close(self) -> None:
        self._watched.close()

    def report(self) -> dict[str, Any]:
        unread = sum(file.unread() for file in self._watched.files)
        words = {"cut": "lines cut", "undecodable": "lines with wrong bytes", "without_time": "lines without a time"}
        counted = [f"{count} {words[name]}" for name, count in self._counts.items() if count]
        document = super().report()
        if self.state == "no file yet" and not glob.has_magic(self._path):
            document["faults"] = [*document["faults"], f"path is {self._path!r}: no such file yet"]
        return document | {"unread_bytes": unread, "counted": counted}

    def _read(self, file: FollowedFile, now_us: int, most: int) -> list[pa.RecordBatch]:
        read = file.read(most, final=self._watched.retired(file))
        if not read.lines:
            return []
        self._counts["cut"] += read.cut
        lines = self._decoded(read.lines)
        times = self._times_of(file, lines, now_us)
        columns = {self._time: times, "line": lines, "file": [str(file.path)] * len(lines)}
        return self.given(batch_of(self.schema, columns))

    def _decoded(self, lines: Sequence[bytes]) -> list[str]:
        decoded: list[str] = []
        for line in lines:
            try:
                decoded.append(line.decode(self._encoding))
            except UnicodeDecodeError:
                decoded.append(line.decode(self._encoding, errors="replace"))
                self._counts["undecodable"] += 1
        return decoded

    def _times_of(self, file: FollowedFile, lines: Sequence[str], now_us: int) -> list[int]:
        if self._times is None:
            times = [now_us] * len(lines)
        else:
            before_us = now_us if file.last_us is None else file.last_us
            times, without = self._times.read(lines, before_us, now_us + MAX_AHEAD_US)
            self._counts["without_time"] += without
        file.last_us = times[-1]
        self._newest_us = max(self._newest_us, *times)
        self._delay_us = max(now_us - times[-1], 0)
        return times

    def _advance(self, now_us: int, *, caught_up: bool) -> None:
        known_us = self._newest_us - self._lateness_us
        if caught_up:
            if self._times is None:  # what comes is read, and so timed, later than now
                known_us = max(known_us, now_us)
            elif self._delay_us is None:
                known_us = max(known_us, now_us - self._lateness_us)
            elif self._delay_us <= _LIVE_US:
                known_us = max(known_us, now_us - self._delay_us - self._lateness_us)
        self._watermark_us = max(self._watermark_us, known_us, 0)
