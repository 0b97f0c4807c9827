"""Epochs: records of sources pass the queries' pipelines, and each epoch becomes one record of the spool."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from agent.config import AgentConfig
from agent.runtime.cpu import CpuBudget, quota_cores
from agent.runtime.intake import Intake
from agent.runtime.interface import Clock, EpochLabels, RecordSource, SystemClock
from agent.runtime.query.pipeline import QUEUED_SHARE, LocalPipeline, overflow_backlog
from agent.runtime.recovery import PlanDelta, QueryRegistry, RecoveryState, feed_pipeline
from agent.runtime.reports import (
    EpochRows,
    Framer,
    QueryEpochReport,
    adapt_query,
    counter_rows,
    end_query_epoch,
    query_reports,
    runtime_state,
    variation_rows,
)
from agent.runtime.scheduler import Scheduler
from agent.runtime.spool import Spool, WalRecord, WriterState
from agent.wire import COUNTERS, SWEEPS, FrameKind, variation_extra

__all__ = ["Runtime"]

log = logging.getLogger(__name__)

WRITER = "runtime"
SCHEDULE = ""  # in place of a query: the refined schedule that was taken last
MAX_EPOCH_BYTES = 16 * 2**20  # taken from sources in one epoch, or waiting from before; bounds memory
SPOOL_SHARE = 8  # an epoch takes an eighth of the spool at most, which a full spool keeps back
WAITING_SHARE = 1 / 8  # of a sub-epoch; more would hardly be done in the last one, with all that follows from it
GRACE_SHARE = 1 / 2  # of an epoch, by which its last operators may run late
QUOTA_NS = 10**9  # between two looks at the control groups


class Runtime:
    """Runs epochs of the configured queries. One thread calls `tick` (or `run_epoch`); any may `apply` and ask `state`.

    Everything that the spool recovered is taken up again: positions of the sources, open windows, the last epoch.
    """

    def __init__(
        self,
        config: AgentConfig,
        sources: Mapping[str, RecordSource],
        spool: Spool,
        clock: Clock | None = None,
        quota: Callable[[], float] = quota_cores,
        notify: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._spool, self._quota, self._notify = spool, quota, notify
        self._recovery = RecoveryState.recovered(spool.recovered(WRITER))
        self._labels = EpochLabels(self._clock, self._recovery.latest_us)
        self._budget = CpuBudget(self._clock)
        self._most_bytes = min(MAX_EPOCH_BYTES, spool.limit_bytes // SPOOL_SHARE)
        self._registry = QueryRegistry(self._clock, self._labels, self._most_bytes)
        self._waiting: tuple[WalRecord, RecoveryState] | None = None  # an epoch that the disk did not take yet
        self._coming: tuple[AgentConfig, Mapping[str, RecordSource] | None] | None = None
        self._lock = threading.Lock()
        self._sub, self._quota_cores, self._quota_at_ns = 0, 0.0, 0
        self._began_ns, self._elapsed_ns = self._clock.monotonic_ns(), 1
        self._polled_bytes = self._queued_bytes = 0
        self._reports: list[QueryEpochReport] = []
        self._rows = EpochRows()
        newest = self._recovery.newest.get(SCHEDULE)
        self.scheduler = Scheduler(config, newest, self._clock, self._labels.now_us)
        self._adopt(config, sources)
        self._state = self._report()

    # What the outside calls

    def apply(self, config: AgentConfig, sources: Mapping[str, RecordSource] | None = None) -> None:
        """Switch to this configuration at the next epoch; `sources`, where given, replace all others."""
        with self._lock:
            if sources is None and self._coming is not None:
                sources = self._coming[1]
            self._coming = (config, sources)

    def state(self) -> dict[str, Any]:
        """State of the runtime for the heartbeat, as of the last epoch."""
        return self._state

    def unreported(self) -> dict[str, list[dict[str, Any]]]:
        """Rows of unreported epochs by query, oldest first."""
        return self._rows.unreported(self._clock.monotonic_ns())

    def mark_reported(self, queries: Mapping[str, int]) -> None:
        """Acknowledge the epochs of these queries up to these times."""
        for query, epoch_us in queries.items():
            self._rows.mark_reported(query, epoch_us)

    def tick(self) -> float:
        """Run what is due, one sub-epoch; returns the seconds until the next call."""
        if self._sub == 0 and not self._begin_epoch():
            return self._config.epoch_s
        self._run_sub_epoch()
        self._sub += 1
        due_ns = self._due_ns(self._sub)
        if self._sub == self._config.sub_epochs:
            self._sub = 0
            self._end_epoch()
        return max(0.0, (due_ns - self._clock.monotonic_ns()) / 1e9)

    def run_epoch(self) -> bool:
        """One epoch without waiting in between; False where there was no room for one."""
        self.tick()
        while self._sub:
            self.tick()
        return self._waiting is None and self._spool.state != "full"

    def close(self) -> None:
        """End the epoch under way. Windows stay open: the next start goes on with them."""
        if self._sub:
            self._run_sub_epoch(last=True)
            self._sub = 0
            self._end_epoch()

    # Beginning

    def _begin_epoch(self) -> bool:
        """Settle the rest of the last epoch and begin one; False while there is no room for it."""
        now_ns, epoch_ns = self._clock.monotonic_ns(), int(self._config.epoch_s * 1e9)
        if now_ns >= self._quota_at_ns:
            self._quota_cores, self._quota_at_ns = self._quota(), now_ns + QUOTA_NS
        self._elapsed_ns = max(now_ns - self._began_ns, 1)
        late_ns = now_ns - self._began_ns - epoch_ns
        # missed ones are not made up for, but the others stay where they were: latency of windows hangs on it
        self._began_ns = now_ns - late_ns % epoch_ns if late_ns >= 0 else now_ns
        self._epoch_us = self._labels.now_us()
        if self._waiting is not None:
            self._write(*self._waiting)
        room = self._waiting is None and self._spool.state != "full"
        if room:
            self._take_up()
        self._budget.begin(min(self._config.budget_cores, self._quota_cores) * self._config.epoch_s * 1e9)
        self._polled_bytes = 0
        self._queued_bytes = sum(pipeline.queued_bytes for pipeline in self._registry.pipelines.values())
        if not room:
            self._hold()
        return room

    def _take_up(self) -> None:
        """Go over to a configuration that came meanwhile, and to load factors that were decided."""
        with self._lock:
            coming, self._coming = self._coming, None
        if coming is not None:
            self._adopt(*coming)
        wall_us = self._clock.wall_us()
        changed = self._registry.begin_epoch(wall_us)
        changed = self.scheduler.take_up(self._config, self._registry.pipelines, wall_us) or changed
        if changed or coming is not None:
            self._state = self._report()
        if changed:
            self._notify()

    def _hold(self) -> None:
        """No room: replayable sources keep their records; those of live ones are shed and counted."""
        for intake in self._registry.intakes.values():
            intake.poll(self._epoch_us, 0)
        self._reports = []
        self._state = self._report()

    def _adopt(self, config: AgentConfig, sources: Mapping[str, RecordSource] | None) -> None:
        self._config = config
        self._registry.adopt(config, sources, self._recovery, self._clock.wall_us())

    # Running

    def _due_ns(self, sub: int) -> int:
        return self._began_ns + int(self._config.epoch_s * 1e9) * sub // self._config.sub_epochs

    def _run_sub_epoch(self, *, last: bool = False) -> None:
        last = last or self._sub == self._config.sub_epochs - 1
        now_us = self._epoch_us if self._sub == 0 else self._labels.now_us()
        pipelines = list(self._registry.pipelines.values())
        for name, intake in self._registry.intakes.items():
            self._take_in(
                intake, [pipeline for pipeline in pipelines if name in pipeline.config.pipeline.streams], now_us
            )
        share = 1.0 if last else (self._sub + 1) / self._config.sub_epochs
        due_ns = self._due_ns(self._config.sub_epochs if last else self._sub + 1)
        if last:  # what waited for it is not given away because the host was slow to let it run
            due_ns += int(GRACE_SHARE * self._config.epoch_s * 1e9)

        def left_ns() -> float:
            operators_ns = sum(pipeline.used_ns for pipeline in pipelines)
            return self._budget.left_ns(share, operators_ns) if self._clock.monotonic_ns() < due_ns else 0.0

        before_ns, ran_ns = self._clock.monotonic_ns(), sum(pipeline.used_ns for pipeline in pipelines)
        much = WAITING_SHARE * self._config.epoch_s * 1e9 / self._config.sub_epochs
        self.scheduler.run(left_ns, last=last or sum(pipeline.waiting_ns() for pipeline in pipelines) > much)
        took_ns = self._clock.monotonic_ns() - before_ns
        self._budget.had_chance(due_ns - before_ns, took_ns, sum(pipeline.used_ns for pipeline in pipelines) - ran_ns)

    def _take_in(self, intake: Intake, pipelines: list[LocalPipeline], now_us: int) -> None:
        if not pipelines:
            return
        left = self._most_bytes - self._queued_bytes - self._polled_bytes
        even = self._config.sub_epochs - self._sub if intake.source.replayable else 1
        # A record of any size passes, one in an epoch, or its source would stand still.
        least = int(even == 1 and self._polled_bytes == 0)
        table = intake.poll(now_us, left / even / len(pipelines), least)
        watermark_us = intake.see_watermark()
        self._polled_bytes += table.nbytes * len(pipelines) if table is not None else 0
        for pipeline in pipelines:
            feed_pipeline(pipeline, intake, table, now_us)
            seen_us = pipeline.least_watermark_us(intake.source_id, watermark_us)
            self.scheduler.watermark(pipeline, seen_us, now_us)
            pipeline.mark(seen_us, now_us)

    # Ending

    def _end_epoch(self) -> None:
        self._reports, epoch_us = [], self._epoch_us
        if self._registry.pipelines or self._registry.retired:
            recovery = self._registry.recovery_state(epoch_us, self._recovery.newest)
            self._settle(recovery)
            overflow_backlog(
                list(self._registry.pipelines.values()),
                self.scheduler.settings,
                until_us=self._labels.now_us() + int(self._config.epoch_s * 1e6),
                most_bytes=QUEUED_SHARE * self._most_bytes,
            )
            framer = Framer(self._config.agent, epoch_us, self._config.batch_records)
            self._take_leave(framer)
            stored = self._end_queries(framer, recovery)
            on_accepted = partial(self._acknowledge_rows, epoch_us)
            self._write(
                WalRecord(WRITER, stored.notes, stored.blobs, framer.frames, recovery.snapshot, on_accepted), recovery
            )
        self._state = self._report()

    def _settle(self, recovery: RecoveryState) -> None:
        """Settle the CPU time used and granted in the epoch, and the scheduler's part of the recovery state."""
        used_ns = sum(pipeline.used_ns for pipeline in self._registry.pipelines.values())
        free_ns = self._budget.close(used_ns, int(self._config.epoch_s * 1e9))
        self.scheduler.epoch_over(used_ns, free_ns)
        self._reports = query_reports(self._registry, free_ns, self._config.epoch_s)
        if self.scheduler.refined_state.newest.version:
            recovery.newest[SCHEDULE] = self.scheduler.refined_state.newest

    def _take_leave(self, framer: Framer) -> None:
        for left in self._registry.retired:
            note = left.note
            framer.tables(FrameKind.RECORDS, note.query, note.plan, 0, left.waiting)
            framer.tables(FrameKind.PARTIALS, note.query, note.plan, note.entry, left.rows)
            framer.mark(note.query, note.plan, note.paths, note.watermark_us, final=True)
        self._registry.retired = []

    def _end_queries(self, framer: Framer, recovery: RecoveryState) -> WriterState:
        """End the epoch of every query: frames, reports, and load factors of the next one."""
        deltas: dict[tuple[str, str], PlanDelta] = {}
        counters: list[dict[str, Any]] = []
        arrivals = {name: intake.steps.take() for name, intake in self._registry.intakes.items()}
        costs: list[list[float]] = []
        steps: list[list[float]] = []
        sweeps: list[dict[str, Any]] = []
        rows: dict[str, dict[str, Any]] = {}
        emitted_us = self._labels.now_us()
        for report in self._reports:
            delays = self.scheduler.delays(report.pipeline)
            ended = end_query_epoch(report, framer, self._epoch_us, self._config.checkpoint_share, delays)
            self._registry.intakes[report.pipeline.config.pipeline.source.id].lose(framer.take_lost())
            key = ended.note.key
            recovery.plans[key], deltas[key] = ended.note, ended.delta
            recovery.rows[key], recovery.queues[key] = ended.rows, ended.queue
            counters += counter_rows(report, self._config.version, self._epoch_us)
            runs, of_source = variation_rows(report, arrivals)
            costs, steps = costs + runs, steps + of_source
            row, swept = self.scheduler.epoch_report(report.pipeline, self._epoch_us, emitted_us, self._config.version)
            rows[report.pipeline.query] = adapt_query(report, self._epoch_us, self._config.epoch_s) | row
            sweeps += swept
        if sweeps:
            framer.sweeps(pa.Table.from_pylist(sweeps, schema=SWEEPS))
        if counters:
            framer.counters(pa.Table.from_pylist(counters, schema=COUNTERS), variation_extra(costs, steps))
        self._rows.add(self._epoch_us, self._clock.monotonic_ns(), rows)
        return recovery.stored(deltas)

    def _acknowledge_rows(self, epoch_us: int) -> None:
        self._rows.acknowledged(epoch_us, self._clock.monotonic_ns())

    def _write(self, record: WalRecord, recovery: RecoveryState) -> None:
        """Append an epoch, or keep it until the disk takes it."""
        if self._spool.append(record):
            self._waiting, self._recovery = None, recovery
        elif self._waiting is None:
            log.warning("the spool's disk takes nothing: %s", self._spool.fault)
            self._waiting = (record, recovery)

    def _report(self) -> dict[str, Any]:
        return runtime_state(
            config=self._config,
            registry=self._registry,
            scheduler=self.scheduler,
            reports=self._reports,
            spool=self._spool,
            clock_fault=self._labels.fault,
            epoch_us=self._recovery.epoch,
            granted_cores=self._budget.granted_ns / (self._config.epoch_s * 1e9),
            used_cores=self._budget.used_ns / self._elapsed_ns,
        )
