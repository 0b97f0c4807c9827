"""From a source's forecast to factors of its stretch in a deployment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from engine.deployment import Deployment
from engine.elements import FloatArray
from engine.forecasting.forecast import Forecast

__all__ = ["Factors", "History"]


@dataclass(frozen=True, eq=False)
class History:
    """Load of one source: events per bucket from `starts_s` (unix seconds) on, NaN where nothing is known.

    `stretch_eps` is the mean rate of the source's stretch of arrivals in the deployment, events/s; 0 if it has none.
    """

    counts: FloatArray
    starts_s: float
    stretch_eps: float


class Factors:
    """Forecast rate over the rate of the stretch, for the sources of a deployment."""

    def __init__(
        self,
        deployment: Deployment,
        histories: Mapping[str, History],
        found: Mapping[str, Forecast],
        offsets: Mapping[str, int],
        horizon: int,
    ) -> None:
        names = [source.id.partition("@")[0] for source in deployment.sources]
        self._histories, self._found, self._offsets, self._horizon = histories, found, offsets, horizon
        self._names = [name if self._knows(name) else None for name in names]
        self.fixed = [name for name, known in zip(names, self._names, strict=True) if known is None]

    def _knows(self, name: str) -> bool:
        return name in self._found and self._histories[name].stretch_eps > 0.0

    def _scale(self, name: str) -> float:
        return 1.0 / (self._found[name].bucket_s * self._histories[name].stretch_eps)

    def of(self, curve: str) -> FloatArray:
        """Factors of a curve (`mean`, `high`), shape (h, sources)."""
        rows = [
            np.ones(self._horizon)
            if name is None
            else getattr(self._found[name], curve)[self._offsets[name] :] * self._scale(name)
            for name in self._names
        ]
        return np.stack(rows, axis=1)

    def futures(self, count: int) -> FloatArray:
        """Factors of the first `count` futures, shape (count, h, sources)."""
        rows = [
            np.ones((count, self._horizon))
            if name is None
            else self._found[name].paths[:count, self._offsets[name] :] * self._scale(name)
            for name in self._names
        ]
        return np.stack(rows, axis=2)
