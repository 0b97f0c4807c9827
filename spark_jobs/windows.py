"""Windows of a flow: partials merge into them, watermarks close them, late rows issue their results again.

Nothing here reads a clock. An agent is silent when the others' frames went on arriving without one of its own; the
time of arrival is the one at which Redis stored a frame, so that a stream processor that catches up calls no agent
silent. A pause of all of them (nobody could send, or be heard) is nobody's silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from agent.wire import MAX_AHEAD_US, MAX_BODY_BYTES, MAX_TABLE_BYTES, batch_bytes, mark_fault
from agent.wire.schemas import compressed_bytes
from agent.wire.silence import excused_agents, is_pause
from engine.dataflow.arrow.kernels import RowKernel
from engine.dataflow.pipeline import Pipeline
from engine.dataflow.types import WINDOW_START
from spark_jobs.plans import LivePlan, aggregate_of, operator_of
from spark_jobs.state import AgentMarks, FlowState, FlowWindow, RecoveredRows, StoredTable

__all__ = [
    "OperatorWork",
    "absorb_partials",
    "admit_partials",
    "advance_watermark",
    "closing_epoch_us",
    "count_records",
    "due_windows",
    "evict_windows",
    "excuse_pauses",
    "finish_partials",
    "forget_passed",
    "result_body",
    "result_facts",
    "take_mark",
    "watermark_progress",
]

_MAX_SIDES_BYTES = 256 * 2**20  # rows of a flow's windows where streams are joined
_MAX_OPEN_BYTES = 2**30  # the same where the watermark stands still, and windows stay open
_ROWS = "_rows"  # the state of a partial aggregate that counts records


@dataclass(frozen=True)
class WatermarkProgress:
    """The watermark of a query, and the agents that set it."""

    watermark_us: int | None
    waiting_for: tuple[str, ...]  #: agents that hold the watermark where it is
    excluded: tuple[str, ...]  #: agents that are silent, and left out
    ended: bool = False  #: every agent that is not silent has ended


def take_mark(marks: AgentMarks, extra: Mapping[str, Any], epoch_us: int, arrived_ms: int) -> None:
    """Take in a mark's `extra`.

    A watermark more than `MAX_AHEAD_US` after its arrival is of a wrong clock. It counts as the time of its arrival,
    so that what comes when the clock is right again is not late.

    Raises
    ------
    ValueError
        It names no watermark, or something that is no whole number.
    """
    if fault := mark_fault(extra):
        raise ValueError(f"a mark's {fault}")
    closing = extra.get("closing_epoch_us") or epoch_us
    marks.seen_ms = max(arrived_ms, marks.seen_ms or 0)
    arrived_us, watermark_us = 1000 * arrived_ms, min(extra["watermarks"].values())
    marks.watermark_us = watermark_us if watermark_us <= arrived_us + MAX_AHEAD_US else arrived_us
    marks.final = bool(extra.get("final"))
    marks.left_out = list(extra.get("left_out", ()))
    if not marks.closings or marks.closings[-1][0] < marks.watermark_us:
        marks.closings.append((marks.watermark_us, closing))


def excuse_pauses(agents: Mapping[str, AgentMarks], arrivals: Iterable[tuple[int, str]], idle_after_ms: int) -> None:
    """Wait anew for the agents of a query after each pause of them all.

    Parameters
    ----------
    arrivals
        Times and agents of the marks that came, in any order; `agents` is as it was before them.
    """
    seen = {name: marks.seen_ms for name, marks in agents.items() if marks.seen_ms is not None}
    heard_ms = max(seen.values(), default=None)
    for arrived_ms, agent in sorted(arrivals):
        if heard_ms is not None and is_pause(heard_ms, arrived_ms, idle_after_ms):
            since = {name: marks.since_ms for name, marks in agents.items()}
            for name in excused_agents(seen, since, heard_ms, idle_after_ms):
                if name in agents:
                    agents[name].since_ms = arrived_ms
        seen[agent] = heard_ms = arrived_ms


def watermark_progress(
    agents: Mapping[str, AgentMarks], expected: Iterable[str], *, before_us: int | None, now_ms: int, idle_after_ms: int
) -> WatermarkProgress:
    """The watermark of a query from the marks `agents` of its `expected` agents.

    Parameters
    ----------
    before_us
        The watermark so far; it never goes back.
    now_ms
        Time of the last arrival from anybody.
    """
    heard = {name: agents[name] for name in expected if name in agents}
    silent = tuple(sorted(name for name, marks in heard.items() if _silent(marks, now_ms, idle_after_ms)))
    present = {name: marks for name, marks in heard.items() if name not in silent}
    going = {name: marks for name, marks in present.items() if not marks.final}
    unheard = tuple(sorted(name for name, marks in going.items() if marks.watermark_us is None))
    if unheard or not present:
        return WatermarkProgress(before_us, unheard, silent)
    watermarks = {
        name: marks.watermark_us for name, marks in (going or present).items() if marks.watermark_us is not None
    }
    common_us = min(watermarks.values()) if going else max(watermarks.values())
    waiting = tuple(sorted(name for name, value in watermarks.items() if value == common_us)) if going else ()
    watermark_us = common_us if before_us is None else max(common_us, before_us)
    return WatermarkProgress(watermark_us, waiting, silent, ended=not going)


def closing_epoch_us(agents: Iterable[AgentMarks], end_us: int) -> int | None:
    """Beginning of the epoch whose mark was the last one that a window ending at `end_us` waited for."""
    epochs = [epoch for agent in agents if (epoch := _closing(agent, end_us)) is not None]
    return max(epochs, default=None)


def forget_passed(marks: AgentMarks, watermark_us: int) -> None:
    """Drop marks that no open window needs; the last one stays."""
    later = [pair for pair in marks.closings if pair[0] > watermark_us]
    marks.closings = later or marks.closings[-1:]


def _closing(marks: AgentMarks, end_us: int) -> int | None:
    """An agent that has ended closes with its last mark, wherever its watermark stands."""
    passed = next((epoch for watermark, epoch in marks.closings if watermark >= end_us), None)
    return marks.closings[-1][1] if passed is None and marks.final and marks.closings else passed


def _silent(marks: AgentMarks, now_ms: int, idle_after_ms: int) -> bool:
    return not marks.final and now_ms - max(marks.since_ms, marks.seen_ms or 0) > idle_after_ms


@dataclass(frozen=True)
class DueWindow:
    """A window whose result is to be issued, for the first time or again."""

    begin_us: int
    end_us: int
    window: FlowWindow
    missing: list[str]


def absorb_partials(
    flow: FlowState, pipeline: Pipeline, partials: Iterable[pa.Table], step: int, arrived_ms: int
) -> None:
    """Merge partial aggregates into their windows; late and early rows are counted.

    Early is what belongs to a window that begins more than `MAX_AHEAD_US` after `arrived_ms`, when the last of the
    frames came: a clock is wrong, and no watermark would close that window in its time.
    """
    aggregate = aggregate_of(pipeline)
    for begin_us, parts in admit_partials(flow, pipeline, partials, arrived_ms).items():
        window = flow.windows.get(begin_us)
        merged = aggregate.merge([window.partial, *parts] if window else parts)
        if window is None:
            window = flow.windows[begin_us] = FlowWindow(StoredTable.of(merged), step)
        window.stored, window.step, window.records = StoredTable.of(merged), step, count_records(merged)


def admit_partials(
    flow: FlowState, pipeline: Pipeline, tables: Iterable[pa.Table], arrived_ms: int
) -> dict[int, list[pa.Table]]:
    """Rows by the beginning of their window; the others are counted as too late or too early."""
    assert pipeline.window is not None
    fresh: dict[int, list[pa.Table]] = {}
    for table in tables:
        for begin_us, part in _by_window(table):
            fresh.setdefault(begin_us, []).append(part)
    late = [begin_us for begin_us in fresh if begin_us + pipeline.window.size_us <= flow.passed_us]
    flow.late += sum(count_records(part) for begin_us in late for part in fresh.pop(begin_us))
    early = [begin_us for begin_us in fresh if begin_us > arrived_ms * 1000 + MAX_AHEAD_US]
    flow.early += sum(count_records(part) for begin_us in early for part in fresh.pop(begin_us))
    return fresh


def advance_watermark(flow: FlowState, plan: LivePlan, now_ms: int) -> None:
    """Advance the flow's watermark by the marks of its agents."""
    if not now_ms:
        return  # nothing ever arrived, so no agent has been silent since
    for name in plan.agents:
        flow.agents.setdefault(name, AgentMarks(since_ms=now_ms))
    progress = watermark_progress(
        flow.agents, _expected(flow, plan), before_us=flow.watermark_us, now_ms=now_ms, idle_after_ms=plan.idle_after_ms
    )
    flow.watermark_us, flow.ended = progress.watermark_us, progress.ended
    flow.waiting_for, flow.excluded = list(progress.waiting_for), list(progress.excluded)


def due_windows(flow: FlowState, pipeline: Pipeline, plan: LivePlan, step: int) -> list[DueWindow]:
    """Windows to issue now, in their order: closed and new, closed and changed, or complete at last."""
    assert pipeline.window is not None
    due, size_us = [], pipeline.window.size_us
    for begin_us, window in sorted(flow.windows.items()):
        end_us = begin_us + size_us
        if not flow.ended and (flow.watermark_us is None or end_us > flow.watermark_us):
            break
        changed = window.revision < 0 or window.step == step
        if not changed and not window.missing:
            continue
        missing = _missing(flow, plan, begin_us, end_us)
        if changed or not missing:
            due.append(DueWindow(begin_us, end_us, window, missing))
    return due


def evict_windows(flow: FlowState, pipeline: Pipeline, plan: LivePlan) -> None:
    """Forget windows that nothing can change any more, those for which there is no room, and marks not asked for."""
    assert pipeline.window is not None
    size_us, passed_us = pipeline.window.size_us, flow.passed_us
    if flow.watermark_us is not None:
        closed_us = _crowded_out_us(flow, size_us, _MAX_SIDES_BYTES, flow.watermark_us)
        passed_us = max(passed_us, flow.watermark_us - plan.retain_us, closed_us)
    if flow.sides:
        long_ago_us = max(flow.sides) - plan.retain_us
        passed_us = max(passed_us, _crowded_out_us(flow, size_us, _MAX_OPEN_BYTES, long_ago_us))
    flow.passed_us = passed_us
    flow.late += sum(flow.sides[begin_us].rows for begin_us in flow.sides if _is_lost(flow, begin_us + size_us))
    for kept in (flow.windows, flow.sides):
        for begin_us in [begin for begin in kept if begin + size_us <= passed_us]:
            del kept[begin_us]
    if flow.watermark_us is not None:
        for marks in flow.agents.values():
            forget_passed(marks, flow.watermark_us)


def _is_lost(flow: FlowState, end_us: int) -> bool:
    """Whether a window is forgotten before its result was issued."""
    return end_us <= flow.passed_us and (flow.watermark_us is None or end_us > flow.watermark_us)


def _crowded_out_us(flow: FlowState, size_us: int, most_bytes: int, until_us: int) -> int:
    """End of the newest window ended by `until_us` for whose rows there is no room beside those of later ones; or 0."""
    kept_bytes = 0
    for begin_us in sorted(flow.sides, reverse=True):
        kept_bytes += flow.sides[begin_us].size_bytes
        if kept_bytes > most_bytes and begin_us + size_us <= until_us:
            return begin_us + size_us
    return 0


def _expected(flow: FlowState, plan: LivePlan) -> list[str]:
    """Agents whose word counts; all that ever spoke where the console names none."""
    return sorted(plan.agents or flow.agents)


def _missing(flow: FlowState, plan: LivePlan, begin_us: int, end_us: int) -> list[str]:
    """Agents whose records of a window may still come, or are gone with a lost state."""
    expected = {name: flow.agents[name] for name in _expected(flow, plan)}
    lacking = {name for name, marks in expected.items() if _lacks(marks, end_us)}
    lacking |= {name for name, from_us in flow.whole_from.items() if begin_us < from_us} | set(flow.lost)
    return sorted(lacking.union(*(marks.left_out for marks in expected.values())))


def _lacks(marks: AgentMarks, end_us: int) -> bool:
    return not marks.final and (marks.watermark_us is None or marks.watermark_us < end_us)


def count_records(partial: pa.Table) -> int:
    """Number of records in partial aggregates; the number of groups where records are not counted."""
    if _ROWS not in partial.column_names:
        return partial.num_rows
    return pc.sum(partial[_ROWS]).as_py() or 0


def _by_window(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    begins = table.column(WINDOW_START).cast(pa.int64())
    values = pc.unique(begins).to_pylist()
    if len(values) == 1:
        yield values[0], table
        return
    for value in values:
        yield value, table.filter(pc.equal(begins, value))


_MAX_NAMED = 100  # agents in a header, which has bounds


@dataclass
class OperatorWork:
    """Counters of one flow's operators in a step: [records in, records out] by operator."""

    counts: dict[int, list[int]] = field(default_factory=dict)
    groups: int = 0

    def add(self, operator: int, records_in: int, records_out: int) -> None:
        both = self.counts.setdefault(operator, [0, 0])
        both[0] += records_in
        both[1] += records_out

    def merge(self, other: OperatorWork) -> None:
        """Add what another did."""
        for operator, both in other.counts.items():
            self.add(operator, *both)
        self.groups += other.groups

    @property
    def records_entered(self) -> int:
        """Records that came from outside: those an operator took beyond what the one before it gave."""
        given = {operator + 1: records_out for operator, (_, records_out) in self.counts.items()}
        return sum(max(taken - given.get(operator, 0), 0) for operator, (taken, _) in self.counts.items())


def finish_partials(pipeline: Pipeline, partial: pa.Table, work: OperatorWork) -> pa.Table:
    """The rows of a closed window: the aggregate's, taken through the operators after it."""
    assert pipeline.aggregate is not None
    rows = aggregate_of(pipeline).finalise(partial)
    work.add(pipeline.aggregate, 0, rows.num_rows)
    work.groups += rows.num_rows
    for operator in pipeline.operators[pipeline.aggregate + 1 :]:
        after = _through(pipeline, operator.index, rows)
        work.add(operator.index, rows.num_rows, after.num_rows)
        rows = after
    return rows


def result_facts(
    flow: FlowState, pipeline: Pipeline, due: DueWindow, rows: pa.Table, recovered: RecoveredRows
) -> dict[str, Any]:
    """Header of a window's RESULT frame; `recovered` are the rows that silent agents left of it, included in `rows`."""
    assert pipeline.window is not None
    records_by_agent = {agent: count_records(partial) for agent, partial in recovered.items()}
    facts: dict[str, Any] = {
        "window_us": due.begin_us,
        "width_us": pipeline.window.size_us,
        "revision": due.window.revision,
        "complete": not due.missing,
        "missing": due.missing[:_MAX_NAMED],
        "late": flow.late,
        "early": flow.early,
        "rows": rows.num_rows,
        "records": due.window.records + sum(records_by_agent.values()),
        "closing_epoch_us": closing_epoch_us(flow.agents.values(), due.end_us),
    }
    if records_by_agent:
        facts["recovered"] = dict(sorted(records_by_agent.items())[:_MAX_NAMED])
    return facts


def _through(pipeline: Pipeline, index: int, rows: pa.Table) -> pa.Table:
    """One operator after the aggregate, on all rows of a window."""
    operator = operator_of(pipeline, index)
    return operator.run(rows) if isinstance(operator, RowKernel) else operator.finalise(operator.partial(rows))


def result_body(rows: pa.Table) -> tuple[bytes, int]:
    """The rows as bytes that fit into a frame, compressed where they must be; and how many rows had to stay behind."""
    body = batch_bytes(rows)
    if len(body) <= MAX_BODY_BYTES:
        return body, 0
    kept = rows
    while kept.nbytes > MAX_TABLE_BYTES:
        kept = kept.slice(0, int(kept.num_rows * 0.9 * MAX_TABLE_BYTES / kept.nbytes))
    while len(body := compressed_bytes(kept)) > MAX_BODY_BYTES:
        kept = kept.slice(0, int(kept.num_rows * 0.9 * MAX_BODY_BYTES / len(body)))
    return body, rows.num_rows - kept.num_rows
