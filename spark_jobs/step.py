"""One step of the stream processor: from the frames of a batch to results."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import redis

from agent.wire import COUNTERS, OLDER_COUNTERS, SWEEPS, FrameKind, counters_table, encode_frame
from agent.wire.broker import generation_progress
from engine.dataflow.pipeline import Pipeline
from spark_jobs import joins
from spark_jobs.console import ConsoleAway
from spark_jobs.input.arrivals import (
    Arrival,
    arrivals_of,
    collect_frames,
    fetch_frames,
    frame_bytes,
    last_ids,
    list_frames,
    moment_ms,
    order_frames,
)
from spark_jobs.input.entries import UNREADABLE, Read
from spark_jobs.input.source import frames_of
from spark_jobs.outbox import Outbox, Quarantine
from spark_jobs.plans import Plans, aggregate_of
from spark_jobs.records import BadBody, entry_schema, process_at_driver, process_by_sql, read_body, read_conforming
from spark_jobs.report import family_cpu_ns
from spark_jobs.results import OperatorWork, finish_partials, result_frame
from spark_jobs.state import (
    AgentMarks,
    FlowState,
    StreamState,
    drop_checkpoint,
    drop_passed_checkpoints,
    keep_checkpoint,
    open_checkpoint_windows,
    recovered_rows,
    supersede_checkpoint,
)
from spark_jobs.statistics.subintervals import epoch_rows
from spark_jobs.statistics.sweep_history import sweep_rows
from spark_jobs.store import StateStore
from spark_jobs.tasks import TaskResult, process_in_tasks
from spark_jobs.windows import absorb_partials, advance_watermark, count_records, due_windows, evict_windows, take_mark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["BatchStep", "StepContext", "recall_positions", "restart_flows"]

_AT_HAND_BYTES = 2 * 2**20
_ONE_TASK_BYTES = 8 * 2**20
_MAX_WAITING_BYTES = 64 * 2**20
_FORGOTTEN_MS = 30 * 86_400_000


def restart_flows(state: StreamState, plans: Plans, arrivals: Iterable[Arrival]) -> None:
    """Give a restarted query a new flow: its sources may begin where they began before.

    Agents may hear of it first, so the console is asked about frames of queries that are not live.
    """
    if any(arrival.plan and arrival.flow not in plans.live() for arrival in arrivals):
        plans.refresh()
    for key, plan in plans.live().items():
        flow = state.flows.get(key)
        if flow is not None and flow.started_us and flow.started_us != plan.started_us:
            state.flows[key] = FlowState(*key, started_us=plan.started_us)


def recall_positions(state: StreamState, plans: Plans, client: redis.Redis, arrivals: Iterable[Arrival]) -> None:
    """Continue after the committed position of a generation unknown to the state: a lost state held it.

    A part of the agent's records of windows that are open now is gone with it; their results will say so.
    """
    senders = {arrival.sender for arrival in arrivals}
    begun = {arrival.sender for arrival in arrivals if arrival.seq == 1} | state.positions.keys()
    for agent, life in senders - begun:
        try:
            committed = generation_progress(client, agent, life).committed_seq
        except redis.RedisError:
            continue
        if committed:
            state.positions[agent, life] = committed
            _lose(state, plans, agent)


def _lose(state: StreamState, plans: Plans, agent: str) -> None:
    for key, plan in plans.live().items():
        flow = state.flows.setdefault(key, FlowState(*key))
        if agent in plan.agents and agent not in flow.lost:
            flow.lost.append(agent)


@dataclass(frozen=True)
class StepContext:
    """Services and settings of a step."""

    store: StateStore
    plans: Plans
    outbox: Outbox
    quarantine: Quarantine
    redis: redis.Redis
    read: Read  #: from the spans of a batch to its frames, in the driver or where tasks run
    at_hand_bytes: int = _AT_HAND_BYTES  #: records of a batch up to this size are processed in the driver
    statistics_ms: int = 10_000  #: how often sums are posted, in time of arrival
    refine_ms: int = 10_000  #: interval of refinement reports, likewise
    family_cpu_ns: Callable[[], int] = family_cpu_ns
    by_sql: bool = False  #: more by Spark's SQL and not by pyarrow in its tasks


@dataclass
class FlowFrames:
    """Frames of one flow that are due in a step."""

    pipeline: Pipeline
    tables: dict[int, list[pa.Table]] = field(default_factory=lambda: defaultdict(list))
    partials: list[pa.Table] = field(default_factory=list)
    records: list[Arrival] = field(default_factory=list)  #: whose rows are in `tables`
    remote: dict[str, Arrival] = field(default_factory=dict)  #: records that stayed with Spark, by id
    places: dict[str, dict[int, list[pa.Table]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    sides: joins.JoinRows = field(
        default_factory=joins.JoinRows
    )  #: what comes of `places`, where two streams are joined
    work: OperatorWork = field(default_factory=OperatorWork)


class BatchStep:
    """The work on one batch: `take_in`, then `results`."""

    def __init__(self, state: StreamState, parts: StepContext, spans: DataFrame, *, give_up: bool) -> None:
        self.state, self._parts, self._spans, self._give_up = state, parts, spans, give_up
        self._kept: DataFrame | None = None  # frames that stay with Spark
        self._arrived_ms = state.now_ms
        self.bundles: dict[tuple[str, str], FlowFrames] = {}

    @property
    def works(self) -> dict[tuple[str, str], tuple[Pipeline, OperatorWork]]:
        """Operator counters of every flow."""
        return {key: (bundle.pipeline, bundle.work) for key, bundle in self.bundles.items()}

    def take_in(self, *, few: bool) -> bool:
        """Read, order and work off the batch's frames; whether its records are few enough for the driver.

        A batch that is expected to hold `few` is collected as it is, and so is one whose records may be given up.
        """
        try:
            arrivals, results = self._collect(few or self._give_up)
            self._sort(arrivals)
            for result in results:
                self._add(result)
            for bundle in self.bundles.values():
                self._process(bundle)
        finally:
            if self._kept is not None:
                self._kept.unpersist()
        return (
            sum(arrival.size for arrival in arrivals if arrival.kind == FrameKind.RECORDS) <= self._parts.at_hand_bytes
        )

    def _collect(self, whole: bool) -> tuple[list[Arrival], list[TaskResult]]:
        """The batch in one job; by SQL it is kept in Spark for the jobs that follow, and Redis is asked once."""
        if whole:
            return arrivals_of(collect_frames(self._spans, self._parts.read)), []
        if self._parts.by_sql:
            self._kept = frames_of(self._spans, self._parts.read).persist()
            return arrivals_of(list_frames(self._kept)), []
        flows = self._parts.plans.live().keys() | self.state.flows.keys()
        pipelines = {plan: self._pipeline(plan) for _, plan in flows}
        usable = [
            pipeline
            for pipeline in pipelines.values()
            if pipeline is not None and _is_usable(pipeline) and pipeline.stream_join is None
        ]
        rows, results = process_in_tasks(
            self._spans, self._parts.read, usable, self.state.positions, self.state.waiting
        )
        return arrivals_of(rows), results

    def _add(self, result: TaskResult) -> None:
        """Add a task's result to its flow."""
        bundle = self.bundles[result.flow]
        bundle.partials.append(result.partial)
        for index, records_in, records_out in result.counts:
            bundle.work.add(index, records_in, records_out)

    def results(self) -> list[bytes]:
        """Advance every flow; the RESULT frames of windows that are due."""
        for key, bundle in self.bundles.items():
            absorb_partials(self.state.flows[key], bundle.pipeline, bundle.partials, self.state.step, self._arrived_ms)
            joins.absorb_rows(self.state.flows[key], bundle.pipeline, bundle.sides, self.state.step, self._arrived_ms)
        for key, live in self._parts.plans.live().items():
            flow = self.state.flows.setdefault(key, FlowState(*key))
            flow.started_us = flow.started_us or live.started_us
        frames = [frame for flow in self.state.flows.values() for frame in self._issued(flow)]
        self.state.flows = {key: flow for key, flow in self.state.flows.items() if not self._is_forgotten(flow)}
        return frames

    def _is_forgotten(self, flow: FlowState) -> bool:
        """Whether a flow can be dropped: one that is not live is kept for a while, so that late records do not
        restart it.
        """
        last_ms = max((marks.seen_ms or marks.since_ms for marks in flow.agents.values()), default=self.state.now_ms)
        is_live = (flow.query, flow.plan) in self._parts.plans.live()
        return not is_live and self.state.now_ms - last_ms > _FORGOTTEN_MS

    def _issued(self, flow: FlowState) -> Iterable[bytes]:
        pipeline = self._pipeline(flow.plan)
        if pipeline is None:
            return
        plan = self._parts.plans.settings(flow.query, flow.plan)
        work = self.bundles.setdefault((flow.query, flow.plan), FlowFrames(pipeline)).work
        advance_watermark(flow, plan, self.state.now_ms)
        open_checkpoint_windows(flow, pipeline, self.state.step)
        for due_window in due_windows(flow, pipeline, plan, self.state.step):
            due_window.window.revision += 1
            due_window.window.missing = due_window.missing
            again = due_window.window.revision > 0  # rows of a window count once, also when late ones come
            counted = OperatorWork() if again else work
            own = due_window.window.partial
            if pipeline.stream_join is not None:
                own = joins.partial_of(
                    flow, pipeline, due_window.begin_us, counted, self._spark, self._join_at_hand_bytes
                )
                due_window.window.records = count_records(own)
            left = recovered_rows(flow, due_window.begin_us, due_window.missing)
            partial = aggregate_of(pipeline).merge([own, *left.values()]) if left else own
            rows = finish_partials(pipeline, partial, counted)
            self.state.emitted += 1
            yield encode_frame(
                result_frame(flow, pipeline, due_window, rows, left, self.state.step, self.state.emitted)
            )
        evict_windows(flow, pipeline, plan)
        drop_passed_checkpoints(flow, pipeline, self.state.step)

    @property
    def _spark(self) -> SparkSession:
        return self._spans.sparkSession

    @property
    def _join_at_hand_bytes(self) -> int:
        return 0 if self._parts.by_sql else joins.AT_HAND_BYTES

    # -- frames

    def _sort(self, arrivals: list[Arrival]) -> None:
        """Everything that is due goes where it belongs; the rest waits in the state."""
        state = self.state
        self._arrived_ms = max((arrival.arrived_ms for arrival in arrivals), default=state.now_ms)
        state.now_ms = max(state.now_ms, moment_ms(arrivals))
        state.read_to |= last_ids(arrivals)
        restart_flows(state, self._parts.plans, arrivals)
        recall_positions(state, self._parts.plans, self._parts.redis, arrivals)
        for_plan = [frame for frame in state.waiting if frame.seq <= state.positions.get(frame.sender, 0)]
        for_number = [frame for frame in state.waiting if frame.seq > state.positions.get(frame.sender, 0)]
        ordered = order_frames([*for_number, *arrivals], state.positions, state.step)
        state.positions, state.waiting = ordered.positions, ordered.early
        state.count("duplicates", ordered.duplicates)
        state.count("gaps", len(ordered.lost))
        for words in ordered.lost:
            _say(words)
        for frame in [*for_plan, *ordered.due]:
            try:
                self._take(frame)
            except (BadBody, ValueError) as fault:
                self._isolate([frame], str(fault))
        state.waiting = self._fetched(state.waiting)

    def _take(self, arrival: Arrival) -> None:
        if arrival.kind == UNREADABLE:
            raise BadBody(str(arrival.says.get("fault")))
        if arrival.kind in (FrameKind.COUNTERS, FrameKind.SWEEPS):  # of all queries at once
            self._take_counters(arrival) if arrival.kind == FrameKind.COUNTERS else self._take_sweeps(arrival)
            return
        try:
            pipeline = self._parts.plans.pipeline(arrival.plan)
        except ConsoleAway as away:
            self._postpone(arrival, str(away))
            return
        if pipeline is None or not _is_usable(pipeline):
            self.state.count("unknown")
            raise BadBody(f"plan {arrival.plan[:12] or '(none)'} of query {arrival.query or '(none)'} is not known")
        flow = self.state.flows.setdefault(arrival.flow, FlowState(arrival.query, arrival.plan))
        bundle = self.bundles.setdefault(arrival.flow, FlowFrames(pipeline))
        if arrival.kind == FrameKind.MARK:
            marks = flow.agents.setdefault(arrival.agent, AgentMarks(since_ms=self.state.now_ms))
            take_mark(marks, arrival.says, arrival.epoch, arrival.arrived_ms)
            if arrival.agent in flow.lost and marks.watermark_us is not None:
                flow.lost.remove(arrival.agent)
                flow.whole_from[arrival.agent] = marks.watermark_us
            if marks.final:
                drop_checkpoint(flow, arrival.agent)
        elif pipeline.stream_join is not None:
            self._take_side(arrival, pipeline, bundle)
        elif arrival.kind == FrameKind.PARTIALS:
            table = read_body(arrival, pipeline)
            bundle.partials.append(table)
            bundle.work.add(arrival.entry, table.num_rows, 0)
            supersede_checkpoint(flow, arrival.agent, table, self.state.step)
        elif arrival.kind == FrameKind.CHECKPOINT:
            keep_checkpoint(
                flow, arrival.agent, read_body(arrival, pipeline), arrival.epoch, arrival.says, self.state.step
            )
        elif arrival.body is not None:
            bundle.tables[arrival.entry].append(read_body(arrival, pipeline))
            bundle.records.append(arrival)
        elif self._kept is not None:
            entry_schema(pipeline, arrival.entry)
            bundle.remote[arrival.id] = arrival

    def _take_side(self, arrival: Arrival, pipeline: Pipeline, bundle: FlowFrames) -> None:
        """Records of a query that joins two streams; the driver keeps them by window."""
        place = joins.side_of(arrival, pipeline)
        entry_schema(pipeline, arrival.entry)
        if arrival.body is None:
            (arrival,) = self._fetched([arrival])
        bundle.places[place][arrival.entry].append(read_body(arrival, pipeline))
        bundle.records.append(arrival)

    def _take_counters(self, arrival: Arrival) -> None:
        rows = counters_table(read_conforming(arrival.body or b"", COUNTERS, OLDER_COUNTERS))
        widths_us = self._parts.plans.widths_us()
        epochs = epoch_rows(rows, arrival.reporter, widths_us, self.state.step, arrival.says)
        kept = self.state.counters
        self.state.counters = epochs if kept is None else pa.concat_tables([kept, epochs])

    def _take_sweeps(self, arrival: Arrival) -> None:
        rows = sweep_rows(read_conforming(arrival.body or b"", SWEEPS), arrival.reporter, arrival.arrived_ms)
        kept = self.state.sweeps
        self.state.sweeps = rows if kept is None else pa.concat_tables([kept, rows])

    def _postpone(self, arrival: Arrival, reason: str) -> None:
        """Keep a frame until its plan is known, within bounds."""
        held = sum(waiting.size for waiting in self.state.waiting)
        if held + arrival.size > _MAX_WAITING_BYTES:
            raise BadBody(f"its plan is not here, and {held} bytes wait for theirs already ({reason})")
        self.state.waiting.append(arrival if arrival.since else replace(arrival, since=self.state.step))

    # -- records

    def _process(self, bundle: FlowFrames) -> None:
        """Partial aggregates of the records that are here, and of those that stayed with Spark."""
        if bundle.tables or bundle.places:
            try:
                if bundle.tables:
                    bundle.partials.append(process_at_driver(bundle.pipeline, bundle.tables, bundle.work))
                if bundle.places:
                    bundle.sides = joins.take_sides(bundle.pipeline, bundle.places, bundle.work)
            except Exception as error:  # of unforeseen data: the batch is tried again before quarantine
                if not self._give_up:
                    raise
                self._isolate(bundle.records, f"it could not be processed: {error}"[:1000])
        if self._kept is None or not bundle.remote:
            return
        ids: dict[int, list[str]] = defaultdict(list)
        for arrival in bundle.remote.values():
            ids[arrival.entry].append(arrival.id)
        few = sum(arrival.size for arrival in bundle.remote.values()) <= _ONE_TASK_BYTES
        partial, faults = process_by_sql(self._kept, bundle.pipeline, ids, bundle.work, few=few)
        bundle.partials.append(partial)
        for name, fault in faults.items():
            self._isolate([bundle.remote[name]], fault)

    def _fetched(self, arrivals: list[Arrival]) -> list[Arrival]:
        """The same with bodies, read again where they are elsewhere."""
        lacking = {arrival.id for arrival in arrivals if arrival.body is None and arrival.kind != FrameKind.MARK}
        if not lacking:
            return arrivals
        rows = fetch_frames(lacking, self._parts.read)
        bodies = dict(zip(rows["id"].to_pylist(), rows["body"].to_pylist(), strict=True))
        return [replace(arrival, body=bodies[arrival.id]) if arrival.id in lacking else arrival for arrival in arrivals]

    def _isolate(self, arrivals: list[Arrival], reason: str) -> None:
        self.state.count("quarantined", len(arrivals))
        for arrival in self._fetched(arrivals):
            query = arrival.query or "(none)"
            text = f"number {arrival.seq} of agent {arrival.agent}, {arrival.kind} of query {query}: {reason}"
            self._parts.quarantine.keep(frame_bytes(arrival), text)

    def _pipeline(self, digest: str) -> Pipeline | None:
        try:
            return self._parts.plans.pipeline(digest)
        except ConsoleAway:
            return None


def _is_usable(pipeline: Pipeline) -> bool:
    """Whether the pipeline has results: by window, from an aggregate."""
    return pipeline.aggregate is not None and pipeline.window is not None


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
