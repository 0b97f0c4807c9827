"""Epochs: records of sources pass the queries' chains, and each epoch becomes one record of the spool."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from agent.runtime.chain import Chain
from agent.runtime.clock import Clock, EpochLabels, SystemClock
from agent.runtime.cpu import CpuBudget, quota_cores
from agent.runtime.framing import Framer
from agent.runtime.intake import Intake
from agent.runtime.interface import QueryConfig, RuntimeConfig, Source
from agent.runtime.memory import Memory, PlanNote
from agent.runtime.reporting import QueryReport, counter_rows, query_reports, runtime_state
from agent.runtime.sharing import run_operators
from agent.runtime.spool import Record, Spool
from agent.runtime.windows import Closed
from agent.wire import COUNTERS, FrameKind

__all__ = ["Runtime"]

log = logging.getLogger(__name__)

WRITER = "runtime"
MOST_EPOCH_BYTES = 16 * 2**20  # taken from sources in one epoch, for all queries; what bounds memory
SPOOL_SHARE = 8  # an epoch takes an eighth of the spool at most, which a full spool keeps back
QUOTA_EPOCHS = 10  # between two looks at the control groups


class Runtime:
    """Runs epochs of the configured queries. One thread calls `tick` (or `run_epoch`); any may `apply` and ask `state`.

    Everything that the spool recovered is taken up again: positions of the sources, open windows, the last epoch.
    """

    def __init__(
        self,
        config: RuntimeConfig,
        sources: Mapping[str, Source],
        spool: Spool,
        clock: Clock | None = None,
        quota: Callable[[], float] = quota_cores,
    ) -> None:
        self._clock = clock or SystemClock()
        self._spool, self._quota = spool, quota
        self._memory = Memory.recovered(spool.recovered(WRITER))
        self._labels = EpochLabels(self._clock, self._memory.epoch)
        self._budget = CpuBudget(self._clock)
        self._chains: dict[tuple[str, str], Chain] = {}
        self._intakes: dict[str, Intake] = {}
        self._refused: dict[str, str] = {}
        self._leaving: list[tuple[PlanNote, list[pa.Table]]] = []
        self._waiting: tuple[Record, Memory] | None = None  # an epoch that the disk did not take yet
        self._coming: tuple[RuntimeConfig, Mapping[str, Source] | None] | None = None
        self._lock = threading.Lock()
        self._sub, self._epochs, self._quota_cores = 0, 0, 0.0
        self._began_ns, self._elapsed_ns, self._polled_bytes = self._clock.monotonic_ns(), 1, 0
        self._adopt(config, sources)
        self._state = self._report([])

    # What the outside calls

    def apply(self, config: RuntimeConfig, sources: Mapping[str, Source] | None = None) -> None:
        """From the next epoch on run this; `sources`, where given, are all there are."""
        with self._lock:
            if sources is None and self._coming is not None:
                sources = self._coming[1]
            self._coming = (config, sources)

    def state(self) -> dict[str, Any]:
        """What the heartbeat says of the runtime, as of the last epoch."""
        return self._state

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
        if self._epochs % QUOTA_EPOCHS == 0:
            self._quota_cores = self._quota()
        self._epochs += 1
        now_ns, epoch_ns = self._clock.monotonic_ns(), int(self._config.epoch_s * 1e9)
        self._elapsed_ns = max(now_ns - self._began_ns, 1)
        planned_ns = self._began_ns + epoch_ns
        self._began_ns = (
            planned_ns if 0 <= now_ns - planned_ns < epoch_ns else now_ns
        )  # missed ones are not made up for
        self._budget.begin(min(self._config.budget_cores, self._quota_cores) * epoch_ns)
        self._epoch_us = self._labels.now_us()
        if self._waiting is not None:
            self._write(*self._waiting)
        if self._waiting is not None or self._spool.state == "full":
            self._hold()
            return False
        with self._lock:
            coming, self._coming = self._coming, None
        if coming is not None:
            self._adopt(*coming)
        self._polled_bytes = 0
        return True

    def _hold(self) -> None:
        """No room: replayable sources keep what they have; what live ones give is shed and counted."""
        for intake in self._intakes.values():
            intake.poll(self._epoch_us, 0)
        self._state = self._report([])

    def _adopt(self, config: RuntimeConfig, sources: Mapping[str, Source] | None) -> None:
        self._config = config
        if sources is not None:
            self._intakes = {name: self._intake(name, source) for name, source in sources.items()}
        old, self._chains, self._refused = self._chains, {}, {}
        for query in config.queries:
            self._take_up(query, old)
        for key, note in self._memory.plans.items():
            if key not in self._chains:
                self._leaving.append((note, self._open_rows(old.get(key), note)))

    def _intake(self, name: str, source: Source) -> Intake:
        known = self._intakes.get(name)
        if known is not None and known.source is source:
            return known
        intake = Intake(name, source, self._memory.watermarks.get(name, 0))
        intake.seek(self._memory.positions)
        return intake

    def _take_up(self, query: QueryConfig, old: Mapping[tuple[str, str], Chain]) -> None:
        key = (query.query, query.pipeline.digest)
        source = query.pipeline.source.id
        if source not in self._intakes:
            self._refused[query.query] = f"source {source!r} is not configured here; there are: {sorted(self._intakes)}"
        elif key in old:
            old[key].update(query)
            self._chains[key] = old[key]
        else:
            most_bytes = min(MOST_EPOCH_BYTES, self._spool.limit_bytes // SPOOL_SHARE)
            chain = Chain(query, self._clock, most_bytes)
            if chain.windows is not None:
                chain.windows.restore(self._memory.rows.get(key, []))
            self._chains[key] = chain

    def _open_rows(self, chain: Chain | None, note: PlanNote) -> list[pa.Table]:
        """What a plan that leaves has open, as far as the spool knows."""
        if chain is None:
            return self._memory.rows.get(note.key, [])
        rows = chain.windows.all() if chain.windows is not None else None
        return [] if rows is None else [rows]

    # Running

    def _due_ns(self, sub: int) -> int:
        return self._began_ns + int(self._config.epoch_s * 1e9) * sub // self._config.sub_epochs

    def _run_sub_epoch(self, *, last: bool = False) -> None:
        last = last or self._sub == self._config.sub_epochs - 1
        now_us = self._epoch_us if self._sub == 0 else self._labels.now_us()
        chains = list(self._chains.values())
        for name, intake in self._intakes.items():
            self._take_in(intake, [one for one in chains if one.config.pipeline.source.id == name], now_us)
        share = 1.0 if last else (self._sub + 1) / self._config.sub_epochs
        due_ns = self._due_ns(self._config.sub_epochs if last else self._sub + 1)

        def left_ns() -> float:
            return self._budget.left_ns(share) if self._clock.monotonic_ns() < due_ns else 0.0

        run_operators(chains, left_ns, last=last)

    def _take_in(self, intake: Intake, chains: list[Chain], now_us: int) -> None:
        if not chains:
            return
        left = min(MOST_EPOCH_BYTES, self._spool.limit_bytes // SPOOL_SHARE) - self._polled_bytes
        even = self._config.sub_epochs - self._sub if intake.source.replayable else 1
        # A record of any size passes, one in an epoch, or its source would stand still.
        least = int(even == 1 and self._polled_bytes == 0)
        table = intake.poll(now_us, left / even / len(chains), least)
        if table is None:
            return
        self._polled_bytes += table.nbytes * len(chains)
        for chain in chains:
            chain.feed(table)

    # Ending

    def _end_epoch(self) -> None:
        if not self._chains and not self._leaving:
            self._state = self._report([])
            return
        before_ns = self._clock.process_cpu_ns()
        framer = Framer(self._config.agent, self._epoch_us, self._config.batch_records)
        self._take_leave(framer)
        memory = self._settled()
        deltas: dict[tuple[str, str], pa.Table] = {}
        reports = query_reports(list(self._chains.values()), self._intakes, self._budget, self._config.epoch_s)
        for report, (key, chain) in zip(reports, self._chains.items(), strict=True):
            closed = self._end_chain(chain, report, framer)
            memory.plans[key] = self._note(chain, report.watermark_us, closed)
            if closed.delta is not None:
                deltas[key] = closed.delta
            if chain.windows is not None:
                memory.rows[key] = chain.windows.tables()
        if reports:
            rows = [row for report in reports for row in counter_rows(report, self._config.version, self._epoch_us)]
            framer.counters(pa.Table.from_pylist(rows, schema=COUNTERS))
        stored = memory.stored(deltas)
        record = Record(WRITER, stored.notes, stored.blobs, framer.frames, memory.snapshot)
        self._write(record, memory)
        self._budget.end_took(self._clock.process_cpu_ns() - before_ns)
        self._state = self._report(reports)

    def _take_leave(self, framer: Framer) -> None:
        for note, tables in self._leaving:
            framer.tables(FrameKind.PARTIALS, note.query, note.plan, note.entry, tables)
            framer.mark(note.query, note.plan, note.paths, note.watermark_us, final=True)
        self._leaving = []

    def _settled(self) -> Memory:
        """The memory of this epoch, without the plans."""
        memory = Memory(self._epoch_us, positions={}, watermarks={})
        for name, intake in self._intakes.items():
            memory.watermarks[name], memory.positions[name] = intake.settle()
        return memory

    def _end_chain(self, chain: Chain, report: QueryReport, framer: Framer) -> Closed:
        paths, closed, report.counts = chain.end_epoch(report.watermark_us, self._epoch_us)
        for k, tables in enumerate(paths):
            framer.tables(FrameKind.RECORDS, chain.query, chain.plan, k, tables)
        if closed.emitted is not None:
            entry = len(chain.stages) - 1
            framer.tables(FrameKind.PARTIALS, chain.query, chain.plan, entry, [closed.emitted])
        framer.mark(chain.query, chain.plan, len(paths), report.watermark_us, final=False)
        if framer.lost:
            self._intakes[chain.config.pipeline.source.id].lose(framer.lost)
            framer.lost = 0
        return closed

    def _note(self, chain: Chain, watermark_us: int, closed: Closed) -> PlanNote:
        return PlanNote(
            query=chain.query,
            plan=chain.plan,
            paths=len(chain.stages) + 1,
            entry=max(len(chain.stages) - 1, 0),
            size_us=chain.windows.size_us if chain.windows is not None else None,
            watermark_us=watermark_us,
            restart=closed.restart,
            rows=closed.delta is not None,
        )

    def _write(self, record: Record, memory: Memory) -> None:
        """Append an epoch, or keep it until the disk takes it."""
        if self._spool.append(record):
            self._waiting, self._memory = None, memory
        elif self._waiting is None:
            log.warning("the spool's disk takes nothing: %s", self._spool.fault)
            self._waiting = (record, memory)

    def _report(self, reports: list[QueryReport]) -> dict[str, Any]:
        return runtime_state(
            config=self._config,
            reports=reports,
            refused=self._refused,
            intakes=self._intakes,
            spool=self._spool,
            clock_fault=self._labels.fault,
            epoch_us=self._memory.epoch,
            granted_cores=self._budget.granted_ns / (self._config.epoch_s * 1e9),
            used_cores=self._budget.used_ns / self._elapsed_ns,
        )
