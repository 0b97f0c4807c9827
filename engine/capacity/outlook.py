"""Time to saturation: the first bucket of a forecast in which a server of a query has no time left."""

from __future__ import annotations

import numpy as np

from engine.arrays import FloatArray
from engine.capacity.answer import SaturationForecast
from engine.capacity.utilisation import UtilisationModel
from engine.document.deployment import Deployment
from engine.document.unknown_costs import unknown_costs
from engine.provisioning.growth import is_linear

__all__ = ["saturation_forecasts"]

_STRETCH = 64  # buckets that are computed together


def saturation_forecasts(
    deployment: Deployment,
    mean: FloatArray,
    high: FloatArray,
    *,
    starts_s: float,
    bucket_s: float,
    unforecast: tuple[str, ...] = (),
) -> dict[str, SaturationForecast]:
    """First saturation of every query that the sources load; of none where loads are no sums of rates.

    Nor of one with a cost on its way, or on a server that it uses, that nobody knows.

    Parameters
    ----------
    mean, high : array, shape (h, sources)
        Factors of the present rates in each bucket: by the mean of the forecast, and by its upper end.
    starts_s, bucket_s : float
        Where the first bucket begins, and how long one lasts.
    unforecast : tuple of str
        Sources whose factors are 1 for want of a forecast.
    """
    if not is_linear(deployment):
        return {}
    expected, earliest = _full_from(deployment, mean), _full_from(deployment, high)
    present = UtilisationModel(deployment, draws=False)
    names = [source.id for source in deployment.sources]
    found = {}
    for query in deployment.queries:
        servers = sorted(server for server, work in present.of_query(query).servers.items() if work[0] > 0.0)
        if not servers or unknown_costs(deployment, query):
            continue
        first = min(servers, key=lambda server: (expected[server], earliest[server]))
        own = {names[i].partition("@")[0] for i in present.sources_of(query)}
        found[query] = SaturationForecast(
            starts_at_s=starts_s,
            horizon_s=len(mean) * bucket_s,
            at_s=_time_s(expected[servers].min(), bucket_s),
            earliest_at_s=_time_s(min(expected[servers].min(), earliest[servers].min()), bucket_s),
            server=None if np.isinf(min(expected[first], earliest[first])) else deployment.servers[first].name,
            unforecast=tuple(sorted(own & {*unforecast})),
        )
    return found


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
