"""Interface of the runtime: sources of records, and its settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from engine.dataflow import Pipeline
from engine.jarvis.settings import AdaptationSettings
from engine.klink.settings import ScheduleSettings

__all__ = ["RecordSource", "RuntimeConfig", "RuntimeQuery"]


class RecordSource(Protocol):
    """A collector as the runtime sees it. It is asked from one thread only."""

    #: A replayable source can give the same records again after `seek`, so it is not polled while there is no room; a
    #: live one is polled all the same, what it gives is shed and counted.
    replayable: bool
    #: Records lost before the runtime saw them; never decreases.
    records_shed: int

    @property
    def schema(self) -> pa.Schema:
        """The columns of every batch, those of the pipelines' `source.schema`."""

    def poll(self, now_us: int, most: int) -> Sequence[pa.RecordBatch]:
        """Records due by `now_us`, at most about `most`; never waits.

        `now_us` never goes back. A replayable source keeps what is above `most` for later; a live one keeps what it
        has room for and sheds the rest.
        """

    def watermark_us(self) -> int:
        """Event time below which no later record falls, as far as the source knows; 0 while it knows nothing."""

    def position(self) -> Any:
        """Position at which the next `poll` begins, as JSON data; None for a live source."""

    def seek(self, position: Any) -> None:
        """Go on from an earlier `position`.

        Raises
        ------
        ValueError
            It cannot be gone on from; the source then begins where it would without.
        """


@dataclass(frozen=True)
class RuntimeQuery:
    """One query at this agent; `query` is ``cluster/name``, the plan is the pipeline's digest."""

    query: str
    pipeline: Pipeline
    settings: AdaptationSettings = field(default_factory=AdaptationSettings)
    refined: Any = None  #: a refined configuration, judged when the next epoch begins
    weight: float = 1.0
    latency_constraint_s: float | None = None  #: from a window's end, or a record's arrival, to the result
    priority: int = 0  #: a step doubles what a record in time is worth beside those of other queries
    shed_late: bool = False  #: whether records may be lost that are late wherever they are processed


@dataclass(frozen=True)
class RuntimeConfig:
    """Configuration of the runtime, checked by its maker (`agent.config`)."""

    version: int
    agent: str
    queries: tuple[RuntimeQuery, ...]
    epoch_s: float = 1.0
    sub_epochs: int = 10
    budget_cores: float = 1.0
    batch_records: int = 1000  #: records of a frame, about
    checkpoint_share: float = 0.1  #: bytes of copies of open windows, over those of all else that a query sends
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    refined_schedule: Any = None  #: a refined schedule, judged when the next epoch begins
    stream_delay_s: float = 4.0  #: from leaving here until a result is out: trigger and batch of the stream processor
    forwards: bool = False  #: a relay continues the queries, and gets the delays of their watermarks
