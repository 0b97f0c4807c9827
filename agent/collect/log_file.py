"""Lines of log files, followed across rotation, each once."""

from __future__ import annotations

import codecs
import glob
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from agent.collect.base import Collector, batch_of
from agent.collect.rotation import FollowedFile, LogFileSet
from agent.collect.timestamps import LineTimes
from agent.settings import ReadableFolders
from agent.wire import MAX_AHEAD_US

__all__ = ["LogFileCollector"]

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
        options: Mapping[str, Any],
        lateness_s: float,
        readable: ReadableFolders,
    ) -> None:
        super().__init__(name, schema)
        self._time = time
        self._path = options["path"]
        self._encoding = codecs.lookup(options.get("encoding", "utf-8")).name
        self._from_end = options.get("begin", "end") == "end"
        pattern = options.get("time_pattern")
        self._times = LineTimes(pattern, options.get("time_format")) if pattern else None
        self._lateness_us = int(lateness_s * 1e6)
        self._watched = LogFileSet(self._path, options.get("max_line_bytes", 65_536), self.fault, readable)
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
        says = super().report()
        if self.state == "no file yet" and not glob.has_magic(self._path):
            says["faults"] = [*says["faults"], f"path is {self._path!r}: no such file yet"]
        return says | {"unread_bytes": unread, "counted": counted}

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
