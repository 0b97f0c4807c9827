"""Epochs: records of sources pass the queries' chains, and each epoch becomes one record of the spool."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from agent.runtime.clock import Clock, EpochLabels, SystemClock
from agent.runtime.cpu import CpuBudget, quota_cores
from agent.runtime.durability.recovery import PlanDelta, RecoveryState
from agent.runtime.durability.spool import Spool, WalRecord, WriterState
from agent.runtime.epoch import Framer, adapt_query, end_query_epoch
from agent.runtime.intake import Intake
from agent.runtime.interface import RecordSource, RuntimeConfig
from agent.runtime.query.pipeline import QUEUED_SHARE, LocalPipeline, overflow_backlog
from agent.runtime.registry import QueryRegistry, feed_pipeline
from agent.runtime.reports import EpochRows, QueryReport, counter_rows, query_reports, runtime_state
from agent.runtime.scheduler import Scheduler
from agent.wire import COUNTERS, SWEEPS, FrameKind

__all__ = ["Runtime"]

log = logging.getLogger(__name__)

WRITER = "runtime"
SCHEDULE = ""  # in place of a query: the refined schedule that was taken last
MAX_EPOCH_BYTES = 16 * 2**20  # taken from sources in one epoch, or waiting from before; what bounds memory
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
        config: RuntimeConfig,
        sources: Mapping[str, RecordSource],
        spool: Spool,
        clock: Clock | None = None,
        quota: Callable[[], float] = quota_cores,
        news: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._spool, self._quota, self._news = spool, quota, news
        self._memory = RecoveryState.recovered(spool.recovered(WRITER))
        self._labels = EpochLabels(self._clock, self._memory.epoch)
        self._budget = CpuBudget(self._clock)
        self._most_bytes = min(MAX_EPOCH_BYTES, spool.limit_bytes // SPOOL_SHARE)
        self._lineup = QueryRegistry(self._clock, self._labels, self._most_bytes)
        self._waiting: tuple[WalRecord, RecoveryState] | None = None  # an epoch that the disk did not take yet
        self._coming: tuple[RuntimeConfig, Mapping[str, RecordSource] | None] | None = None
        self._lock = threading.Lock()
        self._sub, self._quota_cores, self._quota_at_ns = 0, 0.0, 0
        self._began_ns, self._elapsed_ns = self._clock.monotonic_ns(), 1
        self._polled_bytes = self._queued_bytes = 0
        self._reports: list[QueryReport] = []
        self._rows = EpochRows()
        newest = self._memory.newest.get(SCHEDULE)
        self.scheduler = Scheduler(config, newest, self._clock, self._labels.now_us)
        self._adopt(config, sources)
        self._state = self._report()

    # What the outside calls

    def apply(self, config: RuntimeConfig, sources: Mapping[str, RecordSource] | None = None) -> None:
        """From the next epoch on run this; `sources`, where given, are all there are."""
        with self._lock:
            if sources is None and self._coming is not None:
                sources = self._coming[1]
            self._coming = (config, sources)

    def state(self) -> dict[str, Any]:
        """What the heartbeat says of the runtime, as of the last epoch."""
        return self._state

    def unsaid(self) -> dict[str, list[dict[str, Any]]]:
        """By query the rows of epochs that the console has not heard of , oldest first."""
        return self._rows.unsaid(self._clock.monotonic_ns())

    def said(self, queries: Mapping[str, int]) -> None:
        """The console has heard of these queries' epochs up to these."""
        for query, epoch_us in queries.items():
            self._rows.said(query, epoch_us)

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
        """Settle what is left of the last epoch and begin one; False while there is no room for it."""
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
        self._queued_bytes = sum(chain.queued_bytes for chain in self._lineup.chains.values())
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
        news = self._lineup.begin_epoch(wall_us)
        news = self.scheduler.take_up(self._config, self._lineup.chains, wall_us) or news
        if news or coming is not None:
            self._state = self._report()
        if news:
            self._news()

    def _hold(self) -> None:
        """No room: replayable sources keep what they have; what live ones give is shed and counted."""
        for intake in self._lineup.intakes.values():
            intake.poll(self._epoch_us, 0)
        self._reports = []
        self._state = self._report()

    def _adopt(self, config: RuntimeConfig, sources: Mapping[str, RecordSource] | None) -> None:
        self._config = config
        self._lineup.adopt(config, sources, self._memory, self._clock.wall_us())

    # Running

    def _due_ns(self, sub: int) -> int:
        return self._began_ns + int(self._config.epoch_s * 1e9) * sub // self._config.sub_epochs

    def _run_sub_epoch(self, *, last: bool = False) -> None:
        last = last or self._sub == self._config.sub_epochs - 1
        now_us = self._epoch_us if self._sub == 0 else self._labels.now_us()
        chains = list(self._lineup.chains.values())
        for name, intake in self._lineup.intakes.items():
            self._take_in(intake, [one for one in chains if name in one.config.pipeline.streams], now_us)
        share = 1.0 if last else (self._sub + 1) / self._config.sub_epochs
        due_ns = self._due_ns(self._config.sub_epochs if last else self._sub + 1)
        if last:  # what waited for it is not given away because the host was slow to let it run
            due_ns += int(GRACE_SHARE * self._config.epoch_s * 1e9)

        def left_ns() -> float:
            operators_ns = sum(chain.used_ns for chain in chains)
            return self._budget.left_ns(share, operators_ns) if self._clock.monotonic_ns() < due_ns else 0.0

        before_ns, ran_ns = self._clock.monotonic_ns(), sum(chain.used_ns for chain in chains)
        much = WAITING_SHARE * self._config.epoch_s * 1e9 / self._config.sub_epochs
        self.scheduler.run(left_ns, last=last or sum(chain.waiting_ns() for chain in chains) > much)
        took_ns = self._clock.monotonic_ns() - before_ns
        self._budget.had_chance(due_ns - before_ns, took_ns, sum(chain.used_ns for chain in chains) - ran_ns)

    def _take_in(self, intake: Intake, chains: list[LocalPipeline], now_us: int) -> None:
        if not chains:
            return
        left = self._most_bytes - self._queued_bytes - self._polled_bytes
        even = self._config.sub_epochs - self._sub if intake.source.replayable else 1
        # A record of any size passes, one in an epoch, or its source would stand still.
        least = int(even == 1 and self._polled_bytes == 0)
        table = intake.poll(now_us, left / even / len(chains), least)
        watermark_us = intake.see_watermark()
        self._polled_bytes += table.nbytes * len(chains) if table is not None else 0
        for chain in chains:
            feed_pipeline(chain, intake, table, now_us)
            seen_us = chain.least_watermark_us(intake.source_id, watermark_us)
            self.scheduler.watermark(chain, seen_us, now_us)
            chain.mark(seen_us, now_us)

    # Ending

    def _end_epoch(self) -> None:
        self._reports, epoch_us = [], self._epoch_us
        if self._lineup.chains or self._lineup.leaving:
            memory = self._lineup.memory(epoch_us, self._memory.newest)
            self._settle(memory)
            overflow_backlog(
                list(self._lineup.chains.values()),
                self.scheduler.settings,
                until_us=self._labels.now_us() + int(self._config.epoch_s * 1e6),
                most_bytes=QUEUED_SHARE * self._most_bytes,
            )
            framer = Framer(self._config.agent, epoch_us, self._config.batch_records)
            self._take_leave(framer)
            stored = self._end_chains(framer, memory)
            told = partial(self._told, epoch_us)
            self._write(WalRecord(WRITER, stored.notes, stored.blobs, framer.frames, memory.snapshot, told), memory)
        self._state = self._report()

    def _settle(self, memory: RecoveryState) -> None:
        """What the epoch's operators used and could have had, and what is to be remembered of scheduling."""
        used_ns = sum(chain.used_ns for chain in self._lineup.chains.values())
        free_ns = self._budget.close(used_ns, int(self._config.epoch_s * 1e9))
        self.scheduler.epoch_over(used_ns, free_ns)
        self._reports = query_reports(self._lineup, free_ns, self._config.epoch_s)
        if self.scheduler.prior.newest.version:
            memory.newest[SCHEDULE] = self.scheduler.prior.newest

    def _take_leave(self, framer: Framer) -> None:
        for left in self._lineup.leaving:
            note = left.note
            framer.tables(FrameKind.RECORDS, note.query, note.plan, 0, left.waiting)
            framer.tables(FrameKind.PARTIALS, note.query, note.plan, note.entry, left.rows)
            framer.mark(note.query, note.plan, note.paths, note.watermark_us, final=True)
        self._lineup.leaving = []

    def _end_chains(self, framer: Framer, memory: RecoveryState) -> WriterState:
        """What every query sends and what it has to tell; and how the next epoch runs."""
        deltas: dict[tuple[str, str], PlanDelta] = {}
        counters: list[dict[str, Any]] = []
        sweeps: list[dict[str, Any]] = []
        rows: dict[str, dict[str, Any]] = {}
        emitted_us = self._labels.now_us()
        for report in self._reports:
            delays = self.scheduler.delays(report.chain)
            ended = end_query_epoch(report, framer, self._epoch_us, self._config.checkpoint_share, delays)
            self._lineup.intakes[report.chain.config.pipeline.source.id].lose(framer.take_lost())
            key = ended.note.key
            memory.plans[key], deltas[key] = ended.note, ended.delta
            memory.rows[key], memory.queues[key] = ended.rows, ended.queue
            counters += counter_rows(report, self._config.version, self._epoch_us)
            row, swept = self.scheduler.told(report.chain, self._epoch_us, emitted_us, self._config.version)
            rows[report.chain.query] = adapt_query(report, self._epoch_us, self._config.epoch_s) | row
            sweeps += swept
        if sweeps:
            framer.sweeps(pa.Table.from_pylist(sweeps, schema=SWEEPS))
        if counters:
            framer.counters(pa.Table.from_pylist(counters, schema=COUNTERS))
        self._rows.add(self._epoch_us, self._clock.monotonic_ns(), rows)
        return memory.stored(deltas)

    def _told(self, epoch_us: int) -> None:
        self._rows.acknowledged(epoch_us, self._clock.monotonic_ns())

    def _write(self, record: WalRecord, memory: RecoveryState) -> None:
        """Append an epoch, or keep it until the disk takes it."""
        if self._spool.append(record):
            self._waiting, self._memory = None, memory
        elif self._waiting is None:
            log.warning("the spool's disk takes nothing: %s", self._spool.fault)
            self._waiting = (record, memory)

    def _report(self) -> dict[str, Any]:
        return runtime_state(
            config=self._config,
            lineup=self._lineup,
            scheduler=self.scheduler,
            reports=self._reports,
            spool=self._spool,
            clock_fault=self._labels.fault,
            epoch_us=self._memory.epoch,
            granted_cores=self._budget.granted_ns / (self._config.epoch_s * 1e9),
            used_cores=self._budget.used_ns / self._elapsed_ns,
        )
