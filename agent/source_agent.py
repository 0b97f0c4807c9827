"""The source agent at work: collectors and the runtime, under a configuration that may change."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from agent.collect import Collector, make_collector
from agent.config import AgentConfig
from agent.runtime import Runtime, RuntimeConfig, RuntimeQuery, Spool
from agent.runtime.downstream import Costs
from agent.settings import ReadableFolders

__all__ = ["SourceAgent"]

log = logging.getLogger(__name__)


class SourceAgent:
    """Runs the epochs of one agent. `run` belongs to one thread; the others may be called from any.

    `notify` is called, by that thread, when the console has something to hear at once.
    """

    kind = "agent"

    def __init__(
        self, config: AgentConfig, spool: Spool, readable: ReadableFolders, notify: Callable[[], None] = lambda: None
    ) -> None:
        self._readable = readable
        self._collectors = {name: (source, make_collector(source, readable)) for name, source in config.sources.items()}
        self._retired: list[tuple[float, Collector]] = []
        self._lock = threading.Lock()
        self._epoch_s = config.epoch_s
        self._runtime = Runtime(runtime_config(config), self._sources(), spool, notify=notify)

    def apply(self, config: AgentConfig) -> None:
        """Go over to another configuration at the next epoch. Collectors that stay the same go on as they are."""
        with self._lock:
            old, self._collectors = self._collectors, {}
            for name, source in config.sources.items():
                before = old.get(name)
                stays = before is not None and before[0] == source
                self._collectors[name] = old.pop(name) if stays else (source, make_collector(source, self._readable))
            until = time.monotonic() + 2 * max(self._epoch_s, config.epoch_s)  # the epoch under way still asks them
            self._retired += [(until, collector) for _, collector in old.values()]
            self._epoch_s = config.epoch_s
            self._runtime.apply(runtime_config(config), self._sources())

    def run(self, stopping: threading.Event) -> None:
        """Epoch after epoch until it is to stop; the epoch under way is finished."""
        wait_s = 0.0
        while not stopping.wait(wait_s):
            wait_s = self._runtime.tick()
            self._let_go()
        self._runtime.close()
        for _, collector in self._retired:
            collector.close()
        for _, collector in self._collectors.values():
            collector.close()

    def report(self) -> dict[str, Any]:
        """The heartbeat's part of the runtime and the collectors."""
        state = self._runtime.state()
        with self._lock:
            reports = [self._collector_report(collector, state) for _, collector in self._collectors.values()]
        return {
            "queries": state["queries"],
            "collectors": reports,
            "schedule": state["schedule"],
            "faults": state["faults"],
            "epoch_us": state["epoch_us"],
        }

    def unreported(self) -> dict[str, list[dict[str, Any]]]:
        """Rows of unreported epochs by query."""
        return self._runtime.unreported()

    def mark_reported(self, queries: Mapping[str, int]) -> None:
        """Acknowledge the epochs of these queries up to these times."""
        self._runtime.mark_reported(queries)

    def downstream(self, costs: Costs) -> None:
        """Set the costs of retired rows at the relay above; from any thread."""
        self._runtime.scheduler.downstream = costs

    def _collector_report(self, collector: Collector, state: dict[str, Any]) -> dict[str, Any]:
        says = collector.report()
        seen = state["sources"].get(collector.name, {})
        # what the runtime had no room for comes to what the collector itself lost
        says["shed"] = max(says["shed"], seen.get("shed", 0))
        says["faults"] = [*says["faults"], *(fault for fault in seen.get("faults", ()) if fault not in says["faults"])]
        return says

    def _sources(self) -> dict[str, Collector]:
        return {name: collector for name, (_, collector) in self._collectors.items()}

    def _let_go(self) -> None:
        if not self._retired:
            return
        now = time.monotonic()
        with self._lock:
            gone = [collector for until, collector in self._retired if until <= now]
            self._retired = [entry for entry in self._retired if entry[0] > now]
        for collector in gone:
            collector.close()


def runtime_config(config: AgentConfig) -> RuntimeConfig:
    """The runtime's part of a configuration."""
    queries = [
        RuntimeQuery(
            query=query.query,
            pipeline=query.pipeline,
            settings=query.settings,
            refined=query.refined,
            weight=query.weight,
            latency_constraint_s=query.latency_constraint_s,
            priority=query.priority,
            shed_late=query.shed_late,
        )
        for query in config.queries
    ]
    return RuntimeConfig(
        version=config.version,
        agent=config.agent,
        queries=tuple(queries),
        epoch_s=config.epoch_s,
        sub_epochs=config.sub_epochs,
        budget_cores=config.budget_cores,
        batch_records=config.batch_records,
        checkpoint_share=config.checkpoint_share,
        schedule=config.schedule,
        refined_schedule=config.refined_schedule,
        stream_delay_s=config.stream_delay_s,
        forwards=config.parent is not None,
    )
