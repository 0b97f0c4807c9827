"""What operators do, typed: one small record for each operation of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from engine.dataflow.expressions import Node
from engine.dataflow.types import Columns, Type

__all__ = [
    "AggregateSpec",
    "BucketsSpec",
    "FilterSpec",
    "JoinSpec",
    "MapSpec",
    "Output",
    "ParseSpec",
    "ProjectSpec",
    "Spec",
    "State",
    "StaticTable",
    "StreamJoinSpec",
    "WindowSpec",
]


@dataclass(frozen=True)
class StaticTable:
    """A table that a join looks records up in."""

    name: str
    columns: Columns
    data: pa.Table = field(repr=False, compare=False)
    digest: str


@dataclass(frozen=True)
class WindowSpec:
    """Windows [k slide, k slide + size) for whole k, counted from 1970. A record without time is in none."""

    time: str
    size_us: int
    slide_us: int

    @property
    def copies(self) -> int:
        """How many windows a record is in."""
        return self.size_us // self.slide_us


@dataclass(frozen=True)
class FilterSpec:
    """Keeps the records for which `where` is true, not those for which it is null."""

    where: Node


@dataclass(frozen=True)
class MapSpec:
    """Sets columns, all computed from the columns before; new ones stand last, in the order of the alphabet."""

    columns: tuple[tuple[str, Node], ...]


@dataclass(frozen=True)
class ProjectSpec:
    """Keeps `kept` (window_start and time, where there are such) and `columns`, in this order."""

    kept: tuple[str, ...]
    columns: tuple[tuple[str, Node], ...]


@dataclass(frozen=True)
class JoinSpec:
    """Looks `take` up in a static table whose keys are unique. `stream` names another stream: `StreamJoinSpec`.

    `on` and `take` pair columns of the records with columns of the table. Null equals nothing.
    """

    table: StaticTable | None
    stream: str | None
    on: tuple[tuple[str, str], ...]
    take: tuple[tuple[str, str], ...]
    inner: bool


@dataclass(frozen=True)
class StreamJoinSpec(JoinSpec):
    """Matches records of the same window by equal keys with those of another stream, of which `columns` are needed.

    `window` puts records of the other stream into windows by their own time. A record is repeated for each match, but
    for no more than `most`: those first by time, then by what is taken of them (nulls last). `within_agent`: only
    records of one agent match.
    """

    columns: tuple[tuple[str, Type], ...]
    window: WindowSpec
    most: int
    within_agent: bool

    @property
    def order(self) -> tuple[str, ...]:
        """Columns of the other stream by which its records are first or last; those with equal values are alike."""
        return tuple(dict.fromkeys([self.window.time, *(theirs for _, theirs in self.take)]))


@dataclass(frozen=True)
class State:
    """A column of a partial aggregate.

    `kind`: rows (counts records), count (counts values), sum, min, max, or sketch (`engine.dataflow.sketch`).
    """

    name: str
    kind: str
    argument: Node | None
    type: pa.DataType


@dataclass(frozen=True)
class Output:
    """A column of a finished aggregate, computed from the states named."""

    name: str
    function: str
    states: tuple[str, ...]
    share: float | None
    type: Type


@dataclass(frozen=True)
class AggregateSpec:
    """Groups by `keys` (window_start first, where there is one) and keeps `states` of every group.

    `exact` names the outputs that no small state could be kept for; such an aggregate is not run.
    """

    keys: tuple[str, ...]
    states: tuple[State, ...]
    outputs: tuple[Output, ...]
    exact: tuple[str, ...]


@dataclass(frozen=True)
class ParseSpec:
    """Reads a text column into typed ones and drops it.

    `patterns` (regex and kv): for every column the portable pattern and the number of the group that holds its text;
    a record is faulty if none of the patterns is found. For regex all patterns are the same one.
    """

    column: str
    form: str
    patterns: tuple[tuple[str, int], ...]
    into: tuple[tuple[str, Type], ...]
    drop_faulty: bool


@dataclass(frozen=True)
class BucketsSpec:
    """Numbers buckets: 0 below the first bound, i from bounds[i - 1] on and below bounds[i], n from the last on."""

    column: str
    bounds: tuple[float, ...]
    into: str


Spec = WindowSpec | FilterSpec | MapSpec | ProjectSpec | JoinSpec | AggregateSpec | ParseSpec | BucketsSpec
