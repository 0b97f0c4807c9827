"""Forecast of one source: expected load, a band, possible futures, and how well all that would have worked before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.forecasts.answer import ForecastBacktest, SourceForecast
from engine.forecasts.backtest import backtest_source, widen_bands
from engine.forecasts.history import Prepared, prepare
from engine.forecasts.model import fit
from engine.records import Fact

__all__ = ["LEVEL", "Factors", "LoadForecast", "SourceHistory", "forecast"]


LEVEL = 0.9
PATHS = 400


@dataclass(frozen=True, eq=False)
class LoadForecast:
    """Forecast of a source. Loads are events per bucket; buckets follow the history's end.

    Attributes
    ----------
    mean, low, high : array, shape (horizon,)
        Expected load, and the ends of the band.
    paths : array, shape (k, horizon)
        Futures drawn from the model, each as likely as the others.
    backtest : ForecastBacktest
        Errors and coverage at earlier moments of the same history.
    model : str
        The fitted model, in words.
    notes : tuple of Fact
        Notes for the reader: gaps, seasons left out.
    level : float
        Share of futures within the band.
    """

    mean: FloatArray
    low: FloatArray
    high: FloatArray
    paths: FloatArray
    backtest: ForecastBacktest
    model: Fact
    notes: tuple[Fact | str, ...]
    level: float
    bucket_s: float

    @property
    def facts(self) -> SourceForecast:
        """Everything but the curves."""
        return SourceForecast(self.model, self.notes, self.level, self.bucket_s, len(self.paths), self.backtest)


def forecast(
    history: FloatArray,
    *,
    bucket_s: float,
    horizon: int,
    level: float = LEVEL,
    seasons: Sequence[int] | None = None,
    paths: int = PATHS,
    seed: int = 0,
) -> LoadForecast:
    """Forecast a source's load.

    Parameters
    ----------
    history : array, shape (n,)
        Events per bucket, oldest first; NaN where nothing is known.
    bucket_s : float
        Length of a bucket, seconds.
    horizon : int
        Buckets to forecast.
    level : float
        Share of futures that the band is to hold, between 0.5 and 1.
    seasons : sequence of int, optional
        Lengths in buckets, instead of a day and a week where the history shows them.
    paths : int
        Futures to draw.
    seed : int
        The same history and seed give the same forecast.

    Raises
    ------
    InfeasibleError
        The history is too short, too full of gaps or empty.

    Notes
    -----
    The band is that of the drawn futures, widened by the factor that the rolling origins asked for
    (`engine.forecasts.backtest`). The expected load is the centre on the logarithmic scale times the mean of what the
    residuals do to it (N. Duan, "Smearing estimate", 1983).
    """
    if horizon < 1:
        raise ValueError(f"horizon is {horizon}; allowed: a whole number of at least 1")
    if not 0.5 <= level < 1.0:
        raise ValueError(f"level is {level}; allowed: from 0.5 to below 1")
    prepared = prepare(history, bucket_s=bucket_s, seasons=seasons)
    fitted = fit(prepared)
    tested = backtest_source(prepared, fitted.structure, bucket_s=bucket_s, horizon=horizon, level=level, seed=seed)
    centre = fitted.centre(horizon)
    drawn = widen_bands(fitted.paths(horizon, paths, seed), centre, tested.widening)
    futures = prepared.counts(drawn)
    low, high = np.quantile(futures, [(1.0 - level) / 2.0, (1.0 + level) / 2.0], axis=0)
    notes = prepared.notes + tested.notes
    mean = np.clip(_expected(prepared, centre, fitted.blocks), low, high)
    return LoadForecast(mean, low, high, futures, tested, fitted.structure.words, notes, level, bucket_s)


def _expected(prepared: Prepared, centre: FloatArray, blocks: FloatArray) -> FloatArray:
    smear = float(np.exp(np.clip(blocks, -2.0, 2.0)).mean())
    return np.asarray(np.maximum(np.exp(np.minimum(centre, 60.0)) * smear - prepared.offset, 0.0))


@dataclass(frozen=True, eq=False)
class SourceHistory:
    """Load of one source: events per bucket from `starts_s` (unix seconds) on, NaN where nothing is known.

    `arrivals_eps` is the mean rate of the source's arrivals in the deployment, events/s; 0 if it has none.
    """

    counts: FloatArray
    starts_s: float
    arrivals_eps: float


class Factors:
    """Forecast rate over the rate of the arrivals, for the sources of a deployment."""

    def __init__(
        self,
        deployment: Deployment,
        histories: Mapping[str, SourceHistory],
        found: Mapping[str, LoadForecast],
        offsets: Mapping[str, int],
        horizon: int,
    ) -> None:
        names = [source.id.partition("@")[0] for source in deployment.sources]
        self._histories, self._forecasts, self._offsets, self._horizon = histories, found, offsets, horizon
        self._names = [name if self._knows(name) else None for name in names]
        self.fixed = [name for name, known in zip(names, self._names, strict=True) if known is None]

    def _knows(self, name: str) -> bool:
        return name in self._forecasts and self._histories[name].arrivals_eps > 0.0

    def _scale(self, name: str) -> float:
        return 1.0 / (self._forecasts[name].bucket_s * self._histories[name].arrivals_eps)

    def of(self, curve: str) -> FloatArray:
        """Factors of a curve (`mean`, `high`), shape (h, sources)."""
        rows = [
            np.ones(self._horizon)
            if name is None
            else getattr(self._forecasts[name], curve)[self._offsets[name] :] * self._scale(name)
            for name in self._names
        ]
        return np.stack(rows, axis=1)

    def futures(self, count: int) -> FloatArray:
        """Factors of the first `count` futures, shape (count, h, sources)."""
        rows = [
            np.ones((count, self._horizon))
            if name is None
            else self._forecasts[name].paths[:count, self._offsets[name] :] * self._scale(name)
            for name in self._names
        ]
        return np.stack(rows, axis=2)
