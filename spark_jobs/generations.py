"""First keyed operator: the generations of agents, by partition of the broker.

A partition holds all frames of its agents, in the order of their arrival. Here they are read from Redis, put into the
order of their numbers and decoded; records go through the operators up to the partial aggregation, at once. What leaves
are a few rows for each flow that was heard of, whatever the number of its frames, and rows for the driver.

Nothing reads a clock: a batch that runs again gives the same.
"""

from __future__ import annotations

import json
import time
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from agent.wire import (
    COUNTERS,
    SWEEPS,
    FrameKind,
    WireError,
    batch_bytes,
    mark_fault,
)
from agent.wire.broker import generation_progress
from engine.dataflow.pipeline import Pipeline
from engine.dataflow.types import WINDOW_START
from spark_jobs.input.arrivals import Arrival, arrivals_of, frame_bytes, order_frames
from spark_jobs.input.entries import UNREADABLE, EntryReader, RedisAway, ask_redis, entry_batch
from spark_jobs.input.source import PLAN_CHANGES, id_number, message_entries
from spark_jobs.plans import FlowKey, PlanReader, PlanVersion, aggregate_of, is_usable
from spark_jobs.records import (
    BadBody,
    JoinRows,
    partial_of_records,
    read_body,
    read_conforming,
    read_partials,
    side_of,
    take_sides,
)
from spark_jobs.state import checkpoint_part, window_begins
from spark_jobs.statistics.history import sweep_rows
from spark_jobs.statistics.subintervals import CounterFrame, FlowWork, epoch_rows, work_epochs
from spark_jobs.variables import GenerationsVariables
from spark_jobs.windows import OperatorWork

__all__ = ["GENERATIONS", "GenerationsContext", "GenerationsStep", "KeyedRow", "Span", "spans_of_rows", "split_key"]

_AT_ONCE_BYTES = 16 * 2**20  # of a flow's records, which are held before they are aggregated
_MAX_WAITING_BYTES = 64 * 2**20
_ATTEMPTS = 3  # at a frame's records, before it goes to quarantine
_RECALL_PATIENCE_S = 10.0

#: Rows of this operator, in Spark's terms.
GENERATIONS = "key string, kind string, plan bigint, now_ms bigint, arrived_ms bigint, told string, body binary"


class KeyedRow(NamedTuple):
    """One row for the next operator."""

    key: str  #: of a flow and its shard, a bucket of statistics (``#n``) or the driver (``@n``)
    kind: str
    plan: int  #: number of the batch's plan
    now_ms: int
    arrived_ms: int
    told: str  #: JSON
    body: bytes | None = None


class Span(NamedTuple):
    """A row of the source (`spark_jobs.input.entries.SPANS`)."""

    partition: int
    after_id: str
    until_id: str
    plan: int
    now_ms: int
    arrived_ms: int
    frames: bytes | None = None


@dataclass(frozen=True)
class GenerationsContext:
    """Services and settings; sent to tasks, so it holds no connection."""

    read: EntryReader
    plans: PlanReader
    buckets: int = 2  #: of statistics: each holds those of some of the queries
    session: str = ""  #: of the driver: what an earlier one was told, it may not have passed on


def flow_key(flow: FlowKey, shard: int) -> str:
    """Key of one shard of a flow."""
    return "|".join((*flow, str(shard)))


def split_key(key: str) -> tuple[str, str, int]:
    """Query, plan and shard of a flow's key."""
    query, plan, shard = key.rsplit("|", 2)
    return query, plan, int(shard)


def _bucket_key(query: str, buckets: int) -> str:
    """Key of the statistics of a query."""
    return f"#{zlib.crc32(query.encode()) % buckets}"


@dataclass
class _Flow:
    """Frames of one flow that are due in this batch."""

    pipeline: Pipeline
    tables: dict[int, list[pa.Table]] = field(default_factory=lambda: defaultdict(list))
    records: list[Arrival] = field(default_factory=list)  #: whose rows are in `tables` or `places`
    places: dict[str, dict[int, list[pa.Table]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    size: int = 0
    partials: list[pa.Table] = field(default_factory=list)
    sides: JoinRows = field(default_factory=JoinRows)
    events: list[list[Any]] = field(default_factory=list)  #: marks, checkpoints and what supersedes them, in order
    checkpoints: list[pa.Table] = field(default_factory=list)
    work: OperatorWork = field(default_factory=OperatorWork)


class GenerationsStep:
    """The work on one batch of a partition."""

    def __init__(self, variables: GenerationsVariables, context: GenerationsContext, spans: Sequence[Span]) -> None:
        self._variables, self._context, self._spans = variables, context, spans
        self._partition = spans[0].partition
        self._plan: PlanVersion = context.plans.version(spans[0].plan or context.plans.newest())
        self._flows: dict[FlowKey, _Flow] = {}
        self._counted: list[tuple[Arrival, CounterFrame]] = []
        self._sweeps: list[pa.Table] = []
        self._partials: dict[tuple[str, str, int], pa.Table | None] = {}  #: of frames that are about to be taken
        self._bad: list[tuple[Arrival, str]] = []
        self._wanted: set[FlowKey] = set()
        self._lost: set[str] = set()
        self._moved: dict[tuple[str, str], int] = {}
        self._messages: list[str] = []
        self._began_ns = time.process_time_ns()

    def rows(self) -> Iterator[KeyedRow]:
        """Work off the batch; the rows for flows, statistics and the driver."""
        if self._partition == PLAN_CHANGES:
            yield from self._plan_changes()
            return
        self._step, session, self._counts = self._variables.facts()
        self._step += 1
        self._is_first = session != self._context.session
        self._take_in()
        for frames in self._flows.values():
            self._settle(frames)
        self._spent_ns = time.process_time_ns() - self._began_ns
        for flow, frames in self._flows.items():
            yield from self._flow_rows(flow, frames)
        yield from self._lost_rows()
        yield from self._ticks()
        yield from self._statistics_rows()
        yield from self._driver_rows()
        self._variables.set_facts(self._step, self._context.session, self._counts)

    # -- changes of the plan

    def _plan_changes(self) -> Iterator[KeyedRow]:
        """A visit to every flow whose settings are others, or whose state is to be forgotten."""
        for span in self._spans:
            before = self._context.plans.version(int(span.after_id))
            for flow in before.gone - self._plan.gone - self._plan.live.keys():
                for shard in range(self._shards(flow)):
                    yield self._row(flow_key(flow, shard), "forget")
            for flow, live in self._plan.live.items():
                if (was := before.live.get(flow)) is not None and was != live:
                    for shard in range(live.shards):
                        yield self._row(flow_key(flow, shard), "tick")

    # -- frames

    def _take_in(self) -> None:
        before = self._variables.positions()
        positions, waits = dict(before), self._variables.waiting()
        for_plan, early = [frame for frame in waits if frame.due], [frame for frame in waits if not frame.due]
        self._waiting: list[Arrival] = []
        for frame in for_plan:
            self._take(frame)
        if early and not any(span.after_id != span.until_id for span in self._spans):
            early = self._ordered(early, positions)
        for batch in self._batches():
            early = self._ordered([*early, *self._recalled(arrivals_of(batch), positions)], positions)
        self._positions = {name: seq for name, seq in positions.items() if name not in self._plan.forgotten}
        if self._positions != before:
            self._variables.set_positions(self._positions)
        self._waiting += early
        self._variables.set_waiting(self._waiting, bool(waits))

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """Frames of the spans: read from the broker, or out of the messages that the spans hold."""
        entries = []
        for span in self._spans:
            if span.frames is None:
                yield from self._context.read.frames(span.partition, span.after_id, span.until_id)
                continue
            try:
                entries += message_entries(span.until_id, span.frames)
            except WireError as fault:
                name, size = f"{self._partition}/{span.until_id}", len(span.frames)
                nobody = Arrival(name, "(none)", "", 0, UNREADABLE, "", "", 0, 0, "", span.frames, size)
                self._isolate(nobody, str(fault))
        if entries:
            yield entry_batch(self._partition, entries)

    def _recalled(self, arrivals: list[Arrival], positions: dict[tuple[str, str], int]) -> list[Arrival]:
        """Continue after the committed position of a generation unknown to the state: a lost state held it.

        A part of the agent's records of windows that are open now is gone with it; their results will say so.
        """
        begun = {arrival.sender for arrival in arrivals if arrival.seq == 1} | positions.keys()
        for agent, life in {arrival.sender for arrival in arrivals} - begun:
            try:
                committed = ask_redis(
                    self._context.read.redis_url,
                    lambda client, agent=agent, life=life: generation_progress(client, agent, life).committed_seq,
                    _RECALL_PATIENCE_S,
                )
            except RedisAway:
                continue
            if committed:
                positions[agent, life] = committed
                self._lost.add(agent)
        return arrivals

    def _ordered(self, arrivals: list[Arrival], positions: dict[tuple[str, str], int]) -> list[Arrival]:
        """Take what is due; what waits for a number before it."""
        ordered = order_frames(arrivals, positions, self._step)
        self._moved |= {name: seq for name, seq in ordered.positions.items() if positions.get(name) != seq}
        positions.update(ordered.positions)
        self._counts["duplicates"] += ordered.duplicates
        self._counts["gaps"] += len(ordered.lost)
        self._messages += ordered.lost
        self._read_partials(ordered.due)
        for frame in ordered.due:
            self._take(frame)
        self._partials.clear()
        return ordered.early

    def _read_partials(self, due: Sequence[Arrival]) -> None:
        """Read the partial aggregates of live flows, those of a flow together."""
        by_flow: dict[FlowKey, list[Arrival]] = defaultdict(list)
        for arrival in due:
            if arrival.kind == FrameKind.PARTIALS and arrival.flow in self._plan.live:
                by_flow[arrival.flow].append(arrival)
        for (_, digest), arrivals in by_flow.items():
            pipeline = self._context.plans.pipeline(digest)
            if is_usable(pipeline):
                tables = read_partials([arrival.body for arrival in arrivals], pipeline)
                self._partials |= {
                    (*arrival.sender, arrival.seq): table for arrival, table in zip(arrivals, tables, strict=True)
                }

    def _take(self, arrival: Arrival) -> None:
        try:
            self._take_frame(arrival)
        except (BadBody, ValueError) as fault:
            self._isolate(arrival, str(fault))

    def _take_frame(self, arrival: Arrival) -> None:
        if arrival.kind == UNREADABLE:
            raise BadBody(str(arrival.says.get("fault")))
        if arrival.kind == FrameKind.COUNTERS:  # of all queries at once
            rows = read_conforming(arrival.body, COUNTERS)
            self._counted.append((arrival, CounterFrame(rows, arrival.reporter, arrival.says)))
            return
        if arrival.kind == FrameKind.SWEEPS:
            rows = read_conforming(arrival.body, SWEEPS)
            self._sweeps.append(sweep_rows(rows, arrival.reporter, arrival.arrived_ms))
            return
        pipeline = self._pipeline(arrival)
        if pipeline is None:
            self._postpone(arrival)
            return
        frames = self._flows.get(arrival.flow)
        if frames is None:
            frames = self._flows[arrival.flow] = _Flow(pipeline)
        if arrival.kind == FrameKind.MARK:
            if fault := mark_fault(arrival.says):
                raise ValueError(f"a mark's {fault}")
            frames.events.append(["mark", arrival.agent, _mark(arrival), arrival.epoch, arrival.arrived_ms])
        elif pipeline.stream_join is not None:
            place, rows = side_of(arrival, pipeline), read_body(arrival, pipeline)
            self._hold(frames, frames.places[place], arrival, rows)
        elif arrival.kind == FrameKind.PARTIALS:
            rows = self._partials.get((*arrival.sender, arrival.seq))
            if rows is None or arrival.entry != pipeline.aggregate:
                rows = read_body(arrival, pipeline)
            frames.partials.append(rows)
            frames.work.add(arrival.entry, rows.num_rows, 0)
            frames.events.append(["partials", arrival.agent, window_begins(rows)])
        elif arrival.kind == FrameKind.CHECKPOINT:
            (part, parts), rows = checkpoint_part(arrival.says), read_body(arrival, pipeline)
            name = f"{self._partition}/{len(frames.checkpoints)}"
            frames.events.append(["checkpoint", arrival.agent, arrival.epoch, part, parts, name])
            frames.checkpoints.append(rows)
        else:
            self._hold(frames, frames.tables, arrival, read_body(arrival, pipeline))

    def _pipeline(self, arrival: Arrival) -> Pipeline | None:
        """The pipeline of a frame; None where the driver is to be asked first.

        Raises
        ------
        BadBody
            Nobody knows its plan, or it has no results.
        """
        plans = self._context.plans
        if arrival.flow in self._plan.live:
            pipeline = plans.pipeline(arrival.plan)
        elif arrival.plan and arrival.plan not in self._plan.unknown:
            pipeline = plans.find_pipeline(arrival.plan)
            if pipeline is None or arrival.arrived_ms > self._plan.idle.get(arrival.flow, 0):
                return None
        else:
            pipeline = None
        if pipeline is not None and is_usable(pipeline):
            return pipeline
        self._counts["unknown"] += 1
        raise BadBody(f"plan {arrival.plan[:12] or '(none)'} of query {arrival.query or '(none)'} is not known")

    def _postpone(self, arrival: Arrival) -> None:
        """Keep a frame until its plan is known, within bounds.

        Raises
        ------
        BadBody
            Too many wait already.
        """
        held = sum(frame.size for frame in self._waiting)
        if held + arrival.size > _MAX_WAITING_BYTES:
            raise BadBody(f"its plan is not here, and {held} bytes wait for theirs already")
        self._wanted.add(arrival.flow)
        self._waiting.append(replace(arrival, since=arrival.since or self._step, due=True))

    def _isolate(self, arrival: Arrival, reason: str) -> None:
        self._counts["quarantined"] += 1
        self._bad.append((replace(arrival, body=bytes(arrival.body)), reason))

    # -- records

    def _hold(self, frames: _Flow, tables: dict[int, list[pa.Table]], arrival: Arrival, rows: pa.Table) -> None:
        tables[arrival.entry].append(rows)
        frames.records.append(arrival)
        frames.size += arrival.size
        if frames.size > _AT_ONCE_BYTES:
            self._settle(frames)

    def _settle(self, frames: _Flow) -> None:
        """Take the records that are held through their operators; frame by frame where that fails."""
        if frames.records:
            try:
                self._process(frames)
            except Exception:  # of unforeseen data
                for arrival in frames.records:
                    self._process_alone(frames, arrival)
        frames.tables.clear()
        frames.places.clear()
        frames.records, frames.size = [], 0

    def _process(self, frames: _Flow) -> None:
        work = OperatorWork()
        if frames.places:
            sides = take_sides(frames.pipeline, frames.places, work)
            frames.sides.records += sides.records
            frames.sides.others += sides.others
        else:
            frames.partials.append(partial_of_records(frames.pipeline, frames.tables, work))
        frames.work.merge(work)

    def _process_alone(self, frames: _Flow, arrival: Arrival) -> None:
        rows = read_body(arrival, frames.pipeline)
        frames.tables.clear()
        frames.places.clear()
        if frames.pipeline.stream_join is not None:
            frames.places[side_of(arrival, frames.pipeline)][arrival.entry].append(rows)
        else:
            frames.tables[arrival.entry].append(rows)
        for attempt in range(1, _ATTEMPTS):  # it has failed once, with the others
            try:
                self._process(frames)
                return
            except Exception as error:
                if attempt == _ATTEMPTS - 1:
                    self._isolate(arrival, f"it could not be processed: {error}"[:1000])

    # -- rows that leave

    def _row(self, key: str, kind: str, told: Any = None, body: bytes | None = None) -> KeyedRow:
        last = self._spans[-1]
        text = "" if told is None else json.dumps(told, separators=(",", ":"))
        return KeyedRow(key, kind, self._plan.number, last.now_ms, last.arrived_ms, text, body)

    def _shards(self, flow: FlowKey) -> int:
        live = self._plan.live.get(flow)
        return live.shards if live is not None else 1

    def _flow_rows(self, flow: FlowKey, frames: _Flow) -> Iterator[KeyedRow]:
        """A row for each shard with its partial aggregates, and rows for checkpoints and sides of joins."""
        shards, pipeline = self._shards(flow), frames.pipeline
        told: dict[str, Any] = {"partition": self._partition, "events": frames.events}
        partial = aggregate_of(pipeline).merge(frames.partials) if frames.partials else None
        if partial is not None:
            told["touched"] = window_begins(partial) if shards > 1 else []
            records_in = frames.work.counts.get(pipeline.aggregate or 0, [0, 0])[0]
            told["aggregated"] = [records_in, self._cpu_ns(records_in)]
        parts = _shares(pipeline, partial, shards) if partial is not None else {}
        for shard in range(shards):
            body = batch_bytes(parts[shard].combine_chunks()) if shard in parts else None
            key = flow_key(flow, shard)
            yield self._row(key, "frames", told, body)
            for number, rows in enumerate(frames.checkpoints):
                part = rows if shards == 1 else _shares(pipeline, rows, shards).get(shard, rows.slice(0, 0))
                yield self._row(key, "checkpoint", f"{self._partition}/{number}", batch_bytes(part.combine_chunks()))
        for kind in ("records", "others"):
            if tables := getattr(frames.sides, kind):
                yield self._row(flow_key(flow, 0), kind, None, batch_bytes(pa.concat_tables(tables).combine_chunks()))

    def _lost_rows(self) -> Iterator[KeyedRow]:
        """A word to every flow of an agent of which a lost state held frames."""
        for flow, live in self._plan.live.items():
            if lost := sorted(self._lost.intersection(live.agents)):
                for shard in range(live.shards):
                    yield self._row(flow_key(flow, shard), "lost", lost)

    def _ticks(self) -> Iterator[KeyedRow]:
        """A visit to flows that said nothing while others did: one of their agents may be silent by now."""
        last = self._spans[-1]
        heard = before = self._variables.heard()
        if not self._is_first:
            heard = {flow: at_ms for flow, at_ms in heard.items() if last.now_ms - at_ms <= self._patience_ms(flow)}
        heard |= dict.fromkeys(self._flows, last.now_ms)
        for flow in heard.keys() - self._flows.keys():
            for shard in range(self._shards(flow)):
                yield self._row(flow_key(flow, shard), "tick")
        if heard != before:
            self._variables.set_heard(heard)

    def _patience_ms(self, flow: FlowKey) -> int:
        return 2 * self._plan.settings(*flow).idle_after_ms

    def _counters(self, counted: Sequence[tuple[Arrival, CounterFrame]]) -> list[pa.Table]:
        """Counters of many frames at once; by halves where one of them cannot be."""
        if not counted:
            return []
        try:
            return [epoch_rows([frame for _, frame in counted], self._plan.widths_us(), self._step)]
        except ValueError as fault:
            if len(counted) == 1:
                self._isolate(counted[0][0], str(fault))
                return []
        middle = len(counted) // 2
        return [*self._counters(counted[:middle]), *self._counters(counted[middle:])]

    def _statistics_rows(self) -> Iterator[KeyedRow]:
        own = work_epochs(self._works(), self._plan.widths_us(), self._step)
        counters = [*self._counters(self._counted), *([own] if own is not None else [])]
        for kind, tables in (("counters", counters), ("sweeps", self._sweeps)):
            if tables:
                rows = pa.concat_tables(tables)
                for key, part in self._by_bucket(rows).items():
                    yield self._row(key, kind, part.num_rows, batch_bytes(part.combine_chunks()))

    def _works(self) -> Iterator[FlowWork]:
        """Work of the operators before the first that has a state: the flow itself counts the others."""
        now_us = self._spans[-1].now_ms * 1000
        for (query, _), frames in self._flows.items():
            first = frames.pipeline.stream_join
            first = frames.pipeline.aggregate if first is None else first
            for index, (records_in, records_out) in sorted(frames.work.counts.items()):
                if first is not None and index < first:
                    cpu_ns = self._cpu_ns(records_in)
                    yield FlowWork(query, frames.pipeline, index, records_in, records_out, 0, cpu_ns, now_us)

    def _cpu_ns(self, records_in: int) -> int:
        """Share of the batch's CPU time of an operator that took so many of its records."""
        return self._spent_ns * records_in // max(self._all_records, 1)

    @cached_property
    def _all_records(self) -> int:
        """Records into all operators."""
        return sum(records_in for frames in self._flows.values() for records_in, _ in frames.work.counts.values())

    def _by_bucket(self, rows: pa.Table) -> dict[str, pa.Table]:
        queries = rows["query"].unique().to_pylist()
        keys: dict[str, list[str]] = defaultdict(list)
        for query in queries:
            keys[_bucket_key(query, self._context.buckets)].append(query)
        if len(keys) == 1:
            return dict.fromkeys(keys, rows)
        return {key: rows.filter(pc.is_in(rows["query"], pa.array(some))) for key, some in keys.items()}

    def _driver_rows(self) -> Iterator[KeyedRow]:
        key = f"@{self._partition}"
        moved = self._positions if self._is_first else self._moved
        told = {
            "partition": self._partition,
            "read_to": self._spans[-1].until_id,
            "positions": [[*sender, seq] for sender, seq in moved.items() if sender in self._positions],
            "counts": self._counts,
            "waiting": self._waiting_by_query(),
            "wanted": sorted(self._wanted),
            "records": sum(frames.work.records_entered for frames in self._flows.values()),
            "messages": self._messages[:100],
        }
        yield self._row(key, "partition", told)
        for arrival, reason in self._bad:
            query = arrival.query or "(none)"
            text = f"number {arrival.seq} of agent {arrival.agent}, {arrival.kind} of query {query}: {reason}"
            yield self._row(key, "bad", {"id": arrival.id, "reason": text}, frame_bytes(arrival))

    def _waiting_by_query(self) -> dict[str, int]:
        found: dict[str, int] = defaultdict(int)
        for arrival in self._waiting:
            found[arrival.query] += 1
        return found


def _mark(arrival: Arrival) -> Mapping[str, Any]:
    """A mark's header, its paths as one."""
    return {**arrival.says, "watermarks": {"0": min(arrival.says["watermarks"].values())}}


def _shares(pipeline: Pipeline, partial: pa.Table, shards: int) -> dict[int, pa.Table]:
    """Partial aggregates by shard: groups are spread by a hash of their keys."""
    if shards == 1:
        return {0: partial}
    names = [name for name in aggregate_of(pipeline).keys if name != WINDOW_START]
    texts = [pc.fill_null(partial[name].cast(pa.string()), "\x01") for name in names]
    joined = pc.binary_join_element_wise(*texts, "\x00") if texts else pa.chunked_array([[""] * partial.num_rows])
    encoded = joined.combine_chunks().dictionary_encode()
    shard_of = pa.array([zlib.crc32(text.encode()) % shards for text in encoded.dictionary.to_pylist()], pa.int32())
    number = shard_of.take(encoded.indices)
    parts = {shard: partial.filter(pc.equal(number, shard)) for shard in range(shards)}
    return {shard: part for shard, part in parts.items() if part.num_rows}


def spans_of_rows(rows: Iterable[Any]) -> list[Span]:
    """Rows of the source as spans, in their order."""
    return sorted((Span(*row) for row in rows), key=lambda span: id_number(span.until_id))
