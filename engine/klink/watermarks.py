"""Sweeping watermarks of a stream: its last epochs' delays, and when the next one is expected."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, fsum, isfinite, sqrt
from statistics import NormalDist, median

__all__ = [
    "MEAN_VARIANCE",
    "MIN_EPOCHS",
    "SweepForecast",
    "SweepHistory",
    "SweepPrior",
    "deviations",
    "empirical_interval",
    "find_level_shift",
    "moments",
    "normal_forecast",
    "stalled_epochs",
    "usual_epochs",
]

_RECENT = (20, 40)  # latest epochs that are held against those before them
_OLDER = (20, 80)  # so many of those before: at least, and at most
_SIGNIFICANT = 4.5  # deviations of the rank sum; 7 of a million by chance
_MIN_KEPT = 10
_OFF = 5.0  # deviations from the median of a level
_AS_FAR = 0.02  # of the share of pairs: one epoch of the old level among 25
_MAD_TO_DEVIATION = 1.4826  # of a normal: deviations in its median one
_FAR = 10.0  # deviations above the median, beyond which a delay belongs to a stall
_SPAN = 3  # epochs in a row that a stall spans at least; fewer may be a tail
_MAX_STALLED_SHARE = 0.4  # more is a level, or a stream of two


def find_level_shift(delays: Sequence[float]) -> int | None:
    """Number of the latest epochs that are at another level than those before them; None where none are.

    The latest 20 or 40 delays are held against up to 80 before them by the rank sum of Wilcoxon, which asks nothing of
    their distribution: a tail, or two values by turns, is no shift. The epochs since the shift are the most that lie as
    far from those before as any number of them does.

    Examples
    --------
    >>> steady = [300.0 + 7 * (number % 13) for number in range(60)]
    >>> find_level_shift(steady) is None
    True
    >>> find_level_shift([*steady, *(delay + 1000.0 for delay in steady[:16])])
    16
    """
    splits = [recent for recent in _RECENT if len(delays) - recent >= _OLDER[0]]
    if not any(_is_significant(delays, recent) for recent in splits):
        return None
    apart = {recent: abs(_superiority(delays, recent) - 0.5) for recent in range(_MIN_KEPT, splits[-1] + 1)}
    furthest = max(apart.values())
    shift = max(recent for recent, distance in apart.items() if distance >= furthest - _AS_FAR)
    return shift - _strangers(delays[-shift:])


def _strangers(delays: Sequence[float]) -> int:
    """First epochs that lie off the level of those after them: extremes of the level before it look like a new one."""
    middle = median(delays)
    limit = _OFF * _MAD_TO_DEVIATION * median(abs(delay - middle) for delay in delays)
    first = next((place for place, delay in enumerate(delays) if abs(delay - middle) <= limit), 0)
    return min(first, len(delays) - _MIN_KEPT)


def _older(delays: Sequence[float], recent: int) -> list[float]:
    """The delays before the `recent` latest that these are held against, ascending."""
    last = len(delays) - recent
    return sorted(delays[max(0, last - _OLDER[1]) : last])


def _is_significant(delays: Sequence[float], recent: int) -> bool:
    """z = (A - 1/2) sqrt(12 n m / (n + m + 1)) of n recent and m older delays; equal values make |z| smaller."""
    n, m = recent, min(len(delays) - recent, _OLDER[1])
    return abs(_superiority(delays, recent) - 0.5) * sqrt(12 * n * m / (n + m + 1)) >= _SIGNIFICANT


def _superiority(delays: Sequence[float], recent: int) -> float:
    """Share of pairs in which the recent delay is later than the older one, A = U / (n m); equal ones count half."""
    older = _older(delays, recent)
    u = sum(bisect_left(older, delay) + bisect_right(older, delay) for delay in delays[-recent:]) / 2
    return u / (recent * len(older))


def stalled_epochs(delays: Sequence[float]) -> frozenset[int]:
    """Positions of epochs in stalls: three or more in a row, each more than 10 deviations above the median.

    One pause of a stream delays all watermarks that fall into it: one event, however many windows it spans. The
    deviation is 1.4826 times the median one. Where more than two fifths of the epochs are so late, it is no stall.

    Examples
    --------
    >>> sorted(stalled_epochs([300.0, 310.0, 305.0, 290.0, 9000.0, 8000.0, 7000.0, 300.0, 310.0, 295.0]))
    [4, 5, 6]
    """
    if not delays:
        return frozenset()
    middle = median(delays)
    limit = middle + _FAR * _MAD_TO_DEVIATION * median(abs(delay - middle) for delay in delays)
    stalled: list[int] = []
    run: list[int] = []
    for position, delay in enumerate((*delays, middle)):
        if delay > limit:
            run.append(position)
        else:
            stalled += run if len(run) >= _SPAN else ()
            run = []
    return frozenset(stalled) if len(stalled) <= _MAX_STALLED_SHARE * len(delays) else frozenset()


#: Below it only the period of the windows is used.
MIN_EPOCHS = 3

#: The variance that the paper prints as equation 6, which is that of the mean of the history.
MEAN_VARIANCE = "eq6"

_MIN_JUDGED = 20  # epochs from which on quantiles tell which are none of their kind
_FEW_JUDGED = 3  # fewer of them tell nothing by themselves
_FAR_RANGES = 100.0  # over the epochs: ranges of the others, beyond which the latest of few is
_MAX_FAR_SHARE = 0.02  # more of them are a tail that belongs to the stream
_PRIOR_EPOCHS = 30  # what was learned elsewhere counts as this many, less those of the stream's own
_TO_DEVIATION, _MIDDLE_TENTHS = 1.4826, 2.563  # of a normal: deviations in its median one, and in eight tenths of it
_ROUNDING = 1e-6  # relative: a mean square below the square of its mean by no more than this is rounding


@dataclass(frozen=True, slots=True)
class SweepForecast:
    """Forecast of one stream's next sweeping watermark; milliseconds of any one clock."""

    mean_ms: float
    deviation_ms: float  #: 0 while only the period is known
    least_ms: float  #: of the interval that holds it with the wanted confidence
    most_ms: float
    epochs: int  #: windows behind it
    deadline_ms: float = 0.0  #: to which `delays` belong
    delays: tuple[float, ...] = ()  #: past ones in ascending order, for what is overdue; empty where they are few


def moments(mu: Sequence[float], chi: Sequence[float], mode: str = "predictive") -> tuple[float, float]:
    """Mean (ms) and variance (ms2) of the next delay, of epochs with mean delays `mu` and mean squares `chi`.

    `mode` "predictive" is the variance of one delay, mean(chi) - mean(mu)^2, summed up as that within epochs and that
    between them, so that nothing cancels; "eq6" is the paper's equation 6, the variance of the mean of the history.

    References
    ----------
    Klink, section 3.1, equations 3-6.
    """
    count = len(mu)
    mean = fsum(mu) / count
    within = fsum(square - value * value for value, square in zip(mu, chi, strict=True)) / count
    if mode == MEAN_VARIANCE:
        return mean, max(0.0, within / count)
    between = fsum((value - mean) ** 2 for value in mu) / count
    return mean, max(0.0, within + between)


def deviations(confidence: float) -> float:
    """Standard deviations on either side of the mean, between which a normal value lies with this confidence.

    Examples
    --------
    >>> round(deviations(0.95), 6)
    1.959964
    """
    return NormalDist().inv_cdf((1 + confidence) / 2)


def normal_forecast(
    deadline_ms: float, mean_ms: float, variance_ms2: float, epochs: int, confidence: float
) -> SweepForecast:
    """The watermark of a deadline, which comes after a delay of this mean and variance: w = g + period + delay."""
    expected_ms, deviation_ms = deadline_ms + mean_ms, sqrt(variance_ms2)
    half_ms = deviations(confidence) * deviation_ms
    return SweepForecast(expected_ms, deviation_ms, expected_ms - half_ms, expected_ms + half_ms, epochs)


def empirical_interval(delays: Sequence[float], confidence: float) -> tuple[float, float] | None:
    """Least and most delay that hold the next one with this confidence, if it is exchangeable with those known.

    `delays` are in ascending order. Of n + 1 delays of which each is as likely as any other to be the next (they need
    not be normal, but without trend, and no stall spans several), the next lies between the first and the k-th of the
    n that are known with a probability of (k - 1) / (n + 1) or more. That is the mean over all histories, not of the
    one at hand. None where n is too small for the confidence.

    Examples
    --------
    >>> empirical_interval([float(delay) for delay in range(39)], 0.95)
    (0.0, 38.0)
    >>> empirical_interval([1.0, 2.0], 0.95) is None
    True
    """
    count = len(delays)
    rank = ceil(confidence * (count + 1) - 1e-9) + 1
    return (delays[0], delays[rank - 1]) if 1 < rank <= count else None


@dataclass(frozen=True, slots=True)
class SweepPrior:
    """Prior of delays: moments of `epochs`, and quantiles where they are known (ascending)."""

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


@dataclass(frozen=True, slots=True)
class _Known:
    mean_ms: float
    variance_ms2: float
    epochs: int
    delays: list[float]  # ascending; of own epochs, where each is one delay
    tail: tuple[float, ...]  # ascending; for what is overdue


class SweepHistory:
    """The last `length` epochs of a stream (h): mean delay and mean squared delay of each.

    When the level of the delays shifts, those before it are dropped, and so is the prior; a stall that spans windows
    counts in no figure (`engine.klink.watermarks`).

    Sums are made anew from what is kept, once for each epoch: a delay of hours that has left the history leaves
    nothing of it in the next variance.
    """

    def __init__(self, length: int, prior: SweepPrior | None = None) -> None:
        self.clamped = self.refused = 0  #: delays below 0 (skewed clocks), and what is no delay at all
        self.last_deadline_ms = float("-inf")
        self._epochs: deque[_Epoch] = deque(maxlen=max(1, length))
        self._prior = prior
        self._known: _Known | None = None

    def __len__(self) -> int:
        """Epochs of its own."""
        return len(self._epochs)

    def add(self, deadline_ms: float, mean_ms: float, square_ms2: float | None = None) -> bool:
        """Add an epoch: its deadline, mean delay and mean squared delay; False if it is not kept.

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
        if shift := find_level_shift([epoch.mean_ms for epoch in self._epochs]):
            # what came before, here or elsewhere, tells nothing of the level that the stream has now
            self._epochs, self._prior = deque(list(self._epochs)[-shift:], maxlen=self._epochs.maxlen), None
        return True

    def adopt(self, length: int, prior: SweepPrior | None) -> None:
        """Adopt another length and another prior; the last `length` own epochs are kept."""
        self._epochs, self._prior, self._known = deque(self._epochs, maxlen=max(1, length)), prior, None

    @property
    def sums(self) -> tuple[float, float, float]:
        """S1, S2, S3: sums of the means (ms), of their squares and of the mean squares (ms2)."""
        means = [epoch.mean_ms for epoch in self._epochs]
        return fsum(means), fsum(mean * mean for mean in means), fsum(epoch.square_ms2 for epoch in self._epochs)

    def forecast(self, deadline_ms: float, confidence: float) -> SweepForecast:
        """Forecast of the watermark that sweeps the window of this deadline.

        With fewer than three epochs, of others too: at the deadline itself. The interval is that of the delays
        themselves where there are enough for this confidence, of a prior's quantiles, or of the normal form.
        """
        if self._known is None:
            self._known = self._summed()
        known = self._known
        if known.epochs < MIN_EPOCHS:
            return SweepForecast(deadline_ms, 0.0, deadline_ms, deadline_ms, known.epochs)
        normal = normal_forecast(deadline_ms, known.mean_ms, known.variance_ms2, known.epochs, confidence)
        normal = replace(normal, deadline_ms=deadline_ms, delays=known.tail)
        interval = empirical_interval(known.delays, confidence)
        if interval is None and self._prior is not None and self._borrowed():
            interval = _prior_interval(self._prior, confidence)
        if interval is None:
            return normal
        least_ms, most_ms = interval
        return replace(normal, least_ms=deadline_ms + least_ms, most_ms=deadline_ms + most_ms)

    def _summed(self) -> _Known:
        """Figures of the epochs, those of the prior included, and of the delays of its own."""
        stalled = stalled_epochs([epoch.mean_ms for epoch in self._epochs])
        own = [epoch for position, epoch in enumerate(self._epochs) if position not in stalled]
        prior, borrowed = self._prior, self._borrowed()
        epochs = _regular(own, prior if borrowed else None)
        mu, chi = [epoch.mean_ms for epoch in epochs], [epoch.square_ms2 for epoch in epochs]
        if prior is not None and borrowed:
            mu += [prior.mean_ms] * borrowed
            chi += [prior.mean_ms**2 + prior.variance_ms2] * borrowed
        if not mu:
            return _Known(0.0, 0.0, 0, [], ())
        alone = all(epoch.alone for epoch in own)
        tail = _tail(own, epochs, _spread(prior, borrowed) if prior is not None else []) if alone else ()
        return _Known(*moments(mu, chi), len(mu), sorted(epoch.mean_ms for epoch in own) if alone else [], tail)

    def _borrowed(self) -> int:
        """Epochs of the prior that count: fewer with each of its own."""
        prior = self._prior
        return 0 if prior is None else max(0, min(prior.epochs, _PRIOR_EPOCHS) - len(self._epochs))


def usual_epochs(means: Sequence[float]) -> list[int]:
    """Which epoch counts in place of each, by their mean delays (ms): itself, or the latest of the others where it is
    none of their kind.

    A start or a pause delays one watermark by seconds, and would shift the mean for as long as it is kept. Of fewer
    than 20 epochs the latest is none of their kind if it lies further above the next than 100 / n times the range of
    the others (a gap as in Dixon's test). Of more an epoch is none of their kind if it lies more than 10 deviations
    above the median, by the median deviation or that of the middle eight tenths, whichever is larger; where more than
    2 % do, the stream has such a tail.

    Examples
    --------
    >>> usual_epochs([12_000.0, 300.0, 310.0, 305.0])
    [2, 1, 2, 3]
    """
    own = list(range(len(means)))
    if len(means) < _FEW_JUDGED:
        return own
    order = sorted(own, key=means.__getitem__)
    if len(means) < _MIN_JUDGED:
        first, second, last = (means[order[place]] for place in (0, -2, -1))
        if last - second > _FAR_RANGES / len(means) * (second - first) > 0.0:
            own[order[-1]] = order[-2]
        return own
    middle = median(means)
    spread_ms = median(abs(mean - middle) for mean in means) * _TO_DEVIATION
    tenth = len(means) // 10
    spread_ms = max(spread_ms, (means[order[-1 - tenth]] - means[order[tenth]]) / _MIDDLE_TENTHS)
    limit_ms = middle + _FAR * spread_ms
    far = sum(mean > limit_ms for mean in means)
    if not 0 < far <= max(1.0, _MAX_FAR_SHARE * len(means)) or spread_ms <= 0.0:
        return own
    latest = order[-1 - far]
    return [latest if means[index] > limit_ms else index for index in own]


def _regular(epochs: list[_Epoch], prior: SweepPrior | None) -> list[_Epoch]:
    """The epochs with each that is none of their kind replaced (`usual_epochs`).

    While they are few, a prior that counts tells it too: the only one more than 10 of its deviations above its mean.
    """
    if prior is not None and len(epochs) < _MIN_JUDGED <= prior.epochs and prior.variance_ms2 > 0:
        limit_ms = prior.mean_ms + _FAR * sqrt(prior.variance_ms2)
        near = [epoch for epoch in epochs if epoch.mean_ms <= limit_ms]
        if len(near) == len(epochs) - 1:
            expected = _Epoch(prior.mean_ms, prior.mean_ms**2, alone=True)
            latest = max(near, key=lambda epoch: epoch.mean_ms, default=expected)
            return [epoch if epoch.mean_ms <= limit_ms else latest for epoch in epochs]
    return [epochs[index] for index in usual_epochs([epoch.mean_ms for epoch in epochs])]


def _tail(own: list[_Epoch], regular: list[_Epoch], borrowed: list[float]) -> tuple[float, ...]:
    """Delays that tell how late an overdue one gets; without one that is alone in being none of their kind."""
    if len(own) + len(borrowed) < _MIN_JUDGED:
        return ()
    replaced = sum(epoch is not kept for epoch, kept in zip(own, regular, strict=True))
    epochs = regular if replaced == 1 else own
    return tuple(sorted([*borrowed, *(epoch.mean_ms for epoch in epochs)]))


def _spread(prior: SweepPrior, count: int) -> list[float]:
    """So many delays, spread evenly over a prior's quantiles; none where these do not reach as high."""
    levels = [(place + 0.5) / count for place in range(count)]
    if not levels or not prior.levels or prior.levels[-1] < levels[-1]:
        return []
    return [_quantile(prior, level) for level in levels]


def _prior_interval(prior: SweepPrior, confidence: float) -> tuple[float, float] | None:
    """Interval from the lowest known quantile to that of the confidence; None where none is known that high."""
    if not prior.levels or prior.levels[-1] < confidence:
        return None
    return prior.values_ms[0], _quantile(prior, confidence)


def _quantile(prior: SweepPrior, level: float) -> float:
    """Between the two known ones next to it; below the lowest level its value."""
    above = bisect_left(prior.levels, level)
    if above == 0 or prior.levels[above] == level:
        return prior.values_ms[above]
    low, high = prior.levels[above - 1], prior.levels[above]
    lower, upper = prior.values_ms[above - 1], prior.values_ms[above]
    return lower + (level - low) / (high - low) * (upper - lower)
