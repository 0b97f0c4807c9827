"""Scheduling session of one query: its windows, its queued work, when it ran."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from operator import mul
from typing import Any, NamedTuple

from agent.runtime.deadlines import QueryDeadlines, StreamTracker, WaitingRecords, sweep_prior
from agent.runtime.query.pipeline import LocalPipeline
from agent.runtime.query.record_queue import WindowSweep
from engine.jarvis.refined_config import RefinedAdaptation
from engine.klink.policies import QueryView
from engine.klink.settings import ScheduleSettings
from engine.klink.slack import forecast_wait_ms, overdue_forecast
from engine.klink.watermarks import SweepPrior

__all__ = ["QuerySession", "RunSpans"]


MAX_SPANS = 40
GAP_NS = 1_000_000  # between runs that are reported as one
DECIMALS = 6
MAX_TOLD = 20  # windows of a row


class RunSpans:
    """Runs of one query in one epoch, in order; those that follow each other closely are one."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] = []

    def add(self, begin_ns: int, end_ns: int) -> None:
        """It ran from then to then on a clock that does not go back."""
        if self._spans and begin_ns - self._spans[-1][1] < GAP_NS:
            self._spans[-1] = (self._spans[-1][0], end_ns)
        else:
            self._spans.append((begin_ns, end_ns))
        if len(self._spans) > MAX_SPANS:
            self._join_nearest()

    def _join_nearest(self) -> None:
        gaps = [later[0] - earlier[1] for earlier, later in pairwise(self._spans)]
        i = gaps.index(min(gaps))
        self._spans[i : i + 2] = [(self._spans[i][0], self._spans[i + 1][1])]

    def take(self, since_ns: int) -> list[list[float]]:
        """Begin after `since_ns` and length of each, in milliseconds; none are left."""
        spans, self._spans = self._spans, []
        return [[round((begin - since_ns) / 1e6, 2), round((end - begin) / 1e6, 2)] for begin, end in spans]


#: By operator: CPU milliseconds of a record, records that come to the next queue for each, and CPU milliseconds of a
#: record through all that follows.
_Path = tuple[list[float], list[float], list[float]]


class _Work(NamedTuple):
    """Work that waits: records by operator, CPU time, and what lies before the watermark that sweeps, if it came."""

    queued: list[int]
    all_ms: float
    pending_ms: float | None  #: when that watermark came
    before_ms: float


class QuerySession:
    """A pipeline, the trackers of its streams, and when it ran."""

    def __init__(self, pipeline: LocalPipeline, settings: ScheduleSettings) -> None:
        self.pipeline = pipeline
        self.spans = RunSpans()
        self.ran_us: int | None = None  #: when it last ran
        self.unserved_us: int | None = None  #: since when it has had records without running; overflowed ones count
        self._epoch_us = self._ends_us = 0  # length of an epoch, and when the one under way ends
        self._limit_us = 0.0  # that a record of a query with windows may wait
        self.downstream_cost_s = 0.0  #: CPU time that what leaves here takes further up, per record
        self._settings = settings
        self._learned: RefinedAdaptation | None = None
        self._known: _Path | None = None
        self.tracker: StreamTracker | None = None
        if pipeline.period_us is not None:
            stream = pipeline.config.pipeline.source.id
            self.tracker = StreamTracker(stream, pipeline.period_us, settings, self._prior(stream))
        self.deadlines = QueryDeadlines(pipeline, self.tracker)

    def learn(self, settings: ScheduleSettings, epoch_us: int, ends_us: int) -> None:
        """Begin an epoch of this length and end; settings, or statistics learned elsewhere, may have changed."""
        self._epoch_us, self._ends_us = epoch_us, ends_us
        self._settings, self._learned, self._known = settings, self.pipeline.adaptation.refined_state.in_force, None
        if self.tracker is not None:
            self.tracker.learn(settings, self._prior(self.tracker.stream))
            self._limit_us = settings.backlog_s(self.tracker.period_us / 1e6) * 1e6

    def _prior(self, stream: str) -> SweepPrior | None:
        learned = (self._learned.watermarks or ()) if self._learned is not None else ()
        period_s = (self.pipeline.period_us or 0) / 1e6
        priors = (prior for prior in learned if prior.stream == stream and prior.period_s == period_s)
        return next((sweep_prior(prior) for prior in priors), None)

    # Turns

    def look(self, now_us: int) -> None:
        """It may have records by now."""
        if self.unserved_us is None and self.pipeline.waiting():
            self.unserved_us = self.pipeline.arrived_us or now_us

    def ran(self, begin_ns: int, end_ns: int, now_us: int) -> None:
        """It has had a turn."""
        self.spans.add(begin_ns, end_ns)
        self.ran_us, self.unserved_us = now_us, now_us if self.pipeline.waiting() else None

    # What it is to a policy

    def view(self, now_us: int) -> QueryView:
        """The query at this instant."""
        pipeline = self.pipeline
        cost_ms, shares, through_ms = self._path()
        work = self._work()
        arrived_us = pipeline.arrived_us
        return QueryView(
            id=pipeline.query,
            queued=work.queued,
            cost_ms=cost_ms,
            selectivity=shares,
            work_ms=work.all_ms,
            arrived_ms=_ms(arrived_us),
            stimulus_ms=_ms(pipeline.stimulus_us) if self._settings.policy == "stimulus-time" else None,
            deadline_ms=self._due_ms(work.pending_ms),
            pending_ms=work.pending_ms,
            pending_work_ms=work.before_ms,
            slack_ms=self._slack_ms(now_us / 1e3, work, arrived_us),
            ideal_ms=through_ms[0] if through_ms else 0.0,
            ran_ms=float("-inf") if self.ran_us is None else self.ran_us / 1e3,
            expires_ms=self._expires_ms(arrived_us),
        )

    def _work(self) -> _Work:
        queued, through_ms, pending = self.pipeline.queued, self._path()[2], self.pipeline.pending()
        all_ms = _product(queued, through_ms)
        if pending is None:
            return _Work(queued, all_ms, None, 0.0)
        return _Work(queued, all_ms, pending[0].arrived_us / 1e3, _product(pending[1], through_ms))

    def waiting_records(self) -> WaitingRecords:
        """Records at the first operator, by when they have to leave."""
        return WaitingRecords(
            self.deadlines.waiting(),
            self._here_ms()[0] / 1e3,
            self.deadlines.weight,
            self.deadlines.constraint_s or 0.0,
        )

    def begun_s(self) -> float:
        """CPU time of the records that wait behind the first operator."""
        return sum(count * ms for count, ms in zip(self.pipeline.queued[1:], self._here_ms()[1:], strict=True)) / 1e3

    def _here_ms(self) -> list[float]:
        """CPU time of a record that waits for each operator, through all that follow here."""
        cost_ms, here, _ = self._path()
        return self._through_ms(cost_ms, here)

    def _due_ms(self, pending_ms: float | None) -> float | None:
        """The deadline by the clock; where its watermark was here before, that is when it is due."""
        deadline_us = self.pipeline.deadline_us
        if deadline_us is None or self.tracker is None:
            return None
        due_ms = (deadline_us + self.tracker.skew_us) / 1e3
        return due_ms if pending_ms is None else min(due_ms, pending_ms)

    def _slack_ms(self, now_ms: float, work: _Work, arrived_us: int | None) -> float | None:
        """Until its next sweeping watermark, or until its records may wait no more; less the work before."""
        if work.pending_ms is not None:
            return work.pending_ms - now_ms - work.before_ms
        if self.tracker is not None:
            forecast = self.tracker.forecast
            if forecast is None:
                return None
            return forecast_wait_ms(now_ms, forecast) - work.all_ms
        arrived_ms = now_ms if arrived_us is None else arrived_us / 1e3
        return arrived_ms + self._settings.backlog_s(None) * 1e3 - now_ms - work.all_ms

    def _expires_ms(self, arrived_us: int | None) -> float | None:
        """Time at which the oldest record overflows: at an epoch's end, where it would wait too long by the next."""
        if self.tracker is None or arrived_us is None:
            return None
        return max(arrived_us + self._limit_us - self._epoch_us, self._ends_us) / 1e3

    def _path(self) -> _Path:
        """Cost of the path through the operators, as it was when the epoch began."""
        if self._known is None:
            cost_ms, shares = self._cost_ms(), self._shares()
            through_ms = self._through_ms(cost_ms, shares)
            here = [*shares[:-1], 0.0][: len(shares)]  # what leaves the last operator waits here no more
            if not all(stage.cost.known for stage in self.pipeline.stages):
                return cost_ms, here, through_ms
            self._known = cost_ms, here, through_ms
        return self._known

    def _cost_ms(self) -> list[float]:
        """CPU time of a record in each operator; the value learned elsewhere where it has not run here."""
        learned = (
            {operator.id: operator.cost_s * 1e3 for operator in self._learned.operators}
            if self._learned is not None
            else {}
        )
        return [
            stage.cost.record_ns / 1e6 if stage.cost.known else learned.get(stage.operator_id, 0.0)
            for stage in self.pipeline.stages
        ]

    def _shares(self) -> list[float]:
        """Of each record into an operator, how many come to the next one's queue."""
        stages = self.pipeline.stages
        let_in = [*(stage.proxy.load_factor for stage in stages[1:]), 1.0]
        return [stage.selectivity * share for stage, share in zip(stages, let_in, strict=True)]

    def _through_ms(self, cost_ms: Sequence[float], shares: Sequence[float]) -> list[float]:
        """CPU time of a record that waits for each operator, through all that follow, further nodes included."""
        through_ms, path_ms = [0.0] * len(cost_ms), self.downstream_cost_s * 1e3
        for i in reversed(range(len(cost_ms))):
            path_ms = through_ms[i] = cost_ms[i] + shares[i] * path_ms
        learned = self._learned.event_cost_s if self._learned is not None else None
        if learned is not None and not any(cost_ms):
            through_ms = [learned * 1e3] * len(cost_ms)
        return through_ms

    # Reports

    def late(self, now_us: int) -> str:
        """Fault of its watermarks, in words; empty where there is none."""
        return self.tracker.late(now_us) if self.tracker is not None else ""

    def sweep_rows(self, sweeps: Sequence[WindowSweep], epoch_us: int, config_version: int) -> list[dict[str, Any]]:
        """`agent.wire.SWEEPS` of the windows that were swept in an epoch."""
        return [self._sweep_row(sweep, epoch_us, config_version) for sweep in sweeps]

    def _sweep_row(self, sweep: WindowSweep, epoch_us: int, config_version: int) -> dict[str, Any]:
        forecast = self.tracker.expected(sweep.deadline_us) if self.tracker is not None else None
        late_us = sweep.arrived_us - sweep.deadline_us
        return {
            "query": self.pipeline.query,
            "plan": self.pipeline.plan,
            "stream": self.pipeline.config.pipeline.source.id,
            "epoch_us": epoch_us,
            "deadline_us": sweep.deadline_us,
            "period_us": sweep.period_us,
            "arrived_us": sweep.arrived_us,
            "swept_us": sweep.swept_us,
            "emitted_us": sweep.emitted_us,
            "delay_s": max(late_us, 0) / 1e6,
            "clamped": late_us < 0,
            "mean_us": _us(forecast.mean_ms) if forecast is not None else None,
            "least_us": _us(forecast.least_ms) if forecast is not None else None,
            "most_us": _us(forecast.most_ms) if forecast is not None else None,
            "queued": sweep.queued,
            "work_s": sweep.work_s,
            "config_version": config_version,
        }

    def epoch_row(self, swept: Sequence[dict[str, Any]], now_us: int, began_ns: int) -> dict[str, Any]:
        """Scheduling part of an epoch's row, in short names.

        `q` records that wait, `qb` their bytes, `l` slack in seconds, `x` when the next sweeping watermark is expected
        and the interval, from now on where it is overdue, `w` windows that were swept: deadline, interval, arrival,
        sweep, emission; `t` spans of the epoch in which it ran: begin and length, milliseconds. Times are microseconds
        since 1970.
        """
        work = self._work()
        slack_ms = self._slack_ms(now_us / 1e3, work, self.pipeline.arrived_us)
        forecast = self.tracker.forecast if self.tracker is not None else None
        if forecast is not None:
            forecast = overdue_forecast(now_us / 1e3, forecast, self._settings.confidence)
        names = ("deadline_us", "least_us", "most_us", "arrived_us", "swept_us", "emitted_us")
        return {
            "q": sum(work.queued),
            "qb": self.pipeline.queued_bytes,
            "l": round(slack_ms / 1e3, DECIMALS) if slack_ms is not None else None,
            "x": [_us(forecast.mean_ms), _us(forecast.least_ms), _us(forecast.most_ms)] if forecast else None,
            "w": [[row[name] for name in names] for row in swept[-MAX_TOLD:]],
            "t": self.spans.take(began_ns),
            **self.deadlines.row(swept, now_us),
        }


def _product(records: Sequence[float], each_ms: Sequence[float]) -> float:
    return sum(map(mul, records, each_ms))


def _ms(time_us: int | None) -> float | None:
    return None if time_us is None else time_us / 1e3


def _us(time_ms: float) -> int:
    return int(time_ms * 1e3)
