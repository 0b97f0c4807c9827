"""Settings of a query's adaptation at its source: the method and its parameters with their safe ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from engine.fields import Enumeration, Field, FieldTable, ListOf, Number, SettingsRecord

__all__ = ["METHODS", "OBJECTIVES", "SETTINGS", "AdaptationSettings"]

#: scalar: one effective budget along the envelope (default); fixed: load factors by hand; the rest are baselines.
METHODS = ("scalar", "fixed", "all-sp", "all-src", "filter-src", "best-op")
OBJECTIVES = ("bytes", "records")

SETTINGS = FieldTable(
    "adaptation settings",
    Field("method", Enumeration(METHODS), help="scalar adapts one effective budget; fixed keeps given load factors"),
    Field("objective", Enumeration(OBJECTIVES), help="quantity to minimise: bytes or records sent; bytes"),
    Field("load_factors", ListOf(Number(least=0, most=1)), help="of the method fixed, one for each operator"),
    Field("margin", Number(least=0.90, most=0.98), help="share of the budget that plans use; 0.95"),
    Field("floor", Number(least=0, most=0.01), help="share of the input that always runs the whole pipeline; 0.005"),
    Field("drained_thres", Number(least=0.02, most=0.10), help="share of overflowing records that makes a query "
          "congested; 0.05"),
    Field("idle_thres", Number(least=0.05, most=0.20), help="unused share of the budget that makes it idle; 0.1"),
    Field("z_least", Number(least=0.25, most=1), help="lowest effective budget, as a share of the budget; 0.25"),
    Field("z_most", Number(least=1, most=4), help="largest effective budget, as a multiple of the budget; 4"),
)  # fmt: skip


@dataclass(frozen=True)
class AdaptationSettings(SettingsRecord):
    """Settings of one query at one source (docs/models/jarvis.md; safe ranges as in `SETTINGS`)."""

    TABLE: ClassVar[FieldTable] = SETTINGS

    method: str = "scalar"
    objective: str = "bytes"
    load_factors: tuple[float, ...] = ()
    margin: float = 0.95
    floor: float = 0.005
    drained_thres: float = 0.05
    idle_thres: float = 0.10
    z_least: float = 0.25
    z_most: float = 4.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "load_factors", tuple(self.load_factors))

    def to_dict(self) -> Mapping[str, Any]:
        """Document that `parse` reads."""
        return {**asdict(self), "load_factors": list(self.load_factors)}
