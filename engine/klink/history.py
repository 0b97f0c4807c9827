"""What a stream's watermarks have been like: the last epochs' delays, and what they say of the next one.

Nothing that is added raises: a stream's clock may be wrong, and scheduling goes on. What was odd is counted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass
from math import fsum, isfinite

from engine.klink.distribution import LEAST_EPOCHS, empirical_interval, moments, normal_forecast
from engine.klink.view import SweepForecast

__all__ = ["SweepHistory", "SweepPrior"]

_PRIOR_EPOCHS = 30  # what was learned elsewhere counts as this many, less those of the stream's own
_ROUNDING = 1e-6  # relative: a mean square below the square of its mean by no more than this is rounding


@dataclass(frozen=True, slots=True)
class SweepPrior:
    """Delays as others have seen them: moments of `epochs`, and quantiles where they are known (ascending)."""

    mean_ms: float
    variance_ms2: float
    epochs: int
    levels: tuple[float, ...] = ()
    values_ms: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class _Epoch:
    mean_ms: float
    square_ms2: float
    alone: bool  # one delay, not the mean of several


class SweepHistory:
    """The last `length` epochs of a stream (h): mean delay and mean squared delay of each.

    Sums are made anew from what is kept, once for each epoch: a delay of hours that has left the history leaves
    nothing of it in the next variance.
    """

    def __init__(self, length: int, prior: SweepPrior | None = None) -> None:
        self.clamped = self.refused = 0  #: delays below 0 (skewed clocks), and what is no delay at all
        self.last_deadline_ms = float("-inf")
        self._epochs: deque[_Epoch] = deque(maxlen=max(1, length))
        self._prior = prior
        self._known: tuple[float, float, int, list[float]] | None = None

    def __len__(self) -> int:
        """Epochs of its own."""
        return len(self._epochs)

    def add(self, deadline_ms: float, mean_ms: float, square_ms2: float | None = None) -> bool:
        """An epoch's watermark has come: its deadline, mean delay and mean squared delay; False where it is not kept.

        One delay needs no square. Deadlines that are not after the last one are left out (a watermark that went
        back), delays below 0 are 0; neither numbers that are not finite nor a mean square below the squared mean are
        taken.
        """
        square = mean_ms * mean_ms if square_ms2 is None else square_ms2
        if not (isfinite(deadline_ms) and isfinite(mean_ms) and isfinite(square)):
            self.refused += 1
            return False
        if deadline_ms <= self.last_deadline_ms:
            return False
        self.clamped += mean_ms < 0
        if mean_ms < 0:
            mean_ms, square = 0.0, 0.0
        least = mean_ms * mean_ms
        if square < least * (1 - _ROUNDING):
            self.refused += 1
            return False
        self.last_deadline_ms = deadline_ms
        self._epochs.append(_Epoch(mean_ms, max(square, least), square_ms2 is None))
        self._known = None
        return True

    def adopt(self, length: int, prior: SweepPrior | None) -> None:
        """Go on with another length and another prior; of its own epochs the last `length` are kept."""
        self._epochs, self._prior, self._known = deque(self._epochs, maxlen=max(1, length)), prior, None

    @property
    def sums(self) -> tuple[float, float, float]:
        """S1, S2, S3: sums of the means (ms), of their squares and of the mean squares (ms2)."""
        means = [epoch.mean_ms for epoch in self._epochs]
        return fsum(means), fsum(mean * mean for mean in means), fsum(epoch.square_ms2 for epoch in self._epochs)

    def forecast(self, deadline_ms: float, confidence: float) -> SweepForecast:
        """When the watermark that sweeps the window of this deadline is expected.

        With fewer than three epochs, of others too: at the deadline itself. The interval is that of the delays
        themselves where there are enough for this confidence, of a prior's quantiles, or of the normal form.
        """
        if self._known is None:
            self._known = self._summed()
        mean_ms, variance_ms2, epochs, delays = self._known
        if epochs < LEAST_EPOCHS:
            return SweepForecast(deadline_ms, 0.0, deadline_ms, deadline_ms, epochs)
        normal = normal_forecast(deadline_ms, mean_ms, variance_ms2, epochs, confidence)
        interval = empirical_interval(delays, confidence)
        if interval is None and self._prior is not None and self._borrowed():
            interval = _prior_interval(self._prior, confidence)
        if interval is None:
            return normal
        least_ms, most_ms = interval
        return SweepForecast(normal.mean_ms, normal.deviation_ms, deadline_ms + least_ms, deadline_ms + most_ms, epochs)

    def _summed(self) -> tuple[float, float, int, list[float]]:
        """Mean, variance and number of epochs, those of the prior included; the delays of its own in order."""
        epochs, prior = self._epochs, self._prior
        mu, chi = [epoch.mean_ms for epoch in epochs], [epoch.square_ms2 for epoch in epochs]
        borrowed = self._borrowed()
        if prior is not None and borrowed:
            mu += [prior.mean_ms] * borrowed
            chi += [prior.mean_ms**2 + prior.variance_ms2] * borrowed
        if not mu:
            return 0.0, 0.0, 0, []
        alone = all(epoch.alone for epoch in epochs)
        delays = sorted(epoch.mean_ms for epoch in epochs) if alone else []
        return *moments(mu, chi), len(mu), delays

    def _borrowed(self) -> int:
        """Epochs of the prior that count: fewer with each of its own."""
        prior = self._prior
        return 0 if prior is None else max(0, min(prior.epochs, _PRIOR_EPOCHS) - len(self._epochs))


def _prior_interval(prior: SweepPrior, confidence: float) -> tuple[float, float] | None:
    """From the least known quantile to that of the confidence; None where none is known that high."""
    if not prior.levels or prior.levels[-1] < confidence:
        return None
    above = bisect_left(prior.levels, confidence)
    if above == 0 or prior.levels[above] == confidence:
        return prior.values_ms[0], prior.values_ms[above]
    low, high = prior.levels[above - 1], prior.levels[above]
    share = (confidence - low) / (high - low)
    lower, upper = prior.values_ms[above - 1], prior.values_ms[above]
    return prior.values_ms[0], lower + share * (upper - lower)
