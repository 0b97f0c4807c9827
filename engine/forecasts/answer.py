"""Answer of a forecast, as it is kept: dates of violations, probabilities, pool sizes, and how good the forecast is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypedDict

from engine.capacity.answer import SaturationForecast
from engine.records import Omitted, Record, Sentence, Unwritten

__all__ = [
    "Band",
    "Curves",
    "ForecastAnswer",
    "ForecastBacktest",
    "ForecastBottleneck",
    "ForecastCurves",
    "FutureChances",
    "HoldChance",
    "ObjectiveViolation",
    "PoolForecast",
    "QueryForecast",
    "SourceForecast",
]

Curves = dict[str, list[float]]


class ForecastCurves(TypedDict, total=False):
    """Curves of a forecast: sources and total (events/s), queries (s and probability), hours violated by pool and day.

    The total is left out where no source is forecast.
    """

    sources: dict[str, Curves]
    total: Curves
    queries: dict[str, Curves]
    pools: dict[str, list[list[float]]]


@dataclass(frozen=True)
class Band(Record):
    """Errors of one interval ahead. Shares; None where nothing could be compared.

    `mape` and `median_ape` are absolute errors over the actual load; `coverage` is the share of actual loads within the
    band. The `naive_` ones are of the baseline, which repeats the last season.
    """

    ahead: str
    from_s: float
    to_s: float
    n: int
    mape: float | None
    median_ape: float | None
    coverage: float | None
    naive_mape: float | None
    naive_median_ape: float | None
    naive_coverage: float | None


@dataclass(frozen=True)
class ForecastBacktest(Record):
    """Outcome of the rolling origins. `widening`: factors of the band's lower and upper half."""

    n_origins: int
    mape: float | None
    median_ape: float | None
    coverage: float | None
    widening: tuple[float, float]
    bands: tuple[Band, ...]
    notes: Unwritten[tuple[Sentence, ...]] = ()

    @property
    def total(self) -> Band | None:
        """Over all horizons; None where nothing could be compared."""
        return self.bands[-1] if self.bands else None


@dataclass(frozen=True)
class SourceForecast(Record):
    """Forecast of a source without its curves: the model in words, the share of futures in the band, the backtest."""

    model: Sentence
    notes: tuple[Sentence, ...]
    level: float
    bucket_s: float
    paths: int
    backtest: ForecastBacktest


@dataclass(frozen=True)
class ObjectiveViolation(Record):
    """A bucket over an objective: its index, realised latency there with its interval, and Mace.

    `confirmed` says whether a walk of that very bucket is over the bound too. A query that `never_catches_up` there is
    over it in time, whatever its latency is within the bucket's stretch.
    """

    index: int
    estimate_s: float
    low_s: float
    high_s: float
    mace_s: float
    confirmed: bool
    never_catches_up: bool = False


@dataclass(frozen=True)
class ForecastBottleneck(Record):
    """Where the work of a query waits at its first violation, and which operator takes most there."""

    server: str
    node: str | None
    load_peak: float
    load_mean: float
    operator: str | None
    share: float | None


@dataclass(frozen=True)
class QueryForecast(Record):
    """One query over the coming buckets; latencies are of its objective's statistic, in seconds.

    Attributes
    ----------
    worst_mean_s, worst_upper_s : float
        Highest median, and highest upper end of its 90 % interval, at the expected loads.
    worst_high_s : float
        Highest median with every source at the upper end of its band.
    first_risk : ObjectiveViolation or None
        First bucket at the expected loads of which the upper end is over the bound.
    first_mean, first_high : ObjectiveViolation or None
        First bucket of which the median is over the bound, at the expected loads and at the upper ends.
    endless_buckets : int
        Buckets at the expected loads in which it never catches up.
    unknown : str
        Why its latency is not known, where nothing comes out: the figures are then what one event would meet.
    lacking : str
        What its figures lack where servers run other policies than stimulus time. Upper ends are widened by the factor
        of the policies where one is known.
    is_for_person : bool
        Whether nobody knows such a factor: an objective that holds then does so by stimulus time alone.
    """

    query: str
    statistic: str
    bound_s: float
    worst_mean_s: float
    worst_upper_s: float
    worst_high_s: float
    first_risk: ObjectiveViolation | None
    first_mean: ObjectiveViolation | None
    first_high: ObjectiveViolation | None
    endless_buckets: int
    unknown: str
    lacking: Sentence
    is_for_person: bool
    bottleneck: ForecastBottleneck | None = None

    @property
    def violations(self) -> dict[str, ObjectiveViolation]:
        """First violations by band, those that are seen; of equal dates the first counts."""
        dates = {"high": self.first_high, "mean": self.first_mean, "risk": self.first_risk}
        return {band: date for band, date in dates.items() if date is not None}

    @property
    def first_band(self) -> str | None:
        """Band of the earliest violation."""
        seen = self.violations
        return min(seen, key=lambda band: seen[band].index, default=None)


@dataclass(frozen=True)
class HoldChance(Record):
    """Probability that an objective holds over the whole period, and the half width of its 90 % interval."""

    holds: float
    error: float


@dataclass(frozen=True)
class FutureChances(Record):
    """Probabilities from the futures drawn: that all objectives hold, and that each does."""

    paths: int
    all_hold: float
    all_hold_error: float
    queries: dict[str, HoldChance]


@dataclass(frozen=True)
class PoolForecast(Record):
    """One pool size: its price and its outcome in the futures; `refused` says why it cannot be had."""

    size: int
    price_per_hour: float | None
    refused: str
    probability: FutureChances | None


@dataclass(frozen=True)
class ForecastAnswer(Record):
    """Answers of a forecast without its curves. Buckets begin at `starts_s` and last `bucket_s`.

    `assumed` are sentences about what the walks rest on, `coarse_sources` sources whose counts hide bursts.
    `saturation` says when servers of each query are full (None of one that was kept without), `cluster_saturation` when
    the first of all is.
    """

    TITLE: ClassVar[str] = "a forecast"

    starts_s: float
    bucket_s: float
    horizon: int
    nodes: int
    level: float
    sources: dict[str, SourceForecast]
    refused: dict[str, Sentence]
    queries: tuple[QueryForecast, ...]
    walks: int
    probability: FutureChances | None
    pools: tuple[PoolForecast, ...]
    assumptions: tuple[Sentence, ...]
    assumed: tuple[Sentence, ...]
    coarse_sources: tuple[str, ...]
    saturation: Omitted[dict[str, SaturationForecast]] = None
    cluster_saturation: Omitted[SaturationForecast] = None
