"""One query at the agent: its control proxies, operators and open windows, and how it is adapted."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from agent.runtime.adapting import Adapting
from agent.runtime.checkpoints import Checkpoints
from agent.runtime.clock import Clock
from agent.runtime.cpu import OperatorCost
from agent.runtime.interface import QueryConfig
from agent.runtime.proxy import ControlProxy, Counts
from agent.runtime.windows import Closed, OpenWindows
from engine.dataflow.arrow import kernel

__all__ = ["Chain", "Stage"]

log = logging.getLogger(__name__)

MOST_EXPANSION = 4  # of what an epoch may take in; sliding windows repeat records


@dataclass
class Stage:
    """An operator behind its control proxy."""

    operator_id: str
    fingerprint: str
    proxy: ControlProxy
    kernel: Any
    stateful: bool
    cost: OperatorCost

    @property
    def waiting(self) -> int:
        """Records in the queue."""
        return self.proxy.queue.records


class Chain:
    """Records enter at the first proxy; what passes an operator comes to the next proxy.

    The operator furthest down with something to do runs first, so records finish before new ones begin, and what there
    is no time for waits as early as it came.
    """

    def __init__(self, config: QueryConfig, adapting: Adapting, clock: Clock, most_bytes: int) -> None:
        pipeline = config.pipeline
        self.config, self.query, self.plan = config, config.query, pipeline.digest
        self.adapting = adapting
        self.checkpoints = Checkpoints()
        self._clock = clock
        self._most_bytes = most_bytes
        self.stages = [
            Stage(one.id, one.fingerprint, ControlProxy(0.0), kernel(pipeline, one.index), one.stateful, OperatorCost())
            for one in pipeline.operators[: pipeline.source_operators]
        ]
        self.windows: OpenWindows | None = None
        if self.stages and self.stages[-1].stateful:
            size_us = pipeline.window.size_us if pipeline.window else None
            self.windows = OpenWindows(self.stages[-1].kernel.merge, size_us, most_bytes)
        self.finished: list[pa.Table] = []
        self.used_ns = 0
        self.fault = ""

    def update(self, config: QueryConfig, now_us: int) -> None:
        """New settings and weight of the same plan."""
        self.config = config
        self.adapting.take_up(config, now_us)

    def steer(self) -> None:
        """Between two epochs: the proxies let in what has been decided."""
        for stage, load_factor in zip(self.stages, self.adapting.load_factors, strict=True):
            stage.proxy.load_factor = load_factor

    @property
    def load_factors(self) -> list[float]:
        """Of the epoch under way."""
        return [stage.proxy.load_factor for stage in self.stages]

    @property
    def demand_ns(self) -> float:
        """CPU time that it has a use for in this epoch; infinite where records wait."""
        return float("inf") if self.waiting() else self.used_ns * self.adapting.reserve

    def feed(self, table: pa.Table) -> None:
        """Records of the source."""
        self._hand_on(table, 0)

    def ready(self, *, last: bool) -> Stage | None:
        """The operator to run next: the furthest down with enough waiting to be worth a run; with `last`, anything is.

        One that expands its input and has put out a lot in this epoch rests; what waits for it stays small.
        """
        most_out = MOST_EXPANSION * self._most_bytes
        stages = (one for one in reversed(self.stages) if one.proxy.counts.bytes_out <= most_out)
        return next((one for one in stages if one.waiting >= (1 if last else one.cost.worth_a_run())), None)

    def waiting(self) -> int:
        """Records in the queues."""
        return sum(stage.waiting for stage in self.stages)

    def waiting_ns(self) -> float:
        """CPU time that operators would take for what waits for them now."""
        return sum(stage.cost.run_ns(stage.waiting) for stage in self.stages)

    def work(self, stage: Stage, records: int) -> None:
        """Run one operator on some of its records; what it cannot process goes on unprocessed."""
        chunk = stage.proxy.queue.take(records)
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
        stage.cost.observe(chunk.num_rows, cpu_ns)
        self.used_ns += cpu_ns
        counts = stage.proxy.counts
        counts.records_processed += chunk.num_rows
        counts.cpu_ns += cpu_ns
        self._take_over(stage, out)

    def _take_over(self, stage: Stage, out: pa.Table) -> None:
        if stage.stateful and self.windows is not None:
            self.windows.add(out)
            return
        stage.proxy.counts.records_out += out.num_rows
        stage.proxy.counts.bytes_out += out.nbytes
        self._hand_on(out, self.stages.index(stage) + 1)

    def _hand_on(self, table: pa.Table, k: int) -> None:
        if k < len(self.stages):
            self.stages[k].proxy.admit(table)
        elif table.num_rows:
            self.finished.append(table)

    def end_epoch(self, watermark_us: int, epoch_us: int) -> tuple[list[list[pa.Table]], Closed, list[Counts]]:
        """Per entry the records that go on there, what the windows let go, and the counts of every operator."""
        ended = [stage.proxy.end_epoch() for stage in self.stages]
        paths = [drained for drained, _ in ended]
        counts = [counted for _, counted in ended]
        for stage, counted in zip(self.stages, counts, strict=True):
            if counted.records_overflow and not counted.records_processed:
                stage.cost.doubt()
        paths.append(self.finished)
        self.finished, self.used_ns = [], 0
        closed = Closed(None, None, restart=True, groups=0)
        if self.windows is not None:
            closed = self.windows.end_epoch(watermark_us, epoch_us)
            counts[-1].groups_out = closed.groups
            if closed.emitted is not None:
                counts[-1].records_out, counts[-1].bytes_out = closed.emitted.num_rows, closed.emitted.nbytes
        return paths, closed, counts
