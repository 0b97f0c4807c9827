"""Queries and their scheduler on a simulated core: records come and cost as the test sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from agent.runtime.interface import EpochLabels
from agent.runtime.query.adaptation import Adaptation
from agent.runtime.query.pipeline import LocalPipeline
from agent.runtime.scheduler import Scheduler
from engine.dataflow import Pipeline
from engine.klink.settings import ScheduleSettings
from tests.agent.runtime.configs import agent_config, query_config
from tests.agent.runtime.doubles import SECOND_US
from tests.agent.runtime.epochs import by_hand
from tests.agent.runtime.hosts import SpentClock
from tests.agent.runtime.pipelines import AGENT, COLUMNS

START_S = 1_700_000_000  # when the story begins; a whole number of windows of 1, 2, 4, 5, 10 s


def counting(window_s: int | None) -> Pipeline:
    """Counts records by host in windows of that length, or keeps those without an error."""
    says: dict[str, dict[str, Any]] = {"keep": {"op": "filter", "where": "err = 0"}}
    if window_s is not None:
        says = {
            "window": {"op": "window", "size_s": window_s, "slide_s": window_s},
            "count": {"op": "aggregate", "by": ["dst"], "compute": {"n": "count(*)"}},
        }
    return Pipeline.parse(
        {
            "source": {"id": "probes", "time": "ts", "columns": COLUMNS},
            "operators": [
                {"id": name, "kind": expression["op"], "expression": expression} for name, expression in says.items()
            ],
        }
    )


class DearKernel:
    """The first operator: each record takes CPU time."""

    def __init__(self, kernel: Any, clock: SpentClock, record_ms: float) -> None:
        self._kernel, self._clock, self.record_ms = kernel, clock, record_ms

    def run(self, table: pa.Table) -> pa.Table:
        self._clock.spend_us(table.num_rows * self.record_ms * 1000)
        return self._kernel.run(table)


class SchedulerBench:
    """Queries by name: length of their windows (None: without), and CPU milliseconds of a record.

    Times are seconds of the story. A run is of one record, so turns change by cycles alone.
    """

    def __init__(self, queries: Mapping[str, tuple[int | None, float]], **settings: Any) -> None:
        self.clock = SpentClock()
        labels = EpochLabels(self.clock)
        self.settings = ScheduleSettings(**{"starvation_s": 600.0} | settings)
        self.pipelines: dict[tuple[str, str], LocalPipeline] = {}
        self.turns: list[str] = []
        for name, (window_s, record_ms) in queries.items():
            self._add(name, counting(window_s), record_ms, labels)
        self.config = agent_config(1, AGENT, (), schedule=self.settings)
        self.scheduler = Scheduler(self.config, None, self.clock, labels.now_us)
        self.take_up()
        self._labels = labels

    def _add(self, name: str, pipeline: Pipeline, record_ms: float, labels: EpochLabels) -> None:
        config = query_config(f"here/{name}", pipeline, by_hand(*[1.0] * pipeline.source_operators))
        adaptation = Adaptation(config, AGENT, None, 0)
        chain = LocalPipeline(config, adaptation, self.clock, labels.now_us, 2**24)
        chain.restore(START_S * SECOND_US, ())
        chain.steer()
        first = chain.stages[0]
        first.kernel = DearKernel(first.kernel, self.clock, record_ms)
        work = chain.work

        def one_record(stage: Any, records: int) -> None:
            if stage is first and self.turns[-1:] != [name]:
                self.turns.append(name)
            work(stage, 1 if stage is first else records)

        chain.work = one_record  # type: ignore[method-assign]
        for _ in range(2):  # what a record costs is known
            first.cost.observe(1, int(record_ms * 1e6))
        for stage in chain.stages[1:]:
            stage.cost.observe(1, 0)
        self.pipelines[config.query, pipeline.digest] = chain

    def pipeline(self, name: str) -> LocalPipeline:
        return next(chain for chain in self.pipelines.values() if chain.query == f"here/{name}")

    def session(self, name: str) -> Any:
        chain = self.pipeline(name)
        return self.scheduler._sessions[chain.query, chain.plan]

    def take_up(self) -> None:
        """An epoch begins."""
        self.scheduler.take_up(self.config, self.pipelines, self.clock.wall_us())

    @property
    def now_s(self) -> float:
        return self.clock.wall_us() / SECOND_US - START_S

    def at(self, now_s: float) -> None:
        """Time passes until then."""
        left_us = int(now_s * SECOND_US) + START_S * SECOND_US - self.clock.wall_us()
        self.clock.pass_us(max(left_us, 0))

    def come(self, name: str, records: int, event_s: float | None = None) -> None:
        """Records of that event time come, by default of now."""
        chain, now_us = self.pipeline(name), self._labels.now_us()
        stamp_us = int((START_S + (self.now_s if event_s is None else event_s)) * SECOND_US)
        schema = chain.config.pipeline.source.schema
        values = {"ts": stamp_us, "src": "a", "dst": "b", "rtt_us": 1, "err": 0}
        table = pa.Table.from_pylist([values] * records, schema)
        chain.feed(table, now_us, stamp_us)

    def mark(self, name: str, watermark_s: float) -> None:
        """The stream's watermark is there now."""
        chain, now_us = self.pipeline(name), self._labels.now_us()
        watermark_us = int((START_S + watermark_s) * SECOND_US)
        self.scheduler.watermark(chain, watermark_us, now_us)
        chain.mark(watermark_us, now_us)

    def run(self, cpu_s: float = 60.0) -> list[str]:
        """Operators run for so long at most; who had a turn, in order."""
        self.turns.clear()
        before_ns = self.clock.cpu_ns
        self.scheduler.run(lambda: cpu_s * 1e9 - (self.clock.cpu_ns - before_ns), last=True)
        return list(self.turns)
