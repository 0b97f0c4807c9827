"""A recorded file given out again: at its own pace or another, once or round and round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from agent.collect.base import TIMESTAMP, Collector, digest_of
from agent.collect.recorded import Chunk, RecordingError, read_recording
from agent.readable import Readable

__all__ = ["Replay"]


@dataclass
class _Place:
    """Where the replay is: everything that the next record's time depends on."""

    of: list[Any]  # options, size and time of change of the file: under others, a position says nothing
    round_us: int | None = None  # when the present round through the file began
    shift_us: int = 0  # what the rounds before add to the file's own times
    record: int = 0  # within the round
    first_us: int | None = None  # of the file
    peak_us: int = 0  # how far into the round records have come


class Replay(Collector):
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
        options: Mapping[str, Any],
        lateness_s: float,
        readable: Readable,
    ) -> None:
        super().__init__(name, schema)
        self._readable = readable
        self._time = time
        self._options = options
        self._bare = pa.schema([field for field in schema if field.name != time])
        self._speed = options.get("speed", 1.0)
        self._rate = options.get("rate_per_s")
        self._rebase = options.get("rebase", True)
        self._loop = options.get("loop", False)
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
        given: list[pa.RecordBatch] = []
        self._now_us = now_us
        if self._place.round_us is None:
            self._place.round_us = now_us
        while most > 0 and self.state not in ("ended", "failed") and (batch := self._next(now_us, most)) is not None:
            given += self.given(batch)
            most -= batch.num_rows
        return given

    def watermark_us(self) -> int:
        if self.state == "ended" or (self.state == "failed" and self._rebase):
            return self._now_us  # nothing comes; should it begin anew, then not before now
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
            raise ValueError(f"{self._options['path']} or how it is replayed has changed: it begins anew")
        self._place, self._chunks, self._ready = place, None, None
        self.state = "ended" if ended else "starting"

    def close(self) -> None:
        self._chunks = None

    def _stamp(self) -> list[Any]:
        try:
            status = Path(self._options["path"]).stat()
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
        """Take up the next chunk, or the next round; False at the end."""
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
