"""What the stream processor knows after a step."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field

import pyarrow as pa

from spark_jobs.arrivals import Arrival
from spark_jobs.learning import Learned
from spark_jobs.sweeps import Swept
from spark_jobs.watermarks import AgentMarks

__all__ = ["CHECKPOINTS", "Checkpoint", "Flow", "Rows", "Sides", "State", "Window"]

CHECKPOINTS = ("checkpoints", "arriving")  #: fields of a flow, by agent


@dataclass
class Window:
    """One window of a flow, open or closed but still kept for late records."""

    partial: pa.Table
    step: int  #: that last changed the partial aggregates
    records: int = 0
    revision: int = -1  #: of the last result; -1 before the first
    missing: list[str] = field(default_factory=list)  #: agents that the last result lacked


@dataclass(frozen=True)
class Rows:
    """Some rows of one side of a join."""

    rows: pa.Table
    step: int  #: that put them together


@dataclass
class Sides:
    """A window of two streams that are joined: rows in parts, each at least twice as large as the next."""

    records: list[Rows] = field(default_factory=list)  #: of the source, as they come to the join
    others: list[Rows] = field(default_factory=list)  #: of the joined stream

    @property
    def size_bytes(self) -> int:
        return sum(one.rows.nbytes for one in (*self.records, *self.others))

    @property
    def rows(self) -> int:
        return sum(one.rows.num_rows for one in (*self.records, *self.others))


@dataclass(frozen=True)
class Checkpoint:
    """What an agent had in open windows, less what it has sent of them since."""

    rows: pa.Table  #: partial aggregates
    step: int  #: that last changed them
    epoch: int  #: of the agent
    parts: int = 1  #: that are here


@dataclass
class Flow:
    """One query computed by one plan."""

    query: str
    plan: str
    agents: dict[str, AgentMarks] = field(default_factory=dict)
    windows: dict[int, Window] = field(default_factory=dict)  #: by beginning, microseconds
    watermark_us: int | None = None
    passed_us: int = 0  #: records of windows that ended at or before it are late for good
    late: int = 0
    early: int = 0  #: records of windows too far ahead of their arrival, left out
    ended: bool = False
    started_us: int = 0  #: of the run that it belongs to, as the plan says; 0 where that is not known yet
    lost: list[str] = field(default_factory=list)  #: agents whose frames a lost state held, until their next mark
    whole_from: dict[str, int] = field(default_factory=dict)  #: of such agents: earlier windows lack records
    waiting_for: list[str] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)
    checkpoints: dict[str, Checkpoint] = field(default_factory=dict)  #: by agent
    arriving: dict[str, Checkpoint] = field(default_factory=dict)  #: of which not all parts are here
    sides: dict[int, Sides] = field(default_factory=dict)  #: of windows where two streams are joined, by beginning


@dataclass
class State:
    """Everything that a step hands to the next."""

    step: int = 0
    run: int = 0  #: number of the Spark checkpoint
    batch: int = -1  #: Spark's number in that checkpoint
    now_ms: int = 0  #: arrival of the last frame
    positions: dict[tuple[str, str], int] = field(default_factory=dict)
    flows: dict[tuple[str, str], Flow] = field(default_factory=dict)
    waiting: list[Arrival] = field(default_factory=list)
    counters: pa.Table | None = None  #: not summed yet
    sums: pa.Table | None = None  #: of subintervals that may still grow
    summed_ms: int = 0  #: when counters were last summed
    emitted: int = 0  #: frames sent to the console, their numbers
    counts: dict[str, int] = field(default_factory=dict)  #: quarantined, duplicates, gaps, unknown
    read_to: dict[str, str] = field(default_factory=dict)  #: id of the last entry by partition
    learned: Learned = field(default_factory=Learned)  #: of operators at agents
    sweeps: pa.Table | None = None  #: of windows at agents, not learned from yet
    swept: Swept = field(default_factory=Swept)  #: of sweeping watermarks at agents

    def successor(self, batch: int) -> State:
        """A copy for the next step to change; tables are shared, they do not change."""
        flows = {key: _copied(flow) for key, flow in self.flows.items()}
        return State(
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


def _copied(flow: Flow) -> Flow:
    """Everything of its own but the tables."""
    windows = {
        begin: Window(**vars(window) | {"missing": list(window.missing)}) for begin, window in flow.windows.items()
    }
    checkpoints = {name: dict(getattr(flow, name)) for name in CHECKPOINTS}
    sides = {begin: Sides(list(one.records), list(one.others)) for begin, one in flow.sides.items()}
    shared = {"windows", "sides", *CHECKPOINTS}
    rest = {name: deepcopy(value) for name, value in vars(flow).items() if name not in shared}
    return Flow(**rest, **checkpoints, windows=windows, sides=sides)
