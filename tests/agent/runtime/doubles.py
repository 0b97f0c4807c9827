"""Clock and source under the hand of a test."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pyarrow as pa

SECOND_US = 1_000_000
FAR_US = 2**60


class ManualClock:
    """Time that passes when told; every look at the CPU clock costs `cpu_step_ns`."""

    def __init__(self, cpu_step_ns: int = 0) -> None:
        self._wall_us, self._monotonic_ns = 1_700_000_000 * SECOND_US, 10**9
        self.cpu_ns, self.cpu_step_ns = 0, cpu_step_ns

    def pass_s(self, seconds: float) -> None:
        self._monotonic_ns += int(seconds * 1e9)
        self._wall_us += int(seconds * 1e6)

    def pass_us(self, us: float) -> None:
        self._monotonic_ns += int(us * 1000)
        self._wall_us += int(us)

    def step_s(self, seconds: float) -> None:
        self._wall_us += int(seconds * 1e6)

    def wall_us(self) -> int:
        return self._wall_us

    def monotonic_ns(self) -> int:
        return self._monotonic_ns

    def process_cpu_ns(self) -> int:
        self.cpu_ns += self.cpu_step_ns
        return self.cpu_ns

    thread_cpu_ns = process_cpu_ns


class TableSource:
    """Gives a table in batches of the given sizes, over and over; its watermark is exact, or ahead by `lies_us`."""

    def __init__(
        self, table: pa.Table, sizes: list[int], time: str = "ts", *, replayable: bool = True, lies_us: int = 0
    ) -> None:
        self.table, self.replayable, self.records_shed = table, replayable, 0
        self.schema = table.schema
        self.polled = 0
        self._sizes: Iterator[int] = cycle(sizes)
        self._at = 0
        self._lies_us = lies_us
        least, self._least_after = FAR_US, [FAR_US]
        for value in reversed(table[time].cast(pa.int64()).to_pylist()):
            least = min(least, value)
            self._least_after.append(least)
        self._least_after.reverse()

    @property
    def done(self) -> bool:
        return self._at == self.table.num_rows

    @property
    def position_at(self) -> int:
        """Rows that were given away."""
        return self._at

    def poll(self, now_us: int, most: int) -> list[pa.RecordBatch]:
        self.polled += 1
        start, self._at = self._at, min(self._at + min(next(self._sizes), most), self.table.num_rows)
        return self.table.slice(start, self._at - start).to_batches()

    def watermark_us(self) -> int:
        return self._least_after[self._at] + (self._lies_us if not self.done else 0)

    def position(self) -> Any:
        return {"at": self._at} if self.replayable else None

    def seek(self, position: Any) -> None:
        if not 0 <= position["at"] <= self.table.num_rows:
            raise ValueError(f"the table has {self.table.num_rows} rows, not {position['at']}")
        self._at = position["at"]
