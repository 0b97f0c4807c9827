"""A rate over time as a line through points, and when its n-th record is due."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["RateCurve"]


class RateCurve:
    """Records per second over time: `rate_per_s` times a factor that runs straight between its points.

    Parameters
    ----------
    rate_per_s
        Records per second where the factor is 1.
    points
        ``(second, factor)``, seconds ascending from 0 on, factors >= 0. Before the first point and after the last the
        factor stays as it is there. Without points it is 1.
    period_s
        The curve repeats after this time; points behind it do not count.

    Notes
    -----
    The number of records due until ``t`` is the integral of the rate, a quadratic in each piece, so the due time of
    record ``n`` follows in closed form: within a piece of rate ``r`` and slope ``s``, ``m`` records take
    ``2 m / (r + sqrt(r^2 + 2 s m))`` seconds. Numbers start at 0, and so does time.

    Examples
    --------
    >>> RateCurve(10.0).due_s(np.array([0, 5, 20])).tolist()
    [0.0, 0.5, 2.0]
    """

    def __init__(
        self, rate_per_s: float, points: Sequence[Sequence[float]] = (), period_s: float | None = None
    ) -> None:
        knots = [(float(at), rate_per_s * float(factor)) for at, factor in points] or [(0.0, rate_per_s)]
        if period_s is not None:
            knots = _until(knots, period_s)
        if knots[0][0] > 0:
            knots.insert(0, (0.0, knots[0][1]))
        self._at = np.array([at for at, _ in knots])
        self._rate = np.array([rate for _, rate in knots])
        width = np.diff(self._at)
        self._slope = np.append(np.diff(self._rate) / np.where(width > 0, width, 1.0), 0.0)
        self._due = np.append(0.0, np.cumsum(width * (self._rate[1:] + self._rate[:-1]) / 2))
        self._period_s = period_s

    @property
    def records(self) -> float:
        """How many records the curve gives in all; infinite unless its rate ends at 0."""
        ends = self._period_s is None and self._rate[-1] == 0
        return float(np.floor(self._due[-1])) if ends else np.inf

    def due_s(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Seconds after the start at which the records `numbers` are due; infinite for those that never are."""
        wanted = numbers.astype(np.float64)
        if self._period_s is None:
            return self._within(wanted)
        rounds = np.floor(wanted / self._due[-1])
        return rounds * self._period_s + self._within(wanted - rounds * self._due[-1])

    def _within(self, wanted: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        piece = np.clip(np.searchsorted(self._due, wanted, side="right") - 1, 0, len(self._due) - 1)
        more = wanted - self._due[piece]
        rate, slope = self._rate[piece], self._slope[piece]
        root = np.sqrt(np.maximum(rate**2 + 2 * slope * more, 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            took = np.where(more > 0, 2 * more / (rate + root), 0.0)
        return np.asarray(self._at[piece] + took)


def _until(knots: list[tuple[float, float]], period_s: float) -> list[tuple[float, float]]:
    """The knots up to the period's end, with one at the end itself."""
    kept = [knot for knot in knots if knot[0] < period_s] or [(0.0, knots[0][1])]
    behind = next((knot for knot in knots if knot[0] >= period_s), None)
    (at, rate) = kept[-1]
    if behind is not None and behind[0] > at:
        rate += (behind[1] - rate) * (period_s - at) / (behind[0] - at)
    return [*kept, (period_s, rate)]
