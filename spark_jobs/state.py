"""State of the stream processor after a step, and the checkpoints of agents' open windows in it.

A checkpoint holds the partial rows of every window of a flow that was open at an agent after an epoch. Its rows stand
in for those that the agent still owes; they go into results and never into the windows, which the agent's own rows go
into.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from engine.dataflow.pipeline import Pipeline
from engine.dataflow.types import WINDOW_START
from spark_jobs.input.arrivals import Arrival
from spark_jobs.plans import aggregate_of
from spark_jobs.statistics.operator_history import OperatorHistory
from spark_jobs.statistics.sweep_history import SweepTables

__all__ = [
    "CHECKPOINTS",
    "AgentCheckpoint",
    "AgentMarks",
    "FlowState",
    "FlowWindow",
    "JoinWindow",
    "RecoveredRows",
    "SideRows",
    "StreamState",
    "drop_checkpoint",
    "drop_passed_checkpoints",
    "keep_checkpoint",
    "open_checkpoint_windows",
    "recovered_rows",
    "supersede_checkpoint",
]

CHECKPOINTS = ("checkpoints", "arriving")  #: fields of a flow, by agent
_MAX_PARTS = 10_000


@dataclass
class AgentMarks:
    """Marks of one agent for one query."""

    since_ms: int  #: since when it is waited for
    seen_ms: int | None = None  #: arrival of its last mark
    watermark_us: int | None = None  #: minimum over its paths
    final: bool = False  #: it has ended: no frames follow
    left_out: list[str] = field(default_factory=list)  #: agents below a relay that it does not wait for
    closings: list[tuple[int, int]] = field(default_factory=list)  #: (watermark, epoch) of marks not yet passed by all


@dataclass
class FlowWindow:
    """One window of a flow, open or closed but still kept for late records."""

    partial: pa.Table
    step: int  #: that last changed the partial aggregates
    records: int = 0
    revision: int = -1  #: of the last result; -1 before the first
    missing: list[str] = field(default_factory=list)  #: agents that the last result lacked


@dataclass(frozen=True)
class SideRows:
    """Some rows of one side of a join."""

    rows: pa.Table
    step: int  #: that put them together


@dataclass
class JoinWindow:
    """A window of two streams that are joined: rows in parts, each at least twice as large as the next."""

    records: list[SideRows] = field(default_factory=list)  #: of the source, as they come to the join
    others: list[SideRows] = field(default_factory=list)  #: of the joined stream

    @property
    def size_bytes(self) -> int:
        return sum(record.rows.nbytes for record in (*self.records, *self.others))

    @property
    def rows(self) -> int:
        return sum(record.rows.num_rows for record in (*self.records, *self.others))


@dataclass(frozen=True)
class AgentCheckpoint:
    """Rows of an agent's open windows, less those it has sent since."""

    rows: pa.Table  #: partial aggregates
    step: int  #: that last changed them
    epoch: int  #: of the agent
    parts: int = 1  #: that are here


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


@dataclass
class StreamState:
    """Everything that a step hands to the next."""

    step: int = 0
    run: int = 0  #: number of the Spark checkpoint
    batch: int = -1  #: Spark's number in that checkpoint
    now_ms: int = 0  #: arrival of the last frame
    positions: dict[tuple[str, str], int] = field(default_factory=dict)
    flows: dict[tuple[str, str], FlowState] = field(default_factory=dict)
    waiting: list[Arrival] = field(default_factory=list)
    counters: pa.Table | None = None  #: not summed yet
    sums: pa.Table | None = None  #: of subintervals that may still grow
    summed_ms: int = 0  #: when counters were last summed
    emitted: int = 0  #: frames sent to the console, their numbers
    counts: dict[str, int] = field(default_factory=dict)  #: quarantined, duplicates, gaps, unknown
    read_to: dict[str, str] = field(default_factory=dict)  #: id of the last entry by partition
    learned: OperatorHistory = field(default_factory=OperatorHistory)  #: of operators at agents
    sweeps: pa.Table | None = None  #: of windows at agents, not learned from yet
    swept: SweepTables = field(default_factory=SweepTables)  #: of sweeping watermarks at agents

    def successor(self, batch: int) -> StreamState:
        """A copy for the next step to change; tables are shared, they do not change."""
        flows = {key: _copied(flow) for key, flow in self.flows.items()}
        return StreamState(
            self.step + 1,
            self.run,
            batch,
            self.now_ms,
            dict(self.positions),
            flows,
            list(self.waiting),
            self.counters,
            self.sums,
            self.summed_ms,
            self.emitted,
            dict(self.counts),
            dict(self.read_to),
            self.learned,
            self.sweeps,
            self.swept,
        )

    def count(self, name: str, more: int = 1) -> None:
        if more:
            self.counts[name] = self.counts.get(name, 0) + more


def _copied(flow: FlowState) -> FlowState:
    """Everything of its own but the tables."""
    windows = {
        begin: FlowWindow(**vars(window) | {"missing": list(window.missing)}) for begin, window in flow.windows.items()
    }
    checkpoints = {name: dict(getattr(flow, name)) for name in CHECKPOINTS}
    sides = {begin: JoinWindow(list(side.records), list(side.others)) for begin, side in flow.sides.items()}
    shared = {"windows", "sides", *CHECKPOINTS}
    rest = {name: deepcopy(value) for name, value in vars(flow).items() if name not in shared}
    return FlowState(**rest, **checkpoints, windows=windows, sides=sides)


#: Rows of silent agents by agent.
RecoveredRows = Mapping[str, pa.Table]


def keep_checkpoint(
    flow: FlowState, agent: str, rows: pa.Table, epoch: int, says: Mapping[str, Any], step: int
) -> None:
    """Take in a part of a checkpoint; once all are here it takes the place of the one before.

    Raises
    ------
    ValueError
        It says not which part it is, of how many.
    """
    part, parts = says.get("part"), says.get("parts")
    if not (type(part) is int and type(parts) is int and 1 <= part <= parts <= _MAX_PARTS):
        raise ValueError(f"a checkpoint's part is {part!r} of {parts!r}; allowed: 1 to as many as there are")
    before = flow.arriving.pop(agent, None)
    if part > 1:
        if before is None or (before.epoch, before.parts) != (epoch, part - 1):
            return  # what went before is lost, and the checkpoint with it
        rows = pa.concat_tables([before.rows, rows])
    checkpoint = AgentCheckpoint(rows, step, epoch, part)
    if part < parts:
        flow.arriving[agent] = checkpoint
    elif rows.num_rows:
        flow.checkpoints[agent] = checkpoint
    else:
        flow.checkpoints.pop(agent, None)


def supersede_checkpoint(flow: FlowState, agent: str, partial: pa.Table, step: int) -> None:
    """Partial rows came: they are all that the agent had of their windows."""
    if agent in flow.checkpoints:
        _without(flow, agent, pc.unique(partial[WINDOW_START]), step)


def _without(flow: FlowState, agent: str, begins: pa.Array, step: int) -> None:
    checkpoint = flow.checkpoints[agent]
    rows = checkpoint.rows.filter(pc.invert(pc.is_in(checkpoint.rows[WINDOW_START], value_set=begins)))
    if not rows.num_rows:
        del flow.checkpoints[agent]
    elif rows.num_rows < checkpoint.rows.num_rows:
        flow.checkpoints[agent] = AgentCheckpoint(rows, step, checkpoint.epoch, checkpoint.parts)


def open_checkpoint_windows(flow: FlowState, pipeline: Pipeline, step: int) -> None:
    """Open the windows that only silent agents had records of, when their time has come."""
    assert pipeline.window is not None
    if flow.watermark_us is None:
        return
    for agent in flow.excluded:
        checkpoint = flow.checkpoints.get(agent)
        for begin_us in _begins(checkpoint.rows) if checkpoint else ():
            end_us = begin_us + pipeline.window.size_us
            over = flow.ended or end_us <= flow.watermark_us
            if over and begin_us not in flow.windows and end_us > flow.passed_us:
                flow.windows[begin_us] = FlowWindow(aggregate_of(pipeline).partial_schema.empty_table(), step)


def drop_checkpoint(flow: FlowState, agent: str) -> None:
    """Drop the checkpoint of an agent that has ended: it has sent all that it had."""
    flow.checkpoints.pop(agent, None)
    flow.arriving.pop(agent, None)


def recovered_rows(flow: FlowState, begin_us: int, missing: Collection[str]) -> RecoveredRows:
    """Rows of a window that agents it is issued without have left behind."""
    recovered = {}
    for agent in missing:
        if checkpoint := flow.checkpoints.get(agent):
            rows = checkpoint.rows.filter(pc.equal(checkpoint.rows[WINDOW_START].cast(pa.int64()), begin_us))
            if rows.num_rows:
                recovered[agent] = rows
    return recovered


def drop_passed_checkpoints(flow: FlowState, pipeline: Pipeline, step: int) -> None:
    """Forget rows of windows that are too old to be issued again."""
    assert pipeline.window is not None
    for agent, checkpoint in list(flow.checkpoints.items()):
        begins = pc.unique(checkpoint.rows[WINDOW_START])
        passed = begins.filter(pc.less_equal(begins.cast(pa.int64()), flow.passed_us - pipeline.window.size_us))
        if len(passed):
            _without(flow, agent, passed, step)


def _begins(rows: pa.Table) -> list[int]:
    return pc.unique(rows[WINDOW_START].cast(pa.int64())).to_pylist()
