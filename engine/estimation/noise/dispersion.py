"""Dispersion of arrivals and costs: the numbers that a walk needs, from counts and batches, and what is assumed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.document.elements import THESE, Batch, Input, Source
from engine.estimation.noise.streams import SAMPLE, spread_chances, spread_draws
from engine.records import Fact

__all__ = [
    "MEASURED_FINELY",
    "OU_MEAN_VARIANCE",
    "ArrivalNoise",
    "CostNoise",
    "arrival_noise",
    "cost_noise",
    "dispersion",
    "dispersion_below_grid",
    "input_costs",
    "largest_service",
    "thinning_variance",
]

#: Variance of the average of an Ornstein-Uhlenbeck process over one correlation time, as a share of its variance.
OU_MEAN_VARIANCE = 2.0 * math.exp(-1.0)

_POISSON_UP_TO = 1.2  # a dispersion of so little above 1 is chance
_MIN_SLICES = 64  # of which the dispersion inside slices can be told
_MIN_STEPS = 5  # of which the dispersion of steps can be told
_DEFAULT_DISPERSION = 4.0  # of arrivals of which fewer steps are known
_MAX_DISPERSION = 1e4
_SHORTEST = 1 / 64  # of a step: the shortest time in which the rate inside it may move, where that was not measured
_MAX_RATE_VARIANCE = 100.0
_MAX_BATCH_CV2 = 4.0  # batches cannot tell single costs from slow changes; above, the slow ones get the rest
_BY_CHANCE = 1.7  # standard errors of a dispersion of batches, sqrt(2 / (G - 1)), that are no slow component
_MAX_UNSURE = 0.7
#: Of a step: a dispersion measured at no more tells what happens inside it.
MEASURED_FINELY = 1 / 8


@dataclass(frozen=True, slots=True)
class CostNoise:
    """Randomness of one input's cost.

    Attributes
    ----------
    cv2 : float
        Variance of one event's cost over its squared mean.
    slow : float
        Relative variance of a slow component, an Ornstein-Uhlenbeck factor.
    length : float
        Correlation length of that component in events; 0 without one.
    cost_error, output_error : float
        Relative standard errors of the mean cost and of the selectivity.
    freedom : float
        Degrees of freedom of both; 0 where no sample is known.
    unsure : float
        Relative standard error of `cv2` itself.
    from_batches : bool
        Whether `cv2` is that of the batches, and as uncertain.
    assumed : str
        Sentence about what was assumed of the cost, empty where it was given.
    """

    cv2: float = 0.0
    slow: float = 0.0
    length: float = 0.0
    cost_error: float = 0.0
    output_error: float = 0.0
    freedom: float = 0.0
    unsure: float = 0.0
    assumed: Fact | str = ""
    from_batches: bool = False

    def of_these(self) -> CostNoise:
        """The same for statistics counted on the very arrivals that are estimated: without errors of a sample."""
        return replace(self, cost_error=0.0, output_error=0.0, freedom=0.0, unsure=0.0, from_batches=False)


@dataclass(frozen=True, slots=True)
class ArrivalNoise:
    """Randomness of one source's arrivals.

    Attributes
    ----------
    inside : float
        Index of dispersion inside a slice.
    step_s : float
        Width at which the counts are known, a multiple of the slice's.
    index : float
        Index of dispersion of counts over `length_s`, where the steps are wider than a slice.
    unit : float
        Relative variance that the rate inside a step has per 1 of that index above 1.
    length_s : float
        Correlation time of that rate; the longest it may be where it was not measured.
    shortest_s : float
        The shortest it may be.
    freedom : float
        Degrees of freedom of the index where steps tell it; 0 where it was given.
    assumed : str
        Sentence about the model inside steps; empty where counts are known slice by slice, or it is not `unknown`.
    unknown : bool
        Whether that model rests on no measurement at a slice, or at an eighth of a step, or less.
    """

    inside: float
    step_s: float
    index: float = 1.0
    unit: float = 0.0
    length_s: float = 1.0
    shortest_s: float = 1.0
    freedom: float = 0.0
    assumed: Fact | str = ""
    unknown: bool = False

    def draw_rates(self, paths: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Relative variance and correlation time of the rate inside a step in every path, (K,) each.

        Counts of steps do not tell how fast the rate moves inside them: every octave of times is as likely, and the
        variance is such that counts over `length_s` disperse by the index.
        """
        index = np.full(paths, self.index)
        if self.freedom > 0.0:
            index *= spread_draws(self.freedom / rng.chisquare(self.freedom, SAMPLE), paths, rng)
        ratio = (self.shortest_s / self.length_s) ** spread_chances(paths, rng)
        averaged = 2.0 * ratio * (1.0 - ratio * (1.0 - np.exp(-1.0 / ratio)))
        variance = np.maximum(index - 1.0, 0.0) * self.unit * OU_MEAN_VARIANCE / averaged
        return np.minimum(variance, _MAX_RATE_VARIANCE), ratio * self.length_s


def dispersion(counts: npt.ArrayLike) -> float:
    """Index of dispersion of counts, shape (n,), from neighbours so that trends cancel; nan without two or events.

    Examples
    --------
    >>> dispersion([4, 6, 4])
    0.42857142857142855
    """
    values = np.asarray(counts, dtype=np.float64)
    if len(values) < 2 or not values.mean() > 0.0:
        return math.nan
    return float(((values[1:] - values[:-1]) ** 2).mean() / 2.0 / values.mean())


def dispersion_below_grid(counts: npt.ArrayLike) -> float:
    """Index of dispersion inside slices, from that of slices D1 and of pairs D2: 1 + (D1 - 1) 4^-g.

    g = log2((D2 - 1) / (D1 - 1)), cut to [0, 1]: slow bursts give 1, clumps that fall within a slice give D1.
    """
    values = np.asarray(counts, dtype=np.float64)
    single = dispersion(values)
    if len(values) < _MIN_SLICES or not single > _POISSON_UP_TO:
        return 1.0
    pairs = dispersion(values[: len(values) // 2 * 2].reshape(-1, 2).sum(axis=1))
    growth = math.log2(max(pairs - 1.0, 1e-9) / (single - 1.0))
    return 1.0 + (single - 1.0) * 4.0 ** -min(1.0, max(0.0, growth))


def arrival_noise(source: Source, subinterval_s: float) -> ArrivalNoise:
    """Randomness of a source whose counts are given per slice of `subinterval_s`, known per `arrivals_step_s`."""
    step = source.arrivals_step_s or subinterval_s
    slices = round(step / subinterval_s)
    given_at = source.dispersion_step_s or step
    given_inside = source.dispersion is not None and given_at <= subinterval_s
    if slices <= 1:
        inside = source.dispersion if given_inside else dispersion_below_grid(source.arrivals)
        return ArrivalNoise(inside or 0.0, subinterval_s)
    known = np.add.reduceat(source.arrivals, np.arange(0, len(source.arrivals), slices))
    index, at, freedom, shortest = source.dispersion, given_at, 0.0, given_at
    if index is None:
        index, freedom = _default_dispersion(known)
        at, shortest = step, max(step * _SHORTEST, subinterval_s)
    rate = max(float(known.mean()) / step, 1e-12)
    unknown = source.dispersion is None or at > max(subinterval_s, MEASURED_FINELY * step)
    kind = "estimation.arrivals_within" if source.dispersion is None else "estimation.arrivals_inside"
    names = {"source": source.id, "step_s": step, "index": index, "at_s": at, "shortest_s": shortest}
    return ArrivalNoise(
        inside=(source.dispersion or 0.0) if given_inside else 1.0,
        step_s=step,
        index=index,
        unit=1.0 / (rate * at) / OU_MEAN_VARIANCE,
        length_s=at,
        shortest_s=shortest,
        freedom=freedom,
        assumed=Fact(kind, **names) if unknown else "",
        unknown=unknown,
    )


def _default_dispersion(known: FloatArray) -> tuple[float, float]:
    """Index of dispersion of the counts of steps, and its degrees of freedom."""
    if len(known) < _MIN_STEPS:
        return _DEFAULT_DISPERSION, _MIN_STEPS - 1.0
    index = dispersion(known)
    return min(max(1.0, index), _MAX_DISPERSION) if math.isfinite(index) else 1.0, len(known) - 1.0


def cost_noise(entry: Input, operator: str = "") -> CostNoise:
    """Randomness of the cost of an input of `operator`: as given, else from its batches, else assumed."""
    batches = [batch for batch in entry.batches if batch.events > 0.0]
    cv2, index, length = entry.cost_cv2, entry.cost_dispersion, entry.cost_dispersion_events
    cost_error = output_error = freedom = 0.0
    sampled = sum(batch.events for batch in batches)
    if len(batches) >= 2:
        freedom = len(batches) - 1.0
        of_cost = _batch_dispersion(batches, [batch.cycles for batch in batches])
        of_output = _batch_dispersion(batches, [batch.outputs for batch in batches])
        if of_cost is not None:
            cost_error = math.sqrt(of_cost / sampled)
            if index is None:
                index, length = of_cost, sampled / len(batches)
        if of_output is not None:
            output_error = math.sqrt(of_output / sampled)
    assumed: Fact | str = ""
    if cv2 is None:
        origin: Fact | str = "1"
        if index is not None:
            origin = Fact("estimation.from_batches")
            if entry.cost_dispersion is not None:
                origin = Fact("estimation.from_dispersion", events=length)
        assumed = Fact("estimation.cost_variation", operator=operator, source=entry.source, origin=origin)
        cv2 = 1.0 if index is None else min(index, _MAX_BATCH_CV2)
    slow = 0.0
    if index is not None and length and not (freedom and index < _chance_limit(cv2, freedom)):
        slow = max(0.0, index - cv2) / length / OU_MEAN_VARIANCE
    unsure = min(_MAX_UNSURE, math.sqrt((_kurtosis(cv2) - 1.0) / sampled)) if sampled and cv2 > 0.0 else 0.0
    from_batches = freedom > 0.0 and entry.cost_cv2 is None and entry.cost_dispersion is None
    return CostNoise(cv2, slow, length or 0.0, cost_error, output_error, freedom, unsure, assumed, from_batches)


def input_costs(deployment: Deployment) -> list[CostNoise]:
    """Randomness of the costs of all inputs, in listing order."""
    noises = [cost_noise(entry, operator.id) for operator in deployment.operators for entry in operator.inputs]
    return [noise.of_these() for noise in noises] if deployment.statistics_of == THESE else noises


def thinning_variance(events: FloatArray, amounts: FloatArray) -> float:
    """Variance of one source event's work by what is filtered out, of nested events: covariance min g (1 - max g)."""
    kept = np.flatnonzero(events <= 1.0)
    order = kept[np.argsort(events[kept])]
    g, m = events[order], amounts[order]
    rest = m * (1.0 - g)
    above = np.concatenate([np.cumsum(rest[::-1])[::-1][1:], [0.0]])[: len(g)]
    return float((m * g * (rest + 2.0 * above)).sum())


def _chance_limit(cv2: float, freedom: float) -> float:
    return cv2 * (1.0 + _BY_CHANCE * math.sqrt(2.0 / freedom))


def _batch_dispersion(batches: Sequence[Batch], amounts: Sequence[float]) -> float | None:
    """Events of a batch times the relative variance of batch means; None where all amounts are 0."""
    events, totals = np.array([batch.events for batch in batches]), np.array(amounts, dtype=np.float64)
    mean = totals.sum() / events.sum()
    if not mean > 0.0:
        return None
    return float((events * (totals / events / mean - 1.0) ** 2).sum() / (len(batches) - 1.0))


def _kurtosis(cv2: float) -> float:
    """Kurtosis of a cost of this variation: of a gamma up to 1, of a lognormal above."""
    if cv2 <= 1.0:
        return 3.0 + 6.0 * cv2
    square = 1.0 + cv2
    return square**4 + 2.0 * square**3 + 3.0 * square**2 - 3.0


def largest_service(mean: float, cv2: npt.ArrayLike, events: float, uniform: npt.ArrayLike) -> FloatArray:
    """Largest of so many services at the `uniform` quantiles: exponential tail up to cv2 1, lognormal above.

    `mean` and the result are in seconds.
    """
    tail = -np.log(np.maximum(np.asarray(uniform, dtype=np.float64), 1e-12)) / max(events, 1.0)
    variation = np.asarray(cv2, dtype=np.float64)
    exponential = 1.0 - variation - variation * np.log(np.minimum(tail, 1.0))
    variance = np.log1p(variation)
    lognormal = np.exp(np.sqrt(variance) * _upper_normal(np.minimum(tail, 0.5)) - 0.5 * variance)
    return np.asarray(mean * np.where(variation <= 1.0, exponential, lognormal))


def _upper_normal(tail: FloatArray) -> FloatArray:
    """Deviates z with P(Z > z) = tail, for tails up to 0.5 (Abramowitz and Stegun 26.2.23, error below 4.5e-4)."""
    t = np.sqrt(-2.0 * np.log(tail))
    above = 2.515517 + 0.802853 * t + 0.010328 * t * t
    below = 1.0 + 1.432788 * t + 0.189269 * t * t + 0.001308 * t**3
    return np.asarray(t - above / below)
