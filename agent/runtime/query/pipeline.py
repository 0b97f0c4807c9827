"""One query at the agent: its control proxies, operators and open windows, and their adaptation."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from agent.config import QueryConfig
from agent.runtime.cpu import OperatorCost
from agent.runtime.interface import Clock
from agent.runtime.query.adaptation import Adaptation
from agent.runtime.query.control_proxy import ControlProxy, OperatorStage, doubt_costs
from agent.runtime.query.record_queue import (
    QueueChange,
    QueuedMark,
    QueuedRecords,
    QueueItem,
    WindowSweep,
    swept_windows,
)
from agent.runtime.query.windows import Checkpoints, ClosedWindows, OpenWindows
from agent.wire import OperatorCounts
from engine.dataflow.arrow.kernels import kernel
from engine.klink.settings import ScheduleSettings

__all__ = ["QUEUED_SHARE", "LocalPipeline", "overflow_backlog"]


log = logging.getLogger(__name__)

MAX_EXPANSION = 4  # of what an epoch may take in; sliding windows repeat records
QUEUED_SHARE = 1 / 2  # of what an epoch may take in; sources have the rest, or live ones would lose records


class LocalPipeline:
    """Records enter at the first proxy; what passes an operator comes to the next proxy.

    The operator furthest down with something to do runs first, so records finish before new ones begin, and what there
    is no time for waits as early as it came. At an epoch's end records wait at the first operator only.

    Marks of the source's watermark wait among the records. The query's own watermark is that of the last mark which
    came out: everything before it was processed, drained or given up. A query that joins another stream has marks of
    the slower of both; that stream's records go on as they are, for what matches is found by the stream processor.
    """

    def __init__(
        self, config: QueryConfig, adaptation: Adaptation, clock: Clock, now_us: Callable[[], int], most_bytes: int
    ) -> None:
        pipeline = config.pipeline
        self.config, self.query, self.plan = config, config.query, pipeline.digest
        self.adaptation = adaptation
        self.checkpoints = Checkpoints()
        self._clock, self._now_us = clock, now_us
        self._most_bytes = most_bytes
        self.period_us = pipeline.window.slide_us if pipeline.window else None
        self.stages = [
            OperatorStage(
                operator.id,
                operator.fingerprint,
                ControlProxy(0.0, self.period_us),
                kernel(pipeline, operator.index),
                operator.stateful,
                OperatorCost(),
            )
            for operator in pipeline.operators[: pipeline.source_operators]
        ]
        self._queues = [stage.proxy.queue for stage in self.stages]
        self.watermark_us = self._marked_us = 0
        self.sweeps: list[WindowSweep] = []
        self.windows: OpenWindows | None = None
        if self.stages and self.stages[-1].stateful:
            size_us = pipeline.window.size_us if pipeline.window else None
            self.windows = OpenWindows(self.stages[-1].kernel.merge, size_us, most_bytes)
        self.finished: list[pa.Table] = []
        self._others: list[pa.Table] = []  # of the stream that is joined
        self._streams_us = dict.fromkeys(pipeline.streams, 0)
        self.used_ns = 0
        self._leaving: list[tuple[int, int]] = []  # arrivals of records that leave with this epoch, where they count
        self.fault = ""

    def update(self, config: QueryConfig, now_us: int) -> None:
        """New settings and weight of the same plan."""
        self.config = config
        if config.latency_constraint_s is None:
            self._leaving = []
        self.adaptation.take_up(config, now_us)

    def steer(self) -> None:
        """Between two epochs: give the proxies the load factors of the next one."""
        for stage, load_factor in zip(self.stages, self.adaptation.load_factors, strict=True):
            stage.proxy.load_factor = load_factor

    @property
    def load_factors(self) -> list[float]:
        """Of the epoch under way."""
        return [stage.proxy.load_factor for stage in self.stages]

    @property
    def demand_ns(self) -> float:
        """CPU time that it has a use for in this epoch; infinite where records wait."""
        return float("inf") if self.waiting() else self.used_ns * self.adaptation.reserve

    def restore(self, watermark_us: int, items: Sequence[QueueItem]) -> None:
        """Restore its watermark, and the records queued at the first operator."""
        self.watermark_us = watermark_us
        self._marked_us = max(
            (item.watermark_us for item in items if isinstance(item, QueuedMark)), default=watermark_us
        )
        if items:
            self.stages[0].proxy.queue.restore(items)

    def feed(self, table: pa.Table, now_us: int = 0, least_us: int = 0) -> None:
        """Records of the source come, none of an earlier event time."""
        before = self.waiting()
        self._hand_on(table, 0, now_us, least_us)
        self._note_leaving([(now_us, table.num_rows - (self.waiting() - before))])

    def pass_by(self, table: pa.Table) -> None:
        """Records of the stream that is joined come: the columns that are needed of them go on."""
        self._others.append(table.select(self.config.pipeline.other_schema.names))

    def take_others(self) -> list[pa.Table]:
        """Those of the epoch that has ended."""
        others, self._others = self._others, []
        return others

    def least_watermark_us(self, stream: str, watermark_us: int) -> int:
        """The least watermark of its streams, one of which has this one now; 0 while one of them has none."""
        self._streams_us[stream] = watermark_us
        return min(self._streams_us.values())

    def mark(self, watermark_us: int, now_us: int) -> None:
        """The least watermark of its streams, of all records that were fed."""
        if watermark_us <= self._marked_us:
            return
        self._marked_us = watermark_us
        queued = self.waiting()
        self._pass_on(QueuedMark(watermark_us, now_us, queued, self.work_ns() / 1e9 if queued else 0.0), 0)

    def _pass_on(self, mark: QueuedMark, k: int) -> None:
        if k < len(self.stages):
            self.stages[k].proxy.queue.mark(mark)
            self._release(k)
            return
        if self.period_us is not None and self.watermark_us:
            self.sweeps += swept_windows(mark, self.watermark_us, self.period_us, self._now_us())
        self.watermark_us = mark.watermark_us

    def _release(self, k: int) -> None:
        for mark in self.stages[k].proxy.queue.passed():
            self._pass_on(mark, k + 1)

    def take_sweeps(self, emitted_us: int) -> list[WindowSweep]:
        """Those of the epoch that has ended, handed to the spool then."""
        sweeps, self.sweeps = self.sweeps, []
        return [replace(sweep, emitted_us=emitted_us) for sweep in sweeps]

    def ready(self, *, last: bool) -> OperatorStage | None:
        """The operator to run next: the furthest down with enough waiting to be worth a run; with `last`, anything is.

        One that expands its input and has put out a lot in this epoch rests; what waits for it stays small.
        """
        most_out = MAX_EXPANSION * self._most_bytes
        stages = (stage for stage in reversed(self.stages) if stage.proxy.counts.bytes_out <= most_out)
        return next((stage for stage in stages if stage.waiting >= (1 if last else stage.cost.worth_a_run())), None)

    def waiting(self) -> int:
        """Records in the queues."""
        return sum([queue.records for queue in self._queues])

    def waiting_ns(self) -> float:
        """CPU time that the queued records would take in their next operator."""
        return sum(stage.cost.run_ns(stage.waiting) for stage in self.stages)

    def work_ns(self) -> float:
        """CPU time for everything that waits, through all operators that are still before it here."""
        total_ns = coming = 0.0
        for stage in self.stages:
            coming += stage.waiting
            total_ns += stage.cost.run_ns(round(coming))
            coming *= stage.selectivity
        return total_ns

    # What a schedule looks at

    @property
    def queued(self) -> list[int]:
        """Records that wait for each operator."""
        return [queue.records for queue in self._queues]

    @property
    def queued_bytes(self) -> int:
        """Of all records that wait."""
        return sum([queue.size_bytes for queue in self._queues])

    @property
    def arrived_us(self) -> int | None:
        """Arrival of the oldest queued record; None where nothing is queued."""
        arrivals_us = [queue.arrived_us for queue in self._queues if queue.records]
        return min([arrived_us for arrived_us in arrivals_us if arrived_us is not None], default=None)

    def waiting_groups(self) -> list[tuple[int, int, int]]:
        """Records queued at the first operator, as they came: (arrival, end of the window that needs them, records).

        That is the window that the next mark behind them sweeps, whatever their own is; 0 without windows.
        """
        period_us, before_us = self.period_us, self.watermark_us
        groups: list[tuple[int, int, int]] = []
        swept = 0  # groups with a mark behind them that sweeps
        for item in self.queue_items():
            if isinstance(item, QueuedRecords):
                groups.append((item.arrived_us, self._window_us(item.least_us), item.records))
                continue
            if period_us is not None and before_us:
                ends_us = (before_us // period_us + 1) * period_us
                if ends_us <= item.watermark_us:
                    groups[swept:] = [(arrived_us, ends_us, records) for arrived_us, _, records in groups[swept:]]
                    swept = len(groups)
            before_us = item.watermark_us
        return groups

    def _window_us(self, event_us: int) -> int:
        """End of the first window of a record that is not swept yet."""
        if self.period_us is None:
            return 0
        return max((event_us // self.period_us + 1) * self.period_us, self.deadline_us or 0)

    @property
    def stimulus_us(self) -> int | None:
        """Event time of the earliest record that waits."""
        earliest_us = (queue.least_us for queue in self._queues)
        return min((event_us for event_us in earliest_us if event_us is not None), default=None)

    @property
    def deadline_us(self) -> int | None:
        """End of the earliest window that is not swept; None without windows, and before the first watermark."""
        if self.period_us is None or not self.watermark_us:
            return None
        return (self.watermark_us // self.period_us + 1) * self.period_us

    def pending(self) -> tuple[QueuedMark, list[int]] | None:
        """The mark that sweeps this window, and for each operator the records before it; None while it has not come."""
        deadline_us = self.deadline_us
        if deadline_us is None or self._marked_us < deadline_us:
            return None
        before = self.queued
        for k in reversed(range(len(self._queues))):
            pending = self._queues[k].before(deadline_us)
            if pending is not None:
                return pending[0], [0] * k + [pending[1]] + before[k + 1 :]
        return None

    # Running

    def work(self, stage: OperatorStage, records: int) -> None:
        """Run one operator on some of its records; those it fails at go on unprocessed."""
        if stage is self.stages[0]:
            self._note_leaving(stage.proxy.queue.arrivals(records))
        taken = stage.proxy.queue.take(records)
        self._run(stage, taken)
        self._release(self.stages.index(stage))

    def _run(self, stage: OperatorStage, taken: QueuedRecords) -> None:
        chunk = taken.table
        before_ns = self._clock.thread_cpu_ns()
        try:
            whole = chunk.combine_chunks()
            out = stage.kernel.partial(whole) if stage.stateful else stage.kernel.run(whole)
        except Exception as error:  # of data that no test foresaw; the stream processor is to see it, not the host
            log.exception("operator %s of %s failed", stage.operator_id, self.query)
            self.fault = f"operator {stage.operator_id}: {error}"
            stage.proxy.refuse(chunk)
            return
        cpu_ns = self._clock.thread_cpu_ns() - before_ns
        stage.ran(chunk.num_rows, out.num_rows, cpu_ns)
        self.used_ns += cpu_ns
        self._take_over(stage, out, taken)

    def _take_over(self, stage: OperatorStage, out: pa.Table, taken: QueuedRecords) -> None:
        if stage.stateful and self.windows is not None:
            self.windows.add(out)
            return
        stage.proxy.counts.records_out += out.num_rows
        stage.proxy.counts.bytes_out += out.nbytes
        self._hand_on(out, self.stages.index(stage) + 1, taken.arrived_us, taken.least_us)

    def _hand_on(self, table: pa.Table, k: int, arrived_us: int, least_us: int) -> None:
        if k < len(self.stages):
            self.stages[k].proxy.admit(table, arrived_us, least_us)
        elif table.num_rows:
            self.finished.append(table)

    # Ending

    def overflow_inner(self) -> None:
        """Overflow everything queued behind the first operator: no record that was begun waits over an epoch's end."""
        for k in range(1, len(self.stages)):
            self._overflow(k, self.stages[k].waiting)

    def overflow_older(self, than_us: int) -> None:
        """Records that came before go on unprocessed."""
        if self.stages:
            self._overflow(0, self.stages[0].proxy.queue.older(than_us))

    def overflow_first(self) -> None:
        """Those that have waited longest go on unprocessed."""
        self._overflow(0, self.stages[0].proxy.queue.first)

    def give_up(self, records: int, shed: int) -> None:
        """The first records that wait are not processed here: `shed` of them are lost, the others go on."""
        if shed:
            self._note_leaving(self.stages[0].proxy.queue.arrivals(shed))
            self.stages[0].proxy.shed(shed)
        self._overflow(0, records - shed)

    def take_leaving(self) -> list[tuple[int, int]]:
        """Arrivals of records that left since the last call: (time, records); of a query with a constraint and without
        windows.
        """
        leaving, self._leaving = self._leaving, []
        return leaving

    def _note_leaving(self, arrivals: Sequence[tuple[int, int]]) -> None:
        if self.config.latency_constraint_s is not None and self.period_us is None:
            self._leaving += arrivals

    def _overflow(self, k: int, records: int) -> None:
        if k == 0:
            self._note_leaving(self.stages[0].proxy.queue.arrivals(records))
        self.stages[k].proxy.overflow(records)
        self._release(k)

    def end_epoch(self, epoch_us: int) -> tuple[list[list[pa.Table]], ClosedWindows, list[OperatorCounts]]:
        """Per entry the records that go on there, the closed windows, and the counters of every operator."""
        ended = [stage.proxy.end_epoch() for stage in self.stages]
        paths = [drained for drained, _ in ended]
        counts = [counted for _, counted in ended]
        doubt_costs(self.stages, counts)
        paths.append(self.finished)
        self.finished, self.used_ns = [], 0
        closed = ClosedWindows(None, None, restart=True, groups=0)
        if self.windows is not None:
            closed = self.windows.end_epoch(self.watermark_us, epoch_us)
            counts[-1].groups_out = closed.groups
            if closed.emitted is not None:
                counts[-1].records_out, counts[-1].bytes_out = closed.emitted.num_rows, closed.emitted.nbytes
        return paths, closed, counts

    def queue_change(self) -> QueueChange:
        """Change of the first operator's queue since the last call."""
        return self.stages[0].proxy.queue.change() if self.stages else QueueChange(0, [])

    def queue_items(self) -> tuple[QueueItem, ...]:
        """Items queued at the first operator."""
        return self.stages[0].proxy.queue.items() if self.stages else ()


def overflow_backlog(
    pipelines: Sequence[LocalPipeline], schedule: ScheduleSettings, *, until_us: int, most_bytes: float
) -> None:
    """Overflow at an epoch's end: records that would wait too long by the end of the next one, then the oldest above
    the limit.

    So no record waits for longer than the query's backlog limit, and with a limit below an epoch none outlives one.
    """
    for pipeline in pipelines:
        pipeline.overflow_inner()
        period_s = pipeline.period_us / 1e6 if pipeline.period_us is not None else None
        pipeline.overflow_older(until_us - int(schedule.backlog_s(period_s) * 1e6))
    while sum(pipeline.queued_bytes for pipeline in pipelines) > most_bytes:
        waiting = (pipeline for pipeline in pipelines if pipeline.arrived_us is not None)
        min(waiting, key=lambda candidate: candidate.arrived_us or 0).overflow_first()
