"""Arrival of the watermarks that complete a query's windows: delays so far, and when the next is expected."""

from __future__ import annotations

from collections import deque

from agent.runtime.downstream import Delay
from agent.runtime.query.record_queue import QueuedMark, swept_windows
from engine.klink.settings import ScheduleSettings, WatermarkPrior
from engine.klink.watermarks import MIN_EPOCHS, SweepForecast, SweepHistory, SweepPrior

__all__ = ["StreamTracker", "sweep_prior"]

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
