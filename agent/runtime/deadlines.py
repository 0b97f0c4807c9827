"""Deadlines of windows and records: when watermarks are expected, and which records are dropped under overload."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from agent.runtime.downstream import Delay
from agent.runtime.query.pipeline import LocalPipeline
from agent.runtime.query.record_queue import QueuedMark, swept_windows
from engine.deadlines.grouped_array import GroupedSchedule
from engine.klink.settings import ScheduleSettings, WatermarkPrior
from engine.klink.watermarks import MIN_EPOCHS, SweepForecast, SweepHistory, SweepPrior

__all__ = ["QueryDeadlines", "StreamTracker", "WaitingRecords", "records_to_drop", "sweep_prior"]

MAX_EXPECTED = 200  # windows of which it is kept when their watermark was expected, until they are swept
RECENT = 8  # delays from which clock skew is judged
SKEW_US = 600_000_000  # event time that is behind the clock by more is of another time: a recording, a wrong clock
LATE_S = 10.0  # a watermark that stands still for less is no fault


def sweep_prior(learned: WatermarkPrior) -> SweepPrior | None:
    """Delays learned elsewhere, as a history takes them; None where only the period is known."""
    if learned.mean_s is None or learned.variance_s2 is None:
        return None
    quantiles = learned.quantiles
    return SweepPrior(
        mean_ms=learned.mean_s * 1e3,
        variance_ms2=learned.variance_s2 * 1e6,
        epochs=learned.epochs,
        levels=quantiles.levels if quantiles is not None else (),
        values_ms=tuple(value * 1e3 for value in quantiles.values_s) if quantiles is not None else (),
    )


class StreamTracker:
    """The windows of one query on one stream. Times are microseconds of the epochs' labels.

    A delay is the time from a window's end until the watermark had passed it here. Where event time and the clock are
    apart, because a recording is given out or a clock is wrong, deadlines are reckoned with that difference.
    """

    def __init__(self, stream: str, period_us: int, settings: ScheduleSettings, prior: SweepPrior | None) -> None:
        self.stream, self.period_us = stream, period_us
        self._by = (settings.history, prior)
        self._confidence = settings.confidence
        self._history = SweepHistory(*self._by)
        self._watermark_us = self._moved_us = 0  # the newest watermark, and when it came; 0 while there was none
        self._recent: deque[int] = deque(maxlen=RECENT)
        self._expected: dict[int, SweepForecast | None] = {}  # by deadline
        self._next: SweepForecast | None = None
        self._untold = False

    def learn(self, settings: ScheduleSettings, prior: SweepPrior | None) -> None:
        """Use new settings, or delays learned elsewhere; local measurements are kept."""
        if self._by != (settings.history, prior):
            self._by, self._next = (settings.history, prior), None
            self._history.adopt(*self._by)
        if self._confidence != settings.confidence:
            self._confidence, self._next = settings.confidence, None

    def read(self, watermark_us: int, now_us: int) -> None:
        """The stream's watermark, as it is now; 0 while there is none. One that goes back changes nothing."""
        before_us = self._watermark_us
        if watermark_us <= before_us:
            return
        self._watermark_us, self._moved_us = watermark_us, now_us
        if not before_us:  # windows of before the start are not late
            return
        mark = QueuedMark(watermark_us, now_us)
        deadlines_us = [sweep.deadline_us for sweep in swept_windows(mark, before_us, self.period_us, now_us)]
        self._expected |= {deadline_us: self._known_forecast(deadline_us) for deadline_us in deadlines_us}
        while len(self._expected) > MAX_EXPECTED:
            del self._expected[next(iter(self._expected))]
        self._untold = self._untold or bool(deadlines_us)
        for deadline_us in deadlines_us:
            self._recent.append(now_us - deadline_us)
            self._history.add(deadline_us / 1e3, (now_us - deadline_us) / 1e3)
            self._next = None

    def take_delay(self) -> Delay | None:
        """Delay of watermarks; None where no window was passed since the last call."""
        if not self._untold:
            return None
        self._untold = False
        forecast, period_s = self._history.forecast(0.0, self._confidence), self.period_us / 1e6
        if forecast.epochs < MIN_EPOCHS:
            return Delay(period_s, forecast.epochs)
        return Delay(period_s, forecast.epochs, forecast.mean_ms / 1e3, forecast.deviation_ms**2 / 1e6)

    def expected(self, deadline_us: int) -> SweepForecast | None:
        """Expected arrival of the watermark of a swept window; None where only the period was known."""
        return self._expected.pop(deadline_us, None)

    @property
    def skew_us(self) -> int:
        """Clock skew of event time: behind the clock (below 0: ahead of it), 0 where the two agree."""
        recent = self._recent
        if len(recent) < MIN_EPOCHS:
            return 0
        return min(recent) if min(recent) > SKEW_US or max(recent) < 0 else 0

    @property
    def forecast(self) -> SweepForecast | None:
        """Expected next sweeping watermark; None before the first watermark."""
        if self._next is None and self._watermark_us:
            self._next = self._forecast((self._watermark_us // self.period_us + 1) * self.period_us)
        return self._next

    def _forecast(self, deadline_us: int) -> SweepForecast:
        ahead_us = min(self.skew_us, 0)  # of watermarks before their time the history keeps that they were not late
        return self._history.forecast((deadline_us + ahead_us) / 1e3, self._confidence)

    def _known_forecast(self, deadline_us: int) -> SweepForecast | None:
        forecast = self._forecast(deadline_us)
        return forecast if forecast.epochs >= MIN_EPOCHS else None

    def late(self, now_us: int) -> str:
        """Fault of its watermarks, in words; empty where there is none."""
        forecast = self.forecast
        if forecast is None:
            return ""
        silent_s = (now_us - self._moved_us) / 1e6
        if silent_s > LATE_S and now_us / 1e3 > forecast.most_ms:
            return f"no watermark for {silent_s:,.0f} s"
        if skew_us := self.skew_us:
            skew_s = f"{abs(skew_us) / 1e6:,.0f} s"
            if skew_us > 0:
                return f"event time is {skew_s} behind the clock"
            return f"event time is {skew_s} ahead of the clock"
        return ""


UNITS = 100  # of the shortest constraint: deadlines are rounded down to these
MAX_BUCKETS = 2_000  # later deadlines are alike
MAX_CONSTRAINT_S = 1e9  # longer ones are alike
MAX_PRIORITY = 10  # a step doubles the weight; beyond a thousandfold more of it says nothing


class QueryDeadlines:
    """When records of one query have to leave the agent, and how many of its records or windows did in time.

    A window is due a constraint after its end, a record of a query without windows a constraint after it came; less the
    time that the stream processor takes. Whatever is processed, drained or overflows in an epoch leaves at its end.
    """

    def __init__(self, pipeline: LocalPipeline, tracker: StreamTracker | None) -> None:
        self._pipeline, self._tracker = pipeline, tracker
        self._ends_us = self._epoch_us = self._stream_us = self._closing_us = 0

    def begin(self, ends_us: int, epoch_us: int, stream_delay_s: float, closing_us: int) -> None:
        """Begin an epoch of this length and end; what leaves with it is out `closing_us` later."""
        self._ends_us, self._epoch_us, self._stream_us = ends_us, epoch_us, int(stream_delay_s * 1e6)
        self._closing_us = closing_us

    @property
    def constraint_s(self) -> float | None:
        """Latency constraint of the query; None where it has none."""
        given_s = self._pipeline.config.latency_constraint_s
        return None if given_s is None else min(given_s, MAX_CONSTRAINT_S)

    @property
    def weight(self) -> float:
        """Worth of a record in time beside those of other queries."""
        return float(2.0 ** max(-MAX_PRIORITY, min(MAX_PRIORITY, self._pipeline.config.priority)))

    @property
    def can_hold(self) -> bool:
        """Whether there is a constraint that an order can keep: what has just come may wait for an epoch's end."""
        return self.constraint_s is not None and self._allowed_us >= self._epoch_us

    @property
    def _allowed_us(self) -> int:
        """Time from the beginning of a deadline until something has to leave here."""
        return int((self.constraint_s or 0.0) * 1e6) - self._stream_us

    def waiting(self) -> list[tuple[int, int]]:
        """By which epoch's end records at the first operator have to be done: (time, records), ascending."""
        groups = self._pipeline.waiting_groups()
        dues_us = accumulate((self._due_us(arrived_us, window_us) for arrived_us, window_us, _ in groups), max)
        return [(due_us, records) for due_us, (_, _, records) in zip(dues_us, groups, strict=True)]

    def _due_us(self, arrived_us: int, window_us: int) -> int:
        begins_us = arrived_us if self._pipeline.period_us is None else window_us + self._skew_us
        return begins_us + self._allowed_us - self._closing_us

    @property
    def _skew_us(self) -> int:
        return self._tracker.skew_us if self._tracker is not None else 0

    @property
    def first_us(self) -> int:
        """When the next record has to leave; the epoch's end for what was begun."""
        waiting = self.waiting()
        return waiting[0][0] if waiting else self._ends_us

    def give_up(self, records: int) -> None:
        """The first records go on unprocessed; those that are late everywhere are shed where the query allows that."""
        shed = 0
        if self._pipeline.config.shed_late:
            # for sure, even if this epoch is closed in no time
            late = sum(count for due_us, count in self.waiting() if due_us + self._closing_us < self._ends_us)
            shed = min(late, records)
        self._pipeline.give_up(records, shed)

    def row(self, swept: Sequence[Mapping[str, Any]], emitted_us: int) -> dict[str, int]:
        """Part of an epoch's row: `oc` records or windows that were counted in it, `ot` those of them in time.

        Windows count when they are swept, records of a query without windows when they leave.
        """
        if self.constraint_s is None:
            return {}
        if self._pipeline.period_us is None:
            left = [(arrived_us, records) for arrived_us, records in self._pipeline.take_leaving()]
        else:
            left = [(window["deadline_us"] + self._skew_us, 1) for window in swept]
        in_time = sum(count for begin_us, count in left if emitted_us <= begin_us + self._allowed_us)
        return {"oc": sum(count for _, count in left), "ot": in_time}


@dataclass(frozen=True)
class WaitingRecords:
    """Records of one query that wait at its first operator."""

    dues: Sequence[tuple[int, int]]  #: when so many of them have to leave, ascending; microseconds
    cost_s: float  #: CPU time of one through all operators here
    weight: float
    constraint_s: float


def records_to_drop(
    queries: Sequence[WaitingRecords], *, now_us: int, ends_us: int, epoch_us: int, begun_s: float, cores: float
) -> list[int]:
    """For each query, how many of its first records are not to be processed here: the others can be, in time.

    `begun_s` is CPU time that goes first, `cores` what these queries have of a core.

    Notes
    -----
    All records of a query cost the same, so its first ones may go in place of the latest that the grouped array drops:
    those that stay have later deadlines, and the same number of them still fits. Deadlines that have passed are alike,
    as are those beyond `MAX_BUCKETS` units: clocks of sources may be years off.

    Examples
    --------
    >>> waiting = WaitingRecords([(2_000_000, 30), (3_000_000, 30)], 0.1, 1.0, 3.0)
    >>> records_to_drop([waiting], now_us=0, ends_us=1_000_000, epoch_us=1_000_000, begun_s=0.0, cores=1.0)
    [30]
    """
    unit_s = min(query.constraint_s for query in queries) / UNITS
    reach_s = MAX_BUCKETS * unit_s
    schedule = GroupedSchedule(unit_s, [query.cost_s / cores for query in queries], [query.weight for query in queries])
    for level, query in enumerate(queries):
        # by the end of the last epoch with which they may leave
        leaves_us = [(due_us - ends_us) // epoch_us * epoch_us + ends_us for due_us, _ in query.dues]
        dues_s = [min(max((leave_us - now_us) / 1e6, -unit_s), reach_s) for leave_us in leaves_us]
        schedule.release(dues_s, [level] * len(dues_s), [count for _, count in query.dues])
    schedule.sweep(begun_s / cores)
    kept = schedule.by_level()
    return [sum(count for _, count in query.dues) - kept[level] for level, query in enumerate(queries)]
