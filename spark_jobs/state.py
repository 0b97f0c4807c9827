"""State of a flow, one query computed by one plan, and the checkpoints of agents' open windows in it.

Tables of windows lie in state variables of Spark and are read when they are first asked for, so a flow with many
retained windows costs no more than those that a batch touches. A step is a batch that visits the flow; what it changed
bears its number, and is what is written.

A checkpoint holds the partial rows of every window of a flow that was open at an agent after an epoch. Its rows stand
in for those that the agent still owes; they go into results and never into the windows, which the agent's own rows go
into.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from engine.dataflow.pipeline import Pipeline
from engine.dataflow.types import WINDOW_START
from spark_jobs.plans import aggregate_of

__all__ = [
    "AgentCheckpoint",
    "AgentMarks",
    "FlowState",
    "FlowWindow",
    "JoinWindow",
    "RecoveredRows",
    "SideRows",
    "StoredTable",
    "checkpoint_part",
    "drop_checkpoint",
    "drop_passed_checkpoints",
    "keep_checkpoint",
    "open_checkpoint_windows",
    "recovered_rows",
    "supersede_checkpoint",
    "window_begins",
]

CHECKPOINTS = ("checkpoints", "arriving")  #: fields of a flow, by agent
_MAX_PARTS = 10_000


@dataclass
class AgentMarks:
    """Marks of one agent for one query."""

    since_ms: int  #: since when it is waited for: anew after a pause of all agents
    seen_ms: int | None = None  #: arrival of its last mark
    watermark_us: int | None = None  #: minimum over its paths
    final: bool = False  #: it has ended: no frames follow
    left_out: list[str] = field(default_factory=list)  #: agents below a relay that it does not wait for
    closings: list[tuple[int, int]] = field(default_factory=list)  #: (watermark, epoch) of marks not yet passed by all


class StoredTable:
    """A table of a state, read when it is first asked for."""

    def __init__(self, read: Callable[[], pa.Table]) -> None:
        self._read = read

    @classmethod
    def of(cls, table: pa.Table) -> StoredTable:
        """A table that is here already."""
        return cls(lambda: table)

    @cached_property
    def table(self) -> pa.Table:
        return self._read()


@dataclass
class FlowWindow:
    """One window of a flow, open or closed but still kept for late records."""

    stored: StoredTable
    step: int  #: that last changed the partial aggregates
    records: int = 0
    revision: int = -1  #: of the last result; -1 before the first
    missing: list[str] = field(default_factory=list)  #: agents that the last result lacked

    @property
    def partial(self) -> pa.Table:
        return self.stored.table


@dataclass(frozen=True)
class SideRows:
    """Some rows of one side of a join."""

    stored: StoredTable
    step: int  #: that put them together
    num_rows: int
    size_bytes: int

    @classmethod
    def of(cls, rows: pa.Table, step: int) -> SideRows:
        return cls(StoredTable.of(rows), step, rows.num_rows, rows.nbytes)

    @property
    def rows(self) -> pa.Table:
        return self.stored.table


@dataclass
class JoinWindow:
    """A window of two streams that are joined: rows in parts, each at least twice as large as the next."""

    records: list[SideRows] = field(default_factory=list)  #: of the source, as they come to the join
    others: list[SideRows] = field(default_factory=list)  #: of the joined stream

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in (*self.records, *self.others))

    @property
    def rows(self) -> int:
        return sum(part.num_rows for part in (*self.records, *self.others))


@dataclass(frozen=True)
class AgentCheckpoint:
    """Rows of an agent's open windows, less those it has sent since."""

    stored: StoredTable
    step: int  #: that last changed them
    epoch: int  #: of the agent
    parts: int  #: that are here
    begins: tuple[int, ...]  #: of the windows in it, microseconds

    @classmethod
    def of(cls, rows: pa.Table, step: int, epoch: int, parts: int = 1) -> AgentCheckpoint:
        return cls(StoredTable.of(rows), step, epoch, parts, tuple(window_begins(rows)))

    @property
    def rows(self) -> pa.Table:
        return self.stored.table


@dataclass
class FlowState:
    """One query computed by one plan."""

    query: str
    plan: str
    agents: dict[str, AgentMarks] = field(default_factory=dict)
    windows: dict[int, FlowWindow] = field(default_factory=dict)  #: by beginning, microseconds
    watermark_us: int | None = None
    passed_us: int = 0  #: records of windows that ended at or before it are late for good
    late: int = 0
    early: int = 0  #: records of windows too far ahead of their arrival, left out
    ended: bool = False
    started_us: int = 0  #: of the run that it belongs to, from the plan; 0 where that is not known yet
    lost: list[str] = field(default_factory=list)  #: agents whose frames a lost state held, until their next mark
    whole_from: dict[str, int] = field(default_factory=dict)  #: of such agents: earlier windows lack records
    waiting_for: list[str] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)
    checkpoints: dict[str, AgentCheckpoint] = field(default_factory=dict)  #: by agent
    arriving: dict[str, AgentCheckpoint] = field(default_factory=dict)  #: of which not all parts are here
    sides: dict[int, JoinWindow] = field(default_factory=dict)  #: of windows where two streams are joined, by beginning
    step: int = 0  #: batches that visited it
    now_ms: int = 0  #: time of arrival up to which everything has come
    work: list[tuple[int, ...]] = field(default_factory=list)  #: of its operators, not summed yet (`FlowWork`)
    summed_ms: int = 0  #: when work was last summed


#: Rows of silent agents by agent.
RecoveredRows = Mapping[str, pa.Table]


def keep_checkpoint(
    flow: FlowState, agent: str, rows: pa.Table, epoch: int, document: Mapping[str, Any], step: int
) -> None:
    """Take in a part of a checkpoint; once all are here it takes the place of the one before.

    Raises
    ------
    ValueError
        It says not which part it is, of how many.
    """
    part, parts = checkpoint_part(document)
    before = flow.arriving.pop(agent, None)
    if part > 1:
        if before is None or (before.epoch, before.parts) != (epoch, part - 1):
            return  # what went before is lost, and the checkpoint with it
        rows = pa.concat_tables([before.rows, rows])
    checkpoint = AgentCheckpoint.of(rows, step, epoch, part)
    if part < parts:
        flow.arriving[agent] = checkpoint
    elif rows.num_rows:
        flow.checkpoints[agent] = checkpoint
    else:
        flow.checkpoints.pop(agent, None)


def checkpoint_part(document: Mapping[str, Any]) -> tuple[int, int]:
    """Which part of a checkpoint a frame holds, of how many.

    Raises
    ------
    ValueError
    """
    part, parts = document.get("part"), document.get("parts")
    if not (type(part) is int and type(parts) is int and 1 <= part <= parts <= _MAX_PARTS):
        raise ValueError(f"a checkpoint's part is {part!r} of {parts!r}; allowed: 1 to as many as there are")
    return part, parts


def supersede_checkpoint(flow: FlowState, agent: str, begins: Collection[int], step: int) -> None:
    """Partial rows of these windows came: they are all that the agent had of them."""
    if agent in flow.checkpoints:
        _without(flow, agent, begins, step)


def _without(flow: FlowState, agent: str, begins: Collection[int], step: int) -> None:
    checkpoint = flow.checkpoints[agent]
    left = [begin for begin in checkpoint.begins if begin not in begins]
    if not left:
        del flow.checkpoints[agent]
    elif len(left) < len(checkpoint.begins):
        kept = pc.is_in(checkpoint.rows[WINDOW_START].cast(pa.int64()), value_set=pa.array(left, pa.int64()))
        flow.checkpoints[agent] = AgentCheckpoint.of(
            checkpoint.rows.filter(kept), step, checkpoint.epoch, checkpoint.parts
        )


def open_checkpoint_windows(flow: FlowState, pipeline: Pipeline, step: int) -> None:
    """Open the windows that only silent agents had records of, when their time has come."""
    assert pipeline.window is not None
    if flow.watermark_us is None:
        return
    for agent in flow.excluded:
        checkpoint = flow.checkpoints.get(agent)
        for begin_us in checkpoint.begins if checkpoint else ():
            end_us = begin_us + pipeline.window.size_us
            over = flow.ended or end_us <= flow.watermark_us
            if over and begin_us not in flow.windows and end_us > flow.passed_us:
                empty = aggregate_of(pipeline).partial_schema.empty_table()
                flow.windows[begin_us] = FlowWindow(StoredTable.of(empty), step)


def drop_checkpoint(flow: FlowState, agent: str) -> None:
    """Drop the checkpoint of an agent that has ended: it has sent all that it had."""
    flow.checkpoints.pop(agent, None)
    flow.arriving.pop(agent, None)


def recovered_rows(flow: FlowState, begin_us: int, missing: Collection[str]) -> RecoveredRows:
    """Rows of a window that agents it is issued without have left behind."""
    recovered = {}
    for agent in missing:
        checkpoint = flow.checkpoints.get(agent)
        if checkpoint and begin_us in checkpoint.begins:
            recovered[agent] = checkpoint.rows.filter(
                pc.equal(checkpoint.rows[WINDOW_START].cast(pa.int64()), begin_us)
            )
    return recovered


def drop_passed_checkpoints(flow: FlowState, pipeline: Pipeline, step: int) -> None:
    """Forget rows of windows that are too old to be issued again."""
    assert pipeline.window is not None
    last_us = flow.passed_us - pipeline.window.size_us
    for agent, checkpoint in list(flow.checkpoints.items()):
        if passed := [begin for begin in checkpoint.begins if begin <= last_us]:
            _without(flow, agent, passed, step)


def window_begins(rows: pa.Table) -> list[int]:
    """Beginnings of the windows that rows belong to, microseconds."""
    return pc.unique(rows[WINDOW_START].cast(pa.int64())).to_pylist()
