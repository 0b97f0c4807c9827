"""Time to saturation: the first bucket of a forecast in which a server of a query, or any, has no time left."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from engine.arrays import FloatArray
from engine.capacity.answer import SaturationForecast
from engine.capacity.utilisation import UtilisationModel
from engine.document.deployment import Deployment
from engine.document.unknown_costs import unknown_costs
from engine.estimation.linear_loads import is_linear

__all__ = ["SaturationForecasts", "saturation_forecasts"]

_STRETCH = 64  # buckets that are computed together


def saturation_forecasts(
    deployment: Deployment,
    mean: FloatArray,
    high: FloatArray,
    low: FloatArray,
    *,
    starts_s: float,
    bucket_s: float,
    unforecast: tuple[str, ...] = (),
) -> SaturationForecasts:
    """First saturation of every query that the sources load, and of the cluster; of none where loads are no sums.

    Nor of one with a cost on its way, or on a server that it uses, that nobody knows; of the cluster with any such.

    Parameters
    ----------
    mean, high, low : array, shape (h, sources)
        Factors of the present rates in each bucket: by the mean of the forecast, and by its upper and lower end.
    starts_s, bucket_s : float
        Where the first bucket begins, and how long one lasts.
    unforecast : tuple of str
        Sources whose factors are 1 for want of a forecast.
    """
    if not is_linear(deployment):
        return SaturationForecasts()
    expected, earliest, latest = (_full_from(deployment, factors) for factors in (mean, high, low))
    present = UtilisationModel(deployment, draws=False)
    names = [source.id for source in deployment.sources]

    def forecast_of(servers: Sequence[int], sources: Collection[str]) -> SaturationForecast:
        first = min(servers, key=lambda server: (expected[server], earliest[server], server))
        at, begin = float(expected[servers].min()), float(earliest[servers].min())
        return SaturationForecast(
            starts_at_s=starts_s,
            horizon_s=len(mean) * bucket_s,
            at_s=_time_s(at, bucket_s),
            earliest_at_s=_time_s(min(at, begin), bucket_s),
            server=None if np.isinf(min(expected[first], earliest[first])) else deployment.servers[first].name,
            unforecast=tuple(sorted({*sources} & {*unforecast})),
            latest_at_s=_time_s(max(at, float(latest[servers].min())), bucket_s),
        )

    found, is_known = {}, True
    for query in deployment.queries:
        if unknown_costs(deployment, query):
            is_known = False
            continue
        servers = sorted(server for server, work in present.of_query(query).servers.items() if work[0] > 0.0)
        if servers:
            own = {names[i].partition("@")[0] for i in present.sources_of(query)}
            found[query] = forecast_of(servers, own)
    loaded = np.flatnonzero(present.load[:, 0] > 0.0).tolist()
    whole = forecast_of(loaded, {name.partition("@")[0] for name in names}) if loaded and is_known else None
    return SaturationForecasts(found, whole)


@dataclass(frozen=True)
class SaturationForecasts:
    """Times to saturation by query, and of the cluster; of what is not named nobody knows one."""

    queries: Mapping[str, SaturationForecast] = field(default_factory=dict)
    cluster: SaturationForecast | None = None


def _full_from(deployment: Deployment, factors: FloatArray) -> FloatArray:
    """First bucket in which each server gets all that it can do, or more; infinite where there is none, (servers,)."""
    first = np.full(len(deployment.servers), np.inf)
    for begin in range(0, len(factors), _STRETCH):
        model = UtilisationModel(deployment, factors=factors[begin : begin + _STRETCH])
        is_full = model.load >= model.capacity[:, None]
        at = np.where(is_full.any(axis=1), begin + is_full.argmax(axis=1), np.inf)
        first = np.minimum(first, at)
    return first


def _time_s(bucket: float, bucket_s: float) -> float | None:
    return None if np.isinf(bucket) else float(bucket) * bucket_s
