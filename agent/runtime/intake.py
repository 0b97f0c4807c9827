"""Intake of records from sources: never more than there is room for, and shed records are counted."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from agent.runtime.interface import RecordSource
from engine.measurement.variation import ARRIVAL_STEPS_S, CountSums, add_counts, pair_sums

__all__ = ["Intake"]

log = logging.getLogger(__name__)

MAX_POLL_RECORDS = 50_000
FIRST_RECORD_BYTES = 100.0  # until records were seen


_LONGEST = 1.5  # of a step's width: a step that is longer is none of its kind


class StepCounts:
    """Sums over pairs of neighbouring steps of a source, counted by the times at which it was polled.

    A step begins and ends with a poll that emptied the source; one that did not tells how much was taken, not how much
    came, and neither does the next one.
    """

    def __init__(self) -> None:
        self._polled_us: int | None = None  # the last time, if that emptied it
        self._scales = [_Scale(width_s) for width_s in ARRIVAL_STEPS_S]

    def count(self, now_us: int, records: int, *, emptied: bool) -> None:
        """A poll gave so many records."""
        before_us, self._polled_us = self._polled_us, now_us if emptied else None
        for scale in self._scales:
            if before_us is None or not emptied:
                scale.begin(now_us)
            else:
                scale.count(now_us, records, (now_us - before_us) / 1e6)

    def take(self) -> list[float]:
        """Sums since the last call, those of `agent.wire.ARRIVAL_SUMS`; empty without pairs."""
        sums = [value for scale in self._scales for value in astuple(scale.take())]
        return sums if any(sums) else []


class _Scale:
    """Steps of about one width."""

    def __init__(self, width_s: float) -> None:
        self._width_s, self._sums = width_s, CountSums()
        self.begin(0)

    def begin(self, now_us: int) -> None:
        """Begin anew: what was before is no neighbour."""
        self._since_us, self._records = now_us, 0
        self._before: tuple[int, float] | None = None

    def count(self, now_us: int, records: int, poll_s: float) -> None:
        self._records += records
        length_s = (now_us - self._since_us) / 1e6
        if length_s + poll_s / 2 < self._width_s:
            return
        step = self._records, length_s
        if not 0.0 < length_s <= _LONGEST * self._width_s:
            self.begin(now_us)
            return
        if self._before is not None:
            self._sums = add_counts([self._sums, pair_sums(*self._before, *step)])
        self._since_us, self._records, self._before = now_us, 0, step

    def take(self) -> CountSums:
        sums, self._sums = self._sums, CountSums()
        return sums


@dataclass
class Intake:
    """One source, its position, watermark and shed records."""

    source_id: str
    source: RecordSource
    watermark_us: int = 0
    records: int = 0
    fault: str = ""
    steps: StepCounts = field(default_factory=StepCounts)
    _told_us: int = 0  # last watermark of this source
    _went_back: str = ""
    _times_back: int = 0
    _shed_here: int = 0
    _shed_reported: int = field(init=False)
    _record_bytes: float = FIRST_RECORD_BYTES

    def __post_init__(self) -> None:
        self._shed_reported = self.source.records_shed

    @property
    def faults(self) -> list[str]:
        """Present faults of the source."""
        return [fault for fault in (self.fault, self._went_back) if fault]

    @property
    def shed(self) -> int:
        """Records lost, at the source and here."""
        return self._shed_here + self.source.records_shed

    def shed_since(self) -> int:
        """Records lost since this was last asked."""
        lost = self.shed - self._shed_reported
        self._shed_reported = self.shed
        return lost

    def lose(self, records: int) -> None:
        """Records that are lost behind the source."""
        self._shed_here += records

    def poll(self, now_us: int, room_bytes: float, least: int = 0) -> pa.Table | None:
        """Records of the source, as far as there is room, which `least` records always have; None where there are none.

        Without room a replayable source is left alone. A live one is emptied, and what it gave is shed.
        """
        most = max(min(int(room_bytes / self._record_bytes), MAX_POLL_RECORDS), least)
        if not most and self.source.replayable:
            self.steps.count(now_us, 0, emptied=False)
            return None
        asked = most if most else MAX_POLL_RECORDS
        table = self._table(now_us, asked)
        came = table.num_rows if table is not None else 0
        self.steps.count(now_us, came, emptied=not self.fault and came < asked)
        if table is None or not most:
            self.lose(table.num_rows if table is not None else 0)
            return None
        self.records += table.num_rows
        self._record_bytes = max(table.nbytes / table.num_rows, 1.0)
        return table

    @staticmethod
    def least_us(table: pa.Table, time: str) -> int:
        """Earliest event time of the polled records; 0 where none is known."""
        return pc.min(table[time]).value or 0

    def _table(self, now_us: int, most: int) -> pa.Table | None:
        try:
            batches = [batch for batch in self.source.poll(now_us, most) if batch.num_rows]
            table = pa.Table.from_batches(batches, self.source.schema).combine_chunks() if batches else None
        except Exception as error:
            self._fail(error)
            return None
        self.fault = ""
        return table

    def _fail(self, error: Exception) -> None:
        """A collector that fails is shown and asked again; the others go on."""
        if str(error) != self.fault:
            log.exception("source %s failed", self.source_id)
        self.fault = str(error) or type(error).__name__

    def see_watermark(self) -> int:
        """The source's watermark, which never goes back: one that does, or cannot be read, stays where it was."""
        try:
            told_us = self.source.watermark_us()
        except Exception as error:
            self._fail(error)
            return self.watermark_us
        if 0 < told_us < self._told_us:
            self._times_back += 1
        self._told_us = told_us or self._told_us
        behind_s = (self.watermark_us - self._told_us) / 1e6
        times = f"{self._times_back} time{'s' * (self._times_back > 1)}"
        back = self._times_back > 0 and behind_s > 0
        self._went_back = (
            f"its watermark went back ({times}): {behind_s:,.1f} s behind the one that holds" if back else ""
        )
        self.watermark_us = max(self.watermark_us, told_us)
        return self.watermark_us

    def settle(self) -> tuple[int, Any]:
        """Watermark and position at the end of an epoch.

        A position that cannot be told ends the agent: what it took since the last one would otherwise be taken again.
        """
        return self.see_watermark(), copy.deepcopy(self.source.position())

    def seek(self, positions: Mapping[str, Any]) -> None:
        """Go on from where the spool ends."""
        position = positions.get(self.source_id)
        if position is None:
            return
        try:
            self.source.seek(position)
        except ValueError as error:
            log.warning("source %s does not go on from %s: %s", self.source_id, position, error)
            self.fault = f"does not go on where it stopped: {error}"
