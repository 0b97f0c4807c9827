"""What was learned of a stream's sweeping watermarks elsewhere: what a source goes by while it has few of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from engine.errors import Fault
from engine.fields import Field, Listed, Number, Table, Text

__all__ = ["WATERMARK", "WatermarkPrior"]

_SECONDS = Number(least=0)
_QUANTILES = Table(
    "quantiles",
    Field("levels", Listed(Number(least=0, most=1), least=1, most=1000), required=True, help="ascending"),
    Field("values_s", Listed(_SECONDS, least=1, most=1000), required=True, help="the delay at each level"),
)
WATERMARK = Table(
    "a stream's watermarks",
    Field("stream", Text(), required=True, help="id of the source"),
    Field("period_s", Number(above=0), required=True, help="from one window's end to the next"),
    Field("mean_s", _SECONDS, nullable=True, help="of the delay from a window's end to its watermark"),
    Field("variance_s2", _SECONDS, nullable=True, help="of the delay, predictive"),
    Field("epochs", Number(least=0, whole=True), required=True, help="windows behind them"),
    Field("quantiles", _QUANTILES, nullable=True, help="of the delay, where there are enough windows"),
)


@dataclass(frozen=True, slots=True)
class WatermarkPrior:
    """Delays of one stream's sweeping watermarks; None where nothing is known but the period."""

    stream: str
    period_s: float
    epochs: int
    mean_s: float | None = None
    variance_s2: float | None = None
    levels: tuple[float, ...] = ()
    values_s: tuple[float, ...] = ()

    @classmethod
    def of(cls, read: Mapping[str, Any]) -> WatermarkPrior:
        """Of a document that `WATERMARK` has read without a fault."""
        quantiles = read.get("quantiles") or {"levels": (), "values_s": ()}
        return cls(
            stream=read["stream"],
            period_s=read["period_s"],
            epochs=read["epochs"],
            mean_s=read.get("mean_s"),
            variance_s2=read.get("variance_s2"),
            levels=tuple(quantiles["levels"]),
            values_s=tuple(quantiles["values_s"]),
        )

    @staticmethod
    def check(read: Mapping[str, Any], path: str, faults: list[Fault]) -> None:
        """What its fields say of each other."""
        if (read.get("mean_s") is None) != (read.get("variance_s2") is None):
            faults.append(Fault(f"{path}.mean_s", "mean_s and variance_s2 stand together, or neither does"))
        quantiles = read.get("quantiles")
        if not quantiles:
            return
        levels, values = quantiles["levels"], quantiles["values_s"]
        if len(levels) != len(values):
            message = f"values_s has {len(values)} items; allowed: {len(levels)}, one for each level"
            faults.append(Fault(f"{path}.quantiles.values_s", message))
        for name, items in quantiles.items():
            if any(after < before for before, after in pairwise(items)):
                faults.append(Fault(f"{path}.quantiles.{name}", f"{name} falls; allowed: ascending"))
