"""Queries that share the core of an agent: their recorded epochs, and what follows from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean

from agent.wire.heartbeat import AgentQueryReport
from apps.telemetry.configs import live_served
from apps.telemetry.epochs import epochs_since
from apps.telemetry.models import Agent, Assignment
from engine.dataflow.types import PipelineDocument
from engine.klink.settings import ScheduleSettings
from engine.rollouts.measures import EpochRow, Sweep, WatermarkForecast

__all__ = [
    "MIN_IN_TIME",
    "ScheduledQuery",
    "memory_of",
    "scheduled_queries",
    "tail_latency_s",
    "window_period_s",
]

_TAIL = 0.99
MIN_IN_TIME = 0.95  #: share of what left in time, below which it is marked


@dataclass(frozen=True)
class ScheduledQuery:
    """A query at an agent; `rows` are its newest epochs, oldest first."""

    name: str
    period_s: float | None  #: from one window's end to the next; None without windows
    settings: ScheduleSettings
    rows: Sequence[EpochRow] = field(default=())
    #: Report on the query in the agent's last heartbeat.
    report: AgentQueryReport = field(default_factory=lambda: AgentQueryReport())

    @cached_property
    def sweeps(self) -> list[Sweep]:
        """Sweeps, oldest first; a window issued again is another sweep."""
        return sorted((sweep for row in self.rows for sweep in row.sweeps), key=lambda sweep: sweep.emitted_us)

    @property
    def last(self) -> EpochRow | None:
        return self.rows[-1] if self.rows else None

    # -- now
    @property
    def queued(self) -> int | None:
        return self.last.queued if self.last is not None else None

    @property
    def queued_bytes(self) -> int | None:
        return self.last.queued_bytes if self.last is not None else None

    @property
    def slack_s(self) -> float | None:
        """Slack: how much later the query could run without delaying its next window; negative if late already."""
        return self.last.slack_s if self.last is not None else None

    @property
    def expected(self) -> WatermarkForecast | None:
        """The next sweeping watermark."""
        return self.last.expected if self.last is not None else None

    @property
    def deadline_us(self) -> int | None:
        """Deadline of the earliest window that is not swept."""
        if self.period_s is None or self.last is None:
            return None
        period_us = round(self.period_s * 1e6)
        if self.sweeps:
            return max(sweep.deadline_us for sweep in self.sweeps) + period_us
        return math.ceil((self.last.epoch_us + 1) / period_us) * period_us

    @property
    def backlog_s(self) -> float:
        """Time that records may wait before they are sent on unprocessed."""
        return self.settings.backlog_s(self.period_s)

    @property
    def late(self) -> str:
        """The reason why its windows do not end, as the agent reports it."""
        return str(self.report.get("late") or "")

    # -- over the epochs that are kept
    @property
    def judged(self) -> list[Sweep]:
        """Windows whose watermark was expected in an interval."""
        return [sweep for sweep in self.sweeps if sweep.is_hit is not None]

    @property
    def hit_rate(self) -> float | None:
        judged = self.judged
        return sum(bool(sweep.is_hit) for sweep in judged) / len(judged) if judged else None

    @property
    def is_off(self) -> bool:
        """Whether the hit rate is below the confidence by more than two standard errors."""
        rate, count, confidence = self.hit_rate, len(self.judged), self.settings.confidence
        return rate is not None and rate < confidence - 2 * math.sqrt(confidence * (1 - confidence) / count)

    @property
    def latency_mean_s(self) -> float | None:
        return fmean(sweep.latency_s for sweep in self.sweeps) if self.sweeps else None

    @property
    def latency_p99_s(self) -> float | None:
        """99 % quantile of window latency; the longest of fewer than a hundred."""
        return tail_latency_s([sweep.latency_s for sweep in self.sweeps])

    @property
    def timed(self) -> int:
        """Windows, or records of a query without windows, that left and have a latency constraint."""
        return sum(row.timed for row in self.rows)

    @property
    def in_time(self) -> int:
        """Of these, those that could keep it."""
        return sum(row.in_time for row in self.rows)

    @property
    def in_time_share(self) -> float | None:
        return self.in_time / self.timed if self.timed else None

    @property
    def shed_late(self) -> int:
        """Records that were late everywhere and lost."""
        return sum(row.shed_late for row in self.rows)

    def ran_s(self, since_us: float) -> float:
        """Seconds on the core in epochs that began since then."""
        return sum(ms for row in self.rows if row.epoch_us >= since_us for _, ms in row.spans) / 1e3


def tail_latency_s(latencies_s: Sequence[float]) -> float | None:
    """The 99 % quantile; the longest of fewer than a hundred, None without any.

    Examples
    --------
    >>> tail_latency_s([0.5, 3.0, 1.0]), tail_latency_s([])
    (3.0, None)
    """
    ordered = sorted(latencies_s)
    return ordered[math.ceil(_TAIL * len(ordered)) - 1] if ordered else None


def window_period_s(pipeline: PipelineDocument) -> float | None:
    """Seconds from one window's end to the next of a pipeline's document; None without windows."""
    kinds = [operator["expression"] for operator in pipeline["operators"]]
    windows = [kind.get("slide_s") or kind.get("size_s") for kind in kinds if kind["op"] == "window"]
    return float(windows[-1]) if windows else None


_DEFAULT = ScheduleSettings()


def scheduled_queries(
    agents: Iterable[Agent], since_us: Mapping[str, int], settings: Mapping[str, ScheduleSettings] | None = None
) -> dict[str, list[ScheduledQuery]]:
    """Queries by id of the agent they run at, ordered by name, with their epochs since a moment by the agent's clock.

    Parameters
    ----------
    agents
        Of one cluster or several.
    since_us
        Microseconds since 1970, by agent's id; of agents that are not named nothing is looked up.
    settings
        In force by agent's id; the defaults where an agent is not named.
    """
    chosen = {str(agent.pk): agent for agent in agents}
    parts = Assignment.objects.filter(enabled=True, agent__in=list(chosen), live__in=live_served())
    parts = parts.select_related("live__query__cluster").order_by("live__query__name")
    queries: dict[str, list[ScheduledQuery]] = {key: [] for key in chosen}
    epochs = epochs_since({key: since for key, since in since_us.items() if key in chosen})
    for part in parts:
        key = str(part.agent_id)
        part.agent = chosen[key]
        rows = epochs.get(key, {}).get(part.live.key, [])
        queries[key].append(_scheduled_query(part, rows, (settings or {}).get(key, _DEFAULT)))
    return queries


def _scheduled_query(part: Assignment, rows: list[EpochRow], settings: ScheduleSettings) -> ScheduledQuery:
    return ScheduledQuery(part.live.query.name, window_period_s(part.live.pipeline), settings, rows, part.report)


def memory_of(lines: Iterable[ScheduledQuery]) -> list[tuple[int, int]]:
    """Bytes queued at the end of each epoch, all queries together: (epoch, bytes), oldest first."""
    sums: dict[int, int] = {}
    for line in lines:
        for row in line.rows:
            sums[row.epoch_us] = sums.get(row.epoch_us, 0) + row.queued_bytes
    return sorted(sums.items())
