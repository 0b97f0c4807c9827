"""Second keyed operator: flows, and statistics of operators.

A flow is a query computed by a plan, or one shard of its groups. Its windows, marks and checkpoints of agents, rows of
joins and watermark are its state; a batch that brings something of it visits it once. Windows that are due become
results. Beside flows stand a few buckets, each with the statistics of some of the queries, and rows for the driver pass
through.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from engine.dataflow.pipeline import Pipeline
from spark_jobs.generations import KeyedRow, split_key
from spark_jobs.plans import LivePlan, PlanReader, PlanVersion, aggregate_of
from spark_jobs.records import JoinRows, absorb_rows, partial_of
from spark_jobs.state import (
    AgentMarks,
    FlowState,
    drop_checkpoint,
    drop_passed_checkpoints,
    keep_checkpoint,
    open_checkpoint_windows,
    recovered_rows,
    supersede_checkpoint,
)
from spark_jobs.statistics.history import StatisticsState
from spark_jobs.statistics.refinement import RefinementReport
from spark_jobs.statistics.subintervals import (
    FlowWork,
    StatisticsReport,
    statistics_updates,
    sum_counters,
    work_epochs,
)
from spark_jobs.statistics.sweep_report import SweepReport
from spark_jobs.statistics.updates import Update
from spark_jobs.variables import FlowVariables, StatisticsVariables, read_table
from spark_jobs.windows import (
    OperatorWork,
    absorb_partials,
    advance_watermark,
    count_records,
    due_windows,
    evict_windows,
    excuse_pauses,
    finish_partials,
    result_body,
    result_facts,
    take_mark,
)

__all__ = ["FLOWS", "FlowsContext", "FlowsRow", "rows_of_key"]

_MAX_WORK = 500  # batches whose work waits to be summed

#: Rows of this operator, in Spark's terms.
FLOWS = "query string, plan string, shard int, kind string, told string, body binary"


class FlowsRow(NamedTuple):
    """One row for the driver."""

    query: str
    plan: str
    shard: int
    kind: str  #: of a frame for the console, or ``flow``, ``partition``, ``bad``
    told: str  #: JSON
    body: bytes | None = None


@dataclass(frozen=True)
class FlowsContext:
    """Services and settings; sent to tasks, so it holds no connection."""

    plans: PlanReader
    statistics_ms: int = 10_000  #: how often sums are posted, in time of arrival
    refine_ms: int = 10_000  #: interval of refinement reports, likewise


def rows_of_key(
    key: str,
    rows: Iterable[KeyedRow],
    flows: FlowVariables,
    statistics: StatisticsVariables,
    context: FlowsContext,
) -> Iterator[FlowsRow]:
    """Rows for the driver of all that a batch brought of one key."""
    if key.startswith("@"):
        yield from (FlowsRow("", "", 0, row.kind, row.told, row.body) for row in rows)
    elif key.startswith("#"):
        yield from StatisticsStep(statistics, context, list(rows)).rows()
    else:
        yield from FlowStep(flows, context, key, list(rows)).rows()


@dataclass
class _Frames:
    """Contents of a batch that belong to one flow."""

    partials: list[pa.Table] = field(default_factory=list)
    sides: JoinRows = field(default_factory=JoinRows)
    checkpoints: dict[str, bytes] = field(default_factory=dict)
    events: list[list[Any]] = field(default_factory=list)
    touched: set[int] = field(default_factory=set)
    lost: list[str] = field(default_factory=list)
    aggregated: tuple[int, int] = (0, 0)  #: records into the aggregate, and CPU nanoseconds of it


class FlowStep:
    """The work on what a batch brought of one flow."""

    def __init__(self, variables: FlowVariables, context: FlowsContext, key: str, rows: list[KeyedRow]) -> None:
        self._variables, self._context, self._rows = variables, context, rows
        self._query, self._digest, self._shard = split_key(key)
        self._plan: PlanVersion = context.plans.version(max(row.plan for row in rows))
        self._began_ns = time.process_time_ns()

    def rows(self) -> Iterator[FlowsRow]:
        """Rows for the driver: results, statistics, and what the flow has come to."""
        if any(row.kind == "forget" for row in self._rows):
            self._variables.clear()
            return
        found = self._variables.load(self._query, self._digest)
        if found is None and all(row.kind == "tick" for row in self._rows):
            return
        pipeline = self._context.plans.pipeline(self._digest)
        flow = self._current(found)
        flow.step += 1
        flow.now_ms = max(flow.now_ms, min(row.now_ms for row in self._rows))
        settings = self._plan.settings(self._query, self._digest)
        work = OperatorWork()
        frames = self._frames(pipeline)
        self._take(flow, pipeline, settings, frames)
        yield from self._results(flow, pipeline, settings, work)
        yield from self._statistics(flow, pipeline, settings, frames, work)
        self._variables.save(flow)
        yield self._row("flow", _flow_facts(flow))

    def _current(self, found: FlowState | None) -> FlowState:
        """The flow of the query's present run: one that was started again has no past."""
        live = self._plan.live.get((self._query, self._digest))
        started_us = live.started_us if live is not None else 0
        if found is None:
            return FlowState(self._query, self._digest, started_us=started_us)
        if live is not None and found.started_us and found.started_us != started_us:
            fresh = FlowState(self._query, self._digest, started_us=started_us, step=found.step, now_ms=found.now_ms)
            fresh.work, fresh.summed_ms = found.work, found.summed_ms
            return fresh
        found.started_us = found.started_us or started_us
        return found

    # -- what came

    def _frames(self, pipeline: Pipeline) -> _Frames:
        frames, schema = _Frames(), aggregate_of(pipeline).partial_schema
        for row in self._rows:
            told: Any = json.loads(row.told) if row.told else None
            if row.kind == "frames":
                frames.events += told["events"]
                frames.touched.update(told.get("touched", ()))
                records_in, cpu_ns = told.get("aggregated", (0, 0))
                frames.aggregated = frames.aggregated[0] + records_in, frames.aggregated[1] + cpu_ns
                if row.body is not None:
                    frames.partials.append(read_table(row.body).cast(schema))
            elif row.kind == "checkpoint":
                frames.checkpoints[told] = row.body or b""
            elif row.kind == "lost":
                frames.lost += told
            elif row.kind in ("records", "others"):
                getattr(frames.sides, row.kind).append(read_table(row.body or b""))
        return frames

    def _take(self, flow: FlowState, pipeline: Pipeline, settings: LivePlan, frames: _Frames) -> None:
        arrivals = [(event[-1], event[1]) for event in frames.events if event[0] == "mark"]
        excuse_pauses(flow.agents, arrivals, settings.idle_after_ms)
        flow.lost += [agent for agent in frames.lost if agent not in flow.lost]
        for kind, agent, *event in frames.events:
            if kind == "mark":
                self._take_mark(flow, agent, *event)
            elif kind == "partials":
                supersede_checkpoint(flow, agent, event[0], flow.step)
            else:
                epoch, part, parts, name = event
                rows = read_table(frames.checkpoints[name]).cast(aggregate_of(pipeline).partial_schema)
                keep_checkpoint(flow, agent, rows, epoch, {"part": part, "parts": parts}, flow.step)
        arrived_ms = max(row.arrived_ms for row in self._rows)
        absorb_partials(flow, pipeline, frames.partials, flow.step, arrived_ms)
        absorb_rows(flow, pipeline, frames.sides, flow.step, arrived_ms)
        for begin_us in frames.touched & flow.windows.keys():
            flow.windows[begin_us].step = flow.step

    def _take_mark(self, flow: FlowState, agent: str, extra: Mapping[str, Any], epoch_us: int, arrived_ms: int) -> None:
        marks = flow.agents.setdefault(agent, AgentMarks(since_ms=flow.now_ms))
        take_mark(marks, extra, epoch_us, arrived_ms)
        if agent in flow.lost and marks.watermark_us is not None:
            flow.lost.remove(agent)
            flow.whole_from[agent] = marks.watermark_us
        if marks.final:
            drop_checkpoint(flow, agent)

    # -- what comes of it

    def _results(
        self, flow: FlowState, pipeline: Pipeline, settings: LivePlan, work: OperatorWork
    ) -> Iterator[FlowsRow]:
        advance_watermark(flow, settings, flow.now_ms)
        open_checkpoint_windows(flow, pipeline, flow.step)
        for due in due_windows(flow, pipeline, settings, flow.step):
            due.window.revision += 1
            due.window.missing = due.missing
            again = due.window.revision > 0  # rows of a window count once, also when late ones come
            counted = OperatorWork() if again else work
            own = due.window.partial
            if pipeline.stream_join is not None:
                own = partial_of(flow, pipeline, due.begin_us, counted)
                due.window.records = count_records(own)
            left = recovered_rows(flow, due.begin_us, due.missing)
            partial = aggregate_of(pipeline).merge([own, *left.values()]) if left else own
            rows = finish_partials(pipeline, partial, counted)
            body, left_out = result_body(rows)
            facts = result_facts(flow, pipeline, due, rows, left)
            yield self._row("result", facts | ({"left_out": left_out} if left_out else {}), body)
        evict_windows(flow, pipeline, settings)
        drop_passed_checkpoints(flow, pipeline, flow.step)

    def _statistics(
        self, flow: FlowState, pipeline: Pipeline, settings: LivePlan, frames: _Frames, work: OperatorWork
    ) -> Iterator[FlowsRow]:
        """Work of the operators from the first with a state on, summed now and then.

        Of a flow in shards the first one tells, as if the others had done the same: groups are spread evenly.
        """
        if self._shard:
            return
        self._count_work(flow, pipeline, settings, frames, work)
        waited_ms = flow.now_ms - flow.summed_ms
        changed = bool(work.counts or frames.aggregated[0])
        if flow.work and (waited_ms >= self._context.statistics_ms or len(flow.work) > _MAX_WORK):
            works = [FlowWork(self._query, pipeline, *counts) for counts in flow.work]
            epochs = work_epochs(works, {self._query: settings.subinterval_us}, flow.step)
            if epochs is not None:
                rows, sums = sum_counters(self._variables.sums(), epochs)
                self._variables.set_sums(sums)
                for update in statistics_updates(rows):
                    yield self._row("statistics", None, update.body)
            flow.work, flow.summed_ms, changed = [], flow.now_ms, True
        if changed:
            self._variables.set_work(flow)

    def _count_work(
        self, flow: FlowState, pipeline: Pipeline, settings: LivePlan, frames: _Frames, work: OperatorWork
    ) -> None:
        assert pipeline.aggregate is not None
        spent_ns = time.process_time_ns() - self._began_ns
        records_in, partial_ns = frames.aggregated
        total = max(sum(both[0] for both in work.counts.values()), 1)
        shards = settings.shards
        if records_in:
            work.add(pipeline.aggregate, 0, 0)
        for index, (took, gave) in sorted(work.counts.items()):
            cpu_ns = spent_ns * took // total
            took, gave, groups = took * shards, gave * shards, 0
            if index == pipeline.aggregate:
                took, cpu_ns, groups = took + records_in, cpu_ns + partial_ns, work.groups * shards
            flow.work.append((index, took, gave, groups, cpu_ns, flow.now_ms * 1000))

    def _row(self, kind: str, told: Any, body: bytes | None = None) -> FlowsRow:
        text = "" if told is None else json.dumps(told, separators=(",", ":"))
        return FlowsRow(self._query, self._digest, self._shard, kind, text, body)


def _flow_facts(flow: FlowState) -> dict[str, Any]:
    return {
        "watermark_us": flow.watermark_us,
        "waiting_for": flow.waiting_for,
        "excluded": flow.excluded,
        "windows_open": sum(window.revision < 0 for window in flow.windows.values()),
        "late": flow.late,
        "early": flow.early,
    }


class StatisticsStep:
    """The work on counters and sweeps of one bucket's queries: they gather, and are summed now and then."""

    def __init__(self, variables: StatisticsVariables, context: FlowsContext, rows: list[KeyedRow]) -> None:
        self._variables, self._context, self._rows = variables, context, rows
        self._plan: PlanVersion = context.plans.version(max(row.plan for row in rows))

    def rows(self) -> Iterator[FlowsRow]:
        """Rows for the driver: statistics, refined figures and sweeping watermarks."""
        state, waiting = self._variables.load_clock()
        state.step += 1
        state.now_ms = max(state.now_ms, *(row.now_ms for row in self._rows))
        for row in self._rows:
            self._variables.append(row.kind, row.body or b"")
            waiting[row.kind] += int(row.told)
        updates = [*self._counters(state, waiting), *self._sweeps(state, waiting)]
        self._variables.save_clock(state, waiting)
        for update in updates:
            yield FlowsRow(update.query, update.plan, 0, update.kind.value, "", update.body)

    def _counters(self, state: StatisticsState, waiting: dict[str, int]) -> list[Update]:
        refining = RefinementReport(self._context.refine_ms, self._windowed_entry)
        report = StatisticsReport(self._context.statistics_ms, refining)
        if not report.is_due(state, waiting["counters"]):
            return []
        self._variables.load_counters(state)
        updates = report.updates(state, self._plan.live)
        self._variables.save_counters(state)
        waiting["counters"] = 0
        return updates

    def _sweeps(self, state: StatisticsState, waiting: dict[str, int]) -> list[Update]:
        report = SweepReport(self._context.refine_ms)
        if not report.is_due(state, waiting["sweeps"]):
            return []
        self._variables.load_sweeps(state)
        updates = report.updates(state, self._plan.live)
        if state.swept.step == state.step:
            self._variables.save_sweeps(state)
        waiting["sweeps"] = 0
        return updates

    def _windowed_entry(self, digest: str) -> int | None:
        """The operator of a plan that aggregates over windows; None where there is none, or the plan is not known."""
        pipeline = self._context.plans.find_pipeline(digest)
        return pipeline.aggregate if pipeline is not None and pipeline.window is not None else None
