"""Variation of costs and arrivals at several scales, from sums that add up over epochs, restarts and places.

Costs: over units of n records that took the time t (runs of an operator, epochs, subintervals) the sums of n, t, n^2,
n t and t^2 give a line t = a + b n and what lies beside it. A run's fixed expense a varies no event's cost, so the
dispersion is that of what remains,

    D = residual / (units - 2) / mean n / (mean cost of a record)^2,   at B = sum n^2 / sum n records,

which is B times the relative variance of means over B records: cv2 of one record's cost where costs are independent,
cv2 + v B where a slow component of relative variance v lasts for longer than B.

Arrivals: neighbouring steps with n1 and n2 events in t1 and t2 seconds add (n1/t1 - n2/t2)^2 / (1/t1 + 1/t2) to one
sum and the rate (n1 + n2)/(t1 + t2) to another. The ratio of the two is the index of dispersion, by neighbours so that
trends cancel, and steps need not be of equal length.

References: docs/models/measurement.md, Variation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.document.elements import Batch
from engine.document.kinds import MAX_DISPERSION
from engine.measurement.places import PlaceWindow
from engine.solvers import solving

__all__ = [
    "ARRIVAL_STEPS_S",
    "CostSums",
    "CountSums",
    "EventCosts",
    "RunSums",
    "ScaleDispersion",
    "add_costs",
    "add_counts",
    "arrivals_dispersion",
    "choose_scale",
    "cost_dispersion",
    "cost_sums",
    "measure_arrivals",
    "measure_costs",
    "measure_events",
    "pair_sums",
    "step_counts",
]

#: Widths, about, of the steps in which agents count arrivals: the finest below a quarter second, the next five times
#: as wide.
ARRIVAL_STEPS_S = (0.2, 1.0, 5.0)

_MIN_UNITS = 10  # of a scale, or its dispersion is known to no better than a half
_MIN_PAIRS = 60
_SPREAD = 1e-9  # squared coefficient of variation of records per unit: less is rounding, and no line can be laid
_SHARE = math.exp(-1.0)  # of what an Ornstein-Uhlenbeck process adds at long scales, it adds at its own length
_BY_CHANCE = 1.7  # standard errors
_GROWTH = 4  # of one scale of single events over the one before
_BATCHES = 32


@dataclass(frozen=True, slots=True)
class CostSums:
    """Sums over units: how many, records n, time t, n^2, n t and t^2. Time is CPU seconds, or cycles."""

    units: float = 0.0
    n: float = 0.0
    t: float = 0.0
    nn: float = 0.0
    nt: float = 0.0
    tt: float = 0.0

    def scaled(self, by: float) -> CostSums:
        """The same with times multiplied, as by the capacity of the place."""
        return CostSums(self.units, self.n, self.t * by, self.nn, self.nt * by, self.tt * by * by)


@dataclass(frozen=True, slots=True)
class RunSums:
    """Sums over an operator's runs, and over the epochs that had some."""

    runs: CostSums
    epochs: CostSums

    @classmethod
    def of_values(cls, runs: Sequence[float], epochs: Sequence[float]) -> RunSums:
        """From units, n, t, n^2, n t and t^2 of runs, and units, n^2, n t and t^2 of epochs; n and t are the same."""
        _, n, t, *_ = runs
        units, *squares = epochs
        return cls(CostSums(*runs), CostSums(units, n, t, *squares))


@dataclass(frozen=True, slots=True)
class CountSums:
    """Sums over pairs of neighbouring steps: how many, squared differences, rates, and seconds of a step."""

    pairs: float = 0.0
    squares: float = 0.0
    rates: float = 0.0
    span_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ScaleDispersion:
    """A dispersion at a scale: records of a cost, seconds of arrivals; `count` of `unit` are behind it."""

    value: float
    scale: float
    count: float
    unit: str = ""


def cost_sums(records: npt.ArrayLike, times: npt.ArrayLike) -> CostSums:
    """Sums of units that had so many records and took so long, both of shape (units,); those without records count
    nothing.
    """
    n, t = np.asarray(records, dtype=np.float64), np.asarray(times, dtype=np.float64)
    n, t = n[n > 0.0], t[n > 0.0]
    return CostSums(float(len(n)), *(math.fsum(values) for values in (n, t, n * n, n * t, t * t)))


def add_costs(parts: Iterable[CostSums]) -> CostSums:
    """All of them together, in any order the same bits."""
    listed = list(parts)
    names = ("units", "n", "t", "nn", "nt", "tt")
    return CostSums(*(math.fsum(getattr(part, name) for part in listed) for name in names))


def cost_dispersion(parts: Iterable[CostSums], unit: str = "") -> ScaleDispersion | None:
    """Dispersion of costs at the scale of units, named `unit`. None with fewer than ten, or where nothing was spent.

    Examples
    --------
    >>> found = cost_dispersion([cost_sums([100.0] * 40, [90.0, 110.0] * 20)])
    >>> round(found.value, 3), found.scale
    (1.026, 100.0)
    """
    sums = add_costs(parts)
    if sums.units < _MIN_UNITS or not (sums.n > 0.0 and sums.t > 0.0):
        return None
    fixed, slope = _line(sums)
    residual = sums.tt - 2.0 * (fixed * sums.t + slope * sums.nt)
    residual += fixed * fixed * sums.units + 2.0 * fixed * slope * sums.n + slope * slope * sums.nn
    mean_n, mean_cost = sums.n / sums.units, sums.t / sums.n
    value = max(0.0, residual) / (sums.units - (2.0 if fixed else 1.0)) / mean_n / mean_cost**2
    return ScaleDispersion(min(value, MAX_DISPERSION), sums.nn / sums.n, sums.units, unit)


def _line(sums: CostSums) -> tuple[float, float]:
    """Fixed expense of a unit and cost of a record; no expense where units are alike, or one of the two is negative."""
    spread = sums.units * sums.nn - sums.n * sums.n
    if spread > _SPREAD * sums.n * sums.n:
        slope = (sums.units * sums.nt - sums.n * sums.t) / spread
        fixed = (sums.t - slope * sums.n) / sums.units
        if slope >= 0.0 and fixed > 0.0:
            return fixed, slope
    return 0.0, sums.t / sums.n


def pair_sums(before: float, before_s: float, after: float, after_s: float) -> CountSums:
    """Sums of one pair of neighbouring steps: events and seconds of each.

    Examples
    --------
    >>> pair_sums(4, 1.0, 6, 1.0)
    CountSums(pairs=1.0, squares=2.0, rates=5.0, span_s=1.0)
    """
    difference = before / before_s - after / after_s
    square = difference**2 / (1.0 / before_s + 1.0 / after_s)
    span_s = before_s + after_s
    return CountSums(1.0, square, (before + after) / span_s, 0.5 * span_s)


def step_counts(values: Sequence[float]) -> list[CountSums]:
    """By step, from the values of one after the other."""
    width = len(values) // len(ARRIVAL_STEPS_S)
    return [CountSums(*values[i : i + width]) for i in range(0, len(values), width)]


def add_counts(parts: Iterable[CountSums]) -> CountSums:
    """All of them together, in any order the same bits."""
    listed = list(parts)
    names = ("pairs", "squares", "rates", "span_s")
    return CountSums(*(math.fsum(getattr(part, name) for part in listed) for name in names))


def arrivals_dispersion(places: Sequence[CountSums]) -> ScaleDispersion | None:
    """Index of dispersion of a source that several places count, at one scale. None with fewer than sixty pairs, or
    without events.

    Notes
    -----
    Whether bursts of several places come together is not known from sums: they are taken to. So with m the rate of a
    place and x what its index has above 1 beyond chance, the whole has (sum sqrt(x m))^2 / sum m above 1, and never
    less than all pairs together show. A walk that splits the source evenly then gives each place its own bursts.
    """
    busy = [place for place in places if place.pairs > 0.0]
    total = add_counts(busy)
    if total.pairs < _MIN_PAIRS or not total.rates > 0.0:
        return None
    deviation = math.fsum(math.sqrt(_excess(place) * place.rates / place.pairs) for place in busy)
    rate = math.fsum(place.rates / place.pairs for place in busy)
    value = max(total.squares / total.rates, 1.0 + deviation**2 / rate if len(busy) > 1 else 0.0)
    return ScaleDispersion(min(value, MAX_DISPERSION), total.span_s / total.pairs, total.pairs, "pairs of steps")


def _excess(place: CountSums) -> float:
    """Index above 1 beyond what chance shows: neighbours share a step, so a squared error is 3 / pairs and not 2."""
    if not place.rates > 0.0:
        return 0.0
    return max(0.0, place.squares / place.rates - 1.0 - _BY_CHANCE * math.sqrt(3.0 / place.pairs))


def choose_scale(found: Iterable[ScaleDispersion | None], least: float = 0.0) -> ScaleDispersion | None:
    """The shortest scale that shows 1/e of what the largest dispersion has above `least`; None without any.

    That scale is about as long as what moves: shorter ones show little of it, and at longer ones a model with one
    length would take it for slower than it is.

    Examples
    --------
    >>> scales = [ScaleDispersion(1.1, 0.2, 900), ScaleDispersion(6.0, 1.0, 180), ScaleDispersion(8.0, 5.0, 36)]
    >>> choose_scale(scales, least=1.0).scale
    1.0
    """
    known = sorted((scale for scale in found if scale is not None), key=lambda scale: scale.scale)
    if not known:
        return None
    enough = least + _SHARE * max(0.0, max(scale.value for scale in known) - least)
    return next((scale for scale in known if scale.value >= enough), known[0])


def measure_costs(
    places: Mapping[str, RunSums], subintervals: Iterable[PlaceWindow], capacity_cps: Mapping[str, float]
) -> ScaleDispersion | None:
    """Dispersion of an operator's costs by runs, epochs and subintervals, at the scale that `choose_scale` takes.

    Parameters
    ----------
    places : mapping
        Sums of all that each place told.
    subintervals : iterable of PlaceWindow
        Records and CPU seconds of its runs, subinterval by subinterval.
    capacity_cps : mapping
        Cycles per second of one core by place. Times count as cycles; a place without one has no say.
    """
    solving()
    told = [
        (sums, capacity_cps[place]) for place, sums in places.items() if place in capacity_cps and sums.runs.units > 0.0
    ]
    totals: dict[float, list[CostSums]] = {}
    for window in subintervals:
        if window.place in capacity_cps and window.run_records > 0.0:
            part = cost_sums([window.run_records], [window.run_cpu_s])
            totals.setdefault(window.at_s, []).append(part.scaled(capacity_cps[window.place]))
    whole = [add_costs(parts) for parts in totals.values()]
    return choose_scale(
        [
            cost_dispersion((sums.runs.scaled(capacity) for sums, capacity in told), "runs"),
            cost_dispersion((sums.epochs.scaled(capacity) for sums, capacity in told), "epochs"),
            cost_dispersion([cost_sums([sums.n for sums in whole], [sums.t for sums in whole])], "subintervals"),
        ]
    )


def measure_arrivals(places: Mapping[str, Sequence[CountSums]], longest_s: float) -> ScaleDispersion | None:
    """Index of dispersion of a source by its places, at the scale that `choose_scale` takes of those up to `longest_s`.

    Each place has the sums of one query's first operator over steps of each of `ARRIVAL_STEPS_S`.
    """
    solving()
    found = [arrivals_dispersion(counts) for counts in zip(*places.values(), strict=True)]
    return choose_scale((scale for scale in found if scale is not None and scale.scale <= longest_s), least=1.0)


@dataclass(frozen=True, slots=True)
class EventCosts:
    """Variation of costs that are known event by event. `dispersion` is None with fewer than forty events."""

    mean: float
    cv2: float
    dispersion: ScaleDispersion | None
    batches: tuple[Batch, ...]


def measure_events(cycles: npt.ArrayLike, selectivity: float = 0.0) -> EventCosts:
    """Variation of single events' costs in their order, shape (events,), two at least and not all 0.

    Raises
    ------
    ValueError
        Fewer than two costs, or their sum is 0 or without end.
    """
    costs = np.asarray(cycles, dtype=np.float64)
    with np.errstate(over="ignore"):
        total = float(costs.sum())
    if len(costs) < 2 or not 0.0 < total < math.inf:
        raise ValueError(f"{len(costs)} costs with a sum of {total:g}; allowed: two or more, with a sum above 0")
    mean = total / len(costs)
    cv2 = float(((costs / mean - 1.0) ** 2).sum()) / (len(costs) - 1.0)
    scales, width = [], _GROWTH
    while width * _MIN_UNITS <= len(costs):
        groups = costs[: len(costs) // width * width].reshape(-1, width).sum(axis=1)
        scales.append(cost_dispersion([cost_sums(np.full(len(groups), float(width)), groups)]))
        width *= _GROWTH
    parts = np.array_split(costs, min(_BATCHES, len(costs)))
    batches = tuple(Batch(float(len(part)), selectivity * len(part), float(part.sum())) for part in parts)
    return EventCosts(mean, cv2, choose_scale(scales), batches)
