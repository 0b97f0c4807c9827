"""What agents had in windows that were open: kept until they send it, and counted where they fall silent before.

A checkpoint holds the partial rows of every window of a flow that was open at an agent after an epoch. Rows of it stand
in for those that the agent still owes; they go into results and never into the windows, which its own rows go into.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from engine.dataflow.pipeline import Pipeline
from engine.dataflow.types import WINDOW_START
from spark_jobs.operators import aggregate_of
from spark_jobs.state import Checkpoint, Flow, Window

__all__ = ["Recovered", "drop", "drop_passed", "keep", "open_windows", "recovered", "supersede"]

_MOST_PARTS = 10_000

#: Rows of silent agents by agent.
Recovered = Mapping[str, pa.Table]


def keep(flow: Flow, agent: str, rows: pa.Table, epoch: int, says: Mapping[str, Any], step: int) -> None:
    """Take in a part of a checkpoint; once all are here it takes the place of the one before.

    Raises
    ------
    ValueError
        It says not which part it is, of how many.
    """
    part, parts = says.get("part"), says.get("parts")
    if not (type(part) is int and type(parts) is int and 1 <= part <= parts <= _MOST_PARTS):
        raise ValueError(f"a checkpoint's part is {part!r} of {parts!r}; allowed: 1 to as many as there are")
    before = flow.arriving.pop(agent, None)
    if part > 1:
        if before is None or (before.epoch, before.parts) != (epoch, part - 1):
            return  # what went before is lost, and the checkpoint with it
        rows = pa.concat_tables([before.rows, rows])
    made = Checkpoint(rows, step, epoch, part)
    if part < parts:
        flow.arriving[agent] = made
    elif rows.num_rows:
        flow.checkpoints[agent] = made
    else:
        flow.checkpoints.pop(agent, None)


def supersede(flow: Flow, agent: str, partial: pa.Table, step: int) -> None:
    """Partial rows came: they are all that the agent had of their windows."""
    if agent in flow.checkpoints:
        _without(flow, agent, pc.unique(partial[WINDOW_START]), step)


def _without(flow: Flow, agent: str, begins: pa.Array, step: int) -> None:
    known = flow.checkpoints[agent]
    rows = known.rows.filter(pc.invert(pc.is_in(known.rows[WINDOW_START], value_set=begins)))
    if not rows.num_rows:
        del flow.checkpoints[agent]
    elif rows.num_rows < known.rows.num_rows:
        flow.checkpoints[agent] = Checkpoint(rows, step, known.epoch, known.parts)


def open_windows(flow: Flow, pipeline: Pipeline, step: int) -> None:
    """Windows that nobody but silent agents had records of are there too when their time has come."""
    assert pipeline.window is not None
    if flow.watermark_us is None:
        return
    for agent in flow.excluded:
        known = flow.checkpoints.get(agent)
        for begin_us in _begins(known.rows) if known else ():
            end_us = begin_us + pipeline.window.size_us
            over = flow.ended or end_us <= flow.watermark_us
            if over and begin_us not in flow.windows and end_us > flow.passed_us:
                flow.windows[begin_us] = Window(aggregate_of(pipeline).partial_schema.empty_table(), step)


def drop(flow: Flow, agent: str) -> None:
    """The agent has said that nothing follows: it has sent all that it had."""
    flow.checkpoints.pop(agent, None)
    flow.arriving.pop(agent, None)


def recovered(flow: Flow, begin_us: int, missing: Collection[str]) -> Recovered:
    """Rows of a window that agents it is issued without have left behind."""
    found = {}
    for agent in missing:
        if known := flow.checkpoints.get(agent):
            rows = known.rows.filter(pc.equal(known.rows[WINDOW_START].cast(pa.int64()), begin_us))
            if rows.num_rows:
                found[agent] = rows
    return found


def drop_passed(flow: Flow, pipeline: Pipeline, step: int) -> None:
    """Forget rows of windows that are too old to be issued again."""
    assert pipeline.window is not None
    for agent, known in list(flow.checkpoints.items()):
        begins = pc.unique(known.rows[WINDOW_START])
        passed = begins.filter(pc.less_equal(begins.cast(pa.int64()), flow.passed_us - pipeline.window.size_us))
        if len(passed):
            _without(flow, agent, passed, step)


def _begins(rows: pa.Table) -> list[int]:
    return pc.unique(rows[WINDOW_START].cast(pa.int64())).to_pylist()
