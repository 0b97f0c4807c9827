"""Merge schedule of a relay: the order of queries by slack, in bounded time."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.relay.state import Key
from agent.runtime.cpu import OperatorCost
from agent.runtime.downstream import Delay, read_delays
from engine.dataflow import Pipeline
from engine.klink.policies import QueryView, make_policy, starving_query
from engine.klink.settings import ScheduleSettings
from engine.klink.slack import min_slack_ms
from engine.klink.watermarks import SweepForecast

__all__ = ["MergeSchedule", "MergeSession"]

_SATURATED_EPOCHS = 5  # one after the other that left queries over: there is more work than CPU time
_RECENT = 20  # windows whose latencies are reported


@dataclass
class MergeSession:
    """One query at the relay. Times are microseconds since 1970.

    The window that ends at `deadline_us` is the next to be sent on; `pending_us` is when the last of the children's
    watermarks passed it.
    """

    period_us: int | None
    cost: OperatorCost = field(default_factory=OperatorCost)
    delays: dict[str, Mapping[str, Delay]] = field(default_factory=dict)  #: by child and stream
    rows: int = 0  #: that wait
    since_us: int | None = None  #: arrival of the oldest rows that were not merged yet
    ran_us: int | None = None
    deadline_us: int | None = None
    pending_us: int | None = None
    latencies_s: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))  #: from deadline to sending on

    def came(self, rows: int, now_us: int) -> None:
        """Partial rows, or a mark: so many rows wait now."""
        self.rows = rows
        self.since_us = self.since_us or now_us

    def passed(self, watermark_us: int, now_us: int) -> None:
        """The least of the children's watermarks."""
        if self.period_us is None:
            return
        if self.deadline_us is None:  # windows of before the start are not late
            self.deadline_us = _next(watermark_us, self.period_us)
        elif watermark_us >= self.deadline_us and self.pending_us is None:
            self.pending_us = now_us

    def sent(self, watermark_us: int, rows: int, now_us: int) -> None:
        """It has had its turn, after which `rows` stay; windows that the watermark passed are on their way."""
        self.rows, self.since_us, self.ran_us = rows, None, now_us
        if self.period_us is None or self.deadline_us is None or watermark_us < self.deadline_us:
            return
        following_us = _next(watermark_us, self.period_us)
        oldest_us = max(self.deadline_us, following_us - _RECENT * self.period_us)
        for deadline_us in range(oldest_us, following_us, self.period_us):
            self.latencies_s.append(max(now_us - deadline_us, 0) / 1e6)
        self.deadline_us, self.pending_us = following_us, None

    def view(self, key: Key, now_us: int) -> QueryView:
        """The query as a policy sees it."""
        cost_ms, now_ms = self.cost.record_ns / 1e6, now_us / 1e3
        work_ms = self.rows * cost_ms
        pending_ms = None if self.pending_us is None else self.pending_us / 1e3
        return QueryView(
            id="/".join(key),
            queued=[self.rows],
            cost_ms=[cost_ms],
            selectivity=[1.0],
            work_ms=work_ms,
            arrived_ms=None if self.since_us is None else self.since_us / 1e3,
            deadline_ms=None if self.deadline_us is None else self.deadline_us / 1e3,
            pending_ms=pending_ms,
            pending_work_ms=work_ms if pending_ms is not None else 0.0,
            slack_ms=self._slack_ms(now_ms, work_ms, pending_ms),
            ideal_ms=cost_ms,
            ran_ms=float("-inf") if self.ran_us is None else self.ran_us / 1e3,
        )

    def _slack_ms(self, now_ms: float, work_ms: float, pending_ms: float | None) -> float | None:
        """Least slack over the streams of all children; some report the period alone, or nothing."""
        if self.deadline_us is None:
            return None
        known_forecasts = [
            stream.forecast(self.deadline_us) for streams in self.delays.values() for stream in streams.values()
        ]
        due_ms = self.deadline_us / 1e3
        forecasts = known_forecasts or [SweepForecast(due_ms, 0.0, due_ms, due_ms, 0)]
        return min_slack_ms(now_ms, work_ms, [(forecast, pending_ms) for forecast in forecasts])

    def report(self, key: Key, now_us: int) -> dict[str, Any]:
        """Report of the query for the heartbeat."""
        slack_ms, latencies_s = self.view(key, now_us).slack_ms, self.latencies_s
        return {
            "query": key[0],
            "plan": key[1],
            "rows": self.rows,
            "row_cost_s": self.cost.record_ns / 1e9 if self.cost.known else None,
            "slack_s": None if slack_ms is None else round(slack_ms / 1e3, 6),
            "delays": {
                child: {stream: delay.note() for stream, delay in streams.items()}
                for child, streams in self.delays.items()
            },
            "windows": len(latencies_s),
            "latency_mean_s": round(sum(latencies_s) / len(latencies_s), 6) if latencies_s else None,
            "latency_most_s": round(max(latencies_s), 6) if latencies_s else None,
        }


class MergeSchedule:
    """The queries that a relay merges for, and the policy by which they take turns."""

    def __init__(self, settings: ScheduleSettings) -> None:
        self.sessions: dict[Key, MergeSession] = {}
        self.left_over = 0  #: queries that had to wait for the next epoch, of the last one
        self.ignored = 0  #: delays from children that could not be used
        self._guarded = False
        self._behind_epochs = 0
        self.settings, self._policy = settings, make_policy(settings.policy)

    def adopt(self, settings: ScheduleSettings, children: Collection[str]) -> None:
        """Use these settings from now on; delays reported by other children are dropped."""
        if settings.policy != self.settings.policy:  # else it keeps what it has seen of windows
            self._policy = make_policy(settings.policy)
        self.settings = settings
        for session in self.sessions.values():
            session.delays = {child: streams for child, streams in session.delays.items() if child in children}

    def take_delays(self, session: MergeSession, child: str, extra: Mapping[str, Any]) -> None:
        """Take in the watermark delays of a child's mark; a final mark clears them."""
        delays, ignored = read_delays(extra)
        self.ignored += ignored
        if extra.get("final"):
            session.delays.pop(child, None)
        elif delays:
            session.delays[child] = delays

    def session(self, key: Key, pipeline: Pipeline | None) -> MergeSession:
        """The query's session; a new one where there was none, or its plan was not known before."""
        window = pipeline.window if pipeline is not None else None
        period_us = window.slide_us if window is not None else None
        session = self.sessions.get(key)
        if session is None or session.period_us != period_us:
            session = self.sessions[key] = MergeSession(period_us)
        return session

    def pick(self, waiting: Collection[Key], now_us: int) -> Key:
        """The query to run next; one past the starvation limit goes first, every other time at most."""
        keys = list(waiting)
        views = [self.sessions[key].view(key, now_us) for key in keys]
        index = None if self._guarded else starving_query(views, now_us / 1e3, self.settings.starvation_s)
        self._guarded = index is not None
        if index is None:
            index = self._policy.pick(views, now_us / 1e3, self._behind_epochs >= _SATURATED_EPOCHS)
        return keys[index or 0]

    def epoch_over(self, left_over: int) -> None:
        """So many queries wait for the next epoch."""
        self.left_over = left_over
        self._behind_epochs = self._behind_epochs + 1 if left_over else 0

    def report(self, now_us: int) -> dict[str, Any]:
        """The heartbeat's part of merging."""
        queries = [session.report(key, now_us) for key, session in sorted(self.sessions.items())]
        return {"policy": self.settings.policy, "left_over": self.left_over, "queries": queries}


def _next(watermark_us: int, period_us: int) -> int:
    return (watermark_us // period_us + 1) * period_us
