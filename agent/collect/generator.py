"""A load generator: records by a seed and a rate curve, the same ones whenever it goes on from the same position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from agent.collect.base import LATEST_US, Collector, digest_of
from agent.collect.curve import RateCurve
from agent.collect.draws import BLOCK, draw

__all__ = ["Generator"]


class Generator(Collector):
    """Record n is due when the curve says so, has that event time, and is drawn from the seed and n alone."""

    kind = "generator"
    replayable = True

    def __init__(self, name: str, schema: pa.Schema, time: str, options: Mapping[str, Any]) -> None:
        super().__init__(name, schema)
        self._time = time
        self._of = digest_of(options)
        self._specs: Mapping[str, Any] = options["columns"]
        self._seed = options.get("seed", 0)
        self._max_lag_us = int(options.get("max_lag_s", 60.0) * 1e6)
        rate = options["rate_per_s"] * options.get("times", 1.0)
        self._curve = RateCurve(rate, options.get("curve", ()), options.get("period_s"))
        self._end = min(options.get("records", np.inf), self._curve.records)
        self._next = 0
        self._now_us = 0
        self._start_us: int | None = None
        self._block = -1
        self._due_us: npt.NDArray[np.float64] = np.empty(0)
        self._drawn: pa.RecordBatch | None = None

    def poll(self, now_us: int, most: int) -> Sequence[pa.RecordBatch]:
        self._now_us = now_us
        if self._start_us is None:
            self._start_us = now_us
        self._shed(now_us)
        given: list[pa.RecordBatch] = []
        while most > 0 and self._next < self._end and (batch := self._due(now_us, most)).num_rows:
            given += self.given(batch)
            self._next += batch.num_rows
            most -= batch.num_rows
        self.state = "ended" if self._next >= self._end else "collecting"
        return given

    def watermark_us(self) -> int:
        if self._start_us is None:
            return 0
        if self._next >= self._end:
            return self._now_us  # nothing comes; should it begin anew, then not before now
        due_us = self._start_us + float(self._curve.due_s(np.array([self._next]))[0]) * 1e6
        return int(min(due_us, LATEST_US))

    def position(self) -> Any:
        return {"of": self._of, "start_us": self._start_us, "next": self._next, "shed": self.records_shed}

    def seek(self, position: Any) -> None:
        if position is None:
            return
        if position["of"] != self._of:
            raise ValueError(f"{self.name} has other options than before: it begins anew")
        self._start_us, self._next, self.records_shed = position["start_us"], position["next"], position["shed"]
        self._block = -1

    def _due(self, now_us: int, most: int) -> pa.RecordBatch:
        """Records due by now, of the block in which the next one lies."""
        number, at = divmod(self._next, BLOCK)
        if number != self._block:
            self._fill(number)
        assert self._drawn is not None
        until = int(np.searchsorted(self._due_us, now_us, side="right"))
        until = int(min(until, self._end - number * BLOCK, at + most))
        return self._drawn.slice(at, max(until - at, 0))

    def _fill(self, number: int) -> None:
        assert self._start_us is not None
        records = np.arange(number * BLOCK, (number + 1) * BLOCK)
        self._due_us = self._start_us + self._curve.due_s(records) * 1e6
        stamps = pa.array(np.minimum(self._due_us, LATEST_US).astype(np.int64)).cast(self.schema.field(self._time).type)
        arrays = [
            stamps
            if field.name == self._time
            else draw(self._specs[field.name], field.type, seed=self._seed, name=field.name, block=number)
            for field in self.schema
        ]
        self._drawn = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        self._block = number

    def _shed(self, now_us: int) -> None:
        """Leave out what has been due for too long: a generator that could not be heard for an hour does not shout."""
        assert self._start_us is not None
        late_us = now_us - self._max_lag_us
        if self._next >= self._end or self._due_at(self._next) >= late_us:
            return
        begin, low, high = self._next, self._next, int(min(self._end, 2**62))
        step = BLOCK
        while low + step < high and self._due_at(low + step) < late_us:
            low, step = low + step, step * 2
        high = min(high, low + step)
        while low < high:  # the first record that is not too late
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._due_at(middle) < late_us else (low, middle)
        self._next = low
        self.records_shed += low - begin

    def _due_at(self, record: int) -> float:
        assert self._start_us is not None
        return self._start_us + float(self._curve.due_s(np.array([record]))[0]) * 1e6
