"""Agent on a simulated host: records come at a rate, operators cost what the test sets, time is simulated."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from agent.config import AgentConfig
from agent.runtime import Runtime, Spool
from engine.dataflow import Pipeline
from engine.jarvis.settings import AdaptationSettings
from tests.agent.reference import ReferenceProcessor, rows_of
from tests.agent.runtime.configs import agent_config, query_config
from tests.agent.runtime.doubles import SECOND_US, ManualClock
from tests.agent.runtime.epochs import expected_of
from tests.agent.runtime.pipelines import AGENT, probe_records, probes_pipeline

QUERY = "here/probes"
PIPELINE = probes_pipeline()
COSTS_US = {"window": 10.0, "ok": 20.0, "tors": 40.0, "stats": 100.0}  # a record; about 120 for one that comes in


class RatedSource:
    """So many records a second, of the time at which they are asked for; live, and on time."""

    replayable = False
    records_shed = 0

    def __init__(self, pipeline: Pipeline, rate_per_s: int) -> None:
        self.rate_per_s, self.given = rate_per_s, []
        self.schema = pipeline.source.schema
        self._table = probe_records(pipeline, 997, disorder_s=0)
        self._time = self.schema.get_field_index(pipeline.source.time)
        self._at = self._asked_us = 0

    def poll(self, now_us: int, most: int) -> list[pa.RecordBatch]:
        count = min((now_us - self._asked_us) * self.rate_per_s // SECOND_US, most) if self._asked_us else 0
        self._asked_us = now_us
        start, self._at = self._at % self._table.num_rows, self._at + count
        times = -(-(start + count) // self._table.num_rows) or 1
        table = pa.concat_tables([self._table] * times).slice(start, count)
        stamps = pa.array([now_us] * count, pa.int64()).cast(self.schema.field(self._time).type)
        table = table.set_column(self._time, self.schema.field(self._time), stamps).combine_chunks()
        self.given.append(table)
        return table.to_batches()

    def watermark_us(self) -> int:
        return self._asked_us

    def position(self) -> Any:
        return None

    def seek(self, position: Any) -> None:
        raise AssertionError("a live source has no position")


class CostlyKernel:
    """An operator whose every record takes CPU time of the clock, and that breaks down when told."""

    def __init__(self, kernel: Any, host: Host, operator: str) -> None:
        self._kernel, self._host, self._operator = kernel, host, operator

    def run(self, table: pa.Table) -> pa.Table:
        return self._after(table, self._kernel.run)

    def partial(self, table: pa.Table) -> pa.Table:
        return self._after(table, self._kernel.partial)

    def _after(self, table: pa.Table, run: Any) -> pa.Table:
        self._host.clock.spend_us(table.num_rows * self._host.costs_us[self._operator])
        if self._operator in self._host.broken:
            raise pa.ArrowInvalid("no such luck")
        return run(table)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)


class SpentClock(ManualClock):
    """CPU time is spent by operators alone, and time passes with it."""

    def spend_us(self, us: float) -> None:
        self.cpu_ns += int(us * 1000)
        self.pass_us(us)


class Host:
    """A runtime of some queries over the same probes."""

    def __init__(self, folder: Any, *, rate_per_s: int = 2000, cores: float = 0.3, **options: Any) -> None:
        self.clock, self.quota, self.broken = SpentClock(), 64.0, set()
        self.costs_us = dict(COSTS_US)
        self.folder, self.options = folder, options
        self.pipelines: tuple[Pipeline, ...] = options.pop("pipelines", (PIPELINE,))
        self.settings: AdaptationSettings = options.pop("settings", AdaptationSettings())
        self.refined: Any = options.pop("refined", None)
        self.refined_schedule: Any = options.pop("refined_schedule", None)
        self.cores, self.version, self.news = cores, 1, 0
        self.source = RatedSource(self.pipelines[0], rate_per_s)
        self.reference = ReferenceProcessor(self.pipelines)
        self.start()

    def start(self) -> None:
        """The agent's process begins."""
        self.spool = Spool(self.folder / "spool", 64 * 2**20, sync=False)
        self.runtime = Runtime(
            self.config(), {"probes": self.source}, self.spool, self.clock, quota=lambda: self.quota, notify=self._news
        )
        self._make_costly()

    def _news(self) -> None:
        self.news += 1

    def config(self) -> AgentConfig:
        queries = [
            query_config(QUERY if i == 0 else f"{QUERY}-{i}", pipeline, self.settings, self.refined if i == 0 else None)
            for i, pipeline in enumerate(self.pipelines)
        ]
        told = {"budget_cores": self.cores, "refined_schedule": self.refined_schedule, **self.options}
        return agent_config(self.version, AGENT, tuple(queries), **told)

    def apply(self, **changes: Any) -> None:
        """Another configuration."""
        for name, value in changes.items():
            setattr(self, name, value)
        self.version += 1
        self.runtime.apply(self.config())

    def restart(self) -> None:
        self.spool.close()
        self.start()

    def epochs(self, count: int) -> list[dict[str, Any]]:
        """Run so many; the rows of the first query. What is sent is taken at once."""
        for _ in range(count):
            ended = False
            while not ended:
                wait_s = self.runtime.tick()
                ended = self.runtime._sub == 0
                self.clock.pass_s(wait_s)
            self._send()
        return self.runtime.unreported()[QUERY][-count:]

    def _send(self) -> None:
        self._make_costly()
        for seq, data in list(self.spool.unsent(2**30)):
            self.reference.take(data)
            self.spool.acknowledged(seq)
            self.spool.committed(seq)

    def _make_costly(self) -> None:
        for chain in self.runtime._registry.pipelines.values():
            for stage in chain.stages:
                if not isinstance(stage.kernel, CostlyKernel):
                    stage.kernel = CostlyKernel(stage.kernel, self, stage.operator_id)

    def state(self, query: int = 0) -> dict[str, Any]:
        return self.runtime.state()["queries"][query]

    def records(self) -> pa.Table:
        """All that the source gave."""
        return pa.concat_tables(self.source.given)


def exact(host: Host) -> bool:
    """Once all windows are closed, the result is that of the query run whole."""
    host.source.rate_per_s = 0
    host.epochs(13)
    for i, pipeline in enumerate(host.pipelines):
        query = QUERY if i == 0 else f"{QUERY}-{i}"
        assert host.reference.total("records_in", entry=0, query=query) == host.records().num_rows
        if rows_of(host.reference.result(query, pipeline)) != expected_of(host.records(), pipeline):
            return False
    return True


def settled(rows: list[dict[str, Any]]) -> bool:
    """Less than 5 % overflow in each epoch, and at most 10 % of the budget idle unless everything runs here."""
    return all(row["o"] <= 0.05 * row["n"] and (row["i"] <= 0.1 * row["b"] or min(row["p"]) == 1) for row in rows)


def shares(row: dict[str, Any]) -> tuple[float, float]:
    """Of an epoch's records those overflowing, and of its budget what was used."""
    return row["o"] / max(row["n"], 1), row["u"] / row["b"] if row["b"] else 0.0
