"""Windows of a flow: partial aggregates merge into them, watermarks close them, late ones open their results again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from agent.wire import MOST_AHEAD_US
from engine.dataflow.pipeline import Pipeline
from engine.dataflow.types import WINDOW_START
from spark_jobs.operators import aggregate_of
from spark_jobs.plans import LivePlan
from spark_jobs.state import Flow, Window
from spark_jobs.watermarks import AgentMarks, forget_passed, progress

__all__ = ["Due", "absorb", "admitted", "advance", "due", "evict", "records_of"]


_MOST_SIDES_BYTES = 256 * 2**20  # rows of a flow's windows where streams are joined
_MOST_OPEN_BYTES = 2**30  # the same where the watermark stands still, and windows stay open
_ROWS = "_rows"  # the state of a partial aggregate that counts records


@dataclass(frozen=True)
class Due:
    """A window whose result is to be issued, for the first time or again."""

    begin_us: int
    end_us: int
    window: Window
    missing: list[str]


def absorb(flow: Flow, pipeline: Pipeline, partials: Iterable[pa.Table], step: int, arrived_ms: int) -> None:
    """Merge partial aggregates into the windows they belong to; what is too late or too early is counted.

    Early is what belongs to a window that begins more than `MOST_AHEAD_US` after `arrived_ms`, when the last of the
    frames came: a clock is wrong, and no watermark would close that window in its time.
    """
    aggregate = aggregate_of(pipeline)
    for begin_us, parts in admitted(flow, pipeline, partials, arrived_ms).items():
        known = flow.windows.get(begin_us)
        merged = aggregate.merge([known.partial, *parts] if known else parts)
        if known is None:
            flow.windows[begin_us] = Window(merged, step, records_of(merged))
        else:
            known.partial, known.step, known.records = merged, step, records_of(merged)


def admitted(flow: Flow, pipeline: Pipeline, tables: Iterable[pa.Table], arrived_ms: int) -> dict[int, list[pa.Table]]:
    """Rows by the beginning of their window; the others are counted as too late or too early."""
    assert pipeline.window is not None
    fresh: dict[int, list[pa.Table]] = {}
    for table in tables:
        for begin_us, part in _by_window(table):
            fresh.setdefault(begin_us, []).append(part)
    late = [begin_us for begin_us in fresh if begin_us + pipeline.window.size_us <= flow.passed_us]
    flow.late += sum(records_of(part) for begin_us in late for part in fresh.pop(begin_us))
    early = [begin_us for begin_us in fresh if begin_us > arrived_ms * 1000 + MOST_AHEAD_US]
    flow.early += sum(records_of(part) for begin_us in early for part in fresh.pop(begin_us))
    return fresh


def advance(flow: Flow, plan: LivePlan, now_ms: int) -> None:
    """Bring the flow's watermark up to what its agents have said."""
    if not now_ms:
        return  # nothing ever arrived, so nobody has been silent since
    for name in plan.agents:
        flow.agents.setdefault(name, AgentMarks(since_ms=now_ms))
    found = progress(
        flow.agents, _expected(flow, plan), before_us=flow.watermark_us, now_ms=now_ms, idle_after_ms=plan.idle_after_ms
    )
    flow.watermark_us, flow.ended = found.watermark_us, found.ended
    flow.waiting_for, flow.excluded = list(found.waiting_for), list(found.excluded)


def due(flow: Flow, pipeline: Pipeline, plan: LivePlan, step: int) -> list[Due]:
    """Windows to issue now, in their order: closed and new, closed and changed, or complete at last."""
    assert pipeline.window is not None
    found = []
    for begin_us, window in sorted(flow.windows.items()):
        end_us = begin_us + pipeline.window.size_us
        if not flow.ended and (flow.watermark_us is None or end_us > flow.watermark_us):
            break
        missing = _missing(flow, plan, begin_us, end_us)
        if window.revision < 0 or window.step == step or (window.missing and not missing):
            found.append(Due(begin_us, end_us, window, missing))
    return found


def evict(flow: Flow, pipeline: Pipeline, plan: LivePlan) -> None:
    """Forget windows that nothing can change any more, those for which there is no room, and marks not asked for."""
    assert pipeline.window is not None
    size_us, passed_us = pipeline.window.size_us, flow.passed_us
    if flow.watermark_us is not None:
        closed_us = _crowded_out_us(flow, size_us, _MOST_SIDES_BYTES, flow.watermark_us)
        passed_us = max(passed_us, flow.watermark_us - plan.retain_us, closed_us)
    if flow.sides:
        long_ago_us = max(flow.sides) - plan.retain_us
        passed_us = max(passed_us, _crowded_out_us(flow, size_us, _MOST_OPEN_BYTES, long_ago_us))
    flow.passed_us = passed_us
    flow.late += sum(flow.sides[begin_us].rows for begin_us in flow.sides if _is_lost(flow, begin_us + size_us))
    for kept in (flow.windows, flow.sides):
        for begin_us in [begin for begin in kept if begin + size_us <= passed_us]:
            del kept[begin_us]
    if flow.watermark_us is not None:
        for marks in flow.agents.values():
            forget_passed(marks, flow.watermark_us)


def _is_lost(flow: Flow, end_us: int) -> bool:
    """Whether a window is forgotten before its result was issued."""
    return end_us <= flow.passed_us and (flow.watermark_us is None or end_us > flow.watermark_us)


def _crowded_out_us(flow: Flow, size_us: int, most_bytes: int, until_us: int) -> int:
    """End of the newest window ended by `until_us` for whose rows there is no room beside those of later ones; or 0."""
    kept_bytes = 0
    for begin_us in sorted(flow.sides, reverse=True):
        kept_bytes += flow.sides[begin_us].size_bytes
        if kept_bytes > most_bytes and begin_us + size_us <= until_us:
            return begin_us + size_us
    return 0


def _expected(flow: Flow, plan: LivePlan) -> list[str]:
    """Agents whose word counts; all that ever spoke where the console names none."""
    return sorted(plan.agents or flow.agents)


def _missing(flow: Flow, plan: LivePlan, begin_us: int, end_us: int) -> list[str]:
    """Agents whose records of a window may still come, or are gone with a lost state."""
    expected = {name: flow.agents[name] for name in _expected(flow, plan)}
    lacking = {name for name, marks in expected.items() if _lacks(marks, end_us)}
    lacking |= {name for name, from_us in flow.whole_from.items() if begin_us < from_us} | set(flow.lost)
    return sorted(lacking.union(*(marks.left_out for marks in expected.values())))


def _lacks(marks: AgentMarks, end_us: int) -> bool:
    return not marks.final and (marks.watermark_us is None or marks.watermark_us < end_us)


def records_of(partial: pa.Table) -> int:
    """How many records stand behind partial aggregates; the groups themselves where those are not counted."""
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
